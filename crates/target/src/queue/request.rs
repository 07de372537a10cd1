//! One command on its way: its entry, its data, and the duty to complete it.

use core::cell::{Cell, Ref, RefCell};
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::Poll;
use std::rc::Rc;

use fabric::controller::{CapsulePlace, TransferError};
use fabric::payload::Payload;
use nvme::cqe::Cqe;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::Nanos;
use reactor::budget::{Account, Grant};
use reactor::buffer::Buffer;
use reactor::turns::Party;
use stdx::num::usize32;

use super::Queue;
use super::slots::Spare;
use crate::canary::{self, Canary};
use crate::command::{Attached, Reply};
use crate::metrics::Counters;

/// Where in-capsule data is.
pub(super) enum InCapsule {
    /// Where it was received, for the turn in which it arrived.
    Place(CapsulePlace),
    /// Copied, because the command starts in a later turn: the first half of a fused pair.
    Kept(RefCell<Vec<u8>>),
}

/// A command that must be completed. Completing consumes it; one that is dropped is completed with
/// Internal Error, and is a defect that panics in tests.
pub struct Request {
    pub(super) queue: Rc<Queue>,
    pub(super) sqe: Sqe,
    /// The command's slot, which is its transfer tag.
    pub(super) tag: u16,
    pub(super) data: InCapsule,
    pub(super) arrived: Nanos,
    pub(super) counters: Option<Rc<Counters>>,
    /// The namespace that it was begun on.
    pub(super) begun_on: Option<Rc<Attached>>,
    /// Keeps the tag, when the command runs in another's slot.
    pub(super) _spare: Option<Spare>,
    pub(super) completed: Cell<bool>,
}

impl Request {
    #[must_use]
    pub const fn sqe(&self) -> &Sqe {
        &self.sqe
    }

    #[must_use]
    pub const fn queue(&self) -> &Rc<Queue> {
        &self.queue
    }

    /// When the turn began in which the command arrived.
    #[must_use]
    pub const fn arrived(&self) -> Nanos {
        self.arrived
    }

    /// Length in bytes of the data buffer that the host's SGL describes; 0 for a descriptor that
    /// NVMe/TCP does not have.
    #[must_use]
    pub fn sgl_bytes(&self) -> usize {
        self.sqe.dptr.data().map_or(0, |pointer| usize32(pointer.length()))
    }

    /// Counts this command, from now until it is completed, among those of a namespace; once, however often
    /// it is asked to.
    pub(crate) fn count_in(&mut self, counters: &Rc<Counters>) {
        if self.counters.is_none() {
            counters.begin();
            self.counters = Some(counters.clone());
        }
    }

