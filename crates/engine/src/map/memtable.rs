//! What the map learnt since its last flush: sorted chunks of fixed-size slots, each a block that has contents or has
//! lost them, and ranges of holes.

use super::Pages;
use super::flat::{END, Flat, Item, Place, end_of_view, flat, unflat};
use super::stack::{Layer, is_needed};
use crate::address::{BLOCK_BITS, Encoding, Location, Method, Stored, Version};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use stdx::num::{low8, low32};

/// Slots of a chunk: an insert moves 1.8 KiB on average, a search looks at 7 of them.
const CHUNK: usize = 128;

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: usize = CHUNK * size_of::<Slot>();

/// Entries a chunk has at least after it was split.
pub(super) const CHUNK_ENTRIES: usize = CHUNK / 2;

/// Entries a range of holes counts for: a node of the ordered map, and the data it may cut in two.
const HOLE_ENTRIES: usize = 2;

/// What a block has since a version.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Slot {
    /// 40 bits; above them the number of the key it is encrypted under.
    block: u64,
    /// A location; above it the grains, less 1, and the method. Or [`LOST`], or [`HOLE`].
    place: u64,
    view: u32,
    crc: u32,
    version: Version,
}

const _: () = assert!(size_of::<Slot>() == 28);
const _: () = assert!(BLOCK_BITS + Encoding::KEY_BITS == u64::BITS);

/// Where a slot's place has the length, in 3 bits, and the method, in 2.
const LENGTH_AT: u32 = Location::BITS;
const METHOD_AT: u32 = LENGTH_AT + 3;
const _: () = assert!(METHOD_AT + 2 == u64::BITS);

/// The place of a lost block, and of one that is a hole over something older: no method has that number.
const LOST: u64 = u64::MAX;
const HOLE: u64 = u64::MAX - 1;

impl Slot {
    fn new(at: Flat, version: Version, stored: Option<Stored>) -> Self {
        let key = unflat(at);
        let (block, view) = (key.block, key.view.get());
        let mut slot = Self { block, place: LOST, view, crc: 0, version };
        if let Some(Stored { location, encoding, crc }) = stored {
            slot.block |= u64::from(encoding.key()) << BLOCK_BITS;
            slot.place = location.to_bits()
                | u64::from(encoding.grains() - 1) << LENGTH_AT
                | u64::from(encoding.method().number()) << METHOD_AT;
            slot.crc = crc;
        }
        slot
    }

    fn at(&self) -> Flat {
        flat(crate::address::View::new(self.view), self.block & ((1 << BLOCK_BITS) - 1))
    }

    /// A hole over this one.
    const fn hole(self, version: Version) -> Self {
        Self { place: HOLE, crc: 0, version, ..self }
    }

    const fn is_hole(&self) -> bool {
        self.place == HOLE
    }

    /// `None` where the block is lost, or a hole.
    fn stored(&self) -> Option<Stored> {
        if self.place >= HOLE {
            return None;
        }
        let location = Location::from_bits(self.place & ((1 << LENGTH_AT) - 1))?;
        let grains = low8(self.place >> LENGTH_AT & 7) + 1;
        let method = Method::of_number(low8(self.place >> METHOD_AT))?;
        let encoding = Encoding::new(grains, method, low32(self.block >> BLOCK_BITS))?;
        Some(Stored { location, encoding, crc: self.crc })
    }

    fn place(&self) -> Place {
        match self.stored() {
            Some(stored) => Place::At(stored.location, stored.encoding),
            None if self.is_hole() => Place::Hole,
            None => Place::Lost,
        }
    }

    fn known(&self) -> Known {
        match self.stored() {
            Some(stored) => Known::Data(stored, self.version),
            None if self.is_hole() => Known::Hole(self.at() + 1),
            None => Known::Lost,
        }
    }

    fn layer(&self) -> Layer {
        let place = self.place();
        let crcs = if place.has_contents() { vec![self.crc] } else { Vec::new() };
        Layer { source: 0, version: self.version, place, crcs }
    }
}

/// Tells of contents that gave way, unless they are in the same place in what replaced them.
fn give_way<P: Pages>(pages: &P, old: &Slot, new: Option<&Slot>) {
    let Some(old) = old.stored() else { return };
    let new = new.and_then(Slot::stored);
    if new.is_none_or(|new| new.location != old.location) {
        pages.superseded(old.location, old.encoding, 1);
    }
}

/// Where a slot is.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor {
    chunk: usize,
    slot: usize,
}

/// What a memtable says of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Data(Stored, Version),
    Lost,
    /// A hole, up to this position at least.
    Hole(Flat),
    /// Nothing, up to this position; past every key when nothing follows.
    Nothing(Flat),
}

