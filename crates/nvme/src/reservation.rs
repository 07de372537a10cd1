//! Reservation commands and their data structures (sections 7.5 to 7.8 and 8.1.22).

use stdx::num::low8;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::refusal::{Reason, Refusal};
use crate::sqe::Sqe;

wire_enum! {
    /// Reservation Type (RTYPE).
    pub enum Type: u8 {
        WriteExclusive = 1, "Write Exclusive";
        ExclusiveAccess = 2, "Exclusive Access";
        WriteExclusiveRegistrantsOnly = 3, "Write Exclusive - Registrants Only";
        ExclusiveAccessRegistrantsOnly = 4, "Exclusive Access - Registrants Only";
        WriteExclusiveAllRegistrants = 5, "Write Exclusive - All Registrants";
        ExclusiveAccessAllRegistrants = 6, "Exclusive Access - All Registrants";
    }
}

wire_enum! {
    /// Reservation Register Action (RREGA).
    pub enum RegisterAction: u8 {
        Register = 0, "Register Reservation Key";
        Unregister = 1, "Unregister Reservation Key";
        Replace = 2, "Replace Reservation Key";
    }
}

wire_enum! {
    /// Change Persist Through Power Loss State (CPTPL).
    pub enum ChangePersistence: u8 {
        NoChange = 0, "no change";
        Clear = 2, "released and cleared on power loss";
        Set = 3, "persist through power loss";
    }
}

wire_enum! {
    /// Reservation Acquire Action (RACQA).
    pub enum AcquireAction: u8 {
        Acquire = 0, "Acquire";
        Preempt = 1, "Preempt";
        PreemptAndAbort = 2, "Preempt and Abort";
    }
}

wire_enum! {
    /// Reservation Release Action (RRELA).
    pub enum ReleaseAction: u8 {
        Release = 0, "Release";
        Clear = 1, "Clear";
    }
}

/// Reservation Register: keys are in [`RegisterData`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    pub action: RegisterAction,
    /// Ignore Existing Key.
    pub ignore_existing_key: bool,
    pub persistence: ChangePersistence,
}

/// Reservation Acquire: keys are in [`AcquireData`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire {
    pub action: AcquireAction,
    pub ignore_existing_key: bool,
    pub rtype: Type,
}

/// Reservation Release: the key is in [`ReleaseData`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub action: ReleaseAction,
    pub ignore_existing_key: bool,
    /// The type to release; `None` only for Clear, which does not look at it.
    pub rtype: Option<Type>,
}

/// Reservation Report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Bytes the host takes.
    pub bytes: u64,
    /// Extended Data Structure: 128-bit host identifiers.
    pub extended: bool,
}

/// IEKEY in CDW10.
const IEKEY: u32 = 1 << 3;

impl Register {
    /// Reads the fields of a Reservation Register.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw10 = sqe.cdw10.get();
        let reserved = cdw10 & 0x3fff_fff0;
        if reserved != 0 {
            return Err(Refusal::at(Reason::Reserved, 10, low8(reserved.trailing_zeros().into())));
        }
        Ok(Self {
            action: RegisterAction::from_raw(low8(cdw10.into()) & 0x07).ok_or(Refusal::at(
                Reason::Value,
                10,
                0,
            ))?,
            ignore_existing_key: cdw10 & IEKEY != 0,
            persistence: ChangePersistence::from_raw(low8(u64::from(cdw10) >> 30))
                .ok_or(Refusal::at(Reason::Value, 10, 30))?,
        })
    }
}

impl Acquire {
    /// Reads the fields of a Reservation Acquire.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw10 = typed_cdw10(sqe)?;
        Ok(Self {
            action: AcquireAction::from_raw(low8(cdw10.into()) & 0x07).ok_or(Refusal::at(
                Reason::Value,
                10,
                0,
            ))?,
            ignore_existing_key: cdw10 & IEKEY != 0,
            rtype: Type::from_raw(low8(u64::from(cdw10) >> 8)).ok_or(Refusal::at(
                Reason::Value,
                10,
                8,
            ))?,
        })
    }
}

impl Release {
    /// Reads the fields of a Reservation Release.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw10 = typed_cdw10(sqe)?;
        let action = ReleaseAction::from_raw(low8(cdw10.into()) & 0x07).ok_or(Refusal::at(
            Reason::Value,
            10,
            0,
        ))?;
        let rtype = Type::from_raw(low8(u64::from(cdw10) >> 8));
        if action == ReleaseAction::Release && rtype.is_none() {
            return Err(Refusal::at(Reason::Value, 10, 8));
        }
        Ok(Self { action, ignore_existing_key: cdw10 & IEKEY != 0, rtype })
    }
}

