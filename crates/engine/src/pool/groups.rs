//! Consistency groups: volumes by a name that they have together, of which snapshots are taken at one instant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Pool;
use super::quotas::GroupPlan;
use super::snapshots::SnapshotSpec;
use super::volumes::{check_new_name, check_quota, find, invalid, new_view};
use crate::address::View;
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{self, Catalog, EDIT_PAGES_MAX, Edit, Object, RECORDS, Record};
use crate::limits::GROUP_VOLUMES_MAX;
use crate::quotas::{GroupQuota, Quota};
use crate::volume::state::State;

/// A group to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Its name: no volume and no other group has it.
    pub name: String,
    /// What identifies it for ever; drawn at random.
    pub id: [u8; 16],
    /// Seconds since 1970.
    pub created: u64,
    /// The volumes that it begins with. There may be none yet.
    pub volumes: Vec<String>,
    /// What all its volumes and their snapshots may hold together, in bytes, as a [volume's](Pool::set_quota); or no bound.
    pub quota: Option<u64>,
}

/// What is to be changed of a group, all of it at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChange {
    /// Another name for it.
    pub name: Option<String>,
    /// Volumes that come into it, and that leave it.
    pub add: Vec<String>,
    pub remove: Vec<String>,
    /// What its quota is to be in bytes, or that it has none from now on.
    pub quota: Option<Option<u64>>,
}

/// Snapshots to be taken of all volumes of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSnapshotSpec {
    pub group: String,
    /// The name of each of them among the snapshots of its volume.
    pub name: String,
    /// Seconds since 1970.
    pub created: u64,
}

/// A group there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    pub name: String,
    pub id: [u8; 16],
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Its volumes, by name.
    pub volumes: Vec<String>,
    /// Its quota, if it has one.
    pub quota: Option<GroupQuota>,
}

// A group that is made or deleted is put or removed together with all its volumes, or with a clone of each.
const _: () = assert!(GROUP_VOLUMES_MAX < stdx::num::usize32(EDIT_PAGES_MAX) * RECORDS);

/// The group of this name.
pub(super) fn find_group<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Object> {
    let none = |what| Err(Error::new(Kind::NotFound, what));
    match catalog.find(name) {
        Some(found) if found.is_group() => Ok(found),
        Some(_) => none(format!("{name} is a volume, not a group")),
        None => none(format!("no group is called {name}")),
    }
}

/// What hosts see of a group's volumes.
pub(super) fn members(catalog: &Catalog, group: View) -> impl Iterator<Item = &Object> {
    let is_member = move |of: &&Object| of.group == Some(group) && of.is_volume() && !of.deleted;
    // Nobody looks through thousands of volumes for a group without any.
    let all = (catalog.needing(group) > 0).then(|| catalog.objects());
    all.into_iter().flatten().filter(is_member)
}

/// Volumes come into a group, which has its other members already.
fn joining(catalog: &Catalog, group: &Object, names: &[String]) -> Result<Vec<Record>> {
    let join = |name: &String| {
        let volume = find(catalog, name)?;
        match volume.group {
            Some(is) if is == group.view => {
                let what = format!("volume {name} is in group {} already", group.name);
                Err(Error::new(Kind::Exists, what))
            }
            Some(other) => {
                let other = catalog.get(other).map_or("another", |other| &other.name);
                let what = format!("volume {name} is in group {other}, and can be in one only");
                Err(Error::new(Kind::Busy, what))
            }
            None => Ok(Record::Put(Object { group: Some(group.view), ..volume.clone() })),
        }
    };
    names.iter().map(join).collect()
}

fn leaving(catalog: &Catalog, group: &Object, names: &[String]) -> Result<Vec<Record>> {
    let leave = |name: &String| {
        let volume = find(catalog, name)?;
        if volume.group != Some(group.view) {
            let what = format!("volume {name} is not in group {}", group.name);
            return Err(Error::new(Kind::NotFound, what));
        }
        Ok(Record::Put(Object { group: None, ..volume.clone() }))
    };
    names.iter().map(leave).collect()
}

/// Refuses names of volumes that are there twice.
fn check_once<'n>(names: impl Iterator<Item = &'n String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(invalid(format!("volume {name} is named twice")));
        }
    }
    Ok(())
}

/// Refuses more volumes than go back to a snapshot in one step.
fn check_count(volumes: usize) -> Result<()> {
    if volumes > GROUP_VOLUMES_MAX {
        let what = format!(
            "a group has at most {GROUP_VOLUMES_MAX} volumes, which go back to a snapshot in one step, not {volumes}"
        );
        return Err(Error::new(Kind::Full, what));
    }
    Ok(())
}

/// A group that gets this view.
pub(super) fn new_group(catalog: &Catalog, spec: &GroupSpec, view: View) -> Result<Object> {
    let GroupSpec { name, id, created, quota, .. } = spec;
    check_new_name(catalog, name)?;
    let (kind, quota) = (catalog::Kind::Group, quota.unwrap_or(0));
    Ok(Object { kind, quota, created: *created, ..Object::volume(view, name, *id, 0, 4096) })
}

