//! Identify Namespace (CNS 00h and 11h), the NVM Command Set's parts (CNS 05h and 06h) and the
//! I/O Command Set Independent part (CNS 08h).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{IDENTIFY_BYTES, LBA_FORMATS_MAX};

/// Identify Namespace data structure of the NVM Command Set (CNS 00h, NVM Command Set 4.1.5.1).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Namespace Size, logical blocks.
    pub nsze: U64,
    /// Namespace Capacity, logical blocks.
    pub ncap: U64,
    /// Namespace Utilization, logical blocks.
    pub nuse: U64,
    /// Namespace Features: see [`namespace_bits`].
    pub nsfeat: u8,
    /// Number of LBA Formats, 0's based.
    pub nlbaf: u8,
    /// Formatted LBA Size: format index low bits 3:0 and high bits 6:5, metadata inline bit 4.
    pub flbas: u8,
    /// Metadata Capabilities.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities: bit 0 shared.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// Deallocate Logical Block Features.
    pub dlfeat: u8,
    /// Namespace Atomic Write Unit Normal, logical blocks, 0's based.
    pub nawun: U16,
    /// Namespace Atomic Write Unit Power Fail, logical blocks, 0's based.
    pub nawupf: U16,
    /// Namespace Atomic Compare & Write Unit, logical blocks, 0's based.
    pub nacwu: U16,
    /// Namespace Atomic Boundary Size Normal, logical blocks, 0's based; 0 is none.
    pub nabsn: U16,
    /// Namespace Atomic Boundary Offset, logical blocks.
    pub nabo: U16,
    /// Namespace Atomic Boundary Size Power Fail, logical blocks, 0's based; 0 is none.
    pub nabspf: U16,
    /// Namespace Optimal I/O Boundary, logical blocks.
    pub noiob: U16,
    /// NVM Capacity, bytes.
    pub nvmcap: [u8; 16],
    /// Namespace Preferred Write Granularity, logical blocks, 0's based.
    pub npwg: U16,
    /// Namespace Preferred Write Alignment, logical blocks, 0's based.
    pub npwa: U16,
    /// Namespace Preferred Deallocate Granularity, logical blocks, 0's based.
    pub npdg: U16,
    /// Namespace Preferred Deallocate Alignment, logical blocks, 0's based.
    pub npda: U16,
    /// Namespace Optimal Write Size, logical blocks, 0's based.
    pub nows: U16,
    /// Maximum Single Source Range Length of Copy, logical blocks.
    pub mssrl: U16,
    /// Maximum Copy Length, logical blocks.
    pub mcl: U32,
    /// Maximum Source Range Count of Copy, 0's based.
    pub msrc: u8,
    /// Key Per I/O Status.
    pub kpios: u8,
    /// Number of Unique Attribute LBA Formats.
    pub nulbaf: u8,
    pub reserved_83: u8,
    /// Key Per I/O Data Access Alignment and Granularity.
    pub kpiodaag: U32,
    pub reserved_88: [u8; 4],
    /// ANA Group Identifier.
    pub anagrpid: U32,
    pub reserved_96: [u8; 3],
    /// Namespace Attributes: bit 0 write protected.
    pub nsattr: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Globally Unique Identifier, big endian.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier, big endian.
    pub eui64: [u8; 8],
    /// LBA formats.
    pub lbaf: [LbaFormat; LBA_FORMATS_MAX],
    /// Vendor specific.
    pub vs: [u8; 3712],
}
layout!(
    IdentifyNamespace, IDENTIFY_BYTES, nsze @ 0, ncap @ 8, nuse @ 16, nsfeat @ 24, nlbaf @ 25,
    flbas @ 26, mc @ 27, dpc @ 28, dps @ 29, nmic @ 30, rescap @ 31, fpi @ 32, dlfeat @ 33,
    nawun @ 34, nawupf @ 36, nacwu @ 38, nabsn @ 40, nabo @ 42, nabspf @ 44, noiob @ 46,
    nvmcap @ 48, npwg @ 64, npwa @ 66, npdg @ 68, npda @ 70, nows @ 72, mssrl @ 74, mcl @ 76,
    msrc @ 80, kpios @ 81, nulbaf @ 82, kpiodaag @ 84, anagrpid @ 92, nsattr @ 99,
    nvmsetid @ 100, endgid @ 102, nguid @ 104, eui64 @ 120, lbaf @ 128, vs @ 384,
);

