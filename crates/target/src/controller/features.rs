//! Feature values of one controller (Base 2.1 section 5.1.25). None is saveable: a Controller
//! Level Reset restores the defaults.

use std::collections::BTreeMap;

use nvme::feature::{HostBehavior, Timestamp};

use super::keep_alive::granted;
use crate::limits::IO_QUEUES_MAX;
use crate::reservation::NoticeMask;
use crate::subsystem::Health;

/// Current values.
#[derive(Clone, Debug)]
pub(crate) struct Features {
    /// Arbitration (01h), CDW11. Stored only: round robin among queues has no parameters.
    pub arbitration: u32,
    /// Power Management (02h), CDW11: power state 0 and the host's workload hint.
    pub power: u32,
    /// Over and under temperature threshold (04h) in kelvin.
    pub temperature_over: u16,
    pub temperature_under: u16,
    /// Error Recovery (05h) of each namespace that has one set: Time Limited Error Recovery.
    pub error_recovery: BTreeMap<u32, u32>,
    /// Number of I/O queues allocated (07h), 1's based, submission and completion alike.
    pub io_queues: u16,
    /// An I/O queue was connected since the last reset: their number is settled.
    pub queues_created: bool,
    /// Write Atomicity Normal (0Ah), CDW11.
    pub write_atomicity: u32,
    /// Asynchronous Event Configuration (0Bh).
    pub async_event_configuration: u32,
    /// Timestamp (0Eh): milliseconds, attributes, and the controller's time when they were so.
    timestamp: (u64, u8, u64),
    /// Keep Alive Timer (0Fh), ms as granted; 0 is none.
    pub kato: u32,
    /// Host Behavior Support (16h).
    pub host_behavior: HostBehavior,
    /// Reservation Notification Mask (82h) of each namespace that has one.
    pub reservation_masks: BTreeMap<u32, NoticeMask>,
}

/// Over temperature threshold that is never reached: none is set.
const TEMPERATURE_OVER_DEFAULT: u16 = u16::MAX;

const NANOS_PER_MS: u64 = 1_000_000;

impl Features {
    pub fn new(kato: u32, now: u64) -> Self {
        Self {
            arbitration: 0,
            power: 0,
            temperature_over: TEMPERATURE_OVER_DEFAULT,
            temperature_under: 0,
            error_recovery: BTreeMap::new(),
            io_queues: IO_QUEUES_MAX,
            queues_created: false,
            write_atomicity: 0,
            async_event_configuration: 0,
            timestamp: (0, Timestamp::ORIGIN_RESET, now),
            kato: granted(kato),
            host_behavior: HostBehavior::default(),
            reservation_masks: BTreeMap::new(),
        }
    }

    /// A Controller Level Reset. The Keep Alive Timeout belongs to the association, not to the
    /// controller's enabled state, and stays.
    pub fn reset(&mut self, now: u64) {
        *self = Self { kato: self.kato, ..Self::new(0, now) };
    }

    /// The timestamp at `now`: it runs on from what the host set, or from 0 at reset.
    pub fn timestamp(&self, now: u64) -> Timestamp {
        let (base, attributes, set_at) = self.timestamp;
        let elapsed = now.saturating_sub(set_at) / NANOS_PER_MS;
        Timestamp::new(base.wrapping_add(elapsed), attributes)
    }

    pub fn set_timestamp(&mut self, timestamp: &Timestamp, now: u64) {
        self.timestamp = (timestamp.get(), Timestamp::ORIGIN_SET, now);
    }

    /// A namespace is gone: what was set for it goes too, so that the identifier's next user
    /// starts afresh.
    pub fn forget_namespace(&mut self, nsid: u32) {
        self.error_recovery.remove(&nsid);
        self.reservation_masks.remove(&nsid);
    }

    /// Whether a composite temperature is outside the thresholds the host set; never when nothing
    /// measures one.
    pub fn temperature_exceeded(&self, health: &Health) -> bool {
        health.temperature != 0
            && (health.temperature >= self.temperature_over
                || health.temperature <= self.temperature_under)
    }
}
