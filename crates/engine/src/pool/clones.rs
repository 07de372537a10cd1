//! Clones: volumes that begin with what a snapshot of another one sees (decision 0026).

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use super::Pool;
use super::groups::{GroupSpec, new_group};
use super::snapshots::find_snapshot;
use super::volumes::{
    check_new_name, check_quota, check_reservation, check_size, find, invalid, new_views,
};
use crate::address::View;
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{self, Catalog, Edit, Object, Record, Reservation};
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
    /// As a [volume's](crate::VolumeSpec::quota): what it began with does not count.
    pub quota: Option<u64>,
    /// As a [volume's](crate::VolumeSpec::reservation): what it began with does not count.
    pub reservation: Option<Reservation>,
}

/// A clone, and where it comes from.
type Made = (Object, Origin);

impl CloneSpec {
    /// The clone of a snapshot, which gets this view.
    fn make(&self, catalog: &Catalog, view: View, group: Option<View>) -> Result<Made> {
        check_new_name(catalog, &self.name)?;
        let snapshot = find_snapshot(catalog, &self.volume, &self.snapshot)?;
        let volume = find(catalog, &self.volume)?;
        let bytes = self.bytes.unwrap_or(snapshot.bytes);
        check_size(bytes)?;
        self.quota.map_or(Ok(()), check_quota)?;
        self.reservation.map_or(Ok(()), |of| check_reservation(of, bytes))?;
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
            group,
            quota: self.quota.unwrap_or(0),
            reservation: self.reservation,
            ..Object::volume(view, &self.name, self.id, bytes, snapshot.block_size)
        };
        let origin = Origin { volume: volume.id, snapshot: Some(snapshot.id) };
        Ok((clone, origin))
    }
}

/// The edit that makes clones, and the group that they are in, if there is one, with views from `first` on that were
/// set aside for them.
fn edit_of(
    specs: &[CloneSpec],
    group: Option<&GroupSpec>,
    catalog: &Catalog,
    (most, first): (usize, Option<u32>),
) -> Result<(Edit, Vec<Made>)> {
    let views = new_views(catalog, specs.len() + group.iter().count(), most)?;
    let (views, next_view) = match first {
        Some(first) => (first..first + (views.end - views.start), views.start),
        None => (views.clone(), views.end),
    };
    let group = group.map(|spec| new_group(catalog, spec, View::new(views.start))).transpose()?;
    let mut names: BTreeSet<&str> = group.iter().map(|group| &*group.name).collect();
    let in_group = group.as_ref().map(|group| group.view);
    let mut made = Vec::new();
    for (spec, view) in specs.iter().zip(views.skip(names.len())) {
        made.push(spec.make(catalog, View::new(view), in_group)?);
        if !names.insert(&spec.name) {
            let what = format!("two of what is to be made would be called {}", spec.name);
            return Err(Error::new(Kind::Exists, what));
        }
    }
    let clones = made.iter().map(|(clone, _)| clone.clone());
    // The group before its clones, which name it.
    let records = group.clone().into_iter().chain(clones).map(Record::Put).collect();
    Ok((Edit { next_view, records }, made))
}

impl Pool {
    /// Clones have nothing where their snapshots end: what was there before a volume was made smaller may come to light
    /// again when a log is lost. That is so before there are such clones: gives the first of the views that were set aside,
    /// where any is larger than its snapshot. They are clones' from then on, whose holes stay.
    async fn end_inheritance(
        &self,
        specs: &[CloneSpec],
        group: Option<&GroupSpec>,
        of: &[Volume],
    ) -> Result<Option<u32>> {
        let ends = specs.iter().zip(of).map(|(spec, of)| {
            let inherited = of.len();
            (Self::end_of(inherited), Self::end_of(spec.bytes.unwrap_or(inherited)))
        });
        let ends: Vec<(u64, u64)> = ends.collect();
        if ends.iter().all(|(inherited, end)| inherited >= end) {
            return Ok(None);
        }
        let superblock = &self.0.common.superblock;
        let most = superblock.objects_max();
        let in_group = group.iter().count();
        let set_aside = |catalog: &Catalog| {
            let views = new_views(catalog, specs.len() + in_group, most)?;
            Ok((Edit { next_view: views.end, records: Vec::new() }, views.start))
        };
        let first = superblock.change_catalog(set_aside).await?;
        let plan = |catalog: &Catalog| edit_of(specs, group, catalog, (most, Some(first)));
        let (_, planned) = superblock.catalog(plan)?;
        self.note_clones(&planned);
        for ((clone, _), (inherited, end)) in planned.iter().zip(ends) {
            if inherited < end
                && let Err(error) = self.drop_blocks(clone.view, inherited, end).await
            {
                self.forget_planned(specs.len() + in_group, first);
                return Err(error);
            }
        }
        Ok(Some(first))
    }

