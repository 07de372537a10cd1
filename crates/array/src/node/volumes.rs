//! What the management API asks of volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::v1::{
    Consent, Kind, Losses, Mapping, NewVolume, Severity, Volume, VolumeChange, VolumeState,
};
use api::value::{Backend, GroupPath, Name, Size, SnapshotPath, VolumePath};
use engine::Reservation;
use uuid::Uuid;

use super::Node;
use super::drive_openings::Opened;
use super::owner::Owned;
use crate::desired;
use crate::jobs::Task;
use crate::limits::NAMESPACE_DRAIN;
use crate::losses::check_meant;
use crate::pools::{Beside, Limits, OpenPool};
use crate::serving::drained;
use crate::{Error, Result};

impl Node {
    /// All volumes of the pools that are open, and those that are mapped of others, by pool and name.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        let view = self.view();
        let mut volumes = Vec::new();
        // Of thousands, each is not looked for among all.
        let mut mappings: BTreeMap<_, _> = view.state.mappings().collect();
        for pool in view.serving()?.pools.open_pools() {
            for (volume, is, beside) in pool.volumes() {
                let path = VolumePath { pool: pool.name().clone(), volume };
                let mapping = mappings.remove(&Backend::Volume(path.clone()));
                volumes.push(document(&path, &is, beside, mapping));
            }
        }
        let closed = view.seen_closed()?.filter_map(|seen| {
            let Backend::Volume(path) = seen.backend else { return None };
            Some(Volume {
                name: path,
                id: seen.id,
                size: Size::new(seen.bytes),
                used: None,
                inherited: None,
                detaching: None,
                held_by_snapshots: None,
                quota: None,
                quota_used: None,
                reserve: None,
                reserve_all: false,
                reserve_kept: None,
                block_size: seen.block_size,
                snapshots: None,
                origin: None,
                group: None,
                mapping: Some(seen.mapping),
                state: VolumeState::Inaccessible,
            })
        });
        volumes.extend(closed);
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(volumes)
    }

    /// One volume.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while its pool is not open.
    pub fn volume(&self, path: &VolumePath) -> Result<Volume> {
        let view = self.view();
        let pool = view.serving()?.pools.pool(&path.pool)?;
        let volume = pool.volume(&path.volume)?;
        let beside = pool.beside(&path.volume)?;
        let mapping = view.mapping(&Backend::Volume(path.clone()));
        Ok(document(path, &volume, beside, mapping))
    }

    /// Makes a volume, which takes no space until it is written to: an empty one, or a clone of a snapshot.
    ///
    /// # Errors
    /// `NotFound` without the pool or the snapshot, `Conflict` for a name that is taken, `Invalid`, `Limit` when there are
    /// too many, `Failed`.
    pub fn create_volume(&self, pool: &Name, new: &NewVolume) -> Result<Volume> {
        let path = self.make_volume(pool, new, &Task::default())?;
        self.volume(&path)
    }

    pub(super) fn make_volume(
        &self,
        pool: &Name,
        new: &NewVolume,
        task: &Task,
    ) -> Result<VolumePath> {
        check_new(pool, new)?;
        let path = VolumePath { pool: pool.clone(), volume: new.name.clone() };
        let turn = self.turn(pool, task)?;
        task.commit(0, 1, "makes it")?;
        let open = self.open_pool_named(pool)?;
        let size = new.size.map(Size::bytes);
        let quota = bound(new.quota).map(Size::bytes);
        let reservation = reservation(new.reserve, new.reserve_all).flatten();
        let limits = Limits { quota, reservation };
        let made = match &new.from {
            Some(SnapshotPath { volume, snapshot }) => {
                let from = (&volume.volume, snapshot);
                open.clone_volume(&new.name, from, size, new.block_size, limits)
            }
            None => {
                let block_size = new.block_size.unwrap_or(desired::BLOCK_SIZE);
                open.create_volume(&new.name, size.unwrap_or(0), block_size, limits)
            }
        };
        made.map_err(|error| open.help_with_name(&new.name, error))?;
        drop(turn);
        let of = new.from.as_ref().map(|from| format!(", a clone of {from}")).unwrap_or_default();
        self.events.record(Severity::Info, format!("volume {path} made{of}"));
        Ok(path)
    }

    /// Changes a volume's size or name; hosts that use it are told of the size.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a name that is taken, `Invalid`, `Failed`.
    pub fn change_volume(
        &self,
        path: &VolumePath,
        change: &VolumeChange,
        consent: Consent,
    ) -> Result<Volume> {
        let path = self.alter_volume(path, change, consent, &Task::default())?;
        self.volume(&path)
    }

    /// What such a change would lose.
    ///
    /// # Errors
    /// As the change, as far as it is known before.
    pub fn losses_of_change(&self, path: &VolumePath, change: &VolumeChange) -> Result<Losses> {
        let before = Size::new(self.open_pool_named(&path.pool)?.volume(&path.volume)?.len());
        let Some(after) = change.size else { return Ok(Losses::default()) };
        check_volume_size(after)?;
        let losses = (after < before)
            .then(|| format!("volume {path} has {before}: what lies beyond {after} would be lost"));
        Ok(Losses { losses: losses.into_iter().collect() })
    }

    /// What the deletion of a volume would lose.
    ///
    /// # Errors
    /// As the deletion, as far as it is known before.
    pub fn losses_of_deletion(&self, path: &VolumePath) -> Result<Losses> {
        self.view().check_not_mapped(&Backend::Volume(path.clone()))?;
        let pool = self.open_pool_named(&path.pool)?;
        let snapshots = pool.snapshots_of(&path.volume)?;
        if snapshots > 0 {
            let many =
                if snapshots == 1 { "a snapshot".into() } else { format!("{snapshots} snapshots") };
            let help = format!("delete them first: `flashloom snapshot list {path}` shows them");
            let what = format!("volume {path} has {many}");
            return Err(Error::new(Kind::Conflict, what).help(help));
        }
        let volume = pool.volume(&path.volume)?;
        let size = Size::new(volume.len());
        let loss = match pool.is_cloned(&volume) {
            true => {
                format!("volume {path} of {size} would be lost, and all it holds that no clone has")
            }
            false => format!("volume {path} of {size} and all it holds would be lost"),
        };
        Ok(Losses { losses: vec![loss] })
    }

    pub(super) fn alter_volume(
        &self,
        path: &VolumePath,
        change: &VolumeChange,
        consent: Consent,
        task: &Task,
    ) -> Result<VolumePath> {
        let mut path = path.clone();
        if let Some(size) = change.size {
            check_volume_size(size)?;
        }
        bound(change.quota).map_or(Ok(()), check_quota)?;
        check_reserve(change.reserve, change.reserve_all)?;
        let _turn = self.turn(&path.pool, task)?;
        if let Some(size) = change.size {
            task.commit(0, 4, "resizes it")?;
            check_meant(&self.losses_of_change(&path, change)?, consent.force)?;
            self.resize_volume(&path, size.bytes())?;
            self.events.record(Severity::Info, format!("volume {path} resized to {size}"));
        }
        if let Some(quota) = change.quota {
            task.commit(1, 4, "changes its quota")?;
            self.set_quota(&path, quota).map_err(|error| {
                let resized = change.size.map(|size| format!("has {size} now"));
                behind(error, &path, resized, "has the quota that it had")
            })?;
        }
        if let Some(of) = reservation(change.reserve, change.reserve_all) {
            task.commit(2, 4, "changes its reservation")?;
            self.set_reservation(&path, of).map_err(|error| {
                let resized = change.size.map(|size| format!("has {size} now"));
                let changed = resized.or(change.quota.map(|_| "has another quota now".to_owned()));
                behind(error, &path, changed, "has the reservation that it had")
            })?;
        }
        if let Some(name) = &change.name {
            task.commit(3, 4, "renames it")?;
            self.rename_volume(&path, name).map_err(|error| {
                let resized = change.size.map(|size| format!("has {size} now"));
                let changed = resized.or(change.quota.map(|_| "has another quota now".to_owned()));
                behind(error, &path, changed, "is not renamed")
            })?;
            self.events.record(Severity::Info, format!("volume {path} is now called {name}"));
            path.volume = name.clone();
        }
        Ok(path)
    }

    /// Gives a volume a quota; 0 takes it away.
    fn set_quota(&self, path: &VolumePath, quota: Size) -> Result<()> {
        let bytes = bound(Some(quota)).map(Size::bytes);
        self.open_pool_named(&path.pool)?.set_quota(&path.volume, bytes)?;
        let words = match bytes {
            Some(_) => format!("volume {path} and its snapshots may hold {quota}"),
            None => format!("volume {path} has no quota any more"),
        };
        self.events.record(Severity::Info, words);
        Ok(())
    }

    /// Gives a volume a reservation, another one, or none.
    fn set_reservation(&self, path: &VolumePath, of: Option<Reservation>) -> Result<()> {
        self.open_pool_named(&path.pool)?.set_reservation(&path.volume, of)?;
        let words = match of {
            Some(Reservation::Bytes(bytes)) => {
                format!("volume {path} has {} reserved", Size::new(bytes))
            }
            Some(Reservation::All) => format!("volume {path} has all of its size reserved"),
            None => format!("volume {path} has no reservation any more"),
        };
        self.events.record(Severity::Info, words);
        Ok(())
    }

    /// An open pool.
    pub(super) fn open_pool_named(&self, pool: &Name) -> Result<Arc<OpenPool>> {
        self.view().serving()?.pools.pool(pool)
    }

    /// Changes the size of a volume, and of the namespace that it is mapped as, if it is. Growing, the
    /// volume goes first; shrinking, the namespace does.
    fn resize_volume(&self, path: &VolumePath, bytes: u64) -> Result<()> {
        let pool = self.open_pool_named(&path.pool)?;
        let before = pool.volume(&path.volume)?.len();
        let mapped = self.view().mapping(&Backend::Volume(path.clone()));
        let mapped = mapped.map(|at| (at.subsystem, at.nsid));
        let Some(place) = mapped else { return pool.resize_volume(&path.volume, bytes) };
        let show = |bytes| {
            let place = place.clone();
            let showing =
                self.owner.ask(move |owned| owned.serving_mut()?.show_size(&place, bytes));
            drained(&showing?, NAMESPACE_DRAIN)
        };
        // Before anything is done, so that what cannot be written down is not done. Of a larger size: whatever happens,
        // hosts are never shown less than they have seen.
        let of = place.clone();
        self.owner.ask(move |owned| {
            owned.serving_mut()?.remember_size(&of, bytes);
            let kept = owned.keep();
            if kept.is_err() {
                owned.serving_mut()?.remember_size(&of, before);
            }
            kept
        })?;
        let shown = if bytes < before { show(bytes) } else { Ok(()) };
        let resized = shown.and_then(|()| pool.resize_volume(&path.volume, bytes));
        show(if resized.is_ok() { bytes } else { before })?;
        self.owner.ask(Owned::keep)?;
        resized
    }

    fn rename_volume(&self, path: &VolumePath, to: &Name) -> Result<()> {
        let pool = self.open_pool_named(&path.pool)?;
        pool.rename_volume(&path.volume, to)?;
        let was = path.clone();
        let renamed = VolumePath { pool: path.pool.clone(), volume: to.clone() };
        let kept = self.owner.ask(move |owned| {
            let mut wanted = owned.state.current.clone();
            let all = wanted.subsystems.values_mut();
            let mut is_mapped = false;
            for def in all.flat_map(|def| def.namespaces.values_mut()) {
                match &mut def.backend {
                    Backend::Volume(volume) | Backend::Snapshot(SnapshotPath { volume, .. })
                        if *volume == was =>
                    {
                        *volume = renamed.clone();
                        is_mapped = true;
                    }
                    _ => {}
                }
            }
            if is_mapped { owned.go_to(wanted, Opened::new()) } else { Ok(()) }
        });
        if kept.is_err() {
            pool.rename_volume(to, &path.volume)?;
        }
        kept
    }

    /// Deletes a volume and what it holds.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is mapped, `Failed`.
    pub fn delete_volume(&self, path: &VolumePath, consent: Consent) -> Result<()> {
        self.remove_volume(path, consent, &Task::default())
    }

    pub(super) fn remove_volume(
        &self,
        path: &VolumePath,
        consent: Consent,
        task: &Task,
    ) -> Result<()> {
        let _turn = self.turn(&path.pool, task)?;
        task.commit(0, 1, "deletes it")?;
        check_meant(&self.losses_of_deletion(path)?, consent.force)?;
        let open = self.open_pool_named(&path.pool)?;
        let id = Uuid::from_bytes(open.volume(&path.volume)?.id());
        open.delete_volume(&path.volume)?;
        self.events.record(Severity::Info, format!("volume {path} deleted"));
        self.drop_schedule(path, id);
        Ok(())
    }
}

