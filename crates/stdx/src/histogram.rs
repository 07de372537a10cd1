//! Latency histogram: log-linear buckets, fixed memory, exact counts, values within 1/64.

use crate::num::{low32, u64_of, usize32};

/// Buckets per power of two: 64 keeps a reported value within 1.6 % of the recorded one.
const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;
/// Values from 2^40 ns (18 minutes) up share the last bucket.
const TOP_BITS: u32 = 40;
const BUCKETS: usize = (usize32(TOP_BITS - SUB_BITS) + 1) * SUB;

/// Counts of values (nanoseconds by convention). About 18 KiB; recording touches one counter.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("p50", &self.percentile(50.0))
            .field("p99", &self.percentile(99.0))
            .field("max", &self.max)
            .finish()
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    if value < u64_of(SUB) {
        return usize32(low32(value));
    }
    let exponent = u64::BITS - 1 - value.leading_zeros();
    if exponent >= TOP_BITS {
        return BUCKETS - 1;
    }
    let sub = (value >> (exponent - SUB_BITS)) & (u64_of(SUB) - 1);
    usize32(exponent - SUB_BITS + 1) * SUB + usize32(low32(sub))
}

/// The largest value that falls into `bucket`.
fn upper_of(bucket: usize) -> u64 {
    let (row, sub) = (bucket / SUB, bucket % SUB);
    if row == 0 {
        return u64_of(sub);
    }
    let shift = row - 1;
    ((u64_of(SUB + sub) + 1) << shift) - 1
}

impl Histogram {
    #[must_use]
    pub fn new() -> Self {
        Self { counts: Box::new([0; BUCKETS]), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records `n` equal values.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.counts[bucket_of(value)] += n;
        self.count += n;
        self.sum = self.sum.saturating_add(value.saturating_mul(n));
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.count = 0;
        self.sum = 0;
        self.min = u64::MAX;
        self.max = 0;
    }

    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all values, saturating.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// The smallest value, exact; 0 when empty.
    #[must_use]
    pub const fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest value, exact; 0 when empty.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 when empty.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a mean is an estimate; 52 bits are plenty")]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The standard deviation, from bucket values; 0 when empty.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a deviation is an estimate")]
    pub fn stddev(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 =
            self.iter().map(|(value, n)| (value as f64 - mean).powi(2) * n as f64).sum();
        (squares / self.count as f64).sqrt()
    }

    /// The value at or below which `percent` (0 to 100) of the values lie; 0 when empty.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rank is clamped into 1..=count right after"
    )]
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (percent / 100.0 * self.count as f64).ceil() as u64;
        let rank = rank.clamp(1, self.count.max(1));
        let mut seen = 0;
        for (upper, n) in self.iter() {
            seen += n;
            if seen >= rank {
                return upper.clamp(self.min(), self.max);
            }
        }
        self.max
    }

    /// The buckets that hold values: (largest value of the bucket, count), ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().filter(|&(_, &n)| n > 0).map(|(b, &n)| (upper_of(b), n))
    }

    /// What was recorded since `earlier`, a copy of this histogram as it was: as [`Histogram::iter`].
    pub fn since(&self, earlier: &Self) -> impl Iterator<Item = (u64, u64)> {
        let pairs = self.counts.iter().zip(earlier.counts.iter()).enumerate();
        pairs
            .filter(|(_, (now, then))| now > then)
            .map(|(b, (now, then))| (upper_of(b), now - then))
    }

    /// How many values are at or below `limit`, to bucket precision: for cumulative export.
    #[must_use]
    pub fn count_at_most(&self, limit: u64) -> u64 {
        self.counts[..=bucket_of(limit)].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty() {
        let h = Histogram::new();
        assert_eq!((h.count(), h.min(), h.max(), h.percentile(99.0)), (0, 0, 0, 0));
        assert!(h.mean().abs() < f64::EPSILON);
    }

    #[test]
    fn percentiles_of_a_ramp() {
        let mut h = Histogram::new();
        for v in 1..=100_000 {
            h.record(v);
        }
        for (p, want) in [(50.0, 50_000.0), (99.0, 99_000.0), (99.9, 99_900.0)] {
            let got: f64 = f64::from(u32::try_from(h.percentile(p)).unwrap());
            assert!((got / want - 1.0).abs() < 1.0 / 60.0, "p{p}: {got}");
        }
        assert_eq!((h.min(), h.max(), h.percentile(100.0)), (1, 100_000, 100_000));
        assert!((h.stddev() - 28_867.0).abs() < 400.0, "{}", h.stddev());
    }

    #[test]
    fn what_came_since_a_copy() {
        let mut h = Histogram::new();
        h.record_n(10, 5);
        let earlier = h.clone();
        h.record(10);
        h.record_n(50, 2);
        assert_eq!(h.since(&earlier).collect::<Vec<_>>(), [(10, 1), (50, 2)]);
        assert_eq!(h.since(&h).count(), 0);
    }

    #[test]
    fn huge_values_share_the_last_bucket() {
        let mut h = Histogram::new();
        h.record(u64::MAX);
        h.record(1 << TOP_BITS);
        assert_eq!(h.count(), 2);
        assert_eq!(h.max(), u64::MAX);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(v in 0u64..(1 << TOP_BITS)) {
            let b = bucket_of(v);
            prop_assert!(v <= upper_of(b));
            prop_assert!(b == 0 || v > upper_of(b - 1));
            prop_assert!(upper_of(b) - v <= v / 64 + 1);
        }

        #[test]
        fn merge_is_recording_both(
            a in proptest::collection::vec(any::<u32>(), 0..50),
            b in proptest::collection::vec(any::<u32>(), 0..50),
        ) {
            let (mut x, mut y, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
            for &v in &a { x.record(v.into()); both.record(v.into()); }
            for &v in &b { y.record(v.into()); both.record(v.into()); }
            x.merge(&y);
            prop_assert_eq!(x.count(), both.count());
            prop_assert_eq!(x.sum(), both.sum());
            prop_assert_eq!(x.percentile(90.0), both.percentile(90.0));
            prop_assert_eq!((x.min(), x.max()), (both.min(), both.max()));
        }
    }
}
