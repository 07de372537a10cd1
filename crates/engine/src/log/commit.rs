//! Group commit to drives: records gather in the ring's image while one write is in flight; the next
//! write takes them all.

use super::Shared;
use super::device::commit_len;
use super::limits::PAGE;
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use reactor::sync::Notify;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use stdx::num::u64_of;

/// The state of group commit.
pub(super) struct Commits {
    /// Records wait to be written, or the log ends.
    wanted: Notify,
    writing: Cell<bool>,
    /// There is a task that writes them.
    running: Cell<bool>,
    /// Appends waiting for their record to be durable, by sequence.
    waiters: RefCell<VecDeque<(u64, Waker)>>,
}

impl Commits {
    pub fn new() -> Self {
        Self {
            wanted: Notify::new(),
            writing: Cell::new(false),
            running: Cell::new(false),
            waiters: RefCell::new(VecDeque::new()),
        }
    }

    pub const fn is_writing(&self) -> bool {
        self.writing.get()
    }

    pub const fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Has the task that writes look whether it is still to.
    pub fn look(&self) {
        self.wanted.notify();
    }

    pub fn end(&self) {
        self.wanted.notify();
        for (_, waker) in self.waiters.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    fn wait(&self, sequence: u64, waker: &Waker) {
        let mut waiters = self.waiters.borrow_mut();
        // Several may wait for one record: who appended it, and who wants all before now settled.
        let at = waiters.partition_point(|w| w.0 < sequence);
        let mut same = waiters.range(at..).take_while(|w| w.0 == sequence);
        if !same.any(|w| w.1.will_wake(waker)) {
            waiters.insert(at, (sequence, waker.clone()));
        }
    }

    /// Wakes those whose record comes before `sequence`.
    fn wake_before(&self, sequence: u64) {
        let mut waiters = self.waiters.borrow_mut();
        while waiters.front().is_some_and(|w| w.0 < sequence) {
            if let Some((_, waker)) = waiters.pop_front() {
                waker.wake();
            }
        }
    }
}

/// The task that writes commits, until the log ends or its records go straight to memory.
pub(super) async fn run(shared: Rc<Shared>) {
    assert!(!shared.commits.running.replace(true), "one task writes commits");
    write_all(&shared).await;
    assert!(!shared.commits.is_writing(), "who writes commits ends between two");
    assert!(shared.commits.running.replace(false), "one task writes commits");
}

async fn write_all(shared: &Shared) {
    while shared.ended.get().is_none() && !shared.store.is_memory() {
        assert!(!shared.commits.writing.replace(true), "one commit is written at a time");
        let result = shared.commit_all().await;
        shared.commits.writing.set(false);
        if result.is_err() {
            shared.end(Kind::Failed);
            return;
        }
        shared.commits.wanted.notified().await;
    }
}

impl Shared {
    /// Waits until the record of this sequence is durable.
    pub(super) async fn committed(&self, sequence: u64) -> Result<()> {
        self.commits.wanted.notify();
        poll_fn(|cx| {
            if canary::has(Canary::AcknowledgesEarly) {
                return Poll::Ready(Ok(()));
            }
            if self.ring.borrow().settled.sequence > sequence {
                return Poll::Ready(Ok(()));
            }
            if let Some(kind) = self.ended.get() {
                let context = "the commit log ended before the record was durable";
                return Poll::Ready(Err(Error::new(kind, context)));
            }
            self.commits.wait(sequence, cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Writes until nothing is left to write, or a range is reserved: a commit ends with a page, and what was
    /// reserved begins where the head is.
    async fn commit_all(&self) -> Result<()> {
        let is_due = || {
            let ring = self.ring.borrow();
            ring.settled != ring.head && !ring.is_reserved()
        };
        while is_due() {
            let (from, to) = {
                let mut ring = self.ring.borrow_mut();
                ring.pad_page(&self.store)?;
                // The page a longer record was torn at is written again: the same bytes.
                (ring.settled.position / PAGE * PAGE, ring.head.position)
            };
            self.commit_range(from, to).await?;
            let settled = self.ring.borrow().settled.position;
            assert!(settled >= to, "what a commit wrote can be looked up");
        }
        Ok(())
    }

    async fn commit_range(&self, mut from: u64, to: u64) -> Result<()> {
        while from < to {
            let (at, len) = {
                let ring = self.ring.borrow();
                let at = ring.at(from);
                (at, commit_len(at, to - from, ring.control.ring_bytes))
            };
            assert!(len > 0, "a commit comes to its end");
            self.store.commit(at, len).await?;
            from += u64_of(len);
            let mut ring = self.ring.borrow_mut();
            let before = ring.settled.sequence;
            ring.settle(from, &self.store)?;
            let settled = ring.settled.sequence;
            assert!(before <= settled, "what is durable stays so");
            drop(ring);
            self.commits.wake_before(settled);
            self.work.notify();
            self.more.notify();
        }
        Ok(())
    }
}
