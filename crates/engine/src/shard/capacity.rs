//! What a shard holds of its pool's capacity, and whom it lets in for more.
//!
//! A write is let in while what the shard holds, and what others were promised, stays within its
//! share. What merges have not found out counts as held. While a search finds that out, others
//! overwrite, and what they replace counts twice again: so whoever comes later leaves room for those
//! who wait, and whether the pool is full is told by what the search found live, not by what is held
//! when it ends.

mod reserved;

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use super::base::Base;
use super::bounded::Charge;
pub use reserved::{Drawing, Lowering, Turn, Turns};

/// Capacity of a shard, as far as writers are concerned. In blocks of data.
pub struct Capacity {
    base: Rc<Base>,
    /// What the shard may hold: its share of the pool's for now.
    allowed: Cell<u64>,
    /// Of writers that were let in and have not appended them yet.
    promised: Cell<u64>,
    /// Of writers that wait for a search for space.
    queued: Cell<u64>,
    /// Writers let in, ever.
    let_in: Cell<u64>,
    /// Let in, ever, but for those known to replace others.
    fresh: Cell<u64>,
    /// Holes that hosts made, ever.
    holes: Cell<u64>,
    /// What they gave back since that was looked for last, at most.
    freed: Cell<u64>,
    /// What the last search found live, and `fresh` as of which it knows them all.
    live: Cell<Option<(u64, u64)>>,
}

/// Leave to append so many blocks.
pub struct Promise {
    capacity: Rc<Capacity>,
    blocks: u64,
    /// What the volume's quota was charged for them.
    charge: Charge,
    /// What was drawn for them from the volume's reservation.
    drawing: Option<Box<Drawing>>,
}

impl Promise {
    /// So many of them were appended: the log counts them now.
    pub fn kept(&mut self, blocks: u64) {
        let promised = self.capacity.promised.get();
        assert!(blocks <= self.blocks && self.blocks <= promised, "what is kept was promised");
        self.blocks -= blocks;
        self.capacity.promised.set(promised - blocks);
    }

    /// Some of them are to be in the log, whether anybody waits for that or not: what the quota was charged stays.
    #[inline]
    pub const fn committed(&mut self) {
        self.charge.keep();
        if let Some(drawing) = &mut self.drawing {
            drawing.keep();
        }
    }

    /// As it is, with what the volume's quota was charged for it.
    #[must_use]
    pub fn charged(self, charge: Charge) -> Self {
        let mut promise = self;
        assert!(promise.charge.is_none(), "a write is charged once");
        promise.charge = charge;
        promise
    }

    /// With more, to which no quota was charged.
    pub fn add(&mut self, more: Self) {
        let mut more = more;
        assert!(Rc::ptr_eq(&self.capacity, &more.capacity), "what is promised is of one shard");
        let is_bare = more.charge.is_none() && more.drawing.is_none();
        assert!(is_bare, "what is added was promised by itself");
        self.blocks += std::mem::take(&mut more.blocks);
    }

    /// Blocks that were not appended yet.
    pub const fn left(&self) -> u64 {
        self.blocks
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let promised = self.capacity.promised.get();
        assert!(self.blocks <= promised, "what is let go of was promised");
        self.capacity.promised.set(promised - self.blocks);
        if let Some(drawing) = self.drawing.take() {
            drawing.end(self.blocks == 0);
        }
    }
}

/// A writer of so many blocks that waits for a search for space.
pub struct Queued<'a> {
    capacity: &'a Capacity,
    blocks: u64,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let queued = self.capacity.queued.get();
        assert!(self.blocks <= queued, "whoever waits is counted");
        self.capacity.queued.set(queued - self.blocks);
    }
}

impl Capacity {
    #[must_use]
    pub fn new(base: Rc<Base>) -> Self {
        Self {
            base,
            allowed: Cell::new(0),
            promised: Cell::new(0),
            queued: Cell::new(0),
            let_in: Cell::new(0),
            fresh: Cell::new(0),
            holes: Cell::new(0),
            freed: Cell::new(0),
            live: Cell::new(None),
        }
    }

    /// Takes what is there when the shard is opened for its share.
    pub fn claim(&self) {
        assert_eq!(self.allowed.get(), 0, "a share is claimed once, before anybody is let in");
        let held = self.base.held();
        self.base.common.space.claim(held);
        self.allowed.set(held);
    }

    /// Leave for so many blocks, if there is room for them and for those that others wait for.
    #[inline]
    pub fn promise(self: &Rc<Self>, blocks: u64) -> Option<Promise> {
        let promise = self.let_in(blocks, self.queued.get(), 0)?;
        self.fresh.set(self.fresh.get() + blocks);
        Some(promise)
    }

    /// Leave for so many blocks that were acknowledged already, whether there is room for them or not.
    #[must_use]
    pub fn promise_anyway(self: &Rc<Self>, blocks: u64) -> Promise {
        self.promised.set(self.promised.get() + blocks);
        self.let_in.set(self.let_in.get() + 1);
        self.fresh.set(self.fresh.get() + blocks);
        self.promise_of(blocks)
    }

    fn promise_of(self: &Rc<Self>, blocks: u64) -> Promise {
        let (capacity, charge) = (Rc::clone(self), Charge::default());
        Promise { capacity, blocks, charge, drawing: None }
    }

