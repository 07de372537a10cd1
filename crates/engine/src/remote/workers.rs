//! Requests of other reactors that have to wait in a shard: each has a task for as long as it does.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use reactor::sync::Notify;

use super::link::{Known, Link};
use super::{Asked, Operation, RemoteRequest, gone};
use crate::canary::{self, Canary};
use crate::error::Result;
use crate::limits::{WORKERS_KEPT, WORKERS_MAX};
use crate::shard::{self, CopyRange, Outcome, Plan, Shard};
use crate::volume::state::State;

/// A request, and what is left of it.
pub struct Job {
    link: Rc<Link>,
    volume: Rc<Known>,
    request: Box<RemoteRequest>,
    rest: Rest,
}

/// What is left of a request that was begun.
enum Rest {
    /// All of it.
    All,
    Read(Plan),
    Write(shard::Writing),
}

/// The tasks that attend to what has to wait.
#[derive(Default)]
pub struct Workers {
    /// Workers with nothing to do.
    idle: RefCell<Vec<Rc<Worker>>>,
    /// Workers in all.
    count: Cell<usize>,
    /// Requests for which there is no worker: not begun, so that they keep nothing from anybody.
    waiting: RefCell<VecDeque<Job>>,
    closed: Cell<bool>,
}

#[derive(Default)]
struct Worker {
    job: Cell<Option<Job>>,
    called: Notify,
}

impl Workers {
    /// Whether there is, or may be, a worker for one more.
    pub fn has_room(&self) -> bool {
        !self.idle.borrow().is_empty() || self.count.get() < WORKERS_MAX
    }

    pub fn give(self: &Rc<Self>, shard: &Rc<Shard>, job: Job) {
        let idle = self.idle.borrow_mut().pop();
        if let Some(worker) = idle {
            let before = worker.job.replace(Some(job));
            assert!(before.is_none(), "a worker is given one request at a time");
            worker.called.notify();
            return;
        }
        self.count.set(self.count.get() + 1);
        assert!(self.count.get() <= WORKERS_MAX, "there are no more workers than may be");
        reactor::spawn(work(Rc::clone(self), Rc::clone(shard), job));
    }

    /// Leaves a request to whoever is free first.
    pub fn leave(&self, job: Job) {
        self.waiting.borrow_mut().push_back(job);
    }

    /// Lets those go who have nothing to do, and others when they are done. What nobody has begun is refused.
    pub fn close(&self) {
        self.closed.set(true);
        let idle = self.idle.take();
        idle.iter().for_each(|worker| worker.called.notify());
        for job in self.waiting.take() {
            let link = Rc::clone(&job.link);
            job.give_back(Err(gone()));
            link.flush();
        }
    }

    /// What a worker does next, if there is anything.
    fn next(&self, shard: &Shard) -> Option<Job> {
        loop {
            let job = self.waiting.borrow_mut().pop_front()?;
            let link = Rc::clone(&job.link);
            let job = job.begin(shard);
            if job.is_some() {
                return job;
            }
            link.flush();
        }
    }
}

/// Attends to what has to wait: to this, and to what it is given after that.
async fn work(workers: Rc<Workers>, shard: Rc<Shard>, first: Job) {
    let worker = Rc::<Worker>::default();
    let mut next = Some(first);
    loop {
        while let Some(job) = next.take() {
            job.finish(&shard).await;
            next = workers.next(&shard);
        }
        if workers.closed.get() || workers.idle.borrow().len() >= WORKERS_KEPT {
            assert!(workers.count.get() > 0, "a worker that ends was counted");
            workers.count.set(workers.count.get() - 1);
            return;
        }
        workers.idle.borrow_mut().push(Rc::clone(&worker));
        worker.called.notified().await;
        next = worker.job.take();
    }
}

impl Job {
    /// All of a request.
    pub const fn new(link: Rc<Link>, volume: Rc<Known>, request: Box<RemoteRequest>) -> Self {
        Self { link, volume, request, rest: Rest::All }
    }

