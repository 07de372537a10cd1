//! Filling a stripe in memory.

use super::memory::StripePermit;
use super::{Owner, OwnerRecord, SegmentInfo, Segments, StripeHeader};
use crate::address::{BLOCK, BLOCK_GRAINS, Key, Location, LogMark, SharedBlockId, Version};
use crate::canary::{self, Canary};
use crate::format::stripe;
use reactor::buffer::Buffer;
use reactor::turns::give_way;
use std::rc::Rc;
use stdx::num::{u32_of, usize32};

/// The most blocks one record covers: what its count can say.
const RECORD_BLOCKS_MAX: u32 = 0xffff;

/// Bytes of each unit whose parity is computed before others on the core have their turn.
const PARITY_AT_ONCE: usize = 4 * BLOCK;

/// A stripe being filled.
pub struct StripeBuilder {
    pub(super) info: Rc<SegmentInfo>,
    stripe: u32,
    header_blocks: u32,
    /// Data units, then parity, of uninitialised contents where nothing was pushed yet.
    pub(super) units: Vec<Buffer>,
    records: Vec<OwnerRecord>,
    crcs: Vec<u32>,
    /// Checksums of blocks referred to.
    references: Vec<u32>,
    /// A record has another version than the first, so that all have theirs in the header.
    has_versions: bool,
    /// There was no room for what came last, whatever there is for others: it goes into the next one.
    is_full: bool,
    permit: StripePermit,
    pool: [u8; 16],
    log: LogMark,
}

/// A sealed stripe: all its bytes, ready to be written.
pub struct Stripe {
    pub(super) info: Rc<SegmentInfo>,
    pub(super) header: StripeHeader,
    pub(super) units: Vec<Buffer>,
    pub(super) permit: StripePermit,
}

impl Segments {
    /// Begins a stripe, waiting until there is memory for it. Stripes of a segment are begun in
    /// order, each once.
    pub async fn begin(&self, info: Rc<SegmentInfo>, stripe: u32) -> StripeBuilder {
        assert!(stripe < info.geometry.stripes(), "stripe {stripe} of {:?}", info.geometry);
        assert_eq!(info.members.len(), info.geometry.width());
        let (units, permit) = self.memory.stripe(info.geometry).await;
        let room = usize32(info.room());
        StripeBuilder {
            stripe,
            header_blocks: info.header_blocks(),
            units,
            records: Vec::with_capacity(room),
            crcs: Vec::with_capacity(room),
            references: Vec::new(),
            has_versions: false,
            is_full: false,
            permit,
            pool: self.pool,
            info,
            log: LogMark::default(),
        }
    }

    /// Whether [`begin`](Self::begin) would not have to wait.
    #[must_use]
    pub fn can_begin(&self) -> bool {
        self.memory.has_room()
    }
}

/// The unit that has a data block, and the block's bytes within it.
fn block_of(info: &SegmentInfo, slot: u32) -> (usize, std::ops::Range<usize>) {
    let place = info.geometry.place(slot);
    let at = usize32(place.block) * BLOCK;
    (usize32(place.unit), at..at + BLOCK)
}

/// Whether a record goes on where another ends, so that one does for both.
fn continues(last: &OwnerRecord, owner: Owner, version: Version) -> bool {
    last.version == version && goes_on(last, owner)
}

fn goes_on(last: &OwnerRecord, owner: Owner) -> bool {
    match (last.owner, owner) {
        (Owner::Write { key: a }, Owner::Write { key: b })
        | (Owner::Lost { key: a, old: None }, Owner::Lost { key: b, old: None }) => {
            a.view == b.view && a.block + u64::from(last.count) == b.block
        }
        (Owner::Move { key: a, old: from }, Owner::Move { key: b, old })
        | (Owner::Lost { key: a, old: Some(from) }, Owner::Lost { key: b, old: Some(old) }) => {
            a.view == b.view
                && a.block + u64::from(last.count) == b.block
                && from.is_followed(u64::from(last.count * BLOCK_GRAINS), old)
        }
        (Owner::Refer { key: a, name: from }, Owner::Refer { key: b, name })
        | (Owner::Share { key: a, name: from }, Owner::Share { key: b, name }) => {
            let (from, next) = (from.origin(), name.origin());
            a.view == b.view
                && a.block + u64::from(last.count) == b.block
                && from.is_followed(u64::from(last.count * BLOCK_GRAINS), next)
        }
        _ => false,
    }
}

impl StripeBuilder {
    #[must_use]
    pub const fn info(&self) -> &Rc<SegmentInfo> {
        &self.info
    }

    #[must_use]
    pub const fn stripe(&self) -> u32 {
        self.stripe
    }

    /// Data blocks that can still be pushed, also all at once.
    #[must_use]
    pub fn room(&self) -> u32 {
        if self.is_full {
            return 0;
        }
        let left = usize32(self.info.room()) - self.crcs.len();
        // References may take two records.
        let records = self.records.len() + 2;
        let checksums = stripe::checksums_beside(self.header_blocks, records, self.has_versions);
        u32_of(left.min(checksums.saturating_sub(self.crcs.len() + self.references.len())))
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Data blocks in it.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        u32_of(self.crcs.len())
    }

