//! Spares: drives that stand by to take the place of one of a pool's that fails, or has been gone for long. Each is held
//! as a pool's drive is, and carries a mark at its beginning, so that nobody takes it for blank.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::v1::{DriveHardware, DriveState, Kind, Severity, Spare};
use api::value::{DrivePath, Name};
use engine::Unknown;
use media::Drive;
use media::drive::OpenDrive;
use reactor::{Call, Nanos, buffer};
use serde::{Deserialize, Serialize};
use stdx::crc32c;
use stdx::num::u64_of;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes, Unaligned};

use super::made_of::{Made, Member, Progress, open_drive_again, seen};
use super::returning::from_now;
use super::{Opener, Pools, blank, look, no_pool};
use crate::limits::{RETURN_PAUSE_MAX, SPARE_PATIENCE, SPARES_MAX};
use crate::lock::{Lock, is_at};
use crate::{Error, Result};

const VERSION: u16 = 1;
/// Bytes of the mark with what is reserved behind it: a block.
const MARK_BYTES: usize = engine::address::BLOCK;
const _: () = assert!(size_of::<Mark>() == 48 && size_of::<Mark>() <= MARK_BYTES);
const _: () = assert!(offset_of!(Mark, pool) == 16 && offset_of!(Mark, id) == 32);

/// The mark of a spare; the rest of its block is zero. `docs/format.md` describes it.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Mark {
    magic: [u8; 8],
    /// CRC-32C of the block, with these bytes zero.
    crc: U32,
    version: U16,
    reserved: [u8; 2],
    pool: [u8; 16],
    id: [u8; 16],
}

/// A spare as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpareDef {
    /// Drawn at random when it was given; its mark has it.
    pub id: Uuid,
    /// Where it is, absolute.
    pub path: PathBuf,
    /// Its bytes.
    pub size: u64,
}

/// How a spare is, as far as this life of the node knows.
#[derive(Clone, Debug, Default)]
pub struct Standby {
    /// What holds it; `None` while it is not there.
    lock: Option<Arc<Lock>>,
    /// Why it cannot be used now.
    problem: Option<String>,
    /// A job puts it in a place.
    is_claimed: bool,
    /// It failed when it was to be used, and is left alone until then.
    rests: Nanos,
}

/// A spare that is looked at.
#[derive(Debug)]
pub struct Looked {
    pub pool: (Name, Uuid),
    pub def: SpareDef,
    lock: Option<Arc<Lock>>,
    problem: Option<String>,
}

/// The block that marks a spare.
fn mark(pool: Uuid, id: Uuid) -> Vec<u8> {
    let mut mark = Mark {
        magic: *blank::SPARE,
        crc: 0.into(),
        version: VERSION.into(),
        reserved: [0; 2],
        pool: *pool.as_bytes(),
        id: *id.as_bytes(),
    };
    let block = |mark: &Mark| {
        let mut block = mark.as_bytes().to_vec();
        block.resize(MARK_BYTES, 0);
        block
    };
    mark.crc = crc32c(&block(&mark)).into();
    block(&mark)
}

/// What is at the beginning of a drive that should be a spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Mark,
    /// Nothing: its mark was on its way to it, or from it.
    Blank,
    Other,
}

async fn front(drive: &Drive, of: &[u8]) -> std::result::Result<Front, media::Error> {
    if &drive.read(0, MARK_BYTES).await?[..] == of {
        return Ok(Front::Mark);
    }
    // Many a disk of others has nothing in its first blocks: both ends are as [`write`] leaves them.
    Ok(if blank::has_blank_ends(drive).await? { Front::Blank } else { Front::Other })
}

