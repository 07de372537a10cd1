//! The manifest of a shard: its segments, and its map's tables. Kept in metadata blocks; the root
//! names them.
//!
//! What there may be hundreds of thousands of, segments and tables, is on *manifest pages* of one
//! block, which checkpoints write anew only where something on them changed. The manifest itself
//! lists the pages, and is written whole. Version 3 had all in the manifest.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::root::RawEntry;
use super::{Bad, check_version, seal};
use crate::address::{BLOCK, Entry, SegmentId};
use crate::segment::{Member, SegmentInfo, Stream};

const MAGIC: [u8; 8] = *b"FLASHMAN";
const PAGE_MAGIC: [u8; 8] = *b"FLASHMPG";

/// Of manifests that list pages, and of those: a structure that changed since format 3.
const PAGED: u16 = 4;
/// Of manifests that have everything themselves.
const WHOLE: u16 = 3;

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

/// All that a shard's checkpoint says, whichever blocks it is on.
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

/// A manifest that lists pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged {
    pub shard: u16,
    pub generation: u64,
    pub cut: u64,
    pub next_segment: u32,
    /// How many segments there are on the pages.
    pub segments: u32,
    /// The segments that hold the pages, needed to read them, each with how many of its blocks are pages.
    pub holders: Vec<SegmentRecord>,
    pub pages: Vec<Entry>,
    /// The map's own part without its tables.
    pub map: Vec<u8>,
}

/// A manifest as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    Whole(Manifest),
    Paged(Paged),
}

/// What is on a manifest page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    Segments(Vec<SegmentRecord>),
    /// So many records of the map's tables.
    Tables(usize, Vec<u8>),
}

/// What the records of a manifest page are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    Segments = 1,
    Tables = 2,
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
    /// As many as the shard has.
    segments: U32,
    width: U16,
    reserved: U16,
    next_segment: U32,
    /// 0 where everything is in the manifest itself.
    pages: U32,
    map_bytes: U64,
}
const _: () = assert!(size_of::<Head>() == 72);

/// What follows it in a manifest that lists pages.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PagedHead {
    holders: U32,
    reserved: U32,
}
const _: () = assert!(size_of::<PagedHead>() == 8);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PageHead {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    shard: U16,
    pool: [u8; 16],
    kind: u8,
    reserved: u8,
    records: U16,
    bytes: U32,
}
const _: () = assert!(size_of::<PageHead>() == 40);

/// Bytes of records that a manifest page takes.
pub const PAGE_BYTES: usize = BLOCK - size_of::<PageHead>();

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

