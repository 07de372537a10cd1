//! How much of what a reactor has, bytes or places, each of those it serves may hold.
//!
//! A [`Ledger`] has an amount of it, and an [`Account`] for each of them. An account gets what it asks for as long as
//! it then holds no more than [`SHARE`] times what is left free: alone it gets two thirds and never the last
//! third, the next one two thirds of that, and so on, so that whoever comes last finds something, however much the
//! others hoard (dynamic thresholds, as switches share the memory of their ports). One that holds nothing gets
//! any of what is free. Who has to wait is served first come first served within its account, and the accounts
//! take turns.
//!
//! Accounts may be in a [`Group`], which then has that share, and whose accounts share in the same way what it can
//! have: names cost nothing, and no number of them gets one address more than another.
//!
//! All of it is one core's: plain cells.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::limits::SHARE;

/// An amount of something that accounts share.
#[derive(Debug)]
pub struct Ledger {
    total: Cell<usize>,
    /// What the accounts hold together. More than `total` where something had to be [charged](Account::charge).
    used: Cell<usize>,
    /// How often what was asked for was not there, or more than one's share.
    missed: Cell<u64>,
    /// Accounts that somebody waits in, the next to be served first.
    turns: RefCell<VecDeque<Rc<Account>>>,
}

/// Accounts of a ledger that have a share together.
#[derive(Debug)]
pub struct Group {
    ledger: Rc<Ledger>,
    held: Cell<usize>,
}

/// What one of those who share a ledger holds.
#[derive(Debug)]
pub struct Account {
    ledger: Rc<Ledger>,
    group: Option<Rc<Group>>,
    /// More than this is never its share.
    most: usize,
    held: Cell<usize>,
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
    /// Of `waiters`, those that gave up.
    gone: Cell<usize>,
    in_turn: Cell<bool>,
}

#[derive(Debug)]
struct Waiter {
    amount: usize,
    state: Cell<State>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// The amount is charged to the account.
    Granted,
    Gone,
}

/// What became of an account's turn.
enum Turn {
    Served,
    /// Its first waiter asks for more than it may have now.
    Missed,
    Nobody,
}

impl Ledger {
    #[must_use]
    pub fn new(total: usize) -> Rc<Self> {
        let total = Cell::new(total);
        Rc::new(Self { total, used: Cell::new(0), missed: Cell::new(0), turns: RefCell::default() })
    }

    #[must_use]
    pub const fn total(&self) -> usize {
        self.total.get()
    }

    /// Has there be less of it, or more. What is held stays with its holders.
    pub fn set_total(&self, total: usize) {
        self.total.set(total);
        self.serve();
    }

    #[must_use]
    pub const fn used(&self) -> usize {
        self.used.get()
    }

    /// How often somebody was refused, or had to wait.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed.get()
    }

    /// Counts one who was refused, or has to wait.
    pub fn miss(&self) {
        self.missed.set(self.missed.get() + 1);
    }

    #[must_use]
    pub const fn free(&self) -> usize {
        self.total.get().saturating_sub(self.used.get())
    }

    /// What the poorest of those who wait holds; `None` while nobody waits.
    #[must_use]
    pub fn poorest_waiting(&self) -> Option<usize> {
        let turns = self.turns.borrow();
        turns.iter().filter(|account| account.somebody_waits()).map(|a| a.held.get()).min()
    }

    /// Serves those who wait, the accounts in turn, until the first of none of them can be.
    fn serve(&self) {
        let mut turns = self.turns.borrow_mut();
        let mut missed = 0;
        while missed < turns.len() {
            let Some(account) = turns.pop_front() else { break };
            match account.take_turn() {
                Turn::Served => {
                    turns.push_back(account);
                    missed = 0;
                }
                Turn::Missed => {
                    turns.push_back(account);
                    missed += 1;
                }
                Turn::Nobody => account.in_turn.set(false),
            }
        }
    }
}

impl Group {
    #[must_use]
    pub fn new(ledger: &Rc<Ledger>) -> Rc<Self> {
        Rc::new(Self { ledger: Rc::clone(ledger), held: Cell::default() })
    }

    #[must_use]
    pub const fn held(&self) -> usize {
        self.held.get()
    }

