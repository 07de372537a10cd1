//! Places in a reactor's registered memory, for data on its way. First come first served when they run out, but for
//! addresses that have their share: what a host that takes nothing holds, others do not wait for. Within an address it is
//! first come first served throughout: whoever wants much would wait for ever behind those that want little.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

use reactor::budget::{Account, Grant};

use super::shares::Shares;

/// Places are multiples of this, bytes.
const UNIT: usize = 4096;

/// Who has which part of so many bytes.
pub struct Staging {
    /// Free runs: start and length, in units. No two touch.
    free: RefCell<BTreeMap<usize, usize>>,
    shares: Shares,
    waiting: RefCell<VecDeque<Waiter>>,
    next: Cell<u64>,
}

/// Who waits for a place.
struct Waiter {
    number: u64,
    account: Rc<Account>,
    units: usize,
    waker: Waker,
}

impl Waiter {
    /// Whether it could have a place now, were there one. Whoever has none is never over its share: it has its turn, and
    /// those behind wait for it.
    fn may_have(&self) -> bool {
        may_have(&self.account, self.units)
    }
}

/// Who of those in line has the turn: the first of an address that may have what its first wants.
fn first(waiting: &VecDeque<Waiter>) -> Option<&Waiter> {
    let mut over: Vec<&Rc<Account>> = Vec::new();
    waiting.iter().find(|waiter| {
        if over.iter().any(|account| Rc::ptr_eq(account, &waiter.account)) {
            return false;
        }
        let may_have = waiter.may_have();
        if !may_have {
            over.push(&waiter.account);
        }
        may_have
    })
}

fn may_have(account: &Account, units: usize) -> bool {
    account.held() == 0 || account.admits(units * UNIT)
}

fn units(length: usize) -> usize {
    length.div_ceil(UNIT).max(1)
}

impl Staging {
    /// All free.
    #[must_use]
    pub fn new(bytes: usize) -> Rc<Self> {
        Rc::new(Self {
            free: RefCell::new(BTreeMap::from([(0, bytes / UNIT)])),
            shares: Shares::new(bytes),
            waiting: RefCell::default(),
            next: Cell::default(),
        })
    }

    /// What the peers of one address have together.
    pub fn share_of(self: &Rc<Self>, peer: IpAddr) -> Share {
        Share { staging: Rc::clone(self), account: self.shares.account(peer) }
    }

    /// A place of `length` bytes, if there is one: where there is one peer only, and nobody waits.
    pub fn try_take(self: &Rc<Self>, length: usize) -> Option<Place> {
        self.cut(length, None)
    }

    /// Who has the turn.
    fn first(&self) -> Option<u64> {
        first(&self.waiting.borrow()).map(|waiter| waiter.number)
    }

    /// Whether one that is not in line passes nobody: neither who has the turn, nor one of its own address.
    fn is_next(&self, account: &Rc<Account>, units: usize) -> bool {
        let waiting = self.waiting.borrow();
        let is_own = |waiter: &Waiter| Rc::ptr_eq(&waiter.account, account);
        first(&waiting).is_none() && !waiting.iter().any(is_own) && may_have(account, units)
    }

    /// Has all who wait look again at what they wait for.
    pub fn wake_all(&self) {
        self.waiting.borrow().iter().for_each(|waiter| waiter.waker.wake_by_ref());
    }

    fn wake_first(&self) {
        if let Some(waiter) = first(&self.waiting.borrow()) {
            waiter.waker.wake_by_ref();
        }
    }

    /// The first run that is long enough, or its beginning.
    fn cut(self: &Rc<Self>, length: usize, account: Option<&Rc<Account>>) -> Option<Place> {
        let units = units(length);
        let mut free = self.free.borrow_mut();
        let (start, run) = free.iter().find(|(_, run)| **run >= units).map(|(s, r)| (*s, *r))?;
        free.remove(&start);
        if run > units {
            free.insert(start + units, run - units);
        }
        let grant = account.map(|account| account.grant(units * UNIT));
        Some(Place { staging: Rc::clone(self), start, units, length, grant })
    }

