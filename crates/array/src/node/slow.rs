//! Drives that stay slower than the others: a spare comes to the pool for one, beside it, and then it is emptied. The pool
//! bears as much as ever all the while, and what the drive has is read from it where it answers.

use std::path::PathBuf;

use api::v1::{Kind, Severity};
use api::value::{Name, PoolDrive};
use engine::DriveState;
use uuid::Uuid;

use super::Node;
use super::drives::drive_of;
use crate::jobs::{Moving, Task};
use crate::pools::{OpenPool, WereFast};
use crate::{Error, Result};

impl Node {
    /// Has a spare come to the pool of a slow drive, and moves what that has onto the drives there are then.
    pub(super) fn relieve_drive(&self, of: &PoolDrive, spare: Uuid, task: &Task) -> Result<()> {
        let relieved = self.relieve_unless_stopped(of, spare, task);
        if relieved.is_err() && task.goes_on().is_err() && !task.is_paused() {
            // It may not have come to where it moves anything: it would begin again by itself.
            self.note_stopped(&of.pool, vec![of.index])?;
        }
        relieved
    }

    fn relieve_unless_stopped(&self, of: &PoolDrive, spare: Uuid, task: &Task) -> Result<()> {
        task.step(0, 2, "has a spare come to the pool")?;
        let pool = self.open_pool_of(of)?;
        if drive_of(&pool.status()?, of)?.state != DriveState::Online {
            let what = format!("drive {of} is not in use any more");
            return Err(Error::new(Kind::Conflict, what).help("the spare stands by as before"));
        }
        self.widen_by_spare(&pool, of, spare, task)?;
        task.step(1, 2, "moves what it has onto the others")?;
        self.move_away(of, Moving::default(), task)
    }

    fn widen_by_spare(
        &self,
        pool: &OpenPool,
        of: &PoolDrive,
        spare: Uuid,
        task: &Task,
    ) -> Result<()> {
        // Each new place has the next index. None that is vacant is filled: a drive that comes to one is lost to the labels
        // until it is whole, and one that is added is not.
        let turn = self.turn(&of.pool, task)?;
        let drives = pool.status()?.drives;
        if drives.iter().any(|drive| drive.state != DriveState::Online && !drive.vacant) {
            let what = format!("pool {} lacks a drive: that comes first", of.pool);
            return Err(Error::new(Kind::Conflict, what).help("the spare stands by as before"));
        }
        let (def, place) =
            self.use_spare(pool, spare, |member, lock| self.widen(pool, member, Some(lock)))?;
        self.spare_used(&of.pool, def.id, Some(of.index))?;
        let words = format!(
            "spare {} is drive {} of pool {}, for drive {}, which is slow and is emptied",
            def.path.display(),
            place.index,
            of.pool,
            of.index
        );
        self.events.record(Severity::Warning, words);
        drop(turn);
        self.wait_until_it_counts(pool, &place, task)
    }

    /// Remembers which drives of a pool were as fast as the others once: a drive that is slow when the node starts again
    /// is known not to be made so.
    pub(super) fn note_fast(&self, name: &Name, were_fast: WereFast) -> Result<()> {
        let kept = self.remember(name, move |def| {
            let before = std::mem::replace(&mut def.were_fast, were_fast);
            for (index, of) in &mut def.were_fast {
                // A spare may have come meanwhile.
                let known = before.get(index).filter(|known| known.id == of.id);
                of.has_spare |= known.is_some_and(|known| known.has_spare);
            }
        });
        self.tell_unless_kept(name, kept)
    }

    /// A spare did not come to a place that it was to have.
    pub(super) fn forget_place(&self, of: &PoolDrive) -> Result<()> {
        let index = usize::from(of.index);
        let forgot = self.remember(&of.pool, move |def| {
            // Another one may have come there since.
            let is_spares = |at: &PathBuf| def.spares.iter().any(|spare| spare.path == *at);
            if def.drives.get(index).is_some_and(is_spares) {
                def.drives[index] = PathBuf::new();
            }
        });
        self.tell_unless_kept(&of.pool, forgot)
    }

    pub(super) fn tell_unless_kept(&self, name: &Name, kept: Result<()>) -> Result<()> {
        match kept {
            Err(error) if error.kind == Kind::Stopping => Err(error),
            // It is tried again with the next look.
            Err(error) => {
                tracing::warn!("what is known of pool {name} is not written down: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
