//! Generic character devices, and what is named by mistake in their place. Nodes can be made by root only, so those of the
//! machine that the tests run on stand for them: sysfs, which says what they are, is an imitation.

use super::imitation::{Imitation, NVME, NVME0};
use crate::{Error, Generic};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `/dev/null` as the character device in `folder`, of class `subsystem`.
fn null_as(machine: &Imitation, folder: &str, subsystem: &str) {
    let number = std::fs::metadata("/dev/null").unwrap().rdev();
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    machine.link(&format!("dev/char/{number}"), folder);
    if !machine.sys(folder).join("subsystem").is_symlink() {
        machine.link(&format!("{folder}/subsystem"), &format!("class/{subsystem}"));
    }
}

fn generic(machine: &Imitation) -> crate::Result<Generic> {
    machine.machine().generic(Path::new("/dev/null"))
}

/// What it is, and what to name in its place.
fn refused(machine: &Imitation, path: &Path) -> (String, String) {
    match machine.machine().generic(path) {
        Err(Error::NotGeneric { is, instead, .. }) => (is, instead),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_namespace_is_found_with_its_block_device() {
    let machine = Imitation::new();
    machine.nvme();
    let device = format!("{NVME0}/ng0n1");
    null_as(&machine, &device, "nvme-generic");
    machine.files(
        &format!("{NVME}/queue"),
        &[
            ("logical_block_size", "4096\n"),
            ("max_hw_sectors_kb", "512\n"),
            ("max_segments", "127\n"),
            ("zoned", "none\n"),
        ],
    );
    machine.file(&format!("{NVME}/size"), "2048\n");
    let found = generic(&machine).unwrap();
    assert_eq!(found.kernel_name, "ng0n1");
    assert_eq!(found.block_node, machine.node("nvme0n1"));
    assert_eq!(found.block_size, 4096);
    // 126 pages and one for the ends are less than 512 KiB.
    assert_eq!(found.transfer_bytes, 256 << 10);
    assert_eq!(found.wwid.as_deref(), Some("eui.0025385b71b0a4f1"));
    assert_eq!(found.bytes_now(), Some(1 << 20));
    // It is the drive that its block device is.
    let drive = machine.machine().drive(Path::new("/dev/null")).unwrap().unwrap();
    assert_eq!(drive.kernel_name, "nvme0n1");
    assert_eq!(drive, machine.drive("259:0"));
    std::fs::remove_dir_all(machine.sys(NVME)).unwrap();
    assert_eq!(found.bytes_now(), None, "the drive is gone");
}

/// A drive that came again had its block device by the subsystem's old number, and nothing was found of it.
#[test]
fn devices_of_one_namespace_may_have_other_numbers() {
    let machine = Imitation::new();
    machine.nvme();
    null_as(&machine, &format!("{NVME0}/ng7n1"), "nvme-generic");
    // A path of another namespace, and another namespace.
    machine.file(&format!("{NVME0}/nvme0c7n1/size"), "8\n");
    machine.file(&format!("{NVME0}/nvme0n11/size"), "8\n");
    assert_eq!(generic(&machine).unwrap().block_node, machine.node("nvme0n1"));
}

#[test]
fn zones_and_a_namespace_without_a_block_device_are_refused() {
    let machine = Imitation::new();
    machine.nvme();
    null_as(&machine, &format!("{NVME0}/ng0n1"), "nvme-generic");
    machine.file(&format!("{NVME}/queue/zoned"), "host-managed\n");
    assert!(refused(&machine, Path::new("/dev/null")).0.contains("zoned"));

    let machine = Imitation::new();
    machine.nvme();
    null_as(&machine, &format!("{NVME0}/ng0n2"), "nvme-generic");
    assert!(refused(&machine, Path::new("/dev/null")).0.contains("without a block device"));
}

#[test]
fn a_controller_is_told_by_its_namespaces() {
    let machine = Imitation::new();
    machine.nvme();
    machine.file(&format!("{NVME0}/ng0n1/dev"), "241:0\n");
    null_as(&machine, NVME0, "nvme");
    let (is, instead) = refused(&machine, Path::new("/dev/null"));
    assert!(is.contains("the controller nvme0"), "{is}");
    assert!(instead.contains("/ng0n1"), "{instead}");
}

#[test]
fn other_things_are_told_what_they_are() {
    let machine = Imitation::new();
    null_as(&machine, "devices/virtual/mem/null", "mem");
    assert!(refused(&machine, Path::new("/dev/null")).0.contains("no NVMe namespace"));
    let (is, _) = refused(&Imitation::new(), Path::new("/dev/null"));
    assert!(is.contains("does not know"), "{is}");
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(refused(&machine, folder.path()).0, "a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (is, instead) = refused(&machine, &file);
    assert!(is == "no device" && instead.contains("drive:"), "{is}: {instead}");
    let gone = machine.machine().generic(&folder.path().join("gone"));
    assert!(matches!(gone, Err(Error::Path { .. })));
}
