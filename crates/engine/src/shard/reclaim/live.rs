//! Which blocks of a segment are live: what its headers say of them, and the map.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use stdx::num::{low32, u32_of, u64_of, usize32};

use super::Reclaim;
use crate::address::{Key, Location, SegmentId, SharedBlockId, Version, View};
use crate::canary::{self, Canary, Step};
use crate::error::Result;
use crate::map::{Contents, Extents, Period};
use crate::segment::{Owner, Placed, SegmentInfo, StripeHeader};
use crate::segment_table::Segment;

/// Stripes looked through together. Their blocks are looked up in the order of their keys: the more stripes, the nearer
/// one block's place in the map is to the next one's.
const STRIPES_AT_ONCE: u32 = 32;

/// Blocks looked up before others on the core have their turn.
const LOOKUPS_A_TURN: usize = 128;

/// Blocks of a segment found live: where they are, whose they are, and their checksums.
pub struct Live {
    pub key: Key,
    /// Since when the key has them.
    pub version: Version,
    pub at: Location,
    pub crcs: Vec<u32>,
    /// The map has it not by this key yet: an old version that gets its name as it is moved, or what records in the log,
    /// or on their way there, refer to.
    pub is_new: bool,
}

impl Live {
    /// The numbers of its blocks in their view.
    fn keys(&self) -> Range<u64> {
        self.key.block..self.key.block + u64_of(self.crcs.len())
    }
}

/// Blocks that were written one behind another.
#[derive(Clone, Copy)]
struct Written {
    key: Key,
    version: Version,
    at: Location,
    blocks: u32,
}

/// Adds what the map has of blocks just where they were written.
fn add_found(extents: &Extents, record: Written, live: &mut Vec<Live>) -> Result<()> {
    for extent in extents.iter() {
        let Contents::Stored { location, encoding, crcs } = extent.contents else { continue };
        if location == record.at.offset(low32(extent.first - record.key.block)) {
            encoding.check()?;
            let key = Key::new(record.key.view, extent.first);
            let (version, crcs) = (record.version, crcs.to_vec());
            live.push(Live { key, version, at: location, crcs, is_new: false });
        }
    }
    Ok(())
}

/// What some stripes of a segment turned out to have.
#[derive(Default)]
pub struct Stripes {
    pub live: Vec<Live>,
    /// Those without a header: nothing was written there, or the header is lost.
    pub bare: BTreeSet<u32>,
    /// Drives are away that may have the header of one.
    pub unknown: bool,
}

pub fn blocks(live: &[Live]) -> u32 {
    live.iter().map(|live| u32_of(live.crcs.len())).sum()
}

/// A segment's stripes, some at a time.
pub fn batches(info: &SegmentInfo) -> impl Iterator<Item = Range<u32>> + use<> {
    let all = info.geometry.stripes();
    (0..all).step_by(usize32(STRIPES_AT_ONCE)).map(move |at| at..(at + STRIPES_AT_ONCE).min(all))
}

/// Stretches of a stripe's blocks, by index of the first and length, that are shared, if they are, under the names of
/// where they lie. Those that were shared before they were moved have their names for keys.
fn own_names(header: &StripeHeader) -> Vec<(usize, usize)> {
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    let mut next = 0;
    for record in header.placed() {
        let (Owner::Write { key } | Owner::Move { key, .. }) = record.owner else { continue };
        let (first, blocks) = (next, record.crcs.len());
        next += blocks;
        match stretches.last_mut() {
            _ if key.view.is_shared() => {}
            Some((begin, length)) if *begin + *length == first => *length += blocks,
            _ => stretches.push((first, blocks)),
        }
    }
    stretches
}

