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

use super::base::Base;
use super::events::Event;
use crate::address::{Key, View};
use crate::canary::{self, Canary};
use crate::error::Result;
use crate::limits::{
    COUNT_KEYS, COUNT_PAGES, COUNT_PAUSE, COUNT_PAUSE_FACTOR, COUNT_PAUSE_MAX, LEFT_ALONE,
};
use crate::used::Counts;

/// Counts what volumes use.
pub struct Counting {
    base: Rc<Base>,
    /// The first record of the log that the last count did not know; 0 before the first one.
    as_of: Cell<u64>,
    /// Counts that did not come to their end.
    failed: Cell<u64>,
    /// Whoever changes something has to say so.
    idle: Cell<bool>,
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

impl Counting {
    #[must_use]
    pub const fn new(base: Rc<Base>) -> Self {
        Self { base, as_of: Cell::new(0), failed: Cell::new(0), idle: Cell::new(false) }
    }

    /// Something was appended to the log.
    #[inline]
    pub fn note_change(&self) {
        if self.idle.replace(false) {
            self.base.events.raise(Event::Counted);
        }
    }

    /// Counts again and again, as long as things change, until the shard ends.
    pub async fn run(self: Rc<Self>) {
        let ends = || self.base.is_over();
        let mut pause = COUNT_PAUSE;
        loop {
            let changes = || {
                // Whoever said that something changes may have said so before it had.
                self.idle.set(true);
                ends() || self.base.log.settled() != self.as_of.get()
            };
            self.base.events.until(Event::Counted, changes).await;
            self.idle.set(false);
            if ends() || !self.rests(pause).await {
                return;
            }
            let as_of = self.base.log.settled();
            match self.count_views().await {
                Ok(Some(Counted { counts, is_whole, took })) => {
                    self.base.common.used.publish(self.base.writer.shard(), counts);
                    if is_whole {
                        self.as_of.set(as_of);
                    }
                    pause = COUNT_PAUSE.max(pause_after(took));
                }
                Ok(None) => return,
                Err(_) => {
                    // Whoever reads that page for its own ends sees to it.
                    self.failed.set(self.failed.get() + 1);
                    pause = LEFT_ALONE;
                }
            }
            self.base.events.raise(Event::Counted);
        }
    }

    /// Does nothing for a while. False when the shard ends.
    async fn rests(&self, pause: Duration) -> bool {
        let ended = self.base.events.until(Event::Counted, || self.base.has_ended());
        reactor::timeout(pause, ended).await.is_err()
    }

    /// Counts the blocks of all volumes once. `None` when the shard ends.
    async fn count_views(&self) -> Result<Option<Counted>> {
        let (mut counts, mut is_whole) = (BTreeMap::new(), true);
        let (mut at, end) = (Key::new(View::new(1), 0), Key::new(View::SHARED, 0));
        let mut begun = now_exact();
        while at < end {
            let mut newest = self.base.log.newest(at..end, COUNT_KEYS).await;
            if canary::has(Canary::CountsWithoutLog) {
                newest.spans.clear();
            }
            is_whole &= newest.is_whole;
            while at < newest.until {
                at = {
                    // The map's pages stay where they are while they are looked at.
                    let _reading = self.base.grace.enter();
                    let found = |view, blocks| *counts.entry(view).or_insert(0) += blocks;
                    let (range, stop) = (at..newest.until, || self.base.has_ended());
                    self.base.map.count(range, &newest.spans, COUNT_PAGES, stop, found).await?
                };
                let took = Duration::from_nanos(now_exact() - begun);
                if self.base.has_ended() {
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
        let (settled, failed) = (self.base.log.settled(), self.failed.get());
        let knows = || self.as_of.get() >= settled;
        let ends = || self.base.is_over();
        let done = || knows() || ends() || self.failed.get() > failed;
        self.base.events.until(Event::Counted, done).await;
        knows()
    }
}
