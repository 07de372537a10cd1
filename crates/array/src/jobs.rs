//! Jobs: work that may take long, with an identity. What takes long, or was asked for by a request that is to be known
//! again, is kept in the state directory: what was under way when the daemon ended is listed as that, never silently gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::v1::{
    Consent, DriveReplacement, Job, JobBytes, JobKind, JobProgress, JobState, Kind, LogMove,
    LogMoved, NewDrives, NewGroupClone, NewPool, NewVolume, PoolImport, RateLimit, VolumeChange,
};
use api::value::{GroupPath, GroupSnapshotPath, Name, PoolDrive, VolumePath};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits::{JOB_BRIEF, JOBS_KEPT, JOBS_UNDER_WAY};
use crate::state::{State, StateDir};
use crate::{Error, Result, events};

mod file;

/// How what drives have, or had, is moved onto the others.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Moving {
    /// Bytes in a second at most; 0 for as many as there is time for.
    pub limit: u64,
    /// It was paused, and goes on.
    pub resumes: bool,
}

impl From<RateLimit> for Moving {
    fn from(limit: RateLimit) -> Self {
        Self { limit: limit.bytes(), resumes: false }
    }
}

/// What a job is to do.
#[derive(Clone, Debug, Serialize)]
pub enum Work {
    CreatePool(NewPool),
    ImportPool(PoolImport),
    ExportPool(Name),
    DeletePool(Name, Consent),
    MoveLog(Name, LogMove),
    AddDrives(Name, NewDrives),
    Rebuild(Name, Moving),
    Scrub(Name, RateLimit),
    EvacuateDrive(PoolDrive, Moving),
    RemoveDrive(PoolDrive, Moving, Consent),
    FailDrive(PoolDrive),
    RejoinDrive(PoolDrive),
    /// One that is being made whole already.
    FollowRejoin(PoolDrive),
    ReplaceDrive(PoolDrive, DriveReplacement),
    UseSpare(PoolDrive, Uuid),
    RelieveDrive(PoolDrive, Uuid),
    CreateVolume(Name, NewVolume),
    ChangeVolume(VolumePath, VolumeChange, Consent),
    DetachVolume(VolumePath),
    DeleteVolume(VolumePath, Consent),
    CloneGroup(GroupSnapshotPath, NewGroupClone),
}

impl Work {
    const fn kind(&self) -> JobKind {
        match self {
            Self::CreatePool(_) => JobKind::PoolCreate,
            Self::ImportPool(_) => JobKind::PoolImport,
            Self::ExportPool(_) => JobKind::PoolExport,
            Self::DeletePool(..) => JobKind::PoolDelete,
            Self::MoveLog(..) => JobKind::LogMove,
            Self::AddDrives(..) => JobKind::DriveAdd,
            Self::Rebuild(..) => JobKind::PoolRebuild,
            Self::Scrub(..) => JobKind::PoolScrub,
            Self::EvacuateDrive(..) | Self::RelieveDrive(..) => JobKind::DriveEvacuate,
            Self::RemoveDrive(..) => JobKind::DriveRemove,
            Self::FailDrive(_) => JobKind::DriveFail,
            Self::RejoinDrive(_) | Self::FollowRejoin(_) => JobKind::DriveRejoin,
            Self::ReplaceDrive(..) | Self::UseSpare(..) => JobKind::DriveReplace,
            Self::CreateVolume(..) => JobKind::VolumeCreate,
            Self::ChangeVolume(..) => JobKind::VolumeChange,
            Self::DetachVolume(_) => JobKind::VolumeDetach,
            Self::DeleteVolume(..) => JobKind::VolumeDelete,
            Self::CloneGroup(..) => JobKind::GroupClone,
        }
    }

    fn target(&self) -> String {
        match self {
            Self::CreatePool(new) => new.name.to_string(),
            // Whose drives they are is found out.
            Self::ImportPool(from) => {
                from.name.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
            }
            Self::ExportPool(name)
            | Self::DeletePool(name, _)
            | Self::MoveLog(name, _)
            | Self::AddDrives(name, _)
            | Self::Rebuild(name, _)
            | Self::Scrub(name, _) => name.to_string(),
            Self::FailDrive(of)
            | Self::RejoinDrive(of)
            | Self::FollowRejoin(of)
            | Self::ReplaceDrive(of, _)
            | Self::UseSpare(of, _)
            | Self::RelieveDrive(of, _)
            | Self::EvacuateDrive(of, _)
            | Self::RemoveDrive(of, ..) => of.to_string(),
            Self::CreateVolume(pool, new) => format!("{pool}/{}", new.name),
            Self::ChangeVolume(path, ..)
            | Self::DetachVolume(path)
            | Self::DeleteVolume(path, _) => path.to_string(),
            Self::CloneGroup(_, new) => new.name.to_string(),
        }
    }

