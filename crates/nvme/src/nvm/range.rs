//! A range of logical blocks: never empty, checked against overflow and capacity.

use stdx::Lba;

use crate::count::ZeroBased16;
use crate::refusal::{Reason, Refusal};

/// `blocks` logical blocks from `start`; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LbaRange {
    start: Lba,
    blocks: u32,
}

impl LbaRange {
    /// A range; `None` when it would be empty.
    #[must_use]
    pub const fn new(start: Lba, blocks: u32) -> Option<Self> {
        if blocks == 0 { None } else { Some(Self { start, blocks }) }
    }

    /// From SLBA and NLB of an entry.
    #[must_use]
    pub const fn from_wire(start: Lba, blocks: ZeroBased16) -> Self {
        Self { start, blocks: blocks.count() }
    }

    /// NLB for an entry; `None` when the range is too long for one.
    #[must_use]
    pub fn to_wire(self) -> Option<ZeroBased16> {
        ZeroBased16::new(self.blocks)
    }

    #[must_use]
    pub const fn start(self) -> Lba {
        self.start
    }

    /// Logical blocks, at least 1.
    #[must_use]
    pub const fn blocks(self) -> u32 {
        self.blocks
    }

    /// The block behind the last one; `None` when 64 bits do not hold it.
    #[must_use]
    pub const fn end(self) -> Option<Lba> {
        self.start.checked_add(self.blocks as u64)
    }

    /// Refuses a range that is not wholly within a namespace of `capacity` logical blocks.
    pub const fn check(self, capacity: u64) -> Result<(), Refusal> {
        match self.end() {
            Some(end) if end.get() <= capacity => Ok(()),
            _ => Err(Refusal::at(Reason::LbaRange, 10, 0)),
        }
    }

    /// Bytes of the range in blocks of `block_bytes`, at most 2^64 - 1 by the widths.
    #[must_use]
    pub const fn bytes(self, block_bytes: u32) -> u64 {
        self.blocks as u64 * block_bytes as u64
    }

    /// Whether the two have a block in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.start.get(), other.start.get());
        if a <= b { b - a < self.blocks as u64 } else { a - b < other.blocks as u64 }
    }
}

impl core::fmt::Display for LbaRange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}+{}", self.start, self.blocks)
    }
}
