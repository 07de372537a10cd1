//! Schedules run: snapshots are taken when they are due, and deleted once there are enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use api::v1::{Kind, Schedule, Severity};
use api::value::{Backend, Name, Period, SnapshotPath, VolumePath};
use uuid::Uuid;

use super::Node;
use super::schedule_now::Now;
use super::schedules::now;
use super::snapshots::words;
use crate::jobs::Task;
use crate::pools::{NewNames, OpenPool};
use crate::schedules::{self, Due, Made, Rule, Run, written};
use crate::{Error, Result};

/// Snapshots of one time and one rule that are told apart by a number: a clock that was set back may bring a time again.
const COPIES: u32 = 999;

/// What is under way, and what was told.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Pools whose schedules are being run.
    under_way: BTreeSet<Name>,
    /// Why schedules cannot run, as it was told.
    waiting: BTreeMap<Uuid, String>,
    /// Schedules of which it cannot be written down what they did, as it was told.
    unwritten: BTreeSet<Uuid>,
    /// Snapshots beyond what is kept that hosts have, as it was told.
    mapped: BTreeSet<Uuid>,
}

impl Runs {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a pool's schedules are not being run any more.
struct UnderWay(Arc<Node>, Name);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.runs.lock().under_way.remove(&self.1);
    }
}

impl Node {
    /// Begins the runs that are due, on a thread for each pool: one whose log is stuck holds up no other.
    ///
    /// # Errors
    /// `Stopping`, `Failed` when there is no thread to be had.
    pub fn begin_due_schedules(self: &Arc<Self>) -> Result<()> {
        for pool in self.pools_with_due(now())? {
            if !self.runs.lock().under_way.insert(pool.clone()) {
                continue;
            }
            let running = UnderWay(Arc::clone(self), pool.clone());
            let named = thread::Builder::new().name("schedules".to_owned());
            let spawned = named.spawn(move || {
                let ran = running.0.run_due_schedules(&running.1, now);
                if let Err(error) = ran
                    && error.kind != Kind::Stopping
                {
                    tracing::error!("schedules of pool {}: {error}", running.1);
                }
            });
            spawned.map_err(|error| Error::failed("cannot start a thread", error))?;
        }
        Ok(())
    }

    /// The open pools with schedules that are due; why others cannot run is told once.
    fn pools_with_due(&self, now: u64) -> Result<BTreeSet<Name>> {
        let view = self.view();
        view.serving()?;
        let mut pools = BTreeSet::new();
        for (id, of) in &view.state.schedules.0 {
            let is_due = |(every, rule): (&Period, &Rule)| rule.due(*every, now) != Due::No;
            if !of.rules.iter().any(is_due) {
                continue;
            }
            let scheduled = view.schedule_now(of)?;
            let Some(problem) = &scheduled.problem else {
                self.runs.lock().waiting.remove(id);
                pools.extend(scheduled.pool().cloned());
                continue;
            };
            let before = self.runs.lock().waiting.insert(*id, problem.clone());
            if before.as_ref() != Some(problem) {
                let words = format!(
                    "schedule of {} waits, and makes up for one run then: {problem}",
                    of.words()
                );
                self.events.record(Severity::Warning, words);
            }
        }
        Ok(pools)
    }

