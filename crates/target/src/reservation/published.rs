//! A state that few change and every command asks: who changes it takes a lock, who asks reads one counter and keeps what it
//! found.

use crate::concurrent::{AtomicU32, Mutex, MutexGuard, Ordering};
use std::sync::PoisonError;

#[derive(Debug)]
pub struct Published<T> {
    /// Moves with every change, before whoever made it is answered.
    epoch: AtomicU32,
    state: Mutex<T>,
}

/// What somebody found, and when.
#[derive(Clone, Copy, Debug)]
pub struct Cached<V> {
    epoch: u32,
    value: V,
}

impl<T> Published<T> {
    pub fn new(state: T) -> Self {
        Self { epoch: AtomicU32::new(0), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `look` on the state.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock())
    }

    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        // Release: whoever sees the new epoch and then locks sees the new state.
        self.epoch.fetch_add(1, Ordering::Release);
        result
    }

    /// What `find` finds. The fast path is one load of a line that changes only with the state.
    pub fn cached<V: Copy>(&self, cached: &mut Option<Cached<V>>, find: impl FnOnce(&T) -> V) -> V {
        let epoch = self.epoch.load(Ordering::Acquire);
        match cached {
            Some(known) if known.epoch == epoch => known.value,
            _ => {
                // The epoch was read before the state: at worst the next call looks again.
                let value = self.with(find);
                *cached = Some(Cached { epoch, value });
                value
            }
        }
    }
}
