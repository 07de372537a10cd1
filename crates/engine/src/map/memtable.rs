//! What the map learnt since its last flush: sorted chunks of fixed-size slots, each a block that has contents or has
//! lost them, and ranges of holes.

use super::flat::{END, Flat, Item, Place, end_of_view, flat, unflat};
use crate::address::{BLOCK_BITS, Encoding, Location, Method, Stored};
use std::collections::BTreeMap;
use stdx::num::{low8, low32};

/// Slots of a chunk: an insert moves 1.5 KiB on average, a search looks at 7 of them.
const CHUNK: usize = 128;

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: usize = CHUNK * size_of::<Slot>();

/// Entries a chunk has at least after it was split.
pub(super) const CHUNK_ENTRIES: usize = CHUNK / 2;

/// Entries a range of holes counts for: a node of the ordered map, and the data it may cut in two.
const HOLE_ENTRIES: usize = 2;

#[derive(Clone, Copy)]
struct Slot {
    /// 40 bits; above them the number of the key it is encrypted under.
    block: u64,
    /// A location; above it the grains, less 1, and the method. Or [`LOST`].
    place: u64,
    view: u32,
    crc: u32,
}

const _: () = assert!(size_of::<Slot>() == 24);
const _: () = assert!(BLOCK_BITS + Encoding::KEY_BITS == u64::BITS);

/// Where a slot's place has the length, in 3 bits, and the method, in 2.
const LENGTH_AT: u32 = Location::BITS;
const METHOD_AT: u32 = LENGTH_AT + 3;
const _: () = assert!(METHOD_AT + 2 == u64::BITS);

/// The place of a lost block: no method has that number.
const LOST: u64 = u64::MAX;

