//! The phases of a run, which all its workers enter together.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// What workers may do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Run the load. Before it, workers connect and wait.
    Load = 1,
    /// Read back and check.
    Verify,
    /// Close.
    Close,
}

/// Opened stage by stage by the thread that runs the plan; workers of any reactor wait at it.
#[derive(Debug, Default)]
pub struct Gate {
    stage: AtomicU8,
    stopped: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everyone into `stage`, and those before it.
    pub fn open(&self, stage: Stage) {
        let mut waiting = self.waiting();
        self.stage.store(stage as u8, Ordering::Release);
        waiting.drain(..).for_each(Waker::wake);
    }

    /// Waits until `stage` is open.
    pub async fn wait(&self, stage: Stage) {
        poll_fn(|cx| {
            // Looked at under the lock, so that an opening in between is not missed.
            let mut waiting = self.waiting();
            if self.stage.load(Ordering::Acquire) >= stage as u8 {
                return Poll::Ready(());
            }
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Asks workers to submit no more.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether workers are asked to submit no more.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
