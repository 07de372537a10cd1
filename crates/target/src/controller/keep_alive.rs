//! The Keep Alive Timer (Base 2.1 section 3.9), traffic based: any command restarts it.

use std::sync::atomic::Ordering;

use nvme::event::{Event, error};
use nvme::property::Csts;

use super::queues::end;
use super::{Controller, State};
use crate::canary::{self, Canary};
use crate::command::Pending;
use crate::limits::{
    DISABLED_IDLE_MS, DISCOVERY_IDLE_MS, KEEP_ALIVE_GRANULARITY, KEEP_ALIVE_MS_MAX, UNUSED_IDLE_MS,
};
use crate::persistent_event::Happened;

const NANOS_PER_MS: u64 = 1_000_000;

/// The timeout granted for one asked for, both in ms: rounded up to the granularity (KAS), and
/// bounded. 0 is no timer.
pub(crate) fn granted(asked: u32) -> u32 {
    let step = u32::from(KEEP_ALIVE_GRANULARITY) * 100;
    asked.min(KEEP_ALIVE_MS_MAX).div_ceil(step) * step
}

impl Controller {
    /// Notes that the host was heard of at `now` (reactor nanoseconds): a command arrived on any
    /// queue. One plain store; once per turn of the loop is enough.
    pub fn touch(&self, now: u64) {
        self.heard.store(now, Ordering::Relaxed);
    }

    /// Whether the host has been silent for too long at `now` (reactor nanoseconds). If so, the
    /// controller has by then failed (CSTS.CFS) and ended all its queues, as section 3.9.5 wants.
    pub fn expired(&self, now: u64) -> bool {
        let mut state = self.lock();
        let Some(deadline) = self.deadline(&state) else { return false };
        if now < deadline || state.queues.ended() {
            return false;
        }
        state.csts = Csts(state.csts.0 | Csts::CFS);
        drop(state);
        self.record(Happened::Fatal);
        self.close_queues();
        true
    }

    /// When the controller expires if nothing more is heard, in reactor nanoseconds.
    #[must_use]
    pub fn keep_alive_deadline(&self) -> Option<u64> {
        self.deadline(&self.lock())
    }

    fn deadline(&self, state: &State) -> Option<u64> {
        let after = |start: u64, ms: u32| start.saturating_add(u64::from(ms) * NANOS_PER_MS);
        let idle = match state.features.kato {
            0 if self.is_discovery() => Some(DISCOVERY_IDLE_MS),
            // Without a timer and without a queue nobody would miss it, and it is one of its host's few.
            0 if state.queues.io_count() == 0 => Some(UNUSED_IDLE_MS),
            0 => None,
            _ if canary::has(Canary::OutlivesItsHost) => None,
            kato => Some(kato),
        };
        let silent = idle.map(|ms| after(self.now(), ms));
        let disabled = state.disabled_since.map(|since| after(since, DISABLED_IDLE_MS));
        match (silent, disabled) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        }
    }

    /// The controller cannot go on (CSTS.CFS): hosts see it by property, and their I/O queues
    /// end. A reset clears it.
    pub fn fail(&self) {
        let mut state = self.lock();
        state.csts = Csts(state.csts.0 | Csts::CFS);
        self.set_permits(&state);
        let ending = state.close_io_queues();
        drop(state);
        end(ending);
        self.end_windows(&Pending::default());
        self.record(Happened::Fatal);
        self.raise(Event::Error(error::PERSISTENT_INTERNAL_ERROR));
    }
}

#[cfg(test)]
mod tests {
    use super::granted;

    #[test]
    fn timeouts_are_rounded_up_to_the_granularity() {
        assert_eq!(granted(0), 0);
        assert_eq!(granted(1), 1000);
        assert_eq!(granted(5000), 5000);
        assert_eq!(granted(15_001), 16_000);
        assert_eq!(granted(u32::MAX), 3_600_000);
    }
}
