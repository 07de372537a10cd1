//! The header of a stripe: what each of its blocks is, in the order it was put there. The headers
//! of all stripes, by sequence, are the journal of the map.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Bad, VERSION, check, seal};
use crate::address::{
    BLOCK, BLOCK_BITS, Encoding, Key, Location, LogMark, SLOT_BITS, SegmentId, SharedBlockId,
    Version, View,
};
use raid::Geometry;
use stdx::num::{u16_of, u32_of, usize32};

/// What kind of contents a segment takes: what is written together dies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// What hosts wrote.
    User,
    /// What reclaim moved: it has outlived its neighbours.
    Reclaim,
    /// The map's pages and manifests.
    Metadata,
}

impl Stream {
    pub const ALL: [Self; 3] = [Self::User, Self::Reclaim, Self::Metadata];

    /// As on media.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::User => 1,
            Self::Reclaim => 2,
            Self::Metadata => 3,
        }
    }

    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|stream| stream.to_byte() == byte)
    }
}

/// What blocks of a stripe are, or what else the map learns from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// New contents of the blocks from `key` on.
    Write { key: Key },
    /// The same contents at a new place: counts for those blocks that the map still has at `old`
    /// and after it.
    Move { key: Key, old: Location },
    /// So many blocks from `key` on have no contents any more. Takes no block of the stripe.
    Hole { key: Key, blocks: u64 },
    /// The blocks from `key` on have the contents of shared blocks, `name` and those after it. Such of
    /// those as the map does not have lie where their names say. Takes no block of the stripe.
    Refer { key: Key, name: SharedBlockId },
    /// The blocks from `key` on refer to shared blocks, `name` and those after it: counts for those
    /// that the map still has where the names say. Goes with the references before it, to the same
    /// blocks, which were copied from these. Takes no block of the stripe.
    Share { key: Key, name: SharedBlockId },
    /// The contents of the blocks from `key` on are lost: of those that the map still has at `old` and after it, or,
    /// without that, of all. Takes no block of the stripe.
    Lost { key: Key, old: Option<Location> },
}

impl Owner {
    /// Whether the stripe has the contents.
    #[must_use]
    pub const fn has_contents(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Move { .. })
    }

    /// Whether a checksum of each block is in the header.
    const fn has_checksums(&self) -> bool {
        self.has_contents() || matches!(self, Self::Refer { .. })
    }
}

/// In the byte of the stream: lengths and methods of the stored pieces follow the checksums, a byte each. Set aside.
const HAS_ENCODINGS: u8 = 0x80;
/// There, too: the records' versions follow the checksums, since one of them has another than the first.
const HAS_VERSIONS: u8 = 0x40;

/// One entry of a stripe's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    pub owner: Owner,
    /// In which version of its volume its blocks are such: of what was moved, that in which it was written. The first of
    /// shared blocks, which have no volume, and of shares, which change the entry that the map has.
    pub version: Version,
    /// Blocks it speaks of; none for a hole, which says so itself.
    pub count: u32,
}

impl OwnerRecord {
    /// Of the first version.
    #[must_use]
    pub const fn unversioned(owner: Owner, count: u32) -> Self {
        Self { owner, version: Version::FIRST, count }
    }

    /// Blocks of the stripe it has.
    #[must_use]
    pub const fn contents(&self) -> u32 {
        if self.owner.has_contents() { self.count } else { 0 }
    }

    /// Blocks it says are lost.
    #[must_use]
    pub const fn lost(&self) -> u32 {
        if matches!(self.owner, Owner::Lost { .. }) { self.count } else { 0 }
    }

    /// Checksums of blocks that are not in the stripe.
    #[must_use]
    pub const fn references(&self) -> u32 {
        if matches!(self.owner, Owner::Refer { .. }) { self.count } else { 0 }
    }
}

/// A record with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    pub owner: Owner,
    pub version: Version,
    /// Blocks it speaks of; none for a hole.
    pub count: u32,
    /// Of its first block. Of no meaning where the stripe does not have the contents.
    pub location: Location,
    /// One CRC-32C for each of its blocks, where there are contents.
    pub crcs: &'a [u32],
}

/// The header of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeHeader {
    pub segment: SegmentId,
    pub generation: u64,
    pub stripe: u32,
    pub shard: u16,
    pub stream: Stream,
    /// The order of a shard's stripes.
    pub sequence: u64,
    /// Nothing in it was carried from a later record of the log: the low bits of that one's
    /// [sequence](LogMark::low).
    pub log: u64,
    /// The first slot after the header.
    pub(crate) first_slot: u32,
    pub(crate) records: Vec<OwnerRecord>,
    /// One for each data block, in slot order.
    pub(crate) crcs: Vec<u32>,
    /// One for each block referred to, in the order of the records.
    pub(crate) references: Vec<u32>,
}

