//! Connections.

use super::{Behind, has_no_descriptor, sys, unpace_local};
use crate::core;
use crate::hot::Receiver;
use crate::network::{self, Socket};
use crate::ring::ready;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A TCP connection (or another stream socket) of this reactor. One task receives; any task sends.
#[derive(Debug)]
pub struct TcpStream(Kind);

#[derive(Debug)]
enum Kind {
    Kernel(Kernel),
    Simulated(Socket),
}

/// A socket of the kernel.
struct Kernel {
    fd: Rc<OwnedFd>,
    receiver: Rc<Receiver>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("fd", &self.fd).finish()
    }
}

impl Kernel {
    fn new(fd: Rc<OwnedFd>) -> Self {
        Self { receiver: Receiver::new(Rc::clone(&fd)), fd }
    }

    #[inline]
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

    fn count(&self, result: io::Result<usize>) -> io::Result<usize> {
        if result.is_ok() {
            core::with(|core| self.receiver.hit(core));
        }
        result
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        core::try_with(|core| self.receiver.close(core));
    }
}

/// Keeps a pending receive from leaving a waker behind.
struct Waiting<'a>(&'a TcpStream);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}

impl TcpStream {
    /// Takes over a connected socket, from another reactor for example.
    ///
    /// # Errors
    /// As the system call that makes it non-blocking.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(&fd)?;
        Ok(Self(Kind::Kernel(Kernel::new(Rc::new(fd)))))
    }

    pub(super) const fn simulated(socket: Socket) -> Self {
        Self(Kind::Simulated(socket))
    }

    /// The kernel's socket.
    ///
    /// # Errors
    /// `Unsupported` in simulation.
    fn kernel(&self) -> io::Result<&Kernel> {
        match &self.0 {
            Kind::Kernel(kernel) => Ok(kernel),
            Kind::Simulated(_) => Err(has_no_descriptor()),
        }
    }

    /// Sets an option of the kernel's, which the simulated network does without.
    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        match &self.0 {
            Kind::Kernel(kernel) => sys::set_int(&kernel.fd, level, option, value),
            Kind::Simulated(_) => Ok(()),
        }
    }

    /// Gives the socket up, for another reactor: a duplicate of the descriptor, so that operations
    /// of this reactor still being cancelled do not matter.
    ///
    /// # Errors
    /// As dup(2); `Unsupported` in simulation.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        self.kernel()?.fd.try_clone()
    }

    /// Connects to `addr`.
    ///
    /// # Errors
    /// As connect(2).
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        Self::connect_from(None, addr).await
    }

    /// Connects to a Unix socket that keeps the borders of messages (`SOCK_SEQPACKET`): each is received by one call, and
    /// cut where there is no room for it.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect_packets(path: &Path) -> io::Result<Self> {
        let fd = sys::unix_packets()?;
        sys::connect_path(&fd, path)?;
        Ok(Self(Kind::Kernel(Kernel::new(Rc::new(fd)))))
    }

    /// Connects to `addr` from a given local address.
    ///
    /// # Errors
    /// As bind(2) and connect(2).
    pub async fn connect_from(local: Option<SocketAddr>, addr: SocketAddr) -> io::Result<Self> {
        if let Some(network) = network::here() {
            return Ok(Self::simulated(Socket::connect(network, local, addr).await?));
        }
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
        Ok(Self(Kind::Kernel(Kernel::new(fd))))
    }

    /// Receives what is there into `buf`, waiting for at least a byte; 0 at the end of the stream.
    /// At most one system call a turn: what is left waits for the next turn, so that connections
    /// take turns.
    ///
    /// # Errors
    /// As recv(2).
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        let _waiting = Waiting(self);
        poll_fn(|cx| self.poll_recv(cx, buf)).await
    }

    /// As [`recv`](Self::recv), into several buffers in order.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub async fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let _waiting = Waiting(self);
        poll_fn(|cx| self.poll_recv_vectored(cx, bufs)).await
    }

    /// As [`recv`](Self::recv) of a Unix socket, with the descriptors that come along with the bytes: at
    /// most 16 at a time.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub async fn recv_fds(&self, buf: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let _waiting = Waiting(self);
        let kernel = self.kernel()?;
        poll_fn(|cx| kernel.poll_with(cx, |fd| sys::recv_fds(fd, buf, fds, sys::Wait::No))).await
    }

    /// The poll form of [`recv`](Self::recv), for hand-written futures.
    ///
    /// # Errors
    /// As recv(2).
    #[inline]
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match &self.0 {
            Kind::Kernel(kernel) => kernel.poll_with(cx, |fd| sys::recv(fd, buf)),
            Kind::Simulated(socket) => socket.poll_recv(cx, &mut [IoSliceMut::new(buf)]),
        }
    }

    /// The poll form of [`recv_vectored`](Self::recv_vectored), for hand-written futures.
    ///
    /// # Errors
    /// As recvmsg(2).
    #[inline]
    pub fn poll_recv_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        match &self.0 {
            Kind::Kernel(kernel) => kernel.poll_with(cx, |fd| sys::recv_vectored(fd, bufs)),
            Kind::Simulated(socket) => socket.poll_recv(cx, bufs),
        }
    }

    /// Does not wait to receive any more, until it is tried again.
    pub fn rest(&self) {
        match &self.0 {
            Kind::Kernel(kernel) => kernel.receiver.served(),
            Kind::Simulated(socket) => socket.rest(),
        }
    }

    /// Receives now or says `WouldBlock`. Does not count against the turn.
    ///
    /// # Errors
    /// As recv(2).
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Kind::Kernel(kernel) => kernel.count(sys::recv(&kernel.fd, buf)),
            Kind::Simulated(socket) => socket.try_recv(&mut [IoSliceMut::new(buf)]),
        }
    }

    /// As [`try_recv`](Self::try_recv), into several buffers in order.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub fn try_recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &self.0 {
            Kind::Kernel(kernel) => kernel.count(sys::recv_vectored(&kernel.fd, bufs)),
            Kind::Simulated(socket) => socket.try_recv(bufs),
        }
    }

    /// Receives now or says `WouldBlock`, beside a task that waits to receive and goes on waiting.
    ///
    /// # Errors
    /// As recv(2).
    #[inline]
    pub fn look(&self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Kind::Kernel(kernel) => {
                let received = sys::recv(&kernel.fd, buf)?;
                core::with(|core| kernel.receiver.seen(core));
                Ok(received)
            }
            Kind::Simulated(socket) => socket.try_recv(&mut [IoSliceMut::new(buf)]),
        }
    }

    /// Sends what the socket takes of `bufs` now; `WouldBlock` when that is nothing. At most
    /// `UIO_MAXIOV` (1024) buffers.
    ///
    /// # Errors
    /// As sendmsg(2).
    #[inline]
    pub fn try_send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_send_hinted(bufs, Behind::Unknown)
    }

    /// As [`try_send_vectored`](Self::try_send_vectored), telling TCP what follows.
    ///
    /// # Errors
    /// As sendmsg(2).
    #[inline]
    pub fn try_send_hinted(&self, bufs: &[IoSlice<'_>], behind: Behind) -> io::Result<usize> {
        match &self.0 {
            Kind::Kernel(kernel) => sys::send_vectored(&kernel.fd, bufs, behind),
            Kind::Simulated(socket) => socket.try_send(bufs),
        }
    }

    /// Waits until the socket takes bytes again (or fails, which the next send reports).
    ///
    /// # Errors
    /// When the reactor cannot wait.
    pub async fn writable(&self) -> io::Result<()> {
        match &self.0 {
            Kind::Kernel(kernel) => ready(&kernel.fd, libc::POLLOUT).await,
            Kind::Simulated(socket) => {
                socket.writable().await;
                Ok(())
            }
        }
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
        let kernel = self.kernel()?;
        loop {
            match sys::send_fds(&kernel.fd, buf, &[fd.as_fd()], sys::Wait::No) {
                Ok(sent) => return self.send_all(&buf[sent..]).await,
                Err(e) if would_block(&e) => self.writable().await?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends a message of a Unix socket that keeps their borders, and copies of descriptors along with it: one to 16.
    ///
    /// # Errors
    /// As sendmsg(2).
    pub async fn send_packet(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let kernel = self.kernel()?;
        loop {
            match sys::send_fds(&kernel.fd, message, fds, sys::Wait::No) {
                Err(e) if would_block(&e) => self.writable().await?,
                sent => return sent.map(drop),
            }
        }
    }

    /// The user that the other end of a Unix socket acted as when it connected.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn peer_user(&self) -> io::Result<u32> {
        sys::peer_user(&self.kernel()?.fd)
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
        let kernel = match &self.0 {
            Kind::Kernel(kernel) => kernel,
            Kind::Simulated(socket) => {
                socket.shutdown(how);
                return Ok(());
            }
        };
        let how = match how {
            Shutdown::Read => libc::SHUT_RD,
            Shutdown::Write => libc::SHUT_WR,
            Shutdown::Both => libc::SHUT_RDWR,
        };
        sys::shutdown(&kernel.fd, how)
    }

    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Kind::Kernel(kernel) => sys::local_addr(&kernel.fd),
            Kind::Simulated(socket) => Ok(socket.addresses().0),
        }
    }

    /// # Errors
    /// As getpeername(2).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Kind::Kernel(kernel) => sys::peer_addr(&kernel.fd),
            Kind::Simulated(socket) => Ok(socket.addresses().1),
        }
    }

    /// Sends small messages at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.set(libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(on))
    }

    /// Asks for kernel buffers of this many bytes, instead of letting them tune themselves.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_buffers(&self, receive: Option<i32>, send: Option<i32>) -> io::Result<()> {
        if let Kind::Simulated(socket) = &self.0 {
            socket.set_buffers(receive, send);
        }
        if let Some(bytes) = receive {
            self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
        }
        if let Some(bytes) = send {
            self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)?;
        }
        Ok(())
    }

    /// Sets `SO_PRIORITY`, by which network cards choose the outbound queue.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_priority(&self, priority: i32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_PRIORITY, priority)
    }

    /// Has the kernel poll the network card's queue for this long before it waits for an interrupt, and prefer
    /// that to interrupts (`SO_BUSY_POLL`, `SO_PREFER_BUSY_POLL`). To raise it above `net.core.busy_read` takes
    /// CAP_NET_ADMIN.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_busy_poll(&self, time: Duration) -> io::Result<()> {
        let micros = i32::try_from(time.as_micros()).unwrap_or(i32::MAX);
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, micros)?;
        self.set(libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)
    }

    /// The network card's queue (its NAPI identifier, `SO_INCOMING_NAPI_ID`) that the last data came by; `None`
    /// before any came, and within this machine.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn napi_id(&self) -> io::Result<Option<u32>> {
        let Kind::Kernel(kernel) = &self.0 else { return Ok(None) };
        let id = sys::get_int(&kernel.fd, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID)?;
        Ok(u32::try_from(id).ok().filter(|&id| id != 0))
    }

    /// Sets the type of service, or traffic class, of what is sent (`IP_TOS`, `IPV6_TCLASS`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_tos(&self, tos: u8) -> io::Result<()> {
        match self.peer_addr()? {
            SocketAddr::V4(_) => self.set(libc::IPPROTO_IP, libc::IP_TOS, tos.into()),
            SocketAddr::V6(_) => self.set(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos.into()),
        }
    }

    /// Has the kernel end the connection when bytes stay unacknowledged for this long
    /// (`TCP_USER_TIMEOUT`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_user_timeout(&self, limit: Duration) -> io::Result<()> {
        if let Kind::Simulated(socket) = &self.0 {
            socket.set_patience(limit);
        }
        let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        self.set(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis)
    }

    /// Has the kernel probe a silent peer: first after `idle` seconds, then every `interval`
    /// seconds, giving up after `count` probes.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_keepalive(&self, idle: i32, interval: i32, count: i32) -> io::Result<()> {
        if let Kind::Simulated(socket) = &self.0 {
            let seconds = idle.saturating_add(interval.saturating_mul(count));
            socket.set_patience(Duration::from_secs(u64::from(seconds.unsigned_abs())));
        }
        self.set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
        self.set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle)?;
        self.set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval)?;
        self.set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, count)
    }
}

fn would_block(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
