//! Whether a place holds anything: what a pool takes is lost.

use std::sync::Arc;

use api::v1::Kind;
use api::value::LogPlace;
use engine::{LogDevice, LogSpec, RemoteLog};
use media::Drive;
use media::drive::TRANSFER_MAX;
use stdx::num::usize64;

use super::made_of::{MadeOf, Member, labels};
use crate::{Error, Result};

/// Bytes looked at, at both ends: there is what tells of partitions, file systems, volume managers, encryption and pools.
const LOOKED_AT: u64 = 1 << 20;
const _: () = assert!(LOOKED_AT <= TRANSFER_MAX as u64);

/// What a spare of a pool begins with.
pub(super) const SPARE: &[u8; 8] = b"FLSHSPAR";

/// What a place holds that was of a log.
const LOG: &str = "the commit log of a pool";

/// What is known by a mark: where that is, the mark, and what it tells of.
const MARKS: [(usize, &[u8], &str); 15] = [
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
    (512, b"LABELONE", "a physical volume of LVM"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of an md array"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of an md array"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"bluestore block device", "a Ceph OSD"),
    (0, SPARE, "the mark of a spare of a pool"),
    (0, b"FLMLOGCB", LOG),
    (4096, b"FLMLOGCB", LOG),
    (512, b"EFI PART", "a partition table"),
    (4096, b"EFI PART", "a partition table"),
    (510, &[0x55, 0xaa], "a partition table or a boot sector"),
];

/// The ends of a place, in which one begins and how long it is.
pub(super) fn ends(capacity: u64) -> [(u64, usize); 2] {
    let len = capacity.min(LOOKED_AT);
    [(0, usize64(len)), (capacity - len, usize64(len))]
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// What begins with these bytes.
fn name(beginning: &[u8]) -> &'static str {
    let marked = |(at, mark, _): &&(usize, &[u8], &str)| {
        beginning.get(*at..).is_some_and(|from| from.starts_with(mark))
    };
    MARKS.iter().find(marked).map_or("data", |(_, _, what)| what)
}

/// Whether nothing is at either end of a drive.
pub(super) async fn has_blank_ends(drive: &Drive) -> std::result::Result<bool, media::Error> {
    let mut blank = true;
    for (offset, len) in ends(drive.capacity()) {
        blank &= is_blank(&drive.read(offset, len).await?);
    }
    Ok(blank)
}

async fn held_by(drive: &Drive) -> std::result::Result<Option<&'static str>, media::Error> {
    if has_blank_ends(drive).await? {
        return Ok(None);
    }
    let (offset, len) = ends(drive.capacity())[0];
    Ok(Some(name(&drive.read(offset, len).await?)))
}

async fn held_by_log(device: &LogDevice) -> engine::Result<Option<&'static str>> {
    let pmem = match device {
        LogDevice::Memory(pmem) => pmem,
        LogDevice::Remote(RemoteLog { drive, .. }) => {
            // How long it is, it says with its first answer.
            drop(drive.read(0, engine::address::BLOCK).await?);
            return Ok(held_by(drive).await?);
        }
    };
    let mut blank = true;
    for (offset, len) in ends(pmem.capacity()) {
        blank &= pmem.with(offset, len, is_blank)?;
    }
    let (offset, len) = ends(pmem.capacity())[0];
    Ok(if blank { None } else { Some(pmem.with(offset, len, name)?) })
}

/// Refuses to move a log to what holds anything but a log: whose that is, the pool finds out.
///
/// # Errors
/// `Conflict`, `Failed` when a device cannot be read.
pub fn check_new_places(home: &reactor::Handle, log: &LogSpec, places: &[LogPlace]) -> Result<()> {
    for (device, place) in log.devices().into_iter().zip(places) {
        let found = looked(home, place, async move || held_by_log(&device).await)?;
        if let Some(what) = found.filter(|what| *what != LOG) {
            return Err(Error::new(Kind::Conflict, format!("{place} holds {what}"))
                .help("name another place, or clear this one if nothing in it is needed"));
        }
    }
    Ok(())
}

