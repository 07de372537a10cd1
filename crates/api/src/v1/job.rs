//! Jobs: work that takes long, with an identity.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{LogMoved, Problem};

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Makes a pool.
    PoolCreate,
    /// Opens a pool from its drives.
    PoolImport,
    /// Closes a pool to be moved.
    PoolExport,
    /// Ends a pool and clears its drives.
    PoolDelete,
    /// Moves a pool's commit log.
    LogMove,
    /// Adds drives to a pool.
    DriveAdd,
    /// Moves what a drive has onto the others, and takes it out of use then.
    DriveEvacuate,
    /// Takes a drive out of its pool for good: emptied first if it works, and made blank.
    DriveRemove,
    /// Moves what drives had that are gone onto the others.
    PoolRebuild,
    /// Checks what a pool's drives hold, and puts right what is damaged.
    PoolScrub,
    /// Takes a pool's drive out of use.
    DriveFail,
    /// Takes a drive back that is out, and makes it whole.
    DriveRejoin,
    /// Puts another drive in the place of one, and makes it whole.
    DriveReplace,
    /// Makes a volume.
    VolumeCreate,
    /// Changes a volume's size or name.
    VolumeChange,
    /// Gives a volume what it shares with what it was made of as its own.
    VolumeDetach,
    /// Deletes a volume.
    VolumeDelete,
    /// Makes a group of clones of the volumes of another one.
    GroupClone,
}

impl JobKind {
    /// Whether the node goes on with it by itself, under another job, where the daemon ended in the midst of it.
    #[must_use]
    pub const fn goes_on(self) -> bool {
        match self {
            Self::PoolRebuild
            | Self::PoolScrub
            | Self::DriveEvacuate
            | Self::DriveRemove
            | Self::DriveRejoin
            | Self::DriveReplace
            | Self::VolumeDetach => true,
            Self::PoolCreate
            | Self::PoolImport
            | Self::PoolExport
            | Self::PoolDelete
            | Self::LogMove
            | Self::DriveAdd
            | Self::DriveFail
            | Self::VolumeCreate
            | Self::VolumeChange
            | Self::VolumeDelete
            | Self::GroupClone => false,
        }
    }

    /// The name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PoolCreate => "pool create",
            Self::PoolImport => "pool import",
            Self::PoolExport => "pool export",
            Self::PoolDelete => "pool delete",
            Self::LogMove => "pool log move",
            Self::DriveAdd => "drive add",
            Self::DriveEvacuate => "drive evacuate",
            Self::DriveRemove => "drive remove",
            Self::PoolRebuild => "pool rebuild",
            Self::PoolScrub => "pool scrub",
            Self::DriveFail => "drive fail",
            Self::DriveRejoin => "drive rejoin",
            Self::DriveReplace => "drive replace",
            Self::VolumeCreate => "volume create",
            Self::VolumeChange => "volume change",
            Self::VolumeDetach => "volume detach",
            Self::VolumeDelete => "volume delete",
            Self::GroupClone => "group clone",
        }
    }
}

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It waits for others with the same pool.
    Queued,
    /// It is under way.
    Running,
    /// It did what was asked for.
    Done,
    /// It failed; `error` says why.
    Failed,
    /// It was cancelled before it changed anything.
    Cancelled,
    /// It was paused: what it did stays, and another job goes on once it is resumed.
    Paused,
    /// The daemon ended in the midst of it; `error` says what to look at, and `continued_by` what goes on with it.
    Interrupted,
}

impl JobState {
    /// The name, as it is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Paused => "paused",
            Self::Interrupted => "interrupted",
        }
    }

    /// Whether nothing more comes of it.
    #[must_use]
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// How much of a job is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// What is going on, for people.
    pub step: String,
    /// Steps that are done.
    pub done: u32,
    /// Steps in all.
    pub steps: u32,
    /// What the step has done of its bytes, if it moves any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<JobBytes>,
}

/// How far a step has come that moves bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobBytes {
    /// Those that are done.
    pub done: u64,
    /// All of them, as far as that is known.
    pub all: u64,
    /// How many are done in a second, on average since the step began.
    pub per_second: u64,
    /// Seconds that the rest takes at that rate; `None` while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<u64>,
}

/// Work that takes long. The latest are kept, over restarts too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Grows by one with every job of the node.
    pub id: u64,
    /// What it does.
    pub kind: JobKind,
    /// To what: a pool's name, a volume's or a group's, or a drive's place.
    pub target: String,
    /// How far it has come.
    pub state: JobState,
    /// Who asked for it.
    pub by: String,
    /// The request's `Idempotency-Key`, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it was asked for: milliseconds since 1970-01-01 00:00:00 UTC.
    pub created_ms: u64,
    /// When it ended, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// How much of it is done.
    #[serde(default)]
    pub progress: JobProgress,
    /// It was asked to stop, and will with its next step.
    #[serde(default)]
    pub cancelling: bool,
    /// Why it is not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// The job that has gone on with it since the daemon started again, of one that was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_by: Option<u64>,
    /// What came of it, as a path of this API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What came of a move of a commit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_moved: Option<LogMoved>,
}

impl Job {
    /// What it is about, for people.
    #[must_use]
    pub fn title(&self) -> String {
        format!("job {} ({} {})", self.id, self.kind.name(), self.target)
    }
}
