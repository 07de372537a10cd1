//! Filling a page.

use super::{
    ENCODINGS, Encodings, FIELD_BITS, HEAD, Head, ITEMS_MAX, Kind, LENGTH_BITS, LOST, MAGIC,
    Offsets, Shape,
};
use crate::address::{BLOCK, BLOCK_GRAINS, Encoding, Version};
use crate::map::bits;
use crate::map::flat::{Flat, Item, Place, distance, end_of_view, unflat};
use crate::map::stack::{Layer, Stack};
use stdx::num::{low8, u64_of, usize64};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// What the shape of a page follows from.
#[derive(Clone, Copy)]
struct Sums {
    items: usize,
    checksums: usize,
    stretches: usize,
    first: Flat,
    last: Flat,
    all_single: bool,
    /// Lowest and highest segment.
    segments: (u32, u32),
    /// All the bits of the first grains.
    grains: u32,
    /// Some block is not stored as it is.
    is_short: bool,
    method: u8,
    /// Lowest and highest key.
    ciphers: (u32, u32),
    /// Lowest and highest version.
    versions: (u32, u32),
}

impl Sums {
    const EMPTY: Self = Self {
        items: 0,
        checksums: 0,
        stretches: 0,
        first: 0,
        last: 0,
        all_single: true,
        segments: (u32::MAX, 0),
        grains: 0,
        is_short: false,
        method: 0,
        ciphers: (u32::MAX, 0),
        versions: (u32::MAX, 0),
    };

    /// Adds an item, `joined` when it lengthens the last one.
    fn add(&mut self, item: &Item, version: Version, blocks: usize, joined: bool) {
        if !joined {
            if self.items == 0 {
                self.first = item.start;
            }
            let version = version.get();
            self.versions = (self.versions.0.min(version), self.versions.1.max(version));
            self.items += 1;
            self.last = item.start;
        }
        let Place::At(at, encoding) = item.place else {
            self.stretches += usize::from(!joined);
            self.all_single = false;
            return;
        };
        self.checksums += blocks;
        self.all_single &= !joined && blocks == 1;
        self.is_short |= encoding.grains() < BLOCK_GRAINS;
        self.method = self.method.max(encoding.method().number());
        if !joined {
            let (segment, key) = (at.segment().get(), encoding.key());
            self.segments = (self.segments.0.min(segment), self.segments.1.max(segment));
            self.ciphers = (self.ciphers.0.min(key), self.ciphers.1.max(key));
            self.grains |= at.grain();
        }
    }

    /// Whether some contents are not stored as they are, or not of the first version.
    const fn encodes(&self) -> bool {
        self.is_short || self.ciphers.1 > 0 || self.versions.1 > 0
    }

    /// Bytes that the page takes; `None` where a field would be too wide, or the page too long.
    fn bytes(&self) -> Option<usize> {
        let bytes = self.widths()?.bytes(self.encodes());
        (bytes <= BLOCK).then_some(bytes)
    }

    /// As [`bytes`](Self::bytes), with where everything goes.
    fn shape(&self) -> Option<Shape> {
        self.widths()?.laid_out(self.encodes())
    }

    /// A shape without offsets; `None` where a field would be too wide.
    #[inline(always)]
    fn widths(&self) -> Option<Shape> {
        let span = u64::try_from(self.last - self.first).ok()?;
        let spread = |(low, high): (u32, u32)| bits::width(u64::from(high.saturating_sub(low)));
        let shift = self.grains.trailing_zeros().min(LENGTH_BITS);
        let grain_bits = bits::width(u64::from(self.grains >> shift));
        let segment_bits = spread(self.segments);
        let place_bits = (grain_bits + segment_bits).max(bits::width(u64_of(self.stretches)));
        // None when each item has one checksum, which is what 0 stands for, so at least 1 otherwise.
        let count_bits =
            if self.all_single { 0 } else { bits::width(u64_of(self.checksums)).max(1) };
        let shape = Shape {
            items: u16::try_from(self.items).ok()?,
            checksums: u16::try_from(self.checksums).ok()?,
            stretches: u16::try_from(self.stretches).ok()?,
            key_bits: bits::width(span),
            count_bits,
            place_bits,
            grain_bits,
            shift: low8(u64::from(shift)),
            cipher_bits: spread(self.ciphers),
            version_bits: spread(self.versions),
            length_bits: if self.is_short { low8(u64::from(LENGTH_BITS)) } else { 0 },
            method_bits: bits::width(u64::from(self.method)),
            at: Offsets::default(),
        };
        (shape.key_bits.max(shape.place_bits) <= FIELD_BITS).then_some(shape)
    }
}

/// Gathers items, in ascending order and not overlapping, until a page is full. Those that continue each other, however
/// they are encoded, become one, unless they are of a stack.
pub(in crate::map) struct Builder {
    /// The place of each is that of its first block.
    items: Vec<Item>,
    /// Grains of the last one.
    grains: u64,
    checksums: Vec<u32>,
    /// By checksum.
    encodings: Vec<Encoding>,
    /// By item, once one is not the first.
    versions: Vec<Version>,
    /// The last item is of a stack.
    stacked: bool,
    sums: Sums,
}

