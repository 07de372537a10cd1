//! What a shard draws from what is kept for a volume, and what it adds to that (decision 0034).

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use reactor::sync::Signal;

use super::{Capacity, Promise};
use crate::address::View;
use crate::quotas::Reserve;

type Blocks = (View, Range<u64>);

/// Blocks of volumes with a reservation that somebody looks at before changing them: what is new must not be so twice.
#[derive(Default)]
pub struct Turns {
    held: RefCell<Vec<Blocks>>,
    freed: Signal,
}

/// Leave to change a range after a look at it.
pub struct Turn {
    turns: Rc<Turns>,
    blocks: Blocks,
}

impl Turns {
    /// Waits until nobody else has any of these blocks.
    pub async fn hold(self: &Rc<Self>, view: View, range: Range<u64>) -> Turn {
        let meets = |(other, held): &Blocks| {
            *other == view && held.start < range.end && range.start < held.end
        };
        self.freed.until(|| !self.held.borrow().iter().any(meets)).await;
        let blocks = (view, range);
        self.held.borrow_mut().push(blocks.clone());
        Turn { turns: Rc::clone(self), blocks }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut held = self.turns.held.borrow_mut();
        let at = held.iter().position(|blocks| *blocks == self.blocks);
        let Some(at) = at else { panic!("a range is held until it is let go of") };
        held.swap_remove(at);
        drop(held);
        self.turns.freed.raise();
    }
}

/// So many new blocks were drawn from what is kept for a volume, for a write. Dropped before any was
/// [kept](Self::keep), they go back.
pub struct Drawing {
    capacity: Rc<Capacity>,
    reserve: Arc<Reserve>,
    blocks: u64,
    is_kept: bool,
    is_over: bool,
    /// Nobody else looks at the blocks before this is over.
    _turn: Turn,
}

impl Drawing {
    #[must_use]
    pub const fn new(
        capacity: Rc<Capacity>,
        reserve: Arc<Reserve>,
        blocks: u64,
        turn: Turn,
    ) -> Self {
        Self { capacity, reserve, blocks, is_kept: false, is_over: false, _turn: turn }
    }

    /// Some of them are to be in the log, whether anybody waits for that or not.
    pub const fn keep(&mut self) {
        self.is_kept = true;
    }

    /// The write came to its end: whether all of it is in the log.
    pub fn end(mut self, is_whole: bool) {
        self.is_over = is_whole;
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        let space = &self.capacity.base.common.space;
        match (self.is_over, self.is_kept) {
            (true, _) => {}
            (false, false) => {
                self.capacity.let_go(self.blocks);
                self.reserve.put_back(self.blocks, space);
            }
            // Nobody knows how much of it is in the log.
            (false, true) => self.reserve.forget(space),
        }
    }
}

/// A range of a volume is being given back. Dropped before that is [done](Self::done), nobody knows whether it was.
pub struct Lowering {
    capacity: Rc<Capacity>,
    reserve: Arc<Reserve>,
    /// Blocks of it.
    range: u64,
    /// Those that only the volume has, if that is known.
    alone: Option<u64>,
    is_done: bool,
}

impl Lowering {
    /// So many blocks of it are the volume's own, or nobody knows: nobody else has what they leave.
    pub fn found(&mut self, alone: Option<u64>) {
        let (promised, before) = (self.capacity.promised.get(), self.alone.unwrap_or(0));
        assert!(before <= promised, "what is looked up anew was promised");
        assert!(alone.unwrap_or(0) <= self.range, "no more is a volume's own than there is");
        let promised = promised - before;
        self.capacity.promised.set(promised + alone.unwrap_or(0));
        self.alone = alone;
    }

    /// It is: what that leaves is kept for the volume.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Lowering {
    fn drop(&mut self) {
        let (capacity, alone) = (&self.capacity, self.alone.unwrap_or(0));
        let (space, shard) = (&capacity.base.common.space, capacity.base.writer.shard());
        if self.alone.is_none() || !self.is_done && alone > 0 {
            self.reserve.forget(space);
        } else {
            capacity.let_go(self.reserve.lower(shard, alone, self.range));
        }
        let promised = capacity.promised.get();
        assert!(alone <= promised, "what is given back was promised");
        capacity.promised.set(promised - alone);
        self.reserve.end_lowering(space);
    }
}

impl Capacity {
    /// Leave for so many blocks, as many of them new as were drawn from what is kept for their volume: the shard's share
    /// grows by those. What the others replace, and what others replaced before, is within the slack: beyond the share, or
    /// beyond what is live where that is more, as where a snapshot keeps what writers on their way replace. What the volume
    /// has and what is kept for it are together as much as before all the same.
    pub fn promise_drawn(self: &Rc<Self>, blocks: u64, drawing: Drawing) -> Option<Promise> {
        let drawn = drawing.blocks;
        let space = &self.base.common.space;
        let excess = if space.has_shrunk() { 0 } else { self.excess() };
        self.allowed.set(self.allowed.get() + drawn);
        // Where it may not be, what was drawn goes back.
        let mut promise = self.let_in(blocks, 0, space.slack() + excess)?;
        self.fresh.set(self.fresh.get() + drawn);
        promise.drawing = Some(Box::new(drawing));
        Some(promise)
    }

    /// So many blocks of a volume are to be given back, once they were looked up. Tells also whether they need not be: all
    /// of the reservation is kept.
    #[must_use]
    pub fn lowering(self: &Rc<Self>, range: u64, reserve: Arc<Reserve>) -> (Lowering, bool) {
        let is_kept = reserve.begin_lowering();
        let capacity = Rc::clone(self);
        (Lowering { capacity, reserve, range, alone: Some(0), is_done: false }, is_kept)
    }

    /// So many blocks more are live than the shard's share, as far as that is known.
    fn excess(&self) -> u64 {
        let Some((live, as_of)) = self.live.get() else { return 0 };
        (live + (self.fresh.get() - as_of)).saturating_sub(self.allowed.get())
    }

    /// So many are no part of the shard's share any more.
    fn let_go(&self, blocks: u64) {
        // A share may be less than what is held: then the pool has less than nothing left.
        let taken = blocks.min(self.allowed.get());
        self.allowed.set(self.allowed.get() - taken);
        self.base.common.space.claim(blocks - taken);
    }
}
