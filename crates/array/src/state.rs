//! The state directory: the node's identity, and what it served last.
//!
//! | file | what is in it |
//! |---|---|
//! | `state.json` | node identity, the configuration last read, what is served, the pools there are, schedules of snapshots |
//! | `reservations/` | reservations that persist through a loss of power, a file for each namespace |
//! | `events/` | persistent event logs, a file for each subsystem |
//! | `events.jsonl`, `events.1.jsonl` | what happened: the newest, and those before them |
//! | `jobs.json` | work that takes long: what is under way, and the latest that is over |
//! | `lock` | held by the running daemon; its process id |
//! | `api.sock` | the management socket, while a daemon runs |
//! | `windows.sock` | where direct write windows are handed out, while a daemon runs |

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::v1::Kind;
use api::value::Name;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::desired::Desired;
use crate::limits::STATE_BYTES;
use crate::pools::PoolDef;
use crate::schedules::Schedules;
use crate::seen::Seen;
use crate::{Error, Result, identity};

/// Version of `state.json` that this program writes.
const VERSION: u32 = 1;

/// The longest number of a process, in bytes.
const PID_BYTES: u64 = 20;

/// How long a daemon that ended in order may still hold its state directory.
const LETS_GO: Duration = Duration::from_secs(5);

/// Mode bits of whoever is not the owner and may write.
pub const OTHERS_WRITE: u32 = 0o022;

/// The state's file.
const FILE: &str = "state.json";

/// What `state.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    version: u32,
    /// The node's identity.
    pub node: Uuid,
    /// What configuration or command line asked for last.
    pub base: Desired,
    /// What is served: `base` with the changes made through the management API.
    pub current: Desired,
    /// The pools that this node opens when it starts.
    #[serde(default)]
    pub pools: BTreeMap<Name, PoolDef>,
    /// What hosts saw of the namespaces.
    #[serde(default)]
    pub seen: Seen,
    /// Schedules of snapshots.
    #[serde(default, skip_serializing_if = "Schedules::is_empty")]
    pub schedules: Schedules,
}

/// A state directory, held for this process until dropped.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    lock: File,
    /// The daemon that had it before ended without order; its process, if that is known.
    left: Option<String>,
}

/// Where the state lives unless told otherwise: `/var/lib/flashloom` for root, else
/// `$XDG_STATE_HOME/flashloom` or `~/.local/state/flashloom`.
pub fn default_dir() -> PathBuf {
    if fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        return PathBuf::from("/var/lib/flashloom");
    }
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    match (named("XDG_STATE_HOME"), named("HOME")) {
        (Some(state), _) => state.join("flashloom"),
        (None, Some(home)) => home.join(".local/state/flashloom"),
        (None, None) => PathBuf::from("flashloom-state"),
    }
}

/// What the state in `dir` says, whoever holds the directory: only to be looked at. `None` when there
/// is none.
///
/// # Errors
/// `Failed` when it cannot be read, or is not a state of this version.
pub fn peek(dir: &Path) -> Result<Option<State>> {
    read(&dir.join(FILE))
}

/// Reads a state file, if there is one.
fn read(file: &Path) -> Result<Option<State>> {
    let help = "restore it from a backup, or move it away to start with a new identity (hosts \
                will see new namespaces)";
    let not_ours = "this user may not: run it as the user that runs the daemon, such as with sudo";
    let text = match read_file(file, STATE_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
            let failed = Error::failed(format!("cannot read {}", file.display()), error);
            return Err(failed.help(if is_denied { not_ours } else { help }));
        }
    };
    let damaged =
        |what: String| Error::new(Kind::Failed, format!("{}: {what}", file.display())).help(help);
    let state: State = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if state.version != VERSION {
        return Err(damaged(format!("version {} is not {VERSION}", state.version)));
    }
    Ok(Some(state))
}

/// The management socket of the daemon that uses the state directory `dir`.
pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join("api.sock")
}

