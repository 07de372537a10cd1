//! Records as they are on media: a header of one cache line, the checksums of the blocks when there
//! are several, the data. Everything is aligned to 64 bytes.

use super::limits::{ALIGN, RECORD_BLOCKS_MAX};
use crate::address::{BLOCK, BLOCK_BITS, Encoding, Key, Location, Method, Stored, Version, View};
use stdx::crc32c;
use stdx::num::{low8, low32, u64_of, usize64};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = u32::from_le_bytes(*b"FLRC");

const WRITE: u8 = 1;
const HOLE: u8 = 2;
const PAD: u8 = 3;
const REFER: u8 = 4;
const LOST: u8 = 5;

/// A record's first 64 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Header {
    magic: U32,
    /// CRC-32C of the 56 bytes after it.
    crc: U32,
    /// The log's own number, drawn at random when it was created.
    ring: U64,
    sequence: U64,
    /// Every record up to this sequence was durable when this one was stored.
    settled: U64,
    /// Counts how often the log was opened; never goes down from record to record.
    epoch: U32,
    view: U32,
    block: U64,
    /// Blocks of a write, hole or references; bytes of padding, this header included.
    count: U64,
    /// Of a write: the CRC-32C of its block, or of the list of checksums when there are several. Of
    /// references: of all that follows. Of lost blocks: the record's length in units of 64 bytes.
    data_crc: U32,
    kind: u8,
    version: [u8; 3],
}

/// Bytes of a header.
pub(super) const HEADER: usize = 64;
const _: () = assert!(size_of::<Header>() == HEADER);
const _: () = assert!(std::mem::offset_of!(Header, ring) == 8);
const _: () = assert!(std::mem::offset_of!(Header, epoch) == 32);
const _: () = assert!(std::mem::offset_of!(Header, data_crc) == 56);
const _: () = assert!(std::mem::offset_of!(Header, version) == 61 && Version::BITS <= 3 * 8);

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write {
        key: Key,
        blocks: usize,
    },
    Hole {
        key: Key,
        count: u64,
    },
    /// So many blocks have the contents of others.
    Refer {
        key: Key,
        blocks: usize,
    },
    /// Nothing, for so many bytes.
    Pad {
        bytes: u64,
    },
    /// What is left of a record of so many bytes that was acknowledged and is damaged: the contents
    /// of these blocks are lost.
    Lost {
        key: Key,
        blocks: usize,
        bytes: u64,
    },
}

/// A header understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub ring: u64,
    pub sequence: u64,
    pub settled: u64,
    pub epoch: u32,
    pub kind: Kind,
    /// In which version of its volume its blocks are such.
    pub version: Version,
    pub data_crc: u32,
}

/// Bytes of the list of checksums of so many blocks, alignment included: none for one block, whose
/// checksum is in the header.
pub(super) const fn list_bytes(blocks: usize) -> u64 {
    if blocks <= 1 { 0 } else { (u64_of(blocks) * 4).next_multiple_of(ALIGN) }
}

impl Kind {
    /// Whose blocks it is about; `None` of padding.
    pub const fn view(self) -> Option<View> {
        match self {
            Self::Write { key, .. }
            | Self::Hole { key, .. }
            | Self::Refer { key, .. }
            | Self::Lost { key, .. } => Some(key.view),
            Self::Pad { .. } => None,
        }
    }

    /// Bytes of the whole record.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Write { blocks, .. } => {
                u64_of(HEADER) + list_bytes(blocks) + u64_of(blocks * BLOCK)
            }
            Self::Hole { .. } => u64_of(HEADER),
            Self::Refer { blocks, .. } => u64_of(HEADER) + u64_of(references_bytes(blocks)),
            Self::Pad { bytes } | Self::Lost { bytes, .. } => bytes,
        }
    }

    /// Whether it covers a stretch of blocks without having their contents.
    pub const fn is_stretch(self) -> bool {
        matches!(self, Self::Hole { .. } | Self::Refer { .. } | Self::Lost { .. })
    }
}

/// What follows the header of references: whose blocks they were copied from.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Source {
    block: U64,
    view: U32,
    reserved: U32,
}
const SOURCE: usize = size_of::<Source>();
const _: () = assert!(SOURCE == 16);

