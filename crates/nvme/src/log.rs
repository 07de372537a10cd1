//! Get Log Page and the log pages (section 5.1.12).

mod effects;
mod pages;
pub mod persistent;

use stdx::num::{low8, low16, u64_of};

use crate::opcode::admin;
use crate::refusal::{Reason, Refusal};
use crate::sqe::Sqe;

pub use effects::{
    CommandEffects, EffectsLog, FeatureEffects, FeatureEffectsLog, SupportedPage, SupportedPages,
};
pub use pages::{
    ChangedNamespaces, ErrorEntry, FirmwareSlots, ReservationNotification, Smart, u128_field,
};

/// Log Page Identifiers (LID).
pub mod lid {
    codes! { u8;
        SUPPORTED_PAGES = 0x00, "Supported Log Pages";
        ERROR_INFORMATION = 0x01, "Error Information";
        SMART = 0x02, "SMART / Health Information";
        FIRMWARE_SLOT = 0x03, "Firmware Slot Information";
        CHANGED_NAMESPACES = 0x04, "Changed Attached Namespace List";
        EFFECTS = 0x05, "Commands Supported and Effects";
        SELF_TEST = 0x06, "Device Self-test";
        TELEMETRY_HOST = 0x07, "Telemetry Host-Initiated";
        TELEMETRY_CONTROLLER = 0x08, "Telemetry Controller-Initiated";
        ENDURANCE_GROUP = 0x09, "Endurance Group Information";
        PREDICTABLE_LATENCY_SET = 0x0a, "Predictable Latency Per NVM Set";
        PREDICTABLE_LATENCY_AGGREGATE = 0x0b, "Predictable Latency Event Aggregate";
        ANA = 0x0c, "Asymmetric Namespace Access";
        PERSISTENT_EVENT = 0x0d, "Persistent Event Log";
        LBA_STATUS = 0x0e, "LBA Status Information";
        ENDURANCE_GROUP_AGGREGATE = 0x0f, "Endurance Group Event Aggregate";
        MEDIA_UNIT_STATUS = 0x10, "Media Unit Status";
        CAPACITY_CONFIGURATIONS = 0x11, "Supported Capacity Configuration List";
        FEATURE_EFFECTS = 0x12, "Feature Identifiers Supported and Effects";
        MI_EFFECTS = 0x13, "NVMe-MI Commands Supported and Effects";
        LOCKDOWN = 0x14, "Command and Feature Lockdown";
        BOOT_PARTITION = 0x15, "Boot Partition";
        ROTATIONAL_MEDIA = 0x16, "Rotational Media Information";
        DISPERSED_PARTICIPANTS = 0x17, "Dispersed Namespace Participating NVM Subsystems";
        MANAGEMENT_ADDRESSES = 0x18, "Management Address List";
        RECEIVER_EYE = 0x19, "Physical Interface Receiver Eye Opening Measurement";
        REACHABILITY_GROUPS = 0x1a, "Reachability Groups";
        REACHABILITY_ASSOCIATIONS = 0x1b, "Reachability Associations";
        CHANGED_ALLOCATED_NAMESPACES = 0x1c, "Changed Allocated Namespace List";
        FDP_CONFIGURATIONS = 0x20, "FDP Configurations";
        FDP_HANDLE_USAGE = 0x21, "Reclaim Unit Handle Usage";
        FDP_STATISTICS = 0x22, "FDP Statistics";
        FDP_EVENTS = 0x23, "FDP Events";
        DISCOVERY = 0x70, "Discovery";
        HOST_DISCOVERY = 0x71, "Host Discovery";
        AVE_DISCOVERY = 0x72, "AVE Discovery";
        PULL_MODEL_DDC_REQUEST = 0x73, "Pull Model DDC Request";
        RESERVATION_NOTIFICATION = 0x80, "Reservation Notification";
        SANITIZE_STATUS = 0x81, "Sanitize Status";
        CHANGED_ZONES = 0xbf, "Changed Zone List";
    }

    /// First vendor specific identifier.
    pub const VENDOR_SPECIFIC: u8 = 0xc0;

    /// The name to show for any identifier.
    #[must_use]
    pub const fn name(lid: u8) -> &'static str {
        match known(lid) {
            Some(name) => name,
            None if lid >= VENDOR_SPECIFIC => "Vendor Specific",
            None => "Reserved",
        }
    }
}

