//! Snapshots of volumes: taken of several at one instant, listed, read, deleted (decision 0026).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use reactor::join_all;
use stdx::num::usize32;

use super::Pool;
use super::reservations::Paused;
use super::volumes::{find, invalid};
use crate::address::{Version, View};
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{self, Catalog, EDIT_PAGES_MAX, Edit, Object, RECORDS, Record};
use crate::format::check_name;
use crate::limits::{SNAPSHOTS_AT_ONCE, VERSIONS_SEEN_MAX};
use crate::shard::{Shard, Taken};
use crate::snapshots::Snapshots;
use crate::volume::Volume;
use crate::volume::state::State;

/// A snapshot to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSpec {
    /// The volume that it is of.
    pub volume: String,
    /// Its name among the snapshots of that volume.
    pub name: String,
    /// What identifies it for ever; drawn at random.
    pub id: [u8; 16],
    /// Seconds since 1970.
    pub created: u64,
}

/// A snapshot there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotStatus {
    pub name: String,
    pub id: [u8; 16],
    /// Size in bytes, as its volume had it.
    pub bytes: u64,
    /// When it was taken, in seconds since 1970.
    pub created: u64,
    /// Bytes of contents that it sees, also where others see them. As of a few seconds ago, longer where there is much to
    /// count; `None` until it was counted for the first time, since it was taken or its pool was opened.
    pub referenced: Option<u64>,
    /// Of those, what neither hosts nor another snapshot sees: what comes back when it alone is deleted, if it is not copied
    /// by reference elsewhere. As of the same count: what others hold together is the unique part of the last one only once
    /// the deletion of the others was counted.
    pub unique: Option<u64>,
}

impl SnapshotStatus {
    fn of(snapshot: &Object, states: &BTreeMap<View, Arc<State>>) -> Self {
        let state = states.get(&snapshot.view);
        Self {
            name: snapshot.name.to_string(),
            id: snapshot.id,
            bytes: snapshot.bytes,
            created: snapshot.created,
            referenced: state.and_then(|state| state.used()),
            unique: state.and_then(|state| state.unique()),
        }
    }
}

const _: () = assert!(2 * SNAPSHOTS_AT_ONCE <= usize32(EDIT_PAGES_MAX) * RECORDS);

/// Snapshots that were taken: their records, and which versions they see.
type Made = Vec<(Object, Taken)>;

/// A snapshot of a volume.
pub(super) fn find_snapshot<'a>(
    catalog: &'a Catalog,
    volume: &str,
    name: &str,
) -> Result<&'a Object> {
    let found = catalog.find_snapshot(find(catalog, volume)?.view, name);
    let none = || Error::new(Kind::NotFound, format!("no snapshot is called {volume}@{name}"));
    found.ok_or_else(none)
}

/// A snapshot that gets this view, and what its volume is once it was taken.
pub(super) fn snapshot_to_take(
    catalog: &Catalog,
    spec: &SnapshotSpec,
    view: Option<u32>,
    snapshots: &Snapshots,
) -> Result<(Object, (Object, Taken))> {
    let SnapshotSpec { volume, name, id, created } = spec;
    let of = find(catalog, volume)?;
    check_name(name).map_err(invalid)?;
    if catalog.find_snapshot(of.view, name).is_some() {
        let what = format!("a snapshot is called {volume}@{name} already");
        return Err(Error::new(Kind::Exists, what));
    }
    if snapshots.versions_seen(of.view) >= VERSIONS_SEEN_MAX {
        let what = format!(
            "volume {volume} has {VERSIONS_SEEN_MAX} snapshots, with those that only clones need, as many as a volume can have: delete some first"
        );
        return Err(Error::new(Kind::Full, what));
    }
    let view = view.map(View::new).filter(|view| !view.is_shared());
    let next = of.version().get().checked_add(1).and_then(Version::new);
    let next = next.filter(|next| *next < Version::LAST);
    let (Some(view), Some(next)) = (view, next) else {
        let what = format!("volume {volume}, or its pool, had as many snapshots as it ever can");
        return Err(Error::new(Kind::Full, what));
    };
    let epoch = of.epoch + 1;
    let snapshot = Object {
        kind: catalog::Kind::Snapshot,
        parent: Some(of.view),
        parent_epoch: epoch,
        placement: of.placement,
        created: *created,
        ..Object::volume(view, name, *id, of.bytes, of.block_size)
    };
    let taken = Taken { view: of.view, sees: of.version(), next };
    Ok((Object { epoch, ..of.clone() }, (snapshot, taken)))
}

