//! Persistent memory: bytes that are durable once they are stored and fenced, without a system call.
//!
//! What "durable" means is the kind's own matter, and said in [`Pmem::protection`].

mod beside;
mod guard;
mod mapped;
mod marks;
mod simulated;

pub use beside::Access;
pub use simulated::{SimulatedPmem, on_core_of};

use crate::error::{Error, Kind, Operation};
use mapped::{Length, Mapped, Way};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use stdx::num::u64_of;

/// The unit in which stores reach persistence, in bytes: a cache line.
pub const LINE: usize = 64;

/// Persistent memory, or what takes its place. Usable from every core, as long as each range is used
/// by one core at a time: bytes two cores write at once are either's.
#[derive(Debug)]
pub enum Pmem {
    /// A file on a DAX file system, mapped with `MAP_SYNC`: durable against power loss.
    Dax(Mapped),
    /// A shared-memory file, or any other: it outlives the process, and a power loss only if the
    /// operator's machine keeps its memory through one.
    Shared(Mapped),
    /// Memory of this process: gone with it.
    Anonymous(Mapped),
    /// Memory that forgets, from a seed, what was not fenced.
    Simulated(Arc<SimulatedPmem>),
}

impl Pmem {
    /// Maps a file on a DAX file system, creating it with `create` bytes when there is none.
    ///
    /// # Errors
    /// `Unsupported` when the file is not on DAX (`MAP_SYNC` refused); else as the system calls.
    pub fn dax(path: &Path, create: Option<u64>) -> Result<Self, Error> {
        Mapped::file(path, Length::All(create), Way::Dax).map(Self::Dax)
    }

    /// Maps a shared-memory file, creating it with `create` bytes when there is none.
    ///
    /// # Errors
    /// As the system calls; `Full` when the file system has no room for all of it.
    pub fn shared(path: &Path, create: Option<u64>) -> Result<Self, Error> {
        Mapped::file(path, Length::All(create), Way::Shared).map(Self::Shared)
    }

    /// What a file holds, only to be looked at: the file is opened for reading, and what is stored
    /// here never reaches it.
    ///
    /// # Errors
    /// As the system calls.
    pub fn snapshot(path: &Path) -> Result<Self, Error> {
        Mapped::file(path, Length::All(None), Way::Private).map(Self::Anonymous)
    }

    /// Maps the first `len` bytes, whole pages, of a file that another process made and gave the descriptor of, to be
    /// written: with `MAP_SYNC` where it is on a DAX file system. Whoever has it may cut it short: that shows as of
    /// any medium.
    ///
    /// # Errors
    /// `Unsupported` when the file has less; else as the system calls.
    pub fn of_fd(fd: impl AsFd, len: u64) -> Result<Self, Error> {
        match Mapped::of_fd(fd.as_fd(), len, true, Way::Dax) {
            Ok(mapped) => Ok(Self::Dax(mapped)),
            Err(error) if error.kind == Kind::Unsupported => {
                Mapped::of_fd(fd.as_fd(), len, true, Way::Shared).map(Self::Shared)
            }
            // What passes says nothing of the file: stores would be flushed to the cache alone.
            Err(error) => Err(error),
        }
    }

    /// The same, only to be looked at: the descriptor need not be one to write by.
    ///
    /// # Errors
    /// As [`of_fd`](Self::of_fd).
    pub fn of_fd_to_read(fd: impl AsFd, len: u64) -> Result<Self, Error> {
        Mapped::of_fd(fd.as_fd(), len, false, Way::Shared).map(Self::Shared)
    }

    /// `len` zero bytes of this process, of which none takes memory until it is written.
    ///
    /// # Errors
    /// `Full` when there is no address space.
    pub fn anonymous(len: u64) -> Result<Self, Error> {
        Mapped::anonymous(len).map(Self::Anonymous)
    }

