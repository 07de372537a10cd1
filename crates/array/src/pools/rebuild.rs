//! Which drives are to be emptied by themselves, and what is remembered of work of that kind that was paused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::v1::{Consent, Rebuild};
use api::value::{Name, PoolDrive};
use engine::drives::DriveState;
use engine::{DriveStatus, PoolStatus};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::returning::{Search, from_now};
use super::slow::{Means, SlowOutlook};
use super::{PoolDef, Pools, no_pool};
use crate::Result;
use crate::jobs::{Moving, Work};

/// A rebuild or an evacuation that waits to be resumed. For as long nothing of its pool is moved by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PausedRebuild {
    /// The drive that was emptied, which worked; `None` where it was what drives had that are gone.
    pub drive: Option<u16>,
    /// What identifies it: another one in its place is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// It is removed once it is empty.
    #[serde(default)]
    pub removes: bool,
    /// How far it was.
    pub rebuild: Rebuild,
}

impl PausedRebuild {
    /// Of one that is this far, of a pool with these drives.
    pub fn new(
        drive: Option<u16>,
        drives: &[DriveStatus],
        removes: bool,
        rebuild: &Rebuild,
    ) -> Self {
        let rebuild = Rebuild {
            running: false,
            paused: true,
            waits: false,
            failure: None,
            ..rebuild.clone()
        };
        let of = drive.and_then(|index| drives.get(usize::from(index)));
        Self { drive, id: of.map(|of| Uuid::from_bytes(of.id)), removes, rebuild }
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

    /// Whether nothing is left of it to go on with: what was gone came back, or the drive is empty, or was replaced.
    pub fn is_moot(&self, drives: &[DriveStatus]) -> bool {
        let is_settled = |drive: &DriveStatus| drive.state == DriveState::Online || drive.vacant;
        match self.drive {
            None => drives.iter().all(is_settled),
            Some(index) => {
                let is_other =
                    |of: &DriveStatus| self.id.is_some_and(|id| id.into_bytes() != of.id);
                let drive = drives.get(usize::from(index));
                drive.is_none_or(|drive| drive.vacant || is_other(drive))
            }
        }
    }
}

/// What drives had that are gone, and whose places are not vacant, is lost to a pool until it is rebuilt.
pub fn is_lost(drive: &DriveStatus) -> bool {
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

    /// Whether a pool is open and has all its redundancy.
    pub fn lacks_nothing(&self, name: &Name) -> bool {
        self.watches.get(name).is_some_and(|watch| !watch.is_degraded())
    }

    /// Open pools that lack redundancy, and the drives that were lost of which an operator had nothing more moved.
    pub fn stopped_rebuilds(&self) -> impl Iterator<Item = (&Name, &BTreeSet<u16>)> {
        self.known.iter().filter_map(|(name, known)| {
            let lacks = self.watches.get(name).is_some_and(super::Watch::is_degraded);
            let is_told = lacks && !known.def.stopped.is_empty();
            known.pool().filter(|_| is_told).map(|_| (name, &known.def.stopped))
        })
    }

    /// Those of open pools that wait to be resumed, and whether redundancy is missing for that.
    pub fn paused_rebuilds(&self) -> impl Iterator<Item = (&Name, &PausedRebuild, bool)> {
        self.known.iter().filter_map(|(name, known)| {
            let lacks = self.watches.get(name).is_some_and(super::Watch::is_degraded);
            known.pool().and(known.def.paused.as_ref()).map(|paused| (name, paused, lacks))
        })
    }
}

/// What comes next of what drives had, as far as no clock says.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Something is moved now.
    Busy,
    /// Whoever ends that has a while before something begins again.
    Paused,
    /// A drive is removed: the node ended in the midst of it.
    Remove(u16),
    /// A drive is emptied that works: the node ended in the midst of it.
    Evacuate(u16),
    /// What is lost is rebuilt: that was begun before the pool was opened.
    GoOn,
    /// The node ended as it stopped what an operator wanted stopped: the labels do not say so yet.
    Stop,
    /// What is lost is rebuilt when it was for long.
    Lost,
    /// Nothing is lost, or it is not to be rebuilt: it is the turn of slow drives.
    Rest,
}

