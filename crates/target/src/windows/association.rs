//! A controller as the windows that it was granted know it.

use std::sync::atomic::{AtomicBool, Ordering};

/// One for each controller.
#[derive(Debug, Default)]
pub struct Association {
    /// It has ended: nothing is granted to it any more.
    over: AtomicBool,
    /// It has asked for a window.
    has_asked: AtomicBool,
}

impl Association {
    /// It ends: what it has is to be ended, and what is being granted to it once it is there.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Notes that it asks for a window. Whoever ends it either sees that, or is seen by the grant when that is done.
    pub(super) fn asks(&self) {
        self.has_asked.store(true, Ordering::SeqCst);
    }

    /// Whether it may have a window.
    #[must_use]
    pub fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::SeqCst)
    }
}