    /// Whether the header has room for so many records and checksums in all, one of `version` among them. If not it is
    /// full, so that whoever has that does not wait for room here.
    fn takes(&mut self, records: usize, checksums: usize, version: Version) -> bool {
        let has_versions = self.has_versions || version != Version::FIRST;
        let fits = stripe::fits(self.header_blocks, records, checksums, has_versions);
        match fits {
            true => self.has_versions = has_versions,
            false => self.is_full |= has_versions != self.has_versions,
        }
        fits
    }

    fn next_slot(&self) -> u32 {
        let geometry = self.info.geometry;
        geometry.stripe_slot(self.stripe) + self.header_blocks + u32_of(self.crcs.len())
    }

    /// Takes blocks with the given CRC-32Cs (one each) for `owner`, to be filled through
    /// [`block_mut`](Self::block_mut) before the stripe is sealed. Gives the location of the first;
    /// the others follow. `None` when not all fit, and nothing is taken. A hole takes no blocks, and
    /// its location says nothing.
    pub fn reserve(&mut self, owner: Owner, version: Version, crcs: &[u32]) -> Option<Location> {
        let count = u32_of(crcs.len());
        assert_eq!(owner.has_contents(), count > 0, "only contents take blocks");
        let blocks = self.crcs.len() + crcs.len();
        if blocks > usize32(self.info.room()) {
            return None;
        }
        let joins = count > 0
            && self.records.last().is_some_and(|last| {
                continues(last, owner, version) && last.count + count <= RECORD_BLOCKS_MAX
            });
        let records = self.records.len() + usize::from(!joins);
        if !self.takes(records, blocks + self.references.len(), version) {
            return None;
        }
        // A full stripe at the segment's end still takes holes, and has no next slot.
        // A hole behind the last block is of this stripe all the same.
        let here = self.here();
        match self.records.last_mut() {
            Some(last) if joins => last.count += count,
            _ => self.records.push(OwnerRecord { owner, version, count }),
        }
        self.crcs.extend_from_slice(crcs);
        Some(here)
    }

    /// Where the next block would be, or the last place of the stripe when it is full.
    fn here(&self) -> Location {
        let geometry = self.info.geometry;
        let end = geometry.stripe_slot(self.stripe) + geometry.stripe_blocks();
        Location::new(self.info.id, self.next_slot().min(end - 1))
    }

    /// Has one block refer to a shared one with this CRC-32C, and the block that it was copied from as
    /// well, if that is given. `None` when not both fit. Gives a place in the stripe, as for a hole.
    pub fn push_reference(
        &mut self,
        key: Key,
        version: Version,
        name: SharedBlockId,
        crc: u32,
        source: Option<Key>,
    ) -> Option<Location> {
        let refer = Owner::Refer { key, name };
        let joins = |owner: Owner, version: Version, last: Option<&OwnerRecord>| {
            last.is_some_and(|last| {
                continues(last, owner, version) && last.count < RECORD_BLOCKS_MAX
            })
        };
        // References and what they were copied from come in pairs of records.
        let share = source.map(|key| Owner::Share { key, name });
        let (last, before) = match (share, self.records.as_mut_slice()) {
            (Some(_), [.., before, last]) => (Some(last), Some(before)),
            (None, [.., last]) => (None, Some(last)),
            _ => (None, None),
        };
        let both = joins(refer, version, before.as_deref())
            && share.is_none_or(|share| joins(share, Version::FIRST, last.as_deref()));
        let added = if both { 0 } else { 1 + usize::from(share.is_some()) };
        let checksums = self.crcs.len() + self.references.len() + 1;
        if !self.takes(self.records.len() + added, checksums, version) {
            return None;
        }
        if both {
            let records = self.records.len();
            let from = records - 1 - usize::from(share.is_some());
            self.records[from..].iter_mut().for_each(|record| record.count += 1);
        } else {
            self.records.push(OwnerRecord { owner: refer, version, count: 1 });
            self.records.extend(share.map(|share| OwnerRecord::unversioned(share, 1)));
        }
        self.references.push(crc);
        Some(self.here())
    }

    /// Says of one block that its contents are lost; if `old` is given, only where the map still has it there. `None`
    /// when that does not fit. Gives a place in the stripe, as for a hole.
    pub fn push_lost(
        &mut self,
        key: Key,
        version: Version,
        old: Option<Location>,
    ) -> Option<Location> {
        let owner = Owner::Lost { key, old };
        let here = self.here();
        match self.records.last_mut() {
            Some(last) if continues(last, owner, version) && last.count < RECORD_BLOCKS_MAX => {
                last.count += 1
            }
            _ => {
                let (records, checksums) =
                    (self.records.len() + 1, self.crcs.len() + self.references.len());
                if !self.takes(records, checksums, version) {
                    return None;
                }
                self.records.push(OwnerRecord { owner, version, count: 1 });
            }
        }
        Some(here)
    }

