//! Volumes rolled back to a snapshot: hosts have another view from then on, which begins with what the snapshot sees, as a
//! clone's does (decision 0026).

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use stdx::num::usize32;

use super::Pool;
use super::reservations::Paused;
use super::snapshots::{SnapshotSpec, find_snapshot, snapshot_to_take};
use super::volumes::{find, invalid, new_views};
use crate::address::View;
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{self, Catalog, EDIT_PAGES_MAX, Edit, Object, RECORDS, Record};
use crate::limits::GROUP_VOLUMES_MAX;
use crate::shard::{Shard, Taken};
use crate::snapshots::Snapshots;
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

const _: () = assert!(3 * GROUP_VOLUMES_MAX <= usize32(EDIT_PAGES_MAX) * RECORDS);

impl RollbackSpec {
    /// What is made of a volume; what is new gets views of this number and the next.
    fn make(&self, catalog: &Catalog, next: u32, snapshots: &Snapshots) -> Result<Made> {
        let snapshot = find_snapshot(catalog, &self.volume, &self.snapshot)?;
        let mut before = find(catalog, &self.volume)?.clone();
        let after = Object {
            kind: catalog::Kind::Clone,
            parent: snapshot.parent,
            parent_epoch: snapshot.parent_epoch,
            placement: before.placement,
            first_view: before.first_view,
            group: before.group,
            quota: before.quota,
            reservation: before.reservation,
            created: before.created,
            ..Object::volume(
                View::new(next),
                &before.name,
                before.id,
                snapshot.bytes,
                snapshot.block_size,
            )
        };
        let mut kept = None;
        if let Some((name, id)) = self.keep.clone() {
            let (volume, created) = (self.volume.clone(), self.created);
            let spec = SnapshotSpec { volume, name, id, created };
            let taken = snapshot_to_take(catalog, &spec, next.checked_add(1), snapshots)?;
            (before, kept) = (taken.0, Some(taken.1));
        }
        (before.deleted, before.detaching) = (true, false);
        (before.quota, before.reservation) = (0, None);
        Ok(Made { before, after, kept })
    }
}

/// The edit that takes volumes back.
fn edit_of(
    specs: &[RollbackSpec],
    catalog: &Catalog,
    most: usize,
    snapshots: &Snapshots,
) -> Result<(Edit, Vec<Made>)> {
    if specs.len() > GROUP_VOLUMES_MAX {
        let what = format!(
            "at most {GROUP_VOLUMES_MAX} volumes are rolled back together, not {}",
            specs.len()
        );
        return Err(invalid(what));
    }
    let new = specs.iter().map(|spec| 1 + spec.keep.iter().count()).sum::<usize>();
    let mut next = new_views(catalog, new, most)?.start;
    let (mut records, mut all, mut volumes) = (Vec::new(), Vec::new(), BTreeSet::new());
    for spec in specs {
        let made = spec.make(catalog, next, snapshots)?;
        if !volumes.insert(made.before.view) {
            return Err(invalid(format!("volume {} is named twice", spec.volume)));
        }
        next += 1 + u32::from(made.kept.is_some());
        let kept = made.kept.iter().map(|(kept, _)| kept);
        let each = [&made.before, &made.after].into_iter().chain(kept);
        records.extend(each.cloned().map(Record::Put));
        all.push(made);
    }
    Ok((Edit { next_view: next, records }, all))
}

impl Pool {
    /// Gives volumes the contents of snapshots of theirs, all or none, and the size that each had then. Copies nothing. All
    /// their snapshots stay, also those taken since, and what they had until then, if a snapshot of that is kept: all that
    /// was acknowledged is in it, at one instant of all of them. Whoever has the volumes open is told from then on that they
    /// are gone, whether this succeeds or not, and has to open them again.
    ///
    /// # Errors
    /// `NotFound`, `Exists` and `Invalid` for the name of a snapshot that is kept, `Full` when there are too many, or a
    /// volume would be the clone of too many one behind another, `Busy` while nothing leaves the log: then nothing was
    /// done. `Failed` when the log or too many drives failed.
    pub async fn rollback_volumes(&self, specs: Vec<RollbackSpec>) -> Result<()> {
        // To its end, also where nobody waits for it any more: nobody has the volumes in the midst of it.
        let pool = self.clone();
        let rolling = reactor::spawn(async move { pool.roll_back(&specs).await });
        rolling.await.unwrap_or_else(|| Err(Error::new(Kind::Gone, "the reactor has stopped")))
    }

    /// As [`rollback_volumes`](Self::rollback_volumes), of one, which is given.
    ///
    /// # Errors
    /// As there.
    pub async fn rollback_volume(&self, spec: RollbackSpec) -> Result<Volume> {
        let name = spec.volume.clone();
        self.rollback_volumes(vec![spec]).await?;
        self.volume(&name)
    }

