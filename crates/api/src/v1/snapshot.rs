//! Snapshots of volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Mapping, Volume, VolumeState};
use crate::value::{Name, Size, SnapshotPath};

/// A snapshot: a volume as it was at one instant. It never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// Its pool, its volume and its own name.
    pub name: SnapshotPath,
    /// What identifies it for ever: the UUID of the namespace it is mapped as.
    pub id: Uuid,
    /// Size in bytes, as its volume had it.
    pub size: Size,
    /// Logical block size in bytes.
    pub block_size: u32,
    /// Bytes of contents that it has, as of the last count, also where its volume or other snapshots have them. Left out
    /// until it is counted, soon after it was taken or its pool was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referenced: Option<Size>,
    /// Of those, what nobody else has, as of the same count: what comes back when it alone is deleted, if no clone needs it
    /// and it is not copied by reference elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Size>,
    /// The others: what its volume, another snapshot or a clone has, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<Size>,
    /// When it was taken: milliseconds since 1970-01-01 00:00:00 UTC, of which the pool keeps whole seconds. Left out
    /// while its pool is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ms: Option<u64>,
    /// What it is mapped as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Mapping>,
    /// Whether it can be read. Of a pool that is not open those are known that are mapped.
    #[serde(default)]
    pub state: VolumeState,
}

/// What a snapshot has otherwise than an older one of its volume, as far as it was looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotChanges {
    /// In the order of their offsets.
    pub extents: Vec<ChangedExtent>,
    /// Where to go on from, in bytes from the volume's beginning; left out when the end was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A part of a volume that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedExtent {
    /// Where it begins, in bytes from the volume's beginning; a multiple of 4096.
    pub offset: u64,
    /// How long it is, in bytes; a multiple of 4096.
    pub bytes: u64,
    /// It was written. If not, it was deallocated, and reads as zeroes.
    pub data: bool,
}

/// Snapshots to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSnapshots {
    /// Their names: one for each volume, all of one pool. They are taken at one instant: a write that was acknowledged
    /// before another was sent is in its volume's snapshot if that one is in its own.
    pub names: Vec<SnapshotPath>,
}

/// How a volume is to go back to one of its snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRollback {
    /// Take a snapshot of what the volume has until then. Without, that is gone for good.
    #[serde(default = "kept")]
    pub keep: bool,
    /// What that snapshot is called. [default: before-rollback- and the time, such as
    /// before-rollback-20261128T220000Z]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_as: Option<Name>,
}

const fn kept() -> bool {
    true
}

impl Default for NewRollback {
    fn default() -> Self {
        Self { keep: true, keep_as: None }
    }
}

/// What a rollback is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolledBack {
    /// The volume as it is now.
    pub volume: Volume,
    /// The snapshot that has what it had before, if one was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<SnapshotPath>,
}
