//! Reactors on threads of their own, and how the rest of the program talks to them.

use crate::Config;
use crate::core;
use crate::driver::require_real;
use crate::error::{Error, Gone};
use crate::mail::Mailbox;
use crate::metrics::{Metrics, Published};
use crate::task::spawn;
use crate::time::{clock, nanos_of};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

/// Starts reactors.
#[derive(Debug)]
pub struct Reactor;

struct Shared {
    id: u32,
    name: String,
    mailbox: Arc<Mailbox>,
    published: Arc<Published>,
    thread: Mutex<Option<JoinHandle<Result<(), Error>>>>,
}

/// Reaches a reactor from any thread.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("id", &self.id()).field("name", &self.name()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reactor {
    /// Starts a reactor on a new thread, and returns when it runs.
    ///
    /// # Errors
    /// When the thread, its CPU or its ring cannot be had; always in simulation.
    pub fn start(config: Config) -> Result<Handle, Error> {
        Self::start_watched(config, |_, _| {})
    }

    /// As [`start`](Self::start). When the reactor cannot go on, because a task panicked or its ring failed,
    /// `on_failure` is told its name and why: on its thread, before its tasks are dropped. Others wait for it in
    /// vain, so whoever cannot do without it ends the process there.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_watched(
        config: Config,
        on_failure: fn(name: &str, why: &str),
    ) -> Result<Handle, Error> {
        let no_thread = |source| Error::System { what: "cannot start a thread", source };
        require_real().map_err(no_thread)?;
        let published = Arc::<Published>::default();
        let theirs = Arc::clone(&published);
        let (started, starting) = mpsc::channel();
        let name = config.name.clone();
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                let core = match core::start(&config, theirs) {
                    Ok(core) => core,
                    Err(e) => {
                        let _ = started.send(Err(e));
                        return Ok(());
                    }
                };
                let _ = started.send(Ok((core.id, Arc::clone(core.mailbox()))));
                core::run_watched(core, |why| on_failure(&config.name, why))
            })
            .map_err(no_thread)?;
        let (id, mailbox) =
            starting.recv().map_err(|_| Error::Panicked(name.clone())).and_then(|r| r)?;
        let thread = Mutex::new(Some(thread));
        Ok(Handle { shared: Arc::new(Shared { id, name, mailbox, published, thread }) })
    }
}

impl Handle {
    /// Of a reactor whose thread is somebody else's matter.
    pub(crate) fn of(core: &core::Core, name: String) -> Self {
        let (mailbox, published) = (Arc::clone(core.mailbox()), Arc::default());
        let thread = Mutex::new(None);
        Self { shared: Arc::new(Shared { id: core.id, name, mailbox, published, thread }) }
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.shared.mailbox
    }

    /// Its number among the reactors alive in this process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.shared.id
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Makes a future on the reactor and starts it as a task there.
    ///
    /// # Errors
    /// [`Gone`] when the reactor has stopped or has too much mail.
    pub fn spawn<M, F>(&self, make: M) -> Result<(), Gone>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
    {
        let errand = Box::new(move || drop(spawn(make())));
        if self.shared.mailbox.run(errand) { Ok(()) } else { Err(Gone) }
    }

    /// Runs a future on the reactor; the answer can be awaited (on any executor) or waited for.
    pub fn call<M, F>(&self, make: M) -> Call<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        let (mut reply, call) = call_slot();
        // A refusal drops the errand, and with it the reply, which answers `Gone`.
        let _ = self.spawn(move || async move {
            let value = make().await;
            reply.give(Ok(value));
        });
        call
    }

    /// Asks the reactor to end: it drops its tasks and leaves.
    pub fn stop(&self) {
        self.shared.mailbox.stop();
    }

    /// Waits for its thread to end. Only the first caller waits.
    ///
    /// # Errors
    /// Why the reactor ended other than by [`stop`](Self::stop).
    pub fn join(&self) -> Result<(), Error> {
        let thread = lock(&self.shared.thread).take();
        match thread {
            None => Ok(()),
            Some(thread) => {
                thread.join().unwrap_or_else(|_| Err(Error::Panicked(self.shared.name.clone())))
            }
        }
    }

    /// Its counters, at most about a millisecond old (or from when it went to sleep).
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.published.read()
    }
}

struct CallState<T> {
    answer: Option<Result<T, Gone>>,
    waker: Option<Waker>,
}

struct CallSlot<T> {
    state: Mutex<CallState<T>>,
    answered: Condvar,
}

/// Both ends of a call.
pub(crate) fn call_slot<T>() -> (Reply<T>, Call<T>) {
    let slot = Arc::new(CallSlot {
        state: Mutex::new(CallState { answer: None, waker: None }),
        answered: Condvar::new(),
    });
    (Reply(Some(Arc::clone(&slot))), Call { slot })
}

/// The reactor's end of a call: answers once, `Gone` at the latest when dropped.
pub(crate) struct Reply<T>(Option<Arc<CallSlot<T>>>);

impl<T> Reply<T> {
    pub fn give(&mut self, answer: Result<T, Gone>) {
        let Some(slot) = self.0.take() else { return };
        let waker = {
            let mut state = lock(&slot.state);
            state.answer = Some(answer);
            state.waker.take()
        };
        slot.answered.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        self.give(Err(Gone));
    }
}

/// Blocks this thread for `limit` at most, until all calls are answered; what was answered, each at its place. Not for
/// reactor threads.
pub fn wait_for<T>(calls: Vec<Call<T>>, limit: Duration) -> Vec<Option<Result<T, Gone>>> {
    let deadline = clock().saturating_add(nanos_of(limit));
    let wait = |call: Call<T>| {
        let left = Duration::from_nanos(deadline.saturating_sub(clock()));
        let unanswered = |state: &mut CallState<T>| state.answer.is_none();
        let (mut state, _) = call
            .slot
            .answered
            .wait_timeout_while(lock(&call.slot.state), left, unanswered)
            .unwrap_or_else(PoisonError::into_inner);
        state.answer.take()
    };
    calls.into_iter().map(wait).collect()
}

/// The answer of a [`Handle::call`].
#[must_use = "await it, or wait for it"]
pub struct Call<T> {
    slot: Arc<CallSlot<T>>,
}

impl<T> Call<T> {
    /// Blocks this thread until the answer is there. Not for reactor threads.
    ///
    /// # Errors
    /// [`Gone`] when the reactor ended before the future did.
    pub fn wait(self) -> Result<T, Gone> {
        let mut state = lock(&self.slot.state);
        loop {
            if let Some(answer) = state.answer.take() {
                return answer;
            }
            state = self.slot.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, Gone>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.slot.state);
        match state.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
