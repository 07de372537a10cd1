//! Blocks that one core holds, and what others do meanwhile: nobody is on them, and everybody has his turn in the end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use nvme::nvm::LbaRange;

use crate::explore;
use crate::fence::{Answers, Ask, Fence, Hold, Joined};

fn block(n: u64) -> LbaRange {
    LbaRange::new(stdx::Lba::new(n), 1).unwrap()
}

/// A fence, and how often a block behind it was changed.
fn shared() -> Arc<(Fence, AtomicU64)> {
    Arc::new((Fence::default(), AtomicU64::new(0)))
}

/// In two steps: of two at once, or of one that does not see what the other did, one is lost.
fn change(block: &AtomicU64) {
    let changes = block.load(Ordering::Relaxed);
    block.store(changes + 1, Ordering::Relaxed);
}

fn changes(block: &AtomicU64) -> u64 {
    block.load(Ordering::Relaxed)
}

/// Whether an awaited thing is there.
fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Holds a block, changes it and releases it, while it answers what others ask.
fn hold_and_change(fence: &Fence, own: &Joined, block_of_it: &AtomicU64) {
    let mut claim = pin!(fence.claim(block(0)));
    let mut held: Option<(Hold, Answers)> = None;
    block_on(poll_fn(|cx| {
        // Nothing is under way here: whoever holds it may go on.
        while let Poll::Ready(asked) = own.core.poll_asked(cx) {
            drop(asked);
        }
        if held.is_none()
            && let Poll::Ready(hold) = claim.as_mut().poll(cx)
        {
            let answers = fence.ask_others(&own.core, |answer| Ask::Hold(hold, answer));
            held = Some((hold, answers));
        }
        let Some((hold, answers)) = &held else { return Poll::Pending };
        answers.poll(cx).map(|()| {
            change(block_of_it);
            fence.release(hold.id, &own.core);
        })
    }));
    fence.leave(&own.core);
}

#[test]
fn two_cores_hold_a_block_by_turns() {
    explore(|| {
        let shared = shared();
        let theirs = Arc::clone(&shared);
        let (own, other) = (shared.0.join(), shared.0.join());
        let there = thread::spawn(move || hold_and_change(&theirs.0, &other, &theirs.1));
        hold_and_change(&shared.0, &own, &shared.1);
        there.join().unwrap();
        assert_eq!(changes(&shared.1), 2);
        assert!(shared.0.is_idle(), "all is released");
    });
}

/// What is under way when a core is told is over when it answers, and what comes later sees the hold until it is lifted.
#[test]
fn who_holds_a_block_is_alone_there() {
    explore(|| {
        let shared = shared();
        let theirs = Arc::clone(&shared);
        let (own, other) = (shared.0.join(), shared.0.join());
        let there = thread::spawn(move || {
            let (_, block) = &*theirs;
            change(block);
            let (mut is_held, mut was_held) = (false, false);
            block_on(poll_fn(|cx| {
                let Poll::Ready(asked) = other.core.poll_asked(cx) else { return Poll::Pending };
                for ask in asked {
                    is_held = match ask {
                        Ask::Hold(..) => true,
                        Ask::Release(_) => false,
                        _ => is_held,
                    };
                    was_held |= is_held;
                }
                if was_held && !is_held {
                    change(block);
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }));
        });
        hold_and_change(&shared.0, &own, &shared.1);
        there.join().unwrap();
        assert_eq!(changes(&shared.1), 3);
    });
}

/// What it had is taken back, and whoever is next has it: one who gives up as his turn comes is no end of it.
#[test]
fn who_gives_up_as_a_block_is_released_leaves_it_to_the_next() {
    explore(|| {
        let shared = shared();
        let theirs = Arc::clone(&shared);
        let own = shared.0.join();
        let core = std::sync::Arc::clone(&own.core);
        let first = poll(pin!(shared.0.claim(block(0)))).unwrap();
        let mut given_up = Box::pin(shared.0.claim(block(0)));
        assert!(poll(given_up.as_mut()).is_none());
        let there = thread::spawn(move || {
            let next = block_on(theirs.0.claim(block(0)));
            theirs.0.release(next.id, &core);
        });
        shared.0.release(first.id, &own.core);
        drop(given_up);
        there.join().unwrap();
        assert!(shared.0.is_idle());
    });
}

/// With as many holds as there may be, who waits has the first that is released.
#[test]
fn who_waits_for_any_hold_to_end_is_woken() {
    explore(|| {
        let shared = shared();
        let theirs = Arc::clone(&shared);
        let own = shared.0.join();
        let core = std::sync::Arc::clone(&own.core);
        let holds = [0, 1].map(|n| poll(pin!(shared.0.claim(block(n)))).unwrap());
        let there = thread::spawn(move || {
            let claimed = block_on(theirs.0.claim(block(3)));
            theirs.0.release(claimed.id, &core);
        });
        shared.0.release(holds[0].id, &own.core);
        let last = block_on(shared.0.claim(block(2)));
        shared.0.release(last.id, &own.core);
        there.join().unwrap();
        shared.0.release(holds[1].id, &own.core);
        assert!(shared.0.is_idle());
    });
}

/// A bar that goes as somebody comes to wait for it.
#[test]
fn who_is_barred_is_woken() {
    explore(|| {
        let shared = shared();
        let theirs = Arc::clone(&shared);
        let own = shared.0.join();
        let bar = shared.0.bar(&[block(0)]);
        let there = thread::spawn(move || theirs.0.unbar(bar));
        let hold = block_on(shared.0.claim(block(0)));
        there.join().unwrap();
        shared.0.release(hold.id, &own.core);
        assert!(shared.0.is_idle());
    });
}

/// A namespace is removed while another core is about to use what keeps its bytes: that has ended when all have answered,
/// and nobody begins later.
#[test]
fn nobody_uses_what_was_closed() {
    explore(|| {
        let shared = shared();
        let theirs = Arc::clone(&shared);
        let other = shared.0.join();
        let there = thread::spawn(move || {
            let (fence, bytes) = &*theirs;
            change(bytes);
            let mut is_closed = false;
            block_on(poll_fn(|cx| {
                if let Poll::Ready(asked) = other.core.poll_asked(cx) {
                    is_closed |= asked.iter().any(|ask| matches!(ask, Ask::Close(_)));
                }
                if is_closed { Poll::Ready(()) } else { Poll::Pending }
            }));
            fence.leave(&other.core);
        });
        let answers = Answers::default();
        shared.0.close(&answers);
        block_on(poll_fn(|cx| answers.poll(cx)));
        change(&shared.1);
        assert_eq!(changes(&shared.1), 2);
        there.join().unwrap();
        assert!(shared.0.join().closed);
    });
}

/// What a core has in the backend is waited for, or the core is gone, and nothing of it is there.
#[test]
fn what_is_drained_has_ended_also_where_its_core_leaves() {
    explore(|| {
        let shared = shared();
        let theirs = Arc::clone(&shared);
        let other = shared.0.join();
        let there = thread::spawn(move || {
            let (fence, bytes) = &*theirs;
            change(bytes);
            fence.leave(&other.core);
        });
        let answers = Answers::default();
        shared.0.drain(&answers);
        block_on(poll_fn(|cx| answers.poll(cx)));
        change(&shared.1);
        assert_eq!(changes(&shared.1), 2);
        there.join().unwrap();
    });
}
