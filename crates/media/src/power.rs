//! The power of a simulated machine: what shares it loses it at one moment.

use std::sync::atomic::{AtomicBool, Ordering};

/// On until it is cut.
#[derive(Debug)]
pub struct Power(AtomicBool);

impl Default for Power {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl Power {
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// From now on nothing that shares it changes what it holds.
    pub fn cut(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Power is back.
    pub fn restore(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
