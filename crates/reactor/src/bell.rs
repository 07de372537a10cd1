//! How a thread that sleeps outside of a reactor is woken.
#![allow(unsafe_code, reason = "eventfd and poll have no safe wrappers")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A counter in the kernel that a thread can sleep on (eventfd(2)), and that event loops can watch: readable
/// from the first ring until it is silenced.
#[derive(Debug)]
pub struct Bell {
    file: File,
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// As eventfd(2).
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours alone.
        Ok(Self { file: File::from(unsafe { OwnedFd::from_raw_fd(fd) }) })
    }

    /// Rings it, from any thread.
    pub fn ring(&self) {
        // Fails only when the counter is full: the bell is ringing then.
        let _ = (&self.file).write(&1u64.to_ne_bytes());
    }

    /// Silences it.
    pub fn silence(&self) {
        // Fails only when it is silent.
        let _ = (&self.file).read(&mut [0; 8]);
    }

    /// Blocks this thread until the bell rings, for `timeout` at most (rounded up to milliseconds), or for ever.
    /// Returns early when a signal is handled. Not for reactor threads.
    pub fn wait(&self, timeout: Option<Duration>) {
        let millis = timeout.map_or(-1, |time| {
            i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let mut poll = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry, for the time of the call.
        unsafe { libc::poll(&raw mut poll, 1, millis) };
    }
}

/// The bell of whoever gave its descriptor.
impl From<OwnedFd> for Bell {
    fn from(fd: OwnedFd) -> Self {
        Self { file: File::from(fd) }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::Bell;
    use std::time::Duration;

    #[test]
    fn a_bell_rings_until_it_is_silenced() {
        let bell = Bell::new().unwrap();
        bell.silence();
        bell.wait(Some(Duration::from_micros(1)));
        bell.ring();
        bell.ring();
        bell.wait(None);
        bell.wait(None);
        bell.silence();
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            bell.wait(None);
        });
    }
}
