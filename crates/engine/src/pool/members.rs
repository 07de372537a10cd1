//! Which devices a pool's log is opened from: those that are current, and no others.

use std::sync::Arc;

use media::Pmem;
use reactor::{join_all, now};
use stdx::Prng;
use stdx::num::{low8, u64_of, usize32};

use super::LogSpec;
use super::identity::{random_id, ring};
use crate::canary::{self, Canary};
use crate::common::Common;
use crate::drives::DriveSet;
use crate::error::{Error, Kind, Result};
use crate::format::label::{Label, LogKind, LogMember};
use crate::limits::LOG_COPIES_MAX;
use crate::log::{Device, Identity, LogDevice, Owner, Place, Seat, Site, Zone, identify};

/// Copies of a log on drives: it bears what the pool bears, and a damaged sector at least.
pub(super) fn copies_on_drives(parity: u8, drives: usize) -> usize {
    (usize::from(parity) + 1).max(2).min(drives).min(LOG_COPIES_MAX)
}

/// The devices of a new log: all that are given, or so many of these drives.
pub(super) fn new_members(
    log: &LogSpec,
    copies: usize,
    drives: impl Iterator<Item = u16>,
    prng: &mut Prng,
) -> Vec<LogMember> {
    let mut member = |drive| LogMember { id: random_id(prng), drive, current: true };
    match log {
        LogSpec::Drives => drives.take(copies).map(|drive| member(Some(drive))).collect(),
        apart => apart.devices().iter().map(|_| member(None)).collect(),
    }
}

/// The media of the log's devices, each with its slot among the members.
#[derive(Clone)]
pub(super) enum LogMedia {
    /// Apart from the pool's drives.
    Apart(Vec<(usize, LogDevice)>),
    Drives(Vec<(usize, u16)>),
}

/// A shard's part of a device.
pub(super) fn part_of(label: &Label, device: &LogDevice, shard: u16) -> Place {
    device.place(u64::from(shard) * label.log_bytes)
}

/// A shard's zone on a drive, if that can be used.
pub(super) fn zone_of(label: &Label, drives: &DriveSet, drive: u16, shard: u16) -> Option<Zone> {
    let offset = label.catalog.end() + u64::from(shard) * label.log_bytes;
    Some(Zone::new(Arc::clone(drives.drive(drive)?), offset))
}

impl LogMedia {
    /// Of members that are all new.
    pub fn of(label: &Label, log: &LogSpec) -> Self {
        match log {
            LogSpec::Drives => {
                let drives = label.log_members.iter().enumerate();
                Self::Drives(drives.filter_map(|(n, member)| Some((n, member.drive?))).collect())
            }
            apart => Self::Apart(apart.devices().into_iter().enumerate().collect()),
        }
    }

    /// Those that are no drives of the pool, with their slots.
    pub fn devices(&self) -> Vec<(usize, LogDevice)> {
        match self {
            Self::Apart(devices) => devices.clone(),
            Self::Drives(_) => Vec::new(),
        }
    }

    /// The devices that are memory.
    pub fn memory(&self) -> Vec<Arc<Pmem>> {
        let Self::Apart(devices) = self else { return Vec::new() };
        let memory = devices.iter().filter_map(|(_, device)| match device {
            LogDevice::Memory(pmem) => Some(Arc::clone(pmem)),
            LogDevice::Remote(_) => None,
        });
        memory.collect()
    }

    /// Where a shard's log lies.
    pub fn site(&self, label: &Label, common: &Arc<Common>, shard: u16) -> Site {
        let owner = Owner::Pool(Arc::clone(common));
        let (device, seats) = match self {
            Self::Apart(devices) => {
                let places = devices.iter().map(|(_, device)| part_of(label, device, shard));
                let seats = devices.iter().map(|(slot, _)| Seat { slot: *slot, drive: None });
                let device = match label.log {
                    LogKind::Remote => Device::Both(places.collect()),
                    _ => Device::Memory(places.filter_map(Place::into_area).collect()),
                };
                (device, seats.collect())
            }
            Self::Drives(members) => {
                let zone = |drive| zone_of(label, &common.superblock.drives, drive, shard);
                let placed = members.iter().filter_map(|(slot, drive)| {
                    Some((Seat { slot: *slot, drive: Some(*drive) }, zone(*drive)?))
                });
                let (seats, zones): (Vec<_>, Vec<_>) = placed.unzip();
                (Device::Drives(zones), seats)
            }
        };
        Site { device, seats, owner }
    }
}

/// How a shard begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// There was none.
    New,
    /// From its last checkpoint and its log, without what that lost if so asked.
    Found { accept_loss: bool },
    /// From its last checkpoint and the stripes since, without the log, which is lost.
    LogLost,
    /// From its last checkpoint; a pool closed in order left nothing in its log.
    Clean,
}