/// What of a pool's drives it depends on.
struct Drives<'d> {
    drives: &'d [DriveStatus],
    /// Drives that a stripe is over.
    width: usize,
    /// Whether a rebuild is under way; `None` where none was begun since the pool was opened.
    moves: Option<bool>,
}

fn next(def: &PoolDef, of: &Drives<'_>) -> Next {
    let drives = || (0..).zip(of.drives);
    let is_stopped = |index: &u16| def.stopped.contains(index);
    if of.moves == Some(true) {
        return Next::Busy;
    }
    if def.paused.is_some() {
        return Next::Paused;
    }
    if let Some((index, _)) = drives().find(|(index, drive)| def.removes(*index, drive)) {
        return Next::Remove(index);
    }
    let mut leaving = drives().filter(|(_, drive)| drive.leaving && of.moves.is_none());
    if leaving.clone().any(|(index, _)| is_stopped(&index)) {
        return Next::Stop;
    }
    if let Some((index, _)) = leaving.clone().find(|(_, of)| of.state == DriveState::Online) {
        return Next::Evacuate(index);
    }
    let online = drives().filter(|(_, drive)| drive.state == DriveState::Online).count();
    let mut lost = drives().filter(|(_, drive)| is_lost(drive));
    if online >= of.width && leaving.any(|(_, drive)| is_lost(drive)) {
        return Next::GoOn;
    }
    if online >= of.width && lost.any(|(index, _)| !is_stopped(&index)) {
        return Next::Lost;
    }
    Next::Rest
}

/// Drives that an operator wanted nothing more moved of, of which that is forgotten: they are whole, or empty.
fn settled(def: &PoolDef, drives: &[DriveStatus]) -> BTreeSet<u16> {
    let is_whole =
        |drive: &DriveStatus| drive.state == DriveState::Online && !drive.slow && !drive.leaving;
    let is_settled = |index: &&u16| {
        let drive = drives.get(usize::from(**index));
        drive.is_none_or(|drive| drive.vacant || is_whole(drive))
    };
    def.stopped.iter().filter(is_settled).copied().collect()
}

/// Drives that were to be removed, and were replaced before.
fn replaced(def: &PoolDef, drives: &[DriveStatus]) -> BTreeMap<u16, Uuid> {
    let is_it =
        |index: u16| drives.get(usize::from(index)).is_some_and(|drive| def.removes(index, drive));
    def.removing
        .iter()
        .map(|(index, id)| (*index, *id))
        .filter(|(index, _)| !is_it(*index))
        .collect()
}

impl Search {
    /// What is to be moved now that drives had which are gone: what was begun before the pool was opened at once, other
    /// things when a drive was gone for so long, where there are more of them than a stripe is wide. Nothing where such
    /// work was paused, and none of what was stopped.
    pub(super) fn rebuilds(&mut self, status: &PoolStatus, after: Option<Duration>) -> Moves {
        let width = usize::from(status.layout.data) + usize::from(status.layout.parity);
        let moves = status.rebuild.as_ref().map(|rebuild| rebuild.is_under_way);
        let next = next(&self.def, &Drives { drives: &status.drives, width, moves });
        let settled = settled(&self.def, &status.drives);
        let replaced = replaced(&self.def, &status.drives);
        let (work, said) = match next {
            Next::Rest => self.empty_slow(status, after).unzip(),
            _ => (self.work(&next, after), None),
        };
        if next == Next::Rest {
            (self.away.rebuilds, self.away.rebuilt) = (None, 0);
        }
        Moves { work, said, stops: next == Next::Stop, settled, replaced }
    }