impl Paged {
    /// The manifest as bytes, sealed as `pool`'s.
    #[must_use]
    pub fn to_bytes(&self, pool: [u8; 16], width: usize) -> Vec<u8> {
        let head = Head {
            magic: MAGIC,
            crc: 0.into(),
            version: PAGED.into(),
            shard: self.shard.into(),
            pool,
            generation: self.generation.into(),
            cut: self.cut.into(),
            segments: self.segments.into(),
            width: stdx::num::u16_of(width).into(),
            reserved: 0.into(),
            next_segment: self.next_segment.into(),
            pages: stdx::num::u32_of(self.pages.len()).into(),
            map_bytes: stdx::num::u64_of(self.map.len()).into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        let holders = stdx::num::u32_of(self.holders.len()).into();
        bytes.extend_from_slice(PagedHead { holders, reserved: 0.into() }.as_bytes());
        for holder in &self.holders {
            bytes.extend_from_slice(&holder.to_bytes());
        }
        for page in &self.pages {
            bytes.extend_from_slice(RawEntry::from(*page).as_bytes());
        }
        bytes.extend_from_slice(&self.map);
        seal(&mut bytes, MAGIC);
        bytes
    }
}

impl Read {
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
        let version = check_version(bytes, MAGIC, WHOLE..=PAGED)?;
        let (head, rest) = Head::ref_from_prefix(bytes).map_err(|_| Bad::Blank)?;
        if head.pool != pool || head.shard.get() != shard {
            return Err(Bad::Blank);
        }
        if usize::from(head.width.get()) != geometry.width() {
            return Err(Bad::Field("width"));
        }
        let each = SegmentRecord::len(geometry.width());
        let (described, rest) = match version {
            WHOLE => (head.segments, rest),
            _ => {
                let (paged, rest) =
                    PagedHead::ref_from_prefix(rest).map_err(|_| Bad::Field("holders"))?;
                (paged.holders, rest)
            }
        };
        let table = stdx::num::usize32(described.get()).checked_mul(each);
        let split = table.and_then(|table| rest.split_at_checked(table));
        let (table, rest) = split.ok_or(Bad::Field("segments"))?;
        let listed = if version == WHOLE { 0 } else { stdx::num::usize32(head.pages.get()) };
        let (pages, map) = <[RawEntry]>::ref_from_prefix_with_elems(rest, listed)
            .map_err(|_| Bad::Field("pages"))?;
        if stdx::num::u64_of(map.len()) != head.map_bytes.get() {
            return Err(Bad::Field("map"));
        }
        let record = |raw| SegmentRecord::from_bytes(raw, shard, geometry);
        let segments = table.chunks_exact(each).map(record).collect::<Result<_, _>>()?;
        let (generation, cut) = (head.generation.get(), head.cut.get());
        let (next_segment, map) = (head.next_segment.get(), map.to_vec());
        Ok(match version {
            WHOLE => Self::Whole(Manifest { shard, generation, cut, next_segment, segments, map }),
            _ => Self::Paged(Paged {
                shard,
                generation,
                cut,
                next_segment,
                segments: head.segments.get(),
                holders: segments,
                pages: pages.iter().map(RawEntry::entry).collect::<Result<_, _>>()?,
                map,
            }),
        })
    }
}

impl Page {
    /// So many records as a manifest page.
    ///
    /// # Panics
    /// When they are more than it takes, which its writer has made sure of.
    #[must_use]
    pub fn to_block(
        kind: PageKind,
        records: usize,
        bytes: &[u8],
        pool: [u8; 16],
        shard: u16,
    ) -> Box<[u8; BLOCK]> {
        assert!(bytes.len() <= PAGE_BYTES, "a manifest page takes what is put on it");
        let head = PageHead {
            magic: PAGE_MAGIC,
            crc: 0.into(),
            version: PAGED.into(),
            shard: shard.into(),
            pool,
            kind: kind as u8,
            reserved: 0,
            records: stdx::num::u16_of(records).into(),
            bytes: stdx::num::u32_of(bytes.len()).into(),
        };
        let mut block = Box::new([0; BLOCK]);
        block[..size_of::<PageHead>()].copy_from_slice(head.as_bytes());
        block[size_of::<PageHead>()..][..bytes.len()].copy_from_slice(bytes);
        seal(&mut block[..], PAGE_MAGIC);
        block
    }

