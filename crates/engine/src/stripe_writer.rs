//! Filling stripes: the one way by which anything gets into a segment.
//!
//! Three streams fill segments of their own: what users wrote, what reclaim moves, and metadata.
//! Stripes of the first two are numbered in one order, in which the map learns their records, now
//! and after a crash; they only use segments that a checkpoint has named, so that recovery knows
//! where to look. Metadata is found through the root, needs neither, and so can always be written.

mod stripes;

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use reactor::sync::{Semaphore, Signal};

use crate::address::{Entry, Key, Location, LogMark, SegmentId, SharedBlockId, Version, View};
use crate::canary::{self, Step};
use crate::common::Common;
use crate::error::{Error, Kind, Result};
use crate::limits::{RECLAIM_RESERVE, STRIPES_IN_FLIGHT};
use crate::log::Reference;
use crate::segment::{Owner, SegmentInfo, Segments, Stream, StripeBuilder, StripeHeader};
use crate::segment_table::Table;

/// The segment a stream fills, and the stripe it gathers.
struct Open {
    info: Rc<SegmentInfo>,
    builder: Option<StripeBuilder>,
    /// The stripe after that of the builder.
    next: u32,
}

/// The sequence of stripes whose order does not matter.
pub const UNORDERED: u64 = 0;

/// Gathers blocks into stripes and writes them.
pub struct Writer {
    pool: [u8; 16],
    shard: u16,
    segments: Segments,
    table: RefCell<Table>,
    pub common: Arc<Common>,
    geometry: raid::Geometry,
    open: [RefCell<Option<Open>>; 3],
    /// One task at a time changes a stream's stripe or segment.
    turns: [Semaphore; 3],
    in_flight: Semaphore,
    metadata_in_flight: Cell<usize>,
    /// Metadata that cannot be read from its drives yet.
    pending: RefCell<BTreeMap<Location, Box<[u8]>>>,
    /// The ordered stripe numbered last.
    sequence: Cell<u64>,
    /// Ordered stripes that were written before one with a lower number.
    early: RefCell<BTreeMap<u64, StripeHeader>>,
    /// Up to here ordered stripes are written without a gap.
    written: Cell<u64>,
    /// Those of them whose records the map has not learnt.
    ready: RefCell<VecDeque<StripeHeader>>,
    /// Segments written to since the last flush.
    dirty: RefCell<BTreeMap<SegmentId, Rc<SegmentInfo>>>,
    /// One flush at a time.
    flushing: Semaphore,
    /// High half: the epoch the pool was opened in. So no stripe left over from before a crash is
    /// taken for a new one.
    generation: Cell<u64>,
    /// How far the log had come of which something is in stripes, or about to be.
    log: Cell<LogMark>,
    failure: RefCell<Option<String>>,
    /// Raised when a stripe was written, or one failed, or segments arrived.
    progress: Signal,
    /// Raised when more reserved segments are needed.
    segments_wanted: Signal,
    short_of_segments: Cell<bool>,
    /// Nobody waits for segments any longer.
    ended: Cell<bool>,
}

const fn index(stream: Stream) -> usize {
    match stream {
        Stream::User => 0,
        Stream::Reclaim => 1,
        Stream::Metadata => 2,
    }
}

/// How many of the reserved segments a stream leaves to others.
const fn kept_from(stream: Stream) -> usize {
    match stream {
        Stream::User => RECLAIM_RESERVE,
        Stream::Reclaim | Stream::Metadata => 0,
    }
}

/// What a writer is made from.
pub struct Parts {
    pub pool: [u8; 16],
    pub shard: u16,
    pub segments: Segments,
    pub table: Table,
    pub common: Arc<Common>,
    pub geometry: raid::Geometry,
    /// The pool's epoch.
    pub epoch: u64,
    /// The last ordered stripe there is.
    pub sequence: u64,
    /// The shard's log.
    pub ring: u64,
}