/// The edit that takes snapshots.
fn edit_to_take(
    catalog: &Catalog,
    specs: &[SnapshotSpec],
    most: usize,
    snapshots: &Snapshots,
) -> Result<(Edit, Made)> {
    let mut volumes = BTreeSet::new();
    let (mut records, mut made) = (Vec::new(), Vec::new());
    if specs.len() > SNAPSHOTS_AT_ONCE {
        let many = specs.len();
        return Err(invalid(format!(
            "at most {SNAPSHOTS_AT_ONCE} snapshots are taken at one instant, not {many}: take them in parts"
        )));
    }
    if catalog.len() + specs.len() > most {
        let what =
            format!("a pool with drives of this size has at most {most} volumes and snapshots");
        return Err(Error::new(Kind::Full, what));
    }
    for (n, spec) in (0..).zip(specs) {
        let view = catalog.next_view().checked_add(n);
        let (of, (snapshot, taken)) = snapshot_to_take(catalog, spec, view, snapshots)?;
        if !volumes.insert(of.view) {
            return Err(invalid(format!("volume {} is named twice", spec.volume)));
        }
        records.push(Record::Put(of));
        records.push(Record::Put(snapshot.clone()));
        made.push((snapshot, taken));
    }
    let next_view = catalog.next_view() + stdx::num::u32_of(specs.len());
    Ok((Edit { next_view, records }, made))
}

impl Pool {
    /// Takes a snapshot of each of some volumes, all at one instant: whatever was acknowledged before something else was
    /// begun is in its volume's snapshot if that is in its own. Copies nothing; hosts' writes are held back for a moment.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid` for names that cannot be, `Full` when there are too many, or no room for what a volume
    /// has reserved: hosts overwrite nothing any more then; `Failed` when the log or too many drives failed.
    pub async fn take_snapshots(&self, specs: Vec<SnapshotSpec>) -> Result<()> {
        // To its end, also where nobody waits for it any more: hosts wait in the midst of it.
        let pool = self.clone();
        let taking = reactor::spawn(async move {
            let _turn = pool.turn().await?;
            pool.take_each(&specs).await
        });
        taking.await.unwrap_or_else(|| Err(Error::new(Kind::Gone, "the reactor has stopped")))
    }

    /// Within a [turn](Self::turn).
    pub(super) async fn take_each(&self, specs: &[SnapshotSpec]) -> Result<()> {
        self.assert_turn();
        let common = &self.0.common;
        // Whatever a host was told is complete before one of them is taken is in it.
        let names: Vec<&str> = specs.iter().map(|spec| spec.volume.as_str()).collect();
        if !canary::has(Canary::SnapshotsPastWindow) {
            self.end_windows_of(&names).await?;
        }
        self.finish_shrinks(&names).await?;
        let most = common.superblock.objects_max();
        let volumes: Vec<_> = names.iter().filter_map(|name| self.volume(name).ok()).collect();
        let states = volumes.iter().map(|volume| (&*volume.state, volume.len()));
        let paused = self.pause_reserved(states).await?;
        let take = |catalog: &Catalog| edit_to_take(catalog, specs, most, &common.snapshots);
        let made = common.superblock.change_catalog(take).await?;
        // Before anything is written that would replace what they see.
        for (_, Taken { view, sees, .. }) in &made {
            common.snapshots.add(*view, *sees);
        }
        let taken: Arc<[Taken]> = made.iter().map(|(_, taken)| *taken).collect();
        if let Err(error) = self.take_versions(taken).await {
            self.forget(&made).await?;
            return Err(error);
        }
        for (snapshot, taken) in made {
            self.adopt_snapshot(&snapshot, taken.view, taken.sees);
        }
        // What is counted from then on knows of them.
        paused.into_iter().for_each(Paused::end_shared);
        self.count_snapshots();
        Ok(())
    }

