//! Drives are taken out of their pools for good. What a pool needs of one is on the others first; then nobody takes it
//! back by itself, and what identifies it as the pool's is wiped, so that it can be used elsewhere.

use std::path::{Path, PathBuf};

use api::v1::{Consent, Job, JobKind, Kind, Losses, Severity};
use api::value::{DrivePath, PoolDrive, Size};
use engine::{DriveState, DriveStatus};
use media::drive::WRITES_PATIENCE;
use uuid::Uuid;

use super::Node;
use super::drives::drive_of;
use crate::jobs::{Moving, Task};
use crate::losses::check_meant;
use crate::pools::OpenPool;
use crate::{Error, Result};

/// What came of the label of a drive that is out of its pool.
pub(super) enum Wiped {
    /// There is none any more.
    Yes,
    /// The drive is not where it was.
    Gone(PathBuf),
    /// It is there, and could not be wiped.
    No(Error),
}

impl Node {
    /// What the removal of a drive would take away.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while the pool is not open or the drive is made whole.
    pub fn losses_of_drive(&self, of: &PoolDrive) -> Result<Losses> {
        let pool = self.open_pool_of(of)?;
        let drive = drive_of(&pool.status()?, of)?;
        let at = self.place_of_drive(of)?;
        let what = match &at {
            Some(at) => format!("drive {} of pool {} ({})", of.index, of.pool, at.display()),
            None => format!("drive {} of pool {}", of.index, of.pool),
        };
        let loss = match drive.state {
            DriveState::Rejoining => return Err(is_made_whole(of)),
            DriveState::Online => {
                let size = Size::new(drive.bytes);
                format!(
                    "{what} would be emptied onto the others and wiped: the pool has {size} of drives less then"
                )
            }
            DriveState::Missing | DriveState::Failed if !drive.vacant => format!(
                "{what} would be given up: what it had is made anew on the others, it is wiped where it is there, and \
                 not taken back when it returns"
            ),
            DriveState::Missing | DriveState::Failed
                if at.is_some() || drive.stays_out.is_none() =>
            {
                format!(
                    "{what} would be wiped where it is there, and not taken back when it returns"
                )
            }
            DriveState::Missing | DriveState::Failed => return Ok(Losses::default()),
        };
        Ok(Losses { losses: vec![loss] })
    }

    /// Where a drive was last, if it is to be found anywhere.
    fn place_of_drive(&self, of: &PoolDrive) -> Result<Option<PathBuf>> {
        let view = self.view();
        let at = view.serving()?.pools.place_of(of)?;
        Ok(at.filter(|at| DrivePath::memory(at).is_none()))
    }

    pub(super) fn remove_drive(
        &self,
        of: &PoolDrive,
        how: Moving,
        consent: Consent,
        task: &Task,
    ) -> Result<()> {
        let (pool, target) = (self.open_pool_of(of)?, of.to_string());
        let is_before = |job: &Job| {
            job.kind == JobKind::DriveRemove && job.target == target && job.id < task.job()
        };
        if let Some(job) = self.job_that(is_before) {
            // Nor is that one forgotten, should this one fail.
            let what = format!("drive {} of pool {} is being removed already", of.index, of.pool);
            return Err(Error::new(Kind::Conflict, what)
                .help(format!("`flashloom job wait {}` waits for its end", job.id)));
        }
        let removed = self.remove_in_order(&pool, of, how, consent, task);
        if removed.is_err() && !task.is_paused() {
            self.check_still_open(&pool)?;
            self.forget_removal(of)?;
        }
        removed
    }

    /// Nobody goes on by himself with a removal that was given up.
    fn forget_removal(&self, of: &PoolDrive) -> Result<()> {
        let index = of.index;
        let defs = self.view().serving()?.pools.defs();
        match defs.get(&of.pool).is_some_and(|def| def.removing.contains_key(&index)) {
            true => self.remember(&of.pool, move |def| {
                def.removing.remove(&index);
            }),
            false => Ok(()),
        }
    }

    fn remove_in_order(
        &self,
        pool: &OpenPool,
        of: &PoolDrive,
        how: Moving,
        consent: Consent,
        task: &Task,
    ) -> Result<()> {
        task.step(0, 2, "moves what it has onto the others")?;
        check_meant(&self.losses_of_drive(of)?, consent.force)?;
        let (name, index) = (&of.pool, of.index);
        let id = Uuid::from_bytes(drive_of(&pool.status()?, of)?.id);
        let paused = self.view().serving()?.pools.paused(name)?.and_then(|paused| paused.id);
        if how.resumes && paused.is_some_and(|paused| paused != id) {
            return Err(came_or_went(of));
        }
        // First: whenever the node ends from here on, its next start goes on.
        self.remember(name, move |def| {
            def.removing.insert(index, id);
        })?;
        let emptied = self.vacate(pool, of, how, task)?;
        task.commit(1, 2, "wipes it")?;
        let at = self.view().serving()?.pools.place_of(of)?;
        let wiped = self.wipe(pool, of, emptied, at.as_deref())?;
        let left = at.filter(|_| !matches!(wiped, Wiped::No(_)));
        self.remember(name, move |def| {
            def.removing.remove(&index);
            def.forget_place(index, left.as_deref());
        })?;
        self.tell_removed(of, wiped)
    }

