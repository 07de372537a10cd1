//! What a shard holds of the volumes that are bounded by a quota, their own or their group's, or have space kept, and whom
//! it lets in for more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use stdx::num::{u32_of, usize64};

use super::base::Base;
use super::events::Event;
use crate::address::View;
use crate::canary::{self, Canary};
use crate::limits::QUOTA_SETTLES;
use crate::quotas::{Counted, Holding, Quota, Reserve, ReserveMark};
use crate::used::Counts;

/// What the shard holds of each volume under a quota.
pub struct BoundedVolumes {
    base: Rc<Base>,
    /// The quotas that there were when it last looked.
    known: Cell<u64>,
    all: RefCell<BTreeMap<View, Rc<BoundedVolume>>>,
}

/// What the shard holds of a volume under a quota. In blocks.
pub struct BoundedVolume {
    pub holding: Arc<Holding>,
    under: RefCell<Under>,
    /// What is kept for the volume.
    reserve: RefCell<Option<Arc<Reserve>>>,
    shard: u16,
    /// What the group knows of.
    told: Cell<Option<u64>>,
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

/// What a count knows of a volume.
pub struct Mark {
    charged: u64,
    reserve: Option<(Arc<Reserve>, ReserveMark)>,
}

/// The quotas that a volume is under.
#[derive(Default)]
struct Under {
    own: Option<Arc<Quota>>,
    group: Option<Rc<Sum>>,
}

/// What the shard holds of the volumes of a group with a quota, together.
struct Sum {
    quota: Arc<Quota>,
    shard: u16,
    /// Of those that were counted.
    held: Cell<u64>,
    /// Volumes that were not.
    unknown: Cell<u64>,
}

/// A volume that lets nobody in.
pub struct Closed(Rc<BoundedVolume>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.is_closed.set(false);
        self.0.base.events.raise(Event::Counted);
    }
}

/// So many blocks were let in. Dropped before they were [kept](Self::keep), they were not written.
#[derive(Default)]
pub struct Charge {
    bounded: Option<Rc<BoundedVolume>>,
    blocks: u32,
    is_kept: bool,
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl Charge {
    /// Whether no quota was charged.
    #[must_use]
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.bounded.is_none()
    }

    /// Some of them were written, perhaps all.
    #[inline]
    pub const fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let is_settled = self.is_kept || !canary::has(Canary::QuotaKeepsCharge);
        if let Some(bounded) = self.bounded.as_ref().filter(|_| is_settled) {
            bounded.settle(self.blocks.into(), self.is_kept);
        }
    }
}

impl Sum {
    fn new(quota: Arc<Quota>, shard: u16) -> Self {
        Self { quota, shard, held: Cell::new(0), unknown: Cell::new(0) }
    }

    fn add(&self, of: Option<u64>) {
        match of {
            Some(held) => self.held.set(self.held.get() + held),
            None => self.unknown.set(self.unknown.get() + 1),
        }
    }

    /// One of them holds something else.
    fn change(&self, before: Option<u64>, now: Option<u64>) {
        match before {
            Some(held) => {
                assert!(held <= self.held.get(), "what a volume held is part of the sum");
                self.held.set(self.held.get() - held);
            }
            None => {
                assert!(self.unknown.get() > 0, "a volume that is not known was counted as such");
                self.unknown.set(self.unknown.get() - 1);
            }
        }
        self.add(now);
        self.tell();
    }

    fn tell(&self) {
        let held = (self.unknown.get() == 0).then(|| self.held.get());
        self.quota.set_held(self.shard, held);
    }
}

impl Under {
    fn all(&self) -> impl Iterator<Item = &Arc<Quota>> {
        let group = self.group.iter().filter(|_| !canary::has(Canary::QuotaForgetsGroup));
        self.own.iter().chain(group.map(|group| &group.quota))
    }
}

impl BoundedVolume {
    fn new(holding: Arc<Holding>, base: Rc<Base>) -> Self {
        let zero = || Cell::new(0);
        Self {
            holding,
            under: RefCell::default(),
            reserve: RefCell::default(),
            shard: base.writer.shard(),
            told: Cell::new(None),
            counted: Cell::new(None),
            charged: zero(),
            counted_at: zero(),
            in_flight: zero(),
            is_closed: Cell::new(false),
            base,
        }
    }

    /// It is under these quotas from now on. The group's knows nothing of it yet.
    fn come_under(&self, under: Under) {
        if self.counted.get().is_none() {
            // Of a volume that is new that is known without a count.
            self.counted.set(self.holding.counted_by(self.shard));
        }
        drop(self.under.replace(Under::default()));
        self.tell();
        if let Some(group) = &under.group {
            group.add(self.told.get());
        }
        self.under.replace(under);
    }

    /// Whether all quotas have room for so many blocks, whatever they replace, and more than that.
    #[inline]
    fn has_ample_room(&self, blocks: u64) -> bool {
        self.under.borrow().all().all(|quota| quota.has_ample_room(blocks))
    }

