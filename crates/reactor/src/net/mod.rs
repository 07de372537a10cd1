//! TCP and Unix sockets: plain non-blocking calls, the ring only for readiness (decision 0002). On a simulated reactor
//! TCP is that of [`crate::network`].

mod listener;
pub(crate) mod packets;
mod stream;
mod sys;
mod unix;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

pub use listener::{ListenOptions, TcpListener};
pub use stream::TcpStream;
pub use unix::UnixListener;

/// What follows the bytes of a send on the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nobody says.
    Unknown,
    /// More, at once: TCP may wait for it to fill a segment (`MSG_MORE`).
    More,
    /// Nothing: the record ends here (`MSG_EOR`), and what comes later begins a segment of its own.
    Nothing,
}

/// Chooses the congestion control of a connection, or of those a listening socket accepts.
///
/// # Errors
/// As setsockopt(2): no such algorithm in this kernel, or none that we may choose.
pub fn set_congestion(socket: impl AsFd, name: &str) -> io::Result<()> {
    sys::set_congestion(socket.as_fd(), name)
}

/// Why a socket of the simulated network cannot be handed on as a descriptor.
fn has_no_descriptor() -> io::Error {
    let what = "a simulated socket has no descriptor; use it on the reactor that made it";
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// Takes pacing off a connection within this machine. Where the system's congestion control paces
/// (BBR does), large transfers over loopback wait for its timers: 128 KiB reads at depth 8 took 1.6
/// times as long. There is no path to be fair on, so the simplest algorithm serves, and every kernel
/// has it and lets everyone choose it. Between machines the system's choice stands.
fn unpace_local(fd: &OwnedFd, peer: SocketAddr) {
    let local =
        peer.ip().is_loopback() || sys::local_addr(fd).is_ok_and(|local| local.ip() == peer.ip());
    if local {
        // Slower without, and nothing else.
        let _ = sys::set_congestion(fd.as_fd(), "reno");
    }
}

#[cfg(test)]
mod tests;
