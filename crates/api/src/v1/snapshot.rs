//! Snapshots of volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Mapping, VolumeState};
use crate::value::{Size, SnapshotPath};

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
    /// When it was taken: milliseconds since 1970-01-01 00:00:00 UTC, of which the pool keeps whole seconds. 0 of one
    /// whose pool is not open.
    pub created_ms: u64,
    /// What it is mapped as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Mapping>,
    /// Whether it can be read. Of a pool that is not open those are known that are mapped.
    #[serde(default)]
    pub state: VolumeState,
}

/// Snapshots to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSnapshots {
    /// Their names: one for each volume, all of one pool. They are taken at one instant: a write that was acknowledged
    /// before another was sent is in its volume's snapshot if that one is in its own.
    pub names: Vec<SnapshotPath>,
}