    /// How a slow drive is emptied now, if one is to be, and what is to be said of it.
    fn empty_slow(
        &mut self,
        status: &PoolStatus,
        after: Option<Duration>,
    ) -> Option<(Work, String)> {
        let (index, outlook) = self.slow_drive_due(status, after?)?;
        let of = PoolDrive { pool: self.name.clone(), index };
        let what = format!("drive {of} stays slower than the others");
        Some(match outlook {
            SlowOutlook::Spare(spare) => {
                let path = spare.path.display();
                let said =
                    format!("{what}: spare {path} comes to the pool, and the drive is emptied");
                (Work::RelieveDrive(of, spare.id), said)
            }
            _ => {
                let said = format!("{what}: it is emptied onto them");
                (Work::EvacuateDrive(of, Moving::default()), said)
            }
        })
    }

    fn means<'m>(&'m self, status: &'m PoolStatus, after: Option<Duration>) -> Means<'m> {
        let width = usize::from(status.layout.data) + usize::from(status.layout.parity);
        let (drives, moves) = (&status.drives[..], after.is_some());
        Means { def: &self.def, drives, width, spares: &self.spares, moves }
    }

    /// A drive that stayed slow for so long, and is to be emptied now, one way or the other.
    fn slow_drive_due(
        &mut self,
        status: &PoolStatus,
        after: Duration,
    ) -> Option<(u16, SlowOutlook)> {
        let now = reactor::now();
        let due = self.away.slow.due(after, now).into_iter();
        let means = self.means(status, Some(after));
        let mut due = due.map(|index| (index, means.outlook(index)));
        let first =
            due.find(|(_, of)| matches!(of, SlowOutlook::Spare(_) | SlowOutlook::Others))?;
        self.away.slow.try_to_empty(first.0, now);
        Some(first)
    }

    /// Drives that are slow, and what becomes of each.
    pub(super) fn slow_outlooks(
        &self,
        status: &PoolStatus,
        after: Option<Duration>,
    ) -> BTreeMap<u16, SlowOutlook> {
        let means = self.means(status, after);
        let told = self.away.slow.told(reactor::now());
        told.map(|index| (index, means.outlook(index))).collect()
    }

    fn work(&mut self, next: &Next, after: Option<Duration>) -> Option<Work> {
        // As fast as it went before the node ended.
        let goes_on = Moving { limit: self.def.rebuild_limit, resumes: false };
        let anew = Moving::default();
        let of = |index: &u16| PoolDrive { pool: self.name.clone(), index: *index };
        match next {
            Next::Paused => {
                self.away.rebuilds = None;
                None
            }
            // That was consented to when it began.
            Next::Remove(index) => Some(Work::RemoveDrive(of(index), goes_on, Consent::FORCE)),
            Next::Evacuate(index) => Some(Work::EvacuateDrive(of(index), goes_on)),
            Next::GoOn => Some(Work::Rebuild(self.name.clone(), goes_on)),
            Next::Lost => {
                let pause = after?.saturating_mul(2_u32.saturating_pow(self.away.rebuilt.min(10)));
                if reactor::now() < *self.away.rebuilds.get_or_insert_with(|| from_now(pause)) {
                    return None;
                }
                // Should it be given up, it is tried again later.
                self.away.rebuilt += 1;
                self.away.rebuilds = Some(from_now(pause.saturating_mul(2)));
                Some(Work::Rebuild(self.name.clone(), anew))
            }
            Next::Busy | Next::Stop | Next::Rest => None,
        }
    }
}

/// What is to be done now about what drives have, or had.
#[derive(Debug, Default)]
pub struct Moves {
    /// What is to be moved.
    pub work: Option<Work>,
    /// What is to be said of that once it has begun.
    pub said: Option<String>,
    /// The labels are to say that nothing is moved any more.
    pub stops: bool,
    /// Drives of which it is forgotten that moving was stopped.
    pub settled: BTreeSet<u16>,
    /// Drives of which it is forgotten that they are being removed: others have their places.
    pub replaced: BTreeMap<u16, Uuid>,
}

#[cfg(test)]
mod tests;
