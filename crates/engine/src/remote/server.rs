//! A shard's end of the queues of other reactors.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::link::Link;
use super::reception::Reception;
use super::workers::{Job, Workers};
use super::{Message, RemoteRequest, ShardEnd, gone};
use crate::limits::BEGUN_AT_ONCE;
use crate::shard::Shard;

/// Serves a shard's requests from other reactors until it is closed, or its reactor ends.
pub async fn serve(shard: Rc<Shard>, reception: Arc<Reception<ShardEnd>>) {
    let server = Server::new(shard, reception);
    poll_fn(|cx| server.poll(cx)).await;
}

/// What serves them.
pub struct Server {
    shard: Rc<Shard>,
    reception: Arc<Reception<ShardEnd>>,
    links: RefCell<Vec<Rc<Link>>>,
    workers: Rc<Workers>,
}

impl Server {
    pub fn new(shard: Rc<Shard>, reception: Arc<Reception<ShardEnd>>) -> Self {
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
            // One whose queue is gone is left to those who attend to the last of it.
            let has_ended = !left && link.has_ended();
            more |= left || (!has_ended && link.poll_receivable(cx).is_ready());
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
            match link.receive() {
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
                match link.receive() {
                    Some(Message::Request(request)) => link.give_back(request, Err(gone())),
                    Some(Message::GivenUp(slot)) => link.look(slot),
                    None => break,
                }
            }
            link.flush();
        }
    }
}