/// How a pool's log is opened.
pub(super) struct Plan {
    /// What the labels are to say before anything is changed.
    pub before: Label,
    /// What they are to say once the log is there.
    pub after: Label,
    pub begin: Begin,
    pub media: LogMedia,
    /// Devices that are given and not current: to be made whole.
    pub spare: Vec<LogDevice>,
    /// Devices that had the log are not among those given; it was not needed.
    pub without: bool,
    pub given: Usable,
}

/// What is given for a log.
#[derive(Clone)]
pub(super) struct Usable {
    /// On what may be written to.
    log: LogSpec,
    /// Places that are left as they are, as they have something else by now, or cannot be read: the log lacks so many
    /// copies.
    left_out: usize,
}

const OF_OTHERS: &str = "the log's device has another pool's commit log, or other data";

fn missing(what: impl Into<String>) -> Error {
    Error::new(Kind::Missing, what)
}

/// What the devices given have of the log.
struct Given {
    /// Of those that are current, by slot.
    apart: Vec<(usize, LogDevice)>,
    drives: Vec<(usize, u16)>,
    spare: Vec<LogDevice>,
    /// Those that have something else by now, or do not say: as little of this log as those that are away, and nothing is
    /// written there.
    left_out: Vec<LogDevice>,
    /// The highest term that any device knows of.
    term: u64,
    /// Why one cannot be read that may have been current.
    failure: Option<Error>,
}

impl Given {
    fn nothing() -> Self {
        let (apart, drives, spare, left_out) = Default::default();
        Self { apart, drives, spare, left_out, term: 0, failure: None }
    }

    fn has(&self, slot: usize) -> bool {
        self.apart.iter().any(|(n, _)| *n == slot) || self.drives.iter().any(|(n, _)| *n == slot)
    }

    fn is_nothing(&self) -> bool {
        self.apart.is_empty() && self.drives.is_empty()
    }
}

/// The current member of this name.
fn slot_of(label: &Label, id: [u8; 16]) -> Option<usize> {
    label.log_members.iter().position(|member| member.current && member.id == id)
}

fn is_long_enough(label: &Label, device: &LogDevice) -> bool {
    let needs = label.log_bytes * u64::from(label.shards);
    device.capacity().is_none_or(|bytes| bytes >= needs)
}

/// The log on those devices that are as long as it: one that was cut short has lost what was behind its end, and others
/// may have that.
fn fitting(label: &Label, log: &LogSpec) -> Result<LogSpec> {
    let fitting = log.with_devices(|device| is_long_enough(label, device));
    if fitting.devices().is_empty() && !log.devices().is_empty() {
        let context = format!(
            "the log's device is shorter than the log of pool {}, which has {} bytes",
            label.name,
            label.log_bytes * u64::from(label.shards)
        );
        return Err(Error::new(Kind::Invalid, context));
    }
    Ok(fitting)
}

/// The log on those of its devices that answer, and why the others do not. A namespace of another target that is away
/// is one that its pool opens without, as long as another device has the log.
pub(super) async fn answering(log: &LogSpec) -> (LogSpec, Option<Error>) {
    let LogSpec::Remote(devices) = log else { return (log.clone(), None) };
    let asked = join_all(devices.iter().map(LogDevice::answers)).await;
    let (mut there, mut silent) = (Vec::new(), None);
    for answer in asked {
        match answer {
            Ok(device) => there.push(device),
            Err(error) => silent = Some(error),
        }
    }
    (LogSpec::Remote(there), silent)
}

/// What lies on a device that is no drive of the pool. A namespace of another target may have been given to somebody
/// else, of whom little is to be seen, and what was there before beside it. (Memory without a battery has anything at all.)
pub(super) async fn identify_device(label: &Label, device: &LogDevice) -> Result<Identity> {
    let parts: Vec<Place> = (0..label.shards).map(|shard| part_of(label, device, shard)).collect();
    let identity = identify(&parts, label.log_bytes, label.pool, ring(label, 0), true).await?;
    let is_remote = matches!(device, LogDevice::Remote(_));
    match identity {
        Identity::Member { beside: true, .. } if is_remote => Ok(Identity::Foreign),
        Identity::Blank if is_remote && !device.begins_blank().await? => Ok(Identity::Foreign),
        identity => Ok(identity),
    }
}

