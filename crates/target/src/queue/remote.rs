//! A queue as other cores reach it: to end it, or to abort one of its commands.

use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::rc::Weak;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Queue;
use crate::command::Done;

/// What others ask of a queue.
#[derive(Default)]
struct Asked {
    end: bool,
    aborts: Vec<(u16, Arc<Answer>)>,
    /// Namespaces that are gone, and who waits for their commands to be aborted.
    gone_namespaces: Vec<(u32, Done)>,
    /// The queue's own task.
    waker: Option<Waker>,
    /// Nobody attends any more: the queue is gone.
    gone: bool,
}

/// Reaches a queue from any core. Asking one that is gone does nothing.
#[derive(Clone, Default)]
pub struct RemoteQueue {
    asked: Arc<Mutex<Asked>>,
}

impl core::fmt::Debug for RemoteQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RemoteQueue")
    }
}

/// Whether a command was aborted, once that is known.
#[derive(Default)]
struct Answer {
    state: Mutex<(Option<bool>, Option<Waker>)>,
}

impl RemoteQueue {
    /// Has the queue take no further command, drain, and close.
    pub fn end(&self) {
        self.ask(|asked| asked.end = true);
    }

    /// Whether the queue was told to end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        lock(&self.asked).end
    }

    /// Aborts command `cid` if it has changed nothing yet; true when it did.
    pub fn abort(&self, cid: u16) -> impl Future<Output = bool> + use<> {
        let answer = Arc::<Answer>::default();
        let theirs = answer.clone();
        let reached = self.ask(|asked| asked.aborts.push((cid, theirs)));
        if !reached {
            answer.give(false);
        }
        Aborted(answer)
    }

    /// Aborts the commands of a namespace that is gone which have changed nothing yet. `done` is dropped after.
    pub(crate) fn abort_of(&self, nsid: u32, done: Done) {
        self.ask(|asked| asked.gone_namespaces.push((nsid, done)));
    }

    /// Changes what is asked and wakes the queue's task; false when the queue is gone.
    fn ask(&self, change: impl FnOnce(&mut Asked)) -> bool {
        let mut asked = lock(&self.asked);
        if asked.gone {
            return false;
        }
        change(&mut asked);
        let waker = asked.waker.take();
        drop(asked);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// On the queue's core: does what is asked until the queue has to end, or is gone.
    pub(crate) async fn attend(&self, queue: Weak<Queue>) {
        let _leave = Leave(self);
        poll_fn(|cx| {
            let (end, aborts, gone) = {
                let mut asked = lock(&self.asked);
                asked.waker = Some(cx.waker().clone());
                let gone = core::mem::take(&mut asked.gone_namespaces);
                (asked.end, core::mem::take(&mut asked.aborts), gone)
            };
            let Some(queue) = queue.upgrade() else { return Poll::Ready(()) };
            for (cid, answer) in aborts {
                answer.give(queue.abort(cid));
            }
            gone.iter().for_each(|(nsid, _)| queue.abort_of(*nsid));
            if end {
                queue.ended.notify();
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }
}

/// Answers what is asked too late.
struct Leave<'a>(&'a RemoteQueue);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut asked = lock(&self.0.asked);
        asked.gone = true;
        let aborts = core::mem::take(&mut asked.aborts);
        let gone = core::mem::take(&mut asked.gone_namespaces);
        drop(asked);
        drop(gone);
        for (_, answer) in aborts {
            answer.give(false);
        }
    }
}

impl Answer {
    fn give(&self, aborted: bool) {
        let waker = {
            let mut state = lock(&self.state);
            state.0 = Some(aborted);
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Aborted(Arc<Answer>);

impl Future for Aborted {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = lock(&self.0.state);
        match state.0 {
            Some(aborted) => Poll::Ready(aborted),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
