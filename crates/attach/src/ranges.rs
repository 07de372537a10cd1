//! Who writes which blocks: a write of a part of a block reads the block, and nobody may write it between; and what one
//! user writes where another does comes after it.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use reactor::sync::Signal;
use stdx::{Counted, Slab};

use crate::limits::WRITES_MAX;

struct Entry {
    /// Turns are taken in this order.
    turn: u64,
    owner: u64,
    blocks: Range<u64>,
    /// Nobody else may write these blocks at the same time.
    alone: bool,
}

/// Writes that run or wait. Those that overlap, of two owners or one of them alone, run in the order in which they came;
/// all others run at once.
pub struct Ranges {
    entries: RefCell<Slab<Entry>>,
    /// Entries that are alone.
    alone: Cell<usize>,
    turns: Cell<u64>,
    owners: Cell<u64>,
    waiting: Cell<usize>,
    ended: Signal,
}

impl Default for Ranges {
    fn default() -> Self {
        Self {
            entries: RefCell::new(Slab::new(WRITES_MAX)),
            alone: Cell::default(),
            turns: Cell::default(),
            owners: Cell::default(),
            waiting: Cell::default(),
            ended: Signal::new(),
        }
    }
}

impl Ranges {
    /// One more owner of writes.
    pub fn owner(&self) -> u64 {
        self.owners.set(self.owners.get() + 1);
        self.owners.get()
    }

    /// Waits until `blocks` may be written. `None` past [`WRITES_MAX`] writes, which the limits of clients do not let
    /// come.
    pub async fn take(&self, owner: u64, blocks: Range<u64>, alone: bool) -> Option<Turn<'_>> {
        let turn = self.turns.get();
        self.turns.set(turn + 1);
        let entry = Entry { turn, owner, blocks, alone };
        let id = self.entries.borrow_mut().insert(entry).ok()?;
        self.alone.set(self.alone.get() + usize::from(alone));
        let held = Turn { ranges: self, id };
        if (self.alone.get() > 0 || self.owners.get() > 1) && self.is_blocked(id) {
            let _waiting = Counted::new(&self.waiting);
            self.ended.until(|| !self.is_blocked(id)).await;
        }
        Some(held)
    }

    fn is_blocked(&self, id: u32) -> bool {
        let entries = self.entries.borrow();
        let Some(own) = entries.get(id) else { return false };
        entries.iter().any(|(_, other)| {
            other.turn < own.turn
                && (own.alone || other.alone || own.owner != other.owner)
                && other.blocks.start < own.blocks.end
                && own.blocks.start < other.blocks.end
        })
    }
}

/// A write that may go on; others may when it is dropped.
pub struct Turn<'a> {
    ranges: &'a Ranges,
    id: u32,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let ranges = self.ranges;
        if let Some(entry) = ranges.entries.borrow_mut().remove(self.id) {
            ranges.alone.set(ranges.alone.get() - usize::from(entry.alone));
        }
        if ranges.waiting.get() > 0 {
            ranges.ended.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// A client that came back had its write overtaken by the one that it had in flight before.
    #[test]
    fn what_another_writes_there_comes_first() {
        let ranges = Ranges::default();
        let (gone, back) = (ranges.owner(), ranges.owner());
        let old = poll(pin!(ranges.take(gone, 0..8, false))).unwrap();
        assert!(poll(pin!(ranges.take(gone, 4..12, false))).is_some(), "its own go side by side");
        assert!(poll(pin!(ranges.take(back, 8..12, false))).is_some(), "elsewhere");
        let mut again = pin!(ranges.take(back, 4..8, false));
        assert!(poll(again.as_mut()).is_none());
        drop(old);
        assert!(poll(again.as_mut()).is_some());
    }

    #[test]
    fn more_writes_than_there_is_room_for_are_refused() {
        let ranges = Ranges::default();
        let one = || poll(pin!(ranges.take(0, 0..1, false))).unwrap();
        let mut all: Vec<_> = (0..WRITES_MAX).map(|_| one()).collect();
        assert!(all.iter().all(Option::is_some) && one().is_none());
        all.pop();
        assert!(one().is_some());
    }
}
