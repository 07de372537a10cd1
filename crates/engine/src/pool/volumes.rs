//! Volumes coming, changing and going.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use reactor::sync::Held;
use stdx::size::show;

use super::Pool;
use super::lineage::{Lineages, Removal};
use crate::address::{BLOCK, Version, View};
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{self, Catalog, Edit, Object, Record, Reservation};
use crate::format::check_name;
use crate::limits::{ANEW_PAUSE, QUOTA_MAX, QUOTA_UNIT, RESERVATION_MAX, VOLUME_BYTES_MAX};
use crate::shard::Shard;
use crate::volume::Volume;
use crate::volume::state::{Lineage, Occupied, State};

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    pub name: String,
    /// What identifies it for ever; drawn at random.
    pub id: [u8; 16],
    /// Size in bytes, a multiple of 4096. Takes no space.
    pub bytes: u64,
    /// The logical block hosts see: 512 or 4096 bytes.
    pub block_size: u32,
    /// What it and its snapshots may hold together, in bytes: a [quota](crate::Pool::set_quota), or none.
    pub quota: Option<u64>,
    /// What is kept for its hosts to write: a [reservation](crate::Pool::set_reservation), or none.
    pub reservation: Option<Reservation>,
}

pub(super) fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

pub(super) fn check_size(bytes: u64) -> Result<()> {
    let block = stdx::num::u64_of(BLOCK);
    if bytes == 0 || !bytes.is_multiple_of(block) || bytes > VOLUME_BYTES_MAX {
        return Err(invalid(format!(
            "a volume has a multiple of {block} bytes, at most {VOLUME_BYTES_MAX}; not {bytes}"
        )));
    }
    Ok(())
}

pub(super) fn check_quota(bytes: u64) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(QUOTA_UNIT) || bytes > QUOTA_MAX {
        let what = format!(
            "a quota is a multiple of {QUOTA_UNIT} bytes, from {QUOTA_UNIT} to {QUOTA_MAX}; not {bytes}"
        );
        return Err(invalid(what));
    }
    Ok(())
}

pub(super) fn check_reservation(of: Reservation, size: u64) -> Result<()> {
    let Reservation::Bytes(bytes) = of else { return Ok(()) };
    if bytes == 0 || !bytes.is_multiple_of(QUOTA_UNIT) || bytes > RESERVATION_MAX {
        let what = format!(
            "a reservation is a multiple of {QUOTA_UNIT} bytes, from {QUOTA_UNIT} to {RESERVATION_MAX}; not {bytes}"
        );
        return Err(invalid(what));
    }
    if bytes > size {
        let (bytes, size) = (show(bytes), show(size));
        let what = format!("a reservation of {bytes} is more than the volume has: {size}");
        return Err(invalid(what));
    }
    Ok(())
}

/// A volume of this name that is not being deleted.
pub(super) fn find<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Object> {
    let none = |what| Err(Error::new(Kind::NotFound, what));
    match catalog.find(name).filter(|object| !object.deleted) {
        Some(found) if found.is_volume() => Ok(found),
        Some(_) => none(format!("{name} is a group, not a volume")),
        None => none(format!("no volume is called {name}")),
    }
}

pub(super) fn check_new_name(catalog: &Catalog, name: &str) -> Result<()> {
    check_name(name).map_err(invalid)?;
    match catalog.find(name) {
        Some(found) => {
            let what = if found.is_group() { "group" } else { "volume" };
            Err(Error::new(Kind::Exists, format!("a {what} is called {name} already")))
        }
        None => Ok(()),
    }
}

/// The view of a volume or a group to be made.
pub(super) fn new_view(catalog: &Catalog, most: usize) -> Result<View> {
    new_views(catalog, 1, most).map(|views| View::new(views.start))
}

/// The views of so many objects to be made.
pub(super) fn new_views(catalog: &Catalog, many: usize, most: usize) -> Result<Range<u32>> {
    if catalog.len() + many > most {
        let what =
            format!("a pool with drives of this size has at most {most} volumes and snapshots");
        return Err(Error::new(Kind::Full, what));
    }
    let first = catalog.next_view();
    let end = first.checked_add(stdx::num::u32_of(many));
    let end = end.filter(|end| *end <= View::SHARED.get());
    let none = || Error::new(Kind::Full, "the pool had as many volumes as it ever can");
    Ok(first..end.ok_or_else(none)?)
}

