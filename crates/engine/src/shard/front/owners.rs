//! Which ancestor of a clone has a block: kept for what was read last, 4 GiB of it at most, so that reads do not pass by all
//! that have nothing of it.
//!
//! What an ancestor has as of a version never changes, wherever it is moved: what was found once stays true. Clones of one
//! snapshot have the same ancestors, and share what was found.

use std::cell::RefCell;
use std::ops::Range;

use stdx::num::{low32, usize64};

use crate::address::{Version, View};
use crate::limits::{OWNERS_BLOCKS, OWNERS_KEPT};
use crate::volume::state::Ancestor;

/// Nobody looked yet.
const UNKNOWN: u8 = u8::MAX;
const _: () = assert!(crate::limits::CLONES_DEEP_MAX < UNKNOWN as usize);

/// Blocks of a clone next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// The first ancestor: the others follow from it.
    view: View,
    sees: Version,
    number: u64,
}

#[derive(Debug)]
struct Kept {
    of: Part,
    /// By its number among the ancestors; as many as there are of them where none has the block.
    owners: [u8; usize64(OWNERS_BLOCKS)],
}

/// What was found so far, in places that follow from what it is of: the last one that came there.
#[derive(Debug, Default)]
pub struct Owners(RefCell<Vec<Option<Box<Kept>>>>);

impl Part {
    const fn new(first: &Ancestor, block: u64) -> Self {
        Self { view: first.view, sees: first.sees, number: block / OWNERS_BLOCKS }
    }

    fn place(self) -> usize {
        let of =
            (u64::from(self.view.get()) << 32 | u64::from(self.sees.get())) ^ self.number << 20;
        let mixed = (of ^ self.number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize64(mixed >> 32) % OWNERS_KEPT
    }
}

/// Where a block is among those of its part.
const fn within(block: u64) -> usize {
    usize64(block % OWNERS_BLOCKS)
}

impl Owners {
    /// Which of the ancestors that begin with `first` has a block, if that is known, and how many of those from there on are
    /// alike, in a range.
    pub fn of(&self, first: &Ancestor, blocks: Range<u64>) -> (Option<usize>, u32) {
        let part = Part::new(first, blocks.start);
        let begin = within(blocks.start);
        let most = usize64(blocks.end - blocks.start).min(usize64(OWNERS_BLOCKS) - begin);
        let count = |run: usize| low32(stdx::num::u64_of(run));
        let all = self.0.borrow();
        match all.get(part.place()).and_then(Option::as_ref).filter(|kept| kept.of == part) {
            None => (None, count(most)),
            Some(kept) => {
                let run = &kept.owners[begin..begin + most];
                let owner = run[0];
                let alike = run.iter().take_while(|other| **other == owner).count();
                ((owner != UNKNOWN).then_some(usize::from(owner)), count(alike))
            }
        }
    }

    /// Blocks that were found in an ancestor, or in none of so many.
    pub fn note(&self, first: &Ancestor, blocks: Range<u64>, owner: usize) {
        let Ok(owner) = u8::try_from(owner) else { return };
        let mut all = self.0.borrow_mut();
        if all.is_empty() {
            all.resize_with(OWNERS_KEPT, || None);
        }
        let mut at = blocks.start;
        while at < blocks.end {
            let part = Part::new(first, at);
            let end = ((part.number + 1) * OWNERS_BLOCKS).min(blocks.end);
            let kept = &mut all[part.place()];
            let kept = match kept {
                Some(kept) if kept.of == part => kept,
                _ => kept.insert(Box::new(Kept { of: part, owners: [UNKNOWN; _] })),
            };
            kept.owners[within(at)..=within(end - 1)].fill(owner);
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
