//! One end of a reliable connection.
#![allow(unsafe_code, reason = "functions of rdma-core")]

use core::ffi::c_int;
use core::ptr::{self, NonNull};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::channel::{Cause, EventChannel, Id, nonblocking};
use crate::dial::{Answer, Dial};
use crate::extended;
use crate::ffi::{
    self, CompletionChannel, CompletionQueue, Functions, QueuePairEx, WorkCompletion,
};
use crate::library::{checked, numbered};
use crate::listener::Request;
use crate::{Device, Domain, Memory, Place, Reach, Remote};

/// Completions that are taken with one call.
const TAKEN: usize = 32;

/// How often a packet is sent again that nobody acknowledges: one less than its three bits say, which soft RoCE takes for
/// ever.
const RETRIES: u8 = 6;

/// How often a send is tried again for which the peer has no receive posted: one less than for ever. A host has one for
/// each of its commands before it sends it.
const RECEIVER_RETRIES: u8 = 6;

/// How large an endpoint is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Sends, reads and writes that it has posted at once.
    pub sends: u32,
    /// Receives that it has posted at once.
    pub receives: u32,
    /// Bytes of memory of its own.
    pub memory: usize,
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number that it was given.
    pub id: u64,
    /// Bytes received, of a receive; otherwise the status by which it failed.
    pub outcome: Result<u32, u32>,
}

impl Completion {
    /// Whether it failed because the connection had ended, which says nothing of itself.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.outcome == Err(ffi::WC_FLUSHED)
    }
}

/// A connection's end: queue pair, completions, and memory of its own.
pub struct Endpoint {
    functions: &'static Functions,
    /// In the order in which they are to go: the queue pair is destroyed first, by this one's own drop.
    id: Id,
    /// The queue pair by the functions that it is posted to by, where it can flush.
    extended: Option<NonNull<QueuePairEx>>,
    completions: Completions,
    channel: EventChannel,
    own: Memory,
    /// Memory that it shares with others of its domain.
    shared: Arc<Memory>,
    domain: Arc<Domain>,
    ends: Ends,
    sizes: Sizes,
    reads: Reads,
}

/// The addresses of both ends.
#[derive(Clone, Copy)]
struct Ends {
    local: SocketAddr,
    peer: SocketAddr,
}

/// RDMA_READs that are under way at once.
#[derive(Clone, Copy)]
struct Reads {
    /// Of the peer.
    answered: u8,
    /// Of this end.
    asked: u8,
}

/// What either way to a connection brings.
struct Parts {
    id: Id,
    extended: Option<NonNull<QueuePairEx>>,
    channel: EventChannel,
    completions: Completions,
    own: Memory,
    ends: Ends,
    reads: Reads,
}

