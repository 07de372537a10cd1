use std::collections::BTreeMap;
use std::sync::Arc;

use media::drive::SimulatedOptions;
use media::{Drive, Pmem, Simulated};
use stdx::Prng;
use stdx::num::usize64;

use super::*;
use crate::address::BLOCK;
use crate::error::Kind;
use crate::volume::Volume;

mod at_once;
mod beyond;
mod catalogs;
mod changes;
mod checkpoints;
mod clones;
mod copies;
mod crossing;
mod delete_snapshots;
mod detach;
mod discards;
mod forks;
mod graces;
mod group_clones;
mod group_lives;
mod group_quotas;
mod groups;
mod halves;
mod held;
mod hung;
mod labels;
mod lasting;
mod log_copies;
mod log_moves;
mod lost;
mod lost_log;
mod manifest_pages;
mod old_copies;
mod quotas;
mod rebuild;
mod rejoin;
mod rejoin_power;
mod remote_log;
mod replace;
mod reservations;
mod rollback;
mod scarce;
mod scrub;
mod shards;
mod slow;
mod snapshots;
mod steps;
mod unreachable;
mod used;
mod wider;
mod windows;
mod writes;

const MIB: u64 = 1 << 20;

fn drives(count: usize, bytes: u64) -> Vec<Arc<Drive>> {
    let options = media::memory::RegionOptions { shared: false, ..Default::default() };
    (0..count).map(|_| Arc::new(Drive::memory(bytes, options).unwrap())).collect()
}

/// Simulated drives that differ in their chances from those of another `seed`: what they are, and as the pool has them.
fn simulated(count: u64, bytes: u64, seed: u64) -> (Vec<Arc<Simulated>>, Vec<Arc<Drive>>) {
    let options = |n| SimulatedOptions { capacity: bytes, seed: seed + n, ..Default::default() };
    let media: Vec<_> = (0..count).map(|n| Simulated::new(options(n))).collect();
    let drives = media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d)))).collect();
    (media, drives)
}

fn pmem(bytes: u64) -> Arc<Pmem> {
    Arc::new(Pmem::anonymous(bytes).unwrap())
}

fn spec(drives: &[Arc<Drive>], log: LogSpec) -> PoolSpec {
    PoolSpec {
        name: "fast".into(),
        id: [7; 16],
        drives: drives.to_vec(),
        scheme: raid::Scheme::Raid6,
        log,
        log_bytes: None,
        shards: None,
        au_bytes: None,
        created: 0,
    }
}

fn volume(name: &str, bytes: u64) -> VolumeSpec {
    VolumeSpec {
        name: name.into(),
        id: [1; 16],
        bytes,
        block_size: 4096,
        quota: None,
        reservation: None,
    }
}

/// A block that tells what it is.
fn block(at: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    Prng::new(at * 1_000_003 + version).fill(&mut bytes);
    bytes
}

/// What a volume should hold: the version of each block.
type Model = BTreeMap<u64, u64>;

async fn scribble(volume: &Volume, model: &mut Model, writes: u64, seed: u64) {
    let mut prng = Prng::new(seed);
    let blocks = volume.len() / BLOCK as u64;
    for version in 0..writes {
        let count = 1 + prng.below(8);
        let first = prng.below(blocks - count);
        if prng.below(20) == 0 {
            volume.deallocate(first * BLOCK as u64, count * BLOCK as u64).await.unwrap();
            (first..first + count).for_each(|at| _ = model.remove(&at));
            continue;
        }
        let version = seed * 1_000_000 + version;
        let data = (first..first + count).map(|at| block(at, version)).collect::<Vec<_>>().concat();
        volume.write(first * BLOCK as u64, &data).await.unwrap();
        (first..first + count).for_each(|at| _ = model.insert(at, version));
    }
}

async fn verify(volume: &Volume, model: &Model) {
    let blocks = volume.len() / BLOCK as u64;
    let mut piece = vec![0; 64 * BLOCK];
    for first in (0..blocks).step_by(64) {
        let count = 64.min(blocks - first);
        let piece = &mut piece[..usize64(count) * BLOCK];
        volume.read(first * BLOCK as u64, piece).await.unwrap();
        for (at, got) in (first..).zip(piece.chunks_exact(BLOCK)) {
            let wanted = model.get(&at).map_or_else(|| vec![0; BLOCK], |v| block(at, *v));
            assert!(got == wanted, "block {at} of {blocks}");
        }
    }
}

