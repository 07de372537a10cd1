//! The drive behind a pool's: what the daemon, or this machine, says of it, and the light at its slot.

use std::path::Path;

use api::v1::{Drive, DriveHardware, DriveSmart, DriveState, HardwareState};
use api::value::{Name, Size};
use hardware::Machine;
use serde::Serialize;

use crate::exit::{Exit, Failure, Outcome};
use crate::output::or_dash;

/// Asks the drive itself what the daemon has not asked yet, or has no right to ask; whoever types the command may have it.
pub fn complete(drive: &mut Drive) {
    let is_there = !matches!(drive.health, DriveState::Missing | DriveState::Vacant);
    let is_unread = is_there && drive.hardware.state == HardwareState::Unread;
    let has_no_more = drive.hardware.state == HardwareState::Known && drive.hardware.why.is_some();
    let Some(path) = drive.path.as_deref().filter(|_| is_unread || has_no_more) else { return };
    let warnings = std::mem::take(&mut drive.hardware.warnings);
    let found = array::physical::read(&Machine::new(), Path::new(path));
    if is_unread || found.smart.is_some() && found.serial == drive.hardware.serial {
        drive.hardware = found;
    }
    drive.hardware.warnings = warnings;
    if let Some(smart) = &drive.hardware.smart {
        // The daemon, which tells of them, did not see them.
        for words in smart.critical.iter().map(ToString::to_string) {
            if !drive.hardware.warnings.contains(&words) {
                drive.hardware.warnings.push(words);
            }
        }
    }
}

/// What is known of the hardware, by name; nothing of a drive that is a file, or is not there.
pub fn facts(hardware: &DriveHardware) -> Vec<(String, String)> {
    let row = |name: &str, value: String| (name.to_owned(), value);
    match hardware.state {
        HardwareState::Unread | HardwareState::None => return Vec::new(),
        HardwareState::Unreadable => return vec![row("hardware", or_dash(hardware.why.as_ref()))],
        HardwareState::Known | HardwareState::Silent => {}
    }
    let degrees = |value: Option<i32>| or_dash(value.map(|value| format!("{value} C")));
    let mut rows = vec![
        row("model", or_dash(hardware.model.as_ref())),
        row("serial", or_dash(hardware.serial.as_ref())),
        row("firmware", or_dash(hardware.firmware.as_ref())),
        row("transport", or_dash(hardware.transport.as_ref())),
        row("slot", or_dash(hardware.slot.as_ref())),
        row("temperature", degrees(hardware.temperature_celsius)),
    ];
    if hardware.critical_celsius.is_some() {
        rows.push(row("critical from", degrees(hardware.critical_celsius)));
    }
    rows.extend(hardware.smart.as_ref().into_iter().flat_map(smart_facts));
    // One that tells of its temperature only has not said that all is well.
    if hardware.smart.is_some() || !hardware.warnings.is_empty() {
        let said = hardware.warnings.join("; ");
        rows.push(row("warnings", if said.is_empty() { "none".to_owned() } else { said }));
    }
    if let Some(why) = &hardware.why {
        rows.push(row("SMART", why.clone()));
    }
    rows
}

fn smart_facts(smart: &DriveSmart) -> impl Iterator<Item = (String, String)> + use<> {
    let percent = |value: u8| format!("{value} %");
    let bytes = |value: Option<u64>| or_dash(value.map(Size::new));
    [
        ("wear", percent(smart.wear_percent)),
        ("spare", percent(smart.spare_percent)),
        ("spare threshold", percent(smart.spare_threshold_percent)),
        ("media errors", smart.media_errors.to_string()),
        ("error log entries", smart.error_log_entries.to_string()),
        ("unsafe shutdowns", smart.unsafe_shutdowns.to_string()),
        ("power cycles", smart.power_cycles.to_string()),
        ("power-on hours", smart.power_on_hours.to_string()),
        ("lifetime read", bytes(smart.bytes_read)),
        ("lifetime written", bytes(smart.bytes_written)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
}

/// The light at a drive's slot.
#[derive(Serialize)]
pub struct Light {
    /// The drive's.
    pub pool: Name,
    /// Its place in the pool.
    pub index: usize,
    /// The kernel's name of it.
    pub device: String,
    /// Whether it is lit.
    pub on: bool,
}

/// Lights what shows people where a drive is, or clears it.
pub fn locate(drive: &Drive, on: bool) -> Outcome<Light> {
    let place = format!("drive {} of pool {}", drive.index, drive.pool);
    let failed = |message: String| Failure::new(Exit::Failed, message);
    let path = drive.path.as_deref().ok_or_else(|| {
        failed(format!("{place} is not there"))
            .help("`flashloom drive show` says where the drives of the pool are")
    })?;
    let machine = Machine::new();
    let found = machine.drive(Path::new(path)).map_err(|error| failed(error.to_string()))?;
    let found = found.ok_or_else(|| {
        failed(format!("{place} is {path}, which is no physical drive"))
            .help("a file, a loop device, or a device over several drives has no slot")
    })?;
    machine.locate(&found, on).map_err(|error| failed(format!("{place}: {error}")))?;
    let (pool, index) = (drive.pool.clone(), drive.index);
    Ok(Light { pool, index, device: found.kernel_name, on })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(hardware: &DriveHardware) -> String {
        let rows = facts(hardware).into_iter().map(|(name, value)| format!("{name}={value}\n"));
        rows.collect()
    }

    #[test]
    fn what_is_known_is_printed_and_why_no_more_is() {
        assert_eq!(rows(&DriveHardware::default()), "");
        let none = DriveHardware { state: HardwareState::None, ..DriveHardware::default() };
        assert_eq!(rows(&none), "");
        let mut known = DriveHardware {
            state: HardwareState::Known,
            model: Some("A".to_owned()),
            temperature_celsius: Some(40),
            why: Some("it needs CAP_SYS_ADMIN".to_owned()),
            ..DriveHardware::default()
        };
        let said = rows(&known);
        for line in
            ["model=A\n", "serial=-\n", "temperature=40 C\n", "SMART=it needs CAP_SYS_ADMIN\n"]
        {
            assert!(said.contains(line), "{said}");
        }
        assert!(!said.contains("warnings") && !said.contains("wear"), "{said}");
        (known.why, known.smart) =
            (None, Some(DriveSmart { wear_percent: 7, ..DriveSmart::default() }));
        let said = rows(&known);
        assert!(said.contains("wear=7 %\n") && said.contains("warnings=none\n"), "{said}");
        known.warnings = vec!["it is old".to_owned(), "the media is read-only".to_owned()];
        assert!(rows(&known).contains("warnings=it is old; the media is read-only\n"));
        let why = Some("the drive is gone".to_owned());
        let not =
            DriveHardware { state: HardwareState::Unreadable, why, ..DriveHardware::default() };
        assert_eq!(rows(&not), "hardware=the drive is gone\n");
    }
}