    fn note_clones(&self, clones: &[Made]) {
        for (clone, _) in clones {
            if let (Some(parent), Some(sees)) = (clone.parent, clone.sees()) {
                self.0.common.snapshots.add_clone(clone.view, parent, sees);
            }
        }
    }

    /// Views that were set aside are no clones' where the change that was to make them failed, once no opening can find it
    /// done: merges give up holes of what is no clone.
    async fn made_or_forgotten<T>(&self, views: usize, first: u32, made: Result<T>) -> Result<T> {
        let made = self.or_taken_back(made).await;
        if made.is_err() && !self.0.common.superblock.may_find_failed() {
            self.forget_planned(views, first);
        }
        made
    }

    /// So many views from `first` on, which were set aside, are no clones'.
    fn forget_planned(&self, views: usize, first: u32) {
        let end = first + stdx::num::u32_of(views);
        (first..end).for_each(|view| self.0.common.snapshots.remove_clone(View::new(view)));
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
        self.clone_each(std::slice::from_ref(&spec), None).await?;
        self.volume(&spec.name)
    }

    /// Makes clones, and the group that they are in, if there is one: all or none. Within a [turn](Self::turn).
    pub(super) async fn clone_each(
        &self,
        specs: &[CloneSpec],
        group: Option<&GroupSpec>,
    ) -> Result<()> {
        self.assert_turn();
        let common = &self.0.common;
        let most = common.superblock.objects_max();
        let in_group = group.iter().count();
        let edit =
            |catalog: &Catalog, first: Option<u32>| edit_of(specs, group, catalog, (most, first));
        // What cannot be is refused before anything is carried for it.
        common.superblock.catalog(|catalog| edit(catalog, None).map(drop))?;
        let of = specs.iter().map(|spec| self.snapshot(&spec.volume, &spec.snapshot));
        let of = of.collect::<Result<Vec<_>>>()?;
        for snapshot in &of {
            self.carry_for_clone(snapshot).await?;
        }
        let mut kept = Vec::new();
        for (spec, of) in specs.iter().zip(&of) {
            let bytes = spec.bytes.unwrap_or(of.len());
            let each = self.keep_for_new(&spec.name, spec.reservation, bytes).await;
            kept.push(self.end_keeping(&kept, each)?);
        }
        let ended = self.end_inheritance(specs, group, &of).await;
        let first = self.end_keeping(&kept, ended)?;
        let made = common.superblock.change_catalog(|catalog| edit(catalog, first)).await;
        let made = match first {
            None => made.inspect(|made| self.note_clones(made)),
            Some(first) => self.made_or_forgotten(specs.len() + in_group, first, made).await,
        };
        let made = self.end_keeping(&kept, made)?;
        for ((clone, origin), kept) in made.into_iter().zip(kept) {
            let lineage = Lineage { origin: Some(origin), former: Vec::new() };
            let state = self.adopt_volume(&clone, lineage);
            // What it begins with is not known before it is counted.
            state.set_occupied(Occupied::default());
            self.set_reserve(&state, kept);
            common.quotas.note_empty(state.view);
        }
        common.used.note_change();
        self.count_snapshots();
        Ok(())
    }
}
