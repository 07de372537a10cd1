//! How much of each volume's rings hosts reach by RDMA: that memory is locked for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Windows of a volume whose rings are reached at once: the one that stands, and the one before it, whose host reads what
/// became of its last write.
const WINDOWS: usize = 2;

/// Rings within reach, by volume.
#[derive(Debug, Default)]
pub struct Reach(Mutex<BTreeMap<[u8; 16], usize>>);

/// A ring within reach, until it is dropped.
#[derive(Debug)]
pub struct Stay {
    reach: Arc<Reach>,
    volume: [u8; 16],
}

impl Reach {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; 16], usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a ring of a volume whose windows have so many; none where as many as may be are counted.
    pub fn enter(self: &Arc<Self>, volume: [u8; 16], rings: usize) -> Option<Stay> {
        let mut counts = self.lock();
        let count = counts.entry(volume).or_default();
        if *count >= WINDOWS * rings {
            return None;
        }
        *count += 1;
        Some(Stay { reach: Arc::clone(self), volume })
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut counts = self.reach.lock();
        if let Some(count) = counts.get_mut(&self.volume) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.volume);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_windows_of_a_volume_are_reached_and_those_of_others_as_well() {
        let reach = Arc::<Reach>::default();
        let (one, other) = ([1; 16], [2; 16]);
        let held: Vec<_> = std::iter::from_fn(|| reach.enter(one, 3)).collect();
        assert_eq!(held.len(), 6);
        let another = reach.enter(other, 1);
        assert!(another.is_some());
        drop(held);
        assert!(reach.enter(one, 3).is_some());
        drop(another);
        assert!(reach.lock().is_empty());
    }
}
