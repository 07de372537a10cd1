//! Counting how much of its volumes a shard has, behind everything else.
//!
//! Nobody keeps these numbers as blocks come and go: whether a write replaces something is found by a merge, some
//! time later. So the map is gone through with the log over it, after something has changed, at a leisurely pace:
//! a piece at a time, with a pause after each in proportion to what it took.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use reactor::now_exact;
use reactor::sync::Signal;

use super::Shard;
use crate::address::{Key, View};
use crate::canary::{self, Canary};
use crate::error::Result;
use crate::limits::{
    COUNT_KEYS, COUNT_PAGES, COUNT_PAUSE, COUNT_PAUSE_FACTOR, COUNT_PAUSE_MAX, LEFT_ALONE,
};
use crate::used::Counts;

/// How the counting goes.
#[derive(Debug, Default)]
pub struct Counting {
    /// The first record of the log that the last count did not know; 0 before the first one.
    as_of: Cell<u64>,
    /// Counts that did not come to their end.
    failed: Cell<u64>,
    /// Whoever changes something has to say so.
    idle: Cell<bool>,
    /// Raised when something changed, a count ended, or the shard ends.
    pub(super) changed: Signal,
}

/// How far a count came.
struct Counted {
    counts: Counts,
    /// It has all that the log had when it began.
    is_whole: bool,
    /// What its last piece took.
    took: Duration,
}

/// How long to do nothing after a piece that took so long.
fn pause_after(took: Duration) -> Duration {
    (took * COUNT_PAUSE_FACTOR).min(COUNT_PAUSE_MAX)
}

impl Shard {
    /// Something was appended to the log.
    pub(super) fn note_change(&self) {
        if self.counting.idle.replace(false) {
            self.counting.changed.raise();
        }
    }

    /// Counts again and again, as long as things change, until the shard ends.
    pub(super) async fn count_used(self: Rc<Self>) {
        let counting = &self.counting;
        let ends = || self.ended.get() || self.writer.check().is_err();
        let mut pause = COUNT_PAUSE;
        loop {
            counting.idle.set(true);
            counting.changed.until(|| ends() || self.log.settled() != counting.as_of.get()).await;
            counting.idle.set(false);
            if ends() || !self.rests(pause).await {
                return;
            }
            let as_of = self.log.settled();
            match self.count_views().await {
                Ok(Some(Counted { counts, is_whole, took })) => {
                    self.common.used.publish(self.writer.shard, counts);
                    if is_whole {
                        counting.as_of.set(as_of);
                    }
                    pause = COUNT_PAUSE.max(pause_after(took));
                }
                Ok(None) => return,
                Err(_) => {
                    // Whoever reads that page for its own ends sees to it.
                    counting.failed.set(counting.failed.get() + 1);
                    pause = LEFT_ALONE;
                }
            }
            counting.changed.raise();
        }
    }

    /// Does nothing for a while. False when the shard ends.
    async fn rests(&self, pause: Duration) -> bool {
        let ended = self.counting.changed.until(|| self.ended.get());
        reactor::timeout(pause, ended).await.is_err()
    }

    /// Counts the blocks of all volumes once. `None` when the shard ends.
    async fn count_views(&self) -> Result<Option<Counted>> {
        let (mut counts, mut is_whole) = (BTreeMap::new(), true);
        let (mut at, end) = (Key::new(View::new(1), 0), Key::new(View::SHARED, 0));
        let mut begun = now_exact();
        while at < end {
            let mut newest = self.log.newest(at..end, COUNT_KEYS).await;
            if canary::has(Canary::CountsWithoutLog) {
                newest.spans.clear();
            }
            is_whole &= newest.is_whole;
            while at < newest.until {
                at = {
                    // The map's pages stay where they are while they are looked at.
                    let _reading = self.grace.enter();
                    let found = |view, blocks| *counts.entry(view).or_insert(0) += blocks;
                    let (range, stop) = (at..newest.until, || self.ended.get());
                    self.map.count(range, &newest.spans, COUNT_PAGES, stop, found).await?
                };
                let took = Duration::from_nanos(now_exact() - begun);
                if self.ended.get() {
                    return Ok(None);
                }
                if at == end {
                    return Ok(Some(Counted { counts, is_whole, took }));
                }
                if !self.rests(pause_after(took)).await {
                    return Ok(None);
                }
                begun = now_exact();
            }
        }
        Ok(Some(Counted { counts, is_whole, took: Duration::ZERO }))
    }

    /// Waits until all that is in the log now is counted; tells whether it was: a count may not come to its end.
    pub async fn counted(&self) -> bool {
        let (settled, failed) = (self.log.settled(), self.counting.failed.get());
        let knows = || self.counting.as_of.get() >= settled;
        let ends = || self.ended.get() || self.writer.check().is_err();
        let done = || knows() || ends() || self.counting.failed.get() > failed;
        self.counting.changed.until(done).await;
        knows()
    }
}
