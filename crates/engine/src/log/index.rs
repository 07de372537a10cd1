//! What the log holds: for each block the newest data, and the stretches of newer holes and references. All memory
//! is taken once: it follows from the ring's length.

use super::limits::{ALIGN, STRETCHES_MAX};
use crate::address::{BLOCK, Key, View};
use stdx::num::{low32, u64_of, usize64};
use zerocopy::IntoBytes;

/// Blocks with adjacent numbers share a cache line of the table.
const GROUP: u64 = 4;

/// An entry of the table: block number + 1 (0 when empty); view and position in lines, 32 bits each.
type Slot = [u64; 2];

/// Block to position: open addressing with linear probing, never more than half full, because each
/// entry has 4 KiB of the ring to itself.
pub(super) struct Blocks {
    slots: Box<[Slot]>,
    /// Checksums by the page of the ring a block's data begins in: no two blocks begin in the same.
    crcs: Box<[u32]>,
    ring_bytes: u64,
    salt: u64,
    len: usize,
    listings: Vec<Listing>,
}

/// How far somebody is who goes through the slots.
struct Listing {
    number: u64,
    /// The first slot that was not looked at yet.
    next: usize,
    /// What has moved to one that was.
    moved: Vec<Key>,
}

const fn word(view: View, position: u64) -> u64 {
    (view.get() as u64) << 32 | low32(position / ALIGN) as u64
}

impl Blocks {
    /// `salt` keeps hosts from choosing blocks that collide.
    pub fn new(ring_bytes: u64, salt: u64) -> Self {
        let most = usize64(ring_bytes.div_ceil(u64_of(BLOCK)));
        let slots = (2 * most).next_power_of_two().max(usize64(GROUP));
        Self {
            slots: vec![[0; 2]; slots].into_boxed_slice(),
            crcs: vec![0; most].into_boxed_slice(),
            ring_bytes,
            salt,
            len: 0,
            listings: Vec::new(),
        }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// Begins to go through all blocks, until it is [ended](Self::end_listing).
    pub fn begin_listing(&mut self) -> u64 {
        let number = self.listings.last().map_or(0, |last| last.number + 1);
        self.listings.push(Listing { number, next: 0, moved: Vec::new() });
        number
    }

    pub fn end_listing(&mut self, number: u64) {
        self.listings.retain(|listing| listing.number != number);
    }

    /// Adds the blocks in so many slots more; false behind the last. Whatever is there from its beginning to its end is
    /// listed, wherever it moves meanwhile, though some of it twice.
    pub fn list(&mut self, number: u64, slots: usize, out: &mut Vec<Key>) -> bool {
        let Some(listing) = self.listings.iter_mut().find(|listing| listing.number == number)
        else {
            return false;
        };
        out.append(&mut listing.moved);
        let end = self.slots.len().min(listing.next + slots);
        let some = &self.slots[listing.next..end];
        out.extend(some.iter().filter(|slot| slot[0] != 0).map(key_of));
        listing.next = end;
        !some.is_empty()
    }

    /// A block is moved from one slot to another.
    fn note_move(&mut self, from: usize, to: usize) {
        let key = key_of(&self.slots[from]);
        let passed = |listing: &&mut Listing| (to + 1..=from).contains(&listing.next);
        self.listings.iter_mut().filter(passed).for_each(|listing| listing.moved.push(key));
    }

    fn home(&self, key: Key) -> usize {
        let a = u128::from((key.block / GROUP) ^ self.salt);
        let b = u128::from((u64::from(key.view.get()) << 32) ^ self.salt.rotate_left(32) | 1);
        let wide = a * b;
        let mixed = low64(wide >> 64) ^ low64(wide);
        let group = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
        usize64(group * GROUP + key.block % GROUP) & (self.slots.len() - 1)
    }

    /// The key's slot, or the empty one where it would be.
    fn find(&self, key: Key) -> (usize, bool) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        loop {
            let slot = self.slots[at];
            if slot[0] == 0 {
                return (at, false);
            }
            if slot[0] == key.block + 1 && slot[1] >> 32 == u64::from(key.view.get()) {
                return (at, true);
            }
            at = (at + 1) & mask;
        }
    }

