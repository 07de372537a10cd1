//! Putting a pool together: what creating and opening have in common.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use media::Drive;
use reactor::Handle;

use super::identity::ring;
use super::members::{Begin, LogMedia};
use super::{Inner, Pool, geometry_of, windows};
use crate::allocator::Allocator;
use crate::canary::{self, Canary, Step};
use crate::common::Common;
use crate::drives::{DriveSet, DriveSlot};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::Catalog;
use crate::format::label::{DriveMark, Label};
use crate::format::stripe::segment_blocks;
use crate::log::{Log, Looked, Members, Rebuilt, Site};
use crate::map::{Map, MapLimits};
use crate::pages::Pages;
use crate::recover;
use crate::segment::Segments;
use crate::segment_table::Table;
use crate::shard::checkpoint::Last;
use crate::shard::{self, Shard};
use crate::shard_handle::{ShardHandle, run_on};
use crate::space::Space;
use crate::stripe_writer::{self, Writer};
use crate::superblock::{Kept, Superblock};
use reactor::cross_core::{BarrierEntry, barrier};
use reactor::join_all;

/// Memory of one shard's map.
const MAP_BYTES_MIN: usize = 4 << 20;
const MAP_BYTES_MAX: usize = 64 << 20;

/// The drives of a label as a set.
pub(super) fn drive_set(label: &Label, drives: Vec<Option<Arc<Drive>>>) -> DriveSet {
    let slots = label.drives.iter().zip(drives).map(|(record, drive)| DriveSlot {
        drive,
        failed: record.is_out(),
        begins: label.catalog.end() + record.log_bytes,
        au_count: record.au_count,
        vacant: record.mark == DriveMark::Vacant,
    });
    DriveSet::new(slots.collect(), label.layout.au_bytes, usize::from(label.layout.parity))
}

/// A pool as its drives have it.
pub(super) struct Found {
    pub newest: Label,
    /// Drives that have an older label.
    pub behind: Vec<u16>,
    pub drives: DriveSet,
}

/// What the shards of a pool are made from, on whichever reactor.
#[derive(Clone)]
pub(super) struct Frame {
    pub common: Arc<Common>,
    /// What the labels are to say before anything is changed.
    before: Arc<Label>,
    /// As it is to be once the pool is open.
    label: Arc<Label>,
    log: LogMedia,
    geometry: raid::Geometry,
}

/// A shard as it was found, to be opened: nothing was changed for it.
struct Seen {
    log: SeenLog,
    found: recover::Found,
    rolled: recover::Rolled,
}

enum SeenLog {
    Found(Box<Looked>),
    /// To be made anew, relying on these.
    Lost(Rebuilt),
    Empty,
}

impl SeenLog {
    /// The last stripe that a log made anew relies on.
    fn relied_on(&self) -> Option<u64> {
        match self {
            Self::Found(looked) => looked.is_rebuilt().then(|| looked.opened().durable_stripe),
            Self::Lost(rebuilt) => Some(rebuilt.durable_stripe),
            Self::Empty => None,
        }
    }
}

/// What was copied while the pool was open looks like the log itself, but for what has left the log since.
fn old_log(name: &str, last: u64, known: u64) -> Error {
    let context = format!(
        "the commit log of pool {name} is an old copy: it ends with record {last}, and the drives have contents of record \
         {known}; what was acknowledged since and is not on the drives yet is in the newest one alone, and is lost should \
         that not be found"
    );
    Error::new(Kind::Loss, context)
}

impl Frame {
    /// Of a pool as it was found, whose labels are to say what `before` does, and then `label`.
    pub fn new(
        found: Found,
        before: Label,
        label: Label,
        log: LogMedia,
        kept: Kept,
    ) -> Result<Self> {
        let Found { newest, behind, drives } = found;
        let geometry = geometry_of(&label.layout)?;
        let units: Vec<u32> = label.drives.iter().map(|drive| drive.au_count).collect();
        let allocator = Allocator::new(&units, geometry.width());
        let segment_blocks = segment_blocks(geometry);
        let members = Members::of(&label);
        let superblock = Superblock::new(drives, newest, behind, kept, members);
        let common = Common::new(superblock, allocator, segment_blocks, label.shards);
        let (before, label) = (Arc::new(before), Arc::new(label));
        Ok(Self { common: Arc::new(common), before, label, log, geometry })
    }

    /// Memory for the map of one shard.
    fn map_limits(&self) -> MapLimits {
        // What all entries would take, up to what serves 1 TiB well.
        let (all, blocks) = (self.common.segments(), self.common.segment_blocks);
        let capacity = Space::capacity_of(all, blocks, self.label.shards);
        let bytes = capacity * 16 / u64::from(self.label.shards);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        match canary::has_small_maps() {
            true => MapLimits::next_to_nothing(),
            false => MapLimits::for_memory(bytes.clamp(MAP_BYTES_MIN, MAP_BYTES_MAX)),
        }
    }

