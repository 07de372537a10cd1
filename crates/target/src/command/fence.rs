//! How the cores that serve one namespace hold off each other's commands: by message, so that a
//! command that holds nobody off looks at its own core's memory only.
//!
//! Whoever holds a range tells every core; each answers when its commands under way on the range
//! have ended. A core takes such messages between the polls of its tasks, so a command that ends
//! within one poll is either over when its core answers, or sees the hold. It is the same with a namespace that
//! is removed: the cores are told, and each answers when the backend has none of its commands any more.
//!
//! Who waits to claim a range waits in the line of one hold that keeps it off, or for one of so many as there may be to end.
//! Those of the same range are one there: the first of them claims it next, and the others wait for that one.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use nvme::nvm::LbaRange;

use super::lines::{Line, Lines, Place, READY};
use crate::concurrent::{Mutex, MutexGuard};
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
    /// So many cores serve the namespace now.
    Cores(usize),
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

    /// What is to be kept for lost queues, as far as that was asked since the last call: it is asked no more.
    pub fn kept(&self) -> Vec<Vec<Hold>> {
        let (mut inbox, mut kept) = (lock(&self.inbox), Vec::new());
        for ask in std::mem::take(&mut inbox.asked) {
            match ask {
                Ask::Keep(holds) => kept.push(holds),
                other => inbox.asked.push(other),
            }
        }
        kept
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
    /// How many cores there are with this one.
    pub cores: usize,
}

/// A hold, and those whom it keeps off.
#[derive(Debug)]
struct Noted {
    hold: Hold,
    line: Line,
}

/// What is claimed after it came waits for it.
#[derive(Debug)]
struct Bar {
    id: u64,
    ranges: Vec<LbaRange>,
    line: Line,
}

/// Those who wait to claim the same range, by when they came.
#[derive(Debug)]
struct Group {
    range: LbaRange,
    wakers: BTreeMap<u64, Waker>,
}

/// A range as it is looked for.
type Blocks = (u64, u32);

fn blocks(range: LbaRange) -> Blocks {
    (range.start().get(), range.blocks())
}

#[derive(Debug, Default)]
struct State {
    cores: Vec<Arc<Core>>,
    holds: Vec<Noted>,
    /// What lost queues have under way, which may overlap.
    kept: Vec<Noted>,
    /// What commands have waited for too long.
    bars: Vec<Bar>,
    /// Who waits. As long as somebody is ready and there is room for a hold, the first of them was woken and goes on.
    groups: Lines<Group>,
    places: BTreeMap<Blocks, Place>,
    /// What was claimed for whom, who has yet to hear of it.
    claimed: Vec<(u64, Hold)>,
    next: u64,
    closed: bool,
}

impl State {
    fn ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The line of what keeps off somebody who came then.
    fn keeps_off(&self, range: LbaRange, came: u64) -> Option<Line> {
        let mut holds = self.holds.iter().chain(&self.kept);
        let hold = holds.find(|noted| noted.hold.range.overlaps(range)).map(|noted| noted.line);
        let is_in =
            |bar: &&Bar| bar.id < came && bar.ranges.iter().any(|barred| barred.overlaps(range));
        hold.or_else(|| self.bars.iter().find(is_in).map(|bar| bar.line))
    }

    /// Claims a range for somebody whom nothing keeps off.
    fn hold(&mut self, range: LbaRange) -> (Hold, Line) {
        let hold = Hold { id: self.ticket(), range, is_lost: false };
        let line = self.groups.begin();
        self.holds.push(Noted { hold, line });
        (hold, line)
    }

    /// Claims a range unless somebody has to be waited for.
    fn claim(&mut self, range: LbaRange) -> Option<Hold> {
        let has_room = self.holds.len() < HOLDS_MAX && self.groups.first(READY).is_none();
        let is_free = has_room && self.keeps_off(range, u64::MAX).is_none();
        is_free.then(|| self.hold(range).0)
    }

