//! A window as the threads of a process share it: whoever has something to write tries to have it, and sends a command
//! when another one has.
//!
//! There is one window a volume, and one record is stored at a time in a ring, which takes less than a microsecond: a
//! lock that nobody sleeps for is the least that can be shared. Uncontended it is two writes to a line that is this
//! core's already. A ring for each queue would take the target a look at each of them before each command, and the
//! window of whichever queue was first would be of no use to the others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::direct::DirectWindow;
use super::written::{NotDone, Written};
use crate::limits::{WINDOW_LOOK, WINDOW_TRIES};

/// A place for a window, which may be empty.
#[derive(Debug, Default)]
pub struct SharedWindow {
    /// There is one, as far as is known: who has none looks no further.
    stands: AtomicBool,
    window: Mutex<Option<DirectWindow>>,
    writes: AtomicU64,
}

impl SharedWindow {
    /// Whether there is a window to write by.
    #[must_use]
    #[inline]
    pub fn stands(&self) -> bool {
        self.stands.load(Ordering::Acquire)
    }

    /// Writes that were done by windows.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// As [`DirectWindow::write`], from any thread.
    pub fn write(&self, offset: u64, data: &[u8]) -> Written {
        if !self.stands() {
            return Written::NotDone(NotDone::Ended);
        }
        let Some(mut held) = self.try_hold() else { return Written::NotDone(NotDone::Busy) };
        let Some(window) = held.as_mut() else { return Written::NotDone(NotDone::Ended) };
        let written = window.write(offset, data);
        if written == Written::Done {
            // Nobody else writes it meanwhile.
            self.writes.store(self.writes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        if window.has_ended() {
            self.stands.store(false, Ordering::Release);
        }
        written
    }

    #[inline]
    fn try_hold(&self) -> Option<MutexGuard<'_, Option<DirectWindow>>> {
        for _ in 0..WINDOW_TRIES {
            match self.window.try_lock() {
                Ok(held) => return Some(held),
                // Whoever panicked may have stored half of a record; it is nothing without its header.
                Err(TryLockError::Poisoned(_)) => {
                    // Another may be put in its place.
                    self.stands.store(false, Ordering::Release);
                    return None;
                }
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// Puts a window there, and gives the one before in its place; false, and `window` stays, when another thread is
    /// writing.
    pub fn try_put(&self, window: &mut Option<DirectWindow>) -> bool {
        let mut held = match self.window.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => {
                self.window.clear_poison();
                poisoned.into_inner()
            }
            Err(TryLockError::WouldBlock) => return false,
        };
        std::mem::swap(&mut *held, window);
        self.stands.store(held.is_some(), Ordering::Release);
        true
    }

    /// The same, once no other thread is writing.
    pub async fn put(&self, window: DirectWindow) {
        let mut window = Some(window);
        while !self.try_put(&mut window) {
            reactor::sleep(WINDOW_LOOK).await;
        }
        if let Some(before) = window {
            // Connections take system calls to end, which others of this reactor need not wait for.
            let _ = reactor::blocking(move || {
                drop(before);
                Ok(())
            })
            .await;
        }
    }
}
