//! What an allocation unit says of itself: one block for each, in a table before the allocation
//! units of every drive. With it a pool can be read from what its drives say, and drives that were
//! mixed up are noticed.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Bad, VERSION, check, seal};
use crate::address::{BLOCK, SegmentId};
use crate::segment::{Member, SegmentInfo, Stream};
use raid::{Geometry, Shape, WIDTH_MAX};
use stdx::num::{u16_of, u32_of};

const MAGIC: [u8; 8] = *b"FLASHAUH";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawMember {
    au: U32,
    drive: U16,
    reserved: [u8; 2],
}
const _: () = assert!(size_of::<RawMember>() == 8);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    shard: U16,
    pool: [u8; 16],
    generation: U64,
    segment: U32,
    unit_blocks: U32,
    stripes: U32,
    data: u8,
    parity: u8,
    stream: u8,
    column: u8,
    reserved: [u8; 8],
    members: [RawMember; WIDTH_MAX],
}
const _: () = assert!(size_of::<Raw>() == 64 + 8 * WIDTH_MAX && size_of::<Raw>() <= BLOCK);
const _: () = assert!(std::mem::offset_of!(Raw, pool) == 16);
const _: () = assert!(std::mem::offset_of!(Raw, generation) == 32);
const _: () = assert!(std::mem::offset_of!(Raw, members) == 64);

/// An allocation unit's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberHeader {
    pub segment: SegmentInfo,
    /// Which of the segment's columns this allocation unit is.
    pub column: u8,
}

impl MemberHeader {
    /// Fills `block`, of 4096 bytes.
    pub fn write(segment: &SegmentInfo, column: u8, pool: [u8; 16], block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK);
        let geometry = segment.geometry;
        let empty = RawMember { au: 0.into(), drive: 0.into(), reserved: [0; 2] };
        let mut members = [empty; WIDTH_MAX];
        for (to, member) in members.iter_mut().zip(&segment.members) {
            (to.au, to.drive) = (member.au.into(), member.drive.into());
        }
        let raw = Raw {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            shard: segment.shard.into(),
            pool,
            generation: segment.generation.into(),
            segment: segment.id.get().into(),
            unit_blocks: geometry.unit_blocks().into(),
            stripes: geometry.stripes().into(),
            data: geometry.shape().data,
            parity: geometry.shape().parity,
            stream: segment.stream.to_byte(),
            column,
            reserved: [0; 8],
            members,
        };
        let (front, rest) = block.split_at_mut(size_of::<Raw>());
        front.copy_from_slice(raw.as_bytes());
        rest.fill(0);
        seal(block, MAGIC);
    }

    /// The header in a block of this pool's drives.
    ///
    /// # Errors
    /// `Blank` where none was written, and what is wrong with the one there.
    pub fn read(block: &[u8], pool: [u8; 16]) -> Result<Self, Bad> {
        check(block, MAGIC)?;
        let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| Bad::Blank)?;
        if raw.pool != pool {
            return Err(Bad::Field("pool"));
        }
        let shape = Shape { data: raw.data, parity: raw.parity };
        let geometry = Geometry::new(shape, raw.unit_blocks.get(), raw.stripes.get())
            .map_err(|_| Bad::Field("geometry"))?;
        if usize::from(raw.column) >= geometry.width() {
            return Err(Bad::Field("column"));
        }
        let members = raw.members[..geometry.width()].iter();
        let members = members.map(|m| Member { drive: m.drive.get(), au: m.au.get() });
        let segment = SegmentInfo {
            id: SegmentId::new(raw.segment.get()),
            generation: raw.generation.get(),
            members: members.collect(),
            stream: Stream::from_byte(raw.stream).ok_or(Bad::Field("stream"))?,
            shard: raw.shard.get(),
            geometry,
        };
        Ok(Self { segment, column: raw.column })
    }

    /// The header of each member of a segment, by column.
    pub(crate) fn columns(segment: &SegmentInfo) -> impl Iterator<Item = (u8, Member)> {
        let numbered = segment.members.iter().enumerate();
        numbered.map(|(n, m)| (stdx::num::low8(u64::from(u32_of(n))), *m))
    }
}

const _: () = assert!(u16_of(WIDTH_MAX) <= 255, "a column fits its byte");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_written() {
        let geometry = Geometry::new(Shape { data: 2, parity: 1 }, 16, 64).unwrap();
        let members = (0..3).map(|n| Member { drive: n + 4, au: 70_000 + u32::from(n) });
        let segment = SegmentInfo {
            id: SegmentId::new(0x0102_0304),
            generation: 99,
            members: members.collect(),
            stream: Stream::Reclaim,
            shard: 3,
            geometry,
        };
        let mut block = vec![0xff; BLOCK];
        MemberHeader::write(&segment, 2, [8; 16], &mut block);
        let back = MemberHeader::read(&block, [8; 16]).unwrap();
        assert_eq!(back, MemberHeader { segment, column: 2 });
        assert_eq!(MemberHeader::read(&block, [9; 16]), Err(Bad::Field("pool")));
        block[70] ^= 1;
        assert_eq!(MemberHeader::read(&block, [8; 16]), Err(Bad::Checksum));
        assert_eq!(MemberHeader::read(&[0; BLOCK], [8; 16]), Err(Bad::Blank));
    }
}
