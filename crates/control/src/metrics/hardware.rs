//! What is known of the hardware of drives: those of pools, those that stand by, and those that are namespaces by
//! themselves. Of what is not known there are no series.

use api::v1::{CriticalWarning, Drive, DriveHardware, DriveSmart, HardwareState, Pool, Subsystem};

use super::{Text, borrow};

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

/// What drives are for.
struct Role {
    /// What their metrics begin with.
    prefix: &'static str,
    /// What the one says that tells which drive it is.
    info: &'static str,
}

/// A drive, known by these labels.
struct Watched<'d> {
    labels: Vec<(&'static str, String)>,
    hardware: &'d DriveHardware,
}

impl Watched<'_> {
    /// Whether there is a physical drive that is known of.
    const fn is_known(&self) -> bool {
        matches!(self.hardware.state, HardwareState::Known | HardwareState::Silent)
    }
}

/// Those of pools.
pub fn of_drives<'d>(text: &mut Text, drives: impl Iterator<Item = &'d Drive>) {
    let info = "Which physical drive is in a place of a pool; always 1.";
    let watched = |drive: &'d Drive| Watched {
        labels: vec![("pool", drive.pool.to_string()), ("drive", drive.index.to_string())],
        hardware: &drive.hardware,
    };
    let watched: Vec<_> = drives.map(watched).collect();
    tell(text, &Role { prefix: "flashloom_drive", info }, &watched);
}

/// Those that stand by, if there are any.
pub fn of_spares(text: &mut Text, pools: &[Pool]) {
    let info = "Which physical drive a spare is; always 1.";
    let spares = pools.iter().flat_map(|pool| &pool.spares);
    let watched = spares.map(|spare| Watched {
        labels: vec![("pool", spare.pool.to_string()), ("path", spare.path.clone())],
        hardware: &spare.hardware,
    });
    let watched: Vec<_> = watched.collect();
    if !watched.is_empty() {
        tell(text, &Role { prefix: "flashloom_spare", info }, &watched);
    }
}

/// Those that are namespaces by themselves, if there are any.
pub fn of_namespaces(text: &mut Text, subsystems: &[Subsystem]) {
    let info = "Which physical drive a namespace is; always 1.";
    let namespaces = subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    let watched = namespaces.filter_map(|of| {
        let labels = vec![("subsystem", of.subsystem.to_string()), ("nsid", of.nsid.to_string())];
        Some(Watched { labels, hardware: of.hardware.as_ref()? })
    });
    let watched: Vec<_> = watched.collect();
    if !watched.is_empty() {
        tell(text, &Role { prefix: "flashloom_namespace_drive", info }, &watched);
    }
}

