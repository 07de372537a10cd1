//! Volumes of pools, and what hosts see them as.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::value::{GroupPath, Name, Nqn, Size, SnapshotPath, VolumePath};

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its pool and its name.
    pub name: VolumePath,
    /// What identifies it for ever: the UUID of the namespace it is mapped as.
    pub id: Uuid,
    /// Size in bytes; it takes the space of what is written only.
    pub size: Size,
    /// Bytes that are used, as of the last count: what was written and not deallocated since, shared or not. What it
    /// inherited does not count. Left out until it is counted, soon after the pool was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Size>,
    /// Bytes that it began with, as a clone or with a rollback, and keeps, whether they were written or deallocated since or
    /// not; as of the same count. Left out until it is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Size>,
    /// While it is being detached: bytes of its size that were looked through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detaching: Option<Size>,
    /// Bytes that it has not any more and its snapshots have, as of the same count: what comes back when all of them are
    /// deleted, if no clone needs it. Left out until it is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by_snapshots: Option<Size>,
    /// What it and all its snapshots may hold together, in bytes, if that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Size>,
    /// What of its quota they hold, as of the last count. Left out until it is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_used: Option<Size>,
    /// Bytes that its hosts can have of their own, however full the pool is, if it has a reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Size>,
    /// Those are all of its size, whatever that is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserve_all: bool,
    /// What of its reservation is kept for what hosts have yet to write: what they have of their own is not, as of the last
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_kept: Option<Size>,
    /// Logical block size in bytes.
    pub block_size: u32,
    /// How many snapshots it has. Left out while its pool is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u32>,
    /// What it was cloned from. Left out where it is no clone, and while its pool is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The group that it is in, if it is in one. Left out while its pool is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupPath>,
    /// What it is mapped as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Mapping>,
    /// Whether it can be used. Of a pool that is not open those are known that are mapped, as hosts saw them last.
    #[serde(default)]
    pub state: VolumeState,
}

/// What a volume was cloned from, by the names it has now. What is deleted has none: a clone keeps what it has of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Origin {
    /// The volume. Left out once it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumePath>,
    /// The name of its snapshot. Left out once that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Name>,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.volume, &self.snapshot) {
            (Some(volume), Some(snapshot)) => write!(out, "{volume}@{snapshot}"),
            (Some(volume), None) => write!(out, "{volume}"),
            (None, _) => out.write_str("deleted"),
        }
    }
}

/// Whether a volume can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Its pool is open.
    #[default]
    Online,
    /// Its pool lost more than its redundancy bears: what can be read is, and all else waits for its drives.
    Waiting,
    /// Its pool is not open: hosts wait.
    Inaccessible,
}

impl VolumeState {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Waiting => "waiting",
            Self::Inaccessible => "inaccessible",
        }
    }
}

/// The namespace that a volume is mapped as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mapping {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The NSID.
    pub nsid: u32,
}

/// A volume to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// Its name.
    pub name: Name,
    /// Size in bytes, a multiple of 4096. Of a clone, at least the snapshot's, and the snapshot's when left out; any other
    /// volume needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Logical block size in bytes: 512 or 4096; 4096 when left out. A clone has the snapshot's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// The snapshot, of the same pool, that it is to be a clone of: it begins with what that has, and copies nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SnapshotPath>,
    /// What it and all its snapshots may hold together, in bytes: a multiple of 1 MiB. What a clone began with does not
    /// count. No bound when left out, or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Size>,
    /// Bytes that are kept for its hosts to write, however full the pool is: a multiple of 1 MiB, at most its size. None when
    /// left out, or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Size>,
    /// Keep as many as its size, whatever that becomes: in place of `reserve`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserve_all: bool,
}

/// What to change of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeChange {
    /// The new size in bytes, a multiple of 4096. Making it smaller loses what lies beyond, and needs `force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// The new name. Hosts notice nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// What it and all its snapshots may hold together from now on, in bytes: a multiple of 1 MiB, not less than they hold
    /// already; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Size>,
    /// Bytes that its hosts can have of their own from now on, however full the pool is: a multiple of 1 MiB, at most its
    /// size; 0 for no reservation. Refused where the pool has no room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Size>,
    /// As many as its size, whatever that becomes: in place of `reserve`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserve_all: bool,
}

/// What a volume is to be mapped as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMapping {
    /// The subsystem.
    pub subsystem: Nqn,
    /// NSID; the lowest free one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// Add the subsystem if it is not there, and let any host connect to it.
    #[serde(default)]
    pub allow_any_host: bool,
    /// Add the subsystem if it is not there, and let these hosts connect to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Nqn>,
}
