//! Error Information (01h), SMART / Health (02h), Firmware Slots (03h), Changed Namespaces (04h)
//! and Reservation Notification (80h).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::identify::NSID_ALL;
use crate::limits::NAMESPACE_LIST_MAX;

/// Error Information log page entry: 64 bytes; newest first, unused ones zero.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorEntry {
    /// Error Count: starts at 1, 0 is an unused entry.
    pub error_count: U64,
    /// Submission Queue ID; FFFFh when no command is concerned.
    pub sqid: U16,
    /// Command ID; FFFFh when no command is concerned.
    pub cid: U16,
    /// Status field of the completion, phase in bit 0.
    pub status: U16,
    /// Parameter Error Location: byte 7:0, bit 10:8; FFFFh when no parameter is concerned.
    pub location: U16,
    /// First LBA that had the error.
    pub lba: U64,
    pub nsid: U32,
    /// Vendor Specific Information Available: a log page, 0 is none.
    pub vendor_specific: u8,
    /// Transport Type, as in Discovery.
    pub trtype: u8,
    /// Command Set Indicator of the command; valid when the log page version is 1h or later.
    pub csi: u8,
    /// Opcode of the command; likewise.
    pub opcode: u8,
    /// Command Specific Information.
    pub cs: U64,
    /// Transport Type Specific Information.
    pub trtype_info: U16,
    pub reserved_42: [u8; 21],
    /// Log Page Version: 1h.
    pub version: u8,
}
layout!(
    ErrorEntry, 64, error_count @ 0, sqid @ 8, cid @ 10, status @ 12, location @ 14, lba @ 16,
    nsid @ 24, vendor_specific @ 28, trtype @ 29, csi @ 30, opcode @ 31, cs @ 32,
    trtype_info @ 40, version @ 63,
);

impl ErrorEntry {
    /// SQID, CID and Parameter Error Location when there is none.
    pub const NONE: u16 = 0xffff;
    /// The version that has CSI and opcode.
    pub const VERSION: u8 = 1;
}

impl Default for ErrorEntry {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// A 128-bit counter as it stands in log pages.
#[must_use]
pub const fn u128_field(value: u128) -> [u8; 16] {
    value.to_le_bytes()
}

/// SMART / Health Information log page, 02h: 512 bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Smart {
    /// Critical Warning: bits named below.
    pub critical_warning: u8,
    /// Composite Temperature, kelvin.
    pub temperature: U16,
    /// Available Spare, percent.
    pub available_spare: u8,
    /// Available Spare Threshold, percent.
    pub spare_threshold: u8,
    /// Percentage Used, percent; 255 is 255 or more.
    pub percentage_used: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_group_warning: u8,
    pub reserved_7: [u8; 25],
    /// Data Units Read: thousands of 512 bytes, rounded up.
    pub data_units_read: [u8; 16],
    /// Data Units Written, likewise.
    pub data_units_written: [u8; 16],
    pub host_read_commands: [u8; 16],
    pub host_write_commands: [u8; 16],
    /// Controller Busy Time, minutes.
    pub controller_busy_time: [u8; 16],
    pub power_cycles: [u8; 16],
    pub power_on_hours: [u8; 16],
    pub unsafe_shutdowns: [u8; 16],
    /// Media and Data Integrity Errors.
    pub media_errors: [u8; 16],
    /// Number of Error Information Log Entries.
    pub error_log_entries: [u8; 16],
    /// Warning Composite Temperature Time, minutes.
    pub warning_temperature_time: U32,
    /// Critical Composite Temperature Time, minutes.
    pub critical_temperature_time: U32,
    /// Temperature Sensors 1 to 8, kelvin; 0 is not implemented.
    pub temperature_sensors: [U16; 8],
    /// Thermal Management Temperature 1 and 2 Transition Counts.
    pub thermal_transitions: [U32; 2],
    /// Total Times for Thermal Management Temperature 1 and 2, seconds.
    pub thermal_times: [U32; 2],
    pub reserved_232: [u8; 280],
}
layout!(
    Smart, 512, critical_warning @ 0, temperature @ 1, available_spare @ 3, spare_threshold @ 4,
    percentage_used @ 5, endurance_group_warning @ 6, data_units_read @ 32,
    data_units_written @ 48, host_read_commands @ 64, host_write_commands @ 80,
    controller_busy_time @ 96, power_cycles @ 112, power_on_hours @ 128, unsafe_shutdowns @ 144,
    media_errors @ 160, error_log_entries @ 176, warning_temperature_time @ 192,
    critical_temperature_time @ 196, temperature_sensors @ 200, thermal_transitions @ 216,
    thermal_times @ 224, reserved_232 @ 232,
);

