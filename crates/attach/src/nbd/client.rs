//! One client in transmission: requests in, replies out in any order.
//!
//! One task receives and gives every request (every part of a large write, as it comes) to one of a crew; another
//! sends, at the end of a turn, what the turn's completions left.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;

use fabric::gather::{Gather, Sent};
use fabric::notify::{Notify, Waiters};
use reactor::BUFFER_ALIGN;
use reactor::net::TcpStream;
use reactor::sync::Semaphore;
use stdx::num::usize64;

use super::export::Export;
use super::handshake::{Settled, Style};
use super::inbox::Inbox;
use super::reply::Reply;
use super::request::{Broken, Command, Request, Requests, Step};
use crate::crew::{Crew, Hand};
use crate::disk::{Disk, Errno, Refusal, Room, Span};
use crate::limits::{FINISH_TIMEOUT, READ_BYTES, REQUESTS_MAX, UNSENT_HEADS_BYTES};

/// Why a client is served no longer.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The socket failed, or ended in the middle.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// It does not speak NBD.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// Data on its way to the client.
struct Outgoing {
    room: Room,
    /// Given back when it is sent, or not needed any more.
    _budget: Option<Budget>,
}

/// Bytes taken of a client's budget for reads.
struct Budget {
    client: Rc<Client>,
    bytes: usize,
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.client.budget.release(self.bytes);
    }
}

/// A client.
pub struct Client {
    stream: TcpStream,
    disk: Rc<Disk>,
    style: Style,
    out: RefCell<Gather<Outgoing>>,
    flush: Notify,
    /// Woken when something was sent.
    sent: Waiters,
    /// Bytes of buffers that reads hold, until their data is sent.
    budget: Semaphore,
    /// Requests in flight.
    slots: Semaphore,
    /// Those who carry requests out.
    crew: Crew<Job>,
    /// Whose turn it is to reply, where the parts of a reply must not be parted.
    floor: Semaphore,
    closed: Cell<bool>,
}

/// A request in flight.
struct Slot(Rc<Client>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.slots.release(1);
    }
}

/// A write whose parts are in flight.
struct Writing {
    slot: Slot,
    reply: Reply,
    /// Parts that have not ended.
    left: Cell<usize>,
    refusal: Cell<Option<Refusal>>,
}

/// What one of the crew does.
enum Job {
    /// A request that brings no data.
    Order { slot: Slot, reply: Reply, command: Command },
    /// A part of a write.
    Write { writing: Rc<Writing>, part: Span, room: Room, fua: bool },
}

impl Client {
    /// A client that has chosen an export of `disk`.
    pub fn new(stream: TcpStream, disk: Rc<Disk>, settled: Settled) -> Rc<Self> {
        let client = Rc::new(Self {
            stream,
            disk,
            style: settled.style,
            out: RefCell::default(),
            flush: Notify::default(),
            sent: Waiters::default(),
            budget: Semaphore::new(READ_BYTES),
            slots: Semaphore::new(REQUESTS_MAX),
            crew: Crew::default(),
            floor: Semaphore::new(1),
            closed: Cell::default(),
        });
        reactor::spawn_late(Rc::clone(&client).send());
        client
    }