impl StripeHeader {
    /// Its records in the order they were pushed, which is the order to apply them in.
    pub fn placed(&self) -> impl Iterator<Item = Placed<'_>> {
        let (mut before, mut referred) = (0, 0);
        self.records.iter().map(move |record| {
            let location = Location::new(self.segment, self.first_slot).offset(u32_of(before));
            let OwnerRecord { owner, version, count } = *record;
            let len = if owner.has_checksums() { usize32(count) } else { 0 };
            if let Owner::Share { .. } = owner {
                // It speaks of the blocks that the record before it refers to.
                let crcs = &self.references[referred - usize32(count)..referred];
                return Placed { owner, version, count, location, crcs };
            }
            let (list, at) = match owner.has_contents() {
                true => (&self.crcs, &mut before),
                false => (&self.references, &mut referred),
            };
            let crcs = &list[*at..*at + len];
            *at += len;
            Placed { owner, version, count, location, crcs }
        })
    }

    /// Data blocks in it.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        u32_of(self.crcs.len())
    }
}

const MAGIC: [u8; 8] = *b"FLASHSTR";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    shard: U16,
    pool: [u8; 16],
    generation: U64,
    sequence: U64,
    segment: U32,
    stripe: U16,
    records: U16,
    /// Data blocks, without the header's own.
    blocks: U16,
    stream: u8,
    log: [u8; 5],
}
const _: () = assert!(size_of::<Head>() == 64);
const _: () = assert!(LogMark::BITS == 5 * 8);
const _: () = assert!(std::mem::offset_of!(Head, pool) == 16);
const _: () = assert!(std::mem::offset_of!(Head, generation) == 32);
const _: () = assert!(std::mem::offset_of!(Head, segment) == 48);
const _: () = assert!(std::mem::offset_of!(Head, records) == 54);
const _: () = assert!(std::mem::offset_of!(Head, log) == 59);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Record {
    kind: u8,
    reserved: u8,
    /// Blocks it speaks of; 0 for a hole.
    count: U16,
    view: U32,
    block: [u8; 5],
    /// Number of the key its contents are encrypted under; 0 when they are not. Set aside.
    key: [u8; 3],
    /// Write: 0. Move: the old location. Hole: how many blocks it covers. References: the name of the
    /// first block referred to. Lost: the old location, or 0.
    argument: U64,
}
const _: () = assert!(size_of::<Record>() == 24);
const _: () = assert!(std::mem::offset_of!(Record, block) == 8);
const _: () = assert!(std::mem::offset_of!(Record, argument) == 16);
const _: () = assert!(BLOCK_BITS == 5 * 8 && Encoding::KEY_BITS == 3 * 8);

const HEAD: usize = size_of::<Head>();
pub(crate) const RECORD: usize = size_of::<Record>();
const CRC: usize = size_of::<u32>();
const VERSION_BYTES: usize = size_of::<u32>();

mod kind {
    pub const WRITE: u8 = 1;
    pub const MOVE: u8 = 2;
    pub const HOLE: u8 = 3;
    pub const REFER: u8 = 4;
    pub const SHARE: u8 = 5;
    pub const LOST: u8 = 6;
}

/// Blocks that headers of this geometry take: there is room for one record for every other block of
/// the stripe.
#[must_use]
pub fn header_blocks(geometry: Geometry) -> u32 {
    let bytes = HEAD + usize32(geometry.stripe_blocks()) * (RECORD + CRC);
    u32_of(bytes.div_ceil(BLOCK))
}

/// Blocks of contents that a segment has room for.
#[must_use]
pub fn segment_blocks(geometry: Geometry) -> u64 {
    u64::from(geometry.stripes() * (geometry.stripe_blocks() - header_blocks(geometry)))
}

/// Bytes of a header with so many records, without checksums.
const fn bytes_of(records: usize, has_versions: bool) -> usize {
    HEAD + records * (RECORD + if has_versions { VERSION_BYTES } else { 0 })
}

/// Whether a header of so many blocks has room for these.
#[must_use]
pub(crate) const fn fits(
    header_blocks: u32,
    records: usize,
    checksums: usize,
    has_versions: bool,
) -> bool {
    bytes_of(records, has_versions) + checksums * CRC <= usize32(header_blocks) * BLOCK
}

