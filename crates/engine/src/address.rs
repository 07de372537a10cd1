//! Where blocks are, for hosts and on media.

use crate::error::{Error, Kind, Result};
use std::fmt;
use stdx::num::{low8, low32};

/// The engine's block in bytes: what the map addresses.
pub const BLOCK: usize = 4096;

/// The unit of places and of stored lengths in bytes: by how much what is compressed may be shorter.
pub const GRAIN: usize = 512;

/// Grains of a block that is stored as it is.
pub const BLOCK_GRAINS: u32 = 8;
const _: () = assert!(BLOCK == BLOCK_GRAINS as usize * GRAIN);

/// Bits of a block's number within its view: 2^40 blocks are 4 PiB.
pub const BLOCK_BITS: u32 = 40;

/// One addressable set of blocks: a volume, a snapshot, or the metadata of a shard. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct View(u32);

impl View {
    /// The view whose blocks are the shard's own metadata pages. Volumes begin at 1.
    pub const METADATA: Self = Self(0);

    /// From here on views hold the shard's shared blocks, each under its [`SharedBlockId`]. Volumes end
    /// before.
    pub const SHARED: Self = Self(0u32.wrapping_sub(1 << (NAME_BITS - BLOCK_BITS)));

    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether its blocks are shared ones, known by their names.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.0 >= Self::SHARED.0
    }
}

/// A block of a view. Ordered by view, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub view: View,
    /// Below 2^40.
    pub block: u64,
}

impl Key {
    #[must_use]
    pub const fn new(view: View, block: u64) -> Self {
        debug_assert!(block < 1 << BLOCK_BITS);
        Self { view, block }
    }

    /// The key `blocks` further on.
    #[must_use]
    pub const fn forward(self, blocks: u64) -> Self {
        Self::new(self.view, self.block + blocks)
    }
}

/// A stretch of drive space, k + m allocation units on distinct drives. Numbered within the pool;
/// a number is used once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SegmentId(u32);

impl SegmentId {
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Where contents lie: their segment, and the first of their grains among those of the segment's data blocks. Blocks
/// are numbered by slots: stripe after stripe, within a stripe data unit after data unit; the first slots of a stripe
/// hold its header. What is adjacent here is adjacent on the drive except between units.
///
/// Packed into 59 bits: segment 32, grain 27. The highest bit of the segment is set where the map has a
/// reference instead: the [`SharedBlockId`] of a shared block. No segment has a number that high.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Location(u64);

/// Bits of a slot: 2^24 blocks are 64 GiB, more than any segment.
pub const SLOT_BITS: u32 = 24;

/// Bits of a grain's number within its segment.
pub const GRAIN_BITS: u32 = SLOT_BITS + BLOCK_GRAINS.trailing_zeros();

impl Location {
    /// Bits of the packed form.
    pub const BITS: u32 = 32 + GRAIN_BITS;

    /// Of a whole block.
    ///
    /// # Panics
    /// When the slot takes more than its bits.
    #[must_use]
    pub const fn new(segment: SegmentId, slot: u32) -> Self {
        assert!(slot < 1 << SLOT_BITS, "slots are bounded by the geometry's limits");
        Self::of_grain(segment, slot * BLOCK_GRAINS)
    }

    /// # Panics
    /// When the grain takes more than its bits.
    #[must_use]
    pub const fn of_grain(segment: SegmentId, grain: u32) -> Self {
        assert!(grain < 1 << GRAIN_BITS, "grains are bounded by the geometry's limits");
        Self((segment.0 as u64) << GRAIN_BITS | grain as u64)
    }

    #[must_use]
    pub fn segment(self) -> SegmentId {
        SegmentId(u32::try_from(self.0 >> GRAIN_BITS).unwrap_or(u32::MAX))
    }

    /// The block of the segment that it begins in.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.grain() / BLOCK_GRAINS
    }

    /// Whether it begins where a block does.
    #[must_use]
    pub const fn is_of_block(self) -> bool {
        self.grain().is_multiple_of(BLOCK_GRAINS)
    }

