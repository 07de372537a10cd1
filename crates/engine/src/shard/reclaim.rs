//! Winning space back: segments with little in them are emptied into full stripes of others. So are full ones where drives
//! came that they are not on: what is free there is of use once all drives are used alike (`spread`).

mod live;
mod moving;
mod spread;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stdx::num::u64_of;

use super::base::{Base, count};
use super::checkpoint::Checkpoints;
use super::events::Event;
use super::keeper::MapKeeper;
use crate::address::SegmentId;
use crate::canary::{self, Canary};
use crate::error::Result;
use crate::limits::{LEFT_ALONE, RECLAIM_RESERVE, UNREADABLE_AFTER};
use crate::segment::{SegmentInfo, Stream};
pub use moving::Emptied;

/// Segments emptied before their space is given back, with one checkpoint.
const SEGMENTS_AT_ONCE: usize = 4;

/// Segments of metadata with little in them that are worth emptying while reclaim has room to work with.
const METADATA_AT_ONCE: usize = 2;

/// Wins space back.
pub struct Reclaim {
    base: Rc<Base>,
    checkpoints: Rc<Checkpoints>,
    keeper: Rc<MapKeeper>,
    /// What is dead is to be given back although space is not short.
    gives: Cell<bool>,
    /// Segments emptied since the shard was opened.
    emptied: Cell<u64>,
    /// Blocks found lost for good, those that its log had lost included.
    lost: Cell<u64>,
    /// Something could not be read that was to be moved, since space became short.
    doubts: Cell<bool>,
    /// Segments that are being emptied, by reclaim or by whoever empties drives.
    emptying: RefCell<BTreeSet<SegmentId>>,
}

/// What reclaim knows of the segments it looked at.
#[derive(Debug, Default)]
struct Reclaiming {
    emptied: BTreeSet<SegmentId>,
    /// The last look found nothing that it had room to empty.
    lacks_room: bool,
    /// Those with blocks that cannot be read for now, and until when they are left alone.
    left: BTreeMap<SegmentId, reactor::Nanos>,
    /// Those of metadata that were written anew because drives came.
    spread: BTreeSet<SegmentId>,
}

impl Reclaiming {
    /// A segment that cannot be looked through now.
    fn leave(&mut self, id: SegmentId) {
        let pause = reactor::Nanos::try_from(LEFT_ALONE.as_nanos()).unwrap_or(reactor::Nanos::MAX);
        self.emptied.remove(&id);
        self.left.insert(id, reactor::now().saturating_add(pause));
    }

    /// So many segments of metadata with little in them are worth emptying: one where nothing else gives reclaim room
    /// to work with.
    const fn enough_metadata(&self) -> usize {
        if self.lacks_room { 1 } else { METADATA_AT_ONCE }
    }

    fn is_left(&self, id: SegmentId) -> bool {
        self.left.get(&id).is_some_and(|until| reactor::now() < *until)
    }
}

impl Reclaim {
    #[must_use]
    pub fn new(base: Rc<Base>, checkpoints: Rc<Checkpoints>, keeper: Rc<MapKeeper>) -> Self {
        let (gives, emptied, lost) = (Cell::new(false), Cell::new(0), Cell::new(0));
        let (doubts, emptying) = (Cell::new(false), RefCell::default());
        Self { base, checkpoints, keeper, gives, emptied, lost, doubts, emptying }
    }

    /// Has what is dead given back although space is not short: there was a look for it.
    pub fn give_back(&self) {
        self.gives.set(true);
        self.base.events.raise(Event::SpaceChanged);
    }

    /// Whether somebody empties a segment now.
    #[must_use]
    pub fn is_being_emptied(&self, id: SegmentId) -> bool {
        self.emptying.borrow().contains(&id)
    }

    /// Has space won: who empties drives has none to move things to.
    pub fn win_room(&self) {
        self.base.events.raise(Event::SpaceChanged);
        self.base.events.raise(Event::Advanced);
    }

    /// A segment was emptied, by whoever empties drives.
    pub fn note_emptied(&self) {
        count(&self.emptied, 1);
    }

