//! What reactors share and wait for each other with, under locks. For what is rare: nothing of this is on the way of a
//! command, which goes to another reactor by [`duplex`](crate::duplex).

use crate::concurrent::{Mutex, MutexGuard};
use std::future::poll_fn;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};

/// What one reactor at a time looks at or changes, for a moment.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Not to be held over an `.await`, nor taken twice.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // What is inside is whole after every statement, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Inside<T> {
    value: T,
    waiting: Vec<Waker>,
}

/// A value whose changes tasks of any reactor wait for.
#[derive(Debug)]
pub struct Watch<T>(Lock<Inside<T>>);

impl<T: Default> Default for Watch<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Watch<T> {
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Lock::new(Inside { value, waiting: Vec::new() }))
    }

    /// Changes the value, and has all who wait look at it.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut inside = self.0.lock();
        let result = change(&mut inside.value);
        let waiting = std::mem::take(&mut inside.waiting);
        drop(inside);
        waiting.into_iter().for_each(Waker::wake);
        result
    }

    /// Waits until `take` finds, or makes, what it waits for; it is asked now and after every change.
    pub async fn until<R>(&self, mut take: impl FnMut(&mut T) -> Option<R>) -> R {
        poll_fn(|cx| {
            let mut inside = self.0.lock();
            if let Some(result) = take(&mut inside.value) {
                return Poll::Ready(result);
            }
            if !inside.waiting.iter().any(|waiter| waiter.will_wake(cx.waker())) {
                inside.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

/// One at a time, whichever reactor it is on.
#[derive(Default)]
pub struct AsyncMutex(Watch<bool>);

/// Whose turn it is.
pub struct AsyncMutexGuard<'a>(&'a AsyncMutex);

impl AsyncMutex {
    /// Waits for the turn.
    pub async fn hold(&self) -> AsyncMutexGuard<'_> {
        self.0.until(|taken| (!std::mem::replace(taken, true)).then_some(())).await;
        AsyncMutexGuard(self)
    }
}

impl Drop for AsyncMutexGuard<'_> {
    fn drop(&mut self) {
        self.0.0.change(|taken| *taken = false);
    }
}

/// Where a number of tasks wait for each other, once.
struct Barrier(Watch<Coming>);

struct Coming {
    missing: usize,
    failed: bool,
}

/// Somebody will not come.
pub struct BarrierBroken;

/// Leave to pass a barrier. Dropped before that, it fails it for all.
pub struct BarrierEntry(Option<Arc<Barrier>>);

/// A gate for so many, of whom each is to have one of these.
pub fn barrier(count: usize) -> Vec<BarrierEntry> {
    let barrier = Barrier(Watch::new(Coming { missing: count, failed: false }));
    let barrier = Arc::new(barrier);
    (0..count).map(|_| BarrierEntry(Some(Arc::clone(&barrier)))).collect()
}

impl BarrierEntry {
    /// Waits until all are here.
    ///
    /// # Errors
    /// When one will not come.
    pub async fn meet(mut self) -> Result<(), BarrierBroken> {
        let Some(barrier) = self.0.take() else { return Ok(()) };
        barrier.0.change(|coming| coming.missing -= 1);
        let all = |coming: &mut Coming| match coming {
            Coming { failed: true, .. } => Some(Err(BarrierBroken)),
            Coming { missing: 0, .. } => Some(Ok(())),
            Coming { .. } => None,
        };
        barrier.0.until(all).await
    }
}

impl Drop for BarrierEntry {
    fn drop(&mut self) {
        if let Some(barrier) = &self.0 {
            barrier.0.change(|coming| coming.failed = true);
        }
    }
}

#[cfg(loom)]
#[cfg(test)]
mod loom_tests {
    use super::*;
    use crate::concurrent::explore;
    use loom::future::block_on;
    use loom::thread;

    #[test]
    fn loom_turns_are_taken_one_at_a_time_and_nobody_waits_for_ever() {
        explore(|| {
            let shared = Arc::new((AsyncMutex::default(), loom::cell::Cell::new(0)));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        block_on(async {
                            let _held = shared.0.hold().await;
                            // The cell fails when two threads are in it at once.
                            shared.1.set(shared.1.get() + 1);
                        });
                    })
                })
                .collect();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(shared.1.get(), 2);
        });
    }

    #[test]
    fn loom_who_waits_for_a_change_sees_it() {
        explore(|| {
            let watched = Arc::new(Watch::new(0));
            let theirs = Arc::clone(&watched);
            let other = thread::spawn(move || {
                theirs.change(|value| *value += 1);
                theirs.change(|value| *value += 1);
            });
            block_on(watched.until(|value| (*value == 2).then_some(())));
            other.join().unwrap();
        });
    }

    #[test]
    fn loom_a_gate_opens_for_all_or_for_nobody() {
        explore(|| {
            let mut passes = barrier(2);
            let theirs = passes.pop().unwrap();
            let other = thread::spawn(move || block_on(theirs.meet()).is_ok());
            let mine = block_on(passes.pop().unwrap().meet()).is_ok();
            assert!(mine && other.join().unwrap());
        });
        explore(|| {
            let mut passes = barrier(2);
            let theirs = passes.pop().unwrap();
            let other = thread::spawn(move || drop(theirs));
            assert!(block_on(passes.pop().unwrap().meet()).is_err());
            other.join().unwrap();
        });
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn turns_are_taken_one_at_a_time() {
        crate::simulate(1, async {
            let (turn, inside) = (Rc::new(AsyncMutex::default()), Rc::new(Cell::new(0)));
            let tasks: Vec<_> = (0..5)
                .map(|_| {
                    let (turn, inside) = (Rc::clone(&turn), Rc::clone(&inside));
                    crate::spawn(async move {
                        let _held = turn.hold().await;
                        inside.set(inside.get() + 1);
                        assert_eq!(inside.get(), 1);
                        crate::yield_now().await;
                        inside.set(0);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }

    #[test]
    fn a_gate_opens_for_all_or_for_nobody() {
        crate::simulate(2, async {
            let both = crate::join_all(barrier(2).into_iter().map(BarrierEntry::meet)).await;
            assert!(both.iter().all(Result::is_ok));
            let mut passes = barrier(2);
            drop(passes.pop());
            assert!(passes.pop().unwrap().meet().await.is_err());
        });
    }
}