/// The pool of which a drive says that it is a spare.
///
/// # Errors
/// `Failed` when it does not answer, `Stopping`.
fn marked(home: &reactor::Handle, path: &Path, drive: &Arc<Drive>) -> Result<Option<Uuid>> {
    if drive.capacity() < u64_of(MARK_BYTES) {
        return Ok(None);
    }
    let drive = Arc::clone(drive);
    let call = home.call(move || async move { Ok(pool_marked(&drive.read(0, MARK_BYTES).await?)) });
    let told: Option<std::result::Result<_, media::Error>> = answer(call)?;
    let silent = || Error::new(Kind::Failed, format!("{} does not answer", path.display()));
    Ok(told.ok_or_else(silent)?.unwrap_or_default())
}

/// The pool whose spare begins with `block`.
fn pool_marked(block: &[u8]) -> Option<Uuid> {
    let id = |at: usize| Uuid::from_slice(block.get(at..at + 16)?).ok();
    let (pool, spare) = (id(offset_of!(Mark, pool))?, id(offset_of!(Mark, id))?);
    (mark(pool, spare) == block).then_some(pool)
}

/// Marks a spare. What it held before is known by nothing any more.
async fn write(drive: &Drive, mark: &[u8]) -> std::result::Result<(), media::Error> {
    for (offset, len) in blank::ends(drive.capacity()) {
        drive.write_zeroes(offset, u64_of(len), false).await?;
    }
    let mut data = buffer::pool().alloc(MARK_BYTES).await;
    data.copy_from_slice(mark);
    drive.write(0, data, false).await?;
    drive.flush().await
}

fn stopped<E>(_: E) -> Error {
    Error::new(Kind::Stopping, "the reactors have stopped")
}

/// What a spare answers; `None` when it does not in time.
fn answer<T>(call: Call<T>) -> Result<Option<T>> {
    let answer = reactor::wait_for(vec![call], SPARE_PATIENCE).pop().flatten();
    answer.transpose().map_err(stopped)
}

fn silent(def: &SpareDef) -> Error {
    Error::new(Kind::Failed, format!("{} does not answer", def.path.display()))
}

impl Opener {
    /// The pool that what was opened at `path` says it is of, as one of its drives or as a spare.
    ///
    /// # Errors
    /// `Failed` when it does not answer, `Stopping`.
    pub fn pool_of(&self, path: &Path, drive: &Arc<Drive>) -> Result<Option<Uuid>> {
        let home = self.home()?;
        let member = Member { path: path.to_owned(), drive: Arc::clone(drive) };
        let told = seen(home, &[member], |_| false, &Progress::default())?.pop();
        match told {
            Some(Ok(label)) => Ok(Some(Uuid::from_bytes(label.pool))),
            Some(Err(silent @ Unknown::Silent)) => {
                Err(Error::new(Kind::Failed, format!("{} {silent}", path.display()))
                    .help("see the kernel's log for the drive"))
            }
            // What cannot be read shows itself to hosts.
            Some(Err(Unknown::Refused(_) | Unknown::Fleeting(_))) | None => Ok(None),
            Some(Err(Unknown::Unlabelled(_))) => marked(home, path, drive),
        }
    }

    /// As [`pool_of`](Self::pool_of), of what is at `path`, if anything is. It is only read, and taken from nobody.
    ///
    /// # Errors
    /// Likewise.
    pub fn pool_at(&self, path: &Path) -> Result<Option<Uuid>> {
        let options = OpenDrive { read_only: true, ..OpenDrive::default() };
        match Drive::open(path, options) {
            Ok(drive) => self.pool_of(path, &Arc::new(drive)),
            // Whoever is to serve it says why not.
            Err(_) => Ok(None),
        }
    }

