//! What drives had that are gone, or are to go, is moved onto the others: by itself after a while, or as an operator asks.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::v1::{Job, JobKind, JobState, Kind, RateLimit, Rebuild, Severity};
use api::value::{Name, PoolDrive};
use engine::{DriveState, DriveStatus};

use super::Node;
use super::remove::keep_vacant;
use crate::jobs::{Moving, Stop, Task, Work};
use crate::limits::DRIVE_LOOK;
use crate::pools::{Moves, OpenPool, PausedRebuild, PoolDef, is_lost};
use crate::{Error, Result};

/// The drive that a job empties, by a pool's name; `None` for one that rebuilds what is lost.
fn emptied(job: &Job, name: &Name) -> Option<Option<u16>> {
    let drive = || job.target.parse::<PoolDrive>().ok().filter(|of| of.pool == *name);
    match job.kind {
        JobKind::PoolRebuild => (job.target == name.as_str()).then_some(None),
        JobKind::DriveEvacuate | JobKind::DriveRemove => drive().map(|of| Some(of.index)),
        _ => None,
    }
}

fn none(name: &Name) -> Error {
    Error::new(Kind::NotFound, format!("no drive of pool {name} is being rebuilt or emptied"))
        .help(format!("`flashloom pool rebuild start {name}` begins a rebuild"))
}

/// What is moved, in words.
fn what(name: &Name, drive: Option<u16>) -> String {
    match drive {
        None => format!("the rebuild of pool {name}"),
        Some(index) => format!("the evacuation of drive {index} of pool {name}"),
    }
}

impl Node {
    /// Changes how fast what drives had is moved.
    ///
    /// # Errors
    /// `NotFound` when nothing is, `Conflict` while the pool is not open.
    pub fn limit_rebuild(&self, name: &Name, how: RateLimit) -> Result<Rebuild> {
        let limit = how.bytes();
        if self.paused(name)?.is_some() {
            self.remember(name, move |def| {
                if let Some(paused) = &mut def.paused {
                    paused.rebuild.limit = limit;
                }
            })?;
        } else {
            self.view().serving()?.pools.pool(name)?.limit_rebuild(limit)?;
            self.remember(name, move |def| def.rebuild_limit = limit)?;
        }
        self.rebuild(name)
    }

    /// How drives are being emptied.
    ///
    /// # Errors
    /// `NotFound` without such a pool, or when none are, nor were since it was opened.
    pub fn rebuild(&self, name: &Name) -> Result<Rebuild> {
        if let Some(paused) = self.paused(name)? {
            return Ok(paused.rebuild);
        }
        let rebuild = self.pool(name)?.status.and_then(|status| status.rebuild);
        rebuild.ok_or_else(|| {
            let what = format!("pool {name} rebuilds nothing, and did not since it was opened");
            Error::new(Kind::NotFound, what)
        })
    }

    fn paused(&self, name: &Name) -> Result<Option<PausedRebuild>> {
        self.view().serving()?.pools.paused(name).map(|paused| paused.cloned())
    }

    fn rebuild_job(&self, name: &Name) -> Option<(Job, Option<u16>)> {
        let job = self.job_that(|job| emptied(job, name).is_some())?;
        let drive = emptied(&job, name)?;
        Some((job, drive))
    }

    /// Has a rebuild or an evacuation wait until it is [resumed](Self::resume_rebuild): what was moved stays where it is,
    /// and nothing else of the pool is moved by itself.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Failed` when that cannot be written down, or the job does not end.
    pub fn pause_rebuild(&self, name: &Name) -> Result<Rebuild> {
        if let Some(paused) = self.paused(name)? {
            return Ok(paused.rebuild);
        }
        let (job, drive) = self.rebuild_job(name).ok_or_else(|| none(name))?;
        // First: were the node to end once it has stopped, it would begin again.
        let removes = job.kind == JobKind::DriveRemove;
        let drives = self.view().serving()?.pools.pool(name)?.status()?.drives;
        let begun = self.rebuild(name).unwrap_or_default();
        let paused = PausedRebuild::new(drive, &drives, removes, &begun);
        self.remember(name, move |def| def.paused = Some(paused))?;
        let ended = self.end_job_in_order(job.id, Stop::Pause);
        if self.job(job.id).is_ok_and(|job| job.state == JobState::Done) {
            self.remember(name, |def| def.paused = None)?;
            return self.rebuild(name);
        }
        ended?;
        // How far it was in the end.
        if let Ok(Some(last)) = self.moved_last(name) {
            let paused = PausedRebuild::new(drive, &drives, removes, &last);
            self.remember(name, move |def| def.paused = Some(paused))?;
        }
        let words = format!("{} is paused: what was moved stays where it is", what(name, drive));
        self.events.record(Severity::Info, words);
        self.rebuild(name)
    }

