//! The controller's end of one NVMe/TCP connection.
//!
//! Two tasks drive it: the queue's own, in [`Connection::receive`], and the flusher, which runs when
//! a turn is over and sends with one call what the turn's completions left.

mod receive;
mod send;
mod transfer;
mod watch;

use core::cell::{Cell, RefCell};
use std::io;
use std::net::Shutdown;
use std::rc::Rc;

use nvme::tcp::controller::{Config, Machine};
use reactor::budget::Account;
use reactor::net::TcpStream;
use reactor::turns::{Party, Seat};

pub use self::transfer::Transfer;
use self::transfer::Transfers;
use super::out::Out;
use crate::inbox::Inbox;
use crate::limits::{
    DEAD_PEER_TIMEOUT, IN_CAPSULE_ADMIN_BYTES, IN_CAPSULE_IO_BYTES, PROBE_COUNT,
    PROBE_IDLE_SECONDS, PROBE_INTERVAL_SECONDS, QUEUE_DEPTH, TRANSFER_BYTES,
};
use crate::notify::{Notify, Waiters};

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
            maxh2cdata: TRANSFER_BYTES,
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
        reactor::spawn_late(send::flusher(connection.clone()));
        watch::add(&connection);
        Ok(connection)
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

    pub(super) fn seat(&self) -> Seat {
        Seat::new(self.party.borrow().clone())
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
}
