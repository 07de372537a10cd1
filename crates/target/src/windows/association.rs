//! A controller as the windows that it was granted know it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// One for each controller.
#[derive(Debug, Default)]
pub struct Association {
    /// It has ended: nothing is granted to it any more.
    over: AtomicBool,
    /// It has asked for a window.
    has_asked: AtomicBool,
    /// Windows of it that a reset or a shutdown waits for.
    leaving: AtomicUsize,
}

/// A window that is waited for, until this is dropped.
#[derive(Debug)]
pub struct Leaving(Arc<Association>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leaving.fetch_sub(1, Ordering::SeqCst);
    }
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

    /// Has a reset wait for as long as what is returned is there.
    #[must_use]
    pub fn leaves(self: &Arc<Self>) -> Leaving {
        self.leaving.fetch_add(1, Ordering::SeqCst);
        Leaving(Arc::clone(self))
    }

    /// Whether all that is waited for has ended.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.leaving.load(Ordering::SeqCst) == 0
    }

    /// Whether it may have a window.
    #[must_use]
    pub fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::SeqCst)
    }
}
