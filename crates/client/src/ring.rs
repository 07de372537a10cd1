//! A bounded ring between one thread that puts and one that takes: two indices, no lock.
#![allow(unsafe_code, reason = "places are shared by two threads, each at its own time")]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
}

// SAFETY: a place is touched by the putter until the tail passes it and by the taker from then until the head
// does; both indices are published with release and read with acquire.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn place(&self, count: usize) -> *mut MaybeUninit<T> {
        self.places[count & (self.places.len() - 1)].get()
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        for count in self.head.0.load(Ordering::Acquire)..self.tail.0.load(Ordering::Acquire) {
            // SAFETY: nobody else is left, and what lies between head and tail was put and not taken.
            unsafe { (*self.place(count)).assume_init_drop() };
        }
    }
}

/// The end that puts.
pub struct Putter<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// The head as last seen.
    head: usize,
}

/// The end that takes.
pub struct Taker<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// The tail as last seen.
    tail: usize,
}

/// A ring with room for `places`, rounded up to a power of two.
pub fn ring<T: Send>(places: usize) -> (Putter<T>, Taker<T>) {
    let vacant = || UnsafeCell::new(MaybeUninit::uninit());
    let places = (0..places.next_power_of_two()).map(|_| vacant()).collect();
    let shared = Arc::new(Shared { places, head: Index::default(), tail: Index::default() });
    (Putter { shared: Arc::clone(&shared), tail: 0, head: 0 }, Taker { shared, head: 0, tail: 0 })
}

impl<T> Putter<T> {
    /// Puts `value` behind what is there; [`Putter::publish`] shows it to the other side. Gives it back when
    /// the ring is full.
    pub fn put(&mut self, value: T) -> Result<(), T> {
        if self.tail - self.head == self.shared.places.len() {
            self.head = self.shared.head.0.load(Ordering::Acquire);
            if self.tail - self.head == self.shared.places.len() {
                return Err(value);
            }
        }
        // SAFETY: the place is vacant: the head has passed what was there, and only we put.
        unsafe { (*self.shared.place(self.tail)).write(value) };
        self.tail += 1;
        Ok(())
    }

    /// Shows what was put since the last time.
    pub fn publish(&self) {
        self.shared.tail.0.store(self.tail, Ordering::Release);
    }

    /// How many were put, published or not, since the ring was made.
    pub const fn count(&self) -> usize {
        self.tail
    }
}

impl<T> Drop for Putter<T> {
    fn drop(&mut self) {
        // What was put belongs to the ring, which drops what it knows of.
        self.publish();
    }
}

impl<T> Taker<T> {
    /// Takes the first one there is.
    pub fn take(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        // SAFETY: the tail has passed the place and the head has not, and only we take.
        let value = unsafe { (*self.shared.place(self.head)).assume_init_read() };
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

    /// How many were taken since the ring was made.
    pub const fn count(&self) -> usize {
        self.head
    }
}

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