/// Refuses a volume to make that cannot be, as far as that is known of it alone.
fn check_new(pool: &Name, new: &NewVolume) -> Result<()> {
    if let Some(block_size) = new.block_size {
        desired::check_block_size(block_size)?;
    }
    bound(new.quota).map_or(Ok(()), check_quota)?;
    check_reserve(new.reserve, new.reserve_all)?;
    match (new.size, &new.from) {
        (Some(size), _) => check_volume_size(size)?,
        (None, Some(_)) => {}
        (None, None) => {
            let what = format!("volume {pool}/{} needs a size", new.name);
            return Err(Error::new(Kind::Invalid, what)
                .help("say one, such as 64GiB: it takes space only as it is written"));
        }
    }
    match &new.from {
        Some(from) if from.volume.pool != *pool => {
            let what = format!(
                "a clone shares what it has with its snapshot: {from} is not in pool {pool}"
            );
            let help = format!(
                "clone it as {}/{}; into another pool its contents are copied: map both, and copy as a host",
                from.volume.pool, new.name
            );
            Err(Error::new(Kind::Invalid, what).help(help))
        }
        _ => Ok(()),
    }
}

/// What failed of a change, of which something was done before.
fn behind(mut error: Error, path: &VolumePath, done: Option<String>, not: &str) -> Error {
    if let Some(done) = done {
        error.context = format!("volume {path} {done}, but {not}: {}", error.context);
    }
    error
}