    /// What an operator must know of how safe these bytes are.
    #[must_use]
    pub const fn protection(&self) -> &'static str {
        match self {
            Self::Dax(_) => "pmem: contents survive power loss",
            Self::Shared(_) => {
                "bbu: contents survive power loss only if the memory is battery-backed"
            }
            Self::Anonymous(_) => "memory: contents are lost when the process ends",
            Self::Simulated(_) => "simulated: contents survive as the seed says",
        }
    }

    /// Whether what another machine's network card stored here, and is seen, is as durable as it will be without a
    /// [flush](Self::flush).
    #[must_use]
    pub const fn keeps_what_is_seen(&self) -> bool {
        !matches!(self, Self::Dax(_))
    }

    /// The file that is mapped, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Dax(m) | Self::Shared(m) | Self::Anonymous(m) => m.path(),
            Self::Simulated(_) => None,
        }
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Dax(m) | Self::Shared(m) | Self::Anonymous(m) => m.len(),
            Self::Simulated(s) => s.capacity(),
        }
    }

    fn check(&self, operation: Operation, offset: u64, len: usize) -> Result<(), Error> {
        match offset.checked_add(u64_of(len)) {
            Some(end) if end <= self.capacity() => Ok(()),
            _ => Err(Error::new(Kind::OutOfRange, operation, offset, u64_of(len))),
        }
    }

    /// Stores `data` at `offset`. It is seen by every later read, and durable after the next
    /// [`fence`](Self::fence).
    ///
    /// # Errors
    /// `OutOfRange`; `Medium` when it cannot be reached, and ever after that: what fails in part is written no
    /// more.
    #[inline]
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check(Operation::Write, offset, data.len())?;
        let stored = match self {
            Self::Dax(m) => m.change(|m| m.stream(offset, data)),
            Self::Shared(m) => m.change(|m| m.copy_in(offset, data, true)),
            // What is stored here is looked at again soon.
            Self::Anonymous(m) => m.change(|m| m.copy_in(offset, data, false)),
            Self::Simulated(s) => s.write(offset, data),
        };
        let failed = || Error::new(Kind::Medium, Operation::Write, offset, u64_of(data.len()));
        if stored { Ok(()) } else { Err(failed()) }
    }

    /// As [`write`](Self::write) of what another core takes from there soon: through the cache, where that is as safe as
    /// the memory.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    pub fn write_near(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let Self::Shared(mapped) = self else { return self.write(offset, data) };
        self.check(Operation::Write, offset, data.len())?;
        let stored = mapped.change(|m| m.copy_in(offset, data, false));
        let failed = || Error::new(Kind::Medium, Operation::Write, offset, u64_of(data.len()));
        if stored { Ok(()) } else { Err(failed()) }
    }

    /// Everything this core has written is durable after it.
    #[inline]
    pub fn fence(&self) {
        match self {
            Self::Dax(_) | Self::Shared(_) | Self::Anonymous(_) => mapped::fence(),
            Self::Simulated(s) => s.fence(),
        }
    }

    /// Fetches `out.len()` bytes from `offset`, as they are now: another process may store there meanwhile.
    ///
    /// # Errors
    /// `OutOfRange`, `Medium` when they cannot be had.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.check(Operation::Read, offset, out.len())?;
        let length = u64_of(out.len());
        let copied = match self {
            Self::Dax(m) | Self::Shared(m) | Self::Anonymous(m) => m.copy_out(offset, out),
            Self::Simulated(s) => {
                s.with(offset, out.len(), |bytes| out.copy_from_slice(bytes)).is_some()
            }
        };
        let failed = || Error::new(Kind::Medium, Operation::Read, offset, length);
        if copied { Ok(()) } else { Err(failed()) }
    }

    /// Has what another process stored in these bytes, and this one has seen, be durable.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[inline]
    pub fn flush(&self, offset: u64, len: usize) -> Result<(), Error> {
        self.check(Operation::Flush, offset, len)?;
        match self {
            Self::Dax(m) => {
                if !m.change(|m| m.flush_lines(offset, len)) {
                    return Err(Error::new(Kind::Medium, Operation::Flush, offset, u64_of(len)));
                }
                mapped::fence();
            }
            Self::Shared(_) | Self::Anonymous(_) => {}
            Self::Simulated(s) => s.flush(offset, len),
        }
        Ok(())
    }

    /// As [`fence`](Self::fence), and what this core reads after it is read after that.
    #[inline]
    pub fn full_fence(&self) {
        match self {
            Self::Dax(_) | Self::Shared(_) | Self::Anonymous(_) => mapped::full_fence(),
            Self::Simulated(s) => s.fence(),
        }
    }

    /// The word of 8 bytes at `offset`, a multiple of 8, little endian, which another process may store at any moment.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[inline]
    pub fn load(&self, offset: u64) -> Result<u64, Error> {
        self.check(Operation::Read, offset, size_of::<u64>())?;
        let word = match self {
            Self::Dax(m) | Self::Shared(m) | Self::Anonymous(m) => m.load(offset),
            Self::Simulated(s) => s.with(offset, size_of::<u64>(), |bytes| {
                bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
            }),
        };
        word.ok_or_else(|| Error::new(Kind::Medium, Operation::Read, offset, 8))
    }

    /// Stores the word of 8 bytes at `offset`, at once, for another process to see; durable after the next
    /// [`fence`](Self::fence).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    pub fn store(&self, offset: u64, value: u64) -> Result<(), Error> {
        self.check(Operation::Write, offset, size_of::<u64>())?;
        let stored = match self {
            Self::Dax(m) => m.change(|m| m.store(offset, value, true)),
            Self::Shared(m) | Self::Anonymous(m) => m.change(|m| m.store(offset, value, false)),
            Self::Simulated(s) => s.write(offset, &value.to_le_bytes()),
        };
        let failed = || Error::new(Kind::Medium, Operation::Write, offset, 8);
        if stored { Ok(()) } else { Err(failed()) }
    }

    /// Calls `look` with the bytes where they lie. Nobody may write them meanwhile: `look` must not.
    ///
    /// # Errors
    /// `OutOfRange`; `Medium` when they cannot be had. `look` may then have seen zeroes in their place.
    #[inline]
    pub fn with<R>(
        &self,
        offset: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        self.check(Operation::Read, offset, len)?;
        let seen = match self {
            Self::Dax(m) | Self::Shared(m) | Self::Anonymous(m) => m.look(offset, len, look),
            Self::Simulated(s) => s.with(offset, len, look),
        };
        seen.ok_or_else(|| Error::new(Kind::Medium, Operation::Read, offset, u64_of(len)))
    }
}

#[cfg(test)]
mod tests;
