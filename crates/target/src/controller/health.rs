//! SMART / Health Information (Base 2.1 section 5.1.12.1.3), and the events that go with it.

use nvme::event::Event;
use nvme::log::{Smart, u128_field};
use nvme::status::Status;

use super::Controller;
use crate::subsystem::Health;

const NANOS_PER_MINUTE: u64 = 60 * 1_000_000_000;

impl Controller {
    /// The page: what the subsystem's controllers did since the target started, and what the owner
    /// of the media reported.
    pub(crate) fn smart(&self) -> Result<Smart, Status> {
        let target = self.target().ok_or(Status::INTERNAL_ERROR)?;
        let (totals, health) = {
            let registry = target.lock();
            let subsystem =
                registry.subsystems.get(self.subsystem_nqn()).ok_or(Status::INTERNAL_ERROR)?;
            let mut health = subsystem.health;
            // A drive that failed says so itself; nobody has to report it first.
            health.reliability_degraded |=
                subsystem.view.iter().any(|namespace| namespace.backend.has_failed());
            (subsystem.totals(), health)
        };
        let minutes = self.now().saturating_sub(target.started()) / NANOS_PER_MINUTE;
        let state = self.lock();
        let mut warning = 0;
        for (condition, bit) in [
            (health.spare_low(), Smart::WARNING_SPARE),
            (state.features.temperature_exceeded(&health), Smart::WARNING_TEMPERATURE),
            (health.reliability_degraded, Smart::WARNING_RELIABILITY),
            (health.read_only, Smart::WARNING_READ_ONLY),
        ] {
            warning |= if condition { bit } else { 0 };
        }
        Ok(Smart {
            critical_warning: warning,
            temperature: health.temperature.into(),
            available_spare: health.available_spare,
            spare_threshold: health.spare_threshold,
            percentage_used: health.percentage_used,
            data_units_read: Smart::data_units(totals.bytes_read.into()),
            data_units_written: Smart::data_units(totals.bytes_written.into()),
            host_read_commands: u128_field(totals.read_commands.into()),
            host_write_commands: u128_field(totals.write_commands.into()),
            controller_busy_time: u128_field((totals.busy_ns / NANOS_PER_MINUTE).into()),
            power_cycles: u128_field(1),
            power_on_hours: u128_field((minutes / 60).into()),
            media_errors: u128_field((health.media_errors + totals.media_errors).into()),
            error_log_entries: u128_field(state.errors.count().into()),
            ..Smart::default()
        })
    }

    /// Raises the SMART / Health events for what is worse in `after` than in `before`.
    pub(crate) fn health_changed(&self, before: &Health, after: &Health) {
        if after.spare_low() && !before.spare_low() {
            self.raise(Event::Spare);
        }
        let degraded = |health: &Health| health.reliability_degraded || health.read_only;
        if degraded(after) && !degraded(before) {
            self.raise(Event::Reliability);
        }
        let exceeds = |health: &Health| self.lock().features.temperature_exceeded(health);
        if exceeds(after) && !exceeds(before) {
            self.raise(Event::Temperature);
        }
    }

    /// Raises the temperature event when a threshold just set is exceeded already.
    pub(crate) fn check_temperature(&self) {
        let Some(target) = self.target() else { return };
        let health = {
            let registry = target.lock();
            registry.subsystems.get(self.subsystem_nqn()).map(|subsystem| subsystem.health)
        };
        if health.is_some_and(|health| self.lock().features.temperature_exceeded(&health)) {
            self.raise(Event::Temperature);
        }
    }
}
