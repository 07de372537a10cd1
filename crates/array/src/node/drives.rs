//! What an operator does with a pool's drives: takes them out, has them back, puts others in their places. The pool's
//! volumes are served meanwhile, and changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::v1::{Drive, DriveReplacement, Kind, NewDrives, Severity};
use api::value::{DrivePath, Name, PoolDrive};
use engine::{DriveState, DriveStatus};

use super::Node;
use crate::jobs::Task;
use crate::limits::DRIVE_LOOK;
use crate::lock::Lock;
use crate::pools::{Member, OpenPool, no_drive, not_open};
use crate::{Error, Result};

pub(super) fn drive_of(pool: &engine::PoolStatus, of: &PoolDrive) -> Result<DriveStatus> {
    pool.drives.get(usize::from(of.index)).cloned().ok_or_else(|| no_drive(of))
}

impl Node {
    /// One drive of an open pool.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while the pool is not open.
    pub fn drive(&self, of: &PoolDrive) -> Result<Drive> {
        // Says why it is not open.
        drop(self.open_pool_named(&of.pool)?);
        let status = self.pool(&of.pool)?.status;
        let status = status.ok_or_else(|| not_open(&of.pool, "it was closed just now"))?;
        let drive = status.drives.into_iter().nth(usize::from(of.index));
        drive.ok_or_else(|| no_drive(of))
    }

    pub(super) fn open_pool_of(&self, of: &PoolDrive) -> Result<Arc<OpenPool>> {
        let pool = self.view().serving()?.pools.pool(&of.pool)?;
        drive_of(&pool.status()?, of)?;
        Ok(pool)
    }

    /// Takes a drive out of use. It stays out until it is asked for.
    pub(super) fn take_drive_out(&self, of: &PoolDrive, task: &Task) -> Result<()> {
        let pool = self.open_pool_of(of)?;
        task.commit(0, 1, "takes it out")?;
        retire(&pool, of)?;
        self.note_given_up(of, true)?;
        let words = format!("drive {} of pool {} was taken out by an operator", of.index, of.pool);
        self.events.record(Severity::Warning, words);
        Ok(())
    }

    /// Whether a spare is to take a drive's place at once for as long as it is out.
    fn note_given_up(&self, of: &PoolDrive, is_out: bool) -> Result<()> {
        let of = of.clone();
        self.owner.ask_unseen(move |owned| {
            owned.serving_mut()?.pools_mut().give_up_drive(&of, is_out);
            Ok(())
        })
    }

    /// An operator wants a drive back, and it is by now or not: how often it came and went before does not count.
    fn welcome(&self, of: &PoolDrive, is_back: bool) -> Result<()> {
        let of = of.clone();
        self.owner.ask(move |owned| {
            owned.serving_mut()?.pools_mut().welcome_drive(&of, is_back);
            owned.keep()
        })
    }

    /// Takes a drive back that is out, and waits until it is whole.
    pub(super) fn bring_drive_back(&self, of: &PoolDrive, task: &Task) -> Result<()> {
        task.step(0, 2, "looks for it")?;
        let pool = self.open_pool_of(of)?;
        match drive_of(&pool.status()?, of)?.state {
            DriveState::Online => {
                let what = format!("drive {} of pool {} is in use", of.index, of.pool);
                return Err(Error::new(Kind::Conflict, what).help("there is nothing to be done"));
            }
            // It came back by itself.
            DriveState::Rejoining => return self.wait_until_whole(&pool, of, task, 1),
            DriveState::Missing | DriveState::Failed => {}
        }
        self.note_given_up(of, false)?;
        self.welcome(of, false)?;
        pool.let_return(of.index)?;
        let search = self.view().serving()?.pools.search(&of.pool)?;
        let brought = search.bring(of.index);
        let is_back = || drive_of(&pool.status()?, of).map(|drive| drive.state.is_written());
        match brought {
            Ok(path) => {
                self.welcome(of, true)?;
                self.keep_place(of, &path)?;
                let at = path.display();
                let words =
                    format!("drive {} of pool {} at {at} is made whole again", of.index, of.pool);
                self.events.record(Severity::Info, words);
            }
            // It was let return, and did.
            Err(_) if is_back()? => self.welcome(of, true)?,
            Err(error) => return Err(error),
        }
        self.wait_until_whole(&pool, of, task, 1)
    }

