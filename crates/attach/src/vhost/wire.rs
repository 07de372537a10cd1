//! The vhost-user protocol and virtio-blk in bytes.
//!
//! Sources: QEMU's `docs/interop/vhost-user.rst` and the Virtual I/O Device specification 1.2, whose sections are
//! named where they are obeyed. vhost-user is in the byte order of the machine; those that this is built for are
//! little-endian, as virtio is.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(target_endian = "big")]
compile_error!(
    "vhost-user is spoken in the machine's byte order, which is taken for little-endian"
);

/// Before every message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    pub request: U32,
    pub flags: U32,
    /// Bytes of the payload.
    pub size: U32,
}
const _: () = assert!(size_of::<Header>() == 12);

/// Bits of [`Header::flags`].
pub mod flag {
    pub const VERSION_MASK: u32 = 0b11;
    pub const VERSION: u32 = 1;
    pub const REPLY: u32 = 1 << 2;
    pub const NEED_REPLY: u32 = 1 << 3;
}

/// What a front end asks for ([`Header::request`]).
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// What the back end tells ([`Header::request`] on its own channel).
pub mod notice {
    pub const CONFIG_CHANGE: u32 = 2;
}

/// Features of the protocol itself.
pub mod protocol_feature {
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT: u64 = 1 << 12;
}

/// Features of the device and of its rings (section 5.2.3, section 6).
pub mod feature {
    pub const SEG_MAX: u64 = 1 << 2;
    pub const READ_ONLY: u64 = 1 << 5;
    pub const BLOCK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const MQ: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
    pub const INDIRECT: u64 = 1 << 28;
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// vhost-user's own: the features of the protocol may be asked for.
    pub const PROTOCOL: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
}

/// A ring and a number: its size, where it goes on, whether it is enabled.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RingState {
    pub index: U32,
    pub number: U32,
}
const _: () = assert!(size_of::<RingState>() == 8);

/// Where a ring's parts are, as addresses of the front end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RingAddress {
    pub index: U32,
    pub flags: U32,
    pub descriptors: U64,
    pub used: U64,
    pub available: U64,
    pub log: U64,
}
const _: () = assert!(size_of::<RingAddress>() == 40);

/// The number of regions that follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MemoryTable {
    pub regions: U32,
    pub padding: U32,
}
const _: () = assert!(size_of::<MemoryTable>() == 8);

/// A region of the guest's memory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RegionHead {
    /// Where the guest sees it.
    pub guest: U64,
    /// Bytes.
    pub size: U64,
    /// Where the front end sees it.
    pub front_end: U64,
    /// Where it begins in its file.
    pub offset: U64,
}
const _: () = assert!(size_of::<RegionHead>() == 32);

/// Before bytes of the configuration space.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConfigHead {
    pub offset: U32,
    pub size: U32,
    pub flags: U32,
}
const _: () = assert!(size_of::<ConfigHead>() == 12);

/// Memory in which a device says what it has in flight.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InflightHead {
    pub bytes: U64,
    /// Where it begins in its file.
    pub offset: U64,
    pub queues: U16,
    /// Entries of each.
    pub size: U16,
}
const _: () = assert!(size_of::<InflightHead>() == 20);

/// Of one queue: what comes before its requests.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InflightTable {
    pub features: U64,
    pub version: U16,
    pub count: U16,
    /// The chain that was given back last.
    pub last: U16,
    /// The used ring's index then.
    pub used: U16,
}
const _: () = assert!(size_of::<InflightTable>() == 16);

impl InflightTable {
    pub const VERSION: usize = std::mem::offset_of!(Self, version);
    pub const COUNT: usize = std::mem::offset_of!(Self, count);
    pub const LAST: usize = std::mem::offset_of!(Self, last);
    pub const USED: usize = std::mem::offset_of!(Self, used);
}

/// One request, by its chain's head.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InflightRequest {
    pub taken: u8,
    pub unused: [u8; 5],
    /// The one given back before it.
    pub next: U16,
    pub counter: U64,
}
const _: () = assert!(size_of::<InflightRequest>() == 16);

impl InflightRequest {
    pub const NEXT: usize = std::mem::offset_of!(Self, next);
    pub const COUNTER: usize = std::mem::offset_of!(Self, counter);
}

/// Of a ring's number, in place of one: there is no descriptor with the message.
pub const NO_FD: u64 = 1 << 8;

/// An entry of a descriptor table (section 2.7.5).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Descriptor {
    pub address: U64,
    pub length: U32,
    pub flags: U16,
    pub next: U16,
}
const _: () = assert!(size_of::<Descriptor>() == 16);

/// Bits of [`Descriptor::flags`].
pub mod descriptor {
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 2;
    pub const INDIRECT: u16 = 4;
}

/// An entry of a used ring (section 2.7.8).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Used {
    pub head: U32,
    pub length: U32,
}
const _: () = assert!(size_of::<Used>() == 8);

/// The configuration space of a block device (section 5.2.4), as far as it is used.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Config {
    /// Units of 512 bytes, as are all that are called sectors.
    pub capacity: U64,
    pub size_max: U32,
    pub seg_max: U32,
    pub geometry: [u8; 4],
    pub block_size: U32,
    /// Logical blocks in a physical one, as a power of two.
    pub physical_exponent: u8,
    pub alignment_offset: u8,
    /// Logical blocks.
    pub min_io_size: U16,
    /// Logical blocks.
    pub opt_io_size: U32,
    pub writeback: u8,
    pub unused: u8,
    pub queues: U16,
    pub discard_sectors_max: U32,
    pub discard_segments_max: U32,
    pub discard_alignment: U32,
    pub zeroes_sectors_max: U32,
    pub zeroes_segments_max: U32,
    pub zeroes_may_unmap: u8,
    pub unused1: [u8; 3],
}
const _: () = assert!(size_of::<Config>() == 60);
const _: () = assert!(std::mem::offset_of!(Config, block_size) == 20);
const _: () = assert!(std::mem::offset_of!(Config, queues) == 34);
const _: () = assert!(std::mem::offset_of!(Config, zeroes_may_unmap) == 56);

/// The head of a request (section 5.2.6).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RequestHead {
    pub kind: U32,
    pub reserved: U32,
    pub sector: U64,
}
const _: () = assert!(size_of::<RequestHead>() == 16);

/// [`RequestHead::kind`].
pub mod kind {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// A range of a discard or of write zeroes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RangeHead {
    pub sector: U64,
    pub sectors: U32,
    pub flags: U32,
}
const _: () = assert!(size_of::<RangeHead>() == 16);

/// Of [`RangeHead::flags`]: the zeroes may be deallocated.
pub const UNMAP: u32 = 1;

/// The last byte of a request, which the device writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    Ok = 0,
    Error = 1,
    Unsupported = 2,
}

/// Bytes of what GET_ID answers.
pub const ID_BYTES: usize = 20;
