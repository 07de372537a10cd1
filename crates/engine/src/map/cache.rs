//! Pages kept in memory: a fixed number of frames, found by location, given up by CLOCK.

use crate::address::{BLOCK, Entry, Location};
use stdx::num::{low32, u32_of, usize32};

/// Turns of the hand an index page stays without being asked for. Each stands for hundreds of
/// leaves, so nearly every lookup passes by one.
const INDEX_TURNS: u8 = 7;
const LEAF_TURNS: u8 = 1;

/// How dear a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    Leaf,
    Index,
}

impl Worth {
    const fn turns(self) -> u8 {
        match self {
            Self::Leaf => LEAF_TURNS,
            Self::Index => INDEX_TURNS,
        }
    }
}

/// Frames looked at for one that a page may have that nobody asked for.
const COLD_FRAMES: usize = 8;

const FREE: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Frame {
    location: u64,
    crc: u32,
    turns: u8,
}

/// No allocation after it was made. A page is taken for what was asked only if its checksum is the
/// reference's too, since places are used again. Locations are found by linear probing in a table at most half
/// full; a removal moves its successors back, so that no tombstones gather.
pub(super) struct Cache {
    frames: Vec<Frame>,
    pages: Box<[[u8; BLOCK]]>,
    /// Frame number plus 1, or 0.
    table: Vec<u32>,
    used: usize,
    hand: usize,
    /// Where a frame was sought last for a page that nobody asked for.
    cold: usize,
    pub hits: u64,
    pub misses: u64,
}

impl Cache {
    /// Frames that fit in `bytes` with their share of the table; at least one.
    pub fn new(bytes: usize) -> Self {
        let frames = (bytes / (BLOCK + size_of::<Frame>() + 16)).max(1);
        Self {
            frames: vec![Frame { location: FREE, crc: 0, turns: 0 }; frames],
            pages: vec![[0; BLOCK]; frames].into_boxed_slice(),
            table: vec![0; (frames * 2).next_power_of_two()],
            used: 0,
            hand: 0,
            cold: 0,
            hits: 0,
            misses: 0,
        }
    }

    pub fn bytes(&self) -> usize {
        self.frames.len() * (BLOCK + size_of::<Frame>()) + self.table.len() * 4
    }

    fn home(&self, location: u64) -> usize {
        let hash = location.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize32(low32(hash >> 32)) & (self.table.len() - 1)
    }

    /// The table's place of `location`: where it is, or the free one where it would go.
    fn probe(&self, location: u64) -> usize {
        let mut at = self.home(location);
        loop {
            match self.table[at] {
                0 => return at,
                n if self.frames[usize32(n) - 1].location == location => return at,
                _ => at = (at + 1) & (self.table.len() - 1),
            }
        }
    }

    pub fn get(&mut self, entry: Entry, worth: Worth) -> Option<&[u8; BLOCK]> {
        let found = usize32(self.table[self.probe(entry.location.to_bits())]).checked_sub(1);
        let Some(frame) = found.filter(|&f| self.frames[f].crc == entry.crc) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.frames[frame].turns = worth.turns();
        Some(&self.pages[frame])
    }

    /// Keeps a copy of the page.
    pub fn put(&mut self, entry: Entry, worth: Worth, page: &[u8; BLOCK]) {
        let frame = self.frame_of(entry.location).unwrap_or_else(|| self.take_frame());
        self.fill(frame, entry, worth, page);
    }

    /// Keeps a copy of a page that was written, where none that somebody asked for has to go for it.
    pub fn put_written(&mut self, entry: Entry, worth: Worth, page: &[u8; BLOCK]) {
        if let Some(frame) = self.frame_of(entry.location).or_else(|| self.cold_frame()) {
            self.fill(frame, entry, worth, page);
        }
    }

    fn frame_of(&self, location: Location) -> Option<usize> {
        usize32(self.table[self.probe(location.to_bits())]).checked_sub(1)
    }

    fn fill(&mut self, frame: usize, entry: Entry, worth: Worth, page: &[u8; BLOCK]) {
        let bits = entry.location.to_bits();
        let at = self.probe(bits);
        self.table[at] = u32_of(frame + 1);
        // A leaf must be asked for again to stay: most are not.
        let turns = if worth == Worth::Index { INDEX_TURNS } else { 0 };
        self.frames[frame] = Frame { location: bits, crc: entry.crc, turns };
        self.pages[frame].copy_from_slice(page);
    }

    /// A frame nobody has: one never used, or the first the hand finds that nobody asked for.
    fn take_frame(&mut self) -> usize {
        if self.used < self.frames.len() {
            self.used += 1;
            return self.used - 1;
        }
        loop {
            let frame = self.hand;
            self.hand = (self.hand + 1) % self.frames.len();
            if self.frames[frame].turns > 0 && self.frames[frame].location != FREE {
                self.frames[frame].turns -= 1;
                continue;
            }
            self.unlink(frame);
            return frame;
        }
    }

