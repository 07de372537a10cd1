//! Devices of a log of memory that do not give what they hold.

use std::future::{Future, poll_fn};
use std::task::Poll;

use media::SimulatedPmem;

use super::*;
use crate::canary::{Step, misses};
use crate::format::area as at;
use crate::format::label::Label;

/// Two devices that mirror each other.
fn sides() -> ([Arc<SimulatedPmem>; 2], LogSpec) {
    let sides = [8, 8].map(|mib| Arc::new(SimulatedPmem::new(mib * MIB)));
    let log = sides.iter().map(|side| Arc::new(Pmem::Simulated(Arc::clone(side))));
    let log = LogSpec::Bbu(log.collect());
    (sides, log)
}

/// How many devices of the log the newest label has as current.
fn current(drives: &[Arc<Simulated>]) -> usize {
    let slots = [at::LABEL, at::LABEL + BLOCK as u64];
    let labels = drives.iter().flat_map(|drive| {
        slots.iter().filter_map(|at| {
            let mut block = [0; BLOCK];
            drive.peek(*at, &mut block);
            Label::from_block(&block).ok()
        })
    });
    let newest = labels.max_by_key(|label| label.epoch).unwrap();
    newest.current_members().count()
}

/// The shard that met the failure told the labels before it answered. Another one answered meanwhile what that device
/// did not have any more, which the labels still called current.
#[test]
fn what_one_shard_saw_of_a_device_all_tell_before_they_answer() {
    let (media, all) = simulated(4, 256 * MIB, 1);
    let ([_, late], log) = sides();
    reactor::simulate(1, async move {
        let spec = PoolSpec { shards: Some(2), ..spec(&all, log) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        for chunk in 0..2 {
            v.write(chunk * MIB, &block(chunk, 1)).await.unwrap();
        }
        late.poison(0..8 * MIB);
        let first = v.clone();
        let first = reactor::spawn(async move { first.write(0, &block(0, 2)).await });
        reactor::yield_now().await;
        assert_eq!(pool.log_copies().0, 1, "the first one met it");
        assert_eq!(current(&media), 2, "and is about to tell");
        v.write(MIB, &block(1, 2)).await.unwrap();
        assert_eq!(current(&media), 1);
        first.await.unwrap().unwrap();
    });
}

/// Who read a write that only one device had, while the labels still called both current, had it taken back from him by
/// whoever opened the pool with the other.
#[test]
fn nobody_sees_what_a_device_lacks_that_the_labels_call_current() {
    // Who writes stays for the answer, or is gone before the labels are written.
    for stays in [true, false] {
        let (media, all) = simulated(4, 256 * MIB, 1);
        let ([_, late], log) = sides();
        reactor::simulate(1, async move {
            let pool = Pool::create(spec(&all, log), &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
            v.write(0, &block(0, 1)).await.unwrap();
            late.poison(0..8 * MIB);
            let read = async || {
                let mut bytes = vec![0; BLOCK];
                v.read(0, &mut bytes).await.unwrap();
                bytes
            };
            let data = block(0, 2);
            let mut write = Box::pin(v.write(0, &data));
            let is_pending = poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending, "it is to be told first");
            assert_eq!((pool.log_copies().0, current(&media)), (1, 2));
            assert!(read().await == block(0, 1), "what is seen may be lost with the labels");
            if stays {
                write.await.unwrap();
            } else {
                drop(write);
                pool.audit_space().await.unwrap();
            }
            assert_eq!(current(&media), 1);
            assert!(read().await == data, "the labels say who has it");
            pool.close().await.unwrap();
        });
    }
}

/// The log was about to move, and records to gather: who read one saw what only one device had.
#[test]
fn nobody_sees_what_a_device_lacks_because_records_gather_from_now_on() {
    let (media, all) = simulated(4, 256 * MIB, 1);
    let ([_, late], log) = sides();
    reactor::simulate(1, async move {
        let pool = Pool::create(spec(&all, log), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        v.write(0, &block(0, 1)).await.unwrap();
        late.poison(0..8 * MIB);
        let data = block(0, 2);
        let mut write = Box::pin(v.write(0, &data));
        let is_pending = poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending, "it is to be told first");
        // Who writes is gone, and the labels cannot be written for a while.
        drop(write);
        let range = at::LABEL..at::LABEL + 2 * BLOCK as u64;
        let (operation, kind) = (Some(media::Operation::Write), media::Kind::Full);
        media[0].refuse(media::Refusal { operation, range, kind, times: None });
        let gathers = pool.each(|shard| async move { shard.base.log.gather().await });
        let _ = reactor::timeout(std::time::Duration::from_millis(1), gathers).await;
        let mut bytes = vec![0; BLOCK];
        v.read(0, &mut bytes).await.unwrap();
        assert!(bytes == block(0, 1), "what is seen may be lost with the labels");
    });
}

#[test]
fn what_a_log_settles_before_records_gather_is_missed() {
    let story = nobody_sees_what_a_device_lacks_because_records_gather_from_now_on;
    misses(Step::GatherSettles, "may be lost", story);
}

/// What had rotted on the first device the second did not give, and it went on being called current: the next opening
/// would have needed all of it.
#[test]
fn a_mirror_that_does_not_give_what_the_first_one_lost_is_the_logs_no_more() {
    let (drives, all) = simulated(4, 256 * MIB, 1);
    let ([first, second], log) = sides();
    reactor::simulate(1, async move {
        let pool = Pool::create(spec(&all, log), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        v.write(0, &block(0, 1)).await.unwrap();
        let there = first.contents();
        let mut lines = (0..there.len() - BLOCK).step_by(media::pmem::LINE);
        let at = lines.find(|at| there[*at..][..BLOCK] == block(0, 1)).unwrap() as u64;
        first.rot(at);
        second.poison(at..at + 64);
        let read = v.read(0, &mut vec![0; BLOCK]).await;
        assert_eq!(read.unwrap_err().kind, Kind::Corrupt);
        assert_eq!(pool.log_copies().0, 1);
        v.write(MIB, &block(1, 1)).await.unwrap();
        assert_eq!(current(&drives), 1, "it is told before the write is");
    });
}

/// What lay beside a line that could not be read, or all of a device, was beside another device that had everything:
/// the pool was not opened all the same.
#[test]
fn a_device_that_cannot_be_read_keeps_no_pool_closed_that_has_another() {
    // Of nothing, of what is there, of what is not, and all of it.
    for bad in [0..4096, 8192..8256, 9000..9064, 4 * MIB..4 * MIB + 64, 0..8 * MIB] {
        let ([first, _], log) = sides();
        let all = drives(4, 128 * MIB);
        let (given, with) = (all.clone(), log.clone());
        let model = reactor::simulate(1, async move {
            let pool = Pool::create(spec(&given, with), &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
            let mut model = Model::new();
            scribble(&v, &mut model, 20, 1).await;
            model
        });
        first.poison(bad.clone());
        reactor::simulate(2, async move {
            let pool = Pool::open(all, log, OpenOptions::default(), &[]).await;
            let pool = pool.unwrap_or_else(|error| panic!("{bad:x?}: {error}"));
            let v = pool.volume("db").unwrap();
            verify(&v, &model).await;
            v.write(0, &block(0, 9)).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

/// What can be had of each block by who opens the pool: whether all of it is as it was written, or said to be lost, or,
/// where that was accepted, as it was before.
async fn has_or_says(pool: Pool, accepted: bool, bad: &std::ops::Range<u64>) {
    let v = pool.volume("db").unwrap();
    for at in 0..40 {
        let mut bytes = vec![0xEE; BLOCK];
        match v.read(at * BLOCK as u64, &mut bytes).await {
            Ok(()) if bytes == block(at, 1) => {}
            Ok(()) => assert!(accepted && bytes == [0; BLOCK], "{bad:x?}: block {at} is another"),
            Err(error) => assert_eq!(error.kind, Kind::Corrupt, "{bad:x?}: {error}"),
        }
    }
    pool.close().await.unwrap();
}

/// Without another device what cannot be read is lost with it, perhaps. That is said, before anything is changed and by
/// whoever reads a block; and what a copy of the device has with zeroes in its place is opened as far as it goes.
#[test]
fn what_a_lone_device_does_not_give_is_said_to_be_lost() {
    for bad in [0..64, 0..8192, 8192..8256, 8300..8400, 40_000..40_064, 9000..100_000, 0..8 * MIB] {
        let side = Arc::new(SimulatedPmem::new(8 * MIB));
        let log = LogSpec::Bbu(vec![Arc::new(Pmem::Simulated(Arc::clone(&side)))]);
        let all = drives(4, 128 * MIB);
        let (given, with) = (all.clone(), log.clone());
        reactor::simulate(1, async move {
            let pool = Pool::create(spec(&given, with), &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
            for at in 0..40 {
                v.write(at * BLOCK as u64, &block(at, 1)).await.unwrap();
            }
        });
        let line = media::pmem::LINE as u64;
        side.poison(bad.start / line * line..bad.end.next_multiple_of(line));
        let was = side.contents();
        reactor::simulate(2, async move {
            let open = async |options| Pool::open(all.clone(), log.clone(), options, &[]).await;
            match open(OpenOptions::default()).await {
                Ok(pool) => return has_or_says(pool, false, &bad).await,
                Err(error) => {
                    let told = matches!(error.kind, Kind::Failed | Kind::Loss);
                    assert!(told && side.holds(&was), "{bad:x?}: {:?}: {error}", error.kind);
                }
            }
            side.cure(false);
            match open(OpenOptions::default()).await {
                Ok(pool) => has_or_says(pool, false, &bad).await,
                Err(error) => {
                    assert_eq!(error.kind, Kind::Loss, "{bad:x?}: {error}");
                    let options = OpenOptions { accept_loss: true, ..OpenOptions::default() };
                    has_or_says(open(options).await.unwrap(), true, &bad).await;
                }
            }
        });
    }
}
