//! What a reactor counts about itself.

use crate::core;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one reactor since it started. Plain numbers, read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Nanoseconds spent in turns that found work.
    pub busy_nanos: u64,
    /// Nanoseconds spent in turns that found none.
    pub spin_nanos: u64,
    /// Nanoseconds asleep in the ring.
    pub sleep_nanos: u64,
    /// Loop turns.
    pub turns: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Entries into the kernel through the ring, sleeps included.
    pub enters: u64,
    /// Task polls.
    pub polls: u64,
    /// Tasks alive now.
    pub tasks: u64,
    /// Operations in flight now.
    pub operations: u64,
}

/// The reactor's copy for readers on other threads: only the reactor writes, so a store is all it
/// takes; refreshed before each sleep and about once a millisecond.
#[derive(Debug, Default)]
pub(crate) struct Published {
    cells: [AtomicU64; 9],
}

impl Published {
    pub fn publish(&self, m: &Metrics) {
        let values = [
            m.busy_nanos,
            m.spin_nanos,
            m.sleep_nanos,
            m.turns,
            m.sleeps,
            m.enters,
            m.polls,
            m.tasks,
            m.operations,
        ];
        for (cell, value) in self.cells.iter().zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    pub fn read(&self) -> Metrics {
        let v = |i: usize| self.cells[i].load(Ordering::Relaxed);
        Metrics {
            busy_nanos: v(0),
            spin_nanos: v(1),
            sleep_nanos: v(2),
            turns: v(3),
            sleeps: v(4),
            enters: v(5),
            polls: v(6),
            tasks: v(7),
            operations: v(8),
        }
    }
}

/// The calling reactor's counters, exact.
///
/// # Panics
/// Outside a reactor.
#[must_use]
pub fn here() -> Metrics {
    core::with(core::Core::metrics)
}
