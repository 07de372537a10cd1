//! Timers: an indexed heap, so that a timer dropped early leaves at once.

use crate::core;
use crate::limits::TIMERS_MAX;
use crate::time::{Nanos, nanos_of, now};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stdx::Slab;

struct Timer {
    deadline: Nanos,
    serial: u64,
    /// Its place in the heap.
    place: usize,
    waker: Waker,
}

/// Names a timer for ever: its index is used again as soon as it has fired, its serial never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Armed {
    id: u32,
    serial: u64,
}

/// A binary heap of slab indexes, smallest deadline first; every timer knows its place.
pub(crate) struct Timers {
    slab: Slab<Timer>,
    heap: Vec<u32>,
    serial: u64,
}

impl Timers {
    pub const fn new() -> Self {
        Self { slab: Slab::new(TIMERS_MAX), heap: Vec::new(), serial: 0 }
    }

    /// # Panics
    /// When `TIMERS_MAX` timers are armed.
    fn arm(&mut self, deadline: Nanos, waker: Waker) -> Armed {
        self.serial += 1;
        let serial = self.serial;
        let timer = Timer { deadline, serial, place: self.heap.len(), waker };
        let Ok(id) = self.slab.insert(timer) else { panic!("timer limit reached") };
        self.heap.push(id);
        self.rise(self.heap.len() - 1);
        Armed { id, serial }
    }

    /// The timer, unless it has fired.
    fn get_mut(&mut self, armed: Armed) -> Option<&mut Timer> {
        self.slab.get_mut(armed.id).filter(|timer| timer.serial == armed.serial)
    }

    /// Takes the timer out, unless it has fired.
    fn disarm(&mut self, armed: Armed) -> Option<Waker> {
        self.get_mut(armed)?;
        self.remove(armed.id)
    }

    pub fn next_deadline(&self) -> Option<Nanos> {
        self.heap.first().map(|&id| self.deadline(id))
    }

    /// Takes the first timer out if it is due.
    pub fn pop_due(&mut self, now: Nanos) -> Option<Waker> {
        let &id = self.heap.first()?;
        if self.deadline(id) > now {
            return None;
        }
        self.remove(id)
    }

    fn remove(&mut self, id: u32) -> Option<Waker> {
        let timer = self.slab.remove(id)?;
        let place = timer.place;
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.settle(place);
            self.rise(place);
            self.sink(place);
        }
        Some(timer.waker)
    }

    fn deadline(&self, id: u32) -> Nanos {
        self.slab.get(id).map_or(Nanos::MAX, |t| t.deadline)
    }

    fn settle(&mut self, place: usize) {
        if let Some(timer) = self.slab.get_mut(self.heap[place]) {
            timer.place = place;
        }
    }

    fn exchange(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.settle(a);
        self.settle(b);
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.deadline(self.heap[parent]) <= self.deadline(self.heap[place]) {
                return;
            }
            self.exchange(parent, place);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len()
                    && self.deadline(self.heap[child]) < self.deadline(self.heap[least])
                {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.exchange(least, place);
            place = least;
        }
    }

    #[cfg(test)]
    fn check(&self) {
        for (place, &id) in self.heap.iter().enumerate() {
            assert_eq!(self.slab.get(id).unwrap().place, place);
            assert!(self.deadline(self.heap[place.saturating_sub(1) / 2]) <= self.deadline(id));
        }
        assert_eq!(self.heap.len(), self.slab.len());
    }
}

/// Waits for a point in time.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Nanos,
    armed: Option<Armed>,
}

impl Sleep {
    #[must_use]
    pub const fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Waits for another point in time instead.
    pub fn reset(&mut self, deadline: Nanos) {
        self.disarm();
        self.deadline = deadline;
    }

    fn disarm(&mut self) {
        if let Some(armed) = self.armed.take() {
            // After the reactor is gone its timers are too.
            core::try_with(|core| core.timers.borrow_mut().disarm(armed));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if now() >= self.deadline {
            self.disarm();
            return Poll::Ready(());
        }
        core::with(|core| {
            let mut timers = core.timers.borrow_mut();
            match self.armed.and_then(|armed| timers.get_mut(armed)) {
                Some(timer) => timer.waker.clone_from(cx.waker()),
                None => self.armed = Some(timers.arm(self.deadline, cx.waker().clone())),
            }
        });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// Waits for `duration` from the start of this turn.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now().saturating_add(nanos_of(duration)))
}

/// Waits until [`now`] reaches `deadline`.
pub const fn sleep_until(deadline: Nanos) -> Sleep {
    Sleep { deadline, armed: None }
}

/// The time given to [`timeout`] ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out")]
pub struct Elapsed;

/// Runs `future` for `duration` at most, then drops it.
///
/// # Errors
/// [`Elapsed`] when the time ran out first.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut timer = pin!(sleep(duration));
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        timer.as_mut().poll(cx).map(|()| Err(Elapsed))
    })
    .await
}

/// As [`timeout`], in `steps` parts: while a process is stopped, nobody sees what ends, and all timers are due
/// when it goes on. Of such a stop no more than a part counts.
///
/// # Errors
/// As [`timeout`].
pub async fn timeout_attended<F: Future>(
    duration: Duration,
    steps: u32,
    future: F,
) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    for _ in 1..steps {
        if let Ok(value) = timeout(duration / steps, future.as_mut()).await {
            return Ok(value);
        }
    }
    timeout(duration / steps, future).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Between firing and the poll that notices it, another timer may take the index. The first
    /// one's end then took that timer away, and whoever waited for it waited for ever.
    #[test]
    fn a_timer_that_fired_does_not_disarm_its_successor() {
        let mut timers = Timers::new();
        let first = timers.arm(1, Waker::noop().clone());
        assert!(timers.pop_due(1).is_some());
        let second = timers.arm(2, Waker::noop().clone());
        assert_eq!(first.id, second.id);
        assert!(timers.get_mut(first).is_none());
        assert!(timers.disarm(first).is_none());
        assert_eq!(timers.next_deadline(), Some(2));
    }

    proptest! {
        #[test]
        fn timers_fire_in_order_whatever_is_dropped(
            ops in proptest::collection::vec((any::<bool>(), 0u64..1000, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut timers = Timers::new();
            let mut live: Vec<(u64, Armed)> = Vec::new();
            for (arm, deadline, which) in ops {
                if arm || live.is_empty() {
                    live.push((deadline, timers.arm(deadline, Waker::noop().clone())));
                } else {
                    let (_, armed) = live.swap_remove(which.index(live.len()));
                    prop_assert!(timers.disarm(armed).is_some());
                    prop_assert!(timers.disarm(armed).is_none());
                }
                timers.check();
                prop_assert_eq!(timers.next_deadline(), live.iter().map(|l| l.0).min());
            }
            let mut fired = 0;
            for now in 0..1000 {
                while timers.pop_due(now).is_some() {
                    fired += 1;
                    timers.check();
                }
                prop_assert_eq!(fired, live.iter().filter(|l| l.0 <= now).count());
            }
        }
    }
}
