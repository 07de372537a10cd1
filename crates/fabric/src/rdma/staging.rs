//! Places in a reactor's registered memory, for data on its way. First come first served when they run out.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Places are multiples of this, bytes.
const UNIT: usize = 4096;

/// Who has which part of so many bytes.
pub struct Staging {
    /// Free runs: start and length, in units. No two touch.
    free: RefCell<BTreeMap<usize, usize>>,
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    next: Cell<u64>,
}

impl Staging {
    /// All free.
    #[must_use]
    pub fn new(bytes: usize) -> Rc<Self> {
        Rc::new(Self {
            free: RefCell::new(BTreeMap::from([(0, bytes / UNIT)])),
            waiting: RefCell::default(),
            next: Cell::default(),
        })
    }

    /// A place of `length` bytes, unless somebody waits or there is none.
    pub fn try_take(self: &Rc<Self>, length: usize) -> Option<Place> {
        if self.waiting.borrow().is_empty() { self.cut(length) } else { None }
    }

    /// A place of `length` bytes, when there is one and all who came before have theirs.
    pub async fn take(self: &Rc<Self>, length: usize) -> Place {
        let mut ticket = Ticket::new(self);
        poll_fn(|cx| self.poll_take(&mut ticket, length, cx)).await
    }

    /// As [`Staging::take`].
    pub fn poll_take(
        self: &Rc<Self>,
        ticket: &mut Ticket,
        length: usize,
        cx: &Context<'_>,
    ) -> Poll<Place> {
        let first = match (ticket.number, self.waiting.borrow().front()) {
            (None, front) => front.is_none(),
            (Some(number), front) => front.is_some_and(|&(other, _)| other == number),
        };
        if first && let Some(place) = self.cut(length) {
            ticket.leave();
            return Poll::Ready(place);
        }
        let mut waiting = self.waiting.borrow_mut();
        let known = waiting.iter_mut().find(|(number, _)| Some(*number) == ticket.number);
        match known {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => {
                let number = self.next.replace(self.next.get() + 1);
                ticket.number = Some(number);
                waiting.push_back((number, cx.waker().clone()));
            }
        }
        Poll::Pending
    }

    /// Has all who wait look again at what they wait for.
    pub fn wake_all(&self) {
        self.waiting.borrow().iter().for_each(|(_, waker)| waker.wake_by_ref());
    }

    fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.borrow().front() {
            waker.wake_by_ref();
        }
    }

    /// The first run that is long enough, or its beginning.
    fn cut(self: &Rc<Self>, length: usize) -> Option<Place> {
        let units = length.div_ceil(UNIT).max(1);
        let mut free = self.free.borrow_mut();
        let (start, run) = free.iter().find(|(_, run)| **run >= units).map(|(s, r)| (*s, *r))?;
        free.remove(&start);
        if run > units {
            free.insert(start + units, run - units);
        }
        Some(Place { staging: Rc::clone(self), start, units, length })
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
        drop(free);
        self.wake_first();
    }
}

/// A place, free again when dropped. Not before the card is done with it.
pub struct Place {
    staging: Rc<Staging>,
    start: usize,
    units: usize,
    length: usize,
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
    }
}

/// Somebody's turn, given up when dropped.
pub struct Ticket {
    staging: Rc<Staging>,
    number: Option<u64>,
}

impl Ticket {
    /// Not in line yet.
    #[must_use]
    pub fn new(staging: &Rc<Staging>) -> Self {
        Self { staging: Rc::clone(staging), number: None }
    }

    fn leave(&mut self) {
        let Some(number) = self.number.take() else { return };
        self.staging.waiting.borrow_mut().retain(|&(other, _)| other != number);
        self.staging.wake_first();
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

    /// A large transfer waited for ever while small ones came and went.
    #[test]
    fn who_came_first_is_served_first() {
        let staging = Staging::new(MIB);
        let cx = Context::from_waker(Waker::noop());
        let small = staging.try_take(4096).unwrap();
        let (mut first, mut second) = (Ticket::new(&staging), Ticket::new(&staging));
        assert!(staging.poll_take(&mut first, MIB, &cx).is_pending());
        assert!(staging.poll_take(&mut second, 4096, &cx).is_pending());
        assert!(staging.try_take(4096).is_none());
        drop(small);
        assert!(staging.poll_take(&mut second, 4096, &cx).is_pending());
        let Poll::Ready(whole) = staging.poll_take(&mut first, MIB, &cx) else {
            panic!("all of it is free")
        };
        assert!(staging.poll_take(&mut second, 4096, &cx).is_pending());
        drop(whole);
        assert!(staging.poll_take(&mut second, 4096, &cx).is_ready());
        // Who gives up is waited for by nobody.
        let all = staging.try_take(MIB).unwrap();
        let mut gone = Ticket::new(&staging);
        assert!(staging.poll_take(&mut gone, MIB, &cx).is_pending());
        drop((gone, all));
        assert!(staging.try_take(1).is_some());
    }
}
