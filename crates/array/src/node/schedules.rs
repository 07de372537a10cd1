//! What the management API asks of schedules of snapshots.

use std::collections::{BTreeMap, BTreeSet};

use api::v1::{
    Consent, Kind, Losses, NewSchedule, Schedule, ScheduleChange, ScheduleRule, Severity,
};
use api::value::{GroupPath, Name, Period, VolumePath};
use uuid::Uuid;

use super::Node;
use super::owner::View;
use super::schedule_now::{Now, is_called, members};
use crate::jobs::Task;
use crate::pools::OpenPool;
use crate::schedules::{self, OfGroup, Rule};
use crate::{Error, Result, events};

/// Seconds since 1970-01-01 00:00:00 UTC.
pub(super) fn now() -> u64 {
    events::now_ms() / 1000
}

impl View {
    /// The schedule of a volume or a group, as it is called now; where it has none, one that waits for what was called so.
    fn schedule_of(&self, path: &VolumePath) -> Result<(Uuid, &schedules::Schedule)> {
        let pools = &self.serving()?.pools;
        let known = pools.volume(path).ok().map(|volume| Uuid::from_bytes(volume.id()));
        let all = &self.state.schedules;
        if let Some(found) = known.and_then(|id| all.of_volume(&id)) {
            return Ok(found);
        }
        let group = pools.pool(&path.pool).ok().and_then(|pool| pool.group(&path.volume).ok());
        if let Some(found) = group.as_ref().and_then(|(group, _)| all.of_group(&group.id)) {
            return Ok(found);
        }
        for (id, of) in &all.0 {
            // One that is called otherwise by now is not meant.
            if of.is_called(path) && is_called(&self.schedule_now(of)?, path) {
                return Ok((*id, of));
            }
        }
        let noun = if group.is_some() { "group" } else { "volume" };
        Err(Error::new(Kind::NotFound, format!("{noun} {path} has no schedule"))
            .help("`flashloom schedule list` shows those there are"))
    }

    fn schedule_document(&self, of: &schedules::Schedule) -> Result<Schedule> {
        let Now { volumes, group, problem } = self.schedule_now(of)?;
        let mut volumes: Vec<_> = volumes.into_values().collect();
        volumes.sort();
        let group = group.map(|group| group.path);
        let now = now();
        let rules = of.rules.iter().map(|(every, rule)| document(*every, rule, now)).collect();
        Ok(Schedule { group, volumes, rules, name_template: of.template.clone(), problem })
    }
}

