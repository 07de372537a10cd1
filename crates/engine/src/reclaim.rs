//! Winning space back: segments with little in them are emptied into full stripes of others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use stdx::num::{low32, u32_of, u64_of, usize32};

use crate::address::{BLOCK, Key, Location, Name, SegmentId, View};
use crate::canary::{self, Canary, Step};
use crate::error::Result;
use crate::limits::{LEFT_ALONE, RECLAIM_RESERVE};
use crate::map::{Contents, Extents};
use crate::segment::{Owner, Salvaged, SegmentInfo, Stream, StripeHeader};
use crate::shard::{Shard, count};
use crate::table::Segment;

/// Segments emptied before their space is given back, with one checkpoint.
const SEGMENTS_AT_ONCE: usize = 4;

/// Stripes looked through together. Their blocks are looked up in the order of their keys: the more stripes, the nearer
/// one block's place in the map is to the next one's.
const STRIPES_AT_ONCE: u32 = 32;

/// Blocks looked up before others on the core have their turn.
const LOOKUPS_A_TURN: usize = 128;

/// Segments of metadata with little in them that are worth emptying.
const METADATA_AT_ONCE: usize = 2;

/// Blocks of a segment found live: where they are, whose they are, and their checksums.
struct Live {
    key: Key,
    at: Location,
    crcs: Vec<u32>,
    /// The map has it not yet: records in the log, or on their way there, refer to it.
    is_new: bool,
}

/// What became of a segment that was to be emptied, the better before the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Emptied {
    /// Everything live in it was moved.
    Whole,
    /// Some of it cannot be read for now.
    Unreadable,
    /// There is no segment to move the rest to.
    NoRoom,
}

/// What reclaim knows of the segments it looked at.
#[derive(Debug, Default)]
struct Reclaiming {
    emptied: BTreeSet<SegmentId>,
    /// The last look found nothing that it had room to empty.
    lacks_room: bool,
    /// Segments of metadata emptied last.
    evacuated: Vec<SegmentId>,
    /// Those with blocks that cannot be read for now, and until when they are left alone.
    left: BTreeMap<SegmentId, reactor::Nanos>,
}

impl Reclaiming {
    /// A segment that cannot be looked through now.
    fn leave(&mut self, id: SegmentId) {
        let pause = reactor::Nanos::try_from(LEFT_ALONE.as_nanos()).unwrap_or(reactor::Nanos::MAX);
        self.emptied.remove(&id);
        self.left.insert(id, reactor::now().saturating_add(pause));
    }

    fn is_left(&self, id: SegmentId) -> bool {
        self.left.get(&id).is_some_and(|until| reactor::now() < *until)
    }
}

/// What some stripes of a segment turned out to have.
#[derive(Default)]
struct Stripes {
    live: Vec<Live>,
    /// Those without a header: nothing was written there, or the header is lost.
    bare: BTreeSet<u32>,
    /// Drives are away that may have the header of one.
    unknown: bool,
}

fn blocks(live: &[Live]) -> u32 {
    live.iter().map(|live| u32_of(live.crcs.len())).sum()
}

