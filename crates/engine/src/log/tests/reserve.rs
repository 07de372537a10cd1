//! Ranges that are reserved, and filled while others run.

use super::*;
use reactor::yield_now;
use std::time::Duration;

const BRIEF: Duration = Duration::from_secs(1);

/// Runs the same story on each kind of device, in virtual time.
fn simulate_on_each<F: Future<Output = ()> + 'static>(story: impl Fn(Device) -> F) {
    for device in [simulated(), drives()] {
        reactor::simulate(1, story(device));
    }
}

async fn commit(log: &Log, reserved: Reserved<'_>) -> u64 {
    let stored = reserved.commit().unwrap();
    if !stored.is_durable {
        log.make_durable(stored.sequence).await.unwrap();
    }
    stored.sequence
}

#[test]
fn a_range_is_filled_in_pieces_while_others_wait_and_is_there_once_committed() {
    simulate_on_each(|device| async {
        let log = Rc::new(Log::create(device.clone(), BYTES, RING).await.unwrap());
        write(&log, key(1, 9), 4..5).await;
        let mut reserved = log.reserve(key(1, 10), 2).await.unwrap();
        assert!(log.try_reserve(key(1, 20), 1).unwrap().is_none(), "one at a time");
        let behind = spawn({
            let log = Rc::clone(&log);
            async move { write(&log, key(1, 11), 7..8).await }
        });
        let data = [block(5), block(6)].concat();
        for piece in data.chunks(1000) {
            assert_eq!(log.lookup(key(1, 10), 5), (Found::Nothing, 5));
            reserved.fill(piece).unwrap();
            yield_now().await;
        }
        assert_eq!(reserved.left(), 0);
        assert_eq!(commit(&log, reserved).await + 1, behind.await.unwrap());
        let tags = |log: &Log| [9, 10, 11].map(|n| tag(log, key(1, n)));
        assert_eq!(tags(&log), [Some(4), Some(5), Some(7)]);
        log.close().await;
        drop(log);
        let (log, _) = Log::open(device, BYTES, RING).await.unwrap();
        assert_eq!(tags(&log), [Some(4), Some(5), Some(7)]);
    });
}

#[test]
fn a_range_that_is_given_up_was_never_there() {
    simulate_on_each(|device| async {
        let log = Log::create(device.clone(), BYTES, RING).await.unwrap();
        let status = log.status();
        let mut reserved = log.reserve(key(1, 10), 2).await.unwrap();
        reserved.fill(&block(5)).unwrap();
        drop(reserved);
        assert_eq!(log.status(), status);
        assert_eq!(write(&log, key(1, 11), 7..8).await, 1, "the first record");
        assert_eq!([10, 11].map(|n| tag(&log, key(1, n))), [None, Some(7)]);
        log.close().await;
        drop(log);
        let (log, _) = Log::open(device, BYTES, RING).await.unwrap();
        assert_eq!([10, 11].map(|n| tag(&log, key(1, n))), [None, Some(7)]);
    });
}

/// A commit to drives ends with a page, which would be where the range begins.
#[test]
fn commits_to_drives_wait_while_a_range_is_filled() {
    reactor::simulate(1, async {
        let log = Log::create(drives(), BYTES, RING).await.unwrap();
        let mut first = log.reserve(key(1, 0), 1).await.unwrap();
        first.fill(&block(1)).unwrap();
        let first = first.commit().unwrap();
        assert!(!first.is_durable);
        // Nobody ran since: it is not written yet.
        let mut second = log.try_reserve(key(1, 1), 1).unwrap().unwrap();
        second.fill(&block(2)[..100]).unwrap();
        assert!(reactor::timeout(BRIEF, log.make_durable(first.sequence)).await.is_err());
        second.fill(&block(2)[100..]).unwrap();
        commit(&log, second).await;
        assert_eq!([0, 1].map(|n| tag(&log, key(1, n))), [Some(1), Some(2)]);
    });
}

/// Records go through an image of the ring from some moment on, which a part of this one was too early for.
#[test]
fn what_was_filled_before_another_device_came_is_there_too() {
    reactor::simulate(1, async {
        let log = Rc::new(Log::create(simulated(), BYTES, RING).await.unwrap());
        write(&log, key(1, 0), 1..2).await;
        let mut reserved = log.reserve(key(1, 1), 2).await.unwrap();
        reserved.fill(&block(2)).unwrap();
        let gathering = spawn({
            let log = Rc::clone(&log);
            async move { log.gather().await }
        });
        reactor::sleep(BRIEF).await;
        reserved.fill(&block(3)).unwrap();
        commit(&log, reserved).await;
        gathering.await.unwrap().unwrap();
        assert_eq!([0, 1, 2].map(|n| tag(&log, key(1, n))), [Some(1), Some(2), Some(3)]);
    });
}

#[test]
fn a_log_that_is_closed_meanwhile_does_not_take_what_was_reserved() {
    simulate_on_each(|device| async {
        let log = Log::create(device, BYTES, RING).await.unwrap();
        let mut reserved = log.reserve(key(1, 0), 1).await.unwrap();
        reserved.fill(&block(1)).unwrap();
        log.refuse();
        assert_eq!(reserved.commit().unwrap_err().kind, Kind::Gone);
        assert!(log.is_empty());
    });
}

#[test]
#[should_panic = "what is filled was reserved"]
fn no_more_is_filled_than_was_reserved() {
    reactor::simulate(1, async {
        let log = Log::create(simulated(), BYTES, RING).await.unwrap();
        let mut reserved = log.reserve(key(1, 0), 1).await.unwrap();
        let _ = reserved.fill(&[0; BLOCK + 1]);
    });
}

#[test]
#[should_panic = "what is committed was reserved, and filled"]
fn nothing_is_committed_before_it_is_filled() {
    reactor::simulate(1, async {
        let log = Log::create(simulated(), BYTES, RING).await.unwrap();
        let mut reserved = log.reserve(key(1, 0), 1).await.unwrap();
        reserved.fill(&[0; BLOCK - 1]).unwrap();
        let _ = reserved.commit();
    });
}
