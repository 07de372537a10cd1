//! What a core stands on: the kernel's ring, or a simulated world without one.

use crate::core;
use crate::ring::Ring;
use crate::simulate::World;
use std::io;

#[allow(clippy::large_enum_variant, reason = "one for each core, and the ring is the hot one")]
pub(crate) enum Driver {
    Ring(Ring),
    Simulated(World),
}

impl Driver {
    /// The ring.
    ///
    /// # Errors
    /// `Unsupported` in simulation, which has neither files nor sockets of the kernel.
    #[inline]
    pub fn ring(&self) -> io::Result<&Ring> {
        match self {
            Self::Ring(ring) => Ok(ring),
            Self::Simulated(_) => Err(refused()),
        }
    }

    pub fn world(&self) -> Option<&World> {
        match self {
            Self::Ring(_) => None,
            Self::Simulated(world) => Some(world),
        }
    }
}

#[cold]
fn refused() -> io::Error {
    let what = "a simulated reactor has no files, sockets of the kernel or threads";
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// Refuses what would reach out of a simulation: called where files, sockets and threads are made.
///
/// # Errors
/// `Unsupported` in simulation.
pub(crate) fn require_real() -> io::Result<()> {
    core::try_with(|core| core.driver.ring().map(|_| ())).unwrap_or(Ok(()))
}
