//! How drives fare: which are slow, which fall apart, which keep others waiting.

use crate::limits::{AVOID_FOR, ERROR_WINDOW, HEDGE_FACTOR, HEDGE_MAX, HEDGE_MIN, HUNG_FOR};
use reactor::{Nanos, now};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

fn nanos(span: Duration) -> Nanos {
    Nanos::try_from(span.as_nanos()).unwrap_or(Nanos::MAX)
}

/// What all shards know of a drive that is in use. Nothing depends on it but which drive is asked first.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Until when reads go around it; 0 when they do not.
    avoided: AtomicU64,
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
        self.avoided.store(now() + nanos(AVOID_FOR), Ordering::Relaxed);
    }

    /// It did not answer within its deadline.
    pub fn hangs(&self) {
        self.hung.store(now() + nanos(HUNG_FOR), Ordering::Relaxed);
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
        self.avoided.store(0, Ordering::Relaxed);
        self.errors.store(0, Ordering::Relaxed);
    }

    /// It answers in time again.
    pub fn answers(&self) {
        if self.avoided.load(Ordering::Relaxed) != 0 {
            self.avoided.store(0, Ordering::Relaxed);
        }
    }

    pub fn is_slow(&self) -> bool {
        self.avoided.load(Ordering::Relaxed) != 0
    }

    /// False for the one read that is to find out whether it still is slow.
    pub fn is_avoided(&self) -> bool {
        let until = self.avoided.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let next = now() + nanos(AVOID_FOR);
        let tries = now() >= until;
        let exchange =
            |next| self.avoided.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
        !(tries && exchange(next).is_ok())
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

/// How long reads take that one shard makes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    mean: AtomicU64,
}

impl Pace {
    /// Notes a read; tells whether it was in time.
    pub fn note(&self, span: Nanos) -> bool {
        let in_time = span < nanos(self.hedge());
        let mean = self.mean.load(Ordering::Relaxed);
        // What is far out says nothing of how long reads take.
        let span = span.min(nanos(HEDGE_MAX));
        self.mean.store(mean - mean / 64 + span / 64, Ordering::Relaxed);
        in_time
    }

    pub fn hedge(&self) -> Duration {
        let mean = self.mean.load(Ordering::Relaxed);
        Duration::from_nanos(mean.saturating_mul(HEDGE_FACTOR)).clamp(HEDGE_MIN, HEDGE_MAX)
    }
}
