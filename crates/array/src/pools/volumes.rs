//! What is asked of the volumes of an open pool, and of their snapshots.

use std::collections::{BTreeMap, BTreeSet};

use api::v1::{Kind, Origin};
use api::value::{Backend, Name, SnapshotPath, VolumePath};
use engine::{Changes, Reservation, SnapshotSpec, Volume, VolumeSpec};
use uuid::Uuid;

use super::clones::Names;
use super::held::{Held, Limits, NewNames, Snapshot};
use super::open::OpenPool;
use crate::events::now_ms;
use crate::{Error, Result};

/// What is told of a volume beside itself.
pub struct Beside {
    /// How many snapshots it has.
    pub snapshots: usize,
    /// What it was cloned from, if it was.
    pub origin: Option<Origin>,
    /// The group that it is in, if it is in one.
    pub group: Option<Name>,
}

impl OpenPool {
    /// Its volumes by name, with what is told beside each.
    pub fn volumes(&self) -> Vec<(Name, Volume, Beside)> {
        let groups = self.groups_by_volume();
        let held = self.held().lock();
        let names = Names::of(self.name(), &held);
        let each = |(name, held): (&Name, &Held)| {
            let Held { volume, snapshots } = held;
            let group = groups.get(&Uuid::from_bytes(volume.id())).cloned();
            let origin = names.origin(volume);
            (name.clone(), volume.clone(), Beside { snapshots: snapshots.len(), origin, group })
        };
        held.iter().map(each).collect()
    }

