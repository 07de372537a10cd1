//! Versions of the same blocks, one behind another (decision 0026).

use super::Pages;
use super::flat::{Flat, Place, unflat};
use crate::address::{Version, View};
use stdx::num::{low32, usize64};

/// Most blocks of a stack: of each, a lookup may have to find its place in another layer.
pub(super) const STACK_BLOCKS: u64 = 32;

/// Blocks of all layers of a stack, if it has more than one block: bounds what a merge has of it in memory, and the
/// leaves it takes.
pub(super) const STACK_CONTENTS: u64 = 2048;

/// Buffers kept for use again.
const SPARES: usize = 64;

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

    /// Takes what the blocks from `start` on have into this one, if it is the same of the blocks behind; tells whether it is.
    pub fn join(&mut self, start: Flat, blocks: u64, layers: &[Layer]) -> bool {
        let blocks = self.blocks + blocks;
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
        let same = self.end() == start
            && start != super::flat::end_of_view(self.start)
            && self.layers.len() == layers.len()
            && blocks <= width(self.layers.len())
            && self.layers.iter().zip(layers).all(goes_on);
        if same {
            for (layer, more) in self.layers.iter_mut().zip(layers) {
                layer.crcs.extend_from_slice(&more.crcs);
            }
            self.blocks = blocks;
        }
        same
    }
}

/// Buffers of layers' checksums, for the next ones.
#[derive(Default)]
pub(super) struct Spare(Vec<Vec<u32>>);

impl Spare {
    pub fn take(&mut self) -> Vec<u32> {
        self.0.pop().unwrap_or_default()
    }

    /// Empties some layers.
    pub fn empty(&mut self, layers: &mut Vec<Layer>) {
        for Layer { mut crcs, .. } in layers.drain(..) {
            if crcs.capacity() > 0 && self.0.len() < SPARES {
                crcs.clear();
                self.0.push(crcs);
            }
        }
    }
}

/// What snapshots see of the view that was asked for last, so that not each block asks what all cores share.
///
/// Nothing that is needed is taken for needless because of it. What is seen is asked for again once it changed: who adds a
/// snapshot counts up before anything is written in a later version, and what was written has come here after that, so that
/// whoever meets such a version finds the higher count. (And a flush or merge has what was written before it began, of
/// which a later snapshot sees the newest, and nothing that this replaced.) Who asks reads the count first: a list that
/// changes meanwhile is newer than its count, and is asked for once more.
#[derive(Default)]
pub(super) struct Seen {
    /// The count of changes, and the view.
    of: Option<(u64, View)>,
    /// In ascending order.
    versions: Vec<Version>,
}

impl Seen {
    fn of<P: Pages>(&mut self, pages: &P, view: View) -> &[Version] {
        let now = (pages.seen_changes(), view);
        if self.of != Some(now) {
            self.versions.clear();
            pages.seen(view, &mut self.versions);
            debug_assert!(self.versions.is_sorted(), "versions ascend");
            self.of = Some(now);
        }
        &self.versions
    }

    /// Whether a snapshot sees any version of a view that is older than this one. If none does, nothing is needed of what
    /// was replaced by then.
    pub fn sees_before<P: Pages>(&mut self, pages: &P, view: View, replaced: Version) -> bool {
        self.of(pages, view).first().is_some_and(|seen| *seen < replaced)
    }

    /// Whether what was written in one version and replaced in the other, a newer one, is to be kept.
    fn needs<P: Pages>(
        &mut self,
        pages: &P,
        view: View,
        written: Version,
        replaced: Version,
    ) -> bool {
        let seen = self.of(pages, view);
        let from = seen.partition_point(|seen| *seen < written);
        seen.get(from).is_some_and(|seen| *seen < replaced)
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
    written < replaced && pages.is_needed(unflat(at).view, written, replaced)
}

/// Leaves those of the layers of blocks at `at` that are to be kept. They come level by level, the newest first, and of
/// each its newest first: as a reader does, none is looked at that is not older than all before it. After a crash an
/// older level may have such layers, which newer ones were learnt into again.
///
/// `dropped` hears of the others' contents, but for those that are in the same place in what is kept: they were inserted
/// twice.
pub(super) fn settle<P: Pages>(
    pages: &P,
    seen: &mut Seen,
    at: Flat,
    layers: &mut Vec<Layer>,
    mut dropped: impl FnMut(Place),
) {
    let (mut last, view) = (0, unflat(at).view);
    for n in 1..layers.len() {
        let (newer, layer) = (&layers[last], &layers[n]);
        let is_kept =
            layer.version < newer.version && seen.needs(pages, view, layer.version, newer.version);
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
