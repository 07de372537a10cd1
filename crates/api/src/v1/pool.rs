//! Pools: drives put together, how they are doing, and how they come and go.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Drive, Scrub, Spare};
use crate::value::{DrivePath, LogPlace, Name, Size};

/// How a pool bears the loss of drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Raid {
    /// Not at all.
    Single,
    /// Two copies: one drive may be lost.
    Mirror,
    /// One parity unit a stripe: one drive may be lost.
    Raid5,
    /// Two parity units a stripe: two drives may be lost.
    Raid6,
}

impl Raid {
    /// The name, as it is read and written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Mirror => "mirror",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
        }
    }
}

/// How a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolHealth {
    /// Everything it is made of works.
    Online,
    /// Drives or a log device are lost; the redundancy bears it, and the loss of another.
    Degraded,
    /// So much is lost that the loss of another loses contents, or stops hosts.
    NoRedundancy,
    /// More is lost than the redundancy bears: hosts wait. It is opened again when enough of its drives answer.
    BeyondRedundancy,
    /// It is being opened.
    Opening,
    /// It is not open; `problem` says why. It is opened when what it lacks is there.
    Unavailable,
}

impl PoolHealth {
    /// The name, as it is read and written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Degraded => "degraded",
            Self::NoRedundancy => "no-redundancy",
            Self::BeyondRedundancy => "beyond-redundancy",
            Self::Opening => "opening",
            Self::Unavailable => "unavailable",
        }
    }
}

/// How much room an open pool has left for contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolSpace {
    /// Nothing to worry about.
    Enough,
    /// More is in use than the node's configuration calls low: time to make room.
    Low,
    /// More is in use than it calls critical; hosts are warned.
    Critical,
    /// Writes fail with Capacity Exceeded; reads and deallocation go on.
    Full,
}

impl PoolSpace {
    /// The name, as it is read and written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enough => "enough",
            Self::Low => "low",
            Self::Critical => "critical",
            Self::Full => "full",
        }
    }
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Its name.
    pub name: Name,
    /// What identifies it for ever.
    pub id: Uuid,
    /// How it is.
    pub health: PoolHealth,
    /// Why it is not online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Paths of its drives, as it is opened from.
    pub paths: Vec<String>,
    /// Where its commit log lies.
    pub log_places: Vec<LogPlace>,
    /// Its scrub: the one that is under way, or the last one.
    #[serde(default)]
    pub scrub: Scrub,
    /// Drives that stand by to take the place of one of its drives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<Spare>,
    /// It had spares, and all of them have places by now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spares_used_up: bool,
    /// What it says of itself while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PoolStatus>,
}

/// What an open pool says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Units of a stripe that hold data, and units that may be lost.
    pub data: u8,
    /// See `data`.
    pub parity: u8,
    /// Drives that may be lost, beside those that are, without loss of contents.
    #[serde(default)]
    pub redundancy_left: u8,
    /// Shards it is cut into.
    pub shards: u16,
    /// Bytes of contents that it can hold.
    pub capacity: u64,
    /// What the bytes of its drives are for.
    #[serde(default)]
    pub breakdown: CapacityBreakdown,
    /// Bytes of contents that it holds, those nobody sees any more included where that is not
    /// known yet.
    pub used: u64,
    /// Bytes of that which clones see of volumes that were deleted or rolled back, and that no volume or snapshot has: with
    /// what volumes use and what is held by their snapshots it is all that anybody sees. Left out until it is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by_clones: Option<u64>,
    /// Bytes that the hosts of volumes with a reservation can have of their own, together.
    #[serde(default)]
    pub reserved: u64,
    /// What of that is kept for what they have yet to write: no other volume gets it.
    #[serde(default)]
    pub reserved_kept: u64,
    /// What of that the pool does not have, since it lost drives.
    #[serde(default)]
    pub reserved_missing: u64,
    /// How much room that leaves.
    pub space: PoolSpace,
    /// Bytes of its volumes together, which take space only where they were written: above the
    /// capacity, it can be filled before they are.
    pub provisioned: u64,
    /// Bytes of metadata.
    pub metadata: u64,
    /// Its segments.
    pub segments: SegmentCounts,
    /// Its commit log.
    pub log: PoolLog,
    /// Its drives, by index.
    pub drives: Vec<Drive>,
    /// Number of its volumes.
    pub volumes: usize,
    /// Bytes that hosts wrote since it was opened.
    pub written: u64,
    /// Bytes that its drives wrote since it was opened.
    pub drive_written: u64,
    /// The second over the first; `None` while nothing was written.
    pub write_amplification: Option<f64>,
    /// Bytes moved by reclaim since it was opened.
    pub moved: u64,
    /// Segments emptied by reclaim since it was opened.
    pub segments_reclaimed: u64,
    /// Blocks that reclaim found damaged beyond what the redundancy gives back since it was opened.
    /// Reads of them fail until they are written.
    #[serde(default)]
    pub lost_blocks: u64,
    /// Direct write windows that hosts have of its volumes.
    #[serde(default)]
    pub windows: u64,
    /// What of the log's memory they may have, and have; where the log can have none, or the node grants none, that is not
    /// told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_log: Option<WindowLog>,
    /// How drives are being emptied onto the others, if any are, or were since it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<Rebuild>,
    /// What is to be moved onto drives that came, if something is, so that all their space can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// Drives came to a pool, or came back, when the others were filled: what is there is being spread over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spread {
    /// Bytes of contents that the pool can hold once that is done; until then its capacity grows.
    pub capacity: u64,
    /// Bytes of contents that are written anew until then, at least: it gets less, and then there is none.
    pub bytes: u64,
}

