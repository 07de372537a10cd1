//! The standard library's, which count: how often a thread takes a lock, and how often it changes an atomic value by
//! reading and writing it in one step. For tests (feature `counted`).

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{self, LockResult, MutexGuard};

/// What a thread did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub locks: u64,
    /// Atomic read-modify-writes.
    pub changes: u64,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { locks: 0, changes: 0 }) };
}

/// Of this thread.
#[must_use]
pub fn counts() -> Counts {
    COUNTS.get()
}

#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// # Errors
    /// As the standard one.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let counts = COUNTS.get();
        COUNTS.set(Counts { locks: counts.locks + 1, ..counts });
        self.0.lock()
    }
}

/// An atomic value: what this crate calls of it.
macro_rules! counted {
    ($name:ident, $value:ty) => {
        #[derive(Debug, Default)]
        pub struct $name(sync::atomic::$name);

        impl $name {
            pub const fn new(value: $value) -> Self {
                Self(sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }

            #[allow(dead_code, reason = "not of every type")]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                let counts = COUNTS.get();
                COUNTS.set(Counts { changes: counts.changes + 1, ..counts });
                self.0.swap(value, order)
            }
        }
    };
}

counted!(AtomicBool, bool);
counted!(AtomicUsize, usize);
