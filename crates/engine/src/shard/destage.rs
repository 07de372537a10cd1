//! Carrying acknowledged blocks from the log to the drives: the second walk of a write, behind its
//! acknowledgement.
//!
//! One task takes blocks from the log, those that are still current, into the stripes of the user
//! stream. Another lets the map learn the stripes that were written, in their order, and trims the log
//! of what is then durable elsewhere.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use reactor::now;
use stdx::Counted;
use stdx::num::usize32;

use super::base::{Base, WritesRefused};
use super::capacity::Capacity;
use super::events::Event;
use super::keeper::MapKeeper;
use crate::address::Location;
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Kind, Result};
use crate::limits::NO_SPACE_PAUSE;
use crate::log::{Item, RECORD_BLOCKS_MAX, What};
use crate::segment::{Owner, Stream};

/// Blocks taken from the log before it may be trimmed of them: a few stripes' worth.
const BATCH: usize = 1024;

/// The log is left to fill so far, in parts of 1024, before anything is taken from it: what is
/// overwritten there never goes to a drive.
const FILL_LOW: u64 = 256;

/// Records that are worth taking while there is no hurry.
const WORTH: u64 = 32;

/// Blocks copied into stripes before others on the core have their turn.
const ITEMS_A_TURN: usize = 32;

/// From here on even a stripe that is not full is written, when nothing else can free the log.
const FILL_HIGH: u64 = 768;

/// Carries what the log has to the drives.
pub struct Destage {
    base: Rc<Base>,
    keeper: Rc<MapKeeper>,
    capacity: Rc<Capacity>,
    /// What was taken from the log: up to which record, and where the last block of it went.
    handed: RefCell<VecDeque<(u64, Option<Location>)>>,
    /// Who wants everything carried from the log to the drives.
    draining: Cell<usize>,
}

impl Destage {
    #[must_use]
    pub fn new(base: Rc<Base>, keeper: Rc<MapKeeper>, capacity: Rc<Capacity>) -> Self {
        Self { base, keeper, capacity, handed: RefCell::default(), draining: Cell::new(0) }
    }

    /// Takes blocks from the log into stripes, until the shard ends.
    pub async fn run(self: Rc<Self>) {
        let mut items = Vec::with_capacity(RECORD_BLOCKS_MAX);
        while !self.base.has_ended() {
            self.base
                .events
                .until(Event::LogFills, || {
                    let is_troubled = self.base.log.is_troubled();
                    self.base.has_ended() || is_troubled || self.is_due() || self.is_stuck()
                })
                .await;
            if self.base.log.is_troubled() {
                // Those who stored something may be gone. Where it cannot be told, the log has ended.
                let _ = self.base.log.settle().await;
                continue;
            }
            let done = if self.is_due() {
                self.destage_batch(&mut items).await
            } else {
                self.base.writer.seal(Stream::User).await
            };
            if let Err(error) = done {
                if !self.base.has_ended() {
                    self.base.fail(&error);
                }
                return;
            }
        }
    }

    /// Whether the log has so much that some of it should be taken.
    fn is_due(&self) -> bool {
        let worth = if self.is_pressed() { 1 } else { WORTH };
        self.is_filling() && self.base.log.pending() >= worth
    }

    /// Whether the log should be emptied whatever it takes.
    fn is_pressed(&self) -> bool {
        self.draining.get() > 0 || self.base.log.fill() >= FILL_HIGH || self.base.log.waiting() > 0
    }

    /// Whether the log has so much that destage should look at it. There may be no room long before
    /// its ring is full.
    #[inline]
    fn is_filling(&self) -> bool {
        self.draining.get() > 0
            || self.base.log.fill() >= FILL_LOW
            || self.base.log.is_full()
            || self.base.log.is_troubled()
    }

    /// Whether the log cannot be trimmed before a stripe is written that is not full.
    fn is_stuck(&self) -> bool {
        self.base.log.pending() == 0
            && self.base.writer.has_partial(Stream::User)
            && self.is_pressed()
    }

    async fn destage_batch(&self, items: &mut Vec<Item>) -> Result<()> {
        let (mut last, mut taken) = (None, 0);
        let through = loop {
            items.clear();
            let through = self.base.log.next_batch(RECORD_BLOCKS_MAX, items)?;
            self.assert_handed(items, through);
            self.base.writer.note_log(through);
            last = self.destage_items(items).await?.or(last);
            taken += items.len();
            if taken >= BATCH || self.base.log.pending() == 0 {
                break through;
            }
        };
        let has_place = taken == 0 || last.is_some();
        assert!(has_place, "what was taken from the log went somewhere");
        self.handed.borrow_mut().push_back((through, last));
        self.base.writer.note_progress();
        Ok(())
    }

