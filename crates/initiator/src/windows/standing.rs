//! What a namespace's reactor and the threads that write by its window have in common.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a namespace's reactor tells whoever writes by its window.
#[derive(Debug)]
pub struct Standing {
    /// The association with the controller that granted it lives, as far as is known.
    associated: AtomicBool,
    /// Writes may begin: there is nothing that they might overtake.
    usable: AtomicBool,
    /// A write was begun of which nobody knows whether it will arrive: as long as the window may not have ended, it may.
    doubtful: AtomicBool,
}

impl Default for Standing {
    fn default() -> Self {
        let (associated, usable) = (AtomicBool::new(true), AtomicBool::new(true));
        Self { associated, usable, doubtful: AtomicBool::new(false) }
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

    /// A write may arrive of which nobody will be told. Said before it is that its outcome is not known.
    pub(crate) fn doubt(&self) {
        self.hold();
        self.doubtful.store(true, Ordering::Release);
    }

    /// Whether a write may arrive of which nobody will be told; asked once for each.
    pub fn take_doubt(&self) -> bool {
        self.doubtful.load(Ordering::Acquire) && self.doubtful.swap(false, Ordering::AcqRel)
    }

    /// Whether [`take_doubt`](Self::take_doubt) would say so.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_associated(&self) -> bool {
        self.associated.load(Ordering::Acquire)
    }
}
