//! Identify Controller, CNS 01h (section 5.1.13.2.1).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{IDENTIFY_BYTES, NQN_FIELD_BYTES, POWER_STATES_MAX};

/// Identify Controller data structure.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI Vendor ID.
    pub vid: U16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: U16,
    /// Serial Number, ASCII padded with spaces.
    pub sn: [u8; 20],
    /// Model Number, ASCII padded with spaces.
    pub mn: [u8; 40],
    /// Firmware Revision, ASCII padded with spaces.
    pub fr: [u8; 8],
    /// Recommended Arbitration Burst, 2^n commands.
    pub rab: u8,
    /// IEEE OUI Identifier.
    pub ieee: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities.
    pub cmic: u8,
    /// Maximum Data Transfer Size, 2^n of the smallest memory page; 0 is no limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: U16,
    /// Version.
    pub ver: U32,
    /// RTD3 Resume Latency, microseconds.
    pub rtd3r: U32,
    /// RTD3 Entry Latency, microseconds.
    pub rtd3e: U32,
    /// Optional Asynchronous Events Supported.
    pub oaes: U32,
    /// Controller Attributes.
    pub ctratt: U32,
    /// Read Recovery Levels Supported.
    pub rrls: U16,
    /// Boot Partition Capabilities.
    pub bpcap: u8,
    pub reserved_103: u8,
    /// NVM Subsystem Shutdown Latency, microseconds.
    pub nssl: U32,
    pub reserved_108: [u8; 2],
    /// Power Loss Signaling Information.
    pub plsi: u8,
    /// Controller Type: see [`bits::CNTRLTYPE_IO`] and its siblings.
    pub cntrltype: u8,
    /// FRU Globally Unique Identifier.
    pub fguid: [u8; 16],
    /// Command Retry Delay Times 1 to 3, 100 ms.
    pub crdt1: U16,
    pub crdt2: U16,
    pub crdt3: U16,
    /// Controller Reachability Capabilities.
    pub crcap: u8,
    pub reserved_135: [u8; 105],
    pub reserved_mi: [u8; 13],
    /// NVM Subsystem Report.
    pub nvmsr: u8,
    /// VPD Write Cycle Information.
    pub vwci: u8,
    /// Management Endpoint Capabilities.
    pub mec: u8,
    /// Optional Admin Command Support.
    pub oacs: U16,
    /// Abort Command Limit, 0's based.
    pub acl: u8,
    /// Asynchronous Event Request Limit, 0's based.
    pub aerl: u8,
    /// Firmware Updates.
    pub frmw: u8,
    /// Log Page Attributes.
    pub lpa: u8,
    /// Error Log Page Entries, 0's based.
    pub elpe: u8,
    /// Number of Power States Support, 0's based.
    pub npss: u8,
    /// Admin Vendor Specific Command Configuration.
    pub avscc: u8,
    /// Autonomous Power State Transition Attributes.
    pub apsta: u8,
    /// Warning Composite Temperature Threshold, kelvin.
    pub wctemp: U16,
    /// Critical Composite Temperature Threshold, kelvin.
    pub cctemp: U16,
    /// Maximum Time for Firmware Activation, 100 ms.
    pub mtfa: U16,
    /// Host Memory Buffer Preferred Size, 4 KiB.
    pub hmpre: U32,
    /// Host Memory Buffer Minimum Size, 4 KiB.
    pub hmmin: U32,
    /// Total NVM Capacity, bytes.
    pub tnvmcap: [u8; 16],
    /// Unallocated NVM Capacity, bytes.
    pub unvmcap: [u8; 16],
    /// Replay Protected Memory Block Support.
    pub rpmbs: U32,
    /// Extended Device Self-test Time, minutes.
    pub edstt: U16,
    /// Device Self-test Options.
    pub dsto: u8,
    /// Firmware Update Granularity, 4 KiB; FFh is none.
    pub fwug: u8,
    /// Keep Alive Support: granularity of the timer, 100 ms; 0 is not supported.
    pub kas: U16,
    /// Host Controlled Thermal Management Attributes.
    pub hctma: U16,
    /// Minimum Thermal Management Temperature, kelvin.
    pub mntmt: U16,
    /// Maximum Thermal Management Temperature, kelvin.
    pub mxtmt: U16,
    /// Sanitize Capabilities.
    pub sanicap: U32,
    /// Host Memory Buffer Minimum Descriptor Entry Size, 4 KiB.
    pub hmminds: U32,
    /// Host Memory Maximum Descriptors Entries.
    pub hmmaxd: U16,
    /// NVM Set Identifier Maximum.
    pub nsetidmax: U16,
    /// Endurance Group Identifier Maximum.
    pub endgidmax: U16,
    /// ANA Transition Time, seconds.
    pub anatt: u8,
    /// Asymmetric Namespace Access Capabilities.
    pub anacap: u8,
    /// ANA Group Identifier Maximum.
    pub anagrpmax: U32,
    /// Number of ANA Group Identifiers.
    pub nanagrpid: U32,
    /// Persistent Event Log Size, 64 KiB.
    pub pels: U32,
    /// Domain Identifier.
    pub domainid: U16,
    /// Key Per I/O Capabilities.
    pub kpioc: u8,
    pub reserved_359: u8,
    /// Maximum Processing Time for Firmware Activation Without Reset, 100 ms.
    pub mptfawr: U16,
    pub reserved_362: [u8; 6],
    /// Max Endurance Group Capacity, bytes.
    pub megcap: [u8; 16],
    /// Temperature Threshold Hysteresis Attributes.
    pub tmpthha: u8,
    pub reserved_385: u8,
    /// Command Quiesce Time, milliseconds.
    pub cqt: U16,
    pub reserved_388: [u8; 124],
    /// Submission Queue Entry Size: required 3:0, maximum 7:4, 2^n bytes.
    pub sqes: u8,
    /// Completion Queue Entry Size: likewise.
    pub cqes: u8,
    /// Maximum Outstanding Commands.
    pub maxcmd: U16,
    /// Number of Namespaces.
    pub nn: U32,
    /// Optional NVM Command Support.
    pub oncs: U16,
    /// Fused Operation Support.
    pub fuses: U16,
    /// Format NVM Attributes.
    pub fna: u8,
    /// Volatile Write Cache.
    pub vwc: u8,
    /// Atomic Write Unit Normal, logical blocks, 0's based.
    pub awun: U16,
    /// Atomic Write Unit Power Fail, logical blocks, 0's based.
    pub awupf: U16,
    /// I/O Command Set Vendor Specific Command Configuration.
    pub icsvscc: u8,
    /// Namespace Write Protection Capabilities.
    pub nwpc: u8,
    /// Atomic Compare & Write Unit, logical blocks, 0's based.
    pub acwu: U16,
    /// Copy Descriptor Formats Supported, one bit a format.
    pub cdfs: U16,
    /// SGL Support.
    pub sgls: U32,
    /// Maximum Number of Allowed Namespaces; 0 is as NN says.
    pub mnan: U32,
    /// Maximum Domain Namespace Attachments.
    pub maxdna: [u8; 16],
    /// Maximum I/O Controller Namespace Attachments.
    pub maxcna: U32,
    /// Optimal Aggregated Queue Depth.
    pub oaqd: U32,
    /// Recommended Host-Initiated Refresh Interval, days.
    pub rhiri: u8,
    /// Host-Initiated Refresh Time, hours.
    pub hirt: u8,
    /// Controller Maximum Memory Range Tracking Descriptors.
    pub cmmrtd: U16,
    /// NVM Subsystem Maximum Memory Range Tracking Descriptors.
    pub nmmrtd: U16,
    /// Minimum Memory Range Tracking Granularity, 2^n pages.
    pub minmrtg: u8,
    /// Maximum Memory Range Tracking Granularity, 2^n pages.
    pub maxmrtg: u8,
    /// Tracking Attributes.
    pub trattr: u8,
    pub reserved_577: u8,
    /// Maximum Controller User Data Migration Queues.
    pub mcudmq: U16,
    /// Maximum NVM Subsystem User Data Migration Queues.
    pub mnsudmq: U16,
    /// Maximum CDQ Memory Ranges.
    pub mcmr: U16,
    /// NVM Subsystem Maximum CDQ Memory Ranges.
    pub nmcmr: U16,
    /// Maximum Controller Data Queue PRP Count.
    pub mcdqpc: U16,
    pub reserved_588: [u8; 180],
    /// NVM Subsystem NVMe Qualified Name, ended by NUL.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    pub reserved_1024: [u8; 768],
    /// Fabrics: I/O Queue Command Capsule Supported Size, 16 bytes.
    pub ioccsz: U32,
    /// Fabrics: I/O Queue Response Capsule Supported Size, 16 bytes.
    pub iorcsz: U32,
    /// Fabrics: In Capsule Data Offset, 16 bytes.
    pub icdoff: U16,
    /// Fabrics Controller Attributes.
    pub fcatt: u8,
    /// Fabrics: Maximum SGL Data Block Descriptors; 0 is no limit.
    pub msdbd: u8,
    /// Optional Fabrics Commands Support.
    pub ofcs: U16,
    /// Discovery Controller Type.
    pub dctype: u8,
    pub reserved_1807: [u8; 241],
    /// Power State Descriptors.
    pub psd: [PowerState; POWER_STATES_MAX],
    /// Vendor specific.
    pub vs: [u8; 1024],
}
layout!(
    IdentifyController, IDENTIFY_BYTES, vid @ 0, ssvid @ 2, sn @ 4, mn @ 24, fr @ 64, rab @ 72,
    ieee @ 73, cmic @ 76, mdts @ 77, cntlid @ 78, ver @ 80, rtd3r @ 84, rtd3e @ 88, oaes @ 92,
    ctratt @ 96, rrls @ 100, bpcap @ 102, nssl @ 104, plsi @ 110, cntrltype @ 111, fguid @ 112,
    crdt1 @ 128, crdt2 @ 130, crdt3 @ 132, crcap @ 134, reserved_mi @ 240, nvmsr @ 253,
    vwci @ 254, mec @ 255, oacs @ 256, acl @ 258, aerl @ 259, frmw @ 260, lpa @ 261, elpe @ 262,
    npss @ 263, avscc @ 264, apsta @ 265, wctemp @ 266, cctemp @ 268, mtfa @ 270, hmpre @ 272,
    hmmin @ 276, tnvmcap @ 280, unvmcap @ 296, rpmbs @ 312, edstt @ 316, dsto @ 318, fwug @ 319,
    kas @ 320, hctma @ 322, mntmt @ 324, mxtmt @ 326, sanicap @ 328, hmminds @ 332, hmmaxd @ 336,
    nsetidmax @ 338, endgidmax @ 340, anatt @ 342, anacap @ 343, anagrpmax @ 344,
    nanagrpid @ 348, pels @ 352, domainid @ 356, kpioc @ 358, mptfawr @ 360, megcap @ 368,
    tmpthha @ 384, cqt @ 386, sqes @ 512, cqes @ 513, maxcmd @ 514, nn @ 516, oncs @ 520,
    fuses @ 522, fna @ 524, vwc @ 525, awun @ 526, awupf @ 528, icsvscc @ 530, nwpc @ 531,
    acwu @ 532, cdfs @ 534, sgls @ 536, mnan @ 540, maxdna @ 544, maxcna @ 560, oaqd @ 564,
    rhiri @ 568, hirt @ 569, cmmrtd @ 570, nmmrtd @ 572, minmrtg @ 574, maxmrtg @ 575,
    trattr @ 576, mcudmq @ 578, mnsudmq @ 580, mcmr @ 582, nmcmr @ 584, mcdqpc @ 586,
    subnqn @ 768, ioccsz @ 1792, iorcsz @ 1796, icdoff @ 1800, fcatt @ 1802, msdbd @ 1803,
    ofcs @ 1804, dctype @ 1806, reserved_1807 @ 1807, psd @ 2048, vs @ 3072,
);

