//! The places where a queue's commands run.
//!
//! A slot is a task that lives as long as its queue and a pinned space for one command's future, so
//! that starting a command allocates nothing. A command is first polled where it was received; most
//! are complete then, and the slot's task never runs. One that has to wait is polled further by it.

use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::rc::Rc;

use fabric::notify::Waiters;

struct Slot<F> {
    future: RefCell<Pin<Box<Option<F>>>>,
    closed: Cell<bool>,
}

impl<F: Future<Output = ()>> Slot<F> {
    /// Polls the command, if there is one; true when that ended it.
    fn poll(&self, cx: &mut Context<'_>) -> bool {
        let mut future = self.future.borrow_mut();
        let ended = match future.as_mut().as_pin_mut() {
            Some(command) => command.poll(cx).is_ready(),
            None => return false,
        };
        if ended {
            future.set(None);
        }
        ended
    }
}

/// A queue's slots, as many as it ever had commands outstanding at once.
pub struct Slots<F> {
    slots: RefCell<Vec<(Rc<Slot<F>>, Waker)>>,
    free: Rc<Free>,
    limit: u16,
}

/// The slots without a command.
#[derive(Default)]
struct Free {
    tags: RefCell<Vec<u16>>,
    freed: Waiters,
}

impl Free {
    fn push(&self, tag: u16) {
        self.tags.borrow_mut().push(tag);
        self.freed.wake();
    }
}

impl<F: Future<Output = ()> + 'static> Slots<F> {
    /// No slots yet; `limit` at most.
    pub fn new(limit: u16) -> Self {
        Self { slots: RefCell::default(), free: Rc::default(), limit }
    }

    /// Takes a free slot; `None` when the limit is reached: the host overran its queue, or all hosts together what a
    /// reactor has tasks for.
    pub fn take(&self) -> Option<u16> {
        if let Some(tag) = self.free.tags.borrow_mut().pop() {
            return Some(tag);
        }
        let mut slots = self.slots.borrow_mut();
        let tag = u16::try_from(slots.len()).ok().filter(|tag| *tag < self.limit)?;
        let slot = Rc::new(Slot { future: RefCell::new(Box::pin(None)), closed: Cell::new(false) });
        let task = reactor::try_spawn(drive(slot.clone(), self.free.clone(), tag))?;
        slots.push((slot, task.waker()));
        Some(tag)
    }

    /// Takes a free slot for its tag only.
    pub fn take_spare(&self) -> Option<Spare> {
        self.take().map(|tag| Spare { free: self.free.clone(), tag })
    }

    /// Starts a command in a slot that [`Slots::take`] gave, and polls it once, here.
    pub fn start(&self, tag: u16, command: F) {
        let slots = self.slots.borrow();
        let (slot, waker) = &slots[usize::from(tag)];
        slot.future.borrow_mut().set(Some(command));
        if slot.poll(&mut Context::from_waker(waker)) {
            self.free.push(tag);
        }
    }

    /// Waits until no slot has a command.
    pub async fn drained(&self) {
        let all = || self.free.tags.borrow().len() == self.slots.borrow().len();
        self.free.freed.until(all).await;
    }
}

impl<F> Drop for Slots<F> {
    fn drop(&mut self) {
        for (slot, waker) in self.slots.borrow().iter() {
            slot.closed.set(true);
            waker.wake_by_ref();
        }
    }
}

/// A slot that is held without a command of its own: it is free again when this is dropped.
pub struct Spare {
    free: Rc<Free>,
    tag: u16,
}

impl Spare {
    #[must_use]
    pub const fn tag(&self) -> u16 {
        self.tag
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.free.push(self.tag);
    }
}

/// Polls a slot's command whenever something it waits for has happened.
async fn drive<F: Future<Output = ()>>(slot: Rc<Slot<F>>, free: Rc<Free>, tag: u16) {
    poll_fn(|cx| {
        if slot.poll(cx) {
            free.push(tag);
        }
        if slot.closed.get() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
