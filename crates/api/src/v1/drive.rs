//! Drives of pools: the states they go through, why, and what is being done about it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::DriveHardware;
use crate::value::Name;

/// The states of a drive, in one place: what each means, and what decides it, is in `docs/drives.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriveState {
    /// Of no pool, and nothing is on it: it may be given to one.
    Blank,
    /// It is in no place: it stands by to take that of a drive that fails.
    Spare,
    /// It works, and has all it is to have.
    Online,
    /// It works, and takes longer than the others: reads go around it where that is what is slow.
    Slow,
    /// It was not there when the pool was opened.
    Missing,
    /// It is out of use: it failed, or an operator took it out. What it holds is not used any more.
    Failed,
    /// It was away, or is new in its place, and is made whole: what is new is on it, and nobody counts on it yet.
    Rejoining,
    /// It failed, or is missing, and what it had is being made anew on the others.
    Rebuilding,
    /// It works, and what it has is being moved onto the others.
    Evacuating,
    /// Nothing of the pool lies in its place: that there is no drive is no loss.
    Vacant,
}

impl DriveState {
    /// All of them, in the order of `docs/drives.md`.
    pub const ALL: [Self; 10] = [
        Self::Blank,
        Self::Spare,
        Self::Online,
        Self::Slow,
        Self::Missing,
        Self::Failed,
        Self::Rejoining,
        Self::Rebuilding,
        Self::Evacuating,
        Self::Vacant,
    ];

    /// The name, as it is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Spare => "spare",
            Self::Online => "online",
            Self::Slow => "slow",
            Self::Missing => "missing",
            Self::Failed => "failed",
            Self::Rejoining => "rejoining",
            Self::Rebuilding => "rebuilding",
            Self::Evacuating => "evacuating",
            Self::Vacant => "vacant",
        }
    }

    /// Whether a drive of a pool is used: one that is slow, or on its way out, works all the same.
    #[must_use]
    pub const fn works(self) -> bool {
        matches!(self, Self::Online | Self::Slow | Self::Evacuating)
    }

    /// Whether a pool does without a drive that it lacks: what it had is made of the others'.
    #[must_use]
    pub const fn is_lost(self) -> bool {
        matches!(self, Self::Missing | Self::Failed | Self::Rebuilding)
    }
}

/// Why a drive that is out is not taken back before an operator asks for it (`flashloom drive rejoin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StaysOut {
    /// An operator took it out.
    Operator,
    /// It had more faults within an hour than are borne.
    Faults,
    /// It came back, and went, too often within an hour.
    Returns,
}

/// How a drive is doing since it was taken back last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveRejoin {
    /// Its allocation units that are made anew from the others, as far as that is known.
    pub units: u64,
    /// Those that were.
    pub done: u64,
    /// Bytes of an allocation unit.
    #[serde(default)]
    pub unit_bytes: u64,
    /// Blocks that turned out to be damaged beyond what the redundancy gives back.
    pub lost_blocks: u64,
    /// Why it was given up, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A drive of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drive {
    /// Its pool.
    pub pool: Name,
    /// Its place in the pool, from 0.
    pub index: usize,
    /// What identifies it for ever.
    pub id: Uuid,
    /// Where it is; `None` for one that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How it is, where nothing but whether it works matters: as `state`, but `online` for one that is slow or
    /// evacuating, and `failed` or `missing` for one whose contents are being rebuilt.
    pub health: DriveState,
    /// How it is.
    pub state: DriveState,
    /// Since when: milliseconds since 1970-01-01 00:00:00 UTC. `None` where the node does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Why it is not online, or was not before it came back to be made whole, as far as the node knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What is being done about it, or has to be, for people; `None` for one that is online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// It is not taken back before an operator asks for it: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_out: Option<StaysOut>,
    /// How often it was taken back by itself within the last hour, since an operator asked for it last.
    #[serde(default)]
    pub returns: u32,
    /// An operator took it out: `stays_out` is `operator`.
    #[serde(default)]
    pub retired: bool,
    /// What it has, or had, is being moved onto the others.
    #[serde(default)]
    pub leaving: bool,
    /// It is slower than the others: reads go around it, where that is what is slow.
    #[serde(default)]
    pub slow: bool,
    /// Of one that was away since the pool was opened: how far it is being made whole, or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin: Option<DriveRejoin>,
    /// Bytes that it gives to the pool.
    pub size: u64,
    /// What it did since the pool was opened.
    pub counters: DriveCounters,
    /// What the machine says of the hardware behind it.
    #[serde(default)]
    pub hardware: DriveHardware,
}

/// What a drive did since its pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveCounters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks read whose checksum was wrong.
    pub corrupt: u64,
    /// Blocks of this drive that were reconstructed from others.
    pub reconstructed: u64,
    /// Blocks written anew after that.
    pub repaired: u64,
    /// Operations that had no answer in time.
    #[serde(default)]
    pub timeouts: u64,
    /// Reads that took so long that other drives were asked.
    #[serde(default)]
    pub slow: u64,
}
