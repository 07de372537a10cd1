//! Reading a drive's hardware. May take as long as the drive does.

use std::path::Path;

use api::v1::{CriticalWarning, DriveHardware, DriveSmart, HardwareState};
use hardware::{Drive, Health, Machine, Warning};

use crate::events::now_ms;

/// All that the machine says of the drive behind `path`. Blocks until the drive has answered, or the kernel has given it
/// up, a minute or longer.
pub fn read(machine: &Machine, path: &Path) -> DriveHardware {
    let known = std::cell::RefCell::new(DriveHardware::default());
    let found = identify(machine, path, &|facts, _| *known.borrow_mut() = facts);
    match found {
        Some((drive, facts)) => examine(machine, &drive, facts),
        None => known.into_inner(),
    }
}

/// What is known of a drive without asking it, which `learn` is given; with `true` where there is nothing to ask.
pub fn identify(
    machine: &Machine,
    path: &Path,
    learn: &dyn Fn(DriveHardware, bool),
) -> Option<(Drive, DriveHardware)> {
    let read_ms = Some(now_ms());
    match machine.drive(path) {
        Ok(Some(drive)) => {
            let facts = DriveHardware {
                state: HardwareState::Known,
                why: None,
                read_ms,
                model: drive.model.clone(),
                serial: drive.serial.clone(),
                firmware: drive.firmware.clone(),
                transport: Some(drive.transport.to_string()),
                slot: drive.slot.clone(),
                ..DriveHardware::default()
            };
            learn(facts.clone(), false);
            Some((drive, facts))
        }
        Ok(None) => {
            let state = HardwareState::None;
            learn(DriveHardware { state, read_ms, ..DriveHardware::default() }, true);
            None
        }
        Err(error) => {
            let (state, why) = (HardwareState::Unreadable, Some(error.to_string()));
            learn(DriveHardware { state, why, read_ms, ..DriveHardware::default() }, true);
            None
        }
    }
}

/// How the drive is, beside who it is.
pub fn examine(machine: &Machine, drive: &Drive, mut facts: DriveHardware) -> DriveHardware {
    facts.critical_celsius = machine.critical_temperature(drive);
    match machine.health(drive) {
        Ok(Some(health)) => {
            facts.temperature_celsius = health.temperature_celsius;
            facts.smart = smart(&health);
        }
        Ok(None) => {}
        Err(error) => {
            facts.temperature_celsius = machine.temperature(drive);
            facts.why = Some(error.to_string());
        }
    }
    facts.read_ms = Some(now_ms());
    facts
}

/// The health as the management API has it; `None` of a drive that tells of its temperature only, which has not said that
/// all is well.
fn smart(health: &Health) -> Option<DriveSmart> {
    Some(DriveSmart {
        critical: health.critical.iter().copied().map(critical).collect(),
        wear_percent: health.wear_percent?,
        spare_percent: health.spare_percent?,
        spare_threshold_percent: health.spare_threshold_percent?,
        media_errors: health.media_errors?,
        error_log_entries: health.error_log_entries?,
        unsafe_shutdowns: health.unsafe_shutdowns?,
        power_cycles: health.power_cycles?,
        power_on_hours: health.power_on_hours?,
        bytes_read: health.bytes_read,
        bytes_written: health.bytes_written,
    })
}

const fn critical(warning: Warning) -> CriticalWarning {
    match warning {
        Warning::SpareBelowThreshold => CriticalWarning::SpareBelowThreshold,
        Warning::Temperature => CriticalWarning::Temperature,
        Warning::DegradedReliability => CriticalWarning::DegradedReliability,
        Warning::ReadOnly => CriticalWarning::ReadOnly,
        Warning::VolatileBackupFailed => CriticalWarning::VolatileBackupFailed,
        Warning::PersistentMemoryReadOnly => CriticalWarning::PersistentMemoryReadOnly,
    }
}
