//! Where queues of other reactors come to a shard. For what is rare: that one comes, and that the shard closes.

use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use reactor::cross_core::Lock;

use super::{ShardEnd, gone};
use crate::error::Result;

/// What a shard and those who reach it share.
#[derive(Debug, Default)]
pub struct Reception {
    inside: Lock<Inside>,
    /// Somebody came, or the shard closes.
    rung: AtomicBool,
    server: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct Inside {
    arrived: Vec<ShardEnd>,
    closed: bool,
}

impl Reception {
    /// Has the shard serve a queue.
    ///
    /// # Errors
    /// `Gone` when it serves none.
    pub fn join(&self, end: ShardEnd) -> Result<()> {
        let mut inside = self.inside.lock();
        if inside.closed {
            return Err(gone());
        }
        inside.arrived.push(end);
        drop(inside);
        self.ring();
        Ok(())
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
    pub fn look(&self, cx: &Context<'_>, arrive: impl FnMut(ShardEnd)) -> ControlFlow<()> {
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