fn edit_to_make(catalog: &Catalog, spec: &GroupSpec, most: usize) -> Result<(Edit, View)> {
    let volumes = &spec.volumes;
    check_new_name(catalog, &spec.name)?;
    check_count(volumes.len())?;
    check_once(volumes.iter())?;
    let view = new_view(catalog, most)?;
    let group = new_group(catalog, spec, view)?;
    let joining = joining(catalog, &group, volumes)?;
    // Before its members, which name it.
    let records = [Record::Put(group)].into_iter().chain(joining).collect();
    Ok((Edit { next_view: view.get() + 1, records }, view))
}

fn edit_to_change(catalog: &Catalog, name: &str, change: &GroupChange) -> Result<Edit> {
    let GroupChange { name: to, add, remove, quota } = change;
    let group = find_group(catalog, name)?;
    check_once(add.iter().chain(remove))?;
    let mut changed = group.clone();
    if let Some(to) = to {
        check_new_name(catalog, to)?;
        changed.name = to.as_str().into();
    }
    if let Some(quota) = quota {
        changed.quota = quota.unwrap_or(0);
    }
    let mut records = Vec::new();
    if changed != *group {
        records.push(Record::Put(changed));
    }
    records.extend(leaving(catalog, group, remove)?);
    records.extend(joining(catalog, group, add)?);
    if !add.is_empty() {
        check_count(members(catalog, group.view).count() + add.len() - remove.len())?;
    }
    Ok(catalog.edit(records))
}

fn edit_to_delete(catalog: &Catalog, name: &str) -> Result<Edit> {
    let view = find_group(catalog, name)?.view;
    // Whatever names it, also what is not a member any more: what a volume was before it was rolled back, where the
    // drives failed before that was done with.
    let of_it = catalog.objects().filter(|object| object.group == Some(view));
    let without = |object: &Object| Record::Put(Object { group: None, ..object.clone() });
    Ok(catalog.edit(of_it.map(without).chain([Record::Remove(view)]).collect()))
}

