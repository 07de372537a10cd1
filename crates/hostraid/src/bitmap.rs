//! Which regions may differ among the members: those of a mirror that are being written, and those that a
//! missing member has not got.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use initiator::Fua;
use reactor::sync::Semaphore;
use stdx::num::{u64_of, usize32, usize64};

use crate::inner::Inner;
use crate::limits::{BITMAP_AT, BITMAP_BYTES, DIRTY_MAX, PAGE};

/// One bit a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    bytes: Vec<u8>,
    /// How many are set: each write to a mirror asks.
    count: usize,
}

fn count(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| usize32(byte.count_ones())).sum()
}

impl Bits {
    #[must_use]
    pub fn none() -> Self {
        Self { bytes: vec![0; usize32(BITMAP_BYTES)], count: 0 }
    }

    #[must_use]
    pub fn has(&self, region: u64) -> bool {
        self.bytes[usize64(region / 8)] & (1 << (region % 8)) != 0
    }

    pub fn add(&mut self, region: u64) {
        if !self.has(region) {
            self.bytes[usize64(region / 8)] |= 1 << (region % 8);
            self.count += 1;
        }
    }

    /// Adds what `page` of a stored bitmap says.
    pub fn merge(&mut self, page: usize, bytes: &[u8]) {
        let merged: Vec<u8> = self.page(page).iter().zip(bytes).map(|(a, b)| a | b).collect();
        self.set(page, &merged);
    }

    /// Has the beginning of a page be these.
    fn set(&mut self, page: usize, bytes: &[u8]) {
        let from = page * usize32(PAGE);
        let place = &mut self.bytes[from..from + bytes.len()];
        self.count = self.count + count(bytes) - count(place);
        place.copy_from_slice(bytes);
    }

    /// Forgets those that the other has not.
    fn keep(&mut self, other: &Self) {
        self.bytes.iter_mut().zip(&other.bytes).for_each(|(own, other)| *own &= other);
        self.count = count(&self.bytes);
    }

    fn page(&self, page: usize) -> &[u8] {
        &self.bytes[page * usize32(PAGE)..][..usize32(PAGE)]
    }

    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Regions whose bits are set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let bytes = (0..).zip(&self.bytes).filter(|(_, byte)| **byte != 0);
        bytes.flat_map(|(at, byte): (u64, &u8)| {
            (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| at * 8 + bit)
        })
    }
}

/// Pages of a stored bitmap.
pub const PAGES: usize = (BITMAP_BYTES / PAGE) as usize;

/// The bitmap of a set in use.
pub struct Bitmap {
    /// As it should be.
    bits: RefCell<Bits>,
    /// Bits that are sure to be on the members.
    stored: RefCell<Bits>,
    /// One store at a time.
    turn: Semaphore,
    /// Writes under way, by region.
    active: RefCell<BTreeMap<u64, usize>>,
}

/// A write under way: its regions are not cleared.
pub struct Active<'a> {
    bitmap: &'a Bitmap,
    regions: Range<u64>,
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        let mut active = self.bitmap.active.borrow_mut();
        for region in self.regions.clone() {
            let count = active.remove(&region).unwrap_or(1);
            if count > 1 {
                active.insert(region, count - 1);
            }
        }
    }
}

impl Bitmap {
    #[must_use]
    pub fn new(stored: Bits) -> Self {
        Self {
            bits: RefCell::new(stored.clone()),
            stored: RefCell::new(stored),
            turn: Semaphore::new(1),
            active: RefCell::default(),
        }
    }

    /// Takes over what any member says, and what all of them do.
    pub fn learn(&self, bits: &Bits, stored: &Bits) {
        *self.bits.borrow_mut() = bits.clone();
        *self.stored.borrow_mut() = stored.clone();
    }

    /// The bits as they are meant to be.
    #[must_use]
    pub fn bits(&self) -> Bits {
        self.bits.borrow().clone()
    }

    /// Begins a write of `regions`.
    pub fn enter(&self, regions: Range<u64>) -> Active<'_> {
        let mut active = self.active.borrow_mut();
        for region in regions.clone() {
            *active.entry(region).or_default() += 1;
        }
        Active { bitmap: self, regions }
    }

    /// Adds regions that are to be stored.
    pub fn add(&self, regions: Range<u64>) {
        let mut bits = self.bits.borrow_mut();
        regions.for_each(|region| bits.add(region));
    }

    /// Returns when the bits of `regions` are on every member that is there. Those that fail are lost to the
    /// set; [`Inner::settle`] is the caller's.
    pub async fn mark(&self, inner: &Inner, regions: Range<u64>) {
        if regions.clone().all(|region| self.stored.borrow().has(region)) {
            return;
        }
        self.add(regions);
        #[cfg(test)]
        if inner.has_canary(crate::canary::Canary::EarlyChange) {
            return;
        }
        self.store(inner).await;
    }

    /// Stores what is not.
    pub async fn store(&self, inner: &Inner) {
        let _turn = self.turn.hold(1).await;
        for page in 0..PAGES {
            if self.stored.borrow().page(page) != self.bits.borrow().page(page) {
                self.put(inner, page).await;
            }
        }
    }

    /// Forgets all regions but those being written, if every member is in sync.
    pub async fn clear(&self, inner: &Inner) {
        // Not while others store: they would take for stored what is forgotten here.
        let _turn = self.turn.hold(1).await;
        if inner.has_stopped() || !inner.all_in_sync() {
            return;
        }
        let changed: Vec<usize> = {
            let mut left = Bits::none();
            self.active.borrow().keys().for_each(|&region| left.add(region));
            #[cfg(test)]
            if inner.has_canary(crate::canary::Canary::EarlyClear) {
                left = Bits::none();
            }
            let mut stored = self.stored.borrow_mut();
            let changed = (0..PAGES).filter(|&page| stored.page(page) != left.page(page));
            let changed = changed.collect();
            // From here on a write that comes to a forgotten region stores its bit again, after this.
            stored.keep(&left);
            *self.bits.borrow_mut() = left;
            changed
        };
        for page in changed {
            self.put(inner, page).await;
        }
    }

    /// Writes all of it on one member, which joins.
    pub async fn put_on(&self, inner: &Inner, slot: usize) {
        let _turn = self.turn.hold(1).await;
        for page in 0..PAGES {
            let bytes = self.bits.borrow().page(page).to_vec();
            let at = BITMAP_AT + u64_of(page * usize32(PAGE));
            inner.put(slot, at, &bytes, Fua::Yes).await;
        }
    }

    async fn put(&self, inner: &Inner, page: usize) {
        let wanted = self.bits.borrow().page(page).to_vec();
        let from = page * usize32(PAGE);
        inner.put_everywhere(BITMAP_AT + u64_of(from), &wanted, Fua::Yes).await;
        self.stored.borrow_mut().set(page, &wanted);
    }

    /// Whether there is much to forget.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bits.borrow().count() > DIRTY_MAX + self.active.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_counted_whatever_is_done() {
        let (mut bits, mut other) = (Bits::none(), Bits::none());
        for region in [0, 7, 8, 9, 40_000, 9] {
            bits.add(region);
        }
        other.add(9);
        other.add(33);
        bits.merge(0, other.page(0));
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 7, 8, 9, 33, 40_000]);
        assert_eq!((bits.count(), count(&bits.bytes)), (6, 6));
        bits.keep(&other);
        assert_eq!((bits.count(), bits == other), (2, true));
        bits.set(0, &[0, 0xff]);
        assert_eq!((bits.count(), count(&bits.bytes)), (9, 9));
    }
}