impl Slot {
    fn new(at: Flat, stored: Option<Stored>) -> Self {
        let key = unflat(at);
        let (mut slot, view) = (Self { block: key.block, place: LOST, view: 0, crc: 0 }, key.view);
        slot.view = view.get();
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

    /// `None` where the block is lost.
    fn stored(&self) -> Option<Stored> {
        if self.place == LOST {
            return None;
        }
        let location = Location::from_bits(self.place & ((1 << LENGTH_AT) - 1))?;
        let grains = low8(self.place >> LENGTH_AT & 7) + 1;
        let method = Method::of_number(low8(self.place >> METHOD_AT))?;
        let encoding = Encoding::new(grains, method, low32(self.block >> BLOCK_BITS))?;
        Some(Stored { location, encoding, crc: self.crc })
    }

    fn place(&self) -> Place {
        self.stored().map_or(Place::Lost, |stored| Place::At(stored.location, stored.encoding))
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
    Data(Stored),
    Lost,
    /// A hole, up to this position at least.
    Hole(Flat),
    /// Nothing, up to this position; past every key when nothing follows.
    Nothing(Flat),
}

/// The newest level. Blocks lie over holes: one may be inside a hole's range.
#[derive(Default)]
pub(super) struct Memtable {
    firsts: Vec<Flat>,
    chunks: Vec<Vec<Slot>>,
    entries: usize,
    /// Beginning and end of ranges that do not touch.
    holes: BTreeMap<Flat, Flat>,
    spare: Vec<Vec<Slot>>,
}

impl Memtable {
    pub fn is_empty(&self) -> bool {
        self.entries == 0 && self.holes.is_empty()
    }

    /// Entries and ranges of holes.
    pub fn used(&self) -> usize {
        self.entries + self.holes.len() * HOLE_ENTRIES
    }

    /// Chunks it counts for, against its limit.
    pub fn chunks(&self) -> usize {
        self.chunks.len() + (self.holes.len() * HOLE_ENTRIES).div_ceil(CHUNK_ENTRIES)
    }

    /// Bytes it has allocated.
    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.len() + self.spare.len();
        let holes = self.holes.len() * HOLE_ENTRIES * 2 * size_of::<Slot>();
        chunks * CHUNK * size_of::<Slot>() + self.firsts.capacity() * size_of::<Flat>() + holes
    }

    /// The chunk that holds `at` or would.
    fn chunk_of(&self, at: Flat) -> usize {
        self.firsts.partition_point(|&first| first <= at).saturating_sub(1)
    }

    /// Puts a block in, its contents or that they are lost (`None`); tells which it had.
    pub fn insert(&mut self, at: Flat, stored: Option<Stored>) -> Option<Stored> {
        let slot = Slot::new(at, stored);
        if self.chunks.is_empty() {
            let mut chunk = self.fresh();
            chunk.push(slot);
            (self.firsts, self.chunks) = (vec![at], vec![chunk]);
            self.entries = 1;
            return None;
        }
        let mut c = self.chunk_of(at);
        let mut position = self.chunks[c].partition_point(|s| s.at() < at);
        if let Some(old) = self.chunks[c].get_mut(position)
            && old.at() == at
        {
            let before = old.stored();
            *old = slot;
            return before;
        }
        if self.chunks[c].len() == CHUNK {
            let keep = if position == CHUNK { CHUNK } else { CHUNK / 2 };
            self.split(c, keep, slot);
            if keep == CHUNK {
                self.entries += 1;
                return None;
            }
            if position > keep {
                c += 1;
                position -= keep;
            }
        }
        self.chunks[c].insert(position, slot);
        self.firsts[c] = self.chunks[c][0].at();
        self.entries += 1;
        None
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

    /// Makes `from..to` a hole; `dropped` hears of the contents that lay there.
    pub fn insert_hole(&mut self, from: Flat, to: Flat, mut dropped: impl FnMut(Stored)) {
        self.remove(from, to, &mut dropped);
        let (mut low, mut high) = (from, to);
        if let Some((&start, &end)) = self.holes.range(..=from).next_back()
            && end >= from
        {
            (low, high) = (start, high.max(end));
        }
        while let Some((&start, &end)) = self.holes.range(low..=high).next() {
            high = high.max(end);
            self.holes.remove(&start);
        }
        self.holes.insert(low, high);
    }

    /// Calls `found` with where every block lies that has contents.
    pub fn each_place(&self, mut found: impl FnMut(Location, u32)) {
        for stored in self.chunks.iter().flatten().filter_map(Slot::stored) {
            found(stored.location, 1);
        }
    }

    fn remove(&mut self, from: Flat, to: Flat, dropped: &mut impl FnMut(Stored)) {
        if self.chunks.is_empty() {
            return;
        }
        let first = self.chunk_of(from);
        let mut c = first;
        while c < self.chunks.len() && self.firsts[c] < to {
            let chunk = &mut self.chunks[c];
            let low = chunk.partition_point(|s| s.at() < from);
            let high = chunk.partition_point(|s| s.at() < to);
            self.entries -= high - low;
            for slot in chunk.drain(low..high) {
                if let Some(stored) = slot.stored() {
                    dropped(stored);
                }
            }
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

    /// What it knows of `at`.
    pub fn get(&self, at: Flat) -> Known {
        self.known(at, self.slot(self.seek(at, Cursor::default())))
    }

    /// What it knows of `at`, where the first slot there or later is `slot`.
    fn known(&self, at: Flat, slot: Option<&Slot>) -> Known {
        let mut next = END;
        if let Some(slot) = slot {
            next = slot.at();
            if next == at {
                return slot.stored().map_or(Known::Lost, Known::Data);
            }
        }
        if self.holes.is_empty() {
            return Known::Nothing(next);
        }
        if let Some((_, &end)) = self.holes.range(..=at).next_back()
            && end > at
        {
            return Known::Hole(end.min(next));
        }
        if let Some((&start, _)) = self.holes.range(at..).next() {
            next = next.min(start);
        }
        Known::Nothing(next)
    }

    /// The first item at or after `at`: neighbours that continue each other are one, up to as many
    /// blocks as `checksums` has room for; it gets theirs. Whoever goes through all has `place` for the next call.
    pub fn next(
        &self,
        at: Flat,
        place: &mut Cursor,
        checksums: &mut Vec<u32>,
        most: usize,
    ) -> Option<Item> {
        checksums.clear();
        let mut at = at;
        *place = self.seek(at, *place);
        loop {
            match self.known(at, self.slot(*place)) {
                Known::Data(_) | Known::Lost => return self.extent(place, checksums, most),
                Known::Hole(end) => {
                    let blocks = super::flat::distance(at, end.min(end_of_view(at)));
                    return Some(Item { start: at, blocks, place: Place::Hole });
                }
                Known::Nothing(END) => return None,
                Known::Nothing(next) => at = next,
            }
        }
    }

    fn extent(&self, place: &mut Cursor, checksums: &mut Vec<u32>, most: usize) -> Option<Item> {
        let mut item: Option<Item> = None;
        while checksums.len() < most {
            let Some(slot) = self.slot(*place) else { break };
            let next = Item { start: slot.at(), blocks: 1, place: slot.place() };
            match &mut item {
                None => item = Some(next),
                Some(i) if i.continued_by(&next) => i.blocks += 1,
                Some(_) => break,
            }
            if next.place.has_contents() {
                checksums.push(slot.crc);
            }
            *place = self.whole(Cursor { slot: place.slot + 1, ..*place });
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
        self.entries = 0;
    }
}
