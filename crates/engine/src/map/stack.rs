//! Versions of the same blocks, one behind another (decision 0026).

use super::Pages;
use super::flat::{Flat, Place, unflat};
use super::limits::{STACK_BLOCKS, STACK_CONTENTS};
use crate::address::Version;
use stdx::num::{low32, usize64};

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

/// Joins holes over holes, of which nothing tells a reader which it sees: they stay one since the older version. That holds
/// only if there was nothing between them. What a memtable has of both tells that there was, and a level further down may
/// still have it, if it was learnt again. And an older one from a newer level was learnt again itself: its place is where
/// it was.
fn join_holes<P: Pages>(pages: &P, at: Flat, layers: &mut Vec<Layer>) {
    let mut n = 1;
    while n < layers.len() {
        let (newer, older) = (&layers[n - 1], &layers[n]);
        let holes = newer.place == Place::Hole && older.place == Place::Hole;
        if !holes || newer.source == older.source {
            n += 1;
        } else if newer.version == older.version {
            layers.remove(n);
        } else if older.source < newer.source {
            // With what that level has below it, it is to stay: a reader would come to that first.
            if layers[n + 1..].iter().any(|layer| layer.source == older.source) {
                n += 1;
            } else {
                layers.remove(n);
            }
        } else if is_needed(pages, at, older.version, newer.version) {
            layers.remove(n - 1);
        } else {
            n += 1;
        }
    }
}

/// Leaves those of the layers of blocks at `at` that are to be kept. They come newest first, and of the same version
/// that of the newer level first, which replaces the other. `dropped` hears of the others' contents, but for those that
/// are in the same place in what replaced them: they were inserted twice.
pub(super) fn settle<P: Pages>(
    pages: &P,
    at: Flat,
    layers: &mut Vec<Layer>,
    mut dropped: impl FnMut(Place),
) {
    join_holes(pages, at, layers);
    let mut newest = 0;
    for n in 1..layers.len() {
        let (newer, layer) = (&layers[newest], &layers[n]);
        if is_needed(pages, at, layer.version, newer.version) {
            newest += 1;
            layers.swap(newest, n);
        } else if layer.place.has_contents() && layer.place.location() != newer.place.location() {
            dropped(layer.place);
        }
    }
    layers.truncate(newest + 1);
}

/// Where nothing lies below, all holes over holes are one, and the last hides nothing.
pub(super) fn drop_last_holes(layers: &mut Vec<Layer>) {
    let mut n = 1;
    while n < layers.len() {
        if layers[n - 1].place == Place::Hole && layers[n].place == Place::Hole {
            layers.remove(n - 1);
        } else {
            n += 1;
        }
    }
    while layers.pop_if(|layer| layer.place == Place::Hole).is_some() {}
}
