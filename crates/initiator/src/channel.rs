//! A queue that many tasks of a reactor use at once.
//!
//! Two tasks serve it: one receives and completes, one sends at the end of a turn what the turn queued. A
//! command waits in turn for a place in the queue, then for its completion. Dropped before that, it leaves its
//! place and its memory to the queue until the controller is done with them.
//!
//! Where its [`Manner`] says so, whoever submits the last command of a turn sends what is queued, and whoever
//! waits for the only command in flight receives its completion, so that neither task has to run (decision record
//! 0011). A queue that batches leaves sending to its task as long as there is more to wait for.

mod tasks;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use fabric::host::Flushed;
use nvme::cqe::Cqe;
use nvme::opcode::io;
use nvme::sqe::Sqe;
use reactor::sync::{Notify, Semaphore};
use reactor::{Nanos, Task};
use stdx::Counted;
use stdx::num::u16_of;

use crate::Error;
use crate::batch::Batch;
use crate::optimizations::{Call, Optimization, Optimizations};
use crate::queue::{Data, Queue};
use tasks::{receive, send};

/// What became of a command.
#[derive(Debug)]
pub enum Outcome {
    /// The controller's answer, and the data.
    Answered(Cqe, Data),
    /// The connection ended before the answer came. Nothing is received into the data any more; whether the
    /// controller executed the command, or still does, is not known.
    Lost(Data),
    /// The connection had ended before.
    Unsent(Data),
}

/// What a queue has done since it was connected, or several queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands queued.
    pub commands: u64,
    /// System calls made to send.
    pub sends: u64,
    /// Completions received by who waited for them ([`Optimization::Polled`]).
    pub found: u64,
}

impl std::ops::Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            commands: self.commands + other.commands,
            sends: self.sends + other.sends,
            found: self.found + other.found,
        }
    }
}

/// How a queue sends and receives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Send where commands are submitted.
    direct: bool,
    /// What goes by one call.
    call: Call,
}

impl Manner {
    /// Of an I/O queue.
    pub fn of(optimizations: &Optimizations, polled: bool) -> Self {
        Self { direct: optimizations.has(Optimization::Direct), call: optimizations.call(polled) }
    }
}

/// What a command in the queue waits for.
#[derive(Debug, Default)]
enum Wait {
    #[default]
    Idle,
    Pending(Option<Waker>),
    Done(Outcome),
    /// Nobody waits any more.
    Forgotten,
}

impl Wait {
    const fn is_in_queue(&self) -> bool {
        matches!(self, Self::Pending(_) | Self::Forgotten)
    }
}

/// A command in the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    cid: u16,
    at: Nanos,
    /// It is known to be overdue.
    told: bool,
}

struct Inner {
    queue: RefCell<Queue>,
    /// By place.
    waits: RefCell<Box<[Wait]>>,
    /// By place, as long as somebody waits there or did.
    sent: RefCell<Box<[Sent]>>,
    vacant: RefCell<Vec<u16>>,
    /// The place of the command with each identifier.
    places: RefCell<Box<[u16]>>,
    /// Places that are vacant.
    room: Semaphore,
    to_send: Notify,
    manner: Manner,
    /// What is queued, where the queue batches.
    batch: RefCell<Option<Batch>>,
    /// There is more than commands to send, and that does not wait.
    urgent: Cell<bool>,
    /// The sending task waits for the socket, or has a turn's share behind it: nobody else sends.
    sending: Cell<bool>,
    /// Commands in the queue, or waiting for a place there.
    load: Cell<usize>,
    commands: Cell<u64>,
    found: Cell<u64>,
    broken: RefCell<Option<Arc<Error>>>,
    /// Commands that change something and had no answer when the connection ended.
    in_doubt: Cell<usize>,
    /// Told when the connection ends by itself.
    trouble: Rc<Notify>,
}

/// A queue and the tasks that serve it, which end with it.
pub struct Channel {
    inner: Rc<Inner>,
    tasks: [Task<()>; 2],
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.tasks.iter().for_each(Task::abort);
    }
}

/// A place in the queue, held by the command that waits there.
struct Place<'a> {
    inner: &'a Inner,
    index: u16,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let wait = std::mem::take(&mut self.inner.waits.borrow_mut()[usize::from(self.index)]);
        if let Wait::Pending(_) = wait {
            self.inner.waits.borrow_mut()[usize::from(self.index)] = Wait::Forgotten;
        } else {
            self.inner.vacate(self.index);
        }
    }
}

