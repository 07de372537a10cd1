//! Checkpoints: what recovery begins with, written beside everything else that goes on.
//!
//! A checkpoint names the map's runs on media and every segment of the shard, among them segments
//! that are not used yet: stripes written after it can only lie there, so recovery finds them. Only
//! once it is complete is the space of dead segments given back.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use reactor::sync::Signal;
use reactor::timeout;

use stdx::num::u64_of;
use zerocopy::IntoBytes;

use crate::address::{BLOCK, Entry, SegmentId};
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::format::manifest::{Manifest, SegmentRecord};
use crate::format::root::{INDEX_MAX, RawEntry, Root};
use crate::limits::{OPENING_PATIENCE, RECLAIM_RESERVE, RESERVED_MAX};
use crate::segment::{SegmentInfo, Stream};
use crate::shard::Shard;
use crate::table::{Segment, State};

/// Entries of one index block.
const INDEX_ENTRIES: usize = BLOCK / size_of::<RawEntry>();

/// As a checkpoint says it.
fn record(segment: &Segment) -> SegmentRecord {
    let roll_from = match segment.state {
        _ if segment.info.stream == Stream::Metadata => None,
        State::Sealed if segment.settled == segment.stripes => None,
        State::Reserved | State::Open | State::Sealed => Some(segment.settled),
    };
    SegmentRecord { info: SegmentInfo::clone(&segment.info), roll_from, live: segment.live }
}

/// What becomes of the flush of an opening.
#[derive(Default)]
struct Told {
    done: Cell<Option<Result<()>>>,
    /// Nobody waits for it any more.
    is_alone: Cell<bool>,
    changed: Signal,
}

impl Told {
    fn is_done(&self) -> bool {
        let done = self.done.take();
        let is_done = done.is_some();
        self.done.set(done);
        is_done
    }
}

