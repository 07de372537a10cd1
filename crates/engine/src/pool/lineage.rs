//! What the catalog says of clones and their parents.

use std::collections::BTreeMap;

use crate::address::View;
use crate::format::catalog::{self, Catalog, Object};
use crate::volume::state::{Lineage, Origin};

/// Where the volumes of a catalog came from.
pub(super) struct Lineages<'a> {
    views: BTreeMap<View, &'a Object>,
    /// What identifies snapshots, by the epoch that their volume had from then on.
    snapshots: BTreeMap<(View, u64), [u8; 16]>,
    /// The views that volumes had before they were rolled back, by the first of each.
    former: BTreeMap<View, Vec<View>>,
}

impl<'a> Lineages<'a> {
    pub fn of(objects: &'a [Object]) -> Self {
        let snapshot = |of: &Object| {
            let is_one = of.kind == catalog::Kind::Snapshot;
            of.parent.filter(|_| is_one).map(|parent| ((parent, of.parent_epoch), of.id))
        };
        let mut former: BTreeMap<View, Vec<View>> = BTreeMap::new();
        for deleted in objects.iter().filter(|object| object.deleted) {
            former.entry(deleted.first_view).or_default().push(deleted.view);
        }
        Self {
            views: objects.iter().map(|of| (of.view, of)).collect(),
            snapshots: objects.iter().filter_map(snapshot).collect(),
            former,
        }
    }

    pub fn of_volume(&self, volume: &Object) -> Lineage {
        let former = self.former.get(&volume.first_view).cloned().unwrap_or_default();
        Lineage { origin: self.origin(volume), former }
    }

    /// Of a clone; `None` of what is none. What was rolled back comes from where it came from before.
    fn origin(&self, volume: &Object) -> Option<Origin> {
        let mut at: &Object = volume;
        loop {
            let parent = *self.views.get(&at.parent?)?;
            if parent.first_view != at.first_view {
                let snapshot = self.snapshots.get(&(parent.view, at.parent_epoch)).copied();
                return Some(Origin { volume: parent.id, snapshot });
            }
            at = parent;
        }
    }
}

/// What is no more once this object is not: itself, and what was deleted before and was there for it alone. A clone comes
/// before its parent.
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
