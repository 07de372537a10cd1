//! How a drive is.

use crate::drive::Drive;
use crate::error::Result;
use crate::{Machine, smart, sysfs};
use nvme::log::Smart;
use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes of a data unit: a thousand times 512.
const DATA_UNIT: u128 = 512_000;

/// What a drive warns of (Critical Warning, section 5.1.12.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Warning {
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

/// Persistent Memory Region read-only or unreliable, bit 5.
const WARNING_PERSISTENT_MEMORY: u8 = 1 << 5;

impl Warning {
    /// Every warning, in the order of its bits.
    pub const ALL: [Self; 6] = [
        Self::SpareBelowThreshold,
        Self::Temperature,
        Self::DegradedReliability,
        Self::ReadOnly,
        Self::VolatileBackupFailed,
        Self::PersistentMemoryReadOnly,
    ];

    const fn bit(self) -> u8 {
        match self {
            Self::SpareBelowThreshold => Smart::WARNING_SPARE,
            Self::Temperature => Smart::WARNING_TEMPERATURE,
            Self::DegradedReliability => Smart::WARNING_RELIABILITY,
            Self::ReadOnly => Smart::WARNING_READ_ONLY,
            Self::VolatileBackupFailed => Smart::WARNING_VOLATILE_BACKUP,
            Self::PersistentMemoryReadOnly => WARNING_PERSISTENT_MEMORY,
        }
    }

    /// The warning's name: words in small letters with underscores between.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpareBelowThreshold => "spare_below_threshold",
            Self::Temperature => "temperature",
            Self::DegradedReliability => "degraded_reliability",
            Self::ReadOnly => "read_only",
            Self::VolatileBackupFailed => "volatile_backup_failed",
            Self::PersistentMemoryReadOnly => "persistent_memory_read_only",
        }
    }
}

impl fmt::Display for Warning {
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

/// A drive's health. `None` is what the drive or its transport does not say. Counters are over the drive's
/// whole life, and stay at their largest value when there is more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// What the drive warns of; nothing when all is well.
    pub critical: Vec<Warning>,
    /// Composite temperature, degrees Celsius.
    pub temperature_celsius: Option<i32>,
    /// Percentage Used of the life that the vendor expects: may be over 100; 255 is 255 or more.
    pub wear_percent: Option<u8>,
    /// Spare capacity that is left, percent.
    pub spare_percent: Option<u8>,
    /// Below so much spare capacity the drive warns, percent.
    pub spare_threshold_percent: Option<u8>,
    /// Times that data could not be read or was not what had been written.
    pub media_errors: Option<u64>,
    /// Times that power went without notice.
    pub unsafe_shutdowns: Option<u64>,
    /// Hours.
    pub power_on_hours: Option<u64>,
    /// Times that it was switched on.
    pub power_cycles: Option<u64>,
    /// Bytes read by hosts, rounded up to 512,000.
    pub bytes_read: Option<u64>,
    /// Bytes written by hosts, rounded up to 512,000.
    pub bytes_written: Option<u64>,
    /// Entries that its error log has had.
    pub error_log_entries: Option<u64>,
}

impl Health {
    /// Reads the SMART / Health Information log page (02h). Every 512 bytes are one: reserved bits are ignored.
    #[must_use]
    pub fn parse(page: &[u8; 512]) -> Self {
        let page: &Smart = zerocopy::transmute_ref!(page);
        let warns = |warning: &Warning| page.critical_warning & warning.bit() != 0;
        Self {
            critical: Warning::ALL.into_iter().filter(warns).collect(),
            temperature_celsius: celsius(page.temperature.get()),
            wear_percent: Some(page.percentage_used),
            spare_percent: Some(page.available_spare),
            spare_threshold_percent: Some(page.spare_threshold),
            media_errors: Some(counter(page.media_errors)),
            unsafe_shutdowns: Some(counter(page.unsafe_shutdowns)),
            power_on_hours: Some(counter(page.power_on_hours)),
            power_cycles: Some(counter(page.power_cycles)),
            bytes_read: bytes(page.data_units_read),
            bytes_written: bytes(page.data_units_written),
            error_log_entries: Some(counter(page.error_log_entries)),
        }
    }
}

