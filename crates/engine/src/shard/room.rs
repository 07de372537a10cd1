//! Room for more contents: what this shard may hold of the pool's capacity, and what is done when
//! there is little.
//!
//! A write is let in while what the shard holds, and what others were promised, stays within its
//! share. What merges have not found out counts as held: so before a writer is refused, a task of
//! the shard's own has the map learn and merge everything. Hosts only wait for that: their commands
//! may end at any moment. Meanwhile others overwrite, and what they replace counts twice again: so
//! whoever comes later leaves room for those who wait, and whether the pool is full is told by what
//! the look found live, not by what is held when it ends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use reactor::now;
use reactor::sync::Signal;

use stdx::Counted;
use stdx::num::{u32_of, usize64};

use super::Shard;
use crate::address::{Key, Location};
use crate::error::{Error, Kind, Result};
use crate::log::Found;
use crate::map::{Contents, Extent, Extents};

/// How long a task that found no space for metadata waits before it looks again, should nothing
/// that happens in its shard wake it: other shards give space back too.
const STARVED: Duration = Duration::from_millis(50);

/// Looks for space that a writer waits for at most because hosts give something back meanwhile: that may be nothing.
const LOOKS_FOR_HOLES: u32 = 4;

/// Room in a shard, as far as writers are concerned.
#[derive(Default)]
pub struct Room {
    /// Blocks of data the shard may hold: its share of the pool's for now.
    pub(super) allowed: Cell<u64>,
    /// Blocks of writers that were let in and have not appended them yet.
    promised: Cell<u64>,
    /// Blocks of writers that wait for a look for space.
    queued: Cell<u64>,
    /// Writers let in, ever.
    let_in: Cell<u64>,
    /// Blocks let in, ever, but for those known to replace others.
    fresh: Cell<u64>,
    /// Holes that hosts made, ever.
    holes: Cell<u64>,
    /// Blocks that the last look found live, and `fresh` as of which it knows them all.
    live: Cell<Option<(u64, u64)>>,
    /// Looks for space: asked for, begun, ended. Each has a number.
    asked: Cell<u64>,
    begun: Cell<u64>,
    ended: Cell<u64>,
    /// Raised when one is asked for, and when one ended.
    changed: Signal,
    /// The stripe learnt last when there was nothing more to find.
    tidied: Cell<Option<u64>>,
    /// Tasks that wait for space for metadata.
    starved: Cell<usize>,
}

impl Room {
    /// Asks for a look for space that begins after this; gives its number.
    fn ask(&self) -> u64 {
        if self.asked.get() == self.begun.get() {
            self.asked.set(self.begun.get() + 1);
            self.changed.raise();
        }
        self.asked.get()
    }

    /// A host gave something back, which the next look may find.
    pub(super) fn note_hole(&self) {
        self.holes.set(self.holes.get() + 1);
    }

    /// Has whoever waits look again.
    pub fn raise(&self) {
        self.changed.raise();
    }
}

/// Leave to append so many blocks.
pub struct Promise {
    room: Rc<Room>,
    blocks: u64,
}

impl Promise {
    /// So many of them were appended: the log counts them now.
    pub fn kept(&mut self, blocks: u64) {
        let promised = self.room.promised.get();
        assert!(blocks <= self.blocks && self.blocks <= promised, "what is kept was promised");
        self.blocks -= blocks;
        self.room.promised.set(promised - blocks);
    }

    /// Blocks that were not appended yet.
    pub const fn left(&self) -> u64 {
        self.blocks
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

/// A writer of so many blocks that waits for a look for space.
struct Queued<'a> {
    room: &'a Room,
    blocks: u64,
}

impl<'a> Queued<'a> {
    fn new(room: &'a Room, blocks: u64) -> Self {
        room.queued.set(room.queued.get() + blocks);
        Self { room, blocks }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let queued = self.room.queued.get();
        assert!(self.blocks <= queued, "whoever waits is counted");
        self.room.queued.set(queued - self.blocks);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.kept(self.blocks);
    }
}

fn no_drive_space() -> Error {
    Error::new(Kind::Full, "there is no space behind a drive of the pool")
}

impl Shard {
    /// Blocks of data in segments and in the log, those nobody sees any more included where that is
    /// not known yet.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.table().live_data() + stdx::num::u64_of(self.log.indexed())
    }

