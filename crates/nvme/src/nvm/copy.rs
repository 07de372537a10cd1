//! Copy (NVM Command Set 3.3.2) and its source range formats.

use stdx::Lba;
use stdx::num::low8;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{LbaRange, fua, limited_retry};
use crate::count::{ZeroBased8, ZeroBased16};
use crate::opcode::io;
use crate::refusal::{Reason, Refusal};
use crate::sqe::Sqe;

wire_enum! {
    /// Source Range Entries Copy Descriptor Format.
    pub enum CopyFormat: u8 {
        /// Same namespace, 16-bit guard.
        Format0 = 0, "Copy Descriptor Format 0h";
        /// Same namespace, 32-bit and 64-bit guard.
        Format1 = 1, "Copy Descriptor Format 1h";
        /// Any namespace of the subsystem, 16-bit guard.
        Format2 = 2, "Copy Descriptor Format 2h";
        /// Any namespace of the subsystem, 32-bit and 64-bit guard.
        Format3 = 3, "Copy Descriptor Format 3h";
    }
}

impl CopyFormat {
    /// Bytes of one source range entry.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Format0 => size_of::<CopyRange0>(),
            Self::Format1 => size_of::<CopyRange1>(),
            Self::Format2 => size_of::<CopyRange2>(),
            Self::Format3 => size_of::<CopyRange3>(),
        }
    }

    /// Whether an entry names the namespace it copies from.
    #[must_use]
    pub const fn names_namespace(self) -> bool {
        matches!(self, Self::Format2 | Self::Format3)
    }
}

/// A Copy command; its source ranges are in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Starting Destination LBA (SDLBA).
    pub destination: Lba,
    /// Number of Ranges (NR).
    pub ranges: ZeroBased8,
    pub format: CopyFormat,
    pub fua: bool,
    pub limited_retry: bool,
}

/// What Copy knows of CDW12: LR, FUA, PRINFOW 29:26, STCR 25, STCW 24, PRINFOR 15:12, the format
/// 11:8 and NR 7:0. Directive Type 23:20 and Command Extension Type 19:16 are never enabled.
const KNOWN: u32 = 0xff00_ffff;

impl Copy {
    /// Reads the fields of a Copy; opcode and flags are [`super::Command::parse`]'s.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw12 = sqe.cdw12.get();
        let unknown = cdw12 & !KNOWN;
        if unknown != 0 {
            let bit = low8(unknown.trailing_zeros().into());
            return Err(Refusal::at(Reason::Value, 12, bit));
        }
        let format = CopyFormat::from_raw(low8(u64::from(cdw12) >> 8) & 0x0f)
            .ok_or(Refusal::at(Reason::Format, 12, 8))?;
        Ok(Self {
            destination: Lba::new(super::slba(sqe)),
            ranges: ZeroBased8::from_raw(low8(cdw12.into())),
            format,
            fua: fua(cdw12),
            limited_retry: limited_retry(cdw12),
        })
    }

    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16, nsid: u32) -> Sqe {
        let mut sqe = Sqe::new(io::COPY, cid, nsid);
        let [a, b, c, d, e, f, g, h] = self.destination.get().to_le_bytes();
        sqe.cdw10 = u32::from_le_bytes([a, b, c, d]).into();
        sqe.cdw11 = u32::from_le_bytes([e, f, g, h]).into();
        let bits = super::flags(self.fua, self.limited_retry) | u32::from(self.format.raw()) << 8;
        sqe.cdw12 = (bits | u32::from(self.ranges.raw())).into();
        sqe
    }

    /// Bytes of source range entries that belong to the command.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        usize::from(self.ranges.count()) * self.format.bytes()
    }

    /// The source ranges in the command's data; refused when the data is shorter than NR says, or
    /// when an entry has a Command Extension Type: Key Per I/O is not supported.
    pub fn sources<'a>(
        &self,
        data: &'a [u8],
    ) -> Result<impl ExactSizeIterator<Item = CopySource> + use<'a>, Refusal> {
        let format = self.format;
        let data = data.get(..self.data_bytes()).ok_or(Refusal::at(Reason::Length, 12, 0))?;
        let entries = data.chunks_exact(format.bytes());
        if entries.clone().any(|entry| CopyDescriptor::head(entry).cetype.get() & 0x0f != 0) {
            return Err(Refusal::at(Reason::Value, 12, 0));
        }
        Ok(entries.map(move |entry| CopySource::read(format, entry)))
    }
}

