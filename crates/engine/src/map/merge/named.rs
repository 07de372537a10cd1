//! Blocks that got a name while an old version of them is where they lie: from then on that version is a reference, too.

use super::{Dropped, Step};
use crate::address::{Encoding, Location, SharedBlockId};
use crate::map::Pages;
use crate::map::flat::{Flat, Place};
use crate::map::stack::Layer;

/// Names of shared blocks, by which some places are to be called from now on.
#[derive(Default)]
pub(in crate::map) struct Named(Vec<SharedBlockId>);

impl Named {
    /// Of names in order.
    pub fn new(names: Vec<SharedBlockId>) -> Self {
        debug_assert!(names.is_sorted(), "names are looked for by halves");
        Self(names)
    }

    fn has(&self, place: Location) -> bool {
        self.0.binary_search(&SharedBlockId::of(place)).is_ok()
    }

    /// Whether the block at a place that is no reference has a name, and how many of those behind it are alike.
    fn run(&self, place: Location, blocks: u64) -> (bool, u64) {
        let has = |n: u64| self.has(place.offset(stdx::num::low32(n)));
        let is_named = has(0);
        (is_named, (1..blocks).find(|n| has(*n) != is_named).unwrap_or(blocks))
    }
}

/// Where blocks lie, if that is no reference.
pub(in crate::map) fn plain(place: Place) -> Option<Location> {
    match place {
        Place::At(at, Encoding::PLAIN) if at.name().is_none() => Some(at),
        Place::At(..) | Place::Hole | Place::Lost => None,
    }
}

impl<P: Pages> Step<'_, P> {
    /// Has the layers of so many blocks from `start` on refer to what has a name, as far as all of them are alike: gives how
    /// many blocks that is. The name counts what lies there.
    pub(super) fn refer_by_name(&mut self, start: Flat, blocks: u64, layers: &mut [Layer]) -> u64 {
        if self.named.0.is_empty() {
            return blocks;
        }
        // The newest is its key's own: what is shared of it is known as such (`MapKeeper::learn_shared`).
        let old = layers.get_mut(1..).unwrap_or_default();
        let places = || old.iter().filter_map(|layer| plain(layer.place));
        let blocks = places().map(|at| self.named.run(at, blocks).1).min().unwrap_or(blocks);
        for layer in old {
            if let Some(at) = plain(layer.place)
                && self.named.has(at)
            {
                self.dropped.push(Dropped { start, blocks, place: layer.place });
                layer.place = Place::At(SharedBlockId::of(at).reference(), Encoding::PLAIN);
            }
        }
        blocks
    }
}
