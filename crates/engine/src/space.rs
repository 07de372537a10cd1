//! Who may hold how much: the pool's capacity, dealt out to its shards in portions, so that a write
//! asks nobody and a pool is full as a whole.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Blocks that no shard has leave to hold. Touched when a shard takes or gives back a portion.
#[derive(Debug)]
pub struct Space {
    free: AtomicI64,
    /// What all shards together may hold.
    capacity: AtomicU64,
    /// The most that was, since the pool was opened.
    most: AtomicU64,
    portion: u64,
    slack: u64,
}

/// Portions of one shard in the whole of a pool: what a shard has and does not use is a small share.
const PORTIONS: u64 = 64;

/// Of what segments have room for, one part in so many is no capacity: what is overwritten lies in two
/// places until that is found, and reclaim has little to do with segments that are nearly full.
const SLACK: u64 = 16;

/// Blocks of a portion at least.
const PORTION_MIN: u64 = 256;

/// Segments that are open (three), of metadata (three), or kept for reclaim and metadata (four) in
/// even the smallest pool.
const IN_USE_SEGMENTS: u64 = 10;

/// Segments that a shard beyond the first keeps from holding data: three that are open, those
/// reserved, and those a checkpoint needs.
const SEGMENTS_BESIDE: u64 = 10;

/// Segments that may hold data: the rest is for metadata, for what is open, and for reclaim to work
/// with. A sixteenth besides the few that are always in use: however what is dead is spread, some
/// segment has more than a stripe of it then.
fn data_segments(all: u64, shards: u16) -> u64 {
    let in_use = all / 16 + IN_USE_SEGMENTS;
    let beside = (all / 12).max(in_use + SEGMENTS_BESIDE * (u64::from(shards) - 1));
    all.saturating_sub(beside)
}

fn signed(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX)
}

impl Space {
    /// Of a pool that may hold `capacity` blocks, which leaves [slack](Self::slack).
    #[must_use]
    pub fn new(capacity: u64, shards: u16) -> Self {
        let portion = (capacity / (PORTIONS * u64::from(shards))).max(PORTION_MIN);
        let slack = capacity / (SLACK - 1) / u64::from(shards);
        let free = AtomicI64::new(signed(capacity));
        let (capacity, most) = (AtomicU64::new(capacity), AtomicU64::new(capacity));
        Self { free, capacity, most, portion, slack }
    }

    /// Blocks of capacity that so many segments give, each with room for so many blocks.
    #[must_use]
    pub fn capacity_of(segments: u64, segment_blocks: u64, shards: u16) -> u64 {
        let blocks = data_segments(segments, shards) * segment_blocks;
        blocks - blocks / SLACK
    }

    /// What all shards together may hold.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Acquire)
    }

    /// What they may hold from now on. They may hold more already: then none takes any more before so
    /// much came back.
    pub fn set_capacity(&self, blocks: u64) {
        let before = self.capacity.swap(blocks, Ordering::AcqRel);
        self.free.fetch_add(signed(blocks) - signed(before), Ordering::AcqRel);
        self.most.fetch_max(blocks, Ordering::AcqRel);
    }

    /// Whether it was more since the pool was opened: what is overdrawn may not be there at all.
    #[must_use]
    pub fn has_shrunk(&self) -> bool {
        self.capacity() < self.most.load(Ordering::Acquire)
    }

    /// Whether shards hold more, or have leave to, than there is room for.
    #[must_use]
    pub fn is_overdrawn(&self) -> bool {
        self.overdrawn() > 0
    }

    /// Blocks that a shard may hold beyond its share while it replaces what is there.
    #[must_use]
    pub const fn slack(&self) -> u64 {
        self.slack
    }

    /// Blocks dealt out at once.
    #[must_use]
    pub const fn portion(&self) -> u64 {
        self.portion
    }

    /// Takes a portion, or as much of it as there is, if that is `needed` at least.
    pub fn take(&self, needed: u64) -> Option<u64> {
        let wanted = signed(needed.max(self.portion));
        let take = |free: i64| {
            let got = wanted.min(free);
            (got > 0 && got >= signed(needed)).then_some(free - got)
        };
        let before = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        u64::try_from(wanted.min(before)).ok()
    }

    /// Takes so many, and no more; says how many there are where that is less.
    ///
    /// # Errors
    /// What is free.
    pub fn take_exactly(&self, blocks: u64) -> Result<(), u64> {
        let take = |free: i64| (free >= signed(blocks)).then(|| free - signed(blocks));
        let taken = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        match taken {
            Err(free) if blocks > 0 => Err(u64::try_from(free).unwrap_or(0)),
            _ => Ok(()),
        }
    }

    /// Blocks that were dealt out beyond what there is.
    #[must_use]
    pub fn overdrawn(&self) -> u64 {
        u64::try_from(-self.free.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Takes what is held already.
    pub fn claim(&self, blocks: u64) {
        self.free.fetch_sub(signed(blocks), Ordering::AcqRel);
    }

    pub fn give_back(&self, blocks: u64) {
        self.free.fetch_add(signed(blocks), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_can_be_taken_and_no_more() {
        let space = Space::new(10_000, 2);
        let mut taken = 0;
        while let Some(got) = space.take(100) {
            taken += got;
        }
        assert!((9_900..=10_000).contains(&taken), "{taken}");
        assert_eq!(space.take(10_001 - taken), None);
        space.give_back(taken);
        assert_eq!(space.take(10_000), Some(10_000));
        // More was held than there should be: nothing is to be had until that much came back.
        space.claim(500);
        space.give_back(400);
        assert!(space.is_overdrawn());
        assert_eq!(space.take(1), None);
        space.give_back(101);
        assert!(!space.is_overdrawn());
        assert_eq!(space.take(1), Some(1));
        // A drive is lost, and more is held than there is room for.
        space.set_capacity(9_000);
        space.give_back(1000);
        assert_eq!((space.take(1), space.capacity()), (None, 9_000));
        space.give_back(1);
        assert_eq!(space.take(1), Some(1));
    }
}
