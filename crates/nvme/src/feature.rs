//! Features (section 5.1.25) and the Get Features and Set Features commands.

use stdx::num::{low8, low16};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::opcode::admin;
use crate::refusal::{Reason, Refusal};
use crate::sqe::Sqe;

/// Feature Identifiers (FID).
pub mod fid {
    codes! { u8;
        ARBITRATION = 0x01, "Arbitration";
        POWER_MANAGEMENT = 0x02, "Power Management";
        LBA_RANGE_TYPE = 0x03, "LBA Range Type";
        TEMPERATURE_THRESHOLD = 0x04, "Temperature Threshold";
        ERROR_RECOVERY = 0x05, "Error Recovery";
        VOLATILE_WRITE_CACHE = 0x06, "Volatile Write Cache";
        NUMBER_OF_QUEUES = 0x07, "Number of Queues";
        INTERRUPT_COALESCING = 0x08, "Interrupt Coalescing";
        INTERRUPT_VECTOR = 0x09, "Interrupt Vector Configuration";
        WRITE_ATOMICITY = 0x0a, "Write Atomicity Normal";
        ASYNC_EVENT = 0x0b, "Asynchronous Event Configuration";
        AUTONOMOUS_POWER = 0x0c, "Autonomous Power State Transition";
        HOST_MEMORY_BUFFER = 0x0d, "Host Memory Buffer";
        TIMESTAMP = 0x0e, "Timestamp";
        KEEP_ALIVE_TIMER = 0x0f, "Keep Alive Timer";
        THERMAL_MANAGEMENT = 0x10, "Host Controlled Thermal Management";
        NON_OPERATIONAL_POWER = 0x11, "Non-Operational Power State Config";
        READ_RECOVERY_LEVEL = 0x12, "Read Recovery Level Config";
        PREDICTABLE_LATENCY_CONFIG = 0x13, "Predictable Latency Mode Config";
        PREDICTABLE_LATENCY_WINDOW = 0x14, "Predictable Latency Mode Window";
        LBA_STATUS_ATTRIBUTES = 0x15, "LBA Status Information Attributes";
        HOST_BEHAVIOR = 0x16, "Host Behavior Support";
        SANITIZE_CONFIG = 0x17, "Sanitize Config";
        ENDURANCE_GROUP_EVENT = 0x18, "Endurance Group Event Configuration";
        COMMAND_SET_PROFILE = 0x19, "I/O Command Set Profile";
        SPINUP_CONTROL = 0x1a, "Spinup Control";
        POWER_LOSS_SIGNALING = 0x1b, "Power Loss Signaling Config";
        PERFORMANCE = 0x1c, "Performance Characteristics";
        FDP = 0x1d, "Flexible Data Placement";
        FDP_EVENTS = 0x1e, "Flexible Data Placement Events";
        NAMESPACE_ADMIN_LABEL = 0x1f, "Namespace Admin Label";
        KEY_VALUE_CONFIG = 0x20, "Key Value Configuration";
        CONTROLLER_DATA_QUEUE = 0x21, "Controller Data Queue";
        EMBEDDED_MANAGEMENT_ADDRESS = 0x78, "Embedded Management Controller Address";
        HOST_MANAGEMENT_ADDRESS = 0x79, "Host Management Agent Address";
        ENHANCED_CONTROLLER_METADATA = 0x7d, "Enhanced Controller Metadata";
        CONTROLLER_METADATA = 0x7e, "Controller Metadata";
        NAMESPACE_METADATA = 0x7f, "Namespace Metadata";
        SOFTWARE_PROGRESS = 0x80, "Software Progress Marker";
        HOST_IDENTIFIER = 0x81, "Host Identifier";
        RESERVATION_NOTIFICATION_MASK = 0x82, "Reservation Notification Mask";
        RESERVATION_PERSISTENCE = 0x83, "Reservation Persistence";
        NAMESPACE_WRITE_PROTECTION = 0x84, "Namespace Write Protection Config";
        BOOT_PARTITION_WRITE_PROTECTION = 0x85, "Boot Partition Write Protection Config";
    }

    /// First vendor specific identifier.
    pub const VENDOR_SPECIFIC: u8 = 0xc0;

    /// The name to show for any identifier.
    #[must_use]
    pub const fn name(fid: u8) -> &'static str {
        match known(fid) {
            Some(name) => name,
            None if fid >= VENDOR_SPECIFIC => "Vendor Specific",
            None => "Reserved",
        }
    }
}