    fn writer(&self, shard: u16, segments: Segments, table: Table, sequence: u64) -> Rc<Writer> {
        Rc::new(Writer::new(stripe_writer::Parts {
            pool: self.label.pool,
            shard,
            segments,
            table,
            common: Arc::clone(&self.common),
            geometry: self.geometry,
            epoch: self.common.superblock.label().epoch,
            sequence,
            ring: ring(&self.label, shard),
        }))
    }

    /// The shard's own way to the drives.
    fn segments(&self) -> Result<Segments> {
        let drives = Arc::new(self.common.superblock.drives.for_another());
        Segments::new(drives, self.label.pool, self.geometry)
    }

    fn site(&self, shard: u16) -> Site {
        self.log.site(&self.label, &self.common, shard)
    }

    /// Finds out all that opening a shard needs, and changes nothing.
    async fn look(&self, shard: u16, begin: Begin) -> Result<Seen> {
        let common = &self.common;
        // What is found damaged is put right once the pool is opened.
        let drives = Arc::new(common.superblock.drives.for_another().read_only());
        let segments = Segments::new(drives, self.label.pool, self.geometry)?;
        let found = recover::find(&common.superblock, &segments, self.geometry, shard).await?;
        let (log, durable) = match begin {
            Begin::Found { accept_loss } => {
                let looked = self.look_at_log(shard, &found, &segments, accept_loss).await;
                let ring = ring(&self.label, shard);
                let looked = looked.map_err(|error| Error {
                    context: format!("shard {shard} (ring {ring:#018x}): {}", error.context),
                    // Another shard has records there: this one's are lost, which whoever accepts that goes on without.
                    kind: if accept_loss && error.kind == Kind::Missing {
                        Kind::Loss
                    } else {
                        error.kind
                    },
                    ..error
                })?;
                let opened = looked.opened();
                let (durable, last) = (opened.durable_stripe, opened.trimmed + opened.records);
                let known = recover::newest_of_log(&found, &segments, ring).await;
                if known > last && !canary::skips(Step::OpeningMarks) {
                    return Err(old_log(&self.label.name, last, known));
                }
                if !accept_loss {
                    self.look_at_windows(shard)?;
                }
                (SeenLog::Found(Box::new(looked)), durable)
            }
            Begin::LogLost => {
                let rebuilt = self.rebuilt(&found, &segments).await?;
                (SeenLog::Lost(rebuilt), rebuilt.durable_stripe)
            }
            Begin::New | Begin::Clean => (SeenLog::Empty, 0),
        };
        let rolled = recover::roll(&found, &segments, &common.allocator, durable).await;
        let rolled = rolled.map_err(|error| match (log.relied_on(), error.kind) {
            // A moment ago it was there.
            (Some(_), Kind::Corrupt) => Error::caused(Kind::Corrupt, error.context, WentSince),
            _ => error,
        })?;
        Ok(Seen { log, found, rolled })
    }

    /// What hosts stored in windows is part of the log: without it there are writes that nobody knows of.
    fn look_at_windows(&self, shard: u16) -> Result<()> {
        let (devices, pool) = (self.log.memory(), self.label.pool);
        for (view, number) in self.common.superblock.catalog(windows::windows_of) {
            let is_there = windows::find(&devices, pool, (view, number, shard)).is_some();
            if !is_there && !canary::has(Canary::ForgetsWindow) {
                let of = |catalog: &Catalog| catalog.get(view).map(|of| of.name.to_string());
                let volume = self.common.superblock.catalog(of).unwrap_or_default();
                let stem = windows::stem_of(view.get(), number, shard.into());
                let what = format!(
                    "the direct write window of volume {volume} is missing beside the log, or damaged (files LOG{stem}.*): what \
                     its host stored there last is in it alone"
                );
                return Err(Error::new(Kind::Loss, what));
            }
        }
        Ok(())
    }

    async fn look_at_log(
        &self,
        shard: u16,
        found: &recover::Found,
        segments: &Segments,
        accept_loss: bool,
    ) -> Result<Looked> {
        let (bytes, ring) = (self.label.log_bytes, ring(&self.label, shard));
        let mut rebuilt = None;
        if accept_loss && Log::lacks_control(self.site(shard), bytes, ring).await? {
            rebuilt = Some(self.rebuilt(found, segments).await?);
        }
        Log::look(self.site(shard), bytes, ring, accept_loss, rebuilt).await
    }

