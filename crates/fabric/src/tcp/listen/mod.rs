//! The controller's end of one NVMe/TCP connection.
//!
//! Two tasks drive it: the queue's own, in [`Connection::receive`], and the flusher, which runs when
//! a turn is over and sends with one call what the turn's completions left.

mod inbox;
mod transfer;
mod watch;

use core::cell::{Cell, Ref, RefCell};
use core::future::poll_fn;
use core::ops::Range;
use core::task::{Context, Poll, ready};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;

use nvme::cqe::Cqe;
use nvme::sqe::Sqe;
use nvme::tcp::controller::{Config, Event, Machine, term_req};
use nvme::tcp::{Fatal, Step, TermReqBytes, ddgst};
use reactor::buffer::Buffer;
use reactor::net::TcpStream;
use stdx::num::usize64;

use self::inbox::Inbox;
pub use self::transfer::TransferError;
use self::transfer::Transfers;
use super::gather::Sent;
use super::landing::landing;
use super::out::Out;
use crate::limits::{
    CALL_BYTES, COMMAND_BYTES, DEAD_PEER_TIMEOUT, FINISH_TIMEOUT, IN_CAPSULE_ADMIN_BYTES,
    IN_CAPSULE_IO_BYTES, MAX_H2C_DATA_BYTES, PART_BYTES, PROBE_COUNT, PROBE_IDLE_SECONDS,
    PROBE_INTERVAL_SECONDS, QUEUE_DEPTH, RECEIVE_BYTES, SEND_BUDGET_BYTES, TERMINATE_TIMEOUT,
    UNSENT_BYTES, UNSENT_FLOOR_BYTES,
};
use crate::notify::{Notify, Waiters};
use crate::payload::Payload;
use reactor::budget::Account;
use reactor::turns::{Party, Seat, Turn};

/// From this many bytes of a data PDU on, the socket's bytes go straight to the command's buffer.
const DIRECT_BYTES: usize = 8 * 1024;

/// Bytes received behind a data PDU's data when more data is to come: the next PDU's head, and some commands.
const HEADS_BYTES: usize = 4096;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The host closed it, or this side did.
    #[error("connection closed")]
    Orderly,
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// The host broke the protocol; a C2HTermReq was sent.
    #[error("protocol error: {fatal}")]
    Protocol { fatal: Fatal, request: Box<TermReqBytes> },
    /// The host sent an H2CTermReq: it says that this side broke the protocol.
    #[error("terminated by the host: fatal error status {fes:#06x}, information {fei:#010x}")]
    Terminated { fes: u16, fei: u32 },
}

/// A command capsule as it arrived.
pub struct Capsule<'a> {
    pub sqe: &'a Sqe,
    /// In-capsule data, whole.
    pub data: &'a [u8],
    /// False when the data's digest did not match.
    pub digest_ok: bool,
    /// Where `data` is, for [`Connection::in_capsule`].
    pub place: CapsulePlace,
}

/// Where a capsule's data is, good for the turn in which it arrived.
#[derive(Clone, Debug)]
pub struct CapsulePlace {
    range: Range<usize>,
    turn: u64,
}

/// Whether the receiver of a capsule can take another at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    /// Hand over no more until the next call of [`Connection::receive`].
    Pause,
}

/// The controller's end of one NVMe/TCP connection.
pub struct Connection {
    stream: TcpStream,
    machine: RefCell<Machine>,
    inbox: Rc<Inbox>,
    /// Bytes received that are not yet consumed: part of a PDU, or all that follows a pause.
    carry: RefCell<Vec<u8>>,
    paused: Cell<bool>,
    out: RefCell<Out>,
    /// Who takes turns with others for what this connection does.
    party: RefCell<Rc<Party>>,
    transfers: RefCell<Transfers>,
    /// Counts calls of `receive`; an in-capsule place of an older turn is void.
    turn: Cell<u64>,
    in_turn: Cell<bool>,
    flush: Notify,
    room: Waiters,
    /// The SUCCESS flag may stand for a response (NVMe/TCP, section 3.3.2.1).
    success_flag: Cell<bool>,
    closed: Cell<bool>,
    /// Bytes asked for by R2T that have not come.
    owed: Cell<usize>,
    /// PDUs received whole.
    pdus: Cell<u64>,
    /// Part of a PDU was received, and the rest of it is waited for.
    within_pdu: Cell<bool>,
    seen: watch::Seen,
}

