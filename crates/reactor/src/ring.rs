//! The io_uring of one reactor and the operations in flight on it.
//!
//! What the kernel may touch belongs to the operation's slot until its last completion: a future
//! dropped early leaves its buffer and descriptor there.
#![allow(unsafe_code, reason = "submission entries carry pointers the kernel follows")]

use crate::bell::Bell;
use crate::buffer::Buffer;
use crate::core;
use crate::error::Error;
use crate::file::{Change, Local, Place, Unawaited};
use crate::limits::{COMPLETIONS_PER_TURN, CQ_ENTRIES, OPS_MAX, SQ_ENTRIES, WAITS_MAX};
use crate::task::yield_now;
use crate::time::Nanos;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use stdx::Slab;
use stdx::num::low32;

/// What an operation keeps alive while the kernel may use it.
pub(crate) enum Hold {
    Nothing,
    #[allow(dead_code, reason = "kept alive, not read")]
    Fd(Rc<OwnedFd>),
    File {
        #[allow(dead_code, reason = "kept alive, not read")]
        file: Rc<Local>,
        buffer: Option<Buffer>,
        #[allow(dead_code, reason = "given back when dropped")]
        place: Place,
        /// What it changes is known until then.
        change: Option<Change>,
    },
}

impl Hold {
    /// How many of the ring's waits the operation is: file operations have slots of their own.
    const fn waits(&self) -> usize {
        match self {
            Self::Nothing | Self::Fd(_) => 1,
            Self::File { .. } => 0,
        }
    }

    /// Nobody waits for the operation any more.
    fn leave(&self, why: Unawaited) {
        if let Self::File { change: Some(change), .. } = self {
            change.leave(why);
        }
    }
}

enum State {
    /// In flight; the waker is of whoever awaits it.
    Flying(Option<Waker>),
    /// In flight, and nobody wants the answer.
    Orphan,
    Done(i32),
}

struct Op {
    state: State,
    hold: Hold,
}

/// User data of entries whose completion nobody awaits.
const IGNORED: u64 = u64::MAX;
/// User data of the mailbox's poll.
const MAIL: u64 = u64::MAX - 1;
/// User data of the poll of the ring for commands.
const COMMANDS: u64 = u64::MAX - 2;

pub(crate) struct Ring {
    uring: RefCell<IoUring>,
    ops: RefCell<Slab<Op>>,
    /// Operations in flight that are not of files.
    waits: Cell<usize>,
    /// Entries that found the submission queue full, and the kernel unable to take it: they go with the next ones.
    later: RefCell<VecDeque<squeue::Entry>>,
    enters: Cell<u64>,
}

/// What reaping found.
#[derive(Default)]
pub(crate) struct Reaped {
    pub any: bool,
    /// The mailbox's poll ended and must be armed again.
    pub mail_poll_ended: bool,
    /// The poll of the ring for commands ended: something is there.
    pub commands_poll_ended: bool,
}

impl Ring {
    pub fn new() -> Result<Self, Error> {
        // NO_SQARRAY came with Linux 6.6; everything else is in 6.1.
        let build = |no_array: bool| {
            let mut builder = IoUring::builder();
            builder
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag()
                .setup_submit_all()
                .setup_cqsize(CQ_ENTRIES);
            if no_array {
                builder.setup_no_sqarray();
            }
            builder.build(SQ_ENTRIES)
        };
        let uring = build(true).or_else(|_| build(false)).map_err(Error::Ring)?;
        if !uring.params().is_feature_nodrop() || !uring.params().is_feature_ext_arg() {
            return Err(Error::Ring(io::ErrorKind::Unsupported.into()));
        }
        Ok(Self {
            uring: RefCell::new(uring),
            ops: RefCell::new(Slab::new(OPS_MAX)),
            waits: Cell::new(0),
            later: RefCell::default(),
            enters: Cell::new(0),
        })
    }

    pub fn in_flight(&self) -> usize {
        self.ops.borrow().len()
    }

    pub fn enters(&self) -> u64 {
        self.enters.get()
    }

    /// Queues an entry, for the end of the turn at the latest.
    ///
    /// # Safety
    /// Whatever `entry` points to stays valid until its completion.
    unsafe fn push(&self, entry: &squeue::Entry) {
        if self.later.borrow().is_empty() {
            // SAFETY: the caller's promise.
            if unsafe { self.uring.borrow_mut().submission().push(entry) }.is_ok() {
                return;
            }
        }
        self.later.borrow_mut().push_back(entry.clone());
        // An error is met again, and reported, by the turn that enters with what is still to be taken.
        let _ = self.enter();
    }

