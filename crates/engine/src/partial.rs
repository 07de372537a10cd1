//! Blocks that are being changed in part, which takes a read and a write: whoever changes them takes
//! turns.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use reactor::sync::Signal;

use crate::address::View;
use crate::canary::{self, Step};
use crate::error::Result;
use crate::log::Log;

type Blocks = (View, Range<u64>);

/// Ranges of blocks that somebody changes.
#[derive(Default)]
pub struct Locks {
    held: RefCell<Vec<Blocks>>,
    freed: Signal,
    /// Changes given up half way: what they appended may yet come to light. And how many of them
    /// had been, when it was last waited until everything appended had.
    given_up: Cell<u64>,
    settled: Cell<u64>,
}

/// Leave to change a range.
pub struct Held<'a> {
    locks: &'a Locks,
    blocks: Blocks,
    /// It came to its end, good or bad.
    pub ended: bool,
}

impl Locks {
    /// Waits until nobody changes any of these blocks.
    pub async fn hold(&self, view: View, range: Range<u64>) -> Held<'_> {
        let meets = |(other, held): &Blocks| {
            *other == view && held.start < range.end && range.start < held.end
        };
        if !canary::skips(Step::PartTurns) {
            self.freed.until(|| !self.held.borrow().iter().any(meets)).await;
        }
        self.held.borrow_mut().push((view, range.clone()));
        Held { locks: self, blocks: (view, range), ended: false }
    }

    /// Waits until what was given up shows, or never will: before that, what is read of a block may
    /// be older than what is in the log.
    ///
    /// # Errors
    /// Those of the log.
    pub async fn settle(&self, log: &Log) -> Result<()> {
        let given_up = self.given_up.get();
        if self.settled.get() < given_up {
            if !canary::skips(Step::PartSettles) {
                log.settle().await?;
            }
            self.settled.set(self.settled.get().max(given_up));
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let given_up = &self.locks.given_up;
        given_up.set(given_up.get() + u64::from(!self.ended));
        let mut held = self.locks.held.borrow_mut();
        let at = held.iter().position(|blocks| *blocks == self.blocks);
        let Some(at) = at else { panic!("a range is held until it is let go of") };
        held.swap_remove(at);
        drop(held);
        self.locks.freed.raise();
    }
}
