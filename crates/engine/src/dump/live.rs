//! Which blocks of which segment are in use, as the map and the manifest say.
//!
//! One bit a block, and for each stripe a sum over what is in use there: a stripe whose header has
//! the same sum says the same of each block, so that a map larger than memory is compared with
//! headers all over the drives in one pass over each.

use std::collections::BTreeMap;

use stdx::num::{u32_of, usize32};

use super::Look;
use super::checkpoint::{Checkpoint, Segment};
use super::report::{Finding, ShardSeen, Structure};
use crate::address::{Entry, Key, Location, SegmentId, SharedBlockId, View};
use raid::Geometry;

/// What is in use of one stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub blocks: u32,
    sum: u64,
}

impl Sum {
    pub fn add(&mut self, key: Key, at: Entry) {
        // Metadata is known by its place only.
        let key = if key.view == View::METADATA { Key::new(View::METADATA, 0) } else { key };
        let mut hash = at.location.to_bits();
        for word in [u64::from(at.crc), u64::from(key.view.get()), key.block] {
            hash = mix(hash.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ word);
        }
        self.sum = self.sum.wrapping_add(hash);
        self.blocks += 1;
    }
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

struct OfSegment {
    slots: Vec<u64>,
    /// Blocks that are in use under the name they have here.
    born: Vec<u64>,
    stripes: Vec<Sum>,
}

/// A bit for each slot of each segment.
type Bits = BTreeMap<SegmentId, Vec<u64>>;

fn set(bits: &mut Bits, geometry: Geometry, at: Location) {
    let words = || vec![0; usize32(geometry.slots()).div_ceil(64)];
    let bits = bits.entry(at.segment()).or_insert_with(words);
    if let Some(word) = bits.get_mut(usize32(at.slot() / 64)) {
        *word |= 1 << (at.slot() % 64);
    }
}

fn has(bits: &Bits, at: Location) -> bool {
    let word = bits.get(&at.segment()).and_then(|words| words.get(usize32(at.slot() / 64)));
    word.is_some_and(|word| word & 1 << (at.slot() % 64) != 0)
}

/// What is in use.
pub(super) struct Live {
    geometry: Geometry,
    segments: BTreeMap<SegmentId, OfSegment>,
    /// Shared blocks, by name: those there are, and those that are referred to.
    named: Bits,
    referred: Bits,
    /// Old versions, where they were written: those that were moved have their names elsewhere, too.
    old: Bits,
}

impl Live {
    pub fn new(geometry: Geometry) -> Self {
        let (named, referred, old) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { geometry, segments: BTreeMap::new(), named, referred, old }
    }

    /// Takes note of a reference to a shared block.
    pub fn add_reference(&mut self, name: SharedBlockId) {
        set(&mut self.referred, self.geometry, name.origin());
    }

    /// Takes note of a shared block that is known to be lost.
    pub fn add_lost(&mut self, name: SharedBlockId) {
        set(&mut self.named, self.geometry, name.origin());
    }

    /// Names that are referred to and nowhere, the first of them, and shared blocks without
    /// references.
    pub fn references(&self) -> (u64, Option<SharedBlockId>, u64) {
        let (mut missing, mut first, mut unused) = (0, None, 0);
        for (id, bits) in &self.referred {
            for (n, word) in bits.iter().enumerate() {
                let named = self.named.get(id).map_or(0, |named| named[n]);
                let lacking = word & !named;
                missing += u64::from(lacking.count_ones());
                if lacking != 0 && first.is_none() {
                    let slot = u32_of(n * 64) + lacking.trailing_zeros();
                    first = Some(SharedBlockId::of(Location::new(*id, slot)));
                }
            }
        }
        for (id, bits) in &self.named {
            for (n, word) in bits.iter().enumerate() {
                let referred = self.referred.get(id).map_or(0, |referred| referred[n]);
                unused += u64::from((word & !referred).count_ones());
            }
        }
        (missing, first, unused)
    }

    /// Whether a block is in use where it was born, under its name.
    pub fn is_born(&self, name: SharedBlockId) -> bool {
        let (at, bit) = (usize32(name.origin().slot() / 64), 1 << (name.origin().slot() % 64));
        let segment = self.segments.get(&name.origin().segment());
        segment.and_then(|segment| segment.born.get(at)).is_some_and(|word| word & bit != 0)
    }

