//! One core's share of a pool: its log, map and segments, and the tasks that carry what the log
//! has to the drives.

mod bytes;
mod copy;
mod count;
mod plan;
mod read;
mod room;
mod write;

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use reactor::Grace;
use reactor::sync::{Semaphore, Signal};

use crate::address::{Entry, Location, SegmentId};
use crate::canary::{self, Step};
use crate::common::Common;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::map::Map;
use crate::pages::Pages;
use crate::partial::Locks;
use crate::sweep::Candidates;
use crate::table::Table;
use crate::writer::Writer;
pub use copy::Copy;
use count::Counting;
pub use plan::Plan;
use room::Room;
pub use write::Writing;

/// What became of a request in the call that began it.
#[derive(Debug)]
pub enum Outcome<W> {
    Done,
    /// The rest is to be waited for, from where this says it was left.
    Wait(W),
}

/// A shard of an open pool. Belongs to one reactor.
pub struct Shard {
    pub log: Log,
    pub map: Map<Rc<Pages>>,
    pub pages: Rc<Pages>,
    pub writer: Rc<Writer>,
    /// What it shares with the pool's other shards.
    pub common: Arc<Common>,
    pub grace: Grace,
    /// Changes of volumes under way: whoever takes a volume, or a part of it, away waits for them.
    pub writing: Grace,
    /// Blocks that users change in part.
    pub partial: Locks,
    /// The ordered stripe whose records the map learnt last.
    pub applied: Cell<u64>,
    /// That of the map's runs on media.
    pub cut: Cell<u64>,
    /// Of the last checkpoint.
    pub generation: Cell<u64>,
    /// Where the last checkpoint's manifest lies.
    pub manifest_blocks: RefCell<Vec<Entry>>,
    /// Data segments found, block by block, to hold nothing any more.
    pub verified: RefCell<BTreeSet<SegmentId>>,
    /// The segment of which a drive's part is being made anew: its space is not given back.
    pub remaking: Cell<Option<SegmentId>>,
    /// The shared blocks that a sweep looks for references to.
    pub candidates: RefCell<Option<Candidates>>,
    /// How many references had been dropped when the last sweep began; none when the log kept
    /// blocks from it, which the next one looks at again.
    pub swept: Cell<Option<u64>>,
    /// One flush of the map, one checkpoint at a time.
    pub flushing: Semaphore,
    pub checkpointing: Semaphore,
    /// What destage took from the log: up to which record, and where the last block of it went.
    pub handed: RefCell<VecDeque<(u64, Option<Location>)>>,
    /// Raised when the map learnt a stripe, or the log was trimmed.
    pub advanced: Signal,
    /// Raised when the log has enough for destage.
    pub filling: Signal,
    /// Raised when the map or the free space should be looked at.
    pub wake: Signal,
    /// Who wants everything carried from the log to the drives.
    pub draining: Cell<usize>,
    pub room: Rc<Room>,
    /// Stripes whose records the map is learning.
    pub learning: Cell<usize>,
    /// Blocks that hosts gave back since that was looked for last, at most.
    pub freed: Cell<u64>,
    /// What is dead is to be given back although space is not short.
    pub gives: Cell<bool>,
    /// Its tasks run.
    pub started: Cell<bool>,
    pub ended: Cell<bool>,
    tasks: RefCell<Vec<reactor::Task<()>>>,
    /// Entries the map's memtable takes when it is empty.
    map_entries: usize,
    pub counters: Counters,
    /// Of what its volumes use.
    counting: Counting,
    /// Plans of reads that ended, used again and again.
    spare_plans: RefCell<Vec<Plan>>,
}

/// What a shard did since it was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Blocks hosts wrote, and blocks destaged.
    pub written: Cell<u64>,
    pub destaged: Cell<u64>,
    /// Blocks moved by reclaim.
    pub moved: Cell<u64>,
    pub segments_reclaimed: Cell<u64>,
    /// Blocks found lost for good.
    pub lost: Cell<u64>,
    /// Bytes of free space the drives were told of.
    pub discarded: Cell<u64>,
    /// Blocks read from the log, from segments, and holes.
    pub read_log: Cell<u64>,
    pub read_segments: Cell<u64>,
    pub read_holes: Cell<u64>,
}

/// Adds to a counter.
pub fn count(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

impl Shard {
    pub fn table(&self) -> Ref<'_, Table> {
        self.writer.table.borrow()
    }
}

/// What a shard is made of when it is opened or created.
pub struct Parts {
    pub log: Log,
    pub writer: Rc<Writer>,
    pub common: Arc<Common>,
    pub pages: Rc<Pages>,
    pub map: Map<Rc<Pages>>,
    pub cut: u64,
    pub generation: u64,
    pub manifest_blocks: Vec<Entry>,
}

