//! Whose turn it is to use the core, where several want it.
//!
//! Whoever is served by a reactor is a [`Party`], those of one address in one [`Group`]. As long as one party has
//! been alone for a while it does what it likes. Where another was active lately, each group has so many bytes of
//! work in each turn of the loop, however many connections it has: what it cannot do then waits for the next turn, and
//! sockets of others are looked at before (deficit round robin). Within a group the parties take turns, also with one
//! that asks again only when it was served, and within a party who waits longest is first.
//!
//! Bytes stand for time, as far as they can: whoever [spends](Turn::spend) says what else counts for how many.
//! More than was left is made up for in the turns that follow.
//!
//! All of it is one core's: plain cells, and each step takes the same time however many wait.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;

use crate::core::{self as current, Core};
use crate::limits::{BEHIND_NANOS, BEHIND_SHARED_NANOS, LATELY_NANOS, TURN_BYTES};
use crate::line::{Line, Place};
use crate::simulate::World;
use crate::task::yield_now;
use crate::time::Nanos;

/// Those of a reactor that wait for their turn, and who was active.
#[derive(Default)]
pub(crate) struct Sharing {
    /// Groups in which a party is in the ring.
    waiting: RefCell<Vec<Rc<Group>>>,
    /// The party that was active last.
    last: Cell<Option<u64>>,
    /// Until when there counts as more than one.
    shared_until: Cell<Nanos>,
}

impl Drop for Sharing {
    /// A party in its group's ring has the group, which has the party.
    fn drop(&mut self) {
        for group in self.waiting.take() {
            group.ring.take();
        }
    }
}

impl Sharing {
    #[inline]
    fn are_shared(&self, now: Nanos) -> bool {
        now < self.shared_until.get()
    }

    /// How long a turn may be used for what nobody waits for.
    #[inline]
    pub fn behind(&self, now: Nanos) -> Nanos {
        if self.are_shared(now) { BEHIND_SHARED_NANOS } else { BEHIND_NANOS }
    }

    #[inline]
    fn note(&self, party: u64, now: Nanos) {
        if self.last.get() != Some(party) && self.last.replace(Some(party)).is_some() {
            self.shared_until.set(now + LATELY_NANOS);
        }
    }

    pub fn somebody_waits(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// A turn begins: the first of each group may go on.
    pub fn begin(&self, core: &Core) {
        if !self.somebody_waits() {
            return;
        }
        core.worked.set(true);
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|group| {
            group.call_next(core);
            let stays = !group.ring.borrow().is_empty();
            group.is_listed.set(stays);
            stays
        });
    }
}

/// Parties that have one share of each turn.
#[derive(Default)]
pub struct Group {
    /// Bytes left of the turn, less what was done beyond earlier ones.
    left: Cell<i64>,
    /// The turn in which that was counted up.
    turn: Cell<u64>,
    /// Parties in which somebody waits, the next to be called first. One of which somebody is called stays in front until
    /// that turn is over: whoever asked in the meantime is before its others.
    ring: RefCell<VecDeque<Rc<Party>>>,
    /// Somebody of the first party is called, and has not had the turn yet or is in the midst of it.
    called: Cell<bool>,
    is_listed: Cell<bool>,
}

impl Group {
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Whether there is something left of this turn.
    fn has_left(&self, core: &Core) -> bool {
        let turn = core.turn.get();
        let turns = turn.saturating_sub(self.turn.replace(turn));
        if turns > 0 {
            let more = i64::try_from(turns).unwrap_or(i64::MAX).saturating_mul(TURN_BYTES);
            self.left.set(self.left.get().saturating_add(more).min(TURN_BYTES));
        }
        self.left.get() > 0
    }

    fn spend(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.left.set(self.left.get().saturating_sub(bytes));
    }

    /// Calls who waits longest in the next party, if it may begin in this turn.
    fn call_next(&self, core: &Core) {
        let alone = !core.turns.are_shared(core.now.get());
        if self.called.get() || !(self.has_left(core) || alone) {
            return;
        }
        let mut ring = self.ring.borrow_mut();
        while let Some(party) = ring.front() {
            let first = party.line.borrow_mut().leave_first();
            if let Some(first) = first {
                self.called.set(true);
                return first.wake();
            }
            // Those who waited in it have all left.
            party.in_ring.set(false);
            ring.pop_front();
        }
    }

    /// Whoever was called had the turn or does not want it any more: the other parties are first.
    fn pass_on(&self, core: &Core) {
        let called = self.called.replace(false);
        debug_assert!(called, "a turn is passed on by whoever was called");
        let mut ring = self.ring.borrow_mut();
        if let Some(party) = ring.pop_front() {
            let more = !party.line.borrow().is_empty();
            party.in_ring.set(more);
            if more {
                ring.push_back(party);
            }
        }
        drop(ring);
        self.call_next(core);
    }
}

/// One of those that are served.
pub struct Party {
    group: Rc<Group>,
    id: u64,
    /// Those of it that wait and are not called.
    line: RefCell<Line<Waker>>,
    in_ring: Cell<bool>,
    /// When it last did something.
    seen: Cell<Nanos>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("left", &self.left).finish_non_exhaustive()
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Party").field("id", &self.id).finish_non_exhaustive()
    }
}

