//! Versions of the same blocks, one behind another (decision 0026).

use super::Pages;
use super::flat::{Flat, Place, unflat};
use crate::address::Version;
use stdx::num::{low32, usize64};

/// Most blocks of a stack: of each, a lookup may have to find its place in another layer.
pub(super) const STACK_BLOCKS: u64 = 32;

/// Blocks of all layers of a stack, if it has more than one block: bounds what a merge has of it in memory, and the
/// leaves it takes.
pub(super) const STACK_CONTENTS: u64 = 2048;

/// What some blocks have since a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    /// Where it comes from: of several, the newest is 0.
    pub source: usize,
    pub version: Version,
    /// Of the first block.
    pub place: Place,
    /// Of each block, if they have contents.
    pub crcs: Vec<u32>,
}

impl Layer {
    /// Gives up the first so many blocks.
    pub fn skip(&mut self, blocks: u64) {
        self.place = self.place.offset(low32(blocks));
        self.crcs.drain(..usize64(blocks).min(self.crcs.len()));
    }
}

/// Layers over exactly the same blocks, the newest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack {
    pub start: Flat,
    pub blocks: u64,
    pub layers: Vec<Layer>,
}

impl Stack {
    pub const fn end(&self) -> Flat {
        self.start + self.blocks as Flat
    }

    /// Takes the next one into this one, if it is the same of the blocks behind; gives it back if not.
    pub fn join(&mut self, next: Self) -> Option<Self> {
        let blocks = self.blocks + next.blocks;
        let goes_on = |(a, b): (&Layer, &Layer)| {
            let place = match a.place {
                Place::At(at, encoding) => {
                    let Place::At(next, other) = b.place else { return false };
                    encoding == other
                        && at.is_followed(self.blocks * u64::from(encoding.grains()), next)
                }
                place => place == b.place,
            };
            place && a.version == b.version
        };
        let same = self.end() == next.start
            && next.start != super::flat::end_of_view(self.start)
            && self.layers.len() == next.layers.len()
            && blocks <= width(self.layers.len())
            && self.layers.iter().zip(&next.layers).all(goes_on);
        if !same {
            return Some(next);
        }
        for (layer, more) in self.layers.iter_mut().zip(next.layers) {
            layer.crcs.extend(more.crcs);
        }
        self.blocks = blocks;
        None
    }
}

/// Most blocks of a stack of so many layers.
pub(super) fn width(layers: usize) -> u64 {
    (STACK_CONTENTS / stdx::num::u64_of(layers.max(1))).clamp(1, STACK_BLOCKS)
}

/// Whether what was written in one version and replaced in the other, a newer one, is to be kept.
pub(super) fn is_needed<P: Pages>(
    pages: &P,
    at: Flat,
    written: Version,
    replaced: Version,
) -> bool {
    let view = unflat(at).view;
    written < replaced && pages.has_versions(view) && pages.is_needed(view, written, replaced)
}

/// Leaves those of the layers of blocks at `at` that are to be kept. They come level by level, the newest first, and of
/// each its newest first: as a reader does, none is looked at that is not older than all before it. After a crash an
/// older level may have such layers, which newer ones were learnt into again.
///
/// `dropped` hears of the others' contents, but for those that are in the same place in what is kept: they were inserted
/// twice.
pub(super) fn settle<P: Pages>(
    pages: &P,
    at: Flat,
    layers: &mut Vec<Layer>,
    mut dropped: impl FnMut(Place),
) {
    let mut last = 0;
    for n in 1..layers.len() {
        let (newer, layer) = (&layers[last], &layers[n]);
        let is_kept = is_needed(pages, at, layer.version, newer.version);
        if is_kept && newer.place == Place::Hole && layer.place == Place::Hole {
            // It is one since the older.
            layers.swap(last, n);
        } else if is_kept {
            last += 1;
            layers.swap(last, n);
        } else if layer.place.has_contents()
            && layers[..=last].iter().all(|kept| kept.place.location() != layer.place.location())
        {
            dropped(layer.place);
        }
    }
    layers.truncate(last + 1);
}

/// Where nothing lies below, nor a parent is asked, a hole below all else hides nothing.
pub(super) fn drop_last_hole(layers: &mut Vec<Layer>) {
    layers.pop_if(|layer| layer.place == Place::Hole);
}