// SAFETY: the library's functions may be called from any thread; this is used by one at a time.
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// Makes what a request needs to be accepted; refused where that fails.
    ///
    /// # Errors
    /// Too little of anything, in words where they help.
    pub fn build(
        mut request: Request,
        domain: &Arc<Domain>,
        shared: &Arc<Memory>,
        sizes: Sizes,
    ) -> io::Result<Self> {
        let id = request.raw_id().ok_or(io::ErrorKind::NotConnected)?;
        let (own, completions, extended) = prepare(id, domain, sizes, false)?;
        let reads = Reads { answered: 0, asked: request.reads().min(domain.reads_most()) };
        request.refuse_with(&[]);
        let (id, channel, local, peer) = request.into_parts()?;
        let ends = Ends { local, peer };
        let parts = Parts { id, extended, channel, completions, own, ends, reads };
        Ok(Self::of(parts, domain, shared, sizes))
    }

    /// Makes what a connection needs that is to be asked for; [`Endpoint::connect`] asks. `asked`: the most RDMA_READs
    /// of this end that are under way at once. `flushes`: it is to [flush](Endpoint::post_flush), if it can.
    ///
    /// # Errors
    /// Too little of anything, in words where they help.
    pub fn to_connect(
        dial: Dial,
        domain: &Arc<Domain>,
        shared: &Arc<Memory>,
        sizes: Sizes,
        asked: u8,
        flushes: bool,
    ) -> io::Result<Self> {
        // Whole until nothing fails any more: its identifier goes before its channel.
        let (own, completions, extended) = prepare(dial.id(), domain, sizes, flushes)?;
        let (id, channel, local, peer) = dial.into_parts()?;
        let answered = domain.reads_answered_most();
        let reads = Reads { answered, asked: asked.min(domain.reads_most()) };
        let ends = Ends { local, peer };
        let parts = Parts { id, extended, channel, completions, own, ends, reads };
        Ok(Self::of(parts, domain, shared, sizes))
    }

    fn of(parts: Parts, domain: &Arc<Domain>, shared: &Arc<Memory>, sizes: Sizes) -> Self {
        let Parts { id, extended, channel, completions, own, ends, reads } = parts;
        Self {
            functions: domain.functions(),
            id,
            extended,
            completions,
            channel,
            own,
            shared: Arc::clone(shared),
            domain: Arc::clone(domain),
            ends,
            sizes,
            reads,
        }
    }

    /// Takes the connection, saying `private`. Receives should be posted before. The peer reads of this end's
    /// [exposed](crate::Exposed) memory so often at once.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn accept(&self, private: &[u8], reads_of_peer: u8) -> io::Result<()> {
        let mut parameters = self.parameters(private);
        parameters.responder_resources = reads_of_peer;
        // SAFETY: the identifier is ours, and so many bytes are there.
        checked(unsafe { (self.functions.rdma_accept)(self.id.as_ptr(), &raw mut parameters) })
    }

    /// Asks the peer for the connection, saying `private`; [`Endpoint::next_answer`] tells what it says. Receives should
    /// be posted before.
    ///
    /// # Errors
    /// The connection manager's.
    pub fn connect(&self, private: &[u8]) -> io::Result<()> {
        let mut parameters = self.parameters(private);
        // SAFETY: as above.
        checked(unsafe { (self.functions.rdma_connect)(self.id.as_ptr(), &raw mut parameters) })
    }

    /// What the peer answers to [`Endpoint::connect`], once it does.
    ///
    /// # Errors
    /// The connection manager's.
    pub fn next_answer(&self) -> io::Result<Option<Answer>> {
        while let Some(event) = self.channel.next()? {
            if let Some(answer) = Answer::of(&event) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    fn parameters(&self, private: &[u8]) -> ffi::ConnectionParameters {
        ffi::ConnectionParameters {
            private_data: private.as_ptr().cast(),
            private_data_len: u8::try_from(private.len()).unwrap_or(u8::MAX),
            responder_resources: self.reads.answered,
            initiator_depth: self.reads.asked,
            flow_control: 1,
            retry_count: RETRIES,
            rnr_retry_count: RECEIVER_RETRIES,
            srq: 0,
            qp_num: 0,
        }
    }

    /// Whether it can have what it wrote be made durable.
    #[must_use]
    pub const fn can_flush(&self) -> bool {
        self.extended.is_some()
    }

    /// How large it is.
    #[must_use]
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Its own memory.
    #[must_use]
    pub const fn own(&self) -> &Memory {
        &self.own
    }

    /// The memory that it shares.
    #[must_use]
    pub const fn shared(&self) -> &Arc<Memory> {
        &self.shared
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.domain.device()
    }

    /// This end's address.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.ends.local
    }

    /// The peer's address.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.ends.peer
    }

    /// Readable when there are completions, after [`Endpoint::arm`].
    #[must_use]
    pub fn completions_fd(&self) -> BorrowedFd<'_> {
        self.completions.as_fd()
    }

    /// Readable when the connection manager has something to say.
    #[must_use]
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// The next event of the connection manager, if there is one.
    ///
    /// # Errors
    /// The connection manager's.
    pub fn next_event(&self) -> io::Result<Option<Cause>> {
        Ok(self.channel.next()?.map(|event| event.cause()))
    }

    /// Takes what has ended, to the end of `into`; how many those were.
    ///
    /// # Errors
    /// The queue of completions is broken.
    pub fn poll(&self, into: &mut Vec<Completion>) -> io::Result<usize> {
        self.completions.poll(into)
    }

    /// Has the next completion make the descriptor readable. What came before this is to be polled for after.
    ///
    /// # Errors
    /// The driver's.
    pub fn arm(&self) -> io::Result<()> {
        self.completions.arm()
    }

    /// Receives a message into a place of its own memory.
    ///
    /// # Errors
    /// More are posted than were asked for.
    pub fn post_receive(&self, id: u64, place: Place) -> io::Result<()> {
        let mut sge = self.own.sge(place.offset, place.length);
        let mut request = ffi::ReceiveRequest {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        let qp = self.id.get().qp;
        // SAFETY: the queue pair is there as long as this, and the place is registered memory of its domain, which is kept
        // until the queue pair is gone.
        numbered(unsafe {
            let post: ffi::PostRecv = core::mem::transmute((*(*qp).context).ops[ffi::POST_RECV]);
            post(qp, &raw mut request, &raw mut bad)
        })
    }

    /// Sends a message from a place of its own memory, and has it invalidate a key of the peer's.
    ///
    /// # Errors
    /// More is posted than was asked for.
    pub fn post_send(&self, id: u64, place: Place, invalidate: Option<u32>) -> io::Result<()> {
        let invalidate = invalidate.filter(|_| self.domain.can_invalidate());
        let opcode = invalidate.map_or(ffi::WR_SEND, |_| ffi::WR_SEND_WITH_INV);
        let key = invalidate.unwrap_or(0);
        self.post(id, self.own.sge(place.offset, place.length), opcode, key, None, true)
    }

    /// Writes a place of the shared memory to the peer's. It has ended when what is posted behind it has.
    ///
    /// # Errors
    /// As there.
    pub fn post_write(&self, id: u64, place: Place, to: Remote) -> io::Result<()> {
        let sge = self.shared.sge(place.offset, place.length);
        self.post(id, sge, ffi::WR_RDMA_WRITE, 0, Some(to), false)
    }

    /// Reads from the peer's memory to a place of the shared memory.
    ///
    /// # Errors
    /// As there.
    pub fn post_read(&self, id: u64, place: Place, from: Remote) -> io::Result<()> {
        let sge = self.shared.sge(place.offset, place.length);
        self.post(id, sge, ffi::WR_RDMA_READ, 0, Some(from), true)
    }

    /// Has so many bytes of the peer's memory, as they are when all that was posted before this has been carried out, be
    /// seen by all there and be durable: they are when it has ended.
    ///
    /// # Errors
    /// As there; `Unsupported` where it [cannot](Self::can_flush).
    pub fn post_flush(&self, id: u64, of: Remote, length: usize) -> io::Result<()> {
        let Some(qp) = self.extended else { return Err(io::ErrorKind::Unsupported.into()) };
        // SAFETY: the queue pair is there as long as this.
        unsafe { extended::flush(qp, id, of, length) }
    }

    fn post(
        &self,
        id: u64,
        mut sge: ffi::Sge,
        opcode: u32,
        key_to_invalidate: u32,
        remote: Option<Remote>,
        signaled: bool,
    ) -> io::Result<()> {
        let mut request = ffi::SendRequest {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode,
            send_flags: if signaled { ffi::SEND_SIGNALED } else { 0 },
            key_to_invalidate,
            remote_addr: remote.map_or(0, |remote| remote.address),
            rkey: remote.map_or(0, |remote| remote.key),
            unused: [0; 19],
        };
        if let Some(qp) = self.extended {
            // SAFETY: as of a receive.
            return unsafe { extended::post(qp, &request, &sge) };
        }
        let mut bad = ptr::null_mut();
        let qp = self.id.get().qp;
        // SAFETY: as of a receive.
        numbered(unsafe {
            let post: ffi::PostSend = core::mem::transmute((*(*qp).context).ops[ffi::POST_SEND]);
            post(qp, &raw mut request, &raw mut bad)
        })
    }

    /// Ends the connection: what is posted fails, the peer is told.
    pub fn disconnect(&self) {
        // SAFETY: the identifier is ours. One that is not connected any more says so.
        let _ = unsafe { (self.functions.rdma_disconnect)(self.id.as_ptr()) };
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.disconnect();
        // SAFETY: the queue pair is of this identifier. From here on the card touches none of its memory.
        unsafe { (self.functions.rdma_destroy_qp)(self.id.as_ptr()) };
    }
}

