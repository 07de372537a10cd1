//! A job's association as its workers see it: it may break, and be replaced by another one.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use initiator::Association;

/// Kept by the task that keeps the job's controller; workers of any reactor look at it when a queue broke.
#[derive(Debug)]
pub struct Link {
    /// How long the target may be away; `None` when a job does not connect again.
    pub patience: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Grows with each association.
    generation: u64,
    association: Association,
    broken: bool,
    waiting: Vec<Waker>,
}

impl State {
    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// `found`, or the task waits until something changes.
    fn or_wait<T>(&mut self, found: Option<T>, cx: &Context<'_>) -> Poll<T> {
        if let Some(found) = found {
            return Poll::Ready(found);
        }
        if !self.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Link {
    /// The first association.
    pub fn new(association: Association, patience: Option<Duration>) -> Self {
        let state = State { generation: 0, association, broken: false, waiting: Vec::new() };
        Self { patience, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that association `generation` broke.
    pub fn lose(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation {
            state.broken = true;
            state.wake();
        }
    }

    /// Says that the association there is now broke.
    pub fn lose_controller(&self) {
        let mut state = self.state();
        state.broken = true;
        state.wake();
    }

    /// Waits until the association is said to be broken.
    pub async fn broken(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            let found = state.broken.then_some(());
            state.or_wait(found, cx)
        })
        .await;
    }

    /// Replaces the association.
    pub fn mend(&self, association: Association) {
        let mut state = self.state();
        state.association = association;
        state.generation += 1;
        state.broken = false;
        state.wake();
    }

    /// Waits until association `generation` is of no more use.
    pub async fn lost(&self, generation: u64) {
        poll_fn(|cx| {
            let mut state = self.state();
            let gone = state.broken || state.generation != generation;
            state.or_wait(gone.then_some(()), cx)
        })
        .await;
    }

    /// Waits for an association that works, as far as is known.
    pub async fn association(&self) -> (u64, Association) {
        poll_fn(|cx| {
            let mut state = self.state();
            let whole = (!state.broken).then(|| (state.generation, state.association.clone()));
            state.or_wait(whole, cx)
        })
        .await
    }
}
