//! Pools that are deleted. From when that is written down such a pool is never opened again: whenever the node ends
//! meanwhile, its next start goes on. What identifies a drive as the pool's goes last, so that what is left can be found.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use api::v1::Kind;
use api::value::{DrivePath, LogPlace, Name};
use engine::format::label::Label;
use engine::{LogDevice, LogSpec};
use media::Drive;
use stdx::num::usize64;
use uuid::Uuid;

use super::blank::{self, ends};
use super::made_of::{Made, MadeOf, labels, open_drive, open_known_log};
use super::{Condition, Known, OpenPool, Opener, PoolDef, Pools, no_pool, opened_just_now};
use crate::jobs::Task;
use crate::limits::CLEAR_PATIENCE;
use crate::lock::{Lock, Patience};
use crate::{Error, Result};

/// How much a drive is asked to free at once: it goes on with what others ask of it in between.
const FREED_AT_ONCE: u64 = 1 << 30;

/// What a log says of itself is in there.
const LOG_FRONT: u64 = 1 << 20;

impl Pools {
    /// Notes that a pool is being deleted, and gives it if it is open.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is being opened.
    pub fn begin_delete(&mut self, name: &Name) -> Result<Option<Arc<OpenPool>>> {
        let known = self.known.get_mut(name).ok_or_else(|| no_pool(name))?;
        if let Condition::Opening { .. } = known.condition {
            return Err(opened_just_now(name));
        }
        known.def.deleting = true;
        Ok(known.pool().cloned())
    }

    /// It is not deleted after all, and nothing was done yet.
    pub fn refuse_delete(&mut self, name: &Name) {
        if let Some(known) = self.known.get_mut(name) {
            known.def.deleting = false;
        }
    }

    /// Nobody is given a pool any more that is being deleted.
    pub fn take_from_service(&mut self, name: &Name) {
        if let Some(known) = self.known.get_mut(name) {
            known.condition = Condition::Closed("it is being deleted".to_owned());
            known.tries = 0;
            self.away.remove(name);
        }
    }

    /// A pool that is being deleted has a drive which may still be written to: its deletion goes on when it is not.
    pub fn delete_later(&mut self, name: &Name, ending: Arc<OpenPool>) {
        if let Some(known) = self.known.get_mut(name) {
            let why = "it is being deleted, and a drive does not answer what it was asked to write";
            known.condition = Condition::Closed(why.to_owned());
            (known.ending, known.tries) = (Some(ending), 1);
        }
    }

    /// The pools whose deletion was begun and cut short, by the end of the node or by a drive that did not answer: each is
    /// given once.
    pub fn half_deleted(&mut self) -> Vec<Name> {
        let is_due = |known: &mut Known| {
            let is_free = known.ending.as_ref().is_none_or(|pool| pool.let_go());
            known.def.deleting && known.tries > 0 && is_free
        };
        let due = self.known.iter_mut().filter_map(|(name, known)| {
            is_due(known).then(|| {
                known.ending = None;
                (name, known)
            })
        });
        due.map(|(name, known)| {
            known.tries = 0;
            name.clone()
        })
        .collect()
    }
}

