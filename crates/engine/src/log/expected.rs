//! What tells the next record of a lane from whatever else lies where it is to begin.

use super::lane::Lane;
use super::record::Record;

/// What the record at a lane's head must be.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    pub lane: u64,
    pub sequence: u64,
    pub epoch_from: u32,
    pub epoch_to: u32,
    /// Bytes to the ring's end, and bytes not taken by records found before.
    pub to_end: u64,
    pub free: u64,
}

impl Expected {
    pub fn matches(&self, record: &Record) -> bool {
        record.lane == self.lane
            && record.sequence == self.sequence
            && (self.epoch_from..=self.epoch_to).contains(&record.epoch)
            && record.kind.bytes() <= self.to_end.min(self.free)
    }
}

/// What the record at the lane's head must be.
pub(super) fn expected(lane: &Lane, epoch: u32) -> Expected {
    let control = &lane.control;
    Expected {
        lane: control.lane,
        sequence: lane.head.sequence,
        epoch_from: epoch,
        epoch_to: control.epoch,
        to_end: control.ring - lane.at(lane.head.position),
        free: control.ring - lane.used(),
    }
}
