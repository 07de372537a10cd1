//! A mapping that network cards may touch.
#![allow(unsafe_code, reason = "memory that is mapped, and written by a device")]

use core::ffi::c_int;
use core::ptr::{self, NonNull};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use crate::Domain;
use crate::ffi::MemoryRegion;
use crate::library::numbered;

/// What is mapped.
#[derive(Clone, Copy)]
pub enum Of<'a> {
    /// New memory.
    Nothing,
    /// A file, to be read.
    ToRead(BorrowedFd<'a>),
    /// A file, to be read and written.
    ToWrite(BorrowedFd<'a>),
    /// A file on persistent memory, likewise: a line of it that is flushed is kept, and nothing else has to be done for it.
    ToFlush(BorrowedFd<'a>),
}

/// By which this end and peers name it.
#[derive(Clone, Copy)]
pub struct Keys {
    pub local: u32,
    pub remote: u32,
}

/// A mapping, registered in a domain.
pub struct Region {
    domain: Arc<Domain>,
    base: NonNull<u8>,
    bytes: usize,
    region: NonNull<MemoryRegion>,
}

// SAFETY: the mapping is of no thread, and the library's functions may be called from any.
unsafe impl Send for Region {}

impl Region {
    /// Maps so many bytes, for cards to touch them as `access` says; all of them resident and locked, but on demand.
    ///
    /// # Errors
    /// `OutOfMemory`, in words for an administrator: the limit of locked memory. A file that is shorter, or of a kind that
    /// cannot be locked for a card.
    pub fn map(domain: &Arc<Domain>, bytes: usize, of: Of<'_>, access: c_int) -> io::Result<Self> {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let (protection, flags, fd) = match of {
            Of::Nothing => (both, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
            Of::ToRead(fd) => (libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd()),
            Of::ToWrite(fd) => (both, libc::MAP_SHARED, fd.as_raw_fd()),
            Of::ToFlush(fd) => (both, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC, fd.as_raw_fd()),
        };
        // SAFETY: a new mapping anywhere touches no memory of ours.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let functions = domain.functions();
        // SAFETY: the mapping is there until the region is gone.
        let region = unsafe { (functions.ibv_reg_mr)(domain.as_ptr(), base, bytes, access) };
        match (NonNull::new(region), NonNull::new(base.cast())) {
            (Some(region), Some(base)) => {
                Ok(Self { domain: Arc::clone(domain), base, bytes, region })
            }
            _ => {
                let error = io::Error::last_os_error();
                // SAFETY: nobody else knows the mapping.
                unsafe { libc::munmap(base, bytes) };
                Err(unlocked(error, bytes))
            }
        }
    }

    /// Its length.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Where so many bytes lie, from `offset` on.
    ///
    /// # Panics
    /// When they are not all inside.
    pub fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes), "beyond registered memory");
        // SAFETY: inside of the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    pub fn keys(&self) -> Keys {
        // SAFETY: the region is there as long as this.
        let region = unsafe { self.region.as_ref() };
        Keys { local: region.lkey, remote: region.rkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: queue pairs keep the memory that they may touch by themselves, so none is left that does; what peers send after
        // this is refused.
        let gone =
            numbered(unsafe { (self.domain.functions().ibv_dereg_mr)(self.region.as_ptr()) });
        // Memory that is registered still is not given back, whatever that costs.
        if gone.is_ok() {
            // SAFETY: nobody touches the mapping any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}

/// Says what to do where memory cannot be locked.
fn unlocked(error: io::Error, bytes: usize) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return error;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is written to a place of this function.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    let limit = match known && limit.rlim_cur != libc::RLIM_INFINITY {
        true => format!("{} KiB", limit.rlim_cur >> 10),
        false => "none".to_owned(),
    };
    let what = format!(
        "cannot lock {} KiB more of memory for the network card (limit of locked memory, RLIMIT_MEMLOCK: {limit}); \
         raise it: LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited",
        bytes >> 10
    );
    io::Error::new(io::ErrorKind::OutOfMemory, what)
}
