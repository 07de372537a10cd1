//! What the map learnt since its last flush: the newest of each block, contents or that they are lost, ranges of holes,
//! and what snapshots need of what gave way.

mod chunk;

use super::Pages;
use super::flat::{END, Flat, Item, Place, end_of_view};
use super::stack::{Layer, Spare, is_needed};
use crate::address::{Location, Stored, Version};
use chunk::{CHUNK, Chunk, Slot};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Bytes of a chunk's slots.
pub(super) const CHUNK_BYTES: usize = CHUNK * size_of::<Slot>();

/// Entries a chunk has at least after it was split.
pub(super) const CHUNK_ENTRIES: usize = CHUNK / 2;

/// Entries a range of holes counts for: a node of the ordered map, and the data it may cut in two.
const HOLE_ENTRIES: usize = 2;

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
    /// What was found last is a block that has something else beside.
    pub is_stacked: bool,
}

/// What a memtable says of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Data(Stored, Version),
    Lost(Version),
    /// A hole, up to this position at least.
    Hole(Flat, Version),
    /// Nothing, up to this position; past every key when nothing follows.
    Nothing(Flat),
}

/// The newest level. Blocks lie over holes: one may be inside a hole's range, which was one before.
#[derive(Default)]
pub(super) struct Memtable {
    firsts: Vec<Flat>,
    /// The newest of each block.
    chunks: Vec<Chunk>,
    entries: usize,
    /// What some snapshot needs of blocks that have a slot as well.
    older: Older,
    /// Beginning and end of ranges that are holes since a version; those of the same do not touch.
    holes: BTreeMap<Flat, (Flat, Version)>,
    /// Something was inserted since a version that is not the first.
    versioned: bool,
    spare: Vec<Chunk>,
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
        let version = if self.versioned { size_of::<Version>() } else { 0 };
        let slots = chunks * CHUNK * (size_of::<Slot>() + version);
        slots + self.firsts.capacity() * size_of::<Flat>() + beside
    }

    /// Whether some block may have more than one version here, or one that is not the first.
    pub const fn has_versions(&self) -> bool {
        self.versioned
    }

    /// Goes through the chunks: what is counted is there, and is found.
    ///
    /// # Panics
    /// Where it is not.
    pub fn assert_counts(&self) {
        assert_eq!(self.firsts.len(), self.chunks.len(), "each chunk is found by its first slot");
        let mut entries = 0;
        for (c, chunk) in self.chunks.iter().enumerate() {
            assert!(chunk.is_whole(), "a chunk has slots, and each of them a version or none");
            assert_eq!(self.firsts[c], self.first_of(c), "a chunk is found by its first slot");
            entries += chunk.len();
        }
        assert_eq!(self.entries, entries, "the entries are those of the chunks");
    }

    /// The chunk that holds `at` or would.
    fn chunk_of(&self, at: Flat) -> usize {
        self.firsts.partition_point(|&first| first <= at).saturating_sub(1)
    }

    /// Puts a block in, its contents or that they are lost (`None`), since a version: not before what it has.
    pub fn insert<P: Pages>(
        &mut self,
        pages: &P,
        at: Flat,
        version: Version,
        stored: Option<Stored>,
    ) {
        let slot = Slot::new(at, stored);
        self.versioned |= version > Version::FIRST;
        if self.chunks.is_empty() {
            let mut chunk = self.fresh();
            chunk.insert(0, slot, version);
            (self.firsts, self.chunks) = (vec![at], vec![chunk]);
            self.entries = 1;
            return;
        }
        let mut c = self.chunk_of(at);
        let mut position = self.chunks[c].before(at);
        if let Some((&old, since)) = self.chunks[c].get(position)
            && old.at() == at
        {
            let version = in_order(since, version);
            self.chunks[c].replace(position, slot, version);
            if is_needed(pages, at, since, version) {
                self.older.insert((at, Reverse(since)), old);
            } else {
                give_way(pages, &old, Some(&slot));
            }
            return;
        }
        if self.chunks[c].len() == CHUNK {
            let keep = if position == CHUNK { CHUNK } else { CHUNK / 2 };
            self.split(c, keep, slot, version);
            if keep == CHUNK {
                self.entries += 1;
                return;
            }
            if position > keep {
                c += 1;
                position -= keep;
            }
        }
        self.chunks[c].insert(position, slot, version);
        self.firsts[c] = self.first_of(c);
        self.entries += 1;
    }

    fn first_of(&self, c: usize) -> Flat {
        self.chunks[c].get(0).map_or(END, |(slot, _)| slot.at())
    }

    /// The range of holes around a position: where it ends, and since when it is one.
    fn hole_at(&self, at: Flat) -> Option<(Flat, Version)> {
        let (_, &(end, version)) = self.holes.range(..=at).next_back()?;
        (end > at).then_some((end, version))
    }

    fn fresh(&mut self) -> Chunk {
        self.spare.pop().unwrap_or_default()
    }

    /// Leaves the first `keep` slots of a full chunk; the rest, or `slot` if there is none, begin
    /// the next one. Ascending inserts so leave full chunks behind.
    fn split(&mut self, c: usize, keep: usize, slot: Slot, version: Version) {
        let mut next = self.fresh();
        next.take(&mut self.chunks[c], keep);
        if next.is_empty() {
            next.insert(0, slot, version);
        }
        self.chunks.insert(c + 1, next);
        self.firsts.insert(c + 1, self.first_of(c + 1));
    }

    /// Makes `from..to` a hole since a version. Over what a snapshot needs, each block gets one of its own.
    pub fn insert_hole<P: Pages>(&mut self, pages: &P, from: Flat, to: Flat, version: Version) {
        self.versioned |= version > Version::FIRST;
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
            // A hole over a hole is one since then, whatever was between: that has slots.
            let is_seen = is_needed(pages, from, since, version);
            put(start.max(from), end.min(to), if is_seen { since } else { version });
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
        let slots = self.chunks.iter().flat_map(Chunk::slots).chain(self.older.values());
        for stored in slots.filter_map(Slot::stored) {
            found(stored.location, 1);
        }
    }

    /// Makes slots holes where snapshots need what they had, and takes the others away: the range of the hole says all
    /// there is to say then.
    fn cover_all<P: Pages>(&mut self, pages: &P, from: Flat, to: Flat, version: Version) {
        if self.chunks.is_empty() {
            return;
        }
        let first = self.chunk_of(from);
        let mut c = first;
        while c < self.chunks.len() && self.firsts[c] < to {
            let (chunk, older) = (&mut self.chunks[c], &mut self.older);
            let range = chunk.before(from)..chunk.before(to);
            let before = chunk.len();
            chunk.keep(range, |chunk, n| cover(older, pages, chunk, n, version));
            self.entries -= before - chunk.len();
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
                self.firsts[c] = self.first_of(c);
            }
        }
        let mut c = from.max(1);
        while c < self.chunks.len() && c <= from + 1 {
            if self.chunks[c - 1].len() + self.chunks[c].len() <= CHUNK {
                let mut taken = self.chunks.remove(c);
                self.firsts.remove(c);
                self.chunks[c - 1].take(&mut taken, 0);
                self.spare.push(taken);
            } else {
                c += 1;
            }
        }
    }

    /// The first slot at or after `at`, where there is one. It is looked for at `likely` first.
    fn seek(&self, at: Flat, likely: Cursor) -> Cursor {
        let here = self.slot(likely).is_some_and(|(slot, _)| slot.at() >= at);
        if here && self.before(likely).is_none_or(|slot| slot.at() < at) {
            return likely;
        }
        let chunk = self.chunk_of(at);
        let slot = self.chunks.get(chunk).map_or(0, |chunk| chunk.before(at));
        self.whole(Cursor { chunk, slot, ..likely })
    }

    /// The same place, if it is not behind the last slot of a chunk that is followed by another.
    fn whole(&self, place: Cursor) -> Cursor {
        match self.chunks.get(place.chunk) {
            Some(chunk) if place.slot == chunk.len() => {
                Cursor { chunk: place.chunk + 1, slot: 0, ..place }
            }
            _ => place,
        }
    }

    fn slot(&self, place: Cursor) -> Option<(&Slot, Version)> {
        self.chunks.get(place.chunk)?.get(place.slot)
    }

    fn before(&self, place: Cursor) -> Option<&Slot> {
        match place.slot.checked_sub(1) {
            Some(slot) => self.slot(Cursor { slot, ..place }).map(|(slot, _)| slot),
            None => self.chunks.get(place.chunk.checked_sub(1)?)?.last(),
        }
    }

    /// What it knows of `at`, the newest that is not newer than `as_of`.
    pub fn get(&self, at: Flat, as_of: Version) -> Known {
        self.known(at, self.slot(self.seek(at, Cursor::default())), as_of)
    }

    /// What it knows of `at`, where the first slot there or later is `slot`.
    fn known(&self, at: Flat, slot: Option<(&Slot, Version)>, as_of: Version) -> Known {
        let mut next = END;
        if let Some((slot, since)) = slot {
            next = slot.at();
            if next == at {
                return if since <= as_of { known(slot, since) } else { self.older(at, as_of) };
            }
        }
        if self.holes.is_empty() {
            return Known::Nothing(next);
        }
        if let Some((end, since)) = self.hole_at(at) {
            let end = end.min(next);
            return if since <= as_of { Known::Hole(end, since) } else { Known::Nothing(end) };
        }
        if let Some((&start, _)) = self.holes.range(at..).next() {
            next = next.min(start);
        }
        Known::Nothing(next)
    }

    /// What there is of a block that has a newer slot.
    fn older(&self, at: Flat, as_of: Version) -> Known {
        let older = self.older.range((at, Reverse(as_of))..).next();
        let older = older.filter(|((block, _), _)| *block == at);
        let hole = self.hole_at(at).filter(|(_, since)| *since <= as_of);
        match (older, hole) {
            (Some(((_, Reverse(version)), _)), Some((_, since))) if since > *version => {
                Known::Hole(at + 1, since)
            }
            (Some(((_, Reverse(version)), slot)), _) => known(slot, *version),
            (None, Some((_, since))) => Known::Hole(at + 1, since),
            (None, None) => Known::Nothing(at + 1),
        }
    }

    /// All versions of a block, the newest first.
    pub fn layers(&self, at: Flat, out: &mut Vec<Layer>, spare: &mut Spare) {
        spare.empty(out);
        let slot = self.slot(self.seek(at, Cursor::default()));
        let slot = slot.filter(|(slot, _)| slot.at() == at);
        out.extend(slot.map(|(slot, since)| slot.layer(since, spare)));
        let older = self.older.range((at, Reverse(Version::LAST))..=(at, Reverse(Version::FIRST)));
        out.extend(older.map(|((_, Reverse(since)), slot)| slot.layer(*since, spare)));
        if let Some((_, version)) = self.hole_at(at)
            && out.iter().all(|layer| layer.version != version)
        {
            let n = out.partition_point(|layer| layer.version > version);
            out.insert(n, Layer { source: 0, version, place: Place::Hole, crcs: Vec::new() });
        }
    }

    /// Whether a block with a slot has something else beside.
    fn is_stacked(&self, at: Flat) -> bool {
        if self.older.is_empty() && self.holes.is_empty() {
            return false;
        }
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
        *place = Cursor { is_stacked: false, ..self.seek(at, *place) };
        loop {
            let slot = self.slot(*place);
            if slot.is_some_and(|(slot, _)| slot.at() == at) {
                return self.extent(place, checksums, most);
            }
            match self.known(at, slot, Version::LAST) {
                Known::Data(..) | Known::Lost(_) => return None,
                Known::Hole(end, since) => {
                    let blocks = super::flat::distance(at, end.min(end_of_view(at)));
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
            let Some((slot, version)) = self.slot(*place) else { break };
            let next = Item { start: slot.at(), blocks: 1, place: slot.place() };
            let is_stacked = || self.versioned && self.is_stacked(next.start);
            match &mut item {
                None => {
                    item = Some((next, version));
                    place.is_stacked = is_stacked();
                }
                Some((i, since)) if i.continued_by(&next) && *since == version && !is_stacked() => {
                    i.blocks += 1;
                }
                Some(_) => break,
            }
            if next.place.has_contents() {
                checksums.push(slot.crc);
            }
            *place = self.whole(Cursor { slot: place.slot + 1, ..*place });
            if place.is_stacked {
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
        (self.entries, self.versioned) = (0, false);
    }
}

/// Older versions of blocks.
type Older = BTreeMap<(Flat, Reverse<Version>), Slot>;

/// Makes a slot a hole since a version; tells whether it is to stay.
fn cover<P: Pages>(
    older: &mut Older,
    pages: &P,
    chunk: &mut Chunk,
    n: usize,
    version: Version,
) -> bool {
    let Some((&slot, since)) = chunk.get(n) else { return false };
    let (at, version) = (slot.at(), in_order(since, version));
    if is_needed(pages, at, since, version) {
        // A hole over a hole is one since then.
        if !slot.is_hole() {
            older.insert((at, Reverse(since)), slot);
            chunk.replace(n, slot.hole(), version);
        }
        return true;
    }
    give_way(pages, &slot, None);
    chunk.replace(n, slot.hole(), version);
    let before = older.range((at, Reverse(version))..).next();
    before.is_some_and(|((block, _), _)| *block == at)
}

/// Changes of a block come in the order of their versions, also where they are learnt again.
fn in_order(since: Version, version: Version) -> Version {
    debug_assert!(since <= version, "versions of a block are learnt in their order");
    since.max(version)
}

fn known(slot: &Slot, since: Version) -> Known {
    match slot.stored() {
        Some(stored) => Known::Data(stored, since),
        None if slot.is_hole() => Known::Hole(slot.at() + 1, since),
        None => Known::Lost(since),
    }
}