impl StateDir {
    /// Creates the directory if need be and takes it for this process.
    ///
    /// # Errors
    /// `Conflict` when another daemon holds it, `Failed` when it cannot be used.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| {
            let help = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "make room there: another directory has another identity, and none of the pools"
                }
                _ => "choose another with --state-dir",
            };
            Error::failed(format!("cannot use the state directory {}", path.display()), error)
                .help(help)
        };
        create_folder(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        check_is_ours(&path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let at = path.join("lock");
        let lock = match own(&mut options).open(&at) {
            // A node that has served before serves, although nothing can be written down: it is locked all the same.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => File::open(&at),
            opened => opened,
        };
        let mut lock = lock.map_err(failed)?;
        let begun = reactor::now_exact();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                // One that ended in order lets go in a moment: a program that it was starting may have the file, too.
                Err(TryLockError::WouldBlock)
                    if Duration::from_nanos(reactor::now_exact() - begun) < LETS_GO
                        && lock.metadata().is_ok_and(|at| at.len() == 0) =>
                {
                    #[allow(clippy::disallowed_methods, reason = "no reactor runs yet")]
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => return Err(held(&path, &lock)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        let mut before = String::new();
        // What is no number of a process is nothing that a daemon left.
        let read = (&lock).take(PID_BYTES).read_to_string(&mut before);
        let left = read.ok().and_then(|_| before.trim().parse::<u32>().ok());
        let left = left.map(|pid| format!(" (process {pid})"));
        let emptied = lock.set_len(0).and_then(|()| lock.rewind());
        if let Err(error) = emptied.and_then(|()| writeln!(lock, "{}", std::process::id())) {
            // What holds the directory is the lock. Only whoever asks which process that is learns nothing.
            tracing::warn!("cannot write {}: {error}", at.display());
        }
        Ok(Self { path, lock, left })
    }

    /// Which daemon ended without order, if the one before did: words to go after its name.
    pub fn left(&self) -> Option<&str> {
        self.left.as_deref()
    }

    /// This one ends in order.
    ///
    /// # Errors
    /// `Failed`: the next will take it for one that did not.
    pub fn end(&self) -> Result<()> {
        self.lock.set_len(0).map_err(|error| {
            Error::failed(format!("cannot write {}", self.path.join("lock").display()), error)
        })
    }

    /// The directory, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// Reads the state; a node that has none yet gets an identity, kept at once.
    ///
    /// # Errors
    /// When the file is there but is not a state of this version: nothing is overwritten.
    pub fn load(&self) -> Result<State> {
        match read(&self.file())? {
            Some(state) => Ok(state),
            None => self.found(),
        }
    }

    /// A node's first state.
    fn found(&self) -> Result<State> {
        let state = State {
            version: VERSION,
            node: identity::new_node(),
            base: Desired::default(),
            current: Desired::default(),
            pools: BTreeMap::new(),
            seen: Seen::default(),
            schedules: Schedules::default(),
        };
        self.save(&state)?;
        Ok(state)
    }

    /// Replaces the state as a whole: after a power cut the file holds the old one or the new one.
    ///
    /// # Errors
    /// `Failed`; the old state is still there.
    pub fn save(&self, state: &State) -> Result<()> {
        let file = self.file();
        let failed = |error| Error::failed(format!("cannot write {}", file.display()), error);
        let mut text = serde_json::to_vec_pretty(state)
            .map_err(|error| Error::failed(format!("cannot write {}", file.display()), error))?;
        text.push(b'\n');
        check_length(stdx::num::u64_of(text.len()), STATE_BYTES).map_err(failed)?;
        replace_file(&self.path, FILE, &text).map_err(failed)
    }
}

/// Makes a folder for its owner alone, and those above it, unless it is there.
///
/// # Errors
/// As mkdir(2).
pub fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// As [`create_folder`], in the state directory: itself, not where a link leads.
///
/// # Errors
/// As mkdir(2); `NotADirectory` for a link.
pub fn create_own_folder(path: &Path) -> io::Result<()> {
    create_folder(path)?;
    match fs::symlink_metadata(path)?.is_dir() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::NotADirectory, "it is a link")),
    }
}

/// Refuses a directory in which somebody else could put what this process then writes to.
fn check_is_ours(path: &Path) -> Result<()> {
    let failed = |error| Error::failed(format!("cannot look at {}", path.display()), error);
    let found = fs::metadata(path).map_err(failed)?;
    let (owner, mode) = (found.uid(), found.mode());
    let (wrong, right) = if owner != reactor::user() {
        (format!("is of user {owner}"), "have `chown` give it to the user that runs the daemon")
    } else if mode & OTHERS_WRITE != 0 {
        (format!("may be written by others (mode {:o})", mode & 0o7777), "`chmod go-w` it")
    } else {
        return Ok(());
    };
    let context = format!("the state directory {} {wrong}", path.display());
    Err(Error::new(Kind::Invalid, context).help(format!("{right}, or choose another")))
}

