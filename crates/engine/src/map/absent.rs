//! What the map is known to have nothing of, neither contents nor holes, in no version: kept for clones' views, which have
//! little of their own as a rule, so that reads of them do not look through all levels to find that out each time.
//!
//! It is never believed for too long:
//! - All that ever comes into a map comes by [`Map::insert`], [`Map::insert_lost`] and [`Map::insert_hole`], whoever learnt
//!   it: writes, holes, moves by reclaim, references, what is lost, stripes at an opening. Each forgets what was known of
//!   those blocks in the same call that puts them in. Flushes, merges and prunes move what there is, or give it up.
//! - It is noted in the same call in which all levels were looked at, and while none of them could change: not across
//!   an await.
//! - So at any moment a block that is known to be absent is one that a look would not find either, and whoever may look
//!   may believe it: reads ask the log and then the map in one call, and what leaves the log is in the map by then.
//! - It is of a view, and not of what a clone is made of. Who its ancestors are, whether it is cut loose, rolled back (to
//!   a view that is new) or its parent deleted, decides who is asked next, and not what this view has. No view's number is
//!   used again. An opened map knows nothing.
//!
//! [`Map::insert`]: super::Map::insert
//! [`Map::insert_lost`]: super::Map::insert_lost
//! [`Map::insert_hole`]: super::Map::insert_hole

use std::ops::Range;

use stdx::num::{u64_of, usize64};

use super::flat::{Flat, low64, unflat};
use crate::limits::{ABSENT_BLOCKS, ABSENT_KEPT};
use crate::parts::{Part, Parts};

const WORD: u64 = u64::BITS as u64;
const WORDS: usize = usize64(ABSENT_BLOCKS / WORD);
const _: () = assert!(ABSENT_BLOCKS.is_multiple_of(WORD));

/// Where it is about more parts than so many, all that are known are looked at instead.
const ABSENT_FEW: u64 = 64;

/// A bit for each block of a part: nothing is there.
type Bits = [u64; WORDS];

pub(super) struct Absent(Parts<Bits, ABSENT_KEPT>);

/// The part with a position, where in it that is, and where it ends.
fn part_of(at: Flat) -> (Part, u64, Flat) {
    let key = unflat(at);
    let within = key.block % ABSENT_BLOCKS;
    let part = Part { of: u64::from(key.view.get()), number: key.block / ABSENT_BLOCKS };
    (part, within, at + Flat::from(ABSENT_BLOCKS - within))
}

/// Positions `from..to`, part by part: which of its blocks.
fn pieces(from: Flat, to: Flat) -> impl Iterator<Item = (Part, Range<u64>)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let (part, within, end) = (at < to).then(|| part_of(at))?;
        let last = within + low64(to.min(end) - at);
        at = end;
        Some((part, within..last))
    })
}

/// The bits of word number `n` that are of these blocks of a part.
fn mask(n: usize, blocks: &Range<u64>) -> u64 {
    let first = u64_of(n) * WORD;
    let below = |end: u64| match end.clamp(first, first + WORD) - first {
        WORD => u64::MAX,
        bits => (1 << bits) - 1,
    };
    below(blocks.end) & !below(blocks.start)
}

impl Absent {
    pub const fn new() -> Self {
        Self(Parts::new([0; WORDS]))
    }

    /// Bytes of memory held.
    pub const fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Up to which position, from `at` on and at most to `end`, nothing is known to be; `at` where that is not known.
    pub fn until(&self, at: Flat, end: Flat) -> Flat {
        let (part, within, _) = part_of(at);
        let Some(bits) = self.0.get(part) else { return at };
        let (mut n, mut bit) = (usize64(within / WORD), within % WORD);
        let mut until = at;
        while let Some(word) = bits.get(n) {
            let run = u64::from((word >> bit).trailing_ones());
            until += Flat::from(run);
            if run < WORD - bit || until >= end {
                break;
            }
            (n, bit) = (n + 1, 0);
        }
        until.min(end)
    }

    /// Nothing is at positions `from..to`, of one view: just now all was looked at.
    pub fn note(&mut self, from: Flat, to: Flat) {
        for (part, within) in pieces(from, to) {
            for (n, word) in self.0.enter(part).iter_mut().enumerate() {
                *word |= mask(n, &within);
            }
        }
    }

    /// Something comes to be at positions `from..to`, of one view.
    pub fn forget(&mut self, from: Flat, to: Flat) {
        if self.0.is_empty() || from >= to {
            return;
        }
        let (first, last) = (part_of(from).0, part_of(to - 1).0);
        if last.number - first.number <= ABSENT_FEW {
            for (part, within) in pieces(from, to) {
                if let Some(bits) = self.0.get_mut(part) {
                    bits.iter_mut().enumerate().for_each(|(n, word)| *word &= !mask(n, &within));
                }
            }
            return;
        }
        // A hole may be as long as a volume.
        for (part, bits) in self.0.each_mut() {
            if part.of == first.of && (first.number..=last.number).contains(&part.number) {
                *bits = [0; WORDS];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::View;
    use crate::map::flat::flat;
    use std::collections::BTreeSet;
    use stdx::Prng;

    #[test]
    fn what_is_known_to_be_absent_was_noted_and_not_forgotten_since() {
        for seed in 0..20 {
            let mut prng = Prng::new(seed);
            let (mut absent, mut model) = (Absent::new(), BTreeSet::new());
            assert_eq!(absent.bytes(), 0);
            for _ in 0..400 {
                let view = View::new(1 + u32::try_from(prng.below(2)).unwrap());
                let (first, most) = (prng.below(2000), [1, 70, 1500][usize64(prng.below(3))]);
                let (from, count) = (flat(view, first), 1 + prng.below(most));
                let to = from + Flat::from(count);
                match prng.below(3) {
                    0 => {
                        absent.note(from, to);
                        model.extend(from..to);
                    }
                    1 => {
                        absent.forget(from, to);
                        (from..to).for_each(|at| _ = model.remove(&at));
                    }
                    _ => {
                        let until = absent.until(from, to);
                        assert!((from..until).all(|at| model.contains(&at)), "seed {seed}");
                        // To the end of a part at most.
                        let (.., end) = part_of(from);
                        assert!(until == to.min(end) || !model.contains(&until), "seed {seed}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_hole_as_long_as_a_volume_is_forgotten_of_at_once() {
        let mut absent = Absent::new();
        let (one, other) = (View::new(1), View::new(2));
        absent.note(flat(one, 100), flat(one, 5000));
        absent.note(flat(other, 100), flat(other, 5000));
        absent.forget(flat(one, 0), flat(one, 1 << 39));
        assert_eq!(absent.until(flat(one, 4000), flat(one, 4001)), flat(one, 4000));
        assert_eq!(absent.until(flat(other, 4000), flat(other, 4001)), flat(other, 4001));
        let all = flat(other, 0)..flat(View::new(3), 0);
        absent.forget(all.start, all.end);
        assert_eq!(absent.until(flat(other, 4000), flat(other, 4001)), flat(other, 4000));
    }
}
