//! Where a log lies: memory, zones of drives, namespaces of other targets.

use super::control::SLOT;
use super::limits::{CONTROL_BYTES, FAR_PATIENCE, PAGE};
use super::members::{Owner, Tenant};
use crate::address::BLOCK;
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use media::drive::TRANSFER_MAX;
use media::{Drive, Operation, Pmem};
use reactor::buffer::Buffer;
use std::cell::Cell;
use std::sync::Arc;
use stdx::num::usize64;

/// A range of persistent memory, from `offset` on.
#[derive(Clone, Debug)]
pub struct Area {
    pub pmem: Arc<Pmem>,
    pub offset: u64,
}

/// A range of a drive, from `offset` on, a multiple of 4 KiB.
#[derive(Clone, Debug)]
pub struct Zone {
    pub drive: Arc<Drive>,
    pub offset: u64,
    /// Of another target's namespace: the connection by which it was looked at.
    connection: Cell<Option<u64>>,
}

impl Zone {
    #[must_use]
    pub const fn new(drive: Arc<Drive>, offset: u64) -> Self {
        Self { drive, offset, connection: Cell::new(None) }
    }

    /// Whether nobody knows any more what is there.
    pub(super) fn is_another(&self) -> bool {
        self.connection.get().is_some() && !is_the_same(&self.drive, self.connection.get())
    }

    /// What it is read and written by: what another connection reaches may be another's.
    fn by(&self) -> Option<u64> {
        self.connection.get().filter(|_| !canary::has(Canary::BelievesReconnected))
    }

    /// What is in both control slots, whatever the connection, and that.
    pub(super) async fn look(&self) -> std::result::Result<([Buffer; 2], u64), media::Error> {
        let slot = |n| self.drive.read(self.offset + n * PAGE, usize64(PAGE));
        // It connects where it has to.
        drop(slot(0).await?);
        let connection = self.drive.connection();
        let slots = [slot(0).await?, slot(1).await?];
        let same = connection.filter(|_| self.drive.connection() == connection);
        let (operation, kind) = (Operation::Read, media::Kind::Gone);
        let gone = media::Error { kind, operation, offset: self.offset, len: PAGE, source: None };
        same.map(|connection| (slots, connection)).ok_or(gone)
    }

    /// It was looked at by this connection, and has what it is to have.
    pub(super) fn adopt(&self, connection: u64) {
        self.connection.set(Some(connection));
    }

    pub(super) async fn read(
        &self,
        at: u64,
        len: usize,
    ) -> std::result::Result<Buffer, media::Error> {
        self.drive.read_by(self.by(), self.offset + at, len).await
    }

    /// Durable when this returns.
    pub(super) async fn write(
        &self,
        at: u64,
        data: Buffer,
    ) -> std::result::Result<(), media::Error> {
        self.drive.write_by(self.by(), self.offset + at, data, true).await
    }
}

/// Whether a drive is reached as it was when it was looked at: what answers by another connection may have lost
/// everything meanwhile, or be another's.
fn is_the_same(drive: &Drive, connection: Option<u64>) -> bool {
    drive.connection() == connection || canary::has(Canary::BelievesReconnected)
}

/// Another target's namespace for a log.
#[derive(Clone, Debug)]
pub struct RemoteLog {
    pub drive: Arc<Drive>,
    /// The connection by which it answered; none as long as it did not.
    connection: Option<u64>,
}

impl RemoteLog {
    /// Whether it answered, and nothing came between since.
    pub fn is_the_same(&self) -> bool {
        is_the_same(&self.drive, self.connection)
    }
}

/// A device of a commit log that is no drive of the pool.
#[derive(Clone, Debug)]
pub enum LogDevice {
    Memory(Arc<Pmem>),
    /// A namespace of another target.
    Remote(RemoteLog),
}

impl LogDevice {
    /// A namespace of another target, which nobody has asked yet.
    #[must_use]
    pub const fn remote(drive: Arc<Drive>) -> Self {
        Self::Remote(RemoteLog { drive, connection: None })
    }

