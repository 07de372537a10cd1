//! The tasks that run a worker's commands: as many as it may have outstanding, each with a command at a time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use reactor::sync::Notify;
use reactor::{Nanos, now_exact};

use crate::endpoint::{Endpoint, Failed};
use crate::limits::{IDLE_NS, STRAIGHT_MAX};
use crate::worker::{Fault, Next, Part, Worker};

/// A worker and those who work for it.
pub struct Crew {
    worker: RefCell<Worker>,
    endpoint: Endpoint,
    /// Hands that found nothing to do.
    idle: RefCell<Vec<Waker>>,
    /// Hands that have not left.
    hands: Cell<u16>,
    /// There is something for [`Crew::run`] to look at.
    news: Notify,
    fault: Cell<Option<Fault>>,
}

impl Crew {
    pub fn new(worker: Worker, endpoint: Endpoint) -> Rc<Self> {
        Rc::new(Self {
            worker: RefCell::new(worker),
            endpoint,
            idle: RefCell::default(),
            hands: Cell::new(0),
            news: Notify::new(),
            fault: Cell::new(None),
        })
    }

    /// The worker, while nothing runs.
    pub fn worker(&self) -> std::cell::RefMut<'_, Worker> {
        self.worker.borrow_mut()
    }

    /// Runs commands until there are none any more. `stopped` ends it early.
    ///
    /// # Errors
    /// [`Fault`].
    pub async fn run(self: &Rc<Self>, stopped: impl Fn() -> bool) -> Result<(), Fault> {
        let hands = self.worker().book.share.lane_depth;
        self.hands.set(hands);
        for _ in 0..hands {
            reactor::spawn(Rc::clone(self).work());
        }
        while self.hands.get() > 0 {
            let now = now_exact();
            if stopped() {
                self.worker().stop();
                self.wake_all();
            }
            let due = self.worker().due();
            if due.is_some_and(|due| due <= now) {
                self.wake_one();
            }
            let until = due.filter(|due| *due > now).unwrap_or(Nanos::MAX);
            let until = until.min(now.saturating_add(IDLE_NS));
            initiator::race(self.news.notified(), reactor::sleep_until(until)).await;
            self.worker().book.note()?;
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// One of them: takes commands as they come.
    async fn work(self: Rc<Self>) {
        let (largest, checks, payload) = {
            let book = &self.worker().book;
            (book.share.largest(), book.share.checks(), Rc::clone(&book.payload))
        };
        let mut room = self.endpoint.room(largest, checks, &payload).await;
        let (mut now, mut straight) = (None, 0);
        while let Some(part) = self.next(now).await {
            let command = {
                let worker = self.worker.borrow();
                worker.fill(&part, room.bytes_mut());
                worker.command(&part)
            };
            let result = match self.endpoint.run(command, &mut room).await {
                Ok(()) => Ok(()),
                Err(Failed::Command(status)) => Err(status),
                Err(Failed::Endpoint(error)) => return self.fail(error.into()),
            };
            let ended = now_exact();
            now = Some(ended);
            self.complete(part, result, room.bytes_mut(), ended);
            straight += 1;
            if self.endpoint.is_direct() && straight >= STRAIGHT_MAX {
                (now, straight) = (None, 0);
                reactor::yield_now().await;
            }
        }
        self.wake_all();
        self.hands.set(self.hands.get() - 1);
        if self.hands.get() == 0 {
            self.news.notify();
        }
    }

    #[inline]
    fn complete(&self, part: Part, result: Result<(), String>, bytes: &mut [u8], ended: Nanos) {
        let mut worker = self.worker.borrow_mut();
        worker.complete(part, result, bytes, ended);
        if worker.book.has_notes() {
            self.news.notify();
        }
    }

    /// Waits for the next command; none when there are none any more. `now` is known to who comes from the last.
    async fn next(&self, mut now: Option<Nanos>) -> Option<Part> {
        poll_fn(|cx| self.poll_next(now.take().unwrap_or_else(now_exact), cx)).await
    }

    #[inline]
    fn poll_next(&self, now: Nanos, cx: &Context<'_>) -> Poll<Option<Part>> {
        let mut worker = self.worker.borrow_mut();
        match worker.next(now) {
            Ok(Next::Part(part)) => {
                if worker.has_more() {
                    self.wake_one();
                }
                Poll::Ready(Some(part))
            }
            Ok(Next::Later) => {
                self.idle.borrow_mut().push(cx.waker().clone());
                if worker.is_paced() {
                    self.news.notify();
                }
                Poll::Pending
            }
            Ok(Next::Over) => Poll::Ready(None),
            Err(error) => {
                drop(worker);
                self.fail(error.into());
                Poll::Pending
            }
        }
    }

    fn fail(&self, fault: Fault) {
        self.fault.set(Some(fault));
        self.news.notify();
    }

    fn wake_one(&self) {
        if let Some(waker) = self.idle.borrow_mut().pop() {
            waker.wake();
        }
    }

    fn wake_all(&self) {
        self.idle.borrow_mut().drain(..).for_each(Waker::wake);
    }
}
