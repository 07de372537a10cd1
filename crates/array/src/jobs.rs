//! Jobs: work that takes long, with an identity, kept in the state directory. What was under way when the daemon
//! ended is listed as that, never silently gone.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::v1::{
    Job, JobKind, JobProgress, JobState, Kind, LogMove, LogMoved, NewPool, NewVolume, PoolImport,
    Problem, VolumeChange, VolumeDeletion,
};
use api::value::{Name, VolumePath};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits::{JOBS_BYTES, JOBS_KEPT, JOBS_UNDER_WAY};
use crate::state::{State, StateDir, read_file, replace_file};
use crate::{Error, Result, events};

/// The jobs' file in the state directory.
const FILE: &str = "jobs.json";

/// What a job is to do.
#[derive(Clone, Debug, Serialize)]
pub enum Work {
    CreatePool(NewPool),
    ImportPool(PoolImport),
    ExportPool(Name),
    MoveLog(Name, LogMove),
    CreateVolume(Name, NewVolume),
    ChangeVolume(VolumePath, VolumeChange),
    DeleteVolume(VolumePath, VolumeDeletion),
}

impl Work {
    const fn kind(&self) -> JobKind {
        match self {
            Self::CreatePool(_) => JobKind::PoolCreate,
            Self::ImportPool(_) => JobKind::PoolImport,
            Self::ExportPool(_) => JobKind::PoolExport,
            Self::MoveLog(..) => JobKind::LogMove,
            Self::CreateVolume(..) => JobKind::VolumeCreate,
            Self::ChangeVolume(..) => JobKind::VolumeChange,
            Self::DeleteVolume(..) => JobKind::VolumeDelete,
        }
    }

    fn target(&self) -> String {
        match self {
            Self::CreatePool(new) => new.name.to_string(),
            // Whose drives they are is found out.
            Self::ImportPool(from) => {
                from.name.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
            }
            Self::ExportPool(name) | Self::MoveLog(name, _) => name.to_string(),
            Self::CreateVolume(pool, new) => format!("{pool}/{}", new.name),
            Self::ChangeVolume(path, _) | Self::DeleteVolume(path, _) => path.to_string(),
        }
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
    LogMoved(LogMoved),
    Nothing,
}

/// A job as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub job: Job,
    /// Of its request: the same key with another request is a mistake.
    digest: Uuid,
    #[serde(skip)]
    stage: Arc<Stage>,
}

impl Record {
    /// The document, as far as it has come.
    pub fn document(&self) -> Job {
        let stage = self.stage.lock();
        let mut job = self.job.clone();
        if !job.state.is_over() {
            job.progress = stage.progress.clone();
            job.cancelling = stage.is_cancelled;
        }
        job
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
    is_cancelled: bool,
    /// It is too late to cancel it.
    is_committed: bool,
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
            return Err(cancelled(self.job));
        }
        at.is_committed |= commits;
        at.progress = JobProgress { step: step.to_owned(), done, steps };
        Ok(())
    }

    /// Whether it is to go on.
    ///
    /// # Errors
    /// `Conflict` when the job was cancelled.
    pub fn goes_on(&self) -> Result<()> {
        if self.is_cancelled() { Err(cancelled(self.job)) } else { Ok(()) }
    }

    fn is_cancelled(&self) -> bool {
        self.stage.lock().is_cancelled
    }
}

/// What whoever waits for a cancelled job is told.
pub fn cancelled(job: u64) -> Error {
    Error::new(Kind::Conflict, format!("job {job} was cancelled, and nothing was changed"))
}

/// All jobs of the node.
#[derive(Debug)]
pub struct Jobs {
    next: u64,
    all: Listed,
    /// No more are taken.
    is_closed: bool,
}

/// What is kept of them.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    next: u64,
    jobs: Vec<Record>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { version: 1, next: 1, jobs: Vec::new() }
    }
}

