//! How much of each volume is used: what every shard counted last.

use std::collections::BTreeMap;
use std::sync::Arc;

use reactor::cross_core::Lock;

use crate::address::View;
use crate::volume::state::State;

/// Blocks with contents by view, of one shard.
pub type Counts = BTreeMap<View, u64>;

/// What volumes of a pool use, for all its shards.
#[derive(Default)]
pub struct Used(Lock<Inside>);

#[derive(Default)]
struct Inside {
    /// The last count of each shard; none before the first since the pool was opened.
    counts: Vec<Option<Counts>>,
    volumes: BTreeMap<View, Arc<State>>,
}

impl Inside {
    /// What all shards counted together, once each of them has.
    fn sum(&self, view: View) -> Option<u64> {
        let of = |counts: &Option<Counts>| Some(counts.as_ref()?.get(&view).copied().unwrap_or(0));
        self.counts.iter().map(of).sum()
    }
}

impl Used {
    /// Of a pool with so many shards.
    pub fn new(shards: u16) -> Self {
        let counts = vec![None; usize::from(shards)];
        Self(Lock::new(Inside { counts, ..Inside::default() }))
    }

    /// A volume that is there from now on is told what it uses.
    pub fn add(&self, volume: Arc<State>) {
        let mut inside = self.0.lock();
        if let Some(blocks) = inside.sum(volume.view) {
            volume.set_used(blocks);
        }
        inside.volumes.insert(volume.view, volume);
    }

    /// A volume went.
    pub fn remove(&self, view: View) {
        self.0.lock().volumes.remove(&view);
    }

    /// Tells all volumes what a shard counted.
    pub fn publish(&self, shard: u16, counts: Counts) {
        let mut inside = self.0.lock();
        inside.counts[usize::from(shard)] = Some(counts);
        for (view, volume) in &inside.volumes {
            if let Some(blocks) = inside.sum(*view) {
                volume.set_used(blocks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::catalog::Object;

    fn volume(view: u32, bytes: u64) -> Arc<State> {
        let (view, name) = (View::new(view), format!("v{view}"));
        Arc::new(State::new(&Object::volume(view, &name, [1; 16], bytes, 4096)))
    }

    fn counts<const N: usize>(of: [(u32, u64); N]) -> Counts {
        of.into_iter().map(|(view, blocks)| (View::new(view), blocks)).collect()
    }

    #[test]
    fn what_a_volume_uses_is_known_once_every_shard_has_counted_and_is_never_another_ones() {
        let used = Used::new(2);
        let (one, two) = (volume(1, 1 << 20), volume(2, 1 << 20));
        used.add(Arc::clone(&one));
        used.publish(0, counts([(1, 3), (2, 9)]));
        assert_eq!(one.used(), None);
        used.publish(1, counts([(2, 1)]));
        assert_eq!(one.used(), Some(3 * 4096));
        used.add(Arc::clone(&two));
        assert_eq!(two.used(), Some(10 * 4096));
        used.remove(View::new(1));
        used.publish(0, counts([(1, 5)]));
        assert_eq!((one.used(), two.used()), (Some(3 * 4096), Some(4096)));
        // Never more than its size.
        used.publish(0, counts([(2, 1000)]));
        assert_eq!(two.used(), Some(1 << 20));
        two.set_bytes(8192);
        assert_eq!(two.used(), Some(8192));
    }
}
