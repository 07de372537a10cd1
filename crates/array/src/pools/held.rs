//! The volumes of an open pool, their snapshots and their groups: found without asking the pool's reactor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::value::Name;
use engine::{GroupQuota, Pool, Reservation, Volume};
use uuid::Uuid;

/// What a volume to be made may hold, in bytes, and what is kept for it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub quota: Option<u64>,
    pub reservation: Option<Reservation>,
}

/// A snapshot of a volume.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its name among those of its volume.
    pub name: Name,
    /// When it was taken, in seconds since 1970.
    pub created: u64,
    /// What it is read by.
    pub volume: Volume,
}

/// By volume, what a new snapshot of it is called, and known by.
pub type NewNames = BTreeMap<Name, (Name, Uuid)>;

/// A volume and its snapshots, the oldest first.
#[derive(Debug)]
pub(super) struct Held {
    pub volume: Volume,
    pub snapshots: Vec<Snapshot>,
}

/// A group of volumes.
#[derive(Clone, Debug)]
pub struct Group {
    pub id: Uuid,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Its volumes, by what identifies them for ever: their names change.
    pub volumes: BTreeSet<Uuid>,
    pub quota: Option<GroupQuota>,
}

/// By name.
pub(super) type Groups = BTreeMap<Name, Group>;

/// Those that a pool has, on its reactor.
pub(super) fn groups_of(pool: &Pool) -> engine::Result<Groups> {
    let each = pool.groups().into_iter().map(|group| {
        let id = |volume: &String| Ok(Uuid::from_bytes(pool.volume(volume)?.id()));
        let volumes = group.volumes.iter().map(id).collect::<engine::Result<_>>()?;
        let (id, created) = (Uuid::from_bytes(group.id), group.created);
        Ok((checked(&group.name)?, Group { id, created, volumes, quota: group.quota }))
    });
    each.collect()
}

/// The volumes and the groups of a pool, by name.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    volumes: Mutex<BTreeMap<Name, Held>>,
    groups: Mutex<Groups>,
}

impl Volumes {
    /// Those that a pool has, on its reactor.
    pub(super) fn of(pool: &Pool) -> engine::Result<Self> {
        let mut volumes = BTreeMap::new();
        for name in pool.volumes() {
            let held = Held { volume: pool.volume(&name)?, snapshots: Vec::new() };
            volumes.insert(checked(&name)?, held);
        }
        for (volume, status) in pool.all_snapshots() {
            let snapshot = Snapshot {
                name: checked(&status.name)?,
                created: status.created,
                volume: pool.snapshot(&volume, &status.name)?,
            };
            if let Some(held) = volumes.get_mut(&checked(&volume)?) {
                held.snapshots.push(snapshot);
            }
        }
        let groups = Mutex::new(groups_of(pool)?);
        Ok(Self { volumes: Mutex::new(volumes), groups })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Held>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that the pool keeps; the engine takes no others than the API does.
fn checked(name: &str) -> engine::Result<Name> {
    let parsed = name.parse::<Name>();
    parsed.map_err(|refused| engine::Error::new(engine::Kind::Invalid, refused.to_string()))
}
