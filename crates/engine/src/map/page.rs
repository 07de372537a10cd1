//! Pages of items: a header, columns of fixed-width bit fields, lengths of stretches, checksums.
//!
//! One block of contents costs its checksum (4 bytes) and, when it stands alone, the bits of its key
//! within the page and of its place: 8 to 9 bytes on a page of random blocks, 4 on a sequential one.
//! Fields have fixed widths so that a search looks at the packed form. The layout is drawn in
//! `docs/format.md`. Nothing here panics on bad bytes: a page is authenticated by the checksum its
//! reference carries, and what it says is checked where it is used.

use super::bits;
use super::flat::{END, Flat, Item, Place};
use crate::address::{BLOCK, BLOCK_BITS, Location, SLOT_BITS, SegmentId, View};
use crate::format::Bad;
use stdx::num::{low32, u16_of, u64_of, usize64};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Items of the map.
    Leaf = 1,
    /// First key, location and checksum of each leaf of a table.
    Index = 2,
    /// Number, location and checksum of each filter page of a table.
    Filters = 3,
    /// The long holes of a table.
    Holes = 4,
    /// Fingerprints: laid out in `filter.rs`.
    Filter = 5,
}

pub(super) const MAGIC: [u8; 4] = *b"FLmp";

/// Widest field: what one unaligned 8-byte load can give at any bit offset.
const FIELD_BITS: u32 = 57;

/// The bit of a stretch's length that says that its blocks are lost, and no hole.
const LOST: u64 = 1 << 63;

/// Zero bytes at a page's end, so that a field's 8-byte load stays inside.
const TAIL: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 4],
    kind: u8,
    version: u8,
    items: U16,
    checksums: U16,
    stretches: U16,
    key_bits: u8,
    count_bits: u8,
    place_bits: u8,
    slot_bits: u8,
    base_view: U32,
    base_segment: U32,
    base_block: U64,
}

const HEAD: usize = 32;
const _: () = assert!(size_of::<Head>() == HEAD);
const _: () = assert!(std::mem::offset_of!(Head, checksums) == 8);
const _: () = assert!(std::mem::offset_of!(Head, key_bits) == 12);
const _: () = assert!(std::mem::offset_of!(Head, base_view) == 16);
const _: () = assert!(std::mem::offset_of!(Head, base_block) == 24);

/// Offsets of a page's parts, from the numbers and widths in its head.
#[derive(Clone, Copy, Debug)]
struct Shape {
    items: usize,
    checksums: usize,
    stretches: usize,
    key_bits: u32,
    count_bits: u32,
    place_bits: u32,
    slot_bits: u32,
}

impl Shape {
    const fn counts_at(&self) -> usize {
        HEAD + (self.items * self.key_bits as usize).div_ceil(8)
    }

    const fn places_at(&self) -> usize {
        self.counts_at() + (self.items * self.count_bits as usize).div_ceil(8)
    }

    const fn stretches_at(&self) -> usize {
        self.places_at() + (self.items * self.place_bits as usize).div_ceil(8)
    }

    const fn checksums_at(&self) -> usize {
        self.stretches_at() + self.stretches * 8
    }

    const fn end(&self) -> usize {
        self.checksums_at() + self.checksums * 4 + TAIL
    }
}

/// Most items a page can hold, whatever they are: each takes 4 bytes at least.
pub(super) const ITEMS_MAX: usize = (BLOCK - HEAD - TAIL) / 4;

/// What the head of a page says, when it is in order.
#[derive(Clone, Copy)]
pub(super) struct Parsed {
    shape: Shape,
    base: Flat,
    base_segment: u32,
}

/// A page that was looked at: its head is in order, its fields are checked as they are taken.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    bytes: &'a [u8; BLOCK],
    parsed: Parsed,
}

