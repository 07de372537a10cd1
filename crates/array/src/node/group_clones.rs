//! Groups of clones of all volumes of another one.

use std::collections::{BTreeMap, BTreeSet};

use api::v1::{Kind, NewGroupClone, Severity};
use api::value::{GroupPath, GroupSnapshotPath, Name, VolumePath};

use super::Node;
use super::groups::words_of;
use crate::jobs::Task;
use crate::pools::OpenPool;
use crate::{Error, Result};

impl Node {
    /// Makes a clone of each volume of a group, of its snapshot of this name, and a group of the clones: all or none.
    ///
    /// # Errors
    /// `NotFound` without the group, or where one of its volumes has no such snapshot, `Invalid` for a group without volumes
    /// or another pool, `Conflict` for a name that is taken or while nothing leaves the commit log, `Limit` when there are
    /// too many or clones are cloned too deep, `Failed`.
    pub(super) fn clone_group(
        &self,
        of: &GroupSnapshotPath,
        new: &NewGroupClone,
        task: &Task,
    ) -> Result<GroupPath> {
        let (from, to) = (&of.group, &new.name);
        if to.pool != from.pool {
            let what = format!(
                "clones share what they have with their snapshots: {of} is not in pool {}",
                to.pool
            );
            let help = format!("clone it as {}/{}", from.pool, to.group);
            return Err(Error::new(Kind::Invalid, what).help(help));
        }
        let turn = self.turn(&from.pool, task)?;
        task.commit(0, 1, "makes them")?;
        let open = self.open_pool_named(&from.pool)?;
        let names = names_of(&open, of, new)?;
        open.clone_group((&from.group, &of.snapshot), &to.group, &names)?;
        drop(turn);
        let clones = names.into_values();
        let clones = clones.map(|volume| VolumePath { pool: from.pool.clone(), volume });
        let of_clones = words_of(" of", &clones.collect::<Vec<_>>());
        let words = format!("group {to} made{of_clones}: clones of {of}");
        self.events.record(Severity::Info, words);
        Ok(to.clone())
    }
}

/// By volume of a group, what its clone is to be called. Refuses what cannot be cloned, and says which volumes that is.
fn names_of(
    open: &OpenPool,
    of: &GroupSnapshotPath,
    new: &NewGroupClone,
) -> Result<BTreeMap<Name, Name>> {
    let group = &of.group;
    let (_, volumes) = open.group(&group.group)?;
    if volumes.is_empty() {
        let what = format!("group {group} has no volumes");
        let help = format!("`flashloom group add {group}` adds some");
        return Err(Error::new(Kind::Invalid, what).help(help));
    }
    if let Some(other) = new.volumes.keys().find(|volume| !volumes.contains(volume)) {
        let what = format!("volume {}/{other} is not in group {group}", group.pool);
        let help = format!("`flashloom group show {group}` shows its volumes");
        return Err(Error::new(Kind::NotFound, what).help(help));
    }
    check_snapshots(open, of, &volumes)?;
    let (mut names, mut taken) = (BTreeMap::new(), BTreeSet::from([new.name.group.clone()]));
    for volume in volumes {
        let name = match new.volumes.get(&volume) {
            Some(name) => name.clone(),
            None => called_after(&new.name.group, &volume)?,
        };
        if !taken.insert(name.clone()) {
            let what = format!("two of what is to be made would be called {}/{name}", group.pool);
            let help = "give the group and each of the clones a name of its own";
            return Err(Error::new(Kind::Conflict, what).help(help));
        }
        names.insert(volume, name);
    }
    Ok(names)
}

/// What a clone is called that nobody gave a name.
fn called_after(group: &Name, volume: &Name) -> Result<Name> {
    let name = format!("{group}-{volume}");
    name.parse().map_err(|_| {
        let what = format!("the clone of {volume} would be called {name}, which is too long");
        Error::new(Kind::Invalid, what)
            .help(format!("call it otherwise: `--volume {volume}=NAME`, or the group"))
    })
}

/// Each of the volumes has that snapshot, and a clone of it is not too deep.
fn check_snapshots(open: &OpenPool, of: &GroupSnapshotPath, volumes: &[Name]) -> Result<()> {
    let GroupSnapshotPath { group, snapshot: name } = of;
    let (mut without, mut too_deep) = (Vec::new(), Vec::new());
    for volume in volumes {
        let path = VolumePath { pool: group.pool.clone(), volume: volume.clone() };
        match open.snapshot(volume, name) {
            Ok(snapshot) if snapshot.volume.is_too_deep() => too_deep.push(path),
            Ok(_) => {}
            Err(_) => without.push(path),
        }
    }
    if !without.is_empty() {
        let (noun, has) = if without.len() == 1 { ("volume", "has") } else { ("volumes", "have") };
        let what =
            format!("{} of group {group} {has} no snapshot {name}", words_of(noun, &without));
        return Err(Error::new(Kind::NotFound, what).help(format!(
            "`flashloom group snapshot` takes one of all; `flashloom group remove {group}` takes out of the group what came \
             later"
        )));
    }
    if !too_deep.is_empty() {
        let what = words_of(&format!("clones of snapshot {name} would be too deep, of"), &too_deep);
        return Err(Error::new(Kind::Limit, what).help(
            "clones of clones are at most 64 deep: take them out of the group, or `flashloom volume detach` them and take the \
             snapshots anew",
        ));
    }
    Ok(())
}
