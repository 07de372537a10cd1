//! The power of a simulated machine: what shares it loses it at one moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::SimulatedPmem;

/// On until it is cut.
#[derive(Debug)]
pub struct Power {
    on: AtomicBool,
    /// Memory of the machine that was made beside other: a fence of a core is one of all it stored there.
    regions: Mutex<Vec<Weak<SimulatedPmem>>>,
}

impl Default for Power {
    fn default() -> Self {
        Self { on: AtomicBool::new(true), regions: Mutex::default() }
    }
}

impl Power {
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    /// From now on nothing that shares it changes what it holds.
    pub fn cut(&self) {
        self.on.store(false, Ordering::SeqCst);
    }

    /// Power is back.
    pub fn restore(&self) {
        self.on.store(true, Ordering::SeqCst);
    }

    pub(crate) fn know(&self, region: &Arc<SimulatedPmem>) {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.retain(|region| region.strong_count() > 0);
        regions.push(Arc::downgrade(region));
    }

    /// Those that somebody has.
    pub(crate) fn regions(&self) -> Vec<Arc<SimulatedPmem>> {
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.iter().filter_map(Weak::upgrade).collect()
    }
}