/// A file of the state: for its owner alone, and itself, not where a link leads.
fn own(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600).custom_flags(reactor::file::NO_LINK)
}

/// Whether a file of so many bytes is no longer than it may be.
fn check_length(bytes: u64, most: u64) -> io::Result<()> {
    if bytes <= most {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")))
}

/// Reads a file of `most` bytes at most, whatever lies there.
///
/// # Errors
/// As the system calls; `FileTooLarge` for one that is longer.
pub fn read_file(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = own(OpenOptions::new().read(true))
        .custom_flags(reactor::file::NO_LINK | reactor::file::NO_WAIT)
        .open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    file.take(most + 1).read_to_end(&mut text)?;
    check_length(stdx::num::u64_of(text.len()), most)?;
    Ok(text)
}

/// Opens a file to be written to at its end, and makes it unless it is there.
///
/// # Errors
/// As open(2); also for what is no file.
pub fn append_file(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    let flags = reactor::file::NO_LINK | reactor::file::NO_WAIT;
    let file = own(&mut options).custom_flags(flags).open(file)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
    }
}

/// Replaces a file as a whole: after a power cut it holds the old text or the new one.
///
/// # Errors
/// As the system calls; the old file is still there.
pub fn replace_file(dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let fresh = dir.join(format!("{name}.new"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut out = own(&mut options).open(&fresh)?;
    out.write_all(text)?;
    out.sync_all()?;
    fs::rename(&fresh, dir.join(name))?;
    #[cfg(test)]
    late::fail_once(dir)?;
    File::open(dir)?.sync_all()
}

/// Folders that refuse to say once that what was put there stays.
#[cfg(test)]
pub mod late {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, PoisonError};

    static REFUSING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    pub fn refuse(dir: &Path) {
        REFUSING.lock().unwrap_or_else(PoisonError::into_inner).push(dir.to_owned());
    }

    pub fn fail_once(dir: &Path) -> io::Result<()> {
        let mut refusing = REFUSING.lock().unwrap_or_else(PoisonError::into_inner);
        match refusing.iter().position(|of| of == dir) {
            Some(at) => {
                refusing.remove(at);
                Err(io::Error::other("it may not stay"))
            }
            None => Ok(()),
        }
    }
}

/// Moves a file out of the way that is not what it should be, and says so: a daemon starts without it.
pub fn set_aside(file: &Path, why: &io::Error) -> String {
    let mut aside = file.as_os_str().to_owned();
    aside.push(".damaged");
    let moved = fs::rename(file, &aside);
    let where_to = moved.map_or_else(
        |error| format!("it cannot be set aside: {error}"),
        |()| format!("it is kept as {}", Path::new(&aside).display()),
    );
    format!("{} cannot be used: {why}; {where_to}", file.display())
}

/// Removes a file for good, if it is there.
///
/// # Errors
/// As the system calls.
pub fn remove_file(dir: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(dir.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::open(dir)?.sync_all(),
    }
}

/// The error for a directory that another daemon holds.
fn held(path: &Path, lock: &File) -> Error {
    let mut pid = String::new();
    let owner = match lock.take(PID_BYTES).read_to_string(&mut pid) {
        Ok(_) if !pid.trim().is_empty() => format!(" (process {})", pid.trim()),
        _ => String::new(),
    };
    Error::new(
        Kind::Conflict,
        format!("another flashloom{owner} uses the state directory {}", path.display()),
    )
    .help("stop it, or give this one a directory of its own with --state-dir")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_survives_and_a_second_daemon_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/state");
        let first = StateDir::open(&path).unwrap();
        let state = first.load().unwrap();
        let refused = StateDir::open(&path).unwrap_err();
        assert_eq!(refused.kind, Kind::Conflict);
        assert!(refused.context.contains(&std::process::id().to_string()), "{refused}");
        assert_eq!(first.left(), None);
        drop(first);
        // As a kill does it.
        let second = StateDir::open(&path).unwrap();
        assert_eq!(second.load().unwrap(), state);
        let told = format!(" (process {})", std::process::id());
        assert_eq!(second.left(), Some(&*told));
        second.end().unwrap();
        drop(second);
        assert_eq!(StateDir::open(&path).unwrap().left(), None);
    }

    /// A program that the last daemon was starting when it ended had the lock's file for a moment more.
    #[test]
    fn a_daemon_that_ended_in_order_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDir::open(dir.path()).unwrap();
        let child = first.lock.try_clone().unwrap();
        first.end().unwrap();
        drop(first);
        let lock = dir.path().canonicalize().unwrap().join("lock");
        let is_lock = |file: &fs::DirEntry| fs::read_link(file.path()).is_ok_and(|to| to == lock);
        let opened = || fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_lock).count();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| StateDir::open(dir.path()));
            while opened() < 2 && !second.is_finished() {
                std::thread::yield_now();
            }
            assert!(!second.is_finished(), "it gave up at once");
            drop(child);
            assert_eq!(second.join().unwrap().unwrap().left(), None);
        });
    }

    #[test]
    fn a_damaged_state_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        fs::write(dir.path().join("state.json"), "{ \"version\": 1,").unwrap();
        let refused = state.load().unwrap_err();
        assert!(refused.context.contains("state.json: EOF"), "{refused}");
        assert_eq!(fs::read(dir.path().join("state.json")).unwrap(), b"{ \"version\": 1,");
    }

    #[test]
    fn a_state_too_long_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let held = StateDir::open(dir.path()).unwrap();
        let state = held.load().unwrap();
        let path = dir.path().join("state.json");
        let text = fs::read(&path).unwrap();
        // White space: a state like any other, but for its length.
        let grow = |to: &[u8]| OpenOptions::new().append(true).open(&path).unwrap().write_all(to);
        grow(&vec![b' '; stdx::num::usize64(STATE_BYTES) - text.len()]).unwrap();
        assert_eq!(held.load().unwrap(), state);
        grow(b" ").unwrap();
        let refused = held.load().unwrap_err();
        assert!(refused.context.contains("longer than 67108864 bytes"), "{refused}");
        assert!(refused.help.unwrap().contains("backup"));
        assert_eq!(fs::metadata(&path).unwrap().len(), STATE_BYTES + 1);
    }

    /// A link that somebody else had put into the state directory had the daemon, as root, empty the file it led to.
    #[test]
    fn a_link_in_the_state_directory_is_not_followed() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let (state, victim) = (dir.path().join("state"), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        fs::create_dir(&state).unwrap();
        symlink(&victim, state.join("lock")).unwrap();
        assert_eq!(StateDir::open(&state).unwrap_err().kind, Kind::Failed);
        fs::remove_file(state.join("lock")).unwrap();
        let held = StateDir::open(&state).unwrap();
        symlink(&victim, state.join("state.json.new")).unwrap();
        held.load().unwrap_err();
        fs::remove_file(state.join("state.json.new")).unwrap();
        held.load().unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).unwrap();
        symlink(&folder, state.join("events")).unwrap();
        symlink(&folder, state.join("reservations")).unwrap();
        assert_eq!(crate::event_logs::EventLogs::open(&state).unwrap_err().kind, Kind::Failed);
        assert_eq!(crate::reservations::Reservations::open(&state).unwrap_err().kind, Kind::Failed);
    }

    /// A pipe in place of the state had the start wait for ever, without a word.
    #[test]
    fn a_state_that_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let held = StateDir::open(dir.path()).unwrap();
        let pipe = dir.path().join(FILE);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(held.load().unwrap_err().kind, Kind::Failed);
        fs::remove_file(&pipe).unwrap();
        held.load().unwrap();
    }

    #[test]
    fn a_state_directory_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode =
            |mode| fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        for open in [0o777, 0o775, 0o1777, 0o722] {
            mode(open);
            let refused = StateDir::open(dir.path()).unwrap_err();
            assert!(refused.context.contains("may be written by others"), "{refused}");
        }
        mode(0o755);
        StateDir::open(dir.path()).unwrap();
        // One that it makes is nobody else's to look into.
        let made = dir.path().join("deep/state");
        StateDir::open(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_save_that_fails_leaves_the_old_state() {
        let dir = tempfile::tempdir().unwrap();
        let held = StateDir::open(dir.path()).unwrap();
        let mut state = held.load().unwrap();
        let before = state.clone();
        fs::create_dir(dir.path().join("state.json.new")).unwrap();
        state.node = identity::new_node();
        assert!(held.save(&state).is_err());
        assert_eq!(held.load().unwrap(), before);
    }
}
