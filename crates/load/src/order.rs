//! The order in which a queue visits the blocks of its range: ascending, a random order in which each block
//! comes once before any comes again, or drawn by Zipf's law.

use stdx::prng::Prng;

use crate::Error;
use crate::zipf::Zipf;

/// How addresses are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Each block once before any comes again.
    Even,
    /// By Zipf's law with this exponent: few blocks come often. Which they are is spread over the region.
    Zipf(f64),
}

impl Distribution {
    /// fio's words for it.
    #[must_use]
    pub fn show(self) -> String {
        match self {
            Self::Even => "random".to_owned(),
            Self::Zipf(theta) => format!("zipf:{theta}"),
        }
    }

    /// Parses fio's words: `random`, or `zipf:1.2`.
    ///
    /// # Errors
    /// [`Error::Job`] for anything else.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let theta = text.strip_prefix("zipf:").and_then(|theta| theta.parse::<f64>().ok());
        match (text, theta) {
            ("random", _) => Ok(Self::Even),
            (_, Some(theta)) if (ZIPF_MIN..=ZIPF_MAX).contains(&theta) => Ok(Self::Zipf(theta)),
            (_, Some(theta)) => Err(Error::Job(format!(
                "zipf's exponent {theta} is not from {ZIPF_MIN} to {ZIPF_MAX}"
            ))),
            _ => Err(Error::Job(format!("`{text}` is none of random, zipf:EXPONENT"))),
        }
    }
}

/// Exponents of Zipf's law: below it is even, above only the first blocks ever come.
const ZIPF_MIN: f64 = 0.01;
const ZIPF_MAX: f64 = 8.0;

/// Endless visits of the blocks `0..count`, pass after pass.
#[derive(Debug)]
pub enum Order {
    /// Ascending.
    Sequential {
        /// Next block.
        next: u64,
        /// Blocks in the range.
        count: u64,
    },
    /// A different permutation each pass.
    Random(Shuffle),
    /// Drawn one by one: a rank, then the block that has it.
    Zipf {
        /// Draws ranks.
        law: Zipf,
        /// Draws for the law.
        prng: Prng,
        /// Which block has which rank.
        blocks: Shuffle,
    },
}

impl Order {
    /// Visits of `count` blocks (at least 1); `None` is ascending.
    pub fn new(random: Option<Distribution>, count: u64, seed: u64) -> Self {
        assert!(count > 0, "an empty range has no order");
        match random {
            None => Self::Sequential { next: 0, count },
            Some(Distribution::Even) => Self::Random(Shuffle::new(count, seed)),
            Some(Distribution::Zipf(theta)) => Self::Zipf {
                law: Zipf::new(count, theta),
                prng: Prng::new(seed ^ 0x7a69_7066),
                blocks: Shuffle::new(count, seed),
            },
        }
    }

    /// The first of the next `blocks` blocks: those that a command is about, all within the range.
    pub fn next(&mut self, blocks: u32) -> u64 {
        let blocks = u64::from(blocks);
        match self {
            Self::Sequential { next, count } => {
                let first = if *next + blocks > *count { 0 } else { *next };
                *next = first + blocks;
                first
            }
            Self::Random(shuffle) => {
                let block = shuffle.next_block();
                block.min(shuffle.count.saturating_sub(blocks))
            }
            Self::Zipf { law, prng, blocks: shuffle } => {
                let block = shuffle.place(law.next(prng) - 1);
                block.min(shuffle.count.saturating_sub(blocks))
            }
        }
    }
}

/// A pseudo-random permutation of `0..count`, computed, not stored: five rounds of an odd multiplication and a
/// shifted exclusive or, each of which is one to one on `bits`-wide numbers. A number of 2^bits that is not
/// below `count` is stepped over.
#[derive(Debug)]
pub struct Shuffle {
    prng: Prng,
    count: u64,
    mask: u64,
    half: u32,
    position: u64,
    keys: [u64; ROUNDS],
    offset: u64,
}

const ROUNDS: usize = 5;

impl Shuffle {
    fn new(count: u64, seed: u64) -> Self {
        // At least 2 bits, so that the shift by half is neither 0 nor the whole width.
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(2);
        let mask = u64::MAX >> (u64::BITS - bits);
        let mut shuffle = Self {
            prng: Prng::new(seed),
            count,
            mask,
            half: bits.div_ceil(2),
            position: 0,
            keys: [1; ROUNDS],
            offset: 0,
        };
        shuffle.start_pass();
        shuffle
    }

    fn start_pass(&mut self) {
        self.position = 0;
        for key in &mut self.keys {
            *key = self.prng.next_u64() | 1;
        }
        self.offset = self.prng.next_u64();
    }