/// Degrees Celsius of whole kelvins, as the kernel rounds them; 0 K is no temperature.
fn celsius(kelvin: u16) -> Option<i32> {
    (kelvin != 0).then(|| i32::from(kelvin) - 273)
}

fn counter(field: [u8; 16]) -> u64 {
    u64::try_from(u128::from_le_bytes(field)).unwrap_or(u64::MAX)
}

/// Bytes of data units: 0 units is "not reported" (section 5.1.12.1.3).
fn bytes(units: [u8; 16]) -> Option<u64> {
    let units = u128::from_le_bytes(units);
    let bytes = u64::try_from(units.saturating_mul(DATA_UNIT)).unwrap_or(u64::MAX);
    (units != 0).then_some(bytes)
}

impl Machine {
    /// The drive's health: of NVMe the SMART / Health log page of its controller, of others the temperature if the
    /// kernel has it (SATA: module `drivetemp`), else `None`.
    ///
    /// Blocks until the drive answers or the kernel gives up: with NVMe after 60 s for each controller, unless
    /// `nvme_core.admin_timeout` says otherwise. It is not cut shorter, because giving up makes the kernel
    /// reset the controller.
    ///
    /// # Errors
    /// NVMe only: [`Error::Denied`](crate::Error::Denied) without `CAP_SYS_ADMIN` or the right to open the drive's
    /// nodes, [`Error::NotLive`](crate::Error::NotLive) and [`Error::Gone`](crate::Error::Gone) when it cannot be
    /// asked, [`Error::NoAnswer`](crate::Error::NoAnswer) and [`Error::Refused`](crate::Error::Refused) when it was
    /// in vain; [`Error::Io`](crate::Error::Io) otherwise.
    pub fn health(&self, drive: &Drive) -> Result<Option<Health>> {
        #[cfg(feature = "script")]
        if let Some(script) = &self.script {
            return script.health(drive);
        }
        if drive.is_nvme {
            let page = smart::page(&self.dev, drive)?;
            return Ok(Some(Health::parse(&page)));
        }
        let temperature_celsius = self.temperature(drive);
        Ok(temperature_celsius.map(|_| Health { temperature_celsius, ..Health::default() }))
    }

    /// The drive's temperature in degrees Celsius by the kernel's hwmon, which needs no right; `None` where there
    /// is none. Blocks as [`health`](Self::health) does.
    #[must_use]
    pub fn temperature(&self, drive: &Drive) -> Option<i32> {
        #[cfg(feature = "script")]
        if let Some(script) = &self.script {
            return script.temperature(drive);
        }
        degrees(drive, "temp1_input")
    }

    /// The temperature in degrees Celsius from which on the drive calls it critical (Critical Composite Temperature
    /// Threshold of NVMe), by the kernel's hwmon, which needs no right; `None` where the drive does not say. The kernel
    /// knows it from when it found the drive.
    #[must_use]
    pub fn critical_temperature(&self, drive: &Drive) -> Option<i32> {
        #[cfg(feature = "script")]
        if let Some(script) = &self.script {
            return script.critical_temperature(drive);
        }
        // 0 K, in thousandths of a degree, and 0 are for drives that have no limit.
        degrees(drive, "temp1_crit").filter(|degrees| *degrees > 0)
    }
}

/// A temperature of the first sensor that has it, in whole degrees Celsius.
fn degrees(drive: &Drive, attribute: &str) -> Option<i32> {
    let sensors = drive.devices().into_iter().flat_map(|device| sensors(&device));
    let readings = sensors.map(|sensor| sysfs::number(&sensor.join(attribute)));
    let millidegrees = readings.flatten().next()?;
    i32::try_from(millidegrees.saturating_add(500).div_euclid(1000)).ok()
}

/// The hwmon folders of a device: below `hwmon`, or, of an NVMe controller, right in its folder.
fn sensors(device: &Path) -> Vec<PathBuf> {
    let mut folders = sysfs::entries(&device.join("hwmon"));
    folders.extend(sysfs::entries(device));
    folders.retain(|folder| sysfs::numbered(&sysfs::name(folder), "hwmon").is_some());
    folders
}
