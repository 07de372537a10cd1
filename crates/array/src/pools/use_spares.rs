//! Spares of open pools are put in the places of drives that are lost, as [`reasons`](super::reasons) says.

use std::path::PathBuf;
use std::time::Duration;

use api::value::PoolDrive;
use engine::{DriveStatus, PoolStatus};
use uuid::Uuid;

use super::SpareDef;
use super::reasons::{Lack, Place, Reason, Use, uses};
use super::rebuild::is_lost;
use super::returning::Search;

impl Search {
    /// Which spares take which places now. None while what lost drives had is rebuilt, or that is paused.
    pub(super) fn use_spares(
        &self,
        status: &PoolStatus,
        after: Option<Duration>,
    ) -> Vec<(PoolDrive, Uuid, Reason)> {
        // A drive that works, and is emptied as it is slow, keeps nobody waiting whose redundancy is gone.
        let is_out = |n: &u16| status.drives.get(usize::from(*n)).is_none_or(is_lost);
        let moves = status.rebuild.as_ref();
        let moves = moves.is_some_and(|of| of.is_under_way && of.drives.iter().any(is_out));
        if self.def.paused.is_some() || moves || self.is_claimed {
            return Vec::new();
        }
        let lost = (0..).zip(&status.drives).filter(|(_, drive)| is_lost(drive));
        let lost = lost.filter(|(index, drive)| !self.def.removes(*index, drive));
        let places: Vec<_> = lost.map(|(index, drive)| self.place(index, drive)).collect();
        let uses = uses(&places, self.spares.clone(), after).into_iter();
        let named = |of: Use| {
            let place = PoolDrive { pool: self.name.clone(), index: of.index };
            (place, of.spare, of.why)
        };
        uses.map(named).collect()
    }

    fn place(&self, index: u16, drive: &DriveStatus) -> Place {
        let away = &self.away;
        let lacked = away.drives.get(&usize::from(index)).filter(|lacked| !lacked.is_coming);
        let lack = lacked.map(|lacked| Lack {
            gone: Duration::from_nanos(reactor::now().saturating_sub(lacked.since)),
            failures: away.failures.get(&usize::from(index)).map_or(0, |of| of.of(drive.id)),
            is_refused: lacked.is_refused,
            stays_out: drive.stays_out,
            is_given_up: self.given_up.contains(&index),
            was_given: self.def.spares.iter().any(|spare| self.is_placed(spare, index)),
        });
        let is_half =
            |spare: &&SpareDef| self.is_placed(spare, index) && !self.resting.contains(&spare.id);
        let half = self.def.spares.iter().find(is_half).map(|spare| spare.id);
        Place { index, bytes: drive.bytes, lack, half }
    }

    fn is_placed(&self, spare: &SpareDef, index: u16) -> bool {
        self.def.drives.get(usize::from(index)) == Some(&spare.path)
    }

    /// Spares that have a place by now, though the node ended before that was written down.
    pub(super) fn used_spares(&self, status: &PoolStatus) -> Vec<Uuid> {
        let written = |index: &u16| {
            status.drives.get(usize::from(*index)).is_some_and(|drive| drive.state.is_written())
        };
        let places = u16::try_from(status.drives.len()).unwrap_or(u16::MAX);
        let is_used = |spare: &&SpareDef| {
            (0..places).any(|index| self.is_placed(spare, index) && written(&index))
        };
        let used = self.def.spares.iter().filter(is_used);
        used.filter(|_| !self.is_claimed).map(|spare| spare.id).collect()
    }

    /// Places of vacant drives, or of none, that spares were to have when the node ended, and did not come to: they stand
    /// by as before.
    pub(super) fn unplaced_spares(&self, status: &PoolStatus) -> Vec<u16> {
        let is_of_spare = |path: &PathBuf| self.def.spares.iter().any(|spare| spare.path == *path);
        let is_empty = |index: usize| {
            let drive = status.drives.get(index);
            drive.is_none_or(|drive| drive.vacant && !drive.state.is_written())
        };
        let places = (0..).zip(&self.def.drives).filter(|(_, path)| is_of_spare(path));
        let places = places.filter(|(index, _)| is_empty(usize::from(*index)));
        places.filter(|_| !self.is_claimed).map(|(index, _)| index).collect()
    }
}
