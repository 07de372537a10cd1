//! The PDUs of NVMe/TCP as they stand on the wire (NVMe TCP Transport Specification 1.1, section
//! 3.6.2): one structure for each header, every offset asserted under it.
//!
//! A PDU is its header (HLEN bytes), a header digest when negotiated, padding up to PDO, data, and a
//! data digest when negotiated; PLEN counts all of it. [`crate::tcp`] gives these meaning.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::cqe::Cqe;
use crate::sqe::Sqe;

/// FLAGS bit 0, HDGSTF: a header digest follows the header.
pub const FLAG_HDGST: u8 = 1 << 0;
/// FLAGS bit 1, DDGSTF: a data digest follows the data.
pub const FLAG_DDGST: u8 = 1 << 1;
/// FLAGS bit 2, LAST_PDU: the last data PDU of its set (H2CData and C2HData only).
pub const FLAG_LAST: u8 = 1 << 2;
/// FLAGS bit 3, SUCCESS: the command is complete and no CapsuleResp follows (C2HData only).
pub const FLAG_SUCCESS: u8 = 1 << 3;

/// The only PDU Format Version there is.
pub const PFV_1_0: u16 = 0;
/// DGST bit 0, HDGST_ENABLE.
pub const DGST_HEADER: u8 = 1 << 0;
/// DGST bit 1, DDGST_ENABLE.
pub const DGST_DATA: u8 = 1 << 1;
/// Bytes of a header digest and of a data digest.
pub const DIGEST_BYTES: usize = 4;

wire_enum! {
    /// PDU-Type, byte 0 of every PDU.
    pub enum PduType: u8 {
        IcReq = 0x00, "ICReq";
        IcResp = 0x01, "ICResp";
        H2cTermReq = 0x02, "H2CTermReq";
        C2hTermReq = 0x03, "C2HTermReq";
        CapsuleCmd = 0x04, "CapsuleCmd";
        CapsuleResp = 0x05, "CapsuleResp";
        H2cData = 0x06, "H2CData";
        C2hData = 0x07, "C2HData";
        R2t = 0x09, "R2T";
    }
}

wire_enum! {
    /// Fatal Error Status (FES) of a terminate connection request.
    pub enum Fes: u16 {
        /// FEI is the byte offset of the field in the PDU header.
        InvalidPduHeaderField = 0x01, "Invalid PDU Header Field";
        PduSequenceError = 0x02, "PDU Sequence Error";
        /// FEI is the header digest as it was received.
        HeaderDigestError = 0x03, "Header Digest Error";
        DataTransferOutOfRange = 0x04, "Data Transfer Out of Range";
        /// One code for two things: in a C2HTermReq the data transfer limit, in an H2CTermReq the
        /// R2T limit.
        LimitExceeded = 0x05, "Data Transfer Limit Exceeded or R2T Limit Exceeded";
        /// FEI is the byte offset of the parameter in the PDU header.
        UnsupportedParameter = 0x06, "Unsupported Parameter";
    }
}

/// Declares a header structure with the derives that every wire structure has.
macro_rules! header {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
            Unaligned,
        )]
        #[repr(C)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)+ }
    };
}

header! {
    /// The common header (CH) that starts every PDU.
    pub struct CommonHeader {
        /// PDU-Type; see [`PduType`].
        pub pdu_type: u8,
        /// FLAGS.
        pub flags: u8,
        /// Length of the PDU header in bytes, the header digest not counted.
        pub hlen: u8,
        /// Offset of the data from the start of the PDU, in bytes; reserved in a PDU without data.
        pub pdo: u8,
        /// Length of the whole PDU in bytes, digests and padding counted.
        pub plen: U32,
    }
}
layout!(CommonHeader, 8, pdu_type @ 0, flags @ 1, hlen @ 2, pdo @ 3, plen @ 4);

header! {
    /// Initialize Connection Request, host to controller (section 3.6.2.2).
    pub struct IcReq {
        pub ch: CommonHeader,
        /// PDU Format Version.
        pub pfv: U16,
        /// Host PDU Data Alignment: 0's based dwords, 0 to 31; for data from the controller.
        pub hpda: u8,
        /// Digests the host asks for.
        pub dgst: u8,
        /// Maximum outstanding R2Ts of one command, 0's based.
        pub maxr2t: U32,
        pub reserved: [u8; 112],
    }
}
layout!(IcReq, 128, ch @ 0, pfv @ 8, hpda @ 10, dgst @ 11, maxr2t @ 12, reserved @ 16);

header! {
    /// Initialize Connection Response, controller to host (section 3.6.2.3).
    pub struct IcResp {
        pub ch: CommonHeader,
        /// PDU Format Version.
        pub pfv: U16,
        /// Controller PDU Data Alignment: 0's based dwords, 0 to 31; for data from the host.
        pub cpda: u8,
        /// Digests that are on from now.
        pub dgst: u8,
        /// Most data bytes in one H2CData PDU: a multiple of four, at least 4096.
        pub maxh2cdata: U32,
        pub reserved: [u8; 112],
    }
}
layout!(IcResp, 128, ch @ 0, pfv @ 8, cpda @ 10, dgst @ 11, maxh2cdata @ 12, reserved @ 16);

