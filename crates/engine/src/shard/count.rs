//! Counting how much of its volumes a shard has, behind everything else.
//!
//! Nobody keeps these numbers as blocks come and go: whether a write replaces something is found by a merge, some
//! time later. So the map is gone through with the log over it, after something has changed, at a leisurely pace:
//! a piece at a time, with a pause after each in proportion to what it took.
//!
//! What snapshots see is counted in the same pass, from the map alone: before it begins, what they see of the log goes
//! there.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use reactor::now_exact;

use super::base::Base;
use super::bounded::BoundedVolumes;
use super::capacity::Capacity;
use super::carry::Carrying;
use super::events::Event;
use crate::address::{Key, View};
use crate::canary::{self, Canary};
use crate::error::{Kind, Result};
use crate::limits::{
    COUNT_KEYS, COUNT_PAGES, COUNT_PAUSE, COUNT_PAUSE_FACTOR, COUNT_PAUSE_MAX, LEFT_ALONE,
};
use crate::used::{Counts, Seen};

/// Counts what volumes use.
pub struct Counting {
    base: Rc<Base>,
    capacity: Rc<Capacity>,
    carry: Rc<Carrying>,
    quotas: Rc<BoundedVolumes>,
    /// What the last count knew; nothing before the first one.
    as_of: Cell<AsOf>,
    /// Counts that did not come to their end.
    failed: Cell<u64>,
    /// Whoever changes something has to say so.
    idle: Cell<bool>,
}

/// Of what a count is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AsOf {
    /// The first record of the log that it did not know.
    record: u64,
    /// Snapshots that had been taken, and deleted.
    snapshots: u64,
}

/// How far a count came.
struct Counted {
    counts: Counts,
    /// It has what snapshots see.
    has_older: bool,
    /// What its last piece took.
    took: Duration,
}

/// How long to do nothing after a piece that took so long.
fn pause_after(took: Duration) -> Duration {
    (took * COUNT_PAUSE_FACTOR).min(COUNT_PAUSE_MAX)
}

impl Counting {
    #[must_use]
    pub fn new(
        base: Rc<Base>,
        capacity: Rc<Capacity>,
        carry: Rc<Carrying>,
        quotas: Rc<BoundedVolumes>,
    ) -> Self {
        let (as_of, failed, idle) = (Cell::default(), Cell::new(0), Cell::new(false));
        Self { base, capacity, carry, quotas, as_of, failed, idle }
    }

    fn now(&self) -> AsOf {
        let (record, snapshots) = (self.base.log.settled(), self.base.common.used.changes());
        AsOf { record, snapshots }
    }

    /// Something was appended to the log, or snapshots came or went.
    #[inline]
    pub fn note_change(&self) {
        if self.idle.replace(false) {
            self.base.events.raise(Event::Counted);
        }
    }