impl Opener {
    /// Frees what a pool has on its drives, and makes them blank; the files of its log are removed, and namespaces of other
    /// targets that have it read as zeroes. What is another pool's
    /// by now is left alone, and so are copies of drives: only what is where the pool had it is looked at. Gives what
    /// could not be cleared, in words.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn clear(&self, def: &PoolDef, task: &Task) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for path in def.places() {
            // A place that no drive ever came to; what is in memory is gone.
            if path.as_os_str().is_empty() || DrivePath::memory(path).is_some() {
                continue;
            }
            task.step(1, 3, &format!("clears {}", path.display()))?;
            match self.clear_drive(path, |label| Uuid::from_bytes(label.pool) == def.id) {
                Ok(()) => {}
                // The pool stays known, and the next start goes on.
                Err(error) if error.kind == Kind::Stopping => return Err(error),
                Err(error) => left.push(error.context),
            }
        }
        for place in def.log.iter().chain(&def.log_to) {
            let removed = match place {
                LogPlace::Pmem(path) | LogPlace::Bbu(path) if path.exists() => {
                    self.remove_log(place, path, def.id)
                }
                LogPlace::Remote(_) => self.clear_log(place, def.id),
                LogPlace::Pmem(_) | LogPlace::Bbu(_) | LogPlace::Drives => continue,
            };
            match removed {
                Ok(()) => {}
                Err(error) if error.kind == Kind::Stopping => return Err(error),
                Err(error) => left.push(error.context),
            }
        }
        Ok(left)
    }

    /// Makes what is at `path` blank if it is this drive of the pool. One that is blank already, or another, is left alone.
    ///
    /// # Errors
    /// `Conflict` when it is in use, `Failed` when it does not say what it is, or cannot be written, `Stopping`.
    pub fn wipe(&self, path: &Path, pool: Uuid, index: u16, id: [u8; 16]) -> Result<()> {
        let is_it = |label: &Label| {
            let record = label.drives.get(usize::from(index));
            Uuid::from_bytes(label.pool) == pool
                && label.drive == index
                && record.is_some_and(|record| record.id == id)
        };
        match self.clear_drive(path, is_it) {
            // An earlier life of the node was cut short once that was done.
            Err(error) if error.kind == Kind::Failed && self.is_blank(path)? => Ok(()),
            done => done,
        }
    }

    /// Whether nothing is at `path` that anybody may need.
    fn is_blank(&self, path: &Path) -> Result<bool> {
        let Ok((member, lock)) = open_drive(path, None, Patience::begin()) else {
            return Ok(false);
        };
        let made_of = MadeOf {
            drives: vec![member],
            log: LogSpec::Drives,
            places: Vec::new(),
            locks: lock.into_iter().collect(),
            made: Made::default(),
        };
        Ok(blank::check(self.home()?, &made_of).is_ok())
    }

    /// Clears what is at `path` if its label says that it is such a drive.
    fn clear_drive(&self, path: &Path, is_its: impl Fn(&Label) -> bool) -> Result<()> {
        // Held first: what its label says is so until it is cleared.
        let (member, lock) = open_drive(path, None, Patience::begin())?;
        let home = self.home()?;
        let label = labels(home, std::slice::from_ref(&member))?.pop().flatten();
        match label.map(|label| is_its(&label)) {
            Some(true) => {}
            Some(false) => return Ok(()),
            None => {
                let what = format!("{} carries no label that can be read", path.display());
                return Err(Error::new(Kind::Failed, what));
            }
        }
        let (drive, (tell, told)) = (member.drive, channel());
        // Who waits for it looks at what it tells.
        drop(home.call(move || async move {
            // Nobody else has it for as long as something may come to it.
            let _held = lock;
            let cleared = clear(&drive, &tell).await;
            let _ = tell.send(Some(cleared));
        }));
        follow(&told, &path.display().to_string())
    }

    /// Removes the file of a log, if it is this pool's.
    fn remove_log(&self, place: &LogPlace, path: &Path, pool: Uuid) -> Result<()> {
        // Held until it is gone.
        let Some(_held) = self.log_of(place, pool)? else { return Ok(()) };
        fs::remove_file(path)
            .map_err(|error| Error::failed(format!("cannot remove the log {place}"), error))
    }

    /// Makes a namespace of another target read as zeroes, if this pool's log is there: what hosts wrote is in it.
    fn clear_log(&self, place: &LogPlace, pool: Uuid) -> Result<()> {
        let Some((log, locks)) = self.log_of(place, pool)? else { return Ok(()) };
        let Some(LogDevice::Remote(remote)) = log.devices().pop() else { return Ok(()) };
        let (looked_at, pool) = (remote.clone(), *pool.as_bytes());
        let looked = self
            .home()?
            .call(move || async move { engine::log::is_of_pool_alone(&looked_at, pool).await });
        let by =
            looked.wait().map_err(|_| Error::new(Kind::Stopping, "the reactors have stopped"))?;
        let by =
            by.map_err(|error| Error::failed(format!("cannot read the log {place}"), error))?;
        let Some(by) = by else {
            let what = format!(
                "{place} has something beside what was left of the pool's log: it is not cleared"
            );
            return Err(Error::new(Kind::Failed, what));
        };
        let (tell, told) = channel();
        drop(self.home()?.call(move || async move {
            let _held = locks;
            let cleared = zero(&remote.drive, by, &tell).await;
            let _ = tell.send(Some(cleared));
        }));
        follow(&told, &place.to_string())
    }

    /// What is at a place, if it is the log of this pool.
    fn log_of(&self, place: &LogPlace, pool: Uuid) -> Result<Option<(LogSpec, Vec<Arc<Lock>>)>> {
        let places = std::slice::from_ref(place);
        let (log, locks, _) = open_known_log(places, self.node, (None, None))?;
        let failed = |error| Error::failed(format!("cannot read the log {place}"), error);
        for device in log.devices() {
            let looked =
                self.home()?.call(move || async move { engine::log::pool_of(&device).await });
            let of = looked
                .wait()
                .map_err(|_| Error::new(Kind::Stopping, "the reactors have stopped"))?;
            if of.map_err(failed)? != Some(*pool.as_bytes()) {
                return Ok(None);
            }
        }
        Ok(Some((log, locks)))
    }
}

