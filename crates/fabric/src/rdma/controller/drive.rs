//! What the card and the connection manager say of a connection, and its end.

use std::rc::{Rc, Weak};

use reactor::budget::Grant;
use reactor::event::Descriptor;
use verbs::{Cause, Completion};

use super::{Connection, Work};
use crate::race;
use crate::rdma::status::said;

/// Hears of what has ended until the connection is closed; then takes it down.
pub(super) async fn drive(connection: Rc<Connection>, completions: Descriptor, receives: Grant) {
    let mut ended = Vec::new();
    while !connection.closed.get() {
        // Armed first: what comes between the last look and the wait ends the wait.
        if connection.with(|endpoint| endpoint.arm()).is_err() {
            connection.fail("the network card fails");
            break;
        }
        if connection.reap(&mut ended) > 0 {
            // Others of this reactor have their turn.
            reactor::yield_now().await;
            continue;
        }
        let closing = async {
            connection.closing.wait().await;
            Ok(())
        };
        if race(completions.readable(), closing).await.is_err() {
            connection.close();
        }
    }
    let endpoint = connection.endpoint.take();
    // The queue pair goes first: the card touches nothing any more then.
    let _ = reactor::blocking(move || {
        drop(endpoint);
        Ok(())
    })
    .await;
    connection.out.borrow_mut().forget();
    connection.transfers.borrow_mut().forget();
    drop(receives);
}

/// Hears of the connection manager's events.
pub(super) async fn listen(connection: Weak<Connection>, events: Descriptor) {
    loop {
        if events.readable().await.is_err() {
            return;
        }
        let Some(connection) = connection.upgrade() else { return };
        loop {
            match connection.with(|endpoint| endpoint.next_event()) {
                Ok(Some(Cause::Established | Cause::Other)) => {}
                Ok(Some(Cause::Disconnected)) => connection.close(),
                Ok(Some(Cause::Removed)) => connection.fail("the network card was removed"),
                Ok(Some(Cause::Failed)) => connection.fail("the host did not take the connection"),
                Ok(None) => break,
                // It is taken down.
                Err(_) => return,
            }
        }
        if connection.closed.get() {
            return;
        }
    }
}

impl Connection {
    /// Takes what has ended; how much that was.
    fn reap(&self, ended: &mut Vec<Completion>) -> usize {
        let taken = self.with(|endpoint| endpoint.poll(ended));
        match taken {
            Ok(_) => {}
            Err(error) => self.fail(error.to_string()),
        }
        let count = ended.len();
        for completion in ended.drain(..) {
            self.take_completion(&completion);
        }
        if count > 0 && !self.closed.get() {
            self.pump();
            self.room.wake();
        }
        count
    }

    fn take_completion(&self, completion: &Completion) {
        let (work, index) = Work::of(completion.id);
        match (work, completion.outcome) {
            (Work::Receive, Ok(bytes)) => {
                self.arrived.borrow_mut().push_back((index, bytes));
                self.wake_receiver();
            }
            (Work::Read, outcome) => {
                self.work_free.set(self.work_free.get() + 1);
                self.end_read(index, outcome.is_ok());
            }
            (Work::Send, _) => {
                let work = self.out.borrow_mut().end(index);
                self.work_free.set(self.work_free.get() + work);
            }
            (Work::Write | Work::Receive, _) => {}
        }
        if let Err(status) = completion.outcome
            && !completion.is_flushed()
        {
            self.fail(format!("{work:?} failed: {}", said(status, "host")));
        }
    }
}
