//! What tells the next record of a ring from whatever else lies where it is to begin.

use super::record::Record;
use super::ring::Ring;

/// What the record at a ring's head must be.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    pub ring: u64,
    pub sequence: u64,
    pub epoch_from: u32,
    pub epoch_to: u32,
    /// Bytes to the ring's end, and bytes not taken by records found before.
    pub to_end: u64,
    pub free: u64,
}

impl Expected {
    pub fn matches(&self, record: &Record) -> bool {
        record.ring == self.ring
            && record.sequence == self.sequence
            && (self.epoch_from..=self.epoch_to).contains(&record.epoch)
            && record.kind.bytes() <= self.to_end.min(self.free)
    }
}

/// What the record at the ring's head must be.
pub(super) fn expected(ring: &Ring, epoch: u32) -> Expected {
    let control = &ring.control;
    Expected {
        ring: control.ring,
        sequence: ring.head.sequence,
        epoch_from: epoch,
        epoch_to: control.epoch,
        to_end: control.ring_bytes - ring.at(ring.head.position),
        free: control.ring_bytes - ring.used(),
    }
}
