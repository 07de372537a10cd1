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

/// A file in memory that the peers of a domain's queue pairs reach, whoever else has it mapped. This end does not touch it
/// by this mapping.
pub struct Exposed(Region);

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
        let (of, access) = match peers {
            Peers::Read => (Of::ToRead(fd.as_fd()), ffi::ACCESS_REMOTE_READ),
            // Nobody is let in whom this end's own card is not.
            Peers::Write => {
                (Of::ToWrite(fd.as_fd()), ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE)
            }
        };
        Region::map(domain, bytes, of, access).map(Self)
    }

    /// Where peers find it.
    #[must_use]
    pub fn remote(&self) -> Remote {
        let address = stdx::num::u64_of(self.0.at(0, 0).expose_provenance());
        Remote { address, key: self.0.keys().remote }
    }
}
