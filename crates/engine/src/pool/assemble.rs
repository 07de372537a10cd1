//! Putting a pool together: what creating and opening have in common.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use media::Drive;
use reactor::Handle;

use super::create::{device, lane};
use super::{Inner, LogSpec, Pool, geometry_of};
use crate::across::{Pass, gate};
use crate::allocator::Allocator;
use crate::canary::{self, Canary};
use crate::common::Common;
use crate::door::{Door, run_on};
use crate::error::{Error, Kind, Result};
use crate::format::area as at;
use crate::format::catalog::Catalog;
use crate::format::label::Label;
use crate::limits::HANDS;
use crate::log::{Anew, Log, Presence};
use crate::map::{Map, MapLimits};
use crate::pages::Pages;
use crate::recover;
use crate::segment::{DriveSet, DriveSlot, Segments};
use crate::shard::{self, Shard};
use crate::space::Space;
use crate::superblock::Superblock;
use crate::table::Table;
use crate::writer::{self, Writer};
use reactor::join_all;

/// Memory of one shard's map.
const MAP_BYTES_MIN: usize = 4 << 20;
const MAP_BYTES_MAX: usize = 64 << 20;

/// How a shard begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// There was none.
    New,
    /// From its last checkpoint and its log, without what that lost if so asked.
    Found { accept_loss: bool },
    /// From its last checkpoint and the stripes since, without the log, which is lost.
    LogLost,
    /// From its last checkpoint; an exported pool left nothing in its log, which need not have come
    /// along.
    Imported,
}

/// The drives of a label as a set.
pub(super) fn drive_set(label: &Label, drives: Vec<Option<Arc<Drive>>>) -> DriveSet {
    let slots = label.drives.iter().zip(drives).map(|(record, drive)| DriveSlot {
        drive,
        failed: record.is_out(),
        begins: at::END + record.log_bytes,
        au_count: record.au_count,
    });
    DriveSet::new(slots.collect(), label.layout.au_bytes, usize::from(label.layout.parity))
}

/// Whether nothing is left of a commit log: it is blank where the shards have theirs, but for what an
/// opening that found it so made of it before it was cut short.
pub(super) async fn is_log_lost(label: &Label, log: &LogSpec, drives: &DriveSet) -> Result<bool> {
    let mut blank = false;
    for shard in 0..label.shards {
        let device = device(label, log, drives, shard);
        match Log::presence(device, label.log_bytes, lane(label, shard)).await? {
            Presence::Blank => blank = true,
            Presence::Unused => {}
            Presence::Used => return Ok(false),
        }
    }
    Ok(blank)
}

/// Takes back what an opening that was cut short made of a new log: it has the number that the label has
/// now, and would be taken for another pool's once that has the next one.
pub(super) async fn erase_log(label: &Label, log: &LogSpec, drives: &DriveSet) -> Result<()> {
    for shard in 0..label.shards {
        Log::erase(device(label, log, drives, shard), label.log_bytes).await?;
    }
    Ok(())
}

/// What the shards of a pool are made from, on whichever reactor.
#[derive(Clone)]
pub(super) struct Frame {
    pub common: Arc<Common>,
    label: Arc<Label>,
    log: LogSpec,
    geometry: raid::Geometry,
}

impl Frame {
    pub fn new(label: Label, log: LogSpec, catalog: Catalog, drives: DriveSet) -> Result<Self> {
        let geometry = geometry_of(&label.layout)?;
        let units: Vec<u32> = label.drives.iter().map(|drive| drive.au_count).collect();
        let allocator = Allocator::new(&units, geometry.width());
        let header = crate::format::stripe::header_blocks(geometry);
        let segment_blocks = u64::from(geometry.stripes() * (geometry.stripe_blocks() - header));
        let superblock = Superblock::new(drives, label.clone(), catalog);
        let common = Common::new(superblock, allocator, segment_blocks, label.shards);
        Ok(Self { common: Arc::new(common), label: Arc::new(label), log, geometry })
    }