impl Default for IdentifyNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl IdentifyNamespace {
    /// Index of the format in use, from FLBAS bits 6:5 and 3:0.
    #[must_use]
    pub const fn format_index(&self) -> u8 {
        (self.flbas & 0x60) >> 1 | self.flbas & 0x0f
    }

    /// The format in use; `None` when FLBAS points behind the list, which has NLBAF + NULBAF + 1
    /// entries.
    #[must_use]
    pub fn format(&self) -> Option<LbaFormat> {
        let count = usize::from(self.nlbaf) + usize::from(self.nulbaf) + 1;
        let index = usize::from(self.format_index());
        if index < count { self.lbaf.get(index).copied() } else { None }
    }

    /// Bytes of a logical block in the format in use; `None` when that is no power of two of at
    /// least 512.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u32> {
        let lbads = self.format()?.lbads;
        if (9..32).contains(&lbads) { Some(1 << lbads) } else { None }
    }
}

/// LBA Format data structure.
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
pub struct LbaFormat {
    /// Metadata Size, bytes.
    pub ms: U16,
    /// LBA Data Size, 2^n bytes.
    pub lbads: u8,
    /// Relative Performance, bits 1:0: 0 best, 3 degraded.
    pub rp: u8,
}
layout!(LbaFormat, 4, ms @ 0, lbads @ 2, rp @ 3);

/// Named bits of [`IdentifyNamespace`] and [`IndependentNamespace`].
pub mod namespace_bits {
    /// NSFEAT: thin provisioning.
    pub const NSFEAT_THIN: u8 = 1 << 0;
    /// NSFEAT: NAWUN, NAWUPF and NACWU hold for this namespace.
    pub const NSFEAT_ATOMICS: u8 = 1 << 1;
    /// NSFEAT: deallocated or unwritten block error is supported.
    pub const NSFEAT_DULBE: u8 = 1 << 2;
    /// NSFEAT: NGUID and EUI64 are never reused.
    pub const NSFEAT_NO_ID_REUSE: u8 = 1 << 3;
    /// NSFEAT bits 5:4 (OPTPERF) = 01b: NPWG, NPWA, NPDG, NPDA and NOWS are defined.
    pub const NSFEAT_OPTPERF: u8 = 0b01 << 4;
    /// NMIC: the namespace may be attached to two or more controllers at once.
    pub const NMIC_SHARED: u8 = 1 << 0;
    /// DLFEAT bits 2:0 = 001b: a deallocated block reads as zeroes.
    pub const DLFEAT_READS_ZEROES: u8 = 0b001;
    /// DLFEAT: the Deallocate bit of Write Zeroes is supported.
    pub const DLFEAT_WRITE_ZEROES_DEALLOCATE: u8 = 1 << 3;
    /// RESCAP: Persist Through Power Loss.
    pub const RESCAP_PTPL: u8 = 1 << 0;
    /// RESCAP: all six reservation types.
    pub const RESCAP_ALL_TYPES: u8 = 0b111_1110;
    /// RESCAP: Ignore Existing Key as of specification 1.3 and later.
    pub const RESCAP_IEKEY_1_3: u8 = 1 << 7;
    /// Independent NSFEAT: User Data of deallocated blocks is unpredictable; bit 3 as NSFEAT's.
    pub const INDEPENDENT_NSFEAT_NO_ID_REUSE: u8 = 1 << 3;
    /// Independent NSFEAT: the media does not rotate when clear.
    pub const INDEPENDENT_NSFEAT_ROTATIONAL: u8 = 1 << 4;
    /// Independent NSFEAT (VWCNP): the namespace has no volatile write cache, whatever its controller's VWC says.
    pub const INDEPENDENT_NSFEAT_NO_VOLATILE_CACHE: u8 = 1 << 5;
    /// NSTAT: the namespace is ready.
    pub const NSTAT_READY: u8 = 1 << 0;
}

