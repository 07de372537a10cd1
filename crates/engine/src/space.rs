//! Who may hold how much: the pool's capacity, dealt out to its shards in portions, so that a write
//! asks nobody and a pool is full as a whole.

use std::sync::atomic::{AtomicI64, Ordering};

/// Blocks that no shard has leave to hold. Touched when a shard takes or gives back a portion.
#[derive(Debug)]
pub struct Space {
    free: AtomicI64,
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

fn signed(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX)
}

impl Space {
    /// Of a pool that may hold `capacity` blocks, which leaves [slack](Self::slack).
    #[must_use]
    pub fn new(capacity: u64, shards: u16) -> Self {
        let portion = (capacity / (PORTIONS * u64::from(shards))).max(PORTION_MIN);
        let slack = capacity / (SLACK - 1) / u64::from(shards);
        Self { free: AtomicI64::new(signed(capacity)), portion, slack }
    }

    /// How much of the room for `blocks` is capacity.
    #[must_use]
    pub const fn capacity_of(blocks: u64) -> u64 {
        blocks - blocks / SLACK
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
        assert_eq!(space.take(1), None);
        space.give_back(101);
        assert_eq!(space.take(1), Some(1));
    }
}
