//! What is known of the hardware of pools' drives. Of what is not known there are no series.

use api::v1::{CriticalWarning, Drive, DriveHardware, DriveSmart, HardwareState};

use super::Text;

/// A metric of a drive that its health page has.
type OfSmart = (&'static str, &'static str, &'static str, fn(&DriveSmart) -> Option<String>);

const OF_SMART: [OfSmart; 10] = [
    (
        "wear_ratio",
        "gauge",
        "Share used of the life that the vendor expects; may be over 1.",
        |s| Some(ratio(s.wear_percent)),
    ),
    ("spare_ratio", "gauge", "Share of its spare capacity that a drive has left.", |s| {
        Some(ratio(s.spare_percent))
    }),
    ("spare_threshold_ratio", "gauge", "Below such a share a drive warns.", |s| {
        Some(ratio(s.spare_threshold_percent))
    }),
    ("media_errors_total", "counter", "Times that a drive could not give back data.", |s| {
        Some(s.media_errors.to_string())
    }),
    ("error_log_entries_total", "counter", "Entries that a drive's error log has had.", |s| {
        Some(s.error_log_entries.to_string())
    }),
    ("unsafe_shutdowns_total", "counter", "Times that power went without notice.", |s| {
        Some(s.unsafe_shutdowns.to_string())
    }),
    ("power_cycles_total", "counter", "Times that a drive was switched on.", |s| {
        Some(s.power_cycles.to_string())
    }),
    ("power_on_seconds_total", "counter", "Seconds that a drive was on, in whole hours.", |s| {
        Some(s.power_on_hours.saturating_mul(3600).to_string())
    }),
    ("lifetime_read_bytes_total", "counter", "Bytes read from a drive in its life.", |s| {
        s.bytes_read.map(|bytes| bytes.to_string())
    }),
    ("lifetime_written_bytes_total", "counter", "Bytes written to a drive in its life.", |s| {
        s.bytes_written.map(|bytes| bytes.to_string())
    }),
];

/// A metric of a drive that the machine tells, asked or not.
type OfHardware = (&'static str, &'static str, fn(&DriveHardware) -> Option<i32>);

const OF_HARDWARE: [OfHardware; 2] = [
    ("temperature_celsius", "Temperature of a drive.", |h| h.temperature_celsius),
    (
        "temperature_critical_celsius",
        "From such a temperature on a drive calls it critical.",
        |h| h.critical_celsius,
    ),
];

/// Percent as a ratio, exact.
fn ratio(percent: u8) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

/// Whether there is a physical drive that is known of.
fn is_known(drive: &&Drive) -> bool {
    matches!(drive.hardware.state, HardwareState::Known | HardwareState::Silent)
}

pub fn text<'d, I: Iterator<Item = &'d Drive>>(text: &mut Text, all: impl Fn() -> I) {
    let known = || all().filter(is_known);
    let name = "flashloom_drive_info";
    text.family(name, "gauge", "Which physical drive is in a place of a pool; always 1.");
    for drive in known() {
        let (index, hardware) = (drive.index.to_string(), &drive.hardware);
        let said = |text: &'d Option<String>| text.as_deref().unwrap_or_default();
        let labels = vec![
            ("pool", drive.pool.as_str()),
            ("drive", index.as_str()),
            ("model", said(&hardware.model)),
            ("serial", said(&hardware.serial)),
            ("firmware", said(&hardware.firmware)),
            ("transport", said(&hardware.transport)),
            ("slot", said(&hardware.slot)),
        ];
        text.sample(name, &labels, 1);
    }
    of_each(
        text,
        "answers",
        "gauge",
        "0 for a drive that was asked how it is and keeps silent.",
        known(),
        |d| Some(u8::from(d.hardware.state == HardwareState::Known).to_string()),
    );
    of_each(
        text,
        "warnings",
        "gauge",
        "What there is to look at in a drive's hardware.",
        known(),
        |d| Some(d.hardware.warnings.len().to_string()),
    );
    for (suffix, help, value) in OF_HARDWARE {
        of_each(text, suffix, "gauge", help, known(), |d| {
            value(&d.hardware).map(|degrees| degrees.to_string())
        });
    }
    for (suffix, kind, help, value) in OF_SMART {
        of_each(text, suffix, kind, help, known(), |d| d.hardware.smart.as_ref().and_then(value));
    }
    critical(text, known());
}

/// A metric of each drive of which it is known.
fn of_each<'d>(
    text: &mut Text,
    suffix: &str,
    kind: &str,
    help: &str,
    drives: impl Iterator<Item = &'d Drive>,
    value: impl Fn(&Drive) -> Option<String>,
) {
    let name = format!("flashloom_drive_{suffix}");
    text.family(&name, kind, help);
    for (drive, value) in drives.filter_map(|drive| Some((drive, value(drive)?))) {
        let index = drive.index.to_string();
        text.sample(&name, &vec![("pool", drive.pool.as_str()), ("drive", &index)], value);
    }
}

