//! The Persistent Event log page, 0Dh (section 5.1.12.1.14): header and the events used.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::feature::Timestamp;
use crate::limits::NQN_FIELD_BYTES;

wire_enum! {
    /// Action: bits 1:0 of the Log Specific Parameter of Get Log Page.
    pub enum Action: u8 {
        Read = 0, "Read Log Data";
        EstablishAndRead = 1, "Establish Context and Read Log Data";
        Release = 2, "Release Context";
        EstablishAndReadHeader = 3, "Establish Context and Read 512 Bytes of Header";
    }
}

wire_enum! {
    /// Persistent event type; its number is also its bit in the Supported Events Bitmap.
    pub enum EventKind: u8 {
        SmartSnapshot = 0x01, "SMART / Health Log Snapshot";
        FirmwareCommit = 0x02, "Firmware Commit";
        TimestampChange = 0x03, "Timestamp Change";
        PowerOn = 0x04, "Power-on or Reset";
        HardwareError = 0x05, "NVM Subsystem Hardware Error";
        ChangeNamespace = 0x06, "Change Namespace";
        FormatStart = 0x07, "Format NVM Start";
        FormatCompletion = 0x08, "Format NVM Completion";
        SanitizeStart = 0x09, "Sanitize Start";
        SanitizeCompletion = 0x0a, "Sanitize Completion";
        SetFeature = 0x0b, "Set Feature";
        TelemetryLogCreated = 0x0c, "Telemetry Log Created";
        ThermalExcursion = 0x0d, "Thermal Excursion";
        MediaVerification = 0x0e, "Sanitize Media Verification";
        VendorSpecific = 0xde, "Vendor Specific";
        TcgDefined = 0xdf, "TCG Defined";
    }
}

/// Header of the log page: 512 bytes, events follow, newest first.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogHeader {
    /// Log Identifier: 0Dh.
    pub lid: u8,
    pub reserved_1: [u8; 3],
    /// Total Number of Events.
    pub tnev: U32,
    /// Total Log Length, bytes, this header with it.
    pub tll: U64,
    /// Log Revision: see [`LogHeader::REVISION`].
    pub rv: u8,
    pub reserved_17: u8,
    /// Log Header Length: bytes of the header behind this field.
    pub lhl: U16,
    /// When the reporting context was established.
    pub timestamp: Timestamp,
    /// Power on Hours.
    pub poh: [u8; 16],
    /// Power Cycle Count.
    pub pcc: U64,
    /// PCI Vendor ID and Subsystem Vendor ID.
    pub vid: U16,
    pub ssvid: U16,
    /// Serial Number, as in Identify Controller.
    pub sn: [u8; 20],
    /// Model Number, as in Identify Controller.
    pub mn: [u8; 40],
    /// NVM Subsystem NQN.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// Generation Number: moves with each context established.
    pub generation: U16,
    /// Reporting Context Information: port identifier 15:0, its type 17:16, exists 18.
    pub rci: U32,
    pub reserved_378: [u8; 102],
    /// Supported Events Bitmap, by event type.
    pub seb: [u8; 32],
}
layout!(
    LogHeader, 512, lid @ 0, tnev @ 4, tll @ 8, rv @ 16, lhl @ 18, timestamp @ 20, poh @ 28,
    pcc @ 44, vid @ 52, ssvid @ 54, sn @ 56, mn @ 76, subnqn @ 116, generation @ 372, rci @ 374,
    reserved_378 @ 378, seb @ 480,
);

impl LogHeader {
    /// Log Revision of specification 2.1.
    pub const REVISION: u8 = 3;
    /// What LHL says of the 512-byte header: everything behind byte 19.
    pub const HEADER_LENGTH: u16 = 492;

    /// A header of no events; counts, identity and context are the caller's to fill.
    #[must_use]
    pub fn new(supported: &[EventKind]) -> Self {
        let mut header = Self::new_zeroed();
        header.lid = super::lid::PERSISTENT_EVENT;
        header.rv = Self::REVISION;
        header.lhl = Self::HEADER_LENGTH.into();
        for kind in supported {
            header.seb[usize::from(kind.raw() / 8)] |= 1 << (kind.raw() % 8);
        }
        header
    }
}

/// Header of an event: 24 bytes; vendor specific information and event data follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EventHeader {
    /// [`EventKind`].
    pub etype: u8,
    /// Event Type Revision.
    pub etype_revision: u8,
    /// Event Header Length: bytes of the header behind this field.
    pub ehl: u8,
    /// Event Header Additional Information: port identifier type, bits 1:0.
    pub ehai: u8,
    /// Identifier of the controller that made the event.
    pub cntlid: U16,
    /// Event Timestamp.
    pub timestamp: Timestamp,
    /// Port Identifier.
    pub pelpid: U16,
    pub reserved_16: [u8; 4],
    /// Vendor Specific Information Length, bytes.
    pub vsil: U16,
    /// Event Length: bytes of vendor specific information and event data.
    pub el: U16,
}
layout!(
    EventHeader, 24, etype @ 0, etype_revision @ 1, ehl @ 2, ehai @ 3, cntlid @ 4,
    timestamp @ 6, pelpid @ 14, vsil @ 20, el @ 22,
);

