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
    /// How often they were woken.
    round: Cell<u64>,
}

impl Waiters {
    /// Waits until `ready` holds; it is asked again after each [`Waiters::wake`].
    pub async fn until(&self, ready: impl Fn() -> bool) {
        // Its place, and in which round: one that is polled for other reasons does not come to wait twice.
        let mut place: Option<(u64, usize)> = None;
        poll_fn(|cx| {
            if ready() {
                return Poll::Ready(());
            }
            let mut wakers = self.wakers.borrow_mut();
            match place {
                Some((round, at)) if round == self.round.get() => wakers[at].clone_from(cx.waker()),
                _ => {
                    place = Some((self.round.get(), wakers.len()));
                    wakers.push(cx.waker().clone());
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Has every waiter ask again.
    pub fn wake(&self) {
        if !self.wakers.borrow().is_empty() {
            self.round.set(self.round.get() + 1);
            let wakers = core::mem::take(&mut *self.wakers.borrow_mut());
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::future::Future;
    use core::pin::pin;
    use core::task::Context;

    /// Each poll of a task that waited for something else too left another waker behind.
    #[test]
    fn who_is_polled_again_and_again_waits_once() {
        let (waiters, ready) = (Waiters::default(), Cell::new(false));
        let mut cx = Context::from_waker(Waker::noop());
        let (mut one, mut two) =
            (pin!(waiters.until(|| ready.get())), pin!(waiters.until(|| ready.get())));
        for round in 0..3 {
            for _ in 0..100 {
                assert!(one.as_mut().poll(&mut cx).is_pending());
                assert!(two.as_mut().poll(&mut cx).is_pending());
            }
            assert_eq!(waiters.wakers.borrow().len(), 2, "round {round}");
            waiters.wake();
        }
        ready.set(true);
        assert!(one.poll(&mut cx).is_ready() && two.poll(&mut cx).is_ready());
    }
}