/// One source range, whatever its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySource {
    /// Source Namespace Identifier (formats 2h and 3h); `None` is the command's own.
    pub nsid: Option<u32>,
    pub range: LbaRange,
    /// Source Options bit 15, Fast Copy Only (formats 2h and 3h).
    pub fast_only: bool,
}

/// Fast Copy Only in SOPT.
const SOPT_FCO: u16 = 1 << 15;

impl CopySource {
    fn read(format: CopyFormat, entry: &[u8]) -> Self {
        let head = CopyDescriptor::head(entry);
        let blocks = ZeroBased16::from_raw(head.nlb.get());
        Self {
            nsid: format.names_namespace().then(|| head.snsid.get()),
            range: LbaRange::from_wire(Lba::new(head.slba.get()), blocks),
            fast_only: format.names_namespace() && head.sopt.get() & SOPT_FCO != 0,
        }
    }
}

/// What the four formats have in common; SNSID and SOPT are reserved in formats 0h and 1h.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CopyDescriptor {
    /// Source Namespace Identifier.
    pub snsid: U32,
    pub reserved_4: [u8; 4],
    /// Starting LBA of the source.
    pub slba: U64,
    /// Number of Logical Blocks, 0's based.
    pub nlb: U16,
    /// Command Extension Type, bits 3:0.
    pub cetype: U16,
    /// Command Extension Value.
    pub cev: U16,
    /// Source Options.
    pub sopt: U16,
}
layout!(CopyDescriptor, 24, snsid @ 0, slba @ 8, nlb @ 16, cetype @ 18, cev @ 20, sopt @ 22);

impl CopyDescriptor {
    fn head(entry: &[u8]) -> Self {
        let Ok((head, _)) = Self::read_from_prefix(entry) else {
            unreachable!("every format is longer than what all have in common")
        };
        head
    }
}

/// Tags of a 16-bit guard entry (formats 0h and 2h), unused without protection information.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CopyTags16 {
    /// Expected Initial Logical Block Reference Tag.
    pub eilbrt: U32,
    /// Expected Logical Block Application Tag, and its mask.
    pub elbat: U16,
    pub elbatm: U16,
}
layout!(CopyTags16, 8, eilbrt @ 0, elbat @ 4, elbatm @ 6);

/// Tags of a 32-bit or 64-bit guard entry (formats 1h and 3h).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CopyTags64 {
    pub reserved: [u8; 2],
    /// Expected Logical Block Storage and Reference Tags.
    pub elbt: [u8; 10],
    /// Expected Logical Block Application Tag, and its mask.
    pub elbat: U16,
    pub elbatm: U16,
}
layout!(CopyTags64, 16, elbt @ 2, elbat @ 12, elbatm @ 14);

macro_rules! copy_range {
    ($(#[$meta:meta])* $name:ident, $tags:ty, $size:literal) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            pub head: CopyDescriptor,
            pub tags: $tags,
        }
        layout!($name, $size, head.slba @ 8, head.nlb @ 16, tags @ 24);
    };
}

copy_range! {
    /// Source range entry of format 0h.
    CopyRange0, CopyTags16, 32
}
copy_range! {
    /// Source range entry of format 1h.
    CopyRange1, CopyTags64, 40
}
copy_range! {
    /// Source range entry of format 2h.
    CopyRange2, CopyTags16, 32
}
copy_range! {
    /// Source range entry of format 3h.
    CopyRange3, CopyTags64, 40
}