    fn give_back(&self, mut start: usize, mut units: usize) {
        let mut free = self.free.borrow_mut();
        if let Some((before, run)) = free.range(..start).next_back().map(|(s, r)| (*s, *r))
            && before + run == start
        {
            free.remove(&before);
            (start, units) = (before, run + units);
        }
        if let Some(behind) = free.remove(&(start + units)) {
            units += behind;
        }
        free.insert(start, units);
    }
}

/// What the peers of one address may have of it.
#[derive(Clone)]
pub struct Share {
    staging: Rc<Staging>,
    account: Rc<Account>,
}

impl Share {
    /// A place of `length` bytes, unless somebody has the turn, the address has its share or waits for more, or there is
    /// none.
    pub fn try_take(&self, length: usize) -> Option<Place> {
        let free = self.staging.is_next(&self.account, units(length));
        if free { self.staging.cut(length, Some(&self.account)) } else { None }
    }

    /// A place of `length` bytes, when there is one, the address may have it, and all who came before and may have theirs
    /// have it.
    pub async fn take(&self, length: usize) -> Place {
        let mut ticket = Ticket::new(self);
        poll_fn(|cx| ticket.poll_take(length, cx)).await
    }

    /// Has all who wait look again at what they wait for.
    pub fn wake_all(&self) {
        self.staging.wake_all();
    }
}

/// A place, free again when dropped. Not before the card is done with it.
pub struct Place {
    staging: Rc<Staging>,
    start: usize,
    units: usize,
    length: usize,
    /// Of whoever's share it is.
    grant: Option<Grant>,
}

impl Place {
    /// Where, and how long.
    #[must_use]
    pub const fn at(&self) -> verbs::Place {
        verbs::Place { offset: self.start * UNIT, length: self.length }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.staging.give_back(self.start, self.units);
        drop(self.grant.take());
        self.staging.wake_first();
    }
}

/// Somebody's turn, given up when dropped.
pub struct Ticket {
    share: Share,
    number: Option<u64>,
}

impl Ticket {
    /// Not in line yet.
    #[must_use]
    pub fn new(share: &Share) -> Self {
        Self { share: share.clone(), number: None }
    }

    /// As [`Share::take`].
    pub fn poll_take(&mut self, length: usize, cx: &Context<'_>) -> Poll<Place> {
        let Share { staging, account } = &self.share;
        let units = units(length);
        let first = match self.number {
            None => staging.is_next(account, units),
            number => staging.first() == number,
        };
        if first && let Some(place) = staging.cut(length, Some(account)) {
            self.leave();
            return Poll::Ready(place);
        }
        let mut waiting = staging.waiting.borrow_mut();
        let known = waiting.iter_mut().find(|waiter| Some(waiter.number) == self.number);
        match known {
            Some(waiter) => waiter.waker.clone_from(cx.waker()),
            None => {
                let number = staging.next.replace(staging.next.get() + 1);
                self.number = Some(number);
                let (account, waker) = (Rc::clone(account), cx.waker().clone());
                waiting.push_back(Waiter { number, account, units, waker });
            }
        }
        Poll::Pending
    }

