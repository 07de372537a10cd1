//! What is done without waiting, and what is left to those who wait.

use super::*;

/// The first `blocks` blocks, written without waiting.
fn write_at_once(volume: &Volume, blocks: u64) -> bool {
    (0..blocks).all(|at| volume.write_at_once(at * BLOCK as u64, &block(at, 1)))
}

/// Whether the first blocks are read without waiting, each as it was written.
fn read_at_once(volume: &Volume, blocks: u64) -> bool {
    let mut out = vec![0; BLOCK];
    (0..blocks).all(|at| {
        let done = volume.read_at_once(at * BLOCK as u64, &mut out);
        assert!(!done || out == block(at, 1), "block {at}");
        done
    })
}

/// A volume with 100 blocks of contents, carried to the drives if so wished.
async fn filled(pool: &Pool, carried: bool) -> Volume {
    let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
    assert!(write_at_once(&v, 100));
    if carried {
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
        let mut out = vec![1; 4 * BLOCK];
        assert!(v.read_at_once(98 * BLOCK as u64, &mut out));
        assert_eq!(out[..2 * BLOCK], [block(98, 1), block(99, 1)].concat());
        assert_eq!(out[2 * BLOCK..], [0; 2 * BLOCK], "never written");
    });
}

#[test]
fn drives_that_have_to_be_asked_are_left_to_those_who_wait() {
    reactor::simulate(1, async {
        let slow = |drive: Drive| Arc::new(drive.with_faults(media::FaultPlan::default()));
        let drives: Vec<_> =
            drives(6, 64 * MIB).into_iter().map(|d| slow(Arc::into_inner(d).unwrap())).collect();
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = filled(&pool, false).await;
        assert!(read_at_once(&v, 100), "from the log");
        pool.settle_space().await.unwrap();
        assert!(!read_at_once(&v, 1));
        verify(&v, &(0..100).map(|at| (at, 1)).collect()).await;
    });
}

#[test]
fn what_has_to_wait_or_to_fail_is_not_done_at_once() {
    reactor::simulate(1, async {
        let drives = drives(6, 64 * MIB);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = filled(&pool, true).await;
        let mut out = vec![0; BLOCK];
        assert!(!v.read_at_once(100, &mut out), "part of a block");
        assert!(!v.write_at_once(0, &out[..512]), "part of a block");
        assert!(!v.read_at_once(v.len(), &mut out) && !v.write_at_once(v.len(), &out), "outside");
        let small = VolumeSpec { id: [2; 16], block_size: 512, ..volume("small", 16 * MIB) };
        let small = pool.create_volume(small).await.unwrap();
        assert!(!small.write_at_once(0, &out), "its users take turns");
        // A log that gets full slows writers down, which is done by waiting.
        let refused = (0..4000).any(|at| !v.write_at_once(at % 4096 * BLOCK as u64, &out));
        assert!(refused, "8 MiB of log do not hold 16");
        pool.close().await.unwrap();
        assert!(!v.read_at_once(0, &mut out) && !v.write_at_once(0, &out), "closed");
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
        assert!(v.lend(0, BLOCK).is_none(), "in the log");
        pool.settle_space().await.unwrap();
        for at in 0..100 {
            let loan = v.lend(at * BLOCK as u64, BLOCK).unwrap().verified().unwrap();
            assert_eq!(loan.bytes(), block(at, 1));
        }
        assert!(v.lend(100 * BLOCK as u64, BLOCK).is_none(), "a hole");
        assert!(v.lend(0, 512).is_none(), "part of a block");
        assert!(v.lend(0, 0).is_none() && v.lend(v.len(), BLOCK).is_none(), "outside");

        // Whoever frees space waits for what is lent of it.
        let loan = v.lend(7 * BLOCK as u64, BLOCK).unwrap().verified().unwrap();
        let brief = std::time::Duration::from_secs(5);
        let mut closing = Box::pin(pool.close());
        assert!(reactor::timeout(brief, &mut closing).await.is_err());
        assert_eq!(loan.bytes(), block(7, 1));
        drop(loan);
        closing.await.unwrap();
        assert!(v.lend(0, BLOCK).is_none(), "closed");
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
        assert!(v.lend(at, BLOCK).unwrap().verified().is_none());
        let mut out = vec![0; BLOCK];
        v.read(at, &mut out).await.unwrap();
        assert_eq!(out, block(42, 1));
        // The repair is written behind the answer.
        let loan = loop {
            match v.lend(at, BLOCK).unwrap().verified() {
                Some(loan) => break loan,
                None => reactor::yield_now().await,
            }
        };
        assert_eq!(loan.bytes(), block(42, 1));
    });
}
