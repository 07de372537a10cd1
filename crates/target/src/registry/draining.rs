//! Waiting until nothing of a namespace that is gone, or smaller, is left in its backend, and until direct write windows have
//! ended.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::command::Pending;
use crate::controller::Controller;
use crate::namespace::Namespace;

/// What a namespace's backend still has of its commands, on every core. It may be let go of, or cut off, when they
/// have ended, and not before: a command may be a write to it.
#[derive(Clone, Debug, Default)]
#[must_use = "the backend is in use until it is done"]
pub struct Draining(Pending);

impl Draining {
    /// Of namespaces that are in no view any more.
    pub(super) fn gone(namespaces: &[Arc<Namespace>], controllers: &[Arc<Controller>]) -> Self {
        let pending = Pending::default();
        for namespace in namespaces {
            namespace.fence.close(&pending);
            namespace.window.close(Box::new(pending.one_more()));
            for controller in controllers {
                controller.abort_of(namespace.nsid, &pending);
            }
        }
        Self(pending)
    }

    /// Of what its backend still has of one that has fewer blocks now, or another backend.
    pub(super) fn still(namespace: &Namespace) -> Self {
        let pending = Pending::default();
        namespace.fence.drain(&pending);
        namespace.window.end(Box::new(pending.one_more()));
        Self(pending)
    }

    /// Of the direct write windows of some controllers.
    pub(super) fn windows(controllers: &[Arc<Controller>]) -> Self {
        let pending = Pending::default();
        for controller in controllers {
            controller.end_windows(&pending);
        }
        Self(pending)
    }

    /// Of what controllers that were told to end may still change: their direct write windows, and what the backends of
    /// these namespaces have of anybody's commands now. Commands that are further ahead look first, and end.
    pub(super) fn ended(controllers: &[Arc<Controller>], namespaces: &[Arc<Namespace>]) -> Self {
        let draining = Self::windows(controllers);
        for namespace in namespaces {
            namespace.fence.drain(&draining.0);
        }
        draining
    }

    /// Of the direct write window of a namespace.
    pub(super) fn window(namespace: &Namespace) -> Self {
        let pending = Pending::default();
        namespace.window.end(Box::new(pending.one_more()));
        Self(pending)
    }

    /// Waits until they have ended.
    pub async fn done(&self) {
        poll_fn(|cx| self.0.poll(cx)).await;
    }

    /// Blocks this thread until they have ended, for `limit` at most; whether they have. Not for reactor threads.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let deadline = reactor::now_exact().saturating_add(nanos);
        while self.0.poll(&mut Context::from_waker(&waker)) == Poll::Pending {
            let left = deadline.saturating_sub(reactor::now_exact());
            if left == 0 {
                return false;
            }
            std::thread::park_timeout(Duration::from_nanos(left));
        }
        true
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
