//! The commands of a host's connection, from capsule to response. No I/O.
//!
//! A command's identifier, and the places that it has, are free when three things are known: its response is here, its
//! data was copied out, and the card is done with its capsule.

use std::collections::VecDeque;

use nvme::cqe::Cqe;
use nvme::fabrics::fctype;
use nvme::opcode::{Direction, admin};
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::usize32;

use crate::capsule::Piece;
use crate::limits::TRANSFER_BYTES;
use crate::rdma::staging::Place;

/// A command that waits to be sent. Its data is in the capsule or beside it, never in part.
#[derive(Clone, Debug)]
pub struct Unsent {
    pub sqe: Sqe,
    /// Bytes of its data.
    length: u32,
    /// All of it is in its capsule.
    in_capsule: bool,
    /// It sends its data; otherwise it gets some, if any.
    sends: bool,
}

impl Unsent {
    fn new(sqe: &Sqe, in_capsule: u32) -> Self {
        let code = if sqe.opcode == admin::FABRICS { fctype(sqe) } else { sqe.opcode };
        let sends = Direction::of(code) == Direction::HostToController;
        let length = sqe.dptr.data().map_or(0, nvme::sqe::DataPointer::length);
        Self { sqe: *sqe, length, in_capsule: sends && in_capsule >= length, sends }
    }

    pub fn cid(&self) -> u16 {
        self.sqe.cid.get()
    }

    /// Bytes that go through registered memory beside the capsule.
    pub fn staged(&self) -> usize {
        if self.in_capsule { 0 } else { usize32(self.length) }
    }

    /// The data that it sends, if any.
    pub fn to_send(&self) -> Option<Piece> {
        let piece = Piece { cid: self.cid(), at: 0, length: self.length };
        (self.sends && self.length > 0).then_some(piece)
    }
}

/// A command identifier.
#[derive(Default)]
struct Slot {
    state: State,
    /// The card is done with its capsule.
    sent: bool,
    response: Option<Cqe>,
    /// Where its data is, outside of the capsule.
    place: Option<Place>,
    /// It gets what is put there.
    gets: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    /// In line.
    Waits,
    /// With the controller.
    Out,
    /// Answered, and to be told of.
    Done,
}

/// What is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Its data is here.
    Data { cid: u16, place: verbs::Place },
    /// There is no more.
    DataEnd { cid: u16 },
    /// It is complete, and its identifier free.
    Response(Cqe),
}

/// Commands by their identifiers.
pub struct Commands {
    slots: Box<[Slot]>,
    unsent: VecDeque<Unsent>,
    /// Those to be told of, with whether their data was.
    done: VecDeque<(Cqe, Option<Told>)>,
    /// With the controller, or not told of yet.
    out: u16,
    /// The most that may be.
    most: u16,
}

/// How much was told of a command's data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Data,
    All,
}

impl Commands {
    /// Identifiers from 0 to `count` - 1, of which the controller takes `most` at once.
    pub fn new(count: u16, most: u16) -> Self {
        let count = count.max(1);
        Self {
            slots: (0..count).map(|_| Slot::default()).collect(),
            unsent: VecDeque::with_capacity(usize::from(count)),
            done: VecDeque::with_capacity(usize::from(count)),
            out: 0,
            most: most.clamp(1, count),
        }
    }

    /// Puts a command in line. Gives the data that is to be kept until it is sent. One that moves more than there is room
    /// for is refused here.
    ///
    /// # Panics
    /// When its identifier is in use.
    pub fn push(&mut self, sqe: &Sqe, in_capsule: u32) -> Option<Piece> {
        let unsent = Unsent::new(sqe, in_capsule);
        let slot = &mut self.slots[usize::from(unsent.cid())];
        assert!(slot.state == State::Free, "a command identifier that is in use");
        *slot = Slot {
            state: State::Waits,
            gets: !unsent.sends && unsent.length > 0,
            ..Slot::default()
        };
        if unsent.length > TRANSFER_BYTES {
            let status = Status::DATA_SGL_LENGTH_INVALID.with_dnr();
            slot.state = State::Done;
            self.out += 1;
            self.done.push_back((Cqe::new(unsent.cid(), status), Some(Told::All)));
            return None;
        }
        let to_send = unsent.to_send();
        self.unsent.push_back(unsent);
        to_send
    }

    /// Whether none is in line.
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// The next to be sent, unless the controller has as many as it takes.
    pub fn front(&self) -> Option<&Unsent> {
        self.unsent.front().filter(|_| self.out < self.most)
    }

    /// Notes that the first is with the card, its data in `place`.
    pub fn start(&mut self, place: Option<Place>) {
        let Some(unsent) = self.unsent.pop_front() else { return };
        let slot = &mut self.slots[usize::from(unsent.cid())];
        slot.state = State::Out;
        slot.place = place;
        self.out += 1;
    }

    /// Notes that the card is done with a capsule.
    pub fn sent(&mut self, cid: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(cid)) {
            slot.sent = true;
            self.settle(cid);
        }
    }

    /// Notes a response.
    ///
    /// # Errors
    /// There is no such command, or it had one.
    pub fn respond(&mut self, cqe: Cqe) -> Result<(), String> {
        let cid = cqe.cid.get();
        let is_out = |slot: &&mut Slot| slot.state == State::Out && slot.response.is_none();
        let slot = self.slots.get_mut(usize::from(cid)).filter(is_out);
        let slot = slot.ok_or_else(|| format!("a response to command {cid}, which is not out"))?;
        slot.response = Some(cqe);
        self.settle(cid);
        Ok(())
    }

    /// A command whose capsule is still the card's is not told of: the next one with its identifier would go there.
    fn settle(&mut self, cid: u16) {
        let slot = &mut self.slots[usize::from(cid)];
        if slot.sent
            && let Some(cqe) = slot.response.take()
        {
            slot.state = State::Done;
            self.done.push_back((cqe, None));
        }
    }

    /// Whether there is something to be told.
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// The next to be told. Of data the place is free with the next call.
    pub fn next(&mut self) -> Option<Next> {
        let (cqe, told) = self.done.front_mut()?;
        let cid = cqe.cid.get();
        let slot = &mut self.slots[usize::from(cid)];
        if slot.gets
            && cqe.status().is_success()
            && told.is_none()
            && let Some(place) = &slot.place
        {
            *told = Some(Told::Data);
            return Some(Next::Data { cid, place: place.at() });
        }
        if *told == Some(Told::Data) {
            *told = Some(Told::All);
            slot.place = None;
            return Some(Next::DataEnd { cid });
        }
        let cqe = *cqe;
        self.done.pop_front();
        *slot = Slot::default();
        self.out -= 1;
        Some(Next::Response(cqe))
    }
}

#[cfg(test)]
mod tests;
