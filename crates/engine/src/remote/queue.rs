//! A reactor's end of the way to a shard of another.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use reactor::duplex::{End, duplex};
use reactor::sync::Semaphore;
use stdx::num::{usize32, usize64};

use super::{Asked, Message, Operation, RemoteRequest, ShardEnd, gone};
use crate::error::Result;
use crate::limits::{REQUEST_BYTES_KEPT, REQUESTS_MAX, VOLUMES_KNOWN};
use crate::volume::state::State;

/// Messages on their way to a shard, at most: of each slot a request, and that it and the one before were given up.
const MESSAGES_MAX: usize = 4 * REQUESTS_MAX;

/// The way of requests to one shard, and back. The task that [`answers`](Self::answers) is keeps it.
pub struct RequestQueue {
    end: RefCell<End<Message, Box<RemoteRequest>>>,
    /// Of each request that was made: where it is, and how whoever attends to it sees that it was given up.
    slots: RefCell<Vec<(Slot, Arc<AtomicBool>)>>,
    /// Requests that are here, for nobody.
    #[allow(clippy::vec_box, reason = "each moves on as it is")]
    free: RefCell<Vec<Box<RemoteRequest>>>,
    /// Requests that are here, and those not made yet.
    room: Semaphore,
    /// Bytes that the requests have room for.
    bytes: Cell<usize>,
    /// The volumes that the other end knows, each in the one place where it can be.
    known: RefCell<Vec<Option<Arc<State>>>>,
    /// The other end is gone.
    ended: Cell<bool>,
}

#[derive(Debug)]
enum Slot {
    /// Nobody waits: its request is here, or comes back for nobody.
    Idle,
    /// Its request is out, and this waits for it.
    Out(Option<Waker>),
    /// It came back.
    Back(Box<RemoteRequest>),
    /// It will not come back.
    Refused,
}

/// What is to be sent.
pub struct Call<'a> {
    pub operation: Operation,
    pub volume: &'a Arc<State>,
    /// What is copied from.
    pub source: Option<&'a Arc<State>>,
    pub offset: u64,
    pub length: u64,
    /// What is written.
    pub data: &'a [u8],
}

impl RequestQueue {
    /// A queue, and the shard's end of it.
    pub fn new() -> (Rc<Self>, ShardEnd) {
        let (end, theirs) = duplex(MESSAGES_MAX, REQUESTS_MAX);
        let queue = Self {
            end: RefCell::new(end),
            slots: RefCell::default(),
            free: RefCell::default(),
            room: Semaphore::new(REQUESTS_MAX),
            bytes: Cell::new(0),
            known: RefCell::new(vec![None; VOLUMES_KNOWN]),
            ended: Cell::new(false),
        };
        (Rc::new(queue), theirs)
    }

    /// Hands out what comes back, until the other end is gone.
    pub async fn answers(self: Rc<Self>) {
        poll_fn(|cx| self.poll_answers(cx)).await;
    }

