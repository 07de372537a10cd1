//! Pools that are whole, and pools with each kind of structure damaged in turn.

use std::sync::Arc;

use media::drive::SimulatedOptions;
use media::{Pmem, Simulated, SimulatedPmem};
use stdx::Prng;
use stdx::num::usize64;

use super::*;
use crate::address::BLOCK;
use crate::pool::{OpenOptions, Pool, PoolSpec, VolumeSpec};
use crate::segment::Stream;

mod damage;
mod hostile;

const MIB: u64 = 1 << 20;

/// Media that outlive the pools on them.
#[derive(Clone)]
struct Media {
    drives: Vec<Arc<Simulated>>,
    pmem: Vec<Arc<SimulatedPmem>>,
}

impl Media {
    /// Drives, and a log on so many persistent memories, or on the drives.
    fn new(drives: usize, memories: usize) -> Self {
        let drive = |n: usize| {
            Simulated::new(SimulatedOptions {
                capacity: 48 * MIB,
                seed: n as u64,
                volatile_cache: false,
                ..SimulatedOptions::default()
            })
        };
        let power = Arc::default();
        let memory = |_| Arc::new(SimulatedPmem::with_power(6 * MIB, Arc::clone(&power)));
        Self { drives: (0..drives).map(drive).collect(), pmem: (0..memories).map(memory).collect() }
    }

    fn log(&self) -> LogSpec {
        let device = |pmem: &Arc<SimulatedPmem>| Arc::new(Pmem::Simulated(Arc::clone(pmem)));
        match self.pmem.is_empty() {
            true => LogSpec::Drives,
            false => LogSpec::Pmem(self.pmem.iter().map(device).collect()),
        }
    }

    fn opened(&self) -> Vec<Arc<Drive>> {
        self.drives.iter().map(|drive| Arc::new(Drive::Simulated(Arc::clone(drive)))).collect()
    }

    async fn create(&self, scheme: raid::Scheme) -> Pool {
        self.create_sharded(scheme, 1).await
    }

    async fn create_sharded(&self, scheme: raid::Scheme, shards: u16) -> Pool {
        let spec = PoolSpec {
            name: "fast".into(),
            id: [7; 16],
            drives: self.opened(),
            scheme,
            log: self.log(),
            log_bytes: Some(3 * MIB * u64::from(shards)),
            shards: Some(shards),
            au_bytes: Some(MIB),
            created: 0,
        };
        Pool::create(spec, &[]).await.unwrap()
    }

    async fn open(&self) -> Pool {
        Pool::open(self.opened(), self.log(), OpenOptions::default(), &[]).await.unwrap()
    }

    fn spec(&self, data: bool) -> Spec {
        let given = |(n, drive)| Given { name: format!("d{n}"), drive: Ok(drive) };
        Spec {
            drives: self.opened().into_iter().enumerate().map(given).collect(),
            log: Some(self.log()),
            log_names: vec!["log0".into(), "log1".into()],
            data,
            log_records: true,
        }
    }

    /// All that was ever written to the drives, in operations.
    fn written(&self) -> (u64, u64) {
        let counters = self.drives.iter().map(|drive| drive.counters());
        counters.fold((0, 0), |(writes, flushes), c| (writes + c.writes, flushes + c.flushes))
    }

    /// Dumps, and makes sure that nothing was written.
    async fn dump(&self, data: bool) -> Report {
        let before = self.written();
        let bytes = |pmem: &Arc<SimulatedPmem>| {
            Pmem::Simulated(Arc::clone(pmem)).with(0, 6 << 20, <[u8]>::to_vec).unwrap()
        };
        let memory: Vec<Vec<u8>> = self.pmem.iter().map(bytes).collect();
        let spec = self.spec(data);
        let report = dump(&spec, &mut |_| {}).await;
        assert_eq!(self.written(), before, "a dump writes nothing");
        assert!(memory == self.pmem.iter().map(bytes).collect::<Vec<_>>(), "nor to the log");
        report
    }
}

async fn volume(pool: &Pool, name: &str, bytes: u64) -> crate::Volume {
    let spec = VolumeSpec {
        name: name.into(),
        id: [1; 16],
        bytes,
        block_size: 4096,
        quota: None,
        reservation: None,
    };
    pool.create_volume(spec).await.unwrap()
}