thread_local! {
    static PARTIES: Cell<u64> = const { Cell::new(0) };
}

/// Between pieces of work that is done for nobody in particular: lets others have the core, where several are active,
/// and goes on in the next turn. In simulation, where there are several cores.
///
/// # Panics
/// When this thread runs no reactor.
pub async fn give_way() {
    let simulated = |core: &Core| core.driver.world().is_some_and(World::has_others);
    if Party::is_bounded() || current::with(simulated) {
        yield_now().await;
    }
}

impl Party {
    #[must_use]
    pub fn of(group: &Rc<Group>) -> Rc<Self> {
        Rc::new(Self {
            group: Rc::clone(group),
            id: PARTIES.with(|parties| parties.replace(parties.get() + 1)),
            line: RefCell::new(Line::new()),
            in_ring: Cell::default(),
            seen: Cell::default(),
        })
    }

    /// Notes that it does something. Once it did something twice within a short time it counts as active, and others
    /// are not alone: the one command with which an idle host keeps its controller does not bound them.
    #[inline]
    pub fn is_active(&self) {
        current::with(|core| {
            let now = core.now.get();
            if now < self.seen.replace(now).saturating_add(LATELY_NANOS) {
                core.turns.note(self.id, now);
            }
        });
    }

    /// Whether others were active lately, so that there is an end to what it may do in a turn.
    #[inline]
    #[must_use]
    pub fn is_bounded() -> bool {
        current::try_with(|core| core.turns.are_shared(core.now.get())).unwrap_or(false)
    }

    /// Counts work of so many bytes that was done outside of a [`Turn`].
    #[inline]
    pub fn spend(&self, bytes: usize) {
        if Self::is_bounded() {
            self.group.spend(bytes);
        }
    }

    /// Waits for a turn to do work of so many bytes, which is to begin at once.
    pub async fn work(self: &Rc<Self>, bytes: usize) {
        let seat = Seat::new(Rc::clone(self));
        poll_fn(|cx| seat.poll_turn(cx).map(|turn| turn.spend(bytes))).await;
    }

    fn join(self: &Rc<Self>, core: &Core, waker: Waker) -> Place {
        let place = self.line.borrow_mut().join(waker);
        let group = &self.group;
        if !self.in_ring.replace(true) {
            group.ring.borrow_mut().push_back(Rc::clone(self));
        }
        if !group.is_listed.replace(true) {
            core.turns.waiting.borrow_mut().push(Rc::clone(group));
        }
        place
    }
}

/// A task's place among those that wait for a party's turn.
pub struct Seat {
    party: Rc<Party>,
    place: Cell<Option<Place>>,
}

impl Seat {
    #[must_use]
    pub const fn new(party: Rc<Party>) -> Self {
        Self { party, place: Cell::new(None) }
    }

    #[must_use]
    pub const fn party(&self) -> &Rc<Party> {
        &self.party
    }

    /// Ready when it is this one's turn. Whoever was told to wait and does not want to any more
    /// [leaves](Self::leave).
    #[inline]
    pub fn poll_turn(&self, cx: &Context<'_>) -> Poll<Turn<'_>> {
        current::with(|core| {
            let bounded = core.turns.are_shared(core.now.get());
            if !bounded && self.place.get().is_none() {
                return Poll::Ready(Turn { group: None, bounded, called: false });
            }
            self.poll_bounded(core, bounded, cx)
        })
    }

    #[cold]
    fn poll_bounded(&self, core: &Core, bounded: bool, cx: &Context<'_>) -> Poll<Turn<'_>> {
        let group = &self.party.group;
        let called = match self.place.get() {
            Some(place) => {
                if let Some(waker) = self.party.line.borrow_mut().get_mut(place) {
                    waker.clone_from(cx.waker());
                    return Poll::Pending;
                }
                self.place.set(None);
                true
            }
            None if group.ring.borrow().is_empty() && group.has_left(core) => false,
            None => {
                self.place.set(Some(self.party.join(core, cx.waker().clone())));
                return Poll::Pending;
            }
        };
        Poll::Ready(Turn { group: Some(group), bounded, called })
    }

    /// Waits no more.
    pub fn leave(&self) {
        let Some(place) = self.place.take() else { return };
        let left = self.party.line.borrow_mut().leave(place);
        if left.is_none() {
            // It was called.
            current::try_with(|core| self.party.group.pass_on(core));
        }
        drop(left);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A turn, until it is dropped.
#[must_use]
pub struct Turn<'a> {
    /// Whose it is, where others of it may wait.
    group: Option<&'a Rc<Group>>,
    bounded: bool,
    /// It was waited for.
    called: bool,
}

impl Turn<'_> {
    #[inline]
    #[must_use]
    pub const fn is_bounded(&self) -> bool {
        self.bounded
    }

    /// Counts work of so many bytes.
    #[inline]
    pub fn spend(&self, bytes: usize) {
        if let Some(group) = self.group
            && self.bounded
        {
            group.spend(bytes);
        }
    }

    /// Whether nothing is left of it.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.bounded && self.group.is_some_and(|group| group.left.get() <= 0)
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(group) = self.group.filter(|_| self.called) {
            current::try_with(|core| group.pass_on(core));
        }
    }
}

#[cfg(test)]
mod tests;
