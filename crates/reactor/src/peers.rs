//! Wakes from one reactor to another: a ring for each ordered pair, made when the first wake goes that way. After
//! that a wake takes no lock and no atomic read-modify-write.

use crate::executor::Executor;
use crate::limits::PEER_WAKES;
use crate::mail::{self, Mailbox};
use crate::spsc::{Putter, Taker, ring};
use crate::waker::TaskRef;
use std::cell::RefCell;
use std::sync::Arc;
use stdx::num::usize32;

/// A reactor's ways to the others, and theirs to it.
#[derive(Default)]
pub(crate) struct Peers {
    /// By the other's number.
    to: RefCell<Vec<Option<Peer>>>,
    from: RefCell<Vec<Taker<TaskRef>>>,
}

/// The way to another reactor.
struct Peer {
    mailbox: Arc<Mailbox>,
    ring: Putter<TaskRef>,
}

impl Peer {
    /// `None` when that reactor is gone.
    fn meet(reactor: u32) -> Option<Self> {
        let mailbox = mail::find(reactor)?;
        let (putter, taker) = ring(PEER_WAKES);
        mailbox.put_ring(taker).then_some(Self { mailbox, ring: putter })
    }
}

impl Peers {
    /// Wakes a task of another reactor, if that still lives.
    pub fn wake(&self, task: TaskRef) {
        let mut to = self.to.borrow_mut();
        let at = usize32(task.reactor);
        if to.len() <= at {
            to.resize_with(at + 1, || None);
        }
        let peer = &mut to[at];
        // Another may have its number by now.
        if peer.as_ref().is_none_or(|peer| peer.mailbox.is_closed()) {
            *peer = Peer::meet(task.reactor);
        }
        let Some(Peer { mailbox, ring }) = peer else { return };
        match ring.put(task) {
            Ok(()) => {
                ring.publish();
                mailbox.knock();
            }
            Err(task) => mailbox.wake(task),
        }
    }

    /// Takes rings by which others wake tasks of this reactor, and what is in them by now.
    pub fn join(&self, rings: Vec<Taker<TaskRef>>, executor: &Executor) {
        self.from.borrow_mut().extend(rings);
        self.take(executor);
    }

    /// Wakes the tasks that others want woken.
    pub fn take(&self, executor: &Executor) {
        self.from.borrow_mut().retain_mut(|ring| {
            // In this order: what it put before it went is seen.
            let is_gone = ring.is_abandoned();
            while let Some(task) = ring.take() {
                executor.wake(task.slot, task.generation);
            }
            !is_gone
        });
    }
}
