//! Blocks that more than one key refers to.
//!
//! A block that is copied by reference gets a [`Name`]: where it lies. From then on the map has it once,
//! under that name, and for each key that has its contents a reference to the name. Moving it changes
//! the one entry; who refers to it need not be known. That nobody does any more is found out by a
//! [sweep](crate::sweep).

use std::rc::Rc;

use reactor::turns::give_way;
use stdx::num::{low32, u32_of, usize32};

use crate::address::{BLOCK, Encoding, Key, Name, Stored};
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::map::{Contents, Extents};
use crate::shard::Shard;

/// Blocks the map learns before others on the core have their turn: some ten microseconds' worth.
pub const LEARNT_AT_ONCE: usize = 16;

impl Shard {
    /// The map learns that blocks from `key` on refer to shared blocks. Those without an entry get
    /// their first: they lie where they were born. The log has kept them from being forgotten there.
    pub async fn learn_references(&self, key: Key, name: Name, crcs: &[u32]) -> Result<()> {
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
                let _reading = self.grace.enter();
                self.map.lookup(first.view, first.block, blocks, &mut extents).await?;
            }
            self.reserve_in_map(2 * crcs.len()).await?;
            for extent in extents.iter().filter(|extent| extent.contents.is_empty()) {
                let at = low32(extent.first - first.block);
                let born = name.offset(at);
                let crcs = &crcs[usize32(at)..usize32(at + extent.count)];
                self.writer.table.borrow_mut().add_live(born.birth(), extent.count);
                self.map.insert(born.key(), born.birth(), Encoding::PLAIN, crcs);
            }
            self.map.insert(key, name.reference(), Encoding::PLAIN, crcs);
            if !canary::skips(Step::SweepHearsReferences) {
                self.keep(name, blocks);
            }
        }
        Ok(())
    }

    /// A sweep hears of references that the map has just learnt: it may have looked at their keys
    /// already. Not before the map has them: a sweep that begins in between would neither hear of
    /// them nor see them, and find them gone from the log.
    fn keep(&self, name: Name, blocks: u32) {
        if let Some(candidates) = &mut *self.candidates.borrow_mut() {
            let _kept = candidates.keep(name, blocks);
        }
    }

    /// The map learns that blocks from `key` on share what they have, where nothing newer came in
    /// between.
    pub async fn learn_shared(&self, key: Key, name: Name, crcs: &[u32]) -> Result<()> {
        for (n, crc) in (0..).zip(crcs) {
            if n > 0 && usize32(n).is_multiple_of(LEARNT_AT_ONCE) {
                give_way().await;
            }
            self.reserve_in_map(1).await?;
            let (key, name) = (Key::new(key.view, key.block + u64::from(n)), name.offset(n));
            let reference = Stored::plain(name.reference(), *crc);
            let _reading = self.grace.enter();
            let is_learnt = self.map.replace_if(key, name.birth(), reference).await?;
            if is_learnt && !canary::skips(Step::SweepHearsShared) {
                self.keep(name, 1);
            }
        }
        Ok(())
    }

    /// Reads shared blocks with adjacent names, wherever they are. To be called inside the grace.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_shared(&self, name: Name, crcs: &[u32], out: &mut [u8]) -> Result<()> {
        // Where they were born they still lie, until their segment is given back.
        if self.table().info(name.birth()).map(Rc::clone).is_some() {
            return self.read_segment(name.birth(), crcs, out).await;
        }
        let (first, blocks) = (name.key(), u32_of(crcs.len()));
        let mut extents = Extents::default();
        self.map.lookup(first.view, first.block, blocks, &mut extents).await?;
        for extent in extents.iter() {
            let at = usize32(low32(extent.first - first.block));
            let end = at + usize32(extent.count);
            let (location, crcs) = match extent.contents {
                Contents::Stored { location, encoding, crcs } => {
                    encoding.check()?;
                    (location, crcs)
                }
                Contents::Lost => {
                    let what = format!("{:?} is lost", name.offset(u32_of(at)));
                    return Err(Error::new(Kind::Corrupt, what));
                }
                Contents::Hole | Contents::Absent => {
                    let what = format!("{:?} is referred to and nowhere", name.offset(u32_of(at)));
                    return Err(Error::new(Kind::Corrupt, what));
                }
            };
            self.read_segment(location, crcs, &mut out[at * BLOCK..end * BLOCK]).await?;
        }
        Ok(())
    }
}