impl Reclaim {
    /// The blocks of some stripes that the map still points to, or is about to.
    pub async fn live_of(&self, info: &Rc<SegmentInfo>, stripes: Range<u32>) -> Result<Stripes> {
        let mut seen = Stripes::default();
        let mut headers = Vec::new();
        for stripe in stripes {
            // A drive that goes on saying "not just now" makes each of them take long: who closes waits for one.
            if self.base.has_ended() {
                seen.unknown = true;
                break;
            }
            match self.base.writer.segments().read_header(info, stripe).await {
                Ok(Some(header)) => headers.push(header),
                Ok(None) => _ = seen.bare.insert(stripe),
                Err(_) if self.base.writer.segments().all_answer(info).await => {
                    seen.bare.insert(stripe);
                }
                Err(_) => seen.unknown = true,
            }
        }
        self.add_by_keys(&headers, &mut seen.live).await?;
        if !canary::has(Canary::ForgetsReferences) {
            for header in &headers {
                for (first, blocks) in own_names(header) {
                    let at = Location::new(info.id, header.first_slot).offset(u32_of(first));
                    let crcs = &header.crcs[first..first + blocks];
                    self.add_shared(at, crcs, &mut seen.live).await?;
                }
            }
        }
        Ok(seen)
    }

    /// Adds the blocks of stripes that the map still points to by the keys that they were written for.
    async fn add_by_keys(&self, headers: &[StripeHeader], live: &mut Vec<Live>) -> Result<()> {
        let placed = headers.iter().flat_map(StripeHeader::placed);
        let mut records: Vec<Written> = placed
            .filter_map(|record| match record.owner {
                Owner::Write { key } | Owner::Move { key, .. } => {
                    let Placed { location: at, version, crcs, .. } = record;
                    Some(Written { key, version, at, blocks: u32_of(crcs.len()) })
                }
                _ => None,
            })
            .collect();
        records.sort_unstable_by_key(|record| record.key);
        for (n, record) in records.into_iter().enumerate() {
            if n % LOOKUPS_A_TURN == LOOKUPS_A_TURN - 1 {
                reactor::yield_now().await;
            }
            self.add_written(record, live).await?;
        }
        Ok(())
    }

    /// Adds those of the blocks of a record that hosts see where it put them, or a snapshot.
    async fn add_written(&self, record: Written, live: &mut Vec<Live>) -> Result<()> {
        // The map's pages stay where they are while they are looked at.
        let _reading = self.base.grace.enter();
        let (Key { view, block }, mut extents) = (record.key, Extents::default());
        self.base.map.lookup(view, block, record.blocks, &mut extents).await?;
        let before = live.len();
        add_found(&extents, record, live)?;
        if blocks(&live[before..]) == record.blocks || canary::skips(Step::ReclaimLooksBack) {
            return Ok(());
        }
        // What the first snapshot since does not see here, none does: something came in between. Asked after the newest: of
        // what was overwritten by then, no snapshot that is taken later sees anything.
        let first = self.base.common.snapshots.first_from(view, record.version);
        let Some(version) = first else { return Ok(()) };
        self.base.map.lookup_as_of(view, version, block, record.blocks, &mut extents).await?;
        let mut seen = Vec::new();
        add_found(&extents, record, &mut seen)?;
        let newest: BTreeSet<u64> = live[before..].iter().flat_map(Live::keys).collect();
        for seen in seen {
            for (n, (block, crc)) in (0..).zip(seen.keys().zip(&seen.crcs)) {
                if !newest.contains(&block) {
                    self.add_old(seen.at.offset(n), *crc, live).await?;
                }
            }
        }
        Ok(())
    }

    /// Adds an old version of a block that a snapshot sees there, if it lies there alone: what has an entry under its name
    /// is moved by that, or was.
    async fn add_old(&self, at: Location, crc: u32, live: &mut Vec<Live>) -> Result<()> {
        let (key, mut extents) = (SharedBlockId::of(at).key(), Extents::default());
        self.base.map.lookup(key.view, key.block, 1, &mut extents).await?;
        if extents.iter().all(|extent| extent.contents.is_empty()) {
            let (version, crcs) = (Version::FIRST, vec![crc]);
            live.push(Live { key, version, at, crcs, is_new: true });
        }
        Ok(())
    }

    /// The blocks of stripes without a header that the map points to: all of it is looked through.
    pub async fn live_by_map(&self, info: &SegmentInfo, bare: &BTreeSet<u32>) -> Result<Vec<Live>> {
        let mut found = Vec::new();
        let place = |key, at: Option<Location>, blocks, period: Period| {
            let here = |at: &Location| at.name().is_none() && at.segment() == info.id;
            if let Some(at) = at.filter(here)
                && bare.contains(&info.geometry.place(at.slot()).stripe)
            {
                found.push(Written { key, version: period.since, at, blocks });
            }
            true
        };
        self.base.map.scan(Key::new(View::METADATA, 0), None, place).await?;
        let mut live = Vec::new();
        for record in found {
            self.add_written(record, &mut live).await?;
        }
        Ok(live)
    }

