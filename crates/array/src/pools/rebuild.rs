//! Which drives are to be emptied by themselves, and what is remembered of work of that kind that was paused.

use std::time::Duration;

use api::v1::{Consent, Rebuild};
use api::value::{Name, PoolDrive};
use engine::drives::DriveState;
use engine::{DriveStatus, PoolStatus};
use serde::{Deserialize, Serialize};

use super::returning::{Search, from_now};
use super::{Pools, no_pool};
use crate::Result;
use crate::jobs::{Moving, Work};

/// A rebuild or an evacuation that waits to be resumed. For as long nothing of its pool is moved by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedRebuild {
    /// The drive that was emptied, which worked; `None` where it was what drives had that are gone.
    pub drive: Option<u16>,
    /// It is removed once it is empty.
    #[serde(default)]
    pub removes: bool,
    /// How far it was.
    pub rebuild: Rebuild,
}

impl PausedRebuild {
    /// Of one that is this far.
    pub fn new(drive: Option<u16>, removes: bool, rebuild: &Rebuild) -> Self {
        let rebuild = Rebuild {
            running: false,
            paused: true,
            waits: false,
            failure: None,
            ..rebuild.clone()
        };
        Self { drive, removes, rebuild }
    }

    /// What goes on with it.
    pub fn work(&self, pool: &Name) -> Work {
        let how = Moving { limit: self.rebuild.limit, resumes: true };
        let of = self.drive.map(|index| PoolDrive { pool: pool.clone(), index });
        match of {
            None => Work::Rebuild(pool.clone(), how),
            // That was consented to when it began.
            Some(of) if self.removes => Work::RemoveDrive(of, how, Consent::FORCE),
            Some(of) => Work::EvacuateDrive(of, how),
        }
    }

    /// Whether nothing is left of it to go on with: what was gone came back, or the drive is empty.
    pub fn is_moot(&self, drives: &[DriveStatus]) -> bool {
        let is_settled = |drive: &DriveStatus| drive.state == DriveState::Online || drive.vacant;
        match self.drive {
            None => drives.iter().all(is_settled),
            Some(index) => drives.get(usize::from(index)).is_none_or(|drive| drive.vacant),
        }
    }
}

/// What drives had that are gone, and whose places are not vacant, is lost to a pool until it is rebuilt.
pub(super) fn is_lost(drive: &DriveStatus) -> bool {
    !drive.state.is_written() && !drive.vacant
}

impl Pools {
    /// The rebuild or evacuation of a pool that was paused, if one was.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn paused(&self, name: &Name) -> Result<Option<&PausedRebuild>> {
        Ok(self.known.get(name).ok_or_else(|| no_pool(name))?.def.paused.as_ref())
    }

    /// Those of open pools that wait to be resumed, and whether redundancy is missing for that.
    pub fn paused_rebuilds(&self) -> impl Iterator<Item = (&Name, &PausedRebuild, bool)> {
        self.known.iter().filter_map(|(name, known)| {
            let lacks = self.watches.get(name).is_some_and(super::Watch::is_degraded);
            known.pool().and(known.def.paused.as_ref()).map(|paused| (name, paused, lacks))
        })
    }
}

impl Search {
    /// What is to be moved now that drives had which are gone: what was begun before the pool was opened at once, other
    /// things when a drive was gone for so long, where there are more of them than a stripe is wide. Nothing where such
    /// work was paused.
    pub(super) fn rebuilds(
        &mut self,
        status: &PoolStatus,
        after: Option<Duration>,
    ) -> Option<Work> {
        let how = Moving::default();
        if status.rebuild.as_ref().is_some_and(|rebuild| rebuild.is_under_way) {
            return None;
        }
        if self.def.paused.is_some() {
            // Whoever ends that has a while before it begins again.
            self.away.rebuilds = None;
            return None;
        }
        let drives = || (0..).zip(&status.drives);
        if let Some(index) = self.def.removing.first() {
            // The node ended in the midst of it.
            let of = PoolDrive { pool: self.name.clone(), index: *index };
            return Some(Work::RemoveDrive(of, how, Consent::FORCE));
        }
        let leaves = |drive: &DriveStatus| {
            drive.leaving && drive.state == DriveState::Online && status.rebuild.is_none()
        };
        if let Some((index, _)) = drives().find(|(_, drive)| leaves(drive)) {
            let of = PoolDrive { pool: self.name.clone(), index };
            return Some(Work::EvacuateDrive(of, how));
        }
        let online = drives().filter(|(_, drive)| drive.state == DriveState::Online).count();
        let width = usize::from(status.layout.data) + usize::from(status.layout.parity);
        if online < width || !drives().any(|(_, drive)| is_lost(drive)) {
            (self.away.rebuilds, self.away.rebuilt) = (None, 0);
            let is_whole =
                status.drives.iter().all(|drive| drive.state == DriveState::Online || drive.vacant);
            let slow = (is_whole && online > width)
                .then(|| self.away.slow.due(after?, reactor::now()))
                .flatten();
            let of = slow.map(|index| PoolDrive { pool: self.name.clone(), index });
            return of.map(|of| Work::EvacuateDrive(of, how));
        }
        let goes_on = drives().any(|(_, drive)| is_lost(drive) && drive.leaving);
        if !(goes_on && status.rebuild.is_none()) {
            let pause = after?.saturating_mul(2_u32.saturating_pow(self.away.rebuilt.min(10)));
            if reactor::now() < *self.away.rebuilds.get_or_insert_with(|| from_now(pause)) {
                return None;
            }
            // Should it be given up, it is tried again later.
            self.away.rebuilt += 1;
            self.away.rebuilds = Some(from_now(pause.saturating_mul(2)));
        }
        Some(Work::Rebuild(self.name.clone(), how))
    }
}