    /// So many blocks turned out to be lost for good.
    pub fn note_lost(&self, blocks: u64) {
        count(&self.lost, blocks);
    }

    /// Segments emptied, and blocks found lost for good, since the shard was opened.
    #[must_use]
    pub const fn emptied_and_lost(&self) -> (u64, u64) {
        (self.emptied.get(), self.lost.get())
    }

    /// Whether free segments are so few that some should be won back.
    fn needs_space(&self) -> bool {
        // Who empties drives waits for space on the others.
        if self.base.lacks_room_to_empty_drives() {
            return true;
        }
        let available = self.base.common.allocator.lock().available();
        // What this shard has in reserve is of no use to others, which may wait for segments that
        // only it can win back.
        if self.base.common.shards > 1 && available <= self.base.writer.keep_for_metadata() {
            return true;
        }
        available + u64_of(self.base.table().reserved()) <= self.begins_below()
    }

    /// With as many free segments as this, or fewer, some are won back.
    pub fn begins_below(&self) -> u64 {
        // A few segments, however large the pool: what is kept free holds no data, and each share of
        // the pool that holds none makes reclaim move more.
        let work = u64_of(RECLAIM_RESERVE) + (self.base.common.segments() / 128).clamp(1, 4);
        self.base.writer.keep_for_metadata() + work
    }

    /// Wins space back while it is short, until the shard ends.
    pub async fn run(self: Rc<Self>) {
        let mut reclaiming = Reclaiming::default();
        while !self.base.has_ended() {
            self.base
                .events
                .until(Event::SpaceChanged, || {
                    let spreads = self.base.common.uneven() != 0;
                    self.base.has_ended() || self.gives.get() || self.needs_space() || spreads
                })
                .await;
            if self.base.has_ended() {
                return;
            }
            if !reclaiming.emptied.is_empty() || !self.needs_space() {
                self.base.set_unreadable(false);
            }
            let done = match self.gives.take() && !self.needs_space() {
                true => self.give_back_found(&mut reclaiming).await,
                false => self.reclaim_some(&mut reclaiming).await,
            };
            if !self.checkpoints.goes_on(done).await {
                return;
            }
        }
    }

    /// Gives back what is dead or was emptied; empties a few segments if there is nothing of the
    /// kind; waits for change if there are none with anything to give.
    async fn reclaim_some(&self, reclaiming: &mut Reclaiming) -> Result<()> {
        // Space is needed, or there was no other reason to come here.
        let wins = self.needs_space() || self.base.common.uneven() == 0;
        self.checkpoints.evacuate_metadata(reclaiming.enough_metadata()).await?;
        let mut dead = self.dead_by_count(reclaiming);
        dead.append(&mut reclaiming.emptied);
        if !dead.is_empty() {
            return self.give_back_dead(&dead, reclaiming).await;
        }
        reclaiming.lacks_room = false;
        self.begin_anew_where_drives_came().await?;
        while reclaiming.emptied.len() < self.segments_at_once() && !self.base.has_ended() {
            let by_others = self.emptied_by_others();
            let skip = |id| {
                reclaiming.emptied.contains(&id)
                    || reclaiming.is_left(id)
                    || self.is_being_emptied(id)
                    || self.is_on(id, by_others)
            };
            let Some((victim, live)) = self.choose_victim(wins, skip) else { break };
            // What was emptied, or dies meanwhile, is given back before its successor lacks room: nobody else can.
            if self.base.writer.room_for_moves() < u64::from(live) {
                reclaiming.lacks_room = true;
                break;
            }
            match self.empty(victim).await? {
                Emptied::Whole => {
                    let is_new = reclaiming.emptied.insert(victim);
                    assert!(is_new, "a segment is emptied once before it is looked through");
                    count(&self.emptied, 1);
                }
                Emptied::Unreadable => reclaiming.leave(victim),
                Emptied::NoRoom => {
                    reclaiming.lacks_room = true;
                    break;
                }
            }
        }
        if reclaiming.emptied.is_empty() && !self.spread_metadata(reclaiming).await? {
            let applied = self.keeper.applied();
            let found = || {
                self.base.has_ended()
                    || !wins && (self.gives.get() || self.needs_space())
                    || self.keeper.applied() != applied
                    || self.can_empty_some(reclaiming, wins)
                    || !self.dead_by_count(reclaiming).is_empty()
                    || self.checkpoints.is_worth_evacuating(reclaiming.enough_metadata())
            };
            let was_stuck = self.is_stuck(reclaiming);
            let pause = if was_stuck { UNREADABLE_AFTER } else { LEFT_ALONE };
            // Those left alone are looked at again, whatever happens.
            let waited =
                reactor::timeout(pause, self.base.events.until(Event::Advanced, found)).await;
            if was_stuck && waited.is_err() {
                self.base.set_unreadable(self.is_stuck(reclaiming));
            }
        }
        Ok(())
    }