/// The newest level. Blocks lie over holes: one may be inside a hole's range, which was one before.
#[derive(Default)]
pub(super) struct Memtable {
    firsts: Vec<Flat>,
    /// The newest of each block.
    chunks: Vec<Vec<Slot>>,
    entries: usize,
    /// What some snapshot needs of blocks that have a slot as well.
    older: Older,
    /// Beginning and end of ranges that are holes since a version; those of the same do not touch.
    holes: Holes,
    /// None of the holes is newer.
    newest_hole: Version,
    /// Something was inserted since a version that is not the first.
    versioned: bool,
    spare: Vec<Vec<Slot>>,
}

impl Memtable {
    pub fn is_empty(&self) -> bool {
        self.entries == 0 && self.holes.is_empty()
    }

    /// Entries, older ones among them, and ranges of holes.
    pub fn used(&self) -> usize {
        self.taken() + self.older.len()
    }

    /// Entries that were asked for room for. What holes make of them has none of its own: they may double.
    pub fn taken(&self) -> usize {
        self.entries + self.holes.len() * HOLE_ENTRIES
    }

    /// Chunks it counts for, against its limit.
    pub fn chunks(&self) -> usize {
        let beside = self.holes.len() * HOLE_ENTRIES + self.older.len();
        self.chunks.len() + beside.div_ceil(CHUNK_ENTRIES)
    }

