//! Waiting for each other among the tasks of one reactor: no atomics, no locks.

use crate::line::{Line, Place};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Wakes one waiting task. A notice given while nobody waits is kept (once), so none is lost.
#[derive(Default)]
pub struct Notify {
    noticed: Cell<bool>,
    waiter: Cell<Option<Waker>>,
}

impl Notify {
    #[must_use]
    pub const fn new() -> Self {
        Self { noticed: Cell::new(false), waiter: Cell::new(None) }
    }

    pub fn notify(&self) {
        self.noticed.set(true);
        if let Some(waker) = self.waiter.take() {
            waker.wake();
        }
    }

    /// Waits for the next notice. One task at a time: a second waiter takes the first one's place.
    pub async fn notified(&self) {
        poll_fn(|cx| {
            if self.noticed.replace(false) {
                return Poll::Ready(());
            }
            self.waiter.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

struct Waiter {
    amount: usize,
    waker: Waker,
}

/// A bounded amount of something, given out first come first served.
pub struct Semaphore {
    free: Cell<usize>,
    waiters: RefCell<Line<Waiter>>,
}

impl Semaphore {
    #[must_use]
    pub const fn new(amount: usize) -> Self {
        Self { free: Cell::new(amount), waiters: RefCell::new(Line::new()) }
    }

    #[must_use]
    pub const fn available(&self) -> usize {
        self.free.get()
    }

    /// Takes `amount` if it is free and nobody waits for its turn.
    pub fn try_acquire(&self, amount: usize) -> bool {
        self.waiters.borrow().is_empty() && self.take(amount)
    }

    fn take(&self, amount: usize) -> bool {
        let free = self.free.get();
        if amount > free {
            return false;
        }
        self.free.set(free - amount);
        true
    }

    /// Takes `amount`, waiting for its turn. Give it back with [`release`](Self::release).
    pub async fn acquire(&self, amount: usize) {
        let taken = self.acquire_unless(amount, || false).await;
        assert!(taken, "nobody gives up");
    }

    /// As [`acquire`](Self::acquire), unless `gives_up` comes true before: whoever waits looks at that when it begins to, and
    /// whenever [all look](Self::look). Tells whether it was taken.
    pub async fn acquire_unless(&self, amount: usize, gives_up: impl Fn() -> bool) -> bool {
        if self.try_acquire(amount) {
            return true;
        }
        let turn = Turn { semaphore: self, place: Cell::new(None) };
        poll_fn(|cx| {
            let mut waiters = self.waiters.borrow_mut();
            let place = match turn.place.get() {
                None => waiters.join(Waiter { amount, waker: cx.waker().clone() }),
                Some(place) => {
                    if let Some(waiter) = waiters.get_mut(place) {
                        waiter.waker.clone_from(cx.waker());
                    }
                    place
                }
            };
            turn.place.set(Some(place));
            if waiters.is_first(place) && self.take(amount) {
                Poll::Ready(true)
            } else if gives_up() {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Has all who wait look whether they give up.
    pub fn look(&self) {
        self.waiters.borrow().iter().for_each(|waiter| waiter.waker.wake_by_ref());
    }

    /// As [`acquire`](Self::acquire), given back when dropped.
    pub async fn hold(&self, amount: usize) -> Held<'_> {
        self.acquire(amount).await;
        Held { semaphore: self, amount }
    }

    /// As [`try_acquire`](Self::try_acquire), given back when dropped.
    pub fn try_hold(&self, amount: usize) -> Option<Held<'_>> {
        self.try_acquire(amount).then(|| Held { semaphore: self, amount })
    }

    pub fn release(&self, amount: usize) {
        self.free.set(self.free.get() + amount);
        self.wake_first();
    }

    fn wake_first(&self) {
        if let Some(first) = self.waiters.borrow().first()
            && first.amount <= self.free.get()
        {
            first.waker.wake_by_ref();
        }
    }
}

/// An amount taken, given back when dropped.
pub struct Held<'a> {
    semaphore: &'a Semaphore,
    amount: usize,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.semaphore.release(self.amount);
    }
}

/// Wakes every waiting task, each of which looks whether what it waits for has come true.
pub struct Signal {
    waiters: RefCell<Line<Waker>>,
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signal").finish_non_exhaustive()
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

impl Signal {
    #[must_use]
    pub const fn new() -> Self {
        Self { waiters: RefCell::new(Line::new()) }
    }

    /// Has all waiting tasks look again.
    pub fn raise(&self) {
        loop {
            let Some(waker) = self.waiters.borrow_mut().leave_first() else { return };
            waker.wake();
        }
    }

    /// Waits until `condition` holds; it is looked at now and whenever the signal is raised.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        let wait = Wait { signal: self, place: Cell::new(None) };
        poll_fn(|cx| {
            if condition() {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            match wait.place.get().and_then(|place| waiters.get_mut(place)) {
                Some(waker) => waker.clone_from(cx.waker()),
                None => wait.place.set(Some(waiters.join(cx.waker().clone()))),
            }
            Poll::Pending
        })
        .await;
    }
}

impl Signal {
    /// Waits until the signal is raised next.
    pub async fn next(&self) {
        let mut waited = false;
        self.until(|| std::mem::replace(&mut waited, true)).await;
    }
}

/// A wait for a signal, which leaves nothing behind.
struct Wait<'a> {
    signal: &'a Signal,
    place: Cell<Option<Place>>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.get() {
            let waker = self.signal.waiters.borrow_mut().leave(place);
            drop(waker);
        }
    }
}

/// Leaves the queue when served or dropped, and lets the next one try.
struct Turn<'a> {
    semaphore: &'a Semaphore,
    place: Cell<Option<Place>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place.get() else { return };
        let waiter = self.semaphore.waiters.borrow_mut().leave(place);
        drop(waiter);
        self.semaphore.wake_first();
    }
}
