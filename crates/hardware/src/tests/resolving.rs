//! From what an operator gives to the drive behind it.

use super::imitation::{Imitation, NVME, NVME_PARTITION, SAS};
use crate::{Error, Machine};
use std::path::Path;

fn sda() -> String {
    format!("{SAS}/block/sda")
}

#[test]
fn what_lies_on_one_drive_is_of_it() {
    let machine = Imitation::new();
    machine.nvme().stacked("253:0", "dm-0", &[NVME_PARTITION]);
    machine.stacked("253:1", "dm-1", &["devices/virtual/block/dm-0"]);
    machine.stacked("9:0", "md0", &["devices/virtual/block/dm-1"]);
    // Two parts of one drive are one drive.
    machine.stacked("253:2", "dm-2", &[NVME_PARTITION, NVME]);
    let drive = machine.drive("259:0");
    for number in ["253:0", "253:1", "9:0", "253:2"] {
        assert_eq!(machine.drive(number), drive, "{number}");
    }
}

/// Another disk was served under the name that one had before.
#[test]
fn a_block_device_is_told_from_others_whatever_its_name() {
    let machine = Imitation::new();
    machine.nvme().sas(true).stacked("7:0", "loop0", &[]).stacked("253:0", "dm-0", &[NVME]);
    machine.stacked("253:1", "dm-1", &[NVME]).stacked("253:2", "vda", &[]);
    machine.file("devices/virtual/block/dm-0/dm/uuid", "LVM-x1\n");
    // Made by hand, without one: what lies below it is not what it is.
    machine.file("devices/virtual/block/dm-1/dm/uuid", "\n");
    machine.file("devices/virtual/block/vda/serial", "disk-1\n");
    for (number, identity) in [
        ((259, 0), Some("eui.0025385b71b0a4f1")),
        ((259, 1), Some("eui.0025385b71b0a4f1-part1")),
        ((8, 0), Some("naa.5000c500cb2a1b2f")),
        ((253, 0), Some("LVM-x1")),
        ((253, 1), None),
        ((253, 2), Some("serial:disk-1")),
        ((7, 0), None),
        ((9, 9), None),
    ] {
        let found = machine.machine().identity(Path::new("any"), Some(number));
        assert_eq!(found.as_deref(), identity, "{number:?}");
    }
    assert_eq!(machine.machine().identity(Path::new("file"), None), None);
}

/// A healthy disk was refused when multipath was set up, or its kernel changed.
#[test]
fn a_block_device_is_the_same_by_another_way() {
    let machine = Imitation::new();
    machine.sas(true).stacked("253:0", "dm-0", &[&sda()]);
    machine.stacked("253:1", "dm-1", &["devices/virtual/block/dm-0"]);
    machine.stacked("253:2", "dm-2", &[&sda()]).stacked("9:0", "md0", &[&sda()]);
    for (name, uuid) in [
        ("dm-0/dm", "mpath-35000c500cb2a1b2f"),
        ("dm-1/dm", "part2-mpath-35000c500cb2a1b2f"),
        ("dm-2/dm", "CRYPT-LUKS2-0123456789abcdef0123456789abcdef-of-a-name"),
        ("md0/md", "0c3e-1"),
    ] {
        machine.file(&format!("devices/virtual/block/{name}/uuid"), format!("{uuid}\n"));
    }
    let disk = "naa.5000c500cb2a1b2f";
    for (number, identity) in [
        ((8, 0), disk),
        ((253, 0), disk),
        ((253, 1), "naa.5000c500cb2a1b2f-part2"),
        ((253, 2), "CRYPT-0123456789abcdef0123456789abcdef"),
        ((9, 0), "md:0c3e-1"),
    ] {
        let found = machine.machine().identity(Path::new("any"), Some(number));
        assert_eq!(found.as_deref(), Some(identity), "{number:?}");
    }
    for (one, other, are_two) in [
        (disk, disk, false),
        (disk, "naa.5000c500cb2a1b2e", true),
        (disk, "LVM-x1", true),
        ("serial:disk-1", "serial:disk-2", true),
        ("serial:disk-1-part1", "serial:disk-1-part2", true),
        ("md:1", "md:2", true),
        ("serial:disk-1", disk, false),
        ("md:1", disk, false),
        ("serial:disk-1", "md:1", false),
        // Its paths came late, or one of them did not say what it is.
        ("mpath-35000c500cb2a1b2f", disk, false),
        ("part2-mpath-35000c500cb2a1b2f", "naa.5000c500cb2a1b2f-part2", false),
        ("mpath-35000c500cb2a1b2f", "mpath-35000c500cb2a1b2e", true),
        ("part1-mpath-35000c500cb2a1b2f", "part2-mpath-35000c500cb2a1b2f", true),
    ] {
        assert_eq!(crate::is_another(one, other), are_two, "{one} {other}");
        assert_eq!(crate::is_another(other, one), are_two, "{one} {other}");
    }
}