impl Parsed {
    /// # Errors
    /// What is wrong with the head.
    pub fn of(bytes: &[u8; BLOCK], kind: Kind) -> Result<Self, Bad> {
        let Ok((head, _)) = Head::read_from_prefix(bytes) else {
            return Err(Bad::Field("length"));
        };
        if head.magic != MAGIC || head.kind != kind as u8 {
            return Err(Bad::Field("kind of page"));
        }
        if u16::from(head.version) != crate::format::VERSION {
            return Err(Bad::Version(u16::from(head.version)));
        }
        let shape = Shape {
            items: usize::from(head.items.get()),
            checksums: usize::from(head.checksums.get()),
            stretches: usize::from(head.stretches.get()),
            key_bits: u32::from(head.key_bits),
            count_bits: u32::from(head.count_bits),
            place_bits: u32::from(head.place_bits),
            slot_bits: u32::from(head.slot_bits),
        };
        let wide = shape.key_bits.max(shape.place_bits) > FIELD_BITS || shape.count_bits > 16;
        if wide || shape.slot_bits > SLOT_BITS {
            return Err(Bad::Field("width"));
        }
        let alone = shape.count_bits == 0;
        let few = shape.checksums + shape.stretches < shape.items || shape.items == 0;
        if few || shape.end() > BLOCK || (alone && shape.checksums != shape.items) {
            return Err(Bad::Field("number of items"));
        }
        if head.base_block.get() >> BLOCK_BITS != 0 {
            return Err(Bad::Field("first key"));
        }
        let base = super::flat::flat(View::new(head.base_view.get()), head.base_block.get());
        Ok(Self { shape, base, base_segment: head.base_segment.get() })
    }
}

impl<'a> Page<'a> {
    /// # Errors
    /// What is wrong with the head.
    pub fn parse(bytes: &'a [u8; BLOCK], kind: Kind) -> Result<Self, Bad> {
        Ok(Self { bytes, parsed: Parsed::of(bytes, kind)? })
    }

    /// A page whose head was looked at before.
    pub const fn parsed(bytes: &'a [u8; BLOCK], parsed: Parsed) -> Self {
        Self { bytes, parsed }
    }

    pub const fn len(&self) -> usize {
        self.parsed.shape.items
    }

    /// Where item `i` begins; a nonsense field gives a nonsense key, never a panic.
    pub fn start(&self, i: usize) -> Flat {
        self.parsed.base + Flat::from(bits::get(self.bytes, HEAD, i, self.parsed.shape.key_bits))
    }

    /// The last item beginning at `at` or before it.
    pub fn floor(&self, at: Flat) -> Option<usize> {
        let offset = at.checked_sub(self.parsed.base)?;
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        let (mut low, mut high) = (0, self.parsed.shape.items);
        while low < high {
            let middle = usize::midpoint(low, high);
            if bits::get(self.bytes, HEAD, middle, self.parsed.shape.key_bits) <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// The number of item `i`'s first checksum.
    fn checksum_of(&self, i: usize) -> usize {
        if self.parsed.shape.count_bits == 0 {
            return i;
        }
        if i == self.parsed.shape.items {
            return self.parsed.shape.checksums;
        }
        usize64(bits::get(
            self.bytes,
            self.parsed.shape.counts_at(),
            i,
            self.parsed.shape.count_bits,
        ))
    }

    /// Item `i`, below [`len`](Self::len), and the number of its first checksum.
    ///
    /// # Errors
    /// When its fields make no sense.
    pub fn item(&self, i: usize) -> Result<(Item, usize), Bad> {
        let start = self.start(i);
        let (first, next) = (self.checksum_of(i), self.checksum_of(i + 1));
        let place =
            bits::get(self.bytes, self.parsed.shape.places_at(), i, self.parsed.shape.place_bits);
        if next < first || next > self.parsed.shape.checksums {
            return Err(Bad::Field("count of blocks"));
        }
        let item = if next > first {
            let blocks = u64_of(next - first);
            let place = self.place(place, blocks).ok_or(Bad::Field("location"))?;
            Item { start, blocks, place: Place::At(place) }
        } else {
            let (blocks, place) = self.stretch(place).ok_or(Bad::Field("stretch"))?;
            Item { start, blocks, place }
        };
        let in_view = (start & ((1 << BLOCK_BITS) - 1)) + Flat::from(item.blocks);
        if start >= END || in_view > 1 << BLOCK_BITS {
            return Err(Bad::Field("key"));
        }
        Ok((item, first))
    }

    fn place(&self, field: u64, blocks: u64) -> Option<Location> {
        let segment = u32::try_from(field >> self.parsed.shape.slot_bits).ok()?;
        let segment = self.parsed.base_segment.checked_add(segment)?;
        let slot = low32(field & ((1 << self.parsed.shape.slot_bits) - 1));
        if u64::from(slot) + blocks > 1 << SLOT_BITS {
            return None;
        }
        Some(Location::new(SegmentId::new(segment), slot))
    }

    /// A stretch of blocks without contents: how many they are, and what they are.
    fn stretch(&self, number: u64) -> Option<(u64, Place)> {
        let number = usize::try_from(number).ok().filter(|&n| n < self.parsed.shape.stretches)?;
        let word = bits::word(self.bytes, self.parsed.shape.stretches_at() + number * 8);
        let (blocks, place) =
            (word & !LOST, if word & LOST == 0 { Place::Hole } else { Place::Lost });
        (blocks > 0 && blocks <= 1 << BLOCK_BITS).then_some((blocks, place))
    }

    /// Checksum `number`, as [`item`](Self::item) counts them.
    pub fn checksum(&self, number: usize) -> u32 {
        debug_assert!(number < self.parsed.shape.checksums);
        let at = self.parsed.shape.checksums_at() + number * 4;
        self.bytes[at..].first_chunk().map_or(0, |four: &[u8; 4]| u32::from_le_bytes(*four))
    }
}

/// The width of the field that numbers checksums: none when each item has one, which is what
/// 0 stands for, so at least 1 otherwise.
fn count_bits(all_single: bool, checksums: usize) -> u32 {
    if all_single { 0 } else { bits::width(u64_of(checksums)).max(1) }
}

/// Gathers items, in ascending order and not overlapping, until a page is full.
pub(super) struct Builder {
    items: Vec<Item>,
    checksums: Vec<u32>,
    stretches: usize,
    segments: (u32, u32),
    slot_max: u32,
    all_single: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            items: Vec::with_capacity(ITEMS_MAX),
            checksums: Vec::with_capacity(ITEMS_MAX),
            stretches: 0,
            segments: (u32::MAX, 0),
            slot_max: 0,
            all_single: true,
        }
    }
}

