//! Places that are served or part of a pool are held against everybody else.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::v1::Kind;
use media::Drive;
use media::drive::{WRITES_LOOK, WRITES_PATIENCE};
use reactor::{Nanos, now_exact};

use crate::{Error, Result};

/// What is held, for as long as this is there.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// Where that was when it was taken.
    path: PathBuf,
    /// What a loop device has its bytes in.
    _behind: Option<File>,
}

/// How long whoever takes drives waits for what others have under way there: of all of them together.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    until: Nanos,
}

impl Patience {
    pub fn begin() -> Self {
        Self { until: now_exact() + nanos(WRITES_PATIENCE) }
    }

    fn has_ended(self) -> bool {
        now_exact() >= self.until
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos::try_from(span.as_nanos()).unwrap_or(Nanos::MAX / 2)
}

/// Holds what is at `path` against other programs, and against the kernel: what is mounted is not served.
///
/// # Errors
/// `Conflict` when it is in use, unless that is by the holder of `own`, which it is then.
pub fn lock(path: &Path, own: Option<&Arc<Lock>>) -> Result<Arc<Lock>> {
    match hold(path) {
        Ok(lock) => Ok(Arc::new(lock)),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => match own {
            Some(own) if is_at(own, path) => Ok(Arc::clone(own)),
            _ => Err(busy(path)),
        },
        Err(error) => Err(Error::failed(format!("cannot lock {}", path.display()), error)),
    }
}

/// As [`lock`], of what `drive` was opened from. What holds it goes with the process that does, and what that had the
/// kernel write may be under way still: it is waited for, or it would come over what is written from now on.
///
/// # Errors
/// As [`lock`], also when that is not over in time.
pub fn lock_drive(
    path: &Path,
    drive: &Drive,
    own: Option<&Arc<Lock>>,
    patience: Patience,
) -> Result<Arc<Lock>> {
    let lock = lock(path, own)?;
    await_alone(path, &lock, own, patience, || drive.is_alone())?;
    Ok(lock)
}

/// Waits until no other process can change what is behind `path` and was just opened; not where its `lock` is `own`: what is
/// under way is its holder's then, and beside what is late nothing is changed by anybody.
///
/// # Errors
/// `Conflict` when that is not so in time.
pub fn await_alone(
    path: &Path,
    lock: &Arc<Lock>,
    own: Option<&Arc<Lock>>,
    patience: Patience,
    is_alone: impl Fn() -> bool,
) -> Result<()> {
    if own.is_some_and(|own| Arc::ptr_eq(own, lock)) {
        return Ok(());
    }
    while !is_alone() {
        if patience.has_ended() {
            return Err(Error::new(Kind::Conflict, format!("{} is in use", path.display())).help(
                "the system still has writes for it of a program that had it before: they would come over what is \
                 written now",
            ));
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "whoever opens drives is on no reactor's thread"
        )]
        std::thread::sleep(WRITES_LOOK);
    }
    Ok(())
}

/// A loop device is its file under another name: whoever has that alone has the device too.
fn hold(path: &Path) -> io::Result<Lock> {
    let file = reactor::file::hold(path)?;
    let behind =
        file.metadata()?.file_type().is_block_device().then(|| behind(SYS_BLOCK.as_ref(), path));
    // One that was deleted, or is elsewhere, nobody can take.
    let behind = behind.flatten().filter(|file| file.exists());
    let behind = behind.map(|file| reactor::file::hold_with_others(&file)).transpose()?;
    Ok(Lock { file, path: path.to_owned(), _behind: behind })
}

impl Lock {
    /// Where what is held was when it was taken.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a file that is held is not there any more.
    pub fn is_elsewhere(&self) -> bool {
        self.file.metadata().is_ok_and(|held| held.is_file()) && !is_at(self, &self.path)
    }
}

/// Where the system tells of block devices, by their names.
const SYS_BLOCK: &str = "/sys/class/block";

