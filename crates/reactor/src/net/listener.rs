//! Listening sockets.

use super::{TcpStream, has_no_descriptor, sys, unpace_local};
use crate::limits::BACKLOG;
use crate::network::{self, Acceptor};
use crate::ring::ready;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// How a listening socket is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenOptions {
    /// Several reactors listen on one address, and the kernel shares the connections out.
    pub reuse_port: bool,
    /// An IPv6 address serves IPv6 only.
    pub v6_only: bool,
}

/// A listening TCP socket of this reactor.
#[derive(Debug)]
pub struct TcpListener(Listening);

#[derive(Debug)]
enum Listening {
    Kernel(Rc<OwnedFd>),
    Simulated(Acceptor),
}

impl TcpListener {
    /// Listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// As the system calls: the address in use, not ours, or not allowed.
    pub fn bind(addr: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        if let Some(network) = network::here() {
            return Ok(Self(Listening::Simulated(Acceptor::bind(network, addr)?)));
        }
        let fd = sys::socket(&addr)?;
        sys::set_int(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        if options.reuse_port {
            sys::set_int(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        if addr.is_ipv6() {
            let only = i32::from(options.v6_only);
            sys::set_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only)?;
        }
        sys::bind(&fd, &addr)?;
        sys::listen(&fd, BACKLOG)?;
        Ok(Self(Listening::Kernel(Rc::new(fd))))
    }

    /// Serves a listening socket made elsewhere (another reactor, a service manager).
    ///
    /// # Errors
    /// As the system call that makes it non-blocking.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(&fd)?;
        Ok(Self(Listening::Kernel(Rc::new(fd))))
    }

    /// The next connection.
    ///
    /// # Errors
    /// As accept(2). `EMFILE` and the like are worth a pause and another try.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        if let Listening::Simulated(acceptor) = &self.0 {
            let stream = TcpStream::simulated(acceptor.accept().await);
            let peer = stream.peer_addr()?;
            return Ok((stream, peer));
        }
        let (fd, peer) = self.accept_fd().await?;
        Ok((TcpStream::from_fd(fd)?, peer))
    }

    /// The next connection, not bound to this reactor: for handing to another one.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); `Unsupported` in simulation, where connections stay where they are accepted.
    pub async fn accept_fd(&self) -> io::Result<(OwnedFd, SocketAddr)> {
        let Listening::Kernel(listening) = &self.0 else { return Err(has_no_descriptor()) };
        loop {
            match sys::accept(listening) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // The connection was reset while it waited: not ours to report.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
                Ok((fd, peer)) => {
                    unpace_local(&fd, peer);
                    return Ok((fd, peer));
                }
            }
            ready(listening, libc::POLLIN).await?;
        }
    }

    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Listening::Kernel(fd) => sys::local_addr(fd),
            Listening::Simulated(acceptor) => Ok(acceptor.addr()),
        }
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        if let Listening::Kernel(fd) = &self.0 {
            // The ring may hold the descriptor until a cancelled poll has completed; the address is free
            // at once all the same.
            let _ = sys::shutdown(fd, libc::SHUT_RDWR);
        }
    }
}