    /// Whether both are the same device.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(pmem), Self::Memory(other)) => Arc::ptr_eq(pmem, other),
            (Self::Remote(remote), Self::Remote(other)) => Arc::ptr_eq(&remote.drive, &other.drive),
            _ => false,
        }
    }

    /// Bytes; `None` of a namespace that did not answer so far.
    pub fn capacity(&self) -> Option<u64> {
        match self {
            Self::Memory(pmem) => Some(pmem.capacity()),
            Self::Remote(remote) => Some(remote.drive.capacity()).filter(|&bytes| bytes > 0),
        }
    }

    /// It, if it answers: a namespace of another target, which says only then how long it is, as the one that answered.
    pub async fn answers(&self) -> Result<Self> {
        let Self::Remote(RemoteLog { drive, .. }) = self else { return Ok(self.clone()) };
        let read = reactor::timeout(FAR_PATIENCE, drive.read(0, BLOCK)).await;
        let context = "the log's namespace of another target does not answer";
        match (read, drive.connection()) {
            (Ok(Ok(_)), connection @ Some(_)) => {
                Ok(Self::Remote(RemoteLog { drive: Arc::clone(drive), connection }))
            }
            (Ok(Err(error)), _) => Err(Error::caused(Kind::Failed, context, error)),
            _ => Err(Error::new(Kind::Failed, context)),
        }
    }

    /// Whether nothing is where all else begins that is no log: partition tables, file systems, volume managers. What is
    /// left of control slots may be there.
    pub async fn begins_blank(&self) -> Result<bool> {
        let Some(bytes) = self.capacity() else { return Ok(false) };
        let len = usize64(bytes).min(TRANSFER_MAX);
        let bytes = match self {
            Self::Memory(pmem) => pmem.with(0, len, <[u8]>::to_vec)?,
            Self::Remote(remote) => remote.drive.read(0, len).await?.to_vec(),
        };
        let (slots, behind) = bytes.split_at(usize64(CONTROL_BYTES).min(len));
        let beside = slots.chunks(usize64(PAGE)).filter_map(|page| page.get(SLOT..)).flatten();
        Ok(beside.chain(behind).all(|&byte| byte == 0))
    }

    /// What is of it from there on.
    pub fn place(&self, offset: u64) -> Place {
        match self {
            Self::Memory(pmem) => Place::Memory(Area { pmem: Arc::clone(pmem), offset }),
            Self::Remote(RemoteLog { drive, connection }) => {
                let (drive, connection) = (Arc::clone(drive), Cell::new(*connection));
                Place::Zone(Zone { drive, offset, connection })
            }
        }
    }
}

/// Where a shard's log lies: one place, or several that mirror each other.
#[derive(Clone, Debug)]
pub enum Device {
    /// `pmem`, `bbu`, or memory that keeps nothing.
    Memory(Vec<Area>),
    /// Zones on drives, written by group commit.
    Drives(Vec<Zone>),
    /// Some of both, or of either, written by group commit.
    Both(Vec<Place>),
}

/// A place, and which of the log's devices it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Among the pool's log members.
    pub slot: usize,
    /// The drive of a zone.
    pub drive: Option<u16>,
}

/// A shard's log: where it lies, and whose it is.
#[derive(Clone)]
pub struct Site {
    pub device: Device,
    /// Of each place.
    pub seats: Vec<Seat>,
    pub owner: Owner,
}

impl Device {
    const fn len(&self) -> usize {
        match self {
            Self::Memory(areas) => areas.len(),
            Self::Drives(zones) => zones.len(),
            Self::Both(places) => places.len(),
        }
    }
}

impl From<Device> for Site {
    fn from(device: Device) -> Self {
        let seats = (0..device.len()).map(|slot| Seat { slot, drive: None }).collect();
        let owner = Owner::nobody(device.len());
        Self { device, seats, owner }
    }
}

/// One place of a log.
#[derive(Clone, Debug)]
pub enum Place {
    Memory(Area),
    Zone(Zone),
}

impl Place {
    /// The memory, if it is there.
    pub fn into_area(self) -> Option<Area> {
        match self {
            Self::Memory(area) => Some(area),
            Self::Zone(_) => None,
        }
    }
}

/// A device that is to be made whole.
#[derive(Clone, Debug)]
pub struct Joining {
    pub tenant: Tenant,
    /// The drive of a zone.
    pub drive: Option<u16>,
    pub place: Place,
}
