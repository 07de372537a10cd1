//! What the structures are made of here.

use std::sync::PoisonError;

pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
pub use loom::sync::{Mutex, MutexGuard};

/// As `reactor`'s.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As the standard one, but that whoever gets the value knows by something else that it was set: the standard one's own
/// order would hide that nothing else says so.
#[derive(Debug)]
pub struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub fn new() -> Self {
        Self { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    pub fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Relaxed) { self.value.get() } else { None }
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// loom's, but that what changes it in one step begins with a step that changes it: loom's own begins with a look, and then
/// forgets who looked before, and that it may come first.
#[derive(Debug)]
pub struct AtomicU32(loom::sync::atomic::AtomicU32);

impl AtomicU32 {
    pub fn new(value: u32) -> Self {
        Self(loom::sync::atomic::AtomicU32::new(value))
    }

    pub fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    pub fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }

    pub fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        change: impl Fn(u32) -> Option<u32>,
    ) -> Result<u32, u32> {
        let mut before = self.0.fetch_or(0, fetch);
        while let Some(changed) = change(before) {
            match self.0.compare_exchange(before, changed, set, fetch) {
                Ok(before) => return Ok(before),
                Err(now) => before = now,
            }
        }
        Err(before)
    }
}
