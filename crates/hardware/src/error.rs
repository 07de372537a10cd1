//! What could not be learnt or done, and what to do about it.

use nvme::status::Status;
use std::io;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be learnt or done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path that was given cannot be looked at.
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },

    /// There is a device node, but no such device.
    #[error(
        "the kernel knows no block device {major}:{minor}: the drive is gone, or sysfs is not mounted at {}",
        sys.display()
    )]
    Unknown { major: u32, minor: u32, sys: PathBuf },

    /// It is no generic character device of an NVMe namespace.
    #[error("{} is {is}", path.display())]
    NotGeneric {
        path: PathBuf,
        /// What it is.
        is: String,
        /// What to name in its place.
        instead: String,
    },

    /// The drive was there before, and is not now.
    #[error("{drive}: the drive is gone")]
    Gone { drive: String },

    /// This process may not do that.
    #[error("cannot {action} {}: {source}; it needs {needs}", path.display())]
    Denied { action: &'static str, path: PathBuf, needs: &'static str, source: io::Error },

    /// The drive's controller is resetting, connecting, or dead.
    #[error(
        "{controller}: the controller is not live but {state}; try again, or see the kernel's log"
    )]
    NotLive { controller: String, state: String },

    /// The command was not answered, and the kernel gave up.
    #[error("{drive}: no answer in time; the kernel resets the controller, see its log")]
    NoAnswer { drive: String },

    /// The drive refused the command.
    #[error("{drive}: the drive refused Get Log Page of SMART / Health: {status}")]
    Refused { drive: String, status: Status },

    /// The drive's slot has no light that the kernel knows.
    #[error("{drive}: no light to locate it by; looked for {}", looked_for.join(", "))]
    NoLight { drive: String, looked_for: Vec<String> },

    /// The system could not do it.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl Error {
    /// What `source` means when `action` was tried on `path`, which `needs` a right.
    pub(crate) fn of(
        action: &'static str,
        path: &Path,
        needs: &'static str,
        source: io::Error,
    ) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Denied { action, path, needs, source }
            }
            _ => Self::Io { action, path, source },
        }
    }
}
