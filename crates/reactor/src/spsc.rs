//! Between one thread that puts and one that takes: a bounded ring of two indices and no lock, and how either learns
//! without a system call whether the other sleeps.
#![allow(unsafe_code, reason = "places are shared by two threads, each at its own time")]

use crate::concurrent::{Arc, AtomicBool, AtomicUsize, UnsafeCell, fence};
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

/// An index on a cache line of its own: each is written by one side only.
#[derive(Default)]
#[repr(align(128))]
struct Index(AtomicUsize);

struct Shared<T> {
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Counts what was taken.
    head: Index,
    /// Counts what was put and published.
    tail: Index,
    /// The putter is gone.
    left: AtomicBool,
}

// SAFETY: a place is touched by the putter until the tail passes it and by the taker from then until the head
// does; both indices are published with release and read with acquire.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn place(&self, count: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.places[count & (self.places.len() - 1)]
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        for count in self.head.0.load(Ordering::Acquire)..self.tail.0.load(Ordering::Acquire) {
            // SAFETY: nobody else is left, and what lies between head and tail was put and not taken.
            self.place(count).with_mut(|place| unsafe { (*place).assume_init_drop() });
        }
    }
}

/// The end that puts.
#[derive(Debug)]
pub struct Putter<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// The head as last seen.
    head: usize,
}

/// The end that takes.
#[derive(Debug)]
pub struct Taker<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// The tail as last seen.
    tail: usize,
}

/// A ring with room for `places`, rounded up to a power of two.
#[must_use]
pub fn ring<T: Send>(places: usize) -> (Putter<T>, Taker<T>) {
    let vacant = || UnsafeCell::new(MaybeUninit::uninit());
    let places = (0..places.next_power_of_two()).map(|_| vacant()).collect();
    let (head, tail) = (Index::default(), Index::default());
    let shared = Arc::new(Shared { places, head, tail, left: AtomicBool::new(false) });
    // Rare: once for each ring.
    (Putter { shared: Arc::clone(&shared), tail: 0, head: 0 }, Taker { shared, head: 0, tail: 0 })
}

impl<T> Putter<T> {
    /// Puts `value` behind what is there; [`Putter::publish`] shows it to the other side. Gives it back when
    /// the ring is full.
    ///
    /// # Errors
    /// The value, when there is no room.
    pub fn put(&mut self, value: T) -> Result<(), T> {
        if self.tail - self.head == self.shared.places.len() {
            self.head = self.shared.head.0.load(Ordering::Acquire);
            if self.tail - self.head == self.shared.places.len() {
                return Err(value);
            }
        }
        // SAFETY: the place is vacant: the head has passed what was there, and only we put.
        self.shared.place(self.tail).with_mut(|place| unsafe { (*place).write(value) });
        self.tail += 1;
        Ok(())
    }

    /// Shows what was put since the last time.
    pub fn publish(&self) {
        self.shared.tail.0.store(self.tail, Ordering::Release);
    }

    /// Publishes what was put, and says that it was the last.
    pub fn leave(&mut self) {
        self.publish();
        self.shared.left.store(true, Ordering::Release);
    }

    /// How many were put, published or not, since the ring was made.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.tail
    }
}

impl<T> Drop for Putter<T> {
    fn drop(&mut self) {
        // What was put belongs to the ring, which drops what it knows of.
        self.leave();
    }
}

impl<T> Taker<T> {
    /// Takes the first one there is.
    pub fn take(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        // SAFETY: the tail has passed the place and the head has not, and only we take.
        let value =
            self.shared.place(self.head).with(|place| unsafe { (*place).assume_init_read() });
        self.head += 1;
        self.shared.head.0.store(self.head, Ordering::Release);
        Some(value)
    }

    /// How many can be taken, none only if there is none now.
    pub fn available(&mut self) -> usize {
        if self.head == self.tail {
            self.look();
        }
        self.tail - self.head
    }

    /// How many can be taken now.
    pub fn look(&mut self) -> usize {
        self.tail = self.shared.tail.0.load(Ordering::Acquire);
        self.tail - self.head
    }

    /// Whether the putter is gone. What can be taken after that is all there will ever be.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.left.load(Ordering::Acquire)
    }

    /// How many were taken since the ring was made.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.head
    }
}

/// Whether the taker dozes: it looks for what was put only when it is roused.
#[derive(Debug, Default)]
pub struct Doze(AtomicBool);

