//! From a block device to the one disk it lies on.

use crate::error::{Error, Result};
use crate::limits::DEVICES;
use crate::sysfs;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of the disk that the block device `major`:`minor` lies on; `None` when that is no hardware, or
/// several disks.
pub(crate) fn disk(sys: &Path, major: u32, minor: u32) -> Result<Option<PathBuf>> {
    let link = sys.join(format!("dev/block/{major}:{minor}"));
    let device = link.canonicalize().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::Unknown { major, minor, sys: sys.to_owned() },
        _ => Error::Io { action: "follow", path: link, source },
    })?;
    Ok(below(device))
}

/// The one disk below `device`. Several disks with the same identifier are paths to one.
fn below(device: PathBuf) -> Option<PathBuf> {
    let mut ahead = vec![device];
    let mut seen = BTreeSet::new();
    let mut found: Option<PathBuf> = None;
    while let Some(device) = ahead.pop() {
        let disk = whole(device)?;
        if !seen.insert(disk.clone()) {
            continue;
        }
        if seen.len() > DEVICES {
            return None;
        }
        if disk.join("device").exists() {
            match &found {
                Some(other) if !is_same(other, &disk) => return None,
                // Of several paths the first by name, whatever the order they are listed in.
                Some(other) if *other < disk => {}
                _ => found = Some(disk),
            }
            continue;
        }
        let slaves = sysfs::entries(&disk.join("slaves"));
        // Memory, or a file: part of what is asked for is no hardware.
        if slaves.is_empty() {
            return None;
        }
        for slave in slaves {
            ahead.push(sysfs::place(&slave)?);
        }
    }
    found
}

/// The disk of a partition; a disk is its own.
fn whole(device: PathBuf) -> Option<PathBuf> {
    if device.join("partition").exists() {
        device.parent().map(Path::to_owned)
    } else {
        Some(device)
    }
}

/// Whether two disks are two paths to one drive.
fn is_same(one: &Path, other: &Path) -> bool {
    let wwid = wwid(one);
    wwid.is_some() && wwid == self::wwid(other)
}

/// A disk's world wide identifier: NVMe has it at the disk, SCSI at the device.
pub(crate) fn wwid(disk: &Path) -> Option<String> {
    sysfs::text(&disk.join("wwid")).or_else(|| sysfs::text(&disk.join("device/wwid")))
}

/// What tells the block device `major`:`minor` from any other, whatever its name: its disk's world wide identifier, or what a
/// hypervisor or the kernel has in place of one; of a partition with its number. `None` for what has none, as loop devices,
/// which are files.
pub(crate) fn identity(sys: &Path, major: u32, minor: u32) -> Option<String> {
    let device = sysfs::place(&sys.join(format!("dev/block/{major}:{minor}")))?;
    let disk = whole(device.clone())?;
    // Of device mapper, md, virtio and memory cards.
    let others = ["dm/uuid", "md/uuid", "serial", "device/cid"];
    let of_others = || others.iter().find_map(|name| sysfs::text(&disk.join(name)));
    let own = wwid(&disk).or_else(of_others)?;
    match sysfs::text(&device.join("partition")) {
        Some(number) => Some(format!("{own}-part{number}")),
        None => Some(own),
    }
}
