//! What a pool is made of: its drives, and where its commit log lies.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::backend::{bounded, path_and_size};
use super::{Name, Refused, RemoteNamespace, Size};

/// A drive for a pool, written `PATH`, `PATH,size=SIZE` or `memory:SIZE`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DrivePath {
    /// A regular file or a block device, absolute once the pool is open; or `memory:SIZE`.
    pub path: PathBuf,
    /// Create or extend a regular file to this size; `None` takes it as it is.
    pub size: Option<Size>,
}

impl DrivePath {
    /// Size of a drive of the daemon's own memory, whose contents end with the daemon; `None` for one
    /// that lasts.
    #[must_use]
    pub fn memory(path: &Path) -> Option<Size> {
        path.to_str()?.strip_prefix(MEMORY)?.parse().ok()
    }
}

const MEMORY: &str = "memory:";

impl FromStr for DrivePath {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        if let Some(size) = text.strip_prefix(MEMORY) {
            let size = bounded(size.parse()?)?;
            return Ok(Self { path: format!("{MEMORY}{}", size.exact()).into(), size: None });
        }
        let (path, size) = path_and_size(text)?;
        if path.is_empty() {
            return Err(Refused::new(
                "a drive without a path",
                "write PATH, PATH,size=SIZE or memory:SIZE, such as /dev/nvme0n1 or /srv/d0.img,size=10GiB",
            ));
        }
        Ok(Self { path: PathBuf::from(path), size })
    }
}

impl fmt::Display for DrivePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            None => out.pad(&self.path.display().to_string()),
            Some(size) => out.pad(&format!("{},size={}", self.path.display(), size.exact())),
        }
    }
}

super::text_value!(DrivePath, "/dev/nvme0n1", "A drive: PATH, PATH,size=SIZE or memory:SIZE.");

/// A drive's place in a pool, written `POOL/INDEX`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolDrive {
    /// The pool.
    pub pool: Name,
    /// Its place there, from 0.
    pub index: u16,
}

impl FromStr for PoolDrive {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let parts =
            text.split_once('/').and_then(|(pool, index)| Some((pool, index.parse().ok()?)));
        let Some((pool, index)) = parts else {
            let wrong = format!("\"{text}\" is not a drive of a pool");
            return Err(Refused::new(wrong, "write POOL/INDEX, such as fast/2"));
        };
        Ok(Self { pool: pool.parse()?, index })
    }
}

impl fmt::Display for PoolDrive {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{}/{}", self.pool, self.index))
    }
}

super::text_value!(PoolDrive, "fast/2", "A drive's place in a pool: POOL/INDEX.");

/// Where a pool's commit log lies, written `pmem:PATH`, `bbu:PATH`, `drives` or as [`RemoteNamespace`] is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogPlace {
    /// Persistent memory: a file on a DAX file system.
    Pmem(PathBuf),
    /// Memory that the operator says survives a power loss: a shared memory file.
    Bbu(PathBuf),
    /// Zones on two of the pool's own drives.
    Drives,
    /// A namespace of another target: the log survives what this machine does not.
    Remote(RemoteNamespace),
}

impl LogPlace {
    /// The file it is in, if it is in one of this machine.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Pmem(path) | Self::Bbu(path) => Some(path),
            Self::Drives | Self::Remote(_) => None,
        }
    }
}

impl FromStr for LogPlace {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        match text.split_once(':') {
            None if text == "drives" => Ok(Self::Drives),
            _ if RemoteNamespace::is_meant(text) => text.parse().map(Self::Remote),
            Some(("pmem", path)) if !path.is_empty() => Ok(Self::Pmem(path.into())),
            Some(("bbu", path)) if !path.is_empty() => Ok(Self::Bbu(path.into())),
            _ => Err(Refused::new(
                format!("{text:?} is no place for a commit log"),
                "write pmem:PATH, bbu:PATH, drives or tcp://ADDR[:PORT]/SUBNQN/NSID, such as pmem:/mnt/dax/log or \
                 bbu:/dev/shm/log",
            )),
        }
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pmem(path) => out.pad(&format!("pmem:{}", path.display())),
            Self::Bbu(path) => out.pad(&format!("bbu:{}", path.display())),
            Self::Drives => out.pad("drives"),
            Self::Remote(namespace) => namespace.fmt(out),
        }
    }
}

super::text_value!(
    LogPlace,
    "bbu:/dev/shm/log",
    "Where a commit log lies: pmem:PATH, bbu:PATH, drives, or a namespace of another target, \
     tcp://ADDR[:PORT]/SUBNQN/NSID or rdma://."
);
