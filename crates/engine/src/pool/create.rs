//! Making a pool.

use std::sync::Arc;

use media::{Drive, Pmem};
use reactor::Handle;
use stdx::Prng;
use stdx::num::u64_of;
use stdx::size::show;

use super::assemble::{Found, Frame, drive_set};
use super::identity::random_id;
use super::members::{Begin, LogMedia, answering, copies_on_drives, new_members};
use super::{LogSpec, Pool, PoolSpec};
use crate::address::BLOCK;
use crate::area;
use crate::drives::DriveSet;
use crate::error::{Error, Kind, Result};
use crate::format;
use crate::format::catalog::{Catalog, CatalogArea};
use crate::format::label::{DriveMark, DriveRecord, Label, Layout, LogKind, PoolState};
use crate::format::manifest::{PAGE_BYTES, SegmentRecord};
use crate::format::root::{MANIFEST_MAX, RawEntry, segments_max};
use crate::limits::{
    AU_MAX, AU_MIN, AUS_MIN, AUS_PER_DRIVE, DRIVES_MAX, SHARD_LOG_BYTES, SHARD_SEGMENTS,
    SHARD_SEGMENTS_MIN, SHARDS_MAX, UNITS_PER_AU,
};
use crate::log::{Area, Device, LOG_BYTES_MIN, LogDevice, Zone};
use crate::superblock::{Kept, Place as RootPlace};

/// Bytes of a commit log where nobody says, and for small pools the share of a drive it takes.
const LOG_DEFAULT: u64 = 256 << 20;
const LOG_SHARE: u64 = 16;

/// What is needed is told in whole ones.
const MIB: u64 = 1 << 20;

/// The share of a drive that is set aside at most for a log that lies elsewhere, to be moved to the drives one day.
const ZONE_SHARE: u64 = 64;

impl LogSpec {
    pub(crate) const fn kind(&self) -> LogKind {
        match self {
            Self::Pmem(_) => LogKind::Pmem,
            Self::Bbu(_) => LogKind::Bbu,
            Self::Drives => LogKind::Drives,
            Self::Remote(_) => LogKind::Remote,
        }
    }

    /// Its devices, unless it is on the pool's drives.
    #[must_use]
    pub fn devices(&self) -> Vec<LogDevice> {
        match self {
            Self::Pmem(devices) | Self::Bbu(devices) => {
                devices.iter().cloned().map(LogDevice::Memory).collect()
            }
            Self::Drives => Vec::new(),
            Self::Remote(devices) => devices.clone(),
        }
    }

    /// The same on those of its devices alone that `keep` wants.
    pub(super) fn with_devices(&self, keep: impl Fn(&LogDevice) -> bool) -> Self {
        let memory = |devices: &[Arc<Pmem>]| {
            let kept = devices.iter().filter(|pmem| keep(&LogDevice::Memory(Arc::clone(pmem))));
            kept.cloned().collect()
        };
        match self {
            Self::Pmem(devices) => Self::Pmem(memory(devices)),
            Self::Bbu(devices) => Self::Bbu(memory(devices)),
            Self::Drives => Self::Drives,
            Self::Remote(devices) => {
                Self::Remote(devices.iter().filter(|device| keep(device)).cloned().collect())
            }
        }
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
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
            let zone = |drive| Zone::new(drive, label.catalog.end() + skip);
            let members = label.current_members().filter_map(|member| member.drive);
            Device::Drives(members.filter_map(|d| drives.drive(d).cloned()).map(zone).collect())
        }
        LogSpec::Remote(devices) => {
            Device::Both(devices.iter().map(|device| device.place(skip)).collect())
        }
    }
}

