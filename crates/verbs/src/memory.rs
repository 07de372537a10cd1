//! Memory that a network card may touch.
#![allow(unsafe_code, reason = "memory that is written by a device")]

use core::ptr::{self, NonNull};
use std::io;
use std::sync::Arc;

use crate::Domain;
use crate::ffi::{self, MemoryRegion};
use crate::library::numbered;

/// A place in memory that a work request has until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub offset: usize,
    pub length: usize,
}

/// Where in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    pub address: u64,
    pub key: u32,
}

/// Who reaches registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The queue pairs of its domain, by work requests of this end.
    Ours,
    /// Their peers, too: those that know a key read and write all of it.
    Peers,
}

impl Reach {
    const fn access(self) -> core::ffi::c_int {
        match self {
            Self::Ours => ffi::ACCESS_LOCAL_WRITE,
            Self::Peers => {
                ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_READ
            }
        }
    }
}

/// Bytes that the queue pairs of a domain may have sent, received, read and written; and, where that is said, their
/// peers.
///
/// What is in a place that a work request has is the network card's until that has ended: whoever gives it another use
/// before that finds what the peer sent there.
pub struct Memory {
    domain: Arc<Domain>,
    base: NonNull<u8>,
    bytes: usize,
    region: NonNull<MemoryRegion>,
}

// SAFETY: it is reached by copies through raw pointers only.
unsafe impl Send for Memory {}
// SAFETY: as above. Copies of two threads to one place would mix, and so be defects; each owner hands places out.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory of so many bytes, all of it resident and locked; zeros.
    ///
    /// # Errors
    /// `OutOfMemory`, in words for an administrator: the limit of locked memory.
    pub fn register(domain: &Arc<Domain>, bytes: usize, reach: Reach) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping anywhere touches no memory of ours.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let functions = domain.functions();
        // SAFETY: the mapping is there until the region is gone.
        let region =
            unsafe { (functions.ibv_reg_mr)(domain.as_ptr(), base, bytes, reach.access()) };
        let mapped = NonNull::new(base.cast());
        match (NonNull::new(region), mapped) {
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
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Panics
    /// When they are not all inside.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: inside of the mapping, which is no memory that Rust lends to anybody.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies bytes to `offset`.
    ///
    /// # Panics
    /// When they do not fit inside.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: as in `copy_out`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes), "beyond registered memory");
        // SAFETY: inside of the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// What a peer has to say of a place, where peers reach it.
    ///
    /// # Panics
    /// When it is not inside.
    #[must_use]
    pub fn remote(&self, place: Place) -> Remote {
        let at = self.at(place.offset, place.length);
        // SAFETY: the region is there as long as this.
        let key = unsafe { self.region.as_ref() }.rkey;
        Remote { address: stdx::num::u64_of(at.expose_provenance()), key }
    }

    /// What a work request says of a place.
    pub(crate) fn sge(&self, offset: usize, length: usize) -> ffi::Sge {
        let at = self.at(offset, length);
        // SAFETY: the region is there as long as this.
        let lkey = unsafe { self.region.as_ref() }.lkey;
        ffi::Sge {
            addr: stdx::num::u64_of(at.expose_provenance()),
            length: stdx::num::u32_of(length),
            lkey,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: queue pairs keep the memory that they may touch, so none is left that does.
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
pub(crate) fn unlocked(error: io::Error, bytes: usize) -> io::Error {
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