wire_enum! {
    /// Select (SEL) of Get Features.
    pub enum Select: u8 {
        Current = 0, "Current";
        Default = 1, "Default";
        Saved = 2, "Saved";
        SupportedCapabilities = 3, "Supported Capabilities";
    }
}

/// A Get Features command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFeatures {
    /// Feature Identifier.
    pub fid: u8,
    pub select: Select,
    pub nsid: u32,
    /// Feature specific.
    pub cdw11: u32,
    pub uuid_index: u8,
}

impl GetFeatures {
    /// Reads a Get Features command; an unknown identifier is the controller's to refuse.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw10 = sqe.cdw10.get();
        if cdw10 & 0xffff_f800 != 0 {
            return Err(Refusal::at(Reason::Reserved, 10, 11));
        }
        Ok(Self {
            fid: low8(cdw10.into()),
            select: Select::from_raw(low8(u64::from(cdw10) >> 8) & 0x07).ok_or(Refusal::at(
                Reason::Value,
                10,
                8,
            ))?,
            nsid: sqe.nsid.get(),
            cdw11: sqe.cdw11.get(),
            uuid_index: low8(sqe.cdw14.get().into()) & 0x7f,
        })
    }

    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let mut sqe = Sqe::new(admin::GET_FEATURES, cid, self.nsid);
        sqe.cdw10 = (u32::from(self.select.raw()) << 8 | u32::from(self.fid)).into();
        sqe.cdw11 = self.cdw11.into();
        sqe.cdw14 = u32::from(self.uuid_index & 0x7f).into();
        sqe
    }
}

/// A Set Features command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFeatures {
    /// Feature Identifier.
    pub fid: u8,
    /// Save (SV): keep the value through power loss and reset.
    pub save: bool,
    pub nsid: u32,
    /// Feature specific.
    pub cdw11: u32,
    pub cdw12: u32,
    pub uuid_index: u8,
}

impl SetFeatures {
    /// Reads a Set Features command; an unknown identifier is the controller's to refuse.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw10 = sqe.cdw10.get();
        if cdw10 & 0x7fff_ff00 != 0 {
            return Err(Refusal::at(Reason::Reserved, 10, 8));
        }
        Ok(Self {
            fid: low8(cdw10.into()),
            save: cdw10 >> 31 != 0,
            nsid: sqe.nsid.get(),
            cdw11: sqe.cdw11.get(),
            cdw12: sqe.cdw12.get(),
            uuid_index: low8(sqe.cdw14.get().into()) & 0x7f,
        })
    }

    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let mut sqe = Sqe::new(admin::SET_FEATURES, cid, self.nsid);
        sqe.cdw10 = (u32::from(self.save) << 31 | u32::from(self.fid)).into();
        sqe.cdw11 = self.cdw11.into();
        sqe.cdw12 = self.cdw12.into();
        sqe.cdw14 = u32::from(self.uuid_index & 0x7f).into();
        sqe
    }
}

/// Completion DW0 of Get Features with Select 011b.
pub mod capability {
    /// The feature can be saved.
    pub const SAVEABLE: u32 = 1 << 0;
    /// The feature is per namespace.
    pub const NAMESPACE_SPECIFIC: u32 = 1 << 1;
    /// The feature can be changed.
    pub const CHANGEABLE: u32 = 1 << 2;
}

/// Number of Queues (07h): both counts 0's based on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberOfQueues {
    /// I/O Submission Queues, 0's based.
    pub submission: u16,
    /// I/O Completion Queues, 0's based.
    pub completion: u16,
}

impl NumberOfQueues {
    /// From CDW11 of Set Features or DW0 of a completion.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self { submission: low16(raw as u64), completion: low16(raw as u64 >> 16) }
    }

    #[must_use]
    pub const fn raw(self) -> u32 {
        (self.completion as u32) << 16 | self.submission as u32
    }

    /// Whether the request is one the specification allows: FFFFh (65,536 queues) is not.
    #[must_use]
    pub const fn is_valid_request(self) -> bool {
        self.submission != u16::MAX && self.completion != u16::MAX
    }
}

