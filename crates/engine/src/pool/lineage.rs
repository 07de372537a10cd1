//! What the catalog says of clones and their parents.

use std::collections::BTreeMap;

use crate::address::View;
use crate::format::catalog::{self, Catalog, Object, Record};
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
        let (mut at, mut sees) = (volume, None);
        loop {
            let parent = *self.views.get(&at.parent.filter(|_| at.inherits(sees))?)?;
            if parent.first_view != at.first_view {
                let snapshot = self.snapshots.get(&(parent.view, at.parent_epoch)).copied();
                return Some(Origin { volume: parent.id, snapshot });
            }
            (at, sees) = (parent, at.sees());
        }
    }
}

/// What was deleted before and is there for this object alone, in the order of who needs it.
fn kept_for(catalog: &Catalog, view: View) -> Vec<View> {
    let mut kept = Vec::new();
    let mut last = catalog.get(view);
    while let Some(parent) = last.and_then(|last| catalog.get(last.parent?)) {
        let is_empty = parent.bytes == 0 && parent.shrunk_from == 0;
        if !(parent.deleted && is_empty && catalog.needing(parent.view) == 1) {
            break;
        }
        kept.push(parent.view);
        last = Some(parent);
    }
    kept
}

/// The records by which an object is no more, and what was there for it alone, and the views that are nobody's clones any
/// more then.
pub(super) fn removal(catalog: &Catalog, view: View) -> (Vec<Record>, Vec<View>) {
    let mut gone = vec![view];
    gone.extend(kept_for(catalog, view));
    let mut records: Vec<Record> = gone.iter().map(|view| Record::Remove(*view)).collect();
    // A clone that has all of its own needed its parent for what the last of these saw, perhaps.
    let parent = gone.last().and_then(|last| catalog.get(catalog.get(*last)?.parent?));
    if let Some(parent) = parent.filter(|of| is_needless(catalog, of, &gone)) {
        let (more, loose) = cut_loose(catalog, parent);
        records.extend(more);
        gone.extend(loose);
    }
    (records, gone)
}

/// Whether a clone that has all of its own has a parent that nobody asks any more once these are gone.
fn is_needless(catalog: &Catalog, clone: &Object, gone: &[View]) -> bool {
    let asks = |of: &Object| {
        of.parent == Some(clone.view) && clone.inherits(of.sees()) && !gone.contains(&of.view)
    };
    clone.detached.is_some() && !catalog.objects().any(asks)
}

/// The records by which a clone has no parent any more, and what was there for it alone is gone, and the views that are
/// nobody's clones any more then.
pub(super) fn cut_loose(catalog: &Catalog, clone: &Object) -> (Vec<Record>, Vec<View>) {
    let kept = kept_for(catalog, clone.view);
    let mut records = vec![Record::Put(clone.cut_loose())];
    records.extend(kept.iter().map(|view| Record::Remove(*view)));
    let mut loose = vec![clone.view];
    loose.extend(kept);
    let parent = loose.last().and_then(|last| catalog.get(catalog.get(*last)?.parent?));
    if let Some(parent) = parent.filter(|of| is_needless(catalog, of, &loose)) {
        let (more, others) = cut_loose(catalog, parent);
        records.extend(more);
        loose.extend(others);
    }
    (records, loose)
}
