//! What a load did over time: per interval the commands, the bytes and the latencies of each direction.
//!
//! Nothing is done for it per command: at the end of an interval the counters are compared with what they were.

use std::collections::BTreeMap;

use reactor::Nanos;
use stdx::histogram::Histogram;
use stdx::num::{low32, u64_of, usize32};

use crate::limits::SERIES_POINTS_MAX;

/// What one direction came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub ios: u64,
    pub bytes: u64,
    pub latency: Histogram,
}

/// One direction within one interval.
#[derive(Clone, Debug, Default)]
struct Slice {
    ios: u64,
    bytes: u64,
    /// Latencies and how often they came, ascending.
    counts: Vec<(u64, u64)>,
}

impl Slice {
    fn between(then: &Tally, now: &Tally) -> Self {
        Self {
            ios: now.ios - then.ios,
            bytes: now.bytes - then.bytes,
            counts: now.latency.since(&then.latency).collect(),
        }
    }

    fn absorb(&mut self, other: Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        let mut counts: BTreeMap<u64, u64> = std::mem::take(&mut self.counts).into_iter().collect();
        for (value, n) in other.counts {
            *counts.entry(value).or_default() += n;
        }
        self.counts = counts.into_iter().collect();
    }
}

/// One interval: reads and writes.
#[derive(Clone, Debug, Default)]
struct Point {
    index: u32,
    slices: [Slice; 2],
}

/// The series of one queue, or of several put together.
#[derive(Clone, Debug)]
pub struct Series {
    started: Nanos,
    interval: Nanos,
    /// End of the interval that is running.
    next: Nanos,
    last: [Tally; 2],
    points: Vec<Point>,
}

/// What one interval of a series came to.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Nanoseconds from the start of the load to the end of the interval.
    pub end: Nanos,
    /// How long it was, nanoseconds.
    pub length: Nanos,
    /// Reads and writes: commands, bytes, latencies.
    pub directions: [(u64, u64, Histogram); 2],
}

impl Series {
    /// Of a load that starts at `started`.
    pub fn new(started: Nanos, interval: Nanos) -> Self {
        let last = [Tally::default(), Tally::default()];
        let next = started.saturating_add(interval);
        Self { started, interval, next, last, points: Vec::new() }
    }

    /// Whether the running interval is over.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Ends the running interval with `tallies` as they are now, of reads and writes; the next one is the one
    /// that `now` is in.
    pub fn turn(&mut self, now: Nanos, tallies: [&Tally; 2]) {
        let index = (self.next - self.started) / self.interval - 1;
        let pairs = [(&self.last[0], tallies[0]), (&self.last[1], tallies[1])];
        let slices = pairs.map(|(then, now)| Slice::between(then, now));
        if slices.iter().any(|slice| slice.ios > 0) {
            self.points.push(Point { index: low32(index), slices });
            self.last = tallies.map(Tally::clone);
        }
        if self.points.len() >= SERIES_POINTS_MAX {
            self.coarsen();
        }
        let over = now.saturating_sub(self.started) / self.interval;
        self.next = self.started + (over + 1) * self.interval;
    }

    /// Makes each two intervals one.
    fn coarsen(&mut self) {
        self.interval *= 2;
        let mut points: Vec<Point> = Vec::with_capacity(self.points.len() / 2 + 1);
        for mut point in std::mem::take(&mut self.points) {
            point.index /= 2;
            match points.last_mut() {
                Some(last) if last.index == point.index => {
                    for (mine, other) in last.slices.iter_mut().zip(point.slices) {
                        mine.absorb(other);
                    }
                }
                _ => points.push(point),
            }
        }
        self.points = points;
    }

    /// The series of all queues of a job together: one sample an interval until `ended`, those in which
    /// nothing came included.
    pub fn samples(all: Vec<Self>, ended: Nanos) -> Vec<Sample> {
        let interval = all.iter().map(|series| series.interval).max().unwrap_or(0);
        let started = all.iter().map(|series| series.started).min().unwrap_or(ended);
        let total = ended.saturating_sub(started);
        if interval == 0 || total == 0 {
            return Vec::new();
        }
        let count = total.div_ceil(interval).min(2 * u64_of(SERIES_POINTS_MAX));
        let empty = |index: u64| {
            let end = ((index + 1) * interval).min(total);
            let directions = [(0, 0, Histogram::new()), (0, 0, Histogram::new())];
            Sample { end, length: end - index * interval, directions }
        };
        let mut samples: Vec<Sample> = (0..count).map(empty).collect();
        for mut series in all {
            while series.interval < interval {
                series.coarsen();
            }
            for point in series.points {
                let Some(sample) = samples.get_mut(usize32(point.index)) else { continue };
                for ((ios, bytes, latency), slice) in sample.directions.iter_mut().zip(point.slices)
                {
                    *ios += slice.ios;
                    *bytes += slice.bytes;
                    slice.counts.iter().for_each(|(value, n)| latency.record_n(*value, *n));
                }
            }
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn more(tally: &mut Tally, ios: u64, latency: u64) {
        tally.ios += ios;
        tally.bytes += ios * 4096;
        tally.latency.record_n(latency, ios);
    }

    #[test]
    fn intervals_hold_what_came_in_them() {
        let (mut reads, writes) = (Tally::default(), Tally::default());
        let mut series = Series::new(1000, 100);
        more(&mut reads, 3, 7);
        assert!(!series.is_due(1099) && series.is_due(1100));
        // The next completion comes two intervals later: nothing came in those.
        series.turn(1350, [&reads, &writes]);
        more(&mut reads, 2, 9);
        series.turn(1400, [&reads, &writes]);
        let samples = Series::samples(vec![series], 1450);
        let of = |sample: &Sample| (sample.end, sample.length, sample.directions[0].0);
        let all: Vec<_> = samples.iter().map(of).collect();
        assert_eq!(all, [(100, 100, 3), (200, 100, 0), (300, 100, 0), (400, 100, 2), (450, 50, 0)]);
        assert_eq!(samples[3].directions[0].2.percentile(50.0), 9);
        assert_eq!(samples[3].directions[0].1, 8192);
    }

    #[test]
    fn a_long_run_has_longer_intervals_and_the_same_sums() {
        let (mut reads, writes) = (Tally::default(), Tally::default());
        let turns = 3 * u64_of(SERIES_POINTS_MAX);
        let mut long = Series::new(0, 10);
        for turn in 1..=turns {
            more(&mut reads, 1, turn % 5 + 1);
            long.turn(turn * 10, [&reads, &writes]);
        }
        let mut brief = Series::new(0, 10);
        let mut few = Tally::default();
        more(&mut few, 4, 3);
        brief.turn(10, [&few, &writes]);
        assert!(long.points.len() < SERIES_POINTS_MAX);
        let samples = Series::samples(vec![long, brief], turns * 10);
        let ios: u64 = samples.iter().map(|sample| sample.directions[0].0).sum();
        let counted: u64 = samples.iter().map(|sample| sample.directions[0].2.count()).sum();
        assert_eq!((ios, counted), (turns + 4, turns + 4));
        assert!(samples.iter().all(|sample| sample.length.is_multiple_of(20)));
    }
}
