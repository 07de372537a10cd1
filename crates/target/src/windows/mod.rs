//! Direct write windows (`docs/anof.md`): who has the one of each namespace, and how it is ended before what its host must
//! not write around. What grants and ends them is behind a seam; it answers from whichever thread, so that what is under
//! way comes to its end whatever becomes of the command that began it.

mod association;
mod pace;
mod shared;
#[cfg(test)]
pub(crate) mod stub;
#[cfg(test)]
mod tests;

use std::fmt;

use nvme::window::Fabric;
use window::Grant;

pub use association::Association;
pub use shared::{Asker, Bar, Ending, Granting, NotEnded, Shared, Who};

/// What grants windows of volumes.
pub trait Windows: fmt::Debug + Send + Sync {
    /// Begins to grant a window of a volume, in place of the one there is; the outcome is told to `granting`. Does not wait.
    fn grant(&self, volume: [u8; 16], wanted: Wanted, granting: Granting);

    /// A host asks for a ring that it was granted, by RDMA: whoever shows the token is given it. Does not wait.
    fn hand_out(&self, asked: Box<fabric::ring::Asked>);

    /// Begins to end a window, which `ending` is told of when it has ended, or is there no more. Does not wait.
    fn end(&self, volume: [u8; 16], number: u32, ending: Ending);

    /// Whether a window that was granted may still stand: its pool ends windows, too. Does not wait.
    fn may_stand(&self, volume: [u8; 16], number: u32) -> bool;
}

/// What a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub fabric: Fabric,
    /// Of each ring, in bytes; none is the grantor's choice.
    pub ring_bytes: Option<u64>,
    /// By RDMA: both cards can have what the host wrote to persistent memory be flushed.
    pub flushes: bool,
}

/// Why there is no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The volume cannot have any.
    #[error("the volume can have no direct write window")]
    Never,
    /// Another host has it, or there is no room: for now.
    #[error("there is no direct write window to be had now")]
    Busy,
    /// Its rings cannot be of that size.
    #[error("the rings of a direct write window cannot be of that size")]
    RingBytes,
    /// It could not be made.
    #[error("a direct write window could not be made")]
    Failed,
}

/// What came of a grant.
pub type Granted = Result<Grant, Refused>;