    /// Bytes it has allocated.
    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.len() + self.spare.len();
        let nodes = self.holes.len() * HOLE_ENTRIES + self.older.len();
        let beside = nodes * 2 * size_of::<Slot>();
        chunks * CHUNK * size_of::<Slot>() + self.firsts.capacity() * size_of::<Flat>() + beside
    }

    /// Whether some block may have more than one version here, or one that is not the first.
    pub const fn has_versions(&self) -> bool {
        self.versioned
    }

    /// The chunk that holds `at` or would.
    fn chunk_of(&self, at: Flat) -> usize {
        self.firsts.partition_point(|&first| first <= at).saturating_sub(1)
    }

    /// Puts a block in, its contents or that they are lost (`None`), since a version.
    pub fn insert<P: Pages>(
        &mut self,
        pages: &P,
        at: Flat,
        version: Version,
        stored: Option<Stored>,
    ) {
        let slot = Slot::new(at, version, stored);
        self.versioned |= version > Version::FIRST;
        if self.chunks.is_empty() {
            let mut chunk = self.fresh();
            chunk.push(slot);
            (self.firsts, self.chunks) = (vec![at], vec![chunk]);
            self.entries = 1;
            return self.order_hole(pages, at);
        }
        let mut c = self.chunk_of(at);
        let mut position = self.chunks[c].partition_point(|s| s.at() < at);
        if let Some(old) = self.chunks[c].get_mut(position)
            && old.at() == at
        {
            let before = *old;
            if before.version > version {
                return self.insert_older(pages, slot, &before);
            }
            *old = slot;
            return self.replace(pages, before, &slot);
        }
        if self.chunks[c].len() == CHUNK {
            let keep = if position == CHUNK { CHUNK } else { CHUNK / 2 };
            self.split(c, keep, slot);
            if keep == CHUNK {
                self.entries += 1;
                return self.order_hole(pages, at);
            }
            if position > keep {
                c += 1;
                position -= keep;
            }
        }
        self.chunks[c].insert(position, slot);
        self.firsts[c] = self.chunks[c][0].at();
        self.entries += 1;
        self.order_hole(pages, at);
    }

    /// `before` is no longer the newest of its block.
    fn replace<P: Pages>(&mut self, pages: &P, before: Slot, new: &Slot) {
        let (at, written) = (before.at(), before.version);
        if is_needed(pages, at, written, new.version) {
            self.older.insert((at, Reverse(written)), before);
        } else {
            give_way(pages, &before, Some(new));
        }
    }

    /// The block at `at` has a slot since now. A hole that is newer goes over it.
    #[inline]
    fn order_hole<P: Pages>(&mut self, pages: &P, at: Flat) {
        if self.newest_hole > Version::FIRST {
            self.order_newer_hole(pages, at);
        }
    }

    fn order_newer_hole<P: Pages>(&mut self, pages: &P, at: Flat) {
        let Some((_, hole)) = self.hole_at(at) else { return };
        let c = self.chunk_of(at);
        let position = self.chunks[c].partition_point(|s| s.at() < at);
        let slot = &mut self.chunks[c][position];
        if slot.version < hole && !cover(&mut self.older, &self.holes, pages, slot, hole) {
            self.chunks[c].remove(position);
            self.entries -= 1;
            self.tidy(c, c + 1);
        }
    }

    /// Puts in what is older than the newest of its block.
    fn insert_older<P: Pages>(&mut self, pages: &P, slot: Slot, newest: &Slot) {
        let (at, version) = (slot.at(), slot.version);
        let key = (at, Reverse(version));
        if let Some(old) = self.older.get_mut(&key) {
            let before = std::mem::replace(old, slot);
            return give_way(pages, &before, Some(&slot));
        }
        let newer = self.older.range((at, Reverse(Version::LAST))..key).next_back();
        let newer = newer.map_or(*newest, |(_, slot)| *slot);
        if !is_needed(pages, at, version, newer.version) {
            return give_way(pages, &slot, Some(&newer));
        }
        recheck(&mut self.older, pages, at, version);
        self.older.insert(key, slot);
    }

    /// The range of holes around a position: where it ends, and since when it is one.
    fn hole_at(&self, at: Flat) -> Option<(Flat, Version)> {
        hole_at(&self.holes, at)
    }

    fn fresh(&mut self) -> Vec<Slot> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK))
    }

    /// Leaves the first `keep` slots of a full chunk; the rest, or `slot` if there is none, begin
    /// the next one. Ascending inserts so leave full chunks behind.
    fn split(&mut self, c: usize, keep: usize, slot: Slot) {
        let mut next = self.fresh();
        next.extend(self.chunks[c].drain(keep..));
        if next.is_empty() {
            next.push(slot);
        }
        self.firsts.insert(c + 1, next[0].at());
        self.chunks.insert(c + 1, next);
    }

    /// Makes `from..to` a hole since a version. Over what a snapshot needs, each block gets one of its own.
    pub fn insert_hole<P: Pages>(&mut self, pages: &P, from: Flat, to: Flat, version: Version) {
        self.versioned |= version > Version::FIRST;
        self.newest_hole = self.newest_hole.max(version);
        self.cover_all(pages, from, to, version);
        let (mut low, mut high) = (from, to);
        let mut ranges = Vec::new();
        if let Some((&start, &(end, _))) = self.holes.range(..=from).next_back()
            && end >= from
        {
            (low, high) = (start, high.max(end));
        }
        while let Some((&start, &(end, since))) = self.holes.range(low..=high).next() {
            high = high.max(end);
            ranges.push((start, end, since));
            self.holes.remove(&start);
        }
        let mut last: Option<(Flat, Flat, Version)> = None;
        let mut put = |start: Flat, end: Flat, since: Version| {
            if start >= end {
                return;
            }
            match &mut last {
                Some(last) if last.1 == start && last.2 == since => last.1 = end,
                last => {
                    if let Some((start, end, since)) = last.replace((start, end, since)) {
                        self.holes.insert(start, (end, since));
                    }
                }
            }
        };
        let mut at = from;
        for (start, end, since) in ranges {
            put(start, end.min(from), since);
            put(at, start.min(to), version);
            let (older, newer) = (since.min(version), since.max(version));
            let both = if is_needed(pages, from, older, newer) { older } else { newer };
            put(start.max(from), end.min(to), both);
            at = at.max(end.min(to));
            put(start.max(to), end, since);
        }
        put(at, to, version);
        if let Some((start, end, since)) = last {
            self.holes.insert(start, (end, since));
        }
    }

    /// Calls `found` with where every block lies that has contents, in each version.
    pub fn each_place(&self, mut found: impl FnMut(Location, u32)) {
        let slots = self.chunks.iter().flatten().chain(self.older.values());
        for stored in slots.filter_map(Slot::stored) {
            found(stored.location, 1);
        }
    }

    /// Makes slots holes, or takes them away, where ranges say so.
    fn cover_all<P: Pages>(&mut self, pages: &P, from: Flat, to: Flat, version: Version) {
        if self.chunks.is_empty() {
            return;
        }
        let first = self.chunk_of(from);
        let mut c = first;
        while c < self.chunks.len() && self.firsts[c] < to {
            let chunk = &mut self.chunks[c];
            let low = chunk.partition_point(|s| s.at() < from);
            let high = chunk.partition_point(|s| s.at() < to);
            let mut kept = low;
            for n in low..high {
                if cover(&mut self.older, &self.holes, pages, &mut chunk[n], version) {
                    chunk.swap(kept, n);
                    kept += 1;
                }
            }
            self.entries -= high - kept;
            chunk.drain(kept..high);
            c += 1;
        }
        self.tidy(first, c);
    }

    /// Drops the empty ones among chunks `from..to` and joins the others with what comes before
    /// while one chunk holds both.
    fn tidy(&mut self, from: usize, to: usize) {
        for c in (from..to).rev() {
            if self.chunks[c].is_empty() {
                let empty = self.chunks.remove(c);
                self.firsts.remove(c);
                self.spare.push(empty);
            } else {
                self.firsts[c] = self.chunks[c][0].at();
            }
        }
        let mut c = from.max(1);
        while c < self.chunks.len() && c <= from + 1 {
            if self.chunks[c - 1].len() + self.chunks[c].len() <= CHUNK {
                let mut taken = self.chunks.remove(c);
                self.firsts.remove(c);
                self.chunks[c - 1].append(&mut taken);
                self.spare.push(taken);
            } else {
                c += 1;
            }
        }
    }

    /// The first slot at or after `at`, where there is one. It is looked for at `likely` first.
    fn seek(&self, at: Flat, likely: Cursor) -> Cursor {
        let here = self.slot(likely).is_some_and(|slot| slot.at() >= at);
        if here && self.before(likely).is_none_or(|slot| slot.at() < at) {
            return likely;
        }
        let chunk = self.chunk_of(at);
        let slot = self.chunks.get(chunk).map_or(0, |c| c.partition_point(|s| s.at() < at));
        self.whole(Cursor { chunk, slot })
    }

    /// The same place, if it is not behind the last slot of a chunk that is followed by another.
    fn whole(&self, place: Cursor) -> Cursor {
        match self.chunks.get(place.chunk) {
            Some(chunk) if place.slot == chunk.len() => Cursor { chunk: place.chunk + 1, slot: 0 },
            _ => place,
        }
    }

    fn slot(&self, place: Cursor) -> Option<&Slot> {
        self.chunks.get(place.chunk)?.get(place.slot)
    }

    fn before(&self, place: Cursor) -> Option<&Slot> {
        match place.slot.checked_sub(1) {
            Some(slot) => self.slot(Cursor { slot, ..place }),
            None => self.chunks.get(place.chunk.checked_sub(1)?)?.last(),
        }
    }

    /// What it knows of `at`, the newest that is not newer than `as_of`.
    pub fn get(&self, at: Flat, as_of: Version) -> Known {
        self.known(at, self.slot(self.seek(at, Cursor::default())), as_of)
    }

    /// What it knows of `at`, where the first slot there or later is `slot`.
    fn known(&self, at: Flat, slot: Option<&Slot>, as_of: Version) -> Known {
        let mut next = END;
        if let Some(slot) = slot {
            next = slot.at();
            if next == at {
                return if slot.version <= as_of { slot.known() } else { self.older(at, as_of) };
            }
        }
        if self.holes.is_empty() {
            return Known::Nothing(next);
        }
        if let Some((end, since)) = self.hole_at(at) {
            let end = end.min(next);
            return if since <= as_of { Known::Hole(end) } else { Known::Nothing(end) };
        }
        if let Some((&start, _)) = self.holes.range(at..).next() {
            next = next.min(start);
        }
        Known::Nothing(next)
    }

    /// What there is of a block that has a newer slot.
    fn older(&self, at: Flat, as_of: Version) -> Known {
        let older = self.older.range((at, Reverse(as_of))..).next();
        let older = older.filter(|(key, _)| key.0 == at).map(|(_, slot)| slot);
        let hole = self.hole_at(at).filter(|(_, since)| *since <= as_of);
        match (older, hole) {
            (Some(slot), Some((_, since))) if since > slot.version => Known::Hole(at + 1),
            (Some(slot), _) => slot.known(),
            (None, Some(_)) => Known::Hole(at + 1),
            (None, None) => Known::Nothing(at + 1),
        }
    }

    /// All versions of a block, the newest first.
    pub fn layers(&self, at: Flat, out: &mut Vec<Layer>) {
        out.clear();
        let slot = self.slot(self.seek(at, Cursor::default())).filter(|slot| slot.at() == at);
        out.extend(slot.map(Slot::layer));
        let older = self.older.range((at, Reverse(Version::LAST))..=(at, Reverse(Version::FIRST)));
        out.extend(older.map(|(_, slot)| slot.layer()));
        if let Some((_, version)) = self.hole_at(at)
            && out.iter().all(|layer| layer.version != version)
        {
            let n = out.partition_point(|layer| layer.version > version);
            out.insert(n, Layer { source: 0, version, place: Place::Hole, crcs: Vec::new() });
        }
    }

    /// Whether a block with a slot has something else beside.
    fn is_stacked(&self, at: Flat) -> bool {
        let older = self.older.range((at, Reverse(Version::LAST))..).next();
        older.is_some_and(|(key, _)| key.0 == at) || self.hole_at(at).is_some()
    }

    /// The first item at or after `at`, of the newest versions, and since when it is: neighbours that continue each other
    /// are one, up to as many blocks as `checksums` has room for; it gets theirs. A block that may have older versions
    /// beside is alone. Whoever goes through all has `place` for the next call.
    pub fn next(
        &self,
        at: Flat,
        place: &mut Cursor,
        checksums: &mut Vec<u32>,
        most: usize,
    ) -> Option<(Item, Version)> {
        checksums.clear();
        let mut at = at;
        *place = self.seek(at, *place);
        loop {
            let slot = self.slot(*place);
            if slot.is_some_and(|slot| slot.at() == at) {
                return self.extent(place, checksums, most);
            }
            match self.known(at, slot, Version::LAST) {
                Known::Data(..) | Known::Lost => return None,
                Known::Hole(end) => {
                    let blocks = super::flat::distance(at, end.min(end_of_view(at)));
                    let since = self.hole_at(at).map_or(Version::FIRST, |(_, since)| since);
                    return Some((Item { start: at, blocks, place: Place::Hole }, since));
                }
                Known::Nothing(END) => return None,
                Known::Nothing(next) => at = next,
            }
        }
    }

    fn extent(
        &self,
        place: &mut Cursor,
        checksums: &mut Vec<u32>,
        most: usize,
    ) -> Option<(Item, Version)> {
        let mut item: Option<(Item, Version)> = None;
        while checksums.len() < most {
            let Some(slot) = self.slot(*place) else { break };
            let next = Item { start: slot.at(), blocks: 1, place: slot.place() };
            let alone = self.versioned && self.is_stacked(next.start);
            match &mut item {
                None => item = Some((next, slot.version)),
                Some(_) if alone => break,
                Some((i, since)) if i.continued_by(&next) && *since == slot.version => {
                    i.blocks += 1;
                }
                Some(_) => break,
            }
            if next.place.has_contents() {
                checksums.push(slot.crc);
            }
            *place = self.whole(Cursor { slot: place.slot + 1, ..*place });
            if alone {
                break;
            }
        }
        item
    }

    /// Empties it for use again.
    pub fn clear(&mut self) {
        self.firsts.clear();
        for mut chunk in self.chunks.drain(..) {
            chunk.clear();
            self.spare.push(chunk);
        }
        self.holes.clear();
        self.older.clear();
        (self.entries, self.newest_hole, self.versioned) = (0, Version::FIRST, false);
    }
}