    /// Takes note of a block in use, below the segment's end. False when it was in use before.
    pub fn add(&mut self, key: Key, at: Entry) -> bool {
        let geometry = self.geometry;
        let segment = self.segments.entry(at.location.segment()).or_insert_with(|| OfSegment {
            slots: vec![0; usize32(geometry.slots()).div_ceil(64)],
            born: vec![0; usize32(geometry.slots()).div_ceil(64)],
            stripes: vec![Sum::default(); usize32(geometry.stripes())],
        });
        let slot = at.location.slot();
        let (word, bit) = (usize32(slot / 64), 1 << (slot % 64));
        let is_new = segment.slots[word] & bit == 0;
        segment.slots[word] |= bit;
        if let Some(name) = SharedBlockId::of_key(key) {
            set(&mut self.named, geometry, name.origin());
            // Where it was in use before, it counts under the key that it still has.
            if is_new && name.origin() == at.location {
                segment.born[word] |= bit;
            }
        }
        if is_new {
            segment.stripes[usize32(geometry.place(slot).stripe)].add(key, at);
        }
        is_new
    }

    /// As [`add`](Self::add), of a block's old version.
    pub fn add_old(&mut self, key: Key, at: Entry) -> bool {
        set(&mut self.old, self.geometry, at.location);
        self.add(key, at)
    }

    /// Whether an old version of a block lies there.
    pub fn is_old(&self, at: Location) -> bool {
        has(&self.old, at)
    }

    /// Old versions of blocks in a segment.
    pub fn old_in(&self, id: SegmentId) -> u32 {
        self.old.get(&id).map_or(0, |words| words.iter().map(|word| word.count_ones()).sum())
    }

    /// Whether a block is in use.
    pub fn has(&self, at: Location) -> bool {
        let slot = at.slot();
        self.segments.get(&at.segment()).is_some_and(|segment| {
            let word = segment.slots.get(usize32(slot / 64));
            word.is_some_and(|word| word & 1 << (slot % 64) != 0)
        })
    }

    /// What is in use of a stripe.
    pub fn stripe(&self, id: SegmentId, stripe: u32) -> Sum {
        let segment = self.segments.get(&id);
        let sum = segment.and_then(|segment| segment.stripes.get(usize32(stripe)));
        sum.copied().unwrap_or_default()
    }

    /// Stripes of a segment of which something is in use.
    pub fn stripes(&self, id: SegmentId) -> Vec<u32> {
        let Some(segment) = self.segments.get(&id) else { return Vec::new() };
        let used = segment.stripes.iter().enumerate().filter(|(_, sum)| sum.blocks > 0);
        used.map(|(stripe, _)| u32_of(stripe)).collect()
    }

    /// Blocks in use of a segment.
    pub fn blocks_of(&self, id: SegmentId) -> u32 {
        let stripes = self.segments.get(&id).map_or(&[][..], |segment| &segment.stripes);
        stripes.iter().map(|sum| sum.blocks).sum()
    }
}

/// Compares what segments count as in use with what is.
pub(super) fn compare(look: &Look<'_>, found: &Checkpoint, live: &Live, seen: &mut ShardSeen) {
    for segment in found.table.values() {
        let blocks = live.blocks_of(segment.info.id);
        // Opening adds what it rolls forward.
        let counted = segment.hint.saturating_add(segment.rolled_blocks);
        seen.surplus += u64::from(counted.saturating_sub(blocks));
        // An old version that was moved is where it was, as far as the map tells, and does not count there.
        if counted < blocks.saturating_sub(live.old_in(segment.info.id)) {
            look.add(too_few(found.shard, segment, counted, blocks));
        }
    }
}

fn too_few(shard: u16, segment: &Segment, counted: u32, blocks: u32) -> Finding {
    let what = format!("it counts {counted} blocks as in use, and {blocks} are");
    let finding = if Checkpoint::is_metadata(segment) && counted == 0 {
        // Nothing but the count decides that a segment of metadata is free.
        Finding::error(Structure::Segment, what).advise(super::advice::REPORT)
    } else {
        let advice = "counts of contents are hints: a segment is looked through before it is freed";
        Finding::warning(Structure::Segment, what).advise(advice)
    };
    finding.shard(shard).segment(segment.info.id.get())
}
