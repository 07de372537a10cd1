//! Which versions of volumes their snapshots and clones see: what is replaced and not seen is given up (decision 0026).
//!
//! Asked wherever two versions of a block meet, on whatever core: without snapshots that is a look at one flag.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reactor::cross_core::Lock;

use crate::address::{Version, View};
use crate::canary::{self, Step};
use crate::format::catalog::{Catalog, Kind};
use crate::map::Period;

/// The versions that snapshots of a pool's volumes see, and clones of these.
#[derive(Default)]
pub struct Snapshots {
    /// There are any.
    any: AtomicBool,
    /// By view, the last version that each of its snapshots and clones sees, and how many see it. None without any.
    seen: Lock<BTreeMap<View, BTreeMap<Version, u32>>>,
    /// Changes of that.
    changes: AtomicU64,
    /// Snapshots and clones deleted so far.
    deleted: AtomicU64,
    /// Blocks that they alone had, about, ever.
    freed: AtomicU64,
    /// There are clones; by their own views, what each of them sees.
    any_clones: AtomicBool,
    clones: Lock<BTreeMap<View, (View, Version)>>,
}

impl std::fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshots").field("any", &self.any).finish_non_exhaustive()
    }
}

impl Snapshots {
    /// Those of a catalog.
    #[must_use]
    pub fn of(catalog: &Catalog) -> Self {
        let snapshots = Self::default();
        for object in catalog.objects() {
            let (Some(view), Some(version)) = (object.parent, object.sees()) else { continue };
            match object.kind {
                Kind::Clone => snapshots.add_clone(object.view, view, version),
                _ => snapshots.add(view, version),
            }
        }
        snapshots
    }

