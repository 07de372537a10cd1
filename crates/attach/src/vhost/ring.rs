//! A queue at work: takes requests while it runs, carries them out side by side, tells the driver once a turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::Task;
use reactor::event::Event;
use reactor::sync::{Notify, Signal};
use stdx::num::{low32, u16_of, u64_of};
use zerocopy::{FromZeros, IntoBytes};

use super::block::{Device, Order, Request};
use super::inflight::Tracker;
use super::memory::{Memory, NotMemory};
use super::queue::{Chain, Corrupt, Progress, View, bytes_of, gather, scatter};
use super::wire::{ID_BYTES, RangeHead, RequestHead, RingAddress, Status};
use crate::crew::{Crew, Hand};
use crate::disk::{Disk, Errno, Refusal, Span};
use crate::limits::REQUESTS_MAX;

/// What all queues of a device share.
pub struct Shared {
    pub disk: Rc<Disk>,
    pub device: Cell<Device>,
    /// What GET_ID answers.
    pub id: [u8; ID_BYTES],
}

/// What a front end has set a queue up with.
#[derive(Default)]
pub struct Setup {
    pub size: u16,
    pub address: Option<RingAddress>,
    pub kick: Option<Rc<Event>>,
    pub enabled: bool,
}

/// A queue.
pub struct Ring {
    index: usize,
    shared: Rc<Shared>,
    pub setup: RefCell<Setup>,
    pub call: RefCell<Option<Event>>,
    /// Told when the driver broke the queue.
    pub err: RefCell<Option<Event>>,
    view: RefCell<Option<Rc<View>>>,
    pub progress: Progress,
    /// Where it says what it has in flight, if the front end keeps that.
    pub tracker: RefCell<Option<Tracker>>,
    in_flight: Cell<usize>,
    /// Raised when a request has ended.
    ended: Signal,
    /// Something was given back in this turn.
    given_back: Notify,
    crew: Crew<u16>,
    /// What takes requests, and what tells the driver, while the queue runs.
    tasks: RefCell<Vec<Task<()>>>,
}

impl Ring {
    pub fn new(index: usize, shared: &Rc<Shared>) -> Rc<Self> {
        Rc::new(Self {
            index,
            shared: Rc::clone(shared),
            setup: RefCell::default(),
            call: RefCell::default(),
            err: RefCell::default(),
            view: RefCell::default(),
            progress: Progress::default(),
            tracker: RefCell::default(),
            in_flight: Cell::default(),
            ended: Signal::new(),
            given_back: Notify::new(),
            crew: Crew::default(),
            tasks: RefCell::default(),
        })
    }

    /// Takes requests from now on, if it is set up and enabled, in `memory` as it is now; takes none otherwise.
    /// Requests in flight go on.
    ///
    /// # Errors
    /// [`Corrupt`] when what it was set up with makes no sense.
    pub fn update(self: &Rc<Self>, memory: &Rc<Memory>, features: u64) -> Result<(), Corrupt> {
        self.pause();
        let setup = self.setup.borrow();
        let (Some(address), Some(kick), true) = (&setup.address, &setup.kick, setup.enabled) else {
            return Ok(());
        };
        if setup.size == 0 {
            return Ok(());
        }
        let view = Rc::new(View::new(memory, address, setup.size, features)?);
        let begins = self.view.replace(Some(Rc::clone(&view))).is_none();
        if begins {
            self.go_on(&view);
        }
        let taking = reactor::spawn(Rc::clone(self).take(view, Rc::clone(kick)));
        let telling = reactor::spawn_late(Rc::clone(self).tell());
        self.tasks.borrow_mut().extend([taking, telling]);
        Ok(())
    }

    /// Carries out what a back end before this one left, which was killed. What is in flight then is known better than
    /// by the front end, which takes it that all was given back in the order in which it was taken.
    fn go_on(self: &Rc<Self>, view: &View) {
        let left = {
            let tracker = self.tracker.borrow();
            let Some(tracker) = &*tracker else { return };
            let used = view.used();
            let left = tracker.left(used);
            self.progress.taken.set(used.wrapping_add(u16_of(left.len())));
            self.progress.used.set(used);
            self.progress.told.set(used);
            left
        };
        if left.is_empty() {
            return;
        }
        tracing::info!("queue {}: {} requests were left in flight", self.index, left.len());
        self.shared.disk.succeed();
        left.into_iter().for_each(|head| self.begin(head));
    }

    /// Takes no more requests.
    fn pause(&self) {
        self.tasks.borrow_mut().drain(..).for_each(|task| task.abort());
        self.tell_now();
    }

    /// Takes no more requests, and waits for those in flight.
    pub async fn stop(&self) {
        self.pause();
        self.ended.until(|| self.in_flight.get() == 0).await;
        self.tell_now();
        *self.view.borrow_mut() = None;
    }

    /// Ends it for good.
    pub async fn end(&self) {
        self.stop().await;
        self.crew.dismiss();
    }

    /// Takes requests as they come.
    async fn take(self: Rc<Self>, view: Rc<View>, kick: Rc<Event>) {
        let most = usize::from(self.setup.borrow().size).min(REQUESTS_MAX);
        loop {
            view.look_by_itself();
            loop {
                self.ended.until(|| self.in_flight.get() < most).await;
                match view.take(&self.progress) {
                    Ok(Some(head)) => {
                        if let Some(tracker) = &*self.tracker.borrow() {
                            tracker.taken(head);
                        }
                        self.begin(head);
                    }
                    Ok(None) => break,
                    Err(corrupt) => return self.broken(corrupt),
                }
            }
            if view.ask_to_be_told(&self.progress) {
                continue;
            }
            if let Err(error) = kick.wait().await {
                tracing::warn!("queue {} cannot wait for its driver: {error}", self.index);
                return;
            }
        }
    }

