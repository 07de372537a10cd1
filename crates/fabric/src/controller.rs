//! The controller's end of a connection, of whichever transport.

use core::cell::Ref;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nvme::cqe::Cqe;
use nvme::discovery::TransportType;
use reactor::budget::Account;
use reactor::buffer::Buffer;
use reactor::net::{ListenOptions, TcpListener, TcpStream};
use reactor::turns::Party;

use crate::TransportAddress;
pub use crate::capsule::{Capsule, CapsulePlace, Flow};
pub use crate::error::{Closed, TransferError};
use crate::payload::Payload;
use crate::rdma;
use crate::rdma::listener::Wanted;
use crate::tcp;

/// Where hosts connect to.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Rdma(rdma::listener::Listener),
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// As the system calls: the address in use, not ours, or not allowed. Of RDMA, what this machine lacks for it, in words
    /// for an administrator.
    pub fn bind(address: TransportAddress) -> io::Result<Self> {
        match address {
            TransportAddress::Tcp(address) => {
                Ok(Self::Tcp(TcpListener::bind(address, ListenOptions::default())?))
            }
            TransportAddress::Rdma(address) => {
                rdma::listener::Listener::bind(address).map(Self::Rdma)
            }
        }
    }

    /// The address listened on.
    ///
    /// # Errors
    /// The socket's own.
    pub fn address(&self) -> io::Result<TransportAddress> {
        match self {
            Self::Tcp(listener) => Ok(TransportAddress::Tcp(listener.local_addr()?)),
            Self::Rdma(listener) => Ok(TransportAddress::Rdma(listener.local()?)),
        }
    }

    /// The next connection, to be served on this reactor.
    ///
    /// # Errors
    /// As accept(2). Too few descriptors are worth a pause and another try.
    pub async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => Ok(Accepted::Tcp(listener.accept().await?.0)),
            Self::Rdma(listener) => loop {
                // Who serves connections where they come hands no rings out: they are refused.
                if let Wanted::Queue(asked) = listener.accept().await? {
                    return asked.attach().await.map(Accepted::rdma);
                }
            },
        }
    }

    /// The next connection, to be served on any reactor.
    ///
    /// # Errors
    /// As [`Listener::accept`]; `NotConnected` when its RDMA device was removed: nobody comes here any more, and the address
    /// can be bound again when the device is there; `Unsupported` in simulation, where connections stay where they are accepted.
    pub async fn accept_detached(&self) -> io::Result<Detached> {
        match self {
            Self::Tcp(listener) => {
                let (socket, peer) = listener.accept_fd().await?;
                Ok(Detached::Tcp { socket, peer })
            }
            Self::Rdma(listener) => Ok(match listener.accept().await? {
                Wanted::Queue(asked) => Detached::Rdma(Box::new(asked)),
                Wanted::Ring(asked) => Detached::Ring(Box::new(asked)),
            }),
        }
    }
}

/// A connection that is of no reactor yet.
#[derive(Debug)]
pub enum Detached {
    Tcp {
        socket: OwnedFd,
        peer: SocketAddr,
    },
    /// Asked for; refused when dropped.
    Rdma(Box<rdma::listener::Asked>),
    /// No queue's: a ring of a direct write window that its host asks for; refused when dropped.
    Ring(Box<rdma::ring::Asked>),
}

impl Detached {
    /// The host's address.
    #[must_use]
    pub const fn peer(&self) -> TransportAddress {
        match self {
            Self::Tcp { peer, .. } => TransportAddress::Tcp(*peer),
            Self::Rdma(asked) => TransportAddress::Rdma(asked.peer()),
            Self::Ring(asked) => TransportAddress::Rdma(asked.peer()),
        }
    }

    /// Makes it a connection of this reactor.
    ///
    /// # Errors
    /// As the system call that makes it non-blocking; of RDMA, too little of what a connection takes, and the host is
    /// refused.
    pub async fn attach(self) -> io::Result<Accepted> {
        match self {
            Self::Tcp { socket, .. } => Ok(Accepted::Tcp(TcpStream::from_fd(socket)?)),
            Self::Rdma(asked) => asked.attach().await.map(Accepted::rdma),
            Self::Ring(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "a ring is no queue")),
        }
    }
}