    /// Runs what is due of a pool by what `now` tells.
    fn run_due_schedules(&self, pool: &Name, now: impl Fn() -> u64) -> Result<()> {
        let ids: Vec<Uuid> = self.view().state.schedules.0.keys().copied().collect();
        for id in ids {
            let _turn = self.turn(pool, &Task::default())?;
            let Some((open, of)) = self.scheduled_in(pool, id)? else { continue };
            for (every, rule) in &of.rules {
                match rule.due(*every, now()) {
                    Due::No => {}
                    Due::From(settled) => self.go_on_from(id, &of, *every, settled)?,
                    Due::Run(run) => {
                        // What came of it is told, and the next time is another chance.
                        let _ = self.run_rule(&open, id, *every, run);
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs a schedule now, or one rule of it; nothing is due for what was due before then.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` where it cannot run, and as taking snapshots.
    pub fn run_schedule(&self, path: &VolumePath, every: Option<Period>) -> Result<Schedule> {
        let (id, of) = self.schedule_known(path)?;
        let asked: Vec<Period> = match every {
            None => of.rules.keys().copied().collect(),
            Some(every) if of.rules.contains_key(&every) => vec![every],
            Some(every) => {
                let what = format!("the schedule of {path} has no rule for every {every}");
                return Err(Error::new(Kind::NotFound, what));
            }
        };
        let scheduled = self.view().schedule_now(&of)?;
        if let Some(problem) = &scheduled.problem {
            return Err(Error::new(Kind::Conflict, format!("the schedule cannot run: {problem}")));
        }
        let pool = scheduled.pool().unwrap_or(&path.pool).clone();
        {
            let _turn = self.turn(&pool, &Task::default())?;
            let gone = || Error::new(Kind::NotFound, format!("{path} has no schedule"));
            let (open, _) = self.scheduled_in(&pool, id)?.ok_or_else(gone)?;
            for every in asked {
                let now = now();
                self.run_rule(&open, id, every, Run { due: now, at: now })?;
            }
        }
        self.schedule(path)
    }

    /// A schedule with its volumes as they are called now, if it is of this pool and can run. Only whoever has the pool's
    /// turn knows that they stay so.
    fn scheduled_in(
        &self,
        pool: &Name,
        id: Uuid,
    ) -> Result<Option<(Arc<OpenPool>, schedules::Schedule)>> {
        let view = self.view();
        let Some(of) = view.state.schedules.0.get(&id) else { return Ok(None) };
        let Now { volumes, group, problem } = view.schedule_now(of)?;
        if problem.is_some() || volumes.values().any(|path| path.pool != *pool) {
            return Ok(None);
        }
        let Ok(open) = view.serving()?.pools.pool(pool) else { return Ok(None) };
        let pool_id = Some(open.id());
        let scheduled = schedules::Schedule { volumes, group, pool_id, ..of.clone() };
        if scheduled != *of {
            let named = scheduled.clone();
            // Its rules may have changed meanwhile.
            self.change_schedule(id, move |of| {
                (of.volumes, of.group, of.pool_id) = (named.volumes, named.group, named.pool_id);
            })?;
        }
        Ok(Some((open, scheduled)))
    }

    fn change_schedule(
        &self,
        id: Uuid,
        change: impl FnOnce(&mut schedules::Schedule) + Send + 'static,
    ) -> Result<()> {
        self.owner.ask(move |owned| {
            owned.keep_changed(|state| {
                if let Some(of) = state.schedules.0.get_mut(&id) {
                    change(of);
                }
            })
        })
    }

    fn change_rule(
        &self,
        id: Uuid,
        every: Period,
        change: impl FnOnce(&mut Rule) + Send + 'static,
    ) -> Result<()> {
        self.change_schedule(id, move |of| {
            if let Some(rule) = of.rules.get_mut(&every) {
                change(rule);
            }
        })
    }

    fn go_on_from(
        &self,
        id: Uuid,
        of: &schedules::Schedule,
        every: Period,
        settled: u64,
    ) -> Result<()> {
        self.change_rule(id, every, move |rule| rule.settled = settled)?;
        let words = of.words();
        let words = format!(
            "schedule of {words}, every {every}: the clock was set back; it goes on with the next run"
        );
        self.events.record(Severity::Warning, words);
        Ok(())
    }

    /// Runs a rule, with the pool's turn.
    fn run_rule(&self, open: &OpenPool, id: Uuid, every: Period, run: Run) -> Result<()> {
        let view = self.view();
        let Some(of) = view.state.schedules.0.get(&id) else { return Ok(()) };
        let Some(rule) = of.rules.get(&every) else { return Ok(()) };
        let held = snapshots_of(open, of);
        let taken = match rule.was_made(run.due, |id| held.contains_key(id)) {
            true => Ok(None),
            false => self.take_scheduled(open, id, of, every, run).map(Some),
        };
        if taken.as_ref().is_err_and(|error| error.kind == Kind::Stopping) {
            return taken.map(drop);
        }
        let deleted = self.delete_beyond(open, id, every)?;
        let ended = self.end_run(open, id, every, run, taken.as_ref().err());
        self.tell_unwritten(id, of, ended.as_ref().err());
        ended?;
        let whose = format!("schedule of {}, every {every}", of.words());
        match &taken {
            Ok(None) => {}
            Ok(Some(taken)) => {
                let gone = if deleted > 0 {
                    format!(", {deleted} deleted beyond the {} that are kept", rule.keep)
                } else {
                    String::new()
                };
                self.events
                    .record(Severity::Info, format!("{whose}: {} taken{gone}", words(taken)));
            }
            // The same again and again is counted, and shown with the schedule.
            Err(error) if rule.error.as_deref() == Some(&*error.context) => {}
            Err(error) => {
                let words =
                    format!("{whose}: no snapshot was taken, the next run tries again: {error}");
                self.events.record(Severity::Warning, words);
            }
        }
        taken.map(drop)
    }

    /// Says once that what a schedule did is not written down: it is tried again until it is, and nothing is taken twice.
    fn tell_unwritten(&self, id: Uuid, of: &schedules::Schedule, error: Option<&Error>) {
        let Some(error) = error else {
            self.runs.lock().unwritten.remove(&id);
            return;
        };
        if error.kind != Kind::Stopping && self.runs.lock().unwritten.insert(id) {
            let words = format!(
                "schedule of {} waits, for what it does is not written down: {error}",
                of.words()
            );
            self.events.record(Severity::Error, words);
        }
    }

    /// Takes what a run is for. It is written down before: what is there is known as the rule's, whatever comes between.
    fn take_scheduled(
        &self,
        open: &OpenPool,
        id: Uuid,
        of: &schedules::Schedule,
        every: Period,
        run: Run,
    ) -> Result<Vec<SnapshotPath>> {
        let volumes: BTreeSet<&Name> = of.volumes.values().map(|path| &path.volume).collect();
        let name = free_name(open, of, every, run.at)?;
        let names: NewNames =
            volumes.into_iter().map(|of| (of.clone(), (name.clone(), Uuid::new_v4()))).collect();
        let made = Made { due: run.due, snapshots: names.values().map(|(_, id)| *id).collect() };
        self.change_rule(id, every, move |rule| rule.made.push(made))?;
        open.take_snapshots(&names)?;
        let path =
            |path: &VolumePath| SnapshotPath { volume: path.clone(), snapshot: name.clone() };
        Ok(of.named().into_iter().map(path).collect())
    }

    /// Deletes what a rule made beyond what it keeps, what a run made in one step; how many snapshots. What hosts have is
    /// kept until they do not, and where it is of a group all that is of the same run.
    fn delete_beyond(&self, open: &OpenPool, id: Uuid, every: Period) -> Result<usize> {
        let view = self.view();
        let Some(of) = view.state.schedules.0.get(&id) else { return Ok(0) };
        let Some(rule) = of.rules.get(&every) else { return Ok(0) };
        let held = snapshots_of(open, of);
        let mut deleted = 0;
        for made in rule.beyond(|id| held.contains_key(id)) {
            let ids = made.snapshots.into_iter();
            let mut all: Vec<_> = ids.filter_map(|id| Some((id, held.get(&id)?))).collect();
            let mut kept = None;
            all.retain(|(id, path)| {
                let check = view.check_not_mapped(&Backend::Snapshot((*path).clone()));
                let is_free = check.is_ok();
                if let Err(error) = check {
                    self.tell_kept(*id, path, rule.keep, &error);
                    kept = Some(error);
                }
                is_free
            });
            if all.is_empty() || of.group.is_some() && kept.is_some() {
                continue;
            }
            let names = all.iter().map(|(_, of)| (of.volume.volume.clone(), of.snapshot.clone()));
            let done = open.delete_snapshots(&names.collect::<Vec<_>>());
            for (id, path) in all {
                match &done {
                    Ok(()) => {
                        self.runs.lock().mapped.remove(&id);
                        deleted += 1;
                    }
                    Err(error) => self.tell_kept(id, path, rule.keep, error),
                }
            }
        }
        Ok(deleted)
    }

    /// Says once why a snapshot is not deleted that is beyond what is kept.
    fn tell_kept(&self, id: Uuid, path: &SnapshotPath, keep: u32, error: &Error) {
        if self.runs.lock().mapped.insert(id) {
            let words = format!(
                "snapshot {path} is beyond the {keep} that are kept, and not deleted yet: {error}"
            );
            self.events.record(Severity::Warning, words);
        }
    }

    /// Writes down what came of a run.
    fn end_run(
        &self,
        open: &OpenPool,
        id: Uuid,
        every: Period,
        run: Run,
        error: Option<&Error>,
    ) -> Result<()> {
        let view = self.view();
        let Some(of) = view.state.schedules.0.get(&id) else { return Ok(()) };
        let held = snapshots_of(open, of);
        let error = error.map(|error| error.context.clone());
        self.change_schedule(id, move |of| {
            if let Some(rule) = of.rules.get_mut(&every) {
                match error {
                    None => rule.forget(|id| held.contains_key(id)),
                    Some(_) => rule.forget_oldest(|id| held.contains_key(id)),
                }
                rule.settled = run.due;
                rule.failed += u64::from(error.is_some());
                if error.is_none() {
                    rule.last = Some(run.at);
                }
                rule.error = error;
            }
            of.forget_former(|id| held.get(id).map(|path| &path.volume));
        })
    }
}

/// The snapshots of a schedule's volumes, by their identities.
fn snapshots_of(open: &OpenPool, of: &schedules::Schedule) -> BTreeMap<Uuid, SnapshotPath> {
    let each = |path: &VolumePath| {
        let path = path.clone();
        open.snapshots(Some(&path.volume)).into_iter().map(move |(_, snapshot)| {
            let id = Uuid::from_bytes(snapshot.volume.id());
            (id, SnapshotPath { volume: path.clone(), snapshot: snapshot.name })
        })
    };
    of.made_of().flat_map(|(_, path)| each(path)).collect()
}

/// What the snapshots of a run are called: by the template, and by a number where one of the volumes has such a one already.
fn free_name(open: &OpenPool, of: &schedules::Schedule, every: Period, at: u64) -> Result<Name> {
    let time = written(at);
    for copy in 1..=COPIES {
        let name = of.template.name(&time, every, copy)?;
        if of.volumes.values().all(|path| open.snapshot(&path.volume, &name).is_err()) {
            return Ok(name);
        }
    }
    let what = format!("there are {COPIES} snapshots of {time} already");
    Err(Error::new(Kind::Conflict, what))
}

#[cfg(test)]
mod tests;