impl Writer {
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            pool: parts.pool,
            shard: parts.shard,
            segments: parts.segments,
            table: RefCell::new(parts.table),
            common: parts.common,
            geometry: parts.geometry,
            open: Default::default(),
            turns: [Semaphore::new(1), Semaphore::new(1), Semaphore::new(1)],
            in_flight: Semaphore::new(STRIPES_IN_FLIGHT),
            metadata_in_flight: Cell::new(0),
            pending: RefCell::default(),
            sequence: Cell::new(parts.sequence),
            early: RefCell::default(),
            written: Cell::new(parts.sequence),
            ready: RefCell::default(),
            dirty: RefCell::default(),
            flushing: Semaphore::new(1),
            generation: Cell::new(parts.epoch << 32),
            log: Cell::new(LogMark { ring: parts.ring, sequence: 0 }),
            failure: RefCell::default(),
            progress: Signal::new(),
            segments_wanted: Signal::new(),
            short_of_segments: Cell::new(false),
            ended: Cell::new(false),
        }
    }

    #[must_use]
    pub const fn pool(&self) -> [u8; 16] {
        self.pool
    }

    #[must_use]
    pub const fn shard(&self) -> u16 {
        self.shard
    }

    #[must_use]
    pub const fn segments(&self) -> &Segments {
        &self.segments
    }

    pub fn table(&self) -> Ref<'_, Table> {
        self.table.borrow()
    }

    /// To change it, in one step.
    pub fn table_mut(&self) -> RefMut<'_, Table> {
        self.table.borrow_mut()
    }

    /// Waits until `done`, which is looked at when a stripe was written, or one failed, or segments arrived, or
    /// [records were handed over](Self::note_progress).
    pub async fn until_progress(&self, done: impl FnMut() -> bool) {
        self.progress.until(done).await;
    }

    /// Records of the log were put into stripes.
    pub fn note_progress(&self) {
        self.progress.raise();
    }

    /// Waits until a checkpoint is to reserve more segments, or `done`.
    pub async fn until_short_of_segments(&self, done: impl Fn() -> bool) {
        self.segments_wanted.until(|| done() || self.short_of_segments.get()).await;
    }

    /// Has whoever waits look again.
    pub fn wake_all(&self) {
        self.segments_wanted.raise();
        self.progress.raise();
    }

    #[must_use]
    pub const fn geometry(&self) -> raid::Geometry {
        self.geometry
    }

    /// Records of the log up to this one, which are durable there, are about to be in stripes.
    pub fn note_log(&self, sequence: u64) {
        let LogMark { ring, sequence: before } = self.log.get();
        assert!(before <= sequence, "the log is handed over from front to back");
        self.log.set(LogMark { ring, sequence });
    }

    /// How far the log had come that far.
    #[must_use]
    pub const fn log(&self) -> LogMark {
        self.log.get()
    }

    /// Up to here every ordered stripe is on its drives, though perhaps in their caches.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written.get()
    }

    /// The ordered stripe numbered last.
    #[must_use]
    pub const fn numbered(&self) -> u64 {
        self.sequence.get()
    }

    /// The next ordered stripe whose records the map can learn.
    pub fn take_written(&self) -> Option<StripeHeader> {
        self.ready.borrow_mut().pop_front()
    }

    #[must_use]
    pub fn has_written(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// Ordered stripes given to be written, or not yet taken after that.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        let ready = stdx::num::u64_of(self.ready.borrow().len());
        self.sequence.get() - self.written.get() + ready
    }

    /// Does something while no stripe is on its way: all that were begun are written.
    pub async fn between_stripes<R>(&self, look: impl FnOnce() -> R) -> R {
        let _all = self.in_flight.hold(STRIPES_IN_FLIGHT).await;
        look()
    }

    /// Why nothing can be written any more, if so.
    ///
    /// # Errors
    /// The failure that ended it.
    pub fn check(&self) -> Result<()> {
        match &*self.failure.borrow() {
            Some(why) => Err(Error::new(Kind::Failed, why.clone())),
            None => Ok(()),
        }
    }

    /// Ends all writing.
    pub fn fail(&self, error: &Error) {
        self.failure.borrow_mut().get_or_insert_with(|| error.to_string());
        self.progress.raise();
    }

    /// Segments kept free so that a checkpoint, and the merges it needs, always find room.
    #[must_use]
    pub fn keep_for_metadata(&self) -> u64 {
        self.common.keep_for_metadata()
    }

    /// Whether the pool has segments that metadata can do without.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.common.allocator.lock().available() > self.keep_for_metadata()
    }

    /// Has a checkpoint taken, which may give space back.
    pub fn need_segments(&self) {
        self.short_of_segments.set(true);
        self.segments_wanted.raise();
    }

    /// Has a checkpoint reserve more segments when few are left.
    pub fn look_for_shortage(&self) {
        if self.table.borrow().reserved() <= RECLAIM_RESERVE + 1 {
            self.need_segments();
        }
    }

    /// More segments were reserved.
    pub fn fed(&self) {
        self.short_of_segments.set(false);
        self.progress.raise();
    }

    /// Nobody waits for segments any longer.
    pub fn end(&self) {
        self.ended.set(true);
        self.wake_all();
    }

    /// A new segment, whose space nobody else has. `None` when the pool has no space for one.
    pub fn allocate(&self, stream: Stream) -> Option<SegmentInfo> {
        self.common.follow_drives();
        let (id, members) = self.common.allocator.lock().allocate()?;
        let generation = self.generation.get() + 1;
        assert_eq!(generation >> 32, self.generation.get() >> 32, "generations are of one opening");
        self.generation.set(generation);
        assert_eq!(members.len(), self.geometry.width(), "a segment has a member for each unit");
        Some(SegmentInfo {
            id,
            generation,
            members,
            stream,
            shard: self.shard,
            geometry: self.geometry,
        })
    }

    /// Puts one record, with its blocks and their checksums if it has any, into the stream's stripe
    /// if there is room right now.
    pub fn try_append(
        &self,
        stream: Stream,
        owner: Owner,
        version: Version,
        crcs: &[u32],
        data: &[u8],
    ) -> Option<Location> {
        let mut open = self.open[index(stream)].borrow_mut();
        open.as_mut()?.builder.as_mut()?.push(owner, version, crcs, data)
    }

    /// Has one block refer to another's contents, in the stream's stripe if there is room right now.
    pub fn try_refer(
        &self,
        stream: Stream,
        key: Key,
        version: Version,
        to: &Reference,
    ) -> Option<Location> {
        let mut open = self.open[index(stream)].borrow_mut();
        let at = to.stored.location;
        let source = at.name().is_none().then_some(to.source);
        let builder = open.as_mut()?.builder.as_mut()?;
        builder.push_reference(key, version, SharedBlockId::of(at), to.stored.crc, source)
    }

    /// Says of one block that its contents are lost, in the stream's stripe if there is room right now; if `old` is
    /// given, only where the map still has it there.
    pub fn try_lose(
        &self,
        stream: Stream,
        key: Key,
        version: Version,
        old: Option<Location>,
    ) -> Option<Location> {
        let mut open = self.open[index(stream)].borrow_mut();
        open.as_mut()?.builder.as_mut()?.push_lost(key, version, old)
    }

    /// Blocks of one record that [`try_append`](Self::try_append) takes right now, at least.
    #[must_use]
    pub fn room(&self, stream: Stream) -> u32 {
        let open = self.open[index(stream)].borrow();
        let builder = open.as_ref().and_then(|open| open.builder.as_ref());
        builder.map_or(0, StripeBuilder::room)
    }

    /// Has a stripe with room for one more block, or hole: waits for stripes in flight and for
    /// segments as needed. Others may take the room before the caller does.
    ///
    /// # Errors
    /// `Failed` when drives failed beyond the redundancy, `Full` when metadata finds no space, `Gone` where there is none
    /// when the shard ends.
    pub async fn make_room(self: &Rc<Self>, stream: Stream) -> Result<()> {
        // Whoever waits for a segment has no turn: what is in the stripe can be sealed, and space be won by that.
        while !self.try_make_room(stream).await? {
            if self.ended.get() {
                return Err(Error::new(Kind::Gone, "the shard ends, and has no segment left"));
            }
            let fed = || {
                let reserved = self.table.borrow().reserved();
                reserved > kept_from(stream) || self.check().is_err() || self.ended.get()
            };
            self.progress.until(fed).await;
        }
        Ok(())
    }

    /// As [`make_room`](Self::make_room), but for waiting for segments: tells whether there is room.
    ///
    /// # Errors
    /// As [`make_room`](Self::make_room).
    pub async fn try_make_room(self: &Rc<Self>, stream: Stream) -> Result<bool> {
        self.check()?;
        let _turn = self.turns[index(stream)].hold(1).await;
        if self.room(stream) > 0 { Ok(true) } else { self.next_stripe(stream).await }
    }

    /// Writes one block of metadata. It can be read at once, and is durable after
    /// [`settle_metadata`](Self::settle_metadata).
    ///
    /// # Errors
    /// As [`make_room`](Self::make_room).
    pub async fn append_metadata(self: &Rc<Self>, number: u64, block: &[u8]) -> Result<Entry> {
        let crc = stdx::crc32c(block);
        let owner = Owner::Write { key: Key::new(View::METADATA, number) };
        loop {
            if let Some(location) =
                self.try_append(Stream::Metadata, owner, Version::FIRST, &[crc], block)
            {
                let before = self.pending.borrow_mut().insert(location, block.into());
                assert!(before.is_none(), "a place of metadata is given out once");
                self.table.borrow_mut().add_live(location, 1);
                return Ok(Entry { location, crc });
            }
            self.make_room(Stream::Metadata).await?;
        }
    }

    /// A block of metadata that may not be on its drives yet.
    #[must_use]
    pub fn pending(&self, at: Location) -> Option<Ref<'_, [u8]>> {
        let pending = self.pending.borrow();
        Ref::filter_map(pending, |pending| pending.get(&at).map(|block| &**block)).ok()
    }

    /// Has all metadata that was appended so far be written, in stripes that are whole: durable with the next
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn settle_metadata(self: &Rc<Self>) -> Result<()> {
        self.seal(Stream::Metadata).await?;
        let idle = || self.metadata_in_flight.get() == 0 || self.check().is_err();
        if !canary::skips(Step::MetadataInFlight) {
            self.progress.until(idle).await;
        }
        self.check()
    }

    /// Makes every stripe durable that was written when this was called.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn flush(&self) -> Result<()> {
        // Whoever comes while another flush is under way has stripes in that one, too.
        let _turn = self.flushing.hold(1).await;
        let dirty = self.dirty.take();
        let infos: Vec<&SegmentInfo> = dirty.values().map(|info| &**info).collect();
        self.segments.flush(&infos).await.inspect_err(|error| self.fail(error))?;
        self.check()
    }

    /// Blocks that reclaim can move before it needs more segments.
    #[must_use]
    pub fn room_for_moves(&self) -> u64 {
        let open = self.open[index(Stream::Reclaim)].borrow();
        let of_open = open.as_ref().map_or(0, |open| {
            let stripes = open.info.geometry.stripes() - open.next;
            let builder = open.builder.as_ref().map_or(0, StripeBuilder::room);
            u64::from(stripes * open.info.room() + builder)
        });
        let reserved = stdx::num::u64_of(self.table.borrow().reserved());
        let header = crate::format::stripe::header_blocks(self.geometry);
        let stripe = u64::from(self.geometry.stripe_blocks() - header);
        of_open + reserved * u64::from(self.geometry.stripes()) * stripe
    }

    /// Whether the stream has records in a stripe that is not yet given to be written.
    #[must_use]
    pub fn has_partial(&self, stream: Stream) -> bool {
        let open = self.open[index(stream)].borrow();
        let builder = open.as_ref().and_then(|open| open.builder.as_ref());
        builder.is_some_and(|builder| !builder.is_empty())
    }

    /// Gives the stream's stripe to be written as it is, its rest empty.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn seal(self: &Rc<Self>, stream: Stream) -> Result<()> {
        self.check()?;
        let _turn = self.turns[index(stream)].hold(1).await;
        if self.has_partial(stream) {
            self.submit(stream).await;
        }
        Ok(())
    }
}