    /// Moves entries that wait into the submission queue, as many as it takes.
    fn refill(&self) {
        let mut later = self.later.borrow_mut();
        if later.is_empty() {
            return;
        }
        let mut uring = self.uring.borrow_mut();
        let mut queue = uring.submission();
        while let Some(entry) = later.front() {
            // SAFETY: whoever pushed it promised.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            later.pop_front();
        }
    }

    /// Starts an operation on a file: its place implies a slot.
    ///
    /// # Safety
    /// `entry` points to nothing but `file` and the bytes of `buffer`.
    pub unsafe fn start_file(
        &self,
        entry: squeue::Entry,
        file: Rc<Local>,
        buffer: Option<Buffer>,
        place: Place,
        change: Option<Change>,
    ) -> OpFuture {
        // SAFETY: the slot keeps what the entry points to.
        unsafe { self.start(entry, Hold::File { file, buffer, place, change }) }
    }

    /// Starts an operation on another descriptor; `None` when there are as many waits as there may be.
    ///
    /// # Safety
    /// `entry` points to nothing but `fd`.
    pub unsafe fn start_wait(&self, entry: squeue::Entry, fd: &Rc<OwnedFd>) -> Option<OpFuture> {
        if self.waits.get() == WAITS_MAX {
            return None;
        }
        // SAFETY: the descriptor stays open with the slot, so that its number cannot be reused before the kernel has
        // looked at it.
        Some(unsafe { self.start(entry, Hold::Fd(Rc::clone(fd))) })
    }

    /// Starts an operation that keeps `hold` until its completion.
    ///
    /// # Safety
    /// Whatever `entry` points to is kept alive by `hold`.
    unsafe fn start(&self, entry: squeue::Entry, hold: Hold) -> OpFuture {
        let waits = self.waits.get() + hold.waits();
        let op = Op { state: State::Flying(None), hold };
        let Ok(id) = self.ops.borrow_mut().insert(op) else {
            unreachable!("there are slots for all waits and for all places of files")
        };
        self.waits.set(waits);
        // SAFETY: `hold` is in the slot now, and stays there until the completion.
        unsafe { self.push(&entry.user_data(u64::from(id))) };
        OpFuture { id: Some(id) }
    }

    /// Takes an operation out of its slot.
    fn take(&self, ops: &mut Slab<Op>, id: u32) -> Option<Op> {
        let op = ops.remove(id)?;
        self.waits.set(self.waits.get() - op.hold.waits());
        Some(op)
    }

    /// Waits for `events` (`POLLIN`, `POLLOUT`) on `fd`, once; `None` when there are as many waits as there may be.
    pub fn start_poll(&self, fd: &Rc<OwnedFd>, events: i16) -> Option<OpFuture> {
        let mask = u32::from(events.cast_unsigned());
        let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), mask).build();
        // SAFETY: the entry points to nothing.
        unsafe { self.start_wait(entry, fd) }
    }

    /// Arms the multishot poll of the mailbox's eventfd, open as long as the ring.
    pub fn arm_mail(&self, bell: &Bell) {
        let fd = types::Fd(bell.as_fd().as_raw_fd());
        let mask = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(fd, mask).multi(true).build().user_data(MAIL);
        // SAFETY: the entry points to nothing.
        unsafe { self.push(&entry) };
    }

    /// Polls the ring for commands, once. It is open as long as this one.
    pub fn watch_commands(&self, fd: RawFd) {
        let mask = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(types::Fd(fd), mask).build().user_data(COMMANDS);
        // SAFETY: the entry points to nothing.
        unsafe { self.push(&entry) };
    }

    fn cancel(&self, id: u32) {
        let entry = opcode::AsyncCancel::new(u64::from(id)).build().user_data(IGNORED);
        // SAFETY: the entry points to nothing.
        unsafe { self.push(&entry) };
    }

    /// Asks the kernel to end every operation in flight.
    pub fn cancel_all(&self) {
        let ids: Vec<u32> = self.ops.borrow().iter().map(|(id, _)| id).collect();
        for id in ids {
            self.cancel(id);
        }
    }

    /// Whether the kernel must be entered: entries queued, or completions waiting for us to run
    /// them (`DEFER_TASKRUN` runs task work only in an enter of ours).
    #[inline]
    pub fn wants_enter(&self) -> bool {
        if !self.later.borrow().is_empty() {
            return true;
        }
        let mut uring = self.uring.borrow_mut();
        let sq = uring.submission();
        !sq.is_empty() || sq.taskrun() || sq.cq_overflow()
    }

    /// Submits what is queued and runs deferred task work, without waiting.
    pub fn enter(&self) -> io::Result<()> {
        self.refill();
        self.enters.set(self.enters.get() + 1);
        // The crate asks for events by itself when the task-run flag is set.
        ignore_transient(self.uring.borrow().submit())?;
        self.refill();
        Ok(())
    }

    /// Submits what is queued and sleeps until a completion, or for `nanos`.
    pub fn sleep(&self, nanos: Nanos) -> io::Result<()> {
        if !self.later.borrow().is_empty() {
            return self.enter();
        }
        self.enters.set(self.enters.get() + 1);
        let wait = Timespec::new().sec(nanos / 1_000_000_000).nsec(low32(nanos % 1_000_000_000));
        let args = SubmitArgs::new().timespec(&wait);
        ignore_transient(self.uring.borrow().submitter().submit_with_args(1, &args))
    }

    /// Hands completions to whoever awaits them.
    pub fn reap(&self) -> Reaped {
        let mut found = Reaped::default();
        for _ in 0..COMPLETIONS_PER_TURN {
            // One borrow for each: completing drops what the operation held, and that may come back
            // to this ring.
            let Some(cqe) = self.uring.borrow_mut().completion().next() else { break };
            found.any = true;
            match cqe.user_data() {
                IGNORED => {}
                MAIL => found.mail_poll_ended |= !cqueue::more(cqe.flags()),
                COMMANDS => found.commands_poll_ended = true,
                id => self.complete(low32(id), cqe.result()),
            }
        }
        found
    }

    fn complete(&self, id: u32, result: i32) {
        let mut ops = self.ops.borrow_mut();
        let Some(op) = ops.get_mut(id) else {
            debug_assert!(false, "completion of an operation that is not in flight");
            return;
        };
        match std::mem::replace(&mut op.state, State::Done(result)) {
            State::Flying(waker) => {
                drop(ops);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Orphan => {
                let op = self.take(&mut ops, id);
                drop(ops);
                drop(op);
            }
            State::Done(_) => debug_assert!(false, "an operation completed twice"),
        }
    }
}

