//! What is done without waiting, and what is left to those who wait.

use super::*;
use crate::{Begun, Outcome, Reading};

/// Whether a write was done in the call that began it.
fn is_done(volume: &Volume, offset: u64, data: &[u8]) -> bool {
    matches!(volume.begin_write(offset, data), Ok(Outcome::Done))
}

/// The first `blocks` blocks, written without waiting.
fn write_at_once(volume: &Volume, blocks: u64) -> bool {
    (0..blocks).all(|at| is_done(volume, at * BLOCK as u64, &block(at, 1)))
}

/// Reads without waiting, if that can be.
fn begin(volume: &Volume, offset: u64, len: usize) -> Option<Vec<u8>> {
    match volume.begin_read(offset, len, || Some(vec![1; len])) {
        Begun::UnverifiedRead(lent) => lent.verified().map(|pinned| pinned.bytes().to_vec()),
        Begun::Done(out) => Some(out),
        Begun::Wait(_) | Begun::Not => None,
    }
}

/// Few blocks, where they lie.
fn lend(volume: &Volume, offset: u64, len: usize) -> Option<crate::UnverifiedRead> {
    match volume.begin_read(offset, len, || None::<Vec<u8>>) {
        Begun::UnverifiedRead(lent) => Some(lent),
        _ => None,
    }
}

/// Whether the first blocks are read without waiting, each as it was written.
fn read_at_once(volume: &Volume, blocks: u64) -> bool {
    (0..blocks).all(|at| match begin(volume, at * BLOCK as u64, BLOCK) {
        Some(out) => {
            assert_eq!(out, block(at, 1), "block {at}");
            true
        }
        None => false,
    })
}

/// A volume with 100 blocks of contents, carried to the drives if so wished.
async fn filled(pool: &Pool, destaged: bool) -> Volume {
    let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
    assert!(write_at_once(&v, 100));
    if destaged {
        pool.settle_space().await.unwrap();
    }
    v
}

#[test]
fn what_is_in_memory_is_written_and_read_without_waiting() {
    reactor::simulate(1, async {
        let drives = drives(6, 64 * MIB);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = filled(&pool, false).await;
        assert!(read_at_once(&v, 100), "from the log");
        pool.settle_space().await.unwrap();
        assert!(read_at_once(&v, 100), "from segments");
        let out = begin(&v, 98 * BLOCK as u64, 4 * BLOCK).unwrap();
        assert_eq!(out[..2 * BLOCK], [block(98, 1), block(99, 1)].concat());
        assert_eq!(out[2 * BLOCK..], [0; 2 * BLOCK], "never written");
    });
}

/// Drives that are asked, and answer later.
fn slow_drives() -> Vec<Arc<Drive>> {
    let slow = |drive: Drive| Arc::new(drive.with_faults(media::FaultPlan::default()));
    drives(6, 64 * MIB).into_iter().map(|d| slow(Arc::into_inner(d).unwrap())).collect()
}

/// A read that has to wait for some of its blocks.
fn waits(volume: &Volume, offset: u64, len: usize) -> Reading<Vec<u8>> {
    match volume.begin_read(offset, len, || Some(vec![7; len])) {
        Begun::Wait(reading) => reading,
        other => panic!("{other:?}"),
    }
}

#[test]
fn drives_that_have_to_be_asked_are_left_to_those_who_wait() {
    reactor::simulate(1, async {
        let drives = slow_drives();
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = filled(&pool, false).await;
        assert!(read_at_once(&v, 100), "from the log");
        pool.settle_space().await.unwrap();
        assert!(!read_at_once(&v, 1));
        verify(&v, &(0..100).map(|at| (at, 1)).collect()).await;
        assert_eq!(waits(&v, 5 * BLOCK as u64, BLOCK).finish().await.unwrap(), block(5, 1));
    });
}

#[test]
fn a_read_that_waits_goes_on_with_what_it_found() {
    reactor::simulate(1, async {
        let drives = slow_drives();
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = filled(&pool, true).await;
        let at = |block: u64| block * BLOCK as u64;
        // On the drives, in the log, a hole in the log, on the drives, and never written.
        v.write(at(97), &block(97, 2)).await.unwrap();
        v.deallocate(at(98), at(1)).await.unwrap();
        let reading = waits(&v, at(96), 5 * BLOCK);
        // Of the log nothing is left, and what it had is another when the read goes on.
        v.write(at(97), &block(97, 3)).await.unwrap();
        pool.settle_space().await.unwrap();
        let read = reading.finish().await.unwrap();
        let hole = vec![0; BLOCK];
        let wanted = [block(96, 1), block(97, 2), hole.clone(), block(99, 1), hole].concat();
        assert!(read == wanted, "as it was when the read began");
        v.write(at(98), &block(98, 4)).await.unwrap();
        let read = waits(&v, at(96), 5 * BLOCK).finish().await.unwrap();
        assert!(read[BLOCK..3 * BLOCK] == [block(97, 3), block(98, 4)].concat());
    });
}