/// The quota that is asked for; 0 is none.
pub(super) fn bound(quota: Option<Size>) -> Option<Size> {
    quota.filter(|quota| quota.bytes() > 0)
}

pub(super) fn check_quota(quota: Size) -> Result<()> {
    let unit = engine::QUOTA_UNIT;
    if !quota.bytes().is_multiple_of(unit) || !(unit..=engine::QUOTA_MAX).contains(&quota.bytes()) {
        let most = Size::new(engine::QUOTA_MAX);
        let what = format!("a quota is a multiple of 1MiB, at most {most}: not {quota}");
        let help =
            "choose one, such as 100GiB: it bounds what a volume and its snapshots hold together";
        return Err(Error::new(Kind::Invalid, what).help(help));
    }
    Ok(())
}

/// The reservation that is asked for, if one is; 0 is none.
fn reservation(reserve: Option<Size>, all: bool) -> Option<Option<Reservation>> {
    match reserve {
        None => all.then_some(Some(Reservation::All)),
        of => Some(bound(of).map(|size| Reservation::Bytes(size.bytes()))),
    }
}

fn check_reserve(reserve: Option<Size>, all: bool) -> Result<()> {
    let help =
        "choose one, such as 100GiB: that much its hosts can write, however full the pool is";
    if reserve.is_some() && all {
        let what = "a reservation is of so many bytes, or of all: not both";
        return Err(Error::new(Kind::Invalid, what).help(help));
    }
    let Some(size) = bound(reserve) else { return Ok(()) };
    let unit = engine::QUOTA_UNIT;
    if !size.bytes().is_multiple_of(unit) || size.bytes() > engine::RESERVATION_MAX {
        let most = Size::new(engine::RESERVATION_MAX);
        let what = format!("a reservation is a multiple of 1MiB, at most {most}: not {size}");
        return Err(Error::new(Kind::Invalid, what).help(help));
    }
    Ok(())
}

