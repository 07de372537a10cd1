//! How the cores that serve one namespace hold off each other's commands: by message, so that a
//! command that holds nobody off looks at its own core's memory only.
//!
//! Whoever holds a range tells every core; each answers when its commands under way on the range
//! have ended. A core takes such messages between the polls of its tasks, so a command that ends
//! within one poll is either over when its core answers, or sees the hold. It is the same with a namespace that
//! is removed: the cores are told, and each answers when the backend has none of its commands any more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use nvme::nvm::LbaRange;

/// One of a namespace's holds, named.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub id: u64,
    pub range: LbaRange,
}

/// What one core asks of another.
#[derive(Debug)]
pub(super) enum Ask {
    /// Keep off the range; answer when nothing is under way on it.
    Hold(Hold, Answer),
    Release(u64),
    /// Answer when everything that the backend has now has ended.
    Drain(Answer),
    /// The namespace is gone: nothing more may reach its backend. Answer as for [`Ask::Drain`].
    Close(Answer),
}

/// One core's mailbox.
#[derive(Debug, Default)]
pub(super) struct Core {
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    asked: Vec<Ask>,
    reader: Option<Waker>,
    gone: bool,
}

impl Core {
    fn ask(&self, ask: Ask) {
        let mut inbox = lock(&self.inbox);
        if inbox.gone {
            return;
        }
        inbox.asked.push(ask);
        let reader = inbox.reader.take();
        drop(inbox);
        reader.into_iter().for_each(Waker::wake);
    }

    /// What was asked since the last call; ready with nothing when the core has left.
    pub fn poll_asked(&self, cx: &mut Context<'_>) -> Poll<Vec<Ask>> {
        let mut inbox = lock(&self.inbox);
        if inbox.gone || !inbox.asked.is_empty() {
            return Poll::Ready(std::mem::take(&mut inbox.asked));
        }
        inbox.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[derive(Debug, Default)]
struct State {
    cores: Vec<Arc<Core>>,
    holds: Vec<Hold>,
    waiting: Vec<Waker>,
    next: u64,
    closed: bool,
}

/// The cores that serve a namespace, and its holds.
#[derive(Debug, Default)]
pub struct Fence {
    state: Mutex<State>,
}

impl Fence {
    /// Adds a core; it starts with the holds there are, and is told whether the namespace is gone.
    pub(super) fn join(&self) -> (Arc<Core>, Vec<Hold>, bool) {
        let core = Arc::<Core>::default();
        let mut state = lock(&self.state);
        state.cores.push(Arc::clone(&core));
        (core, state.holds.clone(), state.closed)
    }

    /// Closes the namespace on every core, for good: `answers` has them all when no backend's command is left.
    pub(crate) fn close(&self, answers: &Answers) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.cores.iter().for_each(|core| core.ask(Ask::Close(answers.one_more())));
    }

    /// Waits, by `answers`, for what the backend has now, on every core.
    pub(crate) fn drain(&self, answers: &Answers) {
        let state = lock(&self.state);
        state.cores.iter().for_each(|core| core.ask(Ask::Drain(answers.one_more())));
    }

    /// Takes a core out. What was asked of it is answered: nothing of it is under way any more.
    pub(super) fn leave(&self, core: &Arc<Core>) {
        lock(&self.state).cores.retain(|other| !Arc::ptr_eq(other, core));
        let mut inbox = lock(&core.inbox);
        inbox.gone = true;
        let asked = std::mem::take(&mut inbox.asked);
        let reader = inbox.reader.take();
        drop(inbox);
        drop(asked);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Claims `range` among those who hold; pending while somebody else holds a part of it.
    pub(super) fn poll_claim(&self, range: LbaRange, cx: &mut Context<'_>) -> Poll<Hold> {
        let mut state = lock(&self.state);
        if state.holds.iter().any(|hold| hold.range.overlaps(range)) {
            let waker = cx.waker();
            if !state.waiting.iter().any(|other| other.will_wake(waker)) {
                state.waiting.push(waker.clone());
            }
            return Poll::Pending;
        }
        let hold = Hold { id: state.next, range };
        state.next += 1;
        state.holds.push(hold);
        Poll::Ready(hold)
    }

    /// Ends a hold on every core but `own`.
    pub(super) fn release(&self, id: u64, own: &Arc<Core>) {
        let mut state = lock(&self.state);
        state.holds.retain(|hold| hold.id != id);
        for core in state.cores.iter().filter(|core| !Arc::ptr_eq(core, own)) {
            core.ask(Ask::Release(id));
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Asks every core but `own`; the result is ready when all have answered.
    pub(super) fn ask_others(&self, own: &Arc<Core>, ask: impl Fn(Answer) -> Ask) -> Answers {
        let answers = Answers::default();
        let state = lock(&self.state);
        for core in state.cores.iter().filter(|core| !Arc::ptr_eq(core, own)) {
            core.ask(ask(answers.one_more()));
        }
        answers
    }
}

/// Answers still to come, and who waits for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    open: Arc<Mutex<(usize, Option<Waker>)>>,
}

/// An answer to give: by dropping it, so that it cannot be forgotten.
#[derive(Debug)]
pub(crate) struct Answer(Answers);

impl Answers {
    pub fn one_more(&self) -> Answer {
        lock(&self.open).0 += 1;
        Answer(self.clone())
    }

    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut open = lock(&self.open);
        if open.0 == 0 {
            return Poll::Ready(());
        }
        open.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut open = lock(&self.0.open);
        open.0 -= 1;
        let waiter = if open.0 == 0 { open.1.take() } else { None };
        drop(open);
        waiter.into_iter().for_each(Waker::wake);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
