//! Spares of pools: given and taken back by an operator, and put in the places of drives that fail or stay away.

use std::sync::Arc;

use api::v1::{JobKind, Kind, NewDrives, Severity, Spare};
use api::value::{DrivePath, Name, PoolDrive};
use engine::DriveState;
use uuid::Uuid;

use super::Node;
use super::drives::drive_of;
use crate::jobs::{Task, Work};
use crate::lock::Lock;
use crate::pools::{Member, OpenPool, Reason, SpareDef};
use crate::{Error, Result};

impl Node {
    /// The spares of all pools.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn all_spares(&self) -> Result<Vec<Spare>> {
        let view = self.view();
        let pools = &view.serving()?.pools;
        let mut spares: Vec<_> = pools.defs().keys().flat_map(|name| pools.spares(name)).collect();
        self.physical.fill_spares(&mut spares);
        Ok(spares)
    }

    /// The spares of one pool.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn spares(&self, name: &Name) -> Result<Vec<Spare>> {
        let view = self.view();
        let pools = &view.serving()?.pools;
        pools.paused(name)?;
        let mut spares = pools.spares(name);
        self.physical.fill_spares(&mut spares);
        Ok(spares)
    }

    /// Gives a pool spares, one after the other: those that it has stay, should one be refused.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for what is too small or no drive, `Conflict` for what is in use or not blank, `Limit`,
    /// `Conflict` while the pool is not open, or that cannot be written.
    pub fn add_spares(&self, name: &Name, new: &NewDrives) -> Result<Vec<Spare>> {
        if new.drives.is_empty() {
            return Err(Error::new(Kind::Invalid, "no drive is named").help("name those to add"));
        }
        for drive in &new.drives {
            self.add_spare(name, drive, new.force)?;
        }
        self.spares(name)
    }

    fn add_spare(&self, name: &Name, asked: &DrivePath, forced: bool) -> Result<()> {
        let pool = self.view().serving()?.pools.pool(name)?;
        let drives = pool.status()?.drives;
        let online = drives.iter().position(|drive| drive.state == DriveState::Online);
        let labelled = online.and_then(|index| pool.paths().into_iter().nth(index).flatten());
        let labelled =
            labelled.filter(|path| DrivePath::memory(path).is_none()).ok_or_else(|| {
                Error::new(
                    Kind::Failed,
                    format!("no drive of pool {name} says how large a spare has to be"),
                )
                .help("a pool of drives in memory has no spares")
            })?;
        self.check_no_pools(vec![asked.path.clone()], forced)?;
        let opener = self.view().serving()?.pools.opener();
        let (def, lock, made) = opener.make_spare(pool.id(), &labelled, asked, forced)?;
        let (of, spare) = (name.clone(), def.clone());
        let held = lock.clone();
        let kept = self.owner.ask(move |owned| {
            let pools = owned.serving_mut()?.pools_mut();
            pools.add_spare(&of, spare.clone(), held)?;
            if let Err(error) = owned.keep() {
                owned.serving_mut()?.pools_mut().take_spare_back(&of, spare.id);
                return Err(error);
            }
            Ok(())
        });
        if let Err(error) = kept {
            // Nobody knows it: it is to be of use elsewhere.
            let _ = opener.unmark(pool.id(), &def, lock);
            return Err(error);
        }
        made.keep();
        let words = format!("{} is a spare of pool {name}", def.path.display());
        self.events.record(Severity::Info, words);
        Ok(())
    }

    /// Takes a spare back from its pool, and makes it blank where it is there.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is being put in a place, `Failed` when that cannot be written down.
    pub fn remove_spare(&self, name: &Name, id: Uuid) -> Result<()> {
        let of = name.clone();
        let (pool, def, lock, opener) = self.owner.ask(move |owned| {
            let pools = owned.serving_mut()?.pools_mut();
            let (def, lock) = pools.claim_spare(&of, id)?;
            let pool = pools.id_of(&of)?;
            Ok((pool, def, lock, pools.opener()))
        })?;
        // First: were the node to end in between, it is a spare that is blank, and held as one.
        let cleared = opener.unmark(pool, &def, lock);
        let of = name.clone();
        self.owner.ask(move |owned| {
            let spare = owned.serving_mut()?.pools_mut().take_spare_back(&of, id);
            drop(spare);
            owned.keep()
        })?;
        let what = format!("{} is no spare of pool {name} any more", def.path.display());
        match cleared {
            Ok(()) => self.events.record(Severity::Info, what),
            Err(error) => {
                let words = format!(
                    "{what}, but its mark is not wiped: {}; --force takes it all the same where it is to be used",
                    error.context
                );
                self.events.record(Severity::Warning, words);
            }
        }
        Ok(())
    }

    /// Makes the spares blank of a pool that leaves this node, which is not held up by one that cannot be.
    pub(super) fn release_spares(&self, name: &Name) {
        for spare in self.spares(name).unwrap_or_default() {
            if let Err(error) = self.remove_spare(name, spare.id) {
                let words =
                    format!("spare {} of pool {name} is not given back: {error}", spare.path);
                self.events.record(Severity::Warning, words);
            }
        }
    }

    /// Looks whether all spares are there, and holds those that are.
    pub(super) fn look_at_spares(&self) -> Result<()> {
        // Of the owner: what holds a spare is nothing that readers see, and is not published for itself.
        let (spares, opener) = self.owner.ask_unseen(|owned| {
            let pools = owned.serving()?.pools();
            Ok((pools.spares_to_look_at(), pools.opener()))
        })?;
        for spare in spares {
            let looked = opener.look_at_spare(spare)?;
            let said = self
                .owner
                .ask(move |owned| Ok(owned.serving_mut()?.pools_mut().looked_at_spare(looked)))?;
            said.into_iter().for_each(|(severity, words)| self.events.record(severity, words));
        }
        Ok(())
    }

    /// Begins to put a spare in the place of a drive that failed, or stays away.
    pub(super) fn begin_spare(self: &Arc<Self>, of: &PoolDrive, spare: Uuid, why: Reason) {
        let target = of.to_string();
        if self.job_that(|job| job.kind == JobKind::DriveReplace && job.target == target).is_some()
        {
            return;
        }
        let work = Work::UseSpare(of.clone(), spare);
        let (severity, words) = match self.submit_own(work) {
            Ok(_) => (Severity::Info, format!("drive {of} is to be replaced by a spare: {why}")),
            Err(error) => {
                (Severity::Warning, format!("no spare takes the place of drive {of}: {error}"))
            }
        };
        self.events.record(severity, words);
    }

    /// Puts a spare in the place of a drive that the pool lacks, and waits until it is whole.
    pub(super) fn put_spare(&self, of: &PoolDrive, id: Uuid, task: &Task) -> Result<()> {
        task.step(0, 2, "puts a spare in its place")?;
        let pool = self.open_pool_of(of)?;
        let drive = drive_of(&pool.status()?, of)?;
        if drive.state.is_written() || drive.vacant {
            let what = format!("drive {} of pool {} is there again", of.index, of.pool);
            return Err(Error::new(Kind::Conflict, what).help("the spare stands by as before"));
        }
        let (def, before) = self
            .use_spare(&pool, id, |member, lock| self.give_place(&pool, of, member, Some(lock)))?;
        self.spare_used(&of.pool, def.id, None)?;
        let words = format!(
            "spare {} takes the place of drive {} of pool {}, which was {}, and is made whole",
            def.path.display(),
            of.index,
            of.pool,
            at(&before)
        );
        self.events.record(Severity::Warning, words);
        self.wait_until_whole(&pool, of, task, 1)
    }

    /// Puts a spare somewhere in its pool, which gives what that gave. It stands by as before where that fails.
    pub(super) fn use_spare<T>(
        &self,
        pool: &OpenPool,
        id: Uuid,
        put: impl FnOnce(Member, Arc<Lock>) -> Result<T>,
    ) -> Result<(SpareDef, T)> {
        let (name, opener) = (pool.name().clone(), self.view().serving()?.pools.opener());
        let (def, lock) =
            self.owner.ask(move |owned| owned.serving_mut()?.pools_mut().claim_spare(&name, id))?;
        let opened = opener.open_spare(pool.id(), &def, lock);
        let put = opened.and_then(|(member, lock)| {
            let drive = member.clone();
            // What was to be its place has another, or none.
            put(member, lock).inspect_err(|_| _ = opener.mark_again(pool.id(), &def, drive))
        });
        let error = match put {
            Ok(done) => return Ok((def, done)),
            Err(error) => error,
        };
        self.owner.ask(move |owned| {
            owned.serving_mut()?.pools_mut().unclaim_spare(id, true);
            Ok(())
        })?;
        let what = format!("spare {} cannot be used: {}", def.path.display(), error.context);
        Err(Error::new(error.kind, what).help("another one is, if there is one"))
    }

    /// A spare is a drive of its pool now, and came for a slow drive, if for one.
    pub(super) fn spare_used(&self, name: &Name, id: Uuid, slow: Option<u16>) -> Result<()> {
        let name = name.clone();
        let kept = self.owner.ask(move |owned| {
            let pools = owned.serving_mut()?.pools_mut();
            pools.forget_spare(&name, id);
            let slow = slow.and_then(|index| pools.def_mut(&name).ok()?.were_fast.get_mut(&index));
            slow.into_iter().for_each(|of| of.has_spare = true);
            Ok(owned.keep())
        })?;
        if let Err(error) = kept {
            // The next start sees that it is in its place.
            self.events.record(Severity::Warning, format!("that is not written down: {error}"));
        }
        Ok(())
    }
}

fn at(path: &std::path::Path) -> String {
    match path.as_os_str().is_empty() {
        true => "nowhere".to_owned(),
        false => path.display().to_string(),
    }
}
