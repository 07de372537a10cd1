//! Drives that are asked for something together, and the one that keeps the others waiting.

use super::{Cause, DriveSet, Shared};
use crate::address::BLOCK;
use crate::canary::{self, Canary};
use crate::limits::{LATE_FACTOR, LATE_MIN, WRITE_PATIENCE, WRITE_PATIENCE_STEPS};
use media::Drive;
use reactor::{Nanos, now, timeout};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Drives that are asked for something together, by one task.
pub struct Company {
    begun: Nanos,
    /// How long the first of them took.
    first: Cell<Option<Nanos>>,
    ended: Cell<usize>,
    enough: usize,
}

impl Company {
    /// Of which so many are enough.
    #[must_use]
    pub fn new(enough: usize) -> Self {
        Self { begun: now(), first: Cell::new(None), ended: Cell::new(0), enough }
    }

    pub(super) fn one_ended(&self) {
        self.first.set(self.first.get().or(Some(now() - self.begun)));
        self.ended.set(self.ended.get() + 1);
    }

    /// Whether one that has just ended took much longer than the first.
    pub(super) fn is_late(&self) -> bool {
        let first = self.first.get().unwrap_or_default();
        let borne = Duration::from_nanos(first.saturating_mul(LATE_FACTOR)).max(LATE_MIN);
        Duration::from_nanos(now() - self.begun) > borne
    }

    /// Whether enough have done what they were asked.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.get() >= self.enough
    }
}

impl DriveSet {
    /// Waits for what a drive was asked together with others, for no longer than they make it wait: one that
    /// does not answer although enough of them have is taken out of use, where it can be spared. `None` then.
    pub async fn in_company<T, E>(
        &self,
        drive: u16,
        company: &Company,
        change: impl Future<Output = std::result::Result<T, E>>,
    ) -> Option<std::result::Result<T, E>> {
        let mut change = pin!(change);
        let media = self.written(drive);
        let step = WRITE_PATIENCE / WRITE_PATIENCE_STEPS;
        let mut steps = 0;
        loop {
            // In steps: those in which this process was stopped itself count as one.
            if let Ok(done) = timeout(step, change.as_mut()).await {
                if done.is_ok() {
                    company.one_ended();
                }
                return Some(done);
            }
            steps += 1;
            if steps == 1 {
                self.probe_others(drive);
            }
            let silent = steps.max(self.slot(drive).health.silent_steps());
            let why = || {
                Cause::because("it answers nothing, and the others have what it was asked to take")
            };
            let spared = || media.is_none_or(|media| self.fail_if_spared(drive, media, why()));
            let is_over = silent >= WRITE_PATIENCE_STEPS && company.has_ended();
            if is_over && !canary::has(Canary::WaitsForHung) && spared() {
                self.note_hang(drive);
                return None;
            }
        }
    }

    /// One drive does not answer. What takes one may take several, and those that are asked for nothing now would be
    /// waited for once this one is out of use, just as long: they are asked at once whether they answer.
    fn probe_others(&self, but: u16) {
        for drive in self.indices().filter(|&drive| drive != but) {
            self.probe(drive, 0, self.reads.patience());
        }
    }

    /// Has a block of a drive read beside everything else, unless one is already.
    pub(super) fn probe(&self, drive: u16, at: u64, patience: Duration) {
        let Some(media) = self.written(drive).cloned() else { return };
        if self.slot(drive).health.begin_probe() {
            let probe = probe(Arc::clone(&self.shared), usize::from(drive), media, at, patience);
            drop(reactor::spawn(probe));
        }
    }
}

/// Reads a block of a drive, and notes for how long it does not come, and whether it came in time.
async fn probe(shared: Arc<Shared>, drive: usize, media: Arc<Drive>, at: u64, patience: Duration) {
    let health = &shared.slots[drive].health;
    let buffer = media.buffer(at, BLOCK, &reactor::buffer::pool()).await;
    let begun = now();
    let mut read = pin!(media.fill(at, BLOCK, buffer));
    // In steps, as where its writes are waited for.
    let done = loop {
        match timeout(WRITE_PATIENCE / WRITE_PATIENCE_STEPS, read.as_mut()).await {
            Ok(done) => break done,
            Err(_) => health.stays_silent(),
        }
    };
    let is_late = u128::from(now() - begun) > patience.as_nanos();
    health.note_read(is_late || done.is_err());
    health.end_probe();
}
