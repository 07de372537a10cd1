//! Pages of items: a header, columns of fixed-width bit fields, lengths of stretches, checksums.
//!
//! One block of contents costs its checksum (4 bytes) and, when it stands alone, the bits of its key within the page
//! and of its place: 8 to 9 bytes on a page of random blocks, 4 on a sequential one. How contents are stored costs
//! nothing on a page where all of them are plain, and 3 bits for each block's length where they are not. Fields have
//! fixed widths so that a search looks at the packed form. The layout is drawn in `docs/format.md`. Nothing here panics
//! on bad bytes: a page is authenticated by the checksum its reference carries, and what it says is checked where it is
//! used.

mod builder;

pub(super) use builder::Builder;

use super::bits;
use super::flat::{END, Flat, Item, Place, low64};
use crate::address::{
    BLOCK, BLOCK_BITS, BLOCK_GRAINS, Encoding, GRAIN_BITS, Location, Method, SegmentId, Version,
    View,
};
use crate::format::Bad;
use stdx::num::{low8, low16, low32, u64_of, usize64};
use zerocopy::little_endian::{U16, U32};
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

impl Kind {
    /// What a page that was just encoded holds.
    pub(super) fn of(page: &[u8; BLOCK]) -> Option<Self> {
        let (head, _) = Head::ref_from_prefix(page).ok()?;
        let all = [Self::Leaf, Self::Index, Self::Filters, Self::Holes, Self::Filter];
        all.into_iter().find(|kind| head.kind == *kind as u8)
    }
}

pub(super) const MAGIC: [u8; 4] = *b"FLmp";

/// Widest field: what one unaligned 8-byte load can give at any bit offset.
const FIELD_BITS: u8 = 57;

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
    grain_bits: u8,
    base_view: U32,
    base_segment: U32,
    base_block: [u8; 5],
    /// Places are in units of so many grains, as a power of two: 3 where all begin with a block.
    shift: u8,
    /// 1 where [`Encodings`] follow.
    encodings: u8,
    reserved: u8,
}

/// What follows the head of a page whose contents are not all plain, or not all of the first version.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Encodings {
    /// 3, or 0 where every block takes 8 grains.
    length_bits: u8,
    /// 0 where nothing is compressed.
    method_bits: u8,
    /// Of the numbers of keys contents are encrypted under, less the lowest.
    cipher_bits: u8,
    /// Of items' versions, less the lowest. In an index page they are those before leaves that go on with a stack.
    version_bits: u8,
    base_cipher: U32,
    base_version: U32,
    reserved: U32,
}

const ENCODINGS: usize = 16;
const _: () = assert!(size_of::<Encodings>() == ENCODINGS);
const _: () = assert!(std::mem::offset_of!(Encodings, base_version) == 8);

/// Bits of a block's length in grains, less 1.
const LENGTH_BITS: u32 = 3;
const _: () = assert!(BLOCK_GRAINS == 1 << LENGTH_BITS);

/// Bits of a method's number at most.
const METHOD_BITS: u32 = 4;

const HEAD: usize = 32;
const _: () = assert!(size_of::<Head>() == HEAD);
const _: () = assert!(std::mem::offset_of!(Head, checksums) == 8);
const _: () = assert!(std::mem::offset_of!(Head, key_bits) == 12);
const _: () = assert!(std::mem::offset_of!(Head, base_view) == 16);
const _: () = assert!(std::mem::offset_of!(Head, base_block) == 24);
const _: () = assert!(std::mem::offset_of!(Head, encodings) == 30);

/// The numbers and widths in a page's head, and where its parts begin by them. Small: whoever goes through a page has a
/// copy of its own.
#[derive(Clone, Copy, Debug)]
struct Shape {
    items: u16,
    checksums: u16,
    stretches: u16,
    key_bits: u8,
    count_bits: u8,
    place_bits: u8,
    grain_bits: u8,
    shift: u8,
    cipher_bits: u8,
    version_bits: u8,
    length_bits: u8,
    method_bits: u8,
    at: Offsets,
}

/// Where the parts of a page begin, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Offsets {
    keys: u16,
    counts: u16,
    places: u16,
    ciphers: u16,
    versions: u16,
    stretches: u16,
    checksums: u16,
    lengths: u16,
    methods: u16,
}

impl Shape {
    /// Bytes of the head and of each part, in their order.
    #[inline(always)]
    fn parts(&self, encodes: bool) -> [usize; 9] {
        let (items, checksums) = (self.len(), usize::from(self.checksums));
        let column = |fields: usize, bits: u8| (fields * usize::from(bits)).div_ceil(8);
        [
            HEAD + if encodes { ENCODINGS } else { 0 },
            column(items, self.key_bits),
            column(items, self.count_bits),
            column(items, self.place_bits),
            column(items, self.cipher_bits),
            column(items, self.version_bits),
            usize::from(self.stretches) * 8,
            checksums * 4,
            column(checksums, self.length_bits) + column(checksums, self.method_bits),
        ]
    }