impl Doze {
    /// The taker asks to be roused. It looks once more after that: either the putter sees that it dozes, or it sees
    /// what was published.
    pub fn doze(&self) {
        // Whoever put something since it asked the last time would have taken that back.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// Whether the taker is to be roused now; for the putter, after it published. Whoever is told so rouses it: what
    /// the taker asked for since then is answered by that, too.
    pub fn is_due(&self) -> bool {
        fence(Ordering::SeqCst);
        let dozes = self.0.load(Ordering::Relaxed);
        if dozes {
            self.0.store(false, Ordering::Relaxed);
        }
        dozes
    }
}

/// [`Wanted`] when nobody waits.
const NOBODY: usize = usize::MAX;

/// How many a taker that sleeps waits for.
#[derive(Debug)]
pub struct Wanted(AtomicUsize);

impl Default for Wanted {
    fn default() -> Self {
        Self(AtomicUsize::new(NOBODY))
    }
}

impl Wanted {
    /// The taker asks to be told once so many were published since the ring was made. It looks once more after that,
    /// as for [`Doze::doze`].
    pub fn ask(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The taker waits no more.
    pub fn withdraw(&self) {
        self.0.store(NOBODY, Ordering::Relaxed);
    }

    /// Whether the taker is to be told now; for the putter, after it published so many.
    pub fn is_due(&self, count: usize) -> bool {
        fence(Ordering::SeqCst);
        let is_due = count >= self.0.load(Ordering::Relaxed);
        if is_due {
            self.0.store(NOBODY, Ordering::Relaxed);
        }
        is_due
    }
}

#[cfg(loom)]
#[cfg(test)]
mod loom_tests {
    use super::{Doze, Wanted, ring};
    use crate::Bell;
    use crate::concurrent::explore;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_what_is_put_is_taken_once_in_order_and_dropped_once() {
        explore(|| {
            let (mut putter, mut taker) = ring(2);
            let value = Arc::new(());
            let other = Arc::clone(&value);
            let putting = thread::spawn(move || {
                for n in 0..3 {
                    let mut next = (n, Arc::clone(&other));
                    while let Err(back) = putter.put(next) {
                        next = back;
                        putter.publish();
                        thread::yield_now();
                    }
                    if n == 0 {
                        putter.publish();
                    }
                }
            });
            for wanted in 0..2 {
                let taken = loop {
                    match taker.take() {
                        Some((n, _)) => break n,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(taken, wanted);
            }
            drop(taker);
            putting.join().unwrap();
            assert_eq!(Arc::strong_count(&value), 1, "the third one is dropped with the ring");
        });
    }

    #[test]
    fn loom_a_taker_that_dozes_is_roused() {
        explore(|| {
            let (mut putter, mut taker) = ring(2);
            let shared = Arc::new((Doze::default(), Bell::new().unwrap()));
            let theirs = Arc::clone(&shared);
            let putting = thread::spawn(move || {
                for n in 0..2 {
                    putter.put(n).unwrap();
                    putter.publish();
                    if theirs.0.is_due() {
                        theirs.1.ring();
                    }
                }
            });
            let mut taken = 0;
            while taken < 2 {
                if taker.take().is_some() {
                    taken += 1;
                    continue;
                }
                shared.1.silence();
                shared.0.doze();
                if taker.look() == 0 {
                    shared.1.wait(None);
                }
            }
            putting.join().unwrap();
        });
    }

    #[test]
    fn loom_a_taker_that_waits_for_several_is_told() {
        explore(|| {
            let (mut putter, mut taker) = ring(2);
            let shared = Arc::new((Wanted::default(), Bell::new().unwrap()));
            let theirs = Arc::clone(&shared);
            let putting = thread::spawn(move || {
                for n in 0..2 {
                    putter.put(n).unwrap();
                    putter.publish();
                    if theirs.0.is_due(putter.count()) {
                        theirs.1.ring();
                    }
                }
            });
            shared.1.silence();
            shared.0.ask(taker.count() + 2);
            if taker.look() < 2 {
                shared.1.wait(None);
            }
            shared.0.withdraw();
            assert_eq!((taker.take(), taker.take()), (Some(0), Some(1)));
            putting.join().unwrap();
        });
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::ring;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn a_ring_is_a_bounded_queue_that_shows_what_is_published(
            ops in proptest::collection::vec(0u8..3, 0..200)
        ) {
            let (mut putter, mut taker) = ring(4);
            let (mut hidden, mut shown) = (VecDeque::new(), VecDeque::new());
            let live = Arc::new(());
            for (n, op) in ops.into_iter().enumerate() {
                match op {
                    0 => {
                        let fits = hidden.len() + shown.len() < 4;
                        prop_assert_eq!(putter.put((n, Arc::clone(&live))).is_ok(), fits);
                        if fits {
                            hidden.push_back(n);
                        }
                    }
                    1 => {
                        putter.publish();
                        shown.append(&mut hidden);
                    }
                    _ => prop_assert_eq!(taker.take().map(|(n, _)| n), shown.pop_front()),
                }
                prop_assert_eq!(Arc::strong_count(&live), 1 + hidden.len() + shown.len());
            }
            drop((putter, taker));
            prop_assert_eq!(Arc::strong_count(&live), 1);
        }
    }

    #[test]
    fn everything_passes_once_and_in_order() {
        const COUNT: usize = 100_000;
        let (mut putter, mut taker) = ring(8);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for mut n in 0..COUNT {
                    while let Err(back) = putter.put(n) {
                        n = back;
                        putter.publish();
                        std::thread::yield_now();
                    }
                    if n % 3 == 0 {
                        putter.publish();
                    }
                }
                putter.publish();
            });
            let mut next = 0;
            while next < COUNT {
                match taker.take() {
                    Some(n) => {
                        assert_eq!(n, next);
                        next += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
    }
}