    #[must_use]
    pub const fn grain(self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "masked to 27 bits")]
        let grain = (self.0 & ((1 << GRAIN_BITS) - 1)) as u32;
        grain
    }

    /// The packed form: the low 59 bits.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// `None` when bits above the 59 are set.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> Self::BITS == 0 { Some(Self(bits)) } else { None }
    }

    /// The location `blocks` that are stored as they are further in the same segment.
    ///
    /// # Panics
    /// When the segment ends before.
    #[must_use]
    pub const fn offset(self, blocks: u32) -> Self {
        assert!(blocks < 1 << SLOT_BITS, "a location stays in its segment");
        self.forward(blocks * BLOCK_GRAINS)
    }

    /// The location so many grains further in the same segment.
    ///
    /// # Panics
    /// When the segment ends before.
    #[must_use]
    pub const fn forward(self, grains: u32) -> Self {
        let is_within = (self.grain() as u64 + grains as u64) < 1 << GRAIN_BITS;
        assert!(is_within, "a location stays in its segment");
        Self(self.0 + grains as u64)
    }

    /// Whether `next` lies right behind so many grains from here, in the same segment.
    #[must_use]
    pub const fn is_followed(self, grains: u64, next: Self) -> bool {
        self.0 + grains == next.0 && self.0 >> GRAIN_BITS == next.0 >> GRAIN_BITS
    }
}

/// The bit of a packed location that makes it a reference.
const REFERENCE: u64 = 1 << (Location::BITS - 1);

/// Bits of a name: those of a location, but for the one of references.
const NAME_BITS: u32 = Location::BITS - 1;

/// Bits of a grain's number within its slot.
const WITHIN_BITS: u32 = GRAIN_BITS - SLOT_BITS;

/// Segments' numbers are below this.
pub const SEGMENTS_END: u32 = 1 << 31;

/// What a block is called that more than one key may refer to: where it lay when it was copied by
/// reference for the first time. No other block ever lay there, so the name stays its own wherever it
/// is moved. The map has it under [`SharedBlockId::key`], and what refers to it has [`SharedBlockId::reference`] in the
/// place of a location.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SharedBlockId(Location);

impl SharedBlockId {
    /// The name of the block that lies, or once lay, there.
    #[must_use]
    pub const fn of(origin: Location) -> Self {
        Self(Location(origin.0 & !REFERENCE))
    }

    /// Where the block lay when it got its name.
    #[must_use]
    pub const fn origin(self) -> Location {
        self.0
    }

    /// What the map has for a key that refers to it.
    #[must_use]
    pub const fn reference(self) -> Location {
        Location(self.0.0 | REFERENCE)
    }

    /// Under which the map says where the block is now. Names of whole blocks in a segment have adjacent keys: where in
    /// its slot a name begins is said by the highest bits.
    #[must_use]
    pub const fn key(self) -> Key {
        let (within, slots) = (self.0.0 % BLOCK_GRAINS as u64, self.0.0 / BLOCK_GRAINS as u64);
        let bits = within << (NAME_BITS - WITHIN_BITS) | slots;
        #[allow(clippy::cast_possible_truncation, reason = "58 bits less 40 are 18")]
        let high = (bits >> BLOCK_BITS) as u32;
        Key::new(View(View::SHARED.0 + high), bits & ((1 << BLOCK_BITS) - 1))
    }

    /// The name that a key of a shared view stands for, `None` for any other key.
    #[must_use]
    pub const fn of_key(key: Key) -> Option<Self> {
        if !key.view.is_shared() {
            return None;
        }
        let bits = ((key.view.0 - View::SHARED.0) as u64) << BLOCK_BITS | key.block;
        let within = bits >> (NAME_BITS - WITHIN_BITS);
        let slots = bits & ((1 << (NAME_BITS - WITHIN_BITS)) - 1);
        Some(Self(Location(slots * BLOCK_GRAINS as u64 + within)))
    }