    /// What a log that lost its control block, or everything, can rely on.
    async fn rebuilt(&self, found: &recover::Found, segments: &Segments) -> Result<Rebuilt> {
        let durable_stripe = recover::last_whole(found, segments).await?;
        // Of the labels that are written before anything else is.
        Ok(Rebuilt { durable_stripe, epoch: self.common.superblock.label().epoch + 1 })
    }

    /// Opens a shard's log, now that everything is known that could be in the way of it.
    async fn begin_log(&self, shard: u16, seen: SeenLog) -> Result<Log> {
        let (bytes, ring) = (self.label.log_bytes, ring(&self.label, shard));
        match seen {
            SeenLog::Found(looked) => looked.begin().await,
            SeenLog::Lost(rebuilt) => Log::replace(self.site(shard), bytes, ring, rebuilt).await,
            SeenLog::Empty => Log::create(self.site(shard), bytes, ring).await,
        }
    }

    /// Whoever is absent misses what is written from now on: the labels say that it is out, and those it comes back
    /// with are further behind than a crash leaves any.
    async fn begin_life(&self) -> Result<()> {
        let superblock = &self.common.superblock;
        if !canary::skips(Step::OpeningTries) {
            superblock.try_writes().await?;
        }
        let before = |label: &mut Label| {
            *label = Label { epoch: label.epoch, drive: label.drive, ..Label::clone(&self.before) };
        };
        superblock.write_labels(before).await?;
        if canary::skips(Step::OpeningTwice) {
            return Ok(());
        }
        superblock.write_labels(|_| ()).await
    }

    /// A shard that has nothing yet.
    async fn create_shard(&self, shard: u16) -> Result<Rc<Shard>> {
        let log = self.begin_log(shard, SeenLog::Empty).await?;
        let writer = self.writer(shard, self.segments()?, Table::default(), 0);
        let pages = Rc::new(Pages::new(Rc::clone(&writer)));
        let made = Rc::new(Shard::new(shard::Parts {
            log,
            writer,
            common: Arc::clone(&self.common),
            map: Map::new(Rc::clone(&pages), self.map_limits()),
            pages,
            last: Last::default(),
        }));
        made.checkpoints.take().await?;
        made.start();
        Ok(made)
    }

    /// A shard as its checkpoint and log say it was; `None` when another cannot be opened.
    async fn open_shard(
        &self,
        shard: u16,
        begin: Begin,
        pass: [BarrierEntry; 3],
    ) -> Result<Option<Rc<Shard>>> {
        let [looked, told, spread] = pass;
        let seen = self.look(shard, begin).await?;
        // No byte is changed, and no segment given out, before it is known that all shards can be opened and which
        // segments they have.
        if looked.meet().await.is_err() {
            return Ok(None);
        }
        if shard == 0 && !canary::skips(Step::OpeningTells) {
            self.begin_life().await?;
        }
        if told.meet().await.is_err() {
            return Ok(None);
        }
        if !canary::skips(Step::OpeningRoot) {
            let Seen { found: recover::Found { root, root_on, .. }, .. } = &seen;
            self.common.superblock.spread_root(root, root_on).await?;
        }
        // What the root of another shard has given back is anybody's from here on.
        if spread.meet().await.is_err() {
            return Ok(None);
        }
        // All shards know their segments by now.
        self.common.follow_placement();
        let Seen { log, found, mut rolled } = seen;
        let segments = self.segments()?;
        if let Some(until) = log.relied_on() {
            // Those stripes are relied on from now on: they are made whole.
            let whole = recover::last_whole(&found, &segments).await?;
            if whole < until {
                // As where a shard ends: who opens the pool next finds the drives at rest.
                if !canary::skips(Step::StopRepairs) {
                    segments.repaired().await;
                }
                let what =
                    format!("stripes {} to {until} of shard {shard} are not whole", whole + 1);
                return Err(Error::caused(Kind::Failed, what, WentSince));
            }
        }
        let lost = match &log {
            SeenLog::Found(looked) => looked.opened().lost_blocks,
            SeenLog::Lost(_) | SeenLog::Empty => 0,
        };
        let log = self.begin_log(shard, log).await?;
        let opened = self.shard(log, segments, &mut rolled, found, shard)?;
        opened.reclaim.note_lost(lost);
        for header in &rolled.headers {
            opened.keeper.learn(header).await?;
        }
        opened.start();
        if let Err(error) = opened.keeper.flush_opened().await {
            opened.stop().await;
            return Err(error);
        }
        Ok(Some(opened))
    }

