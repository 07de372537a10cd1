//! When a reactor with nothing to do spins, and when it sleeps. Arithmetic only.

use crate::limits::DEFAULT_SPIN;
use crate::time::{Nanos, nanos_of};
use std::time::Duration;

/// What a reactor does when it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollPolicy {
    /// Spins for at most `spin` after the last work, then sleeps in the ring.
    Adaptive { spin: Duration },
    /// Never sleeps. Idle for a while, it gives its CPU to others who want it.
    Busy,
    /// Sleeps at once.
    Interrupt,
}

impl Default for PollPolicy {
    fn default() -> Self {
        Self::Adaptive { spin: DEFAULT_SPIN }
    }
}

/// After a spin that found nothing although work came soon after, this many sleeps pass before the
/// next try; doubled with every further failure.
const FIRST_BACKOFF: u32 = 4;
const LAST_BACKOFF: u32 = 1024;

/// Learns whether spinning pays.
///
/// It does not when the peer shares this CPU: the peer can only answer once we sleep. The sign is a
/// spin that ended without work followed by a short sleep. Then most spins are skipped, and one in
/// `backoff` sleeps tries again. For a reactor, and for any thread that waits for one.
#[derive(Debug)]
pub struct Spinner {
    limit: Nanos,
    backoff: u32,
    /// Sleeps left until spinning is tried again.
    skip: u32,
    spun_in_vain: bool,
}

impl Spinner {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(policy: PollPolicy) -> Self {
        let limit = match policy {
            PollPolicy::Adaptive { spin } => nanos_of(spin),
            PollPolicy::Busy => Nanos::MAX,
            PollPolicy::Interrupt => 0,
        };
        Self { limit, backoff: 0, skip: 0, spun_in_vain: false }
    }

    /// Whether a thread idle for `idle` should sleep now.
    #[must_use]
    pub const fn should_sleep(&self, idle: Nanos) -> bool {
        idle >= self.limit || self.skip > 0
    }

    /// Work arrived while spinning: spinning pays.
    pub const fn hit(&mut self) {
        if self.skip == 0 {
            self.backoff = 0;
        }
    }

    /// The thread goes to sleep.
    pub const fn sleeping(&mut self) {
        self.spun_in_vain = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
    }

    /// The thread woke after `slept`.
    pub fn woke(&mut self, slept: Nanos) {
        if !self.spun_in_vain || self.limit == 0 {
            return;
        }
        if slept < self.limit {
            // Work came as soon as we let go of the CPU.
            self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, LAST_BACKOFF);
            self.skip = self.backoff;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Nanos = 100_000;

    fn adaptive() -> Spinner {
        Spinner::new(PollPolicy::Adaptive { spin: Duration::from_nanos(SPIN) })
    }

    /// Spins until the policy says sleep; true if work arriving after `gap` is caught spinning.
    fn round(s: &mut Spinner, gap: Nanos, peer_needs_our_cpu: bool) -> bool {
        if !peer_needs_our_cpu && !s.should_sleep(0) && gap < SPIN {
            s.hit();
            return true;
        }
        s.sleeping();
        s.woke(gap);
        false
    }

    #[test]
    fn steady_load_is_caught_spinning() {
        let mut s = adaptive();
        assert!((0..100).all(|_| round(&mut s, 10_000, false)));
    }

    #[test]
    fn a_peer_on_our_cpu_ends_the_spinning() {
        let mut s = adaptive();
        let mut spins = 0;
        for _ in 0..10_000 {
            if !s.should_sleep(0) {
                spins += 1;
            }
            assert!(!round(&mut s, 10_000, true));
        }
        assert!(spins < 30, "{spins} spins in vain");
    }

    #[test]
    fn spinning_comes_back_when_the_peer_moves_away() {
        let mut s = adaptive();
        for _ in 0..100_000 {
            round(&mut s, 10_000, true);
        }
        let caught = (0..2100).filter(|_| round(&mut s, 10_000, false)).count();
        assert!(caught > 1000, "{caught}");
    }

    #[test]
    fn long_gaps_neither_punish_nor_sleep_early() {
        let mut s = adaptive();
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
