//! Numbers and layouts of the NBD protocol (`doc/proto.md` of the NBD project), big-endian on the wire.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `NBDMAGIC`, the first word of a server.
pub const HELLO: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: newstyle negotiation, and the first word of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flags, the server's.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Handshake flags, the client's.
pub const CLIENT_FIXED_NEWSTYLE: u32 = 1;
pub const CLIENT_NO_ZEROES: u32 = 1 << 1;

/// Options.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of option replies.
pub mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR | 1;
    pub const ERR_INVALID: u32 = ERROR | 3;
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    pub const ERR_TOO_BIG: u32 = ERROR | 9;
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR | 10;
}

/// Types of information.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
pub mod transmission {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Request types.
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Request flags.
pub mod flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types and flags of chunks.
pub mod chunk {
    /// The last of its reply.
    pub const DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const BLOCK_STATUS_EXT: u16 = 6;
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// The metadata context that every server with block status has: what is a hole, what reads as zeroes.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its identifier.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// What a server says first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Hello {
    pub magic: U64,
    pub style: U64,
    pub flags: U16,
}
const _: () = assert!(size_of::<Hello>() == 18);

/// Before an option's data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OptionHead {
    pub magic: U64,
    pub option: U32,
    pub length: U32,
}
const _: () = assert!(size_of::<OptionHead>() == 16);

/// Before the data of an option's reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OptionReply {
    pub magic: U64,
    pub option: U32,
    pub kind: U32,
    pub length: U32,
}
const _: () = assert!(size_of::<OptionReply>() == 20);

/// `NBD_INFO_EXPORT`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InfoExport {
    pub kind: U16,
    pub size: U64,
    pub flags: U16,
}
const _: () = assert!(size_of::<InfoExport>() == 12);

/// `NBD_INFO_BLOCK_SIZE`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InfoBlockSize {
    pub kind: U16,
    pub minimum: U32,
    pub preferred: U32,
    pub maximum: U32,
}
const _: () = assert!(size_of::<InfoBlockSize>() == 14);

/// A request with compact header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CompactRequest {
    pub magic: U32,
    pub flags: U16,
    pub command: U16,
    pub cookie: U64,
    pub offset: U64,
    pub length: U32,
}
const _: () = assert!(size_of::<CompactRequest>() == 28);

/// A request with extended header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtendedRequest {
    pub magic: U32,
    pub flags: U16,
    pub command: U16,
    pub cookie: U64,
    pub offset: U64,
    pub length: U64,
}
const _: () = assert!(size_of::<ExtendedRequest>() == 32);

/// A simple reply; the data of a read follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SimpleReply {
    pub magic: U32,
    pub error: U32,
    pub cookie: U64,
}
const _: () = assert!(size_of::<SimpleReply>() == 16);

/// Before the payload of a chunk of a structured reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StructuredReply {
    pub magic: U32,
    pub flags: U16,
    pub kind: U16,
    pub cookie: U64,
    pub length: U32,
}
const _: () = assert!(size_of::<StructuredReply>() == 20);

/// The same with extended headers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtendedReply {
    pub magic: U32,
    pub flags: U16,
    pub kind: U16,
    pub cookie: U64,
    pub offset: U64,
    pub length: U64,
}
const _: () = assert!(size_of::<ExtendedReply>() == 32);

/// The payload of `BLOCK_STATUS` for one context and one extent.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Extent {
    pub context: U32,
    pub length: U32,
    pub flags: U32,
}
const _: () = assert!(size_of::<Extent>() == 12);

/// The payload of `BLOCK_STATUS_EXT` likewise.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtendedExtent {
    pub context: U32,
    pub count: U32,
    pub length: U64,
    pub flags: U64,
}
const _: () = assert!(size_of::<ExtendedExtent>() == 24);