    pub fn poll_answers(&self, cx: &Context<'_>) -> Poll<()> {
        loop {
            let received = self.end.borrow_mut().receive();
            if let Some(request) = received {
                self.come_back(request);
                continue;
            }
            let mut end = self.end.borrow_mut();
            if end.has_ended() {
                drop(end);
                self.refuse();
                return Poll::Ready(());
            }
            if end.poll_receivable(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn come_back(&self, request: Box<RemoteRequest>) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[request.slot].0;
        if !matches!(slot, Slot::Out(_)) {
            assert!(matches!(slot, Slot::Idle), "a request comes back once");
            drop(slots);
            self.free(request);
            return;
        }
        let waiting = std::mem::replace(slot, Slot::Back(request));
        drop(slots);
        if let Slot::Out(Some(waker)) = waiting {
            waker.wake();
        }
    }

    /// Nothing comes back any more.
    fn refuse(&self) {
        self.ended.set(true);
        for (slot, _) in &mut *self.slots.borrow_mut() {
            if matches!(slot, Slot::Out(_))
                && let Slot::Out(Some(waker)) = std::mem::replace(slot, Slot::Refused)
            {
                waker.wake();
            }
        }
        // Whoever waits for a request learns it, too.
        self.room.release(REQUESTS_MAX);
    }

    /// A request that nobody needs any more. Its volume stays known; a source, and too much memory, are given back.
    fn free(&self, mut request: Box<RemoteRequest>) {
        request.asked.source = None;
        let capacity = request.asked.bytes.capacity();
        if self.bytes.get() > REQUEST_BYTES_KEPT {
            assert!(capacity <= self.bytes.get(), "the bytes of a request are counted");
            request.asked.bytes = Vec::new();
            self.bytes.set(self.bytes.get() - capacity);
        }
        self.free.borrow_mut().push(request);
        assert!(self.free.borrow().len() <= REQUESTS_MAX, "a request comes back once");
        self.room.release(1);
    }

    /// One that was given room for.
    fn take_free(&self) -> Box<RemoteRequest> {
        if let Some(request) = self.free.borrow_mut().pop() {
            return request;
        }
        let mut slots = self.slots.borrow_mut();
        assert!(slots.len() < REQUESTS_MAX, "there is room for each request");
        let given_up = Arc::<AtomicBool>::default();
        // Rare: once for each slot.
        let request = RemoteRequest::new(slots.len(), Arc::clone(&given_up));
        slots.push((Slot::Idle, given_up));
        Box::new(request)
    }

    /// Sends a request, and waits until it comes back; `take` has what was read, if that was done.
    ///
    /// # Errors
    /// What became of it; `Gone` when the shard is not there any more.
    pub async fn call(&self, call: Call<'_>, take: impl FnOnce(&[u8])) -> Result<()> {
        self.room.acquire(1).await;
        if self.ended.get() {
            self.room.release(1);
            return Err(gone());
        }
        let mut sent = self.send(call);
        let request = poll_fn(|cx| sent.poll(cx)).await;
        let Some(mut request) = request else { return Err(gone()) };
        let done = std::mem::replace(&mut request.done, Ok(()));
        if done.is_ok() {
            take(&request.asked.bytes);
        }
        self.free(request);
        done
    }

    fn send(&self, call: Call<'_>) -> Sent<'_> {
        let mut request = self.take_free();
        self.name_volume(&mut request, call.volume);
        self.fill(&mut request.asked, &call);
        let slot = request.slot;
        {
            let (place, given_up) = &mut self.slots.borrow_mut()[slot];
            assert!(matches!(place, Slot::Idle), "a free request is in nobody's hands");
            *place = Slot::Out(None);
            given_up.store(false, Ordering::Release);
        }
        self.post(Message::Request(request));
        Sent { queue: self, slot }
    }

    fn fill(&self, asked: &mut Asked, call: &Call<'_>) {
        // Rare: of copies only.
        asked.source = call.source.map(Arc::clone);
        (asked.operation, asked.offset, asked.length) = (call.operation, call.offset, call.length);
        let bytes = &mut asked.bytes;
        let before = bytes.capacity();
        match call.operation {
            // What is in it is written over.
            Operation::Read => bytes.resize(usize64(call.length), 0),
            Operation::Write | Operation::Deallocate | Operation::Copy { .. } => {
                bytes.clear();
                bytes.extend_from_slice(call.data);
            }
        }
        self.bytes.set(self.bytes.get() + bytes.capacity() - before);
    }

    /// Says which volume a request is for. The first one of a volume brings it along; after that its place says enough:
    /// this end keeps it as long as it is known, and the other one, too.
    fn name_volume(&self, request: &mut RemoteRequest, volume: &Arc<State>) {
        let at = usize32(volume.view.get()) % VOLUMES_KNOWN;
        request.volume = at;
        let known = &mut self.known.borrow_mut()[at];
        if known.as_ref().is_none_or(|known| !Arc::ptr_eq(known, volume)) {
            // Rare: once for each volume.
            (*known, request.introduced) = (Some(Arc::clone(volume)), Some(Arc::clone(volume)));
        }
    }

    fn post(&self, message: Message) {
        let mut end = self.end.borrow_mut();
        let sent = end.send(message);
        assert!(sent.is_ok(), "the rings have room for all requests there are");
        end.flush();
    }
}

/// A request that is out, and waited for.
struct Sent<'a> {
    queue: &'a RequestQueue,
    slot: usize,
}

impl Sent<'_> {
    /// The request, once it is back; `None` when it will not come back.
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Box<RemoteRequest>>> {
        let slot = &mut self.queue.slots.borrow_mut()[self.slot].0;
        match std::mem::replace(slot, Slot::Idle) {
            Slot::Back(request) => Poll::Ready(Some(request)),
            Slot::Refused => Poll::Ready(None),
            Slot::Out(_) => {
                *slot = Slot::Out(Some(cx.waker().clone()));
                Poll::Pending
            }
            Slot::Idle => panic!("a request that came back is waited for no more"),
        }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let mut slots = self.queue.slots.borrow_mut();
        let (slot, given_up) = &mut slots[self.slot];
        match std::mem::replace(slot, Slot::Idle) {
            Slot::Idle | Slot::Refused => {}
            Slot::Back(request) => {
                drop(slots);
                self.queue.free(request);
            }
            Slot::Out(_) => {
                // Before anything that its sender does next is sent: nothing of it happens after that.
                given_up.store(true, Ordering::Release);
                drop(slots);
                self.queue.post(Message::GivenUp(self.slot));
            }
        }
    }
}
