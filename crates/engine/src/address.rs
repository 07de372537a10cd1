//! Where blocks are, for hosts and on media.

use std::fmt;

/// The engine's block in bytes: what the map addresses and a checksum covers.
pub const BLOCK: usize = 4096;

/// Bits of a block's number within its view: 2^40 blocks are 4 PiB.
pub const BLOCK_BITS: u32 = 40;

/// One addressable set of blocks: a volume, a snapshot, or the metadata of a shard. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct View(u32);

impl View {
    /// The view whose blocks are the shard's own metadata pages. Volumes begin at 1.
    pub const METADATA: Self = Self(0);

    /// From here on views hold the shard's shared blocks, each under its [`Name`]. Volumes end
    /// before.
    pub const SHARED: Self = Self(0xffff_0000);

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

/// Where a block lies: its segment, and its slot among the segment's data blocks. Slots run through
/// stripe after stripe; within a stripe through data unit after data unit; the first slots of a
/// stripe hold its header. Blocks with adjacent slots are adjacent on the drive except between units.
///
/// Packed into 56 bits: segment 32, slot 24. The highest bit of the segment is set where the map has a
/// reference instead: the [`Name`] of a shared block. No segment has a number that high.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Location(u64);

/// Bits of a slot: 2^24 blocks are 64 GiB, more than any segment.
pub const SLOT_BITS: u32 = 24;

impl Location {
    /// # Panics
    /// When the slot takes more than its bits.
    #[must_use]
    pub const fn new(segment: SegmentId, slot: u32) -> Self {
        assert!(slot < 1 << SLOT_BITS, "slots are bounded by the geometry's limits");
        Self((segment.0 as u64) << SLOT_BITS | slot as u64)
    }

    #[must_use]
    pub fn segment(self) -> SegmentId {
        SegmentId(u32::try_from(self.0 >> SLOT_BITS).unwrap_or(u32::MAX))
    }

    #[must_use]
    pub const fn slot(self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "masked to 24 bits")]
        let slot = (self.0 & ((1 << SLOT_BITS) - 1)) as u32;
        slot
    }

    /// The packed form: the low 56 bits.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// `None` when bits above the 56 are set.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> (32 + SLOT_BITS) == 0 { Some(Self(bits)) } else { None }
    }

    /// The location `blocks` further in the same segment.
    #[must_use]
    pub const fn offset(self, blocks: u32) -> Self {
        assert!(self.slot() + blocks < 1 << SLOT_BITS, "a location stays in its segment");
        Self(self.0 + blocks as u64)
    }
}

/// The bit of a packed location that makes it a reference.
const REFERENCE: u64 = 1 << (31 + SLOT_BITS);

/// Segments' numbers are below this.
pub const SEGMENTS_END: u32 = 1 << 31;

/// What a block is called that more than one key may refer to: where it lay when it was copied by
/// reference for the first time. No other block ever lay there, so the name stays its own wherever it
/// is moved. The map has it under [`Name::key`], and what refers to it has [`Name::reference`] in the
/// place of a location.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Name(Location);

impl Name {
    /// The name of the block that lies, or once lay, there.
    #[must_use]
    pub const fn of(birth: Location) -> Self {
        Self(Location(birth.0 & !REFERENCE))
    }

    /// Where the block lay when it got its name.
    #[must_use]
    pub const fn birth(self) -> Location {
        self.0
    }

    /// What the map has for a key that refers to it.
    #[must_use]
    pub const fn reference(self) -> Location {
        Location(self.0.0 | REFERENCE)
    }

    /// Under which the map says where the block is now. Names in a segment have adjacent keys.
    #[must_use]
    pub const fn key(self) -> Key {
        #[allow(clippy::cast_possible_truncation, reason = "56 bits less 40 are 16")]
        let high = (self.0.0 >> BLOCK_BITS) as u32;
        Key::new(View(View::SHARED.0 + high), self.0.0 & ((1 << BLOCK_BITS) - 1))
    }

    /// The name that a key of a shared view stands for, `None` for any other key.
    #[must_use]
    pub const fn of_key(key: Key) -> Option<Self> {
        if !key.view.is_shared() {
            return None;
        }
        let high = (key.view.0 - View::SHARED.0) as u64;
        let bits = high << BLOCK_BITS | key.block;
        if bits & REFERENCE == 0 { Some(Self(Location(bits))) } else { None }
    }

    /// The name `blocks` further in the same segment.
    #[must_use]
    pub const fn offset(self, blocks: u32) -> Self {
        Self(self.0.offset(blocks))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared {:?}", self.0)
    }
}

impl Location {
    /// The shared block that this refers to, if it is a reference.
    #[must_use]
    pub const fn name(self) -> Option<Name> {
        if self.0 & REFERENCE != 0 { Some(Name::of(self)) } else { None }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment().get(), self.slot())
    }
}

/// What the map knows of a block that has contents.
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
    pub lane: u64,
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
    let mark = |sequence| LogMark { lane: 1, sequence };
    for sequence in [0_u64, 5, 1 << 39, (1 << 40) - 1, 1 << 40, 3 << 41, 1 << 61] {
        for other in [sequence.saturating_sub(1000), sequence, sequence + 1, sequence + (1 << 38)] {
            assert_eq!(mark(sequence).near(mark(other).low()), other);
        }
    }
}