impl Pool {
    /// All groups, by name.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupStatus> {
        self.0.common.superblock.catalog(|catalog| {
            let status = |group: &Object| GroupStatus {
                name: group.name.to_string(),
                id: group.id,
                created: group.created,
                volumes: Vec::new(),
                quota: self.0.common.quotas.group_quota(group.view),
            };
            let groups = catalog.objects().filter(|object| object.is_group());
            let mut all: BTreeMap<_, _> = groups.map(|of| (of.view, status(of))).collect();
            let volumes = (!all.is_empty()).then(|| catalog.objects()).into_iter().flatten();
            for volume in volumes.filter(|of| of.is_volume() && !of.deleted) {
                if let Some(group) = volume.group.and_then(|group| all.get_mut(&group)) {
                    group.volumes.push(volume.name.to_string());
                }
            }
            let mut all: Vec<_> = all.into_values().collect();
            all.iter_mut().for_each(|group| group.volumes.sort());
            all.sort_by(|one, other| one.name.cmp(&other.name));
            all
        })
    }

    /// Makes a group of volumes that are in none.
    ///
    /// # Errors
    /// `Invalid` for a name that cannot be or a volume named twice, `Exists`, `NotFound` without a volume, `Busy` for one
    /// that is in another group, `Full` for too many volumes, or too many objects in the pool, `Failed` when too many
    /// drives failed; with a quota as [`change_group`](Self::change_group).
    pub async fn create_group(&self, spec: GroupSpec) -> Result<()> {
        spec.quota.map_or(Ok(()), check_quota)?;
        let _turn = self.turn().await?;
        let superblock = &self.0.common.superblock;
        let most = superblock.objects_max();
        let make = |catalog: &Catalog| edit_to_make(catalog, &spec, most);
        let mut before = None;
        if let Some(bytes) = spec.quota {
            // What cannot be is refused before anybody is counted for it.
            superblock.catalog(|catalog| make(catalog).map(drop))?;
            let joining = self.without_windows(&spec.volumes).await?;
            let quota = self.0.common.quotas.for_group(&spec.name, bytes);
            let plan = GroupPlan { quota, bytes, joining, leaving: Vec::new() };
            before = Some(self.follow_group_plan(&spec.name, plan).await?);
        }
        let lasts = superblock.change_catalog(make).await;
        self.end_group_plan(before, lasts, |view| *view).await.map(drop)
    }

    /// Changes which volumes a group has, its name, or its quota: all of it, or nothing. The quota bounds what all volumes of
    /// the group and their snapshots hold together, as a [volume's](Self::set_quota) does that of one; a volume may be under
    /// both.
    ///
    /// # Errors
    /// `NotFound` without the group or a volume, or where one that is to leave is not in it, and otherwise as
    /// [`create_group`](Self::create_group). Of a quota: `Invalid` for what is not a multiple of 1 MiB, or too large; `Full`
    /// where the volumes that the group would have hold more already; `Busy` where that cannot be found out.
    pub async fn change_group(&self, name: &str, change: GroupChange) -> Result<()> {
        change.quota.flatten().map_or(Ok(()), check_quota)?;
        let _turn = self.turn().await?;
        let (superblock, quotas) = (&self.0.common.superblock, &self.0.common.quotas);
        let alter = |catalog: &Catalog| edit_to_change(catalog, name, &change).map(|of| (of, ()));
        let (view, members) = superblock.catalog(|catalog| {
            alter(catalog)?;
            let view = find_group(catalog, name)?.view;
            Ok::<_, Error>((view, members(catalog, view).map(|of| of.name.to_string()).collect()))
        })?;
        let known = quotas.of_group(view);
        let bytes = match change.quota {
            Some(quota) => quota,
            None => known.as_ref().map(|quota| quota.bytes()),
        };
        let mut before = None;
        if let Some(bytes) = bytes {
            let plan = self.plan_for_group(name, (known.as_ref(), bytes), members, &change).await?;
            before = Some(self.follow_group_plan(name, plan).await?);
        }
        let lasts = superblock.change_catalog(alter).await;
        self.end_group_plan(before, lasts, |()| view).await?;
        match (bytes, quotas.of_group(view), &change.name) {
            (None, Some(_), _) => {
                quotas.remove_group(view);
                self.look_at_quotas().await?;
            }
            (Some(_), Some(quota), Some(to)) => quota.set_name(to),
            _ => {}
        }
        Ok(())
    }

    /// What is to become of the quota of a group that has these volumes.
    async fn plan_for_group(
        &self,
        name: &str,
        (known, bytes): (Option<&Arc<Quota>>, u64),
        mut members: Vec<String>,
        GroupChange { add, remove, .. }: &GroupChange,
    ) -> Result<GroupPlan> {
        if let Some(quota) = known {
            let joining = self.without_windows(add).await?;
            let leaving = self.states_of(remove)?;
            return Ok(GroupPlan { quota: Arc::clone(quota), bytes, joining, leaving });
        }
        members.retain(|volume| !remove.contains(volume));
        members.extend(add.iter().cloned());
        let joining = self.without_windows(&members).await?;
        let quota = self.0.common.quotas.for_group(name, bytes);
        Ok(GroupPlan { quota, bytes, joining, leaving: Vec::new() })
    }

    /// Volumes that come under a quota: their windows are ended, which know of none.
    async fn without_windows(&self, names: &[String]) -> Result<Vec<Arc<State>>> {
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        self.end_windows_of(&all).await?;
        self.states_of(names)
    }

    fn states_of(&self, names: &[String]) -> Result<Vec<Arc<State>>> {
        names.iter().map(|name| Ok(self.volume(name)?.state)).collect()
    }

    /// Deletes a group. Its volumes stay, and so do their snapshots.
    ///
    /// # Errors
    /// `NotFound`, and `Failed` when too many drives failed.
    pub async fn delete_group(&self, name: &str) -> Result<()> {
        let _turn = self.turn().await?;
        let drop = |catalog: &Catalog| {
            Ok((edit_to_delete(catalog, name)?, find_group(catalog, name)?.view))
        };
        let view = self.0.common.superblock.change_catalog(drop).await?;
        self.0.common.quotas.remove_group(view);
        self.look_at_quotas().await
    }

    /// Takes a snapshot of each volume that a group has by then, all at one instant, as
    /// [`take_snapshots`](Self::take_snapshots) does; `draw` gives what identifies each of them for ever. Gives the names
    /// of the volumes.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a group without volumes, and otherwise as [`take_snapshots`](Self::take_snapshots).
    pub async fn take_group_snapshots(
        &self,
        spec: GroupSnapshotSpec,
        draw: impl Fn() -> [u8; 16] + 'static,
    ) -> Result<Vec<String>> {
        // To its end, also where nobody waits for it any more: hosts wait in the midst of it.
        let pool = self.clone();
        let taking = reactor::spawn(async move {
            // Who came into the group before this is in its snapshot.
            let _turn = pool.turn().await?;
            let of_volumes = |catalog: &Catalog| snapshots_of(catalog, &spec, draw);
            let specs = pool.0.common.superblock.catalog(of_volumes)?;
            pool.take_each(&specs).await?;
            Ok(specs.into_iter().map(|spec| spec.volume).collect())
        });
        taking.await.unwrap_or_else(|| Err(Error::new(Kind::Gone, "the reactor has stopped")))
    }
}

/// The snapshots of a group's volumes that are to be taken.
fn snapshots_of(
    catalog: &Catalog,
    spec: &GroupSnapshotSpec,
    draw: impl Fn() -> [u8; 16],
) -> Result<Vec<SnapshotSpec>> {
    let GroupSnapshotSpec { group, name, created } = spec;
    let of_volume = |volume: &Object| SnapshotSpec {
        volume: volume.name.to_string(),
        name: name.clone(),
        id: draw(),
        created: *created,
    };
    let view = find_group(catalog, group)?.view;
    let specs: Vec<_> = members(catalog, view).map(of_volume).collect();
    if specs.is_empty() {
        return Err(invalid(format!("group {group} has no volumes, of which to take snapshots")));
    }
    Ok(specs)
}