impl Builder {
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn items(&self) -> &[Item] {
        &self.items
    }

    pub fn clear(&mut self) {
        self.items.clear();
        self.checksums.clear();
        (self.stretches, self.slot_max, self.all_single) = (0, 0, true);
        self.segments = (u32::MAX, 0);
    }

    /// The page's shape were `item` added, of which only the first `blocks` count; `joined` when it
    /// lengthens the last item.
    fn shape_with(&self, item: &Item, blocks: usize, joined: bool) -> Option<Shape> {
        let base = self.items.first().map_or(item.start, |i| i.start);
        let start = if joined { self.items.last()?.start } else { item.start };
        let span = u64::try_from(start - base).ok()?;
        let (mut low, mut high) = self.segments;
        let mut slot_max = self.slot_max;
        if let (Place::At(place), false) = (item.place, joined) {
            low = low.min(place.segment().get());
            high = high.max(place.segment().get());
            slot_max = slot_max.max(place.slot());
        }
        let has_contents = item.place.has_contents();
        let checksums = self.checksums.len() + if has_contents { blocks } else { 0 };
        let stretches = self.stretches + usize::from(!has_contents && !joined);
        let single = self.all_single && !joined && has_contents && blocks == 1;
        let slot_bits = bits::width(u64::from(slot_max));
        let segment_bits = bits::width(u64::from(high.saturating_sub(low)));
        let shape = Shape {
            items: self.items.len() + usize::from(!joined),
            checksums,
            stretches,
            key_bits: bits::width(span),
            count_bits: count_bits(single, checksums),
            place_bits: (slot_bits + segment_bits).max(bits::width(u64_of(stretches))),
            slot_bits,
        };
        let fits = shape.key_bits <= FIELD_BITS && shape.end() <= BLOCK;
        fits.then_some(shape)
    }

    /// Adds the item if all of it fits.
    pub fn push_whole(&mut self, item: &Item, checksums: &[u32]) -> bool {
        let joined = self.items.last().is_some_and(|l| l.continued_by(item));
        let blocks = if item.place.has_contents() { item.count() } else { 0 };
        let fits = self.shape_with(item, blocks, joined).is_some();
        if fits {
            self.take(item, item.blocks, joined);
            self.checksums.extend_from_slice(&checksums[..blocks]);
        }
        fits
    }