#[test]
fn no_space_is_given_back_under_a_read_that_waits() {
    reactor::simulate(1, async {
        let drives = slow_drives();
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = filled(&pool, true).await;
        let (one, dropped) = (waits(&v, 0, BLOCK), waits(&v, BLOCK as u64, BLOCK));
        let brief = std::time::Duration::from_secs(5);
        let mut closing = Box::pin(pool.close());
        assert!(reactor::timeout(brief, &mut closing).await.is_err());
        drop(dropped);
        assert!(reactor::timeout(brief, &mut closing).await.is_err());
        let gone = one.finish().await.unwrap_err();
        assert_eq!(gone.kind, Kind::Gone, "the pool is being closed");
        closing.await.unwrap();
    });
}

#[test]
fn what_has_to_wait_or_to_fail_is_not_done_at_once() {
    reactor::simulate(1, async {
        let drives = drives(6, 64 * MIB);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = filled(&pool, true).await;
        let out = vec![0; BLOCK];
        assert!(begin(&v, 100, BLOCK).is_none(), "part of a block");
        assert!(!is_done(&v, 0, &out[..512]), "part of a block");
        assert!(begin(&v, v.len(), BLOCK).is_none() && !is_done(&v, v.len(), &out), "outside");
        let small = VolumeSpec { id: [2; 16], block_size: 512, ..volume("small", 16 * MIB) };
        let small = pool.create_volume(small).await.unwrap();
        assert!(!is_done(&small, 0, &out), "its users take turns");
        // A log that gets full slows writers down, which is done by waiting.
        let refused = (0..4000).any(|at| !is_done(&v, at % 4096 * BLOCK as u64, &out));
        assert!(refused, "8 MiB of log do not hold 16");
        pool.close().await.unwrap();
        assert!(begin(&v, 0, BLOCK).is_none() && !is_done(&v, 0, &out), "closed");
    });
}

/// Changes a bit of a block's contents where a drive in memory has them.
fn damage(drives: &[Arc<Drive>], contents: &[u8]) {
    for drive in drives {
        let Drive::Memory(region) = &**drive else { panic!("a drive in memory") };
        let mut starts = (0..region.len()).step_by(BLOCK);
        if let Some(at) = starts.find(|&at| region.bytes(at, BLOCK).unwrap() == contents) {
            let mut wrong = contents.to_vec();
            wrong[17] ^= 4;
            return region.copy_in(at, &wrong).unwrap();
        }
    }
    panic!("no drive has it");
}

#[test]
fn blocks_are_lent_from_where_they_lie_until_they_are_given_back() {
    reactor::simulate(1, async {
        let drives = drives(6, 64 * MIB);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = filled(&pool, false).await;
        assert!(lend(&v, 0, BLOCK).is_none(), "in the log");
        pool.settle_space().await.unwrap();
        for at in 0..100 {
            let pinned = lend(&v, at * BLOCK as u64, BLOCK).unwrap().verified().unwrap();
            assert_eq!(pinned.bytes(), block(at, 1));
        }
        assert!(lend(&v, 100 * BLOCK as u64, BLOCK).is_none(), "a hole");
        assert!(lend(&v, 0, 512).is_none(), "part of a block");
        assert!(lend(&v, 0, 0).is_none() && lend(&v, v.len(), BLOCK).is_none(), "outside");

        // Whoever frees space waits for what is lent of it.
        let pinned = lend(&v, 7 * BLOCK as u64, BLOCK).unwrap().verified().unwrap();
        let brief = std::time::Duration::from_secs(5);
        let mut closing = Box::pin(pool.close());
        assert!(reactor::timeout(brief, &mut closing).await.is_err());
        assert_eq!(pinned.bytes(), block(7, 1));
        drop(pinned);
        closing.await.unwrap();
        assert!(lend(&v, 0, BLOCK).is_none(), "closed");
    });
}

#[test]
fn what_is_damaged_is_not_lent_until_it_was_put_right() {
    reactor::simulate(1, async {
        let drives = drives(6, 64 * MIB);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = filled(&pool, true).await;
        damage(&drives, &block(42, 1));
        let at = 42 * BLOCK as u64;
        assert!(lend(&v, at, BLOCK).unwrap().verified().is_none());
        let mut out = vec![0; BLOCK];
        v.read(at, &mut out).await.unwrap();
        assert_eq!(out, block(42, 1));
        // The repair is written behind the answer.
        let pinned = loop {
            match lend(&v, at, BLOCK).unwrap().verified() {
                Some(pinned) => break pinned,
                None => reactor::yield_now().await,
            }
        };
        assert_eq!(pinned.bytes(), block(42, 1));
    });
}
