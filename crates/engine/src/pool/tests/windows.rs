//! Direct write windows: what a host stores by itself is seen by everybody, and there after everything.

use std::cell::{Cell, RefCell};
use std::task::Poll;

use media::SimulatedPmem;
use stdx::num::{low32, u64_of};
use window::page::{CREDIT_AT, PHASE_AT, TAKEN_AT};
use window::{Bad, Kind as RecordKind, Phase, Record, Writer};

use super::snapshots::named;
use super::*;
use crate::canary::{Step, misses};
use crate::{GrantedWindow, RingCopy, WindowEnd};

const RING: u64 = window::RING_BYTES_MIN;

/// A host's end of a window.
struct Host {
    granted: GrantedWindow,
    writers: RefCell<Vec<Writer>>,
}

/// What became of a direct write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrote {
    Complete,
    /// There was no credit.
    NoCredit,
    /// The window had ended, and the record was not taken.
    Ended,
}

impl Host {
    fn new(granted: GrantedWindow) -> Self {
        let writer = Writer::new(granted.epoch, granted.ring_bytes);
        let writers = RefCell::new(vec![writer; granted.rings.len()]);
        Self { granted, writers }
    }

    fn ring_of(&self, offset: u64) -> usize {
        let chunk = offset / self.granted.chunk_bytes + u64::from(self.granted.placement);
        usize64(chunk % u64_of(self.granted.rings.len()))
    }

    fn word(copy: &RingCopy, at: u64) -> u64 {
        copy.state.load(at).unwrap()
    }

    fn phase(&self) -> Phase {
        let all = self.granted.rings.iter().flat_map(|ring| &ring.copies);
        let phases = all.map(|copy| Phase::of(Self::word(copy, PHASE_AT)));
        phases.max_by_key(|phase| phase.word()).unwrap()
    }

