//! What a pool is made of, opened and held against other processes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use api::v1::{Kind, PoolImport, Raid};
use api::value::{DrivePath, LogPlace, Size};
use engine::format::label::{Label, PoolState};
use engine::{LogDevice, LogSpec, Unknown};
use media::drive::OpenDrive;
use media::memory::RegionOptions;
use media::{Drive, Pmem};
use uuid::Uuid;

use crate::lock::{Lock, Patience, is_at, lock, lock_drive};
use crate::remote::RemoteDrive;
use crate::state::OTHERS_WRITE;
use crate::{Error, Result};

/// Bytes of a commit log in memory, unless told otherwise: seconds of writing at full speed, and
/// replayed in a moment.
pub(super) const LOG_BYTES: u64 = 256 << 20;

/// What to do about a commit log that is not where it was.
const LOG_GONE: &str = "there is no such file: put it back; or, where it is lost, open the pool with \
                        what its drives have: `flashloom pool import --accept-loss` with its drives \
                        and --log makes a new one, and what was acknowledged and not on the drives \
                        yet is lost";

/// The same where another of the log's devices is there.
const LOG_HALF_GONE: &str = "there is no such file: put it back; or name the log's other device alone, which has all \
                             of it if it was in use to the last, and is refused if it was not; `flashloom pool log \
                             move` has the log be on two again";

/// Drives and log devices, open.
pub struct MadeOf {
    pub drives: Vec<Member>,
    pub log: LogSpec,
    /// Where the log lies, as it was asked for.
    pub places: Vec<LogPlace>,
    /// Held while the pool is.
    pub locks: Vec<Arc<Lock>>,
    /// The files that were made for it.
    pub made: Made,
}

/// Files that were not there before: removed unless they are kept.
#[derive(Default)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// `path` is made, if it is not there.
    fn expect(&mut self, path: &Path, made: bool) {
        if made && !path.exists() {
            self.0.push(path.to_owned());
        }
    }

    /// They are in use now.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            // Perhaps it was never made.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A drive and where it is.
#[derive(Clone, Debug)]
pub struct Member {
    pub path: PathBuf,
    pub drive: Arc<Drive>,
}

impl MadeOf {
    /// Opens what a request names, for this node. `shared`: more than one reactor will use it. `forced`: also a log that others may
    /// write.
    ///
    /// # Errors
    /// `Invalid` for relative paths and logs that do not go together, `Conflict` for what another
    /// process or pool has, `Failed` for what cannot be opened.
    pub fn asked(
        drives: &[DrivePath],
        log: &[LogPlace],
        log_size: Option<Size>,
        (node, shared): (Uuid, bool),
        forced: bool,
    ) -> Result<Self> {
        let bytes = log_size.map_or(LOG_BYTES, |size| size.bytes());
        if !forced {
            check_are_ours(log)?;
        }
        Self::open(drives, log, (node, shared, forced), |_| Ok(Some(bytes)))
    }

    /// Opens what an import names. A log that is not there is made, as long as the drives say it was, where nothing
    /// was left in it (the pool was exported, or closed in order) or its loss is accepted; otherwise its path may be
    /// wrong.
    ///
    /// # Errors
    /// As [`asked`](Self::asked).
    pub fn imported(
        from: &PoolImport,
        (node, shared): (Uuid, bool),
        home: &reactor::Handle,
    ) -> Result<Self> {
        if !from.force {
            check_are_ours(&from.log)?;
        }
        Self::open(&from.drives, &from.log, (node, shared, from.force), |members| {
            let Some(label) = newest_label(home, members)? else { return Ok(Some(LOG_BYTES)) };
            let empty = label.closed || label.state == PoolState::Exported;
            let makes = from.accept_loss || empty;
            Ok(makes.then_some(label.log_bytes * u64::from(label.shards)))
        })
    }