/// The seconds, bytes and counts of a new pool's label, of drives with these sizes.
pub(super) fn plan(spec: &PoolSpec, sizes: &[u64], reactors: usize) -> Result<Label> {
    format::check_name(&spec.name).map_err(invalid)?;
    if sizes.is_empty() || sizes.len() > DRIVES_MAX {
        return Err(invalid(format!("a pool has 1 to {DRIVES_MAX} drives")));
    }
    let shape = spec.scheme.shape(sizes.len()).ok_or_else(|| {
        let drives = sizes.len();
        invalid(format!("{drives} drives are too few for {:?}", spec.scheme))
    })?;
    // A small allocation unit has small stripe units: a stripe that is not full wastes a small share.
    let suits = raid::Geometry::default_unit(shape.data);
    let most = spec.au_bytes.map_or(u64::MAX, |au| au / UNITS_PER_AU / u64_of(BLOCK));
    let unit_blocks = suits.min(u32::try_from(most).unwrap_or(u32::MAX));
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let least_au = (u64::from(unit_blocks) * u64_of(BLOCK) * UNITS_PER_AU).max(AU_MIN);
    let suits = (smallest / AUS_PER_DRIVE).max(1).next_power_of_two();
    let au_bytes = spec.au_bytes.unwrap_or_else(|| suits.clamp(least_au, AU_MAX.max(least_au)));
    if !au_bytes.is_power_of_two() || !(AU_MIN..=AU_MAX).contains(&au_bytes) {
        return Err(invalid("an allocation unit is a power of two from 1 MiB to 64 MiB"));
    }
    let catalog = CatalogArea::for_drive(smallest);
    let shards = match spec.shards {
        Some(shards) => shards,
        None => {
            let log = log_room(spec, smallest);
            let units = sizes.iter().map(|&size| {
                let begins = catalog.end() + log.min(LOG_DEFAULT);
                DriveSet::au_count(size, begins, au_bytes)
            });
            let units: Vec<u32> = units.collect();
            let least = least_shards(&units, (shape.data, shape.parity), au_bytes);
            let segments = raid::placement::segments(&units, shape.width());
            let suits = suiting_shards(reactors, segments, log);
            u16::try_from(least).unwrap_or(u16::MAX).max(suits)
        }
    };
    if !(1..=SHARDS_MAX).contains(&usize::from(shards)) {
        return Err(invalid(format!("a pool has 1 to {SHARDS_MAX} shards")));
    }
    let log_bytes = log_bytes(spec, smallest, shards)?;
    let mut prng = Prng::new(u64::from_le_bytes(spec.id[..8].try_into().expect("8 bytes")));
    let zone = log_bytes * u64::from(shards);
    let drives = records(&spec.log, sizes, catalog, zone, (au_bytes, &mut prng))?;
    check_shards(shards, &drives, shape, au_bytes)?;
    let indices = (0..).take(sizes.len());
    let copies = copies_on_drives(shape.parity, sizes.len());
    let log_members = new_members(&spec.log, copies, indices, &mut prng);
    Ok(Label {
        pool: spec.id,
        name: spec.name.clone(),
        state: PoolState::Active,
        epoch: 0,
        drive: 0,
        layout: Layout { data: shape.data, parity: shape.parity, unit_blocks, au_bytes },
        catalog,
        shards,
        log: spec.log.kind(),
        log_bytes,
        log_id: random_id(&mut prng),
        log_copies: stdx::num::low8(u64_of(log_members.len())),
        log_waits: false,
        log_members,
        term: 1,
        closed: false,
        created: spec.created,
        drives,
    })
}

/// The drives as the label lists them, with a zone of so many bytes on each where the log lies on drives: it moves to
/// another one when one of its own is lost. Where it does not, and it costs little, so that it can be moved there.
fn records(
    log: &LogSpec,
    sizes: &[u64],
    catalog: CatalogArea,
    zone: u64,
    (au_bytes, prng): (u64, &mut Prng),
) -> Result<Vec<DriveRecord>> {
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let sets_aside = matches!(log, LogSpec::Drives) || zone <= smallest / ZONE_SHARE;
    let zone = if sets_aside { zone } else { 0 };
    let each = sizes.iter().enumerate().map(|(index, &size)| {
        let begins = catalog.end() + zone;
        let au_count = units_of(index, size, begins, au_bytes)?;
        let (id, mark) = (random_id(prng), DriveMark::Online);
        Ok(DriveRecord {
            id,
            mark,
            stays_out: None,
            is_leaving: false,
            since: 0,
            log_bytes: zone,
            au_count,
        })
    });
    each.collect()
}

/// How many allocation units of a pool are on a drive of `size` bytes, from `begins` on.
pub(super) fn units_of(index: usize, size: u64, begins: u64, au_bytes: u64) -> Result<u32> {
    let au_count = DriveSet::au_count(size, begins, au_bytes);
    if u64::from(au_count) >= AUS_MIN {
        return Ok(au_count);
    }
    let (has, needs) = (show(size), begins + AUS_MIN * au_bytes);
    let least = show(needs.next_multiple_of(MIB));
    Err(invalid(format!("drive {index} has {has}, and needs {least} or more")))
}

/// Blocks that a table of the map has at least, where they were written at random, and bytes that a manifest says of it.
const BLOCKS_A_TABLE: u64 = 200_000;
const TABLE_BYTES: u64 = 104;

fn check_shards(
    shards: u16,
    drives: &[DriveRecord],
    shape: raid::Shape,
    au_bytes: u64,
) -> Result<()> {
    let units: Vec<u32> = drives.iter().map(|drive| drive.au_count).collect();
    let least = least_shards(&units, (shape.data, shape.parity), au_bytes);
    if u64::from(shards) < least {
        return Err(invalid(format!("so much space needs {least} shards or more, not {shards}")));
    }
    let segments = raid::placement::segments(&units, shape.width());
    let needs = u64::from(shards) * SHARD_SEGMENTS_MIN;
    if shards > 1 && segments < needs {
        return Err(invalid(format!(
            "{shards} shards need {needs} segments; the drives have space for {segments}"
        )));
    }
    Ok(())
}