    /// Leave for so many blocks that replace others: within the slack, it does not make the pool any fuller.
    pub fn promise_to_replace(self: &Rc<Self>, blocks: u64) -> Option<Promise> {
        self.let_in(blocks, self.queued.get(), self.base.common.space.slack())
    }

    /// Leave for so many blocks of whoever has waited for a search.
    pub fn promise_after_search(self: &Rc<Self>, blocks: u64, replaces: bool) -> Option<Promise> {
        let slack = self.base.common.space.slack();
        if replaces {
            return self.let_in(blocks, 0, slack);
        }
        let beyond = if self.is_free(blocks) { slack } else { 0 };
        let promise = self.let_in(blocks, 0, beyond)?;
        self.fresh.set(self.fresh.get() + blocks);
        Some(promise)
    }

    /// Whether more is held than the shard's share and half of the slack: what was replaced is to be found before
    /// writers have to wait for it.
    #[must_use]
    pub fn is_strained(&self) -> bool {
        self.base.held() > self.allowed.get() + self.base.common.space.slack() / 2
    }

    /// Whoever comes from now on leaves room for so many blocks, as long as this lives.
    pub fn queue(&self, blocks: u64) -> Queued<'_> {
        self.queued.set(self.queued.get() + blocks);
        Queued { capacity: self, blocks }
    }

    /// How many writers were let in, and how many holes were made: while neither grows nothing changes.
    #[must_use]
    pub const fn let_in_and_holes(&self) -> (u64, u64) {
        (self.let_in.get(), self.holes.get())
    }

    /// A host gave so many blocks back, which the next search may find.
    pub fn note_hole(&self, blocks: u64) {
        self.note_freed(blocks);
        self.holes.set(self.holes.get() + 1);
    }

    /// So many blocks that are held nobody sees any more, which the next search may find.
    pub fn note_freed(&self, blocks: u64) {
        self.freed.set(self.freed.get().saturating_add(blocks.min(self.base.held())));
    }

    /// Blocks that hosts gave back since that was looked for last, at most.
    #[must_use]
    pub const fn freed(&self) -> u64 {
        self.freed.get()
    }

    /// What was given back is looked for.
    pub fn forget_freed(&self) {
        self.freed.set(0);
    }

    /// What was let in that is in the log by now: what was promised may not be.
    #[must_use]
    pub const fn appended(&self) -> u64 {
        self.fresh.get().saturating_sub(self.promised.get())
    }

    /// A search found so many blocks live, of all that was [appended](Self::appended) when it began; `None` when it
    /// could not count.
    pub fn note_live(&self, live: Option<u64>, as_of: u64) {
        assert!(as_of <= self.fresh.get(), "a search knows of what was let in before it");
        self.live.set(live.map(|live| (live, as_of)));
    }

    /// Leave for so many blocks, if there is room for them, beside so many that are left to others, with so
    /// much beyond the shard's share.
    #[inline]
    fn let_in(self: &Rc<Self>, blocks: u64, left: u64, beyond: u64) -> Option<Promise> {
        let takes = !self.base.needs_segments() && self.base.refuses().is_none();
        let wanted = self.base.held() + self.promised.get() + left + blocks;
        (takes && self.may_hold(wanted, beyond)).then(|| {
            self.promised.set(self.promised.get() + blocks);
            self.let_in.set(self.let_in.get() + 1);
            self.promise_of(blocks)
        })
    }

    /// Whether there is room for so many blocks more, whatever is held: by what the last search found, and were
    /// all new that was let in since it began.
    fn is_free(&self, blocks: u64) -> bool {
        let Some((live, as_of)) = self.live.get() else { return false };
        self.may_hold(live + (self.fresh.get() - as_of) + blocks, 0)
    }

    /// Whether the last search found no room for so many blocks more.
    #[must_use]
    pub fn was_found_full(&self, blocks: u64) -> bool {
        self.live.get().is_none_or(|(live, _)| !self.may_hold(live + blocks, 0))
    }

    /// Whether the shard may hold so many blocks, with a further portion of the pool's capacity if need be,
    /// and so much beyond that.
    fn may_hold(&self, blocks: u64, beyond: u64) -> bool {
        let allowed = self.allowed.get();
        if blocks <= allowed + beyond {
            return true;
        }
        let needed = blocks - allowed - beyond;
        let taken = self.base.common.space.take(needed);
        assert!(taken.is_none_or(|taken| taken >= needed), "a portion is what was needed, or more");
        self.allowed.set(allowed + taken.unwrap_or(0));
        taken.is_some()
    }

    /// Gives back what the shard does not use of its share, but for `keep` blocks, or none where more was
    /// dealt out than there is: a crash has counted blocks twice, or a drive is gone.
    pub fn give_back(&self, keep: u64) {
        let keep = if self.base.common.space.is_overdrawn() { 0 } else { keep };
        let used = self.base.held() + self.promised.get() + self.queued.get();
        let spare = self.allowed.get().saturating_sub(used);
        // Not every block that becomes free: only what is more than what was kept.
        if spare > 2 * keep {
            self.allowed.set(self.allowed.get() - (spare - keep));
            assert!(used <= self.allowed.get(), "what was promised is not given back");
            self.base.common.space.give_back(spare - keep);
        }
    }
}