/// A connection of this reactor whose host has not been listened to yet.
pub enum Accepted {
    Tcp(TcpStream),
    Rdma(Box<rdma::link::Link>),
}

impl Accepted {
    fn rdma(link: rdma::link::Link) -> Self {
        Self::Rdma(Box::new(link))
    }

    /// The address that the host connected to.
    ///
    /// # Errors
    /// The socket's own: it is gone.
    pub fn local(&self) -> io::Result<TransportAddress> {
        match self {
            Self::Tcp(stream) => Ok(TransportAddress::Tcp(stream.local_addr()?)),
            Self::Rdma(link) => Ok(TransportAddress::Rdma(link.local())),
        }
    }

    /// The host's address.
    ///
    /// # Errors
    /// The socket's own: it is gone.
    pub fn peer(&self) -> io::Result<TransportAddress> {
        match self {
            Self::Tcp(stream) => Ok(TransportAddress::Tcp(stream.peer_addr()?)),
            Self::Rdma(link) => Ok(TransportAddress::Rdma(link.peer())),
        }
    }
}

/// The controller's end of one connection. A clone is the same connection.
#[derive(Clone)]
pub enum Connection {
    Tcp(Rc<tcp::controller::Connection>),
    Rdma(Rc<rdma::controller::Connection>),
}

impl Connection {
    /// Listens to a host from now on. `account` answers for what waits to be sent, and it takes turns as `party`.
    ///
    /// # Errors
    /// The socket's own: it is gone already.
    pub fn new(accepted: Accepted, account: Rc<Account>, party: Rc<Party>) -> io::Result<Self> {
        match accepted {
            Accepted::Tcp(stream) => {
                tcp::controller::Connection::new(stream, account, party).map(Self::Tcp)
            }
            Accepted::Rdma(link) => {
                rdma::controller::Connection::new(*link, account, party).map(Self::Rdma)
            }
        }
    }

    /// Transport Type (TRTYPE).
    #[must_use]
    pub const fn trtype(&self) -> TransportType {
        match self {
            Self::Tcp(_) => TransportType::Tcp,
            Self::Rdma(_) => TransportType::Rdma,
        }
    }

    /// Allows the in-capsule data of an I/O queue, which is more than an admin queue's.
    pub fn become_io_queue(&self) {
        match self {
            Self::Tcp(tcp) => tcp.become_io_queue(),
            // Its capsules are as long from the beginning.
            Self::Rdma(_) => {}
        }
    }

    /// The host switched SQ flow control off: data may stand for a successful response.
    pub fn without_flow_control(&self) {
        match self {
            Self::Tcp(tcp) => tcp.without_flow_control(),
            // Each command has a response.
            Self::Rdma(_) => {}
        }
    }

    /// Has somebody else answer for what waits to be sent: the connection became a queue of a host's.
    pub fn charge_to(&self, account: Rc<Account>, party: Rc<Party>) {
        match self {
            Self::Tcp(tcp) => tcp.charge_to(account, party),
            Self::Rdma(rdma) => rdma.charge_to(account, party),
        }
    }

    /// Responses that have not left this side: their commands still have their places in the queue.
    #[inline]
    #[must_use]
    pub fn unsent_responses(&self) -> usize {
        match self {
            Self::Tcp(tcp) => tcp.unsent_responses(),
            Self::Rdma(rdma) => rdma.unsent_responses(),
        }
    }

    /// Waits for the host and gives each command capsule that came to `sink`, calls `turn_ends`, then sends what both
    /// produced. Data goes to the transfers that wait for it.
    ///
    /// # Errors
    /// Why the connection ended. It is closed then, and its transfers have failed.
    #[inline]
    pub async fn receive(
        &self,
        sink: impl FnMut(Capsule<'_>) -> Flow,
        turn_ends: impl FnOnce(),
    ) -> Result<(), Closed> {
        match self {
            Self::Tcp(tcp) => tcp.receive(sink, turn_ends).await,
            Self::Rdma(rdma) => rdma.receive(sink, turn_ends).await,
        }
    }

    /// In-capsule data, while the turn in which it arrived lasts; `None` after.
    #[inline]
    #[must_use]
    pub fn in_capsule(&self, place: &CapsulePlace) -> Option<Ref<'_, [u8]>> {
        match self {
            Self::Tcp(tcp) => tcp.in_capsule(place),
            Self::Rdma(rdma) => rdma.in_capsule(place),
        }
    }

