//! What can go wrong with a reactor itself.

use std::io;

/// A reactor could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused the ring.
    #[error("io_uring is not available: {0}: {advice}", advice = advice(.0))]
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

/// What to do where the kernel refuses a ring (io_uring_setup(2)).
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            "raise the limit of locked memory (`ulimit -l`, `LimitMEMLOCK=`, a container's `--ulimit memlock=-1`)"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "it is forbidden here, by kernel.io_uring_disabled or a container's seccomp profile"
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "raise the limit of open files (`ulimit -n`, `LimitNOFILE=`)"
        }
        _ => "Linux 6.1 or newer with io_uring enabled is needed",
    }
}

/// The reactor asked is stopped (or its mailbox is full), and did not run the closure to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reactor is gone")]
pub struct Gone;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_ring_is_told_why_and_what_to_do() {
        for (errno, says) in [
            (libc::ENOMEM, "ulimit -l"),
            (libc::EPERM, "seccomp"),
            (libc::EMFILE, "ulimit -n"),
            (libc::ENOSYS, "Linux 6.1 or newer"),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            let (cause, said) = (error.to_string(), Error::Ring(error).to_string());
            assert!(said.contains(&cause) && said.contains(says), "{said}");
        }
    }
}
