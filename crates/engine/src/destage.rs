//! Carrying acknowledged blocks from the log to the drives: the second walk of a write, behind its
//! acknowledgement.
//!
//! One task takes blocks from the log, those that are still current, into the stripes of the user
//! stream. Another lets the map learn the stripes that were written, in their order, and trims the log
//! of what is then durable elsewhere.

use std::rc::Rc;

use reactor::turns::give_way;
use stdx::Counted;
use stdx::num::{u32_of, u64_of, usize32};

use crate::address::{Encoding, Key, Location, Stored};
use crate::canary::{self, Canary, Step};
use crate::error::Result;
use crate::log::{Item, RECORD_BLOCKS_MAX, What};
use crate::segment::{Owner, Placed, Stream, StripeHeader};
use crate::shard::{Shard, count};
use crate::shared::LEARNT_AT_ONCE;

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

impl Shard {
    /// Takes blocks from the log into stripes, until the shard ends.
    pub async fn destage(self: Rc<Self>) {
        let mut items = Vec::with_capacity(RECORD_BLOCKS_MAX);
        while !self.ended.get() {
            self.filling.until(|| self.ended.get() || self.is_due() || self.is_stuck()).await;
            let done = if self.is_due() {
                self.destage_batch(&mut items).await
            } else {
                self.writer.seal(Stream::User).await
            };
            if let Err(error) = done {
                self.end_with(&error);
                return;
            }
        }
    }

    /// Whether the log has so much that some of it should be taken.
    fn is_due(&self) -> bool {
        let worth = if self.is_pressed() { 1 } else { WORTH };
        self.is_filling() && self.log.pending() >= worth
    }

    /// Whether the log should be emptied whatever it takes.
    fn is_pressed(&self) -> bool {
        self.draining.get() > 0 || self.log.fill() >= FILL_HIGH || self.log.waiting() > 0
    }

    /// Whether the log has so much that destage should look at it. There may be no room long before
    /// its ring is full.
    pub fn is_filling(&self) -> bool {
        self.draining.get() > 0 || self.log.fill() >= FILL_LOW || self.log.is_full()
    }

    /// Whether the log cannot be trimmed before a stripe is written that is not full.
    fn is_stuck(&self) -> bool {
        self.log.pending() == 0 && self.writer.has_partial(Stream::User) && self.is_pressed()
    }

    async fn destage_batch(&self, items: &mut Vec<Item>) -> Result<()> {
        let (mut last, mut taken) = (None, 0);
        let through = loop {
            items.clear();
            let through = self.log.next_batch(RECORD_BLOCKS_MAX, items)?;
            self.assert_handed(items, through);
            self.writer.note_log(through);
            last = self.destage_items(items).await?.or(last);
            taken += items.len();
            if taken >= BATCH || self.log.pending() == 0 {
                break through;
            }
        };
        count(&self.counters.destaged, u64_of(taken));
        self.handed.borrow_mut().push_back((through, last));
        self.writer.progress.raise();
        Ok(())
    }

    /// What the log hands out is behind what it did before, in order, up to where it says.
    fn assert_handed(&self, items: &[Item], through: u64) {
        let before = self.handed.borrow().back().map_or(0, |(before, _)| *before);
        assert!(before.max(self.log.tail() - 1) <= through, "the log does not go back");
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
        assert_eq!(at, items.len(), "what was handed out is carried");
        Ok(last)
    }

    /// Puts the first of `items`, a block, hole or reference, into the user stream, and blocks that lie behind it
    /// as far as the stripe has room. Gives how many these were, and where they went.
    async fn destage_some(&self, items: &[Item]) -> Result<(usize, Location)> {
        loop {
            match self.try_destage(items)? {
                Some(done) => return Ok(done),
                None => self.writer.make_room(Stream::User).await?,
            }
        }
    }

    fn try_destage(&self, items: &[Item]) -> Result<Option<(usize, Location)>> {
        let item = &items[0];
        let one = match item.what {
            _ if self.log.was_lost(item)? => self.writer.try_lose(Stream::User, item.key, None),
            What::Lost => None,
            What::Data(_) => return self.try_destage_run(items),
            What::Hole { count } => {
                let owner = Owner::Hole { key: item.key, blocks: count };
                self.writer.try_append(Stream::User, owner, &[], &[])
            }
            What::Refers(to) => {
                to.stored.encoding.check()?;
                self.writer.try_refer(Stream::User, item.key, &to)
            }
        };
        Ok(one.map(|at| (1, at)))
    }

    /// Copies blocks in one go where they lie one behind another: what is large is copied at three times the speed.
    fn try_destage_run(&self, items: &[Item]) -> Result<Option<(usize, Location)>> {
        let room = usize32(self.writer.room(Stream::User)).clamp(1, ITEMS_A_TURN);
        let run = self.log.run_of(&items[..items.len().min(room)]);
        let (run, behind) = items.split_at(run);
        if let [next, ..] = behind {
            self.log.prefetch(next);
        }
        let mut crcs = [0; ITEMS_A_TURN];
        assert!(run.len() <= crcs.len(), "a run has a checksum for each block");
        for (crc, data) in crcs.iter_mut().zip(run.iter().filter_map(Item::data)) {
            *crc = data.crc;
        }
        let (owner, crcs) = (Owner::Write { key: run[0].key }, &crcs[..run.len()]);
        let at = self
            .log
            .carry_out(run, |data| self.writer.try_append(Stream::User, owner, crcs, data))?;
        Ok(at.map(|at| (run.len(), at)))
    }