    /// Whether it is done in moments, mostly: what is to be written is the pool's own.
    const fn is_brief(&self) -> bool {
        matches!(
            self,
            Self::FailDrive(_)
                | Self::CreateVolume(..)
                | Self::ChangeVolume(..)
                | Self::DeleteVolume(..)
                | Self::CloneGroup(..)
        )
    }

    /// What tells this request from another one.
    fn digest(&self) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_OID, &serde_json::to_vec(self).unwrap_or_default())
    }
}

/// What came of a job.
#[derive(Debug)]
pub enum Made {
    Pool(Name),
    Volume(VolumePath),
    Group(GroupPath),
    LogMoved(LogMoved),
    /// What it did is to be seen in this pool.
    In(Name),
    Nothing,
}

/// A job as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub job: Job,
    /// Of its request: the same key with another request is a mistake.
    digest: Uuid,
    /// The node had a pool of that name when it was asked for.
    #[serde(default)]
    was_known: bool,
    /// It is written down: those that end in moments are not, and gone with the daemon.
    #[serde(skip)]
    is_kept: bool,
    #[serde(skip)]
    stage: Arc<Stage>,
}

impl Record {
    /// The document, as far as it has come.
    pub fn document(&self) -> Job {
        let stage = self.stage.lock();
        let mut job = self.job.clone();
        if !job.state.is_over() {
            job.state = if stage.is_running { JobState::Running } else { JobState::Queued };
            job.progress = stage.progress.clone();
            job.cancelling = stage.is_cancelled;
        }
        if let Some((_, target)) = &stage.subject {
            job.target.clone_from(target);
        }
        job
    }

    /// Whether it is under way, and about what this identifies.
    pub fn is_about(&self, id: Uuid) -> bool {
        let is_it = |(subject, _): &(Uuid, String)| *subject == id;
        !self.job.state.is_over() && self.stage.lock().subject.as_ref().is_some_and(is_it)
    }

    /// Whether it takes long by now, and is not written down.
    pub fn is_long(&self) -> bool {
        let age = Duration::from_millis(events::now_ms().saturating_sub(self.job.created_ms));
        !self.is_kept && !self.job.state.is_over() && age >= JOB_BRIEF
    }
}

/// All jobs there are, by id.
pub type Listed = Arc<BTreeMap<u64, Arc<Record>>>;

/// How far a job has come: written by its thread, read by whoever looks, each for a moment.
#[derive(Debug, Default)]
struct Stage(Mutex<At>);

#[derive(Debug, Default)]
struct At {
    progress: JobProgress,
    is_running: bool,
    is_cancelled: bool,
    /// That is a pause.
    is_paused: bool,
    /// It is too late to cancel it.
    is_committed: bool,
    /// When the bytes of this step were counted first, and how many were done by then.
    began: Option<(reactor::Nanos, u64)>,
    /// What it is about, and what that is called now.
    subject: Option<(Uuid, String)>,
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, At> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job, for whoever does its work.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// 0: of no job.
    job: u64,
    stage: Arc<Stage>,
}

impl Task {
    /// Of which job; 0 of none.
    pub const fn job(&self) -> u64 {
        self.job
    }

    /// What it is about has this identity for ever, and is called so now.
    pub fn note_subject(&self, id: Uuid, target: String) {
        self.stage.lock().subject = Some((id, target));
    }

    /// Begins a step, of so many, that changes nothing yet.
    ///
    /// # Errors
    /// `Conflict` when the job was cancelled.
    pub fn step(&self, done: u32, steps: u32, step: &str) -> Result<()> {
        self.enter(done, steps, step, false)
    }

    /// Begins a step from which on it is too late to cancel.
    ///
    /// # Errors
    /// `Conflict` when the job was cancelled.
    pub fn commit(&self, done: u32, steps: u32, step: &str) -> Result<()> {
        self.enter(done, steps, step, true)
    }

    fn enter(&self, done: u32, steps: u32, step: &str, commits: bool) -> Result<()> {
        let mut at = self.stage.lock();
        if at.is_cancelled {
            return Err(at.stopped(self.job));
        }
        at.is_running = true;
        at.is_committed |= commits;
        at.began = None;
        at.progress = JobProgress { step: step.to_owned(), done, steps, bytes: None };
        Ok(())
    }

