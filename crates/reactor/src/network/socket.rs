//! Sockets of the simulated network: what a stream and a listener are made of on a simulated reactor.

use super::{ConnectionId, Network, Shared, lock};
use crate::core::{self, Core};
use crate::time::{Nanos, nanos_of, now};
use crate::timer::{Sleep, sleep_until};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stdx::num::{u64_of, usize64};

/// An end of a connection.
pub(crate) struct Socket {
    network: Shared,
    id: ConnectionId,
    side: usize,
    /// The turn of the last receive.
    tried: Cell<u64>,
    /// Until something comes.
    timer: RefCell<Option<Sleep>>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("id", &self.id).field("side", &self.side).finish()
    }
}

/// The local address of who connects without one.
fn local_ip(to: IpAddr) -> IpAddr {
    if to.is_loopback() { Ipv4Addr::LOCALHOST.into() } else { super::address() }
}

impl Socket {
    fn new(network: Shared, id: ConnectionId, side: usize) -> Self {
        let (tried, timer) = (Cell::new(u64::MAX), RefCell::new(None));
        Self { network, id, side, tried, timer }
    }

    /// Connects, which takes the way there and back.
    ///
    /// # Errors
    /// `ConnectionRefused`.
    pub async fn connect(
        network: Shared,
        local: Option<SocketAddr>,
        to: SocketAddr,
    ) -> io::Result<Self> {
        let from = {
            let mut network = lock(&network);
            match local {
                Some(local) if local.port() != 0 => local,
                local => network.fresh(local.map_or_else(|| local_ip(to.ip()), |addr| addr.ip())),
            }
        };
        travel(&network, [from.ip(), to.ip()]).await;
        let made = lock(&network).connect(from, to);
        // Whoever gives up on the way back closes it.
        let socket = made.map(|id| Self::new(Arc::clone(&network), id, 0));
        travel(&network, [to.ip(), from.ip()]).await;
        socket.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }

    fn with<R>(&self, f: impl FnOnce(&mut Network, &mut super::Link) -> R) -> R {
        let mut network = lock(&self.network);
        let mut link = network.links.remove(&self.id).expect("its ends keep a connection");
        let result = f(&mut network, &mut link);
        if !link.is_over() {
            network.links.insert(self.id, link);
        }
        result
    }

    /// As a poll of a real stream: one receive a turn.
    pub fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        core::with(|core| {
            if self.tried.replace(core.turn.get()) == core.turn.get() {
                core.executor.defer(cx.waker().clone());
                return Poll::Pending;
            }
            match self.try_recv(bufs) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
            let due = self.with(|network, link| {
                link.wait(self.side, true, cx.waker().clone());
                link.due(self.side, network.still_until(link.machines()))
            });
            self.wake_at(core, due, cx);
            Poll::Pending
        })
    }

    fn wake_at(&self, core: &Core, due: Option<Nanos>, cx: &mut Context<'_>) {
        let mut timer = due.map(sleep_until);
        if let Some(timer) = &mut timer
            && Pin::new(timer).poll(cx).is_ready()
        {
            core.executor.defer(cx.waker().clone());
        }
        self.timer.replace(timer);
    }

    pub fn try_recv(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let now = now();
        self.with(|network, link| {
            let still_until = network.still_until(link.machines());
            link.receive(self.side, bufs, now, still_until)
        })
    }

    /// Nobody waits to receive any more.
    pub fn rest(&self) {
        self.timer.take();
    }

    pub fn try_send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let now = now();
        self.with(|network, link| {
            let all: usize = bufs.iter().map(|buf| buf.len()).sum();
            let most = link.room(self.side, now)?.min(all);
            if most == 0 && all > 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let mut bytes = bufs.iter().flat_map(|buf| buf.iter().copied()).take(most);
            let mut left = most;
            while left > 0 {
                // Short pieces are as likely as long ones of twice the length.
                let largest = u64_of(network.conditions.piece.max(1));
                let limit = 1 << network.prng.below(u64::from(largest.ilog2()) + 1);
                let piece = left.min(1 + usize64(network.prng.below(limit)));
                let arrives = now + network.delay();
                link.send(self.side, bytes.by_ref().take(piece).collect(), arrives);
                left -= piece;
            }
            Ok(most)
        })
    }

    pub async fn writable(&self) {
        // There is room, or the next send says why not.
        let mut timer: Option<Sleep> = None;
        poll_fn(|cx| {
            let due = self.with(|_, link| match link.room(self.side, now()) {
                Ok(0) => {
                    link.wait(self.side, false, cx.waker().clone());
                    Some(link.broken_at(self.side))
                }
                Ok(_) | Err(_) => None,
            });
            let Some(due) = due else { return Poll::Ready(()) };
            timer = due.map(sleep_until);
            timer.as_mut().map_or(Poll::Pending, |timer| Pin::new(timer).poll(cx))
        })
        .await;
    }

    pub fn shutdown(&self, how: Shutdown) {
        let now = now();
        self.with(|network, link| {
            if how != Shutdown::Read {
                link.shut(self.side, now + network.delay());
            }
            if how != Shutdown::Write {
                link.stop_receiving(self.side);
            }
        });
    }

    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        self.with(|_, link| (link.address(self.side), link.address(1 - self.side)))
    }

    pub fn set_buffers(&self, receive: Option<i32>, send: Option<i32>) {
        let room = |bytes: i32| usize64(u64::from(bytes.unsigned_abs())).max(1);
        self.with(|_, link| {
            let end = link.end(self.side);
            end.receive_room = receive.map_or(end.receive_room, room);
            end.send_room = send.map_or(end.send_room, room);
        });
    }

    /// Has the connection given up after so long without an answer.
    pub fn set_patience(&self, patience: Duration) {
        self.with(|_, link| link.set_patience(self.side, nanos_of(patience)));
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let now = now();
        self.with(|network, link| link.close(self.side, now + network.delay()));
    }
}

/// What is under way between two machines that may stand still.
async fn travel(network: &Shared, machines: [IpAddr; 2]) {
    let mut arrives = now() + lock(network).delay();
    while now() < arrives {
        sleep_until(arrives).await;
        arrives = arrives.max(lock(network).still_until(machines));
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Acceptor {
    network: Shared,
    addr: SocketAddr,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

impl Acceptor {
    /// # Errors
    /// `AddrInUse`.
    pub fn bind(network: Shared, addr: SocketAddr) -> io::Result<Self> {
        let addr = lock(&network).bind(addr)?;
        Ok(Self { network, addr })
    }

    pub async fn accept(&self) -> Socket {
        poll_fn(|cx| self.poll_accept(cx.waker())).await
    }

    fn poll_accept(&self, waker: &Waker) -> Poll<Socket> {
        let mut network = lock(&self.network);
        let listening = network.listeners.get_mut(&self.addr).expect("it keeps its place");
        match listening.waiting.pop_front() {
            Some(id) => Poll::Ready(Socket::new(Arc::clone(&self.network), id, 1)),
            None => {
                listening.acceptor = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        lock(&self.network).unbind(self.addr, now());
    }
}