/// A Get Log Page command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// Log Page Identifier.
    pub lid: u8,
    /// Log Specific Parameter, 7 bits.
    pub lsp: u8,
    /// Retain Asynchronous Event: reading does not clear the event.
    pub retain_event: bool,
    /// Bytes asked for: NUMD is 0's based dwords, so at least 4 and at most 16 GiB.
    pub bytes: u64,
    /// Log Page Offset in bytes, or an index of the data structure.
    pub offset: LogOffset,
    /// Log Specific Identifier.
    pub lsi: u16,
    pub uuid_index: u8,
    /// Command Set Identifier.
    pub csi: u8,
    pub nsid: u32,
}

/// Log Page Offset (LPOL, LPOU) by Offset Type (OT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOffset {
    /// Bytes; a multiple of 4.
    Bytes(u64),
    /// Index into the list of data structures of the page.
    Index(u64),
}

impl GetLogPage {
    /// Reads a Get Log Page command; an unknown identifier is the controller's to refuse.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let (cdw10, cdw11) = (u64::from(sqe.cdw10.get()), u64::from(sqe.cdw11.get()));
        let cdw14 = sqe.cdw14.get();
        let raw = u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get());
        // Offset Type, CDW14 bit 23.
        let offset = if cdw14 & 1 << 23 != 0 {
            LogOffset::Index(raw)
        } else if raw & 3 == 0 {
            LogOffset::Bytes(raw)
        } else {
            // Bits 1:0 of a byte offset shall be 0 (section 5.1.12).
            return Err(Refusal::at(Reason::Value, 12, 0));
        };
        let dwords = (cdw11 & 0xffff) << 16 | cdw10 >> 16;
        Ok(Self {
            lid: low8(cdw10),
            lsp: low8(cdw10 >> 8) & 0x7f,
            retain_event: cdw10 & 1 << 15 != 0,
            bytes: (dwords + 1) * 4,
            offset,
            lsi: low16(cdw11 >> 16),
            uuid_index: low8(cdw14.into()) & 0x7f,
            csi: low8(u64::from(cdw14) >> 24),
            nsid: sqe.nsid.get(),
        })
    }

    /// A command for `bytes` of page `lid` from its start: bytes is rounded up to dwords.
    #[must_use]
    pub const fn new(lid: u8, nsid: u32, bytes: u64) -> Self {
        Self {
            lid,
            lsp: 0,
            retain_event: false,
            bytes,
            offset: LogOffset::Bytes(0),
            lsi: 0,
            uuid_index: 0,
            csi: 0,
            nsid,
        }
    }

    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE, cid, self.nsid);
        let numd = self.bytes.div_ceil(4).saturating_sub(1);
        sqe.cdw10 = (u32::from(low16(numd)) << 16
            | u32::from(self.retain_event) << 15
            | u32::from(self.lsp & 0x7f) << 8
            | u32::from(self.lid))
        .into();
        sqe.cdw11 = (u32::from(self.lsi) << 16 | u32::from(low16(numd >> 16))).into();
        let (raw, index) = match self.offset {
            LogOffset::Bytes(raw) => (raw, 0),
            LogOffset::Index(raw) => (raw, 1u32 << 23),
        };
        sqe.cdw12 = stdx::num::low32(raw).into();
        sqe.cdw13 = stdx::num::low32(raw >> 32).into();
        sqe.cdw14 = (u32::from(self.csi) << 24 | index | u32::from(self.uuid_index & 0x7f)).into();
        sqe
    }

    /// The part of a whole page that the command asks for, to be padded with zeros to
    /// [`GetLogPage::bytes`]; refused when the offset is behind the page's end (section 5.1.12).
    /// An index is refused: no page of this crate supports it.
    pub fn window<'a>(&self, page: &'a [u8]) -> Result<&'a [u8], Refusal> {
        let LogOffset::Bytes(offset) = self.offset else {
            return Err(Refusal::at(Reason::Value, 14, 23));
        };
        let total = u64_of(page.len());
        if offset > total {
            return Err(Refusal::at(Reason::Value, 12, 0));
        }
        let end = offset.saturating_add(self.bytes).min(total);
        Ok(page.get(stdx::num::usize64(offset)..stdx::num::usize64(end)).unwrap_or_default())
    }
}