impl Default for IdentifyController {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Power State Descriptor: 32 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PowerState {
    /// Maximum Power, 0.01 W or 0.0001 W by bit 0 of the flags.
    pub mp: U16,
    pub reserved_2: u8,
    /// Bit 0 Max Power Scale, bit 1 Non-Operational State.
    pub flags: u8,
    /// Entry Latency, microseconds.
    pub enlat: U32,
    /// Exit Latency, microseconds.
    pub exlat: U32,
    /// Relative Read Throughput.
    pub rrt: u8,
    /// Relative Read Latency.
    pub rrl: u8,
    /// Relative Write Throughput.
    pub rwt: u8,
    /// Relative Write Latency.
    pub rwl: u8,
    /// Idle Power.
    pub idlp: U16,
    /// Idle Power Scale, bits 7:6.
    pub ips: u8,
    pub reserved_19: u8,
    /// Active Power.
    pub actp: U16,
    /// Active Power Workload and Scale.
    pub apws: u8,
    /// Emergency Power Fail Recovery Time.
    pub epfrt: u8,
    /// Forced Quiescence Vault Time.
    pub fqvt: u8,
    /// Emergency Power Fail Vault Time.
    pub epfvt: u8,
    /// Scales of the first two times.
    pub epfr_fqv_ts: u8,
    /// Scale of the third.
    pub epfvts: u8,
    pub reserved_28: [u8; 4],
}
layout!(
    PowerState, 32, mp @ 0, flags @ 3, enlat @ 4, exlat @ 8, rrt @ 12, rwl @ 15, idlp @ 16,
    ips @ 18, actp @ 20, apws @ 22, epfrt @ 23, fqvt @ 24, epfvt @ 25, epfr_fqv_ts @ 26,
    epfvts @ 27,
);

/// Named bits of the fields.
pub mod bits {
    /// CMIC: the subsystem may have more than one port.
    pub const CMIC_MULTI_PORT: u8 = 1 << 0;
    /// CMIC: the subsystem may have more than one controller.
    pub const CMIC_MULTI_CONTROLLER: u8 = 1 << 1;
    /// CMIC: the controller is for an SR-IOV virtual function.
    pub const CMIC_SRIOV: u8 = 1 << 2;
    /// CMIC: Asymmetric Namespace Access Reporting is supported.
    pub const CMIC_ANA: u8 = 1 << 3;

