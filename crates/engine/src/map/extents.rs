//! What a lookup found.

use crate::address::{Encoding, Location};
use std::ops::Range;
use stdx::num::usize32;

/// One piece of what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent<'a> {
    /// Its first block, within the view.
    pub first: u64,
    pub count: u32,
    pub contents: Contents<'a>,
}

/// What the map says of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents<'a> {
    /// They lie one behind another, all encoded in the same way, with the checksum of each block.
    Stored { location: Location, encoding: Encoding, crcs: &'a [u32] },
    /// Deallocated: zeroes.
    Hole,
    /// They were damaged beyond what redundancy gives back: reads fail until the block is written again.
    Lost,
    /// Never written in this view: what its parent has, or zeroes where it has none. A hole that was merged into the
    /// last level is absent, too, in a view that has no parent.
    Absent,
}

impl Contents<'_> {
    /// Whether the map points to nothing, and nothing is amiss.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::Hole | Self::Absent)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stored(Location, Encoding),
    Hole,
    Lost,
    Absent,
}

#[derive(Clone, Debug)]
struct Piece {
    first: u64,
    count: u32,
    kind: Kind,
    crcs: Range<usize>,
}

/// The pieces of a looked-up range: in order, without gaps. Kept and used again, it allocates
/// nothing in steady state.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    pieces: Vec<Piece>,
    crcs: Vec<u32>,
}

impl Extents {
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.crcs.clear();
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Extent<'_>> {
        self.pieces.iter().map(|p| Extent {
            first: p.first,
            count: p.count,
            contents: match p.kind {
                Kind::Stored(location, encoding) => {
                    Contents::Stored { location, encoding, crcs: &self.crcs[p.crcs.clone()] }
                }
                Kind::Hole => Contents::Hole,
                Kind::Lost => Contents::Lost,
                Kind::Absent => Contents::Absent,
            },
        })
    }

    /// Whether the last piece is of blocks that there is nothing of.
    pub(super) fn ends_absent(&self) -> bool {
        self.pieces.last().is_some_and(|last| last.kind == Kind::Absent)
    }

    pub(super) fn push_hole(&mut self, first: u64, count: u32) {
        self.push(first, count, Kind::Hole);
    }

    pub(super) fn push_lost(&mut self, first: u64, count: u32) {
        self.push(first, count, Kind::Lost);
    }

    pub(super) fn push_absent(&mut self, first: u64, count: u32) {
        self.push(first, count, Kind::Absent);
    }

    /// Adds blocks without contents; those that follow others of their kind are part of them.
    fn push(&mut self, first: u64, count: u32, kind: Kind) {
        match self.pieces.last_mut() {
            Some(last) if last.kind == kind => last.count += count,
            _ => self.pieces.push(Piece { first, count, kind, crcs: 0..0 }),
        }
    }

    /// Adds contents; what continues the last piece where that lies is part of it.
    pub(super) fn push_stored(
        &mut self,
        first: u64,
        location: Location,
        encoding: Encoding,
        crcs: impl ExactSizeIterator<Item = u32>,
    ) {
        let before = self.crcs.len();
        let count = stdx::num::u32_of(crcs.len());
        self.crcs.extend(crcs);
        if let Some(last) = self.pieces.last_mut()
            && let Kind::Stored(first, same) = last.kind
            && same == encoding
            && first.is_followed(u64::from(last.count) * u64::from(encoding.grains()), location)
        {
            last.count += count;
            last.crcs.end += usize32(count);
            return;
        }
        let crcs = before..self.crcs.len();
        self.pieces.push(Piece { first, count, kind: Kind::Stored(location, encoding), crcs });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::SegmentId;

    #[test]
    fn neighbours_become_one_piece() {
        let mut extents = Extents::default();
        let at = |slot| Location::new(SegmentId::new(1), slot);
        extents.push_hole(10, 2);
        extents.push_hole(12, 1);
        let encoding = Encoding::PLAIN;
        extents.push_stored(13, at(100), encoding, [1, 2].into_iter());
        extents.push_stored(15, at(102), encoding, [3].into_iter());
        extents.push_stored(16, at(200), encoding, [4].into_iter());
        extents.push_lost(17, 1);
        extents.push_lost(18, 2);
        extents.push_absent(20, 5);
        extents.push_hole(25, 1);
        let seen: Vec<_> = extents.iter().map(|e| (e.first, e.count, e.contents)).collect();
        assert_eq!(
            seen,
            [
                (10, 3, Contents::Hole),
                (13, 3, Contents::Stored { location: at(100), encoding, crcs: &[1, 2, 3] }),
                (16, 1, Contents::Stored { location: at(200), encoding, crcs: &[4] }),
                (17, 3, Contents::Lost),
                (20, 5, Contents::Absent),
                (25, 1, Contents::Hole),
            ]
        );
    }
}
