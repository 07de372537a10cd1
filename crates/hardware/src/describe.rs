//! Describes a disk by what sysfs has of it.

use crate::drive::Drive;
use crate::transport::Transport;
use crate::{light, nvme_drive, resolve, scsi, sysfs};
use std::path::{Path, PathBuf};

/// Reads the drive of a disk's folder.
pub(crate) fn read(sys: &Path, disk: PathBuf) -> Drive {
    let device = sysfs::place(&disk.join("device")).unwrap_or_default();
    let mut drive = Drive {
        // A name with a slash has an exclamation mark in its place.
        kernel_name: sysfs::name(&disk).replace('!', "/"),
        transport: Transport::Other("unknown".into()),
        model: sysfs::text(&device.join("model")),
        serial: sysfs::text(&device.join("serial")),
        firmware: None,
        wwid: resolve::wwid(&disk),
        rotational: sysfs::number(&disk.join("queue/rotational")) == Some(1),
        address: sysfs::clean(sysfs::name(&device).as_bytes()),
        slot: None,
        disk,
        is_nvme: false,
        controllers: Vec::new(),
    };
    match sysfs::subsystem(&device).as_deref() {
        Some("nvme" | "nvme-subsystem") => nvme_drive::describe(&mut drive, &device),
        Some("scsi") => scsi::describe(&mut drive, &device),
        Some("virtio") => {
            drive.transport = Transport::Virtio;
            drive.serial = sysfs::text(&drive.disk.join("serial"));
        }
        Some("mmc") => {
            drive.transport = Transport::Mmc;
            drive.model = sysfs::text(&device.join("name"));
            drive.firmware = sysfs::text(&device.join("fwrev"));
            drive.wwid = sysfs::text(&device.join("cid"));
        }
        Some(other) => drive.transport = Transport::Other(other.to_owned()),
        None => {}
    }
    drive.slot = light::slot(sys, &drive);
    drive
}