    /// Has all shards write in the next versions, at one instant, and waits for what they began to write before.
    pub(super) async fn take_versions(&self, taken: Arc<[Taken]>) -> Result<()> {
        let pause = |shard: Rc<Shard>| async move {
            shard.front.pause_records();
            Ok(())
        };
        let paused = self.each(pause).await;
        // In any case: nobody else has them go on.
        let next = Arc::clone(&taken);
        let take = move |shard: Rc<Shard>| {
            let next = Arc::clone(&next);
            async move {
                shard.front.take_versions(&next);
                Ok(())
            }
        };
        let took = self.each(take).await;
        paused?;
        took?;
        let settle = move |shard: Rc<Shard>| {
            let taken = Arc::clone(&taken);
            async move {
                shard.front.settle_versions(&taken).await;
                Ok(())
            }
        };
        self.each(settle).await.map(drop)
    }

    /// Removes snapshots from the catalog, and what they alone saw with them.
    async fn forget(&self, snapshots: &[(Object, Taken)]) -> Result<()> {
        let common = &self.0.common;
        let drop = |catalog: &Catalog| {
            let records = snapshots.iter().map(|(snapshot, _)| Record::Remove(snapshot.view));
            Ok((catalog.edit(records.collect()), ()))
        };
        common.superblock.change_catalog(drop).await?;
        for (_, Taken { view, sees, .. }) in snapshots {
            common.snapshots.remove(*view, *sees);
        }
        Ok(())
    }

    /// A snapshot can be read from now on.
    pub(super) fn adopt_snapshot(&self, snapshot: &Object, view: View, sees: Version) {
        let of = |catalog: &Catalog| State::of_snapshot(snapshot, view, sees, catalog);
        let state = Arc::new(self.0.common.superblock.catalog(of));
        self.0.common.used.add(Arc::clone(&state));
        self.0.snapshots.borrow_mut().insert(snapshot.view, state);
    }

    /// Has the shards count anew what snapshots hold, without waiting for them. One that ended counts nothing any more.
    pub(super) fn count_snapshots(&self) {
        let handles = Arc::clone(&self.0.handles);
        let note = |shard: Rc<Shard>| async move {
            shard.counting.note_change();
            Ok(())
        };
        drop(reactor::spawn(async move {
            drop(join_all(handles.iter().map(|handle| handle.call(note))).await);
        }));
    }

    /// The snapshots of a volume, the oldest first.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn snapshots(&self, volume: &str) -> Result<Vec<SnapshotStatus>> {
        self.0.common.superblock.catalog(|catalog| {
            let of = find(catalog, volume)?.view;
            let mut all: Vec<&Object> = catalog.snapshots_of(of).collect();
            all.sort_by_key(|snapshot| (snapshot.parent, snapshot.parent_epoch));
            let states = self.0.snapshots.borrow();
            Ok(all.into_iter().map(|snapshot| SnapshotStatus::of(snapshot, &states)).collect())
        })
    }

    /// The snapshots of all volumes, each with the name of its volume; those of a volume, the oldest first.
    #[must_use]
    pub fn all_snapshots(&self) -> Vec<(String, SnapshotStatus)> {
        self.0.common.superblock.catalog(|catalog| {
            let is_snapshot = |object: &&Object| object.kind == catalog::Kind::Snapshot;
            let mut all: Vec<_> = catalog.objects().filter(is_snapshot).collect();
            all.sort_by_key(|snapshot| (snapshot.parent, snapshot.parent_epoch));
            let of = |snapshot: &Object| Some(catalog.volume_of(snapshot)?.name.to_string());
            let states = self.0.snapshots.borrow();
            let each =
                |snapshot: &Object| Some((of(snapshot)?, SnapshotStatus::of(snapshot, &states)));
            all.into_iter().filter_map(each).collect()
        })
    }

    /// A snapshot, to be read: whatever would change it is refused.
    ///
    /// # Errors
    /// `NotFound`; `Gone` when the pool was closed.
    pub fn snapshot(&self, volume: &str, name: &str) -> Result<Volume> {
        self.check_open()?;
        let find = |catalog: &Catalog| find_snapshot(catalog, volume, name).map(|found| found.view);
        let view = self.0.common.superblock.catalog(find)?;
        let state = self.0.snapshots.borrow().get(&view).cloned();
        let none = || Error::new(Kind::NotFound, format!("{volume}@{name} is being taken"));
        let state = state.ok_or_else(none)?;
        Ok(Volume::new(Arc::clone(&self.0.handles), state, &self.0.common))
    }
}
