//! Which versions of volumes their snapshots see: what is replaced and not seen is given up (decision 0026).
//!
//! Asked wherever two versions of a block meet, on whatever core: without snapshots that is a look at one flag.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reactor::cross_core::Lock;

use crate::address::{Version, View};
use crate::format::catalog::{Catalog, Kind};
use crate::map::Period;

/// The versions that snapshots of a pool's volumes see.
#[derive(Default)]
pub struct Snapshots {
    /// There are any.
    any: AtomicBool,
    /// By view, the last version that each of its snapshots sees. None without a snapshot.
    seen: Lock<BTreeMap<View, BTreeSet<Version>>>,
    /// Snapshots deleted so far.
    deleted: AtomicU64,
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
        for object in catalog.objects().filter(|object| object.kind == Kind::Snapshot) {
            if let (Some(view), Some(version)) = (object.parent, object.sees()) {
                snapshots.add(view, version);
            }
        }
        snapshots
    }

    /// There is a snapshot that sees a view up to this version: before anything is written in a later one.
    pub fn add(&self, view: View, version: Version) {
        let mut seen = self.seen.lock();
        let is_new = seen.entry(view).or_default().insert(version);
        assert!(is_new, "each snapshot sees a version that was the last one then");
        self.any.store(true, Ordering::Release);
    }

    /// That one is no more: what it alone saw is given up when it is met.
    pub fn remove(&self, view: View, version: Version) {
        let mut seen = self.seen.lock();
        if let Some(of_view) = seen.get_mut(&view) {
            of_view.remove(&version);
            if of_view.is_empty() {
                seen.remove(&view);
            }
        }
        self.any.store(!seen.is_empty(), Ordering::Release);
        self.deleted.fetch_add(1, Ordering::AcqRel);
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

    /// The first snapshot, by the version it sees, that may see what was written in this one.
    #[must_use]
    pub fn first_from(&self, view: View, written: Version) -> Option<Version> {
        if !self.has_any() {
            return None;
        }
        self.seen.lock().get(&view)?.range(written..).next().copied()
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
}