    /// Says in other words what this step does.
    pub fn say(&self, step: &str) {
        step.clone_into(&mut self.stage.lock().progress.step);
    }

    /// What this step does.
    #[cfg(test)]
    pub fn said(&self) -> String {
        self.stage.lock().progress.step.clone()
    }

    /// Tells of the bytes that this step has done, of so many.
    pub fn moved(&self, done: u64, all: u64) {
        let mut at = self.stage.lock();
        let now = reactor::now_exact();
        let (since, before) = *at.began.get_or_insert((now, done));
        let spent = Duration::from_nanos(now.saturating_sub(since)).as_millis();
        let fresh = u128::from(done.saturating_sub(before));
        let rate = (fresh * 1000).checked_div(spent).unwrap_or(0);
        let per_second = u64::try_from(rate).unwrap_or(u64::MAX);
        let left_seconds = all.saturating_sub(done).checked_div(per_second);
        at.progress.bytes = Some(JobBytes { done, all, per_second, left_seconds });
    }

    /// Whether it is to go on.
    ///
    /// # Errors
    /// `Conflict` when the job was cancelled.
    pub fn goes_on(&self) -> Result<()> {
        let at = self.stage.lock();
        if at.is_cancelled { Err(at.stopped(self.job)) } else { Ok(()) }
    }

    /// Whether it is to stop only to be gone on with later.
    pub fn is_paused(&self) -> bool {
        self.stage.lock().is_paused
    }
}

impl At {
    /// What whoever waits for a job is told that is to stop.
    fn stopped(&self, job: u64) -> Error {
        match self.is_paused {
            true => Error::new(Kind::Conflict, format!("job {job} was paused")),
            false => cancelled(job),
        }
    }
}

/// Why a job is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Cancel,
    /// Another job goes on with it later.
    Pause,
}

/// What whoever waits for a cancelled job is told.
fn cancelled(job: u64) -> Error {
    Error::new(Kind::Conflict, format!("job {job} was cancelled, and nothing was changed"))
        .help("ask for it again if it is wanted after all")
}

/// All jobs of the node.
#[derive(Debug)]
pub struct Jobs {
    next: u64,
    /// The file says that numbers below this one were given.
    written_next: u64,
    all: Listed,
    /// The file does not have all that it should.
    is_unsaved: bool,
    /// No more are taken.
    is_closed: bool,
}

/// How a job was asked for.
#[derive(Debug)]
pub struct Asked {
    /// By whom.
    pub by: String,
    /// The same request with the same key is the same job.
    pub key: Option<String>,
    /// The answer is the job: nobody waits for its end.
    pub is_async: bool,
    /// The node needs it itself: it is begun although it cannot be written down just now.
    pub is_own: bool,
}

/// A job that was asked for.
#[derive(Debug)]
pub enum Begun {
    /// The request was there before.
    Before(Job),
    New(Job, Task),
}

impl Jobs {
    /// All there are.
    pub fn listed(&self) -> Listed {
        Arc::clone(&self.all)
    }

    /// Whether something is to be written down that could not be.
    pub const fn is_unsaved(&self) -> bool {
        self.is_unsaved
    }

    /// Takes no more.
    ///
    /// # Errors
    /// `Failed` when what there is cannot be written down.
    pub fn close(&mut self, dir: &StateDir) -> Result<()> {
        self.is_closed = true;
        if self.is_unsaved || self.written_next != self.next { self.save(dir) } else { Ok(()) }
    }