    async fn roll_back(&self, specs: &[RollbackSpec]) -> Result<()> {
        let _turn = self.turn().await?;
        let names: Vec<&str> = specs.iter().map(|spec| spec.volume.as_str()).collect();
        self.end_windows_of(&names).await?;
        self.finish_shrinks(&names).await?;
        let common = &self.0.common;
        let most = common.superblock.objects_max();
        let edit = |catalog: &Catalog| edit_of(specs, catalog, most, &common.snapshots);
        common.superblock.catalog(|catalog| edit(catalog).map(drop))?;
        for spec in specs {
            self.carry_for_clone(&self.snapshot(&spec.volume, &spec.snapshot)?).await?;
        }
        let open = specs.iter().map(|spec| Ok(self.volume(&spec.volume)?.state));
        let old = open.collect::<Result<Vec<_>>>()?;
        let sizes = specs.iter().map(|spec| Ok(self.snapshot(&spec.volume, &spec.snapshot)?.len()));
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        let states = || old.iter().map(|state| &**state).zip(sizes.iter().copied());
        // Is there room for what is reserved, before anything is taken from anybody.
        drop(self.pause_reserved(states()).await?);
        self.end_writes(&old).await?;
        // Only then: who waits for it to go on is waited for there.
        let made = match self.pause_reserved(states()).await {
            Ok(paused) => common.superblock.change_catalog(edit).await.map(|made| (paused, made)),
            Err(error) => Err(error),
        };
        let (paused, made) = match made {
            Ok(made) => made,
            Err(error) => {
                let failed = self.or_taken_back(Err(error)).await;
                // What the next opening may take away is not written to.
                if !common.superblock.may_find_failed() {
                    self.adopt_again(&old)?;
                }
                return failed;
            }
        };
        self.take_over(&old, &made).await?;
        paused.into_iter().for_each(Paused::end_shared);
        for Made { before, .. } in &made {
            let done = self.finish_delete(before.view, before.bytes.max(before.shrunk_from));
            self.or_later(done.await)?;
        }
        Ok(())
    }

    /// Volumes that were taken from their hosts are as they were; they have to be opened again.
    fn adopt_again(&self, volumes: &[Arc<State>]) -> Result<()> {
        let common = &self.0.common;
        for old in volumes {
            let name = old.name.lock().clone();
            let again = |catalog: &Catalog| find(catalog, &name).cloned();
            let volume = common.superblock.catalog(again)?;
            let kept = common.quotas.reserve(old.view);
            let state = self.adopt_volume(&volume, old.lineage.clone());
            self.set_reserve(&state, kept);
        }
        Ok(())
    }

    /// Waits until whoever writes to some volumes is done, and lets nobody begin any more.
    async fn end_writes(&self, volumes: &[Arc<State>]) -> Result<()> {
        volumes.iter().for_each(|volume| volume.close());
        let settle = |shard: Rc<Shard>| async move {
            if !canary::skips(Step::RollbackWriters) {
                shard.front.settle_writes().await;
            }
            Ok(())
        };
        self.each(settle).await.map(drop)
    }

    /// Has hosts' next requests go to the new views, and the snapshots that are kept see all of the old ones.
    async fn take_over(&self, old: &[Arc<State>], made: &[Made]) -> Result<()> {
        let common = &self.0.common;
        for (old, Made { before, after, kept }) in old.iter().zip(made) {
            if let (Some(parent), Some(sees)) = (after.parent, after.sees()) {
                common.snapshots.add_clone(after.view, parent, sees);
            }
            let mut former: Vec<View> = old.lineage.former.clone();
            former.push(before.view);
            common.used.remove(old);
            let lineage = Lineage { former, ..old.lineage.clone() };
            let state = self.adopt_volume(after, lineage);
            // What it goes back to is not known before it is counted.
            state.set_occupied(Occupied::default());
            self.set_reserve(&state, common.quotas.reserve(old.view));
            // Behind that: in between its group would seem to hold less.
            common.quotas.remove(old.view);
            if let Some((_, taken)) = kept {
                common.snapshots.add(taken.view, taken.sees);
            }
        }
        let kept = || made.iter().filter_map(|made| made.kept.as_ref());
        let taken: Arc<[Taken]> = kept().map(|(_, taken)| *taken).collect();
        if !taken.is_empty() {
            // Before anything that may fail: the hole for what was there before comes after what the snapshot sees.
            self.take_versions(taken).await?;
        }
        for (snapshot, taken) in kept() {
            self.adopt_snapshot(snapshot, taken.view, taken.sees);
        }
        self.look_at_quotas().await?;
        common.used.note_change();
        Ok(())
    }
}
