//! Health of drives of each kind.

use super::imitation::{Imitation, NVME0, SAS};
use crate::{Error, Health, Warning};
use proptest::prelude::*;
use std::os::unix::fs::symlink;

/// A page as a drive gives it, field by field of the specification.
fn page() -> [u8; 512] {
    let mut page = [0; 512];
    page[0] = 0b0010_1001;
    page[1..3].copy_from_slice(&(273u16 + 41).to_le_bytes());
    page[3] = 97;
    page[4] = 10;
    page[5] = 103;
    for (at, value) in
        [(32, 1_000_000), (48, 2), (112, 37), (128, 20_000), (144, 9), (160, 4), (176, 12)]
    {
        page[at..at + 16].copy_from_slice(&u128::to_le_bytes(value));
    }
    page
}

#[test]
fn a_page_is_read_field_by_field() {
    let health = Health::parse(&page());
    assert_eq!(
        health,
        Health {
            critical: vec![
                Warning::SpareBelowThreshold,
                Warning::ReadOnly,
                Warning::PersistentMemoryReadOnly,
            ],
            temperature_celsius: Some(41),
            wear_percent: Some(103),
            spare_percent: Some(97),
            spare_threshold_percent: Some(10),
            media_errors: Some(4),
            unsafe_shutdowns: Some(9),
            power_on_hours: Some(20_000),
            power_cycles: Some(37),
            bytes_read: Some(512_000_000_000),
            bytes_written: Some(1_024_000),
            error_log_entries: Some(12),
        }
    );
}

#[test]
fn what_is_not_reported_is_none() {
    let health = Health::parse(&[0; 512]);
    assert_eq!(health.critical, []);
    assert_eq!(health.temperature_celsius, None);
    assert_eq!((health.bytes_read, health.bytes_written), (None, None));
    assert_eq!(health.media_errors, Some(0));
}

proptest! {
    #[test]
    fn any_page_is_read(bytes in proptest::collection::vec(any::<u8>(), 512)) {
        let page: [u8; 512] = bytes.try_into().unwrap();
        let health = Health::parse(&page);
        prop_assert_eq!(health.critical.len(), (page[0] & 0x3f).count_ones() as usize);
        let kelvin = u16::from_le_bytes([page[1], page[2]]);
        let read = health.temperature_celsius.map_or(0, |celsius| celsius + 273);
        prop_assert_eq!(read, i32::from(kelvin));
        let all = [
            health.media_errors, health.unsafe_shutdowns, health.power_on_hours,
            health.power_cycles, health.error_log_entries,
        ];
        for (value, at) in all.into_iter().zip([160, 144, 128, 112, 176]) {
            let field: [u8; 16] = page[at..at + 16].try_into().unwrap();
            let field = u128::from_le_bytes(field);
            prop_assert_eq!(value.map(u128::from), Some(field.min(u64::MAX.into())));
        }
        for (value, at) in [(health.bytes_read, 32), (health.bytes_written, 48)] {
            let field: [u8; 16] = page[at..at + 16].try_into().unwrap();
            let bytes = u128::from_le_bytes(field).saturating_mul(512_000);
            prop_assert_eq!(u128::from(value.unwrap_or(0)), bytes.min(u64::MAX.into()));
        }
    }
}

#[test]
fn warnings_have_names_of_their_own() {
    let mut names: Vec<_> = Warning::ALL.map(Warning::name).into();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Warning::ALL.len());
    for (bit, warning) in Warning::ALL.into_iter().enumerate() {
        let mut page = [0; 512];
        page[0] = 1 << bit;
        assert_eq!(Health::parse(&page).critical, [warning], "{warning}");
    }
}