header! {
    /// Terminate connection request of either direction (sections 3.6.2.4 and 3.6.2.5). Behind it
    /// stands the header of the PDU in error.
    pub struct TermReq {
        pub ch: CommonHeader,
        /// Fatal Error Status; see [`Fes`].
        pub fes: U16,
        /// Fatal Error Information.
        pub fei: U32,
        pub reserved: [u8; 10],
    }
}
layout!(TermReq, 24, ch @ 0, fes @ 8, fei @ 10, reserved @ 14);

header! {
    /// Command capsule (section 3.6.2.6).
    pub struct CapsuleCmd {
        pub ch: CommonHeader,
        pub sqe: Sqe,
    }
}
layout!(CapsuleCmd, 72, ch @ 0, sqe @ 8);

header! {
    /// Response capsule (section 3.6.2.7).
    pub struct CapsuleResp {
        pub ch: CommonHeader,
        pub cqe: Cqe,
    }
}
layout!(CapsuleResp, 24, ch @ 0, cqe @ 8);

header! {
    /// Host to controller data (section 3.6.2.8).
    pub struct H2cData {
        pub ch: CommonHeader,
        /// Command Capsule CID.
        pub cccid: U16,
        /// Transfer Tag of the R2T this answers.
        pub ttag: U16,
        /// Offset of this data in the command's data buffer, bytes.
        pub datao: U32,
        /// Length of this data, bytes.
        pub datal: U32,
        pub reserved: [u8; 4],
    }
}
layout!(H2cData, 24, ch @ 0, cccid @ 8, ttag @ 10, datao @ 12, datal @ 16, reserved @ 20);

header! {
    /// Controller to host data (section 3.6.2.9).
    pub struct C2hData {
        pub ch: CommonHeader,
        /// Command Capsule CID.
        pub cccid: U16,
        pub reserved10: [u8; 2],
        /// Offset of this data in the command's data buffer, bytes.
        pub datao: U32,
        /// Length of this data, bytes.
        pub datal: U32,
        pub reserved20: [u8; 4],
    }
}
layout!(C2hData, 24, ch @ 0, cccid @ 8, reserved10 @ 10, datao @ 12, datal @ 16, reserved20 @ 20);

header! {
    /// Ready to transfer, controller to host (section 3.6.2.10).
    pub struct R2t {
        pub ch: CommonHeader,
        /// Command Capsule CID.
        pub cccid: U16,
        /// Transfer Tag, chosen by the controller.
        pub ttag: U16,
        /// Offset in the command's data buffer of the data asked for, bytes.
        pub r2to: U32,
        /// Length of the data asked for, bytes.
        pub r2tl: U32,
        pub reserved: [u8; 4],
    }
}
layout!(R2t, 24, ch @ 0, cccid @ 8, ttag @ 10, r2to @ 12, r2tl @ 16, reserved @ 20);

impl PduType {
    /// Length in bytes of this PDU's header: the only HLEN that is right for it.
    #[must_use]
    pub const fn header_bytes(self) -> u8 {
        match self {
            Self::IcReq | Self::IcResp => 128,
            Self::CapsuleCmd => 72,
            Self::H2cTermReq
            | Self::C2hTermReq
            | Self::CapsuleResp
            | Self::H2cData
            | Self::C2hData
            | Self::R2t => 24,
        }
    }
}

macro_rules! header_bytes_match {
    ($($variant:ident => $type:ty),+ $(,)?) => {
        $(const _: () = assert!(PduType::$variant.header_bytes() as usize == size_of::<$type>());)+
    };
}
header_bytes_match!(
    IcReq => IcReq, IcResp => IcResp, H2cTermReq => TermReq, C2hTermReq => TermReq,
    CapsuleCmd => CapsuleCmd, CapsuleResp => CapsuleResp, H2cData => H2cData, C2hData => C2hData,
    R2t => R2t,
);

impl IcReq {
    /// An ICReq of version 1.0; `hpda` in 0's based dwords, `maxr2t` 0's based, `dgst` a set of
    /// [`DGST_HEADER`] and [`DGST_DATA`].
    #[must_use]
    pub fn new(hpda: u8, dgst: u8, maxr2t: u32) -> Self {
        let mut pdu = Self::new_zeroed();
        pdu.ch = CommonHeader::whole(PduType::IcReq);
        pdu.hpda = hpda;
        pdu.dgst = dgst;
        pdu.maxr2t = maxr2t.into();
        pdu
    }
}

impl IcResp {
    /// An ICResp of version 1.0; `cpda` in 0's based dwords, `maxh2cdata` in bytes.
    #[must_use]
    pub fn new(cpda: u8, dgst: u8, maxh2cdata: u32) -> Self {
        let mut pdu = Self::new_zeroed();
        pdu.ch = CommonHeader::whole(PduType::IcResp);
        pdu.cpda = cpda;
        pdu.dgst = dgst;
        pdu.maxh2cdata = maxh2cdata.into();
        pdu
    }
}

impl CommonHeader {
    /// The common header of a PDU that is its header and nothing else.
    #[must_use]
    pub fn whole(pdu_type: PduType) -> Self {
        let hlen = pdu_type.header_bytes();
        Self { pdu_type: pdu_type.raw(), flags: 0, hlen, pdo: 0, plen: u32::from(hlen).into() }
    }
}