    /// There is a snapshot that sees a view up to this version: before anything is written in a later one.
    pub fn add(&self, view: View, version: Version) {
        let mut seen = self.seen.lock();
        *seen.entry(view).or_default().entry(version).or_insert(0) += 1;
        self.any.store(true, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// There is a clone that sees a view up to this version: before anything is written to it.
    pub fn add_clone(&self, clone: View, of: View, version: Version) {
        if !canary::skips(Step::CloneHolds) {
            self.add(of, version);
        }
        self.clones.lock().insert(clone, (of, version));
        self.any_clones.store(true, Ordering::Release);
    }

    /// A clone is no more: nothing of what it had is asked for again.
    pub fn remove_clone(&self, clone: View) {
        let gone = {
            let mut clones = self.clones.lock();
            let gone = clones.remove(&clone);
            self.any_clones.store(!clones.is_empty(), Ordering::Release);
            gone
        };
        if let Some((of, version)) = gone {
            self.remove(of, version);
        }
    }

    /// Whether a view is a clone's: what it has nothing of is what its parent has, and a hole hides that.
    #[must_use]
    pub fn is_clone(&self, view: View) -> bool {
        self.any_clones.load(Ordering::Acquire) && self.clones.lock().contains_key(&view)
    }

    /// What clones see: views, each up to a version, once for each clone.
    #[must_use]
    pub fn of_clones(&self) -> Vec<(View, Version)> {
        self.clones.lock().values().copied().collect()
    }

    /// That snapshot is no more: what it alone saw is given up when it is met.
    pub fn remove(&self, view: View, version: Version) {
        let mut seen = self.seen.lock();
        if let Some(of_view) = seen.get_mut(&view) {
            match of_view.get_mut(&version) {
                Some(times) if *times > 1 => *times -= 1,
                _ => drop(of_view.remove(&version)),
            }
            if of_view.is_empty() {
                seen.remove(&view);
            }
        }
        self.any.store(!seen.is_empty(), Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.deleted.fetch_add(1, Ordering::AcqRel);
    }

    /// About so many blocks were had by what is deleted, and nothing else: the next search for space finds them.
    pub fn note_freed(&self, blocks: u64) {
        self.freed.fetch_add(blocks, Ordering::AcqRel);
    }

    /// Blocks that only what is deleted by now had, about, of all shards.
    #[must_use]
    pub fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Snapshots deleted so far.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        self.deleted.load(Ordering::Acquire)
    }

    fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether a view has a snapshot.
    #[must_use]
    pub fn has(&self, view: View) -> bool {
        self.has_any() && self.seen.lock().contains_key(&view)
    }

    /// The views that have snapshots or clones, in order: of others no old version is needed.
    #[must_use]
    pub fn views(&self) -> Vec<View> {
        if !self.has_any() {
            return Vec::new();
        }
        self.seen.lock().keys().copied().collect()
    }

    /// How often what is seen has changed. Whoever remembers what is seen asks for this first.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Adds all versions of a view that snapshots and clones see, in order.
    pub fn seen(&self, view: View, out: &mut Vec<Version>) {
        if self.has_any()
            && let Some(seen) = self.seen.lock().get(&view)
        {
            out.extend(seen.keys());
        }
    }

    /// How many versions of a view are seen.
    #[must_use]
    pub fn versions_seen(&self, view: View) -> usize {
        if self.has_any() { self.seen.lock().get(&view).map_or(0, BTreeMap::len) } else { 0 }
    }

    /// The last version of a view that anybody but hosts sees.
    #[must_use]
    pub fn last_seen(&self, view: View) -> Option<Version> {
        if !self.has_any() {
            return None;
        }
        self.seen.lock().get(&view)?.last_key_value().map(|(seen, _)| *seen)
    }

    /// The first snapshot, by the version it sees, that may see what was written in this one.
    #[must_use]
    pub fn first_from(&self, view: View, written: Version) -> Option<Version> {
        if !self.has_any() {
            return None;
        }
        self.seen.lock().get(&view)?.range(written..).next().map(|(seen, _)| *seen)
    }

    /// Whether a snapshot sees what was written in one version and replaced in a later one.
    #[must_use]
    pub fn is_needed(&self, view: View, written: Version, replaced: Version) -> bool {
        self.first_from(view, written).is_some_and(|seen| seen < replaced)
    }

    /// Whether anybody sees what was so for that time: hosts the newest, and snapshots what was when they were taken.
    #[must_use]
    pub fn see(&self, view: View, period: Period) -> bool {
        let Period { since, until } = period;
        until.is_none_or(|until| self.first_from(view, since).is_some_and(|seen| seen <= until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_snapshot_sees_is_needed_and_nothing_else() {
        let version = |number| Version::new(number).unwrap();
        let (mine, other) = (View::new(1), View::new(2));
        let snapshots = Snapshots::default();
        let needed =
            |written, replaced| snapshots.is_needed(mine, version(written), version(replaced));
        assert!(!snapshots.has(mine) && !needed(0, 9));
        snapshots.add(mine, version(3));
        snapshots.add(mine, version(5));
        assert!(snapshots.has(mine) && !snapshots.has(other));
        assert!(needed(0, 4) && needed(3, 4) && needed(4, 6) && needed(5, 6) && needed(0, 9));
        assert!(!needed(4, 5) && !needed(6, 9) && !needed(3, 3));
        assert!(!snapshots.is_needed(other, version(0), version(9)));
        snapshots.remove(mine, version(3));
        assert!(!needed(0, 4) && !needed(3, 5) && needed(3, 6));
        assert_eq!(snapshots.first_from(mine, version(1)), Some(version(5)));
        snapshots.remove(mine, version(5));
        assert!(!snapshots.has(mine) && !needed(0, 9) && snapshots.deleted() == 2);
    }

    #[test]
    fn what_a_clone_sees_is_needed_also_without_the_snapshot_it_was_made_of() {
        let (mine, one, two) = (View::new(1), View::new(2), View::new(3));
        let seen = Version::new(3).unwrap();
        let snapshots = Snapshots::default();
        let is_needed = || snapshots.is_needed(mine, Version::FIRST, Version::LAST);
        snapshots.add(mine, seen);
        snapshots.add_clone(one, mine, seen);
        snapshots.add_clone(two, mine, seen);
        snapshots.remove(mine, seen);
        assert!(is_needed() && snapshots.is_clone(one) && !snapshots.is_clone(mine));
        snapshots.remove_clone(one);
        assert!(is_needed() && !snapshots.is_clone(one) && snapshots.is_clone(two));
        assert_eq!(snapshots.of_clones(), [(mine, seen)]);
        snapshots.remove_clone(two);
        assert!(!is_needed() && !snapshots.has(mine) && snapshots.of_clones().is_empty());
    }
}
