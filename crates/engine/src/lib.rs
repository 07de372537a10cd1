//! Volumes on a log: the array's brain. It knows no NVMe; `docs/format.md` describes its bytes on
//! media.
//!
//! A write is appended to the commit log and acknowledged; behind that, destage gathers what is
//! still current into full stripes, the map learns where it lies, and the log is trimmed. Nothing is
//! ever overwritten in place, and nothing is read from a drive in order to write.

pub mod address;
mod allocator;
mod area;
pub mod canary;
mod common;
mod concurrent;
pub mod drives;
pub mod dump;
mod error;
pub mod format;
mod limits;
pub mod log;
mod manifest_pages;
pub mod map;
mod pages;
mod partial;
mod parts;
mod pool;
mod quotas;
mod reading;
mod recover;
mod remote;
pub mod segment;
mod segment_table;
mod shard;
mod shard_handle;
mod snapshots;
mod space;
mod stripe_writer;
mod superblock;
mod unverified;
mod used;
mod volume;
mod writing;

pub use area::{read_label, rewrite_older_label};
pub use drives::DriveState;
pub use error::{Error, Kind, Result};
pub use format::catalog::Reservation;
pub use limits::{
    DRIVES_MAX, FINDINGS_MAX, NAME_MAX, OBJECTS_MAX, QUOTA_MAX, QUOTA_UNIT, RESERVATION_MAX,
    SHARDS_MAX, VOLUME_BYTES_MAX,
};
pub use log::{LogDevice, RemoteLog};
pub use pool::{
    Breakdown, ChangedExtent, Changes, CloneSpec, Detaching, Discards, DriveStatus, GrantedRing,
    GrantedWindow, GroupChange, GroupCloneSpec, GroupSnapshotSpec, GroupSpec, GroupStatus, LogSpec,
    LogStatus, OpenOptions, Pool, PoolPlan, PoolSpec, PoolStatus, Rebuild, Rejoin, RollbackSpec,
    Scrub, ScrubPosition, SnapshotName, SnapshotSpec, SnapshotStatus, SpaceAudit, Spread, Unknown,
    VolumeSpec, VolumeStatus, WindowEnd, look_at_labels,
};
pub use quotas::{GroupQuota, QuotaStatus, ReservationStatus, Reservations};
pub use reading::{Begun, Reading};
pub use shard::window::RingCopy;
pub use shard::{Outcome, WritesRefused};
pub use unverified::UnverifiedRead;
pub use volume::{Origin, Volume};
pub use writing::Writing;