    /// Adds as many of the item's blocks as fit and tells how many those were: 0 when the page is
    /// full. A stretch without contents fits whole or not. `checksums` has one for each block of contents.
    pub fn push(&mut self, item: &Item, checksums: &[u32]) -> u64 {
        let last = self.items.last();
        debug_assert!(last.is_none_or(|l| l.end() <= item.start), "items ascend");
        let joined = last.is_some_and(|l| l.continued_by(item));
        if !item.place.has_contents() {
            if self.shape_with(item, 0, joined).is_none() {
                return 0;
            }
            self.take(item, item.blocks, joined);
            return item.blocks;
        }
        let mut blocks = item.count();
        if self.shape_with(item, blocks, joined).is_none() {
            let Some(one) = self.shape_with(item, 1, joined) else { return 0 };
            blocks = blocks.min(1 + (BLOCK - one.end()) / 4);
            while self.shape_with(item, blocks, joined).is_none() {
                blocks -= 1;
            }
        }
        self.take(item, u64_of(blocks), joined);
        self.checksums.extend_from_slice(&checksums[..blocks]);
        u64_of(blocks)
    }

    fn take(&mut self, item: &Item, blocks: u64, joined: bool) {
        self.all_single &= !joined && item.place.has_contents() && blocks == 1;
        if joined {
            if let Some(last) = self.items.last_mut() {
                last.blocks += blocks;
            }
            return;
        }
        match item.place {
            Place::At(place) => {
                let segment = place.segment().get();
                self.segments = (self.segments.0.min(segment), self.segments.1.max(segment));
                self.slot_max = self.slot_max.max(place.slot());
            }
            Place::Hole | Place::Lost => self.stretches += 1,
        }
        self.items.push(Item { blocks, ..*item });
    }

    /// Writes the page, which holds at least one item.
    pub fn encode(&self, kind: Kind, out: &mut [u8; BLOCK]) {
        let (Some(first), Some(last)) = (self.items.first(), self.items.last()) else { return };
        let slot_bits = bits::width(u64::from(self.slot_max));
        let (low, high) = self.segments;
        let segment_bits = bits::width(u64::from(high.saturating_sub(low)));
        let count_bits = count_bits(self.all_single, self.checksums.len());
        let shape = Shape {
            items: self.items.len(),
            checksums: self.checksums.len(),
            stretches: self.stretches,
            key_bits: bits::width(super::flat::distance(first.start, last.start)),
            count_bits,
            place_bits: (slot_bits + segment_bits).max(bits::width(u64_of(self.stretches))),
            slot_bits,
        };
        out.fill(0);
        let base = super::flat::unflat(first.start);
        let narrow = |bits: u32| u8::try_from(bits).unwrap_or(u8::MAX);
        let head = Head {
            magic: MAGIC,
            kind: kind as u8,
            version: narrow(u32::from(crate::format::VERSION)),
            items: U16::new(u16_of(shape.items)),
            checksums: U16::new(u16_of(shape.checksums)),
            stretches: U16::new(u16_of(shape.stretches)),
            key_bits: narrow(shape.key_bits),
            count_bits: narrow(shape.count_bits),
            place_bits: narrow(shape.place_bits),
            slot_bits: narrow(shape.slot_bits),
            base_view: U32::new(base.view.get()),
            base_segment: U32::new(if low > high { 0 } else { low }),
            base_block: U64::new(base.block),
        };
        out[..HEAD].copy_from_slice(head.as_bytes());
        self.encode_columns(&shape, first.start, out);
    }

    fn encode_columns(&self, shape: &Shape, base: Flat, out: &mut [u8; BLOCK]) {
        let (mut checksum, mut stretch) = (0, 0);
        let low = self.segments.0;
        for (i, item) in self.items.iter().enumerate() {
            let offset = super::flat::distance(base, item.start);
            bits::put(out, HEAD, i, shape.key_bits, offset);
            if shape.count_bits > 0 {
                bits::put(out, shape.counts_at(), i, shape.count_bits, checksum);
            }
            let field = if let Place::At(place) = item.place {
                checksum += item.blocks;
                let segment = u64::from(place.segment().get() - low);
                segment << shape.slot_bits | u64::from(place.slot())
            } else {
                let at = shape.stretches_at() + usize64(stretch) * 8;
                let lost = if item.place == Place::Lost { LOST } else { 0 };
                out[at..at + 8].copy_from_slice(&(item.blocks | lost).to_le_bytes());
                stretch += 1;
                stretch - 1
            };
            bits::put(out, shape.places_at(), i, shape.place_bits, field);
        }
        let at = shape.checksums_at();
        for (chunk, crc) in out[at..].chunks_exact_mut(4).zip(&self.checksums) {
            chunk.copy_from_slice(&crc.to_le_bytes());
        }
    }
}

const _: () = assert!(ITEMS_MAX < u16::MAX as usize);
