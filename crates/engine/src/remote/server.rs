//! A shard's end of the queues of other reactors.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::reception::Reception;
use super::workers::{Job, Workers};
use super::{Message, RemoteRequest, ShardEnd, gone};
use crate::error::Result;
use crate::limits::{BEGUN_AT_ONCE, REQUESTS_MAX, VOLUMES_KNOWN};
use crate::shard::Shard;
use crate::volume::state::State;

/// Serves a shard's requests from other reactors until it is closed, or its reactor ends.
pub async fn serve(shard: Rc<Shard>, reception: Arc<Reception>) {
    let server = Server::new(shard, reception);
    poll_fn(|cx| server.poll(cx)).await;
}

/// What serves them.
pub struct Server {
    shard: Rc<Shard>,
    reception: Arc<Reception>,
    links: RefCell<Vec<Rc<Link>>>,
    workers: Rc<Workers>,
}

impl Server {
    pub fn new(shard: Rc<Shard>, reception: Arc<Reception>) -> Self {
        Self { shard, reception, links: RefCell::default(), workers: Rc::default() }
    }

    /// Begins what came, and waits for more.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let arrive = |end| self.links.borrow_mut().push(Rc::new(Link::new(end)));
        if self.reception.look(cx, arrive).is_break() {
            return Poll::Ready(());
        }
        let mut more = false;
        self.links.borrow_mut().retain(|link| {
            let left = self.begin_all(link);
            link.flush();
            let mut end = link.end.borrow_mut();
            // One whose queue is gone is left to those who attend to the last of it.
            let has_ended = !left && end.has_ended();
            more |= left || (!has_ended && end.poll_receivable(cx).is_ready());
            !has_ended
        });
        if more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Begins what came by one queue, up to so many requests; tells whether there may be more.
    fn begin_all(&self, link: &Rc<Link>) -> bool {
        for _ in 0..BEGUN_AT_ONCE {
            let message = link.end.borrow_mut().receive();
            match message {
                Some(Message::Request(request)) => self.begin(link, request),
                Some(Message::GivenUp(slot)) => link.look(slot),
                None => return false,
            }
        }
        true
    }

    fn begin(&self, link: &Rc<Link>, mut request: Box<RemoteRequest>) {
        let volume = link.volume(&mut request);
        let job = Job::new(Rc::clone(link), volume, request);
        if !self.workers.has_room() {
            self.workers.leave(job);
        } else if let Some(job) = job.begin(&self.shard) {
            self.workers.give(&self.shard, job);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its reactor ends, perhaps: nobody serves those who come from now on.
        self.reception.close();
        self.workers.close();
        for link in self.links.take() {
            loop {
                let message = link.end.borrow_mut().receive();
                match message {
                    Some(Message::Request(request)) => link.give_back(request, Err(gone())),
                    Some(Message::GivenUp(slot)) => link.look(slot),
                    None => break,
                }
            }
            link.flush();
        }
    }
}

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
    fn new(end: ShardEnd) -> Self {
        let (known, attending) = (vec![None; VOLUMES_KNOWN], vec![None; REQUESTS_MAX]);
        Self {
            end: RefCell::new(end),
            known: RefCell::new(known),
            attending: RefCell::new(attending),
        }
    }

    /// The volume that a request is for.
    fn volume(&self, request: &mut RemoteRequest) -> Rc<Known> {
        let known = &mut self.known.borrow_mut()[request.volume];
        if let Some(volume) = request.introduced.take() {
            *known = Some(Rc::new(Known(volume)));
        }
        let Some(volume) = known else { panic!("the first request of a volume brings it along") };
        Rc::clone(volume)
    }

    /// Has whoever attends to a slot's request look at it.
    fn look(&self, slot: usize) {
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
