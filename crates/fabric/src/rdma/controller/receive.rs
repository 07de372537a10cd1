//! From a host: capsules.

use core::cell::Ref;
use core::future::poll_fn;
use core::task::{Context, Poll, ready};

use nvme::rdma::Keyed;
use nvme::sqe::Sgl;
use nvme::sqe::Sqe;
use reactor::buffer::Buffer;
use reactor::turns::{Seat, Turn};
use stdx::num::usize32;
use zerocopy::FromBytes;

use super::transfer::Transfer;
use super::{Connection, Named, Work};
use crate::capsule::{Capsule, CapsulePlace, Flow};
use crate::error::Closed;
use crate::limits::{CALL_BYTES, COMMAND_BYTES, RECEIVE_BYTES, UNSENT_BYTES, UNSENT_FLOOR_BYTES};
use crate::rdma::layout::CAPSULE_BYTES;

/// An SGL identifier that no descriptor of this transport has.
const UNKNOWN: u8 = 0xff;

impl Connection {
    /// Waits for command capsules and gives each to `sink`, calls `turn_ends`, then sends what both produced.
    ///
    /// # Errors
    /// Why the connection ended. It is closed then, and its transfers have failed.
    pub async fn receive(
        &self,
        mut sink: impl FnMut(Capsule<'_>) -> Flow,
        turn_ends: impl FnOnce(),
    ) -> Result<(), Closed> {
        if !self.may_receive() {
            self.room.until(|| self.may_receive()).await;
        }
        let seat = self.seat();
        let turn = poll_fn(|cx| self.poll_turn(&seat, cx)).await?;
        self.turn.set(self.turn.get() + 1);
        self.in_turn.set(true);
        self.take_turn(&turn, &mut sink);
        turn_ends();
        self.in_turn.set(false);
        drop(turn);
        self.pump();
        if self.closed.get() { Err(self.closed_because()) } else { Ok(()) }
    }

    /// Waits for a capsule, and for a turn to take it.
    fn poll_turn<'s>(
        &self,
        seat: &'s Seat,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Turn<'s>, Closed>> {
        if self.closed.get() {
            return Poll::Ready(Err(self.closed_because()));
        }
        self.receiver.replace(Some(cx.waker().clone()));
        let turn = ready!(seat.poll_turn(cx));
        if self.arrived.borrow().is_empty() {
            return Poll::Pending;
        }
        turn.spend(CALL_BYTES);
        seat.party().is_active();
        Poll::Ready(Ok(turn))
    }

    fn closed_because(&self) -> Closed {
        self.why.take().map_or(Closed::Orderly, Closed::Protocol)
    }

    fn take_turn(&self, turn: &Turn<'_>, sink: &mut impl FnMut(Capsule<'_>) -> Flow) {
        let mut at = 0;
        while at + CAPSULE_BYTES <= RECEIVE_BYTES && !self.closed.get() {
            let Some((slot, bytes)) = self.arrived.borrow_mut().pop_front() else { return };
            let length = usize32(bytes).min(CAPSULE_BYTES);
            turn.spend(length + COMMAND_BYTES);
            let flow = self.take_capsule(slot, at, length, sink);
            at += length.next_multiple_of(64);
            if flow == Flow::Pause || !self.may_receive() || turn.is_over() {
                return;
            }
        }
    }

    /// Copies a capsule to the inbox, has its slot received into again, and gives it on.
    fn take_capsule(
        &self,
        slot: u16,
        at: usize,
        length: usize,
        sink: &mut impl FnMut(Capsule<'_>) -> Flow,
    ) -> Flow {
        let place = self.layout.receive(slot);
        let again = self.with(|endpoint| {
            self.inbox.fill(|inbox| {
                endpoint.own().copy_out(place.offset, &mut inbox[at..at + length]);
            });
            endpoint.post_receive(Work::Receive.id(slot), place)
        });
        if let Err(error) = again {
            self.fail(error.to_string());
            return Flow::Pause;
        }
        let capsule = self.inbox.read(at..at + length);
        let Ok((sqe, data)) = Sqe::read_from_prefix(&capsule) else {
            self.fail(format!("a capsule of {length} bytes"));
            return Flow::Pause;
        };
        let Some(sqe) = self.take_sgl(sqe) else {
            self.fail("two commands with one identifier name memory");
            return Flow::Pause;
        };
        let range = at + size_of::<Sqe>()..at + length;
        let place = CapsulePlace { range, turn: self.turn.get() };
        sink(Capsule { sqe: &sqe, data, digest_ok: true, place })
    }

    /// Keeps what an entry names of the host's memory, and says of it what those above know of transports: the transport
    /// moves so many bytes. `None` where another command with the identifier has some.
    fn take_sgl(&self, mut sqe: Sqe) -> Option<Sqe> {
        if let Some(keyed) = Keyed::parse(&sqe.dptr) {
            sqe.dptr = Sgl::transport(keyed.length);
            if keyed.length > 0 {
                let named = Named { keyed, reading: false, response: None };
                let other = self.named.borrow_mut().insert(sqe.cid.get(), named);
                return other.is_none().then_some(sqe);
            }
        } else if sqe.dptr.id != Sgl::DATA_BLOCK_OFFSET {
            sqe.dptr.id = UNKNOWN;
        }
        Some(sqe)
    }

    /// In-capsule data, while the turn in which it arrived lasts; `None` after.
    #[must_use]
    pub fn in_capsule(&self, place: &CapsulePlace) -> Option<Ref<'_, [u8]>> {
        let now = self.in_turn.get() && self.turn.get() == place.turn;
        now.then(|| self.inbox.read(place.range.clone()))
    }

    /// Reads `length` bytes of command `cid`'s data to the start of `buffer`, once this is polled.
    pub fn transfer(&self, tag: u16, cid: u16, length: u32, buffer: Buffer) -> Transfer<'_> {
        Transfer::new(self, tag, cid, length, buffer)
    }

    /// Waits until the card has read what a [`Transfer`] asked for that was dropped. The tag is the next command's
    /// then.
    pub async fn rest_of_transfer(&self, tag: u16) {
        poll_fn(|cx| self.transfers.borrow_mut().poll_rest(tag, cx)).await;
    }

    /// Whether the card has yet to read all of a transfer.
    pub fn is_transferring(&self, tag: u16) -> bool {
        self.transfers.borrow().is_busy(tag)
    }

    /// Fails the transfers that have not ended, without closing: no more is received.
    pub fn fail_transfers(&self) {
        self.transfers.borrow_mut().close();
        self.share.wake_all();
    }

    /// Whether more may be received, though it will be answered.
    pub(super) fn may_receive(&self) -> bool {
        let out = self.out.borrow();
        out.held() <= UNSENT_FLOOR_BYTES
            || (out.held() <= UNSENT_BYTES && out.account().admits(0))
            || self.closed.get()
    }
}
