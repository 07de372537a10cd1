//! Jobs of the node: asked for, begun, watched, cancelled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use api::limits::KEY_BYTES;
use api::v1::{Job, JobState, Kind, Severity};

use super::Node;
use super::owner::View;
use crate::jobs::{Asked, Begun, Made, Stop, Task, Work, goes_on, no_job};
use crate::{Error, Result, events};

impl View {
    /// How many jobs are not over.
    pub(super) fn jobs_under_way(&self) -> usize {
        self.jobs.values().filter(|record| !record.job.state.is_over()).count()
    }
}

impl Node {
    /// Begins a job, on behalf of whom this thread works. With the key of a request that is under way or done, that is
    /// the job. `is_async`: nobody waits for its end.
    ///
    /// # Errors
    /// `Invalid` for a key that cannot be one, `Conflict` for one that another request had, `Limit`, `Failed` when it
    /// cannot be written down, `Stopping`.
    pub fn submit(
        self: &Arc<Self>,
        work: Work,
        key: Option<String>,
        is_async: bool,
    ) -> Result<Job> {
        if let Some(key) = &key {
            check_key(key)?;
        }
        let who = events::caller().unwrap_or_else(|| "the node".to_owned());
        self.start_job(work, Asked { by: who, key, is_async, is_own: false })
    }

    /// Begins what the node itself has to do, also while that cannot be written down.
    ///
    /// # Errors
    /// `Limit`, `Stopping`.
    pub(super) fn submit_own(self: &Arc<Self>, work: Work) -> Result<Job> {
        let asked = Asked { by: "the node".to_owned(), key: None, is_async: true, is_own: true };
        events::on_behalf_of(None, || self.start_job(work, asked))
    }

    fn start_job(self: &Arc<Self>, work: Work, asked: Asked) -> Result<Job> {
        let (by, wanted) = (events::caller(), work.clone());
        let begun = self
            .owner
            .ask(move |owned| owned.jobs.begin(&owned.dir, &owned.state, &wanted, asked))?;
        let (job, task) = match begun {
            Begun::Before(job) => return Ok(job),
            Begun::New(job, task) => (job, task),
        };
        let (node, doing) = (Arc::clone(self), task.clone());
        let named = thread::Builder::new().name(format!("job-{}", job.id));
        let spawned = named.spawn(move || {
            events::on_behalf_of(by, || {
                let done = catch_unwind(AssertUnwindSafe(|| node.work(work, &doing)));
                let fault =
                    || Error::new(Kind::Failed, "it was given up by a fault of this program");
                node.end_job(&doing, done.unwrap_or_else(|_| Err(fault())));
            });
        });
        if let Err(error) = spawned {
            self.end_job(&task, Err(Error::failed("cannot start a thread", error)));
        }
        Ok(job)
    }

    fn work(&self, work: Work, task: &Task) -> Result<Made> {
        match work {
            Work::CreatePool(new) => self.make_pool(&new, task).map(|()| Made::Pool(new.name)),
            Work::ImportPool(from) => self.take_pool(&from, task).map(Made::Pool),
            Work::ExportPool(name) => self.give_pool(&name, task).map(|()| Made::Nothing),
            Work::DeletePool(name, consent) => {
                self.remove_pool(&name, consent, task).map(|()| Made::Nothing)
            }
            Work::MoveLog(name, to) => self.shift_log(&name, &to, task).map(Made::LogMoved),
            Work::AddDrives(name, new) => {
                self.add_drives(&name, &new, task).map(|()| Made::In(name))
            }
            Work::Rebuild(name, how) => {
                self.rebuild_pool(&name, how, task).map(|()| Made::In(name))
            }
            Work::Scrub(name, how) => self.scrub_pool(&name, how, task).map(|()| Made::In(name)),
            Work::EvacuateDrive(of, how) => {
                self.evacuate_drive(&of, how, task).map(|()| Made::In(of.pool))
            }
            Work::RemoveDrive(of, how, consent) => {
                self.remove_drive(&of, how, consent, task).map(|()| Made::In(of.pool))
            }
            Work::FailDrive(of) => self.take_drive_out(&of, task).map(|()| Made::In(of.pool)),
            Work::RejoinDrive(of) => self.bring_drive_back(&of, task).map(|()| Made::In(of.pool)),
            Work::FollowRejoin(of) => self.follow_rejoin(&of, task).map(|()| Made::In(of.pool)),
            Work::ReplaceDrive(of, new) => {
                self.put_drive(&of, &new, task).map(|()| Made::In(of.pool))
            }
            Work::UseSpare(of, spare) => {
                self.put_spare(&of, spare, task).map(|()| Made::In(of.pool))
            }
            Work::RelieveDrive(of, spare) => {
                self.relieve_drive(&of, spare, task).map(|()| Made::In(of.pool))
            }
            Work::CreateVolume(pool, new) => self.make_volume(&pool, &new, task).map(Made::Volume),
            Work::ChangeVolume(path, change, consent) => {
                self.alter_volume(&path, &change, consent, task).map(Made::Volume)
            }
            Work::DetachVolume(path) => self.detach_volume(&path, task).map(Made::Volume),
            Work::DeleteVolume(path, consent) => {
                self.remove_volume(&path, consent, task).map(|()| Made::Nothing)
            }
            Work::CloneGroup(of, new) => self.clone_group(&of, &new, task).map(Made::Group),
        }
    }

