//! Pools that are closed to be opened elsewhere. Whenever the node ends meanwhile, the pool is known to it or exported.

use std::sync::Arc;
use std::time::Duration;

use api::value::Name;
use reactor::Nanos;

use super::{Condition, OpenPool, Pools, deleted_just_now, no_pool, opened_just_now};
use crate::limits::LATE_TRIES;
use crate::{Error, Result};

impl Pools {
    /// Notes that a pool is being exported, and gives it if it is open.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is being opened.
    pub fn begin_export(&mut self, name: &Name) -> Result<Option<Arc<OpenPool>>> {
        let known = self.known.get_mut(name).ok_or_else(|| no_pool(name))?;
        if let Condition::Opening { .. } = known.condition {
            return Err(opened_just_now(name));
        }
        if known.def.deleting {
            return Err(deleted_just_now(name));
        }
        if known.ending.as_ref().is_some_and(|pool| !pool.let_go()) {
            let what = format!(
                "pool {name} was closed, and a drive of it has not answered what it was asked to write"
            );
            return Err(Error::new(api::v1::Kind::Conflict, what).help(
                "export it again once the kernel gave the drive up, or after it was pulled",
            ));
        }
        known.def.exporting = true;
        Ok(known.pool().cloned())
    }

    /// It is not exported after all, and nothing was done yet.
    pub fn refuse_export(&mut self, name: &Name) {
        if let Some(known) = self.known.get_mut(name) {
            known.def.exporting = false;
        }
    }

    /// Forgets a pool that was exported, or deleted.
    pub fn forget(&mut self, name: &Name) {
        self.known.remove(name);
    }

    /// A pool was closed, and its drives may say that it was exported, or not: it is opened again, or found exported,
    /// once nothing of it can come to its drives any more, and after `wait` without what it lacks.
    pub fn fail_export(&mut self, name: &Name, error: &Error, wait: Duration) {
        let Some(known) = self.known.get_mut(name) else { return };
        let wait = Nanos::try_from(wait.as_nanos()).unwrap_or(Nanos::MAX);
        known.ending = known.pool().cloned();
        known.condition = Condition::Closed(format!("its export failed: {error}"));
        known.sight.clear();
        known.tries = LATE_TRIES;
        known.deadline = Some(reactor::now().saturating_add(wait));
        self.away.remove(name);
    }
}
