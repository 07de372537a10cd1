//! The controller's end of one NVMe/RDMA connection.
//!
//! Three tasks drive it: the queue's own, in [`Connection::receive`]; one that hears of what has ended
//! ([`drive`](drive::drive)), and takes the connection down in the end; and one that sends what had to wait for memory.

mod drive;
mod out;
mod receive;
mod send;
mod transfer;

use core::cell::{Cell, RefCell};
use core::task::Waker;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;

use nvme::cqe::Cqe;
use nvme::rdma::Keyed;
use reactor::budget::Account;
use reactor::event::Descriptor;
use reactor::turns::{Party, Seat};
use verbs::Endpoint;

use self::out::Out;
pub use self::transfer::Transfer;
use self::transfer::Transfers;
use super::layout::Layout;
use super::link::Link;
use super::site::Site;
use super::staging::{Place, Share};
use crate::inbox::Inbox;
use crate::notify::{Notify, Waiters};

/// The controller's end of one NVMe/RDMA connection.
pub struct Connection {
    /// Gone when the connection was taken down.
    endpoint: RefCell<Option<Endpoint>>,
    /// What ends after the endpoint.
    _site: Rc<Site>,
    /// Of the site's registered memory, what the host's address may have.
    share: Share,
    layout: Layout,
    /// Capsules received, by slot and length, that have not been taken.
    arrived: RefCell<VecDeque<(u16, u32)>>,
    receiver: RefCell<Option<Waker>>,
    inbox: Rc<Inbox>,
    /// Counts calls of `receive`; an in-capsule place of an older turn is void.
    turn: Cell<u64>,
    in_turn: Cell<bool>,
    /// What the commands under way named of the host's memory.
    named: RefCell<HashMap<u16, Named>>,
    out: RefCell<Out>,
    /// A place for the data that is to be sent next.
    granted: Cell<Option<Place>>,
    transfers: RefCell<Transfers>,
    /// Places in the send queue.
    work_free: Cell<u32>,
    /// Responses that wait until their command's data has come.
    deferred: Cell<usize>,
    party: RefCell<Rc<Party>>,
    flush: Notify,
    closing: Notify,
    /// That it is closed, to the task that listens to the connection manager.
    deaf: Rc<Notify>,
    room: Waiters,
    closed: Cell<bool>,
    /// Why, where it was not one of both sides' wish.
    why: RefCell<Option<String>>,
}

/// Memory of the host, as a command named it.
struct Named {
    keyed: Keyed,
    /// It is being read.
    reading: bool,
    /// The command's response, where that is to wait for the read: the host has its memory back then.
    response: Option<Cqe>,
}

/// What a work request is, in its number beside an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// By slot.
    Receive,
    /// By transfer tag.
    Read,
    /// By response.
    Write,
    /// By response.
    Send,
}

impl Work {
    const ALL: [Self; 4] = [Self::Receive, Self::Read, Self::Write, Self::Send];

    fn id(self, index: u16) -> u64 {
        let kind = Self::ALL.iter().position(|&kind| kind == self).unwrap_or_default();
        stdx::num::u64_of(kind) << 16 | u64::from(index)
    }

    fn of(id: u64) -> (Self, u16) {
        let kind = Self::ALL[stdx::num::usize64(id >> 16) % Self::ALL.len()];
        (kind, stdx::num::low16(id))
    }
}

impl Connection {
    /// Listens to a host from now on. `account` answers for what waits to be sent, and it takes turns as `party`.
    ///
    /// # Errors
    /// Too few descriptors.
    pub fn new(link: Link, account: Rc<Account>, party: Rc<Party>) -> io::Result<Rc<Self>> {
        let Link { endpoint, site, layout, receives } = link;
        let completions = Descriptor::of(endpoint.completions_fd())?;
        let events = Descriptor::of(endpoint.events_fd())?;
        let connection = Rc::new(Self {
            work_free: Cell::new(endpoint.sizes().sends),
            share: site.staging.share_of(endpoint.peer().ip()),
            endpoint: RefCell::new(Some(endpoint)),
            _site: site,
            layout,
            arrived: RefCell::default(),
            receiver: RefCell::default(),
            inbox: Inbox::of_this_core(),
            turn: Cell::default(),
            in_turn: Cell::default(),
            named: RefCell::default(),
            out: RefCell::new(Out::new(account, layout.responses())),
            granted: Cell::default(),
            transfers: RefCell::default(),
            deferred: Cell::default(),
            party: RefCell::new(party),
            flush: Notify::default(),
            closing: Notify::default(),
            deaf: Rc::default(),
            room: Waiters::default(),
            closed: Cell::default(),
            why: RefCell::default(),
        });
        reactor::spawn(drive::drive(connection.clone(), completions, receives));
        let deaf = Rc::clone(&connection.deaf);
        reactor::spawn(drive::listen(Rc::downgrade(&connection), events, deaf));
        reactor::spawn_late(send::sender(connection.clone()));
        Ok(connection)
    }

    /// Has somebody else answer for what waits to be sent: the connection became a queue of a host's.
    pub fn charge_to(&self, account: Rc<Account>, party: Rc<Party>) {
        self.out.borrow_mut().charge_to(account);
        self.party.replace(party);
    }

    fn seat(&self) -> Seat {
        Seat::new(self.party.borrow().clone())
    }

    /// Does something with the endpoint, if it is there still.
    fn with<T>(&self, f: impl FnOnce(&Endpoint) -> io::Result<T>) -> io::Result<T> {
        match &*self.endpoint.borrow() {
            Some(endpoint) => f(endpoint),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Ends the connection because of what went wrong.
    fn fail(&self, why: impl Into<String>) {
        if !self.closed.get() {
            self.why.replace(Some(why.into()));
            self.close();
        }
    }

    /// Ends the connection: transfers fail, unsent bytes are dropped. What the card may touch is kept until it is done.
    pub fn close(&self) {
        if !self.closed.replace(true) {
            let _ = self.with(|endpoint| {
                endpoint.disconnect();
                Ok(())
            });
            self.transfers.borrow_mut().close();
            self.out.borrow_mut().clear();
            self.named.borrow_mut().clear();
            self.deferred.set(0);
            self.share.wake_all();
            self.flush.notify();
            self.closing.notify();
            self.deaf.notify();
            self.wake_receiver();
            self.room.wake();
        }
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    fn wake_receiver(&self) {
        if let Some(waker) = self.receiver.borrow_mut().take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Work;

    #[test]
    fn a_number_tells_what_ended() {
        for work in Work::ALL {
            for index in [0, 7, u16::MAX] {
                assert_eq!(Work::of(work.id(index)), (work, index));
            }
        }
    }
}