    /// What is on a manifest page of a pool's shard.
    ///
    /// # Errors
    /// `Blank` when it is not this shard's, and what else is wrong with it.
    pub fn from_block(
        block: &[u8],
        pool: [u8; 16],
        shard: u16,
        geometry: raid::Geometry,
    ) -> Result<Self, Bad> {
        check_version(block, PAGE_MAGIC, PAGED..=PAGED)?;
        let (head, rest) = PageHead::ref_from_prefix(block).map_err(|_| Bad::Blank)?;
        if head.pool != pool || head.shard.get() != shard {
            return Err(Bad::Blank);
        }
        let bytes = rest.get(..stdx::num::usize32(head.bytes.get())).ok_or(Bad::Field("bytes"))?;
        let records = usize::from(head.records.get());
        if head.kind == PageKind::Tables as u8 {
            return Ok(Self::Tables(records, bytes.to_vec()));
        }
        if head.kind != PageKind::Segments as u8 {
            return Err(Bad::Field("kind of page"));
        }
        let each = SegmentRecord::len(geometry.width());
        if bytes.len() != records * each {
            return Err(Bad::Field("records"));
        }
        let record = |raw| SegmentRecord::from_bytes(raw, shard, geometry);
        Ok(Self::Segments(bytes.chunks_exact(each).map(record).collect::<Result<_, _>>()?))
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

    fn geometry() -> raid::Geometry {
        raid::Geometry::new(raid::Shape { data: 2, parity: 1 }, 16, 64).unwrap()
    }

    fn record(i: u32) -> SegmentRecord {
        SegmentRecord {
            info: SegmentInfo {
                id: SegmentId::new(i),
                generation: u64::from(i) << 33,
                members: (0..3).map(|d| Member { drive: d, au: i }).collect(),
                stream: Stream::Reclaim,
                shard: 1,
                geometry: geometry(),
            },
            roll_from: i.is_multiple_of(2).then_some(i % 65),
            stripes: (i % 3 == 1).then_some(1 + i % 4),
            live: i,
        }
    }

    #[test]
    fn a_manifest_and_its_pages_come_back_as_written() {
        let entry = |i: u32| {
            let location = crate::address::Location::new(SegmentId::new(i), i);
            Entry { location, crc: i }
        };
        let manifest = Paged {
            shard: 1,
            generation: 4,
            cut: 77,
            next_segment: 200,
            segments: 100,
            holders: (0..9).map(record).collect(),
            pages: (1..700).map(entry).collect(),
            map: vec![9; 333],
        };
        let bytes = manifest.to_bytes([3; 16], 3);
        let read = |bytes: &[u8]| Read::from_bytes(bytes, [3; 16], 1, geometry());
        assert_eq!(read(&bytes), Ok(Read::Paged(manifest)));
        assert!(read(&bytes[..bytes.len() - 1]).is_err());
        let records: Vec<SegmentRecord> = (0..96).map(record).collect();
        let bytes: Vec<u8> = records.iter().flat_map(SegmentRecord::to_bytes).collect();
        assert_eq!(records.len(), PAGE_BYTES / SegmentRecord::len(3), "as many as a page takes");
        let block = Page::to_block(PageKind::Segments, 96, &bytes, [3; 16], 1);
        let read = |pool, shard| Page::from_block(&block[..], pool, shard, geometry());
        assert_eq!(read([3; 16], 1), Ok(Page::Segments(records)));
        assert_eq!((read([3; 16], 2), read([2; 16], 1)), (Err(Bad::Blank), Err(Bad::Blank)));
        let block = Page::to_block(PageKind::Tables, 3, &[7; 99], [3; 16], 1);
        let read = Page::from_block(&block[..], [3; 16], 1, geometry());
        assert_eq!(read, Ok(Page::Tables(3, vec![7; 99])));
    }

    /// Format 3 had all segments, and all that the map says, in the manifest.
    #[test]
    fn a_manifest_of_format_3_is_read() {
        let segments: Vec<SegmentRecord> = (0..100).map(record).collect();
        let map = vec![9; 333];
        let mut bytes = Vec::new();
        bytes.extend_from_slice(b"FLASHMAN\0\0\0\0");
        bytes.extend_from_slice(&3_u16.to_le_bytes());
        bytes.extend_from_slice(&1_u16.to_le_bytes());
        bytes.extend_from_slice(&[3; 16]);
        bytes.extend_from_slice(&4_u64.to_le_bytes());
        bytes.extend_from_slice(&77_u64.to_le_bytes());
        bytes.extend_from_slice(&100_u32.to_le_bytes());
        bytes.extend_from_slice(&3_u32.to_le_bytes());
        bytes.extend_from_slice(&200_u32.to_le_bytes());
        bytes.extend_from_slice(&0_u32.to_le_bytes());
        bytes.extend_from_slice(&333_u64.to_le_bytes());
        segments.iter().for_each(|segment| bytes.extend_from_slice(&segment.to_bytes()));
        bytes.extend_from_slice(&map);
        seal(&mut bytes, MAGIC);
        let (shard, generation, cut, next_segment) = (1, 4, 77, 200);
        let whole = Manifest { shard, generation, cut, next_segment, segments, map };
        let read = Read::from_bytes(&bytes, [3; 16], 1, geometry());
        assert_eq!(read, Ok(Read::Whole(whole)));
    }
}
