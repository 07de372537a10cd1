//! What a shard did with its drives.

use std::sync::atomic::{AtomicU64, Ordering};
use stdx::num::u64_of;

/// What a shard did with a drive since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveCounters {
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    /// Blocks read whose checksum was wrong.
    pub corrupt: u64,
    /// Blocks of this drive that were reconstructed from others.
    pub reconstructed: u64,
    /// Blocks written anew after that.
    pub repaired: u64,
    /// Operations that had no answer in time.
    pub timeouts: u64,
    /// Reads that took so long that the others were asked.
    pub slow: u64,
}

impl DriveCounters {
    /// Adds what another shard did.
    pub fn add(&mut self, other: &Self) {
        let Self { reads, writes, bytes_read, bytes_written, read_errors, .. } = other;
        self.reads += reads;
        self.writes += writes;
        self.bytes_read += bytes_read;
        self.bytes_written += bytes_written;
        self.read_errors += read_errors;
        self.write_errors += other.write_errors;
        self.corrupt += other.corrupt;
        self.reconstructed += other.reconstructed;
        self.repaired += other.repaired;
        self.timeouts += other.timeouts;
        self.slow += other.slow;
    }
}

/// They are looked at from everywhere, and counted in by one reactor.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
    pub read_errors: AtomicU64,
    pub write_errors: AtomicU64,
    pub corrupt: AtomicU64,
    pub reconstructed: AtomicU64,
    pub repaired: AtomicU64,
    pub timeouts: AtomicU64,
    pub slow: AtomicU64,
}

impl Counters {
    pub fn get(&self) -> DriveCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DriveCounters {
            reads: get(&self.reads),
            writes: get(&self.writes),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
            read_errors: get(&self.read_errors),
            write_errors: get(&self.write_errors),
            corrupt: get(&self.corrupt),
            reconstructed: get(&self.reconstructed),
            repaired: get(&self.repaired),
            timeouts: get(&self.timeouts),
            slow: get(&self.slow),
        }
    }
}

/// Only one reactor counts in a set of counters.
pub(super) fn count(counter: &AtomicU64, by: usize) {
    counter.store(counter.load(Ordering::Relaxed) + u64_of(by), Ordering::Relaxed);
}
