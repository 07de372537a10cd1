//! The drive behind a pool's: what this machine says of it, and the light at its slot. The daemon has no right to ask a
//! drive for its health or to switch a light: whoever types the command has it, or not.

use std::path::Path;

use api::v1::{Drive, DriveHealth};
use api::value::Name;
use hardware::Machine;
use serde::Serialize;

use crate::exit::{Exit, Failure, Outcome};
use crate::output::or_dash;

/// What is known of the hardware, by name; nothing of a drive that is a file, or is not there.
pub fn facts(drive: &Drive) -> Vec<(String, String)> {
    let machine = Machine::new();
    let path = drive.path.as_deref().filter(|_| drive.health != DriveHealth::Missing);
    let row = |name: &str, value: String| (name.to_owned(), value);
    let found = match path.map(|path| machine.drive(Path::new(path))) {
        Some(Ok(Some(found))) => found,
        Some(Err(error)) => return vec![row("hardware", error.to_string())],
        Some(Ok(None)) | None => return Vec::new(),
    };
    let percent = |value: Option<u8>| or_dash(value.map(|value| format!("{value} %")));
    let degrees = |value: Option<i32>| or_dash(value.map(|value| format!("{value} C")));
    let mut rows = vec![
        row("model", or_dash(found.model.as_ref())),
        row("serial", or_dash(found.serial.as_ref())),
        row("firmware", or_dash(found.firmware.as_ref())),
        row("transport", found.transport.to_string()),
        row("slot", or_dash(found.slot.as_ref())),
    ];
    match machine.health(&found) {
        // One that tells of its temperature only has not said that all is well.
        Ok(Some(health)) if health.spare_percent.is_some() => {
            let warnings: Vec<_> = health.critical.iter().map(ToString::to_string).collect();
            let said = if warnings.is_empty() { "none".to_owned() } else { warnings.join(", ") };
            rows.extend([
                row("warnings", said),
                row("temperature", degrees(health.temperature_celsius)),
                row("wear", percent(health.wear_percent)),
                row("spare", percent(health.spare_percent)),
                row("media errors", or_dash(health.media_errors)),
                row("power-on hours", or_dash(health.power_on_hours)),
            ]);
        }
        Ok(_) => rows.push(row("temperature", degrees(machine.temperature(&found)))),
        Err(error) => {
            rows.push(row("temperature", degrees(machine.temperature(&found))));
            rows.push(row("SMART", error.to_string()));
        }
    }
    rows
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
