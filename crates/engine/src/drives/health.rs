//! How drives fare: which are slow, which fall apart, which keep others waiting.

use crate::limits::{
    ERROR_WINDOW, HEDGE_MAX, HEDGE_MIN, HEDGES_AT_ONCE, HUNG_FOR, LATE_FACTOR, LATE_MIN, PACE_MIN,
    PROBE_PAUSE, READS_A_HEDGE,
};
use reactor::{Nanos, now};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

fn nanos(span: Duration) -> Nanos {
    Nanos::try_from(span.as_nanos()).unwrap_or(Nanos::MAX)
}

/// How many of the last few operations of one kind were late, in parts of 65,536: each new one counts a sixteenth.
#[derive(Debug, Default)]
pub(super) struct Lateness(AtomicU32);

/// All of them.
const ALL: u32 = 1 << 16;

impl Lateness {
    pub fn note(&self, is_late: bool) {
        let rate = self.0.load(Ordering::Relaxed);
        let late = if is_late { ALL / 16 } else { 0 };
        // Shards that note at the same time may forget each other's: it is an estimate.
        self.0.store(rate - rate / 16 + late, Ordering::Relaxed);
    }

    pub fn rate(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Most of them were.
    pub fn is_high(&self) -> bool {
        self.rate() > ALL / 2
    }

    /// Few of them were, so that it is not called slow any more.
    pub fn is_low(&self) -> bool {
        self.rate() < ALL / 4
    }

    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Whether so many drives answer in time, on average, that one that does not is to blame for it itself.
pub(super) fn are_in_time(rates: impl Iterator<Item = u32>) -> bool {
    let (mut sum, mut count) = (0, 0);
    for rate in rates {
        sum += u64::from(rate);
        count += 1;
    }
    count > 0 && sum <= count * u64::from(ALL / 8)
}

/// What all shards know of a drive that is in use. Nothing depends on it but which drive is asked first.
#[derive(Debug, Default)]
pub(super) struct Health {
    pub reads: Lateness,
    pub writes: Lateness,
    /// What it takes of the log.
    pub appends: Lateness,
    /// Reads go around it.
    avoided: AtomicBool,
    /// When it may be asked next whether that is still needed.
    probe_at: AtomicU64,
    /// Until when a drive out of use is not asked for anything; 0 when it may be.
    hung: AtomicU64,
    /// Errors since then.
    errors: AtomicU64,
    since: AtomicU64,
    /// It is being asked whether it answers.
    probed: AtomicBool,
    /// Steps of [`WRITE_PATIENCE`](crate::limits::WRITE_PATIENCE) for which it has not answered that.
    silent: AtomicU32,
}

impl Health {
    pub fn avoid(&self) {
        self.probe_at.store(now() + nanos(PROBE_PAUSE), Ordering::Relaxed);
        self.avoided.store(true, Ordering::Relaxed);
    }

    /// A read of it was late, or in time.
    pub fn note_read(&self, is_late: bool) {
        self.reads.note(is_late);
        if !is_late && self.is_avoided() && self.reads.is_low() {
            self.avoided.store(false, Ordering::Relaxed);
        }
    }

    /// Whether reads go around it.
    pub fn is_avoided(&self) -> bool {
        self.avoided.load(Ordering::Relaxed)
    }

    /// Whether it is time to ask it, beside the reads that go around it, whether that is still needed.
    pub fn is_probe_due(&self) -> bool {
        let at = self.probe_at.load(Ordering::Relaxed);
        let next = now() + nanos(PROBE_PAUSE);
        let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        now() >= at && self.probe_at.compare_exchange(at, next, done, failed).is_ok()
    }

    /// It did not answer within its deadline.
    pub fn hangs(&self) {
        self.rests(HUNG_FOR);
    }

    /// It did not answer, and is not asked for so long once it is out of use.
    pub fn rests(&self, span: Duration) {
        self.hung.fetch_max(now() + nanos(span), Ordering::Relaxed);
    }

    /// Whether it did not answer lately: whoever can do without it does not wait for it.
    pub fn is_hung(&self) -> bool {
        now() < self.hung.load(Ordering::Relaxed)
    }

    /// Whether it is to be asked if it answers; whoever is told so asks, and [ends](Self::end_probe) that.
    pub fn begin_probe(&self) -> bool {
        !self.probed.swap(true, Ordering::Relaxed)
    }

    /// It did not answer for one step more.
    pub fn stays_silent(&self) {
        self.silent.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end_probe(&self) {
        self.silent.store(0, Ordering::Relaxed);
        self.probed.store(false, Ordering::Relaxed);
    }

    /// For how many steps it has answered nothing.
    pub fn silent_steps(&self) -> u32 {
        self.silent.load(Ordering::Relaxed)
    }

    /// Another drive is there.
    pub fn forget(&self) {
        self.hung.store(0, Ordering::Relaxed);
        self.avoided.store(false, Ordering::Relaxed);
        self.errors.store(0, Ordering::Relaxed);
        self.reads.forget();
        self.writes.forget();
        self.appends.forget();
    }

    /// Notes so many errors; how many there were lately.
    pub fn note_errors(&self, errors: u64) -> u64 {
        let since = self.since.load(Ordering::Relaxed);
        if now().saturating_sub(since) >= nanos(ERROR_WINDOW) {
            self.since.store(now(), Ordering::Relaxed);
            self.errors.store(0, Ordering::Relaxed);
        }
        self.errors.fetch_add(errors, Ordering::Relaxed) + errors
    }
}

/// How long operations of one kind take that one shard makes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    mean: AtomicU64,
}

impl Pace {
    pub fn note(&self, span: Nanos) {
        let mean = self.mean.load(Ordering::Relaxed);
        // What is far out says nothing of how long they take: half of the drives may be slow, and it stays below twice
        // what the others need.
        let span = span.min((mean + mean / 2).max(PACE_MIN));
        self.mean.store(mean - mean / 64 + span / 64, Ordering::Relaxed);
    }

    /// What takes longer than this is late.
    pub fn patience(&self) -> Duration {
        let mean = self.mean.load(Ordering::Relaxed);
        Duration::from_nanos(mean.saturating_mul(LATE_FACTOR)).clamp(LATE_MIN, HEDGE_MAX)
    }

    /// What takes longer than this is not waited for while there are others.
    pub fn hedge(&self) -> Duration {
        self.patience().clamp(HEDGE_MIN, HEDGE_MAX)
    }
}

/// How many reads may be asked of the others although their drive was only late: a share of all reads, so that drives
/// that have too much to do do not get more of it.
#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU64::new(HEDGES_AT_ONCE * READS_A_HEDGE))
    }
}