    fn open(
        drives: &[DrivePath],
        log: &[LogPlace],
        (node, shared, forced): (Uuid, bool, bool),
        log_bytes: impl FnOnce(&[Member]) -> Result<Option<u64>>,
    ) -> Result<Self> {
        let mut opened = Vec::new();
        let mut locks = Vec::new();
        let mut made = Made::default();
        let patience = Patience::begin();
        for drive in drives {
            let (member, lock) = match DrivePath::memory(&drive.path) {
                Some(size) => (memory_drive(&drive.path, size, shared)?, None),
                None => {
                    absolute(&drive.path)?;
                    named_once(&locks, &drive.path)?;
                    made.expect(&drive.path, drive.size.is_some());
                    open_drive(&drive.path, drive.size.map(|size| size.bytes()), patience)?
                }
            };
            opened.push(member);
            locks.extend(lock);
        }
        let places = if log.is_empty() { vec![LogPlace::Drives] } else { log.to_vec() };
        let bytes = log_bytes(&opened)?;
        places
            .iter()
            .filter_map(LogPlace::path)
            .for_each(|path| made.expect(path, bytes.is_some()));
        let log = open_log(&places, (node, forced), bytes, &mut locks)?;
        Ok(Self { drives: opened, log, places, locks, made })
    }

    /// Gives files that are smaller the sizes that were asked for.
    ///
    /// # Errors
    /// `Failed` where there is no space.
    pub fn grow(&self, asked: &[DrivePath]) -> Result<()> {
        for (Member { path, drive }, asked) in self.drives.iter().zip(asked) {
            let size = asked.size.map(|size| size.bytes());
            if let Some(size) = size.filter(|&size| size > drive.capacity()) {
                drive.resize(size).map_err(|error| cannot_open(path, error))?;
            }
        }
        Ok(())
    }

    /// Where the drives are.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.drives.iter().map(|member| member.path.clone()).collect()
    }

    /// Refuses to take a pool that another node may have open, unless `may` says so of its identity. Gives the
    /// label that says what pool it is.
    ///
    /// # Errors
    /// `Conflict`; `Failed` when no drive carries a label.
    pub fn check_import(
        &self,
        home: &reactor::Handle,
        may: impl Fn(Uuid) -> bool,
    ) -> Result<Label> {
        let Some(label) = newest_label(home, &self.drives)? else {
            return Err(Error::new(Kind::Failed, "none of these drives is of a pool"));
        };
        if label.state == PoolState::Exported || may(Uuid::from_bytes(label.pool)) {
            return Ok(label);
        }
        let what = format!("pool {} was not exported: another node may have it open", label.name);
        Err(Error::new(Kind::Conflict, what)
            .help("export it there, or take it with --force when that node is gone for good"))
    }
}

/// What a drive's label says, or why that is not known.
pub type Seen = std::result::Result<Label, Unknown>;

/// What is waited for, in words.
pub type Progress = Arc<Mutex<String>>;

/// What each drive's label says. The drives are looked at side by side, and one that does not answer in time is waited
/// for no longer; `progress` says which ones that may be. `lasts` tells of which labels what they say has to last.
pub fn seen(
    home: &reactor::Handle,
    drives: &[Member],
    lasts: impl Fn(&Label) -> bool + Send + 'static,
    progress: &Progress,
) -> Result<Vec<Seen>> {
    let paths: Vec<_> = drives.iter().map(|member| member.path.clone()).collect();
    let drives: Vec<_> = drives.iter().map(|member| Arc::clone(&member.drive)).collect();
    let note = |progress: &Progress, words| {
        *progress.lock().unwrap_or_else(PoisonError::into_inner) = words;
    };
    let told = Arc::clone(progress);
    let call = home.call(move || async move {
        let waits = |silent: &BTreeSet<usize>| {
            let silent: Vec<_> = silent.iter().map(|&n| paths[n].display().to_string()).collect();
            note(&told, format!("it waits for an answer of {}", silent.join(", ")));
        };
        engine::look_at_labels(&drives, lasts, waits).await
    });
    let seen = call.wait().map_err(|_| Error::new(Kind::Stopping, "the reactors have stopped"));
    note(progress, String::new());
    seen
}