/// A segment's stripes, some at a time.
fn batches(info: &SegmentInfo) -> impl Iterator<Item = Range<u32>> + use<> {
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

impl Shard {
    /// Whether free segments are so few that some should be won back.
    pub fn needs_space(&self) -> bool {
        let available = self.common.allocator.lock().available();
        // What this shard has in reserve is of no use to others, which may wait for segments that
        // only it can win back.
        if self.common.shards > 1 && available <= self.writer.keep_for_metadata() {
            return true;
        }
        available + u64_of(self.table().reserved()) <= self.reclaim_below()
    }

    /// With as many free segments as this, or fewer, some are won back.
    pub fn reclaim_below(&self) -> u64 {
        // A few segments, however large the pool: what is kept free holds no data, and each share of
        // the pool that holds none makes reclaim move more.
        let work = u64_of(RECLAIM_RESERVE) + (self.common.segments / 128).clamp(1, 4);
        self.writer.keep_for_metadata() + work
    }

    /// Wins space back while it is short, until the shard ends.
    pub async fn reclaim(self: Rc<Self>) {
        let mut reclaiming = Reclaiming::default();
        while !self.ended.get() {
            self.wake.until(|| self.ended.get() || self.gives.get() || self.needs_space()).await;
            if self.ended.get() {
                return;
            }
            let done = match self.gives.take() && !self.needs_space() {
                true => self.give_back_found(&mut reclaiming).await,
                false => self.reclaim_some(&mut reclaiming).await,
            };
            if !self.goes_on(done).await {
                return;
            }
        }
    }

    /// Gives back what is dead or was emptied; empties a few segments if there is nothing of the
    /// kind; waits for change if there are none with anything to give.
    async fn reclaim_some(&self, reclaiming: &mut Reclaiming) -> Result<()> {
        if let Some(sparse) = self.worth_evacuating(reclaiming) {
            for id in &sparse {
                self.map.evacuate(*id).await?;
            }
            reclaiming.evacuated = sparse;
            self.checkpoint().await?;
        }
        let mut dead = self.dead_by_count(reclaiming);
        dead.append(&mut reclaiming.emptied);
        if !dead.is_empty() {
            return self.give_back_dead(&dead, reclaiming).await;
        }
        reclaiming.lacks_room = false;
        while reclaiming.emptied.len() < SEGMENTS_AT_ONCE && !self.ended.get() {
            let skip = |id| reclaiming.emptied.contains(&id) || reclaiming.is_left(id);
            let victim = self.table().victim(skip);
            let Some((victim, live)) = victim else { break };
            // What was emptied, or dies meanwhile, is given back before its successor lacks room: nobody else can.
            if self.writer.room_for_moves() < u64::from(live) {
                reclaiming.lacks_room = true;
                break;
            }
            match self.empty(victim).await? {
                Emptied::Whole => {
                    reclaiming.emptied.insert(victim);
                    count(&self.counters.segments_reclaimed, 1);
                }
                Emptied::Unreadable => reclaiming.leave(victim),
                Emptied::NoRoom => {
                    reclaiming.lacks_room = true;
                    break;
                }
            }
        }
        if reclaiming.emptied.is_empty() {
            let applied = self.applied.get();
            let found = || {
                self.ended.get()
                    || self.applied.get() != applied
                    || self.can_empty_some(reclaiming)
                    || !self.dead_by_count(reclaiming).is_empty()
                    || self.worth_evacuating(reclaiming).is_some()
            };
            // Those left alone are looked at again, whatever happens.
            let _ = reactor::timeout(LEFT_ALONE, self.advanced.until(found)).await;
        }
        Ok(())
    }

    /// Whether there is a segment to empty, and room for what is live in it.
    fn can_empty_some(&self, reclaiming: &Reclaiming) -> bool {
        let victim = self.table().victim(|id| reclaiming.is_left(id));
        victim.is_some_and(|(_, live)| self.writer.room_for_moves() >= u64::from(live))
    }

    /// Segments of metadata with little in them, where there are enough of them, or where nothing else gives
    /// reclaim room to work with.
    fn worth_evacuating(&self, reclaiming: &Reclaiming) -> Option<Vec<SegmentId>> {
        let sparse = self.table().sparse_metadata();
        let enough = if reclaiming.lacks_room { 1 } else { METADATA_AT_ONCE };
        (sparse.len() >= enough && sparse != reclaiming.evacuated).then_some(sparse)
    }

    /// Gives back what is dead although space is not short: there was a look for it.
    async fn give_back_found(&self, reclaiming: &mut Reclaiming) -> Result<()> {
        let dead = self.dead_by_count(reclaiming);
        if dead.is_empty() { Ok(()) } else { self.give_back_dead(&dead, reclaiming).await }
    }

    /// Segments of data whose count says that nothing in them is live.
    fn dead_by_count(&self, reclaiming: &Reclaiming) -> BTreeSet<SegmentId> {
        let table = self.table();
        let is_data = |id: &SegmentId| {
            table.get(*id).is_some_and(|s| s.info.stream != Stream::Metadata)
                && !reclaiming.is_left(*id)
                && !self.is_held(*id)
        };
        table.dead(u64::MAX).into_iter().filter(is_data).collect()
    }

    /// Looks through segments that should be dead, once the map has learnt what was moved out of
    /// them, and gives back those that are.
    async fn give_back_dead(
        &self,
        dead: &BTreeSet<SegmentId>,
        reclaiming: &mut Reclaiming,
    ) -> Result<()> {
        self.settle_reclaim().await?;
        for id in dead {
            if !self.verify_dead(*id).await? {
                reclaiming.leave(*id);
            }
        }
        self.flush_map().await
    }

    /// Waits until the map has learnt all that was put into the reclaim stream.
    ///
    /// # Errors
    /// `Failed` when drives failed beyond the redundancy.
    pub async fn settle_reclaim(&self) -> Result<()> {
        self.writer.seal(Stream::Reclaim).await?;
        let last = self.writer.numbered();
        let learnt =
            || self.ended.get() || self.applied.get() >= last || self.writer.check().is_err();
        if !canary::skips(Step::ReclaimLearnt) {
            self.advanced.until(learnt).await;
        }
        self.writer.check()
    }

    /// Moves everything live in a segment to the reclaim stream, as far as there is room.
    pub async fn empty(&self, victim: SegmentId) -> Result<Emptied> {
        let Some((info, counted)) = self.table().get(victim).map(|s| (Rc::clone(&s.info), s.live))
        else {
            return Ok(Emptied::Whole);
        };
        let (mut all, mut found, mut bare) = (Emptied::Whole, 0, BTreeSet::new());
        for stripes in batches(&info) {
            let mut seen = self.live_of(&info, stripes).await?;
            bare.append(&mut seen.bare);
            if seen.unknown {
                all = Emptied::Unreadable;
            }
            found += blocks(&seen.live);
            all = all.max(self.relocate(&info, seen.live).await?);
            if all == Emptied::NoRoom {
                return Ok(all);
            }
        }
        // Only then may there be blocks whose header is lost.
        if found < counted && !bare.is_empty() {
            let live = self.live_by_map(&info, &bare).await?;
            all = all.max(self.relocate(&info, live).await?);
        }
        Ok(all)
    }

    /// The blocks of some stripes that the map still points to, or is about to.
    async fn live_of(&self, info: &Rc<SegmentInfo>, stripes: Range<u32>) -> Result<Stripes> {
        let mut seen = Stripes::default();
        let mut headers = Vec::new();
        for stripe in stripes {
            // A drive that goes on saying "not just now" makes each of them take long: who closes waits for one.
            if self.ended.get() {
                seen.unknown = true;
                break;
            }
            match self.writer.segments.read_header(info, stripe).await {
                Ok(Some(header)) => headers.push(header),
                Ok(None) => _ = seen.bare.insert(stripe),
                Err(_) if self.writer.segments.all_answer(info).await => {
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
        let mut records: Vec<(Key, Location, u32)> = placed
            .filter_map(|record| match record.owner {
                Owner::Write { key } | Owner::Move { key, .. } => {
                    Some((key, record.location, u32_of(record.crcs.len())))
                }
                _ => None,
            })
            .collect();
        records.sort_unstable_by_key(|(key, ..)| *key);
        let mut extents = Extents::default();
        for (n, (key, at, blocks)) in records.into_iter().enumerate() {
            if n % LOOKUPS_A_TURN == LOOKUPS_A_TURN - 1 {
                reactor::yield_now().await;
            }
            // The map's pages stay where they are while they are looked at.
            let _reading = self.grace.enter();
            self.map.lookup(key.view, key.block, blocks, &mut extents).await?;
            for extent in extents.iter() {
                let Contents::Stored { location, encoding, crcs } = extent.contents else {
                    continue;
                };
                if location == at.offset(low32(extent.first - key.block)) {
                    encoding.check()?;
                    let key = Key::new(key.view, extent.first);
                    live.push(Live { key, at: location, crcs: crcs.to_vec(), is_new: false });
                }
            }
        }
        Ok(())
    }

    /// The blocks of stripes without a header that the map points to: all of it is looked through.
    async fn live_by_map(&self, info: &SegmentInfo, bare: &BTreeSet<u32>) -> Result<Vec<Live>> {
        let mut found = Vec::new();
        let place = |key, at: Option<Location>, blocks| {
            let here = |at: &Location| at.name().is_none() && at.segment() == info.id;
            if let Some(at) = at.filter(here)
                && bare.contains(&info.geometry.place(at.slot()).stripe)
            {
                found.push((key, at, blocks));
            }
            true
        };
        self.map.scan(Key::new(View::METADATA, 0), None, place).await?;
        let (mut live, mut extents) = (Vec::new(), Extents::default());
        for (key, at, blocks) in found {
            let _reading = self.grace.enter();
            self.map.lookup(key.view, key.block, blocks, &mut extents).await?;
            for extent in extents.iter() {
                let Contents::Stored { location, encoding, crcs } = extent.contents else {
                    continue;
                };
                if location == at.offset(low32(extent.first - key.block)) {
                    encoding.check()?;
                    let key = Key::new(key.view, extent.first);
                    live.push(Live { key, at: location, crcs: crcs.to_vec(), is_new: false });
                }
            }
        }
        Ok(live)
    }

    /// Adds those of the blocks from `at` on that are shared under their names, and still here, or
    /// about to be shared. Asked after their keys, which they have until they are shared.
    async fn add_shared(&self, at: Location, crcs: &[u32], live: &mut Vec<Live>) -> Result<()> {
        let _reading = self.grace.enter();
        let (name, blocks) = (Name::of(at), u32_of(crcs.len()));
        // Asked first: what the log refers to no more, the map has.
        let referred = self.log.referred(name, blocks);
        let (first, mut extents) = (name.key(), Extents::default());
        self.map.lookup(first.view, first.block, blocks, &mut extents).await?;
        for extent in extents.iter() {
            let begin = low32(extent.first - first.block);
            let range = usize32(begin)..usize32(begin + extent.count);
            let born = name.offset(begin);
            match extent.contents {
                Contents::Stored { location, encoding, crcs } if location == born.birth() => {
                    encoding.check()?;
                    let crcs = crcs.to_vec();
                    live.push(Live { key: born.key(), at: location, crcs, is_new: false });
                }
                Contents::Stored { .. } | Contents::Lost => {}
                Contents::Hole | Contents::Absent => {
                    for (n, crc) in (begin..).zip(&crcs[range]) {
                        let name = name.offset(n);
                        if referred.binary_search(&name).is_ok() {
                            let (key, crcs) = (name.key(), vec![*crc]);
                            live.push(Live { key, at: name.birth(), crcs, is_new: true });
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
            self.grace.pass().await;
        }
        let (name, slots) = (Name::of(Location::new(info.id, 0)), info.geometry.slots());
        // Asked first: what the log refers to no more, the map has.
        let referred = self.log.referred(name, slots);
        let (first, mut extents) = (name.key(), Extents::default());
        let _reading = self.grace.enter();
        self.map.lookup(first.view, first.block, slots, &mut extents).await?;
        Ok(extents.iter().all(|extent| match extent.contents {
            Contents::Stored { location, .. } => location.segment() != info.id,
            Contents::Lost => true,
            Contents::Hole | Contents::Absent => {
                let range = extent.first..extent.first + u64::from(extent.count);
                !referred.iter().any(|name| range.contains(&name.key().block))
            }
        }))
    }

    /// Moves blocks of a segment, as far as there is room.
    async fn relocate(&self, info: &Rc<SegmentInfo>, live: Vec<Live>) -> Result<Emptied> {
        let mut all = Emptied::Whole;
        for live in live {
            all = all.max(self.relocate_some(info, live).await?);
            if all == Emptied::NoRoom {
                break;
            }
        }
        Ok(all)
    }

    /// Moves blocks; of those that are lost the map learns that. Those that can neither be read now nor be
    /// given up stay.
    async fn relocate_some(&self, info: &Rc<SegmentInfo>, live: Live) -> Result<Emptied> {
        let mut data = vec![0; live.crcs.len() * BLOCK];
        let read = self.writer.segments.read(info, live.at.slot(), &live.crcs, &mut data).await;
        let mut all = Emptied::Whole;
        for (n, (crc, block)) in live.crcs.iter().zip(data.chunks_exact_mut(BLOCK)).enumerate() {
            let n = u32_of(n);
            let mut is_lost = false;
            if read.is_err() {
                // As with headers: each takes long.
                if self.ended.get() {
                    return Ok(all.max(Emptied::Unreadable));
                }
                let slot = live.at.slot() + n;
                match self.writer.segments.salvage(info, slot, *crc, block).await {
                    Salvaged::Whole => {}
                    Salvaged::Lost => is_lost = true,
                    Salvaged::Unknown => {
                        all = Emptied::Unreadable;
                        continue;
                    }
                }
            }
            let key = Key::new(live.key.view, live.key.block + u64::from(n));
            let old = (!live.is_new).then(|| live.at.offset(n));
            let owner = old.map_or(Owner::Write { key }, |old| Owner::Move { key, old });
            let append = || match is_lost {
                true => self.writer.try_lose(Stream::Reclaim, key, old),
                false => self.writer.try_append(Stream::Reclaim, owner, &[*crc], block),
            };
            while append().is_none() {
                if !self.writer.try_make_room(Stream::Reclaim).await? {
                    return Ok(Emptied::NoRoom);
                }
            }
            if is_lost {
                count(&self.counters.lost, 1);
            }
        }
        Ok(all)
    }

    /// Counts what is live in a segment, block by block where the count so far is a hint; one without
    /// any is free to be used again. False when that cannot be said now.
    pub async fn verify_dead(&self, id: SegmentId) -> Result<bool> {
        let of = |segment: &Segment| (Rc::clone(&segment.info), segment.is_surely_dead());
        let Some((info, surely)) = self.table().get(id).map(of) else { return Ok(true) };
        let counted = if surely { Some(0) } else { self.count_live(&info).await? };
        let Some(mut live) = counted else { return Ok(false) };
        if live == 0 && !canary::has(Canary::ForgetsReferences) {
            live = u32::from(!self.has_none_shared(&info).await?);
        }
        self.writer.table.borrow_mut().set_live(id, live);
        if live == 0 {
            self.verified.borrow_mut().insert(id);
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