    #[must_use]
    pub const fn ledger(&self) -> &Rc<Ledger> {
        &self.ledger
    }

    /// How much more its accounts could have if one of them got `amount`; `None` where that is too much.
    fn room_after(&self, amount: usize) -> Option<usize> {
        let left = self.ledger.free().checked_sub(amount)?;
        if self.held.get() == 0 {
            return Some(left);
        }
        let over = (SHARE * left).checked_sub(self.held.get() + amount)?;
        // What they get is not left any more.
        Some(over / (SHARE + 1))
    }
}

impl Account {
    /// One in no group.
    #[must_use]
    pub fn new(ledger: &Rc<Ledger>) -> Rc<Self> {
        Self::of_at_most(ledger, usize::MAX)
    }

    /// One in no group that never gets more than `most`, however much is free.
    #[must_use]
    pub fn of_at_most(ledger: &Rc<Ledger>, most: usize) -> Rc<Self> {
        Self::with(ledger, None, most)
    }

    #[must_use]
    pub fn among(group: &Rc<Group>) -> Rc<Self> {
        Self::with(&group.ledger, Some(Rc::clone(group)), usize::MAX)
    }

    fn with(ledger: &Rc<Ledger>, group: Option<Rc<Group>>, most: usize) -> Rc<Self> {
        Rc::new(Self {
            ledger: Rc::clone(ledger),
            group,
            most,
            held: Cell::default(),
            waiters: RefCell::default(),
            gone: Cell::default(),
            in_turn: Cell::default(),
        })
    }

    #[must_use]
    pub fn ledger(&self) -> &Rc<Ledger> {
        &self.ledger
    }

    #[must_use]
    pub const fn held(&self) -> usize {
        self.held.get()
    }

    /// Whether its share, and its group's, allow `amount` more. Who is refused for it is to be [counted](Ledger::miss).
    #[inline]
    #[must_use]
    pub fn admits(&self, amount: usize) -> bool {
        let room = match &self.group {
            Some(group) => group.room_after(amount),
            None => self.ledger.free().checked_sub(amount),
        };
        let Some(room) = room else { return false };
        let held = self.held.get();
        held == 0 || held + amount <= self.most.min(SHARE * room)
    }

    /// Takes `amount`, which is there whether the account may have it or not.
    #[inline]
    pub fn charge(&self, amount: usize) {
        self.held.set(self.held.get() + amount);
        if let Some(group) = &self.group {
            group.held.set(group.held.get() + amount);
        }
        self.ledger.used.set(self.ledger.used.get() + amount);
    }

    fn take_off(&self, amount: usize) {
        self.held.set(self.held.get() - amount);
        if let Some(group) = &self.group {
            group.held.set(group.held.get() - amount);
        }
        self.ledger.used.set(self.ledger.used.get() - amount);
    }

    /// Gives back what was taken by [`Account::charge`].
    #[inline]
    pub fn release(&self, amount: usize) {
        self.take_off(amount);
        if !self.ledger.turns.borrow().is_empty() {
            self.ledger.serve();
        }
    }

    /// [`Account::charge`], given back when dropped.
    pub fn grant(self: &Rc<Self>, amount: usize) -> Grant {
        self.charge(amount);
        Grant { account: Rc::clone(self), amount }
    }

    /// Takes `amount` if the share allows it and nobody of this account waits.
    #[must_use]
    pub fn try_take(self: &Rc<Self>, amount: usize) -> Option<Grant> {
        let now = self.at_once(amount);
        if now.is_none() {
            self.ledger.miss();
        }
        now
    }

    /// As [`try_take`](Self::try_take), for those who wait then.
    #[inline]
    pub(crate) fn at_once(self: &Rc<Self>, amount: usize) -> Option<Grant> {
        let now = !self.somebody_waits() && self.admits(amount);
        now.then(|| self.grant(amount))
    }