impl Node {
    /// All schedules, by their volumes; those of one pool, if one is named.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn schedules(&self, pool: Option<&Name>) -> Result<Vec<Schedule>> {
        let view = self.view();
        let all = view.state.schedules.0.values().map(|of| view.schedule_document(of));
        let mut all = all.collect::<Result<Vec<_>>>()?;
        let is_in = |of: &Schedule, pool: &Name| {
            let of_group = of.group.as_ref().is_some_and(|group| group.pool == *pool);
            of_group || of.volumes.iter().any(|path| path.pool == *pool)
        };
        all.retain(|of| pool.is_none_or(|pool| is_in(of, pool)));
        all.sort_by(|one, other| (&one.group, &one.volumes).cmp(&(&other.group, &other.volumes)));
        Ok(all)
    }

    /// The schedule of a volume or a group.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn schedule(&self, path: &VolumePath) -> Result<Schedule> {
        let view = self.view();
        view.schedule_document(view.schedule_of(path)?.1)
    }

    /// Makes a schedule, which runs for the first time when it is due next.
    ///
    /// # Errors
    /// `Invalid`, `NotFound` without the volume, `Conflict` for one that has a schedule, `Failed`.
    pub fn create_schedule(&self, new: &NewSchedule) -> Result<Schedule> {
        let template = new.name_template.clone().unwrap_or_default();
        let rules = schedules::rules(&new.rules, new.volumes.len(), &template, now())?;
        let Some(first) = new.volumes.first() else {
            return Err(Error::new(Kind::Invalid, "no volume is named"));
        };
        let pool = first.pool.clone();
        if let Some(other) = new.volumes.iter().find(|path| path.pool != pool) {
            let what =
                format!("{first} and {other} are of two pools, which have no instant in common");
            return Err(Error::new(Kind::Invalid, what).help("make a schedule for each pool"));
        }
        // None of them is deleted meanwhile.
        let _turn = self.turn(&pool, &Task::default())?;
        let open = self.open_pool_named(&pool)?;
        let (volumes, group) = scheduled_of(&open, new)?;
        let pool_id = Some(open.id());
        let made = schedules::Schedule { volumes, group, pool_id, template, rules };
        let words = made.words();
        self.owner.ask(move |owned| {
            let mut all = owned.state.schedules.clone();
            check_unscheduled(&all, &made)?;
            all.0.insert(Uuid::new_v4(), made);
            all.check()?;
            owned.keep_changed(move |state| state.schedules = all)
        })?;
        self.events.record(Severity::Info, format!("schedule of {words} made"));
        self.schedule(first)
    }

    /// Changes the rules of a schedule, or what its snapshots are called.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Failed`.
    pub fn alter_schedule(&self, path: &VolumePath, change: &ScheduleChange) -> Result<Schedule> {
        let (id, of) = self.schedule_known(path)?;
        let change = change.clone();
        self.owner.ask(move |owned| {
            let mut all = owned.state.schedules.clone();
            // Deleted meanwhile, it is not there afterwards either.
            let Some(of) = all.0.get_mut(&id) else { return Ok(()) };
            *of = of.changed(&change, now())?;
            all.check()?;
            owned.keep_changed(move |state| state.schedules = all)
        })?;
        self.events.record(Severity::Info, format!("schedule of {} changed", of.words()));
        self.schedule(path)
    }

    /// Deletes a schedule; the snapshots that it made stay.
    ///
    /// # Errors
    /// `NotFound`, `Failed`.
    pub fn delete_schedule(&self, path: &VolumePath, consent: Consent) -> Result<Losses> {
        let view = self.view();
        let (id, of) = view.schedule_of(path)?;
        if consent.dry_run {
            return Ok(Losses::default());
        }
        self.owner.ask(move |owned| {
            owned.keep_changed(|state| {
                state.schedules.0.remove(&id);
            })
        })?;
        let words = format!("schedule of {} deleted: the snapshots that it made stay", of.words());
        self.events.record(Severity::Info, words);
        Ok(Losses::default())
    }

    /// Forgets the schedule of a volume that was deleted.
    pub(super) fn drop_schedule(&self, path: &VolumePath, volume: Uuid) {
        if self.view().state.schedules.of_volume(&volume).is_none() {
            return;
        }
        let dropped = self.owner.ask(move |owned| {
            let mut dropped = None;
            owned.keep_changed(|state| dropped = state.schedules.forget(&volume))?;
            Ok(dropped)
        });
        let (severity, words) = match dropped {
            Ok(Some(words)) => {
                (Severity::Info, format!("schedule of {words} dropped with its volume"))
            }
            Ok(None) => (Severity::Info, format!("volume {path} taken out of its schedule")),
            Err(error) => (
                Severity::Warning,
                format!("the schedule of volume {path} is not dropped: {error}"),
            ),
        };
        self.events.record(severity, words);
    }

    /// Forgets the schedules of a pool that was deleted, which had these volumes as far as that is known. Those of another
    /// that was called so, and was exported, wait for it.
    pub(super) fn drop_schedules_in(&self, pool: &Name, id: Uuid, had: BTreeSet<Uuid>) {
        let dropped = self.owner.ask(move |owned| {
            let is_left = |of: &schedules::Schedule| !of.is_in(id, &had);
            if owned.state.schedules.0.values().all(is_left) {
                return Ok(false);
            }
            owned.keep_changed(|state| state.schedules.0.retain(|_, of| is_left(of)))?;
            Ok(true)
        });
        match dropped {
            Ok(false) => {}
            Ok(true) => {
                let words = format!("schedules of volumes of pool {pool} dropped with it");
                self.events.record(Severity::Info, words);
            }
            Err(error) => {
                let words = format!("schedules of volumes of pool {pool} are not dropped: {error}");
                self.events.record(Severity::Warning, words);
            }
        }
    }

    /// The schedule of a volume, and its identity.
    pub(super) fn schedule_known(&self, path: &VolumePath) -> Result<(Uuid, schedules::Schedule)> {
        let view = self.view();
        view.schedule_of(path).map(|(id, of)| (id, of.clone()))
    }
}

fn document(every: Period, rule: &Rule, now: u64) -> ScheduleRule {
    ScheduleRule {
        every,
        keep: rule.keep,
        kept: stdx::num::u32_of(rule.made.len()),
        last_ms: rule.last.map(|last| last.saturating_mul(1000)),
        next_ms: rule.next(every, now).saturating_mul(1000),
        failed: rule.failed,
        error: rule.error.clone(),
    }
}

/// The volumes of a new schedule, all of this pool, and the group that it is of, if it is of one.
fn scheduled_of(
    open: &OpenPool,
    new: &NewSchedule,
) -> Result<(BTreeMap<Uuid, VolumePath>, Option<OfGroup>)> {
    if let [path] = &*new.volumes
        && let Ok((group, names)) = open.group(&path.volume)
    {
        let path = GroupPath { pool: path.pool.clone(), group: path.volume.clone() };
        let volumes = members(open, &path.pool, names);
        return Ok((volumes, Some(OfGroup { id: group.id, path, former: BTreeMap::new() })));
    }
    let mut volumes = BTreeMap::new();
    for path in &new.volumes {
        if open.group(&path.volume).is_ok() {
            let what = format!("{path} is a group, and other volumes are named with it");
            return Err(Error::new(Kind::Invalid, what)
                .help("make a schedule of the group alone, or name its volumes"));
        }
        let id = Uuid::from_bytes(open.volume(&path.volume)?.id());
        if volumes.insert(id, path.clone()).is_some() {
            return Err(Error::new(Kind::Invalid, format!("volume {path} is named twice")));
        }
    }
    Ok((volumes, None))
}

/// Refuses a schedule of what has one.
fn check_unscheduled(all: &schedules::Schedules, made: &schedules::Schedule) -> Result<()> {
    let has_one = |noun: &str, path: String| {
        let help = format!(
            "`flashloom schedule show {path}` shows it, and `flashloom schedule delete {path}` makes room for another"
        );
        Err(Error::new(Kind::Conflict, format!("{noun} {path} has a schedule")).help(help))
    };
    if let Some(group) = &made.group {
        let is_free = all.of_group(&group.id).is_none();
        return if is_free { Ok(()) } else { has_one("group", group.path.to_string()) };
    }
    let taken = made.volumes.iter().find(|(id, _)| all.of_volume(id).is_some());
    taken.map_or(Ok(()), |(_, path)| has_one("volume", path.to_string()))
}
