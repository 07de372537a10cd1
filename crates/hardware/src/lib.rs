//! What the machine itself says of a physical drive: identity, health, slot, and the light that finds it.
//!
//! All of it comes from sysfs, but for the health of NVMe drives, for which the drive is asked (Get Log Page
//! 02h through the kernel). Linux only.
//!
//! # What may block
//! Every call of [`Machine`] makes system calls, and some end only when the hardware answers; none may be
//! made on a reactor.
//!
//! | call | waits for |
//! |---|---|
//! | [`Machine::drive`] | nothing but the kernel's memory; for a virtio disk, its serial number is asked of the hypervisor |
//! | [`Machine::generic`] | nothing but the kernel's memory |
//! | [`Machine::identity`] | as [`Machine::drive`] |
//! | [`Machine::health`], NVMe | the drive: the kernel gives up after `nvme_core.admin_timeout`, 60 s, and then resets the controller; as long again for each further controller of a drive with several |
//! | [`Machine::health`], others, [`Machine::temperature`] | a drive that hwmon asks: as long as the kernel's commands to it may take, 30 s or more with retries |
//! | [`Machine::locate`], [`Machine::is_located`] | the enclosure: some seconds, or as a command of the drive's when it hangs |
//!
//! The calls take no lock and may be made from several threads. A thread that hangs in one cannot be ended:
//! callers bound how many there are, one for each drive.

mod controller;
mod describe;
mod drive;
mod error;
mod generic;
mod health;
mod light;
mod limits;
mod nvme_drive;
mod resolve;
#[cfg(feature = "script")]
mod script;
mod scsi;
mod smart;
mod sysfs;
mod transport;

pub use drive::Drive;
pub use error::{Error, Result};
pub use generic::Generic;
pub use health::{Health, Warning};
pub use resolve::{is_another, is_weak};
#[cfg(feature = "script")]
pub use script::{Answer, Script};
pub use transport::Transport;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The machine, as its kernel describes it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where sysfs is.
    sys: PathBuf,
    /// Where device nodes are.
    dev: PathBuf,
    /// What answers in place of all drives, in tests of what is made of the answers.
    #[cfg(feature = "script")]
    script: Option<std::sync::Arc<Script>>,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// This machine: sysfs in `/sys`, device nodes in `/dev`.
    #[must_use]
    pub fn new() -> Self {
        Self::at(PathBuf::from("/sys"))
    }

    /// A machine whose sysfs is in `sys`, with device nodes in the folder `dev` beside it: for tests with an
    /// imitation of both.
    #[must_use]
    pub fn at(sys: PathBuf) -> Self {
        let dev = sys.with_file_name("dev");
        Self {
            sys,
            dev,
            #[cfg(feature = "script")]
            script: None,
        }
    }

    /// A machine whose drives answer as written down.
    #[cfg(feature = "script")]
    #[must_use]
    pub fn scripted(script: std::sync::Arc<Script>) -> Self {
        Self { script: Some(script), ..Self::new() }
    }

    /// The drive behind `path`: a device node or a link to one, of a disk, a partition, or a device (LVM,
    /// encryption, md) that lies on exactly one drive, or an NVMe namespace by its generic character device. Several
    /// paths to one drive are one.
    ///
    /// `None` for what is no device of a drive, for one without hardware (loop, ram), and for one over several drives.
    ///
    /// # Errors
    /// [`Error::Path`] when `path` cannot be looked at, [`Error::Unknown`] when the kernel has no such device any
    /// more, [`Error::Io`] when sysfs cannot be read.
    pub fn drive(&self, path: &Path) -> Result<Option<Drive>> {
        #[cfg(feature = "script")]
        if let Some(script) = &self.script {
            return Ok(script.drive(path));
        }
        let of = |source| Error::Path { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(of)?;
        if metadata.file_type().is_char_device() {
            return match self.generic(path) {
                Ok(found) => Ok(Some(describe::read(&self.sys, found.disk))),
                Err(Error::NotGeneric { .. }) => Ok(None),
                Err(error) => Err(error),
            };
        }
        if !metadata.file_type().is_block_device() {
            return Ok(None);
        }
        let number = metadata.rdev();
        self.drive_of(libc::major(number), libc::minor(number))
    }

    /// What tells what was opened at `path`, the block device `number` (major and minor), from any other, whatever its name:
    /// a world wide identifier or what there is in place of one. `None` for what has none, and for what is no device.
    #[must_use]
    pub fn identity(&self, path: &Path, number: Option<(u32, u32)>) -> Option<String> {
        #[cfg(feature = "script")]
        if let Some(script) = &self.script {
            return script.identity(path);
        }
        // Only what answers in place of drives knows them by their paths.
        let _ = path;
        number.and_then(|(major, minor)| resolve::identity(&self.sys, major, minor))
    }

    /// The drive behind the block device `major`:`minor`.
    fn drive_of(&self, major: u32, minor: u32) -> Result<Option<Drive>> {
        let disk = resolve::disk(&self.sys, major, minor)?;
        Ok(disk.map(|disk| describe::read(&self.sys, disk)))
    }
}

#[cfg(test)]
mod tests;
