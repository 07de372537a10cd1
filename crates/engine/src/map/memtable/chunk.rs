//! What a memtable keeps of blocks: slots of a fixed size, in order, in chunks that are cheap to insert into.

use crate::address::{BLOCK_BITS, Encoding, Location, Method, Stored, Version};
use crate::map::flat::{Flat, Place, flat, unflat};
use crate::map::stack::{Layer, Spare};
use std::ops::Range;
use stdx::num::{low8, low32};

/// Slots of a chunk: an insert moves 1.5 KiB on average, a search looks at 7 of them.
pub const CHUNK: usize = 128;

/// What a block has.
#[derive(Clone, Copy)]
pub struct Slot {
    /// 40 bits; above them the number of the key it is encrypted under.
    block: u64,
    /// A location; above it the grains, less 1, and the method. Or [`LOST`], or [`HOLE`].
    place: u64,
    view: u32,
    pub crc: u32,
}

const _: () = assert!(size_of::<Slot>() == 24);
const _: () = assert!(BLOCK_BITS + Encoding::KEY_BITS == u64::BITS);

/// Where a slot's place has the length, in 3 bits, and the method, in 2.
const LENGTH_AT: u32 = Location::BITS;
const METHOD_AT: u32 = LENGTH_AT + 3;
const _: () = assert!(METHOD_AT + 2 == u64::BITS);

/// The place of a lost block, and of one that is a hole over something older: no method has that number.
const LOST: u64 = u64::MAX;
const HOLE: u64 = u64::MAX - 1;

impl Slot {
    pub fn new(at: Flat, stored: Option<Stored>) -> Self {
        let key = unflat(at);
        let (block, view) = (key.block, key.view.get());
        let mut slot = Self { block, place: LOST, view, crc: 0 };
        if let Some(Stored { location, encoding, crc }) = stored {
            slot.block |= u64::from(encoding.key()) << BLOCK_BITS;
            slot.place = location.to_bits()
                | u64::from(encoding.grains() - 1) << LENGTH_AT
                | u64::from(encoding.method().number()) << METHOD_AT;
            slot.crc = crc;
        }
        slot
    }

    pub fn at(&self) -> Flat {
        flat(crate::address::View::new(self.view), self.block & ((1 << BLOCK_BITS) - 1))
    }

    /// A hole over this one.
    pub const fn hole(self) -> Self {
        Self { place: HOLE, crc: 0, ..self }
    }

    pub const fn is_hole(&self) -> bool {
        self.place == HOLE
    }

    /// `None` where the block is lost, or a hole.
    pub fn stored(&self) -> Option<Stored> {
        if self.place >= HOLE {
            return None;
        }
        let location = Location::from_bits(self.place & ((1 << LENGTH_AT) - 1))?;
        let grains = low8(self.place >> LENGTH_AT & 7) + 1;
        let method = Method::of_number(low8(self.place >> METHOD_AT))?;
        let encoding = Encoding::new(grains, method, low32(self.block >> BLOCK_BITS))?;
        Some(Stored { location, encoding, crc: self.crc })
    }

    pub fn place(&self) -> Place {
        match self.stored() {
            Some(stored) => Place::At(stored.location, stored.encoding),
            None if self.is_hole() => Place::Hole,
            None => Place::Lost,
        }
    }

    /// As it is since a version.
    pub fn layer(&self, version: Version, spare: &mut Spare) -> Layer {
        let (place, mut crcs) = (self.place(), spare.take());
        if place.has_contents() {
            crcs.push(self.crc);
        }
        Layer { source: 0, version, place, crcs }
    }
}

/// Slots, and since which version each has what it says.
pub struct Chunk {
    slots: Vec<Slot>,
    /// None as long as all have it since the first.
    versions: Vec<Version>,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { slots: Vec::with_capacity(CHUNK), versions: Vec::new() }
    }
}

impl Chunk {
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether it has slots, no more than there may be, and a version of each, or none of any.
    pub const fn is_whole(&self) -> bool {
        let (slots, versions) = (self.slots.len(), self.versions.len());
        slots > 0 && slots <= CHUNK && (versions == 0 || versions == slots)
    }

    pub fn get(&self, n: usize) -> Option<(&Slot, Version)> {
        Some((self.slots.get(n)?, self.version(n)))
    }

    pub fn last(&self) -> Option<&Slot> {
        self.slots.last()
    }

    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    fn version(&self, n: usize) -> Version {
        self.versions.get(n).copied().unwrap_or(Version::FIRST)
    }

    /// How many slots are before a position.
    pub fn before(&self, at: Flat) -> usize {
        self.slots.partition_point(|slot| slot.at() < at)
    }

    fn have_versions(&mut self) {
        if self.versions.is_empty() {
            self.versions.reserve(CHUNK);
            self.versions.resize(self.slots.len(), Version::FIRST);
        }
    }

    pub fn insert(&mut self, n: usize, slot: Slot, version: Version) {
        if version > Version::FIRST {
            self.have_versions();
        }
        if version > Version::FIRST || !self.versions.is_empty() {
            self.versions.insert(n, version);
        }
        self.slots.insert(n, slot);
    }

    /// Puts a slot in the place of another.
    pub fn replace(&mut self, n: usize, slot: Slot, version: Version) {
        if version > Version::FIRST {
            self.have_versions();
        }
        if let Some(place) = self.versions.get_mut(n) {
            *place = version;
        }
        self.slots[n] = slot;
    }

    /// Leaves out some of the slots of a range.
    pub fn keep(&mut self, range: Range<usize>, mut keeps: impl FnMut(&mut Self, usize) -> bool) {
        let mut kept = range.start;
        for n in range.clone() {
            if keeps(self, n) {
                self.slots.swap(kept, n);
                if !self.versions.is_empty() {
                    self.versions.swap(kept, n);
                }
                kept += 1;
            }
        }
        self.slots.drain(kept..range.end);
        if !self.versions.is_empty() {
            self.versions.drain(kept..range.end);
        }
    }

    /// Takes the slots of another from `from` on behind its own.
    pub fn take(&mut self, other: &mut Self, from: usize) {
        if !self.versions.is_empty() || !other.versions.is_empty() {
            self.have_versions();
            other.have_versions();
            self.versions.extend(other.versions.drain(from..));
        }
        self.slots.extend(other.slots.drain(from..));
    }

    pub fn clear(&mut self) {
        self.slots.clear();
        // Most memtables have none: their room is not kept.
        self.versions = Vec::new();
    }
}
