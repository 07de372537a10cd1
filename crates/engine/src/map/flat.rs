//! Keys as one number, so that ranges are plain arithmetic.

use crate::address::{BLOCK_BITS, Encoding, Key, Location, View};
use stdx::num::{low32, usize64};

/// `view << 40 | block`: ordered as keys are. The end of a range may be the next view's beginning.
pub(super) type Flat = u128;

/// Past every key.
pub(super) const END: Flat = 1 << (32 + BLOCK_BITS);

pub(super) const fn flat(view: View, block: u64) -> Flat {
    (view.get() as Flat) << BLOCK_BITS | block as Flat
}

/// The key at a position below [`END`].
pub(super) fn unflat(at: Flat) -> Key {
    debug_assert!(at < END);
    let block = low64(at) & ((1 << BLOCK_BITS) - 1);
    Key { view: View::new(low32(low64(at >> BLOCK_BITS))), block }
}

/// Where the view of a position ends, and every item at the latest: pages say so of theirs.
pub(super) const fn end_of_view(at: Flat) -> Flat {
    ((at >> BLOCK_BITS) + 1) << BLOCK_BITS
}

/// The low 64 bits.
#[allow(clippy::cast_possible_truncation, reason = "truncation is what the name says")]
pub(super) const fn low64(value: u128) -> u64 {
    value as u64
}

/// The distance between two positions, at most the whole key space (72 bits), cut to 64.
pub(super) fn distance(from: Flat, to: Flat) -> u64 {
    u64::try_from(to - from).unwrap_or(u64::MAX)
}

/// What there is of the blocks of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Contents, encoded in this way: the first block's are here, the others' right behind them.
    At(Location, Encoding),
    /// None any more.
    Hole,
    /// None any more, although there should be: they are lost.
    Lost,
}

impl Place {
    /// Where the contents of the first block are, if there are any.
    pub const fn location(self) -> Option<Location> {
        if let Self::At(location, _) = self { Some(location) } else { None }
    }

    pub const fn has_contents(self) -> bool {
        matches!(self, Self::At(..))
    }

    /// That of the block so many further on.
    pub const fn offset(self, blocks: u32) -> Self {
        match self {
            Self::At(location, encoding) => {
                // A page bounds both: no overflow.
                Self::At(location.forward(blocks * encoding.grains()), encoding)
            }
            Self::Hole | Self::Lost => self,
        }
    }
}

/// One piece of a run: blocks whose contents lie one behind another, all encoded in the same way, or a stretch of
/// blocks without any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub start: Flat,
    /// At least 1.
    pub blocks: u64,
    /// Of the first block.
    pub place: Place,
}

impl Item {
    pub const fn end(&self) -> Flat {
        self.start + self.blocks as Flat
    }

    /// The part of it from `at` on, which lies inside.
    pub fn from(&self, at: Flat) -> Self {
        debug_assert!(self.start <= at && at < self.end());
        let skip = low64(at - self.start);
        Self { start: at, blocks: self.blocks - skip, place: self.place.offset(low32(skip)) }
    }

    /// Blocks as an index: those of contents are bounded by a page.
    pub fn count(&self) -> usize {
        usize64(self.blocks)
    }

    /// Whether `next` continues this one on media as well as in the key space, and in its view.
    pub fn continued_by(&self, next: &Self) -> bool {
        if self.end() != next.start || next.start == end_of_view(self.start) {
            return false;
        }
        match (self.place, next.place) {
            (Place::Hole, Place::Hole) | (Place::Lost, Place::Lost) => true,
            (Place::At(a, encoding), Place::At(b, other)) => {
                encoding == other && a.is_followed(self.blocks * u64::from(encoding.grains()), b)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::SegmentId;

    #[test]
    fn keys_and_numbers_are_the_same_order() {
        let (a, b) = (flat(View::new(1), (1 << 40) - 1), flat(View::new(2), 0));
        assert_eq!(a + 1, b);
        assert_eq!(unflat(a), Key::new(View::new(1), (1 << 40) - 1));
        assert_eq!(flat(View::new(u32::MAX), (1 << 40) - 1) + 1, END);
    }

    #[test]
    fn pieces_continue_each_other_only_in_place() {
        let at = |start, slot| Item {
            start,
            blocks: 4,
            place: Place::At(Location::new(SegmentId::new(7), slot), Encoding::PLAIN),
        };
        assert!(at(10, 100).continued_by(&at(14, 104)));
        assert!(!at(10, 100).continued_by(&at(14, 105)));
        assert!(!at(10, 100).continued_by(&at(15, 104)));
        assert_eq!(at(10, 100).from(12).place, at(0, 102).place);
        let stretch = |start, place| Item { start, blocks: 4, place };
        assert!(stretch(10, Place::Lost).continued_by(&stretch(14, Place::Lost)));
        assert!(!stretch(10, Place::Lost).continued_by(&stretch(14, Place::Hole)));
    }
}
