//! What the management API asks of snapshots.

use std::collections::BTreeMap;

use api::v1::{
    ChangedExtent, Consent, Kind, Losses, Mapping, NewSnapshots, Severity, Snapshot,
    SnapshotChanges, VolumeState,
};
use api::value::{Backend, Name, Size, SnapshotPath, VolumePath};
use uuid::Uuid;

use super::Node;
use super::volumes::state_of;
use crate::jobs::Task;
use crate::losses::check_meant;
use crate::{Error, Result, pools};

/// Snapshots, or volumes, that an event names; more are counted.
pub(super) const NAMED: usize = 8;

impl Node {
    /// The snapshots of the pools that are open, those of a volume the oldest first, and those that are mapped of other
    /// pools; by pool and volume. Of one pool, or one volume, if one is named.
    ///
    /// # Errors
    /// `NotFound` without that pool or volume, `Stopping`.
    pub fn snapshots(
        &self,
        of_pool: Option<&Name>,
        of_volume: Option<&VolumePath>,
    ) -> Result<Vec<Snapshot>> {
        let is_of = |of: &VolumePath| {
            of_pool.is_none_or(|pool| of.pool == *pool) && of_volume.is_none_or(|is| is == of)
        };
        let is_pool = |name: &Name| {
            of_pool.into_iter().chain(of_volume.map(|of| &of.pool)).all(|pool| pool == name)
        };
        let view = self.view();
        let pools = &view.serving()?.pools;
        if let Some(pool) = of_pool.or(of_volume.map(|of| &of.pool)) {
            pools.show(pool)?;
        }
        if let Some(of) = of_volume
            && let Ok(pool) = pools.pool(&of.pool)
        {
            pool.volume(&of.volume)?;
        }
        let mut snapshots = Vec::new();
        // Of thousands, each is not looked for among all.
        let mut mappings: BTreeMap<_, _> = view.state.mappings().collect();
        for pool in pools.open_pools().filter(|pool| is_pool(pool.name())) {
            for (volume, snapshot) in pool.snapshots(of_volume.map(|of| &of.volume)) {
                let volume = VolumePath { pool: pool.name().clone(), volume };
                let path = SnapshotPath { volume, snapshot: snapshot.name.clone() };
                let mapping = mappings.remove(&Backend::Snapshot(path.clone()));
                snapshots.push(document(path, &snapshot, mapping));
            }
        }
        let closed = view.seen_closed()?.filter_map(|seen| {
            let Backend::Snapshot(path) = seen.backend else { return None };
            if !is_of(&path.volume) {
                return None;
            }
            Some(Snapshot {
                name: path,
                id: seen.id,
                size: Size::new(seen.bytes),
                block_size: seen.block_size,
                referenced: None,
                unique: None,
                shared: None,
                created_ms: None,
                mapping: Some(seen.mapping),
                state: VolumeState::Inaccessible,
            })
        });
        snapshots.extend(closed);
        snapshots.sort_by(|one, other| one.name.volume.cmp(&other.name.volume));
        Ok(snapshots)
    }

    /// One snapshot.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while its pool is not open.
    pub fn snapshot(&self, path: &SnapshotPath) -> Result<Snapshot> {
        let view = self.view();
        let snapshot = view.serving()?.pools.snapshot(path)?;
        let mapping = view.mapping(&Backend::Snapshot(path.clone()));
        Ok(document(path.clone(), &snapshot, mapping))
    }

    /// What a snapshot has otherwise than an older one of its volume, or all that it has without one: from a byte on, so
    /// many extents at most.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` where the one is not older, `Conflict` while nothing leaves the commit log, `Failed`.
    pub fn snapshot_changes(
        &self,
        path: &SnapshotPath,
        from: Option<&Name>,
        start: u64,
        most: usize,
    ) -> Result<SnapshotChanges> {
        let open = self.open_pool_named(&path.volume.pool)?;
        let of = &path.volume.volume;
        let found = open.changes(of, from, &path.snapshot, start, most)?;
        let extent = |extent: &engine::ChangedExtent| ChangedExtent {
            offset: extent.offset,
            bytes: extent.bytes,
            data: extent.has_data,
        };
        let extents = found.extents.iter().map(extent).collect();
        Ok(SnapshotChanges { extents, next: found.next })
    }

