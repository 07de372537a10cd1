//! What tests begin with.

use engine::DriveStatus;
use engine::drives::{DriveCounters, DriveState};

/// A drive of a pool in this state, of which nothing else is to be said.
pub fn drive(state: DriveState) -> DriveStatus {
    DriveStatus {
        id: [0; 16],
        state,
        out: state != DriveState::Online,
        stays_out: None,
        cause: None,
        changed: None,
        vacant: false,
        leaving: false,
        slow: false,
        bytes: 0,
        counters: DriveCounters::default(),
        labels_rewritten: 0,
        rejoin: None,
    }
}