    /// Takes `amount` when it is this account's turn and its share allows it.
    pub async fn take(self: &Rc<Self>, amount: usize) -> Grant {
        debug_assert!(amount <= self.most.min(self.ledger.total.get()), "more than there ever is");
        if let Some(grant) = self.try_take(amount) {
            return grant;
        }
        let place = Place {
            account: self,
            waiter: Rc::new(Waiter {
                amount,
                state: Cell::new(State::Waiting),
                waker: RefCell::default(),
            }),
        };
        self.waiters.borrow_mut().push_back(Rc::clone(&place.waiter));
        if !self.in_turn.replace(true) {
            self.ledger.turns.borrow_mut().push_back(Rc::clone(self));
        }
        poll_fn(|cx| place.poll(cx)).await
    }

    fn somebody_waits(&self) -> bool {
        self.waiters.borrow().len() > self.gone.get()
    }

    fn take_turn(&self) -> Turn {
        let mut waiters = self.waiters.borrow_mut();
        while waiters.front().is_some_and(|waiter| waiter.state.get() == State::Gone) {
            waiters.pop_front();
            self.gone.set(self.gone.get() - 1);
        }
        let Some(first) = waiters.front() else { return Turn::Nobody };
        if !self.admits(first.amount) {
            return Turn::Missed;
        }
        self.charge(first.amount);
        first.state.set(State::Granted);
        if let Some(waker) = first.waker.take() {
            waker.wake();
        }
        waiters.pop_front();
        Turn::Served
    }

    /// Forgets those that gave up once they are most: a constant effort for each.
    fn tidy(&self) {
        let mut waiters = self.waiters.borrow_mut();
        if self.gone.get() * 2 > waiters.len() {
            waiters.retain(|waiter| waiter.state.get() != State::Gone);
            self.gone.set(0);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.take_off(self.held.get());
    }
}

/// A place among those who wait in an account.
struct Place<'a> {
    account: &'a Rc<Account>,
    waiter: Rc<Waiter>,
}

impl Place<'_> {
    fn poll(&self, cx: &Context<'_>) -> Poll<Grant> {
        if self.waiter.state.get() == State::Granted {
            // Charged already; the grant gives it back from here on.
            self.waiter.state.set(State::Gone);
            let (account, amount) = (Rc::clone(self.account), self.waiter.amount);
            return Poll::Ready(Grant { account, amount });
        }
        let mut waker = self.waiter.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        match self.waiter.state.replace(State::Gone) {
            State::Gone => {}
            State::Granted => self.account.release(self.waiter.amount),
            State::Waiting => {
                self.account.gone.set(self.account.gone.get() + 1);
                self.account.tidy();
                // Whoever was behind may ask for less.
                self.account.ledger.serve();
            }
        }
    }
}

