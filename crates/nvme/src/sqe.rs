//! The submission queue entry (section 4.1) and its SGL descriptor (section 4.3.2).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::SQE_BYTES;
use crate::refusal::{Location, Reason, Refusal};

/// A submission queue entry as it stands in a command capsule: 64 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Sqe {
    /// Opcode (OPC); see [`crate::opcode`].
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6, the rest reserved.
    pub flags: u8,
    /// Command Identifier.
    pub cid: U16,
    /// Namespace Identifier; in a Fabrics command byte 0 of it is the FCTYPE.
    pub nsid: U32,
    pub cdw2: U32,
    pub cdw3: U32,
    /// Metadata pointer; unused over a message based transport without metadata.
    pub mptr: U64,
    /// Data pointer: over Fabrics always SGL Entry 1.
    pub dptr: Sgl,
    pub cdw10: U32,
    pub cdw11: U32,
    pub cdw12: U32,
    pub cdw13: U32,
    pub cdw14: U32,
    pub cdw15: U32,
}
layout!(
    Sqe, SQE_BYTES, opcode @ 0, flags @ 1, cid @ 2, nsid @ 4, cdw2 @ 8, cdw3 @ 12, mptr @ 16,
    dptr @ 24, cdw10 @ 40, cdw11 @ 44, cdw12 @ 48, cdw13 @ 52, cdw14 @ 56, cdw15 @ 60,
);

/// PSDT value "SGLs, MPTR contains an address of a contiguous buffer": bits 7:6 = 01b.
const PSDT_SGL: u8 = 0x40;
/// Bits 5:2 of the flags.
const FLAGS_RESERVED: u8 = 0x3c;

impl Sqe {
    /// An entry of zeros with opcode, command identifier and namespace set, and PSDT = 01b, which
    /// a Fabrics host always uses (section 4.1.1).
    #[must_use]
    pub fn new(opcode: u8, cid: u16, nsid: u32) -> Self {
        let mut sqe = Self::new_zeroed();
        sqe.opcode = opcode;
        sqe.flags = PSDT_SGL;
        sqe.cid = cid.into();
        sqe.nsid = nsid.into();
        sqe
    }

    /// Checks what every command over Fabrics has in common: PSDT names SGLs, the reserved flags
    /// are 0, FUSE is not its reserved value (section 4.1.1). Gives the fused operation.
    pub fn check_flags(&self) -> Result<Fused, Refusal> {
        if self.flags & FLAGS_RESERVED != 0 {
            return Err(Refusal::new(Reason::Reserved, Location { byte: 1, bit: 2 }));
        }
        if !self.uses_sgl() {
            return Err(Refusal::new(Reason::DataPointerType, Location { byte: 1, bit: 6 }));
        }
        self.fused().ok_or(Refusal::new(Reason::Fused, Location { byte: 1, bit: 0 }))
    }

    /// As [`Sqe::check_flags`], for a command that cannot be part of a fused operation.
    pub fn check_flags_unfused(&self) -> Result<(), Refusal> {
        match self.check_flags()? {
            Fused::Normal => Ok(()),
            _ => Err(Refusal::new(Reason::Fused, Location { byte: 1, bit: 0 })),
        }
    }

    /// Whether PSDT names SGLs (01b or 10b), as a command over Fabrics must.
    #[must_use]
    pub const fn uses_sgl(&self) -> bool {
        matches!(self.flags >> 6, 1 | 2)
    }

    /// The fused operation bits; `None` for the reserved value 11b.
    #[must_use]
    pub const fn fused(&self) -> Option<Fused> {
        Fused::from_raw(self.flags & 0x03)
    }

    /// Sets the fused operation bits.
    pub fn set_fused(&mut self, fused: Fused) {
        self.flags = (self.flags & !0x03) | fused.raw();
    }
}

wire_enum! {
    /// Fused Operation (FUSE), bits 1:0 of the flags.
    pub enum Fused: u8 {
        Normal = 0, "normal operation";
        First = 1, "first command of a fused operation";
        Second = 2, "second command of a fused operation";
    }
}

/// An SGL descriptor: 16 bytes (section 4.3.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Sgl {
    /// Address, or offset into the capsule for the offset sub type.
    pub address: U64,
    /// Length in bytes.
    pub length: U32,
    pub reserved: [u8; 3],
    /// Descriptor type in bits 7:4, sub type in bits 3:0.
    pub id: u8,
}
layout!(Sgl, 16, address @ 0, length @ 8, reserved @ 12, id @ 15);

impl Sgl {
    /// SGL Identifier of a data block descriptor (0h), sub type address (0h).
    pub const DATA_BLOCK_ADDRESS: u8 = 0x00;
    /// SGL Identifier of a data block descriptor (0h), sub type offset (1h): in-capsule data.
    pub const DATA_BLOCK_OFFSET: u8 = 0x01;
    /// SGL Identifier of a bit bucket descriptor (1h).
    pub const BIT_BUCKET: u8 = 0x10;
    /// SGL Identifier of a segment descriptor (2h), sub type address.
    pub const SEGMENT: u8 = 0x20;
    /// SGL Identifier of a last segment descriptor (3h), sub type address.
    pub const LAST_SEGMENT: u8 = 0x30;
    /// SGL Identifier of a keyed data block descriptor (4h): RDMA.
    pub const KEYED_DATA_BLOCK: u8 = 0x40;
    /// SGL Identifier of a transport data block descriptor (5h), sub type transport specific (Ah).
    pub const TRANSPORT_DATA_BLOCK: u8 = 0x5a;

    /// A descriptor of data in the capsule, `offset` bytes behind the submission queue entry's
    /// in-capsule data offset (ICDOFF).
    #[must_use]
    pub fn in_capsule(offset: u64, length: u32) -> Self {
        Self {
            address: offset.into(),
            length: length.into(),
            reserved: [0; 3],
            id: Self::DATA_BLOCK_OFFSET,
        }
    }

    /// A descriptor of data that the transport moves outside the capsule (TCP: by R2T and data PDUs).
    #[must_use]
    pub fn transport(length: u32) -> Self {
        Self {
            address: 0.into(),
            length: length.into(),
            reserved: [0; 3],
            id: Self::TRANSPORT_DATA_BLOCK,
        }
    }

    /// What the descriptor says of where the data is, as far as NVMe/TCP allows; `None` for every
    /// descriptor type this transport does not have (NVMe TCP Transport, section 3.3.2).
    #[must_use]
    pub fn data(&self) -> Option<DataPointer> {
        match self.id {
            Self::DATA_BLOCK_OFFSET => Some(DataPointer::InCapsule {
                offset: self.address.get(),
                length: self.length.get(),
            }),
            Self::TRANSPORT_DATA_BLOCK => {
                Some(DataPointer::Transport { length: self.length.get() })
            }
            _ => None,
        }
    }
}

/// Where a command's data is, for NVMe/TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointer {
    /// In the command capsule; both in bytes.
    InCapsule { offset: u64, length: u32 },
    /// Moved by data PDUs; bytes.
    Transport { length: u32 },
}

impl DataPointer {
    /// Length in bytes.
    #[must_use]
    pub const fn length(self) -> u32 {
        match self {
            Self::InCapsule { length, .. } | Self::Transport { length } => length,
        }
    }
}
