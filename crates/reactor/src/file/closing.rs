//! Closing devices that may keep whoever closes them: a kernel that looks for their partitions, say, waits for them to
//! answer, and lets nobody close them meanwhile. One may even be a namespace that the reactor itself serves.

use std::io;
use std::os::fd::OwnedFd;

/// The last descriptor of a device, which a thread closes. Dropped after the one that is in use.
#[derive(Debug, Default)]
pub struct Closing(Option<OwnedFd>);

impl Closing {
    /// Keeps the device open until this is dropped, and then has it closed by a thread. Where there is no other
    /// descriptor to be had, whoever drops the first one waits.
    pub fn begin(&mut self, fd: &OwnedFd) {
        self.0 = fd.try_clone().ok();
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let Some(fd) = self.0.take() else { return };
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
        let mut closing = Closing::default();
        closing.begin(&writer);
        drop(writer);
        drop(closing);
        // It ends once nobody has the other end any more.
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
    }
}