impl Channel {
    /// Serves `queue` from now on, and notifies `trouble` when its connection ends by itself.
    ///
    /// # Panics
    /// Outside a reactor.
    pub fn new(mut queue: Queue, manner: Manner, trouble: Rc<Notify>) -> Self {
        let depth = queue.depth();
        queue.send_apart(manner.call == Call::Command);
        let batch = match manner.call {
            Call::Batch(bounds) => Some(Batch::new(bounds)),
            Call::Command | Call::Turn => None,
        };
        let inner = Rc::new(Inner {
            queue: RefCell::new(queue),
            waits: RefCell::new((0..depth).map(|_| Wait::Idle).collect()),
            sent: RefCell::new(vec![Sent::default(); usize::from(depth)].into()),
            vacant: RefCell::new((0..depth).rev().collect()),
            places: RefCell::new((0..depth).collect()),
            room: Semaphore::new(usize::from(depth)),
            to_send: Notify::new(),
            manner,
            batch: RefCell::new(batch),
            urgent: Cell::new(false),
            sending: Cell::new(false),
            load: Cell::new(0),
            commands: Cell::new(0),
            found: Cell::new(0),
            broken: RefCell::default(),
            in_doubt: Cell::new(0),
            trouble,
        });
        let receiver = reactor::spawn(receive(Rc::clone(&inner)));
        let sender = reactor::spawn_late(send(Rc::clone(&inner)));
        Self { inner, tasks: [receiver, sender] }
    }

