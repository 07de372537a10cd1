//! Memory that a network card may touch.
#![allow(unsafe_code, reason = "memory that is written by a device")]

use core::ptr;
use std::io;
use std::sync::Arc;

use crate::region::{Of, Region};
use crate::{Domain, ffi};

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
pub struct Memory(Region);

// SAFETY: it is reached by copies through raw pointers only. Copies of two threads to one place would mix, and so be
// defects; each owner hands places out.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory of so many bytes, all of it resident and locked; zeros.
    ///
    /// # Errors
    /// `OutOfMemory`, in words for an administrator: the limit of locked memory.
    pub fn register(domain: &Arc<Domain>, bytes: usize, reach: Reach) -> io::Result<Self> {
        Region::map(domain, bytes, Of::Nothing, reach.access()).map(Self)
    }

    /// Its length.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.len() == 0
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
        self.0.at(offset, length)
    }

    /// What a peer has to say of a place, where peers reach it.
    ///
    /// # Panics
    /// When it is not inside.
    #[must_use]
    pub fn remote(&self, place: Place) -> Remote {
        let at = self.at(place.offset, place.length);
        Remote { address: stdx::num::u64_of(at.expose_provenance()), key: self.0.keys().remote }
    }

    /// What a work request says of a place.
    pub(crate) fn sge(&self, offset: usize, length: usize) -> ffi::Sge {
        let at = self.at(offset, length);
        ffi::Sge {
            addr: stdx::num::u64_of(at.expose_provenance()),
            length: stdx::num::u32_of(length),
            lkey: self.0.keys().local,
        }
    }
}
