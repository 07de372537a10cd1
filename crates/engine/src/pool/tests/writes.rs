//! Writes that wait, from where they were left.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use super::*;
use crate::{Outcome, Writing};

const BRIEF: Duration = Duration::from_secs(5);

/// A write that has to wait.
fn waits(volume: &Volume, at: u64, data: &[u8]) -> Writing {
    match volume.begin_write(at * BLOCK as u64, data).unwrap() {
        Outcome::Wait(writing) => writing,
        Outcome::Done => panic!("block {at} is written"),
    }
}

/// Writes blocks until one has to wait, for a log that is nearly full: which, and what is done of it.
fn fill(volume: &Volume) -> (u64, Writing) {
    let begun = (0..4096).find_map(|at| {
        match volume.begin_write(at * BLOCK as u64, &block(at, 1)).unwrap() {
            Outcome::Done => None,
            Outcome::Wait(writing) => Some((at, writing)),
        }
    });
    begun.expect("8 MiB of log do not hold 16")
}

async fn finish(v: &Volume, mut writing: Writing, at: u64, data: &[u8]) -> crate::Result<()> {
    v.finish_write(&mut writing, at * BLOCK as u64, data).await
}

async fn on_drives() -> (Pool, Volume) {
    let pool = Pool::create(spec(&drives(6, 64 * MIB), LogSpec::Drives), &[]).await.unwrap();
    let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
    (pool, v)
}

async fn in_memory() -> (Pool, Volume) {
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let pool = Pool::create(spec(&drives(6, 64 * MIB), log), &[]).await.unwrap();
    let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
    (pool, v)
}

#[test]
fn a_write_to_a_log_on_drives_waits_only_to_be_durable() {
    reactor::simulate(1, async {
        let (_pool, v) = on_drives().await;
        v.write(0, &block(0, 1)).await.unwrap();
        let writing = waits(&v, 0, &block(0, 2));
        assert!(!writing.needs_data());
        verify(&v, &Model::from([(0, 1)])).await;
        finish(&v, writing, 0, &[]).await.unwrap();
        verify(&v, &Model::from([(0, 2)])).await;
        // One that nobody waits for shows all the same.
        drop(waits(&v, 0, &block(0, 3)));
        reactor::sleep(BRIEF).await;
        verify(&v, &Model::from([(0, 3)])).await;
    });
}

#[test]
fn a_write_to_a_log_that_is_nearly_full_goes_on_when_there_is_room() {
    reactor::simulate(1, async {
        let (_pool, v) = in_memory().await;
        let (at, writing) = fill(&v);
        assert!(writing.needs_data());
        finish(&v, writing, at, &block(at, 2)).await.unwrap();
        let mut model: Model = (0..at).map(|at| (at, 1)).collect();
        model.insert(at, 2);
        verify(&v, &model).await;
    });
}

/// More than one record, the first of which finds room.
#[test]
fn a_write_of_several_records_goes_on_with_those_that_are_left() {
    reactor::simulate(1, async {
        for (pool, v) in [on_drives().await, in_memory().await] {
            let data = (0..2048).map(|at| block(at, 5)).collect::<Vec<_>>().concat();
            let writing = waits(&v, 0, &data);
            assert!(writing.needs_data());
            finish(&v, writing, 0, &data).await.unwrap();
            verify(&v, &(0..2048).map(|at| (at, 5)).collect()).await;
            pool.close().await.unwrap();
        }
    });
}

#[test]
fn space_that_was_promised_is_given_back_by_writes_that_are_given_up() {
    reactor::simulate(1, async {
        let (pool, v) = in_memory().await;
        let (at, writing) = fill(&v);
        drop(writing);
        // More blocks than the pool has.
        for _ in 0..100_000 {
            drop(waits(&v, at, &block(at, 2)));
        }
        pool.settle_space().await.unwrap();
        let all = (0..4096).map(|at| block(at, 3)).collect::<Vec<_>>().concat();
        v.write(0, &all).await.unwrap();
        verify(&v, &(0..4096).map(|at| (at, 3)).collect()).await;
    });
}

#[test]
fn a_volume_is_taken_away_behind_the_writes_that_were_begun() {
    reactor::simulate(1, async {
        let (pool, v) = on_drives().await;
        let writing = waits(&v, 7, &block(7, 1));
        let mut deleting = pin!(pool.delete_volume("db"));
        assert!(reactor::timeout(BRIEF, &mut deleting).await.is_err());
        finish(&v, writing, 7, &[]).await.unwrap();
        deleting.await.unwrap();
        assert_eq!(v.begin_write(0, &block(0, 1)).unwrap_err().kind, Kind::Gone);
    });
}

#[test]
fn a_write_that_waits_is_told_that_its_log_was_closed() {
    reactor::simulate(1, async {
        let (pool, v) = in_memory().await;
        let (at, writing) = fill(&v);
        pool.close().await.unwrap();
        let gone = finish(&v, writing, at, &block(at, 1)).await.unwrap_err();
        assert_eq!(gone.kind, Kind::Gone);
    });
}

#[test]
#[should_panic = "a write goes on where it was begun"]
fn a_write_goes_on_nowhere_else() {
    reactor::simulate(1, async {
        let (_pool, v) = on_drives().await;
        let writing = waits(&v, 7, &block(7, 1));
        let _ = finish(&v, writing, 8, &[]).await;
    });
}

/// How often memory is allocated while a future is polled, by nobody but itself.
async fn allocations<F: Future>(future: F) -> (u64, F::Output) {
    let mut future = pin!(future);
    let mut count = 0;
    let output = poll_fn(|cx| {
        let mut polled = None;
        let info = allocation_counter::measure(|| polled = Some(future.as_mut().poll(cx)));
        count += info.count_total;
        polled.expect("it was polled")
    });
    let output = output.await;
    (count, output)
}

/// Every one of these writes waits, and the last ones find all the memory they want where earlier ones left it.
async fn allocates_nothing(what: &str, v: &Volume, blocks: u64, write: impl AsyncFn(&Volume, u64)) {
    let mut last = 0;
    for at in 0..blocks {
        let (count, ()) = allocations(write(v, at)).await;
        last = if at < blocks / 2 { 0 } else { last + count };
    }
    assert_eq!(last, 0, "{what}");
}

#[test]
fn writes_that_wait_allocate_nothing() {
    reactor::simulate(1, async {
        let data = block(0, 9);
        let whole = async |v: &Volume, at: u64| {
            let offset = at % 4096 * BLOCK as u64;
            v.write(offset, &data).await.unwrap();
        };
        let (_pool, v) = on_drives().await;
        assert!(!waits(&v, 0, &data).needs_data());
        allocates_nothing("to be durable on drives", &v, 400, whole).await;

        let (_pool, v) = in_memory().await;
        let (_, writing) = fill(&v);
        drop(writing);
        // As fast as the log is drained: each is held back, or waits for room.
        allocates_nothing("for room in the log", &v, 4000, whole).await;

        let (pool, _) = in_memory().await;
        let small = VolumeSpec { id: [2; 16], block_size: 512, ..volume("small", MIB) };
        let small = pool.create_volume(small).await.unwrap();
        let part = async |v: &Volume, at: u64| {
            v.write(at % 256 * BLOCK as u64 + 512, &data[..512]).await.unwrap();
        };
        assert!(waits(&small, 0, &data).needs_data());
        allocates_nothing("for a turn among parts of blocks", &small, 512, part).await;
    });
}
