//! A queue pair: what is outstanding on it, and how its commands are completed.

pub mod dispatch;
pub(crate) mod io;
pub mod remote;
pub mod request;
pub mod slots;
pub mod view;

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;
use std::rc::Rc;
use std::time::Duration;

use fabric::controller::Connection;
use fabric::notify::Notify;
use fabric::payload::Payload;
use nvme::cqe::Cqe;
use nvme::fabrics::fctype;
use nvme::opcode;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::Nanos;
use stdx::Counted;
use stdx::num::usize32;

use self::remote::RemoteQueue;
use self::request::Request;
use crate::budget::{Seat, Share};
use crate::controller::{Failure, QueueLease};
use crate::limits::{
    DRIVES_PATIENCE, DRIVES_PATIENCE_CROWDED, DRIVES_WAITING_PART, IO_IN_CAPSULE_BYTES,
};
use crate::metrics;

/// Indices of [`RETRY_DELAYS`](crate::limits::RETRY_DELAYS) as completions name them (Command Retry Delay).
pub(crate) const AFTER_SHORTLY: u8 = 1;
const AFTER_LATER: u8 = 2;

/// Something has to come back first: a drive, a pool, a path.
const LATER: [Status; 4] = [
    Status::NAMESPACE_NOT_READY,
    Status::INTERNAL_PATH_ERROR,
    Status::ANA_INACCESSIBLE,
    Status::ANA_TRANSITION,
];

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// How far the command of a slot is, as Abort must know it.
#[derive(Clone, Default)]
enum Phase {
    /// No command, or one that goes its way.
    #[default]
    Running,
    /// Waits for its host's data or for memory: it has changed nothing, and can be aborted.
    Waiting { cid: u16, nsid: u32, waker: Waker },
    /// To be completed with this status.
    Aborted(Status),
}

/// One queue pair of a controller: a submission and a completion queue over one connection.
pub struct Queue {
    pub(crate) connection: Connection,
    /// How other cores reach this queue.
    pub(crate) remote: RemoteQueue,
    /// The queue has to end: no further command is taken.
    pub(crate) ended: Notify,
    /// The Disconnect that ends the queue, until all its other commands have ended.
    pub(crate) disconnect: RefCell<Option<Request>>,
    lease: Rc<QueueLease>,
    /// Names it among all that there ever are.
    number: u64,
    /// Its part of what its host may have.
    seat: Seat,
    /// Entries of the submission queue.
    size: u16,
    flow_control: bool,
    /// SQ Head Pointer: entries taken from the queue, modulo its size.
    head: Cell<u16>,
    cids: RefCell<CidSet>,
    /// Identifiers of commands left to an event.
    parked: RefCell<Vec<u16>>,
    phases: RefCell<Vec<Phase>>,
    /// Commands do not wait any more: the queue ends.
    ending: Cell<bool>,
    outstanding: Cell<u32>,
    /// Of those, the ones that wait for drives of a pool.
    lacking: Cell<usize>,
    /// When the queue last had no command outstanding, reactor nanoseconds.
    busy_since: Cell<Nanos>,
}

impl Queue {
    pub(crate) fn new(
        connection: Connection,
        lease: Rc<QueueLease>,
        seat: Seat,
        size: u16,
        flow_control: bool,
    ) -> Rc<Self> {
        if !flow_control {
            connection.without_flow_control();
        }
        connection.charge_to(seat.share().data.clone(), seat.share().turns.clone());
        Rc::new(Self {
            connection,
            remote: RemoteQueue::default(),
            ended: Notify::default(),
            disconnect: RefCell::default(),
            lease,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            seat,
            size,
            flow_control,
            head: Cell::default(),
            cids: RefCell::default(),
            parked: RefCell::default(),
            phases: RefCell::default(),
            ending: Cell::default(),
            outstanding: Cell::default(),
            lacking: Cell::default(),
            busy_since: Cell::default(),
        })
    }

