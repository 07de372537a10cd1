//! What a lookup found.

use crate::address::Location;
use std::ops::Range;
use stdx::num::usize32;

/// One piece of what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent<'a> {
    /// Its first block, within the view.
    pub first: u64,
    pub count: u32,
    pub state: State<'a>,
}

/// What lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// Contents in adjacent slots, with the checksum of each block.
    Data { location: Location, crcs: &'a [u32] },
    /// Never written or deallocated: zeroes.
    Hole,
}

#[derive(Clone, Debug)]
struct Piece {
    first: u64,
    count: u32,
    location: Option<Location>,
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
            state: match p.location {
                Some(location) => State::Data { location, crcs: &self.crcs[p.crcs.clone()] },
                None => State::Hole,
            },
        })
    }

    /// Adds a hole; one that follows another is part of it.
    pub(super) fn push_hole(&mut self, first: u64, count: u32) {
        match self.pieces.last_mut() {
            Some(last) if last.location.is_none() => last.count += count,
            _ => self.pieces.push(Piece { first, count, location: None, crcs: 0..0 }),
        }
    }

    /// Adds contents; what continues the last piece in its slots is part of it.
    pub(super) fn push_data(
        &mut self,
        first: u64,
        location: Location,
        crcs: impl ExactSizeIterator<Item = u32>,
    ) {
        let before = self.crcs.len();
        let count = stdx::num::u32_of(crcs.len());
        self.crcs.extend(crcs);
        if let Some(last) = self.pieces.last_mut()
            && let Some(place) = last.location
            && place.segment() == location.segment()
            && place.slot() + last.count == location.slot()
        {
            last.count += count;
            last.crcs.end += usize32(count);
            return;
        }
        let crcs = before..self.crcs.len();
        self.pieces.push(Piece { first, count, location: Some(location), crcs });
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
        extents.push_data(13, at(100), [1, 2].into_iter());
        extents.push_data(15, at(102), [3].into_iter());
        extents.push_data(16, at(200), [4].into_iter());
        let seen: Vec<_> = extents.iter().map(|e| (e.first, e.count, e.state)).collect();
        assert_eq!(
            seen,
            [
                (10, 3, State::Hole),
                (13, 3, State::Data { location: at(100), crcs: &[1, 2, 3] }),
                (16, 1, State::Data { location: at(200), crcs: &[4] }),
            ]
        );
    }
}
