//! What a stripe's header says, and reading it back.

use super::recover::{Target, Unrecoverable};
use super::{SegmentInfo, Segments, Stream};
use crate::address::{BLOCK, Key, Location, SegmentId};
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
}

/// One entry of a stripe's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    pub owner: Owner,
    /// Blocks of the stripe it has; none for a hole.
    pub count: u32,
}

/// A record with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    pub owner: Owner,
    /// Of its first block. Of no meaning for a hole.
    pub location: Location,
    /// One CRC-32C for each of its blocks.
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
}

impl StripeHeader {
    /// Its records in the order they were pushed, which is the order to apply them in.
    pub fn placed(&self) -> impl Iterator<Item = Placed<'_>> {
        let mut before = 0;
        self.records.iter().map(move |record| {
            let location = Location::new(self.segment, self.first_slot).offset(u32_of(before));
            let crcs = &self.crcs[before..before + usize32(record.count)];
            before += crcs.len();
            Placed { owner: record.owner, location, crcs }
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