/// I/O Command Set Independent Identify Namespace (CNS 08h, section 5.1.13.2.8).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndependentNamespace {
    /// Common namespace features.
    pub nsfeat: u8,
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    pub anagrpid: U32,
    pub nsattr: u8,
    pub reserved_9: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    /// Namespace Status: bit 0 ready.
    pub nstat: u8,
    /// Key Per I/O Status.
    pub kpios: u8,
    /// Maximum Key Tag.
    pub maxkt: U16,
    pub reserved_18: [u8; 2],
    /// Reachability Group Identifier.
    pub rgrpid: U32,
    pub reserved_24: [u8; 4072],
}
layout!(
    IndependentNamespace, IDENTIFY_BYTES, nsfeat @ 0, nmic @ 1, rescap @ 2, fpi @ 3,
    anagrpid @ 4, nsattr @ 8, nvmsetid @ 10, endgid @ 12, nstat @ 14, kpios @ 15, maxkt @ 16,
    rgrpid @ 20, reserved_24 @ 24,
);

impl Default for IndependentNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// NVM Command Set specific Identify Namespace (CNS 05h, CSI 00h; NVM Command Set 4.1.5.3).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmIdentifyNamespace {
    /// Logical Block Storage Tag Mask.
    pub lbstm: U64,
    /// Protection Information Capabilities.
    pub pic: u8,
    /// Protection Information Format Attributes.
    pub pifa: u8,
    pub reserved_10: [u8; 2],
    /// Extended LBA formats, one for each LBA format.
    pub elbaf: [U32; LBA_FORMATS_MAX],
    /// Namespace Preferred Deallocate Granularity Large, logical blocks.
    pub npdgl: U32,
    /// Namespace Preferred Read Granularity, logical blocks.
    pub nprg: U32,
    /// Namespace Preferred Read Alignment, logical blocks.
    pub npra: U32,
    /// Namespace Optimal Read Size, logical blocks.
    pub nors: U32,
    /// Namespace Preferred Deallocate Alignment Large, logical blocks.
    pub npdal: U32,
    /// Logical Block Access Physical Start Sector.
    pub lbapss: U32,
    /// Tracked LBA Allocation Granularity, logical blocks.
    pub tlbaag: U32,
    pub reserved_296: [u8; 3800],
}
layout!(
    NvmIdentifyNamespace, IDENTIFY_BYTES, lbstm @ 0, pic @ 8, pifa @ 9, elbaf @ 12, npdgl @ 268,
    nprg @ 272, npra @ 276, nors @ 280, npdal @ 284, lbapss @ 288, tlbaag @ 292,
    reserved_296 @ 296,
);

impl Default for NvmIdentifyNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// NVM Command Set specific Identify Controller (CNS 06h, CSI 00h; NVM Command Set 4.1.5.4).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmIdentifyController {
    /// Verify Size Limit, 2^n of the smallest memory page; 0 is no limit.
    pub vsl: u8,
    /// Write Zeroes Size Limit, likewise.
    pub wzsl: u8,
    /// Write Uncorrectable Size Limit, likewise.
    pub wusl: u8,
    /// Dataset Management Ranges Limit; 0 is none.
    pub dmrl: u8,
    /// Dataset Management Range Size Limit, logical blocks; 0 is none.
    pub dmrsl: U32,
    /// Dataset Management Size Limit, logical blocks; 0 is none.
    pub dmsl: U64,
    /// Key Per I/O Capabilities.
    pub kpiocap: u8,
    /// Write Zeroes With Deallocate Size Limit, as WZSL.
    pub wzdsl: u8,
    /// Admin Optional Command Support.
    pub aocs: U16,
    /// Version of the NVM Command Set Specification.
    pub ver: U32,
    /// LBA Migration Queue Format.
    pub lbamqf: u8,
    pub reserved_25: [u8; 4071],
}
layout!(
    NvmIdentifyController, IDENTIFY_BYTES, vsl @ 0, wzsl @ 1, wusl @ 2, dmrl @ 3, dmrsl @ 4,
    dmsl @ 8, kpiocap @ 16, wzdsl @ 17, aocs @ 18, ver @ 20, lbamqf @ 24, reserved_25 @ 25,
);

impl Default for NvmIdentifyController {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
