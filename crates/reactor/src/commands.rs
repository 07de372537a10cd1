//! A second ring of a reactor, for commands of drives: its entries are twice as long as those of the first
//! (`IORING_SETUP_SQE128`, `IORING_SETUP_CQE32`), which all that sockets and files do would pay for. The first command
//! makes it.
//!
//! While the reactor is awake its completions are looked for in each turn; while it sleeps in the first ring, that polls
//! this one's descriptor. Completions are posted by this thread, in its calls of either ring
//! (`IORING_SETUP_COOP_TASKRUN`): not `DEFER_TASKRUN`, as such a ring posts nothing that a poll of it could see before
//! it is entered.
//!
//! What the kernel may touch belongs to the command's slot until its completion. The kernel cancels no command of a
//! drive: one that nobody waits for stays where it is.
#![allow(unsafe_code, reason = "submission entries carry pointers the kernel follows")]

use crate::buffer::Buffer;
use crate::core;
use crate::file::{Change, Local, Place, Unawaited};
use crate::limits::{COMMAND_CQ_ENTRIES, COMMAND_SQ_ENTRIES, COMMANDS_MAX, COMPLETIONS_PER_TURN};
use crate::ring::{Ring, ignore_transient};
use io_uring::{IoUring, cqueue, squeue};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use stdx::Slab;
use stdx::num::low32;

/// What a command keeps alive while the kernel may use it.
pub(crate) struct Held {
    #[allow(dead_code, reason = "kept alive, not read")]
    pub file: Rc<Local>,
    pub buffer: Option<Buffer>,
    #[allow(dead_code, reason = "given back when dropped")]
    pub place: Place,
    /// What it changes is known until then.
    pub change: Option<Change>,
}

impl Held {
    /// Nobody waits for the command any more.
    fn leave(&self, why: Unawaited) {
        if let Some(change) = &self.change {
            change.leave(why);
        }
    }
}

/// What the kernel said of a command: 0, a status of NVMe, or an error number less than 0; and the drive's result.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub outcome: i32,
    pub result: u64,
}

enum State {
    /// In flight; the waker is of whoever awaits it.
    Flying(Option<Waker>),
    /// In flight, and nobody wants the answer.
    Orphan,
    Done(Answer),
}

struct Op {
    state: State,
    held: Held,
}

pub(crate) struct CommandRing {
    uring: RefCell<IoUring<squeue::Entry128, cqueue::Entry32>>,
    ops: RefCell<Slab<Op>>,
    /// Entries that found the submission queue full, and the kernel unable to take it.
    later: RefCell<VecDeque<squeue::Entry128>>,
    /// The first ring polls this one.
    watched: Cell<bool>,
    enters: Cell<u64>,
}