    /// Queue identifier; 0 is the admin queue.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.lease.qid()
    }

    /// Names it among all that there ever are; never 0.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Entries of the submission queue.
    #[must_use]
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// Whether the controller has ended this queue, or its host disconnects it.
    pub(crate) fn closing(&self) -> bool {
        self.lease.closing() || self.disconnect.borrow().is_some()
    }

    /// Whether commands are to change nothing any more: the queue ends, and its host hears no more of them. Who disconnects
    /// does. Once its controller was told to end it, on whatever core, no look at this says otherwise.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        let unheard = || self.disconnect.borrow().is_none() || self.connection.is_closed();
        self.lease.closing() || self.ending.get() && unheard()
    }

    /// Whether commands are to come to no more blocks: what the queue had under way when it ended, by a Disconnect too, is kept
    /// from others, and what came later would not be.
    #[inline]
    pub(crate) fn is_ending(&self) -> bool {
        self.lease.closing() || self.ending.get()
    }

    /// Commands taken and not completed.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.outstanding.get()
    }

    /// How long one command more waits for drives that a pool lacks, and the count of those that do.
    pub(crate) fn wait_for_drives(&self) -> (Duration, Counted<'_>) {
        let is_crowded = self.lacking.get() >= usize::from(self.size).div_ceil(DRIVES_WAITING_PART);
        let patience = if is_crowded { DRIVES_PATIENCE_CROWDED } else { DRIVES_PATIENCE };
        (patience, Counted::new(&self.lacking))
    }

    /// What its host may have.
    #[must_use]
    pub fn share(&self) -> &Rc<Share> {
        self.seat.share()
    }

    /// Whether every entry is taken by a command whose completion has not left this side: a further one
    /// overruns the queue.
    pub(crate) fn is_full(&self) -> bool {
        usize32(self.outstanding.get()) + self.connection.unsent_responses()
            >= usize::from(self.size)
    }

    /// Whether the data of one more capsule may be kept.
    pub(crate) fn can_keep(&self) -> bool {
        self.share().capsules.admits(usize32(IO_IN_CAPSULE_BYTES))
            && !reactor::buffer::is_exhausted()
    }

    /// Waits until [it may](Self::can_keep).
    pub(crate) async fn until_can_keep(&self) {
        self.share().capsules.ledger().miss();
        drop(self.share().capsules.take(usize32(IO_IN_CAPSULE_BYTES)).await);
        drop(reactor::buffer::alloc(usize32(IO_IN_CAPSULE_BYTES)).await);
    }

    /// Takes an entry off the submission queue; false when its command identifier is in use
    /// (Command ID Conflict).
    pub(crate) fn admit(&self, cid: u16) -> bool {
        let next = self.head.get() + 1;
        self.head.set(if next >= self.size { 0 } else { next });
        let free = self.cids.borrow_mut().insert(cid) || self.forget_parked(cid);
        if free {
            if self.outstanding.get() == 0 {
                self.busy_since.set(reactor::now());
            }
            self.outstanding.set(self.outstanding.get() + 1);
        }
        free
    }

    /// Completes the Connect that made this queue: the first entry of the submission queue. SQHD
    /// FFFFh tells the host that flow control is off (Base 2.1, section 6.3).
    pub(crate) fn accept_connect(&self, cid: u16, dw0: u32) {
        self.admit(cid);
        self.retire(cid);
        let mut cqe = self.stamped(Cqe::new(cid, Status::SUCCESS));
        cqe.dw0 = dw0.into();
        if !self.flow_control {
            cqe.sqhd = u16::MAX.into();
        }
        self.connection.respond(&cqe);
    }

    /// Sends a completion for an entry that never became a request.
    pub(crate) fn refuse(&self, cid: u16, status: Status) {
        self.connection.respond(&self.stamped(Cqe::new(cid, status)));
    }

    /// Notes that a request waits for an event.
    fn park(&self, cid: u16) {
        self.parked.borrow_mut().push(cid);
    }

    /// Sends the completion of a parked request.
    pub(crate) fn complete_parked(&self, cqe: Cqe) {
        let cid = cqe.cid.get();
        self.parked.borrow_mut().retain(|&parked| parked != cid);
        self.retire(cid);
        self.connection.respond(&self.stamped(cqe));
    }

    /// Lets a parked request go without a completion.
    pub(crate) fn drop_parked(&self, cid: u16) {
        self.parked.borrow_mut().retain(|&parked| parked != cid);
        self.retire(cid);
    }

    /// Gives up a parked request whose identifier the host uses again; false when it is not one.
    /// Some hosts (SPDK's, when it shuts a controller down) forget their Asynchronous Event Requests
    /// without an Abort; to refuse their next command would leave the controller enabled.
    fn forget_parked(&self, cid: u16) -> bool {
        let mut parked = self.parked.borrow_mut();
        let Some(at) = parked.iter().position(|&p| p == cid) else { return false };
        parked.swap_remove(at);
        self.lease.controller().forget_event_request(cid);
        self.outstanding.set(self.outstanding.get() - 1);
        true
    }

    /// Completes a request, with data if there is some, and counts it.
    fn complete(&self, request: &Request, cqe: Cqe, payload: Option<Payload>) {
        self.retire(cqe.cid.get());
        self.count(request, cqe.status());
        let cqe = self.stamped(self.logged(request, self.delayed(cqe)));
        match payload {
            Some(payload) if !payload.is_empty() => self.connection.respond_data(payload, &cqe),
            _ => self.connection.respond(&cqe),
        }
    }

    /// Says when a command that may succeed later is to be sent again, to a host that asked for that (Base 2.1, section
    /// 4.2.3.1). At once, five attempts take some milliseconds.
    fn delayed(&self, mut cqe: Cqe) -> Cqe {
        let mut status = cqe.status();
        if status.is_success() {
            return cqe;
        }
        let is_later = !status.dnr() && LATER.iter().any(|&later| status.is(later));
        if is_later && status.retry_delay() == 0 {
            status = status.with_retry_delay(AFTER_LATER);
        }
        if status.retry_delay() != 0 && !self.lease.controller().delays_retries() {
            status = status.with_retry_delay(0);
        }
        cqe.status = status.to_field().into();
        cqe
    }

    /// Lets a request go that its host is to hear no more of, and counts it.
    fn forsake(&self, request: &Request) {
        self.retire(request.sqe().cid.get());
        self.count(request, Status::ABORTED_SQ_DELETION);
    }

    fn count(&self, request: &Request, status: Status) {
        if let Some(counters) = &request.counters {
            counters.count(request, status);
            metrics::count_health(self.lease.counters(), request, status);
        }
    }

    /// Enters a failed I/O command into the controller's Error Information log; the completion then
    /// says so (More). Commands that were aborted have not failed, and of admin commands the
    /// controller keeps the log.
    fn logged(&self, request: &Request, mut cqe: Cqe) -> Cqe {
        let status = cqe.status();
        let aborted = [Status::ABORT_REQUESTED, Status::ABORTED_SQ_DELETION];
        let failed = !status.is_success() && !aborted.iter().any(|&other| status.is(other));
        if failed && self.lease.qid() != 0 && !is_connect(request.sqe()) {
            let status = status.with_more();
            let lba = match status.code_type() {
                metrics::MEDIA_ERRORS => {
                    let [low, high] = [request.sqe().cdw10, request.sqe().cdw11];
                    u64::from(high.get()) << 32 | u64::from(low.get())
                }
                _ => 0,
            };
            let (qid, sqe) = (self.lease.qid(), request.sqe());
            let failure = Failure { qid, sqe, status, location: None, lba };
            self.lease.controller().log_error(&failure);
            cqe.status = status.to_field().into();
        }
        cqe
    }

    fn retire(&self, cid: u16) {
        self.cids.borrow_mut().remove(cid);
        self.outstanding.set(self.outstanding.get() - 1);
        if self.outstanding.get() == 0 {
            let busy = reactor::now().saturating_sub(self.busy_since.get());
            self.lease.counters().busy_ns.add(busy);
        }
    }

    /// The completion with SQ Head, which is reserved when flow control is off.
    fn stamped(&self, mut cqe: Cqe) -> Cqe {
        cqe.sqhd = if self.flow_control { self.head.get() } else { 0 }.into();
        cqe
    }

    /// Aborts an outstanding command if it has not begun to change anything; true when it did, and completes it at
    /// once. Where the host has data of it to send, that comes first.
    pub(crate) fn abort(&self, cid: u16) -> bool {
        self.abort_where(Status::ABORT_REQUESTED, |other, _| other == cid)
    }

    /// Aborts every command that has not begun to change anything, and those that come to wait from now on: the
    /// queue ends. What backends have of it comes before what hosts write there from now on.
    pub(crate) fn abort_waiting(&self) {
        self.ending.set(true);
        crate::command::lose(self.number);
        self.abort_where(Status::ABORTED_SQ_DELETION, |_, _| true);
    }

    /// The same for the commands of a namespace that is gone. The admin queue has none.
    pub(crate) fn abort_of(&self, nsid: u32) {
        let status = Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr();
        self.abort_where(status, |_, other| self.qid() != 0 && other == nsid);
    }

    /// Aborts the waiting commands that `is_meant` tells by their identifier and namespace; true when
    /// there was one that ends at once.
    fn abort_where(&self, status: Status, is_meant: impl Fn(u16, u32) -> bool) -> bool {
        let mut any = false;
        for (tag, phase) in (0..).zip(self.phases.borrow_mut().iter_mut()) {
            if let Phase::Waiting { cid, nsid, waker } = phase
                && is_meant(*cid, *nsid)
            {
                waker.wake_by_ref();
                *phase = Phase::Aborted(status);
                any |= !self.connection.is_transferring(tag);
            }
        }
        any
    }

    /// Notes that the command in slot `tag` waits where it may be aborted; its status when it was.
    fn wait(&self, tag: u16, sqe: &Sqe, waker: &Waker) -> Option<Status> {
        if self.ending.get() {
            return Some(Status::ABORTED_SQ_DELETION);
        }
        let mut phases = self.phases.borrow_mut();
        let index = usize::from(tag);
        if index >= phases.len() {
            phases.resize(index + 1, Phase::Running);
        }
        if let Phase::Aborted(status) = phases[index] {
            return Some(status);
        }
        let (cid, nsid) = (sqe.cid.get(), sqe.nsid.get());
        phases[index] = Phase::Waiting { cid, nsid, waker: waker.clone() };
        None
    }

    /// Notes that the command in slot `tag` waits no more.
    fn run(&self, tag: u16) {
        if let Some(phase) = self.phases.borrow_mut().get_mut(usize::from(tag)) {
            *phase = Phase::Running;
        }
    }
}

/// A Connect on a queue that is connected fails, and leaves no entry in the Error Information log (Base 2.1,
/// section 6.3).
pub(crate) fn is_connect(sqe: &Sqe) -> bool {
    sqe.opcode == opcode::admin::FABRICS && fctype(sqe) == opcode::fabrics::CONNECT
}

/// The command identifiers outstanding on a queue: one bit for each there can be.
struct CidSet(Box<[u64; 1024]>);

impl Default for CidSet {
    fn default() -> Self {
        Self(Box::new([0; 1024]))
    }
}

impl CidSet {
    fn insert(&mut self, cid: u16) -> bool {
        let (word, bit) = (usize::from(cid >> 6), 1 << (cid & 63));
        let free = self.0[word] & bit == 0;
        self.0[word] |= bit;
        free
    }

    fn remove(&mut self, cid: u16) {
        self.0[usize::from(cid >> 6)] &= !(1 << (cid & 63));
    }
}