    fn shard(
        &self,
        log: Log,
        segments: Segments,
        rolled: &mut recover::Rolled,
        found: recover::Found,
        shard: u16,
    ) -> Result<Rc<Shard>> {
        let table = std::mem::take(&mut rolled.table);
        let writer = self.writer(shard, segments, table, rolled.sequence);
        writer.note_log(log.tail() - 1);
        let pages = Rc::new(Pages::new(Rc::clone(&writer)));
        let map = Map::open(&found.manifest.map, Rc::clone(&pages), self.map_limits())?;
        Ok(Rc::new(Shard::new(shard::Parts {
            log,
            writer,
            common: Arc::clone(&self.common),
            pages,
            map,
            last: Last {
                cut: found.manifest.cut,
                generation: found.root.generation,
                manifest_blocks: found.blocks,
                pages: found.pages,
            },
        })))
    }

    async fn begin(
        &self,
        shard: u16,
        begin: Begin,
        pass: [BarrierEntry; 3],
    ) -> Result<Option<Rc<Shard>>> {
        match begin {
            Begin::New => self.create_shard(shard).await.map(Some),
            Begin::Found { .. } | Begin::LogLost | Begin::Clean => {
                self.open_shard(shard, begin, pass).await
            }
        }
    }
}

/// A drive went after it was looked at what it has.
#[derive(Debug, thiserror::Error)]
#[error("a drive went since they were looked at")]
struct WentSince;

/// Whether an opening failed for what the next one does without.
pub(super) fn is_for_one_that_went(error: &Error) -> bool {
    error.source.as_ref().is_some_and(|source| source.is::<WentSince>())
}

/// How the reactor of each shard is reached: those of `on` by turns. `None` is this one.
fn seats(shards: u16, on: &[Handle]) -> Vec<Option<Handle>> {
    let here = reactor::id();
    let handle = |shard: u16| on.get(usize::from(shard) % on.len().max(1)).cloned();
    (0..shards).map(|shard| handle(shard).filter(|handle| handle.id() != here)).collect()
}

async fn stop(handle: &ShardHandle) {
    handle.close();
    // One that is gone has stopped.
    let end = |shard: Rc<Shard>| async move {
        shard.stop().await;
        Ok(())
    };
    let _ = handle.call(end).await;
}

impl Pool {
    /// The pool, with the tasks of its shards running on their reactors.
    pub(super) async fn assemble(frame: Frame, on: &[Handle], begin: Begin) -> Result<Self> {
        let shards = frame.label.shards;
        // Any reactor may be given a request, those without a shard as well.
        let serves = on.len() > 1;
        let pass = || barrier(usize::from(shards)).into_iter();
        let passes = pass().zip(pass()).zip(pass());
        let passes = passes.map(|((looked, told), spread)| [looked, told, spread]);
        let all = seats(shards, on).into_iter().zip(passes).zip(0..);
        let building = all.map(|((seat, pass), shard)| {
            let (frame, back) = (frame.clone(), seat.clone());
            async move {
                let work = move || async move {
                    let built = frame.begin(shard, begin, pass).await?;
                    Ok(built.map(|shard| ShardHandle::open(&shard, back, serves)))
                };
                let stopped = || Err(Error::new(Kind::Gone, "a reactor has stopped"));
                run_on(seat.as_ref(), work).await.unwrap_or_else(stopped)
            }
        });
        let (mut handles, mut failure) = (Vec::new(), None);
        for built in join_all(building).await {
            match built {
                Ok(handle) => handles.extend(handle),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            join_all(handles.iter().map(stop)).await;
            return Err(error);
        }
        Ok(Self(Rc::new(Inner::new(frame.common, handles.into()))))
    }

    /// Does something with each shard, on its reactor, side by side; gives the results, or the first
    /// failure once all are done.
    pub(super) async fn each<T, F>(
        &self,
        work: impl Fn(Rc<Shard>) -> F + Clone + Send + 'static,
    ) -> Result<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let calls = self.0.handles.iter().map(|handle| handle.call(work.clone()));
        join_all(calls).await.into_iter().collect()
    }

    /// As [`each`](Self::each), behind what hosts wait for.
    pub(super) async fn each_behind<T, F>(
        &self,
        work: impl Fn(Rc<Shard>) -> F + Clone + Send + 'static,
    ) -> Result<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let behind = move |shard| {
            let work = work(shard);
            async move {
                let gone = || Err(Error::new(Kind::Gone, "the shard has stopped"));
                reactor::spawn_behind(work).await.unwrap_or_else(gone)
            }
        };
        self.each(behind).await
    }

    /// Passes a result on; when something failed, the shards end.
    pub(super) async fn or_stop<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            // Nor does what was to be ended later go on, beside who opens it next; where it has its turn already it comes to its
            // end first.
            self.0.closed.set(true);
            self.0.common.superblock.members.close();
            self.wait_for_no_space().await;
            let _turn = self.0.changing.hold(1).await;
            self.stop().await;
        }
        result
    }

    /// Ends the tasks of all shards.
    pub(super) async fn stop(&self) {
        join_all(self.0.handles.iter().map(stop)).await;
    }
}