/// What the bytes of a pool's drives are for while none is lost: `raw` is the sum of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapacityBreakdown {
    /// Bytes of all drives.
    pub raw: u64,
    /// Bytes of contents that it can hold.
    pub usable: u64,
    /// Bytes of parity, or of further copies.
    pub parity: u64,
    /// Bytes of the commit log on all drives, or set aside for it.
    pub log: u64,
    /// Bytes of labels, catalogs and headers.
    pub labels: u64,
    /// Bytes kept free for metadata, and for reclaim to work with.
    pub reserve: u64,
    /// Bytes that no stripe can have: of drives larger than the others, and ends of drives.
    pub unused: u64,
}

/// A pool as it would be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolPlan {
    /// Its name.
    pub name: Name,
    /// Units of a stripe that hold data, and units that may be lost.
    pub data: u8,
    /// See `data`.
    pub parity: u8,
    /// Shards it would be cut into.
    pub shards: u16,
    /// Bytes of its commit log.
    pub log_size: u64,
    /// What the bytes of its drives would be for.
    pub breakdown: CapacityBreakdown,
    /// Its drives, by index.
    pub drives: Vec<PlannedDrive>,
}

/// A drive of a pool as it would be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedDrive {
    /// Where it is.
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// Bytes that the pool would use.
    pub used: u64,
}

/// How drives that are gone, or are to go, are being emptied: what they had is moved onto the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rebuild {
    /// Their indices.
    pub drives: Vec<u16>,
    /// It goes on.
    pub running: bool,
    /// It waits to be resumed. Nothing of the pool is moved by itself meanwhile.
    #[serde(default)]
    pub paused: bool,
    /// Bytes to move, as far as that is known.
    pub bytes: u64,
    /// Those that were.
    pub done: u64,
    /// Bytes moved in a second at most; 0 for as many as hosts leave time for.
    pub limit: u64,
    /// There is no room for more on the others, as yet.
    pub waits: bool,
    /// Why it was given up, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// How drives of a pool are made whole that were away, or are new in their places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rejoin {
    /// Their indices; none when none is.
    pub drives: Vec<u16>,
    /// They wait to be resumed: what is new goes to them, what they missed does not.
    pub paused: bool,
    /// Bytes of units in a second at most, for those to come too; 0 for as many as hosts leave time for.
    pub limit: u64,
    /// Bytes of units to make anew, as far as that is known.
    pub bytes: u64,
    /// Those that were.
    pub done: u64,
}

/// How fast work goes that nobody waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Bytes in a second at most; as many as hosts leave time for when left out, or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Size>,
}

impl RateLimit {
    /// Bytes in a second; 0 for as many as there is time for.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.limit.map_or(0, Size::bytes)
    }
}

/// Segments by what they are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SegmentCounts {
    /// Free.
    pub free: u64,
    /// Set aside for what is written next.
    pub reserved: u64,
    /// Being filled.
    pub open: u64,
    /// Full.
    pub sealed: u64,
}

/// A pool's commit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolLog {
    /// `pmem`, `bbu`, `drives`, or `remote`: namespaces of other targets, beside memory where there is any.
    pub kind: String,
    /// What an operator must know of how safe it is.
    pub protection: String,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes that hold what is not on the drives yet.
    pub used: u64,
    /// Devices, each with all of it.
    pub devices: usize,
    /// Devices of these that are missing, or failed.
    pub failed_devices: usize,
    /// The pool, closed in order, was opened without it: a new one was made, and nothing is lost.
    #[serde(default)]
    pub made_anew: bool,
    /// The pool was opened without it: what was acknowledged and not on the drives yet is lost.
    #[serde(default)]
    pub lost: bool,
    /// What becomes of writes while it has fewer devices than it is to have.
    #[serde(default)]
    pub policy: LogPolicy,
    /// Files, and namespaces of other targets, that are to have it and have not all of it, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<String>,
}

