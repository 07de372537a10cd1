//! Groups of volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::value::{GroupPath, Name, Size, VolumePath};

/// A consistency group: volumes of which snapshots are taken together, at one instant. It is kept in their pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Its pool and its own name, which no volume of the pool has.
    pub name: GroupPath,
    /// What identifies it for ever.
    pub id: Uuid,
    /// Its volumes, by name. A volume is in one group at most.
    pub volumes: Vec<VolumePath>,
    /// When it was made: milliseconds since 1970-01-01 00:00:00 UTC, of which the pool keeps whole seconds.
    pub created_ms: u64,
    /// By when each of its volumes had had a snapshot at last, taken with the group or not: when the one was taken that is
    /// the oldest of their newest. Likewise; left out while one of them has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot_ms: Option<u64>,
    /// What all its volumes and their snapshots may hold together. Left out if it has no such bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Size>,
    /// What of its quota they hold, as of the last count of each. Left out until all are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_used: Option<Size>,
}

/// A group to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroup {
    /// Its pool and its own name, which no volume of the pool has.
    pub name: GroupPath,
    /// The volumes that it begins with, of that pool and in no other group: 500 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumePath>,
    /// What all its volumes and their snapshots may hold together: a multiple of 1 MiB. No bound if left out, or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Size>,
}

/// What to change of a group, all of it at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupChange {
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Volumes that come into it, of its pool and in no other group. It has 500 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<VolumePath>,
    /// Volumes that leave it. They stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<VolumePath>,
    /// What all its volumes and their snapshots may hold together: a multiple of 1 MiB, and not less than they do. 0 for no
    /// bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Size>,
}

/// Snapshots to take of all volumes of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroupSnapshot {
    /// The name of each of them among the snapshots of its volume.
    pub name: Name,
}

/// A group to make of clones of all volumes of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroupClone {
    /// The pool, which is that of the other one, and its own name, which no volume of the pool has.
    pub name: GroupPath,
    /// By volume, what its clone is called. The others are called after the new group and their volume: GROUP-VOLUME.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<Name, Name>,
}