impl Budget {
    /// Only one reactor changes it.
    pub fn note_read(&self) {
        let has = self.0.load(Ordering::Relaxed);
        self.0.store((has + 1).min(HEDGES_AT_ONCE * READS_A_HEDGE), Ordering::Relaxed);
    }

    pub fn take(&self) -> bool {
        let has = self.0.load(Ordering::Relaxed);
        self.0.store(has.saturating_sub(READS_A_HEDGE), Ordering::Relaxed);
        has >= READS_A_HEDGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_answer_makes_no_drive_slow_and_many_do() {
        let lateness = Lateness::default();
        lateness.note(true);
        assert!(lateness.is_low() && !lateness.is_high());
        for _ in 0..12 {
            lateness.note(true);
        }
        assert!(lateness.is_high());
        // Every third one late.
        for n in 0..99 {
            lateness.note(n % 3 == 0);
        }
        assert!(!lateness.is_high() && !lateness.is_low());
        for _ in 0..12 {
            lateness.note(false);
        }
        assert!(lateness.is_low());
        for _ in 0..10_000 {
            lateness.note(true);
        }
        assert!(lateness.rate() <= ALL);
    }

    #[test]
    fn a_drive_is_slow_by_itself_only_where_others_are_not() {
        assert!(are_in_time([0, ALL / 8, 0].into_iter()));
        assert!(!are_in_time([0, ALL / 2].into_iter()));
        assert!(!are_in_time(std::iter::empty()));
    }

    #[test]
    fn half_of_the_drives_do_not_make_the_others_wait() {
        let pace = Pace::default();
        for _ in 0..10_000 {
            pace.note(200_000);
            pace.note(10_000_000);
        }
        assert!(pace.patience() < Duration::from_millis(4), "{:?}", pace.patience());
        for _ in 0..10_000 {
            pace.note(10_000_000);
        }
        assert!(pace.patience() > Duration::from_millis(60), "{:?}", pace.patience());
    }

    #[test]
    fn hedges_are_a_share_of_the_reads() {
        let budget = Budget::default();
        let taken = (0..1000).filter(|_| budget.take()).count();
        assert_eq!(stdx::num::u64_of(taken), HEDGES_AT_ONCE);
        let mut taken = 0;
        for _ in 0..1000 * READS_A_HEDGE {
            budget.note_read();
            taken += u64::from(budget.take());
        }
        assert!(taken <= 1000, "{taken}");
        (0..10 * READS_A_HEDGE).for_each(|_| budget.note_read());
        assert!(budget.take());
    }
}