    /// OAES: Attached Namespace Attribute notices.
    pub const OAES_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// OAES: Firmware Activation notices.
    pub const OAES_FIRMWARE_ACTIVATION: u32 = 1 << 9;
    /// OAES: Asymmetric Namespace Access Change notices.
    pub const OAES_ANA_CHANGE: u32 = 1 << 11;
    /// OAES: Normal NVM Subsystem Shutdown event.
    pub const OAES_NORMAL_SHUTDOWN: u32 = 1 << 15;
    /// OAES: Allocated Namespace Attribute notices.
    pub const OAES_ALLOCATED_NAMESPACE_ATTRIBUTE: u32 = 1 << 19;
    /// OAES: Discovery Log Page Change notices.
    pub const OAES_DISCOVERY_CHANGE: u32 = 1 << 31;

    /// CTRATT: 128-bit Host Identifiers.
    pub const CTRATT_HOSTID_128: u32 = 1 << 0;
    /// CTRATT: Traffic Based Keep Alive Support.
    pub const CTRATT_TBKAS: u32 = 1 << 6;
    /// CTRATT: Namespace Granularity.
    pub const CTRATT_NAMESPACE_GRANULARITY: u32 = 1 << 7;
    /// CTRATT: UUID List.
    pub const CTRATT_UUID_LIST: u32 = 1 << 9;
    /// CTRATT: Multi-Domain Subsystem.
    pub const CTRATT_MULTI_DOMAIN: u32 = 1 << 10;
    /// CTRATT: Extended LBA Formats Supported.
    pub const CTRATT_EXTENDED_LBA_FORMATS: u32 = 1 << 15;
    /// CTRATT: reservations need a Host Identifier other than 0h (RHII).
    pub const CTRATT_RESERVATIONS_NEED_HOSTID: u32 = 1 << 18;