    fn begin(self: &Rc<Self>, head: u16) {
        self.in_flight.set(self.in_flight.get() + 1);
        self.crew.give(head, |hand| Rc::clone(self).work(hand));
    }

    /// The driver made no sense: the queue rests until it is set up anew.
    fn broken(&self, corrupt: Corrupt) {
        tracing::warn!("queue {} stops, its driver broke it: {corrupt}", self.index);
        self.setup.borrow_mut().enabled = false;
        if let Some(err) = &*self.err.borrow() {
            err.signal();
        }
    }

    /// Tells the driver of what was given back, at the end of each turn in which that was something.
    async fn tell(self: Rc<Self>) {
        loop {
            self.given_back.notified().await;
            self.tell_now();
        }
    }

    fn tell_now(&self) {
        let view = self.view.borrow();
        if let (Some(view), Some(call)) = (&*view, &*self.call.borrow())
            && view.wants_telling(&self.progress)
        {
            call.signal();
        }
    }

    /// Carries requests out, one after the other, until dismissed.
    async fn work(self: Rc<Self>, hand: Rc<Hand<u16>>) {
        let mut chain = Chain::default();
        while let Some(head) = self.crew.next(&hand).await {
            let view = self.view.borrow().clone();
            if let Some(view) = view {
                match view.chain(head, &mut chain) {
                    Ok(()) => {
                        let written = self.execute(&view, &chain).await;
                        self.give_back(head, written);
                    }
                    Err(corrupt) => {
                        self.broken(corrupt);
                        self.tasks.borrow_mut().drain(..).for_each(|task| task.abort());
                    }
                }
            }
            self.in_flight.set(self.in_flight.get() - 1);
            self.ended.raise();
        }
    }

    fn give_back(&self, head: u16, written: u32) {
        // The queue may have been moved meanwhile: it is given back where it is now.
        if let Some(view) = &*self.view.borrow() {
            let tracker = self.tracker.borrow();
            tracker.iter().for_each(|tracker| tracker.ending(head));
            view.give_back(&self.progress, head, written);
            tracker.iter().for_each(|tracker| tracker.ended(head, self.progress.used.get()));
            self.given_back.notify();
        }
    }

    /// Carries a request out; the bytes written to its memory, of which the last is its status.
    async fn execute(&self, view: &View, chain: &Chain) -> u32 {
        let Some(room) = bytes_of(&chain.writable).checked_sub(1) else {
            // There is nowhere to put a status.
            return 0;
        };
        let (status, written) = match self.carry_out(view, chain, room).await {
            Ok(written) => (Status::Ok, written),
            Err(status) => (status, 0),
        };
        match scatter(&view.memory, &chain.writable, room, &[status as u8]) {
            Ok(()) => low32(written + 1),
            Err(NotMemory(_)) => 0,
        }
    }

    async fn carry_out(&self, view: &View, chain: &Chain, room: u64) -> Result<u64, Status> {
        let (memory, fua) = (&*view.memory, view.write_through);
        let mut head = RequestHead::new_zeroed();
        let head_bytes = u64_of(size_of::<RequestHead>());
        gather(memory, &chain.readable, 0, head.as_mut_bytes()).map_err(outside)?;
        let out = bytes_of(&chain.readable) - head_bytes;
        let device = self.shared.device.get();
        let disk = &self.shared.disk;
        match Request::parse(&device, &head, out, room)? {
            Request::Read(span) => {
                for part in disk.parts(span) {
                    let mut data = disk.room(part).await;
                    disk.read(part, &mut data).await.map_err(status_of)?;
                    let at = part.offset - span.offset;
                    scatter(memory, &chain.writable, at, data.data()).map_err(outside)?;
                }
                Ok(span.length)
            }
            Request::Write(span) => {
                for part in disk.parts(span) {
                    let mut data = disk.room(part).await;
                    let at = head_bytes + part.offset - span.offset;
                    gather(memory, &chain.readable, at, data.data_mut()).map_err(outside)?;
                    disk.write(part, &mut data, fua).await.map_err(status_of)?;
                }
                Ok(0)
            }
            Request::Flush => disk.flush().await.map(|()| 0).map_err(status_of),
            Request::Id => {
                let id = &self.shared.id[..ID_BYTES.min(stdx::num::usize64(room))];
                scatter(memory, &chain.writable, 0, id).map_err(outside)?;
                Ok(u64_of(id.len()))
            }
            Request::Ranges(order, count) => {
                for at in 0..count {
                    let mut range = RangeHead::new_zeroed();
                    let skip = head_bytes + u64::from(at) * u64_of(size_of::<RangeHead>());
                    gather(memory, &chain.readable, skip, range.as_mut_bytes()).map_err(outside)?;
                    let (span, unmap) = device.range(&range, order)?;
                    self.order(order, span, unmap, fua).await.map_err(status_of)?;
                }
                Ok(0)
            }
        }
    }

    async fn order(&self, order: Order, span: Span, unmap: bool, fua: bool) -> Result<(), Refusal> {
        match order {
            // What is discarded may be there again.
            Order::Discard => self.shared.disk.trim(span, false).await,
            Order::Zeroes => self.shared.disk.zero(span, fua, !unmap, false).await,
        }
    }

    /// Where it would go on.
    pub fn base(&self) -> u32 {
        self.progress.taken.get().into()
    }

    pub fn set_base(&self, base: u16) {
        self.progress.taken.set(base);
        self.progress.used.set(base);
        self.progress.told.set(base);
    }
}

fn outside(_: NotMemory) -> Status {
    Status::Error
}

fn status_of(refusal: Refusal) -> Status {
    if refusal.errno == Errno::NotSupported { Status::Unsupported } else { Status::Error }
}
