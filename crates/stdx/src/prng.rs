//! A small seeded generator (xoshiro256++ seeded by splitmix64): reproducible, not for secrets.

/// Reproducible from its seed on every machine.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[allow(clippy::cast_possible_truncation, reason = "splitting into halves is the purpose")]
const fn split(wide: u128) -> (u64, u64) {
    ((wide >> 64) as u64, wide as u64)
}

impl Prng {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut s = seed;
        Self { state: [(); 4].map(|()| splitmix(&mut s)) }
    }

    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..bound`, without the bias of a plain remainder.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no member");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            let (high, low) = split(wide);
            if low >= threshold {
                return high;
            }
        }
    }

    /// True with the given chance in a million.
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// A number from 0 to below 1, one of 2^53 evenly spaced ones.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are what an f64 holds exactly")]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fills `out` with pseudo-random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_stream() {
        let (mut a, mut b, mut c) = (Prng::new(1), Prng::new(1), Prng::new(2));
        let (x, y, z) = (a.next_u64(), b.next_u64(), c.next_u64());
        assert_eq!(x, y);
        assert_ne!(x, z);
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut p = Prng::new(42);
        let mut seen = [0u32; 7];
        for _ in 0..7000 {
            seen[crate::num::usize64(p.below(7))] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800 && n < 1200), "{seen:?}");
    }

    #[test]
    fn unit_is_even_and_below_one() {
        let mut p = Prng::new(8);
        let mut tenths = [0u32; 10];
        for _ in 0..10_000 {
            let unit = p.unit();
            let tenth = (1..10).filter(|&tenth| unit >= f64::from(tenth) / 10.0).count();
            assert!((0.0..1.0).contains(&unit));
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|&n| n > 880 && n < 1120), "{tenths:?}");
    }

    #[test]
    fn fill_covers_a_ragged_tail() {
        let mut p = Prng::new(3);
        let mut out = [0u8; 37];
        p.fill(&mut out);
        assert!(out[32..].iter().any(|&b| b != 0));
    }
}