    /// The name `blocks` further in the same segment.
    #[must_use]
    pub const fn offset(self, blocks: u32) -> Self {
        Self(self.0.offset(blocks))
    }
}

impl fmt::Debug for SharedBlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared {:?}", self.0)
    }
}

impl Location {
    /// The shared block that this refers to, if it is a reference.
    #[must_use]
    pub const fn name(self) -> Option<SharedBlockId> {
        if self.0 & REFERENCE != 0 { Some(SharedBlockId::of(self)) } else { None }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment().get(), self.slot())?;
        match self.grain() % BLOCK_GRAINS {
            0 => Ok(()),
            grains => write!(f, "+{grains}"),
        }
    }
}

/// By what contents are compressed. Numbers are as on media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Method {
    Plain = 0,
    /// Set aside: this version reads and writes neither.
    Lz4 = 1,
    Zstd = 2,
}

impl Method {
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    #[must_use]
    pub const fn of_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Plain),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// How the contents of a block are stored. What is compressed takes less than a block, or it is stored as it is.
///
/// One word, without a value that it cannot have: items of the map are moved a lot, and the compiler would hide their
/// discriminants in a byte of fields, which processors copy slowly.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Encoding(u64);

impl Encoding {
    /// As they are: all that this version reads and writes.
    pub const PLAIN: Self = Self(BLOCK_GRAINS as u64);

    /// Bits of a key's number.
    pub const KEY_BITS: u32 = 24;

    /// Where the method is, above the grains, and the key above both.
    const METHOD_AT: u32 = 8;
    const KEY_AT: u32 = 16;

    /// In so many grains, by this method, under the key of this number; 0 when they are not encrypted. `None` where that
    /// is not 1 to 8 grains, 8 of what is plain and less of all else, and a number of a key.
    #[must_use]
    pub const fn new(grains: u8, method: Method, key: u32) -> Option<Self> {
        let is_plain = matches!(method, Method::Plain);
        let fits = grains > 0 && if is_plain { grains == 8 } else { grains < 8 };
        if !fits || key >> Self::KEY_BITS != 0 {
            return None;
        }
        let above = (method as u64) << Self::METHOD_AT | (key as u64) << Self::KEY_AT;
        Some(Self(grains as u64 | above))
    }

    /// Grains they take, 1 to 8.
    #[must_use]
    pub const fn grains(self) -> u32 {
        low32(self.0 & 0xff)
    }

    #[must_use]
    pub const fn method(self) -> Method {
        match low8(self.0 >> Self::METHOD_AT) {
            0 => Method::Plain,
            1 => Method::Lz4,
            _ => Method::Zstd,
        }
    }

    /// Number of the key they are encrypted under; 0 when they are not.
    #[must_use]
    pub const fn key(self) -> u32 {
        low32(self.0 >> Self::KEY_AT)
    }

    /// Makes sure that contents are stored as this version can read them. Whoever takes contents by what the map says
    /// asks this first.
    ///
    /// # Errors
    /// `Corrupt` for what is compressed or encrypted.
    pub fn check(self) -> Result<()> {
        if self == Self::PLAIN { Ok(()) } else { Err(self.refusal()) }
    }

    #[cold]
    fn refusal(self) -> Error {
        let (grains, method, key) = (self.grains(), self.method(), self.key());
        let what = match key {
            0 => format!("contents compressed to {grains} grains by {method:?}"),
            _ => format!("contents encrypted under key {key}"),
        };
        Error::new(Kind::Corrupt, format!("{what}, which this version does not read"))
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {} grains, key {}", self.method(), self.grains(), self.key())
    }
}

/// What the map knows of a block that has contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub location: Location,
    pub encoding: Encoding,
    /// CRC-32C of what is stored, all its grains; verified on every read.
    pub crc: u32,
}

impl Stored {
    /// Of a block that is stored as it is.
    #[must_use]
    pub const fn plain(location: Location, crc: u32) -> Self {
        Self { location, encoding: Encoding::PLAIN, crc }
    }
}

