//! Connections.

use super::{Behind, sys, unpace_local};
use crate::core;
use crate::hot::{Receiver, Waiting};
use crate::ring::ready;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A TCP connection (or another stream socket) of this reactor. One task receives; any task sends.
pub struct TcpStream {
    fd: Rc<OwnedFd>,
    receiver: Rc<Receiver>,
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpStream").field("fd", &self.fd).finish()
    }
}

impl TcpStream {
    /// Takes over a connected socket, from another reactor for example.
    ///
    /// # Errors
    /// As the system call that makes it non-blocking.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(&fd)?;
        let fd = Rc::new(fd);
        Ok(Self { receiver: Receiver::new(Rc::clone(&fd)), fd })
    }

    /// Gives the socket up, for another reactor: a duplicate of the descriptor, so that operations
    /// of this reactor still being cancelled do not matter.
    ///
    /// # Errors
    /// As dup(2).
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Connects to `addr`.
    ///
    /// # Errors
    /// As connect(2).
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        Self::connect_from(None, addr).await
    }

    /// Connects to `addr` from a given local address.
    ///
    /// # Errors
    /// As bind(2) and connect(2).
    pub async fn connect_from(local: Option<SocketAddr>, addr: SocketAddr) -> io::Result<Self> {
        let fd = sys::socket(&addr)?;
        if let Some(local) = local {
            sys::bind(&fd, &local)?;
        }
        let fd = Rc::new(fd);
        match sys::connect(&fd, &addr) {
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {
                ready(&fd, libc::POLLOUT).await?;
                let error = sys::get_int(&fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
                if error != 0 {
                    return Err(io::Error::from_raw_os_error(error));
                }
            }
            other => other?,
        }
        unpace_local(&fd, addr);
        Ok(Self { receiver: Receiver::new(Rc::clone(&fd)), fd })
    }

    /// Receives what is there into `buf`, waiting for at least a byte; 0 at the end of the stream.
    /// At most one system call a turn: what is left waits for the next turn, so that connections
    /// take turns.
    ///
    /// # Errors
    /// As recv(2).
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        let _waiting = Waiting(&self.receiver);
        poll_fn(|cx| self.poll_with(cx, |fd| sys::recv(fd, buf))).await
    }

    /// As [`recv`](Self::recv), into several buffers in order.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub async fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let _waiting = Waiting(&self.receiver);
        poll_fn(|cx| self.poll_with(cx, |fd| sys::recv_vectored(fd, bufs))).await
    }

    /// As [`recv`](Self::recv) of a Unix socket, with the descriptors that come along with the bytes: at
    /// most 16 at a time.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub async fn recv_fds(&self, buf: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let _waiting = Waiting(&self.receiver);
        poll_fn(|cx| self.poll_with(cx, |fd| sys::recv_fds(fd, buf, fds))).await
    }

    /// The poll form of [`recv`](Self::recv), for hand-written futures.
    ///
    /// # Errors
    /// As recv(2).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |fd| sys::recv(fd, buf))
    }

    /// The poll form of [`recv_vectored`](Self::recv_vectored), for hand-written futures.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub fn poll_recv_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |fd| sys::recv_vectored(fd, bufs))
    }

    fn poll_with(
        &self,
        cx: &mut Context<'_>,
        receive: impl FnOnce(&OwnedFd) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        core::with(|core| {
            if self.receiver.poll_due(core, cx) {
                match receive(&self.fd) {
                    Err(e) if would_block(&e) => {}
                    Ok(n) => {
                        self.receiver.hit(core);
                        return Poll::Ready(Ok(n));
                    }
                    Err(e) => return Poll::Ready(Err(e)),
                }
            }
            match self.receiver.wait(core, cx) {
                Ok(()) => Poll::Pending,
                Err(e) => Poll::Ready(Err(e)),
            }
        })
    }

    /// Does not wait to receive any more, until it is tried again.
    pub fn rest(&self) {
        self.receiver.served();
    }

    /// Receives now or says `WouldBlock`. Does not count against the turn.
    ///
    /// # Errors
    /// As recv(2).
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.count(sys::recv(&self.fd, buf))
    }

    /// As [`try_recv`](Self::try_recv), into several buffers in order.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub fn try_recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.count(sys::recv_vectored(&self.fd, bufs))
    }

    /// Receives now or says `WouldBlock`, beside a task that waits to receive and goes on waiting.
    ///
    /// # Errors
    /// As recv(2).
    #[inline]
    pub fn look(&self, buf: &mut [u8]) -> io::Result<usize> {
        let received = sys::recv(&self.fd, buf)?;
        core::with(|core| self.receiver.seen(core));
        Ok(received)
    }

    fn count(&self, result: io::Result<usize>) -> io::Result<usize> {
        if result.is_ok() {
            core::with(|core| self.receiver.hit(core));
        }
        result
    }

    /// Sends what the socket takes of `bufs` now; `WouldBlock` when that is nothing. At most
    /// `UIO_MAXIOV` (1024) buffers.
    ///
    /// # Errors
    /// As sendmsg(2).
    pub fn try_send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        sys::send_vectored(&self.fd, bufs, Behind::Unknown)
    }

    /// As [`try_send_vectored`](Self::try_send_vectored), telling TCP what follows.
    ///
    /// # Errors
    /// As sendmsg(2).
    pub fn try_send_hinted(&self, bufs: &[IoSlice<'_>], behind: Behind) -> io::Result<usize> {
        sys::send_vectored(&self.fd, bufs, behind)
    }

    /// Waits until the socket takes bytes again (or fails, which the next send reports).
    ///
    /// # Errors
    /// In simulation.
    pub async fn writable(&self) -> io::Result<()> {
        ready(&self.fd, libc::POLLOUT).await
    }

    /// Sends all of `buf`.
    ///
    /// # Errors
    /// As send(2).
    pub async fn send_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match self.try_send_vectored(&[IoSlice::new(buf)]) {
                Ok(n) => buf = &buf[n..],
                Err(e) if would_block(&e) => self.writable().await?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends all of `buf` over a Unix socket, and a copy of a descriptor with its first byte.
    ///
    /// # Errors
    /// As sendmsg(2).
    pub async fn send_fd(&self, buf: &[u8], fd: impl AsFd) -> io::Result<()> {
        loop {
            match sys::send_fd(&self.fd, buf, fd.as_fd()) {
                Ok(sent) => return self.send_all(&buf[sent..]).await,
                Err(e) if would_block(&e) => self.writable().await?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Receives until `buf` is full.
    ///
    /// # Errors
    /// As recv(2); `UnexpectedEof` when the stream ends before.
    pub async fn recv_exact(&self, buf: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.recv(&mut buf[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => filled += n,
            }
        }
        Ok(())
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// As shutdown(2).
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => libc::SHUT_RD,
            Shutdown::Write => libc::SHUT_WR,
            Shutdown::Both => libc::SHUT_RDWR,
        };
        sys::shutdown(&self.fd, how)
    }

    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        sys::local_addr(&self.fd)
    }

    /// # Errors
    /// As getpeername(2).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        sys::peer_addr(&self.fd)
    }

    /// Sends small messages at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        sys::set_int(&self.fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(on))
    }

    /// Asks for kernel buffers of this many bytes, instead of letting them tune themselves.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_buffers(&self, receive: Option<i32>, send: Option<i32>) -> io::Result<()> {
        if let Some(bytes) = receive {
            sys::set_int(&self.fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
        }
        if let Some(bytes) = send {
            sys::set_int(&self.fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)?;
        }
        Ok(())
    }

    /// Sets `SO_PRIORITY`, by which network cards choose the outbound queue.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_priority(&self, priority: i32) -> io::Result<()> {
        sys::set_int(&self.fd, libc::SOL_SOCKET, libc::SO_PRIORITY, priority)
    }

    /// Has the kernel poll the network card's queue for this long before it waits for an interrupt, and prefer
    /// that to interrupts (`SO_BUSY_POLL`, `SO_PREFER_BUSY_POLL`). To raise it above `net.core.busy_read` takes
    /// CAP_NET_ADMIN.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_busy_poll(&self, time: Duration) -> io::Result<()> {
        let micros = i32::try_from(time.as_micros()).unwrap_or(i32::MAX);
        sys::set_int(&self.fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, micros)?;
        sys::set_int(&self.fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)
    }

    /// The network card's queue (its NAPI identifier, `SO_INCOMING_NAPI_ID`) that the last data came by; `None`
    /// before any came, and within this machine.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn napi_id(&self) -> io::Result<Option<u32>> {
        let id = sys::get_int(&self.fd, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID)?;
        Ok(u32::try_from(id).ok().filter(|&id| id != 0))
    }

    /// Sets the type of service, or traffic class, of what is sent (`IP_TOS`, `IPV6_TCLASS`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_tos(&self, tos: u8) -> io::Result<()> {
        match self.peer_addr()? {
            SocketAddr::V4(_) => sys::set_int(&self.fd, libc::IPPROTO_IP, libc::IP_TOS, tos.into()),
            SocketAddr::V6(_) => {
                sys::set_int(&self.fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos.into())
            }
        }
    }

    /// Has the kernel end the connection when bytes stay unacknowledged for this long
    /// (`TCP_USER_TIMEOUT`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_user_timeout(&self, limit: Duration) -> io::Result<()> {
        let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        sys::set_int(&self.fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis)
    }

    /// Has the kernel probe a silent peer: first after `idle` seconds, then every `interval`
    /// seconds, giving up after `count` probes.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_keepalive(&self, idle: i32, interval: i32, count: i32) -> io::Result<()> {
        sys::set_int(&self.fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
        sys::set_int(&self.fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle)?;
        sys::set_int(&self.fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval)?;
        sys::set_int(&self.fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, count)
    }
}

fn would_block(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        core::try_with(|core| self.receiver.close(core));
    }
}