/// Older versions of blocks.
type Older = BTreeMap<(Flat, Reverse<Version>), Slot>;

/// Where ranges of holes begin, where each ends, and since when it is one.
type Holes = BTreeMap<Flat, (Flat, Version)>;

fn hole_at(holes: &Holes, at: Flat) -> Option<(Flat, Version)> {
    let (_, &(end, version)) = holes.range(..=at).next_back()?;
    (end > at).then_some((end, version))
}

/// Makes a slot a hole since a version, if it is older: tells whether it is to stay. It need not where the range of the
/// hole says all there is to say, which has not learnt of it yet: nothing older beside, and no hole before that a snapshot
/// sees, since when the range stays one. Levels may have what was between the two.
fn cover<P: Pages>(
    older: &mut Older,
    holes: &Holes,
    pages: &P,
    slot: &mut Slot,
    version: Version,
) -> bool {
    let (at, written) = (slot.at(), slot.version);
    if written > version {
        if let Some(same) = older.remove(&(at, Reverse(version))) {
            give_way(pages, &same, None);
        }
        recheck(older, pages, at, version);
        return true;
    }
    let hole = slot.hole(version);
    if is_needed(pages, at, written, version) {
        if !slot.is_hole() {
            older.insert((at, Reverse(written)), *slot);
            *slot = hole;
        }
        return true;
    }
    give_way(pages, slot, None);
    *slot = hole;
    let before = older.range((at, Reverse(version))..).next();
    before.is_some_and(|(key, _)| key.0 == at)
        || hole_at(holes, at).is_some_and(|(_, since)| is_needed(pages, at, since, version))
}

/// Whether what a block had before a version is still needed, which is replaced in that one now.
fn recheck<P: Pages>(older: &mut Older, pages: &P, at: Flat, version: Version) {
    let next = older.range((at, Reverse(version))..).next();
    if let Some((&key, slot)) = next.filter(|(key, _)| key.0 == at && key.1 != Reverse(version))
        && !is_needed(pages, at, key.1.0, version)
    {
        give_way(pages, slot, None);
        older.remove(&key);
    }
}
