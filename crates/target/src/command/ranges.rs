//! Which logical blocks of a namespace are being changed on this core, and which are held for a
//! compare and write.
//!
//! A fused Compare and Write is atomic against every other write to its blocks (NVM Command Set
//! 1.1, fused operations). It *holds* its range: commands that come later wait, those under way on
//! the range are waited for. A command that completes within one poll needs no entry here; it only
//! asks whether its range is free, which is one comparison while nobody holds anything.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use nvme::nvm::LbaRange;
use stdx::slab::Slab;

use crate::limits::MAX_RANGES_IN_FLIGHT;

#[derive(Clone, Copy, Debug)]
struct Hold {
    ticket: u64,
    range: LbaRange,
}

#[derive(Clone, Copy, Debug)]
struct Entered {
    ticket: u64,
    range: LbaRange,
}

/// The ranges of one namespace on one core.
#[derive(Debug)]
pub struct Ranges {
    holds: RefCell<Vec<Hold>>,
    under_way: RefCell<Slab<Entered>>,
    waiting: RefCell<Vec<Waker>>,
    tickets: Cell<u64>,
}

impl Default for Ranges {
    fn default() -> Self {
        Self {
            holds: RefCell::default(),
            under_way: RefCell::new(Slab::new(MAX_RANGES_IN_FLIGHT)),
            waiting: RefCell::default(),
            tickets: Cell::new(0),
        }
    }
}

/// A command under way on a range; leaves when dropped.
#[derive(Debug)]
#[must_use]
pub struct UnderWay<'a> {
    ranges: &'a Ranges,
    index: u32,
}

/// A held range; released when dropped.
#[derive(Debug)]
#[must_use]
pub struct Held<'a> {
    ranges: &'a Ranges,
    ticket: u64,
}

impl Ranges {
    /// Whether a command that completes at once may go ahead on `range`.
    #[inline]
    pub fn is_free(&self, range: LbaRange) -> bool {
        let holds = self.holds.borrow();
        holds.is_empty() || !holds.iter().any(|hold| hold.range.overlaps(range))
    }

    /// Enters a command that takes more than one poll, as soon as nobody holds its range.
    pub async fn enter(&self, range: LbaRange) -> UnderWay<'_> {
        self.until(|| {
            if !self.is_free(range) {
                return None;
            }
            let ticket = self.ticket();
            let index = self.under_way.borrow_mut().insert(Entered { ticket, range }).ok()?;
            Some(UnderWay { ranges: self, index })
        })
        .await
    }

    /// Holds `range`: first come, first served among holders, then waits for what is under way.
    pub async fn hold(&self, range: LbaRange) -> Held<'_> {
        let held = self
            .until(|| {
                if !self.is_free(range) {
                    return None;
                }
                let ticket = self.ticket();
                self.holds.borrow_mut().push(Hold { ticket, range });
                Some(Held { ranges: self, ticket })
            })
            .await;
        self.until(|| self.all_of(|entered| !entered.range.overlaps(range)).then_some(())).await;
        held
    }

    /// Waits until every command that is under way now has ended; later ones do not matter.
    pub async fn drain(&self) {
        let now = self.ticket();
        self.until(|| self.all_of(|entered| entered.ticket > now).then_some(())).await;
    }

    fn all_of(&self, f: impl Fn(&Entered) -> bool) -> bool {
        self.under_way.borrow().iter().all(|(_, entered)| f(entered))
    }

    fn ticket(&self) -> u64 {
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        ticket
    }

    /// Asks `ready` now and after everything that ends here.
    async fn until<T>(&self, ready: impl Fn() -> Option<T>) -> T {
        poll_fn(|cx| {
            if let Some(value) = ready() {
                return Poll::Ready(value);
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn wake(&self) {
        if !self.waiting.borrow().is_empty() {
            let waiting = self.waiting.take();
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.ranges.under_way.borrow_mut().remove(self.index);
        self.ranges.wake();
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.ranges.holds.borrow_mut().retain(|hold| hold.ticket != self.ticket);
        self.ranges.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    fn range(first: u64, blocks: u32) -> LbaRange {
        LbaRange::new(stdx::Lba::new(first), blocks).unwrap()
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_hold_waits_for_writes_under_way_and_keeps_later_ones_out() {
        let ranges = Ranges::default();
        let first = poll(pin!(ranges.enter(range(0, 8)))).unwrap();
        let elsewhere = poll(pin!(ranges.enter(range(8, 8)))).unwrap();
        let mut hold = pin!(ranges.hold(range(4, 1)));
        assert!(poll(hold.as_mut()).is_none(), "a write is under way");
        assert!(!ranges.is_free(range(4, 1)), "the hold already keeps others out");
        let mut late = pin!(ranges.enter(range(0, 8)));
        assert!(poll(late.as_mut()).is_none());
        drop(first);
        let held = poll(hold.as_mut()).unwrap();
        assert!(poll(late.as_mut()).is_none());
        assert!(ranges.is_free(range(5, 3)));
        drop(held);
        assert!(poll(late.as_mut()).is_some());
        drop(elsewhere);
    }

    #[test]
    fn a_hold_given_up_while_it_waits_lets_others_in() {
        let ranges = Ranges::default();
        let _write = poll(pin!(ranges.enter(range(0, 8)))).unwrap();
        {
            let mut hold = Box::pin(ranges.hold(range(0, 1)));
            assert!(poll(hold.as_mut()).is_none());
        }
        assert!(ranges.is_free(range(0, 1)));
    }

    #[test]
    fn holders_of_one_block_take_turns() {
        let ranges = Ranges::default();
        let one = poll(pin!(ranges.hold(range(0, 1)))).unwrap();
        let mut two = pin!(ranges.hold(range(0, 1)));
        assert!(poll(two.as_mut()).is_none());
        drop(one);
        assert!(poll(two.as_mut()).is_some());
    }

    #[test]
    fn draining_waits_for_what_was_there_and_for_nothing_else() {
        let ranges = Ranges::default();
        let before = poll(pin!(ranges.enter(range(0, 1)))).unwrap();
        let mut drain = pin!(ranges.drain());
        assert!(poll(drain.as_mut()).is_none());
        let _after = poll(pin!(ranges.enter(range(1, 1)))).unwrap();
        drop(before);
        assert!(poll(drain.as_mut()).is_some());
    }
}
