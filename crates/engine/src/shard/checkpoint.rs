//! Checkpoints: what recovery begins with, written beside everything else that goes on.
//!
//! A checkpoint names the map's runs on media and every segment of the shard, among them segments
//! that are not used yet: stripes written after it can only lie there, so recovery finds them. Only
//! once it is complete is the space of dead segments given back.
//!
//! Runs and segments are on pages, of which those are written that changed since the last
//! checkpoint; the manifest, which lists all pages, and what leads to it are written each time.

mod on_demand;
mod plan;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use reactor::sync::Semaphore;
use stdx::num::u64_of;
use zerocopy::IntoBytes;

use super::base::Base;
use super::events::Event;
use crate::address::{BLOCK, Entry, SegmentId};
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::format::manifest::{PageKind, Paged, SegmentRecord};
use crate::format::root::{INDEX_ENTRIES, INDEX_MAX, MANIFEST_MAX, RawEntry, Root, segments_max};
use crate::limits::{RECLAIM_RESERVE, RESERVED_MAX};
use crate::manifest_pages::ManifestPages;
use crate::segment::{SegmentInfo, Stream};
use crate::segment_table::{Segment, State};
use plan::{Plan, Written};

/// How many of these blocks lie in which segment.
fn count<'a>(blocks: impl IntoIterator<Item = &'a Entry>) -> BTreeMap<SegmentId, u32> {
    let mut used = BTreeMap::new();
    for entry in blocks {
        *used.entry(entry.location.segment()).or_insert(0) += 1;
    }
    used
}

/// Takes checkpoints.
pub struct Checkpoints {
    base: Rc<Base>,
    /// One at a time.
    turn: Semaphore,
    /// Of the last one.
    generation: Cell<u64>,
    /// That of the root which the opening found: later ones were written to all drives in use.
    found: u64,
    /// The ordered stripe up to which the map's runs on media have all records.
    cut: Cell<u64>,
    /// The last one found no room for its root: what it wrote before is in use until one is done.
    lacked_room: Cell<bool>,
    /// Where the last one's manifest lies, without its pages, and what those wrote that failed since.
    manifest_blocks: RefCell<Vec<Entry>>,
    /// The pages of the last one's manifest, and which of them the next one writes.
    pages: RefCell<ManifestPages>,
    /// How often each drive was out as the last one began.
    outs: RefCell<Vec<usize>>,
    /// Counts that are hints are written as they are.
    exact: Cell<bool>,
    /// Blocks that the last one wrote.
    blocks_written: Cell<usize>,
    /// Data segments found, block by block, to hold nothing any more.
    verified: RefCell<BTreeSet<SegmentId>>,
    /// Segments that are being checked or emptied, or of which a drive's part is being made anew: their space is not
    /// given back.
    held: RefCell<Vec<SegmentId>>,
    /// Those whose space the one under way gives back.
    given_back: RefCell<Vec<SegmentId>>,
    /// Segments of metadata emptied last.
    evacuated: RefCell<Vec<SegmentId>>,
}

/// The last checkpoint before a shard was opened.
#[derive(Default)]
pub struct Last {
    pub cut: u64,
    pub generation: u64,
    pub manifest_blocks: Vec<Entry>,
    pub pages: ManifestPages,
}

/// Keeps a segment's space from being given back.
pub struct Hold<'a> {
    of: &'a Checkpoints,
    id: SegmentId,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut held = self.of.held.borrow_mut();
        let found = held.iter().position(|id| *id == self.id);
        let is_held = found.is_some() || canary::skips(Step::RejoinHold);
        assert!(is_held, "a segment is held until it is let go of");
        if let Some(at) = found {
            held.swap_remove(at);
        }
        drop(held);
        // It may be dead by now.
        self.of.base.events.raise(Event::SpaceChanged);
        self.of.base.events.raise(Event::Advanced);
    }
}

impl Checkpoints {
    #[must_use]
    pub fn new(base: Rc<Base>, last: Last) -> Self {
        Self {
            base,
            turn: Semaphore::new(1),
            generation: Cell::new(last.generation),
            found: last.generation,
            cut: Cell::new(last.cut),
            lacked_room: Cell::new(false),
            manifest_blocks: RefCell::new(last.manifest_blocks),
            pages: RefCell::new(last.pages),
            outs: RefCell::default(),
            exact: Cell::new(false),
            blocks_written: Cell::new(0),
            verified: RefCell::default(),
            held: RefCell::default(),
            given_back: RefCell::default(),
            evacuated: RefCell::default(),
        }
    }