    /// A frame nobody has, or of a page that nobody asks for, if one of the next few is. The others stay what they are.
    fn cold_frame(&mut self) -> Option<usize> {
        if self.used < self.frames.len() {
            self.used += 1;
            return Some(self.used - 1);
        }
        let frames = self.frames.len();
        let next = (0..COLD_FRAMES.min(frames)).map(|n| (self.cold + n) % frames);
        let is_cold = |&frame: &usize| self.frames[frame].turns == 0;
        let (last, found) = ((self.cold + COLD_FRAMES) % frames, next.clone().find(is_cold));
        self.cold = found.map_or(last, |frame| (frame + 1) % frames);
        let frame = found?;
        self.unlink(frame);
        Some(frame)
    }

    /// Forgets a page whose place may be given to something else.
    pub fn forget(&mut self, location: Location) {
        if let Some(frame) = usize32(self.table[self.probe(location.to_bits())]).checked_sub(1) {
            self.unlink(frame);
            self.frames[frame].turns = 0;
        }
    }

    fn unlink(&mut self, frame: usize) {
        let location = self.frames[frame].location;
        if location == FREE {
            return;
        }
        let mask = self.table.len() - 1;
        let mut hole = self.probe(location);
        self.table[hole] = 0;
        self.frames[frame].location = FREE;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Some(other) = usize32(self.table[at]).checked_sub(1) else { return };
            let home = self.home(self.frames[other].location);
            // The page at `at` may move back unless its home lies after the hole.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.table[hole] = self.table[at];
                self.table[at] = 0;
                hole = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::SegmentId;
    use std::collections::HashMap;
    use stdx::Prng;

    fn at(n: u64) -> Location {
        Location::new(SegmentId::new(low32(n / 97)), low32(n % 97))
    }

    fn entry(n: u64) -> Entry {
        Entry { location: at(n), crc: 9 }
    }

    #[test]
    fn what_it_gives_is_what_was_put_last() {
        let mut cache = Cache::new(40 * BLOCK);
        let mut random = Prng::new(5);
        let mut model: HashMap<u64, u8> = HashMap::new();
        let mut hits = 0;
        for _ in 0..20_000 {
            let n = random.below(90);
            match random.below(4) {
                0 => {
                    cache.forget(at(n));
                    model.remove(&n);
                }
                1 => {
                    let byte = stdx::num::low8(random.next_u64());
                    cache.put(entry(n), Worth::Leaf, &[byte; BLOCK]);
                    model.insert(n, byte);
                }
                _ => {
                    if let Some(page) = cache.get(entry(n), Worth::Leaf) {
                        assert_eq!(Some(&page[17]), model.get(&n), "page {n}");
                        hits += 1;
                    }
                }
            }
        }
        assert!(hits > 1000, "{hits}");
    }

    #[test]
    fn index_pages_outlive_leaves() {
        let mut cache = Cache::new(20 * BLOCK);
        cache.put(entry(1), Worth::Index, &[1; BLOCK]);
        for n in 2..80 {
            cache.put(entry(n), Worth::Leaf, &[2; BLOCK]);
        }
        assert!(cache.get(entry(1), Worth::Index).is_some());
        assert!(cache.get(entry(2), Worth::Leaf).is_none());
    }

    #[test]
    fn what_is_written_pushes_nothing_out_that_is_asked_for() {
        let mut cache = Cache::new(40 * BLOCK);
        let frames = u64::try_from(cache.frames.len()).unwrap();
        // All but four are asked for again.
        for n in 0..frames {
            cache.put(entry(n), Worth::Leaf, &[1; BLOCK]);
            assert!(n >= frames - 4 || cache.get(entry(n), Worth::Leaf).is_some());
        }
        for n in 1000..1400 {
            cache.put_written(entry(n), Worth::Leaf, &[2; BLOCK]);
        }
        let has = |cache: &mut Cache, n| cache.get(entry(n), Worth::Leaf).is_some();
        assert!((0..frames - 4).all(|n| has(&mut cache, n)));
        let written = (1000..1400).filter(|n| has(&mut cache, *n)).count();
        assert_eq!(written, 4);
        // And all of them are kept where there is room.
        let mut cache = Cache::new(40 * BLOCK);
        (0..frames).for_each(|n| cache.put_written(entry(n), Worth::Leaf, &[2; BLOCK]));
        assert!((0..frames).all(|n| has(&mut cache, n)));
    }

    #[test]
    fn its_memory_is_what_it_was_given() {
        let cache = Cache::new(1 << 20);
        assert!(cache.bytes() <= 1 << 20 && cache.bytes() > 900 << 10, "{}", cache.bytes());
    }
}
