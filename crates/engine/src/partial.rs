//! Blocks that are being changed in part, which takes a read and a write: whoever changes them takes
//! turns.

use std::cell::RefCell;
use std::ops::Range;

use reactor::sync::Signal;

use crate::address::View;

type Blocks = (View, Range<u64>);

/// Ranges of blocks that somebody changes.
#[derive(Default)]
pub struct Locks {
    held: RefCell<Vec<Blocks>>,
    freed: Signal,
}

/// Leave to change a range.
pub struct Held<'a> {
    locks: &'a Locks,
    blocks: Blocks,
}

impl Locks {
    /// Waits until nobody changes any of these blocks.
    pub async fn hold(&self, view: View, range: Range<u64>) -> Held<'_> {
        let meets = |(other, held): &Blocks| {
            *other == view && held.start < range.end && range.start < held.end
        };
        self.freed.until(|| !self.held.borrow().iter().any(meets)).await;
        self.held.borrow_mut().push((view, range.clone()));
        Held { locks: self, blocks: (view, range) }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.borrow_mut();
        if let Some(at) = held.iter().position(|blocks| *blocks == self.blocks) {
            held.swap_remove(at);
        }
        drop(held);
        self.locks.freed.raise();
    }
}