    /// Lets in a writer of so many blocks from `key` on. Whoever replaces what is there may use the
    /// slack: it does not make the pool any fuller.
    ///
    /// # Errors
    /// `Full` when there is no space for them, and those of looking blocks up.
    pub async fn admit(&self, key: Key, blocks: u64) -> Result<Promise> {
        match self.try_admit(key, blocks)? {
            Some(promise) => Ok(promise),
            None => self.wait_for_admission(key, blocks).await,
        }
    }

    /// As [`admit`](Self::admit), if nothing has to be waited for. `None` where a page of the map is to be read, or
    /// space to be looked for.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(super) fn try_admit(&self, key: Key, blocks: u64) -> Result<Option<Promise>> {
        self.writer.check()?;
        match self.promise(blocks) {
            Some(promise) => Ok(Some(promise)),
            None if self.lacks_drive_space() => Err(no_drive_space()),
            None => {
                let plan = self.resolve(key, u32_of(usize64(blocks)));
                let replaces = plan.is_own() == Some(true);
                self.keep_plan(plan);
                Ok(if replaces { self.let_in_to_replace(blocks) } else { None })
            }
        }
    }

    /// Leave for so many blocks that replace others.
    fn let_in_to_replace(&self, blocks: u64) -> Option<Promise> {
        let slack = self.common.space.slack();
        let promise = self.let_in(blocks, self.room.queued.get(), slack)?;
        if self.held() > self.room.allowed.get() + slack / 2 {
            // What was replaced is found before writers have to wait for it.
            self.room.ask();
        }
        Some(promise)
    }

    /// Lets in a writer that [had to wait](Self::try_admit).
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(super) async fn wait_for_admission(&self, key: Key, blocks: u64) -> Result<Promise> {
        // On the heap: rare, and too large for all that may come to it.
        Box::pin(self.admit_after_look(key, blocks)).await
    }

    async fn admit_after_look(&self, key: Key, blocks: u64) -> Result<Promise> {
        let replaces = self.replaces(key, blocks).await?;
        if replaces && let Some(promise) = self.let_in_to_replace(blocks) {
            return Ok(promise);
        }
        let mut looks_for_holes = LOOKS_FOR_HOLES;
        loop {
            let (others, holes) = (self.room.let_in.get(), self.room.holes.get());
            let queued = Queued::new(&self.room, blocks);
            self.find_space().await;
            drop(queued);
            self.writer.check()?;
            if self.lacks_drive_space() {
                return Err(no_drive_space());
            }
            if let Some(promise) = self.let_in_after_look(blocks, replaces) {
                return Ok(promise);
            }
            // As long as others are let in, and leave what they replaced to be found, a turn comes.
            let is_full = !replaces && self.was_found_full(blocks);
            if is_full || self.room.let_in.get() == others {
                // What was given back while the look was under way is found by the next one.
                if self.room.holes.get() == holes || looks_for_holes == 0 {
                    break;
                }
                looks_for_holes -= 1;
            }
        }
        self.common.ask_others(self.writer.shard).await;
        let promise = self.let_in_after_look(blocks, replaces);
        promise.ok_or_else(|| Error::new(Kind::Full, "the pool is full"))
    }

    /// Leave for so many blocks of whoever has waited for a look.
    fn let_in_after_look(&self, blocks: u64, replaces: bool) -> Option<Promise> {
        let slack = self.common.space.slack();
        if replaces {
            return self.let_in(blocks, 0, slack);
        }
        let beyond = if self.is_free(blocks) { slack } else { 0 };
        let promise = self.let_in(blocks, 0, beyond)?;
        self.room.fresh.set(self.room.fresh.get() + blocks);
        Some(promise)
    }

    /// Whether there is room for so many blocks more, whatever is held: by what the last look found, and were
    /// all new that was let in since it began.
    fn is_free(&self, blocks: u64) -> bool {
        let Some((live, as_of)) = self.room.live.get() else { return false };
        self.may_hold(live + (self.room.fresh.get() - as_of) + blocks, 0)
    }

    /// Whether the last look found no room for so many blocks more.
    fn was_found_full(&self, blocks: u64) -> bool {
        self.room.live.get().is_none_or(|(live, _)| !self.may_hold(live + blocks, 0))
    }

    /// Whether each of these blocks has contents that nobody else has.
    async fn replaces(&self, key: Key, blocks: u64) -> Result<bool> {
        let mut extents = Extents::default();
        let mut at = 0;
        while at < blocks {
            let from = Key::new(key.view, key.block + at);
            let (found, run) = self.log.lookup(from, blocks - at);
            let run = run.min(blocks - at);
            match found {
                Found::Data(_) => {}
                Found::Hole | Found::Lost | Found::Refers { .. } => return Ok(false),
                Found::Nothing => {
                    let _reading = self.grace.enter();
                    let count = u32_of(usize64(run));
                    self.map.lookup(from.view, from.block, count, &mut extents).await?;
                    let own = |extent: Extent<'_>| match extent.contents {
                        Contents::Stored { location, .. } => location.name().is_none(),
                        Contents::Hole | Contents::Lost | Contents::Absent => false,
                    };
                    if !extents.iter().all(own) {
                        return Ok(false);
                    }
                }
            }
            at += run;
        }
        Ok(true)
    }

    /// Leave for so many blocks, if there is room for them and for those that others wait for.
    pub(super) fn promise(&self, blocks: u64) -> Option<Promise> {
        let promise = self.let_in(blocks, self.room.queued.get(), 0)?;
        self.room.fresh.set(self.room.fresh.get() + blocks);
        Some(promise)
    }

    /// Leave for so many blocks, if there is room for them, beside so many that are left to others, with so
    /// much beyond the shard's share.
    fn let_in(&self, blocks: u64, left: u64, beyond: u64) -> Option<Promise> {
        let room = &self.room;
        let takes = room.starved.get() == 0 && !self.lacks_drive_space();
        let wanted = self.held() + room.promised.get() + left + blocks;
        (takes && self.may_hold(wanted, beyond)).then(|| {
            room.promised.set(room.promised.get() + blocks);
            room.let_in.set(room.let_in.get() + 1);
            Promise { room: Rc::clone(room), blocks }
        })
    }

    /// Looks for space whenever somebody asks, until the shard ends.
    pub async fn look_for_space(self: Rc<Self>) {
        let room = &self.room;
        while !self.ended.get() {
            let due = || self.ended.get() || room.asked.get() > room.begun.get();
            room.changed.until(due).await;
            if self.ended.get() {
                return;
            }
            room.begun.set(room.asked.get());
            let done = self.tidy().await;
            room.ended.set(room.begun.get());
            room.changed.raise();
            if !self.goes_on(done).await {
                return;
            }
        }
    }

    /// Lets the map learn what is in the log, holes above all, and its merges find out what nobody
    /// sees any more. Nothing new since the last time: nothing to find.
    async fn tidy(&self) -> Result<()> {
        let is_tidy = self.room.tidied.get() == Some(self.applied.get()) && self.is_swept();
        if is_tidy && self.log.is_empty() {
            return Ok(());
        }
        // What was promised may not be in the log yet.
        let as_of = self.room.fresh.get().saturating_sub(self.room.promised.get());
        self.carry_log().await?;
        let applied = self.applied.get();
        self.compact().await?;
        let applied = if self.sweep().await? {
            let applied = self.applied.get();
            self.compact().await?;
            applied
        } else {
            applied
        };
        let live = self.recount().await?;
        self.room.live.set(live.map(|live| (live, as_of)));
        self.checkpoint().await?;
        self.room.tidied.set(Some(applied));
        Ok(())
    }

    /// Writes the map out and merges all of it.
    async fn compact(&self) -> Result<()> {
        self.flush_map().await?;
        let _compacting = self.map.compacting();
        while !self.ended.get() && self.map.maintain().await? {
            reactor::yield_now().await;
        }
        Ok(())
    }

    /// Counts what is live in every segment, by what the map says, and corrects the counts, which a crash makes too
    /// high: it repeats some of what was counted. Gives the sum of what was live when the map was last flushed.
    async fn recount(&self) -> Result<Option<u64>> {
        let (mut counted, mut live) = (BTreeMap::new(), 0);
        let count = |at: Location, blocks, learnt_since: bool| {
            if at.name().is_none() {
                *counted.entry(at.segment()).or_insert(0) += blocks;
                live += if learnt_since { 0 } else { u64::from(blocks) };
            }
        };
        // Nobody runs between the last look at the map and the correction: both know the same.
        let whole = self.map.places(count).await?;
        if whole {
            self.writer.table.borrow_mut().set_live_data(&counted);
            // Before a writer takes for room what was counted twice.
            self.give_space_back(self.common.space.portion());
        }
        Ok(whole.then_some(live))
    }

    /// Has a look for space taken, and waits for it.
    pub async fn find_space(&self) {
        let look = self.room.ask();
        let done = || self.room.ended.get() >= look || self.is_hindered();
        self.room.changed.until(done).await;
    }

    /// Whether a look for space may not come to its end.
    fn is_hindered(&self) -> bool {
        self.ended.get() || self.writer.check().is_err() || self.lacks_drive_space()
    }

    /// Whether there is no space behind the drives, so that nothing leaves the log.
    fn lacks_drive_space(&self) -> bool {
        self.writer.segments.patience().is_tried()
    }

    /// Has the log refuse writes while there is no space behind the drives, until the shard ends.
    pub(super) async fn watch_drives(self: Rc<Self>) {
        let patience = self.writer.segments.patience();
        let now = || (patience.is_tried(), patience.last_refused());
        let mut seen = (false, None);
        while !self.ended.get() {
            patience.changed.until(|| self.ended.get() || now() != seen).await;
            seen = now();
            let refuses = patience.is_tried();
            self.log.refuse_writes(refuses || self.room.starved.get() > 0);
            self.room.changed.raise();
            self.advanced.raise();
        }
    }

    /// Carries what the log has now to the drives. Writers may go on meanwhile.
    async fn carry_log(&self) -> Result<()> {
        self.carry_log_until(|| self.ended.get() || self.writer.check().is_err()).await;
        self.writer.check()
    }

    /// As that, as far as nothing hinders it.
    pub async fn carry_log_unless_hindered(&self) {
        self.carry_log_until(|| self.is_hindered()).await;
    }

    async fn carry_log_until(&self, hindered: impl Fn() -> bool) {
        let _draining = Counted::new(&self.draining);
        self.filling.raise();
        let head = self.log.head();
        let is_carried = || self.log.tail() >= head.min(self.log.head());
        self.advanced.until(|| is_carried() || hindered()).await;
    }

    /// Carries everything from a log that takes no more to the drives, and takes a checkpoint of it:
    /// after that the log is not needed to open the shard.
    ///
    /// # Errors
    /// As [`Shard::flush_map`]; `Full` where a write that was tried from now on found no space behind a drive.
    pub async fn drain(self: &Rc<Self>) -> Result<()> {
        let begun = now();
        let no_space = || {
            self.lacks_drive_space()
                && self.writer.segments.patience().last_refused() >= Some(begun)
        };
        {
            let _draining = Counted::new(&self.draining);
            self.filling.raise();
            let drained = || {
                let is_carried = self.log.tail() >= self.log.head();
                is_carried || self.writer.check().is_err() || no_space()
            };
            self.advanced.until(drained).await;
        }
        self.writer.check()?;
        if !self.log.is_empty() {
            let failed = Error::new(Kind::Failed, "the commit log failed");
            return Err(if self.log.has_ended() { failed } else { no_drive_space() });
        }
        // Beside, so that it has not to be given up in the midst.
        let flushed = Rc::new(RefCell::new(None));
        let (this, tell) = (Rc::clone(self), Rc::clone(&flushed));
        self.run(reactor::spawn(async move {
            let done = this.flush_map().await;
            *tell.borrow_mut() = Some(done);
            this.advanced.raise();
        }));
        self.advanced.until(|| flushed.borrow().is_some() || no_space()).await;
        let done = flushed.take();
        done.unwrap_or_else(|| Err(no_drive_space()))
    }

    /// What a background task makes of its outcome. Without space for metadata it waits and tries
    /// again, and writers are refused meanwhile; any other error ends the shard. False when the task
    /// ends.
    pub async fn goes_on(&self, done: Result<()>) -> bool {
        let Err(error) = done else { return true };
        if error.kind == Kind::Full && self.starve().await {
            return true;
        }
        if !self.ended.get() {
            self.end_with(&error);
        }
        false
    }

    /// Waits for space for metadata. False when there is nobody to make it.
    async fn starve(&self) -> bool {
        if !self.started.get() || self.ended.get() || self.writer.check().is_err() {
            return false;
        }
        let _starved = Counted::new(&self.room.starved);
        self.log.refuse_writes(true);
        // Perhaps a checkpoint gives something back.
        self.writer.starve();
        let before = self.generation.get();
        let changed =
            || self.ended.get() || self.writer.check().is_err() || self.generation.get() != before;
        let _ = reactor::timeout(STARVED, self.advanced.until(changed)).await;
        drop(_starved);
        self.log.refuse_writes(self.room.starved.get() > 0 || self.lacks_drive_space());
        !self.ended.get() && self.writer.check().is_ok()
    }

    /// Waits until the map takes so many entries more.
    ///
    /// # Errors
    /// Those of flushing the map, but for `Full`, which is waited out.
    pub async fn reserve_in_map(&self, entries: usize) -> Result<()> {
        loop {
            match self.map.reserve(entries).await {
                Err(error) if error.kind == Kind::Full => {
                    if !self.starve().await {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Whether the shard may hold so many blocks, with a further portion of the pool's capacity if need be,
    /// and so much beyond that.
    fn may_hold(&self, blocks: u64, beyond: u64) -> bool {
        let allowed = self.room.allowed.get();
        if blocks <= allowed + beyond {
            return true;
        }
        let taken = self.common.space.take(blocks - allowed - beyond);
        self.room.allowed.set(allowed + taken.unwrap_or(0));
        taken.is_some()
    }

    /// Gives back what the shard does not use of its share, but for `keep` blocks, or none where more was
    /// dealt out than there is: a crash has counted blocks twice, or a drive is gone.
    pub fn give_space_back(&self, keep: u64) {
        let keep = if self.common.space.is_overdrawn() { 0 } else { keep };
        let used = self.held() + self.room.promised.get() + self.room.queued.get();
        let spare = self.room.allowed.get().saturating_sub(used);
        // Not every block that becomes free: only what is more than what was kept.
        if spare > 2 * keep {
            self.room.allowed.set(self.room.allowed.get() - (spare - keep));
            self.common.space.give_back(spare - keep);
        }
    }

    /// Answers the calls of other shards, until this one ends.
    pub(super) async fn answer_calls(self: Rc<Self>) {
        let shard = self.writer.shard;
        let (mut last, mut answered) = (0, 0);
        while let Some(ring) = self.common.next_ring(shard, last).await {
            last = ring.number;
            if ring.asked > answered {
                self.find_space().await;
                self.give_space_back(0);
                answered = ring.asked;
                self.common.answer(shard, answered);
            }
            // There may be segments to be had now, or some wanted that reclaim can win here.
            if self.writer.has_spare() {
                self.writer.look_for_hunger();
            }
            self.wake.raise();
            self.advanced.raise();
        }
    }
}
