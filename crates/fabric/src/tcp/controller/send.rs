//! To a host: responses, data and R2Ts, sent with one call for all that a turn left.

use core::future::poll_fn;
use core::task::{Poll, ready};
use std::io;
use std::rc::Rc;

use nvme::cqe::Cqe;
use nvme::tcp::ddgst;
use reactor::turns::Turn;
use stdx::num::usize64;

use super::Connection;
use crate::gather::Sent;
use crate::limits::{CALL_BYTES, FINISH_TIMEOUT, PART_BYTES, SEND_BUDGET_BYTES, UNSENT_BYTES};
use crate::payload::Payload;
use crate::tcp::out::Out;

impl Connection {
    /// Responses that have not left this side: their commands still have their places in the queue.
    #[inline]
    #[must_use]
    pub fn unsent_responses(&self) -> usize {
        self.out.borrow().responses()
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

    /// Waits until the host has taken enough of what was sent that more may be buffered for it.
    pub async fn room(&self) {
        self.room.until(|| self.has_room()).await;
    }

    /// Closes once everything is sent that there is to send, or the host has been given time.
    pub async fn finish(&self) {
        self.flush.notify();
        let sent = self.room.until(|| self.closed.get() || self.out.borrow().is_empty());
        let _ = reactor::timeout(FINISH_TIMEOUT, sent).await;
        self.close();
    }

    pub(super) fn push(&self, f: impl FnOnce(&mut Out)) {
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
    pub(super) fn send_now(&self, turn: &Turn<'_>) {
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

    pub(super) fn send(&self, most: usize) -> io::Result<Sent> {
        let sent = self.out.borrow_mut().send(&self.stream, most);
        self.room.wake();
        sent
    }
}

/// Sends at the end of a turn what the turn's completions left, and waits for a slow socket.
pub(super) async fn flusher(connection: Rc<Connection>) {
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