/// What each drive's label says; `None` where there is none that can be read.
pub fn labels(home: &reactor::Handle, drives: &[Member]) -> Result<Vec<Option<Label>>> {
    let seen = seen(home, drives, |_| false, &Progress::default())?;
    Ok(seen.into_iter().map(Seen::ok).collect())
}

/// The newest of the drives' labels; `None` where no drive has one.
fn newest_label(home: &reactor::Handle, drives: &[Member]) -> Result<Option<Label>> {
    Ok(labels(home, drives)?.into_iter().flatten().max_by_key(|label| label.epoch))
}

pub(super) fn absolute(path: &Path) -> Result<()> {
    if path.is_absolute() {
        return Ok(());
    }
    let wrong = format!("\"{}\" is a relative path", path.display());
    Err(Error::new(Kind::Invalid, wrong).help("write it from the root"))
}

/// Refuses a path that leads to what `locks` has already.
fn named_once(locks: &[Arc<Lock>], path: &Path) -> Result<()> {
    if !locks.iter().any(|lock| is_at(lock, path)) {
        return Ok(());
    }
    Err(given_twice(path.display()))
}

fn given_twice(place: impl std::fmt::Display) -> Error {
    Error::new(Kind::Invalid, format!("{place} is given twice"))
        .help("each drive and each device of the log is a file, device or namespace of its own")
}

fn memory_drive(path: &Path, size: Size, shared: bool) -> Result<Member> {
    let options = RegionOptions { committed: true, shared, ..RegionOptions::default() };
    let drive = Drive::memory(size.bytes(), options)
        .map_err(|error| Error::failed(format!("cannot make a drive {}", path.display()), error))?;
    Ok(Member { path: path.to_owned(), drive: Arc::new(drive) })
}

pub(super) fn cannot_open(path: &Path, error: media::Error) -> Error {
    Error::cannot_open(path, error, "create it, or name its size as in /srv/d0.img,size=10GiB")
}

/// Opens a drive and holds it against others.
///
/// # Errors
/// `Failed` when it cannot be opened, `Conflict` when it is in use.
pub fn open_drive(
    path: &Path,
    size: Option<u64>,
    patience: Patience,
) -> Result<(Member, Option<Arc<Lock>>)> {
    if DrivePath::memory(path).is_some() {
        let gone = format!("drive {} was in memory and is gone", path.display());
        return Err(Error::new(Kind::Failed, gone)
            .help("`flashloom pool export` forgets a pool of such drives"));
    }
    let drive = open_file(path, size)?;
    let lock = lock_drive(path, &drive, None, patience)?;
    Ok((Member { path: path.to_owned(), drive }, Some(lock)))
}

/// Opens a drive of a pool again, which may be held for it already.
///
/// # Errors
/// As [`open_drive`].
pub fn open_drive_again(
    path: &Path,
    own: impl FnOnce(&Path) -> Option<Arc<Lock>>,
) -> Result<(Member, Arc<Lock>)> {
    let drive = open_file(path, None)?;
    let lock = lock_drive(path, &drive, own(path).as_ref(), Patience::begin())?;
    Ok((Member { path: path.to_owned(), drive }, lock))
}

fn open_file(path: &Path, size: Option<u64>) -> Result<Arc<Drive>> {
    let block_size = stdx::num::u32_of(engine::address::BLOCK);
    let options = OpenDrive { create: size, block_size, ..OpenDrive::default() };
    let drive = Drive::open(path, options).map_err(|error| cannot_open(path, error))?;
    #[cfg(feature = "canary")]
    let drive = crate::serving::canary::slowed(path, drive);
    Ok(Arc::new(drive))
}

