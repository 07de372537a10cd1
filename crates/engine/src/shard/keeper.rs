//! Keeping the map: it learns what stripes have, in their order, is written out when its memory is full, and merged.

mod learn;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use reactor::sync::{Semaphore, Signal};
use reactor::timeout;

use super::base::Base;
use super::candidates::Sought;
use super::checkpoint::Checkpoints;
use super::events::Event;
use crate::canary::{self, Canary, Step};
use crate::error::{Kind, Result};
use crate::limits::OPENING_PATIENCE;
use crate::segment::Stream;

/// Keeps the map of a shard.
pub struct MapKeeper {
    base: Rc<Base>,
    checkpoints: Rc<Checkpoints>,
    /// Hears of references that the map learns.
    sought: Rc<Sought>,
    /// The ordered stripe whose records the map learnt last.
    applied: Cell<u64>,
    /// One flush at a time.
    flushing: Semaphore,
    /// Entries the map's memtable takes when it is empty.
    entries: usize,
    /// Blocks that reclaim moved, since the shard was opened.
    moved: Cell<u64>,
    /// Blocks that got a name as something referred to them, since then.
    named: Cell<u64>,
}

/// What becomes of the flush of an opening.
#[derive(Default)]
struct Told {
    done: Cell<Option<Result<()>>>,
    /// Nobody waits for it any more.
    is_alone: Cell<bool>,
    changed: Signal,
}

impl Told {
    fn is_done(&self) -> bool {
        let done = self.done.take();
        let is_done = done.is_some();
        self.done.set(done);
        is_done
    }
}

/// Waits for the first of two.
async fn first(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| {
        let is_over = a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl MapKeeper {
    /// Of a map whose runs have the records of all ordered stripes up to `applied`.
    #[must_use]
    pub fn new(
        base: Rc<Base>,
        checkpoints: Rc<Checkpoints>,
        sought: Rc<Sought>,
        applied: u64,
    ) -> Self {
        Self {
            entries: base.map.room(),
            base,
            checkpoints,
            sought,
            applied: Cell::new(applied),
            flushing: Semaphore::new(1),
            moved: Cell::new(0),
            named: Cell::new(0),
        }
    }

    /// The ordered stripe whose records the map learnt last.
    #[must_use]
    pub const fn applied(&self) -> u64 {
        self.applied.get()
    }

    /// Blocks that reclaim moved, since the shard was opened.
    #[must_use]
    pub const fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// Blocks that got a name as something referred to them, since the shard was opened.
    #[must_use]
    pub const fn named(&self) -> u64 {
        self.named.get()
    }

    /// Writes what the map learnt into runs, and takes a checkpoint of them. What the map learns
    /// meanwhile waits for the next.
    ///
    /// # Errors
    /// `Failed` when drives failed beyond the redundancy, `Full` when metadata finds no space.
    pub async fn flush(&self) -> Result<()> {
        let _turn = self.flushing.hold(1).await;
        let (cut, applied) = (self.applied.get(), self.base.table().cut());
        self.base.map.flush().await?;
        self.checkpoints.note_flushed(cut);
        self.base.writer.table_mut().settle(&applied);
        self.checkpoints.take().await
    }

    /// As [`flush`](Self::flush), at an orderly end: what the next opening goes by is not a hint where it need not be.
    ///
    /// # Errors
    /// As those.
    pub async fn flush_last(&self) -> Result<()> {
        self.checkpoints.write_exactly();
        self.flush().await
    }

    /// Writes what an opening learnt into runs. Waits for that no longer than drives that have space and answer
    /// need: without, it goes on behind, so that what is there can be read.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), but for `Full`.
    pub async fn flush_opened(self: &Rc<Self>) -> Result<()> {
        let told = Rc::new(Told::default());
        let (this, tell) = (Rc::clone(self), Rc::clone(&told));
        self.base.run(reactor::spawn(async move {
            loop {
                let done = this.flush().await;
                let ends = done.as_ref().err().is_none_or(|error| error.kind != Kind::Full);
                if ends && !tell.is_alone.get() {
                    tell.done.set(Some(done));
                    tell.changed.raise();
                    return;
                }
                tell.is_alone.set(true);
                tell.changed.raise();
                if ends && done.is_ok() || !this.checkpoints.goes_on(done).await {
                    return;
                }
            }
        }));
        let waits_for_space = async {
            let space_wait = self.base.writer.segments().space_wait();
            space_wait.until(|| space_wait.is_tried()).await;
        };
        let done = told.changed.until(|| told.is_alone.get() || told.is_done());
        let _ = timeout(OPENING_PATIENCE, first(done, waits_for_space)).await;
        if let Some(why) = self.base.refuses().filter(|_| canary::has(Canary::OpeningNeedsSpace)) {
            return Err(why.error());
        }
        told.is_alone.set(true);
        told.done.take().unwrap_or(Ok(()))
    }

    /// Writes the map's memory out when it is full, and merges runs, until the shard ends.
    pub async fn maintain(self: Rc<Self>) {
        // Merges left over from before, and the filters of runs that were opened.
        let mut done = self.merge().await;
        while self.checkpoints.goes_on(done).await {
            self.base
                .events
                .until(Event::SpaceChanged, || self.base.has_ended() || self.map_is_nearly_full())
                .await;
            if self.base.has_ended() {
                return;
            }
            done = self.maintain_map().await;
        }
    }

    fn map_is_nearly_full(&self) -> bool {
        self.base.map.room() < self.entries / 4
    }

    /// Flushes the map and merges what is due.
    async fn maintain_map(&self) -> Result<()> {
        self.flush().await?;
        self.merge().await
    }

    async fn merge(&self) -> Result<()> {
        let mut merged = false;
        while !self.base.has_ended() && self.base.map.maintain().await? {
            merged = true;
            reactor::yield_now().await;
        }
        if !merged {
            return Ok(());
        }
        self.checkpoints.take().await
    }

    /// Writes the map out and merges all of it. With `prune` what only snapshots saw that are no more is given up.
    pub async fn compact(&self, prune: bool) -> Result<()> {
        self.flush().await?;
        let _compacting = self.base.map.compacting();
        let _pruning = prune.then(|| self.base.map.pruning());
        while !self.base.has_ended() && self.base.map.maintain().await? {
            reactor::yield_now().await;
        }
        Ok(())
    }

    /// Waits until the map takes so many entries more.
    ///
    /// # Errors
    /// Those of flushing the map, but for `Full`, which is waited out.
    pub async fn reserve(&self, entries: usize) -> Result<()> {
        loop {
            match self.base.map.reserve(entries).await {
                Err(error) if error.kind == Kind::Full => {
                    if !self.checkpoints.wait_for_segments().await {
                        return Err(error);
                    }
                }
                done => {
                    let has_room = self.base.map.room() >= entries;
                    assert!(done.is_err() || has_room, "the map has room for what it learns");
                    return done;
                }
            }
        }
    }

    /// Waits until the map has learnt all that was put into the reclaim stream.
    ///
    /// # Errors
    /// `Failed` when drives failed beyond the redundancy.
    pub async fn settle_reclaim(&self) -> Result<()> {
        self.base.writer.seal(Stream::Reclaim).await?;
        let last = self.base.writer.numbered();
        let learnt = || {
            self.base.has_ended() || self.applied.get() >= last || self.base.writer.check().is_err()
        };
        if !canary::skips(Step::ReclaimLearnt) {
            self.base.events.until(Event::Advanced, learnt).await;
        }
        self.base.writer.check()
    }
}
