//! What the card and the connection manager say of a connection, and its end.

use std::rc::{Rc, Weak};

use reactor::budget::Grant;
use reactor::event::Descriptor;
use verbs::{Cause, Completion};

use super::{Connection, Work};
use crate::notify::Notify;
use crate::race;
use crate::rdma::hear::hear;
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

/// Hears of the connection manager's events, until the connection is closed: of one that this end closes there are none.
pub(super) async fn listen(connection: Weak<Connection>, events: Descriptor, deaf: Rc<Notify>) {
    while hear(&events, deaf.wait()).await {
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    /// A task, a descriptor and the connection's memory stayed of each connection that the target ended: it waited for an
    /// event that went with the endpoint.
    #[test]
    fn nobody_listens_to_a_connection_that_this_end_closed() {
        reactor::run(reactor::Config::default(), async {
            let (silent, _says) = std::io::pipe().unwrap();
            let events = Descriptor::of(silent.as_fd()).unwrap();
            let deaf = Rc::<Notify>::default();
            let listening = reactor::spawn(listen(Weak::new(), events, Rc::clone(&deaf)));
            reactor::yield_now().await;
            assert!(!listening.is_finished());
            deaf.notify();
            reactor::timeout(Duration::from_secs(10), listening).await.unwrap();
        })
        .unwrap();
    }
}