impl Smart {
    /// Available spare capacity is below the threshold.
    pub const WARNING_SPARE: u8 = 1 << 0;
    /// A temperature is beyond its threshold.
    pub const WARNING_TEMPERATURE: u8 = 1 << 1;
    /// Reliability is degraded.
    pub const WARNING_RELIABILITY: u8 = 1 << 2;
    /// All media is read-only.
    pub const WARNING_READ_ONLY: u8 = 1 << 3;
    /// The volatile memory backup failed.
    pub const WARNING_VOLATILE_BACKUP: u8 = 1 << 4;

    /// Data units for a count of bytes: units of 1000 * 512, rounded up.
    #[must_use]
    pub const fn data_units(bytes: u128) -> [u8; 16] {
        bytes.div_ceil(512_000).to_le_bytes()
    }
}

impl Default for Smart {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Firmware Slot Information log page, 03h: 512 bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FirmwareSlots {
    /// Active Firmware Info: active slot 2:0, slot of the next reset 6:4.
    pub afi: u8,
    pub reserved_1: [u8; 7],
    /// Firmware Revision for Slots 1 to 7, ASCII; zeros are an empty slot.
    pub frs: [[u8; 8]; 7],
    pub reserved_64: [u8; 448],
}
layout!(FirmwareSlots, 512, afi @ 0, frs @ 8, reserved_64 @ 64);

impl FirmwareSlots {
    /// One slot, active, with `revision`.
    #[must_use]
    pub fn single(revision: &str) -> Self {
        let mut slots = Self::new_zeroed();
        slots.afi = 1;
        crate::identify::set_ascii(&mut slots.frs[0], revision);
        slots
    }
}

/// Changed Attached Namespace List log page, 04h: 4096 bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChangedNamespaces {
    /// Identifiers ascending, unused entries 0.
    pub nsids: [U32; NAMESPACE_LIST_MAX],
}
layout!(ChangedNamespaces, 4096);

impl ChangedNamespaces {
    /// The list of `nsids`, which ascend; more than 1,024 are told by FFFFFFFFh in the first entry
    /// and zeros behind it.
    #[must_use]
    pub fn new(nsids: impl IntoIterator<Item = u32>) -> Self {
        let mut list = Self::new_zeroed();
        let mut entries = list.nsids.iter_mut();
        for nsid in nsids {
            match entries.next() {
                Some(entry) => *entry = nsid.into(),
                None => {
                    list = Self::new_zeroed();
                    list.nsids[0] = NSID_ALL.into();
                    return list;
                }
            }
        }
        list
    }
}

/// Reservation Notification log page, 80h: 64 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReservationNotification {
    /// Log Page Count: increments with each page; 0 only in an empty page.
    pub count: U64,
    /// [`crate::reservation::Notification`].
    pub kind: u8,
    /// Number of Available Log Pages behind this one; 255 is 255 or more.
    pub available: u8,
    pub reserved_10: [u8; 2],
    pub nsid: U32,
    pub reserved_16: [u8; 48],
}
layout!(ReservationNotification, 64, count @ 0, kind @ 8, available @ 9, nsid @ 12);

impl Default for ReservationNotification {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_changed_namespaces_are_told_as_all() {
        let fits = ChangedNamespaces::new(1..=1024);
        assert_eq!(fits.nsids[1023].get(), 1024);
        let over = ChangedNamespaces::new(1..=1025);
        assert_eq!(over.nsids[0].get(), NSID_ALL);
        assert!(over.nsids[1..].iter().all(|nsid| nsid.get() == 0));
    }

    #[test]
    fn a_data_unit_is_a_thousand_blocks_rounded_up() {
        assert_eq!(Smart::data_units(0), u128_field(0));
        assert_eq!(Smart::data_units(1), u128_field(1));
        assert_eq!(Smart::data_units(512_000), u128_field(1));
        assert_eq!(Smart::data_units(512_001), u128_field(2));
    }
}
