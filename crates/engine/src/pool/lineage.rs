//! What the catalog says of clones and their parents.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

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

/// What goes from a catalog in one step, and what goes with it because it was there for that alone.
pub(super) struct Removal<'a> {
    catalog: &'a Catalog,
    records: Vec<Record>,
    /// What is there no more, and clones that have no parent any more.
    gone: BTreeSet<View>,
    cut: BTreeSet<View>,
    /// By how many fewer these are needed.
    fewer: BTreeMap<View, u32>,
    /// By clones that have all of their own, who asks their parents through them all the same. Looked for once, where one
    /// of them may have been the last.
    asking: OnceCell<BTreeMap<View, Vec<View>>>,
}

impl<'a> Removal<'a> {
    pub const fn of(catalog: &'a Catalog) -> Self {
        Self {
            catalog,
            records: Vec::new(),
            gone: BTreeSet::new(),
            cut: BTreeSet::new(),
            fewer: BTreeMap::new(),
            asking: OnceCell::new(),
        }
    }

    /// Some objects that nothing else needs are no more.
    pub fn remove(mut self, views: &[View]) -> Self {
        let mut parents = Vec::new();
        for view in views {
            parents.extend(self.take(*view));
        }
        // With all of them gone, so that it does not matter in which order they go.
        for parent in parents {
            self.settle(parent);
        }
        self
    }

    /// A clone has no parent any more: it needs none.
    pub fn cut(mut self, clone: &Object) -> Self {
        if let Some(parent) = self.cut_loose(clone) {
            self.settle(parent);
        }
        self
    }

    /// What is there for nothing: what deletions did not come to before a crash.
    pub fn left(mut self) -> Self {
        for object in self.catalog.objects() {
            self.settle(object.view);
        }
        self
    }

    /// The records by which all that happens, those of what was asked for first, and the views that are nobody's clones any
    /// more then.
    pub fn end(self) -> (Vec<Record>, Vec<View>) {
        (self.records, self.gone.into_iter().chain(self.cut).collect())
    }

    /// One is gone; gives its parent.
    fn take(&mut self, view: View) -> Option<View> {
        let parent = self.released(view);
        self.records.push(Record::Remove(view));
        self.gone.insert(view);
        parent
    }

    fn cut_loose(&mut self, clone: &Object) -> Option<View> {
        let parent = self.released(clone.view);
        self.records.push(Record::Put(clone.cut_loose()));
        self.cut.insert(clone.view);
        parent
    }

    /// The parent of one that needs it no more.
    fn released(&mut self, view: View) -> Option<View> {
        let is_of_none = self.gone.contains(&view) || self.cut.contains(&view);
        let parent = self.catalog.get(view).filter(|_| !is_of_none)?.parent?;
        *self.fewer.entry(parent).or_default() += 1;
        Some(parent)
    }

    /// An object is needed by one fewer: that, and what it is made of, may be there for nothing.
    fn settle(&mut self, view: View) {
        let mut last = Some(view);
        while let Some(object) = last.and_then(|view| self.catalog.get(view)) {
            if self.is_left(object) {
                last = self.take(object.view);
            } else if self.is_needless(object) {
                // It needed its parent for what the last of these saw, perhaps.
                last = self.cut_loose(object);
            } else {
                break;
            }
        }
    }

    /// What was deleted before, and is there for nobody any more.
    fn is_left(&self, object: &Object) -> bool {
        let is_empty = object.bytes == 0 && object.shrunk_from == 0;
        let needing = self.catalog.needing(object.view);
        let fewer = self.fewer.get(&object.view).copied().unwrap_or(0);
        let is_there = !self.gone.contains(&object.view);
        object.deleted && is_empty && is_there && needing == fewer
    }

    /// Whether a clone that has all of its own has a parent that nobody asks any more.
    fn is_needless(&self, clone: &Object) -> bool {
        let is_there = |view: &View| !self.gone.contains(view) && !self.cut.contains(view);
        if clone.detached.is_none() || clone.parent.is_none() || !is_there(&clone.view) {
            return false;
        }
        let asking = self.asking.get_or_init(|| asking(self.catalog)).get(&clone.view);
        !asking.is_some_and(|asking| asking.iter().any(is_there))
    }
}

/// By clones that have all of their own, what inherits by them from their parents.
fn asking(catalog: &Catalog) -> BTreeMap<View, Vec<View>> {
    let detached = catalog.objects().filter(|of| of.detached.is_some());
    let detached: BTreeMap<View, &Object> = detached.map(|of| (of.view, of)).collect();
    let mut asking: BTreeMap<View, Vec<View>> = BTreeMap::new();
    for object in catalog.objects() {
        let Some(clone) = object.parent.and_then(|parent| detached.get(&parent)) else { continue };
        if clone.inherits(object.sees()) {
            asking.entry(clone.view).or_default().push(object.view);
        }
    }
    asking
}