    /// Has the processor fetch what looking up these blocks will touch.
    pub fn prefetch(&self, key: Key, blocks: u64) {
        let mut block = key.block;
        while block < key.block + blocks {
            let home = self.home(Key::new(key.view, block));
            media::memory::prefetch(self.slots[home].as_bytes());
            block = (block / GROUP + 1) * GROUP;
        }
    }

    /// Makes `position` the block's newest data.
    pub fn insert(&mut self, key: Key, position: u64, crc: u32) {
        let (at, found) = self.find(key);
        if !found {
            self.len += 1;
            assert!(2 * self.len <= self.slots.len(), "more blocks than the ring can hold");
        }
        self.slots[at] = [key.block + 1, word(key.view, position)];
        self.crcs[usize64(position % self.ring_bytes) / BLOCK] = crc;
    }

    /// The low 32 bits of the position in lines.
    pub fn get(&self, key: Key) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let (at, found) = self.find(key);
        found.then(|| low32(self.slots[at][1]))
    }

    /// The checksum of the data at a position given out by [`get`](Self::get).
    pub fn crc(&self, position: u64) -> u32 {
        self.crcs[usize64(position % self.ring_bytes) / BLOCK]
    }

    /// Forgets the block if its newest data is at `position`.
    pub fn remove(&mut self, key: Key, position: u64) {
        let (at, found) = self.find(key);
        if found && self.slots[at][1] == word(key.view, position) {
            self.take_out(at);
        }
    }

    /// Empties a slot, and moves back what had to go past it.
    fn take_out(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot[0] == 0 {
                break;
            }
            let home = self.home(key_of(&slot));
            // It may move when its home is not between the hole and where it is.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.note_move(at, hole);
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = [0; 2];
        self.len -= 1;
    }
}

const fn key_of(slot: &Slot) -> Key {
    Key::new(View::new(low32(slot[1] >> 32)), slot[0] - 1)
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
const fn low64(wide: u128) -> u64 {
    wide as u64
}

/// What the blocks of a stretch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StretchOf {
    Holes,
    /// References to contents elsewhere, by a record whose first block this is.
    References {
        from: u64,
    },
    /// Lost with a damaged record.
    Lost,
}

/// A stretch of blocks of one view that are all the same without having contents in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub view: View,
    pub first: u64,
    /// One past the last block.
    pub end: u64,
    /// Of the record that made it.
    pub position: u64,
    pub of: StretchOf,
}

/// The newest stretches: sorted, without overlaps.
pub(super) struct Stretches {
    list: Vec<Stretch>,
}

impl Stretches {
    pub fn new() -> Self {
        Self { list: Vec::with_capacity(STRETCHES_MAX) }
    }

    /// Whether `more` further ones are sure to find room: each may split one that is there.
    pub const fn has_room(&self, more: usize) -> bool {
        self.list.len() + 2 * more <= STRETCHES_MAX
    }

    /// The first that ends after a block.
    fn after(&self, view: View, block: u64) -> usize {
        self.list.partition_point(|h| (h.view, h.end) <= (view, block))
    }

    /// The first at or after a block, within its view.
    pub fn next(&self, view: View, block: u64) -> Option<&Stretch> {
        self.list.get(self.after(view, block)).filter(|h| h.view == view)
    }

    /// Those that end after a block, in order, whatever their view.
    pub fn from(&self, key: Key) -> impl Iterator<Item = &Stretch> {
        self.list[self.after(key.view, key.block)..].iter()
    }

    /// Adds one newer than all there are.
    pub fn insert(&mut self, hole: Stretch) {
        let begin = self.after(hole.view, hole.first);
        let overlapping = self.list[begin..]
            .iter()
            .take_while(|h| h.view == hole.view && h.first < hole.end)
            .count();
        let old = &self.list[begin..begin + overlapping];
        let before =
            old.first().filter(|h| h.first < hole.first).map(|h| Stretch { end: hole.first, ..*h });
        let after =
            old.last().filter(|h| h.end > hole.end).map(|h| Stretch { first: hole.end, ..*h });
        assert!(hole.first < hole.end, "a stretch has blocks");
        let new = before.into_iter().chain([hole]).chain(after);
        self.list.splice(begin..begin + overlapping, new);
    }