    /// Takes a drive as a spare of a pool, of whose drives `labelled` is one: it is held, and marked.
    ///
    /// # Errors
    /// `Invalid` when it is too small for one of the pool's drives, `Conflict` for what is in use or, unless `forced`,
    /// holds anything, `Failed` for what cannot be opened or written.
    pub fn make_spare(
        &self,
        pool: Uuid,
        labelled: &Path,
        asked: &DrivePath,
        forced: bool,
    ) -> Result<(SpareDef, Option<Arc<Lock>>, Made)> {
        if DrivePath::memory(&asked.path).is_some() {
            let what = "a spare is a file or a device: memory is gone when the daemon ends";
            return Err(Error::new(Kind::Invalid, what).help("name a drive"));
        }
        let mut made_of = self.new_drive(asked, forced)?;
        let made = std::mem::take(&mut made_of.made);
        let Some(Member { path, drive }) = made_of.drives.pop() else {
            return Err(Error::new(Kind::Invalid, "no drive is named"));
        };
        let (has, wants) = (drive.capacity(), self.largest(labelled)?);
        if has < wants {
            let what = format!(
                "{} has {has} bytes, and the largest drive of the pool needs {wants}",
                path.display()
            );
            return Err(Error::new(Kind::Invalid, what).help("a spare is as large as each of them"));
        }
        let def = SpareDef { id: Uuid::new_v4(), path, size: has };
        let of = mark(pool, def.id);
        let written = self.home()?.call(move || async move { write(&drive, &of).await });
        let failed = |error| Error::failed(format!("cannot write {}", def.path.display()), error);
        written.wait().map_err(stopped)?.map_err(failed)?;
        Ok((def, made_of.locks.pop(), made))
    }

    /// Bytes that the largest of a pool's drives has.
    fn largest(&self, labelled: &Path) -> Result<u64> {
        let (_, label) =
            look::peek(self.home()?, vec![labelled.to_owned()])?.pop().ok_or_else(|| {
                Error::new(Kind::Failed, format!("{} does not tell its size", labelled.display()))
                    .help("`flashloom pool show` tells how the pool is")
            })?;
        let drives = u16::try_from(label.drives.len()).unwrap_or(u16::MAX);
        Ok((0..drives).map(|drive| label.drive_bytes(drive)).max().unwrap_or(0))
    }

    /// Looks whether a spare is there, and is what it was: it is held from then on.
    pub fn look_at_spare(&self, mut of: Looked) -> Result<Looked> {
        let lock = of.lock.take();
        match self.spare_at(&of, lock)? {
            Ok(lock) => (of.lock, of.problem) = (Some(lock), None),
            Err(problem) => of.problem = Some(problem),
        }
        Ok(of)
    }

    fn spare_at(
        &self,
        of: &Looked,
        lock: Option<Arc<Lock>>,
    ) -> Result<std::result::Result<Arc<Lock>, String>> {
        let path = &of.def.path;
        let (member, lock) =
            match open_drive_again(path, |path| lock.filter(|own| is_at(own, path))) {
                Ok(opened) => opened,
                Err(error) => return Ok(Err(error.context)),
            };
        if member.drive.capacity() < of.def.size {
            let (has, had) = (member.drive.capacity(), of.def.size);
            return Ok(Err(format!("{} has {has} bytes, and had {had}", path.display())));
        }
        let wanted = mark(of.pool.1, of.def.id);
        let call = self.home()?.call(move || async move { front(&member.drive, &wanted).await });
        Ok(match answer(call)? {
            None => Err(format!("{} does not answer", path.display())),
            Some(Err(error)) => Err(format!("{} cannot be read: {error}", path.display())),
            Some(Ok(Front::Other)) => Err(format!("{} is not the spare any more", path.display())),
            Some(Ok(Front::Mark | Front::Blank)) => Ok(lock),
        })
    }

    /// Opens a spare to be put in a place.
    ///
    /// # Errors
    /// `Failed` when it is not there, `Conflict` when somebody else has it.
    pub fn open_spare(
        &self,
        pool: Uuid,
        def: &SpareDef,
        lock: Option<Arc<Lock>>,
    ) -> Result<(Member, Arc<Lock>)> {
        let (member, lock) =
            open_drive_again(&def.path, |path| lock.filter(|own| is_at(own, path)))?;
        let (of, drive) = (mark(pool, def.id), Arc::clone(&member.drive));
        let call = self.home()?.call(move || async move { front(&drive, &of).await });
        let failed = |error| Error::failed(format!("cannot read {}", def.path.display()), error);
        match answer(call)?.ok_or_else(|| silent(def))?.map_err(failed)? {
            Front::Mark | Front::Blank => Ok((member, lock)),
            Front::Other => {
                let what = format!("{} is not the spare any more", def.path.display());
                Err(Error::new(Kind::Conflict, what))
            }
        }
    }