    /// Bytes of all of it, and of the zeroes that follow.
    #[inline(always)]
    fn bytes(&self, encodes: bool) -> usize {
        self.parts(encodes).iter().sum::<usize>() + TAIL
    }

    /// The same with its offsets, if all of it fits a page.
    #[inline(always)]
    fn laid_out(self, encodes: bool) -> Option<Self> {
        if self.bytes(encodes) > BLOCK {
            return None;
        }
        let mut end = 0;
        let [keys, counts, places, ciphers, versions, stretches, sums, lengths, _] =
            self.parts(encodes).map(|bytes| {
                end += low16(u64_of(bytes));
                end
            });
        let checksums = usize::from(self.checksums);
        let length_bytes = (checksums * usize::from(self.length_bits)).div_ceil(8);
        let methods = lengths + low16(u64_of(length_bytes));
        let at = Offsets {
            keys,
            counts,
            places,
            ciphers,
            versions,
            stretches,
            checksums: sums,
            lengths,
            methods,
        };
        Some(Self { at, ..self })
    }

    const fn encodes(&self) -> bool {
        self.at.keys as usize > HEAD
    }

    const fn len(&self) -> usize {
        self.items as usize
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
    base_cipher: u32,
    base_version: u32,
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
    #[inline(always)]
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
        let encodings = Self::encodings(&head, bytes, kind)?;
        let shape = Shape {
            items: head.items.get(),
            checksums: head.checksums.get(),
            stretches: head.stretches.get(),
            key_bits: head.key_bits,
            count_bits: head.count_bits,
            place_bits: head.place_bits,
            grain_bits: head.grain_bits,
            shift: head.shift,
            cipher_bits: encodings.map_or(0, |e| e.cipher_bits),
            version_bits: encodings.map_or(0, |e| e.version_bits),
            length_bits: encodings.map_or(0, |e| e.length_bits),
            method_bits: encodings.map_or(0, |e| e.method_bits),
            at: Offsets::default(),
        };
        let wide = shape.key_bits.max(shape.place_bits) > FIELD_BITS || shape.count_bits > 16;
        let shift = u32::from(shape.shift);
        if wide || shift > LENGTH_BITS || u32::from(shape.grain_bits) + shift > GRAIN_BITS {
            return Err(Bad::Field("width"));
        }
        let alone = shape.count_bits == 0 && shape.checksums != shape.items;
        let all = u32::from(shape.checksums) + u32::from(shape.stretches);
        if alone || all < u32::from(shape.items) || shape.items == 0 {
            return Err(Bad::Field("number of items"));
        }
        let shape = shape.laid_out(encodings.is_some()).ok_or(Bad::Field("number of items"))?;
        let [a, b, c, d, e] = head.base_block;
        let block = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        let base = super::flat::flat(View::new(head.base_view.get()), block);
        let base_cipher = encodings.map_or(0, |e| e.base_cipher.get());
        let base_version = encodings.map_or(0, |e| e.base_version.get());
        let base_segment = head.base_segment.get();
        Ok(Self { shape, base, base_segment, base_cipher, base_version })
    }

    fn encodings(head: &Head, bytes: &[u8; BLOCK], kind: Kind) -> Result<Option<Encodings>, Bad> {
        if (head.encodings, head.reserved) == (0, 0) {
            return Ok(None);
        }
        let leads = matches!(kind, Kind::Leaf | Kind::Index);
        if (head.encodings, head.reserved) != (1, 0) || !leads {
            return Err(Bad::Field("encodings of a page"));
        }
        let rest = bytes.get(HEAD..).unwrap_or_default();
        let (more, _) = Encodings::read_from_prefix(rest).map_err(|_| Bad::Field("length"))?;
        // What names pages has plain ones.
        let plain = (more.length_bits, more.method_bits, more.cipher_bits, more.base_cipher.get());
        if kind != Kind::Leaf && plain != (0, 0, 0, 0) {
            return Err(Bad::Field("encodings of a page"));
        }
        if u32::from(more.version_bits) > Version::BITS
            || more.base_version > Version::LAST.get()
            || more.reserved != 0
        {
            return Err(Bad::Field("versions of a page"));
        }
        let lengths = matches!(u32::from(more.length_bits), 0 | LENGTH_BITS);
        let narrow = u32::from(more.method_bits) <= METHOD_BITS
            && u32::from(more.cipher_bits) <= Encoding::KEY_BITS;
        // What is plain takes 8 grains.
        let fits = more.length_bits > 0 || more.method_bits == 0;
        if lengths && narrow && fits { Ok(Some(more)) } else { Err(Bad::Field("width")) }
    }
}

