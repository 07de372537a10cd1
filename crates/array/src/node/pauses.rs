//! Long work on a pool is paused, stopped, and remembered: what scrubs and rebuilds have in common.

use std::sync::Arc;

use api::v1::{Job, Kind};
use api::value::Name;

use super::Node;
use crate::jobs::Stop;
use crate::limits::STOP;
use crate::pools::{OpenPool, PoolDef};
use crate::{Error, Result};

impl Node {
    /// The first job under way that is such a one.
    pub(super) fn job_that(&self, is: impl Fn(&Job) -> bool) -> Option<Job> {
        self.jobs().into_iter().find(|job| !job.state.is_over() && is(job))
    }

    /// Has a job stop where it is, and waits for its end.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` when it is over, `Failed` when it does not end, `Stopping`.
    pub(super) fn end_job_in_order(&self, id: u64, why: Stop) -> Result<Job> {
        self.stop_job(id, why)?;
        let job = self.wait_for_job(id, STOP)?;
        if job.state.is_over() {
            return Ok(job);
        }
        Err(Error::new(Kind::Failed, format!("job {id} does not end"))
            .help("a drive does not answer: try again"))
    }

    /// Whether a pool is open as it was when work with it began, and not closed since, to be opened again or not; nor is it
    /// being closed for good, which may fail.
    ///
    /// # Errors
    /// `Stopping`: what was under way is neither done nor given up.
    pub(super) fn check_still_open(&self, pool: &OpenPool) -> Result<()> {
        let view = self.view();
        let is_still = view.serving().is_ok_and(|serving| {
            let open = serving.pools.pool(pool.name());
            open.is_ok_and(|open| std::ptr::eq(Arc::as_ptr(&open), pool))
                && !serving.pools.is_given_up(pool.name())
        });
        if is_still {
            return Ok(());
        }
        Err(Error::new(Kind::Stopping, "the pool was closed in the midst of it")
            .help("it goes on by itself once the pool is open: `flashloom job list`"))
    }

    /// What came of work with a pool that goes on by itself where the pool was closed in the midst of it.
    ///
    /// # Errors
    /// Those of the work, and as [`check_still_open`](Self::check_still_open).
    pub(super) fn unless_closed<T>(&self, pool: &OpenPool, done: Result<T>) -> Result<T> {
        if done.is_err() {
            self.check_still_open(pool)?;
        }
        done
    }

    /// Changes what there is to remember of a pool, and writes it down; as it was if that cannot be.
    ///
    /// # Errors
    /// `NotFound`, `Failed`, `Stopping`.
    pub(super) fn remember(
        &self,
        name: &Name,
        change: impl FnOnce(&mut PoolDef) + Send + 'static,
    ) -> Result<()> {
        let name = name.clone();
        self.owner.ask(move |owned| {
            let def = owned.serving_mut()?.pools_mut().def_mut(&name)?;
            let before = def.clone();
            change(def);
            if let Err(error) = owned.keep() {
                *owned.serving_mut()?.pools_mut().def_mut(&name)? = before;
                return Err(error);
            }
            Ok(())
        })
    }
}