#[test]
fn of_other_drives_the_temperature_is_known_if_any() {
    let machine = Imitation::new();
    machine.sas(true);
    let health = || machine.machine().health(&machine.drive("8:0")).unwrap();
    assert_eq!(health(), None);
    let sensor = format!("{SAS}/hwmon/hwmon2/temp1_input");
    for (millidegrees, celsius) in [("34000\n", 34), ("34500\n", 35), ("-1400\n", -1), ("0", 0)] {
        machine.file(&sensor, millidegrees);
        let only = Health { temperature_celsius: Some(celsius), ..Health::default() };
        assert_eq!(health(), Some(only), "{millidegrees}");
    }
    for nonsense in ["", "hot\n", "99999999999999999999\n", "9223372036854775807\n"] {
        machine.file(&sensor, nonsense);
        assert_eq!(health(), None, "{nonsense}");
    }
}

#[test]
fn the_temperature_of_nvme_is_known_without_asking_it() {
    let machine = Imitation::new();
    machine.nvme();
    let temperature = || machine.machine().temperature(&machine.drive("259:0"));
    assert_eq!(temperature(), None);
    // Before Linux 5.10 it was the PCI function's.
    machine.file("devices/pci0000:00/0000:00:04.0/hwmon/hwmon0/temp1_input", "30850\n");
    assert_eq!(temperature(), Some(31));
    machine.file(&format!("{NVME0}/hwmon1/temp1_input"), "40850\n");
    assert_eq!(temperature(), Some(41));
}

#[test]
fn the_critical_temperature_is_what_the_drive_says_if_it_does() {
    let machine = Imitation::new();
    machine.nvme();
    let critical = || machine.machine().critical_temperature(&machine.drive("259:0"));
    assert_eq!(critical(), None);
    let limit = format!("{NVME0}/hwmon1/temp1_crit");
    for (millidegrees, celsius) in
        [("84850\n", Some(85)), ("0\n", None), ("-273150\n", None), ("hot\n", None)]
    {
        machine.file(&limit, millidegrees);
        assert_eq!(critical(), celsius, "{millidegrees}");
    }
}

#[test]
fn nvme_that_is_not_live_is_not_asked() {
    let machine = Imitation::new();
    machine.nvme().file(&format!("{NVME0}/state"), "resetting\n");
    let error = machine.machine().health(&machine.drive("259:0")).unwrap_err();
    assert!(
        matches!(&error, Error::NotLive { controller, state } if controller == "nvme0" && state == "resetting"),
        "{error:?}"
    );
}

#[test]
fn nvme_without_a_node_or_without_a_controller() {
    let machine = Imitation::new();
    machine.nvme();
    let error = machine.machine().health(&machine.drive("259:0")).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    assert!(error.to_string().contains("dev/nvme0: No such file"), "{error}");

    let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys1";
    machine.disk("259:7", &format!("{subsystem}/nvme1n1"), subsystem, "class/nvme-subsystem");
    let error = machine.machine().health(&machine.drive("259:7")).unwrap_err();
    assert!(matches!(error, Error::Gone { .. }), "{error:?}");
}

#[test]
fn a_node_that_is_another_devices_is_not_asked() {
    let machine = Imitation::new();
    machine.nvme();
    symlink("/dev/null", machine.node("nvme0")).unwrap();
    let error = machine.machine().health(&machine.drive("259:0")).unwrap_err();
    assert!(error.to_string().contains("another device's"), "{error}");
}

#[test]
fn a_node_that_takes_no_commands_says_so() {
    let machine = Imitation::new();
    machine.nvme().file(&format!("{NVME0}/dev"), "1:3\n");
    symlink("/dev/null", machine.node("nvme0")).unwrap();
    let error = machine.machine().health(&machine.drive("259:0")).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    assert!(error.to_string().contains("dev/nvme0"), "{error}");
}

#[test]
fn the_kernels_numbers() {
    // Its type differs between C libraries.
    assert_eq!(format!("{:x}", crate::smart::ADMIN_COMMAND), "c0484e41");
    assert_eq!(crate::smart::status(0x2002).to_string(), "Invalid Field in Command (0x0/0x02)");
}
