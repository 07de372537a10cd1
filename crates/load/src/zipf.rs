//! Draws from Zipf's distribution: rank `k` of `n` comes with a chance proportional to `k` to the power of
//! minus `theta`.

use stdx::prng::Prng;

/// Rejection-inversion sampling (Hörmann and Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", 1996): exact for any exponent above 0, with no table and no sum over the
/// ranks, so that a namespace of any size costs nothing to begin with.
#[derive(Clone, Debug)]
pub struct Zipf {
    theta: f64,
    ranks: f64,
    /// The integral of the hat at its ends, and how much of a step is always accepted.
    low: f64,
    high: f64,
    sure: f64,
}

impl Zipf {
    /// Over ranks `1..=count`; `theta` is above 0.
    #[allow(clippy::cast_precision_loss, reason = "above 2^53 ranks, neighbours share a chance")]
    pub fn new(count: u64, theta: f64) -> Self {
        let mut zipf = Self { theta, ranks: count as f64, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.area(1.5) - 1.0;
        zipf.high = zipf.area(zipf.ranks + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.area(2.5) - zipf.chance(2.0));
        zipf
    }

    fn chance(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// The integral of the chance from 1 to `x`: (x^(1-theta) - 1) / (1-theta), which is ln x for theta 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.theta) * log;
        if power.abs() < 1e-8 { log } else { power.exp_m1() / (1.0 - self.theta) }
    }

    /// The `x` whose area is `area`.
    fn inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.theta)).max(-1.0);
        let log = if scaled.abs() < 1e-8 { area } else { scaled.ln_1p() / (1.0 - self.theta) };
        log.exp()
    }

    /// The next rank, from 1.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the ranks, which began as whole numbers"
    )]
    pub fn next(&self, prng: &mut Prng) -> u64 {
        loop {
            let area = self.high + prng.unit() * (self.low - self.high);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.sure || area >= self.area(rank + 0.5) - self.chance(rank) {
                return rank as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::num::usize64;

    /// Chi-square of 200,000 draws against the distribution, over the first 20 ranks and the rest.
    fn chi_square(count: u64, theta: f64) -> f64 {
        let zipf = Zipf::new(count, theta);
        let mut prng = Prng::new(11);
        let draws = 200_000;
        let mut seen = [0u32; 21];
        for _ in 0..draws {
            let rank = zipf.next(&mut prng);
            assert!((1..=count).contains(&rank), "{rank}");
            seen[usize64((rank - 1).min(20))] += 1;
        }
        let chance = |rank: u64| f64::from(u32::try_from(rank).unwrap()).powf(-theta);
        let sum: f64 = (1..=count).map(chance).sum();
        let mut expected = [0.0; 21];
        for rank in 1..=count {
            expected[usize64((rank - 1).min(20))] += chance(rank) / sum * f64::from(draws);
        }
        let term =
            |(seen, expected): (&u32, &f64)| (f64::from(*seen) - expected).powi(2) / expected;
        seen.iter().zip(&expected).map(term).sum()
    }

    /// 20 degrees of freedom, 0.1 % level.
    #[test]
    fn ranks_come_with_the_chances_of_the_law() {
        for theta in [0.5, 0.99, 1.0, 1.2, 2.0] {
            let chi = chi_square(10_000, theta);
            assert!(chi < 45.3, "theta {theta}: {chi}");
        }
    }

    #[test]
    fn few_ranks_do() {
        let mut prng = Prng::new(2);
        assert!((0..100).all(|_| Zipf::new(1, 1.2).next(&mut prng) == 1));
        let two = Zipf::new(2, 1.0);
        let ones = (0..30_000).filter(|_| two.next(&mut prng) == 1).count();
        assert!((19_500..20_500).contains(&ones), "{ones}");
    }

    #[test]
    fn a_huge_range_is_no_trouble() {
        let zipf = Zipf::new(1 << 48, 0.8);
        let mut prng = Prng::new(5);
        let beyond = (0..1000).filter(|_| zipf.next(&mut prng) > 1 << 40).count();
        assert!(beyond > 500, "{beyond}");
    }
}