fn check_volume_size(size: Size) -> Result<()> {
    if size.bytes() == 0 {
        return Err(Error::new(Kind::Invalid, "a volume of 0 bytes holds nothing")
            .help("choose a size, such as 64GiB: it takes space only as it is written"));
    }
    desired::check_whole_blocks(size.bytes(), desired::BLOCK_SIZE)?;
    Ok(())
}

fn document(
    path: &VolumePath,
    volume: &engine::Volume,
    Beside { snapshots, origin, group }: Beside,
    mapping: Option<Mapping>,
) -> Volume {
    let (quota, reservation) = (volume.quota(), volume.reservation());
    Volume {
        name: path.clone(),
        id: Uuid::from_bytes(volume.id()),
        size: Size::new(volume.len()),
        used: volume.used().map(Size::new),
        inherited: volume.inherited().map(Size::new),
        detaching: volume.detaching().map(Size::new),
        held_by_snapshots: volume.held_by_snapshots().map(Size::new),
        quota: quota.map(|quota| Size::new(quota.bytes)),
        quota_used: quota.and_then(|quota| quota.used).map(Size::new),
        reserve: reservation.map(|of| Size::new(of.bytes)),
        reserve_all: reservation.is_some_and(|of| of.of == Reservation::All),
        reserve_kept: reservation.map(|of| Size::new(of.kept)),
        block_size: volume.block_size(),
        snapshots: Some(stdx::num::u32_of(snapshots)),
        origin,
        group: group.map(|group| GroupPath { pool: path.pool.clone(), group }),
        mapping,
        state: state_of(volume),
    }
}

/// Whether what is read by it can be.
pub(super) fn state_of(volume: &engine::Volume) -> VolumeState {
    match volume.is_beyond_redundancy() {
        true => VolumeState::Waiting,
        false => VolumeState::Online,
    }
}
