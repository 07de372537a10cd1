//! What the map learns of a stripe, record by record.
//!
//! A block that is copied by reference gets a [`SharedBlockId`]: where it lies. From then on the map has it once,
//! under that name, and for each key that has its contents a reference to the name. Moving it changes
//! the one entry; who refers to it need not be known. That nobody does any more is found out by a
//! sweep.

use reactor::turns::give_way;
use stdx::num::{low32, u32_of, usize32};

use super::MapKeeper;
use crate::address::{Encoding, Key, Location, SharedBlockId, Stored, Version};
use crate::canary::{self, Canary, Step};
use crate::error::Result;
use crate::map::Extents;
use crate::segment::{Owner, Placed, StripeHeader};
use crate::shard::base::count;
use crate::shard::events::Event;

/// Blocks the map learns before others on the core have their turn: some ten microseconds' worth.
const LEARNT_AT_ONCE: usize = 16;

impl MapKeeper {
    /// The map learns a stripe's records.
    pub async fn learn(&self, header: &StripeHeader) -> Result<()> {
        let is_next = header.sequence == self.applied.get() + 1;
        assert!(is_next || canary::has(Canary::ReplaysInWrongOrder), "stripes are learnt in order");
        let is_there = self.base.table().get(header.segment).is_some();
        assert!(is_there, "a stripe is learnt while its segment is there");
        let (mut learnt, mut placed) = (0, 0);
        for record in header.placed() {
            placed += record.crcs.len() * usize::from(record.owner.has_contents());
            // Records may be many, and have one block each, or none.
            if learnt >= LEARNT_AT_ONCE {
                give_way().await;
                learnt = 0;
            }
            learnt += usize32(record.count).max(1);
            match record.owner {
                Owner::Write { key } => self.learn_write(key, record).await?,
                Owner::Hole { key, blocks } => {
                    self.reserve(2).await?;
                    self.base.map.insert_hole(key.view, record.version, key.block, blocks);
                }
                Owner::Move { key, old } => self.learn_move(key, old, record).await?,
                Owner::Refer { key, name } => {
                    self.learn_references(key, record.version, name, record.crcs).await?;
                }
                Owner::Share { key, name } => self.learn_shared(key, name, record.crcs).await?,
                Owner::Lost { key, old } => self.learn_lost(key, old, record).await?,
            }
        }
        self.base.writer.table_mut().stripe_applied(header.segment, Some(header.sequence));
        assert_eq!(placed, header.crcs.len(), "every block of a stripe is of a record");
        self.applied.set(header.sequence);
        self.base.events.raise(Event::SpaceChanged);
        Ok(())
    }

    async fn learn_write(&self, key: Key, record: Placed<'_>) -> Result<()> {
        for (n, crcs) in (0..).step_by(LEARNT_AT_ONCE).zip(record.crcs.chunks(LEARNT_AT_ONCE)) {
            if n > 0 {
                give_way().await;
            }
            self.reserve(crcs.len()).await?;
            let (key, at) =
                (Key::new(key.view, key.block + u64::from(n)), record.location.offset(n));
            let blocks = u32_of(crcs.len());
            self.base.writer.table_mut().add_live(at, blocks);
            self.base.map.insert(key, record.version, at, Encoding::PLAIN, crcs);
            if key.view.is_shared() {
                // Those who refer to it may be gone by now.
                self.base.pages.unreferred(u64::from(blocks));
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
            self.reserve(1).await?;
            let key = Key::new(key.view, key.block + u64::from(n));
            let new = Stored::plain(record.location.offset(n), *crc);
            // The map's pages stay where they are while they are looked at.
            let _reading = self.base.grace.enter();
            if self.base.map.replace_if(key, old.offset(n), new).await? {
                self.base.writer.table_mut().add_live(new.location, 1);
                count(&self.moved, 1);
            }
        }
        Ok(())
    }

    /// Blocks are lost: where nothing newer came in between, if it is said where they were.
    async fn learn_lost(&self, key: Key, old: Option<Location>, record: Placed<'_>) -> Result<()> {
        for n in 0..record.count {
            if n > 0 && usize32(n).is_multiple_of(LEARNT_AT_ONCE) {
                give_way().await;
            }
            self.reserve(1).await?;
            let key = key.forward(u64::from(n));
            let Some(old) = old.filter(|_| !canary::skips(Step::LostLooks)) else {
                self.base.map.insert_lost(key, record.version, 1);
                continue;
            };
            // The map's pages stay where they are while they are looked at.
            let _reading = self.base.grace.enter();
            self.base.map.lose_if(key, old.offset(n)).await?;
        }
        Ok(())
    }

    /// The map learns that blocks from `key` on refer to shared blocks. Those without an entry get
    /// their first: they lie where they were born. The log has kept them from being forgotten there.
    pub async fn learn_references(
        &self,
        key: Key,
        version: Version,
        name: SharedBlockId,
        crcs: &[u32],
    ) -> Result<()> {
        let mut extents = Extents::default();
        for (n, crcs) in (0..).step_by(LEARNT_AT_ONCE).zip(crcs.chunks(LEARNT_AT_ONCE)) {
            if n > 0 {
                give_way().await;
            }
            let (name, blocks) = (name.offset(n), u32_of(crcs.len()));
            let key = Key::new(key.view, key.block + u64::from(n));
            let first = name.key();
            {
                // The map's pages stay where they are while they are looked at.
                let _reading = self.base.grace.enter();
                self.base.map.lookup(first.view, first.block, blocks, &mut extents).await?;
            }
            self.reserve(2 * crcs.len()).await?;
            for extent in extents.iter().filter(|extent| extent.contents.is_empty()) {
                let at = low32(extent.first - first.block);
                let born = name.offset(at);
                let crcs = &crcs[usize32(at)..usize32(at + extent.count)];
                count(&self.named, u64::from(extent.count));
                self.base.writer.table_mut().add_live(born.origin(), extent.count);
                self.base.map.insert(
                    born.key(),
                    Version::FIRST,
                    born.origin(),
                    Encoding::PLAIN,
                    crcs,
                );
            }
            self.base.map.insert(key, version, name.reference(), Encoding::PLAIN, crcs);
            if !canary::skips(Step::SweepHearsReferences) {
                self.sought.keep(name, blocks);
            }
        }
        Ok(())
    }

    /// The map learns that blocks from `key` on share what they have, where nothing newer came in
    /// between.
    pub async fn learn_shared(&self, key: Key, name: SharedBlockId, crcs: &[u32]) -> Result<()> {
        for (n, crc) in (0..).zip(crcs) {
            if n > 0 && usize32(n).is_multiple_of(LEARNT_AT_ONCE) {
                give_way().await;
            }
            self.reserve(1).await?;
            let (key, name) = (Key::new(key.view, key.block + u64::from(n)), name.offset(n));
            let reference = Stored::plain(name.reference(), *crc);
            let _reading = self.base.grace.enter();
            let is_learnt = self.base.map.replace_if(key, name.origin(), reference).await?;
            if is_learnt && !canary::skips(Step::SweepHearsShared) {
                self.sought.keep(name, 1);
            }
        }
        Ok(())
    }
}
