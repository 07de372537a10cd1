//! Pools are scrubbed: as an operator asks, when it is due, and on from where a scrub was cut short.

use std::sync::Arc;
use std::time::Duration;

use api::v1::{Job, JobKind, Kind, RateLimit, Scrub, ScrubState, Severity};
use api::value::Name;

use super::Node;
use crate::jobs::{Stop, Task, Work};
use crate::limits::{DRIVE_LOOK, SCRUB_KEPT};
use crate::pools::{OpenPool, ScrubRecord};
use crate::{Error, Result};

fn none(name: &Name) -> Error {
    Error::new(Kind::NotFound, format!("pool {name} is not being scrubbed"))
        .help(format!("`flashloom pool scrub start {name}` begins one"))
}

impl Node {
    /// A pool's scrub: the one that is under way, or the last one.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn scrub(&self, name: &Name) -> Result<Scrub> {
        Ok(self.pool(name)?.scrub)
    }

    /// Changes how fast a pool is scrubbed.
    ///
    /// # Errors
    /// `NotFound` when it is not, `Conflict` while the pool is not open.
    pub fn limit_scrub(&self, name: &Name, how: RateLimit) -> Result<Scrub> {
        self.view().serving()?.pools.pool(name)?.limit_scrub(how.bytes())?;
        self.scrub(name)
    }

    /// Has a scrub wait where it is until it is started again.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Failed` when that cannot be written down.
    pub fn pause_scrub(&self, name: &Name) -> Result<Scrub> {
        if !self.end_scrub_job(name, Stop::Pause)? {
            return Err(none(name));
        }
        self.scrub(name)
    }

    /// Ends a scrub, one that waits too; the next one begins anew.
    ///
    /// # Errors
    /// As [`pause_scrub`](Self::pause_scrub).
    pub fn stop_scrub(&self, name: &Name) -> Result<Scrub> {
        let ended = self.end_scrub_job(name, Stop::Cancel)?;
        let mut record = self.view().serving()?.pools.scrub(name)?;
        let is_there = matches!(record.scrub.state, ScrubState::Running | ScrubState::Paused);
        if !is_there && !ended {
            return Err(none(name));
        }
        if is_there {
            record.end(ScrubState::Stopped);
            self.keep_scrub(name, &record)?;
        }
        self.scrub(name)
    }

    /// Has the job stop that scrubs a pool, and waits for its end; whether there was one.
    fn end_scrub_job(&self, name: &Name, why: Stop) -> Result<bool> {
        let Some(job) = self.scrub_job(name) else { return Ok(false) };
        self.end_job_in_order(job, why)?;
        Ok(true)
    }

    fn scrub_job(&self, name: &Name) -> Option<u64> {
        let is_it = |job: &Job| job.kind == JobKind::PoolScrub && job.target == name.as_str();
        self.job_that(is_it).map(|job| job.id)
    }

    fn keep_scrub(&self, name: &Name, record: &ScrubRecord) -> Result<()> {
        let record = record.clone();
        self.remember(name, |def| def.scrub = record)
    }

    /// What cannot be written down is known here all the same: drives are watched over, whatever the state directory is.
    fn note_scrub(&self, name: &Name, record: &ScrubRecord) -> Result<()> {
        let (of, record) = (name.clone(), record.clone());
        let kept = self.owner.ask(move |owned| {
            owned.serving_mut()?.pools_mut().def_mut(&of)?.scrub = record;
            Ok(owned.keep())
        })?;
        if let Err(error) = kept {
            tracing::warn!("that is not written down of the scrub of pool {name}: {error}");
        }
        Ok(())
    }

    /// Scrubs a pool, from where an earlier scrub was left, and as fast as that one unless told otherwise.
    pub(super) fn scrub_pool(&self, name: &Name, how: RateLimit, task: &Task) -> Result<()> {
        task.step(0, 1, "checks what its drives hold")?;
        let pool = self.view().serving()?.pools.pool(name)?;
        let mut record = self.view().serving()?.pools.scrub(name)?;
        record.begin();
        if how.limit.is_some() {
            record.scrub.limit = how.bytes();
        }
        pool.scrub(record.position(), record.scrub.limit)?;
        self.note_scrub(name, &record)?;
        self.unless_closed(&pool, self.follow_scrub(&pool, name, record, task))
    }

    fn follow_scrub(
        &self,
        pool: &OpenPool,
        name: &Name,
        mut record: ScrubRecord,
        task: &Task,
    ) -> Result<()> {
        let mut kept = reactor::now_exact();
        loop {
            // When the node stops it is left as running, to go on at the next start.
            let Some(scrub) = pool.status_in(DRIVE_LOOK)?.scrub else { return Ok(()) };
            record.note(&scrub);
            task.moved(record.scrub.done, record.scrub.bytes);
            if scrub.is_complete {
                record.end(ScrubState::Done);
                self.note_scrub(name, &record)?;
                let (severity, words) = outcome(name, &record.scrub);
                self.events.record(severity, words);
                return Ok(());
            }
            if task.goes_on().is_err() {
                pool.end_scrub()?;
                if let Some(scrub) = pool.status_in(Duration::ZERO)?.scrub {
                    record.note(&scrub);
                }
                record.end(ScrubState::Paused);
                self.keep_scrub(name, &record)?;
                let what = "it is paused where it was";
                return Err(Error::new(Kind::Conflict, what)
                    .help(format!("`flashloom pool scrub start {name}` has it go on")));
            }
            if !scrub.is_under_way {
                self.note_scrub(name, &record)?;
                let what =
                    "the pool is not served any more: it goes on once the pool is open again";
                return Err(Error::new(Kind::Failed, what));
            }
            if Duration::from_nanos(reactor::now_exact() - kept) >= SCRUB_KEPT {
                kept = reactor::now_exact();
                self.note_scrub(name, &record)?;
            }
        }
    }

    /// Begins a scrub that is due, or was cut short.
    pub(super) fn begin_scrub(self: &Arc<Self>, name: &Name, work: Work) {
        if self.scrub_job(name).is_some() {
            return;
        }
        if let Err(error) = self.submit_own(work) {
            let words = format!("pool {name} is not scrubbed: {error}");
            self.events.record(Severity::Warning, words);
        }
    }
}

/// What is said of a scrub that checked everything.
fn outcome(name: &Name, scrub: &Scrub) -> (Severity, String) {
    let Scrub { damaged_blocks: damaged, repaired_blocks: repaired, lost_blocks: lost, .. } = scrub;
    let unchecked = match scrub.unchecked_stripes {
        0 => String::new(),
        stripes => format!(
            "; {stripes} stripes could not be checked, for drives are out or nothing gives their headers"
        ),
    };
    match (damaged, lost) {
        (0, 0) if unchecked.is_empty() => {
            (Severity::Info, format!("pool {name} is scrubbed: everything is as it should be"))
        }
        (0, 0) => (
            Severity::Warning,
            format!("pool {name} is scrubbed: what was checked is as it should be{unchecked}"),
        ),
        (_, 0) => (
            Severity::Warning,
            format!(
                "pool {name} is scrubbed: {repaired} of {damaged} damaged blocks are put right{unchecked}"
            ),
        ),
        _ => (
            Severity::Error,
            format!(
                "pool {name} is scrubbed: {lost} blocks are damaged beyond what the redundancy gives back, and {repaired} \
                 of {damaged} damaged ones are put right{unchecked}"
            ),
        ),
    }
}
