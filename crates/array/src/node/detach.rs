//! Volumes that are given what they share with what they were made of as their own.

use std::sync::Arc;

use api::v1::{Job, JobKind, Kind, Severity};
use api::value::{Name, VolumePath};
use uuid::Uuid;

use super::Node;
use crate::jobs::{Record, Task, Work};
use crate::limits::DRIVE_LOOK;
use crate::{Error, Result, events};

/// What a volume is called now.
fn name_of(volume: &engine::Volume, before: &VolumePath) -> Name {
    volume.name().parse().unwrap_or_else(|_| before.volume.clone())
}

const STEP: &str = "gives it what it shares";

/// Why it waits, which its job tells of until it goes on, or is over.
struct Waits<'t> {
    task: &'t Task,
    why: Option<String>,
}

impl Waits<'_> {
    fn note(&mut self, why: Option<String>) {
        if why != self.why {
            let step = why.as_ref().map(|why| format!("{STEP}; it waits: {why}"));
            self.task.say(step.as_deref().unwrap_or(STEP));
            self.why = why;
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.note(None);
    }
}

impl Node {
    /// Gives a clone, or a volume that was rolled back, what it shares as its own, behind what hosts do with it.
    pub(super) fn detach_volume(&self, path: &VolumePath, task: &Task) -> Result<VolumePath> {
        task.step(0, 1, STEP)?;
        let pool = self.view().serving()?.pools.pool(&path.pool)?;
        let volume = pool.volume(&path.volume)?;
        task.note_subject(Uuid::from_bytes(volume.id()), path.to_string());
        pool.detach(&path.volume)?;
        // Whatever it is called by then.
        let path = || VolumePath { pool: path.pool.clone(), volume: name_of(&volume, path) };
        let closed = |error: Error| match error.kind {
            Kind::Stopping => error,
            _ => Error::new(
                Kind::Failed,
                "the pool is not served any more: it goes on once the pool is open again",
            ),
        };
        let mut waits = Waits { task, why: None };
        while let Some(now) = pool.detaching(&volume, DRIVE_LOOK).map_err(closed)? {
            if task.goes_on().is_err() {
                let stopped = pool.stop_detaching(&volume);
                if !volume.inherits() {
                    // It was done before.
                    break;
                }
                stopped?;
                let path = path();
                let what = format!("volume {path} is left as it is: what it was given is its own");
                return Err(Error::new(Kind::Conflict, what)
                    .help(format!("`flashloom volume detach {path}` has it go on")));
            }
            waits.note(now.waits);
            task.note_subject(Uuid::from_bytes(volume.id()), path().to_string());
            task.moved(now.done.min(volume.len()), volume.len());
        }
        let path = path();
        if volume.inherits() {
            let what =
                format!("volume {path} was deleted, rolled back or left as it was meanwhile");
            let help = "where it is there, and is to be detached, ask again: `flashloom volume list` shows it";
            return Err(Error::new(Kind::Conflict, what).help(help));
        }
        let words =
            format!("volume {path} is detached: it shares nothing with what it was made of");
        self.events.record(Severity::Info, words);
        Ok(path)
    }

    /// Follows what goes on by itself since the pool was opened.
    pub(super) fn follow_detaching(self: &Arc<Self>, path: VolumePath) {
        let target = path.to_string();
        let is_it = |job: &Job| job.kind == JobKind::VolumeDetach && job.target == target;
        let id = self.volume(&path).ok().map(|volume| volume.id);
        let is_about = |record: &Arc<Record>| id.is_some_and(|id| record.is_about(id));
        if self.job_that(is_it).is_some() || self.view().jobs.values().any(is_about) {
            return;
        }
        let begun =
            events::on_behalf_of(None, || self.submit(Work::DetachVolume(path), None, true));
        if let Err(error) = begun {
            let words =
                format!("volume {target} is being detached, and no job tells how far: {error}");
            self.events.record(Severity::Warning, words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that had waited, and was done at its next step, said for ever that it waits.
    #[test]
    fn a_job_that_is_over_does_not_say_that_it_waits() {
        let task = Task::default();
        task.step(0, 1, STEP).unwrap();
        let mut waits = Waits { task: &task, why: None };
        waits.note(Some("the pool is full".to_owned()));
        assert_eq!(task.said(), "gives it what it shares; it waits: the pool is full");
        waits.note(None);
        assert_eq!(task.said(), STEP);
        waits.note(Some("the pool is full".to_owned()));
        drop(waits);
        assert_eq!(task.said(), STEP);
    }
}