    /// Lets the map learn what was written, and trims the log, until the shard ends.
    pub async fn settle(self: Rc<Self>) {
        while !self.ended.get() {
            let due = || {
                self.ended.get()
                    || self.writer.check().is_err()
                    || self.writer.has_written()
                    || self.can_trim()
            };
            self.writer.progress.until(due).await;
            if let Err(error) = self.settle_some().await {
                self.end_with(&error);
                return;
            }
            self.give_space_back(self.common.space.portion());
            self.advanced.raise();
            self.filling.raise();
            self.wake.raise();
        }
    }

    async fn settle_some(&self) -> Result<()> {
        self.writer.check()?;
        while let Some(header) = self.writer.take_written() {
            self.learn(&header).await?;
        }
        let Some(through) = self.take_trimmable() else { return Ok(()) };
        let (written, applied) = (self.writer.written(), self.table().cut());
        if !canary::has(Canary::TrimsEarly) {
            self.writer.flush().await?;
        }
        if !canary::skips(Step::TrimTells) {
            self.common.superblock.tell_failures().await?;
        }
        self.common.follow_drives();
        self.log.trim(through, written).await?;
        assert!(self.log.tail() > through, "what was trimmed is forgotten");
        self.writer.table.borrow_mut().made_durable(applied);
        Ok(())
    }

    /// The map learns a stripe's records.
    pub async fn learn(&self, header: &StripeHeader) -> Result<()> {
        let _learning = Counted::new(&self.learning);
        let mut learnt = 0;
        for record in header.placed() {
            // Records may be many, and have one block each, or none.
            if learnt >= LEARNT_AT_ONCE {
                give_way().await;
                learnt = 0;
            }
            learnt += usize32(record.count).max(1);
            match record.owner {
                Owner::Write { key } => self.learn_write(key, record).await?,
                Owner::Hole { key, blocks } => {
                    self.reserve_in_map(2).await?;
                    self.map.insert_hole(key.view, key.block, blocks);
                }
                Owner::Move { key, old } => self.learn_move(key, old, record).await?,
                Owner::Refer { key, name } => {
                    self.learn_references(key, name, record.crcs).await?;
                }
                Owner::Share { key, name } => self.learn_shared(key, name, record.crcs).await?,
                Owner::Lost { key, old } => self.learn_lost(key, old, record.count).await?,
            }
        }
        self.writer.table.borrow_mut().stripe_applied(header.segment, Some(header.sequence));
        self.applied.set(header.sequence);
        self.wake.raise();
        Ok(())
    }

    async fn learn_write(&self, key: Key, record: Placed<'_>) -> Result<()> {
        for (n, crcs) in (0..).step_by(LEARNT_AT_ONCE).zip(record.crcs.chunks(LEARNT_AT_ONCE)) {
            if n > 0 {
                give_way().await;
            }
            self.reserve_in_map(crcs.len()).await?;
            let (key, at) =
                (Key::new(key.view, key.block + u64::from(n)), record.location.offset(n));
            let blocks = u32_of(crcs.len());
            self.writer.table.borrow_mut().add_live(at, blocks);
            self.map.insert(key, at, Encoding::PLAIN, crcs);
            if key.view.is_shared() {
                // Those who refer to it may be gone by now.
                self.pages.unreferred(u64::from(blocks));
            }
        }
        Ok(())
    }

    /// Blocks moved by reclaim count where nothing newer came in between.
    async fn learn_move(&self, key: Key, old: Location, record: Placed<'_>) -> Result<()> {
        for (n, crc) in (0..).zip(record.crcs) {
            if n > 0 && usize32(n).is_multiple_of(LEARNT_AT_ONCE) {
                give_way().await;
            }
            self.reserve_in_map(1).await?;
            let key = Key::new(key.view, key.block + u64::from(n));
            let new = Stored::plain(record.location.offset(n), *crc);
            // The map's pages stay where they are while they are looked at.
            let _reading = self.grace.enter();
            if self.map.replace_if(key, old.offset(n), new).await? {
                self.writer.table.borrow_mut().add_live(new.location, 1);
                count(&self.counters.moved, 1);
            }
        }
        Ok(())
    }

    /// Blocks are lost: where nothing newer came in between, if it is said where they were.
    async fn learn_lost(&self, key: Key, old: Option<Location>, count: u32) -> Result<()> {
        for n in 0..count {
            if n > 0 && usize32(n).is_multiple_of(LEARNT_AT_ONCE) {
                give_way().await;
            }
            self.reserve_in_map(1).await?;
            let key = key.forward(u64::from(n));
            let Some(old) = old.filter(|_| !canary::skips(Step::LostLooks)) else {
                self.map.insert_lost(key, 1);
                continue;
            };
            // The map's pages stay where they are while they are looked at.
            let _reading = self.grace.enter();
            self.map.lose_if(key, old.offset(n)).await?;
        }
        Ok(())
    }

    /// Whether records at the front of what destage took have all their blocks in the map.
    fn can_trim(&self) -> bool {
        let handed = self.handed.borrow();
        handed.front().is_some_and(|(_, last)| self.is_learnt(*last))
    }

    /// Whether the stripe at `at` was learnt; user stripes are learnt in their order.
    fn is_learnt(&self, at: Option<Location>) -> bool {
        let Some(at) = at else { return true };
        let table = self.table();
        // Without its segment nothing of it can be waiting any more.
        table
            .get(at.segment())
            .is_none_or(|segment| segment.info.geometry.place(at.slot()).stripe < segment.applied)
    }

    /// Up to which record the log may be trimmed, if further than before.
    fn take_trimmable(&self) -> Option<u64> {
        let mut through = None;
        while self.can_trim() {
            through = self.handed.borrow_mut().pop_front().map(|(through, _)| through).or(through);
        }
        through
    }
}
