//! What is asked of the groups of an open pool.

use std::collections::BTreeMap;

use api::v1::Kind;
use api::value::Name;
use engine::{GroupSnapshotSpec, GroupSpec, Pool, Volume};
use uuid::Uuid;

use super::held::{Group, Snapshot, groups_of};
use super::open::OpenPool;
use crate::events::now_ms;
use crate::{Error, Result};

fn texts(names: &[Name]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

impl OpenPool {
    /// Its groups by name, each with the names that its volumes have now.
    pub fn groups(&self) -> Vec<(Name, Group, Vec<Name>)> {
        let groups = self.held().groups().clone();
        // Of thousands of volumes, those of each group are not looked for among all.
        let ids = groups.values().flat_map(|group| &group.volumes).copied().collect();
        let called = self.volumes_called(&ids);
        let each = groups.into_iter().map(|(name, group)| {
            let names = group.volumes.iter().filter_map(|id| called.get(id).cloned());
            let mut names: Vec<_> = names.collect();
            names.sort();
            (name, group, names)
        });
        each.collect()
    }

    /// A group, and the names that its volumes have now.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn group(&self, name: &Name) -> Result<(Group, Vec<Name>)> {
        let group = self.held().groups().get(name).cloned();
        let group = group.ok_or_else(|| self.no_group(name))?;
        let mut names: Vec<_> = self.volumes_called(&group.volumes).into_values().collect();
        names.sort();
        Ok((group, names))
    }

    /// What the group with this identity is called, if it is here.
    pub fn group_called(&self, id: Uuid) -> Option<Name> {
        let groups = self.held().groups();
        groups.iter().find(|(_, group)| group.id == id).map(|(name, _)| name.clone())
    }

    /// By when each of these volumes had had a snapshot at last, in seconds since 1970: when the one was taken that is the
    /// oldest of their newest. `None` while one of them has none.
    pub fn last_snapshot(&self, volumes: &[Name]) -> Option<u64> {
        let held = self.held().lock();
        let newest = |volume| held.get(volume)?.snapshots.last().map(|snapshot| snapshot.created);
        let each = volumes.iter().map(newest).collect::<Option<Vec<u64>>>()?;
        each.into_iter().min()
    }

    /// Whether a volume or a group has this name.
    pub fn has_named(&self, name: &Name) -> bool {
        self.volume(name).is_ok() || self.held().groups().contains_key(name)
    }

    /// An error of what was to get a name, with what to do where that is taken.
    pub fn help_with_name(&self, name: &Name, error: Error) -> Error {
        match error.kind {
            Kind::Conflict if self.has_named(name) => error.help(
                "choose another name: `flashloom group list` and `flashloom volume list` show those there are",
            ),
            _ => error,
        }
    }

    fn no_group(&self, name: &Name) -> Error {
        let path = format!("{}/{name}", self.name());
        let what = match self.volume(name) {
            Ok(_) => format!("{path} is a volume, not a group"),
            Err(_) => format!("there is no group {path}"),
        };
        Error::new(Kind::NotFound, what).help("`flashloom group list` shows those there are")
    }

    /// The names of the groups, by the volumes that they have.
    pub(super) fn groups_by_volume(&self) -> BTreeMap<Uuid, Name> {
        let groups = self.held().groups();
        let each = groups.iter().flat_map(|(name, group)| {
            group.volumes.iter().map(move |volume| (*volume, name.clone()))
        });
        each.collect()
    }

    /// The group that a volume is in, if it is in one.
    pub(super) fn group_of(&self, volume: &Volume) -> Option<Name> {
        let id = Uuid::from_bytes(volume.id());
        let groups = self.held().groups();
        let found = groups.iter().find(|(_, group)| group.volumes.contains(&id));
        found.map(|(name, _)| name.clone())
    }

    /// Changes the groups of the pool on its reactor, and keeps what there is then.
    fn change_groups<F: Future<Output = engine::Result<()>>>(
        &self,
        change: impl FnOnce(Pool) -> F + Send + 'static,
    ) -> Result<()> {
        let groups = self.call(|pool| async move {
            change(pool.clone()).await?;
            groups_of(&pool)
        });
        let groups = groups.map_err(|error| match error.kind {
            Kind::Limit if error.context.contains("snapshots hold") => self.named(error).help(
                "choose a larger quota, delete snapshots, or have hosts discard what they do not need",
            ),
            _ => error,
        })?;
        *self.held().groups() = groups;
        Ok(())
    }

    /// Makes a group of some volumes.
    ///
    /// # Errors
    /// `Conflict` for a name that is taken or a volume that is in another group, `NotFound` without a volume, `Invalid` for
    /// one that is named twice, `Limit` when there are too many, `Failed`.
    pub fn create_group(&self, name: &Name, volumes: &[Name], quota: Option<u64>) -> Result<()> {
        let (name, volumes, created) = (name.to_string(), texts(volumes), now_ms() / 1000);
        let spec = GroupSpec { name, id: *Uuid::new_v4().as_bytes(), created, volumes, quota };
        self.change_groups(|pool| async move { pool.create_group(spec).await })
    }

    /// Changes which volumes a group has, its name, or its quota in bytes, which may become none.
    ///
    /// # Errors
    /// `NotFound`, and as [`create_group`](Self::create_group).
    pub fn change_group(
        &self,
        name: &Name,
        to: Option<&Name>,
        add: &[Name],
        remove: &[Name],
        quota: Option<Option<u64>>,
    ) -> Result<()> {
        self.group(name)?;
        let (add, remove) = (texts(add), texts(remove));
        let change = engine::GroupChange { name: to.map(ToString::to_string), add, remove, quota };
        let of = name.to_string();
        self.change_groups(|pool| async move { pool.change_group(&of, change).await })
    }

    /// Deletes a group; its volumes stay.
    ///
    /// # Errors
    /// `NotFound`, `Failed`.
    pub fn delete_group(&self, name: &Name) -> Result<()> {
        self.group(name)?;
        let of = name.to_string();
        self.change_groups(|pool| async move { pool.delete_group(&of).await })
    }

    /// Takes a snapshot of each volume of a group, all at one instant. Gives the names of the volumes.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a group without volumes, `Conflict` for a name that is taken, `Limit` when there are too
    /// many, `Failed`.
    pub fn take_group_snapshots(&self, group: &Name, name: &Name) -> Result<Vec<Name>> {
        self.group(group)?;
        let created = now_ms() / 1000;
        let of = (group.to_string(), name.to_string());
        let taken = self.call(move |pool| async move {
            let (group, name) = of;
            let spec = GroupSnapshotSpec { group, name: name.clone(), created };
            let volumes = pool.take_group_snapshots(spec, || *Uuid::new_v4().as_bytes()).await?;
            let each = volumes.into_iter().map(|volume| {
                let snapshot = pool.snapshot(&volume, &name)?;
                Ok((volume, snapshot))
            });
            each.collect::<engine::Result<Vec<_>>>()
        })?;
        let mut held = self.held().lock();
        let mut volumes = Vec::new();
        for (of, volume) in taken {
            let of: Name = of.parse()?;
            if let Some(held) = held.get_mut(&of) {
                held.snapshots.push(Snapshot { name: name.clone(), created, volume });
            }
            volumes.push(of);
        }
        volumes.sort();
        Ok(volumes)
    }
}