/// Opens what there is of a known pool's log. Gives what keeps it, what holds that, and words of what is missing.
/// Where nothing is there, it is made of `anew` bytes; and memory that is lost of `fill` bytes, where another target has
/// the log, from which it is made whole.
///
/// # Errors
/// `Failed` when nothing of it is there.
pub fn open_known_log(
    places: &[LogPlace],
    node: Uuid,
    (anew, fill): (Option<u64>, Option<u64>),
) -> Result<(LogSpec, Vec<Arc<Lock>>, Vec<String>)> {
    let (mut locks, mut lost, mut first) = (Vec::new(), Vec::new(), None);
    let mut there = Vec::new();
    for place in places {
        // Each on its own: of two that mirror each other, one may be gone.
        match open_log(std::slice::from_ref(place), (node, false), None, &mut Vec::new()) {
            Ok(_) => there.push(place.clone()),
            Err(error) => {
                lost.push(format!("the log's copy at {place} is missing: {}", error.context));
                let is_far = places.iter().any(|other| matches!(other, LogPlace::Remote(_)));
                let is_gone = matches!(place, LogPlace::Bbu(path) if !path.exists());
                if let Some(bytes) = fill.filter(|_| is_far && is_gone)
                    && open_log(
                        std::slice::from_ref(place),
                        (node, false),
                        Some(bytes),
                        &mut Vec::new(),
                    )
                    .is_ok()
                {
                    there.push(place.clone());
                    continue;
                }
                first = first.or(Some(error));
            }
        }
    }
    if let (true, Some(error)) = (there.is_empty(), first) {
        if anew.is_none() || places.iter().filter_map(LogPlace::path).any(Path::exists) {
            return Err(error);
        }
        let log = open_log(places, (node, false), anew, &mut locks)?;
        return Ok((log, locks, vec!["its log, in which nothing was, is made anew".to_owned()]));
    }
    let log = open_log(&there, (node, false), None, &mut locks)?;
    Ok((log, locks, lost))
}

/// Opens what a log is to be moved to. Gives what keeps it, what holds that, and the files that were made for it.
///
/// # Errors
/// `Invalid` for relative paths and places that do not go together, `Conflict` for what is in use, `Failed`.
pub fn open_new_log(
    places: &[LogPlace],
    node: Uuid,
    bytes: u64,
) -> Result<(LogSpec, Vec<Arc<Lock>>, Made)> {
    check_are_ours(places)?;
    let (mut locks, mut made) = (Vec::new(), Made::default());
    places.iter().filter_map(LogPlace::path).for_each(|path| made.expect(path, true));
    let log = open_log(places, (node, false), Some(bytes), &mut locks)?;
    Ok((log, locks, made))
}

/// Refuses a file for the log that somebody else has made, or may write: what is in it is what hosts wrote last, and
/// what they read. Shared memory is a folder for everybody.
pub(super) fn check_are_ours(places: &[LogPlace]) -> Result<()> {
    for path in places.iter().filter_map(LogPlace::path) {
        // The link itself, and what it leads to.
        let (Ok(entry), Ok(file)) = (fs::symlink_metadata(path), fs::metadata(path)) else {
            continue;
        };
        let is_ours = [&entry, &file].iter().all(|of| of.uid() == reactor::user());
        if file.is_file() && (!is_ours || file.mode() & OTHERS_WRITE != 0) {
            let what = format!("{} is another user's, or may be written by others", path.display());
            return Err(Error::new(Kind::Conflict, what).help(
                "remove it, or have it be of the user that runs the daemon (`chown`) and of nobody else \
                 (`chmod 600`); --force takes it as it is where a pool is made or imported",
            ));
        }
    }
    Ok(())
}

/// Whether another device of the log than this one is there.
fn other_is_there(places: &[LogPlace], this: &LogPlace) -> bool {
    places.iter().any(|place| match place {
        LogPlace::Pmem(path) | LogPlace::Bbu(path) => place != this && path.exists(),
        LogPlace::Drives => false,
        // Whether it answers is found when the pool opens.
        LogPlace::Remote(_) => true,
    })
}

