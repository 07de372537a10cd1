use crate::sync::Notify;
use crate::{Config, core, run, spawn, spawn_behind, spawn_late, yield_now};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

const BUSY_NANOS: u64 = 100_000;

/// Keeps the core for a while.
fn be_busy() {
    let begun = crate::now_exact();
    while crate::now_exact() - begun < BUSY_NANOS {
        std::hint::spin_loop();
    }
}

/// A stripe's parity, and the map that learnt it, kept the core for as long as there was any: whoever asked meanwhile
/// waited for all of it.
#[test]
fn work_that_nobody_waits_for_has_a_part_of_each_turn() {
    run(Config::default(), async {
        let done = Rc::new(Cell::new(0));
        let behind: Vec<_> = (0..50)
            .map(|_| {
                let done = Rc::clone(&done);
                spawn_behind(async move {
                    be_busy();
                    done.set(done.get() + 1);
                })
            })
            .collect();
        let (mut turns, mut most, mut before) = (0, 0, 0);
        while done.get() < 50 {
            yield_now().await;
            (most, before) = (most.max(done.get() - before), done.get());
            turns += 1;
        }
        let at_once = crate::limits::BEHIND_NANOS / BUSY_NANOS + 1;
        assert!(most <= at_once, "{most} in one turn");
        assert!(turns >= 50 / at_once, "{turns} turns");
        for task in behind {
            task.await.unwrap();
        }
    })
    .unwrap();
}

#[test]
fn work_that_nobody_waits_for_comes_after_all_other_of_its_turn() {
    run(Config::default(), async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let note = |what: &'static str| {
            let order = Rc::clone(&order);
            async move { order.borrow_mut().push(what) }
        };
        let (behind, late, normal) =
            (spawn_behind(note("behind")), spawn_late(note("late")), spawn(note("normal")));
        for task in [behind, late, normal] {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), ["normal", "late", "behind"]);
    })
    .unwrap();
}

/// Who waited for what the end of a turn did was answered at the end of the next one.
#[test]
fn whom_the_end_of_a_turn_wakes_goes_on_in_it_and_so_does_what_that_produces() {
    run(Config::default(), async {
        let turn = || core::with(|core| core.turn.get());
        let (asked, done, answered) =
            (Rc::new(Notify::new()), Rc::new(Notify::new()), Rc::new(Notify::new()));
        let commit = spawn_late({
            let (asked, done) = (Rc::clone(&asked), Rc::clone(&done));
            async move {
                asked.notified().await;
                done.notify();
                turn()
            }
        });
        let waits = spawn({
            let (asked, done, answered) = (Rc::clone(&asked), done, Rc::clone(&answered));
            async move {
                asked.notify();
                done.notified().await;
                answered.notify();
            }
        });
        let sends = spawn_late(async move {
            answered.notified().await;
            turn()
        });
        waits.await.unwrap();
        assert_eq!(commit.await.unwrap(), sends.await.unwrap());
    })
    .unwrap();
}

/// Wakes itself again and again, for as long as it is told.
async fn be_restless(ends: Rc<Cell<bool>>) {
    poll_fn(|cx| {
        if ends.get() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn work_that_nobody_waits_for_goes_on_beside_any_other() {
    run(Config::default(), async {
        let ends = Rc::new(Cell::new(false));
        // More than a turn polls.
        let others = crate::limits::POLLS_PER_TURN + 1;
        let others: Vec<_> = (0..others).map(|_| spawn(be_restless(Rc::clone(&ends)))).collect();
        let done = Rc::new(Cell::new(false));
        let telling = Rc::clone(&done);
        let behind = spawn_behind(async move { telling.set(true) });
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(done.get());
        ends.set(true);
        for task in others {
            task.await.unwrap();
        }
        behind.await.unwrap();
    })
    .unwrap();
}
