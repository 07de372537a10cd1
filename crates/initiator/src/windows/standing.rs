//! What a namespace's reactor and the threads that write by its window have in common.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a namespace's reactor tells whoever writes by its window.
#[derive(Debug)]
pub struct Standing {
    /// The association with the controller that granted it lives, as far as is known.
    associated: AtomicBool,
    /// Writes may begin: there is nothing that they might overtake.
    usable: AtomicBool,
}

impl Default for Standing {
    fn default() -> Self {
        Self { associated: AtomicBool::new(true), usable: AtomicBool::new(true) }
    }
}

impl Standing {
    /// No other write begins.
    pub fn hold(&self) {
        self.usable.store(false, Ordering::Release);
    }

    /// The association is gone: no other write begins, and those under way do not rely on it.
    pub fn lose(&self) {
        self.hold();
        self.associated.store(false, Ordering::Release);
    }

    /// Whether writes may begin.
    #[must_use]
    #[inline]
    pub fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_associated(&self) -> bool {
        self.associated.load(Ordering::Acquire)
    }
}