/// What is set aside beside a pool's commit log for direct write windows, in each of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowLog {
    /// Bytes that the rings of all windows may have together.
    pub size: u64,
    /// Bytes that the rings of the windows there are have, those included that are being granted.
    pub used: u64,
}

/// What becomes of writes while a commit log has fewer devices than it is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogPolicy {
    /// They are acknowledged as soon as those have them that it has.
    #[default]
    Continue,
    /// They wait until as many have them as are to.
    Wait,
}

impl LogPolicy {
    /// The name, as it is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Wait => "wait",
        }
    }
}

/// What is to change of the commit log of an open pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogChange {
    /// What becomes of writes while it has fewer devices than it is to have.
    pub policy: LogPolicy,
}

/// A drive to put in the place of another one. What it holds is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveReplacement {
    /// The new drive.
    pub drive: DrivePath,
    /// Take it although it is not blank.
    #[serde(default)]
    pub force: bool,
}

/// Drives to add to a pool. What they hold is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDrives {
    /// The new drives.
    pub drives: Vec<DrivePath>,
    /// Take them although they are not blank.
    #[serde(default)]
    pub force: bool,
}

/// A pool to make. What its drives hold is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPool {
    /// Its name.
    pub name: Name,
    /// Its drives.
    pub drives: Vec<DrivePath>,
    /// How it bears the loss of drives; when left out, as well as its drives can: RAID 6 with four
    /// or more, RAID 5 with three, a mirror with two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<Raid>,
    /// Where its commit log lies: one place, or two that mirror each other, of a kind, or memory and a
    /// namespace of another target; zones on its drives when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogPlace>,
    /// Size of its commit log; one that suits the drives when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_size: Option<Size>,
    /// Shards it is cut into for good, 1 to 64: each is served by one reactor, so that a pool has
    /// the power of as many cores at most. One for each reactor of the node when left out, or fewer
    /// where the pool is too small for so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u16>,
    /// Take what is not blank, such as a drive of another pool or with a file system, or another pool's
    /// log; what it holds is lost.
    #[serde(default)]
    pub force: bool,
    /// Say what would be made, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// A pool to open that this node does not know, from its drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolImport {
    /// Its name, where drives of several pools are found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Its drives; those that are found where the system names drives, and in the node's folders, when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<DrivePath>,
    /// Where its commit log lies, as for a new pool; where the node knows it to be when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogPlace>,
    /// Open it with as many drives missing as the redundancy bears; these count as failed then.
    #[serde(default)]
    pub degraded: bool,
    /// Open it without records of its commit log that were acknowledged and are damaged so that
    /// nothing tells which blocks they are of: those blocks are as they were before. Where nothing is
    /// left of the log, with what the drives have, and a new log.
    #[serde(default)]
    pub accept_loss: bool,
    /// Open it though it was not exported: no other node may have it open.
    #[serde(default)]
    pub force: bool,
}

/// Where the commit log of an open pool is to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogMove {
    /// The places, as for a new pool: one, or two that mirror each other. Files that are not there are made.
    pub to: Vec<LogPlace>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A commit log that was moved, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogMoved {
    /// Its pool.
    pub pool: Name,
    /// Where it was.
    pub from: Vec<LogPlace>,
    /// Where it is, or would be.
    pub to: Vec<LogPlace>,
    /// Bytes that it takes at each place.
    pub size: u64,
    /// Whether it was moved.
    pub moved: bool,
}

/// A pool as its drives' labels describe it: what an import would open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundPool {
    /// Its name.
    pub name: String,
    /// What identifies it for ever.
    pub id: Uuid,
    /// Whether it was exported; otherwise it is imported with `force` only, unless this node had it last.
    pub exported: bool,
    /// Whether this node knows it.
    pub known: bool,
    /// How many of its drives may be missing.
    pub bears: u8,
    /// What keeps its commit log: `pmem`, `bbu`, `drives` or `remote`.
    pub log: String,
    /// Its drives, by index.
    pub drives: Vec<FoundDrive>,
    /// What an import as it was asked for is refused for, by what is known before the pool's log is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
}

/// A drive of a pool that was found, or misses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundDrive {
    /// Its place in the pool, from 0.
    pub index: usize,
    /// What identifies it for ever.
    pub id: Uuid,
    /// Where it is; `None` for one that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The pool goes without it: what it holds is old.
    pub failed: bool,
}
