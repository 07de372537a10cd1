//! Finds connections that do not get on: once a second, a reactor looks at all of its own.
//!
//! What a connection did is counted where it is done; nothing here is on the way of a command, and no connection
//! needs a timer for it.

use core::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::Connection;
use crate::limits::{HOARD_LOOKS, PDU_LOOKS, WATCH_INTERVAL};

/// What the last looks at a connection found.
#[derive(Default)]
pub(super) struct Seen {
    /// PDUs it had received, and at how many looks since it was within the next.
    pdus: Cell<u64>,
    within: Cell<u32>,
    /// Bytes it had sent, and at how many looks since it has had others to send.
    sent: Cell<u64>,
    stuck: Cell<u32>,
}

#[derive(Default)]
struct Watch {
    look: Cell<u32>,
    connections: RefCell<Vec<Weak<Connection>>>,
    running: Cell<bool>,
}

thread_local!(static WATCH: Rc<Watch> = Rc::default());

/// The number of the last look.
pub(super) fn look() -> u32 {
    WATCH.with(|watch| watch.look.get())
}

/// Has a connection looked at until it is closed.
pub(super) fn add(connection: &Rc<Connection>) {
    let watch = WATCH.with(Rc::clone);
    watch.connections.borrow_mut().push(Rc::downgrade(connection));
    if !watch.running.replace(true) {
        reactor::spawn(run(Running(watch)));
    }
}

/// Says that nobody looks any more, also when the reactor ends.
struct Running(Rc<Watch>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(false);
    }
}

async fn run(watch: Running) {
    let watch = &*watch.0;
    loop {
        reactor::sleep(WATCH_INTERVAL).await;
        watch.look.set(watch.look.get().wrapping_add(1));
        let mut connections = watch.connections.take();
        connections.retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            if connection.is_overdue(watch.look.get()) {
                connection.close();
            }
            !connection.is_closed()
        });
        // None was added meanwhile: nothing here waits.
        let none = connections.is_empty();
        watch.connections.replace(connections);
        if none {
            return;
        }
    }
}

impl Connection {
    /// Looks at the connection for the time `look`: whether it has to end.
    fn is_overdue(&self, look: u32) -> bool {
        let seen = &self.seen;
        let within = self.within_pdu.get() && seen.pdus.get() == self.pdus.get();
        // Where this side does not listen, the host is not late.
        let within = within && self.may_receive();
        seen.within.set(if within { seen.within.get() + 1 } else { 0 });
        seen.pdus.set(self.pdus.get());

        let out = self.out.borrow();
        let stuck = !out.is_empty() && seen.sent.get() == out.sent();
        seen.stuck.set(if stuck { seen.stuck.get() + 1 } else { 0 });
        seen.sent.set(out.sent());
        seen.within.get() > PDU_LOOKS || self.hoards(look, seen.stuck.get(), out.account().held())
    }

    /// Whether it keeps memory, for which others wait who have less, without getting on. `held` is what its account
    /// holds.
    fn hoards(&self, look: u32, stuck: u32, held: usize) -> bool {
        let poorer = self.out.borrow().account().ledger().poorest_waiting();
        let others_wait = poorer.is_some_and(|poorest| poorest < held);
        others_wait
            && (stuck > HOARD_LOOKS
                || self.transfers.borrow().oldest(look).is_some_and(|age| age > HOARD_LOOKS))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use reactor::net::{ListenOptions, TcpListener, TcpStream};

    use super::*;
    use crate::capsule::Flow;
    use reactor::budget::{Account, Ledger};
    use reactor::turns::{Group, Party};

    /// After its Connect a host could take for ever to send one command.
    #[test]
    fn a_pdu_has_to_be_whole_in_half_a_minute() {
        reactor::run(reactor::Config::default(), async {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let listener = TcpListener::bind(any, ListenOptions::default()).unwrap();
            let host = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let account = Account::new(&Ledger::new(1 << 20));
            let party = Party::of(&Group::new());
            let connection = Connection::new(stream, account, party).unwrap();
            for look in 0..2 * PDU_LOOKS {
                assert!(!connection.is_overdue(look), "a host that says nothing is not late");
            }
            // The first bytes of an ICReq.
            host.send_all(&[0, 0, 128, 0, 128]).await.unwrap();
            connection.receive(|_| Flow::Continue, || {}).await.unwrap();
            for look in 0..PDU_LOOKS {
                assert!(!connection.is_overdue(look));
            }
            // A byte more makes it none the more whole.
            host.send_all(&[0]).await.unwrap();
            connection.receive(|_| Flow::Continue, || {}).await.unwrap();
            assert!(connection.is_overdue(PDU_LOOKS));
            connection.close();
        })
        .unwrap();
    }
}