/// One block of references: where its contents lie, their checksum, and how they are encoded.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Reference {
    location: U64,
    crc: U32,
    key: [u8; 3],
    /// Grains, less 1, in 3 bits, and the method.
    encoding: u8,
}
const REFERENCE: usize = size_of::<Reference>();
const _: () = assert!(REFERENCE == 16);
const _: () = assert!(std::mem::offset_of!(Reference, encoding) == 15);
const _: () = assert!(Encoding::KEY_BITS == 3 * 8);

/// Bytes after the header of references to so many blocks, alignment included.
const fn references_bytes(blocks: usize) -> usize {
    (SOURCE + blocks * REFERENCE).next_multiple_of(HEADER)
}

/// What follows the header of references to `entries`, which are the contents of the blocks from
/// `source` on.
pub(super) fn references(source: Key, entries: &[Stored]) -> Vec<u8> {
    let head =
        Source { block: source.block.into(), view: source.view.get().into(), reserved: 0.into() };
    let mut bytes = Vec::with_capacity(references_bytes(entries.len()));
    bytes.extend_from_slice(head.as_bytes());
    for Stored { location, encoding, crc } in entries {
        let [a, b, c, _] = encoding.key().to_le_bytes();
        let length = low8(u64::from(encoding.grains() - 1));
        let reference = Reference {
            location: location.to_bits().into(),
            crc: (*crc).into(),
            key: [a, b, c],
            encoding: length | encoding.method().number() << 3,
        };
        bytes.extend_from_slice(reference.as_bytes());
    }
    bytes.resize(references_bytes(entries.len()), 0);
    bytes
}

/// The source of references, and block `n` of them, out of what follows their header. `None` when it
/// makes no sense.
pub(super) fn reference_at(body: &[u8], n: usize) -> Option<(Key, Stored)> {
    let (source, rest) = Source::ref_from_prefix(body).ok()?;
    let (reference, _) = Reference::ref_from_prefix(rest.get(n * REFERENCE..)?).ok()?;
    let location = Location::from_bits(reference.location.get())?;
    let block =
        source.block.get().checked_add(u64_of(n)).filter(|block| block >> BLOCK_BITS == 0)?;
    let key = Key::new(View::new(source.view.get()), block);
    let [a, b, c] = reference.key;
    let method = Method::of_number(reference.encoding >> 3)?;
    let grains = (reference.encoding & 7) + 1;
    let encoding = Encoding::new(grains, method, u32::from_le_bytes([a, b, c, 0]))?;
    Some((key, Stored { location, encoding, crc: reference.crc.get() }))
}