    /// The capsule's data, whole; `None` after the turn in which the command was started.
    #[must_use]
    pub fn in_capsule(&self) -> Option<Ref<'_, [u8]>> {
        match &self.data {
            InCapsule::Place(place) => self.queue.connection.in_capsule(place),
            InCapsule::Kept(bytes) => Some(Ref::map(bytes.borrow(), Vec::as_slice)),
        }
    }

    /// Has the host send `length` bytes to the start of `buffer`.
    ///
    /// # Errors
    /// Transient Transport Error for a data digest that did not match; Command Abort Requested; Invalid Namespace
    /// or Format when the namespace was removed; Command Aborted due to SQ Deletion when the queue ends. The buffer
    /// is back in its pool then.
    pub async fn receive(&self, length: u32, buffer: Buffer) -> Result<Buffer, Status> {
        let cid = self.sqe.cid.get();
        let transfer = self.queue.connection.transfer(self.tag, cid, length, buffer);
        match self.unless_aborted(pin!(transfer)).await {
            Ok(Err(_)) | Err(_) if canary::has(Canary::WritesWhatNeverCame) => {
                Ok(reactor::buffer::alloc(usize32(length)).await)
            }
            Ok(received) => {
                let buffer = received.map_err(|e| match e {
                    TransferError::DataDigest => Status::TRANSIENT_TRANSPORT_ERROR,
                    TransferError::Closed => Status::ABORTED_SQ_DELETION,
                })?;
                // What is done with it takes at least as long as a copy of it.
                self.turn(usize32(length)).await?;
                Ok(buffer)
            }
            // Its data has no place any more; see `data_sent`.
            Err(aborted) => Err(aborted),
        }
    }

    /// Waits until the host has sent all that it was asked for; to be awaited before a command is completed that may have
    /// asked. A host that hears of a command's end while it sends the data lets go of what it is sending, or sends it for
    /// the command that comes next. Where the queue ends before that, the host hears nothing: with its connection it has
    /// the command back.
    pub async fn data_sent(&self) {
        if !self.queue.connection.rest_of_transfer(self.tag).await && !self.completed.replace(true)
        {
            self.queue.forsake(self);
        }
    }

    /// Whether the host has taken enough of what this connection already holds for it, and its share has `bytes` more.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.queue.connection.has_room() && self.queue.share().data.admits(bytes)
    }

    /// Waits until the host's share has `bytes` more, which it is to bring.
    ///
    /// # Errors
    /// The command was aborted, or its queue ends.
    pub async fn hold(&self, bytes: usize) -> Result<Grant, Status> {
        self.take(&self.queue.share().data, bytes).await
    }

    /// As [`Request::hold`], for `bytes` that the host is to take, also until it has taken enough of what there is.
    ///
    /// # Errors
    /// As there.
    pub async fn hold_to_send(&self, bytes: usize) -> Result<Grant, Status> {
        if !self.queue.connection.has_room() {
            self.unless_aborted(pin!(self.queue.connection.room())).await?;
        }
        self.hold(bytes).await
    }

    /// Notes that `bytes` of the capsule are kept.
    pub fn keep(&self, bytes: usize) -> Grant {
        self.queue.share().capsules.grant(bytes)
    }

    /// Waits for the host's turn to do a piece of work that takes as long as to move so many bytes.
    ///
    /// # Errors
    /// As [`Request::hold`].
    pub async fn work(&self, bytes: usize) -> Result<Grant, Status> {
        let grant = self.take(&self.queue.share().work, 1).await?;
        self.turn(bytes).await?;
        Ok(grant)
    }

    /// Refuses to go on with a command whose queue is lost. Its host may have it done by another path already, and have
    /// written something newer there since: what is not in the backend yet must not come to it.
    ///
    /// # Errors
    /// Command Aborted due to SQ Deletion.
    #[inline]
    pub fn permit(&self) -> Result<(), Status> {
        if self.queue.is_lost() { Err(Status::ABORTED_SQ_DELETION) } else { Ok(()) }
    }

    /// Waits for the host's turn of the core, to do what takes as long as to move so many bytes. It comes without the
    /// host.
    async fn turn(&self, bytes: usize) -> Result<(), Status> {
        if Party::is_bounded() {
            self.queue.share().turns.work(bytes).await;
        }
        self.permit()
    }

    /// Waits until the host's share of something has so much more.
    ///
    /// # Errors
    /// As [`Request::hold`].
    pub async fn take(&self, account: &Rc<Account>, amount: usize) -> Result<Grant, Status> {
        self.permit()?;
        match account.try_take(amount) {
            Some(grant) => Ok(grant),
            None => self.unless_aborted(pin!(account.take(amount))).await,
        }
    }

    /// Awaits `wait` while the command may be aborted.
    ///
    /// # Errors
    /// As [`Request::hold`].
    pub async fn unless_aborted<F: Future>(
        &self,
        mut wait: Pin<&mut F>,
    ) -> Result<F::Output, Status> {
        let outcome = poll_fn(|cx| {
            if let Some(status) = self.queue.wait(self.tag, &self.sqe, cx.waker()) {
                return Poll::Ready(Err(status));
            }
            wait.as_mut().poll(cx).map(Ok)
        })
        .await;
        self.queue.run(self.tag);
        outcome
    }

    /// Completes as the command's execution says.
    pub fn complete(self, reply: Reply) {
        let mut cqe = reply.cqe(self.sqe.cid.get());
        match reply.data {
            Some(data) if data.len() > self.sgl_bytes() => {
                cqe.status = Status::DATA_SGL_LENGTH_INVALID.with_dnr().to_field().into();
                self.send(cqe, None);
            }
            data => self.send(cqe, data),
        }
    }

    /// Completes successfully with data for the host.
    pub fn complete_data(self, payload: Payload) {
        self.complete(Reply { status: Status::SUCCESS, dw0: 0, data: Some(payload) });
    }

    /// Completes with a status and no result.
    pub fn fail(self, status: Status) {
        self.send(Cqe::new(self.sqe.cid.get(), status), None);
    }

    /// Completes successfully with command specific results.
    pub fn complete_result(self, dw0: u32, dw1: u32) {
        let mut cqe = Cqe::new(self.sqe.cid.get(), Status::SUCCESS);
        cqe.dw0 = dw0.into();
        cqe.dw1 = dw1.into();
        self.send(cqe, None);
    }

    /// Ends the queue for its Disconnect, which is completed when no other command of the queue is left: nothing of
    /// the queue is processed after that completion (Base 2.1, section 6.4).
    pub fn disconnect(self) {
        let queue = Rc::clone(&self.queue);
        queue.disconnect.replace(Some(self));
        queue.ended.notify();
    }

    /// Leaves the completion to an event: an Asynchronous Event Request that the controller parked.
    pub fn park(self) {
        self.completed.set(true);
        self.queue.park(self.sqe.cid.get());
    }

    fn send(&self, cqe: Cqe, payload: Option<Payload>) {
        if !self.completed.replace(true) {
            self.queue.complete(self, cqe, payload);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.completed.get() && !self.queue.connection.is_closed() {
            debug_assert!(std::thread::panicking(), "a command was dropped uncompleted");
            self.send(Cqe::new(self.sqe.cid.get(), Status::INTERNAL_ERROR), None);
        }
    }
}