    /// Forgets those of records before `position`.
    pub fn trim(&mut self, position: u64) {
        self.list.retain(|h| h.position >= position);
    }

    pub const fn len(&self) -> usize {
        self.list.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};

    fn key(view: u32, block: u64) -> Key {
        Key::new(View::new(view), block)
    }

    proptest! {
        #[test]
        fn blocks_behave_as_a_map(
            ops in proptest::collection::vec((0u32..3, 0u64..40, any::<bool>()), 1..300),
            salt: u64,
        ) {
            // Room for 64 blocks: the table has 128 slots, and chains run into each other.
            let ring_bytes = 64 * u64_of(BLOCK);
            let mut blocks = Blocks::new(ring_bytes, salt);
            let mut model: HashMap<Key, u64> = HashMap::new();
            for (n, (view, block, remove)) in ops.into_iter().enumerate() {
                let (key, position) = (key(view, block), u64_of(n * BLOCK) + ALIGN);
                if remove || model.len() == 64 {
                    // Only an entry that still points there goes.
                    blocks.remove(key, position);
                    if let Some(old) = model.remove(&key) {
                        blocks.remove(key, old);
                    }
                } else {
                    blocks.insert(key, position, low32(position));
                    model.insert(key, position);
                }
                prop_assert_eq!(blocks.len(), model.len());
                for (key, position) in &model {
                    prop_assert_eq!(blocks.get(*key), Some(low32(position / ALIGN)));
                }
            }
        }

        /// A large log that was trimmed without pause never gave a whole listing, for each removal may move others to slots
        /// that were looked at.
        #[test]
        fn what_stays_is_listed_whatever_goes_meanwhile(
            ops in proptest::collection::vec((0u64..60, any::<bool>()), 1..300),
            salt: u64,
            step in 1usize..9,
        ) {
            let mut blocks = Blocks::new(64 * u64_of(BLOCK), salt);
            let position = |block: u64| (block + 1) * u64_of(BLOCK);
            let mut there: BTreeMap<Key, u64> = (0..60).map(|at| (key(1, at), position(at))).collect();
            for (key, position) in &there {
                blocks.insert(*key, *position, 0);
            }
            let (mut stays, mut listed) = (there.clone(), Vec::new());
            let mut listing = blocks.begin_listing();
            let mut ops = ops.into_iter();
            loop {
                let is_over = !blocks.list(listing, step, &mut listed);
                if is_over {
                    for key in stays.keys() {
                        prop_assert!(listed.contains(key), "{key:?} is missing");
                    }
                    blocks.end_listing(listing);
                    if ops.len() == 0 {
                        break;
                    }
                    (stays, listed) = (there.clone(), Vec::new());
                    listing = blocks.begin_listing();
                }
                for (block, goes) in ops.by_ref().take(2) {
                    let (key, position) = (key(1, block), position(block));
                    if goes {
                        blocks.remove(key, position);
                        there.remove(&key);
                        stays.remove(&key);
                    } else {
                        blocks.insert(key, position, 0);
                        there.insert(key, position);
                    }
                }
            }
            prop_assert!(blocks.listings.is_empty());
        }

        #[test]
        fn holes_behave_as_a_note_on_each_block(
            ops in proptest::collection::vec((0u32..2, 0u64..60, 1u64..20, 0u8..8), 1..100),
        ) {
            let mut holes = Stretches::new();
            let mut model: BTreeMap<(u32, u64), u64> = BTreeMap::new();
            for (n, (view, first, count, trim)) in (1u64..).zip(ops) {
                let (end, position) = (first + count, n * ALIGN);
                let view_ = View::new(view);
                let of = StretchOf::Holes;
                holes.insert(Stretch { view: view_, first, end, position, of });
                model.extend((first..end).map(|block| ((view, block), position)));
                if trim == 0 {
                    let from = position / 2;
                    holes.trim(from);
                    model.retain(|_, position| *position >= from);
                }
                for (view, block) in (0..2).flat_map(|view| (0..80).map(move |b| (view, b))) {
                    let next = holes.next(View::new(view), block);
                    let covering = next.filter(|h| h.first <= block).map(|h| h.position);
                    prop_assert_eq!(covering, model.get(&(view, block)).copied());
                }
            }
        }
    }
}