impl Connection {
    /// Takes a socket whose host has sent nothing yet, and starts its flusher on this reactor. `account` answers for
    /// what waits to be sent, and it takes turns as `party`.
    ///
    /// # Errors
    /// The socket's own: it is gone already.
    pub fn new(stream: TcpStream, account: Rc<Account>, party: Rc<Party>) -> io::Result<Rc<Self>> {
        stream.set_nodelay(true)?;
        stream.set_user_timeout(DEAD_PEER_TIMEOUT)?;
        stream.set_keepalive(PROBE_IDLE_SECONDS, PROBE_INTERVAL_SECONDS, PROBE_COUNT)?;
        let config = Config {
            max_in_capsule: IN_CAPSULE_ADMIN_BYTES,
            maxh2cdata: MAX_H2C_DATA_BYTES,
            cpda: 0,
            allow_hdgst: true,
            allow_ddgst: true,
            transfers: QUEUE_DEPTH,
        };
        let connection = Rc::new(Self {
            stream,
            machine: RefCell::new(Machine::new(config)),
            inbox: Inbox::of_this_core(),
            carry: RefCell::default(),
            paused: Cell::default(),
            out: RefCell::new(Out::new(account)),
            party: RefCell::new(party),
            transfers: RefCell::default(),
            turn: Cell::default(),
            in_turn: Cell::default(),
            flush: Notify::default(),
            room: Waiters::default(),
            success_flag: Cell::default(),
            closed: Cell::default(),
            owed: Cell::default(),
            pdus: Cell::default(),
            within_pdu: Cell::default(),
            seen: watch::Seen::default(),
        });
        reactor::spawn_late(flusher(connection.clone()));
        watch::add(&connection);
        Ok(connection)
    }

    /// The host's address.
    ///
    /// # Errors
    /// The socket's own: it is gone.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// The address that the host connected to.
    ///
    /// # Errors
    /// The socket's own: it is gone.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Allows the in-capsule data of an I/O queue, which is more than an admin queue's.
    pub fn become_io_queue(&self) {
        self.machine.borrow_mut().set_max_in_capsule(IN_CAPSULE_IO_BYTES);
    }

    /// Allows the SUCCESS flag: the host switched SQ flow control off.
    pub fn without_flow_control(&self) {
        self.success_flag.set(true);
    }

    /// Has somebody else answer for what waits to be sent: the connection became a queue of a host's.
    pub fn charge_to(&self, account: Rc<Account>, party: Rc<Party>) {
        self.out.borrow_mut().charge_to(account);
        self.party.replace(party);
    }

    /// Responses that have not left this side: their commands still have their places in the queue.
    #[inline]
    #[must_use]
    pub fn unsent_responses(&self) -> usize {
        self.out.borrow().responses()
    }