    /// The map's runs on media have the records of all ordered stripes up to this one.
    pub fn note_flushed(&self, cut: u64) {
        assert!(self.cut.get() <= cut, "the map on media forgets nothing");
        self.cut.set(cut);
    }

    /// The generation of the root that was written last to all drives in use; `None` before the first of this life, which
    /// may have been cut short on some.
    #[must_use]
    pub fn written_root(&self) -> Option<u64> {
        Some(self.generation.get()).filter(|generation| *generation > self.found)
    }

    /// The ordered stripe up to which the map's runs on media have all records.
    #[must_use]
    pub const fn cut(&self) -> u64 {
        self.cut.get()
    }

    /// Block by block nothing was found in a segment: the next one gives it back.
    pub fn note_dead(&self, id: SegmentId) {
        let has_live = self.base.table().get(id).is_some_and(|segment| segment.live > 0);
        assert!(!has_live, "what is given back has no live block");
        self.verified.borrow_mut().insert(id);
    }

    /// Does something while none is being taken.
    pub async fn between<R>(&self, look: impl FnOnce() -> R) -> R {
        let _turn = self.turn.hold(1).await;
        look()
    }

    /// Takes a checkpoint of the map's runs as they are, reserves segments, and gives the space of
    /// dead ones back.
    ///
    /// # Errors
    /// `Failed` when drives failed beyond the redundancy, `Full` when metadata finds no space.
    pub async fn take(&self) -> Result<()> {
        let _turn = self.turn.hold(1).await;
        if self.lacked_room.get() {
            // One after the other would fill the room for metadata, and use up numbers of segments.
            let next = self.generation.get() + 1;
            self.base.common.superblock.try_root(self.base.writer.shard(), next).await?;
        }
        let outs = self.leave_drives_that_went_out().await?;
        let fresh = self.reserve();
        let done = self.write_checkpoint(&fresh).await;
        if done.is_ok() {
            self.outs.replace(outs);
        }
        self.given_back.borrow_mut().clear();
        let mut table = self.base.writer.table_mut();
        match done {
            Ok(()) => {
                for info in fresh {
                    table.insert(Segment::new(info, State::Reserved));
                }
            }
            Err(_) => {
                let mut allocator = self.base.common.allocator.lock();
                fresh.iter().for_each(|info| allocator.free(info.id, &info.members));
            }
        }
        drop(table);
        self.base.writer.fed();
        done?;
        self.base.events.raise(Event::Advanced);
        if self.base.writer.has_spare() {
            // Reserved segments that were opened, or space that was given back, after this
            // checkpoint had made its choice.
            self.base.writer.look_for_shortage();
        }
        Ok(())
    }

    /// Has this one write the pages anew that have a part on a drive which went out since the last one began, and may bear
    /// one loss less; elsewhere, where segments have their parts on other drives. Gives how often each drive was out by now.
    async fn leave_drives_that_went_out(&self) -> Result<Vec<usize>> {
        let drives = self.base.writer.segments().drives();
        let outs: Vec<usize> = drives.indices().map(|drive| drives.outs(drive)).collect();
        let went = {
            let before = self.outs.borrow();
            let went = |drive: &u16| {
                let at = usize::from(*drive);
                outs[at] > before.get(at).copied().unwrap_or(0)
            };
            drives.indices().filter(went).fold(0, |all, drive| all | 1_u64 << drive)
        };
        if went == 0 {
            return Ok(outs);
        }
        if self.base.common.has_room_online() {
            let lost = drives.lost();
            self.base.writer.leave_metadata(|info| info.parts_on(lost) > 0).await?;
        }
        let table = self.base.table();
        let has_part = |id| table.get(id).is_some_and(|of: &Segment| of.info.parts_on(went) > 0);
        self.pages.borrow_mut().leave(has_part);
        Ok(outs)
    }