    /// The quota that has no room for so many blocks.
    #[must_use]
    pub fn lacks_room(&self, blocks: u64) -> Option<Arc<Quota>> {
        self.under.borrow().all().find(|quota| !quota.has_room(blocks)).cloned()
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
        Charge { bounded: Some(Rc::clone(self)), blocks, is_kept: false }
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
    /// for, and may count twice. What is kept for a volume needs none of that: where there is no quota, all go on.
    pub async fn close(self: &Rc<Self>) -> Option<Closed> {
        if self.reserve.borrow().is_some() && self.under.borrow().all().next().is_none() {
            return None;
        }
        self.is_closed.set(true);
        let closed = Closed(Rc::clone(self));
        let done = || self.in_flight.get() == 0 || self.base.is_over();
        let settled = self.base.events.until(Event::Counted, done);
        let _ = reactor::timeout(QUOTA_SETTLES, settled).await;
        Some(closed)
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

    /// What is kept for the volume.
    #[must_use]
    pub fn reserve(&self) -> Option<Arc<Reserve>> {
        self.reserve.borrow().clone()
    }

    /// What a count that begins now knows of.
    #[must_use]
    pub fn mark(&self) -> Mark {
        let charged = self.charged.get() - self.in_flight.get();
        let reserve = self.reserve().map(|reserve| {
            let mark = reserve.mark(self.shard);
            (reserve, mark)
        });
        Mark { charged, reserve }
    }

    /// A count that began at that mark found this.
    pub fn note_counted(&self, counts: &Counts, mark: &Mark) {
        assert!(mark.charged <= self.charged.get(), "a count knows of what was let in before it");
        let blocks = counts.held_by(&self.holding.state);
        self.counted.set(Some(blocks));
        self.counted_at.set(mark.charged);
        if let (Some((reserve, mark)), Some(alone)) =
            (&mark.reserve, counts.alone(self.holding.state.view))
        {
            reserve.note_counted(self.shard, *mark, alone, &self.base.common.space);
        }
        self.holding.set_counted(self.shard, blocks);
        self.tell();
        if self.in_flight.get() > 0 {
            // What was not waited for may have counted twice: the next count finds something else.
            self.note_change();
        }
    }

    /// Something of it was written, or given back.
    pub fn note_change(&self) {
        self.holding.note_change(self.shard);
    }

    fn tell(&self) {
        let Some(counted) = self.counted.get() else { return };
        let since = self.charged.get().saturating_sub(self.counted_at.get());
        let held = counted + since;
        self.holding.set_held(self.shard, held);
        let before = self.told.replace(Some(held));
        if let Some(group) = &self.under.borrow().group {
            group.change(before, Some(held));
        }
    }
}

impl BoundedVolumes {
    #[must_use]
    pub fn new(base: Rc<Base>) -> Self {
        Self { base, known: Cell::new(0), all: RefCell::default() }
    }

    /// That of a volume, if it is under a quota.
    #[inline]
    pub fn of(&self, view: View) -> Option<Rc<BoundedVolume>> {
        self.look();
        self.all.borrow().get(&view).cloned()
    }

    /// Knows the quotas there are by now.
    #[inline]
    pub fn look(&self) {
        let quotas = &self.base.common.quotas;
        let now = quotas.changes();
        if self.known.get() != now {
            self.know(quotas.all());
            self.known.set(now);
        }
    }

    fn know(&self, volumes: Vec<Counted>) {
        let shard = self.base.writer.shard();
        let mut all = self.all.borrow_mut();
        let mut before = std::mem::take(&mut *all);
        let mut sums: BTreeMap<*const Quota, Rc<Sum>> = BTreeMap::new();
        for Counted { holding, own, group, reserve } in volumes {
            let view = holding.state.view;
            let is_it = before.get(&view).is_some_and(|of| Arc::ptr_eq(&of.holding, &holding));
            let known = if is_it { before.remove(&view) } else { None };
            let bounded = known
                .unwrap_or_else(|| Rc::new(BoundedVolume::new(holding, Rc::clone(&self.base))));
            let sum = |quota: Arc<Quota>| {
                let new = || Rc::new(Sum::new(Arc::clone(&quota), shard));
                Rc::clone(sums.entry(Arc::as_ptr(&quota)).or_insert_with(new))
            };
            bounded.come_under(Under { own, group: group.map(sum) });
            bounded.reserve.replace(reserve);
            all.insert(view, bounded);
        }
        // Those that are under none any more may have writers yet.
        before.values().for_each(|bounded| bounded.come_under(Under::default()));
        before.values().for_each(|bounded| drop(bounded.reserve.take()));
        // All at once: until then what was known before holds.
        sums.values().for_each(|sum| sum.tell());
    }

    /// Lets so many blocks in, if there is room for them whatever is there, and then some. `None` where somebody has to
    /// look.
    #[inline]
    pub fn try_charge(&self, view: View, blocks: u64) -> Option<Charge> {
        match self.of(view) {
            None => Some(Charge::default()),
            Some(bounded) => {
                let may = blocks == 0 || !bounded.is_closed() && bounded.has_ample_room(blocks);
                may.then(|| bounded.charge(blocks))
            }
        }
    }

    /// Something of a volume was given back.
    #[inline]
    pub fn note_change(&self, view: View) {
        if let Some(bounded) = self.of(view) {
            bounded.note_change();
        }
    }

    /// What a count that begins now knows of.
    #[must_use]
    pub fn marks(&self) -> Vec<(Rc<BoundedVolume>, Mark)> {
        self.look();
        self.all.borrow().values().map(|bounded| (Rc::clone(bounded), bounded.mark())).collect()
    }

    /// A count that began at these marks found this.
    pub fn note_counts(marks: &[(Rc<BoundedVolume>, Mark)], counts: &Counts) {
        marks.iter().for_each(|(bounded, mark)| bounded.note_counted(counts, mark));
    }

    /// What is kept for a volume.
    #[must_use]
    pub fn reserve(&self, view: View) -> Option<Arc<Reserve>> {
        self.of(view)?.reserve()
    }

    /// The volumes for which something is kept.
    #[must_use]
    pub fn reserved(&self) -> Vec<View> {
        self.look();
        let all = self.all.borrow();
        let reserved = all.iter().filter(|(_, bounded)| bounded.reserve.borrow().is_some());
        reserved.map(|(view, _)| *view).collect()
    }
}