    /// Bytes of memory that wait to be sent.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.out.borrow().held()
    }

    /// Waits for bytes and gives each command capsule found in them to `sink`, calls `turn_ends`, then sends
    /// what both produced. Data PDUs go to the transfers that wait for them.
    ///
    /// # Errors
    /// Why the connection ended. It is closed then, and its transfers have failed.
    pub async fn receive(
        &self,
        sink: impl FnMut(Capsule<'_>) -> Flow,
        turn_ends: impl FnOnce(),
    ) -> Result<(), Closed> {
        if !self.may_receive() {
            // Each byte that leaves asks again, and without any left to leave there is room.
            self.room.until(|| self.may_receive()).await;
        }
        if self.closed.get() {
            return Err(Closed::Orderly);
        }
        let seat = self.seat();
        let filled = poll_fn(|cx| self.poll_turn(&seat, cx)).await.map_err(Closed::from);
        let outcome = filled.and_then(|(filled, turn)| {
            self.take_turn(filled, &turn, sink, turn_ends)?;
            if self.closed.get() {
                return Err(Closed::Orderly);
            }
            self.send_now(&turn);
            Ok(())
        });
        match outcome {
            Ok(()) => Ok(()),
            Err(closed) => {
                if let Closed::Protocol { fatal, request } = &closed
                    && fatal.answer
                {
                    self.terminate(request).await;
                }
                self.close();
                Err(closed)
            }
        }
    }

    fn seat(&self) -> Seat {
        Seat::new(self.party.borrow().clone())
    }

    /// Waits for bytes and for a turn to take them in.
    fn poll_turn<'s>(
        &self,
        seat: &'s Seat,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Range<usize>, Turn<'s>)>> {
        let Poll::Ready(turn) = seat.poll_turn(cx) else {
            // It is not to be woken for bytes meanwhile.
            self.stream.rest();
            return Poll::Pending;
        };
        turn.spend(CALL_BYTES);
        if self.paused.take() {
            let resumed = self.resume();
            return Poll::Ready(Ok((0..resumed, turn)));
        }
        let owed = self.owed.get();
        let filled =
            ready!(self.poll_fill(if turn.is_bounded() { PART_BYTES } else { RECEIVE_BYTES }, cx));
        // What was received where it belongs; the inbox counts when it is parsed.
        turn.spend(owed - self.owed.get());
        seat.party().is_active();
        Poll::Ready(filled.map(|filled| (filled, turn)))
    }

    /// Parses what was `filled` of the inbox and keeps what is left.
    fn take_turn(
        &self,
        filled: Range<usize>,
        turn: &Turn<'_>,
        mut sink: impl FnMut(Capsule<'_>) -> Flow,
        turn_ends: impl FnOnce(),
    ) -> Result<(), Closed> {
        self.turn.set(self.turn.get() + 1);
        self.in_turn.set(true);
        let first = filled.start;
        let inbox = self.inbox.read(filled);
        turn.spend(inbox.len());
        let parsed = self.parse(first, &inbox, turn, &mut sink);
        turn_ends();
        self.in_turn.set(false);
        let rest = &inbox[parsed?..];
        self.carry.borrow_mut().extend_from_slice(rest);
        let within = !rest.is_empty() || self.machine.borrow().direct().is_some();
        self.within_pdu.set(within && !self.paused.get());
        Ok(())
    }

    /// Runs the machine over `input`, which is `first` bytes into the inbox; returns the bytes consumed.
    fn parse(
        &self,
        first: usize,
        input: &[u8],
        turn: &Turn<'_>,
        sink: &mut impl FnMut(Capsule<'_>) -> Flow,
    ) -> Result<usize, Closed> {
        let mut at = 0;
        loop {
            let step = self.machine.borrow_mut().next(&input[at..]);
            let step = match step {
                Err(fatal) => {
                    let request = Box::new(term_req(&fatal, &input[at..]));
                    return Err(Closed::Protocol { fatal, request });
                }
                Ok(step) => step,
            };
            let event = match step {
                Step::NeedMore { consumed, .. } => return Ok(at + consumed),
                Step::Event { consumed, event } => {
                    at += consumed;
                    event
                }
            };
            match event {
                Event::Capsule { sqe, data, digest_ok } => {
                    let start = data.as_ptr().addr().wrapping_sub(input.as_ptr().addr());
                    let start = first.wrapping_add(start);
                    let range = start..start.wrapping_add(data.len());
                    let place = CapsulePlace { range, turn: self.turn.get() };
                    self.end_pdu();
                    let flow = sink(Capsule { sqe, data, digest_ok, place });
                    turn.spend(COMMAND_BYTES);
                    if flow == Flow::Pause || !self.may_receive() || turn.is_over() {
                        self.paused.set(true);
                        return Ok(at);
                    }
                }
                Event::Data { ttag, offset, bytes } => {
                    self.owed.set(self.owed.get() - bytes.len());
                    let mut transfers = self.transfers.borrow_mut();
                    if let Some(space) = transfers.space(ttag, wide(offset)) {
                        space[..bytes.len()].copy_from_slice(bytes);
                    }
                }
                Event::DataEnd { ttag, complete, digest_ok } => {
                    self.end_pdu();
                    self.transfers.borrow_mut().end(ttag, complete, digest_ok);
                }
                Event::Initialize(_) => {
                    self.end_pdu();
                    let head = self.machine.borrow().ic_resp();
                    self.out.borrow_mut().push_head(&head);
                }
                Event::Terminated(request) => {
                    return Err(Closed::Terminated { fes: request.fes, fei: request.fei });
                }
            }
        }
    }

    /// Receives into the inbox behind what was carried over, or, in the middle of a large data PDU,
    /// straight to where the data belongs; `most` bytes at most. Returns where the bytes are in the inbox.
    fn poll_fill(&self, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<Range<usize>>> {
        let mut carry = self.carry.borrow_mut();
        let direct = self.machine.borrow().direct().filter(|d| wide(d.remaining) >= DIRECT_BYTES);
        if let Some(direct) = direct.filter(|_| carry.is_empty()) {
            let mut transfers = self.transfers.borrow_mut();
            if let Some(space) = transfers.space(direct.ttag, wide(direct.offset)) {
                let share = wide(direct.remaining).min(most);
                let space = &mut space[..share];
                let owed = self.owed.get() - wide(direct.remaining);
                let behind = share_of_heads(most - share, owed);
                return self.inbox.fill(|inbox| {
                    let behind = &mut inbox[..behind];
                    let mut slices = [io::IoSliceMut::new(space), io::IoSliceMut::new(behind)];
                    let received = ready!(self.stream.poll_recv_vectored(cx, &mut slices))?;
                    let placed = received.min(space.len());
                    self.machine.borrow_mut().advance_direct(&space[..placed]);
                    self.owed.set(self.owed.get() - placed);
                    Poll::Ready(alive(received).map(|n| 0..n - placed))
                });
            }
        }
        self.inbox.fill(|inbox| {
            let landing = landing(carry.len());
            let end = inbox.len().min(landing + share_of_heads(most, self.owed.get()));
            let received = ready!(self.stream.poll_recv(cx, &mut inbox[landing..end]))?;
            let start = landing - carry.len();
            inbox[start..landing].copy_from_slice(&carry);
            carry.clear();
            Poll::Ready(alive(received).map(|n| start..landing + n))
        })
    }

    /// Puts back into the inbox what a pause left.
    fn resume(&self) -> usize {
        let mut carry = self.carry.borrow_mut();
        self.inbox.fill(|inbox| inbox[..carry.len()].copy_from_slice(&carry));
        let kept = carry.len();
        carry.clear();
        kept
    }

    /// In-capsule data, while the turn in which it arrived lasts; `None` after.
    #[must_use]
    pub fn in_capsule(&self, place: &CapsulePlace) -> Option<Ref<'_, [u8]>> {
        let now = self.in_turn.get() && self.turn.get() == place.turn;
        now.then(|| self.inbox.read(place.range.clone()))
    }

    /// Asks the host for `length` bytes of command `cid`'s data by R2T and waits until they are at
    /// the start of `buffer`. `tag` must be the command's own until this returns.
    ///
    /// # Errors
    /// [`TransferError`]; the buffer is back in its pool then.
    pub async fn transfer(
        &self,
        tag: u16,
        cid: u16,
        length: u32,
        buffer: Buffer,
    ) -> Result<Buffer, TransferError> {
        if self.closed.get() {
            return Err(TransferError::Closed);
        }
        self.transfers.borrow_mut().begin(tag, buffer, watch::look());
        self.owed.set(self.owed.get() + wide(length));
        let head = self.machine.borrow_mut().begin_transfer(tag, cid, 0, length);
        self.push(|out| out.push_head(&head));
        poll_fn(|cx| self.transfers.borrow_mut().poll(tag, cx)).await
    }

    /// Gives back the buffer of a [`Connection::transfer`] that nobody waits for any more; its data will be dropped.
    pub fn discard_transfer(&self, tag: u16) {
        self.transfers.borrow_mut().discard(tag);
    }

    /// Waits until the host has sent what a [`Connection::transfer`] asked for that nobody waits for any more. The
    /// tag is the next command's then.
    pub async fn rest_of_transfer(&self, tag: u16) {
        poll_fn(|cx| self.transfers.borrow_mut().poll_rest(tag, cx)).await;
    }

    /// Sends a response capsule.
    pub fn respond(&self, cqe: &Cqe) {
        let head = self.machine.borrow().capsule_resp(cqe);
        self.push(|out| {
            out.push_head(&head);
            out.end_response();
        });
    }

    /// Sends data of command `cid` and its response, which the SUCCESS flag stands for if it may.
    pub fn respond_data(&self, payload: Payload, cqe: &Cqe) {
        let machine = self.machine.borrow();
        let success = self.success_flag.get() && cqe.status().is_success() && cqe.result() == 0;
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let head = machine.c2h_data(cqe.cid.get(), 0, length, true, success);
        let response = (!success).then(|| machine.capsule_resp(cqe));
        let digest = machine.data_digest();
        if matches!(payload, Payload::Buffer { .. }) {
            // It was copied, or is to be.
            self.party.borrow().spend(payload.len());
        }
        self.push(|out| {
            out.push_head(&head);
            if digest {
                // What was summed is what must be sent, whatever is written to the region meanwhile.
                let bytes = payload.bytes().to_vec();
                let sum = ddgst(&bytes);
                out.push_payload(Payload::Bytes(bytes));
                out.push_head(&sum);
            } else {
                out.push_payload(payload);
            }
            if let Some(response) = response {
                out.push_head(&response);
            }
            out.end_response();
        });
    }

    /// Whether [`Connection::room`] would return at once.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.closed.get() || self.out.borrow().held() <= UNSENT_BYTES
    }

    /// Whether data is copied before it is sent, wherever it lies.
    #[inline]
    #[must_use]
    pub fn copies(&self) -> bool {
        self.machine.borrow().data_digest()
    }

    /// Whether more may be received, though it will be answered: a host that does not read its answers is not
    /// listened to.
    #[inline]
    fn may_receive(&self) -> bool {
        let out = self.out.borrow();
        let held = out.held();
        held <= UNSENT_FLOOR_BYTES
            || (held <= UNSENT_BYTES && out.account().admits(0))
            || self.closed.get()
    }

    fn end_pdu(&self) {
        self.pdus.set(self.pdus.get() + 1);
    }

    /// Waits until the host has taken enough of what was sent that more may be buffered for it.
    pub async fn room(&self) {
        self.room.until(|| self.has_room()).await;
    }

    /// Fails the transfers that have not ended, without closing: no more is received.
    pub fn fail_transfers(&self) {
        self.transfers.borrow_mut().close();
    }

    /// Closes once everything is sent that there is to send, or the host has been given time.
    pub async fn finish(&self) {
        self.flush.notify();
        let sent = self.room.until(|| self.closed.get() || self.out.borrow().is_empty());
        let _ = reactor::timeout(FINISH_TIMEOUT, sent).await;
        self.close();
    }

    /// Ends the connection: the socket is shut down, transfers fail, unsent bytes are dropped.
    pub fn close(&self) {
        if !self.closed.replace(true) {
            let _ = self.stream.shutdown(Shutdown::Both);
            self.transfers.borrow_mut().close();
            self.out.borrow_mut().clear();
            self.flush.notify();
            self.room.wake();
        }
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Tells the host what it did wrong, and gives it time to read that: closing with bytes unread
    /// would reset the connection under the C2HTermReq (NVMe/TCP, section 3.5).
    async fn terminate(&self, request: &TermReqBytes) {
        self.out.borrow_mut().push_head(request);
        let _ = self.send(SEND_BUDGET_BYTES);
        let _ = self.stream.shutdown(Shutdown::Write);
        let drained = poll_fn(|cx| {
            self.inbox.fill(|inbox| {
                while let Ok(1..) = ready!(self.stream.poll_recv(cx, inbox)) {}
                Poll::Ready(())
            })
        });
        // A host that does not close in time is closed on.
        let _ = reactor::timeout(TERMINATE_TIMEOUT, drained).await;
    }

    fn push(&self, f: impl FnOnce(&mut Out)) {
        if self.closed.get() {
            return;
        }
        f(&mut self.out.borrow_mut());
        // Within a turn the receiver sends when it is through.
        if !self.in_turn.get() {
            self.flush.notify();
        }
    }

    /// Sends what can be sent now; the flusher sees to the rest.
    fn send_now(&self, turn: &Turn<'_>) {
        if self.out.borrow().is_empty() {
            return;
        }
        if turn.is_over() {
            return self.flush.notify();
        }
        match self.send_in(turn) {
            Ok(Sent::All) => {}
            Ok(Sent::Share | Sent::Blocked) => self.flush.notify(),
            Err(_) => self.close(),
        }
    }

    /// Sends as much as a turn allows.
    fn send_in(&self, turn: &Turn<'_>) -> io::Result<Sent> {
        let before = self.out.borrow().sent();
        let sent = self.send(if turn.is_bounded() { PART_BYTES } else { SEND_BUDGET_BYTES });
        turn.spend(CALL_BYTES + usize64(self.out.borrow().sent() - before));
        sent
    }

    fn send(&self, most: usize) -> io::Result<Sent> {
        let sent = self.out.borrow_mut().send(&self.stream, most);
        self.room.wake();
        sent
    }
}

/// Sends at the end of a turn what the turn's completions left, and waits for a slow socket.
async fn flusher(connection: Rc<Connection>) {
    loop {
        connection.flush.wait().await;
        if connection.closed.get() {
            return;
        }
        loop {
            let seat = connection.seat();
            let (sent, bounded) = poll_fn(|cx| {
                let turn = ready!(seat.poll_turn(cx));
                Poll::Ready((connection.send_in(&turn), turn.is_bounded()))
            })
            .await;
            match sent {
                Ok(Sent::All) => break,
                // Where turns are bounded it waits for the next one there.
                Ok(Sent::Share) if bounded => {}
                Ok(Sent::Share) => reactor::yield_now().await,
                Ok(Sent::Blocked) => {
                    if connection.stream.writable().await.is_err() {
                        connection.close();
                    }
                }
                Err(_) => connection.close(),
            }
            if connection.closed.get() {
                return;
            }
        }
    }
}

/// How much to receive into the inbox of `most` bytes, `owed` bytes of data to come later: with much of it, little more
/// than the next data PDU's head, so that the data behind the head is received where it belongs.
fn share_of_heads(most: usize, owed: usize) -> usize {
    if owed >= DIRECT_BYTES { most.min(HEADS_BYTES) } else { most }
}

/// A receive of no bytes is the end of the stream.
fn alive(received: usize) -> io::Result<usize> {
    if received == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(received) }
}

/// 32-bit lengths of the wire as sizes; every platform we build for has 64 bits.
fn wide(length: u32) -> usize {
    length as usize
}

const _: () = assert!(usize::BITS >= 32);
const _: () = assert!(RECEIVE_BYTES > IN_CAPSULE_IO_BYTES as usize);
