//! What drives had that are gone, or are to go, is moved onto the others: by itself after a while, or as an operator asks.

use std::sync::Arc;

use api::v1::{Kind, RateLimit, Rebuild, Severity};
use api::value::{Name, PoolDrive};

use super::Node;
use crate::jobs::{Task, Work};
use crate::limits::DRIVE_LOOK;
use crate::pools::OpenPool;
use crate::{Error, Result, events};

fn bytes(how: RateLimit) -> u64 {
    how.limit.map_or(0, |size| size.bytes())
}

impl Node {
    /// Changes how fast what drives had is moved.
    ///
    /// # Errors
    /// `NotFound` when nothing is, `Failed` when the pool is not open.
    pub fn limit_rebuild(&self, name: &Name, how: RateLimit) -> Result<Rebuild> {
        self.view().serving()?.pools.pool(name)?.limit_rebuild(bytes(how))?;
        self.rebuild(name)
    }

    /// How drives are being emptied.
    ///
    /// # Errors
    /// `NotFound` without such a pool, or when none are, nor were since it was opened.
    pub fn rebuild(&self, name: &Name) -> Result<Rebuild> {
        let rebuild = self.pool(name)?.status.and_then(|status| status.rebuild);
        rebuild.ok_or_else(|| {
            let what = format!("pool {name} rebuilds nothing, and did not since it was opened");
            Error::new(Kind::NotFound, what)
        })
    }

    pub(super) fn rebuild_pool(&self, name: &Name, how: RateLimit, task: &Task) -> Result<()> {
        task.step(0, 1, "moves what is lost with drives onto the others")?;
        let pool = self.view().serving()?.pools.pool(name)?;
        pool.rebuild(bytes(how))?;
        self.follow_rebuild(&pool, task)?;
        let words =
            format!("the redundancy of pool {name} is whole, without the drives that are gone");
        self.events.record(Severity::Info, words);
        Ok(())
    }

    pub(super) fn evacuate_drive(&self, of: &PoolDrive, how: RateLimit, task: &Task) -> Result<()> {
        task.step(0, 1, "moves what it has onto the others")?;
        let pool = self.view().serving()?.pools.pool(&of.pool)?;
        pool.evacuate(of.index, bytes(how))?;
        self.follow_rebuild(&pool, task)?;
        if let Some(path) = pool.paths().get(usize::from(of.index)).cloned().flatten() {
            pool.unlock(&path);
        }
        let words = format!(
            "nothing of pool {} is left on its drive {}, which is out of use",
            of.pool, of.index
        );
        self.events.record(Severity::Info, words);
        Ok(())
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
                        .help("what was moved stays where it is: add a drive, or make room")),
                };
            }
            if task.goes_on().is_err() {
                pool.cancel_rebuild()?;
                let what = "the job was cancelled: what was moved by then stays where it is";
                return Err(Error::new(Kind::Conflict, what));
            }
        }
    }

    /// Begins what is due by itself.
    pub(super) fn begin_rebuild(self: &Arc<Self>, work: Work) {
        let begun = events::on_behalf_of(None, || self.submit(work, None, true));
        if let Err(error) = begun {
            self.events.record(Severity::Warning, format!("nothing is rebuilt: {error}"));
        }
    }
}