async fn look_at_devices(label: &Label, devices: &[LogDevice]) -> Given {
    let mut given = Given::nothing();
    let all_current = label.log_members.iter().all(|member| member.current);
    let mut nameless = Vec::new();
    for device in devices {
        let identity = match identify_device(label, device).await {
            Ok(identity) => identity,
            Err(error) => {
                given.failure = Some(error);
                if matches!(device, LogDevice::Remote(_)) {
                    given.left_out.push(device.clone());
                }
                continue;
            }
        };
        match identity {
            Identity::Foreign => {
                given.failure = Some(missing(OF_OTHERS));
                given.left_out.push(device.clone());
            }
            Identity::Blank => given.spare.push(device.clone()),
            Identity::Records => nameless.push(device.clone()),
            Identity::Member { id, term, .. } => {
                given.term = given.term.max(term);
                match slot_of(label, id).filter(|slot| !given.has(*slot)) {
                    Some(slot) => given.apart.push((slot, device.clone())),
                    None => given.spare.push(device.clone()),
                }
            }
        }
    }
    // A device whose control blocks are damaged has no name any more. Where none is stale it can only be current.
    for device in nameless {
        let free = (0..label.log_members.len()).find(|slot| !given.has(*slot));
        match free.filter(|_| all_current) {
            Some(slot) => given.apart.push((slot, device)),
            None => given.spare.push(device),
        }
    }
    given
}

async fn look_at_zones(label: &Label, drives: &DriveSet) -> Given {
    let mut given = Given::nothing();
    for (slot, member) in label.log_members.iter().enumerate().filter(|(_, m)| m.current) {
        let Some(index) = member.drive else { continue };
        let part = |shard| zone_of(label, drives, index, shard).map(Place::Zone);
        let Some(parts) = (0..label.shards).map(part).collect::<Option<Vec<_>>>() else { continue };
        match identify(&parts, label.log_bytes, label.pool, ring(label, 0), false).await {
            Ok(Identity::Member { id, term, .. }) => {
                given.term = given.term.max(term);
                if id == member.id {
                    given.drives.push((slot, index));
                }
            }
            Ok(Identity::Records) => given.drives.push((slot, index)),
            // Another's is what the drive forgot to write over.
            Ok(Identity::Blank | Identity::Foreign) => {}
            Err(error) => given.failure = Some(error),
        }
    }
    given
}

/// What the log of a pool is known by that gets a new one: another number than before, so that the records the
/// old one left are not taken for the new one's; nor those of whoever goes on from the same labels with other drives, or
/// on another machine.
fn next_log(label: &Label) -> Prng {
    let (half, _) = label.log_id.split_first_chunk().expect("an id has 16 bytes");
    let seed = u64::from_le_bytes(*half) ^ label.epoch;
    if canary::has(Canary::NamesLogsAlike) {
        return Prng::new(seed);
    }
    let out = (1..).zip(&label.drives).filter(|(_, record)| record.is_out());
    let mixed =
        out.fold(seed, |seed, (nth, record)| Prng::new(seed ^ record.since << 16 ^ nth).next_u64());
    Prng::new(mixed ^ now())
}

impl Plan {
    /// Whether the log shows that nobody went on with other drives: it lies apart from them, all of its current devices
    /// are here, and no later term is in them. (Whoever goes on after the pool was closed makes the log anew, which these
    /// labels do not know.)
    pub fn is_witness(&self) -> bool {
        let all = self.before.current_members().count() == usize::from(self.before.log_copies);
        let apart = matches!(&self.media, LogMedia::Apart(_));
        let found = match self.begin {
            Begin::Found { .. } => true,
            Begin::Clean => !self.without,
            Begin::New | Begin::LogLost => false,
        };
        apart && all && found
    }