/// How many shards it takes until what each has to list at its checkpoints fits.
pub(super) fn least_shards(units: &[u32], (data, parity): (u8, u8), au_bytes: u64) -> u64 {
    let width = usize::from(data + parity);
    let segments = raid::placement::segments(units, width);
    let tables = segments * u64::from(data) * (au_bytes / u64_of(BLOCK)) / BLOCKS_A_TABLE;
    // Shards do not have all the same.
    let described = SegmentRecord::len(width);
    let all = (segments * u64_of(described) + tables * TABLE_BYTES) * 5 / 4;
    // Pages may be half full, and each in another segment.
    let listed = all.div_ceil(u64_of(PAGE_BYTES) / 2) * u64_of(size_of::<RawEntry>() + described);
    // Half of what the segments have that a root can describe: what the map writes meanwhile lies between.
    let named = u64_of(segments_max(described)) * u64::from(data) * au_bytes / 2;
    listed.div_ceil(u64_of(MANIFEST_MAX).min(named)).max(1)
}

/// As many shards as there are reactors, or fewer where those would have too little space or log.
fn suiting_shards(reactors: usize, segments: u64, log_bytes: u64) -> u16 {
    let most = (segments / SHARD_SEGMENTS).min(log_bytes / SHARD_LOG_BYTES);
    let most = most.min(u64_of(SHARDS_MAX.min(reactors)));
    u16::try_from(most).unwrap_or(1).max(1)
}

/// Bytes of commit log that all shards can have together.
fn log_room(spec: &PoolSpec, smallest: u64) -> u64 {
    let devices = spec.log.devices().iter().filter_map(LogDevice::capacity).min();
    let suits = devices.unwrap_or_else(|| LOG_DEFAULT.min(smallest / LOG_SHARE));
    spec.log_bytes.unwrap_or(suits)
}

/// Bytes of one shard's log.
fn log_bytes(spec: &PoolSpec, smallest: u64, shards: u16) -> Result<u64> {
    let all = log_room(spec, smallest);
    let bytes = (all / u64::from(shards)) & !(u64_of(BLOCK) - 1);
    let room = spec.log.devices().iter().filter_map(LogDevice::capacity).min();
    if bytes < LOG_BYTES_MIN || room.is_some_and(|room| bytes * u64::from(shards) > room) {
        let least = LOG_BYTES_MIN * u64::from(shards);
        let (all, least) = (show(all), show(least.next_multiple_of(MIB)));
        return Err(invalid(match room {
            Some(room) => format!(
                "the commit log would have {all}, and needs {least} or more of the {} there",
                show(room)
            ),
            // It has a share of the smallest drive.
            None if spec.log_bytes.is_none() => {
                let drive =
                    show((LOG_BYTES_MIN * u64::from(shards) * LOG_SHARE).next_multiple_of(MIB));
                format!(
                    "the commit log would have {all}, and needs {least} or more: take drives of {drive} or more"
                )
            }
            None => format!("the commit log would have {all}, and needs {least} or more"),
        }));
    }
    Ok(bytes)
}

/// Has a drive set aside the space of what may never find that there is none: labels, roots and catalog,
/// the log, and the headers of allocation units. What is in those waits for space as stripes do.
pub(super) async fn set_aside(index: usize, drive: &Drive, label: &Label) -> Result<()> {
    let record = &label.drives[index];
    let bytes = label.catalog.end() + record.log_bytes + u64::from(record.au_count) * u64_of(BLOCK);
    drive.preallocate(0, bytes).await.map_err(|error| {
        let error = Error::from(error);
        let what = format!("drive {index} has no room for its labels and log ({bytes} bytes)");
        Error::caused(error.kind, what, error)
    })
}

impl Pool {
    /// Makes a pool of drives and opens it. What was on the drives is lost. Its shards live on the
    /// reactors `on` by turns, or on this one if there are none.
    ///
    /// # Errors
    /// `Invalid` for what cannot be a pool, `Failed` when a drive takes no writes, `Full` when there is
    /// no space behind one for what must not lack it later: labels and log.
    pub async fn create(spec: PoolSpec, on: &[Handle]) -> Result<Self> {
        let sizes: Vec<u64> = spec.drives.iter().map(|drive| drive.capacity()).collect();
        let spec = match answering(&spec.log).await {
            (log, None) => PoolSpec { log, ..spec },
            (_, Some(silent)) => return Err(silent),
        };
        let label = plan(&spec, &sizes, on.len())?;
        for (index, drive) in spec.drives.iter().enumerate() {
            area::wipe(drive, label.catalog).await?;
            set_aside(index, drive, &label).await?;
        }
        let drives = drive_set(&label, spec.drives.iter().cloned().map(Some).collect());
        let places = vec![RootPlace::default(); spec.drives.len()];
        let kept = Kept::new(label.catalog, Catalog::default(), places);
        let media = LogMedia::of(&label, &spec.log);
        let found = Found { newest: label.clone(), behind: Vec::new(), drives };
        let frame = Frame::new(found, label.clone(), label, media.clone(), kept)?;
        frame
            .common
            .superblock
            .change_catalog(|catalog| Ok((catalog.edit(Vec::new()), ())))
            .await?;
        let pool = Self::assemble(frame, on, Begin::New).await?;
        // Labels last: without them there is no pool.
        pool.or_stop(pool.0.common.superblock.write_labels(|_| ()).await).await?;
        pool.note_remotes(&media.devices(), &[]);
        pool.keep_copies(Vec::new());
        Ok(pool)
    }
}
