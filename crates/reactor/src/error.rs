//! What can go wrong with a reactor itself.

use std::io;

/// A reactor could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused the ring.
    #[error("io_uring is not available (Linux 6.1 or newer with io_uring enabled is needed)")]
    Ring(#[source] io::Error),
    /// Pinning to a CPU failed.
    #[error("cannot pin to CPU {cpu}")]
    Pin { cpu: usize, source: io::Error },
    /// A system resource was refused.
    #[error("{what}")]
    System { what: &'static str, source: io::Error },
    /// All `REACTORS_MAX` places are taken.
    #[error("too many reactors in one process")]
    TooMany,
    /// The reactor's thread panicked.
    #[error("reactor `{0}` panicked")]
    Panicked(String),
}

/// The reactor asked is stopped (or its mailbox is full), and did not run the closure to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reactor is gone")]
pub struct Gone;
