//! Lights that show where a drive is.

use super::imitation::{ENCLOSURE, Imitation};
use crate::Error;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

fn slot(name: &str) -> String {
    format!("{ENCLOSURE}/{name}/locate")
}

/// The light of a drive goes on and off, and no other's does.
fn goes_on_and_off(machine: &Imitation, number: &str, file: &str) {
    let (drive, light) = (machine.drive(number), machine.sys(file));
    let machine = machine.machine();
    assert_eq!(machine.is_located(&drive), Some(false));
    machine.locate(&drive, true).unwrap();
    assert_eq!(fs::read_to_string(&light).unwrap().trim(), "1");
    assert_eq!(machine.is_located(&drive), Some(true));
    machine.locate(&drive, false).unwrap();
    assert_eq!(fs::read_to_string(&light).unwrap().trim(), "0");
    assert_eq!(machine.is_located(&drive), Some(false));
}

#[test]
fn of_an_enclosure() {
    for linked in [true, false] {
        let machine = Imitation::new();
        machine.sas(linked);
        goes_on_and_off(&machine, "8:0", &slot("Slot 03"));
        assert_eq!(fs::read(machine.sys(&slot("Slot 02"))).unwrap(), b"0\n");
    }
}

#[test]
fn of_a_pci_function_or_the_port_above_it() {
    for light in ["0000:04:00.0", "0000:00:03.0"] {
        let machine = Imitation::new();
        let pci = "devices/pci0000:00/0000:00:03.0/0000:04:00.0";
        let controller = format!("{pci}/nvme/nvme0");
        machine.controller(0, pci);
        machine.disk("259:0", &format!("{controller}/nvme0n1"), &controller, "class/nvme");
        let of = |function: &str| format!("class/leds/{function}:enclosure:locate/brightness");
        // Another drive's.
        machine.file(&of("0000:05:00.0"), "1\n");
        machine.file(&of(light), "0\n");
        goes_on_and_off(&machine, "259:0", &of(light));
    }
}

#[test]
fn where_there_is_none() {
    let machine = Imitation::new();
    machine.nvme();
    let drive = machine.drive("259:0");
    assert_eq!(machine.machine().is_located(&drive), None);
    let error = machine.machine().locate(&drive, true).unwrap_err();
    assert!(matches!(&error, Error::NoLight { drive, .. } if drive == "nvme0n1"), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("class/leds/0000:00:04.0:enclosure:locate/brightness"), "{text}");
    assert!(text.contains("class/enclosure"), "{text}");

    // A controller of SATA drives is not the drive, and what lights it is not its light.
    let machine = Imitation::new();
    let device = "devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0";
    machine.disk("8:0", &format!("{device}/block/sda"), device, "bus/scsi");
    machine.file("class/leds/0000:00:1f.2:enclosure:locate/brightness", "0\n");
    let error = machine.machine().locate(&machine.drive("8:0"), true).unwrap_err();
    assert!(matches!(error, Error::NoLight { .. }), "{error:?}");
}

#[test]
fn of_a_slot_that_has_no_light() {
    let machine = Imitation::new();
    machine.sas(true);
    fs::remove_file(machine.sys(&slot("Slot 03"))).unwrap();
    let error = machine.machine().locate(&machine.drive("8:0"), true).unwrap_err();
    assert!(error.to_string().contains("Slot 03/locate"), "{error}");
    assert!(!machine.sys(&slot("Slot 03")).exists(), "nothing is made");
}

#[test]
fn that_says_nonsense() {
    let machine = Imitation::new();
    machine.sas(true).file(&slot("Slot 03"), "\n");
    assert_eq!(machine.machine().is_located(&machine.drive("8:0")), None);
}

#[test]
fn that_may_not_be_switched() {
    let machine = Imitation::new();
    machine.sas(true);
    let light = machine.sys(&slot("Slot 03"));
    fs::set_permissions(&light, fs::Permissions::from_mode(0o444)).unwrap();
    if fs::OpenOptions::new().write(true).open(&light).is_ok() {
        // For root permissions do not count. What nobody may write in sysfs, root may not either.
        fs::remove_file(&light).unwrap();
        symlink("/sys/devices/system/cpu/online", &light).unwrap();
    }
    let error = machine.machine().locate(&machine.drive("8:0"), true).unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("Slot 03/locate") && text.contains("needs root"), "{text}");
}
