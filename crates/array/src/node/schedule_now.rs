//! Schedules as they are by now: what their volumes are called, whom a group has, and why one cannot run.

use std::collections::{BTreeMap, BTreeSet};

use api::v1::Severity;
use api::value::{GroupPath, Name, VolumePath};
use uuid::Uuid;

use super::Node;
use super::owner::View;
use crate::Result;
use crate::pools::{OpenPool, Pools};
use crate::schedules::{OfGroup, Schedule};

/// A schedule's volumes as they are called now.
#[derive(Debug)]
pub(super) struct Now {
    pub volumes: BTreeMap<Uuid, VolumePath>,
    /// Its group, if it is of one.
    pub group: Option<OfGroup>,
    /// Why it cannot run, if it cannot.
    pub problem: Option<String>,
}

impl Now {
    /// The pool that it is of.
    pub fn pool(&self) -> Option<&Name> {
        self.volumes.values().next().map(|path| &path.pool)
    }
}

impl View {
    /// A schedule with its volumes as they are called now, and why it cannot run, if it cannot.
    pub(super) fn schedule_now(&self, of: &Schedule) -> Result<Now> {
        let pools = &self.serving()?.pools;
        if let Some(group) = &of.group {
            return Ok(of_group_now(pools, of, group));
        }
        let mut volumes = of.volumes.clone();
        // A pool may have another name since it was imported.
        let found = pools.open_pools().find_map(|pool| {
            let called = pool.volumes_called(&of.ids());
            (!called.is_empty()).then(|| (pool.name().clone(), called))
        });
        let Some((pool, called)) = found else {
            return Ok(Now { volumes, group: None, problem: Some(missing(pools, of)) });
        };
        let mut problem = None;
        for (id, path) in &mut volumes {
            match called.get(id) {
                Some(name) => *path = VolumePath { pool: pool.clone(), volume: name.clone() },
                None => problem = Some(gone(pools, path)),
            }
        }
        Ok(Now { volumes, group: None, problem })
    }
}

/// Volumes of a pool, by identity.
pub(super) fn members(
    open: &OpenPool,
    pool: &Name,
    names: Vec<Name>,
) -> BTreeMap<Uuid, VolumePath> {
    let each = names.into_iter().filter_map(|name| {
        let id = Uuid::from_bytes(open.volume(&name).ok()?.id());
        Some((id, VolumePath { pool: pool.clone(), volume: name }))
    });
    each.collect()
}

/// The schedule of a group with the volumes that this has now. Those that left it are known as long as they have snapshots
/// that the schedule made.
fn of_group_now(pools: &Pools, of: &Schedule, group: &OfGroup) -> Now {
    let found = pools.open_pools().find_map(|pool| Some((pool, pool.group_called(group.id)?)));
    let Some((open, Ok((called, (_, names))))) =
        found.map(|(open, name)| (open, open.group(&name).map(|found| (name, found))))
    else {
        let problem = Some(missing(pools, of));
        return Now { volumes: of.volumes.clone(), group: Some(group.clone()), problem };
    };
    let pool = open.name();
    let path = GroupPath { pool: pool.clone(), group: called };
    let volumes = members(open, pool, names);
    let before: BTreeSet<Uuid> = of.made_of().map(|(id, _)| *id).collect();
    let left = before.into_iter().filter(|id| !volumes.contains_key(id)).collect();
    let former = open.volumes_called(&left).into_iter();
    let former = former.map(|(id, volume)| (id, VolumePath { pool: pool.clone(), volume }));
    let group = OfGroup { id: group.id, path, former: former.collect() };
    let problem = volumes.is_empty().then(|| format!("group {} has no volumes", group.path));
    Now { volumes, group: Some(group), problem }
}

/// Whether a schedule is one of this volume or group by now.
pub(super) fn is_called(now: &Now, path: &VolumePath) -> bool {
    match &now.group {
        Some(group) => is_path(&group.path, path),
        None => now.volumes.values().any(|volume| volume == path),
    }
}

fn is_path(group: &GroupPath, path: &VolumePath) -> bool {
    (&group.pool, &group.group) == (&path.pool, &path.volume)
}

impl Schedule {
    /// Whether it was of this volume or group when it was looked at last.
    pub(super) fn is_called(&self, path: &VolumePath) -> bool {
        match &self.group {
            Some(group) => is_path(&group.path, path),
            None => self.volumes.values().any(|volume| volume == path),
        }
    }
}

/// Why a schedule waits of whose volumes none is in an open pool.
fn missing(pools: &Pools, of: &Schedule) -> String {
    let Some(pool) = of.pool() else { return "it has no volumes".to_owned() };
    let is_other = |id: Uuid| pools.id_of(pool).is_ok_and(|has| has != id);
    if of.pool_id.is_some_and(is_other) {
        let words = of.words();
        return format!(
            "pool {pool} is another one by now: the one with {words} was exported, and is not imported again"
        );
    }
    match (pools.pool(pool), of.volumes.values().next()) {
        (Err(error), _) => error.context,
        (Ok(_), _) if of.group.is_some() => format!("there is no {} any more", of.words()),
        (Ok(_), Some(path)) if of.volumes.len() == 1 => gone(pools, path),
        (Ok(_), _) => format!("there is no volume {} any more", of.words()),
    }
}

/// Why a volume is not in its pool that is looked for by its identity.
fn gone(pools: &Pools, path: &VolumePath) -> String {
    match pools.volume(path) {
        Ok(_) => format!(
            "volume {path} is another one by now: it was made anew, or its pool was exported"
        ),
        Err(_) => format!("there is no volume {path} any more"),
    }
}

impl Node {
    /// What is lost with a group: its schedule, if it has one.
    pub(super) fn losses_of_group(&self, path: &GroupPath, id: &Uuid) -> Vec<String> {
        let view = self.view();
        let scheduled = view.state.schedules.of_group(id).is_some();
        let loss = format!(
            "the schedule of group {path} would be lost: it takes no snapshots any more; those that it made stay"
        );
        scheduled.then_some(loss).into_iter().collect()
    }

    /// Forgets the schedule of a group that was deleted.
    pub(super) fn drop_schedule_of_group(&self, path: &GroupPath, id: Uuid) {
        let Some((schedule, _)) = self.view().state.schedules.of_group(&id) else { return };
        let dropped = self.owner.ask(move |owned| {
            owned.keep_changed(|state| {
                state.schedules.0.remove(&schedule);
            })
        });
        let (severity, words) = match dropped {
            Ok(()) => {
                let stay = "the snapshots that it made stay";
                (Severity::Info, format!("schedule of group {path} dropped with it: {stay}"))
            }
            Err(error) => {
                (Severity::Warning, format!("the schedule of group {path} is not dropped: {error}"))
            }
        };
        self.events.record(severity, words);
    }
}
