//! A shard's end of the way to one queue of another reactor.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{Message, RemoteRequest, ShardEnd};
use crate::error::Result;
use crate::limits::{REQUESTS_MAX, VOLUMES_KNOWN};
use crate::volume::state::State;

/// A volume that both ends know. Whoever attends to a request of it counts here, and not where all cores do.
pub struct Known(pub Arc<State>);

/// The way to one queue.
pub struct Link {
    end: RefCell<ShardEnd>,
    /// The volumes that both ends know.
    known: RefCell<Vec<Option<Rc<Known>>>>,
    /// Who attends to the request of each slot, if it has to wait.
    attending: RefCell<Vec<Option<Waker>>>,
}

impl Link {
    pub fn new(end: ShardEnd) -> Self {
        let (known, attending) = (vec![None; VOLUMES_KNOWN], vec![None; REQUESTS_MAX]);
        Self {
            end: RefCell::new(end),
            known: RefCell::new(known),
            attending: RefCell::new(attending),
        }
    }

    /// What came next by it.
    pub fn receive(&self) -> Option<Message> {
        self.end.borrow_mut().receive()
    }

    /// Whether its queue is gone.
    pub fn has_ended(&self) -> bool {
        self.end.borrow_mut().has_ended()
    }

    pub fn poll_receivable(&self, cx: &Context<'_>) -> Poll<()> {
        self.end.borrow_mut().poll_receivable(cx)
    }

    /// The volume that a request is for.
    pub fn volume(&self, request: &mut RemoteRequest) -> Rc<Known> {
        let known = &mut self.known.borrow_mut()[request.volume];
        if let Some(volume) = request.introduced.take() {
            *known = Some(Rc::new(Known(volume)));
        }
        let Some(volume) = known else { panic!("the first request of a volume brings it along") };
        Rc::clone(volume)
    }

    /// Has whoever attends to a slot's request look at it.
    pub fn look(&self, slot: usize) {
        if let Some(waker) = &self.attending.borrow()[slot] {
            waker.wake_by_ref();
        }
    }

    /// Has the requests that were sent back seen.
    pub fn flush(&self) {
        self.end.borrow().flush();
    }

    /// Has this task hear of it when the slot's request is given up.
    pub fn attend(&self, slot: usize, cx: &Context<'_>) {
        self.attending.borrow_mut()[slot].get_or_insert_with(|| cx.waker().clone());
    }

    /// The slot's request is done.
    pub fn leave(&self, slot: usize) {
        self.attending.borrow_mut()[slot] = None;
    }

    /// Sends a request back, with what became of it; [`flush`](Self::flush) shows it.
    pub fn give_back(&self, mut request: Box<RemoteRequest>, done: Result<()>) {
        request.done = done;
        let sent = self.end.borrow_mut().send(request);
        assert!(sent.is_ok(), "the ring back has room for all requests there are");
    }
}
