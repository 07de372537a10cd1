//! Filters: whether a table may know a block, answered from memory.
//!
//! A filter page holds the fingerprints of some thousands of blocks as a three-part exclusive-or
//! filter: a block's fingerprint is the exclusive-or of the slots its hash names, one in each part.
//! A hash first chooses the page, then the slots. Narrow fingerprints (8 bits: one block in 256 is
//! wrongly taken for known) serve the largest level that has filters; the levels above it are small
//! and have 16 bits. Long holes are not fingerprinted but listed.

use super::flat::{Flat, low64};
use super::page::{Kind, MAGIC};
use crate::address::BLOCK;
use crate::format::Bad;
use stdx::num::{low8, low16, u32_of, u64_of, usize32, usize64};

/// Bytes before the slots: magic, kind, version, fingerprint bytes, 0, seed.
const HEAD: usize = 16;

/// Slots of one byte that fit a page, in three equal parts.
const BYTES: usize = (BLOCK - HEAD) / 6 * 6;

/// How much more slots than keys: below 1.23 no arrangement exists, and small sets scatter.
const SLOTS_PER_KEY_PERCENT: usize = 128;

/// Seeds tried before the keys are taken to be damaged: one in a few tries fails at most.
const SEEDS: u64 = 64;

/// Holes of so many blocks or more are listed, not fingerprinted block by block.
pub(super) const LONG_HOLE: u64 = 64;

/// Most long holes of one table: the table ends before it has more.
pub(super) const LONG_HOLES: usize = 128;

/// The width of fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Narrow,
    Wide,
}

impl Width {
    const fn bytes(self) -> usize {
        match self {
            Self::Narrow => 1,
            Self::Wide => 2,
        }
    }

    const fn slots(self) -> usize {
        BYTES / self.bytes()
    }

    /// Keys one page takes.
    const fn keys(self) -> usize {
        self.slots() * 100 / SLOTS_PER_KEY_PERCENT
    }

    /// Pages for so many keys, with room for their uneven spread: 5 standard deviations.
    pub fn pages_for(self, keys: usize) -> usize {
        let full = self.keys();
        let spread = 5 * full.isqrt();
        if keys <= full { 1 } else { keys.div_ceil(full - spread) }
    }
}

