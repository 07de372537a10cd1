//! Clones cut loose in a shard: what a clone inherits it gets as its own, by reference, so that it needs its ancestors no
//! more (decision 0026).

use std::ops::Range;

use stdx::num::{u32_of, usize64};

use super::Front;
use crate::address::{Key, Location, SharedBlockId, Stored, Version, View};
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::log::Found;
use crate::map::{Contents, Extents};
use crate::volume::state::{BLOCK_BYTES, State};

impl Front {
    /// Waits until whoever changes volumes now is done, and what was given up half way shows: from then on all that change
    /// one that [takes turns](State::takes_turns) do.
    ///
    /// # Errors
    /// Those of the log.
    pub async fn begin_turns(&self) -> Result<()> {
        if !canary::skips(Step::DetachWriters) {
            self.settle_writes().await;
            self.base.log.settle().await?;
        }
        Ok(())
    }

    /// Gives a clone as its own what it inherits of blocks of this shard, as far as it has nothing of its own there. All
    /// that change it take turns. No contents are moved, but what reclaim moved just now. To be called again for the same
    /// blocks where it failed.
    ///
    /// # Errors
    /// `Gone` once the clone is; `Busy` while nothing leaves the log, `Full` when the pool has no space, `Corrupt` where
    /// something is lost.
    pub async fn adopt_inherited(&self, clone: &State, blocks: Range<u64>) -> Result<()> {
        let _writing = self.writing.enter();
        let end = blocks.end.min(clone.bytes() / BLOCK_BYTES);
        let Some(ancestors) = clone.ancestors().filter(|_| blocks.start < end) else {
            return Ok(());
        };
        let blocks = blocks.start..end;
        clone.check_change(blocks.start * BLOCK_BYTES, (end - blocks.start) * BLOCK_BYTES)?;
        assert!(clone.takes_turns(), "nobody writes in between");
        // Whoever looked up what is inherited there waited for that already (`Pool::gather_changes`), and what snapshots see
        // does not change: there is something to wait for only where nobody looked.
        self.carry_ancestors(ancestors).await?;
        let mut turn = match canary::skips(Step::DetachTurns) {
            true => None,
            false => Some(self.partial.hold(clone.view, blocks.clone()).await),
        };
        let adopt = async {
            self.partial.settle(&self.base.log).await?;
            let mut asked = self.absent(clone.view, blocks).await?;
            for ancestor in ancestors.iter() {
                for run in std::mem::take(&mut asked) {
                    let mut at = run.start;
                    while at < run.end {
                        let (from, to) = (Key::new(ancestor.view, at), Key::new(clone.view, at));
                        let (is_known, count) =
                            self.adopt(from, ancestor.sees, to, run.end - at).await?;
                        asked.extend((!is_known).then_some(at..at + count));
                        at += count;
                    }
                }
            }
            Ok(())
        };
        let done = adopt.await;
        turn.iter_mut().for_each(|turn| turn.ended = true);
        done
    }

    /// Blocks that a view has nothing of, no hole either.
    async fn absent(&self, view: View, blocks: Range<u64>) -> Result<Vec<Range<u64>>> {
        let (mut absent, mut extents) = (Vec::new(), Extents::default());
        let mut at = blocks.start;
        while at < blocks.end {
            let (found, run) = self.base.log.lookup(Key::new(view, at), blocks.end - at);
            let run = run.min(blocks.end - at);
            if matches!(found, Found::Nothing) {
                // The map's pages stay where they are while they are looked at.
                let _reading = self.base.grace.enter();
                let count = u32_of(usize64(run));
                self.base.map.lookup(view, at, count, &mut extents).await?;
                let nothing = extents.iter().filter(|e| matches!(e.contents, Contents::Absent));
                absent.extend(nothing.map(|e| e.first..e.first + u64::from(e.count)));
            }
            at += run;
        }
        Ok(absent)
    }

    /// Has blocks from `to` on refer to what a view has from `from` on, seen up to a version, as far as all of that is in
    /// the same state: whether anything is known there, and of how many blocks.
    async fn adopt(&self, from: Key, sees: Version, to: Key, blocks: u64) -> Result<(bool, u64)> {
        let mut extents = Extents::default();
        // What the map has stays where it is until it was read, or the log knows that it is referred to.
        let reading = self.base.grace.enter();
        let blocks = u32_of(usize64(blocks));
        self.base.map.lookup_as_of(from.view, sees, from.block, blocks, &mut extents).await?;
        let Some(first) = extents.iter().next() else { panic!("the map says something of each") };
        let count = u64::from(first.count);
        let (location, crcs) = match first.contents {
            Contents::Absent => return Ok((false, count)),
            Contents::Hole => return Ok((true, count)),
            Contents::Lost => {
                let at = to.block * BLOCK_BYTES;
                let what = format!("what it has at byte {at} is lost, until it is written there");
                return Err(Error::new(Kind::Corrupt, what));
            }
            Contents::Stored { location, encoding, crcs } => {
                encoding.check()?;
                (self.where_it_is(location), crcs)
            }
        };
        let is_lasting = location.name().is_some()
            || self.base.table().is_durable(location.offset(first.count - 1));
        if !is_lasting {
            return Ok((true, self.copy_contents(location, crcs, to, reading).await?));
        }
        let places = (0..first.count).map(|n| location.offset(n));
        let entries: Vec<Stored> =
            places.clone().zip(crcs).map(|(at, crc)| Stored::plain(at, *crc)).collect();
        let holding = self.base.log.hold(places.collect());
        drop(reading);
        self.refer(from, to, &entries).await?;
        drop(holding);
        Ok((true, count))
    }

    /// An old version stays where it was in the map, and is moved under its name.
    fn where_it_is(&self, location: Location) -> Location {
        let was_moved = location.name().is_none() && self.base.table().info(location).is_none();
        if was_moved { SharedBlockId::of(location).reference() } else { location }
    }

    /// Waits until the map has all that the log has now.
    ///
    /// # Errors
    /// `Busy` while nothing leaves the log, for want of space or of drives; `Gone` when the shard ends.
    pub async fn carry_log(&self) -> Result<()> {
        self.carry.carry_log().await
    }

    /// Waits until whoever asks ancestors of clones now is done.
    pub async fn settle_heirs(&self) {
        self.base.grace.pass().await;
        self.inheriting.pass().await;
    }
}
