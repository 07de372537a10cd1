//! When a reactor with nothing to do spins, and when it sleeps. Arithmetic only.

use crate::limits::{ADAPTIVE_SPIN, EAGER_SPIN, WAKE_COST};
use crate::time::{Nanos, nanos_of};
use std::time::Duration;

/// What a reactor does when it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollPolicy {
    /// Spins for at most `spin` after the last work while most gaps end within that, and otherwise for no longer than a
    /// wake costs; then sleeps in the ring.
    Adaptive { spin: Duration },
    /// Spins for `spin` after the last work, however long the gaps are, then sleeps in the ring.
    Eager { spin: Duration },
    /// Never sleeps. Idle for a while, it gives its CPU to others who want it.
    Busy,
    /// Sleeps at once.
    Interrupt,
}

impl PollPolicy {
    /// As `adaptive` without a spin of its own.
    pub const ADAPTIVE: Self = Self::Adaptive { spin: ADAPTIVE_SPIN };
    /// As `eager` without a spin of its own.
    pub const EAGER: Self = Self::Eager { spin: EAGER_SPIN };
}

impl Default for PollPolicy {
    fn default() -> Self {
        Self::ADAPTIVE
    }
}

/// After a spin that found nothing although work came soon after, this many sleeps pass before the
/// next try; doubled with every further failure.
const FIRST_BACKOFF: u32 = 4;
const LAST_BACKOFF: u32 = 1024;

/// What is known of the gaps, from 0 (all are long) to this (all are short).
const SCORE_MAX: u32 = 8;
/// From here on spins are whole ones. One in vain counts as two that found work: they go on while two gaps of three are
/// short.
const SCORE_PAYS: u32 = 4;
const SCORE_IN_VAIN: u32 = 2;
/// While gaps seem long, a whole spin in so many looks whether they still are.
const PROBE_EVERY: u32 = 16;

/// Learns whether spinning pays.
///
/// It does not when gaps are longer than the spin. While they seem to be, only one spin in [`PROBE_EVERY`] is a whole
/// one. Neither does it when the peer shares this CPU: the peer can only answer once we sleep. The sign is a spin that
/// ended without work followed by a short sleep. Then most spins are skipped, and one in `backoff` sleeps tries again.
/// For a reactor, and for any thread that waits for one.
#[derive(Debug)]
pub struct Spinner {
    /// Of a whole spin.
    limit: Nanos,
    /// Of a spin while gaps seem long; that of a whole one where nothing is learnt from them.
    brief: Nanos,
    /// Of the gap there is now.
    this: Nanos,
    score: u32,
    /// Brief spins until the next probe.
    until_probe: u32,
    backoff: u32,
    /// Sleeps left until spinning is tried again.
    skip: u32,
    spun_in_vain: bool,
}

impl Spinner {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(policy: PollPolicy) -> Self {
        let (limit, brief) = match policy {
            PollPolicy::Adaptive { spin } => (nanos_of(spin), nanos_of(spin.min(WAKE_COST))),
            PollPolicy::Eager { spin } => (nanos_of(spin), nanos_of(spin)),
            PollPolicy::Busy => (Nanos::MAX, Nanos::MAX),
            PollPolicy::Interrupt => (0, 0),
        };
        Self {
            limit,
            brief,
            this: limit,
            score: SCORE_MAX,
            until_probe: PROBE_EVERY,
            backoff: 0,
            skip: 0,
            spun_in_vain: false,
        }
    }

    /// Whether a thread idle for `idle` should sleep now.
    #[must_use]
    pub const fn should_sleep(&self, idle: Nanos) -> bool {
        idle >= self.this || self.skip > 0
    }

    /// Work arrived while spinning: spinning pays.
    pub fn hit(&mut self) {
        if self.skip == 0 {
            self.backoff = 0;
            self.score = SCORE_MAX.min(self.score + 1);
            self.choose();
        }
    }

    /// The thread goes to sleep.
    pub fn sleeping(&mut self) {
        self.spun_in_vain = self.skip == 0;
        if self.skip == 0 && self.this == self.limit {
            self.score = self.score.saturating_sub(SCORE_IN_VAIN);
        }
        self.skip = self.skip.saturating_sub(1);
    }