    /// Adds those of the blocks from `at` on that are shared under their names, and still here, or
    /// about to be shared. Asked after their keys, which they have until they are shared.
    async fn add_shared(&self, at: Location, crcs: &[u32], live: &mut Vec<Live>) -> Result<()> {
        let _reading = self.base.grace.enter();
        let (name, blocks) = (SharedBlockId::of(at), u32_of(crcs.len()));
        // Asked first: what the log refers to no more, the map has.
        let referred = self.base.log.referred(name, blocks);
        let (first, mut extents) = (name.key(), Extents::default());
        self.base.map.lookup(first.view, first.block, blocks, &mut extents).await?;
        for extent in extents.iter() {
            let begin = low32(extent.first - first.block);
            let range = usize32(begin)..usize32(begin + extent.count);
            let born = name.offset(begin);
            match extent.contents {
                Contents::Stored { location, encoding, crcs } if location == born.origin() => {
                    encoding.check()?;
                    let (key, version, crcs) = (born.key(), Version::FIRST, crcs.to_vec());
                    live.push(Live { key, version, at: location, crcs, is_new: false });
                }
                Contents::Stored { .. } | Contents::Lost => {}
                Contents::Hole | Contents::Absent => {
                    for (n, crc) in (begin..).zip(&crcs[range]) {
                        let name = name.offset(n);
                        if referred.binary_search(&name).is_ok() {
                            let (key, at, version) = (name.key(), name.origin(), Version::FIRST);
                            live.push(Live { key, version, at, crcs: vec![*crc], is_new: true });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether nothing in a segment is shared, or about to be, that the map had nothing in by any
    /// other key some time before this was called.
    async fn has_none_shared(&self, info: &SegmentInfo) -> Result<bool> {
        // Whoever found something there has told the log by then.
        if !canary::skips(Step::DeadGrace) {
            self.base.grace.pass().await;
        }
        let (name, slots) = (SharedBlockId::of(Location::new(info.id, 0)), info.geometry.slots());
        // Asked first: what the log refers to no more, the map has.
        let referred = self.base.log.referred(name, slots);
        let (first, mut extents) = (name.key(), Extents::default());
        let _reading = self.base.grace.enter();
        self.base.map.lookup(first.view, first.block, slots, &mut extents).await?;
        Ok(extents.iter().all(|extent| match extent.contents {
            Contents::Stored { location, .. } => location.segment() != info.id,
            Contents::Lost => true,
            Contents::Hole | Contents::Absent => {
                let range = extent.first..extent.first + u64::from(extent.count);
                !referred.iter().any(|name| range.contains(&name.key().block))
            }
        }))
    }

    /// Counts what is live in a segment, block by block where the count so far is a hint; one without
    /// any is free to be used again. False when that cannot be said now.
    pub async fn verify_dead(&self, id: SegmentId) -> Result<bool> {
        let of = |segment: &Segment| (Rc::clone(&segment.info), segment.is_surely_dead());
        let Some((info, surely)) = self.base.table().get(id).map(of) else { return Ok(true) };
        let counted = if surely { Some(0) } else { self.count_live(&info).await? };
        let Some(mut live) = counted else { return Ok(false) };
        if live == 0 && !canary::has(Canary::ForgetsReferences) {
            live = u32::from(!self.has_none_shared(&info).await?);
        }
        self.base.writer.table_mut().set_live(id, live);
        if live == 0 {
            self.checkpoints.note_dead(id);
        }
        Ok(true)
    }

    /// How many blocks of a segment are live. `None` when drives are away that may know of some.
    async fn count_live(&self, info: &Rc<SegmentInfo>) -> Result<Option<u32>> {
        let (mut live, mut bare) = (0, BTreeSet::new());
        for stripes in batches(info) {
            let mut seen = self.live_of(info, stripes).await?;
            if seen.unknown {
                return Ok(None);
            }
            bare.append(&mut seen.bare);
            live += blocks(&seen.live);
        }
        if live == 0 && !bare.is_empty() {
            live = blocks(&self.live_by_map(info, &bare).await?);
        }
        Ok(Some(live))
    }
}