impl Shard {
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            log: parts.log,
            map_entries: parts.map.room(),
            map: parts.map,
            pages: parts.pages,
            writer: parts.writer,
            common: parts.common,
            grace: Grace::default(),
            writing: Grace::default(),
            partial: Locks::default(),
            applied: Cell::new(parts.cut),
            cut: Cell::new(parts.cut),
            generation: Cell::new(parts.generation),
            manifest_blocks: RefCell::new(parts.manifest_blocks),
            verified: RefCell::default(),
            remaking: Cell::new(None),
            candidates: RefCell::default(),
            swept: Cell::new(None),
            flushing: Semaphore::new(1),
            checkpointing: Semaphore::new(1),
            handed: RefCell::default(),
            advanced: Signal::new(),
            filling: Signal::new(),
            wake: Signal::new(),
            draining: Cell::new(0),
            learning: Cell::new(0),
            room: Rc::default(),
            freed: Cell::new(0),
            gives: Cell::new(false),
            started: Cell::new(false),
            ended: Cell::new(false),
            tasks: RefCell::default(),
            counters: Counters::default(),
            counting: Counting::default(),
            spare_plans: RefCell::default(),
        }
    }

    /// Starts the tasks behind the acknowledgements.
    pub fn start(self: &Rc<Self>) {
        let held = self.held();
        self.common.space.claim(held);
        self.room.allowed.set(held);
        self.started.set(true);
        self.common.join(self.writer.shard);
        *self.tasks.borrow_mut() = vec![
            reactor::spawn_behind(Rc::clone(self).destage()),
            reactor::spawn_behind(Rc::clone(self).settle()),
            reactor::spawn_behind(Rc::clone(self).maintain()),
            reactor::spawn_behind(Rc::clone(self).feed()),
            reactor::spawn_behind(Rc::clone(self).reclaim()),
            reactor::spawn(Rc::clone(self).answer_calls()),
            reactor::spawn_behind(Rc::clone(self).look_for_space()),
            reactor::spawn(Rc::clone(self).watch_drives()),
            reactor::spawn(Rc::clone(self).watch_log()),
            reactor::spawn_behind(Rc::clone(self).count_used()),
        ];
    }

    /// Has the shard wait for one more task when it ends.
    pub fn run(&self, task: reactor::Task<()>) {
        self.tasks.borrow_mut().push(task);
    }

    /// Has destage look at what became durable in the log, as whoever appended it may be gone, and
    /// when there is no room: those who wait were the last to append, perhaps.
    async fn watch_log(self: Rc<Self>) {
        while !self.ended.get() {
            self.log.wait_for_more().await;
            self.look_at_log();
            self.note_change();
            if self.log.has_ended() {
                // Who waits for all of it to be carried waits for less now.
                self.advanced.raise();
            }
        }
    }

    /// Ends the tasks, and waits for that.
    pub async fn stop(&self) {
        self.end();
        self.writer.segments.patience().end();
        for task in self.tasks.take() {
            // A task that was dropped with its reactor has nothing left to end.
            let _ = task.await;
        }
        // Stripes on their way that nobody waited for: who opens the pool next finds the drives at rest.
        if !canary::skips(Step::StopStripes) {
            self.writer.between_stripes(|| ()).await;
        }
        // Readers under way, and what they put right.
        if !canary::skips(Step::StopGrace) {
            self.grace.pass().await;
        }
        if !canary::skips(Step::StopRepairs) {
            self.writer.segments.repaired().await;
        }
    }

    /// Writes the map's memory out when it is full, and merges runs, until the shard ends.
    async fn maintain(self: Rc<Self>) {
        // Merges left over from before, and the filters of runs that were opened.
        let mut done = self.merge().await;
        while self.goes_on(done).await {
            self.wake.until(|| self.ended.get() || self.map_is_nearly_full()).await;
            if self.ended.get() {
                return;
            }
            done = self.maintain_map().await;
        }
    }

    fn map_is_nearly_full(&self) -> bool {
        self.map.room() < self.map_entries / 4
    }

    /// Flushes the map and merges what is due.
    async fn maintain_map(&self) -> Result<()> {
        self.flush_map().await?;
        self.merge().await
    }

    async fn merge(&self) -> Result<()> {
        let mut merged = false;
        while !self.ended.get() && self.map.maintain().await? {
            merged = true;
            reactor::yield_now().await;
        }
        if !merged {
            return Ok(());
        }
        self.checkpoint().await
    }

    /// Takes a checkpoint whenever the writer runs out of segments to go on with.
    async fn feed(self: Rc<Self>) {
        loop {
            self.writer.hungry.until(|| self.ended.get() || self.writer.is_hungry()).await;
            if self.ended.get() {
                return;
            }
            let done = self.checkpoint().await;
            if done.is_err() {
                self.writer.starve();
            }
            if !self.goes_on(done).await {
                return;
            }
            // Without space, only what is won back helps.
            if self.table().reserved() <= crate::limits::RECLAIM_RESERVE {
                self.wake.raise();
                self.common.ring();
            }
        }
    }

    fn end(&self) {
        self.ended.set(true);
        self.log.refuse();
        self.raise_all();
    }

    /// A background task failed: nothing more is taken, and what waits is woken to see why.
    pub fn end_with(&self, error: &Error) {
        self.writer.fail(error);
        // Nobody makes room in it any more.
        self.log.refuse();
        self.raise_all();
    }

    fn raise_all(&self) {
        self.common.leave(self.writer.shard);
        self.filling.raise();
        self.wake.raise();
        self.advanced.raise();
        self.room.raise();
        self.writer.hungry.raise();
        self.writer.progress.raise();
        self.counting.changed.raise();
        self.writer.segments.patience().changed.raise();
    }
}