/// What an endpoint has beside its identifier.
type Prepared = (Memory, Completions, Option<NonNull<QueuePairEx>>);

/// Memory of its own, and completions. The identifier has a queue pair then, which flushes if that is asked for, and can be.
fn prepare(id: &Id, domain: &Arc<Domain>, sizes: Sizes, flushes: bool) -> io::Result<Prepared> {
    let own = Memory::register(domain, sizes.memory, Reach::Ours)?;
    if Device::bound_to(id) != Some(domain.device()) {
        let what = "the connection goes by another device than its address is of";
        return Err(io::Error::other(what));
    }
    let functions = domain.functions();
    let completions = Completions::new(functions, id, sizes.sends + sizes.receives + 1)?;
    let mut init = initial(&completions, sizes);
    if flushes && domain.can_flush() {
        // SAFETY: identifier, domain and completions are of one device, and outlive the queue pair.
        let made = unsafe { extended::create(functions, id, domain, init) };
        // The device has it, and this library may not know.
        if let Some(qp) = made {
            return Ok((own, completions, Some(qp)));
        }
        init = initial(&completions, sizes);
    }
    // SAFETY: as above.
    checked(unsafe { (functions.rdma_create_qp)(id.as_ptr(), domain.as_ptr(), &raw mut init) })?;
    Ok((own, completions, None))
}