fn read(file: &Path) -> io::Result<Kept> {
    let text = match read_file(file, JOBS_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        text => text?,
    };
    let kept: Kept = serde_json::from_slice(&text)?;
    if kept.version != 1 {
        return Err(io::Error::other(format!("version {} is not 1", kept.version)));
    }
    Ok(kept)
}

/// A job that was asked for.
#[derive(Debug)]
pub enum Begun {
    /// The request was there before.
    Before(Job),
    New(Job, Task),
}

impl Jobs {
    /// The jobs that are kept. Those that were under way are interrupted, unless `state` tells that they are done; gives
    /// what is to be said of the others. A list that cannot be read is put aside: hosts do not wait for it.
    pub fn load(dir: &StateDir, state: &State) -> (Self, Vec<String>) {
        let file = dir.path().join(FILE);
        let (kept, damage) = match read(&file) {
            Ok(kept) => (kept, None),
            Err(error) => {
                let aside = file.with_extension("json.damaged");
                let moved = std::fs::rename(&file, &aside);
                let to =
                    moved.map_or_else(|error| error.to_string(), |()| aside.display().to_string());
                let words = format!(
                    "{} cannot be read: {error}; what jobs did stays, and their list begins anew (the old one: {to})",
                    file.display()
                );
                (Kept::default(), Some(words))
            }
        };
        let (mut all, mut said) = (BTreeMap::new(), Vec::from_iter(damage));
        let mut settled = false;
        for mut record in kept.jobs {
            if !record.job.state.is_over() {
                settle(&mut record.job, state);
                settled = true;
                let error = record.job.error.as_ref();
                said.extend(error.map(|error| format!("{}: {error}", record.job.title())));
            }
            all.insert(record.job.id, Arc::new(record));
        }
        let jobs = Self { next: kept.next, all: Arc::new(all), is_closed: false };
        // What became of them is told by how the node is now: later it may be another way.
        if settled && let Err(error) = jobs.save(dir) {
            said.push(format!("what became of jobs is not written down: {error}"));
        }
        (jobs, said)
    }

    /// All there are.
    pub fn listed(&self) -> Listed {
        Arc::clone(&self.all)
    }

    /// Takes no more.
    pub const fn close(&mut self) {
        self.is_closed = true;
    }

    /// Takes a request, unless one with the same key is under way or done: then that is it.
    ///
    /// # Errors
    /// `Conflict` for a key that another request had, `Limit`, `Failed` when it cannot be written down, `Stopping`.
    pub fn begin(
        &mut self,
        dir: &StateDir,
        work: &Work,
        by: String,
        key: Option<String>,
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
        let job = Job {
            id,
            kind: work.kind(),
            target: work.target(),
            state: JobState::Queued,
            by,
            key,
            created_ms: events::now_ms(),
            ended_ms: None,
            progress: JobProgress { step: "waits for its turn".to_owned(), done: 0, steps: 1 },
            cancelling: false,
            error: None,
            result: None,
            log_moved: None,
        };
        let task = Task { job: id, stage: Arc::default() };
        task.stage.lock().progress = job.progress.clone();
        let stage = Arc::clone(&task.stage);
        let before = Arc::clone(&self.all);
        let all = Arc::make_mut(&mut self.all);
        let record = Record { job: job.clone(), digest: work.digest(), stage };
        all.insert(id, Arc::new(record));
        self.next += 1;
        // What cannot be written down is not begun.
        if let Err(error) = self.save(dir) {
            self.all = before;
            return Err(error);
        }
        Ok(Begun::New(job, task))
    }

    /// One that did not do what was asked for holds no key: the request may be tried again.
    fn with_key(&self, key: &str) -> Option<&Arc<Record>> {
        self.all.values().rev().find(|record| {
            let state = record.job.state;
            record.job.key.as_deref() == Some(key) && (!state.is_over() || state == JobState::Done)
        })
    }

    /// How many are not over.
    pub fn under_way(&self) -> usize {
        self.all.values().filter(|record| !record.job.state.is_over()).count()
    }