/// What a look at a log's place gives.
fn looked(
    home: &reactor::Handle,
    place: &LogPlace,
    look: impl AsyncFnOnce() -> engine::Result<Option<&'static str>> + Send + 'static,
) -> Result<Option<&'static str>> {
    let looked = home.call(move || async move { look().await });
    let found =
        looked.wait().map_err(|_| Error::new(Kind::Stopping, "the reactors have stopped"))?;
    found.map_err(|error| Error::failed(format!("cannot read {place}"), error))
}

fn taken(place: &str, what: &str, help: &str) -> Error {
    let help = format!("{help}; --force takes it, and what it holds is lost");
    Error::new(Kind::Conflict, format!("{place} holds {what}")).help(help)
}

/// Refuses what holds anything.
///
/// # Errors
/// `Conflict`, `Failed` when a drive cannot be read.
pub fn check(home: &reactor::Handle, made_of: &MadeOf) -> Result<()> {
    for (label, member) in labels(home, &made_of.drives)?.iter().zip(&made_of.drives) {
        let Some(label) = label else { continue };
        let (path, of) = (member.path.display(), &label.name);
        return Err(Error::new(Kind::Conflict, format!("{path} is of pool {of}")).help(
            "`flashloom pool import` opens that pool; --force makes a new one, and what is on the drives is lost",
        ));
    }
    for Member { path, drive } in &made_of.drives {
        let drive = Arc::clone(drive);
        let look = home.call(move || async move { held_by(&drive).await });
        let found =
            look.wait().map_err(|_| Error::new(Kind::Stopping, "the reactors have stopped"))?;
        let failed = |error| Error::failed(format!("cannot read {}", path.display()), error);
        if let Some(what) = found.map_err(failed)? {
            let help = "name another drive, or clear this one if nothing on it is needed (`blkdiscard`, or a new file)";
            return Err(taken(&path.display().to_string(), what, help));
        }
    }
    for (device, place) in made_of.log.devices().into_iter().zip(&made_of.places) {
        if let Some(what) = looked(home, place, async move || held_by_log(&device).await)? {
            let help = match place {
                LogPlace::Remote(_) => {
                    "name another namespace, or clear this one if nothing in it is needed"
                }
                _ => "name another file, or remove this one if nothing in it is needed",
            };
            return Err(taken(&place.to_string(), what, help));
        }
    }
    Ok(())
}

/// Refuses to put the new log of an exported pool where something is that may be needed: what is no log, or one
/// with records in it, which have left it when its pool was exported.
///
/// # Errors
/// `Conflict`, `Failed` when a device cannot be read.
pub fn check_new_log(home: &reactor::Handle, made_of: &MadeOf) -> Result<()> {
    for (device, place) in made_of.log.devices().into_iter().zip(&made_of.places) {
        let look = async move || {
            let found = held_by_log(&device).await?;
            let left = engine::log::records_left(&device).await?;
            Ok(found.filter(|_| left != Some(0)))
        };
        if let Some(what) = looked(home, place, look)? {
            let what = format!("{place} holds {what}, and the pool gets a new log");
            return Err(Error::new(Kind::Conflict, what)
                .help("name another file, or remove this one if nothing in it is needed"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_place_begins_with_has_a_name() {
        let begins = |at: usize, mark: &[u8]| {
            let mut bytes = vec![0; usize64(LOOKED_AT)];
            bytes[at..at + mark.len()].copy_from_slice(mark);
            name(&bytes)
        };
        assert_eq!(begins(0x438, b"\x53\xef"), "an ext2, ext3 or ext4 file system");
        assert_eq!(begins(0x1_0040, b"_BHRfS_M"), "a Btrfs file system");
        assert_eq!(begins(512, b"EFI PART"), "a partition table");
        assert_eq!(begins(77, b"x"), "data");
        assert_eq!(name(b"short"), "data");
    }

    #[test]
    fn both_ends_are_looked_at() {
        assert_eq!(ends(8 << 20), [(0, 1 << 20), (7 << 20, 1 << 20)]);
        assert_eq!(ends(4096), [(0, 4096), (0, 4096)]);
    }
}