    /// Stores a record in all copies of its ring, with this checksum of its data, which is not looked at.
    fn store(&self, offset: u64, data: &[u8], crc: u32) -> Option<u64> {
        let ring = self.ring_of(offset);
        let copies = &self.granted.rings[ring].copies;
        let mut writers = self.writers.borrow_mut();
        let writer = &mut writers[ring];
        let place = writer.place(data.len(), Self::word(&copies[0], CREDIT_AT))?;
        let record = writer.record(&place, offset, low32(u64_of(data.len())), crc);
        for copy in copies {
            if let Some(pad) = place.pad {
                copy.ring.write(pad, &writer.pad().encode()).unwrap();
            }
            copy.ring.write(place.at + 64, data).unwrap();
            copy.ring.fence();
            copy.ring.write(place.at, &record.encode()).unwrap();
            copy.ring.full_fence();
        }
        writer.advance(&place);
        Some(place.end)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Wrote {
        let Some(end) = self.store(offset, data, stdx::crc32c(data)) else {
            return Wrote::NoCredit;
        };
        let copy = &self.granted.rings[self.ring_of(offset)].copies[0];
        match self.phase() {
            Phase::Stands => Wrote::Complete,
            _ if Self::word(copy, TAKEN_AT) >= end => Wrote::Complete,
            _ => Wrote::Ended,
        }
    }
}

async fn granted(pool: &Pool, volume: [u8; 16], epoch: u64) -> crate::Result<GrantedWindow> {
    let number = std::num::NonZeroU32::new(low32(epoch)).unwrap();
    pool.grant_window(volume, RING, epoch, number).await
}

async fn grant(pool: &Pool, epoch: u64) -> Host {
    Host::new(granted(pool, [1; 16], epoch).await.unwrap())
}

pub(super) fn memory(devices: usize) -> (Vec<Arc<SimulatedPmem>>, LogSpec) {
    let all: Vec<_> = (0..devices).map(|_| Arc::new(SimulatedPmem::new(16 * MIB))).collect();
    let pmem = all.iter().map(|one| Arc::new(Pmem::Simulated(Arc::clone(one)))).collect();
    (all, LogSpec::Bbu(pmem))
}

async fn created(drives: &[Arc<Drive>], log: &LogSpec, shards: u16) -> (Pool, Volume) {
    let spec = PoolSpec { shards: Some(shards), au_bytes: Some(MIB), ..spec(drives, log.clone()) };
    let pool = Pool::create(spec, &[]).await.unwrap();
    let volume = pool.create_volume(volume("db", 32 * MIB)).await.unwrap();
    (pool, volume)
}

async fn reopened(drives: &[Arc<Drive>], log: &LogSpec) -> Pool {
    Pool::open(drives.to_vec(), log.clone(), OpenOptions::default(), &[]).await.unwrap()
}

async fn read(volume: &Volume, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    volume.read(at * BLOCK as u64, &mut bytes).await.unwrap();
    bytes
}

const AT: u64 = BLOCK as u64;

/// Of a host, until it looks again whether it has credit.
const PAUSE: std::time::Duration = std::time::Duration::from_micros(20);

#[test]
fn what_a_host_stored_is_read_by_all_and_written_over_in_order() {
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (drives, (_, log)) = (drives(6, 128 * MIB), memory(1));
            let (pool, v) = created(&drives, &log, shards).await;
            let host = grant(&pool, 77).await;
            let mut model = Model::new();
            let mut prng = Prng::new(5);
            // Many laps of each ring: credit comes back with each read.
            for version in 0..2000 {
                let at = prng.below(32 * MIB / AT);
                if prng.below(4) == 0 {
                    v.write(at * AT, &block(at, version)).await.unwrap();
                } else {
                    assert_eq!(host.write(at * AT, &block(at, version)), Wrote::Complete);
                }
                model.insert(at, version);
                if prng.below(3) == 0 {
                    let one = *model.keys().nth(usize64(prng.below(u64_of(model.len())))).unwrap();
                    assert_eq!(read(&v, one).await, block(one, model[&one]), "block {one}");
                }
                if prng.below(20) == 0 {
                    v.deallocate(at * AT, AT).await.unwrap();
                    model.remove(&at);
                }
            }
            verify(&v, &model).await;
            assert_eq!(host.phase(), Phase::Stands);
            pool.close().await.unwrap();
            assert_eq!(host.phase(), Phase::Ended);
            assert_eq!(host.write(0, &block(0, 0)), Wrote::Ended);
            let pool = reopened(&drives, &log).await;
            verify(&pool.volume("db").unwrap(), &model).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn parts_of_blocks_are_taken_and_what_is_beside_them_stays() {
    reactor::simulate(3, async move {
        let (drives, (_, log)) = (drives(6, 128 * MIB), memory(1));
        let (pool, _) = created(&drives, &log, 1).await;
        let small = VolumeSpec { block_size: 512, id: [2; 16], ..volume("small", MIB) };
        let v = pool.create_volume(small).await.unwrap();
        v.write(0, &block(0, 1)).await.unwrap();
        let host = Host::new(granted(&pool, [2; 16], 8).await.unwrap());
        let mut expected = block(0, 1);
        for n in 0..3000_usize {
            let (at, byte) = (n % 8 * 512, low32(u64_of(n)).to_le_bytes()[0]);
            assert_eq!(host.write(u64_of(at), &[byte; 512]), Wrote::Complete, "write {n}");
            expected[at..at + 512].fill(byte);
            if n % 100 == 0 {
                assert_eq!(read(&v, 0).await, expected);
            }
        }
        assert_eq!(read(&v, 0).await, expected);
        pool.close().await.unwrap();
    });
}

#[test]
fn what_was_complete_is_there_after_a_kill_and_nothing_is_complete_later() {
    for devices in 1..=2 {
        let (drives, (media, log)) = (drives(6, 128 * MIB), memory(devices));
        let (host, model) = reactor::simulate(1, {
            let (drives, log) = (drives.clone(), log.clone());
            async move {
                let (pool, v) = created(&drives, &log, 2).await;
                let host = grant(&pool, 12).await;
                let mut model = Model::new();
                for at in 0..40 {
                    v.write(at * 100 * AT, &block(at * 100, 1)).await.unwrap();
                    model.insert(at * 100, 1);
                }
                for at in 0..50 {
                    assert_eq!(host.write(at * 77 * AT, &block(at * 77, 2)), Wrote::Complete);
                    model.insert(at * 77, 2);
                }
                (host, model)
            }
        });
        // The target is killed. Its host goes on by itself, and then power goes, and comes back.
        assert_eq!(host.write(5 * AT, &block(5, 3)), Wrote::Complete);
        let mut model = model;
        model.insert(5, 3);
        media.iter().for_each(|one| one.crash(&mut Prng::new(9)));
        reactor::simulate(2, async move {
            let pool = reopened(&drives, &log).await;
            assert_eq!(host.phase(), Phase::Ended);
            let v = pool.volume("db").unwrap();
            verify(&v, &model).await;
            assert_eq!(host.write(6 * AT, &block(6, 4)), Wrote::Ended);
            verify(&v, &model).await;
            assert_eq!(pool.take_window_ends(), []);
            let host = grant(&pool, 13).await;
            assert_eq!(host.write(6 * AT, &block(6, 4)), Wrote::Complete);
            assert_eq!(read(&v, 6).await, block(6, 4));
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn what_happens_to_a_volume_ends_its_window_first() {
    reactor::simulate(4, async move {
        let (drives, (_, log)) = (drives(6, 128 * MIB), memory(1));
        let (pool, v) = created(&drives, &log, 2).await;
        let host = grant(&pool, 20).await;
        assert_eq!(host.write(0, &block(0, 1)), Wrote::Complete);
        pool.take_snapshots(vec![named("db", "one")]).await.unwrap();
        assert_eq!(host.phase(), Phase::Ended);
        let host = grant(&pool, 21).await;
        assert_eq!(host.write(0, &block(0, 2)), Wrote::Complete);
        assert_eq!(read(&pool.snapshot("db", "one").unwrap(), 0).await, block(0, 1));
        assert_eq!(read(&v, 0).await, block(0, 2));
        pool.resize_volume("db", 16 * MIB).await.unwrap();
        assert_eq!(host.phase(), Phase::Ended);
        let old = grant(&pool, 22).await;
        let host = grant(&pool, 23).await;
        assert_eq!((old.phase(), host.phase()), (Phase::Ended, Phase::Stands));
        assert_eq!(pool.open_windows(), 1);
        pool.end_window([1; 16], Some(22)).await.unwrap();
        assert_eq!(host.phase(), Phase::Stands, "another one");
        pool.set_quota("db", Some(64 * MIB)).await.unwrap();
        assert_eq!(host.phase(), Phase::Ended);
        assert_eq!(granted(&pool, [1; 16], 24).await.unwrap_err().kind, Kind::Unsupported);
        pool.set_quota("db", None).await.unwrap();
        let host = grant(&pool, 25).await;
        pool.end_window([1; 16], None).await.unwrap();
        assert_eq!((host.phase(), pool.open_windows()), (Phase::Ended, 0));
        pool.close().await.unwrap();
    });
}

#[test]
fn a_host_that_does_what_none_may_loses_its_window_and_nothing_else() {
    type Deed = fn(&Host);
    let checksum: Deed = |host| _ = host.store(4096, &block(9, 9), 1).unwrap();
    let beyond: Deed = |host| _ = host.store(32 * MIB, &block(9, 9), 1).unwrap();
    let halves: Deed = |host| _ = host.store(512, &block(9, 9), 1).unwrap();
    let misplaced: Deed = |host| {
        let end = host.store(4096, &block(9, 9), 1).unwrap();
        let kind = RecordKind::Write { offset: 4096, length: 4096, data_crc: 1 };
        let record = Record { epoch: host.granted.epoch, position: end, kind };
        host.granted.rings[0].copies[0].ring.write(end - 4160, &record.encode()).unwrap();
    };
    let senseless: Deed = |host| {
        let end = host.store(4096, &block(9, 9), 1).unwrap();
        let kind = RecordKind::Write { offset: 4096, length: 0, data_crc: 1 };
        let record = Record { epoch: host.granted.epoch, position: end - 4160, kind };
        host.granted.rings[0].copies[0].ring.write(end - 4160, &record.encode()).unwrap();
    };
    for (n, deed) in (1..).zip([checksum, beyond, halves, misplaced, senseless]) {
        reactor::simulate(n, async move {
            let (drives, (_, log)) = (drives(6, 128 * MIB), memory(1));
            let (pool, v) = created(&drives, &log, 1).await;
            let host = grant(&pool, 30).await;
            assert_eq!(host.write(0, &block(0, 1)), Wrote::Complete);
            deed(&host);
            host.write(8 * AT, &block(8, 8));
            assert_eq!(read(&v, 0).await, block(0, 1));
            assert_eq!(read(&v, 8).await, vec![0; BLOCK], "behind it nothing is taken");
            assert_eq!(host.phase(), Phase::Ended);
            pool.end_bad_windows().await.unwrap();
            let ends = pool.take_window_ends();
            assert_eq!((ends.len(), ends[0].volume.as_str()), (1, "db"), "deed {n}");
            assert!(ends[0].bad.is_some());
            assert_eq!(ends[0].lost, ends[0].bad == Some(Bad::Checksum), "deed {n}");
            assert_eq!(pool.open_windows(), 0);
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn a_window_that_is_not_there_is_a_log_that_is_not_there() {
    let (drives, (media, log)) = (drives(6, 128 * MIB), memory(1));
    reactor::simulate(1, {
        let (drives, log) = (drives.clone(), log.clone());
        async move {
            let (pool, _) = created(&drives, &log, 1).await;
            let host = grant(&pool, 12).await;
            assert_eq!(host.write(0, &block(0, 1)), Wrote::Complete);
        }
    });
    let device = Pmem::Simulated(Arc::clone(&media[0]));
    device.remove_beside(".window", |_| false).unwrap();
    // Of somebody who names his files so.
    let others = [".window-log", ".window-1-00000007-0.log", ".window-1-7-0.ring"];
    others.iter().for_each(|name| drop(device.create_beside(name, 4096).unwrap()));
    let own = ".window-9-00000007-0.ring";
    drop(device.create_beside(own, 4096).unwrap());
    reactor::simulate(2, async move {
        let options = OpenOptions::default();
        let refused = Pool::open(drives.clone(), log.clone(), options, &[]).await;
        let refused = refused.map(drop).unwrap_err();
        assert_eq!(refused.kind, Kind::Loss);
        assert!(refused.to_string().contains("window of volume db"), "{refused}");
        let options = OpenOptions { accept_loss: true, ..options };
        let pool = Pool::open(drives.clone(), log.clone(), options, &[]).await.unwrap();
        // Of one volume: the log is as it was.
        assert!(!pool.has_lost_log());
        let lost = WindowEnd { volume: "db".into(), bad: None, lost: true };
        assert_eq!(pool.take_window_ends(), vec![lost]);
        assert_eq!(pool.open_windows(), 0);
        pool.close().await.unwrap();
        reopened(&drives, &log).await.close().await.unwrap();
        others.iter().for_each(|name| drop(device.open_beside(name, 4096).unwrap()));
        device.open_beside(own, 4096).unwrap_err();
    });
}

#[test]
fn damage_in_the_midst_is_told_and_a_copy_puts_it_right() {
    for devices in 1..=2 {
        reactor::simulate(5, async move {
            let (drives, (_, log)) = (drives(6, 128 * MIB), memory(devices));
            let (pool, v) = created(&drives, &log, 1).await;
            let host = grant(&pool, 40).await;
            for at in 0..3 {
                assert_eq!(host.write(at * AT, &block(at, 1)), Wrote::Complete);
            }
            // The second header is not what it was.
            host.granted.rings[0].copies[0].ring.write(4160 + 8, &[9]).unwrap();
            pool.end_window([1; 16], None).await.unwrap();
            let has_all = devices > 1;
            let third = if has_all { block(2, 1) } else { vec![0; BLOCK] };
            assert_eq!(read(&v, 0).await, block(0, 1));
            assert_eq!(read(&v, 2).await, third);
            let lost = pool.take_window_ends().iter().any(|end| end.lost);
            assert_eq!(lost, !has_all);
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn a_pool_that_gets_full_gives_no_more_credit_and_takes_what_it_gave() {
    reactor::simulate(6, async move {
        let (drives, (_, log)) = (drives(6, 48 * MIB), memory(1));
        let (pool, v) = created(&drives, &log, 1).await;
        let big = VolumeSpec { id: [3; 16], ..volume("big", 1024 * MIB) };
        let big = pool.create_volume(big).await.unwrap();
        let host = grant(&pool, 50).await;
        let mut at = 0;
        while big.write(at * AT, &block(at, 1)).await.is_ok() {
            at += 1;
        }
        let mut complete = 0;
        for n in 0..4000 {
            match host.write(n * AT, &block(n, 2)) {
                Wrote::Complete => complete = n + 1,
                other => {
                    assert_eq!(other, Wrote::NoCredit);
                    break;
                }
            }
            if n % 8 == 0 {
                assert_eq!(read(&v, n).await, block(n, 2));
            }
        }
        assert!((32..4000).contains(&complete), "{complete}");
        for n in 0..complete {
            assert_eq!(read(&v, n).await, block(n, 2));
        }
        assert_eq!(host.phase(), Phase::Stands);
        pool.close().await.unwrap();
    });
}

/// All volumes of the pool were away for as long as nobody gave its drives space.
#[test]
fn a_pool_opens_although_there_is_no_room_for_what_a_window_holds() {
    let (media, all) = simulated(6, 128 * MIB, 9);
    let (_, log) = memory(1);
    let (given, same, scarce) = (all.clone(), log.clone(), media.clone());
    let written = reactor::simulate(1, async move {
        let spec = PoolSpec { shards: Some(1), au_bytes: Some(MIB), ..spec(&given, same) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let parts = VolumeSpec { block_size: 512, ..volume("db", 32 * MIB) };
        pool.create_volume(parts).await.unwrap();
        let other = VolumeSpec { id: [2; 16], ..volume("other", MIB) };
        let other = pool.create_volume(other).await.unwrap();
        other.write(0, &block(0, 2)).await.unwrap();
        let number = std::num::NonZeroU32::new(7).unwrap();
        let host = Host::new(pool.grant_window([1; 16], 4 * MIB, 7, number).await.unwrap());
        scarce.iter().for_each(|drive| drive.set_full(true));
        // More than the log has room for: each takes a block of it.
        let mut written = 0;
        while host.write(written * AT, &block(written, 1)[..512]) == Wrote::Complete {
            written += 1;
        }
        written
    });
    assert!(written * AT > 16 * MIB, "{written} records");
    for life in 2..4 {
        let (given, same) = (all.clone(), log.clone());
        reactor::simulate(life, async move {
            let pool = reopened(&given, &same).await;
            assert_eq!(read(&pool.volume("other").unwrap(), 0).await, block(0, 2));
            assert_eq!(pool.open_windows(), 1);
            let db = pool.volume("db").unwrap();
            assert_eq!(db.read(0, &mut [0; BLOCK]).await.unwrap_err().kind, Kind::Busy);
        });
    }
    reactor::simulate(4, async move {
        let pool = reopened(&all, &log).await;
        media.iter().for_each(|drive| drive.set_full(false));
        let ended = async {
            while pool.open_windows() > 0 {
                let _ = pool.end_bad_windows().await;
                reactor::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        reactor::timeout(std::time::Duration::from_secs(120), ended).await.expect("it ends");
        let db = pool.volume("db").unwrap();
        for at in 0..written {
            assert_eq!(read(&db, at).await[..512], block(at, 1)[..512], "block {at}");
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn a_host_that_never_stops_keeps_nobody_waiting() {
    reactor::simulate(7, async move {
        let (drives, (_, log)) = (drives(6, 128 * MIB), memory(1));
        let (pool, v) = created(&drives, &log, 1).await;
        let host = std::rc::Rc::new(grant(&pool, 60).await);
        let (storing, stored) = (std::rc::Rc::clone(&host), std::rc::Rc::new(Cell::new(0_u64)));
        let so_far = std::rc::Rc::clone(&stored);
        let hammer = reactor::spawn(async move {
            loop {
                let version = so_far.get();
                match storing.write(version % 512 * AT, &block(0, version)) {
                    Wrote::Complete => so_far.set(version + 1),
                    Wrote::NoCredit if storing.phase() == Phase::Stands => {
                        reactor::sleep(PAUSE).await;
                    }
                    Wrote::NoCredit | Wrote::Ended => return so_far.get(),
                }
            }
        });
        let mut at = 0;
        while stored.get() < 2000 {
            v.write((512 + at) * AT, &block(at, 1)).await.unwrap();
            assert_eq!(read(&v, 512 + at).await, block(at, 1));
            at = (at + 1) % 512;
            // The host is as fast as whoever reads.
            reactor::sleep(PAUSE).await;
        }
        pool.end_window([1; 16], None).await.unwrap();
        let stored = hammer.await.unwrap();
        for version in stored.saturating_sub(512)..stored {
            assert_eq!(read(&v, version % 512).await, block(0, version));
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn a_ring_that_cannot_be_read_is_told_of_and_its_volume_goes_on() {
    reactor::simulate(8, async move {
        let (drives, (media, log)) = (drives(6, 128 * MIB), memory(1));
        let (pool, v) = created(&drives, &log, 1).await;
        let host = grant(&pool, 70).await;
        assert_eq!(host.write(0, &block(0, 1)), Wrote::Complete);
        assert_eq!(read(&v, 0).await, block(0, 1));
        let Pmem::Simulated(ring) = &*host.granted.rings[0].copies[0].ring else { panic!() };
        ring.poison(0..RING);
        v.write(AT, &block(1, 1)).await.unwrap();
        assert_eq!(read(&v, 0).await, block(0, 1));
        assert_eq!(host.phase(), Phase::Ended);
        pool.end_bad_windows().await.unwrap();
        let ends = pool.take_window_ends();
        assert_eq!((ends.len(), ends[0].lost), (1, true));
        drop(media);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_ring_that_its_host_cut_short_or_made_long_costs_nobody_else_the_pool() {
    for (n, len) in (1..).zip([0, 4096, 8192, 1 << 43]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let drives = drives(6, 128 * MIB);
        let opened = || LogSpec::Bbu(vec![Arc::new(Pmem::shared(&path, Some(16 * MIB)).unwrap())]);
        let (log, of) = (opened(), drives.clone());
        let host = reactor::simulate(n, async move {
            let (pool, v) = created(&of, &log, 1).await;
            pool.create_volume(VolumeSpec { id: [2; 16], ..volume("other", MIB) }).await.unwrap();
            let host = grant(&pool, 12).await;
            assert_eq!(host.write(0, &block(0, 1)), Wrote::Complete);
            assert_eq!(read(&v, 0).await, block(0, 1));
            assert_eq!(host.write(AT, &block(1, 1)), Wrote::Complete);
            assert_eq!(host.write(2 * AT, &block(2, 1)), Wrote::Complete);
            host
        });
        let [_, ring] = host.granted.rings[0].copies[0].share().unwrap();
        std::fs::File::from(ring).set_len(len).unwrap();
        let (log, of) = (opened(), drives);
        reactor::simulate(n, async move {
            let pool = reopened(&of, &log).await;
            assert_eq!(pool.open_windows(), 0);
            let is_cut = len <= 8192;
            let ends: Vec<bool> = pool.take_window_ends().iter().map(|end| end.lost).collect();
            assert_eq!(ends, vec![true; usize::from(is_cut)]);
            let v = pool.volume("db").unwrap();
            // What was in the log already, and what was left of the rest.
            assert_eq!(read(&v, 0).await, block(0, 1));
            let left = if is_cut { vec![0; BLOCK] } else { block(2, 1) };
            assert_eq!(read(&v, 2).await, left);
            v.write(AT, &block(1, 2)).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

/// What is told at a window's end is not lost with a kill before its pool has forgotten it.
#[test]
fn damage_is_told_by_the_next_opening_too() {
    let (drives, (_, log)) = (drives(6, 128 * MIB), memory(1));
    reactor::simulate(1, {
        let (drives, log) = (drives.clone(), log.clone());
        async move {
            let (pool, v) = created(&drives, &log, 1).await;
            let host = grant(&pool, 12).await;
            assert_eq!(host.write(0, &block(0, 1)), Wrote::Complete);
            host.store(AT, &block(1, 1), 1).unwrap();
            assert_eq!(read(&v, 0).await, block(0, 1));
            assert_eq!(host.phase(), Phase::Ended);
        }
    });
    reactor::simulate(2, async move {
        let pool = reopened(&drives, &log).await;
        let ends = pool.take_window_ends();
        assert_eq!(ends, vec![WindowEnd { volume: "db".into(), bad: None, lost: true }]);
        assert_eq!(read(&pool.volume("db").unwrap(), 0).await, block(0, 1));
        pool.close().await.unwrap();
        assert_eq!(reopened(&drives, &log).await.take_window_ends(), vec![]);
    });
}

#[test]
fn a_state_page_that_makes_no_sense_is_a_window_that_is_not_there() {
    let (drives, (_, log)) = (drives(6, 128 * MIB), memory(1));
    let host = reactor::simulate(1, {
        let (drives, log) = (drives.clone(), log.clone());
        async move {
            let (pool, _) = created(&drives, &log, 1).await;
            let host = grant(&pool, 12).await;
            assert_eq!(host.write(0, &block(0, 1)), Wrote::Complete);
            host
        }
    });
    for taken in [u64::MAX, 1 << 62, 7] {
        host.granted.rings[0].copies[0].state.store(TAKEN_AT, taken).unwrap();
        let (drives, log) = (drives.clone(), log.clone());
        reactor::simulate(2, async move {
            let opened = Pool::open(drives, log, OpenOptions::default(), &[]).await;
            assert_eq!(opened.map(drop).unwrap_err().kind, Kind::Loss);
        });
    }
    host.granted.rings[0].copies[0].state.store(TAKEN_AT, 0).unwrap();
    reactor::simulate(3, async move {
        let pool = reopened(&drives, &log).await;
        assert_eq!(read(&pool.volume("db").unwrap(), 0).await, block(0, 1));
        pool.close().await.unwrap();
    });
}

/// A record was in the log, and not durable yet, as one of two memories had just failed, when its host changed its header: it
/// was never taken then, nor did the window ever end.
#[test]
fn a_record_that_its_host_changes_once_it_is_in_the_log_is_taken() {
    reactor::simulate(8, async move {
        let (drives, (media, log)) = (drives(6, 128 * MIB), memory(2));
        let (pool, v) = created(&drives, &log, 1).await;
        let host = grant(&pool, 40).await;
        assert_eq!(host.write(0, &block(0, 1)), Wrote::Complete);
        media[1].poison(0..16 * MIB);
        let mut there = vec![0; BLOCK];
        let mut reading = Box::pin(v.read(0, &mut there));
        let is_read = std::future::poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx).is_ready()));
        assert!(!is_read.await, "it waits until what it reads is durable");
        for copy in &host.granted.rings[0].copies {
            copy.ring.write(8, &[9]).unwrap();
        }
        reading.as_mut().await.unwrap();
        drop(reading);
        assert_eq!(there, block(0, 1));
        let end =
            reactor::timeout(std::time::Duration::from_secs(60), pool.end_window([1; 16], None));
        end.await.expect("the window ends").unwrap();
        assert_eq!(read(&v, 0).await, block(0, 1));
        assert_eq!(Host::word(&host.granted.rings[0].copies[0], TAKEN_AT), 4160);
        pool.close().await.unwrap();
    });
}

/// Damages a block wherever memories of the log have it.
fn rot(memories: &[Arc<SimulatedPmem>], contents: &[u8]) {
    let mut found = 0;
    for memory in memories {
        let bytes = memory.contents();
        let lines = bytes.chunks_exact(64).enumerate();
        for (line, _) in lines.filter(|(_, line)| *line == &contents[..64]) {
            memory.rot(u64_of(line * 64) + 8);
            found += 1;
        }
    }
    assert!(found > 0, "it is in the log");
}

/// The last record of a log was damaged after its window had ended: nothing behind it said that it was complete, so the next
/// opening took it for one that power had cut short, and the block was what it had been before.
#[test]
fn the_last_record_of_a_window_that_ended_is_known_as_lost_when_it_is_damaged() {
    last_record_is_damaged(true);
}

/// The same of a command, which a pool that has nothing to do sees when it looks after its drives.
#[test]
fn the_last_record_of_an_idle_pool_is_known_as_lost_when_it_is_damaged() {
    last_record_is_damaged(false);
}

#[test]
fn the_note_that_all_records_are_durable_is_missed() {
    let story = the_last_record_of_a_window_that_ended_is_known_as_lost_when_it_is_damaged;
    misses(Step::NoteDurable, "unwrap_err", story);
    let story = the_last_record_of_an_idle_pool_is_known_as_lost_when_it_is_damaged;
    misses(Step::NoteDurable, "unwrap_err", story);
}

fn last_record_is_damaged(by_window: bool) {
    let (drives, (memories, log)) = (drives(6, 128 * MIB), memory(1));
    reactor::simulate(1, {
        let (drives, log) = (drives.clone(), log.clone());
        async move {
            let (pool, v) = created(&drives, &log, 1).await;
            v.write(0, &block(0, 1)).await.unwrap();
            if by_window {
                let host = grant(&pool, 12).await;
                assert_eq!(host.write(0, &block(0, 2)), Wrote::Complete);
                pool.end_window([1; 16], None).await.unwrap();
            } else {
                v.write(0, &block(0, 2)).await.unwrap();
                pool.look_at_drives().await.unwrap();
                pool.look_at_drives().await.unwrap();
            }
        }
    });
    rot(&memories, &block(0, 2));
    reactor::simulate(2, async move {
        let pool = reopened(&drives, &log).await;
        let mut bytes = vec![0; BLOCK];
        let error = pool.volume("db").unwrap().read(0, &mut bytes).await.unwrap_err();
        assert_eq!(error.kind, Kind::Corrupt, "{error}");
        pool.close().await.unwrap();
    });
}

/// A host died when it had stored a record in one of two copies of its ring. Power failed while the other copy got it, which
/// had its header then and not its data: of a record that nobody was told is complete, it was said that it is lost.
#[test]
fn what_is_put_into_a_copy_of_a_ring_is_whole_or_not_there() {
    for (seed, fence) in (0..12).flat_map(|seed| (1..4).map(move |fence| (seed, fence))) {
        let (drives, (memories, log)) = (drives(6, 128 * MIB), memory(2));
        let LogSpec::Bbu(devices) = &log else { panic!("bbu") };
        let alone = LogSpec::Bbu(vec![Arc::clone(&devices[1])]);
        let (given, late) = (drives.clone(), Arc::clone(&memories[1]));
        reactor::simulate(seed, async move {
            let (pool, v) = created(&given, &log, 1).await;
            let mut host = grant(&pool, 40).await;
            host.granted.rings.iter_mut().for_each(|ring| ring.copies.truncate(1));
            let data = block(0, 1);
            assert!(host.store(0, &data, stdx::crc32c(&data)).is_some());
            late.cut_at_fence(fence);
            let _ = read(&v, 0).await;
        });
        memories[1].crash(&mut Prng::new(seed));
        reactor::simulate(100 + seed, async move {
            let pool = reopened(&drives, &alone).await;
            let lost = pool.take_window_ends().iter().any(|end| end.lost);
            assert!(!lost, "seed {seed}, fence {fence}: nobody was told that it is complete");
        });
    }
}

#[test]
fn the_fence_between_a_record_s_data_and_its_header_is_missed() {
    let story = what_is_put_into_a_copy_of_a_ring_is_whole_or_not_there;
    misses(Step::WindowMends, "nobody was told", story);
}