/// An edit that changes a volume.
fn changed(catalog: &Catalog, volume: Object) -> Edit {
    catalog.edit(vec![Record::Put(volume)])
}

impl Pool {
    pub(super) fn check_open(&self) -> Result<()> {
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        Ok(())
    }

    /// The turn of one change of the volumes.
    pub(super) async fn turn(&self) -> Result<Held<'_>> {
        self.check_open()?;
        let turn = self.0.changing.hold(1).await;
        // It may have been closed meanwhile.
        self.check_open()?;
        Ok(turn)
    }

    /// Somebody has that turn: whoever calls what is only done within it.
    pub(super) fn assert_turn(&self) {
        assert_eq!(self.0.changing.available(), 0, "who changes volumes has the turn");
    }

    pub(super) fn end_of(bytes: u64) -> u64 {
        bytes / stdx::num::u64_of(BLOCK)
    }

    /// Makes holes of a view's blocks in all shards, for good.
    pub(super) async fn drop_blocks(&self, view: View, first: u64, end: u64) -> Result<()> {
        // A shard has no blocks of the others, so a hole over theirs does nothing there.
        let take = move |shard: Rc<Shard>| async move {
            shard.front.drop_blocks(view, first, end - first).await
        };
        self.each(take).await.map(drop)
    }

    /// Gives back what no volume has any more: the log that took it away may be lost, and the catalog
    /// has forgotten those volumes, or how large they were.
    pub(super) async fn free_orphans(&self) -> Result<()> {
        let ends = self.0.common.superblock.catalog(|catalog| {
            let volumes = catalog.objects().filter(|of| of.is_volume());
            // What is deleted has nothing of its own any more; what others see of it is older, and stays.
            let has = |of: &Object| if of.deleted { 0 } else { of.bytes };
            let ends = volumes.map(|volume| (volume.view, Self::end_of(has(volume))));
            ends.collect::<BTreeMap<View, u64>>()
        });
        let ends = Arc::new(ends);
        let free = move |shard: Rc<Shard>| {
            let ends = Arc::clone(&ends);
            async move {
                for view in shard.front.orphans(&ends).await? {
                    let (end, rest) = (ends.get(&view).copied(), Self::end_of(VOLUME_BYTES_MAX));
                    let first = end.unwrap_or(0);
                    if end.is_none() {
                        // Nobody knows any more how many snapshots that one had: the hole is newer than all of it.
                        shard.base.log.set_version(view, Version::LAST);
                    }
                    shard.front.drop_blocks(view, first, rest - first).await?;
                    if end.is_none() {
                        shard.base.log.set_version(view, Version::FIRST);
                    }
                }
                Ok(())
            }
        };
        self.each(free).await.map(drop)
    }

    /// Takes over the volumes the catalog has, and ends what was begun with them before a crash.
    pub(super) async fn adopt_volumes(&self) -> Result<()> {
        // What finds no room is ended behind this, and not beside it.
        let _turn = self.turn().await?;
        self.or_later(self.end_deletions().await)?;
        let objects = self
            .0
            .common
            .superblock
            .catalog(|catalog| catalog.objects().cloned().collect::<Vec<Object>>());
        let lineages = Lineages::of(&objects);
        objects.iter().for_each(|object| self.adopt_group_quota(object));
        for object in &objects {
            if object.kind == catalog::Kind::Snapshot {
                if let (Some(view), Some(sees)) = (object.parent, object.sees()) {
                    self.adopt_snapshot(object, view, sees);
                }
                continue;
            }
            if object.is_group() {
                continue;
            }
            if object.deleted && object.bytes.max(object.shrunk_from) == 0 {
                // Clones, or a snapshot that a rollback kept, see what it had; it has nothing of its own any more.
                continue;
            }
            if object.deleted {
                let done = self.finish_delete(object.view, object.bytes.max(object.shrunk_from));
                self.or_later(done.await)?;
                continue;
            }
            let state = self.adopt_volume(object, lineages.of_volume(object));
            self.adopt_reservation(object, &state);
            if object.shrunk_from > object.bytes {
                self.or_later(self.finish_shrink(&object.name).await)?;
            }
        }
        self.count_snapshots();
        Ok(())
    }

    /// The last step of what the catalog has for good by now: where it finds no room it is done behind this once there is
    /// some, or by the next opening, and has not failed.
    pub(super) fn or_later(&self, done: Result<()>) -> Result<()> {
        if !done.as_ref().is_err_and(Error::may_pass) {
            return done;
        }
        if self.0.ending.replace(true) {
            return Ok(());
        }
        let weak = Rc::downgrade(&self.0);
        reactor::spawn(async move {
            loop {
                reactor::sleep(ANEW_PAUSE).await;
                let Some(pool) = weak.upgrade().map(Pool) else { return };
                let Ok(_turn) = pool.turn().await else { return };
                if !pool.end_changes().await.is_err_and(|error| error.may_pass()) {
                    pool.0.ending.set(false);
                    return;
                }
            }
        });
        Ok(())
    }

    /// Ends what was begun with volumes and snapshots, within a [turn](Self::turn).
    async fn end_changes(&self) -> Result<()> {
        self.end_deletions().await?;
        let is_begun = |of: &&Object| match of.deleted {
            true => of.bytes.max(of.shrunk_from) > 0,
            false => of.is_volume() && of.shrunk_from > of.bytes,
        };
        let begun = |catalog: &Catalog| catalog.objects().filter(is_begun).cloned().collect();
        let begun: Vec<Object> = self.0.common.superblock.catalog(begun);
        for object in begun {
            // The end of one may end another: a deletion done twice is of another version the second time.
            let is_begun =
                |catalog: &Catalog| catalog.get(object.view).is_some_and(|of| is_begun(&of));
            if !self.0.common.superblock.catalog(is_begun) {
                continue;
            }
            if object.deleted {
                self.finish_delete(object.view, object.bytes.max(object.shrunk_from)).await?;
            } else {
                self.finish_shrink(&object.name).await?;
            }
        }
        Ok(())
    }

    /// A volume can be used from now on.
    pub(super) fn adopt_volume(&self, volume: &Object, lineage: Lineage) -> Arc<State> {
        let common = &self.0.common;
        let of = |catalog: &Catalog| State::of(volume, lineage, catalog);
        let state = Arc::new(common.superblock.catalog(of));
        common.used.add(Arc::clone(&state));
        self.adopt_quota(volume, &state);
        self.0.volumes.borrow_mut().insert(volume.name.to_string(), Arc::clone(&state));
        if volume.detaching {
            self.go_on_detaching(volume.view);
        }
        state
    }

    /// The names of all volumes, in order.
    #[must_use]
    pub fn volumes(&self) -> Vec<String> {
        self.0.volumes.borrow().keys().cloned().collect()
    }

    /// An open volume.
    ///
    /// # Errors
    /// `NotFound`; `Gone` when the pool was closed.
    pub fn volume(&self, name: &str) -> Result<Volume> {
        self.check_open()?;
        let volumes = self.0.volumes.borrow();
        let none = || Error::new(Kind::NotFound, format!("no volume is called {name}"));
        let state = Arc::clone(volumes.get(name).ok_or_else(none)?);
        Ok(Volume::new(Arc::clone(&self.0.handles), state, &self.0.common))
    }

    /// Makes a volume, which takes no space until it is written to.
    ///
    /// # Errors
    /// `Invalid` for a name or size that cannot be, `Exists`, `Full` when there are too many volumes,
    /// `Failed` when too many drives failed.
    pub async fn create_volume(&self, spec: VolumeSpec) -> Result<Volume> {
        check_size(spec.bytes)?;
        spec.quota.map_or(Ok(()), check_quota)?;
        spec.reservation.map_or(Ok(()), |of| check_reservation(of, spec.bytes))?;
        if !matches!(spec.block_size, 512 | 4096) {
            return Err(invalid("a volume's block has 512 or 4096 bytes"));
        }
        let _turn = self.turn().await?;
        let most = self.0.common.superblock.objects_max();
        let kept = self.keep_for_new(&spec.name, spec.reservation, spec.bytes).await?;
        let add = |catalog: &Catalog| {
            check_new_name(catalog, &spec.name)?;
            let view = new_view(catalog, most)?;
            let VolumeSpec { name, id, bytes, block_size, quota, reservation } = &spec;
            let volume = Object::volume(view, name, *id, *bytes, *block_size);
            let (quota, reservation) = (quota.unwrap_or(0), *reservation);
            let volume = Object { quota, reservation, ..volume };
            let records = vec![Record::Put(volume.clone())];
            Ok((Edit { next_view: view.get() + 1, records }, volume))
        };
        let volume = self.end_keeping(
            std::slice::from_ref(&kept),
            self.0.common.superblock.change_catalog(add).await,
        )?;
        let state = self.adopt_volume(&volume, Lineage::default());
        self.set_reserve(&state, kept);
        state.set_occupied(Occupied { inherited: Some(0), ..Occupied::default() });
        self.0.common.quotas.note_empty(state.view);
        self.volume(&spec.name)
    }

    /// Deletes a volume, which leaves its group. Its space comes back behind that, but for what clones of it see: that
    /// stays for them.
    ///
    /// # Errors
    /// `NotFound`, `Busy` while it has snapshots, and `Failed` when the log or too many drives failed.
    pub async fn delete_volume(&self, name: &str) -> Result<()> {
        let _turn = self.turn().await?;
        self.end_windows_of(&[name]).await?;
        let mark = |catalog: &Catalog| {
            let volume = Object {
                deleted: true,
                detaching: false,
                group: None,
                quota: 0,
                reservation: None,
                ..find(catalog, name)?.clone()
            };
            let snapshots = catalog.snapshots_of(volume.view).count();
            if snapshots > 0 {
                let what = format!("volume {name} has {snapshots} snapshots: delete those first");
                return Err(Error::new(Kind::Busy, what));
            }
            let gone = (volume.view, volume.bytes.max(volume.shrunk_from));
            Ok((changed(catalog, volume), gone))
        };
        let superblock = &self.0.common.superblock;
        let marked = self.or_taken_back(superblock.change_catalog(mark).await).await;
        if marked.is_err()
            && superblock.may_find_failed()
            && let Some(state) = self.0.volumes.borrow().get(name)
        {
            // What the next opening may take away is not written to.
            state.close();
        }
        let (view, bytes) = marked?;
        let gone = self.0.volumes.borrow_mut().remove(name);
        if let Some(state) = gone {
            state.close();
            self.0.common.used.remove(&state);
            self.end_reserve(view);
            self.0.common.quotas.remove(view);
            self.look_at_quotas().await?;
            // Others may have that as well: then nothing is found.
            let inherited = state.inherited().unwrap_or(0);
            self.0.common.snapshots.note_freed(Self::end_of(inherited));
        }
        self.or_later(self.finish_delete(view, bytes).await)
    }

    /// A change of the catalog that failed may be on some drives, and an opening would find it done: it is taken back before
    /// anybody goes on as if it had never been.
    pub(super) async fn or_taken_back<T>(&self, changed: Result<T>) -> Result<T> {
        if changed.is_err() {
            self.0.common.superblock.taken_back(|| self.0.closed.get()).await;
        }
        changed
    }

    pub(super) async fn finish_delete(&self, view: View, bytes: u64) -> Result<()> {
        // Once the hole is in the log it is durable, and the name can go.
        let end = Self::end_of(bytes);
        if end > 0 {
            self.drop_blocks(view, 0, end).await?;
        }
        let drop = |catalog: &Catalog| {
            let Some(volume) = catalog.get(view) else { return Ok((catalog.edit(vec![]), vec![])) };
            if catalog.needing(view) > 0 {
                // Clones see what it had. The group that it was rolled back in has what hosts see, and not this.
                let unseen = Object { bytes: 0, shrunk_from: 0, group: None, ..volume.clone() };
                return Ok((changed(catalog, unseen), vec![]));
            }
            let (records, loose) = Removal::of(catalog).remove(&[view]).end();
            Ok((catalog.edit(records), loose))
        };
        let common = &self.0.common;
        let loose = common.superblock.change_catalog(drop).await?;
        self.forget_clones(&loose);
        // Only now was that hole the last that is written there: done again it may not cover what a snapshot sees.
        let forget = move |shard: Rc<Shard>| async move {
            shard.base.log.set_version(view, Version::FIRST);
            Ok(())
        };
        if end > 0 {
            self.each(forget).await?;
        }
        Ok(())
    }

    /// Nothing is asked for again of what these views inherit, if they were clones'.
    pub(super) fn forget_clones(&self, loose: &[View]) {
        let common = &self.0.common;
        for view in loose {
            if common.snapshots.is_clone(*view) {
                common.snapshots.remove_clone(*view);
                common.used.note_change();
            }
        }
        self.count_snapshots();
    }

    /// Changes a volume's size. What lies beyond a smaller one is gone for good.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a size that cannot be, `Failed` when the log or too many drives
    /// failed.
    pub async fn resize_volume(&self, name: &str, bytes: u64) -> Result<()> {
        check_size(bytes)?;
        let _turn = self.turn().await?;
        self.end_windows_of(&[name]).await?;
        let volume = self.volume(name)?;
        let change = |catalog: &Catalog| {
            let volume = find(catalog, name)?.clone();
            // What an earlier one has not given back yet is not forgotten.
            let shrunk_from = volume.shrunk_from.max(volume.bytes).max(bytes);
            Ok((changed(catalog, Object { bytes, shrunk_from, ..volume }), ()))
        };
        let before = volume.len();
        if bytes > before {
            // Whatever was still on its way beyond the old size when it was made smaller.
            let (view, from, to) = (volume.state.view, Self::end_of(before), Self::end_of(bytes));
            if !canary::skips(Step::GrowTakesAway) {
                self.drop_blocks(view, from, to).await?;
            }
        }
        self.reserve_for_size(name, &volume.state, before.max(bytes)).await?;
        // Writers stay inside the smaller size from here on.
        volume.state.set_bytes(before.min(bytes));
        let superblock = &self.0.common.superblock;
        let changed = superblock.change_catalog(change).await;
        let changed = if bytes < before { self.or_taken_back(changed).await } else { changed };
        // What the next opening may cut off is not written to.
        let may_be_cut = bytes < before && superblock.may_find_failed();
        volume.state.set_bytes(if changed.is_ok() || may_be_cut { bytes } else { before });
        if changed.is_ok() && bytes < before {
            self.or_later(self.finish_shrink(name).await)?;
        }
        if changed.is_err() {
            // As it was.
            self.keep_for_less(name, &volume.state).await;
        }
        changed
    }

    /// Less is kept for a volume that has become smaller, once what was cut off is gone, and for one that stayed as it was.
    async fn keep_for_less(&self, name: &str, state: &State) {
        let kept = self.reserve_for_size(name, state, state.bytes()).await;
        assert!(kept.is_ok(), "what is kept already is enough for less");
    }

    /// What was cut off of these volumes is gone before snapshots are taken of them, which would keep it, unseen by anybody.
    /// Within a [turn](Self::turn).
    ///
    /// # Errors
    /// `Full` or `Busy` where there is no room for that now, `Failed` when the log or too many drives failed.
    pub(super) async fn finish_shrinks(&self, names: &[&str]) -> Result<()> {
        self.assert_turn();
        for name in names {
            let is_begun = |of: &Object| of.shrunk_from > of.bytes;
            let has_begun = |catalog: &Catalog| find(catalog, name).is_ok_and(is_begun);
            if self.0.common.superblock.catalog(has_begun) {
                self.finish_shrink(name).await?;
            }
        }
        Ok(())
    }

    async fn finish_shrink(&self, name: &str) -> Result<()> {
        let (view, from, to) = self.0.common.superblock.catalog(|catalog| {
            find(catalog, name).map(|volume| (volume.view, volume.bytes, volume.shrunk_from))
        })?;
        self.drop_blocks(view, Self::end_of(from), Self::end_of(to)).await?;
        let done = |catalog: &Catalog| {
            let volume = find(catalog, name)?.clone();
            let shrunk_from = volume.bytes;
            Ok((changed(catalog, Object { shrunk_from, ..volume }), ()))
        };
        self.0.common.superblock.change_catalog(done).await?;
        // Not before: what was cut off counted as had, and what is kept would have been less than what is still to come.
        if let Ok(volume) = self.volume(name) {
            self.keep_for_less(name, &volume.state).await;
        }
        Ok(())
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`, and `Failed` when too many drives failed.
    pub async fn rename_volume(&self, name: &str, to: &str) -> Result<()> {
        let _turn = self.turn().await?;
        let change = |catalog: &Catalog| {
            check_new_name(catalog, to)?;
            let volume = Object { name: to.into(), ..find(catalog, name)?.clone() };
            Ok((changed(catalog, volume), ()))
        };
        self.or_taken_back(self.0.common.superblock.change_catalog(change).await).await?;
        let mut volumes = self.0.volumes.borrow_mut();
        if let Some(state) = volumes.remove(name) {
            to.clone_into(&mut state.name.lock());
            volumes.insert(to.to_owned(), state);
        }
        Ok(())
    }
}