    fn tell_removed(&self, of: &PoolDrive, wiped: Wiped) -> Result<()> {
        let what = format!("drive {} is out of pool {} for good", of.index, of.pool);
        let (severity, words) = match wiped {
            Wiped::Yes => (Severity::Info, format!("{what}, and blank")),
            Wiped::Gone(at) => (
                Severity::Warning,
                format!(
                    "{what}; {} is not there, and was not wiped: should it return, it is not taken back",
                    at.display()
                ),
            ),
            Wiped::No(error) => {
                let what = format!("{what}, but was not wiped: {}", error.context);
                return Err(Error::new(Kind::Failed, what).help(format!(
                    "`flashloom drive remove {of}` tries again; another pool takes it with --force"
                )));
            }
        };
        self.events.record(severity, words);
        Ok(())
    }

    /// Sees to it that nothing of the pool lies on a drive, and that nobody takes it back unasked. Gives what identifies it.
    fn vacate(
        &self,
        pool: &OpenPool,
        of: &PoolDrive,
        how: Moving,
        task: &Task,
    ) -> Result<[u8; 16]> {
        let drive = drive_of(&pool.status()?, of)?;
        let works = match drive.state {
            DriveState::Rejoining => return Err(is_made_whole(of)),
            DriveState::Online => true,
            DriveState::Missing | DriveState::Failed => false,
        };
        if !works && drive.stays_out.is_none() {
            // It might return in the midst of it.
            pool.fail_drive(of.index)?;
        }
        if how.resumes || !is_vacant(&drive) {
            let emptied = self.empty(pool, works.then_some(of.index), how, task);
            if let Err(error) = emptied {
                if !works
                    && drive.stays_out.is_none()
                    && !task.is_paused()
                    && error.kind != Kind::Stopping
                {
                    pool.let_return(of.index)?;
                }
                return Err(error);
            }
        }
        keep_vacant(pool, of)
    }

    /// Makes a drive blank that is out of its pool, `at` where it was last, if it is the one that was `emptied`.
    pub(super) fn wipe(
        &self,
        pool: &OpenPool,
        of: &PoolDrive,
        emptied: [u8; 16],
        at: Option<&Path>,
    ) -> Result<Wiped> {
        let drive = drive_of(&pool.status()?, of)?;
        if drive.id != emptied || drive.state.is_written() {
            return Err(came_or_went(of));
        }
        let Some(at) = at else { return Ok(Wiped::Yes) };
        pool.leaves(usize::from(of.index), at);
        if DrivePath::memory(at).is_some() {
            return Ok(Wiped::Yes);
        }
        // What a drive was asked to write, and has not answered, would come after it was wiped.
        if at.exists() && !pool.await_rest_at(at, WRITES_PATIENCE) {
            let what = format!("{} may still be written to", at.display());
            return Ok(Wiped::No(Error::new(Kind::Failed, what)));
        }
        pool.unlock(usize::from(of.index), at);
        if !at.exists() {
            return Ok(Wiped::Gone(at.to_owned()));
        }
        let opener = self.view().serving()?.pools.opener();
        match opener.wipe(at, pool.id(), of.index, emptied) {
            Ok(()) => Ok(Wiped::Yes),
            Err(error) if error.kind == Kind::Stopping => Err(error),
            Err(error) => Ok(Wiped::No(error)),
        }
    }
}

const fn is_vacant(drive: &DriveStatus) -> bool {
    drive.vacant && !drive.state.is_written()
}

/// Sees that nothing of the pool is left in a drive's place, where it was emptied, and that nobody takes it back unasked.
/// Gives what identifies it.
///
/// # Errors
/// `Conflict` when a drive came there meanwhile, or it is not empty.
pub(super) fn keep_vacant(pool: &OpenPool, of: &PoolDrive) -> Result<[u8; 16]> {
    let now = drive_of(&pool.status()?, of)?;
    if !is_vacant(&now) {
        return Err(came_or_went(of));
    }
    // One that went away in the midst of it is not known to be taken out.
    if now.stays_out.is_none() {
        pool.fail_drive(of.index)?;
    }
    Ok(now.id)
}

/// Another drive has the place, perhaps.
fn came_or_went(of: &PoolDrive) -> Error {
    let what = format!("drive {} of pool {} came or went meanwhile", of.index, of.pool);
    Error::new(Kind::Conflict, what)
        .help(format!("`flashloom drive show {of}` tells how it is; ask again if it is to go"))
}

fn is_made_whole(of: &PoolDrive) -> Error {
    let what = format!("drive {} of pool {} is being made whole", of.index, of.pool);
    Error::new(Kind::Conflict, what)
        .help(format!("wait for that, or take it out first: `flashloom drive fail {of}`"))
}
