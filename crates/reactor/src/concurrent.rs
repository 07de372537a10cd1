//! What threads share is made of: the standard library's, or loom's, which tries every order that threads can take
//! their steps in (`RUSTFLAGS="--cfg loom" cargo test -p reactor --lib -- loom`). With the feature `counted`, of tests
//! only, locks and atomic read-modify-writes count.

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, fence},
    },
};
#[cfg(not(loom))]
pub use std::sync::{Arc, MutexGuard, atomic::fence};
#[cfg(not(any(loom, feature = "counted")))]
pub use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize},
};

#[cfg(all(not(loom), feature = "counted"))]
mod counted;
#[cfg(all(not(loom), feature = "counted"))]
pub use counted::{AtomicBool, AtomicUsize, Counts, Mutex, counts};

/// The standard one, with loom's functions: loom sees who else has the pointer.
#[cfg(not(loom))]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline]
    pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}

/// Has loom try all orders in which threads are held up no more than three times, which is what mistakes take.
#[cfg(loom)]
#[cfg(test)]
pub fn explore(threads: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(threads);
}
