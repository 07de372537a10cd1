//! The manifest of a shard: its segments, and its map's runs. Kept in metadata blocks; the root
//! names them.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Bad, VERSION, check, seal};
use crate::address::SegmentId;
use crate::segment::{Member, SegmentInfo, Stream};

const MAGIC: [u8; 8] = *b"FLASHMAN";

/// A segment as a checkpoint knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    pub info: SegmentInfo,
    /// The first stripe whose records the map's runs do not have: recovery rolls forward from it.
    /// `None` when they have all there are.
    pub roll_from: Option<u32>,
    /// Stripes that count, where that is known: contents lie in no later ones, whatever a life of the pool that ended
    /// in the midst of it left there.
    pub stripes: Option<u32>,
    /// Blocks in use, as far as was known.
    pub live: u32,
}

/// All that a shard's checkpoint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub shard: u16,
    /// Of the checkpoint.
    pub generation: u64,
    /// The last ordered stripe whose records the map's runs have.
    pub cut: u64,
    /// Numbers of segments below this were used before; none is used again.
    pub next_segment: u32,
    pub segments: Vec<SegmentRecord>,
    /// The map's own part.
    pub map: Vec<u8>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    shard: U16,
    pool: [u8; 16],
    generation: U64,
    cut: U64,
    segments: U32,
    width: U16,
    reserved: U16,
    next_segment: U32,
    reserved2: U32,
    map_bytes: U64,
}
const _: () = assert!(size_of::<Head>() == 72);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSegment {
    id: U32,
    live: U32,
    generation: U64,
    /// All ones for `None`.
    roll_from: U32,
    stream: u8,
    /// 0 where that is not known.
    stripes: [u8; 3],
}
const _: () = assert!(size_of::<RawSegment>() == 24);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMember {
    drive: U16,
    au: U32,
}
const _: () = assert!(size_of::<RawMember>() == 6);

impl SegmentRecord {
    /// The record as bytes: in the manifest, and in the root for the segments of the manifest.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let [a, b, c, _] = self.stripes.unwrap_or(0).to_le_bytes();
        let raw = RawSegment {
            id: self.info.id.get().into(),
            live: self.live.into(),
            generation: self.info.generation.into(),
            roll_from: self.roll_from.unwrap_or(u32::MAX).into(),
            stream: self.info.stream.to_byte(),
            stripes: [a, b, c],
        };
        let mut bytes = raw.as_bytes().to_vec();
        for member in &self.info.members {
            let raw = RawMember { drive: member.drive.into(), au: member.au.into() };
            bytes.extend_from_slice(raw.as_bytes());
        }
        bytes
    }

    /// Bytes of a record with so many members.
    #[must_use]
    pub const fn len(width: usize) -> usize {
        size_of::<RawSegment>() + width * size_of::<RawMember>()
    }

    /// A record of `shard`, of segments of this geometry.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_bytes(bytes: &[u8], shard: u16, geometry: raid::Geometry) -> Result<Self, Bad> {
        let (raw, members) =
            RawSegment::ref_from_prefix(bytes).map_err(|_| Bad::Field("segment"))?;
        let members = <[RawMember]>::ref_from_bytes(members).map_err(|_| Bad::Field("members"))?;
        if members.len() != geometry.width() {
            return Err(Bad::Field("members"));
        }
        let member = |raw: &RawMember| Member { drive: raw.drive.get(), au: raw.au.get() };
        let roll_from = raw.roll_from.get();
        if raw.live.get() > crate::segment_table::LIVE_FACTOR * geometry.slots() {
            return Err(Bad::Field("live"));
        }
        // One of its stripes, or right behind the last.
        if roll_from != u32::MAX && roll_from > geometry.stripes() {
            return Err(Bad::Field("roll_from"));
        }
        let [a, b, c] = raw.stripes;
        let stripes = u32::from_le_bytes([a, b, c, 0]);
        if stripes > geometry.stripes() {
            return Err(Bad::Field("stripes"));
        }
        Ok(Self {
            info: SegmentInfo {
                id: SegmentId::new(raw.id.get()),
                generation: raw.generation.get(),
                members: members.iter().map(member).collect(),
                stream: Stream::from_byte(raw.stream).ok_or(Bad::Field("stream"))?,
                shard,
                geometry,
            },
            roll_from: (roll_from != u32::MAX).then_some(roll_from),
            stripes: (stripes > 0).then_some(stripes),
            live: raw.live.get(),
        })
    }
}

