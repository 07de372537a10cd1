//! Waiting for what another task on the same core does.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};

/// Set any number of times, taken by one waiter.
#[derive(Default)]
pub struct Notify {
    set: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl Notify {
    /// Sets the flag and wakes the waiter, if there is one.
    pub fn notify(&self) {
        if !self.set.replace(true)
            && let Some(waker) = self.waiter.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Waits until the flag is set, and takes it.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            if self.set.take() {
                return Poll::Ready(());
            }
            let mut waiter = self.waiter.borrow_mut();
            if !waiter.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *waiter = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// Any number of tasks that wait until something holds.
#[derive(Default)]
pub struct Waiters {
    wakers: RefCell<Vec<Waker>>,
}

impl Waiters {
    /// Waits until `ready` holds; it is asked again after each [`Waiters::wake`].
    pub async fn until(&self, ready: impl Fn() -> bool) {
        poll_fn(|cx| {
            if ready() {
                return Poll::Ready(());
            }
            self.wakers.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Has every waiter ask again.
    pub fn wake(&self) {
        if !self.wakers.borrow().is_empty() {
            let wakers = core::mem::take(&mut *self.wakers.borrow_mut());
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
