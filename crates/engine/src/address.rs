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

    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
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
/// Packed into 56 bits: segment 32, slot 24.
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
