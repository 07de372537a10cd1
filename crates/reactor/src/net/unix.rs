//! Listening sockets in the file system.

use super::sys;
use crate::driver::require_real;
use crate::limits::PACKETS_BACKLOG;
use crate::ring::ready;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A listening Unix socket of this reactor. Its connections are streams like any other:
/// [`TcpStream::from_fd`](super::TcpStream::from_fd) takes them.
#[derive(Debug)]
pub struct UnixListener {
    fd: Rc<OwnedFd>,
    path: PathBuf,
}

impl UnixListener {
    /// Listens at `path`, which goes with the listener. A socket there that nobody listens on any more is
    /// replaced.
    ///
    /// # Errors
    /// As bind(2).
    pub fn bind(path: &Path) -> io::Result<Self> {
        require_real()?;
        use std::os::unix::net;
        let listener = match net::UnixListener::bind(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
                std::fs::remove_file(path)?;
                net::UnixListener::bind(path)?
            }
            other => other?,
        };
        listener.set_nonblocking(true)?;
        Ok(Self { fd: Rc::new(listener.into()), path: path.to_owned() })
    }

    /// As [`bind`](Self::bind), for connections that keep the borders of messages (`SOCK_SEQPACKET`), of its owner alone. A
    /// socket that is there is replaced: the caller has its folder to itself. Whether somebody listens to it says nothing,
    /// for a program that was killed does for a moment longer than it is there.
    ///
    /// # Errors
    /// As bind(2), `AddrInUse` for what is no socket, and `InvalidInput` for a path that is too long for a socket.
    pub fn bind_packets(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let fd = sys::unix_packets()?;
        match sys::bind_path(&fd, path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && is_socket(path) => {
                std::fs::remove_file(path)?;
                sys::bind_path(&fd, path)?;
            }
            other => other?,
        }
        let listener = Self { fd: Rc::new(fd), path: path.to_owned() };
        // Before anybody can connect.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        sys::listen(&listener.fd, PACKETS_BACKLOG)?;
        Ok(listener)
    }

    /// The next connection.
    ///
    /// # Errors
    /// As accept(2). `EMFILE` and the like are worth a pause and another try.
    pub async fn accept_fd(&self) -> io::Result<OwnedFd> {
        loop {
            match sys::accept_unnamed(&self.fd) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => return other,
            }
            ready(&self.fd, libc::POLLIN).await?;
        }
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|at| at.file_type().is_socket())
}

/// Whether a socket was left by a program that has ended. Any other file refuses to be connected to as well.
fn is_abandoned(path: &Path) -> bool {
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    is_socket(path) && std::os::unix::net::UnixStream::connect(path).is_err_and(refused)
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        // The ring may hold the descriptor until a cancelled poll has completed.
        let _ = sys::shutdown(&self.fd, libc::SHUT_RDWR);
        let _ = std::fs::remove_file(&self.path);
    }
}