    /// Counts again and again, as long as things change, until the shard ends.
    pub async fn run(self: Rc<Self>) {
        let ends = || self.base.is_over();
        let (mut pause, mut is_first) = (COUNT_PAUSE, true);
        loop {
            let changes = || {
                // Whoever said that something changes may have said so before it had.
                self.idle.set(true);
                ends() || self.now() != self.as_of.get()
            };
            self.base.events.until(Event::Counted, changes).await;
            self.idle.set(false);
            if ends() || !self.rests(pause).await {
                return;
            }
            let (as_of, marks) = (self.now(), self.quotas.marks());
            match self.count_views().await {
                Ok(Some(Counted { counts, has_older, took })) => {
                    // Who gave that back was not remembered over the opening.
                    if is_first && has_older {
                        is_first = false;
                        self.capacity.note_freed(self.base.held().saturating_sub(counts.total()));
                    }
                    if has_older {
                        BoundedVolumes::note_counts(&marks, &counts);
                    }
                    self.base.common.used.publish(self.base.writer.shard(), counts).await;
                    // What snapshots hold is not known: it is tried again, however little changes.
                    let snapshots = if has_older { as_of.snapshots } else { u64::MAX };
                    self.as_of.set(AsOf { snapshots, ..as_of });
                    let least = if has_older { COUNT_PAUSE } else { LEFT_ALONE };
                    pause = least.max(pause_after(took));
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
        let all = Key::new(View::new(1), 0)..Key::new(View::SHARED, 0);
        self.count(&[all], true).await
    }

    /// The versions that are seen of these views, by snapshots and by clones.
    async fn seen(&self, ranges: &[Range<Key>]) -> Seen {
        let mut seen = self.base.common.used.seen().await;
        for (view, sees) in self.base.common.snapshots.of_clones() {
            if canary::has(Canary::QuotaForgetsClones) {
                continue;
            }
            let seen = seen.entry(view).or_default();
            seen.insert(seen.partition_point(|version| *version < sees), sees);
        }
        seen.retain(|view, _| ranges.iter().any(|range| range.contains(&Key::new(*view, 0))));
        seen
    }

    /// Counts what is in these ranges of whole views, in their order, at leisure or at once. `None` when the shard ends.
    async fn count(&self, ranges: &[Range<Key>], at_leisure: bool) -> Result<Option<Counted>> {
        let seen = self.seen(ranges).await;
        let carried = match seen.is_empty() {
            true => Ok(()),
            // From then on the log has nothing that these snapshots see.
            false => self.carry.carry_all().await,
        };
        let seen = match carried {
            Ok(()) => Some(seen),
            // What hosts see is counted all the same.
            Err(error) if error.kind == Kind::Busy => None,
            Err(error) => return Err(error),
        };
        let has_older = seen.is_some();
        let reserved = self
            .quotas
            .reserved()
            .into_iter()
            .filter(|view| ranges.iter().any(|range| range.contains(&Key::new(*view, 0))));
        let (counts, took) = (Counts::new(seen).with_alone(reserved), Duration::ZERO);
        let mut counted = Counted { counts, has_older, took };
        for range in ranges {
            if !self.count_range(range.clone(), at_leisure, &mut counted).await? {
                return Ok(None);
            }
        }
        counted.counts.sum_up();
        Ok(Some(counted))
    }

    /// Counts what is in a range. False when the shard ends.
    async fn count_range(
        &self,
        range: Range<Key>,
        at_leisure: bool,
        counted: &mut Counted,
    ) -> Result<bool> {
        let Range { start: mut at, end } = range;
        let mut begun = now_exact();
        while at < end {
            let mut newest = self.base.log.newest(at..end, COUNT_KEYS).await;
            if canary::has(Canary::CountsWithoutLog) {
                newest.spans.clear();
            }
            while at < newest.until {
                at = {
                    // The map's pages stay where they are while they are looked at.
                    let _reading = self.base.grace.enter();
                    let (range, stop) = (at..newest.until, || self.base.has_ended());
                    let (map, found) = (&self.base.map, &mut counted.counts);
                    map.count(range, &newest.spans, COUNT_PAGES, stop, found).await?
                };
                counted.took = Duration::from_nanos(now_exact() - begun);
                if self.base.has_ended() {
                    return Ok(false);
                }
                if at == end {
                    return Ok(true);
                }
                if !at_leisure {
                    reactor::yield_now().await;
                } else if !self.rests(pause_after(counted.took)).await {
                    return Ok(false);
                }
                begun = now_exact();
            }
        }
        Ok(true)
    }

    /// Counts volumes under a quota whenever their writers ask for it, until the shard ends.
    pub async fn answer(self: Rc<Self>) {
        let (quotas, shard) = (&self.base.common.quotas, self.base.writer.shard());
        while let Some((number, view)) = quotas.next(shard).await {
            let is_counted = self.count_volume(view).await;
            quotas.answer(shard, number, is_counted);
        }
    }

    /// Counts one volume under a quota at once. Tells whether it could.
    async fn count_volume(&self, view: View) -> bool {
        let Some(bounded) = self.quotas.of(view) else { return false };
        let _closed = bounded.close().await;
        let mark = bounded.mark();
        let mut views: Vec<View> = bounded.holding.state.lineage.former.clone();
        views.push(view);
        let whole = |view: View| Key::new(view, 0)..Key::new(View::new(view.get() + 1), 0);
        let ranges: Vec<_> = views.into_iter().map(whole).collect();
        match self.count(&ranges, false).await {
            Ok(Some(Counted { counts, has_older: true, .. })) => {
                bounded.note_counted(&counts, &mark);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Waits until all that is in the log now is counted; tells whether it was: a count may not come to its end.
    pub async fn counted(&self) -> bool {
        let (now, failed) = (self.now(), self.failed.get());
        let knows = || {
            let AsOf { record, snapshots } = self.as_of.get();
            record >= now.record && snapshots >= now.snapshots
        };
        let ends = || self.base.is_over();
        let done = || knows() || ends() || self.failed.get() > failed;
        self.base.events.until(Event::Counted, done).await;
        knows()
    }
}