    /// What the log hands out is behind what it did before, in order, up to where it says.
    fn assert_handed(&self, items: &[Item], through: u64) {
        let before = self.handed.borrow().back().map_or(0, |(before, _)| *before);
        assert!(before.max(self.base.log.tail() - 1) <= through, "the log does not go back");
        let (Some(first), Some(last)) = (items.first(), items.last()) else { return };
        assert!(before < first.sequence && last.sequence <= through, "nothing is handed out twice");
        assert!(items.is_sorted_by_key(|item| item.sequence), "records are handed out in order");
    }

    /// Gives where the last of them went.
    async fn destage_items(&self, items: &[Item]) -> Result<Option<Location>> {
        let (mut last, mut at, mut in_turn) = (None, 0, 0);
        while at < items.len() {
            let (taken, location) = self.destage_some(&items[at..]).await?;
            (last, at, in_turn) = (Some(location), at + taken, in_turn + taken);
            if in_turn >= ITEMS_A_TURN {
                reactor::yield_now().await;
                in_turn = 0;
            }
        }
        assert_eq!(at, items.len(), "what was handed out is destaged");
        Ok(last)
    }

    /// Puts the first of `items`, a block, hole or reference, into the user stream, and blocks that lie behind it
    /// as far as the stripe has room. Gives how many these were, and where they went.
    async fn destage_some(&self, items: &[Item]) -> Result<(usize, Location)> {
        loop {
            match self.try_destage(items)? {
                Some(done) => return Ok(done),
                None => self.base.writer.make_room(Stream::User).await?,
            }
        }
    }

    fn try_destage(&self, items: &[Item]) -> Result<Option<(usize, Location)>> {
        let item = &items[0];
        let one = match item.what {
            _ if self.base.log.was_lost(item)? => {
                self.base.writer.try_lose(Stream::User, item.key, item.version, None)
            }
            What::Lost => None,
            What::Data(_) => return self.try_destage_run(items),
            What::Hole { count } => {
                let owner = Owner::Hole { key: item.key, blocks: count };
                self.base.writer.try_append(Stream::User, owner, item.version, &[], &[])
            }
            What::Refers(to) => {
                to.stored.encoding.check()?;
                self.base.writer.try_refer(Stream::User, item.key, item.version, &to)
            }
        };
        Ok(one.map(|at| (1, at)))
    }

    /// Copies blocks in one go where they lie one behind another: what is large is copied at three times the speed.
    fn try_destage_run(&self, items: &[Item]) -> Result<Option<(usize, Location)>> {
        let room = usize32(self.base.writer.room(Stream::User)).clamp(1, ITEMS_A_TURN);
        let run = self.base.log.run_of(&items[..items.len().min(room)]);
        let (run, behind) = items.split_at(run);
        if let [next, ..] = behind {
            self.base.log.prefetch(next);
        }
        let mut crcs = [0; ITEMS_A_TURN];
        assert!(run.len() <= crcs.len(), "a run has a checksum for each block");
        for (crc, data) in crcs.iter_mut().zip(run.iter().filter_map(Item::data)) {
            *crc = data.crc;
        }
        let (owner, crcs) = (Owner::Write { key: run[0].key }, &crcs[..run.len()]);
        // A run is of one record.
        let version = run[0].version;
        let at = self.base.log.with_run(run, |data| {
            self.base.writer.try_append(Stream::User, owner, version, crcs, data)
        })?;
        Ok(at.map(|at| (run.len(), at)))
    }

    /// Lets the map learn what was written, and trims the log, until the shard ends.
    pub async fn settle(self: Rc<Self>) {
        while !self.base.has_ended() {
            let due = || {
                self.base.has_ended()
                    || self.base.writer.check().is_err()
                    || self.base.writer.has_written()
                    || self.can_trim()
            };
            self.base.writer.until_progress(due).await;
            if let Err(error) = self.settle_some().await {
                self.base.fail(&error);
                return;
            }
            self.capacity.give_back(self.base.common.space.portion());
            self.base.events.raise(Event::Advanced);
            self.base.events.raise(Event::LogFills);
            self.base.events.raise(Event::SpaceChanged);
        }
    }

    async fn settle_some(&self) -> Result<()> {
        self.base.writer.check()?;
        while let Some(header) = self.base.writer.take_written() {
            self.keeper.learn(&header).await?;
        }
        let Some(through) = self.take_trimmable() else { return Ok(()) };
        let (written, applied) = (self.base.writer.written(), self.base.table().cut());
        assert!(self.keeper.applied() <= written, "the map has what was written");
        assert!(through <= self.base.writer.log().sequence, "what is trimmed was put into stripes");
        if !canary::has(Canary::TrimsEarly) {
            self.base.writer.flush().await?;
        }
        if !canary::skips(Step::TrimTells) {
            self.tell_failures().await?;
        }
        self.base.common.follow_drives();
        self.base.log.trim(through, written).await?;
        assert!(self.base.log.tail() > through, "what was trimmed is forgotten");
        self.base.writer.table_mut().made_durable(applied);
        Ok(())
    }

