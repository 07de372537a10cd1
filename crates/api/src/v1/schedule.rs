//! Schedules: snapshots that are taken by themselves, and deleted once there are enough.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::value::{GroupPath, NameTemplate, Period, VolumePath};

/// A schedule of snapshots of a volume, or of several that are taken at one instant: named ones, or those of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// The group that it is of, as that is called now; left out where its volumes were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupPath>,
    /// Its volumes, as they are called now; of a group's, those that the group has now.
    pub volumes: Vec<VolumePath>,
    /// When, and how many are kept; the shortest period first.
    pub rules: Vec<ScheduleRule>,
    /// What the snapshots are called.
    pub name_template: NameTemplate,
    /// Why it cannot run now: its pool is not open, a volume of it is gone, or its group has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A rule of a schedule, and how it fares. Times are milliseconds since 1970-01-01 00:00:00 UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleRule {
    /// It runs at the multiples of this since 1970-01-01 00:00:00 UTC.
    pub every: Period,
    /// How many of its runs have their snapshots kept.
    pub keep: u32,
    /// Runs of which there were snapshots after the last one.
    pub kept: u32,
    /// When it took snapshots last; left out before it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<u64>,
    /// When it is to run next; in the past while it waits to make up for a run.
    pub next_ms: u64,
    /// Runs that failed, since the schedule was made.
    pub failed: u64,
    /// Why the last run failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A schedule to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    /// Volumes of one pool that have none: their snapshots are taken at one instant. Or one group, which has none: each run
    /// takes snapshots of the volumes that it has by then.
    pub volumes: Vec<VolumePath>,
    /// When, and how many are kept; each with a period of its own.
    pub rules: Vec<NewScheduleRule>,
    /// What the snapshots are called; `{every}-{time}` if left out. `{every}` is needed where there are several rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_template: Option<NameTemplate>,
}

/// What is to be changed of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleChange {
    /// In place of all its rules. One with a period that is there already goes on with what it made; what others made stays,
    /// and is not deleted by any rule any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<NewScheduleRule>>,
    /// What the snapshots are called from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_template: Option<NameTemplate>,
}

/// A rule of a schedule to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewScheduleRule {
    /// It runs at the multiples of this since 1970-01-01 00:00:00 UTC.
    pub every: Period,
    /// How many of its runs have their snapshots kept; 1 at least.
    pub keep: u32,
}
