//! Numbers of the journal's records, and which of their places may be used again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use initiator::Error;
use reactor::sync::Signal;

use crate::inner::Inner;

/// The journal of a set in use. Record n is in place n modulo the number of places, on each member that it
/// changes. A place is used again only when all members have a superblock whose tail is beyond what was there.
pub struct Journal {
    next: Cell<u64>,
    active: RefCell<BTreeSet<u64>>,
    ended: Signal,
}

/// A record in use.
pub struct Ticket<'a> {
    journal: &'a Journal,
    pub number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.journal.active.borrow_mut().remove(&self.number);
        self.journal.ended.raise();
    }
}

impl Journal {
    #[must_use]
    pub fn new(next: u64) -> Self {
        Self { next: Cell::new(next), active: RefCell::default(), ended: Signal::new() }
    }

    /// Goes on from another number. No record is in use.
    pub fn go_on_from(&self, next: u64) {
        debug_assert!(self.active.borrow().is_empty(), "records are in use");
        self.next.set(next);
    }

    /// The number of the record that is begun next.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next.get()
    }

    /// Returns when every record below `number` has ended.
    ///
    /// # Errors
    /// When the set is of no more use.
    pub async fn ended_below(&self, inner: &Inner, number: u64) -> Result<(), Error> {
        self.ended.until(|| self.tail() >= number || inner.usable().is_err()).await;
        inner.usable()
    }

    /// The oldest record in use, or the next one.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.active.borrow().first().copied().unwrap_or_else(|| self.next.get())
    }

    /// A record's number, once there is a place for it.
    ///
    /// # Errors
    /// When the set is of no more use.
    pub async fn begin(&self, inner: &Inner) -> Result<Ticket<'_>, Error> {
        loop {
            inner.usable()?;
            let stored = inner.stored_tail();
            let number = self.next.get();
            if number < stored + inner.layout.records {
                self.next.set(number + 1);
                self.active.borrow_mut().insert(number);
                return Ok(Ticket { journal: self, number });
            }
            if self.tail() == stored {
                self.ended.until(|| self.tail() != stored || inner.usable().is_err()).await;
            }
            inner.checkpoint(stored).await?;
        }
    }

    /// Has those look again who wait.
    pub fn wake(&self) {
        self.ended.raise();
    }
}
