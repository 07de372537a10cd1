//! The host's end of a connection over TCP: a socket, the machine of `nvme::tcp::host`, and what is still to send.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use nvme::sqe::Sqe;
use nvme::tcp::ddgst;
use nvme::tcp::host::{Config, Event as Told, Machine, Step, term_req};
use reactor::net::{Behind, TcpStream};
use stdx::Aligned;
use stdx::num::usize32;

use super::groups;
use crate::capsule::{Event, Flushed, Memory, Piece};
use crate::error::Error;
use crate::gather::{Gather, Sent};
use crate::limits::{HOST_RECEIVE_BYTES, HOST_TRANSFERS};
use crate::options::{Options, TcpOptions};
use crate::{TransportAddress, landing, race};

/// An initialised connection over TCP, seen from the host.
pub struct Connection {
    stream: Rc<TcpStream>,
    machine: Machine,
    /// MAXH2CDATA.
    h2c_data_max: u32,
    out: Gather<Piece>,
    inbox: Aligned,
    /// The bytes of `inbox` received and not yet consumed.
    unread: Range<usize>,
    apart: bool,
    hints: bool,
    /// System calls made to send.
    sends: u64,
}

impl Connection {
    /// Connects to `addr` and exchanges ICReq and ICResp.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn open(addr: SocketAddr, options: &Options) -> Result<Self, Error> {
        let after = options.timeout;
        match reactor::timeout(after, Self::initialize(addr, options)).await {
            Ok(result) => result,
            Err(reactor::Elapsed) => {
                Err(Error::Silent { address: TransportAddress::Tcp(addr), after })
            }
        }
    }

    async fn initialize(addr: SocketAddr, options: &Options) -> Result<Self, Error> {
        let stream = connect(addr, &options.tcp).await?;
        let machine = Machine::new(Config {
            hpda: 0,
            maxr2t: HOST_TRANSFERS,
            hdgst: options.tcp.header_digest,
            ddgst: options.tcp.data_digest,
            commands: options.commands,
        });
        let head = machine.ic_req();
        let mut connection = Self {
            stream: Rc::new(stream),
            machine,
            h2c_data_max: 0,
            out: Gather::default(),
            inbox: Aligned::zeroed(HOST_RECEIVE_BYTES),
            unread: 0..0,
            apart: false,
            hints: options.tcp.hints,
            sends: 0,
        };
        connection.out.push(&head);
        loop {
            connection.ready(&()).await?;
            match connection.next_told()? {
                Some(Told::Initialized(settled)) => {
                    connection.h2c_data_max = settled.maxh2cdata;
                    return Ok(connection);
                }
                Some(Told::Terminated(told)) => return Err(Error::Terminated(told.to_string())),
                // The machine lets no other event through before ICResp.
                Some(_) | None => {}
            }
        }
    }

    /// From now on each PDU goes by a system call of its own, or all that is queued by one, as it does unless this
    /// says otherwise.
    ///
    /// # Panics
    /// When something is queued.
    pub fn send_apart(&mut self, apart: bool) {
        assert!(self.out.is_empty(), "what is queued goes as it was queued");
        self.apart = apart;
    }

    /// Queues a command capsule, with the first `in_capsule` bytes of the command's data in it.
    ///
    /// # Panics
    /// When the command identifier is in use.
    #[inline]
    pub fn push_capsule<M: Memory + ?Sized>(&mut self, sqe: &Sqe, memory: &M, in_capsule: u32) {
        let head = self.machine.capsule_cmd(sqe, in_capsule);
        self.out.push(&head);
        let mut length = head.len();
        if in_capsule > 0 {
            length +=
                self.push_data(memory, Piece { cid: sqe.cid.get(), at: 0, length: in_capsule });
        }
        if self.apart {
            self.out.part(length);
        }
    }

    /// Queues the answer to an R2T, `piece` of the command's data, in as many H2CData PDUs as MAXH2CDATA makes
    /// it.
    pub fn push_transfer<M: Memory + ?Sized>(&mut self, ttag: u16, piece: Piece, memory: &M) {
        let Piece { cid, mut at, length } = piece;
        let end = at + length;
        while at < end {
            let length = (end - at).min(self.h2c_data_max);
            let last = at + length == end;
            let head = self.machine.h2c_data(cid, ttag, at, length, last);
            self.out.push(&head);
            let bytes = head.len() + self.push_data(memory, Piece { cid, at, length });
            if self.apart {
                self.out.part(bytes);
            }
            at += length;
        }
    }

    /// Queues data, and its digest if there are any; gives the bytes of both.
    #[inline]
    fn push_data<M: Memory + ?Sized>(&mut self, memory: &M, piece: Piece) -> usize {
        memory.hold(&piece);
        self.out.push_data(piece);
        let length = usize32(piece.length);
        if !self.machine.data_digest() {
            return length;
        }
        let digest = ddgst(memory.bytes(&piece));
        self.out.push(&digest);
        length + digest.len()
    }

    /// Sends what is queued, as far as the socket takes it and up to a turn's share.
    ///
    /// # Errors
    /// Those of the socket.
    #[inline]
    pub fn flush<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<Flushed, Error> {
        let (stream, hints, sends) = (&self.stream, self.hints, &mut self.sends);
        let sent = self.out.send(
            memory,
            |memory, piece| memory.bytes(piece),
            |slices, behind| {
                *sends += 1;
                stream.try_send_hinted(slices, if hints { behind } else { Behind::Unknown })
            },
            |piece| memory.release(&piece),
        )?;
        Ok(match sent {
            Sent::All => Flushed::All,
            Sent::Blocked => Flushed::Blocked,
            Sent::Share => Flushed::Shared,
        })
    }

    /// The next event in what has been received; `None` when more has to be received first.
    ///
    /// # Errors
    /// [`Error::Protocol`], [`Error::Terminated`].
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        Ok(match self.next_told()? {
            None => None,
            Some(Told::Data { cid, offset, bytes }) => Some(Event::Data { cid, offset, bytes }),
            Some(Told::DataEnd { cid, success, complete, digest_ok, .. }) => {
                Some(Event::DataEnd { cid, success, complete, digest_ok })
            }
            Some(Told::Response { cqe }) => Some(Event::Response { cqe }),
            Some(Told::ReadyToTransfer { cid, ttag, offset, length }) => {
                Some(Event::Transfer { cid, tag: ttag, offset, length })
            }
            Some(Told::Terminated(told)) => return Err(Error::Terminated(told.to_string())),
            // The machine lets no second one through.
            Some(Told::Initialized(_)) => {
                return Err(Error::Protocol("a second ICResp".to_owned()));
            }
        })
    }

    /// As [`Connection::next_event`], in the machine's words.
    #[inline]
    fn next_told(&mut self) -> Result<Option<Told<'_>>, Error> {
        let input = &self.inbox[self.unread.clone()];
        match self.machine.next(input) {
            Ok(Step::Event { consumed, event }) => {
                self.unread.start += consumed;
                Ok(Some(event))
            }
            Ok(Step::NeedMore { consumed, .. }) => {
                self.unread.start += consumed;
                Ok(None)
            }
            Err(fatal) => {
                // The stream may be full or gone; the connection ends either way.
                let request = term_req(&fatal, input);
                let _ = self.stream.try_send_vectored(&[io::IoSlice::new(&request)]);
                Err(Error::Protocol(format!("NVMe/TCP: {fatal}")))
            }
        }
    }

    /// Sends what is queued, and waits until something has been received.
    ///
    /// # Errors
    /// Those of the socket, and [`Error::Closed`].
    pub async fn ready<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), Error> {
        self.make_room();
        loop {
            let flushed = self.flush(memory)?;
            let room = &mut self.inbox[self.unread.end..];
            let received = match flushed {
                Flushed::All => Some(self.stream.recv(room).await?),
                Flushed::Blocked => receive_or_writable(&self.stream, room).await?,
                Flushed::Shared => {
                    // The others have their turn first, whatever has come meanwhile: a peer that always
                    // asks for more would else keep them from theirs for as long as there is more.
                    reactor::yield_now().await;
                    match self.stream.try_recv(room) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                        other => Some(other?),
                    }
                }
            };
            match received {
                Some(0) => return Err(Error::Closed),
                Some(bytes) => {
                    self.unread.end += bytes;
                    return Ok(());
                }
                None => {}
            }
        }
    }

    /// Sends all that is queued, waiting for the socket to take it.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn send_all<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), Error> {
        loop {
            match self.flush(memory)? {
                Flushed::All => return Ok(()),
                Flushed::Blocked => self.writable().await?,
                Flushed::Shared => reactor::yield_now().await,
            }
        }
    }

    /// Whether nothing is left to send.
    #[must_use]
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.out.is_empty()
    }

    /// Waits until the socket takes bytes again (or fails, which the next send reports). Borrows nothing, so
    /// that others may receive meanwhile.
    pub fn writable(&self) -> impl Future<Output = Result<(), Error>> + 'static {
        let stream = Rc::clone(&self.stream);
        async move { Ok(stream.writable().await?) }
    }

    /// Receives what is there, at most once a turn; the poll form of [`Connection::ready`], which sends nothing.
    /// [`Connection::next_event`] says what came.
    ///
    /// # Errors
    /// Those of the socket, and [`Error::Closed`].
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.make_room();
        let room = &mut self.inbox[self.unread.end..];
        let received = ready!(self.stream.poll_recv(cx, room))?;
        if received == 0 {
            return Poll::Ready(Err(Error::Closed));
        }
        self.unread.end += received;
        Poll::Ready(Ok(()))
    }

    /// Receives what is there without waiting, beside a task that waits in [`Connection::poll_receive`]; whether
    /// there was anything.
    ///
    /// # Errors
    /// Those of the socket, and [`Error::Closed`].
    #[inline]
    pub fn look(&mut self) -> Result<bool, Error> {
        self.make_room();
        match self.stream.look(&mut self.inbox[self.unread.end..]) {
            Ok(0) => Err(Error::Closed),
            Ok(received) => {
                self.unread.end += received;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// System calls made to send.
    #[must_use]
    pub fn sends(&self) -> u64 {
        self.sends
    }

    /// The network card's queue that data comes by; `None` within this machine.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn napi_id(&self) -> io::Result<Option<u32>> {
        self.stream.napi_id()
    }

    /// Moves what is unread to the front: never more than a PDU's head, as data is consumed as it comes.
    fn make_room(&mut self) {
        let end = landing(self.unread.len());
        let start = end - self.unread.len();
        if self.unread.start > start {
            self.inbox.copy_within(self.unread.clone(), start);
            self.unread = start..end;
        }
    }
}

/// A socket connected to `addr`, with its options set.
async fn connect(addr: SocketAddr, options: &TcpOptions) -> Result<TcpStream, Error> {
    let stream =
        if options.grouped { groups::connect(addr).await } else { TcpStream::connect(addr).await };
    let address = TransportAddress::Tcp(addr);
    let stream = stream.map_err(|source| Error::Connect { address, source })?;
    stream.set_nodelay(true)?;
    // Before the priority: the kernel derives one from the type of service.
    if let Some(tos) = options.tos {
        stream.set_tos(tos)?;
    }
    if let Some(priority) = options.priority {
        stream.set_priority(priority)?;
    }
    if let Some(time) = options.busy_poll {
        stream.set_busy_poll(time)?;
    }
    Ok(stream)
}

/// Receives, or gives `None` as soon as the socket takes more to send.
async fn receive_or_writable(stream: &TcpStream, room: &mut [u8]) -> io::Result<Option<usize>> {
    let receive = async { stream.recv(room).await.map(Some) };
    let writable = async { stream.writable().await.map(|()| None) };
    race(receive, writable).await
}

#[cfg(test)]
mod tests;
