//! Scrubs: everything that a pool's drives hold is checked, and put right.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a pool's scrub is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubState {
    /// None has begun since this node knows the pool.
    #[default]
    Never,
    /// One is under way, or goes on by itself once the pool is open.
    Running,
    /// One waits to be started again, and goes on then where it was.
    Paused,
    /// The last one was ended before it had checked everything.
    Stopped,
    /// The last one checked everything.
    Done,
}

impl ScrubState {
    /// The name, as it is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Done => "done",
        }
    }
}

/// A pool's scrub: the one that is under way, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// Where it is.
    pub state: ScrubState,
    /// When it began, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ms: Option<u64>,
    /// When it was ended, or had checked everything, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// When the next one begins by itself, in milliseconds since 1970, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<u64>,
    /// Bytes on drives to check, as far as that is known.
    pub bytes: u64,
    /// Those that were.
    pub done: u64,
    /// Bytes checked in a second at most; 0 for as many as hosts leave time for.
    pub limit: u64,
    /// Blocks that were not as they should be: data, parity or headers.
    pub damaged_blocks: u64,
    /// Those of them that were put right.
    pub repaired_blocks: u64,
    /// Blocks of data that nothing gives: what hosts have there cannot be read until it is written.
    pub lost_blocks: u64,
    /// Stripes that could not be checked: too many of their drives are out, or nothing gives their header.
    pub unchecked_stripes: u64,
}