    fn leave(&mut self) {
        let Some(number) = self.number.take() else { return };
        let staging = &self.share.staging;
        staging.waiting.borrow_mut().retain(|waiter| waiter.number != number);
        staging.wake_first();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn places_do_not_overlap_and_come_back_whole() {
        let staging = Staging::new(4 * MIB);
        let mut random = stdx::Prng::new(7);
        let mut live: Vec<Place> = Vec::new();
        for _ in 0..4000 {
            if random.below(5) < 3 {
                let length = stdx::num::usize64(random.below(300_000)) + 1;
                live.extend(staging.try_take(length));
            } else if !live.is_empty() {
                let at = stdx::num::usize64(random.below(stdx::num::u64_of(live.len())));
                drop(live.swap_remove(at));
            }
            let mut spans: Vec<_> = live.iter().map(|place| place.at()).collect();
            spans.sort_by_key(|span| span.offset);
            for pair in spans.windows(2) {
                assert!(pair[0].offset + pair[0].length <= pair[1].offset);
            }
            assert!(spans.last().is_none_or(|last| last.offset + last.length <= 4 * MIB));
        }
        drop(live);
        assert_eq!(*staging.free.borrow(), BTreeMap::from([(0, 1024)]));
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// A large transfer waited for ever while small ones came and went.
    #[test]
    fn who_came_first_is_served_first() {
        let staging = Staging::new(MIB);
        let [one, other] = [1, 2].map(|last| staging.share_of(address(last)));
        let cx = Context::from_waker(Waker::noop());
        let small = other.try_take(4096).unwrap();
        let (mut first, mut second) = (Ticket::new(&one), Ticket::new(&other));
        assert!(first.poll_take(MIB, &cx).is_pending());
        assert!(second.poll_take(4096, &cx).is_pending());
        assert!(other.try_take(4096).is_none());
        drop(small);
        assert!(second.poll_take(4096, &cx).is_pending());
        let Poll::Ready(whole) = first.poll_take(MIB, &cx) else { panic!("all of it is free") };
        assert!(second.poll_take(4096, &cx).is_pending());
        drop(whole);
        assert!(second.poll_take(4096, &cx).is_ready());
        // Who gives up is waited for by nobody.
        let all = one.try_take(MIB).unwrap();
        let mut gone = Ticket::new(&other);
        assert!(gone.poll_take(MIB, &cx).is_pending());
        drop((gone, all));
        assert!(other.try_take(1).is_some());
    }

    /// A large transfer waited for ever while small ones of its own address, which has its share, came and went.
    #[test]
    fn whoever_wants_much_is_not_passed_by_its_own_address() {
        let staging = Staging::new(16 * MIB);
        let [busy, other] = [1, 2].map(|last| staging.share_of(address(last)));
        let cx = Context::from_waker(Waker::noop());
        let mut small: VecDeque<_> = std::iter::from_fn(|| busy.try_take(MIB)).collect();
        let mut large = Ticket::new(&busy);
        assert!(large.poll_take(8 * MIB, &cx).is_pending());
        let mut behind = Ticket::new(&busy);
        let mut rounds = 0;
        while large.poll_take(8 * MIB, &cx).is_pending() {
            rounds += 1;
            assert!(rounds <= 10, "small ones pass it");
            drop(small.pop_front());
            small.extend(busy.try_take(MIB));
            if let Poll::Ready(place) = behind.poll_take(MIB, &cx) {
                small.push_back(place);
                behind = Ticket::new(&busy);
            }
            assert!(other.try_take(MIB).is_some() || busy.staging.first().is_some());
        }
        drop(large);
        drop(small);
        assert!(behind.poll_take(MIB, &cx).is_ready());
    }

    /// A host that asked for much and took nothing had all of it, and each reactor's others waited until it was given up.
    #[test]
    fn whoever_takes_nothing_does_not_hold_up_the_others() {
        let staging = Staging::new(16 * MIB);
        let [greedy, other] = [1, 2].map(|last| staging.share_of(address(last)));
        let held: Vec<_> = std::iter::from_fn(|| greedy.try_take(MIB)).collect();
        assert_eq!(held.len(), 10);
        let cx = Context::from_waker(Waker::noop());
        // Its next ones wait, and nobody behind them does.
        let mut waits = Ticket::new(&greedy);
        assert!(waits.poll_take(MIB, &cx).is_pending());
        let mut behind = Ticket::new(&other);
        let Poll::Ready(place) = behind.poll_take(MIB, &cx) else { panic!("a third is free") };
        assert!(waits.poll_take(MIB, &cx).is_pending());
        drop(place);
        assert!(other.try_take(MIB).is_some());
        // It is woken as soon as it may have more.
        let woken = std::sync::Arc::new(Woken::default());
        let waker = Waker::from(std::sync::Arc::clone(&woken));
        assert!(waits.poll_take(MIB, &Context::from_waker(&waker)).is_pending());
        drop(held);
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
        assert!(waits.poll_take(MIB, &cx).is_ready());
    }

    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Woken {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
