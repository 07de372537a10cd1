//! What a queue has done, counted by the one core that owns it and read by everyone.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count with one writer: adding is a load and a store, never an atomic read-modify-write.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; for the owning core only.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one I/O queue: what SMART / Health reports (Base 2.1 section 5.1.12.1.3).
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Read, Compare and Verify commands completed.
    pub read_commands: Counter,
    /// Write, Write Zeroes and Copy commands completed.
    pub write_commands: Counter,
    /// Bytes moved to the host.
    pub bytes_read: Counter,
    /// Bytes moved from the host.
    pub bytes_written: Counter,
    /// Nanoseconds with at least one command outstanding.
    pub busy_ns: Counter,
    /// Commands completed with a media or data integrity error.
    pub media_errors: Counter,
}

impl QueueCounters {
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            read_commands: self.read_commands.get(),
            write_commands: self.write_commands.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            busy_ns: self.busy_ns.get(),
            media_errors: self.media_errors.get(),
        }
    }
}

/// Sums over queues and controllers, as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub read_commands: u64,
    pub write_commands: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub busy_ns: u64,
    pub media_errors: u64,
}

impl Totals {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            read_commands: self.read_commands.wrapping_add(other.read_commands),
            write_commands: self.write_commands.wrapping_add(other.write_commands),
            bytes_read: self.bytes_read.wrapping_add(other.bytes_read),
            bytes_written: self.bytes_written.wrapping_add(other.bytes_written),
            busy_ns: self.busy_ns.wrapping_add(other.busy_ns),
            media_errors: self.media_errors.wrapping_add(other.media_errors),
        }
    }
}
