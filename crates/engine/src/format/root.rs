//! The root of a shard: where its newest manifest lies. One block, in two slots on every drive.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Bad, VERSION, check, seal};
use crate::address::{BLOCK, Entry, Location, LogMark};

const MAGIC: [u8; 8] = *b"FLSHROOT";

/// Where one shard's checkpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub pool: [u8; 16],
    pub shard: u16,
    /// Grows with every checkpoint.
    pub generation: u64,
    /// How far the log had come.
    pub log: LogMark,
    /// Bytes of the manifest.
    pub bytes: u64,
    /// The blocks that list the manifest's blocks.
    pub index: Vec<Entry>,
    /// The segments that hold index and manifest, as the manifest itself describes them: needed to
    /// read it.
    pub segments: Vec<Vec<u8>>,
}

/// Blocks of the index a root can name.
pub const INDEX_MAX: usize = 64;
/// Blocks that one of them names.
pub const INDEX_ENTRIES: usize = BLOCK / size_of::<RawEntry>();
/// Bytes of a manifest at most.
pub const MANIFEST_MAX: usize = INDEX_MAX * INDEX_ENTRIES * BLOCK;
/// Bytes left for the segments' descriptions.
pub const SEGMENTS_BYTES: usize = BLOCK - size_of::<Head>() - INDEX_MAX * size_of::<RawEntry>();

/// Segments that a root can describe, of which each description has so many bytes.
#[must_use]
pub const fn segments_max(described: usize) -> usize {
    SEGMENTS_BYTES / (size_of::<u16>() + described)
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
    bytes: U64,
    index: U16,
    segments: U16,
    reserved: [u8; 4],
    log_ring: U64,
    log_sequence: U64,
}
const _: () = assert!(size_of::<Head>() == 72);

/// An [`Entry`] on media.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawEntry {
    pub location: U64,
    pub crc: U32,
}
const _: () = assert!(size_of::<RawEntry>() == 12);

impl From<Entry> for RawEntry {
    fn from(entry: Entry) -> Self {
        Self { location: entry.location.to_bits().into(), crc: entry.crc.into() }
    }
}

impl RawEntry {
    /// # Errors
    /// When the location has bits it cannot have.
    pub fn entry(&self) -> Result<Entry, Bad> {
        let location = Location::from_bits(self.location.get()).ok_or(Bad::Field("location"))?;
        Ok(Entry { location, crc: self.crc.get() })
    }
}

impl Root {
    /// The root as a block.
    ///
    /// # Panics
    /// When it names more index blocks or segments than fit, which its writer has made sure of.
    #[must_use]
    pub fn to_block(&self) -> Box<[u8; BLOCK]> {
        assert!(self.index.len() <= INDEX_MAX, "a manifest is bounded by its index");
        let head = Head {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            shard: self.shard.into(),
            pool: self.pool,
            generation: self.generation.into(),
            bytes: self.bytes.into(),
            index: stdx::num::u16_of(self.index.len()).into(),
            segments: stdx::num::u16_of(self.segments.len()).into(),
            reserved: [0; 4],
            log_ring: self.log.ring.into(),
            log_sequence: self.log.sequence.into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        for entry in &self.index {
            bytes.extend_from_slice(RawEntry::from(*entry).as_bytes());
        }
        for segment in &self.segments {
            bytes.extend_from_slice(&stdx::num::u16_of(segment.len()).to_le_bytes());
            bytes.extend_from_slice(segment);
        }
        assert!(bytes.len() <= BLOCK, "the segments of a manifest are few");
        let mut block = Box::new([0; BLOCK]);
        block[..bytes.len()].copy_from_slice(&bytes);
        seal(&mut block[..], MAGIC);
        block
    }

    /// The root in a block.
    ///
    /// # Errors
    /// `Blank` where no root of this pool and shard was written, and what is wrong with the one
    /// there.
    pub fn from_block(block: &[u8], pool: [u8; 16], shard: u16) -> Result<Self, Bad> {
        check(block, MAGIC)?;
        let (head, rest) = Head::ref_from_prefix(block).map_err(|_| Bad::Blank)?;
        if head.pool != pool || head.shard.get() != shard {
            return Err(Bad::Blank);
        }
        let count = usize::from(head.index.get());
        if count > INDEX_MAX {
            return Err(Bad::Field("index"));
        }
        let (raw, mut rest) = <[RawEntry]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| Bad::Field("index"))?;
        let index = raw.iter().map(RawEntry::entry).collect::<Result<_, _>>()?;
        let mut segments = Vec::new();
        for _ in 0..head.segments.get() {
            let (len, after) = rest.split_first_chunk::<2>().ok_or(Bad::Field("segments"))?;
            let len = usize::from(u16::from_le_bytes(*len));
            let (segment, after) = after.split_at_checked(len).ok_or(Bad::Field("segments"))?;
            segments.push(segment.to_vec());
            rest = after;
        }
        Ok(Self {
            pool,
            shard,
            generation: head.generation.get(),
            log: LogMark { ring: head.log_ring.get(), sequence: head.log_sequence.get() },
            bytes: head.bytes.get(),
            index,
            segments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::SegmentId;

    #[test]
    fn a_root_comes_back_as_written() {
        let entry = |i| Entry { location: Location::new(SegmentId::new(i), i), crc: i };
        let root = Root {
            pool: [1; 16],
            shard: 3,
            generation: 99,
            log: LogMark { ring: 1, sequence: 2 },
            bytes: 123_456,
            index: (1..=64).map(entry).collect(),
            segments: vec![vec![1; 200], vec![], vec![2; 90]],
        };
        let block = root.to_block();
        assert_eq!(Root::from_block(&block[..], [1; 16], 3), Ok(root));
        assert_eq!(Root::from_block(&block[..], [1; 16], 2), Err(Bad::Blank));
        assert_eq!(Root::from_block(&block[..], [2; 16], 3), Err(Bad::Blank));
    }
}
