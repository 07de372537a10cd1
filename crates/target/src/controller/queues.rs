//! The queues of a controller: who holds which, and how they are told to end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nvme::property::{Csts, ShutdownStatus};

use super::{Controller, State};
use crate::command::Pending;
use crate::counters::{QueueCounters, Totals};
use crate::queue::remote::RemoteQueue;

/// What a queue's connection and its controller share.
#[derive(Debug, Default)]
struct Shared {
    closing: AtomicBool,
    counters: QueueCounters,
}

#[derive(Default)]
struct Queue {
    shared: Arc<Shared>,
    remote: Option<RemoteQueue>,
}

/// The queues connected, by identifier.
#[derive(Default)]
pub(crate) struct Queues {
    by_id: BTreeMap<u16, Queue>,
    retired: Totals,
    /// The association ended: no queue may connect any more.
    ended: bool,
}

impl core::fmt::Debug for Queues {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Queues")
            .field("ids", &self.by_id.keys())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Queues {
    pub fn contains(&self, qid: u16) -> bool {
        self.by_id.contains_key(&qid)
    }

    pub fn ended(&self) -> bool {
        self.ended
    }

    pub fn io_count(&self) -> usize {
        self.by_id.keys().filter(|&&qid| qid != 0).count()
    }

    pub fn totals(&self) -> Totals {
        self.by_id
            .values()
            .fold(self.retired, |sum, queue| sum.plus(queue.shared.counters.totals()))
    }

    /// Marks queues as closing and hands out how to reach them, to be told under no lock.
    fn close(&mut self, which: impl Fn(u16) -> bool) -> Vec<RemoteQueue> {
        let closing = self.by_id.iter_mut().filter(|(qid, _)| which(**qid));
        closing
            .filter_map(|(_, queue)| {
                queue.shared.closing.store(true, Ordering::Release);
                queue.remote.clone()
            })
            .collect()
    }
}

impl State {
    /// A lease on queue `qid`, which nobody may hold yet.
    pub fn lease(&mut self, controller: &Arc<Controller>, qid: u16) -> QueueLease {
        let queue = Queue::default();
        let shared = Arc::clone(&queue.shared);
        let before = self.queues.by_id.insert(qid, queue);
        assert!(before.is_none(), "a queue is connected once");
        QueueLease { controller: Arc::clone(controller), qid, shared }
    }

    /// Ends I/O queues: who is to be told so, under no lock.
    #[must_use]
    pub fn close_io_queues(&mut self) -> Vec<RemoteQueue> {
        self.queues.close(|qid| qid != 0)
    }

    /// Shutdown processing is complete once no I/O queue is left to drain, and the controller's direct write windows have
    /// ended; and so is a reset.
    pub fn finish(&mut self, has_left: bool) {
        if self.queues.io_count() > 0 || !has_left {
            return;
        }
        if self.csts.shst() == Some(ShutdownStatus::Occurring) {
            self.set_shutdown_status(ShutdownStatus::Complete);
        }
        if !self.cc.enabled() && self.csts.ready() {
            self.csts = Csts::default();
        }
    }
}

impl Controller {
    /// Ends the association: every queue, the admin queue among them.
    pub fn close_queues(&self) {
        let mut state = self.lock();
        state.queues.ended = true;
        let ending = state.queues.close(|_| true);
        drop(state);
        end(ending);
        self.end_windows_for_ever();
    }

    /// Whether its association ended with its admin queue, and only commands that a drive has keep it.
    pub(crate) fn has_ended(&self) -> bool {
        let state = self.lock();
        state.queues.ended && !state.queues.contains(0)
    }

    /// How to reach a connected queue.
    pub(crate) fn remote_queue(&self, qid: u16) -> Option<RemoteQueue> {
        self.lock().queues.by_id.get(&qid)?.remote.clone()
    }

    /// Aborts the commands of a namespace that is gone which wait for their data, on all queues.
    pub(crate) fn abort_of(&self, nsid: u32, pending: &Pending) {
        let remotes: Vec<_> = {
            let state = self.lock();
            state.queues.by_id.values().filter_map(|queue| queue.remote.clone()).collect()
        };
        for remote in remotes {
            remote.abort_of(nsid, pending.one_more());
        }
    }

    /// A queue's connection is gone, its commands done with.
    fn release(&self, qid: u16) {
        let mut state = self.lock();
        let Some(queue) = state.queues.by_id.remove(&qid) else { return };
        state.queues.retired = state.queues.retired.plus(queue.shared.counters.totals());
        // I/O queues die with their admin queue (Base 2.1 section 3.3.2.4).
        let ending = if qid == 0 {
            state.queues.ended = true;
            state.queues.close(|_| true)
        } else {
            Vec::new()
        };
        state.finish(self.association.has_left());
        let gone = state.queues.ended && state.queues.by_id.is_empty();
        drop(state);
        end(ending);
        if qid == 0 {
            self.end_windows_for_ever();
        }
        if gone && let Some(target) = self.target() {
            target.forget_controller(self);
        }
    }
}

/// Tells queues to end, under no lock.
pub(super) fn end(queues: Vec<RemoteQueue>) {
    for queue in queues {
        queue.end();
    }
}

/// A connected queue. Its connection keeps it until the last command is done with, and drops it
/// then: only after that may the queue be connected again, and only after all of a controller's
/// are dropped does the controller leave the subsystem.
#[derive(Debug)]
pub struct QueueLease {
    controller: Arc<Controller>,
    qid: u16,
    shared: Arc<Shared>,
}

impl QueueLease {
    #[must_use]
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// Queue identifier; 0 is the admin queue.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Whether the queue has to end: take no new command, drain, close. One plain load.
    #[must_use]
    pub fn closing(&self) -> bool {
        self.shared.closing.load(Ordering::Acquire)
    }

    /// Registers how the queue is reached; it is told to end at once when it has to already.
    pub fn attach(&self, remote: RemoteQueue) {
        let mut state = self.controller.lock();
        if self.closing() {
            drop(state);
            remote.end();
        } else if let Some(queue) = state.queues.by_id.get_mut(&self.qid) {
            queue.remote = Some(remote);
        }
    }

    /// The queue's counters; the core that serves the queue is their only writer.
    #[must_use]
    pub fn counters(&self) -> &QueueCounters {
        &self.shared.counters
    }
}

impl Drop for QueueLease {
    fn drop(&mut self) {
        self.controller.release(self.qid);
    }
}