    /// Begins with it, and sends it back if nothing has to be waited for. Gives what is left of it otherwise.
    pub fn begin(mut self, shard: &Shard) -> Option<Self> {
        if is_given_up(&self.request.given_up) {
            self.give_back(Err(gone()));
            return None;
        }
        match begin_on(shard, &self.volume.0, &mut self.request.asked) {
            Ok(Outcome::Wait(rest)) => Some(Self { rest, ..self }),
            done => {
                self.give_back(done.map(|_| ()));
                None
            }
        }
    }

    pub fn give_back(self, done: Result<()>) {
        self.link.give_back(self.request, done);
    }

    /// Does the rest of it, unless its sender is gone, and sends it back.
    async fn finish(mut self, shard: &Shard) {
        let RemoteRequest { slot, given_up, asked, .. } = &mut *self.request;
        let rest = std::mem::replace(&mut self.rest, Rest::All);
        let link = Rc::clone(&self.link);
        let done = {
            let mut finishing = pin!(finish(shard, &self.volume.0, asked, rest));
            poll_fn(|cx| {
                link.attend(*slot, cx);
                poll_unless_given_up(given_up, cx, &mut finishing)
            })
            .await
        };
        link.leave(*slot);
        self.give_back(done.unwrap_or_else(|| Err(gone())));
        link.flush();
    }
}

/// As a reactor begins a request to a shard of its own.
fn begin_on(shard: &Shard, volume: &State, asked: &mut Asked) -> Result<Outcome<Rest>> {
    let Asked { operation, offset, bytes, .. } = asked;
    match operation {
        Operation::Read => {
            let plan = shard.front.resolve_bytes(volume, *offset, bytes.len());
            Ok(match plan.map(|plan| shard.front.copy_known(plan, bytes)) {
                Some(Outcome::Done) => Outcome::Done,
                Some(Outcome::Wait(plan)) => Outcome::Wait(Rest::Read(plan)),
                None => Outcome::Wait(Rest::All),
            })
        }
        Operation::Write => Ok(match shard.front.begin_write(volume, *offset, bytes)? {
            Outcome::Done => Outcome::Done,
            Outcome::Wait(rest) => Outcome::Wait(Rest::Write(rest)),
        }),
        Operation::Deallocate | Operation::Copy { .. } => Ok(Outcome::Wait(Rest::All)),
    }
}

async fn finish(shard: &Shard, volume: &State, asked: &mut Asked, rest: Rest) -> Result<()> {
    let Asked { operation, source, offset, length, bytes } = asked;
    match (*operation, rest) {
        (_, Rest::Read(plan)) => shard.front.fetch(plan, bytes).await,
        (_, Rest::Write(mut rest)) => {
            shard.front.finish_write(&mut rest, volume, *offset, bytes).await
        }
        (Operation::Read, Rest::All) => shard.front.read_bytes(volume, *offset, bytes).await,
        (Operation::Write, Rest::All) => shard.front.write_bytes(volume, *offset, bytes).await,
        (Operation::Deallocate, Rest::All) => {
            shard.front.deallocate_bytes(volume, *offset, *length).await
        }
        (Operation::Copy { from }, Rest::All) => {
            let source = source.as_ref().ok_or_else(gone)?;
            let copy = CopyRange { from, to: *offset, length: *length };
            shard.front.copy_bytes(volume, source, copy).await
        }
    }
}

/// Attends to what is asked until its sender is gone: from then on nothing of it happens. Otherwise a write that was
/// given up could come after, and over, one its sender was told is done.
fn poll_unless_given_up<F: Future>(
    given_up: &AtomicBool,
    cx: &mut Context<'_>,
    attending: &mut Pin<&mut F>,
) -> Poll<Option<F::Output>> {
    if is_given_up(given_up) {
        return Poll::Ready(None);
    }
    attending.as_mut().poll(cx).map(Some)
}

fn is_given_up(given_up: &AtomicBool) -> bool {
    given_up.load(Ordering::Acquire) && !canary::has(Canary::AttendsForgotten)
}
