//! Volumes rolled back to a snapshot: hosts have another view from then on, which begins with what the snapshot sees, as a
//! clone's does (decision 0026).

use std::rc::Rc;
use std::sync::Arc;

use super::Pool;
use super::snapshots::{SnapshotSpec, find_snapshot, snapshot_to_take};
use super::volumes::{find, new_view};
use crate::address::View;
use crate::canary::{self, Step};
use crate::error::Result;
use crate::format::catalog::{self, Catalog, Edit, Object, Record};
use crate::shard::{Shard, Taken};
use crate::volume::Volume;
use crate::volume::state::{Lineage, Occupied, State};

/// A volume to be rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackSpec {
    pub volume: String,
    /// The name of its snapshot whose contents it is to have.
    pub snapshot: String,
    /// A snapshot of what it has before, its name and what identifies it; without one that is gone for good.
    pub keep: Option<(String, [u8; 16])>,
    /// Seconds since 1970: when the snapshot kept is taken.
    pub created: u64,
}

/// What a rollback makes.
struct Made {
    /// What hosts had, and have from then on.
    before: Object,
    after: Object,
    kept: Option<(Object, Taken)>,
}

impl RollbackSpec {
    fn edit(&self, catalog: &Catalog, most: usize) -> Result<(Edit, Made)> {
        let snapshot = find_snapshot(catalog, &self.volume, &self.snapshot)?;
        let mut before = find(catalog, &self.volume)?.clone();
        // One that is kept takes another.
        let view = new_view(catalog, most.saturating_sub(self.keep.iter().count()))?;
        let after = Object {
            kind: catalog::Kind::Clone,
            parent: snapshot.parent,
            parent_epoch: snapshot.parent_epoch,
            placement: before.placement,
            first_view: before.first_view,
            group: before.group,
            created: before.created,
            ..Object::volume(view, &before.name, before.id, snapshot.bytes, snapshot.block_size)
        };
        let mut next = view.get() + 1;
        let mut kept = None;
        if let Some((name, id)) = self.keep.clone() {
            let (volume, created) = (self.volume.clone(), self.created);
            let spec = SnapshotSpec { volume, name, id, created };
            let taken = snapshot_to_take(catalog, &spec, Some(next))?;
            (before, kept) = (taken.0, Some(taken.1));
            next += 1;
        }
        before.deleted = true;
        let records = [&before, &after].into_iter().chain(kept.iter().map(|(kept, _)| kept));
        let records = records.cloned().map(Record::Put).collect();
        Ok((Edit { next_view: next, records }, Made { before, after, kept }))
    }
}

impl Pool {
    /// Gives a volume the contents of one of its snapshots, and the size it had then. Copies nothing. All its snapshots
    /// stay, also those taken since, and what it had until then, if a snapshot of that is kept: all that was acknowledged
    /// is in it. Whoever has the volume open is told from then on that it is gone, whether this succeeds or not, and has
    /// to open it again.
    ///
    /// # Errors
    /// `NotFound`, `Exists` and `Invalid` for the name of the snapshot that is kept, `Full` when there are too many, or
    /// the volume would be the clone of too many one behind another, `Busy` while nothing leaves the log: then nothing was
    /// done. `Failed` when the log or too many drives failed.
    pub async fn rollback_volume(&self, spec: RollbackSpec) -> Result<Volume> {
        // To its end, also where nobody waits for it any more: nobody has the volume in the midst of it.
        let pool = self.clone();
        let rolling = reactor::spawn(async move { pool.roll_back(&spec).await });
        let gone = || crate::Error::new(crate::error::Kind::Gone, "the reactor has stopped");
        rolling.await.unwrap_or_else(|| Err(gone()))
    }

    async fn roll_back(&self, spec: &RollbackSpec) -> Result<Volume> {
        let _turn = self.turn().await?;
        let common = &self.0.common;
        let most = common.superblock.objects_max();
        let edit = |catalog: &Catalog| spec.edit(catalog, most);
        common.superblock.catalog(|catalog| edit(catalog).map(drop))?;
        self.carry_for_clone(&self.snapshot(&spec.volume, &spec.snapshot)?).await?;
        let old = self.volume(&spec.volume)?.state;
        self.end_writes(&old).await?;
        let made = match common.superblock.change_catalog(edit).await {
            Ok(made) => made,
            Err(error) => {
                let again = |catalog: &Catalog| find(catalog, &spec.volume).cloned();
                let volume = common.superblock.catalog(again)?;
                drop(self.adopt_volume(&volume, old.lineage.clone()));
                return Err(error);
            }
        };
        self.take_over(&old, &made).await?;
        let Object { view, bytes, shrunk_from, .. } = made.before;
        self.finish_delete(view, bytes.max(shrunk_from)).await?;
        self.volume(&spec.volume)
    }

    /// Waits until whoever writes to a volume is done, and lets nobody begin any more.
    async fn end_writes(&self, volume: &State) -> Result<()> {
        volume.close();
        let settle = |shard: Rc<Shard>| async move {
            if !canary::skips(Step::RollbackWriters) {
                shard.front.settle_writes().await;
            }
            Ok(())
        };
        self.each(settle).await.map(drop)
    }

    /// Has hosts' next requests go to the new view, and the snapshot that is kept see all of the old one.
    async fn take_over(&self, old: &State, made: &Made) -> Result<()> {
        let Made { before, after, kept } = made;
        let common = &self.0.common;
        if let (Some(parent), Some(sees)) = (after.parent, after.sees()) {
            common.snapshots.add_clone(after.view, parent, sees);
        }
        let mut former: Vec<View> = old.lineage.former.clone();
        former.push(before.view);
        common.used.remove(old);
        let lineage = Lineage { former, ..old.lineage.clone() };
        self.adopt_volume(after, lineage).set_occupied(Occupied::default());
        common.used.note_change();
        if let Some((snapshot, taken)) = kept {
            common.snapshots.add(taken.view, taken.sees);
            self.take_versions(Arc::new([*taken])).await?;
            self.adopt_snapshot(snapshot, taken.view, taken.sees);
        }
        Ok(())
    }
}
