//! Segments: stripes of blocks over the drives of a pool, written once, whole, and read with
//! verification; what cannot be read is reconstructed and put right.
//!
//! A stripe is filled through a [`StripeBuilder`], sealed (header, padding, parity) and written with
//! one write to each member in parallel. A write succeeds while at most m members are lost.

mod around;
mod builder;
mod header;
mod memory;
mod read;
mod recover;
mod recover_block;
mod renew;
mod resync;
mod scrub;
mod verify;
mod write;

pub use crate::format::stripe::{Owner, OwnerRecord, Placed, Stream, StripeHeader};
pub use builder::{Stripe, StripeBuilder};
pub use recover_block::Recovered;
pub use resync::Unread;
pub use scrub::Scrubbed;
pub use verify::StripeFaults;

use crate::address::SegmentId;
use crate::drives::{DriveSet, SpaceWait};
use crate::error::{Error, Kind, Result};
use crate::format::stripe::header_blocks;
use media::memory::SharedRegion;
use memory::Memory;
use raid::Geometry;
use std::rc::Rc;
use std::sync::Arc;

/// One allocation unit of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Index of the drive in the pool.
    pub drive: u16,
    /// Which of the drive's allocation units.
    pub au: u32,
}

/// A segment: where it lies and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub id: SegmentId,
    /// Grows with every use of the number: what an earlier one left on the drives is told by it.
    pub generation: u64,
    /// By column; k + m.
    pub members: Vec<Member>,
    pub stream: Stream,
    pub shard: u16,
    pub geometry: Geometry,
}

impl SegmentInfo {
    /// Whether `header` is that of a stripe of this segment, in its present life.
    #[must_use]
    pub fn has_header(&self, header: &StripeHeader, stripe: u32) -> bool {
        (self.id, self.generation, stripe) == (header.segment, header.generation, header.stripe)
    }

    /// How many of its members are on these drives, by their bits.
    #[must_use]
    pub fn parts_on(&self, drives: u64) -> usize {
        self.members.iter().filter(|member| drives & (1 << member.drive) != 0).count()
    }

    /// The member that holds a unit of a stripe; units k and up are parity.
    #[must_use]
    pub fn member(&self, stripe: u32, unit: usize) -> Member {
        self.members[self.geometry.column(self.id.get(), stripe, unit)]
    }

    /// Blocks at the beginning of each stripe that its header takes.
    #[must_use]
    pub fn header_blocks(&self) -> u32 {
        header_blocks(self.geometry)
    }

    /// Blocks of a stripe left for contents.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.geometry.stripe_blocks() - self.header_blocks()
    }

    /// Blocks of contents the segment has room for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.geometry.stripes() * self.room()
    }

    /// How many of `count` blocks from `slot` on lie in one piece, so that one
    /// [`fetch`](Segments::fetch) reads them.
    #[must_use]
    pub fn contiguous(&self, slot: u32, count: u32) -> u32 {
        let place = self.geometry.place(slot);
        count.min(self.geometry.unit_blocks() - place.block)
    }
}

/// One shard's way to the segments of its pool. Cloning shares its memory and drives; it stays on
/// its reactor.
///
/// Whoever calls keeps a segment from being reused while anything of it is read: a repair writes in
/// place.
#[derive(Clone)]
pub struct Segments {
    drives: Arc<DriveSet>,
    pool: [u8; 16],
    memory: Rc<Memory>,
    space_wait: Rc<SpaceWait>,
    /// Drives in memory, by index, as this shard lends of them.
    regions: Rc<[Option<SharedRegion>]>,
}

impl Segments {
    /// For segments of `geometry`, or smaller ones. Takes address space for its buffers, and memory
    /// as they are used.
    ///
    /// # Errors
    /// `Invalid` for a geometry with no room beside the headers of its stripes or whose segments a
    /// location cannot address, `Failed` when there is no address space.
    pub fn new(drives: Arc<DriveSet>, pool: [u8; 16], geometry: Geometry) -> Result<Self> {
        let header = header_blocks(geometry);
        if header > geometry.unit_blocks() || header >= geometry.stripe_blocks() {
            return Err(Error::new(Kind::Invalid, "stripes too small for their headers"));
        }
        let memory = Memory::new(geometry)
            .map_err(|e| Error::caused(Kind::Failed, "no memory for stripes", e))?;
        let regions = drives.regions().into();
        Ok(Self { drives, pool, memory: Rc::new(memory), space_wait: Rc::default(), regions })
    }

    /// How its writes fare where there is no space behind the drives.
    #[must_use]
    pub fn space_wait(&self) -> &SpaceWait {
        &self.space_wait
    }

    #[must_use]
    pub fn drives(&self) -> &Arc<DriveSet> {
        &self.drives
    }

    /// Whether any drive is memory that can be lent.
    #[must_use]
    pub fn lends(&self) -> bool {
        !self.regions.is_empty()
    }

    /// Waits until no repair is being written: before that, no place is used again that somebody
    /// may have read from.
    pub async fn repaired(&self) {
        self.memory.repaired().await;
    }

    /// Members of a segment that cannot be used now.
    #[must_use]
    pub fn lost(&self, info: &SegmentInfo) -> usize {
        info.members.iter().filter(|m| !self.drives.is_online(m.drive)).count()
    }
}

#[cfg(test)]
mod tests;
