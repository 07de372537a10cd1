//! What the watching thread makes of the workers' counters: progress, and whether there is any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reactor::Nanos;

use crate::job::Plan;
use crate::report::{rate, ratio};
use crate::share::Share;
use crate::worker::Live;
use crate::{Phase, Progress};

/// Sums of the workers' counters at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    reads: u64,
    writes: u64,
    bytes: u64,
    errors: u64,
    submitted: u64,
    completed: u64,
    to_verify: u64,
}

/// Watches one run.
pub struct Watch {
    workers: Vec<Arc<Live>>,
    /// Bytes of all workers together, when every one has a number.
    bytes: Option<u64>,
    /// The longest runtime of a job, warming up included.
    runtime: Nanos,
    phase: Phase,
    entered: Nanos,
    at_entry: Sums,
    last: (Nanos, Sums),
    /// When the number of completions last moved.
    moved: Nanos,
    /// How long it may not.
    patience: Nanos,
}

impl Watch {
    pub fn new(plan: &Plan, shares: &[(usize, Share)]) -> Self {
        let bytes = shares.iter().try_fold(0u64, |sum, (_, share)| {
            let bytes = share.amount.saturating_mul(share.bytes().into());
            (share.amount < u64::MAX).then_some(sum.saturating_add(bytes))
        });
        let runtime = |share: &Share| share.runtime.map(|time| time.saturating_add(share.ramp));
        let runtime = shares.iter().filter_map(|(_, share)| runtime(share)).max().unwrap_or(0);
        debug_assert!(!plan.jobs.is_empty(), "a checked plan has jobs");
        Self {
            workers: shares.iter().map(|_| Arc::default()).collect(),
            bytes,
            runtime,
            phase: Phase::Connecting,
            entered: 0,
            at_entry: Sums::default(),
            last: (0, Sums::default()),
            moved: 0,
            patience: Nanos::try_from(plan.patience().as_nanos()).unwrap_or(Nanos::MAX),
        }
    }

    /// The counters of worker `index`.
    pub fn live(&self, index: usize) -> Arc<Live> {
        Arc::clone(&self.workers[index])
    }

    /// A phase begins.
    pub fn enter(&mut self, phase: Phase, now: Nanos) {
        self.phase = phase;
        self.entered = now;
        self.at_entry = self.sums();
        self.last = (now, self.at_entry);
        self.moved = now;
    }

    fn sums(&self) -> Sums {
        let sum = |counter: fn(&Live) -> &AtomicU64| {
            self.workers.iter().map(|live| counter(live).load(Ordering::Relaxed)).sum()
        };
        Sums {
            reads: sum(|live| &live.reads),
            writes: sum(|live| &live.writes),
            bytes: sum(|live| &live.bytes),
            errors: sum(|live| &live.errors),
            submitted: sum(|live| &live.submitted),
            completed: sum(|live| &live.completed),
            to_verify: sum(|live| &live.to_verify),
        }
    }

    /// Commands completed so far.
    pub fn completed(&self) -> u64 {
        self.sums().completed
    }

    /// Looks at the counters.
    pub fn look(&mut self, now: Nanos) -> Progress {
        let sums = self.sums();
        let (then, before) = self.last;
        let away = self.workers.iter().any(|live| live.away.load(Ordering::Relaxed));
        // How long the target may be away is the namespace's to know.
        if away || sums.completed != before.completed || sums.submitted <= sums.completed {
            self.moved = now;
        }
        self.last = (now, sums);
        let elapsed = now.saturating_sub(self.entered);
        let completed = sums.completed - self.at_entry.completed;
        let done = match (self.phase, self.bytes) {
            (Phase::Connecting, _) => 0.0,
            (Phase::Running, Some(bytes)) => ratio(sums.bytes, bytes),
            (Phase::Running, None) => ratio(elapsed, self.runtime),
            (Phase::Verifying, _) => ratio(completed, sums.to_verify),
        };
        let interval = now.saturating_sub(then);
        Progress {
            phase: self.phase,
            elapsed: Duration::from_nanos(elapsed),
            done,
            reads: sums.reads,
            writes: sums.writes,
            bytes: sums.bytes,
            read_iops: rate(sums.reads.saturating_sub(before.reads), interval),
            write_iops: rate(sums.writes.saturating_sub(before.writes), interval),
            errors: sums.errors,
        }
    }

    /// Whether commands are outstanding and none has completed for too long.
    pub fn stalled(&self, now: Nanos) -> bool {
        now.saturating_sub(self.moved) > self.patience
    }
}