    /// Puts blocks with the given CRC-32Cs (one each, which are believed) into the stripe.
    ///
    /// # Panics
    /// When the length of `data` is not 4096 for each CRC.
    pub fn push(
        &mut self,
        owner: Owner,
        version: Version,
        crcs: &[u32],
        data: &[u8],
    ) -> Option<Location> {
        assert_eq!(data.len(), crcs.len() * BLOCK, "a block for each checksum");
        let location = self.reserve(owner, version, crcs)?;
        let mut rest = data;
        let mut slot = location.slot();
        while !rest.is_empty() {
            let count = self.info.contiguous(slot, u32_of(rest.len() / BLOCK));
            let (piece, after) = rest.split_at(usize32(count) * BLOCK);
            let (unit, at) = block_of(&self.info, slot);
            self.units[unit][at.start..at.start + piece.len()].copy_from_slice(piece);
            (slot, rest) = (slot + count, after);
        }
        Some(location)
    }

    /// The bytes of a reserved block.
    ///
    /// # Panics
    /// When the slot was not reserved in this stripe.
    pub fn block_mut(&mut self, slot: u32) -> &mut [u8] {
        self.check(slot);
        let (unit, at) = block_of(&self.info, slot);
        &mut self.units[unit][at]
    }

    /// The bytes of a block that was pushed: the stripe cannot be read from the drives yet.
    ///
    /// # Panics
    /// As [`block_mut`](Self::block_mut).
    #[must_use]
    pub fn block(&self, slot: u32) -> &[u8] {
        self.check(slot);
        let (unit, at) = block_of(&self.info, slot);
        &self.units[unit][at]
    }

    fn check(&self, slot: u32) {
        let first = self.info.geometry.stripe_slot(self.stripe) + self.header_blocks;
        let taken = first..first + u32_of(self.crcs.len());
        assert!(taken.contains(&slot), "slot {slot} is not among {taken:?}");
    }

    /// How far the log had come from which something was taken into the stripe last.
    pub const fn note_log(&mut self, mark: LogMark) {
        self.log = mark;
    }

    /// Completes the stripe: zeroes what is unused, writes the header, computes parity.
    pub async fn seal(mut self, sequence: u64) -> Stripe {
        let geometry = self.info.geometry;
        assert!(self.crcs.len() <= usize32(self.info.room()), "a stripe has room for its blocks");
        let of_contents = |record: &&OwnerRecord| record.owner.has_contents();
        let recorded: u32 =
            self.records.iter().filter(of_contents).map(|record| record.count).sum();
        assert_eq!(recorded, self.blocks(), "every block has a record, and a checksum");
        let of_references = |record: &&OwnerRecord| matches!(record.owner, Owner::Refer { .. });
        let referred: u32 =
            self.records.iter().filter(of_references).map(|record| record.count).sum();
        assert_eq!(usize32(referred), self.references.len(), "every reference has its checksum");
        let (records, checksums) = (self.records.len(), self.crcs.len() + self.references.len());
        let fits = stripe::fits(self.header_blocks, records, checksums, self.has_versions);
        assert!(fits, "a header has room for what is in its stripe");
        let used = usize32(self.header_blocks) + self.crcs.len();
        let unit_bytes = usize32(geometry.unit_blocks()) * BLOCK;
        for (n, unit) in self.units[..geometry.data()].iter_mut().enumerate() {
            let from = (used * BLOCK).saturating_sub(n * unit_bytes).min(unit_bytes);
            unit[from..].fill(0);
        }
        let header = StripeHeader {
            segment: self.info.id,
            generation: self.info.generation,
            stripe: self.stripe,
            shard: self.info.shard,
            stream: self.info.stream,
            sequence,
            log: self.log.low(),
            first_slot: geometry.stripe_slot(self.stripe) + self.header_blocks,
            records: self.records,
            crcs: self.crcs,
            references: self.references,
        };
        header.write(self.pool, &mut self.units[0][..usize32(self.header_blocks) * BLOCK]);
        let (data, parity) = self.units.split_at_mut(geometry.data());
        for at in (0..unit_bytes).step_by(PARITY_AT_ONCE) {
            let part = at..unit_bytes.min(at + PARITY_AT_ONCE);
            let data: Vec<&[u8]> = data.iter().map(|unit| &unit[part.clone()]).collect();
            let parity = parity.iter_mut().map(|unit| &mut unit[part.clone()]);
            let mut parity: Vec<&mut [u8]> = parity.collect();
            if !canary::has(Canary::ForgetsParity) {
                raid::parity::encode(&data, &mut parity);
            }
            give_way().await;
        }
        Stripe { info: self.info, header, units: self.units, permit: self.permit }
    }
}

impl Stripe {
    #[must_use]
    pub const fn header(&self) -> &StripeHeader {
        &self.header
    }

    /// The bytes of one of its data blocks.
    ///
    /// # Panics
    /// When the slot is not of this stripe.
    #[must_use]
    pub fn block(&self, slot: u32) -> &[u8] {
        let (unit, at) = block_of(&self.info, slot);
        assert_eq!(self.info.geometry.place(slot).stripe, self.header.stripe);
        &self.units[unit][at]
    }
}
