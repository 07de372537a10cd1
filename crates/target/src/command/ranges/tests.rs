//! Holds and what is under way, on one core and on two.

use std::pin::pin;
use std::time::Duration;

use super::*;
use crate::command::tests::double::{at_once, on_reactor};

fn range(first: u64, blocks: u32) -> LbaRange {
    LbaRange::new(stdx::Lba::new(first), blocks).unwrap()
}

/// It had the first, waited for the second, and whoever came to hold the first and the third waited for it.
#[test]
fn a_command_of_many_ranges_has_none_while_it_waits_for_one() {
    on_reactor(async {
        let ranges = Ranges::join(Arc::default());
        let first = ranges.hold(range(10, 1)).await;
        let wanted = [range(100, 1), range(10, 1), range(101, 1)];
        let mut many = pin!(ranges.enter_all(0, &wanted));
        assert!(at_once(many.as_mut()).is_none());
        let second = ranges.hold(range(100, 2));
        let second = reactor::timeout(Duration::from_secs(60), second).await.unwrap();
        drop(first);
        assert!(at_once(many.as_mut()).is_none());
        drop(second);
        assert_eq!(many.await.len(), 3);
    });
}

fn alone() -> Rc<Ranges> {
    Ranges::join(Arc::default())
}

#[test]
fn a_write_that_waited_enters_before_the_next_hold() {
    on_reactor(async {
        let ranges = alone();
        let first = at_once(ranges.hold(range(0, 8))).unwrap();
        let mut write = pin!(ranges.enter(0, range(4, 1)));
        assert!(at_once(write.as_mut()).is_none());
        let mut second = pin!(ranges.hold(range(0, 8)));
        assert!(at_once(second.as_mut()).is_none());
        drop(first);
        assert!(at_once(second.as_mut()).is_none(), "the write was there before");
        let write = at_once(write.as_mut()).unwrap();
        assert!(at_once(second.as_mut()).is_none(), "the write is under way");
        drop(write);
        assert!(at_once(second.as_mut()).is_some());
    });
}

/// One host's Deallocates of many ranges, and as many holds as there may be: each end of a command had each hold look at all
/// that was under way, and the core did nothing else.
#[test]
fn the_end_of_a_command_costs_holds_little_however_much_is_under_way() {
    on_reactor(async {
        let ranges = alone();
        let enter = |n| at_once(ranges.enter(0, range(n, 1))).unwrap();
        let mut under_way: Vec<_> = (0..60_000).map(enter).collect();
        // Of what came last, which is looked at last.
        let last = 60_000 - u64::try_from(crate::limits::HOLDS_MAX).unwrap();
        let mut holds: Vec<_> =
            (last..60_000).map(|n| Box::pin(ranges.hold(range(n, 1)))).collect();
        holds.iter_mut().for_each(|hold| assert!(at_once(hold.as_mut()).is_none()));
        let before = reactor::thread_usage().user;
        for ended in under_way.drain(..4000) {
            drop(ended);
            holds.iter_mut().for_each(|hold| assert!(at_once(hold.as_mut()).is_none()));
        }
        let spent = reactor::thread_usage().user - before;
        assert!(spent < Duration::from_secs(4), "{spent:?}");
        drop(under_way);
        holds.iter_mut().for_each(|hold| assert!(at_once(hold.as_mut()).is_some()));
    });
}

#[test]
fn a_hold_waits_for_writes_under_way_and_keeps_later_ones_out() {
    on_reactor(async {
        let ranges = alone();
        let first = at_once(ranges.enter(0, range(0, 8))).unwrap();
        let elsewhere = at_once(ranges.enter(0, range(8, 8))).unwrap();
        let mut hold = pin!(ranges.hold(range(4, 1)));
        assert!(at_once(hold.as_mut()).is_none(), "a write is under way");
        assert!(!ranges.may_enter(range(4, 1)), "the hold already keeps others out");
        let mut late = pin!(ranges.enter(0, range(0, 8)));
        assert!(at_once(late.as_mut()).is_none());
        drop(first);
        let held = at_once(hold.as_mut()).unwrap();
        assert!(at_once(late.as_mut()).is_none());
        assert!(ranges.may_enter(range(5, 3)));
        drop(held);
        assert!(at_once(late.as_mut()).is_some());
        drop(elsewhere);
    });
}

#[test]
fn a_hold_given_up_while_it_waits_lets_others_in() {
    on_reactor(async {
        let ranges = alone();
        let _write = at_once(ranges.enter(0, range(0, 8))).unwrap();
        {
            let mut hold = Box::pin(ranges.hold(range(0, 1)));
            assert!(at_once(hold.as_mut()).is_none());
        }
        assert!(ranges.may_enter(range(0, 1)));
        assert!(at_once(ranges.hold(range(9, 1))).is_some());
    });
}

#[test]
fn holders_of_one_block_take_turns() {
    on_reactor(async {
        let ranges = alone();
        let one = at_once(ranges.hold(range(0, 1))).unwrap();
        let mut two = pin!(ranges.hold(range(0, 1)));
        assert!(at_once(two.as_mut()).is_none());
        drop(one);
        assert!(at_once(two.as_mut()).is_some());
    });
}

#[test]
fn draining_waits_for_what_was_there_and_for_nothing_else() {
    on_reactor(async {
        let ranges = alone();
        let before = ranges.use_backend();
        let mut drain = pin!(ranges.drain());
        assert!(at_once(drain.as_mut()).is_none());
        let _after = ranges.use_backend();
        drop(before);
        assert!(at_once(drain.as_mut()).is_some());
    });
}