    /// Memory for the map of one shard.
    fn map_limits(&self) -> MapLimits {
        // What all entries would take, up to what serves 1 TiB well.
        let (all, blocks) = (self.common.segments, self.common.segment_blocks);
        let capacity = Space::capacity_of(all, blocks, self.label.shards);
        let bytes = capacity * 16 / u64::from(self.label.shards);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        MapLimits::for_memory(bytes.clamp(MAP_BYTES_MIN, MAP_BYTES_MAX))
    }

    fn writer(&self, shard: u16, segments: Segments, table: Table, sequence: u64) -> Rc<Writer> {
        Rc::new(Writer::new(writer::Parts {
            pool: self.label.pool,
            shard,
            segments,
            table: Rc::new(std::cell::RefCell::new(table)),
            common: Arc::clone(&self.common),
            geometry: self.geometry,
            epoch: self.common.superblock.label().epoch,
            sequence,
        }))
    }

    /// The shard's own way to the drives.
    fn segments(&self) -> Result<Segments> {
        let drives = Arc::new(self.common.superblock.drives.for_another());
        Segments::new(drives, self.label.pool, self.geometry)
    }

    /// A shard's log; the stripe up to which its stripes count, and blocks found lost in it.
    async fn log(&self, shard: u16, begin: Begin) -> Result<(Log, u64, u64)> {
        let label = &self.label;
        let device = device(label, &self.log, &self.common.superblock.drives, shard);
        let lane = lane(label, shard);
        if let Begin::Found { accept_loss } = begin {
            if accept_loss && Log::lacks_control(device.clone(), label.log_bytes, lane).await? {
                let anew = self.anew(shard).await?;
                Log::rebuild(device.clone(), label.log_bytes, lane, anew).await?;
            }
            let opened = Log::open_with(device, label.log_bytes, lane, accept_loss).await;
            let (log, opened) = opened.map_err(|error| Error {
                context: format!("shard {shard} (lane {lane:#018x}): {}", error.context),
                ..error
            })?;
            return Ok((log, opened.durable_stripe, opened.lost_blocks));
        }
        if begin == Begin::LogLost {
            let anew = self.anew(shard).await?;
            let log = Log::replace(device, label.log_bytes, lane, anew).await?;
            return Ok((log, anew.durable_stripe, 0));
        }
        Ok((Log::create(device, label.log_bytes, lane).await?, 0, 0))
    }

    /// What a log that lost its control block, or everything, can rely on.
    async fn anew(&self, shard: u16) -> Result<Anew> {
        let segments = self.segments()?;
        let found = recover::find(&self.common.superblock, &segments, self.geometry, shard).await?;
        let durable_stripe = match recover::last_whole(&found, &segments).await {
            Err(_) if canary::has(Canary::TakesAbsentForTorn) => found.manifest.cut,
            done => done?,
        };
        Ok(Anew { durable_stripe, epoch: self.common.superblock.label().epoch })
    }

    /// A shard that has nothing yet.
    async fn create_shard(&self, shard: u16) -> Result<Rc<Shard>> {
        let (log, ..) = self.log(shard, Begin::New).await?;
        let writer = self.writer(shard, self.segments()?, Table::default(), 0);
        let pages = Rc::new(Pages::new(Rc::clone(&writer)));
        let made = Rc::new(Shard::new(shard::Parts {
            log,
            writer,
            common: Arc::clone(&self.common),
            map: Map::new(Rc::clone(&pages), self.map_limits()),
            pages,
            cut: 0,
            generation: 0,
            manifest_blocks: Vec::new(),
        }));
        made.checkpoint().await?;
        made.start();
        Ok(made)
    }

