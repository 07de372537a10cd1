//! From a host: bytes to capsules, and data to the transfers that wait for it.

use core::cell::Ref;
use core::future::poll_fn;
use core::ops::Range;
use core::task::{Context, Poll, ready};
use std::io;
use std::net::Shutdown;

use nvme::tcp::controller::{Event, term_req};
use nvme::tcp::{Fatal, Step, TermReqBytes};
use reactor::buffer::Buffer;
use reactor::turns::{Seat, Turn};

use super::transfer::Transfer;
use super::{Connection, watch};
use crate::capsule::{Capsule, CapsulePlace, Flow};
use crate::error::Closed;
use crate::landing;
use crate::limits::{
    CALL_BYTES, COMMAND_BYTES, IN_CAPSULE_IO_BYTES, PART_BYTES, RECEIVE_BYTES, SEND_BUDGET_BYTES,
    TERMINATE_TIMEOUT, UNSENT_BYTES, UNSENT_FLOOR_BYTES,
};

/// From this many bytes of a data PDU on, the socket's bytes go straight to the command's buffer.
const DIRECT_BYTES: usize = 8 * 1024;

/// Bytes received behind a data PDU's data when more data is to come: the next PDU's head, and some commands.
const HEADS_BYTES: usize = 4096;

/// Why a connection ended, with what there is to say to the host.
#[derive(Debug)]
enum Ended {
    /// The host closed it, or this side did.
    Orderly,
    /// The socket failed.
    Socket(io::Error),
    /// The host broke the protocol; a C2HTermReq was sent.
    Protocol { fatal: Fatal, request: Box<TermReqBytes> },
    /// The host sent an H2CTermReq: it says that this side broke the protocol.
    Terminated { fes: u16, fei: u32 },
}

impl From<Ended> for Closed {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Orderly => Self::Orderly,
            Ended::Socket(error) => Self::Socket(error),
            Ended::Protocol { fatal, .. } => Self::Protocol(fatal.to_string()),
            Ended::Terminated { fes, fei } => {
                Self::Terminated(format!("fatal error status {fes:#06x}, information {fei:#010x}"))
            }
        }
    }
}

impl Connection {
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
        let filled = poll_fn(|cx| self.poll_turn(&seat, cx)).await.map_err(Ended::Socket);
        let outcome = filled.and_then(|(filled, turn)| {
            self.take_turn(filled, &turn, sink, turn_ends)?;
            if self.closed.get() {
                return Err(Ended::Orderly);
            }
            self.send_now(&turn);
            Ok(())
        });
        match outcome {
            Ok(()) => Ok(()),
            Err(ended) => {
                if let Ended::Protocol { fatal, request } = &ended
                    && fatal.answer
                {
                    self.terminate(request).await;
                }
                self.close();
                Err(ended.into())
            }
        }
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
    ) -> Result<(), Ended> {
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
    ) -> Result<usize, Ended> {
        let mut at = 0;
        loop {
            let step = self.machine.borrow_mut().next(&input[at..]);
            let step = match step {
                Err(fatal) => {
                    let request = Box::new(term_req(&fatal, &input[at..]));
                    return Err(Ended::Protocol { fatal, request });
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
                    return Err(Ended::Terminated { fes: request.fes, fei: request.fei });
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

    /// Has the host send `length` bytes of command `cid`'s data by R2T to the start of `buffer`, once this is polled.
    #[inline]
    pub fn transfer(&self, tag: u16, cid: u16, length: u32, buffer: Buffer) -> Transfer<'_> {
        Transfer::new(self, tag, cid, length, buffer)
    }

    /// Asks for what a transfer is to bring.
    pub(super) fn begin_transfer(&self, tag: u16, cid: u16, length: u32, buffer: Buffer) {
        self.transfers.borrow_mut().begin(tag, buffer, watch::look());
        self.owed.set(self.owed.get() + wide(length));
        let head = self.machine.borrow_mut().begin_transfer(tag, cid, 0, length);
        self.push(|out| out.push_head(&head));
    }

    /// Waits until the host has sent what a [`Transfer`] asked for; false when no more is received before that.
    pub async fn rest_of_transfer(&self, tag: u16) -> bool {
        poll_fn(|cx| self.transfers.borrow_mut().poll_rest(tag, cx)).await
    }

    /// Whether the host has been asked for data of a transfer and has not sent it all.
    pub fn is_transferring(&self, tag: u16) -> bool {
        self.transfers.borrow().is_under_way(tag)
    }

    /// Fails the transfers that have not ended, without closing: no more is received.
    pub fn fail_transfers(&self) {
        self.transfers.borrow_mut().close();
    }

    /// Whether more may be received, though it will be answered: a host that does not read its answers is not
    /// listened to.
    #[inline]
    pub(super) fn may_receive(&self) -> bool {
        let out = self.out.borrow();
        let held = out.held();
        held <= UNSENT_FLOOR_BYTES
            || (held <= UNSENT_BYTES && out.account().admits(0))
            || self.closed.get()
    }

    fn end_pdu(&self) {
        self.pdus.set(self.pdus.get() + 1);
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