/// Waits until something is clear that tells how it goes on.
fn follow(told: &Receiver<Option<Cleared>>, what: &str) -> Result<()> {
    loop {
        match told.recv_timeout(CLEAR_PATIENCE) {
            Ok(None) => {}
            Ok(Some(cleared)) => {
                return cleared
                    .map_err(|error| Error::failed(format!("cannot clear {what}"), error));
            }
            Err(RecvTimeoutError::Timeout) => return Err(silent(what)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new(Kind::Stopping, "the reactors have stopped"));
            }
        }
    }
}

fn silent(what: &str) -> Error {
    let seconds = CLEAR_PATIENCE.as_secs();
    let what = format!(
        "{what} was asked to be cleared and has not answered for {seconds} s: it may still have what was the pool's"
    );
    Error::new(Kind::Failed, what)
}

type Cleared = std::result::Result<(), media::Error>;

/// Tells with a `None` whenever something of it is done.
async fn clear(drive: &Drive, told: &Sender<Option<Cleared>>) -> Cleared {
    let mut offset = 0;
    while offset < drive.capacity() {
        let len = FREED_AT_ONCE.min(drive.capacity() - offset);
        // Not all drives can, and nobody reads what they keep. One that fails is told of below.
        if drive.deallocate(offset, len).await.is_err() {
            break;
        }
        offset += len;
        let _ = told.send(None);
    }
    // The labels are at both ends, and have to be gone.
    for (offset, len) in ends(drive.capacity()) {
        drive.write_zeroes(offset, stdx::num::u64_of(len), false).await?;
        let _ = told.send(None);
    }
    drive.flush().await
}

/// Has a drive of another machine read as zeroes, all of it, as long as it is reached by this connection: by another one
/// somebody else's may be reached. What says whose it is goes last, so that another attempt finds it.
async fn zero(drive: &Drive, by: u64, told: &Sender<Option<Cleared>>) -> Cleared {
    let capacity = drive.capacity();
    let front = LOG_FRONT.min(capacity);
    let pieces = (front..capacity).step_by(usize64(FREED_AT_ONCE));
    let rest = pieces.map(|offset| (offset, FREED_AT_ONCE.min(capacity - offset)));
    for (offset, len) in rest.chain([(0, front)]) {
        drive.write_zeroes_by(Some(by), offset, len, true).await?;
        let _ = told.send(None);
    }
    drive.flush().await
}