    /// What the pool itself says of what it moved last.
    fn moved_last(&self, name: &Name) -> Result<Option<Rebuild>> {
        let status = self.view().serving()?.pools.pool(name)?.status()?;
        Ok(status.rebuild.as_ref().map(crate::pools::rebuild_document))
    }

    /// What goes on with a rebuild or an evacuation that was paused.
    ///
    /// # Errors
    /// `NotFound` when none was.
    pub fn resumed_rebuild(&self, name: &Name) -> Result<Work> {
        self.paused(name)?.map(|paused| paused.work(name)).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("no rebuild of pool {name} is paused"))
                .help(format!("`flashloom pool rebuild show {name}` tells how it is"))
        })
    }

    /// Ends a rebuild or an evacuation, one that is paused too: what was moved stays where it is, and nothing more of
    /// those drives is moved by itself before they are whole.
    ///
    /// # Errors
    /// As [`pause_rebuild`](Self::pause_rebuild).
    pub fn stop_rebuild(&self, name: &Name) -> Result<()> {
        let (paused, job) = (self.paused(name)?, self.rebuild_job(name));
        if paused.is_none() && job.is_none() {
            return Err(none(name));
        }
        if let Some((job, drive)) = job {
            self.end_job_in_order(job.id, Stop::Cancel)?;
            // It may not have come to where it moves anything.
            self.note_stopped(name, self.moved_by(name, drive)?)?;
        }
        if let Some(paused) = paused {
            let words = format!("{} is ended: it was paused", what(name, paused.drive));
            let drives = paused.rebuild.drives.iter().copied().chain(paused.drive);
            self.note_stopped(name, drives.collect())?;
            self.events.record(Severity::Info, words);
            self.end_stopped(name)?;
        }
        Ok(())
    }

    /// The drives of which a job moves something: this one, or those that are lost.
    fn moved_by(&self, name: &Name, drive: Option<u16>) -> Result<Vec<u16>> {
        if let Some(drive) = drive {
            return Ok(vec![drive]);
        }
        let status = self.view().serving()?.pools.pool(name)?.status()?;
        let drives = (0..).zip(&status.drives);
        Ok(drives.filter(|(_, drive)| is_lost(drive)).map(|(index, _)| index).collect())
    }

    /// Nothing more of these drives is moved by itself: neither the one that is paused nor a removal goes on.
    pub(super) fn note_stopped(&self, name: &Name, drives: Vec<u16>) -> Result<()> {
        self.remember(name, move |def| {
            def.paused = None;
            def.removing.retain(|index, _| !drives.contains(index));
            def.stopped.extend(drives);
        })
    }

    /// Has the labels say so where the node ended before they did.
    fn end_stopped(&self, name: &Name) -> Result<()> {
        let pool = self.view().serving()?.pools.pool(name)?;
        match pool.status()?.drives.iter().any(|drive| drive.leaving) {
            true => pool.cancel_rebuild(),
            false => Ok(()),
        }
    }

    /// Does what is due about what drives have, or had.
    ///
    /// # Errors
    /// `Stopping`.
    pub(super) fn follow_moves(self: &Arc<Self>, name: &Name, moves: Moves) -> Result<()> {
        let Moves { work, said, stops, settled, replaced } = moves;
        let ended = if stops { self.end_stopped(name) } else { Ok(()) };
        let kept = match settled.is_empty() && replaced.is_empty() {
            true => Ok(()),
            false => self.remember(name, move |def| {
                def.stopped.retain(|index| !settled.contains(index));
                def.removing.retain(|index, id| replaced.get(index) != Some(id));
            }),
        };
        for error in [ended, kept].into_iter().filter_map(Result::err) {
            if error.kind == Kind::Stopping {
                return Err(error);
            }
            // It is tried again with the next look.
            tracing::warn!("what was stopped of pool {name} is not written down: {error}");
        }
        if let Some(work) = work {
            self.begin_rebuild(name, work, said);
        }
        Ok(())
    }

    pub(super) fn rebuild_pool(&self, name: &Name, how: Moving, task: &Task) -> Result<()> {
        task.step(0, 1, "moves what is lost with drives onto the others")?;
        let pool = self.view().serving()?.pools.pool(name)?;
        self.empty(&pool, None, how, task)?;
        let (severity, words) = rebuilt(name, &pool.status()?.drives);
        self.events.record(severity, words);
        Ok(())
    }

    pub(super) fn evacuate_drive(&self, of: &PoolDrive, how: Moving, task: &Task) -> Result<()> {
        task.step(0, 1, "moves what it has onto the others")?;
        self.move_away(of, how, task)
    }

    /// Moves what a drive has onto the others, which is out of use then.
    pub(super) fn move_away(&self, of: &PoolDrive, how: Moving, task: &Task) -> Result<()> {
        let pool = self.view().serving()?.pools.pool(&of.pool)?;
        self.empty(&pool, Some(of.index), how, task)?;
        // Before it is known to be out: what comes to its place from here on is somewhere else.
        let path = pool.paths().get(usize::from(of.index)).cloned().flatten();
        keep_vacant(&pool, of)?;
        if let Some(path) = path {
            pool.unlock(usize::from(of.index), &path);
        }
        let words = format!(
            "nothing of pool {} is left on its drive {}, which is out of use",
            of.pool, of.index
        );
        self.events.record(Severity::Info, words);
        Ok(())
    }

    /// Moves what a drive has, or what those had that are gone, onto the others, and waits for its end: also where a drive
    /// came back meanwhile, or another one came there, of which nothing is moved any more.
    pub(super) fn empty(
        &self,
        pool: &OpenPool,
        drive: Option<u16>,
        how: Moving,
        task: &Task,
    ) -> Result<()> {
        let emptied = self.empty_while_open(pool, drive, how, task);
        // What is said of it means nothing where the pool was closed, or opened again, in the midst of it.
        self.check_still_open(pool)?;
        emptied
    }

    fn empty_while_open(
        &self,
        pool: &OpenPool,
        drive: Option<u16>,
        how: Moving,
        task: &Task,
    ) -> Result<()> {
        let name = pool.name();
        let paused = match self.paused(name)? {
            Some(paused) if !how.resumes => {
                let what = format!("{} is paused", what(name, paused.drive));
                return Err(Error::new(Kind::Conflict, what).help(format!(
                    "`flashloom pool rebuild resume {name}` has it go on, `stop` ends it"
                )));
            }
            None if how.resumes => return Err(Error::new(Kind::Conflict, "it goes on already")),
            paused => paused,
        };
        let Some(paused) = paused else {
            let before = self.begin_to_remember(name, drive, how.limit)?;
            if let Err(error) = begin(pool, drive, how.limit) {
                self.remember(name, move |def| (def.rebuild_limit, def.stopped) = before)?;
                return Err(error);
            }
            return self.follow_rebuild(pool, task);
        };
        let begun = begin_again(pool, &paused, how.limit)?;
        let words = match begun {
            true => format!("{} goes on", what(name, drive)),
            false => format!("nothing is left of {}", what(name, drive)),
        };
        self.events.record(Severity::Info, words);
        // Not before: were the node to end meanwhile, it would be forgotten.
        let goes_on = move |def: &mut PoolDef| {
            (def.paused, def.rebuild_limit) = (None, how.limit);
        };
        if let Err(error) = self.remember(name, goes_on) {
            let words = format!("that it goes on is not written down: {error}");
            self.events.record(Severity::Warning, words);
        }
        if begun { self.follow_rebuild(pool, task) } else { Ok(()) }
    }

    /// What there is to remember of work that begins now: how fast it may go, and that it was not stopped. As it was
    /// before.
    fn begin_to_remember(
        &self,
        name: &Name,
        drive: Option<u16>,
        limit: u64,
    ) -> Result<(u64, BTreeSet<u16>)> {
        let defs = self.view().serving()?.pools.defs();
        let Some(def) = defs.get(name) else { return Ok((limit, BTreeSet::new())) };
        let before = (def.rebuild_limit, def.stopped.clone());
        let mut stopped = before.1.clone();
        stopped.retain(|index| drive.is_some_and(|drive| drive != *index));
        if before != (limit, stopped.clone()) {
            let now = (limit, stopped);
            self.remember(name, move |def| (def.rebuild_limit, def.stopped) = now)?;
        }
        Ok(before)
    }

    /// Waits for its end.
    fn follow_rebuild(&self, pool: &OpenPool, task: &Task) -> Result<()> {
        loop {
            let status = pool.status_in(DRIVE_LOOK)?;
            let Some(rebuild) = status.rebuild else { return Ok(()) };
            task.moved(rebuild.done.min(rebuild.bytes), rebuild.bytes);
            if !rebuild.is_under_way {
                return match rebuild.failure {
                    None => Ok(()),
                    Some(why) => Err(Error::new(Kind::Failed, format!("it was given up: {why}"))
                        .help(
                            "what was moved stays where it is: add a drive, or make room; where something cannot be \
                             read, put the drive back that is gone, or another one in its place (`flashloom drive \
                             replace`): what nothing gives any more is told as lost then, and the rest is whole",
                        )),
                };
            }
            if task.goes_on().is_err() {
                // First: were the node to end in between, it would go on.
                let kept = match task.is_paused() {
                    true => Ok(()),
                    false => self.note_stopped(pool.name(), rebuild.drives.clone()),
                };
                pool.cancel_rebuild()?;
                if let Err(error) = kept {
                    let words = format!(
                        "that a rebuild of pool {} was stopped is not written down, and may begin again: {error}",
                        pool.name()
                    );
                    self.events.record(Severity::Warning, words);
                }
                if !task.is_paused() {
                    let what = "the job was cancelled: what was moved by then stays where it is";
                    return Err(Error::new(Kind::Conflict, what));
                }
                let what = "what was moved by then stays where it is";
                return Err(Error::new(Kind::Conflict, what).help(format!(
                    "`flashloom pool rebuild resume {}` has it go on",
                    pool.name()
                )));
            }
        }
    }

    /// Begins what is due by itself.
    pub(super) fn begin_rebuild(self: &Arc<Self>, name: &Name, work: Work, said: Option<String>) {
        // What it is about may have been asked for meanwhile.
        if self.rebuild_job(name).is_some() {
            return;
        }
        let words = match self.submit_own(work) {
            Ok(_) => said,
            Err(error) => Some(format!("nothing is rebuilt: {error}")),
        };
        words.into_iter().for_each(|words| self.events.record(Severity::Warning, words));
    }

    /// Nothing is left of a rebuild that was paused.
    pub(super) fn forget_pause(&self, name: &Name) {
        match self.remember(name, |def| def.paused = None) {
            Ok(()) => {
                let words =
                    format!("nothing is left to rebuild of pool {name}: it is not paused any more");
                self.events.record(Severity::Info, words);
            }
            // It is tried again with the next look.
            Err(error) => tracing::warn!("that is not written down of pool {name}: {error}"),
        }
    }
}

