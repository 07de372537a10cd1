//! Snapshots deleted, several in one edit of the catalog: all are there, or none, whatever happens.

use std::collections::BTreeSet;

use stdx::num::usize32;

use super::Pool;
use super::lineage::Removal;
use super::snapshots::find_snapshot;
use super::volumes::invalid;
use crate::address::View;
use crate::error::Result;
use crate::format::catalog::{Catalog, EDIT_PAGES_MAX, Edit, Object, RECORDS, Record};
use crate::limits::SNAPSHOTS_AT_ONCE;

/// A snapshot by the name of its volume, and its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotName {
    pub volume: String,
    pub name: String,
}

/// Records of one edit at most.
const EDIT_RECORDS_MAX: usize = usize32(EDIT_PAGES_MAX) * RECORDS;

const _: () = assert!(SNAPSHOTS_AT_ONCE <= EDIT_RECORDS_MAX);

/// What the deletion of snapshots makes of a catalog.
pub(super) struct Deleted {
    snapshots: Vec<Object>,
    /// What is left for later edits: what was there for the snapshots alone, where that is more than goes in one.
    rest: Vec<Record>,
    /// Nobody's clones any more.
    loose: Vec<View>,
}

/// The edit that deletes snapshots, and what that leaves to be done.
pub(super) fn edit_to_delete(catalog: &Catalog, names: &[SnapshotName]) -> Result<(Edit, Deleted)> {
    if names.len() > SNAPSHOTS_AT_ONCE {
        let many = names.len();
        return Err(invalid(format!(
            "at most {SNAPSHOTS_AT_ONCE} snapshots are deleted in one step, not {many}: delete them in parts"
        )));
    }
    let mut seen = BTreeSet::new();
    let find = |SnapshotName { volume, name }: &SnapshotName| {
        let snapshot = find_snapshot(catalog, volume, name)?;
        if !seen.insert(snapshot.view) {
            return Err(invalid(format!("snapshot {volume}@{name} is named twice")));
        }
        Ok(snapshot.clone())
    };
    let snapshots = names.iter().map(find).collect::<Result<Vec<_>>>()?;
    let views: Vec<View> = snapshots.iter().map(|snapshot| snapshot.view).collect();
    // With the last one that needs it goes what its volume was before it was rolled back.
    let (mut records, loose) = Removal::of(catalog).remove(&views).end();
    let rest = records.split_off(EDIT_RECORDS_MAX.min(records.len()));
    Ok((catalog.edit(records), Deleted { snapshots, rest, loose }))
}

impl Pool {
    /// Deletes a snapshot. The space of what it alone saw comes back behind that.
    ///
    /// # Errors
    /// `NotFound`, and `Failed` when too many drives failed.
    pub async fn delete_snapshot(&self, volume: &str, name: &str) -> Result<()> {
        let (volume, name) = (volume.to_owned(), name.to_owned());
        self.delete_snapshots(vec![SnapshotName { volume, name }]).await
    }

    /// Deletes snapshots, all or none of them, whatever happens meanwhile. The space of what they alone saw comes back
    /// behind that.
    ///
    /// # Errors
    /// `NotFound` without one of them, `Invalid` for one that is named twice or for too many, `Failed` when too many drives
    /// failed.
    pub async fn delete_snapshots(&self, names: Vec<SnapshotName>) -> Result<()> {
        let _turn = self.turn().await?;
        let common = &self.0.common;
        let drop = |catalog: &Catalog| edit_to_delete(catalog, &names);
        let dropped = common.superblock.change_catalog(drop).await;
        let Deleted { snapshots, rest, loose } = self.or_taken_back(dropped).await?;
        for snapshot in snapshots {
            self.forget_snapshot(&snapshot);
        }
        self.or_later(self.end_removal(&rest, loose).await)
    }

    /// The later edits of a removal of snapshots, as far as there is room for them.
    async fn end_removal(&self, rest: &[Record], mut loose: Vec<View>) -> Result<()> {
        let done = self.edit_in_parts(rest).await;
        self.0.common.superblock.catalog(|catalog| {
            loose.retain(|view| catalog.get(*view).is_none_or(|of| of.parent.is_none()));
        });
        self.forget_clones(&loose);
        done
    }

    async fn edit_in_parts(&self, records: &[Record]) -> Result<()> {
        for some in records.chunks(EDIT_RECORDS_MAX) {
            let edit = |catalog: &Catalog| Ok((catalog.edit(some.to_vec()), ()));
            self.0.common.superblock.change_catalog(edit).await?;
        }
        Ok(())
    }

    /// Ends deletions of snapshots that a crash, or want of room, left with what was there for these alone.
    pub(super) async fn end_deletions(&self) -> Result<()> {
        let left = |catalog: &Catalog| Removal::of(catalog).left().end();
        let (records, loose) = self.0.common.superblock.catalog(left);
        if records.is_empty() { Ok(()) } else { self.end_removal(&records, loose).await }
    }

    /// Nobody reads it any more, and what it saw is needed for it no more.
    fn forget_snapshot(&self, snapshot: &Object) {
        let common = &self.0.common;
        if let Some(state) = self.0.snapshots.borrow_mut().remove(&snapshot.view) {
            state.close();
            common.used.remove(&state);
            common.snapshots.note_freed(Self::end_of(state.unique().unwrap_or(0)));
        }
        if let (Some(view), Some(sees)) = (snapshot.parent, snapshot.sees()) {
            common.snapshots.remove(view, sees);
        }
    }
}