    /// Runs a command: waits for a place, sends it, waits for its completion. Its status is the caller's to
    /// judge.
    pub async fn run(&self, sqe: Sqe, data: Data) -> Outcome {
        let _load = Counted::new(&self.inner.load);
        self.inner.room.acquire(1).await;
        let place = match self.inner.submit(sqe, data) {
            Ok(place) => place,
            Err(data) => {
                self.inner.room.release(1);
                return Outcome::Unsent(data);
            }
        };
        if let Some(outcome) = self.inner.look_for(place.index) {
            return outcome;
        }
        poll_fn(|cx| {
            let wait = &mut self.inner.waits.borrow_mut()[usize::from(place.index)];
            match wait {
                Wait::Done(_) => {
                    let Wait::Done(outcome) = std::mem::take(wait) else { return Poll::Pending };
                    Poll::Ready(outcome)
                }
                _ => {
                    *wait = Wait::Pending(Some(cx.waker().clone()));
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Runs a command to its completion, at most for `after`.
    ///
    /// # Errors
    /// [`Error::Timeout`], and why the connection ended.
    pub async fn execute(
        &self,
        command: &'static str,
        sqe: Sqe,
        data: Data,
        after: Duration,
    ) -> Result<(Cqe, Data), Error> {
        match reactor::timeout(after, self.run(sqe, data)).await {
            Ok(Outcome::Answered(cqe, data)) => Ok((cqe, data)),
            Ok(Outcome::Lost(_) | Outcome::Unsent(_)) => Err(Error::Ended(self.why())),
            Err(reactor::Elapsed) => Err(Error::Timeout { command, after }),
        }
    }

    /// Why the connection ended.
    pub fn why(&self) -> Arc<Error> {
        let why = self.inner.broken.borrow().clone();
        why.unwrap_or_else(|| Arc::new(Error::Lost("the queue is closed")))
    }

    /// Ends the connection: commands in the queue are lost, `why` is what [`Channel::why`] says.
    pub fn end(&self, why: Error) {
        self.inner.end(why);
    }

    /// Whether the connection has ended.
    pub fn is_broken(&self) -> bool {
        self.inner.broken.borrow().is_some()
    }

    /// Commands that change something and had no answer when the connection ended.
    pub fn in_doubt(&self) -> usize {
        self.inner.in_doubt.get()
    }

    /// Commands that have been in the queue since `before`, forgotten ones too, and that this has not told of
    /// before.
    pub fn overdue(&self, before: Nanos) -> Vec<u16> {
        let waits = self.inner.waits.borrow();
        let mut sent = self.inner.sent.borrow_mut();
        let in_queue = waits.iter().zip(sent.iter_mut()).filter(|(wait, _)| wait.is_in_queue());
        let late = in_queue.filter_map(|(_, sent)| {
            let news = sent.at <= before && !sent.told;
            sent.told |= news;
            news.then_some(sent.cid)
        });
        late.collect()
    }

    /// Whether a command has been in the queue since `before`.
    pub fn overdue_since(&self, before: Nanos) -> bool {
        let waits = self.inner.waits.borrow();
        let sent = self.inner.sent.borrow();
        waits.iter().zip(sent.iter()).any(|(wait, sent)| wait.is_in_queue() && sent.at <= before)
    }

    /// What the queue has done so far.
    pub fn counters(&self) -> Counters {
        let Inner { commands, found, queue, .. } = &*self.inner;
        Counters { commands: commands.get(), sends: queue.borrow().sends(), found: found.get() }
    }

    /// The network card's queue (NAPI identifier) that its data comes by; `None` within a machine.
    pub fn card_queue(&self) -> Option<u32> {
        self.inner.queue.borrow().napi_id()
    }

    /// Commands that can be in the queue.
    pub fn depth(&self) -> u16 {
        u16_of(self.inner.waits.borrow().len())
    }

    /// Whether a command would be sent without waiting for a place.
    pub fn has_room(&self) -> bool {
        self.inner.room.available() > 0
    }

    /// Commands in the queue, and those that wait for a place there.
    pub fn load(&self) -> usize {
        self.inner.load.get()
    }

    /// Commands that have no answer yet.
    pub fn outstanding(&self) -> u16 {
        self.inner.queue.borrow().outstanding()
    }
}

impl Inner {
    /// Puts a command in the queue, for which there is room; its data when the connection has ended.
    fn submit(&self, sqe: Sqe, data: Data) -> Result<Place<'_>, Data> {
        if self.broken.borrow().is_some() {
            return Err(data);
        }
        let Some(index) = self.vacant.borrow_mut().pop() else { return Err(data) };
        let bytes = data.to_send();
        self.commands.set(self.commands.get() + 1);
        let cid = self.queue.borrow_mut().submit(sqe, data);
        self.places.borrow_mut()[usize::from(cid)] = index;
        let sent = Sent { cid, at: reactor::now(), told: false };
        self.sent.borrow_mut()[usize::from(index)] = sent;
        self.waits.borrow_mut()[usize::from(index)] = Wait::Pending(None);
        self.dispatch(bytes);
        Ok(Place { inner: self, index })
    }

    /// Has what is queued sent: here, at the end of the turn, or with what follows. The last command has `bytes`
    /// of data to send.
    fn dispatch(&self, bytes: u32) {
        if let Some(batch) = &mut *self.batch.borrow_mut() {
            batch.add(bytes, reactor::now());
        }
        let may_send = self.manner.direct && !self.sending.get() && reactor::is_last();
        // Where more is waited for the sending task has the clock.
        if may_send && self.may_wait_until().is_none() {
            self.close_batch();
            let mut queue = self.queue.borrow_mut();
            if matches!(queue.flush(), Ok(Flushed::All)) && !queue.has_early() {
                return;
            }
        }
        // What went wrong here goes wrong there again, and is dealt with.
        self.to_send.notify();
    }

    /// Looks for the completion of the command at this place, if it is the only one in flight and all of it is
    /// sent.
    fn look_for(&self, index: u16) -> Option<Outcome> {
        let looked = {
            let mut queue = self.queue.borrow_mut();
            if queue.outstanding() != 1 || !queue.is_flushed() {
                return None;
            }
            queue.look_until(|queue| match queue.look() {
                Ok(false) => None,
                // There is one command, and what comes belongs to it: it may take several looks.
                Ok(true) => match self.take_in(queue) {
                    Ok(()) => self.take_done(index).map(Ok),
                    Err(why) => Some(Err(why)),
                },
                Err(why) => Some(Err(why)),
            })
        };
        match looked? {
            Ok(outcome) => {
                self.found.set(self.found.get() + 1);
                Some(outcome)
            }
            Err(why) => {
                self.end(why);
                self.take_done(index)
            }
        }
    }

    /// What became of the command at this place, if that is known.
    fn take_done(&self, index: u16) -> Option<Outcome> {
        let wait = &mut self.waits.borrow_mut()[usize::from(index)];
        match std::mem::take(wait) {
            Wait::Done(outcome) => Some(outcome),
            other => {
                *wait = other;
                None
            }
        }
    }

    /// What is queued is about to be sent.
    fn close_batch(&self) {
        if let Some(batch) = &mut *self.batch.borrow_mut() {
            batch.clear();
        }
    }

    fn vacate(&self, index: u16) {
        self.vacant.borrow_mut().push(index);
        self.room.release(1);
    }

    /// Gives a command's outcome to whoever waits for it.
    fn resolve(&self, cid: u16, outcome: Outcome) {
        let index = self.places.borrow()[usize::from(cid)];
        let mut waits = self.waits.borrow_mut();
        let wait = &mut waits[usize::from(index)];
        match std::mem::take(wait) {
            Wait::Pending(waker) => {
                *wait = Wait::Done(outcome);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Wait::Forgotten => {
                drop(waits);
                self.vacate(index);
            }
            Wait::Idle | Wait::Done(_) => {
                unreachable!("an identifier in use belongs to one waiting command")
            }
        }
    }

    /// Completes what has been received.
    fn collect(&self) -> Result<(), Error> {
        self.take_in(&mut self.queue.borrow_mut())
    }

    fn take_in(&self, queue: &mut Queue) -> Result<(), Error> {
        queue.poll(|done| {
            self.resolve(done.cid, Outcome::Answered(done.cqe, done.data));
        })?;
        // Data that was asked for never waits, and what is gathered need not either once nothing else is in flight.
        self.urgent.set(self.urgent.get() | queue.take_asked());
        if !queue.is_flushed() {
            self.to_send.notify();
        }
        Ok(())
    }

    fn end(&self, why: Error) {
        if self.broken.borrow().is_some() {
            return;
        }
        *self.broken.borrow_mut() = Some(Arc::new(why));
        let left: Vec<_> = self.queue.borrow_mut().abandon().collect();
        for (cid, opcode, data) in left {
            if changes(opcode) {
                self.in_doubt.set(self.in_doubt.get() + 1);
            }
            self.resolve(cid, Outcome::Lost(data));
        }
        self.trouble.notify();
    }
}

/// Whether an I/O command of this opcode may change what is on the namespace.
const fn changes(opcode: u8) -> bool {
    !matches!(opcode, io::READ | io::COMPARE | io::VERIFY | io::FLUSH | io::RESERVATION_REPORT)
}