    /// Joins those who wait, and gives when.
    fn wait(&mut self, range: LbaRange, waker: Waker) -> u64 {
        let came = self.ticket();
        let place = match self.places.get(&blocks(range)) {
            Some(place) => *place,
            None => {
                let line = self.keeps_off(range, came).unwrap_or(READY);
                let place = self.groups.join(line, Group { range, wakers: BTreeMap::new() });
                self.places.insert(blocks(range), place);
                place
            }
        };
        self.groups.at(place).wakers.insert(came, waker);
        came
    }

    /// Whom to wake for somebody who waits.
    fn renew(&mut self, range: LbaRange, came: u64, waker: &Waker) {
        let place = self.places.get(&blocks(range));
        if let Some(known) = place.and_then(|at| self.groups.at(*at).wakers.get_mut(&came)) {
            known.clone_from(waker);
        }
    }

    /// What was claimed for whoever came then.
    fn claimed(&mut self, came: u64) -> Option<Hold> {
        let at = self.claimed.iter().position(|(of, _)| *of == came)?;
        Some(self.claimed.swap_remove(at).1)
    }

    /// Somebody waits no more.
    fn give_up(&mut self, range: LbaRange, came: u64) {
        let Some(&place) = self.places.get(&blocks(range)) else { return };
        let wakers = &mut self.groups.at(place).wakers;
        wakers.remove(&came);
        if wakers.is_empty() {
            self.forget(place);
        }
    }

    /// Nobody of a group waits any more.
    fn forget(&mut self, place: Place) {
        let group = self.groups.leave(place);
        self.places.remove(&blocks(group.range));
    }

    /// Whom this kept off is ready to be looked at.
    fn end(&mut self, line: Line) {
        self.groups.append(line, READY);
        self.groups.end(line);
    }

    fn release(&mut self, id: u64) {
        if let Some(at) = self.holds.iter().position(|noted| noted.hold.id == id) {
            let noted = self.holds.swap_remove(at);
            self.end(noted.line);
        }
    }

    fn tell_released(&self, ids: &[u64], own: Option<&Arc<Core>>) {
        let is_other = |core: &&Arc<Core>| own.is_none_or(|own| !Arc::ptr_eq(core, own));
        for core in self.cores.iter().filter(is_other) {
            core.ask(Ask::Release(ids.to_vec()));
        }
    }

    /// Claims for the first of those who are ready what nothing keeps them off, as long as there is room. Of very many it
    /// looks at some, and the first that is left goes on. Gives whom to wake.
    fn go_on(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        for _ in 0..HOLDS_MAX {
            let first = self.groups.first(READY).filter(|_| self.holds.len() < HOLDS_MAX);
            let Some(place) = first else { return woken };
            let group = self.groups.at(place);
            let range = group.range;
            let (&came, _) = group.wakers.first_key_value().expect("a group is of some who wait");
            if let Some(line) = self.keeps_off(range, came) {
                self.groups.go_to(place, line);
                continue;
            }
            let (hold, line) = self.hold(range);
            self.claimed.push((came, hold));
            let group = self.groups.at(place);
            woken.extend(group.wakers.remove(&came));
            if group.wakers.is_empty() {
                self.forget(place);
            } else {
                self.groups.go_to(place, line);
            }
        }
        if self.holds.len() < HOLDS_MAX
            && let Some(place) = self.groups.first(READY)
        {
            woken.extend(self.groups.at(place).wakers.values().next().cloned());
        }
        woken
    }
}

/// Has whoever is ready claim what was released, and wakes them.
fn go_on(mut state: MutexGuard<'_, State>) {
    let woken = state.go_on();
    drop(state);
    woken.into_iter().for_each(Waker::wake);
}

/// Claims a range once it is awaited.
#[derive(Debug)]
#[must_use]
pub(super) struct Claim<'f> {
    fence: &'f Fence,
    range: LbaRange,
    /// When it began to wait.
    came: Option<u64>,
}

