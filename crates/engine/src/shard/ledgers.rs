//! What a shard holds of the volumes that have a quota, and whom it lets in for more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use stdx::num::{u32_of, usize64};

use super::base::Base;
use super::events::Event;
use crate::address::View;
use crate::limits::QUOTA_SETTLES;
use crate::quotas::Quota;
use crate::used::Counts;

/// What the shard holds of each volume with a quota.
pub struct Ledgers {
    base: Rc<Base>,
    /// The quotas that there were when it last looked.
    known: Cell<u64>,
    all: RefCell<BTreeMap<View, Rc<Ledger>>>,
}

/// What the shard holds of a volume with a quota. In blocks.
pub struct Ledger {
    pub quota: Arc<Quota>,
    shard: u16,
    /// As of the last count.
    counted: Cell<Option<u64>>,
    /// Let in, ever, and how much of that the last count knew of.
    charged: Cell<u64>,
    counted_at: Cell<u64>,
    /// Let in, and perhaps not appended yet.
    in_flight: Cell<u64>,
    /// It is being counted: nobody else is let in, or what is appended meanwhile would count twice.
    is_closed: Cell<bool>,
    base: Rc<Base>,
}

/// A ledger that lets nobody in.
pub struct Closed(Rc<Ledger>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.is_closed.set(false);
        self.0.base.events.raise(Event::Counted);
    }
}

/// So many blocks were let in. Dropped before they were [kept](Self::keep), they were not written.
#[derive(Default)]
pub struct Charge {
    ledger: Option<Rc<Ledger>>,
    blocks: u32,
    is_kept: bool,
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl Charge {
    /// Some of them were written, perhaps all.
    #[inline]
    pub const fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(ledger) = &self.ledger {
            ledger.settle(self.blocks.into(), self.is_kept);
        }
    }
}

impl Ledger {
    fn new(quota: Arc<Quota>, base: Rc<Base>) -> Self {
        let shard = base.writer.shard();
        let counted = Cell::new(quota.share(shard).held());
        let zero = || Cell::new(0);
        Self {
            quota,
            shard,
            counted,
            charged: zero(),
            counted_at: zero(),
            in_flight: zero(),
            is_closed: Cell::new(false),
            base,
        }
    }

    /// Lets so many blocks in, whatever is there.
    pub fn charge(self: &Rc<Self>, blocks: u64) -> Charge {
        self.charged.set(self.charged.get() + blocks);
        self.in_flight.set(self.in_flight.get() + blocks);
        self.tell();
        if blocks > 0 {
            self.note_change();
        }
        let blocks = u32_of(usize64(blocks));
        Charge { ledger: Some(Rc::clone(self)), blocks, is_kept: false }
    }

    fn settle(&self, blocks: u64, is_kept: bool) {
        let (charged, in_flight) = (self.charged.get(), self.in_flight.get());
        assert!(blocks <= in_flight && in_flight <= charged, "what is settled was charged");
        self.in_flight.set(in_flight - blocks);
        if self.is_closed.get() && in_flight == blocks {
            self.base.events.raise(Event::Counted);
        }
        if !is_kept {
            self.charged.set(charged - blocks);
            self.tell();
        }
    }

    /// Lets nobody in for as long as it is counted, once those that were are done; those that take long are not waited
    /// for, and may count twice.
    pub async fn close(self: &Rc<Self>) -> Closed {
        self.is_closed.set(true);
        let closed = Closed(Rc::clone(self));
        let done = || self.in_flight.get() == 0 || self.base.is_over();
        let settled = self.base.events.until(Event::Counted, done);
        let _ = reactor::timeout(QUOTA_SETTLES, settled).await;
        closed
    }

    /// Waits until it is not being counted.
    pub async fn opened(&self) {
        let is_open = || !self.is_closed.get() || self.base.is_over();
        self.base.events.until(Event::Counted, is_open).await;
    }

    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// What a count that begins now knows of.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.charged.get() - self.in_flight.get()
    }

    /// A count that began at that mark found so many.
    pub fn note_counted(&self, blocks: u64, mark: u64) {
        self.counted.set(Some(blocks));
        self.counted_at.set(mark);
        self.quota.share(self.shard).set_counted(blocks);
        self.tell();
    }

    /// Something of it was written, or given back.
    pub fn note_change(&self) {
        self.quota.share(self.shard).note_change();
    }

    fn tell(&self) {
        let Some(counted) = self.counted.get() else { return };
        let since = self.charged.get().saturating_sub(self.counted_at.get());
        self.quota.share(self.shard).set_held(counted + since);
    }
}

impl Ledgers {
    #[must_use]
    pub fn new(base: Rc<Base>) -> Self {
        Self { base, known: Cell::new(0), all: RefCell::default() }
    }

    /// That of a volume, if it has a quota.
    #[inline]
    pub fn of(&self, view: View) -> Option<Rc<Ledger>> {
        self.look();
        self.all.borrow().get(&view).cloned()
    }

    #[inline]
    fn look(&self) {
        let quotas = &self.base.common.quotas;
        let now = quotas.changes();
        if self.known.get() != now {
            let mut all = self.all.borrow_mut();
            let mut before = std::mem::take(&mut *all);
            for quota in quotas.all() {
                let view = quota.state.view;
                let known = before.remove(&view).filter(|of| Arc::ptr_eq(&of.quota, &quota));
                all.insert(
                    view,
                    known.unwrap_or_else(|| Rc::new(Ledger::new(quota, Rc::clone(&self.base)))),
                );
            }
            self.known.set(now);
        }
    }

    /// Lets so many blocks in, if there is room for them whatever is there, and then some. `None` where somebody has to
    /// look.
    #[inline]
    pub fn try_charge(&self, view: View, blocks: u64) -> Option<Charge> {
        match self.of(view) {
            None => Some(Charge::default()),
            Some(ledger) => {
                let may = blocks == 0 || !ledger.is_closed() && ledger.quota.has_ample_room(blocks);
                may.then(|| ledger.charge(blocks))
            }
        }
    }

    /// Something of a volume was given back.
    #[inline]
    pub fn note_change(&self, view: View) {
        if let Some(ledger) = self.of(view) {
            ledger.note_change();
        }
    }

    /// What a count that begins now knows of.
    #[must_use]
    pub fn marks(&self) -> Vec<(Rc<Ledger>, u64)> {
        self.look();
        self.all.borrow().values().map(|ledger| (Rc::clone(ledger), ledger.mark())).collect()
    }

    /// A count that began at these marks found this.
    pub fn note_counts(marks: &[(Rc<Ledger>, u64)], counts: &Counts) {
        for (ledger, mark) in marks {
            ledger.note_counted(counts.held_by(&ledger.quota.state), *mark);
        }
    }
}