/// Opens a log's devices, creating files of `create` bytes.
fn open_log(
    places: &[LogPlace],
    (node, forced): (Uuid, bool),
    create: Option<u64>,
    locks: &mut Vec<Arc<Lock>>,
) -> Result<LogSpec> {
    let mut devices = Vec::new();
    for (nth, place) in places.iter().enumerate() {
        let (path, opened) = match place {
            LogPlace::Drives => continue,
            LogPlace::Remote(namespace) => {
                // Each would take it from the other.
                if places[..nth].contains(place) {
                    return Err(given_twice(place));
                }
                let drive = RemoteDrive::open_alone(namespace.clone(), node, forced)?;
                devices.push(LogDevice::remote(drive));
                continue;
            }
            LogPlace::Pmem(path) => {
                absolute(path)?;
                (path, Pmem::dax(path, create))
            }
            LogPlace::Bbu(path) => {
                absolute(path)?;
                (path, Pmem::shared(path, create))
            }
        };
        named_once(locks, path)?;
        let device = opened.map_err(|error| {
            Error::failed(format!("cannot open the commit log {place}"), error).help(match place {
                _ if create.is_none() && !path.exists() && other_is_there(places, place) => {
                    LOG_HALF_GONE
                }
                _ if create.is_none() && !path.exists() => LOG_GONE,
                _ if fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0) => {
                    "it is empty: remove it where a log is to be made"
                }
                LogPlace::Pmem(_) => "pmem: wants a file on a file system mounted with DAX",
                _ => "bbu: wants a file in shared memory, such as /dev/shm/log",
            })
        })?;
        locks.push(lock(path, None)?);
        devices.push(LogDevice::Memory(Arc::new(device)));
    }
    spec_of(places, devices)
}

/// The log that these devices, opened at these places, make together.
fn spec_of(places: &[LogPlace], devices: Vec<LogDevice>) -> Result<LogSpec> {
    let all = |kind: fn(&LogPlace) -> bool| places.iter().all(kind);
    let any = |kind: fn(&LogPlace) -> bool| places.iter().any(kind);
    let memory = |devices: Vec<LogDevice>| {
        let memory = devices.into_iter().filter_map(|device| match device {
            LogDevice::Memory(pmem) => Some(pmem),
            LogDevice::Remote(_) => None,
        });
        memory.collect()
    };
    if devices.is_empty() && places.len() == 1 {
        Ok(LogSpec::Drives)
    } else if places.len() > 2 || any(|place| matches!(place, LogPlace::Drives)) {
        Err(Error::new(Kind::Invalid, "these places make no commit log together")
            .help("give one place, or two that mirror each other: memory, or a namespace of another target"))
    } else if any(|place| matches!(place, LogPlace::Remote(_))) {
        Ok(LogSpec::Remote(devices))
    } else if all(|place| matches!(place, LogPlace::Pmem(_))) {
        Ok(LogSpec::Pmem(memory(devices)))
    } else if all(|place| matches!(place, LogPlace::Bbu(_))) {
        Ok(LogSpec::Bbu(memory(devices)))
    } else {
        Err(Error::new(Kind::Invalid, "these places make no commit log together")
            .help("give one place, or two of a kind that mirror each other"))
    }
}

/// The engine's word for how drives are put together.
pub fn scheme(asked: Option<Raid>, drives: usize) -> Result<raid::Scheme> {
    let scheme = match asked {
        Some(Raid::Single) => raid::Scheme::Single,
        Some(Raid::Mirror) => raid::Scheme::Mirror { copies: 2 },
        Some(Raid::Raid5) => raid::Scheme::Raid5,
        Some(Raid::Raid6) => raid::Scheme::Raid6,
        None => match drives {
            0 | 1 => raid::Scheme::Single,
            2 => raid::Scheme::Mirror { copies: 2 },
            3 => raid::Scheme::Raid5,
            _ => raid::Scheme::Raid6,
        },
    };
    if scheme.shape(drives).is_some() {
        return Ok(scheme);
    }
    let (name, least) = match scheme {
        raid::Scheme::Single => ("single", 1),
        raid::Scheme::Mirror { .. } => ("mirror", 2),
        raid::Scheme::Raid5 => ("raid5", 3),
        raid::Scheme::Raid6 => ("raid6", 4),
    };
    let what = match drives {
        1 => format!("one drive is too few for {name}"),
        _ => format!("{drives} drives are too few for {name}"),
    };
    Err(Error::new(Kind::Invalid, what).help(format!("it wants {least} or more")))
}
