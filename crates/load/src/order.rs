//! The order in which a queue visits the blocks of its range: ascending, or a random order in which each
//! block comes once before any comes again.

use stdx::prng::Prng;

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
}

impl Order {
    /// Visits of `count` blocks (at least 1).
    pub fn new(random: bool, count: u64, seed: u64) -> Self {
        assert!(count > 0, "an empty range has no order");
        if random {
            Self::Random(Shuffle::new(count, seed))
        } else {
            Self::Sequential { next: 0, count }
        }
    }

    /// The next block.
    pub fn next_block(&mut self) -> u64 {
        match self {
            Self::Sequential { next, count } => {
                let block = *next;
                *next = if block + 1 == *count { 0 } else { block + 1 };
                block
            }
            Self::Random(shuffle) => shuffle.next_block(),
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
            let mut x = self.position.wrapping_add(self.offset) & self.mask;
            self.position += 1;
            for key in self.keys {
                x = x.wrapping_mul(key) & self.mask;
                x ^= x >> self.half;
            }
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

    fn pass(order: &mut Order, count: u64) -> Vec<u64> {
        (0..count).map(|_| order.next_block()).collect()
    }

    #[test]
    fn each_block_once_a_pass() {
        for count in [1, 2, 3, 7, 64, 65, 1000, 4096] {
            for random in [false, true] {
                let mut order = Order::new(random, count, 9);
                for _ in 0..3 {
                    let mut blocks = pass(&mut order, count);
                    blocks.sort_unstable();
                    assert!(blocks.iter().copied().eq(0..count), "{count} {random}");
                }
            }
        }
    }

    #[test]
    fn passes_and_seeds_differ_and_repeat_from_the_seed() {
        let (mut a, mut b, mut c) =
            (Order::new(true, 500, 1), Order::new(true, 500, 1), Order::new(true, 500, 2));
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
        let mut order = Order::new(true, count, 5);
        let blocks = pass(&mut order, count);
        let mut buckets = [0u32; 16];
        for pair in blocks.windows(2) {
            buckets[usize64((pair[1].wrapping_sub(pair[0]) % count) / (count / 16))] += 1;
        }
        let expected = 65_535.0 / 16.0;
        let chi: f64 = buckets.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        assert!(chi < 37.7, "{chi} {buckets:?}");
    }
}