    /// With the devices that are current, of a label whose missing drives are marked, and that was found with this
    /// `term`. Changes nothing.
    ///
    /// # Errors
    /// `Missing` for another kind of device or another pool's log, `Loss` when no device that is current is given,
    /// nor that loss accepted.
    pub async fn new(
        label: Label,
        term: u64,
        (log, silent): (&LogSpec, Option<Error>),
        drives: &DriveSet,
        accept_loss: bool,
    ) -> Result<Self> {
        let same_kind = label.log == log.kind();
        if !same_kind && !label.closed {
            let context =
                format!("the log of pool {} is kept in {}", label.name, name_of(label.log));
            return Err(missing(context));
        }
        let log = &fitting(&label, log)?;
        let mut given = match log {
            LogSpec::Drives => look_at_zones(&label, drives).await,
            apart => look_at_devices(&label, &apart.devices()).await,
        };
        let is_out = |device: &LogDevice| given.left_out.iter().any(|other| other.is(device));
        let usable = Usable {
            log: log.with_devices(|device| !is_out(device)),
            left_out: given.left_out.len(),
        };
        let log = &usable.log;
        if log.devices().is_empty()
            && !given.left_out.is_empty()
            && let Some(error) = given.failure
        {
            return Err(error);
        }
        given.failure = given.failure.or(silent);
        if label.closed {
            let without = label
                .log_members
                .iter()
                .enumerate()
                .any(|(slot, member)| member.current && !given.has(slot));
            return Self::rebuilt(label, usable, drives, Begin::Clean, without);
        }
        if given.is_nothing()
            && let Some(error) = given.failure
        {
            // Whoever goes on without it leaves it out.
            return Err(error);
        }
        if given.term > term && !accept_loss {
            return Err(missing(format!(
                "the log of pool {} was last used with later labels than the drives given have: \
                 newer drives are missing",
                label.name
            )));
        }
        let current = |slot: &usize| label.log_members[*slot].current;
        let lost: Vec<usize> =
            (0..label.log_members.len()).filter(current).filter(|slot| !given.has(*slot)).collect();
        if given.is_nothing() || given.term > term {
            if accept_loss {
                return Self::rebuilt(label, usable, drives, Begin::LogLost, true);
            }
            return Err(log_lost(&label));
        }
        let mut after = label;
        after.term += u64::from(!lost.is_empty());
        for slot in lost {
            after.log_members[slot].current = false;
        }
        let media = match log {
            LogSpec::Drives => LogMedia::Drives(given.drives),
            _ => LogMedia::Apart(given.apart),
        };
        let (begin, spare) = (Begin::Found { accept_loss }, given.spare);
        let (before, given) = (after.clone(), usable);
        Ok(Self { before, after, begin, media, spare, without: false, given })
    }

    /// Without what the devices have: for whoever accepts that loss.
    pub fn without_log(label: Label, given: Usable, drives: &DriveSet) -> Result<Self> {
        let given = Usable { log: fitting(&label, &given.log)?, ..given };
        Self::rebuilt(label, given, drives, Begin::LogLost, true)
    }

    /// With a new log on the devices given.
    fn rebuilt(
        before: Label,
        given: Usable,
        drives: &DriveSet,
        begin: Begin,
        without: bool,
    ) -> Result<Self> {
        let log = &given.log;
        let mut after = before.clone();
        let mut prng = next_log(&before);
        after.log_id = random_id(&mut prng);
        let has_zone = |index: &u16| {
            drives.is_online(*index) && before.drives[usize::from(*index)].log_bytes > 0
        };
        let copies = copies_on_drives(before.layout.parity, before.drives.len());
        let online = drives.indices().filter(has_zone);
        after.log_members = new_members(log, copies, online, &mut prng);
        if after.log_members.is_empty() || after.log_members.len() > LOG_COPIES_MAX {
            let context = format!(
                "the drives of pool {} have no room set aside for a log: name a device for it",
                before.name
            );
            return Err(Error::new(Kind::Invalid, context));
        }
        let named = low8(u64_of(after.log_members.len() + given.left_out));
        after.log_copies = match log {
            LogSpec::Drives => low8(u64_of(copies)),
            _ if before.log == log.kind() => before.log_copies.max(named),
            _ => named,
        };
        after.log = log.kind();
        after.log_waits &= after.log.is_gathered();
        (after.closed, after.term) = (false, before.term + 1);
        let media = LogMedia::of(&after, log);
        Ok(Self { before, after, begin, media, spare: Vec::new(), without, given })
    }
}

/// What a device is known by that is made whole while the pool is open, the `nth` since.
pub(super) fn next_member(label: &Label, nth: u64) -> [u8; 16] {
    let mut prng = next_log(label);
    let mut id = [0; 16];
    for _ in 0..=nth {
        id = random_id(&mut prng);
    }
    // The epoch is of this opening or later, and no two of one opening have the same number.
    id[8..].copy_from_slice(&(label.epoch << 16 | nth & 0xffff).to_le_bytes());
    id
}

fn log_lost(label: &Label) -> Error {
    let current: Vec<String> = label
        .current_members()
        .map(|member| {
            member.drive.map_or("the device it was last on".into(), |n| format!("drive {n}"))
        })
        .collect();
    let on = if usize32(u32::from(label.log_copies)) > 1 { "every device" } else { "its device" };
    Error::new(
        Kind::Loss,
        format!(
            "the commit log of pool {} is missing, blank or an old copy on {on} ({}): what was acknowledged and \
             not on the drives yet was in there, and is lost should it not be found again",
            label.name,
            current.join(", ")
        ),
    )
}

const fn name_of(log: LogKind) -> &'static str {
    match log {
        LogKind::Pmem => "persistent memory",
        LogKind::Bbu => "protected memory",
        LogKind::Drives => "its drives",
        LogKind::Remote => "namespaces of other targets",
    }
}