impl Future for Claim<'_> {
    type Output = Hold;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Hold> {
        let Self { fence, range, came } = *self;
        let mut state = lock(&fence.state);
        let came = match came {
            Some(came) => {
                state.renew(range, came, cx.waker());
                came
            }
            None => {
                if let Some(hold) = state.claim(range) {
                    return Poll::Ready(hold);
                }
                state.wait(range, cx.waker().clone())
            }
        };
        let hold = state.claimed(came);
        // Its own may be what the others wait for.
        let woken = if hold.is_some() { Vec::new() } else { state.go_on() };
        let hold = hold.or_else(|| state.claimed(came));
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        self.came = if hold.is_some() { None } else { Some(came) };
        hold.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some(came) = self.came else { return };
        let mut state = lock(&self.fence.state);
        match state.claimed(came) {
            // A core that joined since knows of it.
            Some(hold) => {
                state.release(hold.id);
                state.tell_released(&[hold.id], None);
            }
            None => state.give_up(self.range, came),
        }
        go_on(state);
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
        let cores = state.cores.len() + 1;
        state.cores.iter().for_each(|other| other.ask(Ask::Cores(cores)));
        state.cores.push(Arc::clone(&core));
        let holds = state.holds.iter().chain(&state.kept).map(|noted| noted.hold).collect();
        Joined { core, holds, known: state.next, closed: state.closed, cores }
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
        let mut state = lock(&self.state);
        state.cores.retain(|other| !Arc::ptr_eq(other, core));
        state.cores.iter().for_each(|other| other.ask(Ask::Cores(state.cores.len())));
        drop(state);
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
        Claim { fence: self, range, came: None }
    }

    /// Keeps every core but `own` off these ranges, whoever holds a part of them.
    pub(super) fn keep(&self, ranges: Vec<LbaRange>, own: &Arc<Core>) -> Vec<Hold> {
        let mut state = lock(&self.state);
        let kept: Vec<_> = ranges
            .into_iter()
            .map(|range| Hold { id: state.ticket(), range, is_lost: true })
            .collect();
        for hold in &kept {
            let line = state.groups.begin();
            state.kept.push(Noted { hold: *hold, line });
        }
        for core in state.cores.iter().filter(|core| !Arc::ptr_eq(core, own)) {
            core.ask(Ask::Keep(kept.clone()));
        }
        kept
    }

    /// Ends a hold on every core but `own`.
    pub(super) fn release(&self, id: u64, own: &Arc<Core>) {
        let mut state = lock(&self.state);
        state.release(id);
        state.tell_released(&[id], Some(own));
        go_on(state);
    }

    /// The same for what was [kept](Self::keep).
    pub(super) fn release_kept(&self, ids: &[u64], own: &Arc<Core>) {
        let mut state = lock(&self.state);
        let is_ended = |noted: &mut Noted| ids.contains(&noted.hold.id);
        let ended: Vec<_> = state.kept.extract_if(.., is_ended).collect();
        ended.into_iter().for_each(|noted| state.end(noted.line));
        state.tell_released(ids, Some(own));
        go_on(state);
    }

    /// Has those wait who come from now on to claim a part of these ranges; until [`unbar`](Self::unbar) with the number
    /// that this gives.
    pub(super) fn bar(&self, ranges: &[LbaRange]) -> u64 {
        let mut state = lock(&self.state);
        let (id, line) = (state.ticket(), state.groups.begin());
        state.bars.push(Bar { id, ranges: ranges.to_vec(), line });
        id
    }

    pub(super) fn unbar(&self, id: u64) {
        let mut state = lock(&self.state);
        if let Some(at) = state.bars.iter().position(|bar| bar.id == id) {
            let bar = state.bars.swap_remove(at);
            state.end(bar.line);
        }
        go_on(state);
    }

    /// Whether nobody holds anything, nor waits.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        let none_left = state.holds.len() + state.kept.len() + state.bars.len() == 0;
        none_left && state.groups.waiting() + state.places.len() + state.claimed.len() == 0
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