    /// Takes a request, unless one with the same key is under way or done: then that is it.
    ///
    /// # Errors
    /// `Conflict` for a key that another request had, `Limit`, `Failed` when it cannot be written down, `Stopping`.
    pub fn begin(
        &mut self,
        dir: &StateDir,
        state: &State,
        work: &Work,
        Asked { by, key, is_async, is_own }: Asked,
    ) -> Result<Begun> {
        if let Some(before) = key.as_deref().and_then(|key| self.with_key(key)) {
            if before.digest != work.digest() {
                let what =
                    format!("the key was given with another request, {}", before.job.title());
                return Err(Error::new(Kind::Conflict, what).help("give each request its own key"));
            }
            return Ok(Begun::Before(before.document()));
        }
        if self.is_closed {
            return Err(Error::new(Kind::Stopping, "the daemon is stopping"));
        }
        if self.under_way() >= JOBS_UNDER_WAY {
            let what = format!("{JOBS_UNDER_WAY} jobs are under way");
            return Err(
                Error::new(Kind::Limit, what).help("wait for some to end: `flashloom job list`")
            );
        }
        let id = self.next;
        // Whoever waits for the end of what is brief is told of it, or that there is no daemon any more.
        let is_kept = is_async || key.is_some() || !work.is_brief();
        let job = Job {
            id,
            kind: work.kind(),
            target: work.target(),
            state: JobState::Queued,
            by,
            key,
            created_ms: events::now_ms(),
            ended_ms: None,
            progress: JobProgress {
                step: "waits for its turn".to_owned(),
                done: 0,
                steps: 1,
                bytes: None,
            },
            cancelling: false,
            error: None,
            continued_by: None,
            result: None,
            log_moved: None,
        };
        let task = Task { job: id, stage: Arc::default() };
        task.stage.lock().progress = job.progress.clone();
        let record = Record {
            digest: work.digest(),
            was_known: pool_of(&job).is_some_and(|name| state.pools.contains_key(&name)),
            is_kept,
            stage: Arc::clone(&task.stage),
            job: job.clone(),
        };
        Arc::make_mut(&mut self.all).insert(id, Arc::new(record));
        self.next += 1;
        let before = self.gone_on_with(work);
        if let Some(before) = before {
            self.change(before, |job| job.continued_by = Some(id));
        }
        // What is to be kept and cannot be written down is not begun, unless drives' labels keep it anyway: redundancy comes
        // back, whatever the state directory is.
        if (is_kept || self.written_next < self.next)
            && let Err(error) = self.save(dir)
            && is_kept
            && !is_own
        {
            Arc::make_mut(&mut self.all).remove(&id);
            if let Some(before) = before {
                self.change(before, |job| job.continued_by = None);
            }
            return Err(error);
        }
        Ok(Begun::New(job, task))
    }

    /// The key of the request for a pool's deletion that was cut short, if it had one: whoever asks again is given what goes
    /// on with it.
    pub fn key_of_deletion(&self, name: &Name) -> Option<String> {
        let is_of_it = |job: &Job| {
            job.kind == JobKind::PoolDelete && pool_of(job).is_some_and(|pool| pool == *name)
        };
        let last = self.all.values().rev().find(|record| is_of_it(&record.job))?;
        let was_cut_short = matches!(last.job.state, JobState::Interrupted | JobState::Failed);
        last.job.key.clone().filter(|_| was_cut_short)
    }

    /// The job that was interrupted, and goes on with this work, or was asked for again by it.
    fn gone_on_with(&self, work: &Work) -> Option<u64> {
        let (kind, target) = (work.kind(), work.target());
        let is_it = |job: &Job| match job.kind {
            // The new drive is made whole like any other. Without the place, the old one is what comes back.
            JobKind::DriveReplace if kind == JobKind::DriveRejoin => has_place(job),
            of => of == kind && kind.goes_on(),
        };
        let ended = || self.all.values().rev().map(|record| &record.job);
        let cut_short = ended()
            .find(|job| job.state == JobState::Interrupted && job.target == target && is_it(job))?;
        let is_done_since = |job: &Job| {
            job.state == JobState::Done && job.kind == cut_short.kind && job.target == target
        };
        let is_open = cut_short.continued_by.is_none()
            && !ended().take_while(|job| job.id > cut_short.id).any(is_done_since);
        is_open.then_some(cut_short.id)
    }

    /// One that did not do what was asked for holds no key: the request may be tried again.
    fn with_key(&self, key: &str) -> Option<&Arc<Record>> {
        self.all.values().rev().find(|record| {
            let state = record.job.state;
            record.job.key.as_deref() == Some(key) && (!state.is_over() || state == JobState::Done)
        })
    }