#[test]
fn a_hold_waits_for_the_other_core_and_keeps_it_off() {
    on_reactor(async {
        let fence = Arc::<Fence>::default();
        let (here, there) = (Ranges::join(Arc::clone(&fence)), Ranges::join(fence));
        let write = at_once(there.enter(0, range(0, 4))).unwrap();
        let mut hold = pin!(here.hold(range(3, 1)));
        assert!(at_once(hold.as_mut()).is_none());
        // The other core's task runs.
        reactor::yield_now().await;
        reactor::yield_now().await;
        assert!(!there.may_enter(range(0, 4)), "held off");
        assert!(at_once(hold.as_mut()).is_none(), "its write is under way");
        drop(write);
        let held = hold.await;
        let mut late = pin!(there.enter(0, range(0, 4)));
        assert!(at_once(late.as_mut()).is_none());
        drop(held);
        drop(late.await);
    });
}

/// A queue that is lost with many ranges had every core compare each with all others.
#[test]
fn many_ranges_of_a_lost_queue_are_kept_in_a_few_stretches_until_the_last_one_ends() {
    on_reactor(async {
        let fence = Arc::<Fence>::default();
        let (here, there) = (Ranges::join(Arc::clone(&fence)), Ranges::join(fence));
        let wanted: Vec<_> = (0..5000).map(|n| range(n * 4, 2)).collect();
        let mut all = at_once(here.enter_all(1, &wanted)).unwrap();
        here.lose(1);
        reactor::yield_now().await;
        for ranges in [&here, &there] {
            let holds = ranges.entering.borrow().holds();
            assert!((1..=KEPT_MAX).contains(&holds), "{holds}");
            for n in [0, 4, 9996, 19_996] {
                assert!(at_once(ranges.enter(3, range(n, 1))).is_none());
            }
            assert!(at_once(ranges.enter(3, range(30_000, 1))).is_some());
        }
        let last = all.pop();
        drop(all);
        reactor::yield_now().await;
        assert!(at_once(there.enter(3, range(19_996, 1))).is_none());
        drop(last);
        reactor::yield_now().await;
        for ranges in [&here, &there] {
            assert_eq!(ranges.entering.borrow().holds() + ranges.kept.borrow().len(), 0);
            assert!(at_once(ranges.enter(3, range(0, 1))).is_some());
        }
    });
}

/// A write that a slow drive had of a lost association was done after its host's next write to the same blocks.
#[test]
fn what_a_lost_queue_has_under_way_keeps_every_core_off_its_blocks() {
    on_reactor(async {
        let fence = Arc::<Fence>::default();
        let (here, there) = (Ranges::join(Arc::clone(&fence)), Ranges::join(fence.clone()));
        let lost = at_once(here.enter(1, range(0, 4))).unwrap();
        let also = at_once(here.enter(1, range(2, 4))).unwrap();
        let _other = at_once(here.enter(2, range(8, 4))).unwrap();
        here.lose(1);
        assert!(at_once(here.enter(3, range(3, 1))).is_none(), "at once");
        // The other core's task runs.
        reactor::yield_now().await;
        let joined = Ranges::join(fence);
        let mut hold = pin!(there.hold(range(1, 1)));
        for ranges in [&here, &there, &joined] {
            assert!(at_once(ranges.enter(3, range(3, 1))).is_none());
            assert!(at_once(ranges.enter(3, range(6, 6))).is_some(), "others' blocks are free");
        }
        assert!(at_once(hold.as_mut()).is_none());
        drop(lost);
        reactor::yield_now().await;
        for ranges in [&here, &there, &joined] {
            assert!(at_once(ranges.enter(3, range(0, 2))).is_some());
            assert!(at_once(ranges.enter(3, range(3, 1))).is_none(), "it had two");
        }
        drop(also);
        reactor::yield_now().await;
        assert!(at_once(there.enter(3, range(3, 1))).is_some());
        drop(hold.await);
    });
}

#[test]
fn draining_waits_for_the_other_core_too() {
    on_reactor(async {
        let fence = Arc::<Fence>::default();
        let (here, there) = (Ranges::join(Arc::clone(&fence)), Ranges::join(fence));
        let before = there.use_backend();
        let mut drain = Box::pin(here.drain());
        assert!(at_once(drain.as_mut()).is_none());
        // The other core's task takes the question.
        reactor::yield_now().await;
        reactor::yield_now().await;
        assert!(at_once(drain.as_mut()).is_none());
        let _after = there.use_backend();
        drop(before);
        drain.await;
    });
}

#[test]
fn a_core_that_leaves_owes_no_answer_and_one_that_joins_knows_the_holds() {
    on_reactor(async {
        let fence = Arc::<Fence>::default();
        let here = Ranges::join(Arc::clone(&fence));
        let there = Ranges::join(Arc::clone(&fence));
        let mut hold = Box::pin(here.hold(range(0, 1)));
        assert!(at_once(hold.as_mut()).is_none(), "unanswered");
        drop(there);
        let held = at_once(hold.as_mut()).unwrap();
        let late = Ranges::join(fence);
        assert!(!late.may_enter(range(0, 1)));
        drop(held);
        let _entered = late.enter(0, range(0, 1)).await;
    });
}
