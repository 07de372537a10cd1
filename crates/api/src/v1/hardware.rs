//! What the machine says of the physical drive behind a pool's, a spare, or a namespace that is a drive by itself.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much is known of the hardware of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HardwareState {
    /// Nothing yet: it is being read, or is not there to be read.
    #[default]
    Unread,
    /// There is none: it is a file, a loop device, or lies on several drives.
    None,
    /// The machine described it.
    Known,
    /// It cannot be read; `why` says what is in the way.
    Unreadable,
    /// It was asked, and has not answered yet, which takes a drive that is well no time. What is known is older.
    Silent,
}

impl HardwareState {
    /// The name, as it is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::None => "none",
            Self::Known => "known",
            Self::Unreadable => "unreadable",
            Self::Silent => "silent",
        }
    }
}

/// What the machine says of a physical drive. What is left out it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveHardware {
    /// How much is known.
    pub state: HardwareState,
    /// Why no more is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When it was read last, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ms: Option<u64>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The revision of its firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// How it is attached: `pcie`, `sata`, `sas`, `virtio` and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// Where it sits, as the machine labels it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// Degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<i32>,
    /// From so many degrees on the drive calls it critical.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical_celsius: Option<i32>,
    /// The health that an NVMe drive reports of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smart: Option<DriveSmart>,
    /// What there is to look at, in words: critical warnings and what else was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The health that an NVMe drive reports of itself (SMART / Health log page). Counts are of its whole life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveSmart {
    /// What it warns of.
    pub critical: Vec<CriticalWarning>,
    /// Used of the life that its vendor expects, percent: may be over 100; 255 is 255 or more.
    pub wear_percent: u8,
    /// Spare capacity that is left, percent.
    pub spare_percent: u8,
    /// Below so much spare capacity it warns, percent.
    pub spare_threshold_percent: u8,
    /// Times that data could not be read, or was not what had been written.
    pub media_errors: u64,
    /// Entries that its error log has had.
    pub error_log_entries: u64,
    /// Times that power went without notice.
    pub unsafe_shutdowns: u64,
    /// Times that it was switched on.
    pub power_cycles: u64,
    /// Hours that it was on.
    pub power_on_hours: u64,
    /// Bytes that were read from it, if it says so, rounded up to 512,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_read: Option<u64>,
    /// Bytes that were written to it, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_written: Option<u64>,
}

/// What an NVMe drive warns of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CriticalWarning {
    /// Available spare is below its threshold.
    SpareBelowThreshold,
    /// A temperature is beyond its threshold.
    Temperature,
    /// Media or internal errors make it unreliable.
    DegradedReliability,
    /// All media is read-only, and not because a host asked for it.
    ReadOnly,
    /// The backup of its volatile memory failed.
    VolatileBackupFailed,
    /// Its Persistent Memory Region is read-only or unreliable.
    PersistentMemoryReadOnly,
}

impl CriticalWarning {
    /// Every one, in the order of the specification.
    pub const ALL: [Self; 6] = [
        Self::SpareBelowThreshold,
        Self::Temperature,
        Self::DegradedReliability,
        Self::ReadOnly,
        Self::VolatileBackupFailed,
        Self::PersistentMemoryReadOnly,
    ];

    /// The name, as it is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpareBelowThreshold => "spare-below-threshold",
            Self::Temperature => "temperature",
            Self::DegradedReliability => "degraded-reliability",
            Self::ReadOnly => "read-only",
            Self::VolatileBackupFailed => "volatile-backup-failed",
            Self::PersistentMemoryReadOnly => "persistent-memory-read-only",
        }
    }

    /// Whether a drive that says so is about to fail.
    #[must_use]
    pub const fn foretells_failure(self) -> bool {
        matches!(self, Self::SpareBelowThreshold | Self::DegradedReliability | Self::ReadOnly)
    }
}

impl fmt::Display for CriticalWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SpareBelowThreshold => "available spare is below its threshold",
            Self::Temperature => "a temperature is beyond its threshold",
            Self::DegradedReliability => "reliability is degraded",
            Self::ReadOnly => "the media is read-only",
            Self::VolatileBackupFailed => "the backup of volatile memory failed",
            Self::PersistentMemoryReadOnly => "persistent memory is read-only or unreliable",
        })
    }
}
