//! Messages with descriptors over a Unix socket that keeps them apart (`SOCK_SEQPACKET`). The calls block: they are
//! for threads other than a reactor's, as those of [`crate::blocking`] are.

use super::sys::{self, Wait};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// A connection.
#[derive(Debug)]
pub struct Packets(OwnedFd);

impl Packets {
    /// Connects to whoever listens at `path`. Neither this nor any call of the connection waits longer than
    /// `patience`.
    ///
    /// # Errors
    /// As connect(2); always in simulation.
    pub fn connect(path: &Path, patience: Duration) -> io::Result<Self> {
        let fd = sys::packet_socket(patience)?;
        sys::connect_path(&fd, path)?;
        Ok(Self(fd))
    }

    /// The user who listens at the other end.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn peer_user(&self) -> io::Result<u32> {
        sys::peer_user(&self.0)
    }

    /// Sends a message, with copies of descriptors: 16 at most.
    ///
    /// # Errors
    /// As sendmsg(2).
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let sent = again(|| sys::send_fds(&self.0, message, fds, Wait::Yes))?;
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Receives a message, and the descriptors that come with it; 0 bytes are the end.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub fn recv(&self, message: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        again(|| sys::recv_fds(&self.0, message, fds, Wait::Yes))
    }
}

fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Listens for such connections.
#[derive(Debug)]
pub struct PacketListener {
    fd: OwnedFd,
    path: PathBuf,
    patience: Duration,
}

impl PacketListener {
    /// Listens at `path`, which goes with the listener.
    ///
    /// # Errors
    /// As bind(2); always in simulation.
    pub fn bind(path: &Path, patience: Duration) -> io::Result<Self> {
        let fd = sys::packet_socket(patience)?;
        sys::bind_path(&fd, path)?;
        let listener = Self { fd, path: path.to_owned(), patience };
        sys::listen(&listener.fd, BACKLOG)?;
        Ok(listener)
    }

    /// The next connection; waits for it as long as there is patience.
    ///
    /// # Errors
    /// As accept(2): `WouldBlock` when none came.
    pub fn accept(&self) -> io::Result<Packets> {
        let fd = again(|| sys::accept_waiting(&self.fd))?;
        sys::set_patience(&fd, self.patience)?;
        Ok(Packets(fd))
    }
}

impl Drop for PacketListener {
    fn drop(&mut self) {
        // What is not there any more need not go.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn messages_are_kept_apart_and_bring_their_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = PacketListener::bind(&path, LONG).unwrap();
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(folder.path().join("file"))
            .unwrap();
        file.write_all(b"seen").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let served = listener.accept().unwrap();
                let mut asked = [0; 16];
                assert_eq!(served.recv(&mut asked, &mut Vec::new()).unwrap(), 3);
                served.send(b"one", &[file.as_fd(), file.as_fd()]).unwrap();
                served.send(b"second", &[]).unwrap();
                served.send(b"", &[file.as_fd(); 17]).unwrap_err();
            });
            let asking = Packets::connect(&path, LONG).unwrap();
            asking.send(b"ask", &[]).unwrap();
            let (mut message, mut fds) = ([0; 64], Vec::new());
            assert_eq!(asking.recv(&mut message, &mut fds).unwrap(), 3);
            assert_eq!(fds.len(), 2);
            assert_eq!(asking.recv(&mut message, &mut fds).unwrap(), 6);
            assert_eq!((fds.len(), &message[..6]), (2, b"second".as_slice()));
            assert_eq!(asking.recv(&mut message, &mut fds).unwrap(), 0, "the end");
            let mut text = String::new();
            let mut same = File::from(fds.pop().unwrap());
            same.rewind().unwrap();
            same.read_to_string(&mut text).unwrap();
            assert_eq!(text, "seen");
        });
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn nobody_is_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let short = Duration::from_millis(5);
        assert!(Packets::connect(&path, short).is_err());
        let listener = PacketListener::bind(&path, short).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let asking = Packets::connect(&path, short).unwrap();
        let nothing = asking.recv(&mut [0; 8], &mut Vec::new()).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