impl Report {
    /// Reads the fields of a Reservation Report.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw11 = sqe.cdw11.get();
        if cdw11 & !1 != 0 {
            return Err(Refusal::at(Reason::Reserved, 11, 1));
        }
        // Number of Dwords (NUMD) is 0's based.
        let bytes = (u64::from(sqe.cdw10.get()) + 1) * 4;
        Ok(Self { bytes, extended: cdw11 & 1 != 0 })
    }
}

/// CDW10 of Acquire and Release: action 2:0, IEKEY 3, bit 4 and above 15 reserved, type 15:8.
fn typed_cdw10(sqe: &Sqe) -> Result<u32, Refusal> {
    let cdw10 = sqe.cdw10.get();
    let reserved = cdw10 & 0xffff_00f0;
    if reserved != 0 {
        return Err(Refusal::at(Reason::Reserved, 10, low8(reserved.trailing_zeros().into())));
    }
    Ok(cdw10)
}

macro_rules! data {
    ($(#[$meta:meta])* $name:ident, $size:literal, { $($(#[$fmeta:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
            Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $type,)+
        }
        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// Reads the structure from the start of a command's data; refused when that is
            /// shorter.
            pub fn read(data: &[u8]) -> Result<Self, Refusal> {
                Self::read_from_prefix(data)
                    .map(|(value, _)| value)
                    .map_err(|_| Refusal::at(Reason::Length, 6, 0))
            }
        }
    };
}

data! {
    /// Data of Reservation Register.
    RegisterData, 16, {
        /// Current Reservation Key.
        crkey: U64,
        /// New Reservation Key.
        nrkey: U64,
    }
}
layout!(RegisterData, 16, crkey @ 0, nrkey @ 8);

data! {
    /// Data of Reservation Acquire.
    AcquireData, 16, {
        /// Current Reservation Key.
        crkey: U64,
        /// Preempt Reservation Key.
        prkey: U64,
    }
}
layout!(AcquireData, 16, crkey @ 0, prkey @ 8);

data! {
    /// Data of Reservation Release.
    ReleaseData, 8, {
        /// Current Reservation Key.
        crkey: U64,
    }
}

/// Header of the Reservation Status data structure: 24 bytes, registrants follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct StatusHeader {
    /// Generation.
    pub generation: U32,
    /// Reservation Type; 0 is no reservation.
    pub rtype: u8,
    /// Number of Registrants.
    pub regstrnt: U16,
    pub reserved_7: [u8; 2],
    /// Persist Through Power Loss State: 0 or 1.
    pub ptpls: u8,
    pub reserved_10: [u8; 14],
}
layout!(StatusHeader, 24, generation @ 0, rtype @ 4, regstrnt @ 5, ptpls @ 9, reserved_10 @ 10);

/// Header of the extended structure: 64 bytes, extended registrants follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExtendedStatusHeader {
    pub head: StatusHeader,
    pub reserved_24: [u8; 40],
}
layout!(ExtendedStatusHeader, 64, head @ 0, reserved_24 @ 24);

impl ExtendedStatusHeader {
    #[must_use]
    pub const fn new(head: StatusHeader) -> Self {
        Self { head, reserved_24: [0; 40] }
    }
}

/// RCSTS bit 0: the host of this controller holds the reservation.
pub const RCSTS_HOLDS: u8 = 1;
/// CNTLID of a registrant that has no controller in the subsystem (dynamic controllers too).
pub const CNTLID_NONE: u16 = 0xffff;

/// Registrant data structure, 64-bit host identifier: 24 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Registrant {
    pub cntlid: U16,
    /// Reservation Status.
    pub rcsts: u8,
    pub reserved_3: [u8; 5],
    pub hostid: U64,
    pub rkey: U64,
}
layout!(Registrant, 24, cntlid @ 0, rcsts @ 2, hostid @ 8, rkey @ 16);

/// Registrant Extended data structure, 128-bit host identifier: 64 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RegistrantExtended {
    pub cntlid: U16,
    /// Reservation Status.
    pub rcsts: u8,
    pub reserved_3: [u8; 5],
    pub rkey: U64,
    pub hostid: [u8; 16],
    pub reserved_32: [u8; 32],
}
layout!(RegistrantExtended, 64, cntlid @ 0, rcsts @ 2, rkey @ 8, hostid @ 16, reserved_32 @ 32);

impl RegistrantExtended {
    #[must_use]
    pub fn new(cntlid: u16, holds: bool, rkey: u64, hostid: [u8; 16]) -> Self {
        let mut registrant = Self::new_zeroed();
        registrant.cntlid = cntlid.into();
        registrant.rcsts = if holds { RCSTS_HOLDS } else { 0 };
        registrant.rkey = rkey.into();
        registrant.hostid = hostid;
        registrant
    }
}

wire_enum! {
    /// Reservation Notification Log Page Type.
    pub enum Notification: u8 {
        Empty = 0, "Empty Log Page";
        RegistrationPreempted = 1, "Registration Preempted";
        ReservationReleased = 2, "Reservation Released";
        ReservationPreempted = 3, "Reservation Preempted";
    }
}