/// Waits for the first of two.
async fn first(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| {
        let is_over = a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl Shard {
    /// Writes what the map learnt into runs, and takes a checkpoint of them. What the map learns
    /// meanwhile waits for the next.
    ///
    /// # Errors
    /// `Failed` when drives failed beyond the redundancy, `Full` when metadata finds no space.
    pub async fn flush_map(&self) -> Result<()> {
        let _turn = self.flushing.hold(1).await;
        let (cut, applied) = (self.applied.get(), self.table().cut());
        self.map.flush().await?;
        self.cut.set(cut);
        self.writer.table.borrow_mut().settle(&applied);
        self.checkpoint().await
    }

    /// Writes what an opening learnt into runs. Waits for that no longer than drives that have space and answer
    /// need: without, it goes on behind, so that what is there can be read.
    ///
    /// # Errors
    /// As [`flush_map`](Self::flush_map), but for `Full`.
    pub async fn flush_opened(self: &Rc<Self>) -> Result<()> {
        let told = Rc::new(Told::default());
        let (this, tell) = (Rc::clone(self), Rc::clone(&told));
        self.run(reactor::spawn(async move {
            loop {
                let done = this.flush_map().await;
                let ends = done.as_ref().err().is_none_or(|error| error.kind != Kind::Full);
                if ends && !tell.is_alone.get() {
                    tell.done.set(Some(done));
                    tell.changed.raise();
                    return;
                }
                tell.is_alone.set(true);
                tell.changed.raise();
                if ends && done.is_ok() || !this.goes_on(done).await {
                    return;
                }
            }
        }));
        let waits_for_space = async {
            let patience = self.writer.segments.patience();
            patience.changed.until(|| patience.is_tried()).await;
        };
        let done = told.changed.until(|| told.is_alone.get() || told.is_done());
        let _ = timeout(OPENING_PATIENCE, first(done, waits_for_space)).await;
        told.is_alone.set(true);
        told.done.take().unwrap_or(Ok(()))
    }

    /// Takes a checkpoint of the map's runs as they are, reserves segments, and gives the space of
    /// dead ones back.
    ///
    /// # Errors
    /// As [`flush_map`](Self::flush_map).
    pub async fn checkpoint(&self) -> Result<()> {
        let _turn = self.checkpointing.hold(1).await;
        let fresh = self.reserve();
        let done = self.write_checkpoint(&fresh).await;
        let mut table = self.writer.table.borrow_mut();
        match done {
            Ok(()) => {
                for info in fresh {
                    table.insert(Segment::new(info, State::Reserved));
                }
            }
            Err(_) => {
                let mut allocator = self.common.allocator.lock();
                fresh.iter().for_each(|info| allocator.free(info.id, &info.members));
            }
        }
        drop(table);
        self.writer.fed();
        done?;
        self.advanced.raise();
        if self.writer.has_spare() {
            // Reserved segments that were opened, or space that was given back, after this
            // checkpoint had made its choice.
            self.writer.look_for_hunger();
        }
        Ok(())
    }

    /// Segments for the stripes to come, as many as the pool can spare.
    fn reserve(&self) -> Vec<Rc<SegmentInfo>> {
        let reserved = self.table().reserved();
        let mut fresh = Vec::new();
        while reserved + fresh.len() < self.reserve_target() && self.writer.has_spare() {
            match self.writer.allocate(Stream::User) {
                Some(info) => fresh.push(Rc::new(info)),
                None => break,
            }
        }
        fresh
    }

    /// How many segments are named ahead: a share of the pool, within bounds. Less of it the more
    /// shards there are, since what one of them has reserved the others cannot have.
    fn reserve_target(&self) -> usize {
        let shards = u64::from(self.common.shards);
        let share = self.common.segments / (16 * shards * shards);
        usize::try_from(share).unwrap_or(usize::MAX).clamp(2 * RECLAIM_RESERVE, RESERVED_MAX)
    }

    async fn write_checkpoint(&self, fresh: &[Rc<SegmentInfo>]) -> Result<()> {
        let generation = self.generation.get() + 1;
        let (manifest, dead) = self.manifest(generation, fresh);
        let bytes = manifest.to_bytes(self.writer.pool, self.writer.geometry().width());
        let mut entries = Vec::new();
        let mut block = [0; BLOCK];
        for piece in bytes.chunks(BLOCK) {
            block[..piece.len()].copy_from_slice(piece);
            block[piece.len()..].fill(0);
            entries.push(self.pages.append_block(&block).await?);
        }
        let mut index = Vec::new();
        for piece in entries.chunks(INDEX_ENTRIES) {
            block.fill(0);
            let raw: Vec<RawEntry> = piece.iter().map(|entry| RawEntry::from(*entry)).collect();
            let raw = raw.as_bytes();
            block[..raw.len()].copy_from_slice(raw);
            index.push(self.pages.append_block(&block).await?);
        }
        if index.len() > INDEX_MAX {
            return Err(Error::new(Kind::Full, "the manifest is larger than a root can name"));
        }
        if !canary::skips(Step::CheckpointFlush) {
            self.writer.flush_metadata().await?;
        }
        let used = entries.iter().chain(&index);
        let segments = self.segments_of(used);
        let root = Root {
            pool: self.writer.pool,
            shard: self.writer.shard,
            generation,
            log: self.writer.log(),
            bytes: u64_of(bytes.len()),
            index: index.clone(),
            segments,
        };
        self.common.superblock.write_root(&root).await?;
        self.generation.set(generation);
        let stripes = |record: &SegmentRecord| record.info.geometry.stripes();
        let known = manifest.segments.iter();
        let known =
            known.map(|record| (record.info.id, record.roll_from.unwrap_or(stripes(record))));
        self.writer.table.borrow_mut().made_durable(known);
        entries.append(&mut index);
        self.replace_manifest(entries);
        self.give_back(&dead).await;
        Ok(())
    }

    /// What the checkpoint says, and which segments it leaves out because nothing needs them.
    fn manifest(&self, generation: u64, fresh: &[Rc<SegmentInfo>]) -> (Manifest, Vec<SegmentId>) {
        let table = self.table();
        let cut = self.cut.get();
        let mut dead = table.dead(cut);
        let verified = self.verified.borrow();
        // A count alone frees nothing but metadata, whose counts are exact.
        dead.retain(|id| {
            let metadata = table.get(*id).is_some_and(|s| s.info.stream == Stream::Metadata);
            (metadata || verified.contains(id)) && !self.is_held(*id)
        });
        let alive = table.iter().filter(|segment| !dead.contains(&segment.info.id));
        let mut segments: Vec<SegmentRecord> = alive.map(record).collect();
        // This manifest takes the place of the last one.
        for old in &*self.manifest_blocks.borrow() {
            let of = |record: &&mut SegmentRecord| record.info.id == old.location.segment();
            if let Some(record) = segments.iter_mut().find(of) {
                record.live = record.live.saturating_sub(1);
            }
        }
        segments.extend(fresh.iter().map(|info| SegmentRecord {
            info: SegmentInfo::clone(info),
            roll_from: Some(0),
            live: 0,
        }));
        let shard = self.writer.shard;
        let next_segment = self.common.allocator.lock().next();
        let map = self.map.manifest();
        (Manifest { shard, generation, cut, next_segment, segments, map }, dead)
    }

    /// How the segments of these blocks are laid out.
    fn segments_of<'a>(&self, blocks: impl Iterator<Item = &'a Entry>) -> Vec<Vec<u8>> {
        let table = self.table();
        let mut used = BTreeMap::new();
        for entry in blocks {
            *used.entry(entry.location.segment()).or_insert(0_u32) += 1;
        }
        let describe = |(id, live): (SegmentId, u32)| {
            let info = SegmentInfo::clone(&table.get(id)?.info);
            Some(SegmentRecord { info, roll_from: None, live }.to_bytes())
        };
        used.into_iter().filter_map(describe).collect()
    }

    /// The blocks of the manifest before are in use no more.
    fn replace_manifest(&self, entries: Vec<Entry>) {
        let mut table = self.writer.table.borrow_mut();
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
            self.grace.pass().await;
        }
        if !canary::skips(Step::CheckpointRepairs) {
            self.writer.segments.repaired().await;
        }
        let mut table = self.writer.table.borrow_mut();
        let mut allocator = self.common.allocator.lock();
        for id in dead {
            self.verified.borrow_mut().remove(id);
            if let Some(segment) = table.remove(*id) {
                allocator.free(segment.info.id, &segment.info.members);
            }
        }
        drop((table, allocator));
        // Another shard may be waiting for that.
        self.common.ring();
    }
}
