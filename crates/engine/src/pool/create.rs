//! Making a pool.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use media::{Drive, Pmem};
use reactor::sync::Semaphore;
use stdx::Prng;
use stdx::num::u64_of;

use super::{Inner, LogSpec, Pool, PoolSpec, geometry_of};
use crate::address::BLOCK;
use crate::allocator::Allocator;
use crate::area;
use crate::error::{Error, Kind, Result};
use crate::format::catalog::Catalog;
use crate::format::label::{DriveRecord, Label, Layout, LogKind, PoolState};
use crate::format::{self, area as at};
use crate::limits::{AU_MAX, AU_MIN, AUS_MIN, AUS_PER_DRIVE, DRIVES_MAX, UNITS_PER_AU};
use crate::log::{Area, Device, LOG_BYTES_MIN, Log, Zone};
use crate::map::{Map, MapLimits};
use crate::pages::Pages;
use crate::segment::{DriveSet, DriveSlot, Segments};
use crate::shard::{self, Shard};
use crate::superblock::Superblock;
use crate::table::Table;
use crate::writer::{self, Writer};

/// Bytes of a commit log where nobody says, and for small pools the share of a drive it takes.
const LOG_DEFAULT: u64 = 256 << 20;
const LOG_SHARE: u64 = 16;

/// Memory of one shard's map.
const MAP_BYTES_MIN: usize = 4 << 20;
const MAP_BYTES_MAX: usize = 64 << 20;

impl LogSpec {
    pub(crate) const fn kind(&self) -> LogKind {
        match self {
            Self::Pmem(_) => LogKind::Pmem,
            Self::Bbu(_) => LogKind::Bbu,
            Self::Drives => LogKind::Drives,
        }
    }

