//! What the management API asks of groups of volumes.

use api::v1::{
    Consent, Group, GroupChange, Kind, Losses, NewGroup, NewGroupSnapshot, Severity, Snapshot,
};
use api::value::{GroupPath, Name, Size, SnapshotPath, VolumePath};

use engine::GroupQuota;

use super::Node;
use super::snapshots::{NAMED, words};
use super::volumes::{bound, check_quota};
use crate::jobs::Task;
use crate::losses::check_meant;
use crate::pools::{self, OpenPool};
use crate::{Error, Result};

impl Node {
    /// The groups of the pools that are open, by pool and name; of one pool, if one is named.
    ///
    /// # Errors
    /// `NotFound` without that pool, `Stopping`.
    pub fn groups(&self, of_pool: Option<&Name>) -> Result<Vec<Group>> {
        let view = self.view();
        let pools = &view.serving()?.pools;
        if let Some(pool) = of_pool {
            pools.show(pool)?;
        }
        let mut all = Vec::new();
        for pool in pools.open_pools() {
            if of_pool.is_none_or(|of| of == pool.name()) {
                let of = |group| GroupPath { pool: pool.name().clone(), group };
                let each = pool.groups().into_iter();
                all.extend(each.map(|(name, group, volumes)| {
                    let last = pool.last_snapshot(&volumes);
                    document(of(name), &group, volumes, last)
                }));
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// One group.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while its pool is not open.
    pub fn group(&self, path: &GroupPath) -> Result<Group> {
        let open = self.open_pool_named(&path.pool)?;
        let (group, volumes) = open.group(&path.group)?;
        let last = open.last_snapshot(&volumes);
        Ok(document(path.clone(), &group, volumes, last))
    }

    /// Makes a group of some volumes.
    ///
    /// # Errors
    /// `NotFound` without the pool or a volume, `Invalid` for a volume of another pool or one named twice, `Conflict` for a
    /// name that is taken or a volume in another group, `Limit` when there are too many, `Failed`.
    pub fn create_group(&self, new: &NewGroup) -> Result<Group> {
        let path = &new.name;
        let volumes = in_pool(&path.pool, &new.volumes)?;
        let quota = bound(new.quota);
        quota.map_or(Ok(()), check_quota)?;
        {
            let _turn = self.turn(&path.pool, &Task::default())?;
            let open = self.open_pool_named(&path.pool)?;
            let made = open.create_group(&path.group, &volumes, quota.map(Size::bytes));
            made.map_err(|error| helped(&open, Some(&path.group), error))?;
        }
        let of = if new.volumes.is_empty() { String::new() } else { words_of(" of", &new.volumes) };
        let bound = quota.map_or_else(String::new, |quota| format!(", which may hold {quota}"));
        self.events.record(Severity::Info, format!("group {path} made{of}{bound}"));
        self.group(path)
    }

    /// Changes which volumes a group has, its name, or its quota: all of it, or nothing.
    ///
    /// # Errors
    /// `NotFound`, also for a volume that is to leave and is not in it, and as [`create_group`](Self::create_group).
    pub fn change_group(&self, path: &GroupPath, change: &GroupChange) -> Result<Group> {
        let GroupChange { name, add, remove, quota } = change;
        let (adding, removing) = (in_pool(&path.pool, add)?, in_pool(&path.pool, remove)?);
        if *change == GroupChange::default() {
            let what = format!("nothing is to be changed of group {path}");
            return Err(Error::new(Kind::Invalid, what)
                .help("name volumes to add or to remove, another name, or a quota"));
        }
        let quota = quota.map(|quota| bound(Some(quota)));
        quota.flatten().map_or(Ok(()), check_quota)?;
        {
            let _turn = self.turn(&path.pool, &Task::default())?;
            let open = self.open_pool_named(&path.pool)?;
            let bytes = quota.map(|quota| quota.map(Size::bytes));
            let changed = open.change_group(&path.group, name.as_ref(), &adding, &removing, bytes);
            changed.map_err(|error| helped(&open, name.as_ref(), error))?;
        }
        let mut done = Vec::new();
        if !add.is_empty() {
            done.push(words_of("it has", add) + " now");
        }
        if !remove.is_empty() {
            done.push(words_of("it has", remove) + " no more");
        }
        match quota {
            Some(Some(quota)) => {
                done.push(format!("its volumes and their snapshots may hold {quota}"));
            }
            Some(None) => done.push("it has no quota any more".to_owned()),
            None => {}
        }
        let pool = path.pool.clone();
        let group = name.clone().unwrap_or_else(|| path.group.clone());
        let path_now = GroupPath { pool, group };
        if name.is_some() {
            done.push(format!("it is called {path_now}"));
        }
        self.events.record(Severity::Info, format!("group {path} changed: {}", done.join(", ")));
        self.group(&path_now)
    }

    /// Deletes a group; its volumes stay, and so do their snapshots. Gives what is lost: its schedule, if it has one.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` where what is lost is not meant, `Failed`.
    pub fn delete_group(&self, path: &GroupPath, consent: Consent) -> Result<Losses> {
        let find = || {
            let id = self.group(path)?.id;
            Ok((id, Losses { losses: self.losses_of_group(path, &id) }))
        };
        if consent.dry_run {
            return find().map(|(_, losses)| losses);
        }
        let _turn = self.turn(&path.pool, &Task::default())?;
        let (id, losses) = find()?;
        check_meant(&losses, consent.force)?;
        self.open_pool_named(&path.pool)?.delete_group(&path.group)?;
        self.events.record(Severity::Info, format!("group {path} deleted: its volumes stay"));
        self.drop_schedule_of_group(path, id);
        Ok(losses)
    }

    /// Takes a snapshot of each volume of a group, all at one instant.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a group without volumes, `Conflict` for a name that is taken, `Limit` when there are too
    /// many, `Failed`.
    pub fn take_group_snapshots(
        &self,
        path: &GroupPath,
        new: &NewGroupSnapshot,
    ) -> Result<Vec<Snapshot>> {
        let volumes = {
            let _turn = self.turn(&path.pool, &Task::default())?;
            let open = self.open_pool_named(&path.pool)?;
            open.take_group_snapshots(&path.group, &new.name).map_err(|error| match error.kind {
                Kind::Conflict => error
                    .help("choose another name: `flashloom snapshot list` shows those there are"),
                Kind::Limit => error.help("delete snapshots that are not needed any more"),
                Kind::Invalid => error.help(format!("`flashloom group add {path}` adds some")),
                _ => error,
            })?
        };
        let taken: Vec<_> = volumes.into_iter().map(|of| snapshot(path, of, &new.name)).collect();
        let words = format!("{} taken, of group {path}", words(&taken));
        self.events.record(Severity::Info, words);
        taken.iter().map(|path| self.snapshot(path)).collect()
    }

    /// Deletes the snapshot of this name of each volume of a group that has one, all or none. Gives what is lost.
    ///
    /// # Errors
    /// `NotFound` where no volume of the group has one, `Conflict` while some of them are mapped or where that is not meant,
    /// `Failed`.
    pub fn delete_group_snapshots(
        &self,
        path: &GroupPath,
        name: &Name,
        consent: Consent,
    ) -> Result<Losses> {
        let find = || {
            let open = self.open_pool_named(&path.pool)?;
            let (_, mut volumes) = open.group(&path.group)?;
            volumes.retain(|volume| open.snapshot(volume, name).is_ok());
            if volumes.is_empty() {
                let what = format!("no volume of group {path} has a snapshot {name}");
                return Err(Error::new(Kind::NotFound, what).help(format!(
                    "`flashloom snapshot list {}` shows those there are",
                    path.pool
                )));
            }
            let all: Vec<_> = volumes.into_iter().map(|of| snapshot(path, of, name)).collect();
            let losses = all.iter().map(|path| self.losses_of_snapshot(path));
            let losses = losses.map(|losses| losses.map(|losses| losses.losses));
            let losses = losses.collect::<Result<Vec<_>>>()?.concat();
            Ok((all, Losses { losses }))
        };
        if consent.dry_run {
            return find().map(|(_, losses)| losses);
        }
        let _turn = self.turn(&path.pool, &Task::default())?;
        let (all, losses) = find()?;
        check_meant(&losses, consent.force)?;
        let open = self.open_pool_named(&path.pool)?;
        let names = all.iter().map(|one| (one.volume.volume.clone(), one.snapshot.clone()));
        open.delete_snapshots(&names.collect::<Vec<_>>())?;
        self.events.record(Severity::Info, format!("{} deleted, of group {path}", words(&all)));
        Ok(losses)
    }
}

fn snapshot(of: &GroupPath, volume: Name, name: &Name) -> SnapshotPath {
    let volume = VolumePath { pool: of.pool.clone(), volume };
    SnapshotPath { volume, snapshot: name.clone() }
}

/// The names of volumes, which are to be of this pool.
fn in_pool(pool: &Name, paths: &[VolumePath]) -> Result<Vec<Name>> {
    if let Some(other) = paths.iter().find(|path| path.pool != *pool) {
        let what = format!("volume {other} is not of pool {pool}, as its group");
        return Err(Error::new(Kind::Invalid, what).help("make a group in each pool"));
    }
    Ok(paths.iter().map(|path| path.volume.clone()).collect())
}

/// What to do about a group that cannot be made or changed; `name` is one that it was to get.
fn helped(open: &OpenPool, name: Option<&Name>, error: Error) -> Error {
    let error = match name {
        Some(name) => open.help_with_name(name, error),
        None => error,
    };
    match error.kind {
        Kind::Conflict if error.help.is_none() => error.help(
            "`flashloom group list` shows the groups and their volumes: `flashloom group remove` takes a volume out of one",
        ),
        Kind::NotFound if error.help.is_none() => {
            error.help("`flashloom volume list` shows the volumes, and the group of each")
        }
        Kind::Limit if error.help.is_none() => error.help("make several groups, or delete what is not needed any more"),
        _ => error,
    }
}

/// Volumes, in words, behind others.
pub(super) fn words_of(what: &str, volumes: &[VolumePath]) -> String {
    let names: Vec<_> = volumes.iter().take(NAMED).map(ToString::to_string).collect();
    let more = volumes.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{what} {}{more}", names.join(", "))
}

/// `last` is when the volumes had had a snapshot at last, in seconds since 1970.
fn document(name: GroupPath, of: &pools::Group, volumes: Vec<Name>, last: Option<u64>) -> Group {
    let volume = |volume| VolumePath { pool: name.pool.clone(), volume };
    let volumes = volumes.into_iter().map(volume).collect();
    let created_ms = of.created.saturating_mul(1000);
    let last_snapshot_ms = last.map(|last| last.saturating_mul(1000));
    let quota = of.quota.as_ref().map(GroupQuota::status);
    let quota_used = quota.and_then(|quota| quota.used).map(Size::new);
    let quota = quota.map(|quota| Size::new(quota.bytes));
    Group { id: of.id, volumes, created_ms, last_snapshot_ms, quota, quota_used, name }
}