const fn initial(completions: &Completions, sizes: Sizes) -> ffi::QueuePairInit {
    ffi::QueuePairInit {
        qp_context: ptr::null_mut(),
        send_cq: completions.queue.as_ptr(),
        recv_cq: completions.queue.as_ptr(),
        srq: ptr::null_mut(),
        max_send_wr: sizes.sends,
        max_recv_wr: sizes.receives,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
        qp_type: ffi::QPT_RC,
        sq_sig_all: 0,
        comp_mask: 0,
    }
}

/// What has ended, and how to hear of it.
struct Completions {
    functions: &'static Functions,
    queue: NonNull<CompletionQueue>,
    channel: NonNull<CompletionChannel>,
}

impl Completions {
    /// A queue for so many.
    fn new(functions: &'static Functions, id: &Id, entries: u32) -> io::Result<Self> {
        let context = id.get().verbs;
        // SAFETY: the identifier keeps its device open.
        let channel = unsafe { (functions.ibv_create_comp_channel)(context) };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: as above; the channel is ours.
        let queue = unsafe {
            (functions.ibv_create_cq)(context, entries, ptr::null_mut(), channel.as_ptr(), 0)
        };
        let Some(queue) = NonNull::new(queue) else {
            let error = io::Error::last_os_error();
            // SAFETY: nobody uses it.
            let _ = unsafe { (functions.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let this = Self { functions, queue, channel };
        nonblocking(this.as_fd())?;
        Ok(this)
    }

    fn poll(&self, into: &mut Vec<Completion>) -> io::Result<usize> {
        // SAFETY: all of it is integers, for which zeros are a value.
        let mut taken: [WorkCompletion; TAKEN] = unsafe { core::mem::zeroed() };
        let most = c_int::try_from(TAKEN).unwrap_or(1);
        let queue = self.queue.as_ptr();
        // SAFETY: the queue is ours, and as many places are there.
        let count = unsafe {
            let poll: ffi::PollCq = core::mem::transmute((*(*queue).context).ops[ffi::POLL_CQ]);
            poll(queue, most, taken.as_mut_ptr())
        };
        let count = usize::try_from(count).map_err(|_| io::Error::other("poll_cq failed"))?;
        into.extend(taken[..count.min(TAKEN)].iter().map(|one| Completion {
            id: one.wr_id,
            outcome: if one.status == 0 { Ok(one.byte_len) } else { Err(one.status) },
        }));
        Ok(count)
    }

    fn arm(&self) -> io::Result<()> {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        loop {
            // SAFETY: the channel is ours, and what is written are places of this function.
            let got = unsafe {
                (self.functions.ibv_get_cq_event)(
                    self.channel.as_ptr(),
                    &raw mut queue,
                    &raw mut context,
                )
            };
            if got != 0 {
                break;
            }
            // SAFETY: it is an event of this queue, acknowledged once.
            unsafe { (self.functions.ibv_ack_cq_events)(self.queue.as_ptr(), 1) };
        }
        let queue = self.queue.as_ptr();
        // SAFETY: the queue is ours.
        numbered(unsafe {
            let arm: ffi::ReqNotifyCq =
                core::mem::transmute((*(*queue).context).ops[ffi::REQ_NOTIFY_CQ]);
            arm(queue, 0)
        })
    }
}

impl AsFd for Completions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: the queue pair is gone, all events are acknowledged, and both are destroyed once.
        unsafe {
            let _ = (self.functions.ibv_destroy_cq)(self.queue.as_ptr());
            let _ = (self.functions.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}