    pub(super) fn devices(&self) -> &[Arc<Pmem>] {
        match self {
            Self::Pmem(devices) | Self::Bbu(devices) => devices,
            Self::Drives => &[],
        }
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

pub(super) fn random_id(prng: &mut Prng) -> [u8; 16] {
    let mut id = [0; 16];
    prng.fill(&mut id);
    id
}

/// The number that tells a shard's log of this pool from all others.
pub(crate) fn lane(label: &Label, shard: u16) -> u64 {
    let (half, _) = label.log_id.split_first_chunk().expect("an id has 16 bytes");
    u64::from_le_bytes(*half).wrapping_add(u64::from(shard))
}

/// Where a shard's log lies.
pub(crate) fn device(label: &Label, log: &LogSpec, drives: &DriveSet, shard: u16) -> Device {
    let skip = u64::from(shard) * label.log_bytes;
    match log {
        LogSpec::Pmem(devices) | LogSpec::Bbu(devices) => {
            let area = |pmem: &Arc<Pmem>| Area { pmem: Arc::clone(pmem), offset: skip };
            Device::Memory(devices.iter().map(area).collect())
        }
        LogSpec::Drives => {
            let with_zone = drives.indices().zip(&label.drives).filter(|(_, d)| d.log_bytes > 0);
            let zone = |drive| Zone { drive, offset: at::END + skip };
            Device::Drives(with_zone.filter_map(|d| drives.drive(d.0).cloned()).map(zone).collect())
        }
    }
}

/// The seconds, bytes and counts of a new pool's label.
fn plan(spec: &PoolSpec) -> Result<Label> {
    format::check_name(&spec.name).map_err(invalid)?;
    if spec.drives.is_empty() || spec.drives.len() > DRIVES_MAX {
        return Err(invalid(format!("a pool has 1 to {DRIVES_MAX} drives")));
    }
    let shape = spec.scheme.shape(spec.drives.len()).ok_or_else(|| {
        let drives = spec.drives.len();
        invalid(format!("{drives} drives are too few for {:?}", spec.scheme))
    })?;
    let unit_blocks = raid::Geometry::default_unit(shape.data);
    let smallest = spec.drives.iter().map(|drive| drive.capacity()).min().unwrap_or(0);
    let least_au = (u64::from(unit_blocks) * u64_of(BLOCK) * UNITS_PER_AU).max(AU_MIN);
    let suits = (smallest / AUS_PER_DRIVE).max(1).next_power_of_two();
    let au_bytes = spec.au_bytes.unwrap_or_else(|| suits.clamp(least_au, AU_MAX.max(least_au)));
    if !au_bytes.is_power_of_two() || !(AU_MIN..=AU_MAX).contains(&au_bytes) {
        return Err(invalid("an allocation unit is a power of two from 1 MiB to 64 MiB"));
    }
    let log_bytes = log_bytes(spec, smallest)?;
    let mut prng = Prng::new(u64::from_le_bytes(spec.id[..8].try_into().expect("8 bytes")));
    let zones = if matches!(spec.log, LogSpec::Drives) { spec.drives.len().min(2) } else { 0 };
    let mut drives = Vec::new();
    for (index, drive) in spec.drives.iter().enumerate() {
        let zone = if index < zones { log_bytes } else { 0 };
        let au_count = DriveSet::au_count(drive.capacity(), at::END + zone, au_bytes);
        if u64::from(au_count) < AUS_MIN {
            let needs = at::END + zone + AUS_MIN * au_bytes;
            return Err(invalid(format!(
                "drive {index} has {} bytes; it needs {needs} or more",
                drive.capacity()
            )));
        }
        drives.push(DriveRecord {
            id: random_id(&mut prng),
            failed: false,
            log_bytes: zone,
            au_count,
        });
    }
    Ok(Label {
        pool: spec.id,
        name: spec.name.clone(),
        state: PoolState::Active,
        epoch: 0,
        drive: 0,
        layout: Layout { data: shape.data, parity: shape.parity, unit_blocks, au_bytes },
        shards: 1,
        log: spec.log.kind(),
        log_bytes,
        log_id: random_id(&mut prng),
        created: spec.created,
        drives,
    })
}

fn log_bytes(spec: &PoolSpec, smallest: u64) -> Result<u64> {
    let room = spec.log.devices().iter().map(|device| device.capacity()).min();
    let suits = room.unwrap_or_else(|| LOG_DEFAULT.min(smallest / LOG_SHARE));
    let bytes = spec.log_bytes.unwrap_or(suits) & !(u64_of(BLOCK) - 1);
    if bytes < LOG_BYTES_MIN || room.is_some_and(|room| bytes > room) {
        let room = room.map_or_else(String::new, |room| format!(" and at most {room}"));
        return Err(invalid(format!(
            "the commit log would have {bytes} bytes; it needs {LOG_BYTES_MIN} at least{room}"
        )));
    }
    Ok(bytes)
}

/// The drives of a label as a set.
pub(super) fn drive_set(label: &Label, drives: Vec<Option<Arc<Drive>>>) -> Arc<DriveSet> {
    let slots = label.drives.iter().zip(drives).map(|(record, drive)| DriveSlot {
        drive,
        failed: record.failed,
        begins: at::END + record.log_bytes,
        au_count: record.au_count,
    });
    Arc::new(DriveSet::new(slots.collect(), label.layout.au_bytes))
}

/// The parts that creating and opening have in common.
pub(super) struct Frame {
    pub superblock: Rc<Superblock>,
    pub allocator: Rc<RefCell<Allocator>>,
    pub geometry: raid::Geometry,
    pub segments: Segments,
}

impl Frame {
    pub fn new(label: Label, catalog: Catalog, drives: Arc<DriveSet>) -> Result<Self> {
        let geometry = geometry_of(&label.layout)?;
        let segments = Segments::new(Arc::clone(&drives), label.pool, geometry)?;
        let units: Vec<u32> = label.drives.iter().map(|drive| drive.au_count).collect();
        let mut allocator = Allocator::new(&units, geometry.width());
        for index in drives.indices() {
            allocator.set_online(usize::from(index), drives.is_online(index));
        }
        let superblock = Rc::new(Superblock::new(drives, label, catalog));
        Ok(Self { superblock, allocator: Rc::new(RefCell::new(allocator)), geometry, segments })
    }

    /// Segments that may hold data: the rest is for metadata, for what is open, and for reclaim to
    /// work with.
    pub fn data_segments(&self) -> u64 {
        let all = self.allocator.borrow().capacity();
        all - (all / 12).max(8).min(all)
    }

    /// Blocks of data the pool may hold.
    pub fn capacity(&self) -> u64 {
        let header = crate::format::stripe::header_blocks(self.geometry);
        let room = self.geometry.stripe_blocks() - header;
        self.data_segments() * u64::from(self.geometry.stripes()) * u64::from(room)
    }

    /// Memory for the map of one shard.
    pub fn map_limits(&self) -> MapLimits {
        // A quarter of what all entries would take, up to what serves 1 TiB well.
        let bytes = usize::try_from(self.capacity() * 4).unwrap_or(usize::MAX);
        MapLimits::for_memory(bytes.clamp(MAP_BYTES_MIN, MAP_BYTES_MAX))
    }

    pub fn writer(&self, shard: u16, table: Table, sequence: u64) -> Rc<Writer> {
        let label = self.superblock.label();
        Rc::new(Writer::new(writer::Parts {
            pool: label.pool,
            shard,
            segments: self.segments.clone(),
            table: Rc::new(RefCell::new(table)),
            allocator: Rc::clone(&self.allocator),
            geometry: self.geometry,
            epoch: label.epoch,
            sequence,
        }))
    }

    /// The pool, with its tasks running.
    pub fn into_pool(self, shards: Vec<Rc<Shard>>) -> Pool {
        let tasks = shards.iter().flat_map(Shard::start).collect();
        Pool(Rc::new(Inner {
            superblock: self.superblock,
            allocator: self.allocator,
            shards: shards.into(),
            volumes: RefCell::default(),
            changing: Semaphore::new(1),
            tasks: RefCell::new(tasks),
            closed: Cell::new(false),
        }))
    }
}

impl Pool {
    /// Makes a pool of drives and opens it. What was on the drives is lost.
    ///
    /// # Errors
    /// `Invalid` for what cannot be a pool, `Failed` when a drive takes no writes.
    pub async fn create(spec: PoolSpec) -> Result<Self> {
        let label = plan(&spec)?;
        for drive in &spec.drives {
            area::wipe(drive).await?;
        }
        let drives = drive_set(&label, spec.drives.iter().cloned().map(Some).collect());
        let catalog = Catalog { generation: 0, next_view: 1, volumes: Vec::new() };
        let shards = label.shards;
        let frame = Frame::new(label.clone(), catalog, drives)?;
        let mut made = Vec::new();
        for shard in 0..shards {
            let device = device(&label, &spec.log, &frame.superblock.drives, shard);
            let log = Log::create(device, label.log_bytes, lane(&label, shard)).await?;
            let writer = frame.writer(shard, Table::default(), 0);
            let pages = Rc::new(Pages::new(Rc::clone(&writer)));
            let map = Map::new(Rc::clone(&pages), frame.map_limits());
            made.push(Rc::new(Shard::new(shard::Parts {
                log,
                writer,
                superblock: Rc::clone(&frame.superblock),
                pages,
                map,
                capacity: frame.capacity() / u64::from(shards),
                cut: 0,
                generation: 0,
                manifest_blocks: Vec::new(),
            })));
        }
        frame.superblock.change_catalog(|_| Ok(())).await?;
        for shard in &made {
            shard.checkpoint().await?;
        }
        // Labels last: without them there is no pool.
        frame.superblock.write_labels(PoolState::Active).await?;
        Ok(frame.into_pool(made))
    }
}
