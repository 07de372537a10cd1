//! Event counters (eventfd) by which processes wake each other, and descriptors that libraries wake their users by.

use crate::driver::require_real;
use crate::ring::ready;
use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// An eventfd, of this process or another.
#[derive(Debug)]
pub struct Event {
    fd: Rc<OwnedFd>,
}

impl Event {
    /// A new one.
    ///
    /// # Errors
    /// As eventfd(2).
    pub fn new() -> io::Result<Self> {
        require_real()?;
        Ok(Self { fd: Rc::new(sys::eventfd()?) })
    }

    /// One that was made elsewhere. It becomes non-blocking for all who have it.
    ///
    /// # Errors
    /// `InvalidInput` when it is something else, on which a read or write could block.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let what = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if what.as_os_str() != "anon_inode:[eventfd]" {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sys::set_nonblocking(&fd)?;
        Ok(Self { fd: Rc::new(fd) })
    }

    /// The descriptor, for another process.
    ///
    /// # Errors
    /// As dup(2).
    pub fn to_fd(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Waits until it was signalled since the last wait. One task at a time.
    ///
    /// # Errors
    /// As read(2).
    pub async fn wait(&self) -> io::Result<()> {
        while !self.take()? {
            ready(&self.fd, libc::POLLIN).await?;
        }
        Ok(())
    }

    /// Whether it was signalled since it was last asked.
    ///
    /// # Errors
    /// As read(2).
    pub fn take(&self) -> io::Result<bool> {
        match sys::read_count(&self.fd) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Wakes whoever waits for it. A counter that is full wakes as well.
    pub fn signal(&self) {
        let _ = sys::write_count(&self.fd);
    }
}

/// A descriptor of a library's that becomes readable when the library has something to say.
#[derive(Debug)]
pub struct Descriptor {
    fd: Rc<OwnedFd>,
}

impl Descriptor {
    /// A duplicate of it: it may be closed before this is dropped.
    ///
    /// # Errors
    /// As dup(2); in simulation.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        require_real()?;
        Ok(Self { fd: Rc::new(fd.try_clone_to_owned()?) })
    }

    /// Waits until it is readable. What is there to be read may be gone by then: the library is to be asked again and
    /// again.
    ///
    /// # Errors
    /// In simulation.
    pub async fn readable(&self) -> io::Result<()> {
        ready(&self.fd, libc::POLLIN).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, run, spawn, yield_now};

    #[test]
    fn a_signal_wakes_and_is_kept() {
        run(Config::default(), async {
            let one = Event::new().unwrap();
            let two = Event::from_fd(one.to_fd().unwrap()).unwrap();
            two.signal();
            two.signal();
            one.wait().await.unwrap();
            assert!(!one.take().unwrap());
            let waiting = spawn(async move { one.wait().await });
            yield_now().await;
            assert!(!waiting.is_finished());
            two.signal();
            waiting.await.unwrap().unwrap();
        })
        .unwrap();
    }

    #[test]
    fn who_else_has_it_cannot_have_a_reactor_wait() {
        run(Config::default(), async {
            let one = Event::new().unwrap();
            let theirs = one.to_fd().unwrap();
            crate::sys::set_blocking(&theirs).unwrap();
            assert!(!one.take().unwrap());
            crate::sys::write_count(&theirs).unwrap();
            one.wait().await.unwrap();
            assert!(!one.take().unwrap());
        })
        .unwrap();
    }

    #[test]
    fn nothing_else_is_taken_for_one() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Event::from_fd(socket.into()).is_err());
        assert!(Event::from_fd(std::fs::File::open("/dev/null").unwrap().into()).is_err());
    }

    #[test]
    fn a_descriptor_is_waited_for_though_its_owner_closed_it() {
        use std::io::Write;
        use std::os::fd::AsFd;
        run(Config::default(), async {
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let descriptor = Descriptor::of(ours.as_fd()).unwrap();
            let waiting = spawn(async move { descriptor.readable().await });
            yield_now().await;
            assert!(!waiting.is_finished());
            drop(ours);
            theirs.write_all(b"x").unwrap();
            waiting.await.unwrap().unwrap();
        })
        .unwrap();
    }
}