/// How many checksums a header of so many blocks has room for beside so many records.
#[must_use]
pub(crate) const fn checksums_beside(
    header_blocks: u32,
    records: usize,
    has_versions: bool,
) -> usize {
    (usize32(header_blocks) * BLOCK).saturating_sub(bytes_of(records, has_versions)) / CRC
}

fn to_raw(record: &OwnerRecord) -> Record {
    let (kind, key, argument) = match record.owner {
        Owner::Write { key } => (kind::WRITE, key, 0),
        Owner::Move { key, old } => (kind::MOVE, key, old.to_bits()),
        Owner::Hole { key, blocks } => (kind::HOLE, key, blocks),
        Owner::Refer { key, name } => (kind::REFER, key, name.origin().to_bits()),
        Owner::Share { key, name } => (kind::SHARE, key, name.origin().to_bits()),
        Owner::Lost { key, old } => (kind::LOST, key, old.map_or(0, Location::to_bits)),
    };
    Record {
        kind,
        reserved: 0,
        count: u16_of(usize32(record.count)).into(),
        view: key.view.get().into(),
        block: low_bytes(key.block),
        key: [0; 3],
        argument: argument.into(),
    }
}

/// A record, but for its version.
fn from_raw(raw: &Record) -> Result<OwnerRecord, Bad> {
    let (block, argument) = (from_low_bytes(raw.block), raw.argument.get());
    if raw.key != [0; 3] {
        return Err(Bad::Field("key of a record, of a later version,"));
    }
    if raw.reserved != 0 {
        return Err(Bad::Field("reserved byte of a record"));
    }
    let count = u32::from(raw.count.get());
    let covered = if raw.kind == kind::HOLE { argument } else { count.into() };
    let end = block.checked_add(covered).ok_or(Bad::Field("record block"))?;
    if covered == 0 || end > 1 << BLOCK_BITS || (raw.kind == kind::HOLE && count != 0) {
        return Err(Bad::Field("record range"));
    }
    let key = Key { view: View::new(raw.view.get()), block };
    let owner = match raw.kind {
        kind::WRITE => Owner::Write { key },
        kind::MOVE => Owner::Move { key, old: places(argument, count)? },
        // Where 0 would lead to no contents ever lie.
        kind::LOST if argument == 0 => Owner::Lost { key, old: None },
        kind::LOST => Owner::Lost { key, old: Some(places(argument, count)?) },
        kind::HOLE => Owner::Hole { key, blocks: argument },
        kind::REFER => Owner::Refer { key, name: name(argument, count)? },
        kind::SHARE => Owner::Share { key, name: name(argument, count)? },
        _ => return Err(Bad::Field("record kind")),
    };
    Ok(OwnerRecord::unversioned(owner, count))
}

/// The first of `count` adjacent places, which are those of contents.
fn places(bits: u64, count: u32) -> Result<Location, Bad> {
    let at = Location::from_bits(bits).filter(|at| at.name().is_none() && at.is_of_block());
    let ends =
        |at: &Location| at.slot().checked_add(count).is_some_and(|end| end >> SLOT_BITS == 0);
    at.filter(ends).ok_or(Bad::Field("record location"))
}

/// The first of `count` names.
fn name(bits: u64, count: u32) -> Result<SharedBlockId, Bad> {
    places(bits, count).map(SharedBlockId::of)
}

/// Checks that what shares blocks goes with references to the same.
fn check_pairs(records: &[OwnerRecord]) -> Result<(), Bad> {
    let mut before = None;
    for record in records {
        let pair = match record.owner {
            Owner::Refer { name, .. } | Owner::Share { name, .. } => Some((name, record.count)),
            _ => None,
        };
        if matches!(record.owner, Owner::Share { .. }) && pair != before {
            return Err(Bad::Field("record pair"));
        }
        before = pair;
    }
    Ok(())
}