/// How many snapshots had been taken of a volume when something was written (decision 0026). A snapshot has the number of
/// the last version that it sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Version(u32);

impl Version {
    pub const BITS: u32 = 23;

    /// Of all that was written before there was a snapshot.
    pub const FIRST: Self = Self(0);

    /// None is newer: as of it, everything is seen.
    pub const LAST: Self = Self((1 << Self::BITS) - 1);

    /// `None` beyond [`LAST`](Self::LAST).
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::LAST.0 { Some(Self(number)) } else { None }
    }

    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The one before, if there is one.
    #[must_use]
    pub const fn before(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// Where a block of metadata lies, which is always stored as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub location: Location,
    /// CRC-32C of the block's 4096 bytes; verified on every read.
    pub crc: u32,
}

/// How far a shard's log had come when something was written to the drives: records up to this one were durable in it.
/// A log that ends before is an old copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogMark {
    /// Which log: another number each time a pool gets a new one.
    pub ring: u64,
    pub sequence: u64,
}

impl LogMark {
    /// Bits of the sequence that a stripe's header has.
    pub const BITS: u32 = 40;

    /// The sequence as a stripe's header has it.
    #[must_use]
    pub const fn low(self) -> u64 {
        self.sequence & ((1 << Self::BITS) - 1)
    }

    /// The whole sequence of one that has these low bits, and is not half of what they count away from this one.
    #[must_use]
    pub const fn near(self, low: u64) -> u64 {
        let ahead = (low.wrapping_sub(self.sequence) << (64 - Self::BITS)).cast_signed();
        self.sequence.saturating_add_signed(ahead >> (64 - Self::BITS))
    }
}

#[test]
fn a_mark_is_known_by_its_low_bits() {
    let mark = |sequence| LogMark { ring: 1, sequence };
    for sequence in [0_u64, 5, 1 << 39, (1 << 40) - 1, 1 << 40, 3 << 41, 1 << 61] {
        for other in [sequence.saturating_sub(1000), sequence, sequence + 1, sequence + (1 << 38)] {
            assert_eq!(mark(sequence).near(mark(other).low()), other);
        }
    }
}

#[test]
fn names_of_whole_blocks_have_adjacent_keys_and_each_name_its_own() {
    let at = |segment, grain| SharedBlockId::of(Location::of_grain(SegmentId::new(segment), grain));
    assert_eq!(at(7, 80).key().forward(1), at(7, 88).key());
    let last = (1 << GRAIN_BITS) - 1;
    let names = [at(0, 8), at(7, 81), at(7, 87), at(SEGMENTS_END - 1, last), at(1 << 16, last - 7)];
    for name in names {
        assert!(name.key().view.is_shared());
        assert_eq!(SharedBlockId::of_key(name.key()), Some(name));
    }
    assert_eq!(
        at(SEGMENTS_END - 1, last).key(),
        Key::new(View::new(u32::MAX), (1 << BLOCK_BITS) - 1)
    );
    assert_eq!(SharedBlockId::of_key(Key::new(View::new(View::SHARED.get() - 1), 0)), None);
}

#[test]
fn what_is_not_plain_is_refused_by_name() {
    assert_eq!(Encoding::new(8, Method::Plain, 0), Some(Encoding::PLAIN));
    assert!(Encoding::PLAIN.check().is_ok());
    for (grains, method, key, word) in [(3, Method::Lz4, 0, "Lz4"), (8, Method::Plain, 9, "key 9")]
    {
        let refused = Encoding::new(grains, method, key).unwrap().check().unwrap_err();
        assert!(refused.kind == Kind::Corrupt && refused.to_string().contains(word), "{refused}");
    }
    for (grains, method, key) in [
        (0, Method::Lz4, 0),
        (8, Method::Zstd, 0),
        (7, Method::Plain, 0),
        (8, Method::Plain, 1 << 24),
    ] {
        assert_eq!(Encoding::new(grains, method, key), None);
    }
}