    /// A shard as its checkpoint and log say it was; `None` when another cannot be opened.
    async fn open_shard(&self, shard: u16, begin: Begin, pass: Pass) -> Result<Option<Rc<Shard>>> {
        let common = &self.common;
        let (log, durable, lost) = self.log(shard, begin).await?;
        let segments = self.segments()?;
        let found = recover::find(&common.superblock, &segments, self.geometry, shard).await?;
        let rolled = recover::roll(&found, &segments, &common.allocator, durable).await?;
        // No segment is given out before it is known which of them all shards have.
        if pass.meet().await.is_err() {
            return Ok(None);
        }
        let writer = self.writer(shard, segments, rolled.table, rolled.sequence);
        let pages = Rc::new(Pages::new(Rc::clone(&writer)));
        let map = Map::open(&found.manifest.map, Rc::clone(&pages), self.map_limits())?;
        let opened = Rc::new(Shard::new(shard::Parts {
            log,
            writer,
            common: Arc::clone(common),
            pages,
            map,
            cut: found.manifest.cut,
            generation: found.root.generation,
            manifest_blocks: found.blocks,
        }));
        opened.counters.lost.set(lost);
        for header in &rolled.headers {
            opened.learn(header).await?;
        }
        opened.start();
        if let Err(error) = opened.flush_opened().await {
            opened.stop().await;
            return Err(error);
        }
        Ok(Some(opened))
    }

    async fn begin(&self, shard: u16, begin: Begin, pass: Pass) -> Result<Option<Rc<Shard>>> {
        match begin {
            Begin::New => self.create_shard(shard).await.map(Some),
            Begin::Found { .. } | Begin::LogLost | Begin::Imported => {
                self.open_shard(shard, begin, pass).await
            }
        }
    }
}

/// How the reactor of each shard is reached: those of `on` by turns. `None` is this one.
fn seats(shards: u16, on: &[Handle]) -> Vec<Option<Handle>> {
    let here = reactor::id();
    let handle = |shard: u16| on.get(usize::from(shard) % on.len().max(1)).cloned();
    (0..shards).map(|shard| handle(shard).filter(|handle| handle.id() != here)).collect()
}

async fn stop(door: &Door) {
    door.close();
    // One that is gone has stopped.
    let end = |shard: Rc<Shard>| async move {
        shard.stop().await;
        Ok(())
    };
    let _ = door.call(end).await;
}

impl Pool {
    /// The pool, with the tasks of its shards running on their reactors.
    pub(super) async fn assemble(frame: Frame, on: &[Handle], begin: Begin) -> Result<Self> {
        let shards = frame.label.shards;
        // Any reactor may be given a request, those without a shard as well.
        let hands = if on.len() > 1 { HANDS } else { 0 };
        let passes = gate(usize::from(shards));
        let all = seats(shards, on).into_iter().zip(passes).zip(0..);
        let building = all.map(|((seat, pass), shard)| {
            let (frame, back) = (frame.clone(), seat.clone());
            async move {
                let work = move || async move {
                    let built = frame.begin(shard, begin, pass).await?;
                    Ok(built.map(|shard| Door::open(&shard, back, hands)))
                };
                let stopped = || Err(Error::new(Kind::Gone, "a reactor has stopped"));
                run_on(seat.as_ref(), work).await.unwrap_or_else(stopped)
            }
        });
        let (mut doors, mut failure) = (Vec::new(), None);
        for built in join_all(building).await {
            match built {
                Ok(door) => doors.extend(door),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            join_all(doors.iter().map(stop)).await;
            return Err(error);
        }
        Ok(Self(Rc::new(Inner::new(frame.common, doors.into()))))
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
        let calls = self.0.doors.iter().map(|door| door.call(work.clone()));
        join_all(calls).await.into_iter().collect()
    }

    /// Passes a result on; when something failed, the shards end.
    pub(super) async fn or_stop<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.stop().await;
        }
        result
    }

    /// Ends the tasks of all shards.
    pub(super) async fn stop(&self) {
        join_all(self.0.doors.iter().map(stop)).await;
    }
}