/// The file of a loop device, or of one that this is a partition of.
fn behind(devices: &Path, path: &Path) -> Option<PathBuf> {
    let device = devices.join(path.canonicalize().ok()?.file_name()?).canonicalize().ok()?;
    let told = |device: &Path| fs::read_to_string(device.join("loop/backing_file")).ok();
    let file = told(&device).or_else(|| told(device.parent()?))?;
    Some(PathBuf::from(file.trim_end_matches('\n')))
}

fn busy(path: &Path) -> Error {
    let is_device = fs::metadata(path).is_ok_and(|of| of.file_type().is_block_device());
    let help = if is_device {
        "it is mounted or swapped to, a part of another device (LVM, md, multipath), or served already, here or \
         by another program: a second user would destroy its data"
    } else {
        "it is served or part of a pool already, here or by another program: a second user would destroy its data"
    };
    Error::new(Kind::Conflict, format!("{} is in use", path.display())).help(help)
}

/// Whether what is held is what is at `path`.
pub fn is_at(lock: &Lock, path: &Path) -> bool {
    let id = |of: fs::Metadata| (of.dev(), of.ino());
    let held = lock.file.metadata().map(id).ok();
    held.is_some() && held == fs::metadata(path).map(id).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A loop device over the file of an open pool's drive was served to hosts.
    #[test]
    fn a_loop_device_and_its_partitions_are_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let (real, devices) = (dir.path().join("devices"), dir.path().join("class"));
        for device in ["loop7/loop", "loop7/loop7p1", "sda/sda1"] {
            fs::create_dir_all(real.join(device)).unwrap();
        }
        fs::write(real.join("loop7/loop/backing_file"), "/srv/d 0.img\n").unwrap();
        fs::create_dir(&devices).unwrap();
        for (name, device) in
            [("loop7", "loop7"), ("loop7p1", "loop7/loop7p1"), ("sda", "sda"), ("sda1", "sda/sda1")]
        {
            symlink(real.join(device), devices.join(name)).unwrap();
            fs::write(dir.path().join(name), "").unwrap();
        }
        let behind = |name: &str| behind(&devices, &dir.path().join(name));
        for name in ["loop7", "loop7p1"] {
            assert_eq!(behind(name).unwrap(), Path::new("/srv/d 0.img"));
        }
        assert_eq!((behind("sda"), behind("sda1"), behind("none")), (None, None, None));
    }

    #[test]
    fn what_is_held_alone_is_not_held_with_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("d0");
        fs::write(&file, "").unwrap();
        let alone = lock(&file, None).unwrap();
        let error = reactor::file::hold_with_others(&file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        drop(alone);
        let both = [&file; 2].map(|file| reactor::file::hold_with_others(file).unwrap());
        assert_eq!(lock(&file, None).unwrap_err().kind, Kind::Conflict);
        drop(both);
        lock(&file, None).unwrap();
    }

    /// The kernel had writes of a daemon that was killed, which held nothing any more; they came over what the next one wrote,
    /// in both copies of a mirror.
    #[test]
    fn a_drive_is_taken_when_nobody_who_had_it_can_write_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("d0");
        fs::write(&file, [0; 8192]).unwrap();
        let held = lock(&file, None).unwrap();
        let looks = AtomicUsize::new(0);
        let in_time = || looks.fetch_add(1, Ordering::Relaxed) == 3;
        let patience = Patience::begin();
        await_alone(&file, &held, None, patience, in_time).unwrap();
        assert_eq!(looks.load(Ordering::Relaxed), 4, "it is waited for");
        // Who holds it already has operations of its own.
        let asked = || panic!("nobody is asked");
        await_alone(&file, &held, Some(&held), patience, asked).unwrap();
        // Of several that hang the first is waited for.
        let ended = Patience { until: now_exact() };
        let error = await_alone(&file, &held, None, ended, || false).unwrap_err();
        assert_eq!(error.kind, Kind::Conflict);
        await_alone(&file, &held, None, ended, || true).unwrap();
        let drive = Drive::open(&file, media::drive::OpenDrive::default()).unwrap();
        let own = lock_drive(&file, &drive, Some(&held), patience).unwrap();
        assert!(Arc::ptr_eq(&own, &held));
    }
}