impl CommandRing {
    pub fn new() -> io::Result<Self> {
        let uring = IoUring::<squeue::Entry128, cqueue::Entry32>::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMMAND_CQ_ENTRIES)
            .build(COMMAND_SQ_ENTRIES)?;
        Ok(Self {
            uring: RefCell::new(uring),
            ops: RefCell::new(Slab::new(COMMANDS_MAX)),
            later: RefCell::default(),
            watched: Cell::new(false),
            enters: Cell::new(0),
        })
    }

    pub fn in_flight(&self) -> usize {
        self.ops.borrow().len()
    }

    pub fn enters(&self) -> u64 {
        self.enters.get()
    }

    /// Starts a command that keeps `held` until its completion: its place implies a slot.
    ///
    /// # Safety
    /// `entry` names nothing but the file of `held`, and points to nothing but the bytes of its buffer.
    pub unsafe fn start(&self, entry: squeue::Entry128, held: Held) -> CommandFuture {
        let op = Op { state: State::Flying(None), held };
        let Ok(id) = self.ops.borrow_mut().insert(op) else {
            unreachable!("there are slots for all places of files")
        };
        self.later.borrow_mut().push_back(entry.user_data(u64::from(id)));
        self.refill();
        if !self.later.borrow().is_empty() {
            // An error is met again, and reported, by the turn that enters with what is still to be taken.
            let _ = self.enter();
        }
        CommandFuture { id: Some(id) }
    }

    /// Moves entries that wait into the submission queue, as many as it takes.
    fn refill(&self) {
        let mut later = self.later.borrow_mut();
        let mut uring = self.uring.borrow_mut();
        let mut queue = uring.submission();
        while let Some(entry) = later.front() {
            // SAFETY: whoever started it promised; the slot keeps what it points to.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            later.pop_front();
        }
    }

    /// Whether the kernel must be entered: commands queued, or completions waiting for us to post them.
    pub fn wants_enter(&self) -> bool {
        if !self.later.borrow().is_empty() {
            return true;
        }
        let mut uring = self.uring.borrow_mut();
        let queue = uring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Submits what is queued and has completions posted, without waiting.
    pub fn enter(&self) -> io::Result<()> {
        self.refill();
        self.enters.set(self.enters.get() + 1);
        // The crate asks for events by itself when the task-run flag is set.
        ignore_transient(self.uring.borrow().submit())?;
        self.refill();
        Ok(())
    }

    /// Has the first ring wake the reactor when a command ends, if any is in flight.
    pub fn watch(&self, ring: &Ring) {
        if self.in_flight() > 0 && !self.watched.replace(true) {
            ring.watch_commands(self.uring.borrow().as_raw_fd());
        }
    }

    /// The first ring's poll ended.
    pub fn unwatched(&self) {
        self.watched.set(false);
    }

    /// Hands completions to whoever awaits them; tells whether there were any.
    pub fn reap(&self) -> bool {
        let mut any = false;
        for _ in 0..COMPLETIONS_PER_TURN {
            // One borrow for each: completing drops what the command held.
            let Some(cqe) = self.uring.borrow_mut().completion().next() else { break };
            any = true;
            let answer = Answer { outcome: cqe.result(), result: cqe.big_cqe()[0] };
            self.complete(low32(cqe.user_data()), answer);
        }
        any
    }

    fn complete(&self, id: u32, answer: Answer) {
        let mut ops = self.ops.borrow_mut();
        let Some(op) = ops.get_mut(id) else {
            debug_assert!(false, "completion of a command that is not in flight");
            return;
        };
        match std::mem::replace(&mut op.state, State::Done(answer)) {
            State::Flying(waker) => {
                drop(ops);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Orphan => {
                let op = ops.remove(id);
                drop(ops);
                drop(op);
            }
            State::Done(_) => debug_assert!(false, "a command completed twice"),
        }
    }
}

/// A command in flight. Dropped early, its slot keeps what the kernel may touch until the completion.
#[must_use = "nobody learns how the command ends"]
pub(crate) struct CommandFuture {
    id: Option<u32>,
}

impl CommandFuture {
    /// Has its file know that nobody waits for it, for as long as the kernel has it, where it is a change.
    pub fn leave(&self, why: Unawaited) {
        let Some(id) = self.id else { return };
        core::try_with(|core| {
            let Ok(commands) = core.commands() else { return };
            let ops = commands.ops.borrow();
            ops.get(id).inspect(|op| op.held.leave(why));
        });
    }
}

impl Future for CommandFuture {
    type Output = (Answer, Option<Buffer>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(id) = self.id else { return Poll::Pending };
        core::with(|core| {
            let Ok(commands) = core.commands() else { return Poll::Pending };
            let mut ops = commands.ops.borrow_mut();
            let Some(op) = ops.get_mut(id) else { return Poll::Pending };
            if let State::Done(answer) = op.state {
                let buffer = ops.remove(id).and_then(|op| op.held.buffer);
                self.id = None;
                return Poll::Ready((answer, buffer));
            }
            op.state = State::Flying(Some(cx.waker().clone()));
            Poll::Pending
        })
    }
}

impl Drop for CommandFuture {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Without a reactor the ring is gone, and the command with it.
        core::try_with(|core| {
            let Ok(commands) = core.commands() else { return };
            let mut ops = commands.ops.borrow_mut();
            let Some(op) = ops.get_mut(id) else { return };
            if matches!(op.state, State::Done(_)) {
                let op = ops.remove(id);
                drop(ops);
                drop(op);
                return;
            }
            op.state = State::Orphan;
        });
    }
}
