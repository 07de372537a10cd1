//! Which blocks elsewhere the log refers to: they must stay for as long as its records do.

use std::collections::BTreeMap;

use super::{Log, Shared};
use crate::address::{BLOCK_GRAINS, Location, SharedBlockId};

/// Blocks that are referred to, by name.
#[derive(Debug, Default)]
pub(super) struct Referred {
    /// How often.
    counts: BTreeMap<SharedBlockId, u32>,
    in_records: usize,
}

impl Referred {
    /// Blocks of references in records.
    pub const fn in_records(&self) -> usize {
        self.in_records
    }

    fn add(&mut self, at: Location) {
        *self.counts.entry(SharedBlockId::of(at)).or_insert(0) += 1;
    }

    fn drop(&mut self, at: Location) {
        if let Some(count) = self.counts.get_mut(&SharedBlockId::of(at)) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&SharedBlockId::of(at));
            }
        }
    }

    /// A record refers to these.
    pub fn add_record(&mut self, places: impl Iterator<Item = Location>) {
        for at in places {
            self.add(at);
            self.in_records += 1;
        }
    }

    /// One block of a record is referred to no more.
    pub fn drop_record(&mut self, at: Location) {
        self.drop(at);
        self.in_records -= 1;
    }
}

/// Blocks that a record is about to refer to, as long as this is held.
pub struct Holding<'a> {
    shared: &'a Shared,
    places: Vec<Location>,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        let mut ring = self.shared.ring.borrow_mut();
        self.places.iter().for_each(|at| ring.referred.drop(*at));
    }
}

impl Log {
    /// Has blocks count as referred to, until a record does that.
    #[must_use]
    pub fn hold(&self, places: Vec<Location>) -> Holding<'_> {
        let mut ring = self.shared.ring.borrow_mut();
        places.iter().for_each(|at| ring.referred.add(*at));
        Holding { shared: &self.shared, places }
    }

    /// The blocks of `count` from `first` on that records refer to, or are about to.
    #[must_use]
    pub fn referred(&self, first: SharedBlockId, count: u32) -> Vec<SharedBlockId> {
        let ring = self.shared.ring.borrow();
        let bits = |name: SharedBlockId| name.origin().to_bits();
        let end = bits(first) + u64::from(count) * u64::from(BLOCK_GRAINS);
        let from_first = ring.referred.counts.range(first..);
        from_first.map(|(name, _)| *name).take_while(|name| bits(*name) < end).collect()
    }

    /// All blocks that records refer to, or are about to.
    pub fn each_referred(&self, see: impl FnMut(SharedBlockId)) {
        self.shared.ring.borrow().referred.counts.keys().copied().for_each(see);
    }
}