    /// Takes snapshots, all at one instant.
    ///
    /// # Errors
    /// `Invalid` for none, for several pools or for a volume named twice, `NotFound` without the volume, `Conflict` for a
    /// name that is taken, `Limit` when there are too many, `Failed`.
    pub fn take_snapshots(&self, new: &NewSnapshots) -> Result<Vec<Snapshot>> {
        let (pool, names) = of_one_pool(&new.names)?;
        {
            let _turn = self.turn(&pool, &Task::default())?;
            let open = self.open_pool_named(&pool)?;
            open.take_snapshots(&names).map_err(|error| match error.kind {
                Kind::Conflict => error
                    .help("choose another name: `flashloom snapshot list` shows those there are"),
                Kind::Limit => error.help("delete snapshots that are not needed any more"),
                _ => error,
            })?;
        }
        self.events.record(Severity::Info, format!("{} taken", words(&new.names)));
        new.names.iter().map(|path| self.snapshot(path)).collect()
    }

    pub(super) fn losses_of_snapshot(&self, path: &SnapshotPath) -> Result<Losses> {
        let view = self.view();
        view.check_not_mapped(&Backend::Snapshot(path.clone()))?;
        let of = &path.volume;
        let pool = view.serving()?.pools.pool(&of.pool)?;
        let snapshot = pool.snapshot(&of.volume, &path.snapshot)?;
        let kept = match pool.is_cloned(&snapshot.volume) {
            true => "; clones keep what they have of it",
            false => "",
        };
        let loss =
            format!("snapshot {path} would be lost: volume {of} as it was when it was taken{kept}");
        Ok(Losses { losses: vec![loss] })
    }

    /// Deletes a snapshot, and gives what is lost. The space of what it alone had comes back behind that.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is mapped or where that is not meant, `Failed`.
    pub fn delete_snapshot(&self, path: &SnapshotPath, consent: Consent) -> Result<Losses> {
        if consent.dry_run {
            return self.losses_of_snapshot(path);
        }
        let _turn = self.turn(&path.volume.pool, &Task::default())?;
        let losses = self.losses_of_snapshot(path)?;
        check_meant(&losses, consent.force)?;
        let open = self.open_pool_named(&path.volume.pool)?;
        open.delete_snapshots(&[(path.volume.volume.clone(), path.snapshot.clone())])?;
        self.events.record(Severity::Info, format!("snapshot {path} deleted"));
        Ok(losses)
    }
}

/// The pool of snapshots that are to be taken at one instant, and by volume what they are called and known by.
fn of_one_pool(paths: &[SnapshotPath]) -> Result<(Name, pools::NewNames)> {
    let right = "name a snapshot for each volume: POOL/VOLUME@NAME, all of one pool";
    let invalid = |what: String| Error::new(Kind::Invalid, what).help(right);
    let first = paths.first().ok_or_else(|| invalid("no snapshot is named".to_owned()))?;
    let pool = first.volume.pool.clone();
    let mut names = BTreeMap::new();
    for SnapshotPath { volume, snapshot } in paths {
        if volume.pool != pool {
            let what = format!("{} and {volume} are of two pools", first.volume);
            return Err(invalid(format!("{what}, which have no instant in common")));
        }
        let new = (snapshot.clone(), Uuid::new_v4());
        if names.insert(volume.volume.clone(), new).is_some() {
            return Err(invalid(format!("volume {volume} is named twice")));
        }
    }
    Ok((pool, names))
}

/// Snapshots, in words.
pub(super) fn words(paths: &[SnapshotPath]) -> String {
    let named: Vec<_> = paths.iter().take(NAMED).map(ToString::to_string).collect();
    let (noun, named) = (if paths.len() == 1 { "snapshot" } else { "snapshots" }, named.join(", "));
    match paths.len().saturating_sub(NAMED) {
        0 => format!("{noun} {named}"),
        more => format!("{noun} {named} and {more} more"),
    }
}

fn document(path: SnapshotPath, of: &pools::Snapshot, mapping: Option<Mapping>) -> Snapshot {
    let (referenced, unique) = (of.volume.used(), of.volume.unique());
    // Both are of one count, but are not read at one instant.
    let shared = referenced.zip(unique).map(|(all, own)| all.saturating_sub(own));
    Snapshot {
        name: path,
        id: Uuid::from_bytes(of.volume.id()),
        size: Size::new(of.volume.len()),
        block_size: of.volume.block_size(),
        referenced: referenced.map(Size::new),
        unique: unique.map(Size::new),
        shared: shared.map(Size::new),
        created_ms: Some(of.created.saturating_mul(1000)),
        mapping,
        state: state_of(&of.volume),
    }
}