    /// Serves until the client leaves, or `stop` ends. Requests in flight end, too, then.
    ///
    /// # Errors
    /// [`Ended`]; the connection is closed.
    pub async fn serve(
        self: Rc<Self>,
        settled: Settled,
        inbox: Inbox,
        export: impl Fn() -> Rc<Export>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Ended> {
        let requests = Requests::new(settled);
        let stop = async {
            stop.await;
            Ok(())
        };
        let ended = fabric::race(self.receive(requests, inbox, export), stop).await;
        if ended.is_ok() {
            let finish = async {
                drop(self.slots.hold(REQUESTS_MAX).await);
                self.sent.until(|| self.closed.get() || self.out.borrow().is_empty()).await;
            };
            // A client that does not read its replies does not get them.
            let _ = reactor::timeout(FINISH_TIMEOUT, finish).await;
        }
        self.close();
        ended
    }

    /// Waits until none of its requests is in flight; for one that is served no longer.
    pub async fn over(&self) {
        drop(self.slots.hold(REQUESTS_MAX).await);
    }

    async fn receive(
        self: &Rc<Self>,
        mut requests: Requests,
        mut inbox: Inbox,
        export: impl Fn() -> Rc<Export>,
    ) -> Result<(), Ended> {
        loop {
            let request = match requests.next(inbox.unread(), &export())? {
                Step::NeedMore { consumed } => {
                    inbox.consume(consumed);
                    inbox.fill(&self.stream).await?;
                    continue;
                }
                Step::Request { consumed, request } => {
                    inbox.consume(consumed);
                    request
                }
            };
            self.slots.acquire(1).await;
            let slot = Slot(Rc::clone(self));
            self.room_for_replies().await;
            let Request { cookie, offset, what } = request;
            let reply = Reply { style: self.style, cookie, offset };
            match what {
                Ok(Command::Disconnect) => return Ok(()),
                Ok(Command::Write { span, fua }) => {
                    self.take_write(slot, reply, span, fua, &mut requests, &mut inbox).await?;
                }
                Ok(command) => self.give(Job::Order { slot, reply, command }),
                Err(refusal) => self.refuse(reply, refusal).await,
            }
        }
    }

    fn give(self: &Rc<Self>, job: Job) {
        self.crew.give(job, |hand| Rc::clone(self).work(hand));
    }

    /// Carries requests out, one after the other, until dismissed.
    async fn work(self: Rc<Self>, hand: Rc<Hand<Job>>) {
        while let Some(job) = self.crew.next(&hand).await {
            match job {
                Job::Order { slot, reply, command } => run(slot, reply, command).await,
                Job::Write { writing, part, room, fua } => write(writing, part, room, fua).await,
            }
        }
    }

    /// Replies without data are not bounded by the budget: a client that takes none gives no more orders.
    async fn room_for_replies(&self) {
        self.sent
            .until(|| self.closed.get() || self.out.borrow().unsent_heads() <= UNSENT_HEADS_BYTES)
            .await;
    }

    /// Receives the parts of a write and sends each on its way.
    async fn take_write(
        self: &Rc<Self>,
        slot: Slot,
        reply: Reply,
        span: Span,
        fua: bool,
        requests: &mut Requests,
        inbox: &mut Inbox,
    ) -> Result<(), Ended> {
        // The receiving of parts counts as one, so that the reply waits for the last.
        let left = Cell::new(1);
        let writing = Rc::new(Writing { slot, reply, left, refusal: Cell::default() });
        for part in self.disk.parts(span) {
            let mut room = self.disk.room(part).await;
            inbox.take(&self.stream, room.data_mut()).await?;
            requests.advance(usize64(part.length));
            writing.left.set(writing.left.get() + 1);
            self.give(Job::Write { writing: Rc::clone(&writing), part, room, fua });
        }
        writing.part_ended().await;
        Ok(())
    }

    /// Replies, when nobody is in the middle of a reply that has to stay together.
    async fn answer(&self, reply: impl FnOnce(&mut Gather<Outgoing>)) {
        if self.style == Style::Simple {
            let floor = self.floor.hold(1).await;
            self.put(reply);
            drop(floor);
        } else {
            self.put(reply);
        }
    }

    fn put(&self, reply: impl FnOnce(&mut Gather<Outgoing>)) {
        if !self.closed.get() {
            reply(&mut self.out.borrow_mut());
            self.flush.notify();
        }
    }

    async fn refuse(&self, reply: Reply, refusal: Refusal) {
        self.answer(|out| reply.failed(refusal, |bytes| out.push(bytes))).await;
    }

    /// Replies with the data of a read.
    async fn read(self: &Rc<Self>, reply: Reply, span: Span, whole: bool) -> Result<(), Refusal> {
        let mut parts = self.disk.parts(span);
        let Some(first) = parts.next() else {
            self.answer(|out| reply.nothing(|bytes| out.push(bytes))).await;
            return Ok(());
        };
        if first == span {
            let outgoing = self.read_part(span).await?;
            self.answer(|out| push_data(out, reply, span, true, outgoing)).await;
            return Ok(());
        }
        let parts = std::iter::once(first).chain(parts);
        if self.style == Style::Simple {
            return self.read_in_one_go(reply, parts).await;
        }
        if whole {
            let words = "too large for one chunk";
            return Err(Refusal { errno: Errno::Overflow, words });
        }
        for part in parts {
            let outgoing = self.read_part(part).await?;
            let last = part.end() == span.end();
            self.put(|out| push_data(out, reply, part, last, outgoing));
        }
        Ok(())
    }

    /// Reads a part within the client's budget.
    async fn read_part(self: &Rc<Self>, part: Span) -> Result<Outgoing, Refusal> {
        let bytes = usize64(part.length).next_power_of_two().max(BUFFER_ALIGN);
        self.budget.acquire(bytes).await;
        let budget = Budget { client: Rc::clone(self), bytes };
        let mut room = self.disk.room(part).await;
        self.disk.read(part, &mut room).await?;
        Ok(Outgoing { room, _budget: Some(budget) })
    }

    /// The parts of a large read where replies are simple: nothing may come between them, and nothing can
    /// be said any more when one fails. One part at a time is out, besides the budget, which others
    /// hold who wait for their turn.
    async fn read_in_one_go(
        &self,
        reply: Reply,
        parts: impl Iterator<Item = Span>,
    ) -> Result<(), Refusal> {
        let _floor = self.floor.hold(1).await;
        for part in parts {
            let mut room = self.disk.room(part).await;
            if let Err(refusal) = self.disk.read(part, &mut room).await {
                if part.offset == reply.offset {
                    self.put(|out| reply.failed(refusal, |bytes| out.push(bytes)));
                } else {
                    self.close();
                }
                return Ok(());
            }
            let outgoing = Outgoing { room, _budget: None };
            self.put(|out| push_data(out, reply, part, false, outgoing));
            self.sent.until(|| self.closed.get() || self.out.borrow().is_empty()).await;
        }
        Ok(())
    }

    async fn order(self: &Rc<Self>, reply: Reply, command: Command) -> Result<(), Refusal> {
        match command {
            Command::Read { span, whole } => return self.read(reply, span, whole).await,
            Command::Flush => self.disk.flush().await?,
            Command::Trim { span, fua } => self.disk.trim(span, fua).await?,
            Command::WriteZeroes { span, fua, no_hole, fast } => {
                self.disk.zero(span, fua, no_hole, fast).await?;
            }
            Command::BlockStatus { span } => {
                // NVMe tells of no holes without Get LBA Status: all is data.
                self.put(|out| reply.extent(span.length, 0, |bytes| out.push(bytes)));
                return Ok(());
            }
            Command::Write { .. } | Command::Disconnect => {
                unreachable!("the receiver sees to these")
            }
        }
        self.answer(|out| reply.done(|bytes| out.push(bytes))).await;
        Ok(())
    }

    /// Sends what there is at the end of each turn, until closed.
    async fn send(self: Rc<Self>) {
        while !self.closed.get() {
            self.flush.wait().await;
            while !self.closed.get() {
                let sent = self.send_now();
                self.sent.wake();
                match sent {
                    Ok(Sent::All) => break,
                    Ok(Sent::Share) => reactor::yield_now().await,
                    Ok(Sent::Blocked) => {
                        if self.stream.writable().await.is_err() {
                            self.close();
                        }
                    }
                    Err(_) => self.close(),
                }
            }
        }
    }

    fn send_now(&self) -> io::Result<Sent> {
        self.out.borrow_mut().send(
            &(),
            |(), outgoing| outgoing.room.data(),
            |slices, _| self.stream.try_send_vectored(slices),
            drop,
        )
    }

    /// Ends the connection; what is unsent is dropped. Writes in flight go on.
    fn close(&self) {
        if !self.closed.replace(true) {
            let _ = self.stream.shutdown(Shutdown::Both);
            drop(self.out.take());
            self.crew.dismiss();
            self.flush.notify();
            self.sent.wake();
        }
    }
}

impl Writing {
    /// A part ended; the last one replies.
    async fn part_ended(&self) {
        self.left.set(self.left.get() - 1);
        if self.left.get() > 0 {
            return;
        }
        let client = &self.slot.0;
        match self.refusal.take() {
            None => client.answer(|out| self.reply.done(|bytes| out.push(bytes))).await,
            Some(refusal) => client.refuse(self.reply, refusal).await,
        }
    }
}

/// Carries a request out that brings no data.
async fn run(slot: Slot, reply: Reply, command: Command) {
    if let Err(refusal) = slot.0.order(reply, command).await {
        slot.0.refuse(reply, refusal).await;
    }
}

/// Carries out a part of a write.
async fn write(writing: Rc<Writing>, part: Span, mut room: Room, fua: bool) {
    if let Err(refusal) = writing.slot.0.disk.write(part, &mut room, fua).await {
        writing.refusal.set(Some(refusal));
    }
    drop(room);
    writing.part_ended().await;
}

fn push_data(out: &mut Gather<Outgoing>, reply: Reply, part: Span, last: bool, outgoing: Outgoing) {
    reply.data(part, last, |bytes| out.push(bytes));
    out.push_data(outgoing);
}
