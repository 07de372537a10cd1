//! Where queues of other reactors come to a shard. For what is rare: that one comes, and that the shard closes.

use std::ops::ControlFlow;
use std::task::{Context, Waker};

use crate::concurrent::{AtomicBool, Lock, OnceLock, Ordering};

/// What a shard and those who reach it share: `T` is a shard's end of a queue.
#[derive(Debug)]
pub struct Reception<T> {
    inside: Lock<Inside<T>>,
    /// Somebody came, or the shard closes.
    rung: AtomicBool,
    server: OnceLock<Waker>,
}

#[derive(Debug)]
struct Inside<T> {
    arrived: Vec<T>,
    closed: bool,
}

impl<T> Default for Reception<T> {
    fn default() -> Self {
        let inside = Lock::new(Inside { arrived: Vec::new(), closed: false });
        Self { inside, rung: AtomicBool::new(false), server: OnceLock::new() }
    }
}

impl<T> Reception<T> {
    /// Has the shard serve a queue; false when it serves none.
    #[must_use]
    pub fn join(&self, end: T) -> bool {
        let mut inside = self.inside.lock();
        if inside.closed {
            return false;
        }
        inside.arrived.push(end);
        drop(inside);
        self.ring();
        true
    }

    /// Refuses what waits and what comes, and lets the workers go. What is under way is finished.
    pub fn close(&self) {
        let mut inside = self.inside.lock();
        inside.closed = true;
        let arrived = std::mem::take(&mut inside.arrived);
        drop(inside);
        drop(arrived);
        self.ring();
    }

    /// For the server, whenever it looks what came: `arrive` has the queues that did. Breaks when it is to serve no
    /// more.
    pub fn look(&self, cx: &Context<'_>, arrive: impl FnMut(T)) -> ControlFlow<()> {
        let is_first = self.server.set(cx.waker().clone()).is_ok();
        if !is_first && !self.rung.load(Ordering::Acquire) {
            return ControlFlow::Continue(());
        }
        self.rung.store(false, Ordering::Relaxed);
        let mut inside = self.inside.lock();
        inside.arrived.drain(..).for_each(arrive);
        match inside.closed {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        // None before the server looked for the first time, which finds what was put in before that.
        if let Some(server) = self.server.get() {
            server.wake_by_ref();
        }
    }
}
