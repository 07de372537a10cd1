//! Memory of this process that peers reach by themselves.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::region::{Of, Region};
use crate::{Domain, Remote, ffi};

/// What peers may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    Read,
    Write,
}

/// When what peers wrote is as durable as its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Once it is seen.
    Seen,
    /// Once it was [flushed](crate::Endpoint::post_flush). Where it is a file of a file system on persistent memory none of its
    /// pages can be locked, so the card looks for them when it touches them.
    Flushed,
}

/// A file in memory that the peers of a domain's queue pairs reach, whoever else has it mapped. This end does not touch it
/// by this mapping.
pub struct Exposed(Region);

impl Exposed {
    /// The file's first bytes; all of them resident and locked where they need no flush.
    ///
    /// # Errors
    /// `OutOfMemory`, in words for an administrator: the limit of locked memory. The file is shorter, or the device has no
    /// memory of this kind.
    pub fn of_fd(
        domain: &Arc<Domain>,
        fd: impl AsFd,
        bytes: usize,
        peers: Peers,
        kept: Kept,
    ) -> io::Result<Self> {
        // Nobody is let in whom this end's own card is not.
        let write = ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE;
        let (of, access) = match (peers, kept) {
            (Peers::Read, _) => (Of::ToRead(fd.as_fd()), ffi::ACCESS_REMOTE_READ),
            (Peers::Write, Kept::Seen) => (Of::ToWrite(fd.as_fd()), write),
            (Peers::Write, Kept::Flushed) => (Of::ToFlush(fd.as_fd()), write | ffi::ACCESS_FLUSH),
        };
        let region = match Region::map(domain, bytes, of, access) {
            Err(error) if kept == Kept::Flushed && error.kind() != io::ErrorKind::OutOfMemory => {
                Region::map(domain, bytes, of, access | ffi::ACCESS_ON_DEMAND)
            }
            other => other,
        };
        region.map(Self)
    }

    /// Where peers find it.
    #[must_use]
    pub fn remote(&self) -> Remote {
        let address = stdx::num::u64_of(self.0.at(0, 0).expose_provenance());
        Remote { address, key: self.0.keys().remote }
    }
}
