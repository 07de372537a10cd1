//! Waiting for each other among the tasks of one reactor: no atomics, no locks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
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
    ticket: u64,
    amount: usize,
    waker: Waker,
}

/// A bounded amount of something, given out first come first served.
pub struct Semaphore {
    free: Cell<usize>,
    next_ticket: Cell<u64>,
    waiters: RefCell<VecDeque<Waiter>>,
}

impl Semaphore {
    #[must_use]
    pub const fn new(amount: usize) -> Self {
        Self {
            free: Cell::new(amount),
            next_ticket: Cell::new(0),
            waiters: RefCell::new(VecDeque::new()),
        }
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
        if self.try_acquire(amount) {
            return;
        }
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        let turn = Turn { semaphore: self, ticket };
        poll_fn(|cx| {
            let mut waiters = self.waiters.borrow_mut();
            match waiters.iter_mut().find(|w| w.ticket == ticket) {
                None => waiters.push_back(Waiter { ticket, amount, waker: cx.waker().clone() }),
                Some(waiter) => waiter.waker.clone_from(cx.waker()),
            }
            let first = waiters.front().is_some_and(|w| w.ticket == ticket);
            if first && self.take(amount) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(turn);
    }

    /// As [`acquire`](Self::acquire), given back when dropped.
    pub async fn hold(&self, amount: usize) -> Held<'_> {
        self.acquire(amount).await;
        Held { semaphore: self, amount }
    }

    pub fn release(&self, amount: usize) {
        self.free.set(self.free.get() + amount);
        self.wake_first();
    }

    fn wake_first(&self) {
        if let Some(first) = self.waiters.borrow().front()
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
#[derive(Default)]
pub struct Signal {
    waiters: RefCell<Vec<Waker>>,
}

impl Signal {
    #[must_use]
    pub const fn new() -> Self {
        Self { waiters: RefCell::new(Vec::new()) }
    }

    /// Has all waiting tasks look again.
    pub fn raise(&self) {
        for waker in self.waiters.take() {
            waker.wake();
        }
    }

    /// Waits until `condition` holds; it is looked at now and whenever the signal is raised.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        poll_fn(|cx| {
            if condition() {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            if !waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
                waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// Leaves the queue when served or dropped, and lets the next one try.
struct Turn<'a> {
    semaphore: &'a Semaphore,
    ticket: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.semaphore.waiters.borrow_mut().retain(|w| w.ticket != self.ticket);
        self.semaphore.wake_first();
    }
}