    /// Puts another drive in the place of one, and waits until it is whole.
    pub(super) fn put_drive(
        &self,
        of: &PoolDrive,
        new: &DriveReplacement,
        task: &Task,
    ) -> Result<()> {
        task.step(0, 3, "looks at the new drive")?;
        let pool = self.open_pool_of(of)?;
        self.check_no_pools(vec![new.drive.path.clone()], new.force)?;
        let opener = self.view().serving()?.pools.opener();
        let mut made_of = opener.new_drive(&new.drive, new.force)?;
        let made = std::mem::take(&mut made_of.made);
        let Some(member) = made_of.drives.pop() else { return Err(no_drive(of)) };
        task.step(1, 3, "gives it the place")?;
        let path = member.path.clone();
        let given = self.give_place(&pool, of, member, made_of.locks.pop());
        let before = self.unless_cut_short(&pool, given)?;
        made.keep();
        let instead = match before.as_os_str().is_empty() {
            true => String::new(),
            false => format!(" in place of {}", before.display()),
        };
        let words = format!(
            "{} is drive {} of pool {}{instead}, and is made whole",
            path.display(),
            of.index,
            of.pool
        );
        self.events.record(Severity::Info, words);
        self.wait_until_whole(&pool, of, task, 2)
    }

    /// Puts a drive in a place, which `lock` holds. Gives where the one was that it replaces.
    pub(super) fn give_place(
        &self,
        pool: &OpenPool,
        of: &PoolDrive,
        member: Member,
        lock: Option<Arc<Lock>>,
    ) -> Result<PathBuf> {
        // First: it is looked for there, should the node end once its labels are written.
        let before = self.keep_both_places(of, &member.path)?;
        let path = member.path.clone();
        let replaced = pool.replace_drive(of.index, member);
        if replaced.is_err() {
            self.keep_place(of, &before)?;
        }
        let from = before.clone();
        let forgot = self.remember(&of.pool, move |def| _ = def.drives_from.remove(&from));
        self.tell_unless_kept(&of.pool, forgot)?;
        replaced?;
        if before != path {
            pool.unlock(usize::from(of.index), &before);
        }
        pool.moved(usize::from(of.index), path, lock);
        Ok(before)
    }

    /// Adds drives to a pool, one after the other: those that are there stay, should one be refused.
    pub(super) fn add_drives(&self, name: &Name, new: &NewDrives, task: &Task) -> Result<()> {
        if new.drives.is_empty() {
            return Err(Error::new(Kind::Invalid, "no drive is named").help("name those to add"));
        }
        let steps = u32::try_from(new.drives.len()).unwrap_or(u32::MAX);
        for (done, drive) in (0..).zip(&new.drives) {
            // Each has the next index. Nobody else waits until it counts.
            let turn = self.turn(name, task)?;
            task.step(done, steps, &format!("adds {drive}"))?;
            let pool = self.view().serving()?.pools.pool(name)?;
            let added = self.unless_cut_short(&pool, self.add_drive(&pool, drive, new.force))?;
            drop(turn);
            if let Some(of) = added {
                self.wait_until_it_counts(&pool, &of, task)?;
            }
        }
        Ok(())
    }

    fn add_drive(
        &self,
        pool: &OpenPool,
        asked: &DrivePath,
        forced: bool,
    ) -> Result<Option<PoolDrive>> {
        self.check_no_pools(vec![asked.path.clone()], forced)?;
        let opener = self.view().serving()?.pools.opener();
        let mut made_of = opener.new_drive(asked, forced)?;
        let made = std::mem::take(&mut made_of.made);
        let Some(member) = made_of.drives.pop() else { return Ok(None) };
        let of = self.widen(pool, member, made_of.locks.pop())?;
        made.keep();
        Ok(Some(of))
    }

    /// Adds a drive, which `lock` holds, behind those that a pool has. Gives its place.
    pub(super) fn widen(
        &self,
        pool: &OpenPool,
        member: Member,
        lock: Option<Arc<Lock>>,
    ) -> Result<PoolDrive> {
        let name = pool.name();
        let index = u16::try_from(pool.status()?.drives.len()).unwrap_or(u16::MAX);
        let of = PoolDrive { pool: name.clone(), index };
        let before = self.keep_place(&of, &member.path)?;
        let path = member.path.clone();
        let added = match pool.add_drive(member) {
            Ok(added) => added,
            Err(error) => {
                self.keep_place(&of, &before)?;
                let what = format!(
                    "{} cannot be drive {index} of pool {name}: {}",
                    path.display(),
                    error.context
                );
                return Err(Error { context: what, ..error });
            }
        };
        pool.moved(usize::from(added), path.clone(), lock);
        let words = format!("{} is drive {added} of pool {name}", path.display());
        self.events.record(Severity::Info, words);
        Ok(of)
    }

    /// Waits until a drive is taken into use that came to a place where nothing lies: it has nothing to be made anew, and
    /// does not wait for those that have.
    pub(super) fn wait_until_it_counts(
        &self,
        pool: &OpenPool,
        of: &PoolDrive,
        task: &Task,
    ) -> Result<()> {
        let counts = self.follow_until_online(pool, of, task, Comes::ToVacantPlace);
        self.unless_closed(pool, counts)
    }