    /// How many segments are emptied before their space is given back: where nothing is free, all wait for the first.
    fn segments_at_once(&self) -> usize {
        if self.base.common.allocator.lock().available() == 0 { 1 } else { SEGMENTS_AT_ONCE }
    }

    /// Whether nobody gets space any more: what has it cannot be read now.
    fn is_stuck(&self, reclaiming: &Reclaiming) -> bool {
        reclaiming.left.keys().any(|id| reclaiming.is_left(*id))
            && self.base.table().reserved() <= RECLAIM_RESERVE
            && !self.base.writer.has_spare()
    }

    /// Whether there is a segment to empty, and room for what is live in it.
    fn can_empty_some(&self, reclaiming: &Reclaiming, wins: bool) -> bool {
        let by_others = self.emptied_by_others();
        let skip =
            |id| reclaiming.is_left(id) || self.is_being_emptied(id) || self.is_on(id, by_others);
        let victim = self.choose_victim(wins, skip);
        victim.is_some_and(|(_, live)| self.base.writer.room_for_moves() >= u64::from(live))
    }

    /// Drives, by their bits, of which whoever empties them moves what is there, and has room for that.
    fn emptied_by_others(&self) -> u64 {
        if self.base.lacks_room_to_empty_drives() { 0 } else { self.base.common.leaving() }
    }

    /// Whether a segment has a part on these drives, by their bits.
    fn is_on(&self, id: SegmentId, drives: u64) -> bool {
        let is_on = |info: &SegmentInfo| info.parts_on(drives) > 0;
        drives != 0 && self.base.table().get(id).is_some_and(|segment| is_on(&segment.info))
    }

    /// Gives back what is dead although space is not short: there was a look for it.
    async fn give_back_found(&self, reclaiming: &mut Reclaiming) -> Result<()> {
        let dead = self.dead_by_count(reclaiming);
        if dead.is_empty() { Ok(()) } else { self.give_back_dead(&dead, reclaiming).await }
    }

    /// Segments of data whose count says that nothing in them is live.
    fn dead_by_count(&self, reclaiming: &Reclaiming) -> BTreeSet<SegmentId> {
        let table = self.base.table();
        let is_data = |id: &SegmentId| {
            table.get(*id).is_some_and(|s| s.info.stream != Stream::Metadata)
                && !reclaiming.is_left(*id)
                && !self.checkpoints.is_held(*id)
        };
        table.dead(u64::MAX).into_iter().filter(is_data).collect()
    }

    /// Looks through segments that should be dead, once the map has learnt what was moved out of
    /// them, and gives back those that are.
    async fn give_back_dead(
        &self,
        dead: &BTreeSet<SegmentId>,
        reclaiming: &mut Reclaiming,
    ) -> Result<()> {
        let is_early = canary::has(Canary::FreesEarly);
        if !is_early {
            self.keeper.settle_reclaim().await?;
        }
        for id in dead {
            if is_early {
                self.base.writer.table_mut().set_live(*id, 0);
                self.checkpoints.note_dead(*id);
                continue;
            }
            if !self.verify_dead(*id).await? {
                reclaiming.leave(*id);
            }
        }
        self.keeper.flush().await
    }
}
