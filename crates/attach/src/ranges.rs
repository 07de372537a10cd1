//! Who writes which blocks: a write of a part of a block reads the block, and nobody may write it between.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use reactor::sync::Signal;
use stdx::Slab;

use crate::limits::WRITES_MAX;

struct Entry {
    /// Turns are taken in this order.
    turn: u64,
    blocks: Range<u64>,
    /// Nobody else may write these blocks at the same time.
    alone: bool,
}

/// Writes that run or wait. Those that overlap, one of them alone, run in the order in which they came;
/// all others run at once.
pub struct Ranges {
    entries: RefCell<Slab<Entry>>,
    /// Entries that are alone.
    alone: Cell<usize>,
    turns: Cell<u64>,
    ended: Signal,
}

impl Default for Ranges {
    fn default() -> Self {
        Self {
            entries: RefCell::new(Slab::new(WRITES_MAX)),
            alone: Cell::default(),
            turns: Cell::default(),
            ended: Signal::new(),
        }
    }
}

impl Ranges {
    /// Waits until `blocks` may be written.
    ///
    /// # Panics
    /// Past [`WRITES_MAX`] writes, which the limits of clients do not let come.
    pub async fn take(&self, blocks: Range<u64>, alone: bool) -> Turn<'_> {
        let turn = self.turns.get();
        self.turns.set(turn + 1);
        let entry = Entry { turn, blocks: blocks.clone(), alone };
        let Ok(id) = self.entries.borrow_mut().insert(entry) else {
            panic!("more writes than clients may have")
        };
        self.alone.set(self.alone.get() + usize::from(alone));
        let held = Turn { ranges: self, id };
        if self.alone.get() > 0 {
            self.ended.until(|| !self.blocked(turn, &blocks, alone)).await;
        }
        held
    }

    fn blocked(&self, turn: u64, blocks: &Range<u64>, alone: bool) -> bool {
        self.entries.borrow().iter().any(|(_, other)| {
            other.turn < turn
                && (alone || other.alone)
                && other.blocks.start < blocks.end
                && blocks.start < other.blocks.end
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
        let others = ranges.alone.get() > 0;
        if let Some(entry) = ranges.entries.borrow_mut().remove(self.id) {
            ranges.alone.set(ranges.alone.get() - usize::from(entry.alone));
        }
        if others {
            ranges.ended.raise();
        }
    }
}