    /// CNTRLTYPE: I/O controller.
    pub const CNTRLTYPE_IO: u8 = 1;
    /// CNTRLTYPE: Discovery controller.
    pub const CNTRLTYPE_DISCOVERY: u8 = 2;
    /// CNTRLTYPE: Administrative controller.
    pub const CNTRLTYPE_ADMIN: u8 = 3;

    /// OACS bits.
    pub const OACS_SECURITY: u16 = 1 << 0;
    pub const OACS_FORMAT: u16 = 1 << 1;
    pub const OACS_FIRMWARE: u16 = 1 << 2;
    pub const OACS_NAMESPACE_MANAGEMENT: u16 = 1 << 3;
    pub const OACS_SELF_TEST: u16 = 1 << 4;
    pub const OACS_DIRECTIVES: u16 = 1 << 5;
    pub const OACS_GET_LBA_STATUS: u16 = 1 << 9;

    /// FRMW: the first firmware slot is read only.
    pub const FRMW_SLOT_1_READ_ONLY: u8 = 1 << 0;
    /// FRMW: activation without reset.
    pub const FRMW_NO_RESET: u8 = 1 << 4;

    /// LPA: SMART / Health per namespace.
    pub const LPA_SMART_PER_NAMESPACE: u8 = 1 << 0;
    /// LPA: Commands Supported and Effects log page.
    pub const LPA_EFFECTS: u8 = 1 << 1;
    /// LPA: extended data (dword count and offset above 16 bits).
    pub const LPA_EXTENDED_DATA: u8 = 1 << 2;
    /// LPA: Telemetry.
    pub const LPA_TELEMETRY: u8 = 1 << 3;
    /// LPA: Persistent Event log page.
    pub const LPA_PERSISTENT_EVENT: u8 = 1 << 4;
    /// LPA: Supported Log Pages, scope in effects, MI effects and Feature Identifiers effects.
    pub const LPA_SUPPORTED_PAGES: u8 = 1 << 5;