    /// Writes the mark of a spare again that was not used after all.
    ///
    /// # Errors
    /// `Failed`, `Stopping`.
    pub fn mark_again(&self, pool: Uuid, def: &SpareDef, member: Member) -> Result<()> {
        let of = mark(pool, def.id);
        let call = self.home()?.call(move || async move { write(&member.drive, &of).await });
        let failed = |error| Error::failed(format!("cannot write {}", def.path.display()), error);
        answer(call)?.ok_or_else(|| silent(def))?.map_err(failed)
    }

    /// Makes a spare blank that is none any more. What is at its place and is not the spare is left alone.
    ///
    /// # Errors
    /// `Failed` when it is not there or cannot be written, `Conflict` when somebody else has it, `Stopping`.
    pub fn unmark(&self, pool: Uuid, def: &SpareDef, lock: Option<Arc<Lock>>) -> Result<()> {
        let (member, lock) = self.open_spare(pool, def, lock)?;
        let (of, drive) = (mark(pool, def.id), member.drive);
        let call = self.home()?.call(move || async move {
            // Nobody else has it for as long as that may still come to it.
            let _held = lock;
            if front(&drive, &of).await? == Front::Mark {
                drive.write_zeroes(0, u64_of(MARK_BYTES), false).await?;
                drive.flush().await?;
            }
            Ok(())
        });
        let failed = |error: media::Error| {
            Error::failed(format!("cannot clear {}", def.path.display()), error)
        };
        answer(call)?.ok_or_else(|| silent(def))?.map_err(failed)
    }
}

impl Pools {
    /// All spares, to be looked at by whoever asks: a drive may hang.
    pub fn spares_to_look_at(&self) -> Vec<Looked> {
        let of_pool = |(name, known): (&Name, &super::Known)| {
            let (name, id, drives) = (name.clone(), known.def.id, &known.def.drives);
            let spares = known.def.spares.iter();
            let idle = spares.filter(|of| !drives.contains(&of.path) && !self.is_claimed(of.id));
            let looked = idle.map(move |def| {
                let lock = self.standbys.get(&def.id).and_then(|standby| standby.lock.clone());
                Looked { pool: (name.clone(), id), def: def.clone(), lock, problem: None }
            });
            looked.collect::<Vec<_>>()
        };
        self.known.iter().filter(|(_, known)| !known.def.deleting).flat_map(of_pool).collect()
    }

    /// Whether a spare of a pool is just being put in a place.
    pub(super) fn claims_spare(&self, name: &Name) -> bool {
        let known = self.known.get(name);
        known.is_some_and(|known| known.def.spares.iter().any(|spare| self.is_claimed(spare.id)))
    }

    fn is_claimed(&self, id: Uuid) -> bool {
        self.standbys.get(&id).is_some_and(|standby| standby.is_claimed)
    }

    /// Takes how a spare is; what is to be said of it.
    pub fn looked_at_spare(&mut self, of: Looked) -> Option<(Severity, String)> {
        let Looked { pool: (name, _), def, lock, problem } = of;
        let known = self.known.get(&name)?;
        // Removed, or put in a place, meanwhile.
        if !known.def.spares.contains(&def) || self.is_claimed(def.id) {
            return None;
        }
        let standby = self.standbys.entry(def.id).or_default();
        standby.lock = lock.or(standby.lock.take());
        let before = std::mem::replace(&mut standby.problem, problem.clone());
        match (before, problem) {
            (None, Some(problem)) => {
                let words = format!("a spare of pool {name} cannot be used: {problem}");
                Some((Severity::Warning, words))
            }
            (Some(_), None) => {
                let words = format!("spare {} of pool {name} is there again", def.path.display());
                Some((Severity::Info, words))
            }
            _ => None,
        }
    }

