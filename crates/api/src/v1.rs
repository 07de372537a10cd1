//! Version 1 of the management API, served under `/v1`.

mod configuration;
mod consent;
mod drive;
mod group;
mod hardware;
mod job;
mod metrics;
mod node;
mod pool;
mod problem;
mod schedule;
mod scrub;
mod snapshot;
mod spare;
mod subsystem;
mod volume;

pub use configuration::KeptConfiguration;
pub use consent::{Changed, Consent, DriveRemoval, Losses};
pub use drive::{Drive, DriveCounters, DriveRejoin, DriveState, StaysOut};
pub use group::{Group, GroupChange, NewGroup, NewGroupClone, NewGroupSnapshot};
pub use hardware::{CriticalWarning, DriveHardware, DriveSmart, HardwareState};
pub use job::{Job, JobBytes, JobKind, JobProgress, JobState};
pub use metrics::{
    Bucket, BudgetMetrics, Counters, HostMetrics, Latency, Metrics, NamespaceMetrics, Operation,
    ReactorMetrics, RefusedConnects,
};
pub use node::{
    Event, Finding, Health, HealthReport, Listener, ListenerChange, NewListener, NodeHealth,
    PollPolicy, Reactor, Referral, Severity, Status,
};
pub use pool::{
    CapacityBreakdown, DriveReplacement, FoundDrive, FoundPool, LogChange, LogMove, LogMoved,
    LogPolicy, NewDrives, NewPool, PlannedDrive, Pool, PoolHealth, PoolImport, PoolLog, PoolPlan,
    PoolSpace, PoolStatus, Raid, RateLimit, Rebuild, Rejoin, SegmentCounts, Spread, WindowLog,
};
pub use problem::{Kind, Problem};
pub use schedule::{NewSchedule, NewScheduleRule, Schedule, ScheduleChange, ScheduleRule};
pub use scrub::{Scrub, ScrubState};
pub use snapshot::{
    ChangedExtent, NewRollback, NewSnapshots, RolledBack, Snapshot, SnapshotChanges,
};
pub use spare::Spare;
pub use subsystem::{
    Controller, Host, Namespace, NamespaceChange, NewHost, NewNamespace, NewSubsystem, Subsystem,
    SubsystemChange,
};
pub use volume::{Mapping, NewMapping, NewVolume, Origin, Volume, VolumeChange, VolumeState};