impl EventHeader {
    /// What EHL says: the 21 bytes behind byte 2.
    pub const HEADER_LENGTH: u8 = 21;

    /// A header for an event of `kind` with `length` bytes of data.
    #[must_use]
    pub fn new(kind: EventKind, cntlid: u16, timestamp: Timestamp, length: u16) -> Self {
        Self {
            etype: kind.raw(),
            etype_revision: kind.revision(),
            ehl: Self::HEADER_LENGTH,
            ehai: 0,
            cntlid: cntlid.into(),
            timestamp,
            pelpid: 0.into(),
            reserved_16: [0; 4],
            vsil: 0.into(),
            el: length.into(),
        }
    }
}

impl EventKind {
    /// Event Type Revision of specification 2.1.
    #[must_use]
    pub const fn revision(self) -> u8 {
        match self {
            Self::ChangeNamespace => 2,
            _ => 1,
        }
    }
}

/// Data of a Timestamp Change event: 16 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TimestampChangeEvent {
    pub previous: Timestamp,
    /// Milliseconds Since Reset.
    pub since_reset: U64,
}
layout!(TimestampChangeEvent, 16, previous @ 0, since_reset @ 8);

/// Data of a Power-on or Reset event: the firmware revision, controller entries follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PowerOnEvent {
    /// Firmware Revision, ASCII.
    pub fr: [u8; 8],
}
layout!(PowerOnEvent, 8);

/// Controller entry of a Power-on or Reset event: 36 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PowerOnControllerEntry {
    pub cntlid: U16,
    /// Firmware Activation: 0 none was pending.
    pub firmware_activation: u8,
    /// Operation in Progress: bit 0 format, bit 1 sanitize.
    pub operation_in_progress: u8,
    pub reserved_4: [u8; 12],
    /// Controller Power Cycle count.
    pub power_cycle: U32,
    /// Power on milliseconds.
    pub power_on_milliseconds: U64,
    /// Controller Timestamp.
    pub timestamp: Timestamp,
}
layout!(
    PowerOnControllerEntry, 36, cntlid @ 0, firmware_activation @ 2, operation_in_progress @ 3,
    power_cycle @ 16, power_on_milliseconds @ 20, timestamp @ 28,
);

/// Data of an NVM Subsystem Hardware Error event: additional information follows.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HardwareErrorEvent {
    /// Event Code: the constants below.
    pub code: U16,
    pub reserved_2: [u8; 2],
}
layout!(HardwareErrorEvent, 4, code @ 0);

impl HardwareErrorEvent {
    /// Critical Warning condition; the additional information is the Critical Warning byte.
    pub const CRITICAL_WARNING: u16 = 0x06;
    /// Unexpected power loss.
    pub const UNEXPECTED_POWER_LOSS: u16 = 0x08;
    /// Controller Fatal Status: CSTS.CFS was set.
    pub const CONTROLLER_FATAL: u16 = 0x09;
    /// Media and Data Integrity Status; the additional information is the completion entry.
    pub const MEDIA_INTEGRITY: u16 = 0x0a;
}

/// Data of a Change Namespace event: 48 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChangeNamespaceEvent {
    /// CDW10 of Namespace Management: Select 0 create, 1 delete.
    pub select: U32,
    pub reserved_4: [u8; 4],
    /// Namespace Size, logical blocks.
    pub nsze: U64,
    pub reserved_16: [u8; 8],
    /// Namespace Capacity, logical blocks.
    pub ncap: U64,
    pub flbas: u8,
    pub dps: u8,
    pub nmic: u8,
    pub reserved_35: u8,
    pub anagrpid: U32,
    pub nvmsetid: U16,
    pub reserved_42: [u8; 2],
    pub nsid: U32,
}
layout!(
    ChangeNamespaceEvent, 48, select @ 0, nsze @ 8, ncap @ 24, flbas @ 32, dps @ 33, nmic @ 34,
    anagrpid @ 36, nvmsetid @ 40, nsid @ 44,
);

/// Data of a Set Feature event: its layout, then the command dwords (CDW0 CDW10 and on) and the
/// memory buffer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SetFeatureEvent {
    /// Dword count 2:0, completion dword 0 logged 3, memory buffer count 31:16 in bytes.
    pub layout: U32,
}
layout!(SetFeatureEvent, 4);
