//! What a host's connection shares with the tasks that listen to its card.

use core::cell::{Cell, RefCell};
use core::task::Waker;
use std::io;
use std::rc::Rc;

use nvme::cqe::Cqe;
use reactor::event::Descriptor;
use verbs::{Cause, Completion, Endpoint};
use zerocopy::FromBytes;

use super::commands::Commands;
use super::layout::Layout;
use crate::error::Error;
use crate::notify::Notify;
use crate::race;
use crate::rdma::staging::Staging;
use crate::rdma::status::said;

/// What a work request is, in its number behind an index: nothing, for a receive by slot; or a send, by command.
const SEND: u64 = 1 << 16;

/// Why a connection ended.
#[derive(Clone, Debug)]
enum Why {
    Closed,
    Failed(String),
    Protocol(String),
}

pub struct Link {
    /// Gone when the connection was taken down.
    endpoint: RefCell<Option<Endpoint>>,
    pub commands: RefCell<Commands>,
    pub layout: Layout,
    pub staging: Rc<Staging>,
    /// Who waits for responses.
    receiver: RefCell<Option<Waker>>,
    /// More may be sent, or never will be.
    pub room: Notify,
    why: RefCell<Option<Why>>,
    ended: Cell<bool>,
    /// That it has ended, to each of the tasks.
    closing: Notify,
    deaf: Notify,
}

impl Link {
    pub fn new(
        endpoint: Endpoint,
        layout: Layout,
        commands: Commands,
        staging: Rc<Staging>,
    ) -> Rc<Self> {
        Rc::new(Self {
            endpoint: RefCell::new(Some(endpoint)),
            commands: RefCell::new(commands),
            layout,
            staging,
            receiver: RefCell::default(),
            room: Notify::default(),
            why: RefCell::default(),
            ended: Cell::default(),
            closing: Notify::default(),
            deaf: Notify::default(),
        })
    }

    /// Does something with the endpoint, if it is there still.
    pub fn with<T>(&self, f: impl FnOnce(&Endpoint) -> io::Result<T>) -> io::Result<T> {
        match &*self.endpoint.borrow() {
            Some(endpoint) => f(endpoint),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Why it ended, if it has.
    pub fn ended(&self) -> Option<Error> {
        if !self.ended.get() {
            return None;
        }
        Some(match self.why.borrow().clone() {
            Some(Why::Failed(why)) => Error::Socket(io::Error::other(why)),
            Some(Why::Protocol(why)) => Error::Protocol(why),
            Some(Why::Closed) | None => Error::Closed,
        })
    }

    fn end(&self, why: Why) {
        if !self.ended.replace(true) {
            self.why.replace(Some(why));
            self.closing.notify();
            self.deaf.notify();
            self.room.notify();
            self.wake_receiver();
        }
    }

    /// Ends it, because of what went wrong here.
    pub fn fail(&self, why: impl Into<String>) {
        self.end(Why::Failed(why.into()));
    }

    /// Ends it.
    pub fn close(&self) {
        self.end(Why::Closed);
    }

    /// Has a response wake this.
    pub fn listen(&self, waker: &Waker) {
        let mut receiver = self.receiver.borrow_mut();
        if !receiver.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *receiver = Some(waker.clone());
        }
    }

    fn wake_receiver(&self) {
        if let Some(waker) = self.receiver.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Gives the card a capsule.
    pub fn send(&self, cid: u16, in_capsule: u32) -> io::Result<()> {
        let place = self.layout.capsule(cid, in_capsule);
        self.with(|endpoint| endpoint.post_send(SEND | u64::from(cid), place, None))
    }

    /// Takes what the card is done with; how much that was.
    pub fn reap(&self, ended: &mut Vec<Completion>) -> usize {
        if let Err(error) = self.with(|endpoint| endpoint.poll(ended)) {
            self.fail(error.to_string());
        }
        let count = ended.len();
        for completion in ended.drain(..) {
            self.take(&completion);
        }
        count
    }

    fn take(&self, completion: &Completion) {
        let index = stdx::num::low16(completion.id);
        let is_send = completion.id & SEND != 0;
        match completion.outcome {
            Ok(_) if is_send => self.commands.borrow_mut().sent(index),
            Ok(bytes) => self.take_response(index, bytes),
            // The connection has ended, and its end will be told; or this is the first that tells it.
            Err(_) if completion.is_flushed() => self.close(),
            Err(status) => {
                let what = if is_send { "sending a command" } else { "receiving a response" };
                self.fail(format!("{what} failed: {}", said(status, "controller")));
            }
        }
    }

    /// Copies a response, and has its slot received into again.
    fn take_response(&self, slot: u16, bytes: u32) {
        let place = self.layout.receive(slot);
        let mut response = [0; size_of::<Cqe>()];
        let again = self.with(|endpoint| {
            endpoint.own().copy_out(place.offset, &mut response);
            // What comes behind the end is not heard, so that it comes to an end.
            if self.ended.get() { Ok(()) } else { endpoint.post_receive(u64::from(slot), place) }
        });
        if let Err(error) = again {
            return self.fail(error.to_string());
        }
        let read = Cqe::read_from_bytes(&response);
        let (Ok(cqe), true) = (read, stdx::num::usize32(bytes) == response.len()) else {
            return self.end(Why::Protocol(format!("NVMe/RDMA: a response of {bytes} bytes")));
        };
        if let Err(why) = self.commands.borrow_mut().respond(cqe) {
            self.end(Why::Protocol(format!("NVMe/RDMA: {why}")));
        }
    }

    /// Wakes who waits for responses, if there are any.
    fn tell(&self) {
        if self.commands.borrow().has_done() {
            self.wake_receiver();
        }
    }
}

/// Hears of what the card is done with until the connection has ended; then takes it down.
pub async fn drive(link: Rc<Link>, completions: Descriptor) {
    let mut ended = Vec::new();
    while !link.ended.get() {
        // Armed first: what comes between the last look and the wait ends the wait.
        if link.with(Endpoint::arm).is_err() {
            link.fail("the RDMA device fails");
            break;
        }
        let count = link.reap(&mut ended);
        link.tell();
        if count > 0 {
            // Others of this reactor have their turn.
            reactor::yield_now().await;
            continue;
        }
        let closing = async {
            link.closing.wait().await;
            Ok(())
        };
        if race(completions.readable(), closing).await.is_err() {
            link.close();
        }
    }
    // What came before the end came.
    while link.reap(&mut ended) > 0 {}
    link.tell();
    // The queue pair goes first: the card touches nothing any more then.
    let endpoint = link.endpoint.take();
    let _ = reactor::blocking(move || {
        drop(endpoint);
        Ok(())
    })
    .await;
}

/// Hears of the connection manager's events.
pub async fn listen(link: Rc<Link>, events: Descriptor) {
    while !link.ended.get() {
        match link.with(Endpoint::next_event) {
            Ok(Some(Cause::Established | Cause::Other)) => {}
            Ok(Some(Cause::Disconnected)) => link.close(),
            Ok(Some(Cause::Removed)) => link.fail("the RDMA device was removed"),
            Ok(Some(Cause::Failed)) => link.fail("the connection manager gave the connection up"),
            Ok(None) => {
                let deaf = async {
                    link.deaf.wait().await;
                    Ok(())
                };
                if race(events.readable(), deaf).await.is_err() {
                    link.close();
                }
            }
            Err(error) => link.fail(error.to_string()),
        }
    }
}
