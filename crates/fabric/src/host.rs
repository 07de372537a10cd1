//! The host's end of a connection, of whichever transport.
//!
//! Data lies in [`Memory`] that the owner of the connection keeps, by command, and lends to each call: writes
//! are sent from where they lie in it. What is queued stays as it is until it is sent.

use core::future::Future;
use core::task::{Context, Poll};

use nvme::sqe::Sqe;

use crate::TransportAddress;
pub use crate::capsule::{Event, Flushed, Memory, Piece, Placed};
pub use crate::error::Error;
pub use crate::options::{Options, RdmaOptions, TcpOptions};
use crate::{rdma, tcp};

/// An initialised connection, seen from the host.
pub enum Connection {
    Tcp(tcp::host::Connection),
    Rdma(rdma::host::Connection),
}

impl Connection {
    /// Connects to a controller and agrees with it on what the transport needs.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn open(address: TransportAddress, options: &Options) -> Result<Self, Error> {
        match address {
            TransportAddress::Tcp(address) => {
                tcp::host::Connection::open(address, options).await.map(Self::Tcp)
            }
            TransportAddress::Rdma(address) => {
                rdma::host::Connection::open(address, options).await.map(Self::Rdma)
            }
        }
    }

    /// From now on each capsule, and each piece of data that was asked for, is sent by itself, or all that is queued
    /// together, as it is unless this says otherwise.
    ///
    /// # Panics
    /// When something is queued.
    pub fn send_apart(&mut self, apart: bool) {
        match self {
            Self::Tcp(tcp) => tcp.send_apart(apart),
            // Each goes by itself, whatever is said.
            Self::Rdma(_) => {}
        }
    }

    /// Queues a command capsule, with the first `in_capsule` bytes of the command's data in it.
    ///
    /// # Panics
    /// When the command identifier is in use.
    #[inline]
    pub fn push_capsule<M: Memory + ?Sized>(&mut self, sqe: &Sqe, memory: &M, in_capsule: u32) {
        match self {
            Self::Tcp(tcp) => tcp.push_capsule(sqe, memory, in_capsule),
            Self::Rdma(rdma) => rdma.push_capsule(sqe, memory, in_capsule),
        }
    }

    /// Queues what [`Event::Transfer`] asked for by `tag`, `piece` of the command's data.
    pub fn push_transfer<M: Memory + ?Sized>(&mut self, tag: u16, piece: Piece, memory: &M) {
        match self {
            Self::Tcp(tcp) => tcp.push_transfer(tag, piece, memory),
            Self::Rdma(_) => debug_assert!(false, "a controller fetches what it wants by RDMA"),
        }
    }

    /// Sends what is queued, as far as the connection takes it and up to a turn's share.
    ///
    /// # Errors
    /// [`Error::Socket`].
    #[inline]
    pub fn flush<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<Flushed, Error> {
        match self {
            Self::Tcp(tcp) => tcp.flush(memory),
            Self::Rdma(rdma) => rdma.flush(memory),
        }
    }

    /// The next event in what has been received; `None` when more has to be received first.
    ///
    /// # Errors
    /// [`Error::Protocol`], [`Error::Terminated`].
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        match self {
            Self::Tcp(tcp) => tcp.next_event(),
            Self::Rdma(rdma) => rdma.next_event(),
        }
    }

    /// Sends what is queued, and waits until something has been received.
    ///
    /// # Errors
    /// [`Error::Socket`], [`Error::Closed`].
    #[inline]
    pub async fn ready<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), Error> {
        match self {
            Self::Tcp(tcp) => tcp.ready(memory).await,
            Self::Rdma(rdma) => rdma.ready(memory).await,
        }
    }

    /// Sends all that is queued, waiting for the connection to take it.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub async fn send_all<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), Error> {
        match self {
            Self::Tcp(tcp) => tcp.send_all(memory).await,
            Self::Rdma(rdma) => rdma.send_all(memory).await,
        }
    }

    /// Whether nothing is left to send.
    #[must_use]
    #[inline]
    pub fn is_flushed(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_flushed(),
            Self::Rdma(rdma) => rdma.is_flushed(),
        }
    }

    /// Waits until the connection takes bytes again (or fails, which the next send reports). Borrows nothing, so
    /// that others may receive meanwhile.
    pub fn writable(&self) -> impl Future<Output = Result<(), Error>> + 'static {
        let (tcp, rdma) = match self {
            Self::Tcp(tcp) => (Some(tcp.writable()), None),
            Self::Rdma(rdma) => (None, Some(rdma.writable())),
        };
        async move {
            match (tcp, rdma) {
                (Some(tcp), _) => tcp.await,
                (None, Some(rdma)) => rdma.await,
                (None, None) => Ok(()),
            }
        }
    }

    /// Receives what is there, at most once a turn; the poll form of [`Connection::ready`], which sends nothing.
    /// [`Connection::next_event`] says what came.
    ///
    /// # Errors
    /// [`Error::Socket`], [`Error::Closed`].
    #[inline]
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_receive(cx),
            Self::Rdma(rdma) => rdma.poll_receive(cx),
        }
    }

    /// Receives what is there without waiting, beside a task that waits in [`Connection::poll_receive`]; whether
    /// there was anything.
    ///
    /// # Errors
    /// [`Error::Socket`], [`Error::Closed`].
    #[inline]
    pub fn look(&mut self) -> Result<bool, Error> {
        match self {
            Self::Tcp(tcp) => tcp.look(),
            Self::Rdma(rdma) => rdma.look(),
        }
    }

    /// System calls made to send; over RDMA, capsules that the card was given.
    #[must_use]
    pub fn sends(&self) -> u64 {
        match self {
            Self::Tcp(tcp) => tcp.sends(),
            Self::Rdma(rdma) => rdma.sends(),
        }
    }

    /// The network card's queue that data comes by; `None` within this machine.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn napi_id(&self) -> Result<Option<u32>, Error> {
        match self {
            Self::Tcp(tcp) => Ok(tcp.napi_id()?),
            Self::Rdma(_) => Ok(None),
        }
    }
}