    /// Segments for the stripes to come, as many as the pool can spare.
    fn reserve(&self) -> Vec<Rc<SegmentInfo>> {
        let reserved = self.base.table().reserved();
        let mut fresh = Vec::new();
        // Hosts leave to whoever empties drives what is won until that has enough to go on: they would take all of it.
        let target = match self.base.lacks_room_to_empty_drives() {
            true => RECLAIM_RESERVE,
            false => self.reserve_target(),
        };
        while reserved + fresh.len() < target && self.base.writer.has_spare() {
            match self.base.writer.allocate(Stream::User) {
                Some(info) => fresh.push(Rc::new(info)),
                None => break,
            }
        }
        fresh
    }

    /// How many segments are named ahead: a share of the pool, within bounds. Less of it the more
    /// shards there are, since what one of them has reserved the others cannot have.
    fn reserve_target(&self) -> usize {
        let shards = u64::from(self.base.common.shards);
        let share = self.base.common.segments() / (16 * shards * shards);
        usize::try_from(share).unwrap_or(usize::MAX).clamp(2 * RECLAIM_RESERVE, RESERVED_MAX)
    }

    async fn write_checkpoint(&self, fresh: &[Rc<SegmentInfo>]) -> Result<()> {
        let mut blocks = Vec::new();
        let done = self.write_root(fresh, &mut blocks).await;
        if done.is_err() {
            // Some drives may have a root that names them. The next checkpoint takes their place, as that of the last one's.
            self.manifest_blocks.borrow_mut().append(&mut blocks);
        }
        done
    }

    /// Adds the blocks of the manifest to `blocks` as they are written.
    async fn write_root(&self, fresh: &[Rc<SegmentInfo>], blocks: &mut Vec<Entry>) -> Result<()> {
        assert_eq!(self.turn.available(), 0, "who takes a checkpoint has the turn");
        let generation = self.generation.get() + 1;
        let superblock = &self.base.common.superblock;
        self.base.table().assert_counts();
        let mut plan = self.plan(fresh);
        self.given_back.borrow_mut().clone_from(&plan.dead);
        assert!(self.cut() <= self.base.writer.written(), "the map's runs are of written stripes");
        // Before any of it is written: a next one would come after it, and another.
        if plan.most_bytes(self.base.writer.geometry()) > MANIFEST_MAX {
            return Err(Error::new(Kind::Full, "the manifest is larger than a root can name"));
        }
        let written = self.write_pages(&mut plan, blocks).await?;
        let pages = blocks.len();
        let (bytes, unsettled) = self.manifest(&plan, &written, generation);
        let index = self.write_manifest(&bytes, blocks).await?;
        self.base.writer.settle_metadata().await?;
        self.assert_settled(plan.kept.iter().chain(&*blocks), &plan.dead);
        // What begins from here on is not of this checkpoint, and may be torn when it is the last.
        let segments = self.segments_of(&blocks[pages..], &unsettled);
        let described = SegmentRecord::len(self.base.writer.geometry().width());
        if segments.len() > segments_max(described) {
            return Err(Error::new(
                Kind::Full,
                "the manifest lies in more segments than a root can name",
            ));
        }
        if !canary::skips(Step::CheckpointFlush) {
            self.base.writer.flush().await?;
        }
        let root = Root {
            pool: self.base.writer.pool(),
            shard: self.base.writer.shard(),
            generation,
            log: self.base.writer.log(),
            bytes: u64_of(bytes.len()),
            index,
            segments,
        };
        let done = superblock.write_root(&root).await;
        self.lacked_room.set(done.is_err());
        done?;
        let before = self.generation.replace(generation);
        assert_eq!(before + 1, generation, "one checkpoint at a time");
        self.base.writer.table_mut().made_durable(plan.durable);
        self.blocks_written.set(blocks.len());
        self.replace_manifest(blocks.drain(..).skip(pages).collect(), written);
        self.give_back(&plan.dead).await;
        Ok(())
    }

    /// Writes the pages that changed. Where each of them is now, by its kind and number.
    async fn write_pages(&self, plan: &mut Plan, blocks: &mut Vec<Entry>) -> Result<Vec<Written>> {
        let mut written = Vec::with_capacity(plan.pages.len());
        for (kind, number, block) in plan.pages.drain(..) {
            let at = self.base.pages.append_block(&block[..]).await?;
            blocks.push(at);
            written.push((kind, number, at));
        }
        Ok(written)
    }