/// An amount taken, given back when dropped.
#[derive(Debug)]
#[must_use]
pub struct Grant {
    account: Rc<Account>,
    amount: usize,
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.account.release(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use core::pin::{Pin, pin};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// All that an account gets, one at a time.
    fn hoard(account: &Rc<Account>) -> Vec<Grant> {
        std::iter::from_fn(|| account.try_take(1)).collect()
    }

    #[test]
    fn nobody_gets_the_last_third_and_each_that_comes_finds_something() {
        let ledger = Ledger::new(900);
        let accounts: Vec<_> = (0..5).map(|_| Account::new(&ledger)).collect();
        let grants: Vec<_> = accounts.iter().map(hoard).collect();
        let held: Vec<_> = accounts.iter().map(|account| account.held()).collect();
        assert_eq!(held, [600, 200, 66, 22, 8]);
        assert_eq!(ledger.free(), 4);
        drop(grants);
        assert_eq!(ledger.free(), 900);
    }

    /// Each name had a share of its own: six of one address took all there was.
    #[test]
    fn however_many_accounts_a_group_has_others_find_a_third() {
        let ledger = Ledger::new(900);
        let group = Group::new(&ledger);
        let accounts: Vec<_> = (0..100).map(|_| Account::among(&group)).collect();
        let _grants: Vec<_> = accounts.iter().map(hoard).collect();
        assert!(accounts[1].held() > 100, "a second one of the same group finds something");
        assert!((590..=600).contains(&group.held()), "{}", group.held());
        let other = Account::new(&ledger);
        assert_eq!(hoard(&other).len(), 200);
    }

    #[test]
    fn who_holds_nothing_may_have_any_of_what_is_free() {
        let ledger = Ledger::new(300);
        let (rich, poor) = (Account::new(&ledger), Account::new(&ledger));
        let _rich = hoard(&rich);
        assert!(poor.try_take(101).is_none());
        let whole = poor.try_take(100).unwrap();
        assert!(poor.try_take(1).is_none());
        drop(whole);
        assert!(poor.try_take(1).is_some());
    }

    #[test]
    fn nobody_gets_more_than_its_most() {
        let ledger = Ledger::new(100);
        let account = Account::of_at_most(&ledger, 10);
        let grants = hoard(&account);
        assert_eq!((grants.len(), ledger.used(), ledger.missed()), (10, 10, 1));
        assert_eq!(hoard(&Account::new(&ledger)).len(), 60, "two thirds of the rest");
    }

    #[test]
    fn accounts_take_turns_however_many_wait_in_one() {
        let ledger = Ledger::new(30);
        let [a, b, c] = [0; 3].map(|_| Account::new(&ledger));
        let all = c.grant(30);
        let mut of_a: Vec<_> = (0..10).map(|_| Box::pin(a.take(1))).collect();
        assert!(of_a.iter_mut().all(|take| poll(take.as_mut()).is_none()));
        let mut of_b = pin!(b.take(1));
        assert!(poll(of_b.as_mut()).is_none());
        assert_eq!(ledger.poorest_waiting(), Some(0));
        drop(all);
        assert!(of_a.iter_mut().all(|take| poll(take.as_mut()).is_some()));
        assert!(poll(of_b).is_some());
        assert_eq!((a.held(), b.held(), c.held()), (0, 0, 0), "given back as soon as seen");

        // With room for two, the first of each gets it.
        let most = c.grant(28);
        let mut of_a: Vec<_> = (0..10).map(|_| Box::pin(a.take(2))).collect();
        let first = poll(of_a[0].as_mut());
        assert!(first.is_some() && of_a[1..].iter_mut().all(|take| poll(take.as_mut()).is_none()));
        let mut of_b = pin!(b.take(2));
        assert!(poll(of_b.as_mut()).is_none());
        drop(first);
        let second = poll(of_a[1].as_mut());
        assert!(second.is_some() && poll(of_b.as_mut()).is_none());
        drop(second);
        assert!(of_a[2..].iter_mut().all(|take| poll(take.as_mut()).is_none()), "its turn is over");
        assert!(poll(of_b).is_some());
        drop(most);
    }

    #[test]
    fn who_gives_up_keeps_nothing_and_lets_those_behind_go() {
        let ledger = Ledger::new(10);
        let (a, b) = (Account::new(&ledger), Account::new(&ledger));
        let most = b.grant(8);
        let one = a.try_take(1).unwrap();
        let mut large = Box::pin(a.take(9));
        let mut small = Box::pin(a.take(1));
        assert!(poll(large.as_mut()).is_none() && poll(small.as_mut()).is_none());
        assert!(a.try_take(1).is_none(), "others of it wait");
        drop(one);
        assert!(poll(small.as_mut()).is_none());
        drop(large);
        let granted = poll(small.as_mut());
        assert!(granted.is_some());
        // One is granted while nobody looks.
        let unseen = Box::pin(async { a.take(2).await });
        let mut unseen = unseen;
        assert!(poll(unseen.as_mut()).is_none());
        drop(most);
        drop(unseen);
        drop(granted);
        assert_eq!((ledger.free(), a.held()), (10, 0));
        assert_eq!(ledger.poorest_waiting(), None);
    }

    #[test]
    fn a_host_that_asks_and_gives_up_for_ever_leaves_no_trace() {
        let ledger = Ledger::new(10);
        let (a, b) = (Account::new(&ledger), Account::new(&ledger));
        let _all = b.grant(10);
        let mut first = pin!(a.take(1));
        assert!(poll(first.as_mut()).is_none());
        for _ in 0..10_000 {
            assert!(poll(Box::pin(a.take(1)).as_mut()).is_none());
        }
        assert!(a.waiters.borrow().len() <= 4);
        assert_eq!(ledger.turns.borrow().len(), 1);
    }
}
