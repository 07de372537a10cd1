//! Searches for space: the map learns all that the log has, and merges find out what nobody sees any more.
//!
//! Before a writer is refused, a task of the shard's own does that. Hosts only wait for it: their commands may end at
//! any moment.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::base::Base;
use super::capacity::Capacity;
use super::checkpoint::Checkpoints;
use super::destage::Destage;
use super::events::Event;
use super::keeper::MapKeeper;
use super::sweep::Sweep;
use crate::address::Location;
use crate::canary::{self, Step};
use crate::error::Result;

/// Searches for space, one at a time.
pub struct SpaceSearch {
    base: Rc<Base>,
    capacity: Rc<Capacity>,
    checkpoints: Rc<Checkpoints>,
    keeper: Rc<MapKeeper>,
    destage: Rc<Destage>,
    sweep: Rc<Sweep>,
    /// Searches asked for, begun, ended. Each has a number.
    asked: Cell<u64>,
    begun: Cell<u64>,
    ended: Cell<u64>,
    /// The stripe learnt last when there was nothing more to find.
    tidied: Cell<Option<u64>>,
    /// Snapshots deleted by then: what they alone saw was given up.
    pruned: Cell<u64>,
    /// Names given by then: old versions refer to what has one.
    referred: Cell<u64>,
}

/// What searches need.
pub struct Parts {
    pub base: Rc<Base>,
    pub capacity: Rc<Capacity>,
    pub checkpoints: Rc<Checkpoints>,
    pub keeper: Rc<MapKeeper>,
    pub destage: Rc<Destage>,
    pub sweep: Rc<Sweep>,
}

impl SpaceSearch {
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { base, capacity, checkpoints, keeper, destage, sweep } = parts;
        Self {
            base,
            capacity,
            checkpoints,
            keeper,
            destage,
            sweep,
            asked: Cell::new(0),
            begun: Cell::new(0),
            ended: Cell::new(0),
            tidied: Cell::new(None),
            // Of those deleted before the shard was opened the map may have something yet.
            pruned: Cell::new(u64::MAX),
            referred: Cell::new(u64::MAX),
        }
    }

    /// Asks for a search that begins after this; gives its number.
    pub fn ask(&self) -> u64 {
        if self.asked.get() == self.begun.get() {
            self.asked.set(self.begun.get() + 1);
            self.base.events.raise(Event::Search);
        }
        let is_numbered =
            self.ended.get() <= self.begun.get() && self.begun.get() < self.asked.get();
        assert!(is_numbered, "who asks gets a search that begins after");
        self.asked.get()
    }

    /// Has a search made, and waits for it.
    pub async fn find(&self) {
        let search = self.ask();
        let done = || self.ended.get() >= search || self.base.is_hindered();
        self.base.events.until(Event::Search, done).await;
    }

    /// Searches whenever somebody asks, until the shard ends.
    pub async fn run(self: Rc<Self>) {
        while !self.base.has_ended() {
            let due = || self.base.has_ended() || self.asked.get() > self.begun.get();
            self.base.events.until(Event::Search, due).await;
            if self.base.has_ended() {
                return;
            }
            assert_eq!(self.ended.get(), self.begun.get(), "searches are made one at a time");
            self.begun.set(self.asked.get());
            let done = self.tidy().await;
            self.ended.set(self.begun.get());
            self.base.events.raise(Event::Search);
            if !self.checkpoints.goes_on(done).await {
                return;
            }
        }
    }

    /// Lets the map learn what is in the log, holes above all, and its merges find out what nobody
    /// sees any more. Nothing new since the last time: nothing to find.
    async fn tidy(&self) -> Result<()> {
        let deleted = self.base.common.snapshots.deleted();
        let is_tidy = self.tidied.get() == Some(self.keeper.applied()) && self.sweep.is_swept();
        let is_tidy = is_tidy && self.pruned.get() == deleted;
        if is_tidy && self.base.log.is_empty() {
            return Ok(());
        }
        let as_of = self.capacity.appended();
        self.destage.run_to_head().await?;
        let (applied, named) = (self.keeper.applied(), self.keeper.named());
        let prunes = self.pruned.get() != deleted && !canary::skips(Step::SearchPrunes);
        self.keeper.compact(prunes).await?;
        self.pruned.set(deleted);
        // No sweep is under way, which alone forgets names.
        if self.referred.get() != named {
            self.base.map.refer_by_name().await?;
            self.referred.set(named);
        }
        let applied = if self.sweep.sweep().await? {
            let applied = self.keeper.applied();
            self.keeper.compact(false).await?;
            applied
        } else {
            applied
        };
        let live = self.recount().await?;
        self.capacity.note_live(live, as_of);
        self.checkpoints.take().await?;
        self.tidied.set(Some(applied));
        Ok(())
    }

    /// Counts what is live in every segment, by what the map says, and corrects the counts, which a crash makes too
    /// high: it repeats some of what was counted. Gives the sum of what was live when the map was last flushed.
    async fn recount(&self) -> Result<Option<u64>> {
        let (mut counted, mut live) = (BTreeMap::new(), 0);
        let count = |at: Location, blocks, learnt_since: bool| {
            // An old version that was moved counts under its name.
            if at.name().is_none() && self.base.table().info(at).is_some() {
                *counted.entry(at.segment()).or_insert(0) += blocks;
                live += if learnt_since { 0 } else { u64::from(blocks) };
            }
        };
        // Nobody runs between the last look at the map and the correction: both know the same.
        let whole = self.base.map.places(count).await?;
        if whole {
            self.base.writer.table_mut().set_live_data(&counted);
            // Before a writer takes for room what was counted twice.
            self.capacity.give_back(self.base.common.space.portion());
        }
        Ok(whole.then_some(live))
    }

    /// Answers the calls of other shards, until this one ends.
    pub async fn answer_calls(self: Rc<Self>) {
        let shard = self.base.writer.shard();
        let (mut last, mut answered) = (0, 0);
        while let Some(notice) = self.base.common.next_notice(shard, last).await {
            last = notice.number;
            if notice.asked > answered {
                self.find().await;
                self.capacity.give_back(0);
                answered = notice.asked;
                self.base.common.acknowledge(shard, answered);
            }
            // There may be segments to be had now, or some wanted that reclaim can win here.
            if self.base.writer.has_spare() {
                self.base.writer.look_for_shortage();
            }
            self.base.events.raise(Event::SpaceChanged);
            self.base.events.raise(Event::Advanced);
        }
    }
}
