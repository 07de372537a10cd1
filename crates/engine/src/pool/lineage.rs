//! What the catalog says of clones and their parents.

use std::collections::BTreeMap;

use crate::address::View;
use crate::format::catalog::{self, Catalog, Object};
use crate::volume::state::Origin;

/// Where the clones of a catalog came from.
pub(super) struct Origins {
    /// What identifies volumes, and snapshots, by the epoch that their volume had from then on.
    volumes: BTreeMap<View, [u8; 16]>,
    snapshots: BTreeMap<(View, u64), [u8; 16]>,
}

impl Origins {
    pub fn of(objects: &[Object]) -> Self {
        let snapshot = |of: &Object| {
            let is_one = of.kind == catalog::Kind::Snapshot;
            of.parent.filter(|_| is_one).map(|parent| ((parent, of.parent_epoch), of.id))
        };
        Self {
            volumes: objects.iter().map(|of| (of.view, of.id)).collect(),
            snapshots: objects.iter().filter_map(snapshot).collect(),
        }
    }

    /// Of a clone; `None` of what is none.
    pub fn of_clone(&self, clone: &Object) -> Option<Origin> {
        let parent = clone.parent?;
        let snapshot = self.snapshots.get(&(parent, clone.parent_epoch)).copied();
        Some(Origin { volume: *self.volumes.get(&parent)?, snapshot })
    }
}

/// What is no more once this volume or clone is not: itself, and what was deleted before and was there for it alone. A clone
/// comes before its parent.
pub(super) fn gone_with(catalog: &Catalog, view: View) -> Vec<View> {
    let mut gone = vec![view];
    let mut last = catalog.get(view);
    while let Some(parent) = last.and_then(|last| catalog.get(last.parent?)) {
        let is_empty = parent.bytes == 0 && parent.shrunk_from == 0;
        if !(parent.deleted && is_empty && catalog.needing(parent.view) == 1) {
            break;
        }
        gone.push(parent.view);
        last = Some(parent);
    }
    gone
}