/// Writes here and there, and frees some of it.
async fn scribble(volume: &crate::Volume, writes: u64, seed: u64) {
    let mut prng = Prng::new(seed);
    let blocks = volume.len() / BLOCK as u64;
    for _ in 0..writes {
        let count = 1 + prng.below(8);
        let first = prng.below(blocks - count);
        let (offset, len) = (first * BLOCK as u64, count * BLOCK as u64);
        if prng.below(20) == 0 {
            volume.deallocate(offset, len).await.unwrap();
        } else {
            let mut data = vec![0; usize64(count) * BLOCK];
            prng.fill(&mut data);
            volume.write(offset, &data).await.unwrap();
        }
    }
}

fn whole(report: &Report) {
    let bad = report.findings.iter().find(|finding| finding.severity > Severity::Note);
    assert!(bad.is_none(), "{:#?}", report.findings);
}

#[test]
fn a_pool_closed_in_order_is_whole_and_described() {
    for (memories, scheme) in [(1, raid::Scheme::Raid6), (0, raid::Scheme::Raid5)] {
        reactor::simulate(1, async move {
            let media = Media::new(5, memories);
            let pool = media.create(scheme).await;
            let v = volume(&pool, "db", 24 * MIB).await;
            scribble(&v, 3000, 1).await;
            v.write_zeroes(0, 24 * MIB).await.unwrap();
            let data = vec![9; usize64(MIB)];
            for at in 0..4 {
                v.write(at * MIB, &data).await.unwrap();
            }
            pool.close().await.unwrap();
            let report = media.dump(true).await;
            whole(&report);
            assert!(report.not_checked.is_empty(), "{:?}", report.not_checked);
            assert_eq!(report.pool.as_ref().unwrap().name, "fast");
            assert_eq!(report.volumes[0].used, 4 * MIB);
            assert_eq!(report.shards[0].blocks, 1024);
            assert_eq!(report.shards[0].log.as_ref().unwrap().contents, 0);
            assert_eq!(report.drives.len(), 5);
            let live: u64 = report.segments.iter().map(|s| u64::from(s.live)).sum();
            assert_eq!(live, report.shards[0].blocks + report.shards[0].metadata);
            for segment in report.segments.iter().filter(|s| s.stream == Stream::Metadata) {
                assert_eq!(segment.hint, segment.live, "counts of metadata are exact");
            }
        });
    }
}

#[test]
fn a_pool_that_crashed_is_whole_at_any_time() {
    for memories in [1, 2, 0] {
        let media = Media::new(4, memories);
        reactor::simulate(1, {
            let media = media.clone();
            async move {
                let pool = media.create(raid::Scheme::Raid6).await;
                let v = volume(&pool, "db", 24 * MIB).await;
                scribble(&v, 1500, 1).await;
            }
        });
        for round in 2..8 {
            let media = media.clone();
            reactor::simulate(round, async move {
                let report = media.dump(true).await;
                whole(&report);
                assert!(report.shards[0].log.as_ref().unwrap().records > 0);
                let pool = media.open().await;
                let v = pool.volume("db").unwrap();
                scribble(&v, 400 * round, round).await;
            });
        }
    }
}

/// What a volume had is given back by a record of the log, which the map may learn much later: that is no damage.
#[test]
fn a_volume_deleted_just_before_a_crash_is_no_finding() {
    for cloned in [false, true] {
        let media = Media::new(4, 1);
        reactor::simulate(1, {
            let media = media.clone();
            async move {
                let pool = media.create(raid::Scheme::Raid6).await;
                let v = volume(&pool, "db", 24 * MIB).await;
                scribble(&v, 1500, 1).await;
                if cloned {
                    let (volume, snapshot) = (String::from("db"), String::from("mon"));
                    let spec = crate::SnapshotSpec {
                        volume: volume.clone(),
                        name: snapshot.clone(),
                        id: [2; 16],
                        created: 0,
                    };
                    pool.take_snapshots(vec![spec]).await.unwrap();
                    let (name, id) = ("dev".into(), [3; 16]);
                    let spec = crate::CloneSpec {
                        volume,
                        snapshot,
                        name,
                        id,
                        bytes: None,
                        quota: None,
                        reservation: None,
                    };
                    pool.clone_volume(spec).await.unwrap();
                    pool.delete_snapshot("db", "mon").await.unwrap();
                }
                // All is in the map by then.
                pool.audit_space().await.unwrap();
                pool.delete_volume("db").await.unwrap();
            }
        });
        reactor::simulate(2, async move {
            let mut spec = media.spec(true);
            spec.log_records = false;
            let report = dump(&spec, &mut |_| {}).await;
            whole(&report);
            let pool = media.open().await;
            assert_eq!(pool.volumes().len(), usize::from(cloned));
        });
    }
}