/// An item of a page: blocks that lie one behind another, whatever each is encoded by, or a stretch without contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub start: Flat,
    pub blocks: u64,
    /// Of the first block; its encoding is not looked at.
    pub place: Place,
    /// The number of its first checksum.
    checksum: usize,
}

impl Run {
    pub const fn end(&self) -> Flat {
        self.start + self.blocks as Flat
    }
}

impl<'a> Page<'a> {
    /// # Errors
    /// What is wrong with the head.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8; BLOCK], kind: Kind) -> Result<Self, Bad> {
        Ok(Self { bytes, parsed: Parsed::of(bytes, kind)? })
    }

    /// A page whose head was looked at before.
    pub const fn parsed(bytes: &'a [u8; BLOCK], parsed: Parsed) -> Self {
        Self { bytes, parsed }
    }

    pub const fn len(&self) -> usize {
        self.parsed.shape.len()
    }

    /// Where item `i` begins; a nonsense field gives a nonsense key, never a panic.
    pub fn start(&self, i: usize) -> Flat {
        let Shape { key_bits, at, .. } = self.parsed.shape;
        self.parsed.base + Flat::from(bits::get(self.bytes, at.keys, i, key_bits))
    }

    /// The last item beginning at `at` or before it.
    pub fn floor(&self, at: Flat) -> Option<usize> {
        let offset = at.checked_sub(self.parsed.base)?;
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        let Shape { key_bits, at, .. } = self.parsed.shape;
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if bits::get(self.bytes, at.keys, middle, key_bits) <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// Whether an item may have another version than the first. If none has, there is one for each block.
    pub const fn has_versions(&self) -> bool {
        self.parsed.shape.version_bits > 0 || self.parsed.base_version > 0
    }

    /// Since when item `i` is what it is; beyond the last version where its field makes no sense.
    fn raw_version(&self, i: usize) -> u32 {
        let Shape { version_bits, at, .. } = self.parsed.shape;
        self.parsed.base_version + low32(bits::get(self.bytes, at.versions, i, version_bits))
    }

    /// The version of item `i`.
    ///
    /// # Errors
    /// When its field makes no sense.
    pub fn version(&self, i: usize) -> Result<Version, Bad> {
        if !self.has_versions() {
            return Ok(Version::FIRST);
        }
        Version::new(self.raw_version(i)).ok_or(Bad::Field("version"))
    }

    /// Of the items over the blocks of item `last`, of which it is the oldest, the newest that is not newer than `as_of`.
    pub fn version_of(&self, last: usize, as_of: Version) -> Option<usize> {
        let Shape { key_bits, at, .. } = self.parsed.shape;
        let start = |i: usize| bits::get(self.bytes, at.keys, i, key_bits);
        let of = start(last);
        let newer = |i: usize| start(i) < of || self.raw_version(i) > as_of.get();
        if newer(last) {
            return None;
        }
        // Most stacks are low: back from the end in steps that double, and then between the last two.
        let (mut low, mut high, mut step) = (0, last, 1);
        while low < high {
            let before = high.saturating_sub(step);
            if newer(before) {
                low = before + 1;
                break;
            }
            (high, step) = (before, step * 2);
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if newer(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// The number of item `i`'s first checksum.
    fn checksum_of(&self, i: usize) -> usize {
        let Shape { count_bits, checksums, at, .. } = self.parsed.shape;
        if count_bits == 0 {
            return i;
        }
        if i == self.len() {
            return usize::from(checksums);
        }
        usize64(bits::get(self.bytes, at.counts, i, count_bits))
    }

    /// Item `i`, below [`len`](Self::len).
    ///
    /// # Errors
    /// When its fields make no sense.
    #[inline(always)]
    pub fn run(&self, i: usize) -> Result<Run, Bad> {
        let start = self.start(i);
        let (first, next) = (self.checksum_of(i), self.checksum_of(i + 1));
        let Shape { place_bits, checksums, at, .. } = self.parsed.shape;
        let place = bits::get(self.bytes, at.places, i, place_bits);
        if next < first || next > usize::from(checksums) {
            return Err(Bad::Field("count of blocks"));
        }
        let (blocks, place) = if next > first {
            let blocks = u64_of(next - first);
            (blocks, self.place(i, place, blocks).ok_or(Bad::Field("location"))?)
        } else {
            self.stretch(place).ok_or(Bad::Field("stretch"))?
        };
        let in_view = (start & ((1 << BLOCK_BITS) - 1)) + Flat::from(blocks);
        if start >= END || in_view > 1 << BLOCK_BITS {
            return Err(Bad::Field("key"));
        }
        Ok(Run { start, blocks, place, checksum: first })
    }

    /// What a run has from `at` on, which lies inside, as far as it is all encoded in the same way; and the number of
    /// its first checksum.
    ///
    /// # Errors
    /// When its fields make no sense.
    #[inline(always)]
    pub fn part(&self, run: &Run, at: Flat) -> Result<(Item, usize), Bad> {
        debug_assert!(run.start <= at && at < run.end());
        let skip = low64(at - run.start);
        let checksum = run.checksum + usize64(skip);
        match run.place {
            Place::At(first, encoding) if self.parsed.shape.length_bits > 0 => {
                let (place, blocks) = self.encoded(run, first, encoding.key(), usize64(skip))?;
                Ok((Item { start: at, blocks, place }, checksum))
            }
            place => {
                let item = Item { start: run.start, blocks: run.blocks, place };
                Ok((item.from(at), checksum))
            }
        }
    }

    /// Where the block of a run is that lies behind `skip` others, and how many from there on are encoded as it is.
    #[inline(never)]
    fn encoded(
        &self,
        run: &Run,
        first: Location,
        key: u32,
        skip: usize,
    ) -> Result<(Place, u64), Bad> {
        let all = run.checksum..run.checksum + usize64(run.blocks);
        let grains: u64 = all.clone().map(|n| self.length(n)).sum();
        if u64::from(first.grain()) + grains > 1 << GRAIN_BITS {
            return Err(Bad::Field("location"));
        }
        let at = run.checksum + skip;
        let before: u64 = (all.start..at).map(|n| self.length(n)).sum();
        let encoding = self.encoding(at, key)?;
        let mut end = at + 1;
        while end < all.end && self.encoding(end, key)? == encoding {
            end += 1;
        }
        Ok((Place::At(first.forward(low32(before)), encoding), u64_of(end - at)))
    }

    /// Grains that the block of a checksum takes.
    fn length(&self, number: usize) -> u64 {
        let shape = &self.parsed.shape;
        1 + bits::get(self.bytes, shape.at.lengths, number, shape.length_bits)
    }

    fn encoding(&self, number: usize, key: u32) -> Result<Encoding, Bad> {
        let shape = &self.parsed.shape;
        let method = bits::get(self.bytes, shape.at.methods, number, shape.method_bits);
        let method = Method::of_number(low8(method)).ok_or(Bad::Field("method"))?;
        Encoding::new(low8(self.length(number)), method, key).ok_or(Bad::Field("encoding"))
    }

    /// Where the first block of item `i` lies, and under which key.
    fn place(&self, i: usize, field: u64, blocks: u64) -> Option<Place> {
        let shape = &self.parsed.shape;
        let segment = u32::try_from(field >> shape.grain_bits).ok()?;
        let segment = self.parsed.base_segment.checked_add(segment)?;
        let grain = (field & ((1 << shape.grain_bits) - 1)) << shape.shift;
        // Less than so many have no length of their own.
        let least = blocks * if shape.length_bits > 0 { 1 } else { u64::from(BLOCK_GRAINS) };
        if grain + least > 1 << GRAIN_BITS {
            return None;
        }
        let location = Location::of_grain(SegmentId::new(segment), low32(grain));
        if !shape.encodes() {
            return Some(Place::At(location, Encoding::PLAIN));
        }
        let cipher = bits::get(self.bytes, shape.at.ciphers, i, shape.cipher_bits);
        let key = self.parsed.base_cipher.checked_add(low32(cipher))?;
        Some(Place::At(location, Encoding::new(8, Method::Plain, key)?))
    }

    /// A stretch of blocks without contents: how many they are, and what they are.
    fn stretch(&self, number: u64) -> Option<(u64, Place)> {
        let number = usize::try_from(number)
            .ok()
            .filter(|&n| n < usize::from(self.parsed.shape.stretches))?;
        let word = bits::word(self.bytes, usize::from(self.parsed.shape.at.stretches) + number * 8);
        let (blocks, place) =
            (word & !LOST, if word & LOST == 0 { Place::Hole } else { Place::Lost });
        (blocks > 0 && blocks <= 1 << BLOCK_BITS).then_some((blocks, place))
    }

    /// Checksum `number`, as [`item`](Self::item) counts them.
    pub fn checksum(&self, number: usize) -> u32 {
        debug_assert!(number < usize::from(self.parsed.shape.checksums));
        let at = usize::from(self.parsed.shape.at.checksums) + number * 4;
        self.bytes[at..].first_chunk().map_or(0, |four: &[u8; 4]| u32::from_le_bytes(*four))
    }
}

const _: () = assert!(ITEMS_MAX < u16::MAX as usize);
