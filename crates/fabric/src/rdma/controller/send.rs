//! To a host: data by RDMA_WRITE, and responses.

use std::rc::Rc;

use nvme::cqe::Cqe;
use nvme::status::Status;
use stdx::num::usize32;
use zerocopy::IntoBytes;

use super::out::Reply;
use super::{Connection, Work};
use crate::limits::{FINISH_TIMEOUT, SEND_BUDGET_BYTES, TRANSFER_BYTES, UNSENT_BYTES};
use crate::payload::Payload;
use crate::race;
use crate::rdma::staging::Place;

/// How far sending came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    /// Everything is on its way, or waits for what is.
    Settled,
    /// The next one's data needs so many bytes of registered memory.
    Needs(usize),
    /// A turn's share is on its way; others on this reactor should have theirs before more.
    Shared,
}

impl Connection {
    /// Responses that have not left this side: their commands still have their places in the queue.
    #[must_use]
    pub fn unsent_responses(&self) -> usize {
        self.out.borrow().waiting()
    }

    /// Sends a response capsule.
    pub fn respond(&self, cqe: &Cqe) {
        self.push(None, *cqe);
    }

    /// Sends data of a command and its response.
    pub fn respond_data(&self, payload: Payload, cqe: &Cqe) {
        if payload.len() > usize32(TRANSFER_BYTES) {
            debug_assert!(false, "more than a transfer");
            return self.fail("more data than a transfer moves");
        }
        self.push(Some(payload), *cqe);
    }

    fn push(&self, payload: Option<Payload>, mut cqe: Cqe) {
        if self.closed.get() {
            return;
        }
        let cid = cqe.cid.get();
        let mut named = self.named.borrow_mut();
        if let Some(waits) = named.get_mut(&cid).filter(|named| named.reading) {
            // The host may do with its memory what it likes once it has this.
            waits.response = Some(cqe);
            self.deferred.set(self.deferred.get() + 1);
            return;
        }
        let keyed = named.remove(&cid).map(|named| named.keyed);
        drop(named);
        let data = payload.and_then(|payload| {
            let fits = keyed.filter(|keyed| payload.len() <= usize32(keyed.length));
            if fits.is_none() {
                cqe.status = Status::DATA_SGL_LENGTH_INVALID.with_dnr().to_field().into();
            }
            Some((payload, fits?))
        });
        let invalidate = keyed.filter(|keyed| keyed.invalidate).map(|keyed| keyed.key);
        self.out.borrow_mut().push(Reply { cqe, data, invalidate });
        // Within a turn the receiver sends when it is through.
        if !self.in_turn.get() {
            self.pump();
        }
    }

    /// Notes that the data of a command has come, or will not, and sends its response if there is one already.
    pub(super) fn end_reading(&self, cid: u16) {
        let response = match self.named.borrow_mut().get_mut(&cid) {
            Some(named) => {
                named.reading = false;
                named.response.take()
            }
            None => None,
        };
        if let Some(cqe) = response {
            self.deferred.set(self.deferred.get() - 1);
            self.respond(&cqe);
        }
    }

    /// Posts what there is to send; the sender sees to what has to wait for memory.
    pub(super) fn pump(&self) {
        if self.closed.get() || self.out.borrow().is_empty() {
            return;
        }
        if self.post_replies() != Pumped::Settled {
            self.out.borrow_mut().give_back();
            self.flush.notify();
        }
    }

    /// Posts replies, as many as there is room for.
    pub(super) fn post_replies(&self) -> Pumped {
        let mut moved = 0;
        loop {
            if moved >= SEND_BUDGET_BYTES {
                return Pumped::Shared;
            }
            let out = self.out.borrow();
            let (Some(reply), Some(index)) = (out.front(), out.next_free()) else {
                return Pumped::Settled;
            };
            let length = reply.data.as_ref().map_or(0, |(payload, _)| payload.len());
            let work = if length > 0 { 2 } else { 1 };
            if self.work_free.get() < work {
                return Pumped::Settled;
            }
            let place = match length {
                0 => None,
                _ => match self.place_for(length) {
                    Some(place) => Some(place),
                    None => return Pumped::Needs(length),
                },
            };
            let posted = self.post(reply, index, place.as_ref());
            drop(out);
            self.work_free.set(self.work_free.get() - work);
            // Part of it may be on its way, whatever failed.
            self.out.borrow_mut().start(place, work);
            if let Err(error) = posted {
                self.fail(error.to_string());
                return Pumped::Settled;
            }
            self.party.borrow().spend(length);
            moved += length;
        }
    }

    /// Registered memory for the next reply's data: what was waited for, or what is there.
    fn place_for(&self, length: usize) -> Option<Place> {
        let granted = self.granted.take().filter(|place| place.at().length == length);
        granted.or_else(|| self.share.try_take(length))
    }

    fn post(&self, reply: &Reply, index: u16, place: Option<&Place>) -> std::io::Result<()> {
        self.with(|endpoint| {
            if let (Some((payload, keyed)), Some(place)) = (&reply.data, place) {
                endpoint.shared().copy_in(place.at().offset, payload.bytes());
                let to = verbs::Remote { address: keyed.address, key: keyed.key };
                endpoint.post_write(Work::Write.id(index), place.at(), to)?;
            }
            let at = self.layout.response(index);
            endpoint.own().copy_in(at.offset, reply.cqe.as_bytes());
            endpoint.post_send(Work::Send.id(index), at, reply.invalidate)
        })
    }

    /// Whether [`Connection::room`] would return at once.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.closed.get() || self.out.borrow().held() <= UNSENT_BYTES
    }

    /// Waits until the host has taken enough of what was sent that more may be buffered for it.
    pub async fn room(&self) {
        self.room.until(|| self.has_room()).await;
    }

    /// Closes once everything is sent that there is to send, or the host has been given time.
    pub async fn finish(&self) {
        let is_done =
            || self.closed.get() || (self.out.borrow().is_idle() && self.deferred.get() == 0);
        let _ = reactor::timeout(FINISH_TIMEOUT, self.room.until(is_done)).await;
        self.close();
    }
}

/// Sends what had to wait for registered memory, or for others of its reactor.
pub(super) async fn sender(connection: Rc<Connection>) {
    loop {
        connection.flush.wait().await;
        loop {
            if connection.closed.get() {
                return;
            }
            match connection.post_replies() {
                Pumped::Settled => break,
                Pumped::Shared => reactor::yield_now().await,
                Pumped::Needs(length) => {
                    let place = async { Some(connection.share.take(length).await) };
                    let closed = async {
                        connection.flush_closed().await;
                        None
                    };
                    connection.granted.set(race(place, closed).await);
                }
            }
        }
    }
}

impl Connection {
    async fn flush_closed(&self) {
        while !self.closed.get() {
            self.flush.wait().await;
        }
    }
}