fn tell(text: &mut Text, role: &Role, all: &[Watched<'_>]) {
    let known: Vec<_> = all.iter().filter(|watched| watched.is_known()).collect();
    let name = format!("{}_info", role.prefix);
    text.family(&name, "gauge", role.info);
    for Watched { labels, hardware } in known.iter().copied() {
        let said = [
            ("model", &hardware.model),
            ("serial", &hardware.serial),
            ("firmware", &hardware.firmware),
            ("transport", &hardware.transport),
            ("slot", &hardware.slot),
        ];
        let mut labels = borrow(labels);
        labels.extend(said.map(|(name, said)| (name, said.as_deref().unwrap_or_default())));
        text.sample(&name, &labels, 1);
    }
    let mut of_each =
        |suffix: &str, kind: &str, help: &str, value: &dyn Fn(&DriveHardware) -> _| {
            let name = format!("{}_{suffix}", role.prefix);
            text.family(&name, kind, help);
            for watched in &known {
                let value: Option<String> = value(watched.hardware);
                if let Some(value) = value {
                    text.sample(&name, &borrow(&watched.labels), value);
                }
            }
        };
    let help = "0 for a drive that was asked how it is and keeps silent.";
    of_each("answers", "gauge", help, &|hardware| {
        Some(u8::from(hardware.state == HardwareState::Known).to_string())
    });
    let help = "What there is to look at in a drive's hardware.";
    of_each("warnings", "gauge", help, &|hardware| Some(hardware.warnings.len().to_string()));
    for (suffix, help, value) in OF_HARDWARE {
        of_each(suffix, "gauge", help, &|hardware| {
            value(hardware).map(|degrees| degrees.to_string())
        });
    }
    for (suffix, kind, help, value) in OF_SMART {
        of_each(suffix, kind, help, &|hardware| hardware.smart.as_ref().and_then(value));
    }
    critical(text, role, &known);
}

/// What drives warn of: a series for each warning, so that one that goes is seen to go.
fn critical(text: &mut Text, role: &Role, known: &[&Watched<'_>]) {
    let name = format!("{}_critical_warning", role.prefix);
    text.family(&name, "gauge", "Whether an NVMe drive gives a critical warning, 0 or 1.");
    for Watched { labels, hardware } in known.iter().copied() {
        let Some(smart) = &hardware.smart else { continue };
        for warning in CriticalWarning::ALL {
            let mut labels = borrow(labels);
            labels.push(("warning", warning.name()));
            text.sample(&name, &labels, u8::from(smart.critical.contains(&warning)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: Role = Role { prefix: "flashloom_drive", info: "Which it is; always 1." };

    fn hardware(said: serde_json::Value) -> DriveHardware {
        serde_json::from_value(said).unwrap()
    }

    #[test]
    fn there_are_series_of_what_is_known_only() {
        let smart = serde_json::json!({
            "critical": ["read-only"], "wear_percent": 107, "spare_percent": 9,
            "spare_threshold_percent": 10, "media_errors": 4, "error_log_entries": 5,
            "unsafe_shutdowns": 6, "power_cycles": 7, "power_on_hours": 2, "bytes_written": 512_000,
        });
        let drives = [
            hardware(serde_json::json!({
                "state": "known", "model": "A \"B\"", "serial": "S", "temperature_celsius": -1,
                "smart": smart, "warnings": ["the media is read-only"],
            })),
            hardware(serde_json::json!({ "state": "none" })),
            hardware(serde_json::json!({ "state": "silent", "serial": "T" })),
        ];
        let watched = drives.iter().enumerate().map(|(n, hardware)| Watched {
            labels: vec![("pool", "fast".into()), ("drive", n.to_string())],
            hardware,
        });
        let mut said = Text(String::new());
        tell(&mut said, &ROLE, &watched.collect::<Vec<_>>());
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

    /// Each under a name of its own, with labels that tell it from the others; without any nothing is said.
    #[test]
    fn spares_and_namespaces_have_series_of_their_own() {
        let hardware = serde_json::json!({ "state": "known", "temperature_celsius": 40 });
        let spare = serde_json::json!({
            "pool": "fast", "id": "5f0c4f0e-5d39-4b43-8d39-0d6a2f3f7a10", "path": "/dev/nvme9n1",
            "health": "spare", "state": "spare", "size": 1, "hardware": hardware.clone(),
        });
        let of = |labels: Vec<(&'static str, String)>, prefix: &'static str| {
            let spare: api::v1::Spare = serde_json::from_value(spare.clone()).unwrap();
            let mut said = Text(String::new());
            let watched = Watched { labels, hardware: &spare.hardware };
            tell(&mut said, &Role { prefix, info: "Which it is; always 1." }, &[watched]);
            said.0
        };
        let said =
            of(vec![("pool", "fast".into()), ("path", "/dev/nvme9n1".into())], "flashloom_spare");
        let line = "flashloom_spare_temperature_celsius{pool=\"fast\",path=\"/dev/nvme9n1\"} 40";
        assert!(said.lines().any(|other| other == line), "{said}");
        let mut said = Text(String::new());
        of_spares(&mut said, &[]);
        of_namespaces(&mut said, &[]);
        assert_eq!(said.0, "");
    }
}