/// How full a page was.
pub(in crate::map) struct Mark {
    items: usize,
    checksums: usize,
    grains: u64,
    stacked: bool,
    sums: Sums,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            items: Vec::with_capacity(ITEMS_MAX),
            grains: 0,
            checksums: Vec::with_capacity(ITEMS_MAX),
            encodings: Vec::new(),
            versions: Vec::new(),
            stacked: false,
            sums: Sums::EMPTY,
        }
    }
}

impl Builder {
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What was added, as far as places go: that of an item is its first block's.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    pub fn clear(&mut self) {
        self.items.clear();
        self.checksums.clear();
        self.encodings.clear();
        self.versions.clear();
        (self.grains, self.stacked, self.sums) = (0, false, Sums::EMPTY);
    }

    /// Whether some item has another version than the first.
    pub const fn has_versions(&self) -> bool {
        self.sums.versions.1 > 0
    }

    /// Whether some blocks have several.
    pub fn has_stacks(&self) -> bool {
        self.has_versions() && self.items.windows(2).any(|two| two[0].start == two[1].start)
    }

    /// The version of the last item.
    fn last_version(&self) -> Version {
        self.versions.last().copied().unwrap_or(Version::FIRST)
    }

    /// Whether the last item goes on with this one.
    fn joins(&self, item: &Item, version: Version) -> bool {
        let Some(last) = self.items.last() else { return false };
        let goes_on = self.stacked || version > Version::FIRST;
        debug_assert!(last.end() <= item.start || goes_on, "items ascend");
        if last.end() != item.start || item.start == end_of_view(last.start) {
            return false;
        }
        if self.stacked || self.last_version() != version {
            return false;
        }
        match (last.place, item.place) {
            (Place::Hole, Place::Hole) | (Place::Lost, Place::Lost) => true,
            (Place::At(first, a), Place::At(next, b)) => {
                a.key() == b.key() && first.is_followed(self.grains, next)
            }
            _ => false,
        }
    }

    /// Counts so many of the item's blocks in, if they fit.
    fn count_in(&mut self, item: &Item, version: Version, blocks: usize, joined: bool) -> bool {
        let before = self.sums;
        self.sums.add(item, version, blocks, joined);
        let fits = self.sums.bytes().is_some();
        if !fits {
            self.sums = before;
        }
        fits
    }

    /// Adds the item if all of it fits.
    pub fn push_whole(&mut self, item: &Item, version: Version, checksums: &[u32]) -> bool {
        let joined = self.joins(item, version);
        let blocks = if item.place.has_contents() { item.count() } else { 0 };
        let fits = self.count_in(item, version, blocks, joined);
        if fits {
            self.take(item, version, item.blocks, joined);
            self.keep(item, &checksums[..blocks]);
        }
        fits
    }

    /// Adds as many of the item's blocks as fit and tells how many those were: 0 when the page is
    /// full. A stretch without contents fits whole or not. `checksums` has one for each block of contents.
    pub fn push(&mut self, item: &Item, version: Version, checksums: &[u32]) -> u64 {
        if !item.place.has_contents() {
            return if self.push_whole(item, version, checksums) { item.blocks } else { 0 };
        }
        let joined = self.joins(item, version);
        let mut blocks = item.count();
        if !self.count_in(item, version, blocks, joined) {
            let mut one = self.sums;
            one.add(item, version, 1, joined);
            let Some(one) = one.bytes() else { return 0 };
            blocks = blocks.min(1 + (BLOCK - one) / 4);
            while !self.count_in(item, version, blocks, joined) {
                blocks -= 1;
            }
        }
        self.take(item, version, u64_of(blocks), joined);
        self.keep(item, &checksums[..blocks]);
        u64_of(blocks)
    }

    /// Adds one layer of a stack if it fits. Nothing goes on with it.
    pub fn push_layer(&mut self, stack: &Stack, layer: &Layer) -> bool {
        let item = Item { start: stack.start, blocks: stack.blocks, place: layer.place };
        let fits = self.count_in(&item, layer.version, layer.crcs.len(), false);
        if fits {
            self.take(&item, layer.version, item.blocks, false);
            self.keep(&item, &layer.crcs);
            self.stacked = true;
        }
        fits
    }

    /// Adds a stack if all of it fits.
    pub fn push_stack(&mut self, stack: &Stack) -> bool {
        let mark = self.mark();
        let fits = stack.layers.iter().all(|layer| self.push_layer(stack, layer));
        if !fits {
            self.go_back(mark);
        }
        fits
    }

    pub const fn mark(&self) -> Mark {
        let (items, checksums) = (self.items.len(), self.checksums.len());
        let Self { grains, stacked, sums, .. } = *self;
        Mark { items, checksums, grains, stacked, sums }
    }

    /// Takes away what was added since, none of which lengthened what there was.
    pub fn go_back(&mut self, mark: Mark) {
        self.items.truncate(mark.items);
        self.checksums.truncate(mark.checksums);
        self.encodings.truncate(if mark.sums.is_short { mark.checksums } else { 0 });
        self.versions.truncate(if mark.sums.versions.1 > 0 { mark.items } else { 0 });
        (self.grains, self.stacked, self.sums) = (mark.grains, mark.stacked, mark.sums);
    }

    fn take(&mut self, item: &Item, version: Version, blocks: u64, joined: bool) {
        let grains = match item.place {
            Place::At(_, encoding) => blocks * u64::from(encoding.grains()),
            Place::Hole | Place::Lost => 0,
        };
        match self.items.last_mut() {
            Some(last) if joined => {
                last.blocks += blocks;
                self.grains += grains;
            }
            _ => {
                if self.sums.versions.1 > 0 {
                    // Those before were of the first.
                    self.versions.resize(self.items.len(), Version::FIRST);
                    self.versions.push(version);
                }
                self.items.push(Item { blocks, ..*item });
                (self.grains, self.stacked) = (grains, false);
            }
        }
    }

    fn keep(&mut self, item: &Item, checksums: &[u32]) {
        let Place::At(_, encoding) = item.place else { return };
        if self.sums.is_short {
            // Those before were plain.
            self.encodings.resize(self.checksums.len(), Encoding::PLAIN);
            self.encodings.resize(self.checksums.len() + checksums.len(), encoding);
        }
        self.checksums.extend_from_slice(checksums);
    }

    /// Writes the page, which holds at least one item.
    pub fn encode(&self, kind: Kind, out: &mut [u8; BLOCK]) {
        let (Some(first), Some(shape)) = (self.items.first(), self.sums.shape()) else { return };
        out.fill(0);
        let base = unflat(first.start);
        let [a, b, c, d, e, ..] = base.block.to_le_bytes();
        let (low, high) = self.sums.segments;
        let encodes = shape.encodes();
        let head = Head {
            magic: MAGIC,
            kind: kind as u8,
            version: low8(u64::from(crate::format::VERSION)),
            items: U16::new(shape.items),
            checksums: U16::new(shape.checksums),
            stretches: U16::new(shape.stretches),
            key_bits: shape.key_bits,
            count_bits: shape.count_bits,
            place_bits: shape.place_bits,
            grain_bits: shape.grain_bits,
            base_view: U32::new(base.view.get()),
            base_segment: U32::new(if low > high { 0 } else { low }),
            base_block: [a, b, c, d, e],
            shift: shape.shift,
            encodings: u8::from(encodes),
            reserved: 0,
        };
        out[..HEAD].copy_from_slice(head.as_bytes());
        if encodes {
            let encodings = Encodings {
                length_bits: shape.length_bits,
                method_bits: shape.method_bits,
                cipher_bits: shape.cipher_bits,
                version_bits: shape.version_bits,
                base_cipher: U32::new(if self.sums.ciphers.1 > 0 {
                    self.sums.ciphers.0
                } else {
                    0
                }),
                base_version: U32::new(self.sums.versions.0),
                reserved: U32::new(0),
            };
            out[HEAD..HEAD + ENCODINGS].copy_from_slice(encodings.as_bytes());
        }
        self.encode_columns(&shape, first.start, out);
        for (n, encoding) in self.encodings.iter().enumerate() {
            let (length, method) = (encoding.grains() - 1, encoding.method().number());
            bits::put(out, shape.at.lengths, n, shape.length_bits, u64::from(length));
            bits::put(out, shape.at.methods, n, shape.method_bits, u64::from(method));
        }
    }

    fn encode_columns(&self, shape: &Shape, base: Flat, out: &mut [u8; BLOCK]) {
        let (mut checksum, mut stretch) = (0, 0);
        for (i, item) in self.items.iter().enumerate() {
            bits::put(out, shape.at.keys, i, shape.key_bits, distance(base, item.start));
            if shape.count_bits > 0 {
                bits::put(out, shape.at.counts, i, shape.count_bits, checksum);
            }
            let field = if let Place::At(place, encoding) = item.place {
                checksum += item.blocks;
                let cipher = u64::from(encoding.key() - self.sums.ciphers.0);
                bits::put(out, shape.at.ciphers, i, shape.cipher_bits, cipher);
                let segment = u64::from(place.segment().get() - self.sums.segments.0);
                segment << shape.grain_bits | u64::from(place.grain() >> shape.shift)
            } else {
                let at = usize::from(shape.at.stretches) + usize64(stretch) * 8;
                let lost = if item.place == Place::Lost { LOST } else { 0 };
                out[at..at + 8].copy_from_slice(&(item.blocks | lost).to_le_bytes());
                stretch += 1;
                stretch - 1
            };
            bits::put(out, shape.at.places, i, shape.place_bits, field);
        }
        for (i, version) in self.versions.iter().enumerate() {
            let version = u64::from(version.get() - self.sums.versions.0);
            bits::put(out, shape.at.versions, i, shape.version_bits, version);
        }
        let at = usize::from(shape.at.checksums);
        for (chunk, crc) in out[at..].chunks_exact_mut(4).zip(&self.checksums) {
            chunk.copy_from_slice(&crc.to_le_bytes());
        }
    }
}