impl Manifest {
    /// The manifest as bytes, sealed as `pool`'s.
    #[must_use]
    pub fn to_bytes(&self, pool: [u8; 16], width: usize) -> Vec<u8> {
        let head = Head {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            shard: self.shard.into(),
            pool,
            generation: self.generation.into(),
            cut: self.cut.into(),
            segments: stdx::num::u32_of(self.segments.len()).into(),
            width: stdx::num::u16_of(width).into(),
            reserved: 0.into(),
            next_segment: self.next_segment.into(),
            reserved2: 0.into(),
            map_bytes: stdx::num::u64_of(self.map.len()).into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        for segment in &self.segments {
            bytes.extend_from_slice(&segment.to_bytes());
        }
        bytes.extend_from_slice(&self.map);
        seal(&mut bytes, MAGIC);
        bytes
    }

    /// The manifest of a pool's shard in `bytes`.
    ///
    /// # Errors
    /// `Blank` when it is not this shard's, and what else is wrong with it.
    pub fn from_bytes(
        bytes: &[u8],
        pool: [u8; 16],
        shard: u16,
        geometry: raid::Geometry,
    ) -> Result<Self, Bad> {
        check(bytes, MAGIC)?;
        let (head, rest) = Head::ref_from_prefix(bytes).map_err(|_| Bad::Blank)?;
        if head.pool != pool || head.shard.get() != shard {
            return Err(Bad::Blank);
        }
        if usize::from(head.width.get()) != geometry.width() {
            return Err(Bad::Field("width"));
        }
        let each = SegmentRecord::len(geometry.width());
        let table = stdx::num::usize32(head.segments.get()).checked_mul(each);
        let split = table.and_then(|table| rest.split_at_checked(table));
        let (table, map) = split.ok_or(Bad::Field("segments"))?;
        if stdx::num::u64_of(map.len()) != head.map_bytes.get() {
            return Err(Bad::Field("map"));
        }
        let record = |raw| SegmentRecord::from_bytes(raw, shard, geometry);
        Ok(Self {
            shard,
            generation: head.generation.get(),
            cut: head.cut.get(),
            next_segment: head.next_segment.get(),
            segments: table.chunks_exact(each).map(record).collect::<Result<_, _>>()?,
            map: map.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes on from it counted more stripes than there can be, and ended the daemon.
    #[test]
    fn no_segment_is_rolled_forward_from_behind_its_end() {
        let shape = raid::Shape { data: 1, parity: 1 };
        let geometry = raid::Geometry::new(shape, 16, 64).unwrap();
        let read = |from| {
            let members = (0..2).map(|drive| Member { drive, au: 0 }).collect();
            let (id, stream) = (SegmentId::new(1), Stream::User);
            let info = SegmentInfo { id, generation: 1, members, stream, shard: 0, geometry };
            let record = SegmentRecord { info, roll_from: Some(from), stripes: None, live: 0 };
            SegmentRecord::from_bytes(&record.to_bytes(), 0, geometry).map(|of| of.roll_from)
        };
        assert_eq!((read(0), read(64)), (Ok(Some(0)), Ok(Some(64))));
        assert_eq!(read(65), Err(Bad::Field("roll_from")));
    }

    #[test]
    fn a_manifest_comes_back_as_written() {
        let shape = raid::Shape { data: 2, parity: 1 };
        let geometry = raid::Geometry::new(shape, 16, 64).unwrap();
        let record = |i: u32| SegmentRecord {
            info: SegmentInfo {
                id: SegmentId::new(i),
                generation: u64::from(i) << 33,
                members: (0..3).map(|d| Member { drive: d, au: i }).collect(),
                stream: Stream::Reclaim,
                shard: 1,
                geometry,
            },
            roll_from: i.is_multiple_of(2).then_some(i % 65),
            stripes: (i % 3 == 1).then_some(1 + i % 4),
            live: i,
        };
        let manifest = Manifest {
            shard: 1,
            generation: 4,
            cut: 77,
            next_segment: 200,
            segments: (0..100).map(record).collect(),
            map: vec![9; 333],
        };
        let bytes = manifest.to_bytes([3; 16], 3);
        assert_eq!(Manifest::from_bytes(&bytes, [3; 16], 1, geometry), Ok(manifest));
        assert!(Manifest::from_bytes(&bytes[..bytes.len() - 1], [3; 16], 1, geometry).is_err());
    }
}