/// A well-mixed 64-bit hash of a position.
pub(super) fn hash(at: Flat) -> u64 {
    let (low, high) = (low64(at), low64(at >> 64));
    mix(low ^ mix(high.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `hash` spread over `0..n`, by its high bits.
fn reduce(hash: u64, n: usize) -> usize {
    usize64(low64((u128::from(hash) * u64_of(n) as u128) >> 64))
}

/// Which of a filter's pages speaks of a hash.
pub(super) fn page_of(hash: u64, pages: usize) -> usize {
    reduce(hash, pages)
}

/// The three slots and the fingerprint of a hash.
fn places(hash: u64, seed: u64, width: Width) -> ([usize; 3], u16) {
    let part = width.slots() / 3;
    let mixed = mix(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let third = |shift: u32| reduce(mixed.rotate_left(shift) << 43, part);
    let slots = [third(0), part + third(21), 2 * part + third(42)];
    (slots, low16(hash))
}

fn slot(page: &[u8; BLOCK], slot: usize, width: Width) -> u16 {
    match width {
        Width::Narrow => u16::from(page[HEAD + slot]),
        Width::Wide => u16::from_le_bytes([page[HEAD + 2 * slot], page[HEAD + 2 * slot + 1]]),
    }
}

fn set_slot(page: &mut [u8; BLOCK], slot: usize, width: Width, value: u16) {
    match width {
        Width::Narrow => page[HEAD + slot] = low8(u64::from(value)),
        Width::Wide => page[HEAD + 2 * slot..][..2].copy_from_slice(&value.to_le_bytes()),
    }
}

/// Checks a filter page's head.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(page: &[u8; BLOCK]) -> Result<Width, Bad> {
    if page[..4] != MAGIC || page[4] != Kind::Filter as u8 {
        return Err(Bad::Field("kind of page"));
    }
    if u16::from(page[5]) != crate::format::VERSION {
        return Err(Bad::Version(u16::from(page[5])));
    }
    match page[6] {
        1 => Ok(Width::Narrow),
        2 => Ok(Width::Wide),
        _ => Err(Bad::Field("fingerprint bytes")),
    }
}

fn seed_of(page: &[u8; BLOCK]) -> u64 {
    super::bits::word(page, 8)
}

fn holds(page: &[u8; BLOCK], hash: u64, width: Width) -> bool {
    let ([a, b, c], fingerprint) = places(hash, seed_of(page), width);
    let found = slot(page, a, width) ^ slot(page, b, width) ^ slot(page, c, width);
    match width {
        Width::Narrow => low8(u64::from(found ^ fingerprint)) == 0,
        Width::Wide => found == fingerprint,
    }
}

/// Room to build filter pages in, kept between pages.
#[derive(Default)]
pub(super) struct Scratch {
    xors: Vec<u64>,
    counts: Vec<u16>,
    ready: Vec<u32>,
    order: Vec<(u64, u32)>,
}

impl Scratch {
    /// Finds an order in which each hash has a slot of its own when its turn comes.
    fn peel(&mut self, hashes: &[u64], seed: u64, width: Width) -> bool {
        self.xors.clear();
        self.xors.resize(width.slots(), 0);
        self.counts.clear();
        self.counts.resize(width.slots(), 0);
        self.order.clear();
        for &hash in hashes {
            for at in places(hash, seed, width).0 {
                self.xors[at] ^= hash;
                self.counts[at] += 1;
            }
        }
        self.ready.clear();
        let alone = (0..width.slots()).filter(|&at| self.counts[at] == 1);
        self.ready.extend(alone.map(u32_of));
        while let Some(at) = self.ready.pop() {
            if self.counts[usize32(at)] != 1 {
                continue;
            }
            let hash = self.xors[usize32(at)];
            self.order.push((hash, at));
            for other in places(hash, seed, width).0 {
                self.xors[other] ^= hash;
                self.counts[other] -= 1;
                if self.counts[other] == 1 {
                    self.ready.push(u32_of(other));
                }
            }
        }
        self.order.len() == hashes.len()
    }

    /// Writes a filter page that holds `hashes`. `false` when there are too many of them, which
    /// their even spread makes all but impossible.
    pub fn build(&mut self, hashes: &mut Vec<u64>, width: Width, out: &mut [u8; BLOCK]) -> bool {
        hashes.sort_unstable();
        hashes.dedup();
        let Some(seed) = (0..SEEDS).find(|&seed| self.peel(hashes, seed, width)) else {
            return false;
        };
        out.fill(0);
        out[..4].copy_from_slice(&MAGIC);
        (out[4], out[5]) = (Kind::Filter as u8, low8(u64::from(crate::format::VERSION)));
        out[6] = low8(u64_of(width.bytes()));
        out[8..HEAD].copy_from_slice(&seed.to_le_bytes());
        for &(hash, at) in self.order.iter().rev() {
            let ([a, b, c], fingerprint) = places(hash, seed, width);
            let sum = slot(out, a, width) ^ slot(out, b, width) ^ slot(out, c, width);
            set_slot(out, usize32(at), width, sum ^ fingerprint);
        }
        true
    }
}

/// One table's filter in memory.
pub(super) struct Filter {
    width: Width,
    pages: Box<[[u8; BLOCK]]>,
    /// Beginning and end of the long holes, in order.
    holes: Vec<(Flat, Flat)>,
}

impl Filter {
    /// From its pages as they were read, and the long holes.
    ///
    /// # Errors
    /// When a page is no filter page, or they differ in width.
    pub fn new(pages: Vec<[u8; BLOCK]>, holes: Vec<(Flat, Flat)>) -> Result<Self, Bad> {
        let width = pages.first().map_or(Err(Bad::Field("filter pages")), check)?;
        for page in &pages {
            if check(page)? != width {
                return Err(Bad::Field("fingerprint bytes"));
            }
        }
        Ok(Self { width, pages: pages.into_boxed_slice(), holes })
    }

    pub fn bytes(&self) -> usize {
        self.pages.len() * BLOCK + self.holes.len() * size_of::<(Flat, Flat)>()
    }

    /// The first position in `at..limit` that the table may know; `limit` when it knows none.
    pub fn first_possible(&self, at: Flat, limit: Flat) -> Flat {
        let hole = self.holes.partition_point(|&(_, end)| end <= at);
        let stop = self.holes.get(hole).map_or(limit, |&(start, _)| start.clamp(at, limit));
        let mut at = at;
        while at < stop {
            let hash = hash(at);
            if holds(&self.pages[page_of(hash, self.pages.len())], hash, self.width) {
                return at;
            }
            at += 1;
        }
        stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(keys: std::ops::Range<u64>, width: Width) -> Filter {
        let pages = width.pages_for(usize64(keys.end - keys.start));
        let mut shares = vec![Vec::new(); pages];
        for key in keys {
            let hash = hash(Flat::from(key) * 1000);
            shares[page_of(hash, pages)].push(hash);
        }
        let mut scratch = Scratch::default();
        let built = shares
            .iter_mut()
            .map(|share| {
                let mut page = [0; BLOCK];
                assert!(scratch.build(share, width, &mut page));
                page
            })
            .collect();
        Filter::new(built, vec![(50_000_500, 50_000_700)]).unwrap()
    }

    #[test]
    fn members_are_found_and_strangers_seldom() {
        for (width, most) in [(Width::Narrow, 500), (Width::Wide, 8)] {
            let filter = filter(0..50_000, width);
            for key in 0..50_000 {
                let at = key * 1000;
                assert_eq!(filter.first_possible(at, at + 1), at);
            }
            let wrong = (0..100_000u128)
                .filter(|key| filter.first_possible(key * 500 + 1, key * 500 + 2) == key * 500 + 1)
                .count();
            assert!(wrong < most, "{wrong} of 100000 at {width:?}");
            assert_eq!(filter.first_possible(50_000_600, 60_000_000), 50_000_600, "a long hole");
        }
    }

    #[test]
    fn pages_of_something_else_are_refused() {
        assert!(check(&[0; BLOCK]).is_err());
        assert!(Filter::new(vec![], vec![]).is_err());
    }
}