    /// Whether data comes while nobody is in [`Connection::receive`]: also that of a Connect, which has no place in the
    /// capsules of some transports.
    #[must_use]
    pub const fn fetches(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Rdma(_) => true,
        }
    }

    /// Has the host send `length` bytes of command `cid`'s data to the start of `buffer`, once this is polled. `tag`
    /// must be the command's own until that is done, or [`Connection::rest_of_transfer`] is if it was dropped before.
    #[inline]
    pub fn transfer(&self, tag: u16, cid: u16, length: u32, buffer: Buffer) -> Transfer<'_> {
        match self {
            Self::Tcp(tcp) => Transfer::Tcp(tcp.transfer(tag, cid, length, buffer)),
            Self::Rdma(rdma) => Transfer::Rdma(rdma.transfer(tag, cid, length, buffer)),
        }
    }

    /// Waits until the host has sent what a [`Transfer`] asked for, if there was one. The tag is the next command's
    /// then, and the command may be answered: a host that hears of its end while it sends lets go of what it is
    /// sending. False when no more is received before that: then it must not be.
    pub async fn rest_of_transfer(&self, tag: u16) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.rest_of_transfer(tag).await,
            // A response waits for its command's read by itself.
            Self::Rdma(rdma) => {
                rdma.rest_of_transfer(tag).await;
                true
            }
        }
    }

    /// Whether the host has been asked for data of a transfer and has not sent it all.
    #[must_use]
    pub fn is_transferring(&self, tag: u16) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_transferring(tag),
            Self::Rdma(rdma) => rdma.is_transferring(tag),
        }
    }

    /// Sends a response capsule.
    #[inline]
    pub fn respond(&self, cqe: &Cqe) {
        match self {
            Self::Tcp(tcp) => tcp.respond(cqe),
            Self::Rdma(rdma) => rdma.respond(cqe),
        }
    }

    /// Sends data of a command and its response, which the data stands for if it may.
    #[inline]
    pub fn respond_data(&self, payload: Payload, cqe: &Cqe) {
        match self {
            Self::Tcp(tcp) => tcp.respond_data(payload, cqe),
            Self::Rdma(rdma) => rdma.respond_data(payload, cqe),
        }
    }

    /// Whether [`Connection::room`] would return at once.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.has_room(),
            Self::Rdma(rdma) => rdma.has_room(),
        }
    }

    /// Whether data is copied before it is sent, wherever it lies.
    #[inline]
    #[must_use]
    pub fn copies(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.copies(),
            Self::Rdma(_) => true,
        }
    }

    /// Waits until the host has taken enough of what was sent that more may be buffered for it.
    pub async fn room(&self) {
        match self {
            Self::Tcp(tcp) => tcp.room().await,
            Self::Rdma(rdma) => rdma.room().await,
        }
    }

    /// Fails the transfers that have not ended, without closing: no more is received.
    pub fn fail_transfers(&self) {
        match self {
            Self::Tcp(tcp) => tcp.fail_transfers(),
            Self::Rdma(rdma) => rdma.fail_transfers(),
        }
    }

    /// Closes once everything is sent that there is to send, or the host has been given time.
    pub async fn finish(&self) {
        match self {
            Self::Tcp(tcp) => tcp.finish().await,
            Self::Rdma(rdma) => rdma.finish().await,
        }
    }

    /// Ends the connection: transfers fail, unsent bytes are dropped.
    pub fn close(&self) {
        match self {
            Self::Tcp(tcp) => tcp.close(),
            Self::Rdma(rdma) => rdma.close(),
        }
    }

    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_closed(),
            Self::Rdma(rdma) => rdma.is_closed(),
        }
    }
}

/// Data on its way from a host. Dropped before it is done, its buffer is given back and the data will be dropped as it
/// comes.
#[must_use = "nothing is asked for unless it is polled"]
pub enum Transfer<'c> {
    Tcp(tcp::controller::Transfer<'c>),
    Rdma(rdma::controller::Transfer<'c>),
}

impl Future for Transfer<'_> {
    type Output = Result<Buffer, TransferError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll(cx),
            Self::Rdma(rdma) => Pin::new(rdma).poll(cx),
        }
    }
}
