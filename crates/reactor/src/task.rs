//! Spawning, joining and yielding.

use crate::core;
use crate::executor::Lane;
use crate::limits::{TASKS_MAX, TASKS_SPARED};
use crate::waker::TaskRef;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Shared<T> {
    value: Option<T>,
    ended: bool,
    joiner: Option<Waker>,
}

/// A spawned task. Dropping it lets the task run on; awaiting it gives the task's value, or `None`
/// when it was aborted.
pub struct Task<T> {
    id: TaskRef,
    shared: Rc<RefCell<Shared<T>>>,
}

impl<T> Task<T> {
    /// Drops the task's future, at once or, when it is the caller, as soon as it is next pending.
    pub fn abort(&self) {
        core::with(|core| core.executor.abort(self.id));
    }

    /// A waker of this task, for what polls on its behalf before it has run.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.id.waker()
    }

    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.borrow().ended
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut shared = self.shared.borrow_mut();
        if shared.ended {
            return Poll::Ready(shared.value.take());
        }
        shared.joiner = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Tells the joiner when the task ends, by its value or by being dropped.
struct Ending<T>(Rc<RefCell<Shared<T>>>);

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        let joiner = {
            let mut shared = self.0.borrow_mut();
            shared.ended = true;
            shared.joiner.take()
        };
        if let Some(waker) = joiner {
            waker.wake();
        }
    }
}

fn spawn_on<F>(future: F, lane: Lane, limit: usize) -> Option<Task<F::Output>>
where
    F: Future + 'static,
{
    core::with(|core| {
        if core.executor.alive() >= limit {
            return None;
        }
        let shared = Rc::new(RefCell::new(Shared { value: None, ended: false, joiner: None }));
        let ending = Ending(Rc::clone(&shared));
        let body = Box::pin(async move {
            let ending = ending;
            let value = future.await;
            ending.0.borrow_mut().value = Some(value);
        });
        let id = core.executor.spawn(body, lane);
        Some(Task { id, shared })
    })
}

/// Starts `future` as a task of this reactor. For tasks whose number is bounded by what is configured or by
/// connections; what a peer can have any number of is for [`try_spawn`].
///
/// # Panics
/// Outside a reactor, and past `TASKS_MAX` tasks.
pub fn spawn<F: Future + 'static>(future: F) -> Task<F::Output> {
    spawn_on(future, Lane::Normal, TASKS_MAX).expect("task limit reached")
}

/// As [`spawn`], unless there are so many tasks that only some are left for it.
///
/// # Panics
/// Outside a reactor.
#[must_use]
pub fn try_spawn<F: Future + 'static>(future: F) -> Option<Task<F::Output>> {
    spawn_on(future, Lane::Normal, TASKS_MAX - TASKS_SPARED)
}

/// Like [`spawn`], but its wakes run at the end of a loop turn, after everything else that could
/// run: for a task that sends what the turn produced.
///
/// # Panics
/// As [`spawn`].
pub fn spawn_late<F: Future + 'static>(future: F) -> Task<F::Output> {
    spawn_on(future, Lane::Late, TASKS_MAX).expect("task limit reached")
}

/// Like [`spawn`], for work that nobody waits for: it runs when nothing else can, and not for long in one turn. A poll
/// of it is to be short; [`give_way`](crate::turns::give_way) cuts what is not.
///
/// # Panics
/// As [`spawn`].
pub fn spawn_behind<F: Future + 'static>(future: F) -> Task<F::Output> {
    spawn_on(future, Lane::Behind, TASKS_MAX).expect("task limit reached")
}

/// Lets the rest of the reactor run; continues in the next turn.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        core::with(|core| core.executor.defer(cx.waker().clone()));
        Poll::Pending
    })
    .await;
}
