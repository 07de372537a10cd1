//! Memory of this process that peers reach by themselves.
#![allow(unsafe_code, reason = "memory that is written by peers")]

use core::ffi::c_int;
use core::ptr::{self, NonNull};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use crate::ffi::{self, MemoryRegion};
use crate::library::numbered;
use crate::memory::unlocked;
use crate::{Domain, Remote};

/// What peers may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    Read,
    Write,
}

impl Peers {
    const fn access(self) -> c_int {
        match self {
            Self::Read => ffi::ACCESS_REMOTE_READ,
            // Nobody is let in whom this end's own card is not.
            Self::Write => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE,
        }
    }

    const fn protection(self) -> c_int {
        match self {
            Self::Read => libc::PROT_READ,
            Self::Write => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// A file in memory that the peers of a domain's queue pairs reach, whoever else has it mapped. This end does not touch it
/// by this mapping.
pub struct Exposed {
    domain: Arc<Domain>,
    base: NonNull<u8>,
    bytes: usize,
    region: NonNull<MemoryRegion>,
}

// SAFETY: it is not reached by this process.
unsafe impl Send for Exposed {}
// SAFETY: as above.
unsafe impl Sync for Exposed {}

impl Exposed {
    /// The file's first bytes, all of them resident and locked.
    ///
    /// # Errors
    /// `OutOfMemory`, in words for an administrator: the limit of locked memory. The file is shorter, or of a kind that cannot
    /// be locked for a card: a file of a file system on persistent memory.
    pub fn of_fd(
        domain: &Arc<Domain>,
        fd: impl AsFd,
        bytes: usize,
        peers: Peers,
    ) -> io::Result<Self> {
        let fd = fd.as_fd().as_raw_fd();
        let protection = peers.protection();
        // SAFETY: a new mapping anywhere touches no memory of ours.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let functions = domain.functions();
        // SAFETY: the mapping is there until the region is gone.
        let region =
            unsafe { (functions.ibv_reg_mr)(domain.as_ptr(), base, bytes, peers.access()) };
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

    /// Where peers find it.
    #[must_use]
    pub fn remote(&self) -> Remote {
        let address = stdx::num::u64_of(self.base.as_ptr().expose_provenance());
        // SAFETY: the region is there as long as this.
        Remote { address, key: unsafe { self.region.as_ref() }.rkey }
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // SAFETY: it is ended once. What peers send after that is refused.
        let gone =
            numbered(unsafe { (self.domain.functions().ibv_dereg_mr)(self.region.as_ptr()) });
        // Memory that is registered still is not given back, whatever that costs.
        if gone.is_ok() {
            // SAFETY: nobody touches the mapping any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}