/// Asynchronous Event Configuration (0Bh), CDW11.
pub mod async_event {
    /// Critical warnings that send an event, bits as in the SMART log page.
    pub const CRITICAL_WARNINGS: u32 = 0xff;
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    pub const FIRMWARE_ACTIVATION: u32 = 1 << 9;
    pub const TELEMETRY: u32 = 1 << 10;
    pub const ANA_CHANGE: u32 = 1 << 11;
    pub const PREDICTABLE_LATENCY: u32 = 1 << 12;
    pub const LBA_STATUS: u32 = 1 << 13;
    pub const ENDURANCE_GROUP: u32 = 1 << 14;
    pub const NORMAL_SHUTDOWN: u32 = 1 << 15;
    pub const TEMPERATURE_HYSTERESIS: u32 = 1 << 16;
    pub const REACHABILITY_GROUP: u32 = 1 << 17;
    pub const REACHABILITY_ASSOCIATION: u32 = 1 << 18;
    pub const ALLOCATED_NAMESPACE_ATTRIBUTE: u32 = 1 << 19;
    pub const ZONE_DESCRIPTOR: u32 = 1 << 27;
    pub const DISCOVERY_CHANGE: u32 = 1 << 31;
}

/// Reservation Notification Mask (82h), CDW11: a set bit masks the notification.
pub mod reservation_mask {
    pub const REGISTRATION_PREEMPTED: u32 = 1 << 1;
    pub const RESERVATION_RELEASED: u32 = 1 << 2;
    pub const RESERVATION_PREEMPTED: u32 = 1 << 3;
    pub const ALL: u32 = REGISTRATION_PREEMPTED | RESERVATION_RELEASED | RESERVATION_PREEMPTED;
}

/// Single bits of CDW11 of other features.
pub mod bits {
    /// Volatile Write Cache (06h): enable.
    pub const WRITE_CACHE_ENABLE: u32 = 1 << 0;
    /// Write Atomicity Normal (0Ah): Disable Normal.
    pub const DISABLE_NORMAL: u32 = 1 << 0;
    /// Error Recovery (05h): Deallocated or Unwritten Logical Block Error Enable.
    pub const DULBE: u32 = 1 << 16;
    /// Host Identifier (81h): Enable Extended Host Identifier, 128 bits.
    pub const EXHID: u32 = 1 << 0;
    /// Reservation Persistence (83h): Persist Through Power Loss.
    pub const PTPL: u32 = 1 << 0;
    /// Temperature Threshold (04h): type select under (1), bits 21:20.
    pub const UNDER_TEMPERATURE: u32 = 1 << 20;
}

/// Host Behavior Support (16h): 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HostBehavior {
    /// Advanced Command Retry Enable.
    pub acre: u8,
    /// Extended Telemetry Data Area 4 Supported.
    pub etdas: u8,
    /// LBA Format Extension Enable.
    pub lbafee: u8,
    /// Host Dispersed Namespace Support.
    pub hdisns: u8,
    /// Copy Descriptor Formats Enable: bit 2 format 2h, bit 3 format 3h, bit 4 format 4h.
    pub cdfe: U16,
    pub reserved_6: [u8; 506],
}
layout!(
    HostBehavior, 512, acre @ 0, etdas @ 1, lbafee @ 2, hdisns @ 3, cdfe @ 4, reserved_6 @ 6,
);

impl Default for HostBehavior {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Timestamp (0Eh): 8 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Timestamp {
    /// Milliseconds since 1970-01-01 UTC, or since reset; 48 bits little endian.
    pub milliseconds: [u8; 6],
    /// Bit 0 Synch, bits 3:1 Timestamp Origin.
    pub attributes: u8,
    pub reserved: u8,
}
layout!(Timestamp, 8, milliseconds @ 0, attributes @ 6);

impl Timestamp {
    /// Timestamp Origin 000b: cleared by a reset.
    pub const ORIGIN_RESET: u8 = 0;
    /// Timestamp Origin 001b: set by Set Features.
    pub const ORIGIN_SET: u8 = 1 << 1;

    /// The low 48 bits of `milliseconds`.
    #[must_use]
    pub const fn new(milliseconds: u64, attributes: u8) -> Self {
        let [a, b, c, d, e, f, ..] = milliseconds.to_le_bytes();
        Self { milliseconds: [a, b, c, d, e, f], attributes, reserved: 0 }
    }

    /// Milliseconds.
    #[must_use]
    pub const fn get(&self) -> u64 {
        let [a, b, c, d, e, f] = self.milliseconds;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}
