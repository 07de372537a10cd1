//! How the cores that serve one namespace hold off each other's commands: by message, so that a
//! command that holds nobody off looks at its own core's memory only.
//!
//! Whoever holds a range tells every core; each answers when its commands under way on the range
//! have ended. A core takes such messages between the polls of its tasks, so a command that ends
//! within one poll is either over when its core answers, or sees the hold. It is the same with a namespace that
//! is removed: the cores are told, and each answers when the backend has none of its commands any more.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use nvme::nvm::LbaRange;

use crate::limits::HOLDS_MAX;

/// One of a namespace's holds, named.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub id: u64,
    pub range: LbaRange,
    /// For what a lost queue has under way there.
    pub is_lost: bool,
}

/// What one core asks of another.
#[derive(Debug)]
pub(super) enum Ask {
    /// Keep off the range; answer when nothing is under way on it.
    Hold(Hold, Answer),
    /// Keep off these ranges: a lost queue has commands under way there.
    Keep(Vec<Hold>),
    Release(Vec<u64>),
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

/// What a core that joins begins with.
#[derive(Debug)]
pub(super) struct Joined {
    pub core: Arc<Core>,
    pub holds: Vec<Hold>,
    /// The last hold that may be among these.
    pub known: u64,
    /// The namespace is gone.
    pub closed: bool,
}

#[derive(Debug, Default)]
struct State {
    cores: Vec<Arc<Core>>,
    holds: Vec<Hold>,
    /// What lost queues have under way, which may overlap.
    kept: Vec<Hold>,
    /// Who waits to claim, in the order in which they came.
    waiting: BTreeMap<u64, Waker>,
    next: u64,
    closed: bool,
}

impl State {
    /// Has those who have waited the longest try again. Those behind them are not forgotten: as long as there are
    /// holds, a release is to come, and without any the first can claim. Where blocks are kept for lost queues it may wait
    /// for these, and all try.
    fn wake_first(&self) {
        let most = if self.kept.is_empty() { HOLDS_MAX } else { usize::MAX };
        for waker in self.waiting.values().take(most) {
            waker.wake_by_ref();
        }
    }

    fn tell_released(&self, ids: &[u64], own: &Arc<Core>) {
        for core in self.cores.iter().filter(|core| !Arc::ptr_eq(core, own)) {
            core.ask(Ask::Release(ids.to_vec()));
        }
        self.wake_first();
    }

    fn ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Claims a range once it is awaited.
#[derive(Debug)]
#[must_use]
pub(super) struct Claim<'f> {
    fence: &'f Fence,
    range: LbaRange,
    /// Among those who wait.
    place: Option<u64>,
}

impl Future for Claim<'_> {
    type Output = Hold;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Hold> {
        let Self { fence, range, place } = *self;
        let mut state = lock(&fence.state);
        let full = state.holds.len() >= HOLDS_MAX;
        let mut others = state.holds.iter().chain(&state.kept);
        if full || others.any(|hold| hold.range.overlaps(range)) {
            let place = place.unwrap_or_else(|| state.ticket());
            state.waiting.insert(place, cx.waker().clone());
            self.place = Some(place);
            return Poll::Pending;
        }
        if let Some(place) = self.place.take() {
            state.waiting.remove(&place);
        }
        let hold = Hold { id: state.ticket(), range, is_lost: false };
        state.holds.push(hold);
        Poll::Ready(hold)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut state = lock(&self.fence.state);
        state.waiting.remove(&place);
        state.wake_first();
    }
}

/// The cores that serve a namespace, and its holds.
#[derive(Debug, Default)]
pub struct Fence {
    state: Mutex<State>,
}

impl Fence {
    /// Adds a core.
    pub(super) fn join(&self) -> Joined {
        let core = Arc::<Core>::default();
        let mut state = lock(&self.state);
        state.cores.push(Arc::clone(&core));
        let holds = state.holds.iter().chain(&state.kept).copied().collect();
        Joined { core, holds, known: state.next, closed: state.closed }
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

    /// Claims `range` among those who hold: ready when nobody else holds a part of it.
    pub(super) const fn claim(&self, range: LbaRange) -> Claim<'_> {
        Claim { fence: self, range, place: None }
    }

    /// Keeps every core but `own` off these ranges, whoever holds a part of them.
    pub(super) fn keep(&self, ranges: Vec<LbaRange>, own: &Arc<Core>) -> Vec<Hold> {
        let mut state = lock(&self.state);
        let kept: Vec<_> = ranges
            .into_iter()
            .map(|range| Hold { id: state.ticket(), range, is_lost: true })
            .collect();
        state.kept.extend(&kept);
        for core in state.cores.iter().filter(|core| !Arc::ptr_eq(core, own)) {
            core.ask(Ask::Keep(kept.clone()));
        }
        kept
    }

    /// Ends a hold on every core but `own`.
    pub(super) fn release(&self, id: u64, own: &Arc<Core>) {
        let mut state = lock(&self.state);
        state.holds.retain(|hold| hold.id != id);
        state.tell_released(&[id], own);
    }

    /// The same for what was [kept](Self::keep).
    pub(super) fn release_kept(&self, ids: Vec<u64>, own: &Arc<Core>) {
        let mut state = lock(&self.state);
        state.kept.retain(|hold| !ids.contains(&hold.id));
        state.tell_released(&ids, own);
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

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn range(first: u64) -> LbaRange {
        LbaRange::new(stdx::Lba::new(first), 1).unwrap()
    }

    fn poll(claim: Pin<&mut Claim<'_>>) -> Option<Hold> {
        match claim.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(hold) => Some(hold),
            Poll::Pending => None,
        }
    }

    /// One host's compares and writes held any number of ranges, each of which every command of every host was
    /// compared with.
    #[test]
    fn no_more_than_some_ranges_are_held_and_the_rest_wait_their_turn() {
        let (fence, own) = (Fence::default(), Arc::<Core>::default());
        let claim = |first| poll(pin!(fence.claim(range(first))));
        let holds: Vec<_> = (0..1000).map_while(claim).collect();
        assert_eq!(holds.len(), HOLDS_MAX);
        let mut late = pin!(fence.claim(range(5000)));
        assert!(poll(late.as_mut()).is_none());
        fence.release(holds[3].id, &own);
        let held = poll(late.as_mut()).unwrap();
        assert!(claim(3).is_none(), "full again");
        fence.release(held.id, &own);
        assert!(claim(5).is_none(), "held by another");
        assert!(claim(3).is_some());
    }

    /// Who joined those who waited looked through all of them, under a lock that the cores share.
    #[test]
    fn waiting_costs_the_same_however_many_wait() {
        struct Own;
        impl std::task::Wake for Own {
            fn wake(self: Arc<Self>) {}
        }
        let fence = Fence::default();
        let hold = poll(pin!(fence.claim(range(0)))).unwrap();
        let before = reactor::thread_usage().user;
        let mut claims: Vec<_> = (0..100_000).map(|_| Box::pin(fence.claim(range(0)))).collect();
        for claim in &mut claims {
            let waker = Waker::from(Arc::new(Own));
            assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        fence.release(hold.id, &Arc::default());
        let first = poll(claims[0].as_mut()).unwrap();
        assert!(poll(claims[1].as_mut()).is_none());
        drop(claims);
        assert!(lock(&fence.state).waiting.is_empty());
        fence.release(first.id, &Arc::default());
        let spent = reactor::thread_usage().user - before;
        assert!(spent < std::time::Duration::from_secs(5), "{spent:?}");
    }
}