    /// A job's turn has come.
    pub fn run(&mut self, id: u64) {
        self.change(id, |job| job.state = JobState::Running);
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
    pub fn cancel(&mut self, id: u64) -> Result<Job> {
        let record = self.all.get(&id).ok_or_else(|| no_job(id))?;
        let (title, state) = (record.job.title(), record.job.state);
        if state.is_over() {
            let what = format!("{title} is over: it is {}", state.name());
            return Err(Error::new(Kind::Conflict, what));
        }
        let mut at = record.stage.lock();
        if at.is_committed {
            let what = format!("{title} changes what is there by now, and cannot be cancelled");
            return Err(Error::new(Kind::Conflict, what)
                .help(format!("`flashloom job wait {id}` waits for its end")));
        }
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
        let was_cancelled = task.is_cancelled();
        let progress = task.stage.lock().progress.clone();
        self.change(task.job, |job| {
            job.ended_ms = Some(events::now_ms());
            job.progress = progress;
            match result {
                Ok(made) => tell(job, made),
                Err(error) => {
                    job.state = match error.kind {
                        _ if was_cancelled => JobState::Cancelled,
                        Kind::Stopping => JobState::Interrupted,
                        _ => JobState::Failed,
                    };
                    job.error = Some(error.problem());
                }
            }
        });
        let over = self.all.values().filter(|record| record.job.state.is_over());
        let over: Vec<_> = over.map(|record| record.job.id).collect();
        for id in over.iter().take(over.len().saturating_sub(JOBS_KEPT)) {
            Arc::make_mut(&mut self.all).remove(id);
        }
        self.save(dir)?;
        Ok(self.all.get(&task.job).map(|record| record.document()))
    }

    fn save(&self, dir: &StateDir) -> Result<()> {
        let jobs = self.all.values().map(|record| Record::clone(record)).collect();
        let kept = Kept { version: 1, next: self.next, jobs };
        let failed = |error| Error::failed(format!("cannot write {FILE}"), error);
        let text = serde_json::to_vec(&kept).map_err(io::Error::from).map_err(failed)?;
        replace_file(dir.path(), FILE, &text).map_err(failed)
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
        Made::LogMoved(moved) => {
            job.result = Some(format!("/v1/pools/{}", moved.pool));
            job.log_moved = Some(moved);
        }
        Made::Nothing => {}
    }
}

/// What became of a job that was under way when the daemon ended.
fn settle(job: &mut Job, state: &State) {
    job.ended_ms = Some(events::now_ms());
    let pool = job.target.split('/').next().and_then(|name| name.parse::<Name>().ok());
    let def = pool.as_ref().and_then(|name| state.pools.get(name));
    let help = match (job.kind, pool, def) {
        // It is known, and opened whenever the node starts.
        (JobKind::PoolCreate | JobKind::PoolImport, Some(name), Some(_)) => {
            return tell(job, Made::Pool(name));
        }
        (JobKind::PoolExport, _, None) => return tell(job, Made::Nothing),
        (JobKind::PoolExport, ..) => {
            "`flashloom pool list`: it is gone if it was exported; if it is there, export it again"
        }
        (JobKind::PoolCreate, ..) => {
            "nothing is known of it: create it again, with --force if its drives are not blank any more"
        }
        (JobKind::PoolImport, ..) => "import it again",
        (JobKind::LogMove, ..) => {
            "`flashloom pool show` tells where the log is by now; move it again if need be"
        }
        (JobKind::VolumeCreate | JobKind::VolumeChange | JobKind::VolumeDelete, ..) => {
            "`flashloom volume list` shows what there is; ask again if it was not done"
        }
    };
    job.state = JobState::Interrupted;
    job.error = Some(Problem {
        kind: Kind::Failed,
        message: "the daemon ended in the midst of it".to_owned(),
        help: Some(help.to_owned()),
    });
}

pub fn no_job(id: u64) -> Error {
    Error::new(Kind::NotFound, format!("there is no job {id}, or it is forgotten by now"))
        .help("`flashloom job list` shows those there are")
}
