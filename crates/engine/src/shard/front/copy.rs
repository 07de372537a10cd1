//! Copying blocks within the shard: no contents are moved that are on the drives.

use reactor::{ReadGuard, buffer};
use stdx::num::{u32_of, u64_of, usize64};

use super::Front;
use crate::address::{BLOCK, Key, Location, SharedBlockId, Stored};
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use crate::limits::COPY_CONTENTS_BLOCKS;
use crate::log::{Append, Found, RECORD_BLOCKS_MAX};
use crate::map::{Contents, Extent, Extents};
use crate::volume::state::{BLOCK_BYTES, State};

/// A copy of whole blocks, from one volume to another or within one.
#[derive(Clone, Copy, Debug)]
pub struct CopyRange {
    /// In bytes, where it is copied from and to.
    pub from: u64,
    pub to: u64,
    pub length: u64,
}

impl Front {
    /// Copies whole blocks of a volume, at most 1 MiB that does not overlap, to another or the same;
    /// durable when this returns. Each block changes as a whole.
    ///
    /// # Errors
    /// As [`Volume::copy_from`](crate::Volume::copy_from).
    pub async fn copy_bytes(&self, to: &State, from: &State, copy: CopyRange) -> Result<()> {
        let _writing = self.writing.enter();
        to.check_change(copy.to, copy.length)?;
        let is_own = from.sees.is_none() && from.ancestors().is_none();
        assert!(is_own, "what a snapshot sees, or a clone inherits, is copied by its contents");
        let is_whole = (copy.from | copy.to | copy.length).is_multiple_of(BLOCK_BYTES);
        assert!(is_whole, "whole blocks are shared");
        from.check(copy.from, copy.length)?;
        if self.is_reserved(from.view) || self.is_reserved(to.view) {
            // What is kept would not suffice for what is shared: as whoever copies learns, if not before.
            return Err(Error::new(Kind::Busy, "what has a reservation is copied by its contents"));
        }
        if !canary::has(Canary::CopiesPastWindow) {
            self.catch_up(from).await?;
            self.catch_up(to).await?;
        }
        let source = Key::new(from.view, copy.from / BLOCK_BYTES);
        let target = Key::new(to.view, copy.to / BLOCK_BYTES);
        let blocks = copy.length / BLOCK_BYTES;
        let mut turn = if to.takes_turns() {
            let range = target.block..target.block + blocks;
            Some(self.partial.hold(to.view, range).await)
        } else {
            None
        };
        let done = self.copy(source, target, blocks).await;
        if let Some(turn) = &mut turn {
            turn.ended = true;
        }
        done?;
        if canary::has(Canary::CopiesAhead) {
            return Ok(());
        }
        self.base.log.until_enough().await.map_err(|e| self.why(e))
    }

    /// Copies blocks, run by run of those that are in the same state.
    async fn copy(&self, source: Key, target: Key, blocks: u64) -> Result<()> {
        let mut at = 0;
        while at < blocks {
            let (source, target) = (source.forward(at), target.forward(at));
            let (found, run) = self.base.log.lookup(source, blocks - at);
            let run = run.min(blocks - at);
            at += match found {
                Found::Data(_) => self.copy_logged(source, target, blocks - at).await?,
                Found::Hole => {
                    self.deallocate(target.view, target.block, run).await?;
                    run
                }
                Found::Refers { position, index } => {
                    let references =
                        (index..index + usize64(run)).map(|n| self.base.log.reference(position, n));
                    // The record that is there has the block they are of share them.
                    let shared = |to: crate::log::Reference| Stored {
                        location: SharedBlockId::of(to.stored.location).reference(),
                        ..to.stored
                    };
                    let entries =
                        references.map(|to| to.map(shared)).collect::<Result<Vec<_>>>()?;
                    let holding =
                        self.base.log.hold(entries.iter().map(|to| to.location).collect());
                    self.refer(source, target, &entries).await?;
                    drop(holding);
                    run
                }
                Found::Lost => return Err(super::plan::lost(source)),
                Found::Nothing => self.copy_settled(source, target, run).await?,
            };
        }
        Ok(())
    }

    /// Copies blocks that are in the log with their contents: how many there were to begin with.
    async fn copy_logged(&self, source: Key, target: Key, blocks: u64) -> Result<u64> {
        let most = blocks.min(COPY_CONTENTS_BLOCKS);
        let mut data = buffer::scratch(usize64(most) * BLOCK).await;
        let mut found = 0;
        for block in data.chunks_exact_mut(BLOCK).take(usize64(most)) {
            let (Found::Data(at), _) = self.base.log.lookup(source.forward(found), 1) else {
                break;
            };
            self.base.log.copy_out(at, block)?;
            found += 1;
        }
        // None, when they went to the drives meanwhile.
        if found > 0 {
            self.write(target.view, target.block, &data[..usize64(found) * BLOCK]).await?;
        }
        Ok(found)
    }

