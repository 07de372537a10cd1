//! Which ancestor of a clone has a block: kept for what was read last, 4 GiB of it at most, so that reads do not pass by all
//! that have nothing of it.
//!
//! What an ancestor has as of a version never changes, wherever it is moved: what was found once stays true. Clones of one
//! snapshot have the same ancestors, and share what was found.

use std::cell::RefCell;
use std::ops::Range;

use stdx::num::{low32, u64_of, usize64};

use crate::limits::{CLONES_DEEP_MAX, OWNERS_BLOCKS, OWNERS_KEPT};
use crate::parts::{Part, Parts};
use crate::volume::state::Ancestor;

/// Nobody looked yet.
const UNKNOWN: u8 = 0;
const _: () = assert!(CLONES_DEEP_MAX < u8::MAX as usize);

/// Of each block of a part its owner's number among the ancestors, or as many as there are of them where none has the
/// block; and one more.
type Found = [u8; usize64(OWNERS_BLOCKS)];

/// What was found so far.
#[derive(Debug)]
pub struct Owners(RefCell<Parts<Found, OWNERS_KEPT>>);

impl Default for Owners {
    fn default() -> Self {
        Self(RefCell::new(Parts::new([UNKNOWN; _])))
    }
}

/// The part of a clone with a block, whose first ancestor this is: the others follow from it.
fn part_of(first: &Ancestor, block: u64) -> Part {
    let of = u64::from(first.view.get()) << 32 | u64::from(first.sees.get());
    Part { of, number: block / OWNERS_BLOCKS }
}

/// Where a block is among those of its part.
const fn within(block: u64) -> usize {
    usize64(block % OWNERS_BLOCKS)
}

impl Owners {
    /// Which of the ancestors that begin with `first` has a block, if that is known, and how many of those from there on are
    /// alike, in a range.
    pub fn of(&self, first: &Ancestor, blocks: Range<u64>) -> (Option<usize>, u32) {
        let begin = within(blocks.start);
        let most = usize64(blocks.end - blocks.start).min(usize64(OWNERS_BLOCKS) - begin);
        let count = |run: usize| low32(u64_of(run));
        let all = self.0.borrow();
        let Some(found) = all.get(part_of(first, blocks.start)) else { return (None, count(most)) };
        let run = &found[begin..begin + most];
        let owner = run[0];
        let alike = run.iter().take_while(|other| **other == owner).count();
        (owner.checked_sub(UNKNOWN + 1).map(usize::from), count(alike))
    }

    /// Blocks that were found in an ancestor, or in none of so many.
    pub fn note(&self, first: &Ancestor, blocks: Range<u64>, owner: usize) {
        let Ok(owner) = u8::try_from(owner + 1) else { return };
        let mut all = self.0.borrow_mut();
        let mut at = blocks.start;
        while at < blocks.end {
            let part = part_of(first, at);
            let end = ((part.number + 1) * OWNERS_BLOCKS).min(blocks.end);
            all.enter(part)[within(at)..=within(end - 1)].fill(owner);
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Version, View};

    #[test]
    fn what_was_found_is_known_and_nothing_else() {
        let version = |n| Version::new(n).unwrap();
        let one = Ancestor { view: View::new(7), sees: version(3) };
        let other = Ancestor { sees: version(4), ..one };
        let owners = Owners::default();
        assert_eq!(owners.of(&one, 10..20), (None, 10));
        owners.note(&one, 250..300, 5);
        owners.note(&one, 260..262, 64);
        assert_eq!(owners.of(&one, 248..300), (None, 2));
        assert_eq!(owners.of(&one, 250..300), (Some(5), 6), "to the end of a part");
        assert_eq!(owners.of(&one, 256..300), (Some(5), 4));
        assert_eq!(owners.of(&one, 261..300), (Some(64), 1));
        assert_eq!(owners.of(&one, 262..400), (Some(5), 38));
        assert_eq!(owners.of(&one, 300..301), (None, 1));
        assert_eq!(owners.of(&other, 256..300), (None, 44));
        assert_eq!(owners.of(&one, 256 * 9..256 * 9 + 1), (None, 1));
        // Whatever comes to the same place.
        for part in 0..100_000 {
            owners.note(&other, part * 256..part * 256 + 1, 1);
        }
        assert_eq!(owners.of(&one, 256..300), (None, 44));
    }

    /// Half of them took each other's place.
    #[test]
    fn all_of_a_clone_of_4_gib_is_known_at_once() {
        let version = Version::new(3).unwrap();
        let first = Ancestor { view: View::new(7), sees: version };
        let owners = Owners::default();
        let blocks = (4_u64 << 30) / u64_of(crate::address::BLOCK);
        let all = || (0..blocks).step_by(64);
        all().for_each(|at| owners.note(&first, at..at + 1, usize64(at % 60)));
        let known = all().filter(|at| owners.of(&first, *at..*at + 1).0 == Some(usize64(*at % 60)));
        assert_eq!(u64_of(known.count()), blocks / 64);
    }
}
