//! Drives that are made whole: each is a job, whoever took it back, and how fast they go is the operator's to say.

use std::sync::Arc;

use api::v1::{DriveState, Job, JobKind, RateLimit, Rejoin, Severity};
use api::value::{Name, PoolDrive};

use super::Node;
use crate::jobs::{Task, Work};
use crate::pools::RejoinPace;
use crate::{Result, events};

impl Node {
    /// How the drives of a pool are doing that are made whole.
    ///
    /// # Errors
    /// `NotFound` without such a pool, `Stopping`.
    pub fn rejoin(&self, name: &Name) -> Result<Rejoin> {
        let RejoinPace { limit, paused } = self.rejoin_pace(name)?;
        let status = self.pool(name)?.status;
        let coming = status.iter().flat_map(|status| &status.drives);
        let coming = coming.filter(|drive| drive.state == DriveState::Rejoining);
        let mut rejoin = Rejoin { limit, paused, ..Rejoin::default() };
        for drive in coming {
            rejoin.drives.push(u16::try_from(drive.index).unwrap_or(u16::MAX));
            if let Some(of) = &drive.rejoin {
                rejoin.bytes += of.units * of.unit_bytes;
                rejoin.done += of.done * of.unit_bytes;
            }
        }
        Ok(rejoin)
    }

    pub(super) fn rejoin_pace(&self, name: &Name) -> Result<RejoinPace> {
        self.view().serving()?.pools.rejoin_pace(name)
    }

    /// Changes how fast drives of a pool are made whole, those to come too.
    ///
    /// # Errors
    /// `NotFound` without such a pool, `Failed` when that cannot be written down.
    pub fn limit_rejoin(&self, name: &Name, how: RateLimit) -> Result<Rejoin> {
        let limit = how.bytes();
        self.change_rejoin(name, move |pace| pace.limit = limit)
    }

    /// Has them wait where they are, or go on. What is new goes to them meanwhile, and the pool lacks them as before.
    ///
    /// # Errors
    /// As [`limit_rejoin`](Self::limit_rejoin).
    pub fn pause_rejoin(&self, name: &Name, paused: bool) -> Result<Rejoin> {
        let is_another = self.rejoin_pace(name)?.paused != paused;
        let rejoin = self.change_rejoin(name, move |pace| pace.paused = paused)?;
        if is_another {
            let words = match paused {
                true => "wait to be made whole until that is resumed",
                false => "are made whole again",
            };
            self.events.record(Severity::Info, format!("drives of pool {name} {words}"));
        }
        Ok(rejoin)
    }

    fn change_rejoin(
        &self,
        name: &Name,
        change: impl FnOnce(&mut RejoinPace) + Send + 'static,
    ) -> Result<Rejoin> {
        // First: a pool that is opened meanwhile goes by it.
        self.remember(name, move |def| change(&mut def.rejoin))?;
        let pace = self.rejoin_pace(name)?;
        if let Ok(pool) = self.view().serving()?.pools.pool(name) {
            pool.throttle_rejoins(pace)?;
        }
        self.rejoin(name)
    }

    /// Begins to follow a drive that is made whole, unless a job does.
    pub(super) fn begin_to_follow_rejoin(self: &Arc<Self>, of: &PoolDrive) {
        let target = of.to_string();
        let follows = |job: &Job| match job.kind {
            JobKind::DriveRejoin | JobKind::DriveReplace => job.target == target,
            JobKind::DriveAdd => job.target == of.pool.as_str(),
            _ => false,
        };
        if self.job_that(follows).is_some() {
            return;
        }
        let work = Work::FollowRejoin(of.clone());
        let begun = events::on_behalf_of(None, || self.submit(work, None, true));
        if let Err(error) = begun {
            tracing::warn!("no job follows how drive {of} is made whole: {error}");
        }
    }

    /// Follows a drive that is made whole to the end of that.
    pub(super) fn follow_rejoin(&self, of: &PoolDrive, task: &Task) -> Result<()> {
        let pool = self.open_pool_of(of)?;
        self.wait_until_whole(&pool, of, task, 0)
    }
}