/// Waits for `events` (`POLLIN`, `POLLOUT`) on `fd` with this thread's ring, and for a slot there if need be.
///
/// # Errors
/// In simulation, which has no ring.
pub(crate) async fn ready(fd: &Rc<OwnedFd>, events: i16) -> io::Result<()> {
    loop {
        match core::with(|core| Ok::<_, io::Error>(core.driver.ring()?.start_poll(fd, events)))? {
            Some(op) => {
                // Whatever the poll says, the next call on the descriptor knows better.
                let _ = op.await;
                return Ok(());
            }
            None => yield_now().await,
        }
    }
}

/// Interrupted, timed out, or out of room for completions: all end by going round the loop again.
pub(crate) fn ignore_transient(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(e) => match e.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(e),
        },
    }
}

/// An operation in flight. Dropped early, it is cancelled, and its slot keeps what the kernel may
/// touch until the completion.
#[must_use = "dropping an operation cancels it"]
pub(crate) struct OpFuture {
    id: Option<u32>,
}

impl OpFuture {
    /// Has its file know that nobody waits for it, for as long as the kernel has it, where it is a change.
    pub fn leave(&self, why: Unawaited) {
        let Some(id) = self.id else { return };
        core::try_with(|core| {
            let Ok(ring) = core.driver.ring() else { return };
            let ops = ring.ops.borrow();
            ops.get(id).inspect(|op| op.hold.leave(why));
        });
    }
}

impl Future for OpFuture {
    type Output = (i32, Hold);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(id) = self.id else { return Poll::Pending };
        core::with(|core| {
            let Ok(ring) = core.driver.ring() else { return Poll::Pending };
            let mut ops = ring.ops.borrow_mut();
            let Some(op) = ops.get_mut(id) else { return Poll::Pending };
            if let State::Done(result) = op.state {
                let hold = ring.take(&mut ops, id).map_or(Hold::Nothing, |op| op.hold);
                self.id = None;
                return Poll::Ready((result, hold));
            }
            op.state = State::Flying(Some(cx.waker().clone()));
            Poll::Pending
        })
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Without a reactor the ring is gone, and the operation with it.
        core::try_with(|core| {
            let Ok(ring) = core.driver.ring() else { return };
            let mut ops = ring.ops.borrow_mut();
            let Some(op) = ops.get_mut(id) else { return };
            if matches!(op.state, State::Done(_)) {
                let op = ring.take(&mut ops, id);
                drop(ops);
                drop(op);
                return;
            }
            op.state = State::Orphan;
            op.hold.leave(Unawaited::Left);
            drop(ops);
            ring.cancel(id);
        });
    }
}