impl StripeHeader {
    /// Fills `bytes`, the header blocks of a stripe.
    pub(crate) fn write(&self, pool: [u8; 16], bytes: &mut [u8]) {
        let has_versions = self.records.iter().any(|record| record.version != Version::FIRST);
        let mark = if has_versions { HAS_VERSIONS } else { 0 };
        let head = Head {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            shard: self.shard.into(),
            pool,
            generation: self.generation.into(),
            sequence: self.sequence.into(),
            segment: self.segment.get().into(),
            stripe: u16_of(usize32(self.stripe)).into(),
            records: u16_of(self.records.len()).into(),
            blocks: u16_of(self.crcs.len()).into(),
            stream: self.stream.to_byte() | mark,
            log: low_bytes(self.log),
        };
        let (front, rest) = bytes.split_at_mut(HEAD);
        front.copy_from_slice(head.as_bytes());
        let (records, rest) = rest.split_at_mut(self.records.len() * RECORD);
        for (record, to) in self.records.iter().zip(records.chunks_exact_mut(RECORD)) {
            to.copy_from_slice(to_raw(record).as_bytes());
        }
        let checksums = self.crcs.iter().chain(&self.references);
        let (crcs, rest) = rest.split_at_mut((self.crcs.len() + self.references.len()) * CRC);
        for (crc, to) in checksums.zip(crcs.chunks_exact_mut(CRC)) {
            to.copy_from_slice(&crc.to_le_bytes());
        }
        let (versions, rest) =
            rest.split_at_mut(if has_versions { self.records.len() * VERSION_BYTES } else { 0 });
        for (record, to) in self.records.iter().zip(versions.chunks_exact_mut(VERSION_BYTES)) {
            to.copy_from_slice(&record.version.get().to_le_bytes());
        }
        rest.fill(0);
        seal(bytes, MAGIC);
    }

    /// The header in these blocks of this pool, wherever they were found.
    ///
    /// # Errors
    /// `Blank` where none was written, and what is wrong with the one there.
    pub fn read(bytes: &[u8], pool: [u8; 16], geometry: Geometry) -> Result<Self, Bad> {
        check(bytes, MAGIC)?;
        let (head, rest) = Head::ref_from_prefix(bytes).map_err(|_| Bad::Blank)?;
        if head.pool != pool {
            return Err(Bad::Field("pool"));
        }
        if head.stream & HAS_ENCODINGS != 0 {
            return Err(Bad::Field("encodings of a stripe, of a later version,"));
        }
        let stripe = u32::from(head.stripe.get());
        let blocks = usize::from(head.blocks.get());
        let header_blocks = header_blocks(geometry);
        if stripe >= geometry.stripes() || head.blocks.get() > most_blocks(geometry) {
            return Err(Bad::Field("stripe"));
        }
        let records = usize::from(head.records.get()) * RECORD;
        let (raw, rest) = rest.split_at_checked(records).ok_or(Bad::Field("records"))?;
        let records = raw
            .chunks_exact(RECORD)
            .map(|raw| from_raw(&Record::read_from_bytes(raw).map_err(|_| Bad::Field("records"))?));
        let mut records: Vec<OwnerRecord> = records.collect::<Result<_, _>>()?;
        check_pairs(&records)?;
        if records.iter().map(|r| usize32(r.contents())).sum::<usize>() != blocks {
            return Err(Bad::Field("count"));
        }
        let references: usize = records.iter().map(|r| usize32(r.references())).sum();
        let checksums = (blocks + references) * CRC;
        let (checksums, rest) = rest.split_at_checked(checksums).ok_or(Bad::Field("checksums"))?;
        let (crcs, references) = checksums.split_at(blocks * CRC);
        let crc = |c: &[u8]| c.try_into().map_or(0, u32::from_le_bytes);
        if head.stream & HAS_VERSIONS != 0 {
            let bytes = records.len() * VERSION_BYTES;
            let versions = rest.get(..bytes).ok_or(Bad::Field("versions"))?;
            for (record, raw) in records.iter_mut().zip(versions.chunks_exact(VERSION_BYTES)) {
                record.version = Version::new(crc(raw)).ok_or(Bad::Field("version of a record"))?;
            }
        }
        Ok(Self {
            segment: SegmentId::new(head.segment.get()),
            generation: head.generation.get(),
            stripe,
            shard: head.shard.get(),
            stream: Stream::from_byte(head.stream & !HAS_VERSIONS).ok_or(Bad::Field("stream"))?,
            sequence: head.sequence.get(),
            log: from_low_bytes(head.log),
            first_slot: geometry.stripe_slot(stripe) + header_blocks,
            records,
            crcs: crcs.chunks_exact(CRC).map(crc).collect(),
            references: references.chunks_exact(CRC).map(crc).collect(),
        })
    }
}

fn low_bytes(number: u64) -> [u8; 5] {
    let [a, b, c, d, e, ..] = number.to_le_bytes();
    [a, b, c, d, e]
}

const fn from_low_bytes([a, b, c, d, e]: [u8; 5]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

fn most_blocks(geometry: Geometry) -> u16 {
    u16_of(usize32(geometry.stripe_blocks() - header_blocks(geometry)))
}

#[cfg(test)]
mod tests;