    /// Knows a spare from now on.
    ///
    /// # Errors
    /// `NotFound` without such a pool, `Limit`.
    pub fn add_spare(&mut self, name: &Name, def: SpareDef, lock: Option<Arc<Lock>>) -> Result<()> {
        let known = self.known.get_mut(name).ok_or_else(|| no_pool(name))?;
        if known.def.spares.len() >= SPARES_MAX {
            let what = format!("pool {name} has {SPARES_MAX} spares");
            return Err(Error::new(Kind::Limit, what).help("`flashloom drive add` makes it wider"));
        }
        self.standbys.insert(def.id, Standby { lock, ..Standby::default() });
        known.def.spares.push(def);
        known.def.had_spares = true;
        Ok(())
    }

    /// Forgets a spare that an operator takes back; what held it. Without the last one none is missed.
    pub fn take_spare_back(&mut self, name: &Name, id: Uuid) -> Option<Arc<Lock>> {
        let held = self.forget_spare(name, id);
        if let Some(known) = self.known.get_mut(name) {
            known.def.had_spares &= !known.def.spares.is_empty();
        }
        held
    }

    /// Whether a pool had spares, and all of them have places by now.
    pub fn has_used_spares_up(&self, name: &Name) -> bool {
        let had = self.known.get(name).is_some_and(|known| known.def.had_spares);
        had && self.spares(name).is_empty()
    }

    /// Open pools that lack redundancy and had spares, of which none is left.
    pub fn without_spares(&self) -> impl Iterator<Item = &Name> {
        self.known.iter().filter_map(|(name, known)| {
            let lacks = self.watches.get(name).is_some_and(super::Watch::is_degraded);
            known.pool().filter(|_| lacks && self.has_used_spares_up(name)).map(|_| name)
        })
    }

    /// Forgets a spare; what held it.
    pub fn forget_spare(&mut self, name: &Name, id: Uuid) -> Option<Arc<Lock>> {
        if let Some(known) = self.known.get_mut(name) {
            known.def.spares.retain(|spare| spare.id != id);
        }
        self.standbys.remove(&id).and_then(|standby| standby.lock)
    }

    /// A spare of a pool, and what holds it, for whoever is to use it: nobody else does until it is
    /// [given back](Self::unclaim_spare) or [forgotten](Self::forget_spare).
    ///
    /// # Errors
    /// `NotFound`, `Conflict` when it is being used.
    pub fn claim_spare(&mut self, name: &Name, id: Uuid) -> Result<(SpareDef, Option<Arc<Lock>>)> {
        let known = self.known.get(name).ok_or_else(|| no_pool(name))?;
        let def = known.def.spares.iter().find(|spare| spare.id == id).cloned();
        let def = def.ok_or_else(|| no_spare(name))?;
        let standby = self.standbys.entry(id).or_default();
        if std::mem::replace(&mut standby.is_claimed, true) {
            let what = format!("spare {} is being put in a place", def.path.display());
            return Err(Error::new(Kind::Conflict, what));
        }
        Ok((def, standby.lock.clone()))
    }

    /// A spare was not used after all: for a while it is left alone if it failed.
    pub fn unclaim_spare(&mut self, id: Uuid, failed: bool) {
        if let Some(standby) = self.standbys.get_mut(&id) {
            standby.is_claimed = false;
            standby.rests = if failed { from_now(RETURN_PAUSE_MAX) } else { 0 };
        }
    }

    /// The spares of a pool that failed when they were to be used, and are left alone for a while.
    pub(super) fn resting_spares(&self, name: &Name) -> BTreeSet<Uuid> {
        let now = reactor::now();
        let rests = |spare: &&SpareDef| {
            self.standbys.get(&spare.id).is_some_and(|standby| standby.rests > now)
        };
        let known = self.known.get(name);
        let all = known.into_iter().flat_map(|known| &known.def.spares);
        all.filter(rests).map(|spare| spare.id).collect()
    }