#[test]
fn what_lies_on_several_drives_is_of_none() {
    let machine = Imitation::new();
    machine.nvme().sas(true).stacked("9:0", "md0", &[NVME_PARTITION, &sda()]);
    machine.stacked("253:0", "dm-0", &["devices/virtual/block/md0"]);
    assert_eq!(machine.try_drive("9:0"), None);
    assert_eq!(machine.try_drive("253:0"), None);
}

#[test]
fn several_paths_to_a_drive_are_one_drive() {
    let machine = Imitation::new();
    machine.sas(true);
    let other = "devices/pci0000:00/0000:00:06.0/0000:06:00.0/host1/port-1:0/end_device-1:0/\
                 target1:0:0/1:0:0:0";
    let sdb = format!("{other}/block/sdb");
    machine.disk("8:16", &sdb, other, "bus/scsi");
    machine.stacked("253:0", "dm-0", &[&sdb, &sda()]);
    assert_eq!(machine.try_drive("253:0"), None, "nothing says that they are");
    machine.file(&format!("{other}/wwid"), "naa.5000c500cb2a1b2f\n");
    assert_eq!(machine.drive("253:0").kernel_name, "sda");
    machine.file(&format!("{other}/wwid"), "naa.5000c500cb2a1b30\n");
    assert_eq!(machine.try_drive("253:0"), None);
}

#[test]
fn what_has_no_hardware_is_no_drive() {
    let machine = Imitation::new();
    machine.nvme().stacked("7:0", "loop0", &[]).stacked("1:0", "ram0", &[]);
    machine.stacked("253:0", "dm-0", &[NVME, "devices/virtual/block/loop0"]);
    // A link that leads nowhere: the drive went meanwhile.
    machine.stacked("253:1", "dm-1", &[NVME, "devices/virtual/block/gone"]);
    for number in ["7:0", "1:0", "253:0", "253:1"] {
        assert_eq!(machine.try_drive(number), None, "{number}");
    }
}

#[test]
fn devices_in_a_circle_end() {
    let machine = Imitation::new();
    machine.stacked("253:0", "dm-0", &["devices/virtual/block/dm-1"]);
    machine.stacked("253:1", "dm-1", &["devices/virtual/block/dm-0"]);
    assert_eq!(machine.try_drive("253:0"), None);
}

#[test]
fn a_device_that_the_kernel_does_not_know() {
    let machine = Imitation::new();
    let error = machine.machine().drive_of(259, 9).unwrap_err();
    assert!(matches!(error, Error::Unknown { major: 259, minor: 9, .. }), "{error:?}");
    assert!(error.to_string().contains("259:9"), "{error}");
}

#[test]
fn paths_that_are_no_block_device() {
    let machine = Imitation::new();
    std::fs::write(machine.node("file"), "").unwrap();
    for path in [machine.node("file"), machine.node(""), "/dev/null".into()] {
        assert_eq!(machine.machine().drive(&path).unwrap(), None, "{}", path.display());
    }
    let error = machine.machine().drive(&machine.node("nothing")).unwrap_err();
    assert!(matches!(error, Error::Path { .. }), "{error:?}");
    assert!(error.to_string().contains("dev/nothing: No such file"), "{error}");
}

#[test]
fn this_machine_says_something_or_nothing() {
    let machine = Machine::new();
    let Ok(disks) = std::fs::read_dir("/dev") else { return };
    for disk in disks.flatten() {
        // Whatever there is, it is read without a panic.
        let _ = machine.drive(&disk.path());
    }
    assert_eq!(machine.drive(Path::new("/proc/self/exe")).unwrap(), None);
}