    /// The thread woke after `slept`.
    pub fn woke(&mut self, slept: Nanos) {
        if !self.spun_in_vain || self.limit == 0 {
            return;
        }
        if self.this < self.limit {
            // It took the wake's time as well: less than a whole spin, and one would have caught it; twice as long, and
            // none would.
            let gap = slept.saturating_add(self.this);
            if gap < self.limit {
                self.score = SCORE_MAX.min(self.score + 1);
            } else if gap >= self.limit.saturating_mul(2) {
                self.score = self.score.saturating_sub(SCORE_IN_VAIN);
            }
        } else if slept < self.limit {
            // Work came as soon as we let go of the CPU.
            self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, LAST_BACKOFF);
            self.skip = self.backoff;
        }
        self.choose();
    }

    /// How long to spin in the next gap.
    fn choose(&mut self) {
        let probes = self.score < SCORE_PAYS && {
            self.until_probe = self.until_probe.checked_sub(1).unwrap_or(PROBE_EVERY);
            self.until_probe == 0
        };
        self.this = if self.score >= SCORE_PAYS || probes { self.limit } else { self.brief };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Nanos = 100_000;
    /// What it takes to be woken.
    const WAKE: Nanos = 20_000;

    fn adaptive() -> Spinner {
        Spinner::new(PollPolicy::Adaptive { spin: Duration::from_nanos(SPIN) })
    }

    fn eager() -> Spinner {
        Spinner::new(PollPolicy::Eager { spin: Duration::from_nanos(SPIN) })
    }

    /// Spins until the policy says sleep, or until work arrives after `gap`; how long it spun, and whether that caught
    /// it.
    fn round(s: &mut Spinner, gap: Nanos, peer_needs_our_cpu: bool) -> (Nanos, bool) {
        let spun = (0..=SPIN).step_by(1000).find(|idle| s.should_sleep(*idle)).unwrap();
        if !peer_needs_our_cpu && gap < spun {
            s.hit();
            return (gap, true);
        }
        s.sleeping();
        s.woke(if peer_needs_our_cpu { gap } else { gap - spun + WAKE });
        (spun, false)
    }

    /// The share of so many gaps that is spun through, and how many of them are caught.
    fn rounds(s: &mut Spinner, count: usize, gap: impl Fn(u64) -> Nanos) -> (f64, usize) {
        let (mut spun, mut all, mut caught) = (0, 0, 0);
        for n in 0..count {
            let gap = gap(stdx::num::u64_of(n));
            let (took, hit) = round(s, gap, false);
            (spun, all, caught) = (spun + took, all + gap, caught + usize::from(hit));
        }
        (spun as f64 / all as f64, caught)
    }

    #[test]
    fn steady_load_is_caught_spinning() {
        for mut s in [adaptive(), eager()] {
            assert_eq!(rounds(&mut s, 100, |_| 10_000).1, 100);
        }
    }

    #[test]
    fn long_gaps_are_spun_through_for_no_longer_than_a_wake_costs() {
        for gap in [110_000, 150_000, 1_000_000, 10_000_000] {
            let mut s = adaptive();
            rounds(&mut s, 100, |_| gap);
            let (spun, caught) = rounds(&mut s, 10_000, |_| gap);
            let brief = 5_000.0 + SPIN as f64 / f64::from(PROBE_EVERY);
            assert!(spun * gap as f64 <= brief && caught == 0, "{spun} of {gap}, {caught} caught");
        }
        let (spun, _) = rounds(&mut eager(), 1000, |_| 1_000_000);
        assert!(spun > 0.09, "{spun}");
    }

    #[test]
    fn spinning_comes_back_when_gaps_are_short_again() {
        // With the wake, the second and third look as if no spin could catch them.
        for gap in [10_000, 85_000, 95_000] {
            let mut s = adaptive();
            rounds(&mut s, 10_000, |_| 1_000_000);
            rounds(&mut s, 100, |_| gap);
            assert_eq!(rounds(&mut s, 100, |_| gap).1, 100, "{gap}");
        }
    }

    #[test]
    fn gaps_of_both_kinds_are_spun_through_where_most_are_short() {
        let mixed = |long_every: u64| {
            move |n: u64| if n.is_multiple_of(long_every) { 1_000_000 } else { 20_000 }
        };
        let caught = rounds(&mut adaptive(), 10_000, mixed(10)).1;
        assert!(caught > 8_500, "{caught} of 9,000");
        let mostly_long = |n: u64| if n.is_multiple_of(10) { 20_000 } else { 1_000_000 };
        let (spun, _) = rounds(&mut adaptive(), 10_000, mostly_long);
        assert!(spun < 0.02, "{spun}");
    }

    #[test]
    fn a_peer_on_our_cpu_ends_the_spinning() {
        for mut s in [adaptive(), eager()] {
            for _ in 0..10_000 {
                assert!(!round(&mut s, 10_000, true).1);
            }
            let whole = (0..10_000).filter(|_| round(&mut s, 10_000, true).0 == SPIN).count();
            assert!(whole < 30, "{whole} spins in vain");
        }
    }

    #[test]
    fn spinning_comes_back_when_the_peer_moves_away() {
        for mut s in [adaptive(), eager()] {
            for _ in 0..100_000 {
                round(&mut s, 10_000, true);
            }
            let caught = rounds(&mut s, 2100, |_| 10_000).1;
            assert!(caught > 1000, "{caught}");
        }
    }

    #[test]
    fn long_gaps_neither_punish_nor_sleep_early() {
        let mut s = eager();
        for _ in 0..100 {
            assert!(!s.should_sleep(SPIN - 1));
            assert!(s.should_sleep(SPIN));
            s.sleeping();
            s.woke(10 * SPIN);
        }
    }

    #[test]
    fn busy_never_sleeps_and_interrupt_always() {
        assert!(!Spinner::new(PollPolicy::Busy).should_sleep(Nanos::MAX - 1));
        assert!(Spinner::new(PollPolicy::Interrupt).should_sleep(0));
    }
}
