//! Clones: volumes that begin with what a snapshot of another one sees (decision 0026).

use std::rc::Rc;
use std::sync::Arc;

use super::Pool;
use super::snapshots::find_snapshot;
use super::volumes::{check_new_name, check_size, find, invalid, new_view};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{self, Catalog, Edit, Object, Record};
use crate::limits::CLONES_DEEP_MAX;
use crate::shard::Shard;
use crate::volume::Volume;
use crate::volume::state::{Lineage, Occupied, Origin};

/// A clone to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneSpec {
    /// The volume whose snapshot it is made of, and the snapshot's name.
    pub volume: String,
    pub snapshot: String,
    /// The name of the clone.
    pub name: String,
    /// What identifies it for ever; drawn at random.
    pub id: [u8; 16],
    /// Size in bytes, a multiple of 4096, at least the snapshot's; that one's if not given.
    pub bytes: Option<u64>,
}

impl CloneSpec {
    /// The edit that makes the clone of a snapshot.
    fn edit(&self, catalog: &Catalog, most: usize) -> Result<(Edit, (Object, Origin))> {
        check_new_name(catalog, &self.name)?;
        let view = new_view(catalog, most)?;
        let snapshot = find_snapshot(catalog, &self.volume, &self.snapshot)?;
        let volume = find(catalog, &self.volume)?;
        let bytes = self.bytes.unwrap_or(snapshot.bytes);
        check_size(bytes)?;
        if bytes < snapshot.bytes {
            return Err(invalid(format!(
                "a clone is as large as its snapshot or larger: not {bytes} bytes, {} at least",
                snapshot.bytes
            )));
        }
        let clone = Object {
            kind: catalog::Kind::Clone,
            // Not the snapshot: that can be deleted.
            parent: snapshot.parent,
            parent_epoch: snapshot.parent_epoch,
            placement: volume.placement,
            ..Object::volume(view, &self.name, self.id, bytes, snapshot.block_size)
        };
        let origin = Origin { volume: volume.id, snapshot: Some(snapshot.id) };
        let records = vec![Record::Put(clone.clone())];
        Ok((Edit { next_view: view.get() + 1, records }, (clone, origin)))
    }
}

impl Pool {
    /// A clone has nothing where its snapshot ends: what was there before its volume was made smaller may come to light
    /// again when a log is lost.
    async fn end_inheritance(&self, clone: &Object, inherited: u64) -> Result<()> {
        let (from, to) = (Self::end_of(inherited), Self::end_of(clone.bytes));
        if from < to { self.drop_blocks(clone.view, from, to).await } else { Ok(()) }
    }

    /// Whoever begins with what a snapshot sees waits for nothing from then on.
    ///
    /// # Errors
    /// `Full` where clones of clones are too deep, `Busy` while nothing leaves the log.
    pub(super) async fn carry_for_clone(&self, of: &Volume) -> Result<()> {
        if of.is_too_deep() {
            let what = format!(
                "clones of clones, and rollbacks to what came after the last one, are at most {CLONES_DEEP_MAX} deep"
            );
            return Err(Error::new(Kind::Full, what));
        }
        let state = Arc::clone(&of.state);
        let carry = move |shard: Rc<Shard>| {
            let state = Arc::clone(&state);
            async move { shard.front.carry_inherited(&state).await }
        };
        self.each(carry).await.map(drop)
    }

    /// Makes a volume that begins with what a snapshot sees. Copies nothing. It is a volume as others are: what it began
    /// with stays, also when the snapshot is deleted, or its volume.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid` for a name or size that cannot be, `Full` when there are too many volumes, or clones
    /// of clones too deep, `Busy` while nothing leaves the log, for want of space or of drives, `Failed` when too many
    /// drives failed.
    pub async fn clone_volume(&self, spec: CloneSpec) -> Result<Volume> {
        let _turn = self.turn().await?;
        let of = self.snapshot(&spec.volume, &spec.snapshot)?;
        self.carry_for_clone(&of).await?;
        let common = &self.0.common;
        let most = common.superblock.objects_max();
        let add = |catalog: &Catalog| spec.edit(catalog, most);
        let (clone, origin) = common.superblock.change_catalog(add).await?;
        if let (Some(parent), Some(sees)) = (clone.parent, clone.sees()) {
            common.snapshots.add_clone(clone.view, parent, sees);
        }
        if let Err(error) = self.end_inheritance(&clone, of.len()).await {
            let drop = |catalog: &Catalog| Ok((catalog.edit(vec![Record::Remove(clone.view)]), ()));
            common.superblock.change_catalog(drop).await?;
            common.snapshots.remove_clone(clone.view);
            return Err(error);
        }
        let state = self.adopt_volume(&clone, Lineage { origin: Some(origin), former: Vec::new() });
        state.set_occupied(Occupied::default());
        common.used.note_change();
        self.count_snapshots();
        self.volume(&spec.name)
    }
}