    /// ANACAP: states reported.
    pub const ANACAP_OPTIMIZED: u8 = 1 << 0;
    pub const ANACAP_NON_OPTIMIZED: u8 = 1 << 1;
    pub const ANACAP_INACCESSIBLE: u8 = 1 << 2;
    pub const ANACAP_PERSISTENT_LOSS: u8 = 1 << 3;
    pub const ANACAP_CHANGE: u8 = 1 << 4;
    /// ANACAP: a namespace's ANAGRPID does not change while it is attached.
    pub const ANACAP_STABLE_GROUP: u8 = 1 << 6;
    /// ANACAP: a non-zero ANAGRPID may be given to Namespace Management.
    pub const ANACAP_GROUP_MANAGEMENT: u8 = 1 << 7;

    /// ONCS bits.
    pub const ONCS_COMPARE: u16 = 1 << 0;
    pub const ONCS_WRITE_UNCORRECTABLE: u16 = 1 << 1;
    pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    pub const ONCS_SAVE_SELECT: u16 = 1 << 4;
    pub const ONCS_RESERVATIONS: u16 = 1 << 5;
    pub const ONCS_TIMESTAMP: u16 = 1 << 6;
    pub const ONCS_VERIFY: u16 = 1 << 7;
    pub const ONCS_COPY: u16 = 1 << 8;
    /// ONCS: a Copy is written as one write of its total size where atomicity is concerned.
    pub const ONCS_COPY_SINGLE_ATOMICITY: u16 = 1 << 9;
    /// ONCS: every Copy is a fast copy.
    pub const ONCS_ALL_FAST_COPY: u16 = 1 << 10;
    /// ONCS: with DEAC set Write Zeroes goes up to WZDSL.
    pub const ONCS_WRITE_ZEROES_DEALLOCATE: u16 = 1 << 11;
    /// ONCS: Write Zeroes of a whole namespace by its NSZ bit.
    pub const ONCS_NAMESPACE_ZEROES: u16 = 1 << 12;

    /// FUSES: Compare and Write.
    pub const FUSES_COMPARE_AND_WRITE: u16 = 1 << 0;

    /// FNA: bit 3, Format NVM does not take NSID FFFFFFFFh.
    pub const FNA_NO_BROADCAST: u8 = 1 << 3;

    /// VWC: a volatile write cache is present.
    pub const VWC_PRESENT: u8 = 1 << 0;
    /// VWC: Flush with NSID FFFFFFFFh is not supported (bits 2:1 = 10b).
    pub const VWC_NO_BROADCAST_FLUSH: u8 = 0b10 << 1;
    /// VWC: Flush with NSID FFFFFFFFh is supported (bits 2:1 = 11b).
    pub const VWC_BROADCAST_FLUSH: u8 = 0b11 << 1;

    /// SGLS bits 1:0: SGLs, no alignment needed.
    pub const SGLS_SUPPORTED: u32 = 1 << 0;
    /// SGLS: keyed SGL data block descriptor.
    pub const SGLS_KEYED: u32 = 1 << 2;
    /// SGLS: the address of a data block may be an offset (in-capsule data).
    pub const SGLS_OFFSET: u32 = 1 << 20;
    /// SGLS: transport SGL data block descriptor.
    pub const SGLS_TRANSPORT: u32 = 1 << 21;

    /// FCATT: the controller follows the static controller model.
    pub const FCATT_STATIC: u8 = 1 << 0;
    /// OFCS: Disconnect is supported.
    pub const OFCS_DISCONNECT: u16 = 1 << 0;

    /// DCTYPE: not reported, direct, central.
    pub const DCTYPE_NOT_REPORTED: u8 = 0;
    pub const DCTYPE_DIRECT: u8 = 1;
    pub const DCTYPE_CENTRAL: u8 = 2;
}
