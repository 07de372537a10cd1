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
    if let Some(uuid) = sysfs::text(&disk.join("dm/uuid")) {
        return Some(mapped(disk, &uuid));
    }
    let weak = || {
        WEAK.iter()
            .find_map(|(kind, file)| Some(format!("{kind}{}", sysfs::text(&disk.join(file))?)))
    };
    let card = || sysfs::text(&disk.join("device/cid"));
    let own = wwid(&disk).or_else(weak).or_else(card)?;
    match sysfs::text(&device.join("partition")) {
        Some(number) => Some(format!("{own}-part{number}")),
        None => Some(own),
    }
}

/// What identifies a device only where nothing else does, which another stack, or another kernel, may say otherwise or not
/// at all: how it begins, and where it is. [`MULTIPATH`] is of them.
const WEAK: [(&str, &str); 2] = [("md:", "md/uuid"), ("serial:", "serial")];

/// How a map of multipath is known while it has no path, or one that does not say what it is.
const MULTIPATH: &str = "mpath-";

/// What identifies a device of device mapper, whatever it is called: of multipath the disk, which is the same by one of its
/// paths, and of encryption what is written in the header.
fn mapped(device: PathBuf, uuid: &str) -> String {
    let part = uuid.strip_prefix("part").and_then(|rest| rest.split_once('-'));
    let part = part.filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
    let of = part.map_or(uuid, |(_, of)| of);
    if of.starts_with(MULTIPATH)
        && let Some(wwid) = below(device).and_then(|disk| wwid(&disk))
    {
        return part.map_or_else(|| wwid.clone(), |(number, _)| format!("{wwid}-part{number}"));
    }
    let mut parts = uuid.splitn(4, '-');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("CRYPT"), Some(_), Some(id)) if id.len() == 32 => format!("CRYPT-{id}"),
        _ => uuid.to_owned(),
    }
}

/// The kind of what identifies a device weakly.
fn weak_kind(of: &str) -> Option<&'static str> {
    let without_part = of.strip_prefix("part").and_then(|rest| rest.split_once('-'));
    let mut kinds = WEAK.iter().map(|(kind, _)| *kind);
    match without_part.map_or(of, |(_, of)| of).starts_with(MULTIPATH) {
        true => Some(MULTIPATH),
        false => kinds.find(|kind| of.starts_with(kind)),
    }
}

/// Whether an [identity](crate::Machine::identity) is one that another stack, or another kernel, may not give.
#[must_use]
pub fn is_weak(of: &str) -> bool {
    weak_kind(of).is_some()
}

/// Whether two [identities](crate::Machine::identity) are of two devices. Weak ones tell only devices of their own kind apart.
#[must_use]
pub fn is_another(found: &str, known: &str) -> bool {
    found != known && weak_kind(found) == weak_kind(known)
}
