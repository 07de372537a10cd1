//! How much of pools' rings hosts reach by RDMA: that memory is locked for them, and for some time after a window's end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// Windows whose rings are reached at once: the one that stands, and the one before it, whose host reads what became of its
/// last write. Of each volume, and of what a pool gives for windows.
const WINDOWS: u8 = 2;

/// Whose ring it is, of so many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub pool: Uuid,
    pub volume: [u8; 16],
    pub bytes: u64,
    /// Rings of its window.
    pub rings: usize,
}

#[derive(Debug, Default)]
struct Counts {
    /// Rings.
    volumes: BTreeMap<[u8; 16], usize>,
    /// Bytes.
    pools: BTreeMap<Uuid, u64>,
}

/// Rings within reach.
#[derive(Debug)]
pub struct Reach {
    counts: Mutex<Counts>,
    /// Bytes of a pool.
    most: u64,
}

/// A ring within reach, until it is dropped.
#[derive(Debug)]
pub struct Stay {
    reach: Arc<Reach>,
    place: Place,
}

impl Reach {
    /// Nothing within reach, of pools that give so many bytes for windows.
    pub fn new(given: u64) -> Arc<Self> {
        let most = given.saturating_mul(WINDOWS.into());
        Arc::new(Self { counts: Mutex::default(), most })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a ring; none where as many as may be are counted.
    pub fn enter(self: &Arc<Self>, place: Place) -> Option<Stay> {
        let Place { pool, volume, bytes, rings } = place;
        let mut counts = self.lock();
        let of_volume = counts.volumes.get(&volume).copied().unwrap_or(0);
        let of_pool = counts.pools.get(&pool).copied().unwrap_or(0);
        if of_volume >= usize::from(WINDOWS) * rings || of_pool.saturating_add(bytes) > self.most {
            return None;
        }
        let _ = counts.volumes.insert(volume, of_volume + 1);
        let _ = counts.pools.insert(pool, of_pool + bytes);
        Some(Stay { reach: Arc::clone(self), place })
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let Place { pool, volume, bytes, .. } = self.place;
        let mut counts = self.reach.lock();
        let left = counts.volumes.get(&volume).map_or(0, |count| count - 1);
        let _ = match left {
            0 => counts.volumes.remove(&volume),
            left => counts.volumes.insert(volume, left),
        };
        let left = counts.pools.get(&pool).map_or(0, |held| held - bytes);
        let _ = match left {
            0 => counts.pools.remove(&pool),
            left => counts.pools.insert(pool, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn two_windows_of_a_volume_are_reached_and_twice_what_a_pool_gives() {
        let reach = Reach::new(8 * MIB);
        let (here, elsewhere) = (Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16]));
        let ring = |pool, volume: u8| Place { pool, volume: [volume; 16], bytes: MIB, rings: 3 };
        let mut held: Vec<_> = std::iter::from_fn(|| reach.enter(ring(here, 1))).collect();
        assert_eq!(held.len(), 6, "of a volume");
        for volume in 2..9 {
            held.extend(std::iter::from_fn(|| reach.enter(ring(here, volume))));
        }
        assert_eq!(held.len(), 16, "of a pool");
        let other = reach.enter(ring(elsewhere, 20));
        assert!(other.is_some());
        drop(held);
        assert!(reach.enter(ring(here, 1)).is_some());
        drop(other);
        assert!(reach.lock().volumes.is_empty() && reach.lock().pools.is_empty());
    }
}