/// What is to be said of a pool that was rebuilt, and has these drives: one may have failed since, or only came back.
fn rebuilt(name: &Name, drives: &[DriveStatus]) -> (Severity, String) {
    let lacks = |drive: &DriveStatus| drive.state != DriveState::Online && !drive.vacant;
    let lacking = drives.iter().enumerate().filter(|(_, drive)| lacks(drive));
    let lacking: Vec<_> = lacking.map(|(index, _)| index.to_string()).collect();
    if lacking.is_empty() {
        let words = "whole, without the drives that are gone";
        return (Severity::Info, format!("the redundancy of pool {name} is {words}"));
    }
    let words = format!(
        "the rebuild of pool {name} is over, and its redundancy is not whole: it lacks drive {} now",
        lacking.join(", ")
    );
    (Severity::Warning, words)
}

/// Begins to empty a drive that works, or those that are gone.
fn begin(pool: &OpenPool, drive: Option<u16>, limit: u64) -> Result<()> {
    match drive {
        Some(index) => pool.evacuate(index, limit),
        None => pool.rebuild(limit),
    }
}

/// Begins again with what is left of what was paused; false when that is nothing.
fn begin_again(pool: &OpenPool, paused: &PausedRebuild, limit: u64) -> Result<bool> {
    let drives = pool.status()?.drives;
    if paused.is_moot(&drives) {
        return Ok(false);
    }
    let is_there = |index: &u16| {
        drives.get(usize::from(*index)).is_some_and(|drive| drive.state == DriveState::Online)
    };
    // One that failed meanwhile is rebuilt.
    begin(pool, paused.drive.filter(is_there), limit)?;
    Ok(true)
}
