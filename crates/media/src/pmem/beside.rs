//! Regions of persistent memory beside one: of the same kind, protected the same way, known by a suffix of its name.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stdx::num::usize64;

use super::mapped::{Length, Mapped, Way, fill_up};
use super::{Pmem, SimulatedPmem};
use crate::error::{Error, Kind, Operation};

/// What another process may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn io_error(error: io::Error) -> Error {
    Error::from_io(error, Operation::Open, 0, 0)
}

impl Pmem {
    /// Of a file that is mapped: the file, and how it is.
    fn file(&self) -> Result<(PathBuf, Way), Error> {
        let (mapped, way) = match self {
            Self::Dax(mapped) => (mapped, Way::Dax),
            Self::Shared(mapped) => (mapped, Way::Shared),
            Self::Anonymous(_) | Self::Simulated(_) => return Err(unsupported()),
        };
        // What is beside a link is not beside what it leads to.
        let path = fs::canonicalize(mapped.path().ok_or_else(unsupported)?).map_err(io_error)?;
        // A device has nothing beside it that is as safe.
        let is_file = fs::metadata(&path).is_ok_and(|file| file.is_file());
        if is_file { Ok((path, way)) } else { Err(unsupported()) }
    }

    fn map(way: Way, path: &Path, length: Length) -> Result<Self, Error> {
        let mapped = Mapped::file(path, length, way)?;
        Ok(if way == Way::Dax { Self::Dax(mapped) } else { Self::Shared(mapped) })
    }

    /// Makes a region of `bytes` zeroes beside this one.
    ///
    /// # Errors
    /// `Unsupported` when this is no file, or its folder is of another file system: as safe as that may not be; `Busy` when
    /// there is one of this suffix; else as the system calls.
    pub fn create_beside(&self, suffix: &str, bytes: u64) -> Result<Self, Error> {
        if let Self::Simulated(simulated) = self {
            let made = simulated.create_beside(suffix, bytes).map(Self::Simulated);
            return made.ok_or_else(|| Error::new(Kind::Busy, Operation::Open, 0, bytes));
        }
        let (path, way) = self.file()?;
        let made = beside(&path, suffix);
        if fs::symlink_metadata(&made).is_ok() {
            return Err(Error::new(Kind::Busy, Operation::Open, 0, bytes));
        }
        // A file may be there by a mount of its own.
        let device = |path: &Path| fs::metadata(path).map(|of| of.dev()).map_err(io_error);
        if device(path.parent().unwrap_or(Path::new("/")))? != device(&path)? {
            return Err(unsupported());
        }
        Self::map(way, &made, Length::All(Some(bytes)))
    }

    /// Opens the first `bytes` of a region that was made beside this one. There may be more by now: whoever has it to write may make
    /// it longer, or cut it short.
    ///
    /// # Errors
    /// `Gone` when there is none; `OutOfRange` when it is shorter; `Unsupported` when this is no file; else as the system calls.
    pub fn open_beside(&self, suffix: &str, bytes: u64) -> Result<Self, Error> {
        if let Self::Simulated(simulated) = self {
            let gone = || Error::new(Kind::Gone, Operation::Open, 0, bytes);
            let found = simulated.open_beside(suffix).ok_or_else(gone)?;
            let is_whole = found.capacity() >= bytes;
            let cut = || Error::new(Kind::OutOfRange, Operation::Open, 0, bytes);
            return is_whole.then_some(Self::Simulated(found)).ok_or_else(cut);
        }
        let (path, way) = self.file()?;
        let path = beside(&path, suffix);
        if !path.is_file() {
            return Err(Error::new(Kind::Gone, Operation::Open, 0, bytes));
        }
        Self::map(way, &path, Length::First(bytes))
    }

    /// Gives a region that was made beside this one zeroes up to `bytes`, if it is shorter.
    ///
    /// # Errors
    /// As [`open_beside`](Self::open_beside); `Full`.
    pub fn fill_up_beside(&self, suffix: &str, bytes: u64) -> Result<(), Error> {
        if let Self::Simulated(simulated) = self {
            let done = simulated.fill_up_beside(suffix, bytes);
            return done.ok_or_else(|| Error::new(Kind::Gone, Operation::Open, 0, bytes));
        }
        let path = beside(&self.file()?.0, suffix);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(io_error)?;
        fill_up(&file, &path, bytes)
    }

    /// Takes regions away that were made beside this one, those of suffixes that begin so and that `keep` does not
    /// want. Whoever has one mapped keeps that.
    ///
    /// # Errors
    /// As the system calls; nothing when this is no file.
    pub fn remove_beside(&self, prefix: &str, keep: impl Fn(&str) -> bool) -> Result<(), Error> {
        if let Self::Simulated(simulated) = self {
            simulated.remove_beside(prefix, keep);
            return Ok(());
        }
        let Ok((path, _)) = self.file() else { return Ok(()) };
        let parent = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = parent.unwrap_or(Path::new("."));
        let Some(name) = path.file_name().and_then(OsStr::to_str) else { return Ok(()) };
        for entry in fs::read_dir(folder).map_err(io_error)? {
            let entry = entry.map_err(io_error)?;
            let found = entry.file_name();
            let suffix = found.to_str().and_then(|found| found.strip_prefix(name));
            if suffix.is_some_and(|suffix| suffix.starts_with(prefix) && !keep(suffix)) {
                fs::remove_file(entry.path()).map_err(io_error)?;
            }
        }
        Ok(())
    }

    /// A descriptor of the file, for another process.
    ///
    /// # Errors
    /// `Unsupported` when this is no file; else as open(2).
    pub fn share(&self, access: Access) -> Result<OwnedFd, Error> {
        let (path, _) = self.file()?;
        let write = access == Access::ReadWrite;
        let file = OpenOptions::new().read(true).write(write).open(path).map_err(io_error)?;
        Ok(file.into())
    }
}

fn unsupported() -> Error {
    Error::new(Kind::Unsupported, Operation::Open, 0, 0)
}

impl SimulatedPmem {
    fn create_beside(&self, suffix: &str, bytes: u64) -> Option<Arc<Self>> {
        let mut all = self.beside();
        if all.contains_key(suffix) {
            return None;
        }
        let made = self.region(bytes);
        all.insert(suffix.to_owned(), Arc::clone(&made));
        Some(made)
    }

    fn open_beside(&self, suffix: &str) -> Option<Arc<Self>> {
        self.beside().get(suffix).filter(|_| !self.hides()).cloned()
    }

    fn fill_up_beside(&self, suffix: &str, bytes: u64) -> Option<()> {
        let found = Pmem::Simulated(self.open_beside(suffix)?);
        if found.capacity() < bytes {
            let longer = Arc::new(Self::with_power(bytes, Arc::clone(&self.power)));
            let mut kept = vec![0; usize64(found.capacity())];
            found.read(0, &mut kept).ok()?;
            Pmem::Simulated(Arc::clone(&longer)).write(0, &kept).ok()?;
            self.beside().insert(suffix.to_owned(), longer);
        }
        Some(())
    }

    fn remove_beside(&self, prefix: &str, keep: impl Fn(&str) -> bool) {
        if self.hides() {
            return;
        }
        self.beside().retain(|suffix, _| !suffix.starts_with(prefix) || keep(suffix));
    }
}