    fn end_job(&self, task: &Task, result: Result<Made>) {
        let task = task.clone();
        let ended = self.owner.ask(move |owned| owned.jobs.end(&owned.dir, &task, result));
        match ended {
            Ok(Some(Job { error: None, .. }) | None) => {}
            Ok(Some(job)) => {
                let why = job.error.as_ref().map_or_else(String::new, ToString::to_string);
                let words = format!("{} is {}: {why}", job.title(), job.state.name());
                // That is what somebody asked for, or a stop that the next start goes on from.
                let severity = match job.state {
                    JobState::Paused => Severity::Info,
                    JobState::Interrupted if goes_on(&job) => Severity::Info,
                    _ => Severity::Warning,
                };
                self.events.record(severity, words);
            }
            Err(error) => {
                let words = format!("what came of a job is not written down: {error}");
                self.events.record(Severity::Error, words);
            }
        }
    }

    /// Whether jobs are to be written down: they take long by now, or could not be before.
    pub fn has_jobs_to_keep(&self) -> bool {
        let view = self.view();
        view.are_jobs_unsaved || view.jobs.values().any(|record| record.is_long())
    }

    /// Writes them down.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn keep_jobs(&self) -> Result<()> {
        self.write_down_jobs(None)
    }

    fn write_down_jobs(&self, also: Option<u64>) -> Result<()> {
        let (was_unsaved, kept) = self.owner.ask(move |owned| {
            owned.serving()?;
            Ok((owned.jobs.is_unsaved(), owned.jobs.keep(&owned.dir, also)))
        })?;
        if let Err(error) = kept
            && !was_unsaved
        {
            let words = format!("a job that takes long is not written down: {error}");
            self.events.record(Severity::Error, words);
        }
        Ok(())
    }

    /// The jobs that are under way, and the latest that are over.
    pub fn jobs(&self) -> Vec<Job> {
        self.view().jobs.values().map(|record| record.document()).collect()
    }

    /// One job.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn job(&self, id: u64) -> Result<Job> {
        let view = self.view();
        view.jobs.get(&id).map(|record| record.document()).ok_or_else(|| no_job(id))
    }

    /// One job, once it is over or so much time has passed.
    ///
    /// # Errors
    /// `NotFound`, `Stopping` when the node stopped before it was over.
    pub fn wait_for_job(&self, id: u64, limit: Duration) -> Result<Job> {
        self.owner.wait_until(limit, |view| {
            let is_over = view.jobs.get(&id).is_none_or(|record| record.job.state.is_over());
            is_over || view.serving().is_err()
        });
        let job = self.job(id)?;
        if !job.state.is_over() {
            self.view().serving()?;
        }
        Ok(job)
    }

    /// One job, once it is over or so much time has passed; then it is written down, for whoever was told of it will
    /// ask.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn wait_or_keep_job(&self, id: u64, limit: Duration) -> Result<Job> {
        let job = self.wait_for_job(id, limit)?;
        if !job.state.is_over() {
            self.write_down_jobs(Some(id))?;
        }
        Ok(job)
    }

    /// Asks a job to stop before it changes anything: with its next step, or at once while it waits for its turn.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` when it is over, or too late.
    pub fn cancel_job(&self, id: u64) -> Result<Job> {
        self.stop_job(id, Stop::Cancel)
    }

    /// Asks a job to stop, likewise.
    pub(super) fn stop_job(&self, id: u64, why: Stop) -> Result<Job> {
        let job = self.owner.ask(move |owned| {
            let job = owned.jobs.cancel(id, why)?;
            owned.turns.give_up(id);
            Ok(job)
        })?;
        let what = match why {
            Stop::Cancel => "cancelled",
            Stop::Pause => "paused",
        };
        self.events.record(Severity::Info, format!("{} is to be {what}", job.title()));
        Ok(job)
    }
}

fn check_key(key: &str) -> Result<()> {
    if !key.is_empty() && key.len() <= KEY_BYTES && key.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Ok(());
    }
    let what = "a request's key cannot be that";
    Err(Error::new(Kind::Invalid, what)
        .help(format!("take 1 to {KEY_BYTES} visible ASCII characters, such as a UUID")))
}

#[cfg(test)]
mod tests;