#[test]
fn what_was_written_is_there_after_closing_and_opening() {
    reactor::simulate(1, async {
        let (drives, log) = (drives(6, 64 * MIB), pmem(8 * MIB));
        let log = LogSpec::Bbu(vec![log]);
        let pool = Pool::create(spec(&drives, log.clone()), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 6000, 1).await;
        verify(&v, &model).await;
        pool.close().await.unwrap();
        assert_eq!(v.read(0, &mut [0; BLOCK]).await.unwrap_err().kind, Kind::Gone);

        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        assert_eq!(pool.volumes(), ["db"]);
        let v = pool.volume("db").unwrap();
        verify(&v, &model).await;
        scribble(&v, &mut model, 2000, 2).await;
        verify(&v, &model).await;
        pool.close().await.unwrap();
    });
}

/// The records that a pool's log had before an export were once taken for damaged ones of the log it has since
/// the import.
#[test]
fn an_imported_pool_does_not_read_what_its_old_log_left() {
    reactor::simulate(4, async {
        let drives = drives(6, 128 * MIB);
        let mut model = Model::new();
        let pool = Pool::create(spec(&drives, LogSpec::Drives), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        scribble(&v, &mut model, 300, 1).await;
        for round in 2..6 {
            let pool = match round {
                2 => pool.clone(),
                _ => Pool::open(drives.clone(), LogSpec::Drives, OpenOptions::default(), &[])
                    .await
                    .unwrap(),
            };
            pool.export().await.unwrap();
            let import = OpenOptions { import: true, ..OpenOptions::default() };
            let pool = Pool::open(drives.clone(), LogSpec::Drives, import, &[]).await.unwrap();
            let v = pool.volume("db").unwrap();
            verify(&v, &model).await;
            // Fewer records than the old log had.
            scribble(&v, &mut model, round, round).await;
            pool.close().await.unwrap();
        }
        let pool = Pool::open(drives, LogSpec::Drives, OpenOptions::default(), &[]).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn what_was_acknowledged_is_there_after_every_crash() {
    let (drives, log) = (drives(6, 64 * MIB), pmem(8 * MIB));
    let log = LogSpec::Bbu(vec![log]);
    let mut model = Model::new();
    model = reactor::simulate(1, {
        let (drives, log) = (drives.clone(), log.clone());
        async move {
            let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
            scribble(&v, &mut model, 1500, 1).await;
            model
        }
    });
    for round in 2..8 {
        let (drives, log) = (drives.clone(), log.clone());
        model = reactor::simulate(round, async move {
            let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
            let v = pool.volume("db").unwrap();
            verify(&v, &model).await;
            scribble(&v, &mut model, 700 * round, round).await;
            verify(&v, &model).await;
            model
        });
    }
}

#[test]
fn a_pool_far_smaller_than_what_is_written_wins_its_space_back() {
    reactor::simulate(3, async {
        let (drives, log) = (drives(3, 128 * MIB), pmem(8 * MIB));
        let spec =
            PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, LogSpec::Bbu(vec![log])) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let capacity = pool.status().await.unwrap().capacity;
        let v = pool.create_volume(volume("db", capacity * 3 / 4 / MIB * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 30_000, 1).await;
        verify(&v, &model).await;
        let status = pool.status().await.unwrap();
        assert!(status.written > 2 * capacity, "{status:?}");
        assert!(status.drive_written < 6 * status.written, "{status:?}");
        assert!(status.segments_reclaimed > 0, "{status:?}");
        pool.close().await.unwrap();
    });
}

/// Writes whole megabytes until the pool says that it is full; how many it took.
async fn fill(volume: &Volume) -> u64 {
    let piece = vec![0x5a; usize64(MIB)];
    for at in 0..volume.len() / MIB {
        match volume.write(at * MIB, &piece).await {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind, Kind::Full, "{error}");
                return at;
            }
        }
    }
    panic!("a thin volume larger than its pool cannot be filled");
}

#[test]
fn a_full_pool_reads_and_frees_and_then_takes_as_much_again() {
    reactor::simulate(4, async {
        let (drives, log) = (drives(6, 64 * MIB), pmem(8 * MIB));
        let pool = Pool::create(spec(&drives, LogSpec::Bbu(vec![log])), &[]).await.unwrap();
        let keep = pool.create_volume(volume("keep", MIB)).await.unwrap();
        keep.write(0, &block(0, 1)).await.unwrap();
        let first = pool.create_volume(volume("first", 1 << 40)).await.unwrap();
        let taken = fill(&first).await;
        assert!(taken * MIB > pool.status().await.unwrap().capacity / 10 * 8, "{taken}");
        let mut got = vec![0; BLOCK];
        keep.read(0, &mut got).await.unwrap();
        assert_eq!(got, block(0, 1));
        // Again and again it says no, and nothing breaks.
        let piece = vec![1; usize64(MIB)];
        for _ in 0..50 {
            assert_eq!(first.write(1 << 39, &piece).await.unwrap_err().kind, Kind::Full);
        }
        first.deallocate(0, 8 * MIB).await.unwrap();
        first.write(1 << 39, &got).await.unwrap();
        pool.delete_volume("first").await.unwrap();
        let second = pool.create_volume(volume("second", 1 << 40)).await.unwrap();
        let again = fill(&second).await;
        assert!(again + 4 >= taken, "{again} after {taken}");
        keep.read(0, &mut got).await.unwrap();
        assert_eq!(got, block(0, 1));
        pool.close().await.unwrap();
    });
}

/// At 96 % of it writers were refused who only replaced what they had written.
#[test]
fn a_pool_that_is_full_is_overwritten_on_and_on_and_takes_nothing_more() {
    reactor::simulate(6, async {
        let (drives, log) = (drives(6, 64 * MIB), pmem(8 * MIB));
        let pool = Pool::create(spec(&drives, LogSpec::Bbu(vec![log])), &[]).await.unwrap();
        let capacity = pool.status().await.unwrap().capacity;
        let v = pool.create_volume(volume("db", capacity)).await.unwrap();
        for at in 0..capacity / BLOCK as u64 {
            v.write(at * BLOCK as u64, &block(at, 0)).await.unwrap();
        }
        let writers = (0..8).map(|n| {
            let v = v.clone();
            reactor::spawn(async move {
                let mut prng = Prng::new(n);
                for _ in 0..1000 {
                    let at = prng.below(capacity / BLOCK as u64);
                    v.write(at * BLOCK as u64, &block(at, n)).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let more = VolumeSpec { id: [2; 16], ..volume("more", capacity) };
        let more = pool.create_volume(more).await.unwrap();
        let writes = (0..64).map(|at| more.write(at * MIB, &[7; BLOCK]));
        let mut refused = 0;
        for write in writes {
            refused += u32::from(write.await.is_err_and(|error| error.kind == Kind::Full));
        }
        assert!(refused >= 60, "{refused} of 64");
        pool.close().await.unwrap();
    });
}

#[test]
fn the_last_block_of_an_exported_pool_does_not_stay_in_its_log() {
    reactor::simulate(5, async {
        let drives = drives(6, 64 * MIB);
        // So large that one block is no share of it that is counted.
        let log = || LogSpec::Bbu(vec![pmem(64 * MIB)]);
        let pool = Pool::create(spec(&drives, log()), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", MIB)).await.unwrap();
        v.write(0, &block(0, 1)).await.unwrap();
        pool.export().await.unwrap();
        let import = OpenOptions { import: true, ..OpenOptions::default() };
        let pool = Pool::open(drives, log(), import, &[]).await.unwrap();
        verify(&pool.volume("db").unwrap(), &Model::from([(0, 1)])).await;
    });
}

/// Writers that had found the volume open once appended behind the drain, and were told that it was
/// durable: an export leaves the log behind.
#[test]
fn what_is_acknowledged_while_a_pool_is_exported_is_in_it() {
    for seed in 0..4 {
        reactor::simulate_in(seed, reactor::Order::Shuffled, async move {
            let drives = drives(6, 64 * MIB);
            let log = || LogSpec::Bbu(vec![pmem(3 * MIB)]);
            let pool = Pool::create(spec(&drives, log()), &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
            // So many at once that the log is full and writers wait for time, and for room.
            let writers: Vec<_> = (0..32)
                .map(|n| {
                    let v = v.clone();
                    reactor::spawn(async move {
                        let mut last = None;
                        for version in 0.. {
                            let data =
                                (0..32).map(|_| block(n, version)).collect::<Vec<_>>().concat();
                            match v.write(n * 32 * BLOCK as u64, &data).await {
                                Ok(()) => last = Some(version),
                                Err(error) => {
                                    assert_eq!(error.kind, Kind::Gone, "{error}");
                                    return last;
                                }
                            }
                            reactor::yield_now().await;
                        }
                        last
                    })
                })
                .collect();
            reactor::sleep(std::time::Duration::from_millis(30)).await;
            pool.export().await.unwrap();
            let import = OpenOptions { import: true, ..OpenOptions::default() };
            let pool = Pool::open(drives, log(), import, &[]).await.unwrap();
            let v = pool.volume("db").unwrap();
            for (n, writer) in (0..).zip(writers) {
                let Some(last) = writer.await.unwrap() else { continue };
                let mut got = vec![0; BLOCK];
                v.read(n * 32 * BLOCK as u64, &mut got).await.unwrap();
                // One more may have been refused in the end and be there.
                let fits = got == block(n, last) || got == block(n, last + 1);
                assert!(fits, "seed {seed}: what writer {n} wrote last");
            }
        });
    }
}