    /// Copies blocks that the map knows of. Gives how many of the first ones it copied: those that a record may refer
    /// to are one run, and those that it may not are others.
    async fn copy_settled(&self, source: Key, target: Key, blocks: u64) -> Result<u64> {
        let mut extents = Extents::default();
        // What the map has stays where it is until it was read, or the log knows that it is referred to.
        let reading = self.base.grace.enter();
        let blocks = u32_of(usize64(blocks));
        self.base.map.lookup(source.view, source.block, blocks, &mut extents).await?;
        let fleeting = extents.iter().next().filter(|first| !self.may_refer(first));
        if let Some(Extent { contents: Contents::Stored { location, encoding, crcs }, .. }) =
            fleeting
        {
            encoding.check()?;
            return self.copy_contents(location, crcs, target, reading).await;
        }
        if let Some(Extent { contents: Contents::Lost, .. }) = fleeting {
            return Err(super::plan::lost(source));
        }
        let lasting: Vec<Extent<'_>> = extents.iter().take_while(|e| self.may_refer(e)).collect();
        let places = lasting.iter().flat_map(|extent| match extent.contents {
            Contents::Stored { location, .. } => {
                (0..extent.count).map(|n| location.offset(n)).collect()
            }
            Contents::Hole | Contents::Lost | Contents::Absent => Vec::new(),
        });
        let holding = self.base.log.hold(places.collect());
        drop(reading);
        self.copy_lasting(source, target, &lasting).await?;
        drop(holding);
        Ok(lasting.iter().map(|extent| u64::from(extent.count)).sum())
    }

    /// Copies the first of some blocks with their contents; gives how many. They stay where they are as long as `reading`.
    pub(super) async fn copy_contents(
        &self,
        from: Location,
        crcs: &[u32],
        target: Key,
        reading: ReadGuard,
    ) -> Result<u64> {
        let crcs = &crcs[..crcs.len().min(usize64(COPY_CONTENTS_BLOCKS))];
        // Not from the pool: whoever waits for readers to be done would wait for a buffer, too.
        let mut data = vec![0; crcs.len() * BLOCK];
        self.read_segment(from, crcs, &mut data).await?;
        drop(reading);
        self.write(target.view, target.block, &data).await?;
        Ok(u64_of(crcs.len()))
    }

    /// Has blocks from `target` on refer to these, which are held and begin with `source`, or be holes as they are.
    async fn copy_lasting(&self, source: Key, target: Key, extents: &[Extent<'_>]) -> Result<()> {
        let mut entries = Vec::new();
        let mut first = 0;
        for extent in extents {
            let begin = extent.first - source.block;
            match extent.contents {
                Contents::Stored { location, encoding, crcs } => {
                    encoding.check()?;
                    let placed = (0..).zip(crcs);
                    entries.extend(placed.map(|(n, crc)| Stored::plain(location.offset(n), *crc)));
                }
                Contents::Hole | Contents::Lost | Contents::Absent => {
                    let (from, to) = (source.forward(first), target.forward(first));
                    self.refer(from, to, &entries).await?;
                    entries.clear();
                    let hole = target.forward(begin);
                    self.deallocate(hole.view, hole.block, u64::from(extent.count)).await?;
                    first = begin + u64::from(extent.count);
                }
            }
        }
        self.refer(source.forward(first), target.forward(first), &entries).await
    }

    /// Whether a record in the log may refer to what a block has. Where reclaim has just moved it, it may not be after
    /// a crash; a name is known as long as its block is.
    fn may_refer(&self, extent: &Extent<'_>) -> bool {
        match extent.contents {
            Contents::Stored { location, .. } => {
                location.name().is_some()
                    || self.base.table().is_durable(location.offset(extent.count - 1))
            }
            Contents::Hole | Contents::Absent => true,
            Contents::Lost => false,
        }
    }

    /// Has blocks from `target` on refer to what those from `source` on have, which is held.
    pub(super) async fn refer(&self, source: Key, target: Key, entries: &[Stored]) -> Result<()> {
        let (promise, mut charge) = self.admit_references(target, u64_of(entries.len())).await?;
        for (n, entries) in (0..).step_by(RECORD_BLOCKS_MAX).zip(entries.chunks(RECORD_BLOCKS_MAX))
        {
            let n = u64_of(n);
            self.destage.look_at_log();
            let (source, key) = (source.forward(n), target.forward(n));
            // Nobody may be there any more to hear of it.
            charge.keep();
            self.appended(self.base.log.append(Append::Refer { key, source, entries }).await)?;
        }
        drop(promise);
        Ok(())
    }
}
