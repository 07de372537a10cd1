//! Feature values of one controller (Base 2.1 section 5.1.25). None is saveable: a Controller
//! Level Reset restores the defaults.

use std::collections::BTreeMap;

use super::keep_alive::granted;
use crate::limits::IO_QUEUES_MAX;
use crate::reservation::NoticeMask;
use crate::subsystem::Health;

/// Current values.
#[derive(Clone, Debug)]
pub(crate) struct Features {
    /// Number of I/O queues allocated (07h), 1's based, submission and completion alike.
    pub io_queues: u16,
    /// Asynchronous Event Configuration (0Bh).
    pub async_event_configuration: u32,
    /// Keep Alive Timer (0Fh), ms as granted; 0 is none.
    pub kato: u32,
    /// Over and under temperature threshold (04h) in kelvin.
    pub temperature_over: u16,
    pub temperature_under: u16,
    /// An I/O queue was connected since the last reset: their number is settled.
    pub queues_created: bool,
    /// Reservation Notification Mask (82h) of each namespace that has one.
    pub reservation_masks: BTreeMap<u32, NoticeMask>,
}

/// Over temperature threshold that is never reached: none is set.
pub(crate) const TEMPERATURE_OVER_DEFAULT: u16 = u16::MAX;

impl Features {
    pub fn new(kato: u32, _now: u64) -> Self {
        Self {
            io_queues: IO_QUEUES_MAX,
            async_event_configuration: 0,
            kato: granted(kato),
            temperature_over: TEMPERATURE_OVER_DEFAULT,
            temperature_under: 0,
            queues_created: false,
            reservation_masks: BTreeMap::new(),
        }
    }

    /// A Controller Level Reset. The Keep Alive Timeout belongs to the association, not to the
    /// controller's enabled state, and stays.
    pub fn reset(&mut self, now: u64) {
        *self = Self { kato: self.kato, ..Self::new(0, now) };
    }

    /// Whether a composite temperature is outside the thresholds the host set; never when nothing
    /// measures one.
    pub fn temperature_exceeded(&self, health: &Health) -> bool {
        health.temperature != 0
            && (health.temperature >= self.temperature_over
                || health.temperature <= self.temperature_under)
    }
}