    /// The spares of a pool that can be used now, the smallest first.
    pub(super) fn ready_spares(&self, name: &Name) -> Vec<SpareDef> {
        let now = reactor::now();
        let is_ready = |spare: &&SpareDef| {
            self.standbys.get(&spare.id).is_some_and(|standby| {
                let is_idle = !standby.is_claimed && standby.rests <= now;
                is_idle && standby.problem.is_none() && standby.lock.is_some()
            })
        };
        let known = self.known.get(name);
        let all = known.into_iter().flat_map(|known| &known.def.spares);
        let mut ready: Vec<_> = all.filter(is_ready).cloned().collect();
        ready.sort_by_key(|spare| spare.size);
        ready
    }

    /// The spares of a pool, as the management API has them.
    pub fn spares(&self, name: &Name) -> Vec<Spare> {
        let known = self.known.get(name);
        // One that was given a place is one of the drives.
        let idle = |known: &'_ super::Known| {
            let def = known.def.clone();
            def.spares.into_iter().filter(move |spare| !def.drives.contains(&spare.path))
        };
        let all = known.into_iter().flat_map(idle);
        let document = |def: SpareDef| {
            let problem = self.standbys.get(&def.id).and_then(|standby| standby.problem.clone());
            let state = if problem.is_none() { DriveState::Spare } else { DriveState::Missing };
            Spare {
                pool: name.clone(),
                id: def.id,
                path: def.path.display().to_string(),
                health: state,
                state,
                problem,
                size: def.size,
                hardware: DriveHardware::default(),
            }
        };
        all.map(document).collect()
    }
}

/// There is no such spare.
pub fn no_spare(name: &Name) -> Error {
    Error::new(Kind::NotFound, format!("pool {name} has no such spare"))
        .help(format!("`flashloom pool spare list {name}` shows those there are"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is on media stays as it is: a mark of one version is known by the next.
    #[test]
    fn a_mark_is_what_the_format_says() {
        let block = mark(Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16]));
        assert_eq!((block.len(), &block[..8]), (4096, &b"FLSHSPAR"[..]));
        assert_eq!((&block[12..14], &block[14..16]), (&[1, 0][..], &[0, 0][..]));
        assert_eq!((&block[16..32], &block[32..48]), (&[1; 16][..], &[2; 16][..]));
        assert!(block[48..].iter().all(|byte| *byte == 0));
        let mut unsigned = block.clone();
        unsigned[8..12].fill(0);
        assert_eq!(block[8..12], crc32c(&unsigned).to_le_bytes());
        assert_eq!(pool_marked(&block), Some(Uuid::from_bytes([1; 16])));
        assert_eq!((pool_marked(&unsigned), pool_marked(&[0; 4096])), (None, None));
    }

    /// Another disk that has the name of a spare and zeroes in front was taken for the spare, and written over.
    #[test]
    fn what_has_zeroes_in_front_alone_is_no_spare() {
        let test = async {
            let drive = Drive::memory(4 << 20, media::memory::RegionOptions::default()).unwrap();
            let of = mark(Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16]));
            let front = async || front(&drive, &of).await.unwrap();
            write(&drive, &of).await.unwrap();
            assert_eq!(front().await, Front::Mark);
            drive.write_zeroes(0, u64_of(MARK_BYTES), false).await.unwrap();
            assert_eq!(front().await, Front::Blank);
            for at in [64 << 10, (4 << 20) - 4096] {
                let mut data = buffer::pool().alloc(4096).await;
                data.fill(7);
                drive.write(at, data, false).await.unwrap();
                assert_eq!(front().await, Front::Other, "{at}");
                drive.write_zeroes(at, 4096, false).await.unwrap();
            }
        };
        reactor::run(reactor::Config::default(), test).unwrap();
    }
}