    /// Waits where labels have no space just now, as all writes do, or the system cannot write them: nothing is trimmed
    /// before.
    async fn tell_failures(&self) -> Result<()> {
        let space_wait = self.base.writer.segments().space_wait();
        let mut waiting = None;
        loop {
            let tried = now();
            match self.base.common.superblock.tell_failures().await {
                Err(error) if error.kind == Kind::Full && !space_wait.has_ended() => {
                    waiting.get_or_insert_with(|| space_wait.wait());
                    space_wait.refused(tried);
                }
                Err(error) if error.kind == Kind::Busy && !self.base.has_ended() => {}
                done => return done,
            }
            reactor::sleep(NO_SPACE_PAUSE).await;
        }
    }

    /// Whether records at the front of what destage took have all their blocks in the map.
    fn can_trim(&self) -> bool {
        let handed = self.handed.borrow();
        handed.front().is_some_and(|(_, last)| self.is_learnt(*last))
    }

    /// Whether the stripe at `at` was learnt; user stripes are learnt in their order.
    fn is_learnt(&self, at: Option<Location>) -> bool {
        let Some(at) = at else { return true };
        let table = self.base.table();
        // Without its segment nothing of it can be waiting any more.
        table
            .get(at.segment())
            .is_none_or(|segment| segment.info.geometry.place(at.slot()).stripe < segment.applied)
    }

    /// Up to which record the log may be trimmed, if further than before.
    fn take_trimmable(&self) -> Option<u64> {
        let mut through = None;
        while self.can_trim() {
            let next = self.handed.borrow_mut().pop_front().map(|(through, _)| through);
            assert!(through <= next, "the log is trimmed in the order in which it was taken");
            through = next.or(through);
        }
        through
    }

    /// Has destage look at the log, if there is enough in it.
    #[inline]
    pub fn look_at_log(&self) {
        if self.is_filling() {
            self.base.events.raise(Event::LogFills);
        }
    }

    /// Carries what the log has now to the drives. Writers may go on meanwhile.
    pub async fn run_to_head(&self) -> Result<()> {
        self.run_until(|| self.base.is_over()).await;
        self.base.writer.check()
    }

    /// As that, as far as nothing hinders it.
    pub async fn run_unless_hindered(&self) {
        self.run_until(|| self.base.is_hindered()).await;
    }

    async fn run_until(&self, hindered: impl Fn() -> bool) {
        let _draining = Counted::new(&self.draining);
        self.base.events.raise(Event::LogFills);
        let head = self.base.log.head();
        let is_destaged = || self.base.log.tail() >= head.min(self.base.log.head());
        self.base.events.until(Event::Advanced, || is_destaged() || hindered()).await;
    }

    /// Carries everything from a log that takes no more to the drives, and takes a checkpoint of it:
    /// after that the log is not needed to open the shard.
    ///
    /// # Errors
    /// As [`MapKeeper::flush`]; `Full` where a write that was tried from now on found no space behind a drive.
    pub async fn drain(&self) -> Result<()> {
        let begun = now();
        let space_wait = self.base.writer.segments().space_wait();
        let no_space = || match self.base.refuses() {
            Some(WritesRefused::NoDriveSpace) => space_wait.last_refused() >= Some(begun),
            refuses => refuses.is_some(),
        };
        let refused = || self.base.refuses().unwrap_or(WritesRefused::NoDriveSpace).error();
        {
            let _draining = Counted::new(&self.draining);
            self.base.events.raise(Event::LogFills);
            let drained = || {
                let is_destaged = self.base.log.tail() >= self.base.log.head();
                is_destaged || self.base.writer.check().is_err() || no_space()
            };
            self.base.events.until(Event::Advanced, drained).await;
        }
        // Stripes that waited for space were let go, which ended the shard: nothing has failed but that.
        let is_let_go = space_wait.has_ended() && !self.base.has_ended();
        self.base.writer.check().map_err(|error| if is_let_go { refused() } else { error })?;
        if !self.base.log.is_empty() {
            let failed = Error::new(Kind::Failed, "the commit log failed");
            return Err(if self.base.log.has_ended() { failed } else { refused() });
        }
        // Beside, so that it has not to be given up in the midst.
        let flushed = Rc::new(RefCell::new(None));
        let (base, keeper) = (Rc::clone(&self.base), Rc::clone(&self.keeper));
        let tell = Rc::clone(&flushed);
        self.base.run(reactor::spawn(async move {
            let done = keeper.flush_last().await;
            *tell.borrow_mut() = Some(done);
            base.events.raise(Event::Advanced);
        }));
        self.base.events.until(Event::Advanced, || flushed.borrow().is_some() || no_space()).await;
        assert!(self.base.log.is_empty(), "a log that takes no more stays empty");
        let done = flushed.take();
        done.unwrap_or_else(|| Err(refused()))
    }
}
