//! The completion queue entry (section 4.2).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::CQE_BYTES;
use crate::status::Status;

/// A completion queue entry as it stands in a response capsule: 16 bytes.
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
pub struct Cqe {
    /// Command specific.
    pub dw0: U32,
    /// Command specific.
    pub dw1: U32,
    /// SQ Head Pointer; reserved when SQ flow control is disabled.
    pub sqhd: U16,
    /// SQ Identifier: reserved over Fabrics (section 4.2.1).
    pub sqid: U16,
    /// Command Identifier of the command completed.
    pub cid: U16,
    /// Status in bits 15:1; bit 0, the phase tag, is always 0 over Fabrics.
    pub status: U16,
}
layout!(Cqe, CQE_BYTES, dw0 @ 0, dw1 @ 4, sqhd @ 8, sqid @ 10, cid @ 12, status @ 14);

impl Cqe {
    /// A completion of command `cid` with `status` and no result.
    #[must_use]
    pub fn new(cid: u16, status: Status) -> Self {
        Self { cid: cid.into(), status: status.to_field().into(), ..Self::default() }
    }

    /// The status, the phase bit dropped.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }

    /// DW0 and DW1 as one number, DW1 high: a Property Get's value.
    #[must_use]
    pub fn result(&self) -> u64 {
        (u64::from(self.dw1.get()) << 32) | u64::from(self.dw0.get())
    }
}