    /// As [`keep_place`](Self::keep_place) of a drive that is about to be given the place. The one that has it is looked for
    /// as before, should the node end before labels say otherwise.
    pub(super) fn keep_both_places(&self, of: &PoolDrive, path: &Path) -> Result<PathBuf> {
        let from = self.view().serving()?.pools.place_of(of)?.filter(|from| from != path);
        self.remember(&of.pool, move |def| def.drives_from.extend(from))?;
        self.keep_place(of, path)
    }

    /// Writes down where a drive is. Gives where it was.
    pub(super) fn keep_place(&self, of: &PoolDrive, path: &Path) -> Result<PathBuf> {
        let (of, path) = (of.clone(), path.to_owned());
        self.owner.ask(move |owned| {
            let pools = owned.serving_mut()?.pools_mut();
            let before = pools.place_drive(&of, path)?;
            if let Err(error) = owned.keep() {
                owned.serving_mut()?.pools_mut().place_drive(&of, before)?;
                return Err(error);
            }
            Ok(before)
        })
    }

    /// Waits until a drive is whole that is being made so. One that nobody waits for any more is out.
    pub(super) fn wait_until_whole(
        &self,
        pool: &OpenPool,
        of: &PoolDrive,
        task: &Task,
        done: u32,
    ) -> Result<()> {
        // That it was cancelled is seen below: the drive is out then.
        let _wanted = task.step(done, done + 1, "makes it whole");
        let whole = self.follow_until_online(pool, of, task, Comes::ToBeMadeWhole);
        self.unless_closed(pool, whole)
    }

    /// As [`unless_closed`](Self::unless_closed), of what is to be asked for again where it was not done.
    fn unless_cut_short<T>(&self, pool: &OpenPool, done: Result<T>) -> Result<T> {
        self.unless_closed(pool, done).map_err(|error| match error.kind {
            Kind::Stopping => error.help(
                "`flashloom drive list` tells whether the drive has its place: ask again if it has not",
            ),
            _ => error,
        })
    }

    /// Waits until a drive counts. Where that fails, or is not waited for any more, `comes` says what becomes of it.
    fn follow_until_online(
        &self,
        pool: &OpenPool,
        of: &PoolDrive,
        task: &Task,
        comes: Comes,
    ) -> Result<()> {
        loop {
            let status = pool.status_in(DRIVE_LOOK)?;
            let drive = drive_of(&status, of)?;
            match drive.state {
                DriveState::Online => return Ok(()),
                DriveState::Rejoining => {}
                DriveState::Missing | DriveState::Failed => {
                    let failure = drive.rejoin.and_then(|rejoin| rejoin.failure);
                    return Err(comes.failed(of, failure.as_deref().unwrap_or("it failed")));
                }
            }
            if task.goes_on().is_err() {
                if comes == Comes::ToBeMadeWhole {
                    retire(pool, of)?;
                }
                return Err(comes.cancelled(of));
            }
            if comes == Comes::ToBeMadeWhole {
                let is_paused = self.rejoin_pace(&of.pool)?.paused;
                task.say(if is_paused { "is paused" } else { "makes it whole" });
                if let Some(rejoin) = drive.rejoin {
                    let unit = status.layout.au_bytes;
                    task.moved(rejoin.done * unit, rejoin.units * unit);
                }
            }
        }
    }
}

/// How a drive comes to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// The pool lacks what lies there until it is whole.
    ToBeMadeWhole,
    /// Nothing lies there.
    ToVacantPlace,
}

impl Comes {
    fn failed(self, of: &PoolDrive, why: &str) -> Error {
        let (what, help) = match self {
            Self::ToBeMadeWhole => {
                ("whole", format!("`flashloom drive show {of}` tells how it is"))
            }
            Self::ToVacantPlace => {
                ("taken into use", format!("`flashloom drive replace {of}` puts another one there"))
            }
        };
        Error::new(Kind::Failed, format!("drive {} is not {what}: {why}", of.index)).help(help)
    }

    fn cancelled(self, of: &PoolDrive) -> Error {
        let (what, help) = match self {
            Self::ToBeMadeWhole => {
                ("is out", format!("`flashloom drive rejoin {of}` makes it whole"))
            }
            Self::ToVacantPlace => (
                "is added all the same",
                format!("`flashloom drive remove {of}` takes it out again"),
            ),
        };
        let what = format!("the job was cancelled: drive {} {what}", of.index);
        Error::new(Kind::Conflict, what).help(help)
    }
}

fn retire(pool: &OpenPool, of: &PoolDrive) -> Result<()> {
    pool.fail_drive(of.index).map_err(|error| {
        error.help(format!("`flashloom drive list` tells what else pool {} lacks", of.pool))
    })
}