    fn under_way(&self) -> usize {
        self.all.values().filter(|record| !record.job.state.is_over()).count()
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Job)) {
        if let Some(record) = Arc::make_mut(&mut self.all).get_mut(&id) {
            change(&mut Arc::make_mut(record).job);
        }
    }

    /// Asks a job to stop before it changes anything.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` when it is too late.
    pub fn cancel(&mut self, id: u64, why: Stop) -> Result<Job> {
        let record = self.all.get(&id).ok_or_else(|| no_job(id))?;
        let (title, state) = (record.job.title(), record.job.state);
        if state.is_over() {
            let what = format!("{title} is over: it is {}", state.name());
            return Err(Error::new(Kind::Conflict, what)
                .help(format!("`flashloom job show {id}` tells what came of it")));
        }
        let mut at = record.stage.lock();
        if at.is_committed {
            let what = format!("{title} changes what is there by now, and cannot be cancelled");
            return Err(Error::new(Kind::Conflict, what)
                .help(format!("`flashloom job wait {id}` waits for its end")));
        }
        at.is_paused |= why == Stop::Pause;
        at.is_cancelled = true;
        drop(at);
        Ok(record.document())
    }

    /// Takes what came of a job, and gives it as it is now.
    ///
    /// # Errors
    /// `Failed` when that cannot be written down; it is known all the same.
    pub fn end(
        &mut self,
        dir: &StateDir,
        task: &Task,
        result: Result<Made>,
    ) -> Result<Option<Job>> {
        let at = task.stage.lock();
        let (was_cancelled, was_paused) = (at.is_cancelled, at.is_paused);
        let progress = at.progress.clone();
        drop(at);
        self.change(task.job, |job| {
            job.ended_ms = Some(events::now_ms());
            job.progress = progress;
            match result {
                Ok(made) => tell(job, made),
                Err(error) => {
                    job.state = match error.kind {
                        _ if was_paused => JobState::Paused,
                        _ if was_cancelled => JobState::Cancelled,
                        Kind::Stopping => JobState::Interrupted,
                        _ => JobState::Failed,
                    };
                    job.error = Some(error.problem());
                }
            }
        });
        // Those that are kept are not forgotten for those that are not: a key may be asked for again.
        for is_kept in [true, false] {
            self.forget(is_kept);
        }
        let Some(record) = self.all.get(&task.job).cloned() else { return Ok(None) };
        if record.is_kept {
            self.save(dir)?;
        }
        Ok(Some(record.document()))
    }

    /// Forgets those that have been over for longest.
    fn forget(&mut self, is_kept: bool) {
        let is_over =
            |record: &&Arc<Record>| record.is_kept == is_kept && record.job.state.is_over();
        let over: Vec<_> = self.all.values().filter(is_over).map(|record| record.job.id).collect();
        for id in over.iter().take(over.len().saturating_sub(JOBS_KEPT)) {
            Arc::make_mut(&mut self.all).remove(id);
        }
    }

    /// Writes down those that take long by now, what could not be written down before, and one that was told of.
    ///
    /// # Errors
    /// `Failed`.
    pub fn keep(&mut self, dir: &StateDir, also: Option<u64>) -> Result<()> {
        let is_due = |record: &&Arc<Record>| {
            record.is_long() || (also == Some(record.job.id) && !record.is_kept)
        };
        let long = self.all.values().filter(is_due);
        let long: Vec<_> = long.map(|record| record.job.id).collect();
        if long.is_empty() && !self.is_unsaved {
            return Ok(());
        }
        for id in long {
            if let Some(record) = Arc::make_mut(&mut self.all).get_mut(&id) {
                Arc::make_mut(record).is_kept = true;
            }
        }
        self.save(dir)
    }
}

fn tell(job: &mut Job, made: Made) {
    job.state = JobState::Done;
    job.progress.done = job.progress.steps;
    match made {
        Made::Pool(name) => {
            job.target = name.to_string();
            job.result = Some(format!("/v1/pools/{name}"));
        }
        Made::Volume(path) => {
            job.result = Some(format!("/v1/pools/{}/volumes/{}", path.pool, path.volume));
        }
        Made::Group(path) => {
            job.result = Some(format!("/v1/pools/{}/groups/{}", path.pool, path.group));
        }
        Made::LogMoved(moved) => {
            job.result = Some(format!("/v1/pools/{}", moved.pool));
            job.log_moved = Some(moved);
        }
        Made::In(pool) => job.result = Some(format!("/v1/pools/{pool}")),
        Made::Nothing => {}
    }
}

/// Whether the drive that a [replacement](JobKind::DriveReplace) puts somewhere has the place, as far as is known: that
/// is settled when its last step begins. Of one that was killed it is not known.
pub fn has_place(job: &Job) -> bool {
    job.progress.steps > 1 && job.progress.done + 1 >= job.progress.steps
}

/// Whether the node goes on by itself with a job that was cut short.
pub fn goes_on(job: &Job) -> bool {
    job.kind.goes_on() && (job.kind != JobKind::DriveReplace || has_place(job))
}

/// The pool that a job is about, where that is known before it is done.
fn pool_of(job: &Job) -> Option<Name> {
    job.target.split('/').next().and_then(|name| name.parse().ok())
}

pub fn no_job(id: u64) -> Error {
    Error::new(Kind::NotFound, format!("there is no job {id}, or it is forgotten by now"))
        .help("`flashloom job list` shows those there are")
}

#[cfg(test)]
mod tests;
