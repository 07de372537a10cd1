//! Closing devices that may keep whoever closes them: a kernel that looks for their partitions, say, waits for them to
//! answer, and lets nobody close them meanwhile. One may even be a namespace that the reactor itself serves.

use std::io;
use std::os::fd::OwnedFd;

/// How a file is closed. Dropped after the descriptor that is in use.
#[derive(Debug)]
pub enum Closing {
    /// By whoever drops it.
    Here,
    /// By a thread: the device's last descriptor, once nobody uses it any more.
    Elsewhere(Option<OwnedFd>),
}

impl Closing {
    /// Nobody uses this descriptor any more. Where there is no other one to be had, whoever drops it waits.
    pub fn begin(&mut self, fd: &OwnedFd) {
        if let Self::Elsewhere(last) = self {
            *last = fd.try_clone().ok();
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let Self::Elsewhere(last) = self else { return };
        let Some(fd) = last.take() else { return };
        // Without a thread it is closed here: dropped with what the thread would have done.
        let _: io::Result<_> =
            std::thread::Builder::new().name("close".into()).spawn(move || drop(fd));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_kept_open_is_closed_in_the_end() {
        let (mut reader, writer) = io::pipe().unwrap();
        let writer = OwnedFd::from(writer);
        let mut closing = Closing::Elsewhere(None);
        closing.begin(&writer);
        drop(writer);
        assert!(
            matches!(closing, Closing::Elsewhere(Some(_))),
            "it is open until it is handed over"
        );
        drop(closing);
        // It ends once nobody has the other end any more.
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
    }
}
