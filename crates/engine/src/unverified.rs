//! Blocks lent to who sends them from where they lie.

use media::memory::{PinnedRead, SharedRegion};
use reactor::ReadGuard;
use stdx::crc32c;

use crate::address::BLOCK;

/// The most blocks that are lent at a time. Of more, copying costs little beside the rest.
pub const LENT_BLOCKS_MAX: usize = 8;

/// Blocks in a drive in memory, not verified yet. They are on their way to the processor: whoever wants several
/// does well to ask for all before looking at one.
#[derive(Debug)]
pub struct UnverifiedRead {
    pinned: PinnedRead,
    crcs: [u32; LENT_BLOCKS_MAX],
}

impl UnverifiedRead {
    /// Blocks from `offset` of a region on, one for each of `crcs`, of which there are at most
    /// [`LENT_BLOCKS_MAX`]. `guard` keeps them from being written.
    pub(crate) fn new(region: SharedRegion, offset: u64, crcs: &[u32], guard: ReadGuard) -> Self {
        assert!(crcs.len() <= LENT_BLOCKS_MAX, "few blocks are lent");
        let length = crcs.len() * BLOCK;
        // All of it: a checksum goes through its lines too fast for the processor to see ahead by itself.
        region.prefetch(offset, length);
        let mut kept = [0; LENT_BLOCKS_MAX];
        kept[..crcs.len()].copy_from_slice(crcs);
        Self { pinned: PinnedRead::new(region, offset, length, guard), crcs: kept }
    }

    /// The blocks, if each is what it should be. Otherwise [`Volume::read`](crate::Volume::read) puts them
    /// right.
    #[must_use]
    pub fn verified(self) -> Option<PinnedRead> {
        let mut blocks = self.pinned.bytes().chunks_exact(BLOCK).zip(self.crcs);
        blocks.all(|(block, crc)| crc32c(block) == crc).then_some(self.pinned)
    }
}
