//! Names of pools, volumes, groups and snapshots, and those with what they belong to: `fast/db`, `fast/db@monday`.

use std::fmt;
use std::str::FromStr;

use super::Refused;
use crate::limits::NAME_BYTES;

/// A pool's, a volume's, a group's or a snapshot's name: letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

const RIGHT: &str = "a name has 1 to 64 letters, digits, '-', '_' and '.', and begins with a letter \
                     or digit, such as fast or db-2";

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
        let begins = text.starts_with(|char: char| char.is_ascii_alphanumeric());
        if begins && text.len() <= NAME_BYTES && text.chars().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(Refused::new(format!("{text:?} is not a name"), RIGHT))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

super::text_value!(
    Name,
    "fast",
    "A pool's, volume's, group's or snapshot's name: 1 to 64 letters, digits, - _ and ."
);

/// A volume and the pool that it is on, written `POOL/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumePath {
    /// The pool.
    pub pool: Name,
    /// The volume in that pool.
    pub volume: Name,
}

impl FromStr for VolumePath {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let Some((pool, volume)) = text.split_once('/') else {
            return Err(Refused::new(
                format!("{text:?} names no volume"),
                "write POOL/NAME, such as fast/db",
            ));
        };
        Ok(Self { pool: pool.parse()?, volume: volume.parse()? })
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{}/{}", self.pool, self.volume))
    }
}

super::text_value!(VolumePath, "fast/db", "A volume with its pool: POOL/NAME.");

/// A snapshot and the volume that it is of, written `POOL/VOLUME@NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotPath {
    /// The volume.
    pub volume: VolumePath,
    /// The snapshot among those of that volume.
    pub snapshot: Name,
}

impl FromStr for SnapshotPath {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let Some((volume, snapshot)) = text.split_once('@') else {
            return Err(Refused::new(
                format!("{text:?} names no snapshot"),
                "write POOL/VOLUME@NAME, such as fast/db@monday",
            ));
        };
        Ok(Self { volume: volume.parse()?, snapshot: snapshot.parse()? })
    }
}

impl fmt::Display for SnapshotPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{}@{}", self.volume, self.snapshot))
    }
}

super::text_value!(
    SnapshotPath,
    "fast/db@monday",
    "A snapshot with its volume and its pool: POOL/VOLUME@NAME."
);

/// A group of volumes and the pool that it is in, written `POOL/GROUP`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupPath {
    /// The pool.
    pub pool: Name,
    /// The group in that pool.
    pub group: Name,
}

impl FromStr for GroupPath {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let Some((pool, group)) = text.split_once('/') else {
            return Err(Refused::new(
                format!("{text:?} names no group"),
                "write POOL/GROUP, such as fast/app",
            ));
        };
        Ok(Self { pool: pool.parse()?, group: group.parse()? })
    }
}

impl fmt::Display for GroupPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{}/{}", self.pool, self.group))
    }
}

super::text_value!(GroupPath, "fast/app", "A group of volumes with its pool: POOL/GROUP.");

/// What the snapshots of a group's volumes are called, with the group: written `POOL/GROUP@NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSnapshotPath {
    /// The group.
    pub group: GroupPath,
    /// The snapshot of each of its volumes.
    pub snapshot: Name,
}

impl FromStr for GroupSnapshotPath {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let Some((group, snapshot)) = text.split_once('@') else {
            return Err(Refused::new(
                format!("{text:?} names no snapshot"),
                "write POOL/GROUP@NAME, such as fast/app@monday",
            ));
        };
        Ok(Self { group: group.parse()?, snapshot: snapshot.parse()? })
    }
}

impl fmt::Display for GroupSnapshotPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{}@{}", self.group, self.snapshot))
    }
}

super::text_value!(
    GroupSnapshotPath,
    "fast/app@monday",
    "The snapshots of a group's volumes, with the group and its pool: POOL/GROUP@NAME."
);
