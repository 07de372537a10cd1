//! Blocks lent to who sends them from where they lie.

use media::memory::{Loan, SharedRegion};
use reactor::Stay;
use stdx::crc32c;

use crate::address::BLOCK;

/// The most blocks that are lent at a time. Of more, copying costs little beside the rest.
pub const LENT_BLOCKS_MAX: usize = 8;

/// Blocks in a drive in memory, not verified yet. They are on their way to the processor: whoever wants several
/// does well to ask for all before looking at one.
#[derive(Debug)]
pub struct Lent {
    loan: Loan,
    crcs: [u32; LENT_BLOCKS_MAX],
}

impl Lent {
    /// Blocks from `offset` of a region on, one for each of `crcs`, of which there are at most
    /// [`LENT_BLOCKS_MAX`]. `stay` keeps them from being written.
    pub(crate) fn new(region: SharedRegion, offset: u64, crcs: &[u32], stay: Stay) -> Self {
        let length = crcs.len() * BLOCK;
        // All of it: a checksum goes through its lines too fast for the processor to see ahead by itself.
        region.prefetch(offset, length);
        let mut kept = [0; LENT_BLOCKS_MAX];
        kept[..crcs.len()].copy_from_slice(crcs);
        Self { loan: Loan::new(region, offset, length, stay), crcs: kept }
    }

    /// The blocks, if each is what it should be. Otherwise [`Volume::read`](crate::Volume::read) puts them
    /// right.
    #[must_use]
    pub fn verified(self) -> Option<Loan> {
        let mut blocks = self.loan.bytes().chunks_exact(BLOCK).zip(self.crcs);
        blocks.all(|(block, crc)| crc32c(block) == crc).then_some(self.loan)
    }
}
