//! SMART / Health Information (Base 2.1 section 5.1.12.1.3), and the events that go with it.

use nvme::log::{Smart, u128_field};
use nvme::status::Status;

use super::{Controller, Features};
use crate::subsystem::{Health, Subsystem};

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
            (subsystem.totals(), subsystem.health())
        };
        let minutes = self.now().saturating_sub(target.started()) / NANOS_PER_MINUTE;
        let state = self.lock();
        Ok(Smart {
            critical_warning: state.features.warnings(&health),
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

    /// Tells the host of critical warnings that apply in `after` and did not in `before`.
    pub(crate) fn health_changed(&self, before: &Health, after: &Health) {
        let mut state = self.lock();
        let new = state.features.warnings(after) & !state.features.warnings(before);
        let configuration = state.features.async_event_configuration;
        state.events.warn(new, configuration);
        Self::wake_if_due(state);
    }

    /// Tells the host of those critical warnings `among` some that apply now: it has just asked for
    /// them, or set the threshold they depend on (section 5.1.25.1.5).
    pub(crate) fn tell_warnings(&self, among: u8) {
        let Some(health) = self.health() else { return };
        let mut state = self.lock();
        let warnings = state.features.warnings(&health) & among;
        let configuration = state.features.async_event_configuration;
        state.events.warn(warnings, configuration);
        Self::wake_if_due(state);
    }

    /// Health of the subsystem's media; the discovery subsystem has none.
    fn health(&self) -> Option<Health> {
        let target = self.target()?;
        let registry = target.lock();
        registry.subsystems.get(self.subsystem_nqn()).map(Subsystem::health)
    }
}

impl Features {
    /// Critical Warning for media of this health, with the thresholds the host has set.
    fn warnings(&self, health: &Health) -> u8 {
        [
            (health.spare_low(), Smart::WARNING_SPARE),
            (self.temperature_exceeded(health), Smart::WARNING_TEMPERATURE),
            (health.reliability_degraded, Smart::WARNING_RELIABILITY),
            (health.read_only, Smart::WARNING_READ_ONLY),
        ]
        .into_iter()
        .filter_map(|(applies, warning)| applies.then_some(warning))
        .fold(0, |all, warning| all | warning)
    }
}