impl Record {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let (kind, key, count) = match self.kind {
            Kind::Write { key, blocks } => (WRITE, key, u64_of(blocks)),
            Kind::Hole { key, count } => (HOLE, key, count),
            Kind::Refer { key, blocks } => (REFER, key, u64_of(blocks)),
            Kind::Pad { bytes } => (PAD, Key::new(View::METADATA, 0), bytes),
            Kind::Lost { key, blocks, .. } => (LOST, key, u64_of(blocks)),
        };
        let data_crc = match self.kind {
            Kind::Lost { bytes, .. } => low32(bytes / ALIGN),
            _ => self.data_crc,
        };
        let [a, b, c, _] = self.version.get().to_le_bytes();
        let mut header = Header {
            magic: MAGIC.into(),
            crc: 0.into(),
            ring: self.ring.into(),
            sequence: self.sequence.into(),
            settled: self.settled.into(),
            epoch: self.epoch.into(),
            view: key.view.get().into(),
            block: key.block.into(),
            count: count.into(),
            data_crc: data_crc.into(),
            kind,
            version: [a, b, c],
        };
        header.crc = crc32c(&header.as_bytes()[8..]).into();
        zerocopy::transmute!(header)
    }

    /// Whether these bytes may be a header: a look before decoding.
    pub fn is_likely(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC.to_le_bytes())
    }

    /// The record a header tells of, or `None` when these bytes are no header.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = Header::ref_from_prefix(bytes).ok()?.0;
        if header.magic.get() != MAGIC || header.crc.get() != crc32c(&bytes[8..HEADER]) {
            return None;
        }
        let [a, b, c] = header.version;
        let version = Version::new(u32::from_le_bytes([a, b, c, 0]))?;
        let (block, count) = (header.block.get(), header.count.get());
        let end = block.checked_add(count)?;
        let kind = match header.kind {
            PAD if count.is_multiple_of(ALIGN) && count > 0 => Kind::Pad { bytes: count },
            WRITE | HOLE | REFER | LOST if count == 0 || end > 1 << BLOCK_BITS => return None,
            WRITE if usize64(count) <= RECORD_BLOCKS_MAX => {
                let key = Key::new(View::new(header.view.get()), block);
                Kind::Write { key, blocks: usize64(count) }
            }
            REFER if usize64(count) <= RECORD_BLOCKS_MAX => {
                let key = Key::new(View::new(header.view.get()), block);
                Kind::Refer { key, blocks: usize64(count) }
            }
            HOLE => Kind::Hole { key: Key::new(View::new(header.view.get()), block), count },
            LOST if usize64(count) <= RECORD_BLOCKS_MAX && header.data_crc.get() > 0 => {
                let key = Key::new(View::new(header.view.get()), block);
                let bytes = u64::from(header.data_crc.get()) * ALIGN;
                Kind::Lost { key, blocks: usize64(count), bytes }
            }
            _ => return None,
        };
        Some(Self {
            ring: header.ring.get(),
            sequence: header.sequence.get(),
            settled: header.settled.get(),
            epoch: header.epoch.get(),
            kind,
            version,
            data_crc: header.data_crc.get(),
        })
    }

    /// Bytes after the header that mean something.
    pub const fn body_bytes(&self) -> u64 {
        match self.kind {
            Kind::Write { .. } | Kind::Refer { .. } => self.kind.bytes() - u64_of(HEADER),
            Kind::Hole { .. } | Kind::Pad { .. } | Kind::Lost { .. } => 0,
        }
    }

    /// The checksum of one block of a write: from the header or the list.
    pub fn block_crc(&self, list: &[u8], block: usize) -> u32 {
        if list.is_empty() { self.data_crc } else { crc_at(list, block) }
    }

    /// Whether `body`, all that follows the header, is what was stored.
    pub fn is_whole(&self, body: &[u8]) -> bool {
        if let Kind::Refer { .. } = self.kind {
            return crc32c(body) == self.data_crc;
        }
        self.damaged_blocks(body).is_some_and(|mut damaged| damaged.next().is_none())
    }

    /// Which blocks of a write have not the checksum they had, `body` being all that follows the
    /// header; `None` when the checksums themselves are damaged.
    pub fn damaged_blocks<'a>(&self, body: &'a [u8]) -> Option<impl Iterator<Item = usize> + 'a> {
        let blocks = if let Kind::Write { blocks, .. } = self.kind { blocks } else { 0 };
        let (list, data) = body.split_at(usize64(list_bytes(blocks)));
        if blocks > 1 && crc32c(list) != self.data_crc {
            return None;
        }
        let record = *self;
        let each = data.chunks_exact(BLOCK).take(blocks).enumerate();
        let damaged = move |(n, block): (usize, &[u8])| {
            (crc32c(block) != record.block_crc(list, n)).then_some(n)
        };
        Some(each.filter_map(damaged))
    }
}

/// The `n`th checksum of a list.
pub(super) fn crc_at(list: &[u8], n: usize) -> u32 {
    U32::ref_from_prefix(&list[4 * n..]).map_or(0, |(crc, _)| crc.get())
}

/// A list of checksums being made.
pub(super) struct CrcList {
    bytes: Box<[u8; 4 * RECORD_BLOCKS_MAX]>,
    len: usize,
}

impl CrcList {
    pub fn new() -> Self {
        Self { bytes: Box::new([0; 4 * RECORD_BLOCKS_MAX]), len: 0 }
    }

    pub const fn clear(&mut self) {
        self.len = 0;
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub fn push(&mut self, crc: u32) {
        self.bytes[4 * self.len..][..4].copy_from_slice(&crc.to_le_bytes());
        self.len += 1;
    }

    /// What goes into the header.
    pub fn data_crc(&mut self) -> u32 {
        if self.len == 1 { crc_at(&self.bytes[..], 0) } else { crc32c(self.list()) }
    }

    /// What goes after it: nothing for one block; else padded with zeroes.
    pub fn list(&mut self) -> &[u8] {
        let bytes = usize64(list_bytes(self.len));
        if bytes == 0 {
            return &[];
        }
        self.bytes[4 * self.len..bytes].fill(0);
        &self.bytes[..bytes]
    }

    pub fn get(&self, n: usize) -> u32 {
        crc_at(&self.bytes[..], n)
    }
}

const _: () = assert!(low32(list_bytes(RECORD_BLOCKS_MAX)) == 1024);