    /// What is told beside a volume.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn beside(&self, name: &Name) -> Result<Beside> {
        let (snapshots, origin) = (self.snapshots_of(name)?, self.origin_of(name)?);
        Ok(Beside { snapshots, origin, group: self.group_of(&self.volume(name)?) })
    }

    /// A volume.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn volume(&self, name: &Name) -> Result<Volume> {
        let held = self.held().lock();
        held.get(name).map(|held| held.volume.clone()).ok_or_else(|| self.no_volume(name))
    }

    /// The snapshots of all volumes, or of one, by the name of the volume, the oldest first.
    pub fn snapshots(&self, of: Option<&Name>) -> Vec<(Name, Snapshot)> {
        let held = self.held().lock();
        let each = |(name, held): (&Name, &Held)| {
            let each = held.snapshots.iter().cloned();
            each.map(|snapshot| (name.clone(), snapshot)).collect::<Vec<_>>()
        };
        match of {
            Some(of) => held.get_key_value(of).into_iter().flat_map(each).collect(),
            None => held.iter().flat_map(each).collect(),
        }
    }

    /// How many snapshots a volume has.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn snapshots_of(&self, volume: &Name) -> Result<usize> {
        let held = self.held().lock();
        held.get(volume).map(|held| held.snapshots.len()).ok_or_else(|| self.no_volume(volume))
    }

    /// A snapshot.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn snapshot(&self, volume: &Name, name: &Name) -> Result<Snapshot> {
        let held = self.held().lock();
        let of = held.get(volume).ok_or_else(|| self.no_volume(volume))?;
        let found = of.snapshots.iter().find(|snapshot| snapshot.name == *name);
        found.cloned().ok_or_else(|| {
            let what = format!("there is no snapshot {}/{volume}@{name}", self.name());
            Error::new(Kind::NotFound, what).help(format!(
                "`flashloom snapshot list {}/{volume}` shows those there are",
                self.name()
            ))
        })
    }

    /// What has this identity, whatever it is called.
    pub fn called(&self, id: Uuid) -> Option<Backend> {
        let is_it = |volume: &Volume| Uuid::from_bytes(volume.id()) == id;
        let held = self.held().lock();
        let named =
            |volume: &Name| VolumePath { pool: self.name().clone(), volume: volume.clone() };
        held.iter().find_map(|(name, held)| {
            if is_it(&held.volume) {
                return Some(Backend::Volume(named(name)));
            }
            let snapshot = held.snapshots.iter().find(|snapshot| is_it(&snapshot.volume))?;
            let snapshot = snapshot.name.clone();
            Some(Backend::Snapshot(SnapshotPath { volume: named(name), snapshot }))
        })
    }

    /// What identifies its volumes.
    pub fn volume_ids(&self) -> BTreeSet<Uuid> {
        let held = self.held().lock();
        held.values().map(|held| Uuid::from_bytes(held.volume.id())).collect()
    }

    /// What those of some volumes are called that are here, by their identities.
    pub fn volumes_called(&self, ids: &BTreeSet<Uuid>) -> BTreeMap<Uuid, Name> {
        let held = self.held().lock();
        let each = held.iter().map(|(name, held)| (Uuid::from_bytes(held.volume.id()), name));
        each.filter(|(id, _)| ids.contains(id)).map(|(id, name)| (id, name.clone())).collect()
    }

    pub(super) fn no_volume(&self, name: &Name) -> Error {
        let path = format!("{}/{name}", self.name());
        if self.held().groups().contains_key(name) {
            return Error::new(Kind::NotFound, format!("{path} is a group, not a volume"))
                .help(format!("`flashloom group show {path}` shows its volumes"));
        }
        Error::new(Kind::NotFound, format!("there is no volume {}/{name}", self.name()))
            .help("`flashloom volume list` shows those there are")
    }

    /// Makes a volume.
    ///
    /// # Errors
    /// `Conflict` for a name that is taken, `Invalid` for a size that cannot be, `Failed`.
    pub fn create_volume(
        &self,
        name: &Name,
        bytes: u64,
        block_size: u32,
        limits: Limits,
    ) -> Result<()> {
        let id = *Uuid::new_v4().as_bytes();
        let Limits { quota, reservation } = limits;
        let spec = VolumeSpec { name: name.to_string(), id, bytes, block_size, quota, reservation };
        let made = self.call(|pool| async move { pool.create_volume(spec).await });
        let volume = made.map_err(|error| self.no_room_to_reserve(error))?;
        self.held().lock().insert(name.clone(), Held { volume, snapshots: Vec::new() });
        Ok(())
    }

    /// Deletes a volume.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it has snapshots, `Failed`.
    pub fn delete_volume(&self, name: &Name) -> Result<()> {
        let id = Uuid::from_bytes(self.volume(name)?.id());
        let volume = name.to_string();
        self.call(|pool| async move { pool.delete_volume(&volume).await })?;
        self.held().lock().remove(name);
        for group in self.held().groups().values_mut() {
            group.volumes.remove(&id);
        }
        Ok(())
    }

    /// Changes a volume's size.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Failed`.
    pub fn resize_volume(&self, name: &Name, bytes: u64) -> Result<()> {
        let volume = name.to_string();
        let resized =
            self.call(move |pool| async move { pool.resize_volume(&volume, bytes).await });
        resized.map_err(|error| self.no_room_to_reserve(error))
    }

    /// Gives a volume a reservation, another one, or none.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Limit` where the pool has no room for it, `Conflict` while what the volume has cannot be found
    /// out, `Failed`.
    pub fn set_reservation(&self, name: &Name, of: Option<Reservation>) -> Result<()> {
        self.volume(name)?;
        let volume = name.to_string();
        let set = self.call(move |pool| async move { pool.set_reservation(&volume, of).await });
        set.map_err(|error| self.no_room_to_reserve(error))
    }

    /// What to do where there is no room for a reservation.
    pub(super) fn no_room_to_reserve(&self, error: Error) -> Error {
        match error.kind {
            Kind::Limit if error.context.contains("reservation of volume") => self.named(error).help(format!(
                "reserve less, delete snapshots or volumes, or have hosts discard: `flashloom pool show {}` has what is reserved",
                self.name()
            )),
            _ => error,
        }
    }

    /// Gives a volume a quota in bytes, another one, or none.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Limit` where the volume and its snapshots hold more, `Conflict` while that cannot be found
    /// out, `Failed`.
    pub fn set_quota(&self, name: &Name, bytes: Option<u64>) -> Result<()> {
        self.volume(name)?;
        let volume = name.to_string();
        let set = self.call(move |pool| async move { pool.set_quota(&volume, bytes).await });
        set.map_err(|error| match error.kind {
            Kind::Limit => self.named(error).help(format!(
                "choose a larger one, delete snapshots (`flashloom snapshot list {path}`), or have hosts discard",
                path = format_args!("{}/{name}", self.name()),
            )),
            _ => error,
        })
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`, `Failed`.
    pub fn rename_volume(&self, name: &Name, to: &Name) -> Result<()> {
        self.volume(name)?;
        let (from, new) = (name.to_string(), to.to_string());
        let renamed = self.call(move |pool| async move { pool.rename_volume(&from, &new).await });
        renamed.map_err(|error| self.help_with_name(to, error))?;
        let mut held = self.held().lock();
        if let Some(renamed) = held.remove(name) {
            held.insert(to.clone(), renamed);
        }
        Ok(())
    }

    /// Takes a snapshot of each of some volumes, all at one instant: by volume, its name and its identity.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a name that is taken, `Limit` when there are too many, `Failed`.
    pub fn take_snapshots(&self, names: &NewNames) -> Result<()> {
        let created = now_ms() / 1000;
        let spec = |(volume, (name, id)): (&Name, &(Name, Uuid))| SnapshotSpec {
            volume: volume.to_string(),
            name: name.to_string(),
            id: *id.as_bytes(),
            created,
        };
        let specs: Vec<_> = names.iter().map(spec).collect();
        let taken = self.call(move |pool| async move {
            pool.take_snapshots(specs.clone()).await?;
            let each = specs.iter().map(|spec| pool.snapshot(&spec.volume, &spec.name));
            each.collect::<engine::Result<Vec<_>>>()
        });
        let taken = taken.map_err(|error| self.no_room_to_reserve(error))?;
        let mut held = self.held().lock();
        for ((of, (name, _)), volume) in names.iter().zip(taken) {
            if let Some(held) = held.get_mut(of) {
                held.snapshots.push(Snapshot { name: name.clone(), created, volume });
            }
        }
        Ok(())
    }

    /// What a snapshot has otherwise than an older one, or all that it has without one: from a byte on, so many extents at
    /// most.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` where the one is not older, `Conflict` while nothing leaves the log, `Failed`.
    pub fn changes(
        &self,
        volume: &Name,
        from: Option<&Name>,
        to: &Name,
        start: u64,
        most: usize,
    ) -> Result<Changes> {
        let missing =
            || from.into_iter().chain([to]).find_map(|of| self.snapshot(volume, of).err());
        if let Some(missing) = missing() {
            return Err(missing);
        }
        let (of, newer) = (volume.to_string(), to.to_string());
        let older = from.map(ToString::to_string);
        let found = self.call(move |pool| async move {
            pool.changes(&of, older.as_deref(), &newer, start, most).await
        });
        // Deleted meanwhile, they are not there.
        found.map_err(|error| match missing() {
            Some(missing) => missing,
            None if error.kind == Kind::Invalid => error.help("name the older snapshot first"),
            None => error,
        })
    }

    /// Deletes snapshots, each of which is given by the names of its volume and its own: all or none.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for too many, `Failed`.
    pub fn delete_snapshots(&self, of: &[(Name, Name)]) -> Result<()> {
        for (volume, name) in of {
            self.snapshot(volume, name)?;
        }
        let named = |(volume, name): &(Name, Name)| engine::SnapshotName {
            volume: volume.to_string(),
            name: name.to_string(),
        };
        let names: Vec<_> = of.iter().map(named).collect();
        self.call(|pool| async move { pool.delete_snapshots(names).await })?;
        let mut held = self.held().lock();
        for (volume, name) in of {
            if let Some(held) = held.get_mut(volume) {
                held.snapshots.retain(|snapshot| snapshot.name != *name);
            }
        }
        Ok(())
    }
}
