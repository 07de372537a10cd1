//! Lists of what a subsystem is made of: NVM sets (CNS 04h), namespace granularities (16h), UUIDs
//! (17h), domains (18h) and endurance groups (19h).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ControllerList;
use crate::limits::IDENTIFY_BYTES;

/// Namespace granularity descriptors in one list.
pub const GRANULARITIES_MAX: usize = 16;
/// UUIDs in one list.
pub const UUIDS_MAX: usize = 127;
/// Domains, or NVM sets, in one list.
pub const DOMAINS_MAX: usize = 31;

/// Endurance Group List: a count, then identifiers ascending, laid out as a controller list.
pub type EnduranceGroupList = ControllerList;

/// Namespace Granularity List.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GranularityList {
    /// Bit 0 Granularity Descriptor Mapping: descriptor n is for LBA format n.
    pub attributes: U32,
    /// Number of Descriptors, 0's based.
    pub num: u8,
    pub reserved_5: [u8; 27],
    pub descriptors: [Granularity; GRANULARITIES_MAX],
    pub reserved_288: [u8; 3808],
}
layout!(
    GranularityList, IDENTIFY_BYTES, attributes @ 0, num @ 4, descriptors @ 32,
    reserved_288 @ 288,
);

/// Namespace Granularity Descriptor: 16 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Granularity {
    /// Namespace Size Granularity, bytes.
    pub nszegran: U64,
    /// Namespace Capacity Granularity, bytes.
    pub ncapgran: U64,
}
layout!(Granularity, 16, nszegran @ 0, ncapgran @ 8);

impl Default for GranularityList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// UUID List: the first all zero entry ends it.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UuidList {
    pub reserved_0: [u8; 32],
    /// UUID Index n is entry n - 1.
    pub entries: [UuidEntry; UUIDS_MAX],
}
layout!(UuidList, IDENTIFY_BYTES, entries @ 32);

/// UUID List Entry: 32 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UuidEntry {
    /// Identifier Association, bits 1:0: 0 none, 1 PCI vendor, 2 PCI subsystem vendor.
    pub header: u8,
    pub reserved_1: [u8; 15],
    pub uuid: [u8; 16],
}
layout!(UuidEntry, 32, header @ 0, uuid @ 16);

impl Default for UuidList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Domain List.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DomainList {
    /// Number of Domain Entries.
    pub num: u8,
    pub reserved_1: [u8; 127],
    pub entries: [DomainEntry; DOMAINS_MAX],
}
layout!(DomainList, IDENTIFY_BYTES, num @ 0, entries @ 128);

impl Default for DomainList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Domain Attributes Entry: 128 bytes; capacities in bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DomainEntry {
    pub id: U16,
    pub reserved_2: [u8; 14],
    /// Total Domain Capacity.
    pub capacity: [u8; 16],
    /// Unallocated Domain Capacity.
    pub unallocated: [u8; 16],
    /// Max Endurance Group Domain Capacity.
    pub endurance_group_max: [u8; 16],
    pub reserved_64: [u8; 64],
}
layout!(DomainEntry, 128, id @ 0, capacity @ 16, unallocated @ 32, endurance_group_max @ 48);

/// NVM Set List.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmSetList {
    /// Number of Identifiers.
    pub num: u8,
    pub reserved_1: [u8; 127],
    pub entries: [NvmSet; DOMAINS_MAX],
}
layout!(NvmSetList, IDENTIFY_BYTES, num @ 0, entries @ 128);

impl Default for NvmSetList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// NVM Set Attributes Entry: 128 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmSet {
    pub id: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    pub reserved_4: [u8; 4],
    /// Random 4 KiB Read Typical, 100 ns.
    pub random_read: U32,
    /// Optimal Write Size, bytes.
    pub optimal_write: U32,
    /// Total NVM Set Capacity, bytes.
    pub capacity: [u8; 16],
    /// Unallocated NVM Set Capacity, bytes.
    pub unallocated: [u8; 16],
    pub reserved_48: [u8; 80],
}
layout!(
    NvmSet, 128, id @ 0, endgid @ 2, random_read @ 8, optimal_write @ 12, capacity @ 16,
    unallocated @ 32, reserved_48 @ 48,
);
