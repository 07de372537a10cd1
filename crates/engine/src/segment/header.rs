//! What a stripe's header says, and reading it back.

use super::recover::{Target, Unrecoverable};
use super::{SegmentInfo, Segments, Stream};
use crate::address::{BLOCK, Key, Location, Name, SegmentId};
use crate::error::{Error, Kind, Result};
use stdx::num::{u32_of, usize32};

/// What blocks of a stripe are, or what else the map learns from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// New contents of the blocks from `key` on.
    Write { key: Key },
    /// The same contents at a new place: counts for those blocks that the map still has at `old`
    /// and after it.
    Move { key: Key, old: Location },
    /// So many blocks from `key` on have no contents any more. Takes no block of the stripe.
    Hole { key: Key, blocks: u64 },
    /// The blocks from `key` on have the contents of shared blocks, `name` and those after it. Such of
    /// those as the map does not have lie where their names say. Takes no block of the stripe.
    Refer { key: Key, name: Name },
    /// The blocks from `key` on refer to shared blocks, `name` and those after it: counts for those
    /// that the map still has where the names say. Goes with the references before it, to the same
    /// blocks, which were copied from these. Takes no block of the stripe.
    Share { key: Key, name: Name },
}

impl Owner {
    /// Whether the stripe has the contents.
    #[must_use]
    pub const fn has_contents(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Move { .. })
    }

    /// Whether a checksum of each block is in the header.
    const fn has_checksums(&self) -> bool {
        self.has_contents() || matches!(self, Self::Refer { .. })
    }
}

/// One entry of a stripe's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    pub owner: Owner,
    /// Blocks it speaks of; none for a hole, which says so itself.
    pub count: u32,
}

impl OwnerRecord {
    /// Blocks of the stripe it has.
    #[must_use]
    pub const fn contents(&self) -> u32 {
        if self.owner.has_contents() { self.count } else { 0 }
    }

    /// Checksums of blocks that are not in the stripe.
    #[must_use]
    pub const fn references(&self) -> u32 {
        if matches!(self.owner, Owner::Refer { .. }) { self.count } else { 0 }
    }
}

/// A record with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    pub owner: Owner,
    /// Blocks it speaks of; none for a hole.
    pub count: u32,
    /// Of its first block. Of no meaning where the stripe does not have the contents.
    pub location: Location,
    /// One CRC-32C for each of its blocks, unless it is a hole.
    pub crcs: &'a [u32],
}

/// The header of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeHeader {
    pub segment: SegmentId,
    pub generation: u64,
    pub stripe: u32,
    pub shard: u16,
    pub stream: Stream,
    /// The order of a shard's stripes.
    pub sequence: u64,
    /// The first slot after the header.
    pub(crate) first_slot: u32,
    pub(crate) records: Vec<OwnerRecord>,
    /// One for each data block, in slot order.
    pub(crate) crcs: Vec<u32>,
    /// One for each block referred to, in the order of the records.
    pub(crate) references: Vec<u32>,
}

impl StripeHeader {
    /// Its records in the order they were pushed, which is the order to apply them in.
    pub fn placed(&self) -> impl Iterator<Item = Placed<'_>> {
        let (mut before, mut referred) = (0, 0);
        self.records.iter().map(move |record| {
            let location = Location::new(self.segment, self.first_slot).offset(u32_of(before));
            let (owner, count) = (record.owner, record.count);
            let len = if owner.has_checksums() { usize32(count) } else { 0 };
            if let Owner::Share { .. } = owner {
                // It speaks of the blocks that the record before it refers to.
                let crcs = &self.references[referred - usize32(count)..referred];
                return Placed { owner, count, location, crcs };
            }
            let (list, at) = match owner.has_contents() {
                true => (&self.crcs, &mut before),
                false => (&self.references, &mut referred),
            };
            let crcs = &list[*at..*at + len];
            *at += len;
            Placed { owner, count, location, crcs }
        })
    }

    /// Data blocks in it.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        u32_of(self.crcs.len())
    }

    /// Whether it is this stripe's, in the segment's present life.
    #[must_use]
    pub fn is_of(&self, info: &SegmentInfo, stripe: u32) -> bool {
        (self.segment, self.generation, self.stripe) == (info.id, info.generation, stripe)
    }
}

impl Segments {
    /// The header of a stripe, if the stripe was written in the segment's present life: for rolling
    /// forward and for dumps. Says nothing of whether all of the stripe was written.
    ///
    /// # Errors
    /// `Failed` when nothing can be said, because too many members are lost.
    pub async fn read_header(
        &self,
        info: &SegmentInfo,
        stripe: u32,
    ) -> Result<Option<StripeHeader>> {
        let parse = |bytes: &[u8]| {
            let header = StripeHeader::read(bytes, self.pool, info.geometry).ok();
            header.filter(|header| header.is_of(info, stripe))
        };
        let len = usize32(info.header_blocks()) * BLOCK;
        let mut bytes = vec![0; len];
        let target = Target { info, stripe, unit: 0, block: 0 };
        let read = self.read_member(target, &mut bytes).await.is_ok();
        if read && let Some(header) = parse(&bytes) {
            return Ok(Some(header));
        }
        match self.recover(target, &mut bytes, &|bytes| parse(bytes).is_some()).await {
            Ok(()) => Ok(parse(&bytes)),
            Err(Unrecoverable::NoneFits) => Ok(None),
            // What lies there was read and is of no stripe of this life: past the last one that is
            // what to expect, however many members are lost.
            Err(Unrecoverable::TooFew(_)) if read => Ok(None),
            Err(Unrecoverable::TooFew(error)) => {
                let what = format!("header of stripe {stripe}, segment {}", info.id.get());
                Err(Error::caused(Kind::Failed, what, error))
            }
        }
    }
}
