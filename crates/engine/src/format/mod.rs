//! Our bytes on media: see `docs/format.md`.

pub mod catalog;
pub mod label;
pub mod manifest;
pub mod member;
pub mod root;
pub mod stripe;

use std::ops::RangeInclusive;

use crate::address::BLOCK;
use stdx::{crc32c, crc32c_append};

/// The version of everything this program writes, but for structures that changed since: those have a later one, and
/// are read as they were, too.
pub const VERSION: u16 = 3;

/// Where things are on a drive, in bytes from its beginning.
pub mod area {
    /// Two label slots of one block, written in turn.
    pub const LABEL: u64 = 0;
    /// Two root slots of one block for each shard, written in turn.
    pub const ROOTS: u64 = 64 << 10;
    /// The catalog's area, as large as the label says. Log zones follow, if any, and the allocation units.
    pub const CATALOG: u64 = 1 << 20;
}

const _: () = assert!(
    area::ROOTS + 2 * (BLOCK * crate::limits::SHARDS_MAX) as u64 <= area::CATALOG,
    "every shard has its root slots"
);

/// Where a block's own checksum lies: after the 8 bytes of its magic number.
const CRC_AT: usize = 8;

/// The checksum of a sealed piece: over all of it, its own four bytes taken as zero.
fn checksum(bytes: &[u8]) -> u32 {
    let crc = crc32c_append(crc32c(&bytes[..CRC_AT]), &[0; 4]);
    crc32c_append(crc, &bytes[CRC_AT + 4..])
}

/// Writes the magic number and the checksum into a piece whose rest is filled.
pub(crate) fn seal(bytes: &mut [u8], magic: [u8; 8]) {
    bytes[..CRC_AT].copy_from_slice(&magic);
    let crc = checksum(bytes);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Why a piece read from media is not what was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    #[error("nothing of this kind was ever written there")]
    Blank,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("format version {0} is not this program's")]
    Version(u16),
    #[error("field out of range: {0}")]
    Field(&'static str),
    #[error("it was cut short")]
    CutShort,
    #[error(
        "format version 3 as it was before it was settled: make the pool anew with this program"
    )]
    Unsettled,
}

/// What every sealed piece begins with: magic number, checksum, format version.
const HEAD: usize = CRC_AT + 4 + 2;

/// Whether the piece carries this magic number, its own checksum, and this program's version.
pub(crate) fn check(bytes: &[u8], magic: [u8; 8]) -> Result<(), Bad> {
    check_version(bytes, magic, VERSION..=VERSION).map(drop)
}

/// As [`check`], for one of these versions: tells which one.
pub(crate) fn check_version(
    bytes: &[u8],
    magic: [u8; 8],
    versions: RangeInclusive<u16>,
) -> Result<u16, Bad> {
    let Some((head, _)) = bytes.split_first_chunk::<HEAD>() else { return Err(Bad::Blank) };
    if head[..CRC_AT] != magic {
        return Err(Bad::Blank);
    }
    if u32::from_le_bytes([head[8], head[9], head[10], head[11]]) != checksum(bytes) {
        return Err(Bad::Checksum);
    }
    match u16::from_le_bytes([head[12], head[13]]) {
        known if versions.contains(&known) => Ok(known),
        other => Err(Bad::Version(other)),
    }
}

/// A name as it is on media, or why it is none: 1 to 64 bytes of UTF-8, letters, digits, `-`, `_`
/// and `.`, beginning with a letter or digit.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > crate::limits::NAME_MAX {
        return Err("a name has 1 to 64 characters");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(allowed) {
        return Err("a name begins with a letter or digit and has only those, '-', '_' and '.'");
    }
    Ok(())
}

fn name_to_bytes(name: &str) -> [u8; crate::limits::NAME_MAX] {
    let mut bytes = [0; crate::limits::NAME_MAX];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

fn name_from_bytes(bytes: &[u8]) -> Result<String, Bad> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let name = std::str::from_utf8(&bytes[..end]).map_err(|_| Bad::Field("name"))?;
    check_name(name).map_err(|_| Bad::Field("name"))?;
    Ok(name.to_owned())
}