#[test]
fn every_shard_is_looked_at() {
    let all = Media::new(4, 1);
    for round in 1..5 {
        let media = all.clone();
        reactor::simulate(round, async move {
            let pool = match round {
                1 => media.create_sharded(raid::Scheme::Raid6, 2).await,
                _ => media.open().await,
            };
            let v = match round {
                1 => volume(&pool, "db", 24 * MIB).await,
                _ => pool.volume("db").unwrap(),
            };
            scribble(&v, 600 * round, round).await;
        });
        let media = all.clone();
        reactor::simulate(round, async move {
            let report = media.dump(true).await;
            whole(&report);
            assert_eq!(report.shards.len(), 2);
            assert!(report.shards.iter().all(|shard| shard.blocks > 0));
        });
    }
}

#[test]
fn an_exported_pool_needs_no_log() {
    reactor::simulate(3, async {
        let media = Media::new(4, 1);
        let pool = media.create(raid::Scheme::Raid6).await;
        let v = volume(&pool, "db", 8 * MIB).await;
        scribble(&v, 300, 1).await;
        pool.export().await.unwrap();
        let spec = Spec { log: None, ..media.spec(true) };
        let report = dump(&spec, &mut |_| {}).await;
        whole(&report);
        assert_eq!(report.pool.unwrap().state, PoolState::Exported);
    });
}

/// The opening of a pool that was closed in order makes its log anew, and was cut short in the midst of that: the pool
/// was called damaged, which opens as if nothing had happened.
#[test]
fn a_closed_pool_whose_log_is_made_anew_is_whole() {
    for memories in [0, 1] {
        reactor::simulate(3, async move {
            let mut media = Media::new(4, memories);
            let pool = media.create(raid::Scheme::Raid6).await;
            let v = volume(&pool, "db", 8 * MIB).await;
            scribble(&v, 300, 1).await;
            pool.close().await.unwrap();
            if memories == 0 {
                let zone = vec![0; 3 << 20];
                media.drives.iter().for_each(|drive| {
                    drive.poke(crate::format::catalog::CatalogArea::LEAST.end(), &zone)
                });
            }
            media.pmem = Media::new(0, memories).pmem;
            whole(&dump(&media.spec(true), &mut |_| {}).await);
            let again = media.open().await;
            assert!(!again.has_lost_log());
            again.close().await.unwrap();
        });
    }
}

#[test]
fn drives_that_are_missing_blank_or_foreign_are_told_apart() {
    reactor::simulate(4, async {
        let media = Media::new(5, 1);
        let pool = media.create(raid::Scheme::Raid6).await;
        scribble(&volume(&pool, "db", 8 * MIB).await, 500, 1).await;
        pool.close().await.unwrap();
        let other = Media::new(1, 0);
        let options = PoolSpec {
            name: "other".into(),
            id: [8; 16],
            drives: other.opened(),
            scheme: raid::Scheme::Single,
            log: LogSpec::Drives,
            log_bytes: Some(3 * MIB),
            shards: None,
            au_bytes: Some(MIB),
            created: 0,
        };
        Pool::create(options, &[]).await.unwrap().close().await.unwrap();
        let blank = Media::new(1, 0);
        let mut spec = media.spec(true);
        spec.drives[1].drive = Ok(other.opened().remove(0));
        spec.drives[3].drive = Ok(blank.opened().remove(0));
        let report = dump(&spec, &mut |_| {}).await;
        let fate = |name: &str| {
            let is = |seen: &&DriveSeen| seen.device.as_deref() == Some(name);
            report.drives.iter().find(is).unwrap().fate
        };
        assert_eq!(
            (fate("d0"), fate("d1"), fate("d3")),
            (Fate::Member, Fate::Foreign, Fate::Blank)
        );
        assert_eq!(report.drives.iter().filter(|seen| seen.fate == Fate::Missing).count(), 2);
        // Two may be lost: nothing is.
        assert!(report.is_clean(), "{:#?}", report.findings);
        spec.drives[0].drive = Err("no such file".into());
        let report = dump(&spec, &mut |_| {}).await;
        assert!(report.findings.iter().any(|f| f.what.contains("bears the loss of 2")));
        assert!(!report.is_clean());
        let none = Spec { drives: Vec::new(), ..media.spec(false) };
        assert!(!dump(&none, &mut |_| {}).await.is_clean());
    });
}
