//! Something that happens once, waited for on reactors and made to happen from anywhere.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A signal that is given once. Any number may wait.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    given: bool,
    waiting: Vec<Waker>,
}

impl Signal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the signal.
    pub fn give(&self) {
        let waiting = {
            let mut state = self.state();
            state.given = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until the signal is given.
    pub async fn given(&self) {
        poll_fn(|context| {
            let mut state = self.state();
            if state.given {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Runs `future` until it ends, or until the signal is given: then `None`.
    pub async fn unless<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut given = pin!(self.given());
        let mut future = pin!(future);
        poll_fn(|context| {
            if given.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        })
        .await
    }
}