/// What drives warn of: a series for each warning, so that one that goes is seen to go.
fn critical<'d>(text: &mut Text, drives: impl Iterator<Item = &'d Drive>) {
    let name = "flashloom_drive_critical_warning";
    text.family(name, "gauge", "Whether an NVMe drive gives a critical warning, 0 or 1.");
    for (drive, smart) in drives.filter_map(|d| Some((d, d.hardware.smart.as_ref()?))) {
        let index = drive.index.to_string();
        for warning in CriticalWarning::ALL {
            let labels = vec![
                ("pool", drive.pool.as_str()),
                ("drive", index.as_str()),
                ("warning", warning.name()),
            ];
            text.sample(name, &labels, u8::from(smart.critical.contains(&warning)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(index: usize, hardware: serde_json::Value) -> Drive {
        serde_json::from_value(serde_json::json!({
            "pool": "fast", "index": index, "id": "5f0c4f0e-5d39-4b43-8d39-0d6a2f3f7a10", "path": "/dev/nvme0n1",
            "health": "online", "size": 1, "hardware": hardware,
            "counters": {
                "reads": 0, "writes": 0, "bytes_read": 0, "bytes_written": 0, "read_errors": 0,
                "write_errors": 0, "corrupt": 0, "reconstructed": 0, "repaired": 0,
            },
        }))
        .unwrap()
    }

    #[test]
    fn there_are_series_of_what_is_known_only() {
        let smart = serde_json::json!({
            "critical": ["read-only"], "wear_percent": 107, "spare_percent": 9,
            "spare_threshold_percent": 10, "media_errors": 4, "error_log_entries": 5,
            "unsafe_shutdowns": 6, "power_cycles": 7, "power_on_hours": 2, "bytes_written": 512_000,
        });
        let drives = [
            drive(
                0,
                serde_json::json!({
                    "state": "known", "model": "A \"B\"", "serial": "S", "temperature_celsius": -1,
                    "smart": smart, "warnings": ["the media is read-only"],
                }),
            ),
            drive(1, serde_json::json!({ "state": "none" })),
            drive(2, serde_json::json!({ "state": "silent", "serial": "T" })),
        ];
        let mut said = Text(String::new());
        text(&mut said, || drives.iter());
        let of_drive = |n: usize| {
            let label = format!("drive=\"{n}\"");
            let lines = said.0.lines().filter(|line| line.contains(&label));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let known = of_drive(0);
        for line in [
            "flashloom_drive_info{pool=\"fast\",drive=\"0\",model=\"A \\\"B\\\"\",serial=\"S\",firmware=\"\",\
             transport=\"\",slot=\"\"} 1",
            "flashloom_drive_answers{pool=\"fast\",drive=\"0\"} 1",
            "flashloom_drive_warnings{pool=\"fast\",drive=\"0\"} 1",
            "flashloom_drive_temperature_celsius{pool=\"fast\",drive=\"0\"} -1",
            "flashloom_drive_wear_ratio{pool=\"fast\",drive=\"0\"} 1.07",
            "flashloom_drive_spare_ratio{pool=\"fast\",drive=\"0\"} 0.09",
            "flashloom_drive_spare_threshold_ratio{pool=\"fast\",drive=\"0\"} 0.10",
            "flashloom_drive_media_errors_total{pool=\"fast\",drive=\"0\"} 4",
            "flashloom_drive_error_log_entries_total{pool=\"fast\",drive=\"0\"} 5",
            "flashloom_drive_unsafe_shutdowns_total{pool=\"fast\",drive=\"0\"} 6",
            "flashloom_drive_power_cycles_total{pool=\"fast\",drive=\"0\"} 7",
            "flashloom_drive_power_on_seconds_total{pool=\"fast\",drive=\"0\"} 7200",
            "flashloom_drive_lifetime_written_bytes_total{pool=\"fast\",drive=\"0\"} 512000",
            "flashloom_drive_critical_warning{pool=\"fast\",drive=\"0\",warning=\"read-only\"} 1",
            "flashloom_drive_critical_warning{pool=\"fast\",drive=\"0\",warning=\"temperature\"} 0",
        ] {
            assert!(known.iter().any(|other| other == line), "{line}\n{known:#?}");
        }
        // Neither the critical temperature nor what was read is known.
        assert_eq!(known.len(), 13 + 6, "{known:#?}");
        assert_eq!(of_drive(1), [""; 0]);
        let silent = of_drive(2);
        assert_eq!(silent.len(), 3, "{silent:#?}");
        assert!(silent[1].starts_with("flashloom_drive_answers") && silent[1].ends_with(" 0"));
    }
}