    /// Writes the manifest, and the index that lists its blocks, whose blocks it gives.
    async fn write_manifest(&self, bytes: &[u8], blocks: &mut Vec<Entry>) -> Result<Vec<Entry>> {
        let mut block = [0; BLOCK];
        let first = blocks.len();
        for piece in bytes.chunks(BLOCK) {
            block[..piece.len()].copy_from_slice(piece);
            block[piece.len()..].fill(0);
            blocks.push(self.base.pages.append_block(&block).await?);
        }
        let entries = blocks.len();
        for piece in blocks[first..].to_vec().chunks(INDEX_ENTRIES) {
            block.fill(0);
            let raw: Vec<RawEntry> = piece.iter().map(|entry| RawEntry::from(*entry)).collect();
            let raw = raw.as_bytes();
            block[..raw.len()].copy_from_slice(raw);
            blocks.push(self.base.pages.append_block(&block).await?);
        }
        let index = blocks[entries..].to_vec();
        assert!(index.len() <= INDEX_MAX, "a manifest that a root can name");
        Ok(index)
    }

    /// What a root is about to name is on the drives, and stays there.
    fn assert_settled<'a>(&self, blocks: impl Iterator<Item = &'a Entry>, dead: &[SegmentId]) {
        let dead: BTreeSet<SegmentId> = dead.iter().copied().collect();
        for entry in blocks {
            let is_settled = self.base.writer.pending(entry.location).is_none();
            assert!(
                is_settled || canary::skips(Step::MetadataInFlight),
                "what a root names was written"
            );
            let stays = !dead.contains(&entry.location.segment());
            assert!(stays, "a manifest lies in no segment that it leaves out");
        }
    }

    /// The manifest, and segments of its pages that are still being filled.
    fn manifest(
        &self,
        plan: &Plan,
        written: &[Written],
        generation: u64,
    ) -> (Vec<u8>, Vec<SegmentId>) {
        let pages: Vec<Entry> =
            plan.kept.iter().copied().chain(written.iter().map(|(.., at)| *at)).collect();
        let (mut holders, mut unsettled) = (Vec::new(), Vec::new());
        let table = self.base.table();
        for (id, live) in count(&pages) {
            let Some(segment) = table.get(id) else { continue };
            assert_eq!(segment.info.stream, Stream::Metadata, "a manifest lies in metadata");
            let is_sealed = segment.state == State::Sealed;
            // Of one that is being filled the root says how many there are.
            let stripes = (is_sealed && !segment.may_have_fewer).then_some(segment.stripes);
            unsettled.extend((!is_sealed).then_some(id));
            let info = SegmentInfo::clone(&segment.info);
            holders.push(SegmentRecord { info, roll_from: None, stripes, live });
        }
        assert_eq!(holders.len(), count(&pages).len(), "a manifest lies in segments of the shard");
        let manifest = Paged {
            shard: self.base.writer.shard(),
            generation,
            cut: plan.cut,
            next_segment: plan.next_segment,
            segments: plan.segments,
            holders,
            pages,
            map: plan.map.clone(),
        };
        let width = self.base.writer.geometry().width();
        (manifest.to_bytes(self.base.writer.pool(), width), unsettled)
    }

    /// How the segments of these blocks are laid out, and how many stripes they, and those others, have by now.
    fn segments_of(&self, blocks: &[Entry], others: &[SegmentId]) -> Vec<Vec<u8>> {
        let table = self.base.table();
        let mut used = count(blocks);
        others.iter().for_each(|id| _ = used.entry(*id).or_insert(0));
        let describe = |(id, live): (SegmentId, u32)| {
            let segment = table.get(id)?;
            assert_eq!(segment.info.stream, Stream::Metadata, "a manifest lies in metadata");
            let (info, stripes) = (SegmentInfo::clone(&segment.info), Some(segment.stripes));
            Some(SegmentRecord { info, roll_from: None, stripes, live }.to_bytes())
        };
        let named = used.len();
        let described: Vec<_> = used.into_iter().filter_map(describe).collect();
        assert_eq!(described.len(), named, "a manifest lies in segments of the shard");
        described
    }

    /// What this manifest has in place of the one before is in use no more there.
    fn replace_manifest(&self, entries: Vec<Entry>, written: Vec<Written>) {
        let mut before = self.manifest_blocks.replace(entries);
        let mut pages = self.pages.borrow_mut();
        let of = |wanted| {
            let of = written.iter().filter(move |(kind, ..)| *kind == wanted);
            of.map(|(_, number, at)| (*number, *at))
        };
        before.extend(pages.segments.written(of(PageKind::Segments)));
        before.extend(pages.tables.written(of(PageKind::Tables)));
        let mut table = self.base.writer.table_mut();
        for old in before {
            table.drop_live(old.location, 1);
        }
    }

    /// Has what is in a segment of metadata written elsewhere: pages of the map now, those of the manifest with the next
    /// checkpoint.
    ///
    /// # Errors
    /// Those of reading and appending pages; it can be tried again.
    pub async fn evacuate(&self, id: SegmentId) -> Result<()> {
        self.leave(id).await;
        self.base.map.evacuate(id).await
    }

    /// Has the next checkpoint write the pages of the manifest elsewhere that lie in a segment. Tells whether there are some.
    pub async fn leave(&self, id: SegmentId) -> bool {
        // One under way may be putting pages there.
        self.between(|| self.pages.borrow_mut().leave(|other| other == id)).await
    }

    /// Writes the pages of the manifest anew that lie in a segment, some of which the redundancy lost: what they say is in
    /// memory, too. The next one does where this one finds no room.
    pub async fn renew(&self, id: SegmentId) {
        if self.leave(id).await {
            let _ = self.take().await;
        }
    }

    /// From now on counts that are hints are written as they are, too.
    pub fn write_exactly(&self) {
        self.exact.set(true);
    }

    /// Has the next checkpoint write the pages of the manifest anew that lie in segments of metadata which are still being
    /// filled: no scrub checks those. Tells whether there are some.
    pub async fn renew_unsealed(&self) -> bool {
        let filled = |of: &Segment| of.state == State::Sealed && of.applied == of.stripes;
        let renew = || {
            let table = self.base.table();
            let is_unsealed = |id| table.get(id).is_some_and(|of| !filled(of));
            self.pages.borrow_mut().leave(is_unsealed)
        };
        self.between(renew).await
    }

    /// All blocks of the last one's manifest, those that lead to it, and its pages, in this order.
    #[cfg(test)]
    #[must_use]
    pub fn all_blocks(&self) -> (Vec<Entry>, Vec<Entry>) {
        (self.manifest_blocks.borrow().clone(), self.pages.borrow().blocks().collect())
    }

    /// Whether one is being taken.
    #[cfg(test)]
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.turn.available() == 0
    }

    /// Blocks that the last one wrote, and those of all pages that it has.
    #[cfg(test)]
    #[must_use]
    pub fn blocks(&self) -> (usize, usize) {
        (self.blocks_written.get(), self.pages.borrow().blocks().count())
    }

    async fn give_back(&self, dead: &[SegmentId]) {
        if dead.is_empty() {
            return;
        }
        // Until they are done, readers that found a segment through the map look it up in the table,
        // and put right there what they find damaged.
        if !canary::skips(Step::CheckpointGrace) {
            self.base.grace.pass().await;
        }
        if !canary::skips(Step::CheckpointRepairs) {
            self.base.writer.segments().repaired().await;
        }
        let mut table = self.base.writer.table_mut();
        let mut allocator = self.base.common.allocator.lock();
        for id in dead {
            self.verified.borrow_mut().remove(id);
            if let Some(segment) = table.remove(*id) {
                assert_eq!(
                    segment.state,
                    State::Sealed,
                    "nothing is written to what is given back"
                );
                allocator.free(segment.info.id, &segment.info.members);
            }
        }
        drop((table, allocator));
        if self.base.common.is_capped() {
            self.base.common.follow_placement();
        }
        // Another shard may be waiting for that.
        self.base.common.notify();
    }

    /// Holds a segment, if it is still there.
    pub async fn hold_segment(&self, info: &SegmentInfo) -> Option<Hold<'_>> {
        if !canary::skips(Step::RejoinHold) {
            self.held.borrow_mut().push(info.id);
        }
        let hold = Hold { of: self, id: info.id };
        // A checkpoint under way may have decided already.
        if self.given_back.borrow().contains(&info.id) && !canary::skips(Step::HoldWaits) {
            drop(self.turn.hold(1).await);
        }
        let there =
            self.base.table().get(info.id).is_some_and(|s| s.info.generation == info.generation);
        there.then_some(hold)
    }

    /// Whether a segment's space must stay its own for now.
    pub fn is_held(&self, id: SegmentId) -> bool {
        self.held.borrow().contains(&id)
    }
}