    fn next_block(&mut self) -> u64 {
        loop {
            if self.position > self.mask {
                self.start_pass();
            }
            let x = self.mix(self.position.wrapping_add(self.offset) & self.mask);
            self.position += 1;
            if x < self.count {
                return x;
            }
        }
    }

    fn mix(&self, mut x: u64) -> u64 {
        for key in self.keys {
            x = x.wrapping_mul(key) & self.mask;
            x ^= x >> self.half;
        }
        x
    }

    /// Where the permutation of this pass puts `index`, one of `0..count`: what is stepped over is mixed again
    /// until it is within, which keeps it one to one.
    fn place(&self, index: u64) -> u64 {
        let mut x = index;
        loop {
            x = self.mix(x.wrapping_add(self.offset) & self.mask);
            if x < self.count {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::num::usize64;

    const EVEN: Option<Distribution> = Some(Distribution::Even);

    fn pass(order: &mut Order, count: u64) -> Vec<u64> {
        (0..count).map(|_| order.next(1)).collect()
    }

    #[test]
    fn each_block_once_a_pass() {
        for count in [1, 2, 3, 7, 64, 65, 1000, 4096] {
            for random in [None, EVEN] {
                let mut order = Order::new(random, count, 9);
                for _ in 0..3 {
                    let mut blocks = pass(&mut order, count);
                    blocks.sort_unstable();
                    assert!(blocks.iter().copied().eq(0..count), "{count} {random:?}");
                }
            }
        }
    }

    #[test]
    fn passes_and_seeds_differ_and_repeat_from_the_seed() {
        let (mut a, mut b, mut c) =
            (Order::new(EVEN, 500, 1), Order::new(EVEN, 500, 1), Order::new(EVEN, 500, 2));
        let first = pass(&mut a, 500);
        assert_eq!(first, pass(&mut b, 500));
        assert_ne!(first, pass(&mut c, 500));
        assert_ne!(first, pass(&mut a, 500));
    }

    /// Neighbouring visits must not land near each other more often than chance: chi-square over 16
    /// buckets of the distance, 15 degrees of freedom, 0.1 % level.
    #[test]
    fn distances_are_spread() {
        let count = 1 << 16;
        let mut order = Order::new(EVEN, count, 5);
        let blocks = pass(&mut order, count);
        let mut buckets = [0u32; 16];
        for pair in blocks.windows(2) {
            buckets[usize64((pair[1].wrapping_sub(pair[0]) % count) / (count / 16))] += 1;
        }
        let expected = 65_535.0 / 16.0;
        let chi: f64 = buckets.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        assert!(chi < 37.7, "{chi} {buckets:?}");
    }

    #[test]
    fn commands_of_several_blocks_stay_within() {
        for random in [None, EVEN, Some(Distribution::Zipf(1.2))] {
            let mut order = Order::new(random, 10, 3);
            for blocks in [1, 3, 10, 7, 1, 2, 4].into_iter().cycle().take(500) {
                let first = order.next(blocks);
                assert!(first + u64::from(blocks) <= 10, "{random:?}: {first} + {blocks}");
            }
        }
        let mut order = Order::new(None, 10, 3);
        assert_eq!([4, 4, 4, 2].map(|blocks| order.next(blocks)), [0, 4, 0, 4]);
    }

    #[test]
    fn ranks_have_blocks_of_their_own_spread_over_the_range() {
        for count in [1, 2, 5, 1000] {
            let shuffle = Shuffle::new(count, 7);
            let mut places: Vec<u64> = (0..count).map(|rank| shuffle.place(rank)).collect();
            assert!(count < 1000 || places[..8].iter().any(|&place| place > 500), "{places:?}");
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..count), "{count}");
        }
    }

    #[test]
    fn a_zipf_order_favours_few_blocks() {
        let mut order = Order::new(Some(Distribution::Zipf(1.2)), 1 << 20, 9);
        let mut times = std::collections::HashMap::new();
        for _ in 0..50_000 {
            *times.entry(order.next(1)).or_insert(0u32) += 1;
        }
        let mut times: Vec<u32> = times.into_values().collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        // The first rank's chance is 1 / zeta: about 19 % of 2^20 ranks with exponent 1.2.
        assert!((8_500..10_800).contains(&times[0]), "{:?}", &times[..4]);
        let hundred: u32 = times.iter().take(100).sum();
        assert!(hundred > 30_000, "{hundred}");
    }

    #[test]
    fn distributions_have_fios_words() {
        for text in ["random", "zipf:1.2", "zipf:0.5"] {
            assert_eq!(Distribution::parse(text).unwrap().show(), text);
        }
        for wrong in ["zipf", "zipf:x", "zipf:-1", "zipf:99", "pareto:0.2"] {
            assert!(Distribution::parse(wrong).is_err(), "{wrong}");
        }
    }
}
