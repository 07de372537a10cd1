//! Checkpoints: what recovery begins with, written beside everything else that goes on.
//!
//! A checkpoint names the map's runs on media and every segment of the shard, among them segments
//! that are not used yet: stripes written after it can only lie there, so recovery finds them. Only
//! once it is complete is the space of dead segments given back.

mod on_demand;

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
use crate::format::manifest::{Manifest, SegmentRecord};
use crate::format::root::{INDEX_ENTRIES, INDEX_MAX, MANIFEST_MAX, RawEntry, Root, segments_max};
use crate::limits::{RECLAIM_RESERVE, RESERVED_MAX};
use crate::segment::{SegmentInfo, Stream};
use crate::segment_table::{Segment, State};

/// As a checkpoint says it.
fn record(segment: &Segment) -> SegmentRecord {
    let roll_from = match segment.state {
        _ if segment.info.stream == Stream::Metadata => None,
        State::Sealed if segment.settled == segment.stripes => None,
        State::Reserved | State::Open | State::Sealed => Some(segment.settled),
    };
    // Where metadata goes on being written, this checkpoint's first, the root says how many there are.
    let is_known = segment.state == State::Sealed && roll_from.is_none() && !segment.may_have_fewer;
    let stripes = is_known.then_some(segment.stripes);
    SegmentRecord {
        info: SegmentInfo::clone(&segment.info),
        roll_from,
        stripes,
        live: segment.live,
    }
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
    /// Where the last one's manifest lies.
    manifest_blocks: RefCell<Vec<Entry>>,
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
        let fresh = self.reserve();
        let done = self.write_checkpoint(&fresh).await;
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
        let (manifest, dead) = self.manifest(generation, fresh);
        self.given_back.borrow_mut().clone_from(&dead);
        assert!(self.cut() <= self.base.writer.written(), "the map's runs are of written stripes");
        let bytes = manifest.to_bytes(self.base.writer.pool(), self.base.writer.geometry().width());
        // Before any of it is written: a next one would come after it, and another.
        if bytes.len() > MANIFEST_MAX {
            return Err(Error::new(Kind::Full, "the manifest is larger than a root can name"));
        }
        let mut block = [0; BLOCK];
        for piece in bytes.chunks(BLOCK) {
            block[..piece.len()].copy_from_slice(piece);
            block[piece.len()..].fill(0);
            blocks.push(self.base.pages.append_block(&block).await?);
        }
        let entries = blocks.len();
        for piece in blocks.clone().chunks(INDEX_ENTRIES) {
            block.fill(0);
            let raw: Vec<RawEntry> = piece.iter().map(|entry| RawEntry::from(*entry)).collect();
            let raw = raw.as_bytes();
            block[..raw.len()].copy_from_slice(raw);
            blocks.push(self.base.pages.append_block(&block).await?);
        }
        let index = blocks[entries..].to_vec();
        assert!(index.len() <= INDEX_MAX, "a manifest that a root can name");
        self.base.writer.settle_metadata().await?;
        self.assert_settled(blocks, &dead);
        // What begins from here on is not of this checkpoint, and may be torn when it is the last.
        let segments = self.segments_of(blocks.iter());
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
        let written = superblock.write_root(&root).await;
        self.lacked_room.set(written.is_err());
        written?;
        let before = self.generation.replace(generation);
        assert_eq!(before + 1, generation, "one checkpoint at a time");
        let stripes = |record: &SegmentRecord| record.info.geometry.stripes();
        let known = manifest.segments.iter();
        let known =
            known.map(|record| (record.info.id, record.roll_from.unwrap_or(stripes(record))));
        self.base.writer.table_mut().made_durable(known);
        self.replace_manifest(std::mem::take(blocks));
        self.give_back(&dead).await;
        Ok(())
    }

    /// What a root is about to name is on the drives, and stays there.
    fn assert_settled(&self, blocks: &[Entry], dead: &[SegmentId]) {
        let is_written = |entry: &Entry| self.base.writer.pending(entry.location).is_none();
        let is_settled = blocks.iter().all(is_written) || canary::skips(Step::MetadataInFlight);
        assert!(is_settled, "what a root names was written");
        let stays = |entry: &Entry| !dead.contains(&entry.location.segment());
        assert!(blocks.iter().all(stays), "a manifest lies in no segment that it leaves out");
    }

    /// What the checkpoint says, and which segments it leaves out because nothing needs them.
    fn manifest(&self, generation: u64, fresh: &[Rc<SegmentInfo>]) -> (Manifest, Vec<SegmentId>) {
        let table = self.base.table();
        let cut = self.cut();
        let mut dead = table.dead(cut);
        let verified = self.verified.borrow();
        // A count alone frees nothing but metadata, whose counts are exact.
        dead.retain(|id| {
            let metadata = table.get(*id).is_some_and(|s| s.info.stream == Stream::Metadata);
            (metadata || verified.contains(id)) && !self.is_held(*id)
        });
        // Nothing was ever written there.
        dead.extend(table.withdrawn().into_iter().filter(|id| !self.is_held(*id)));
        // A pool may have a million segments, and a thousand blocks of the last manifest.
        let given_back: BTreeSet<SegmentId> = dead.iter().copied().collect();
        let alive = table.iter().filter(|segment| !given_back.contains(&segment.info.id));
        let mut segments: Vec<SegmentRecord> = alive.map(record).collect();
        // This manifest takes the place of the last one.
        let mut replaced = BTreeMap::<SegmentId, u32>::new();
        for old in &*self.manifest_blocks.borrow() {
            *replaced.entry(old.location.segment()).or_default() += 1;
        }
        if !replaced.is_empty() {
            for record in &mut segments {
                let old = replaced.get(&record.info.id).copied().unwrap_or(0);
                record.live = record.live.saturating_sub(old);
            }
        }
        segments.extend(fresh.iter().map(|info| SegmentRecord {
            info: SegmentInfo::clone(info),
            roll_from: Some(0),
            stripes: None,
            live: 0,
        }));
        let shard = self.base.writer.shard();
        let next_segment = self.base.common.allocator.lock().next();
        let is_known = |info: &Rc<SegmentInfo>| info.id.get() < next_segment;
        assert!(fresh.iter().all(is_known), "no number is given to another segment again");
        let map = self.base.map.manifest();
        (Manifest { shard, generation, cut, next_segment, segments, map }, dead)
    }

    /// How the segments of these blocks are laid out, and how many stripes they have by now.
    fn segments_of<'a>(&self, blocks: impl Iterator<Item = &'a Entry>) -> Vec<Vec<u8>> {
        let table = self.base.table();
        let mut used = BTreeMap::new();
        for entry in blocks {
            *used.entry(entry.location.segment()).or_insert(0_u32) += 1;
        }
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

    /// The blocks of the manifest before are in use no more.
    fn replace_manifest(&self, entries: Vec<Entry>) {
        let mut table = self.base.writer.table_mut();
        for old in self.manifest_blocks.replace(entries) {
            table.drop_live(old.location, 1);
        }
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
