//! What the management API asks of volumes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use api::v1::{
    Consent, Kind, Losses, Mapping, NewMapping, NewVolume, Severity, Volume, VolumeChange,
    VolumeState,
};
use api::value::{Backend, Name, Nqn, Size, VolumePath};
use uuid::Uuid;

use super::Node;
use super::manage::{check_unused, exists, no_subsystem};
use super::owner::{Owned, View};
use crate::desired::{self, Desired, NamespaceDef, SubsystemDef};
use crate::jobs::Task;
use crate::limits::NAMESPACE_DRAIN;
use crate::losses::check_meant;
use crate::pools::OpenPool;
use crate::serving::drained;
use crate::state::State;
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
            for (volume, is) in pool.volumes() {
                let path = VolumePath { pool: pool.name().clone(), volume };
                let mapping = mappings.remove(&path);
                volumes.push(document(&path, &is, mapping));
            }
        }
        volumes.extend(view.inaccessible_volumes()?);
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(volumes)
    }

    /// One volume.
    ///
    /// # Errors
    /// `NotFound`, `Failed` when its pool is not open.
    pub fn volume(&self, path: &VolumePath) -> Result<Volume> {
        let view = self.view();
        let volume = view.serving()?.pools.volume(path)?;
        Ok(document(path, &volume, view.state.mapping(path)))
    }

    /// Makes a volume, which takes no space until it is written to.
    ///
    /// # Errors
    /// `NotFound` without the pool, `Conflict` for a name that is taken, `Invalid`, `Failed`.
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
        let block_size = new.block_size.unwrap_or(desired::BLOCK_SIZE);
        desired::check_block_size(block_size)?;
        check_volume_size(new.size)?;
        let turn = self.turn(pool, task)?;
        task.commit(0, 1, "makes it")?;
        let open = self.open_pool_named(pool)?;
        open.create_volume(&new.name, new.size.bytes(), block_size).map_err(|error| match error
            .kind
        {
            Kind::Conflict => {
                error.help("choose another name: `flashloom volume list` shows those there are")
            }
            _ => error,
        })?;
        drop(turn);
        let path = VolumePath { pool: pool.clone(), volume: new.name.clone() };
        self.events.record(Severity::Info, format!("volume {path} made"));
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
        if let Some(at) = self.view().state.mapping(path) {
            return Err(is_mapped(path, &at));
        }
        let pool = self.open_pool_named(&path.pool)?;
        let size = Size::new(pool.volume(&path.volume)?.len());
        Ok(Losses {
            losses: vec![format!("volume {path} of {size} and all it holds would be lost")],
        })
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
        let _turn = self.turn(&path.pool, task)?;
        if let Some(size) = change.size {
            task.commit(0, 2, "resizes it")?;
            check_meant(&self.losses_of_change(&path, change)?, consent.force)?;
            self.resize_volume(&path, size.bytes())?;
            self.events.record(Severity::Info, format!("volume {path} resized to {size}"));
        }
        if let Some(name) = &change.name {
            task.commit(1, 2, "renames it")?;
            self.rename_volume(&path, name).map_err(|mut error| {
                if let Some(size) = change.size {
                    let done = format!("volume {path} has {size} now, but is not renamed");
                    error.context = format!("{done}: {}", error.context);
                }
                error
            })?;
            self.events.record(Severity::Info, format!("volume {path} is now called {name}"));
            path.volume = name.clone();
        }
        Ok(path)
    }

    /// An open pool.
    fn open_pool_named(&self, pool: &Name) -> Result<Arc<OpenPool>> {
        self.view().serving()?.pools.pool(pool)
    }

    /// Changes the size of a volume, and of the namespace that it is mapped as, if it is. Growing, the
    /// volume goes first; shrinking, the namespace does.
    fn resize_volume(&self, path: &VolumePath, bytes: u64) -> Result<()> {
        let pool = self.open_pool_named(&path.pool)?;
        let before = pool.volume(&path.volume)?.len();
        let mapped = self.view().state.mapping(path).map(|at| (at.subsystem, at.nsid));
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
            let Some(at) = owned.state.mapping(&was) else { return Ok(()) };
            let mut wanted = owned.state.current.clone();
            let def = wanted.subsystems.get_mut(&at.subsystem);
            if let Some(def) = def.and_then(|def| def.namespaces.get_mut(&at.nsid)) {
                def.backend = Backend::Volume(renamed);
            }
            owned.go_to(wanted, None)
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
        self.open_pool_named(&path.pool)?.delete_volume(&path.volume)?;
        self.events.record(Severity::Info, format!("volume {path} deleted"));
        Ok(())
    }

    /// Maps a volume: hosts of the subsystem see it as a namespace. Adds the subsystem if it is not there
    /// and the request says who may connect.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` when it is mapped or the NSID is taken, `Limit`.
    pub fn map_volume(&self, path: &VolumePath, new: NewMapping) -> Result<Volume> {
        if let Some(nsid) = new.nsid {
            desired::check_nsid(nsid)?;
        }
        desired::check_subsystem_nqn(&new.subsystem)?;
        // Nobody deletes or renames it meanwhile.
        let _turn = self.turn(&path.pool, &Task::default())?;
        let volume = self.view().serving()?.pools.volume(path)?;
        let (block_size, uuid) = (volume.block_size(), Uuid::from_bytes(volume.id()));
        let (nqn, of) = (new.subsystem.clone(), path.clone());
        let subsystem = nqn.clone();
        self.change(
            |nsid| format!("volume {path} mapped as namespace {nsid} of {nqn}"),
            move |wanted| {
                let backend = Backend::Volume(of);
                check_unused(wanted, &backend)?;
                let def = found_or_added(wanted, &new)?;
                let nsid = match new.nsid {
                    Some(nsid) if def.namespaces.contains_key(&nsid) => {
                        return Err(exists(format!("namespace {nsid} of {subsystem}"))
                            .help("leave the NSID out to get the lowest free one"));
                    }
                    Some(nsid) => nsid,
                    None => desired::free_nsid(&def.namespaces)?,
                };
                let def_of = NamespaceDef { backend, block_size, uuid: Some(uuid) };
                def.namespaces.insert(nsid, def_of);
                Ok(nsid)
            },
        )?;
        self.volume(path)
    }

    /// Takes a volume from the hosts. It keeps what it holds. Gives what is lost.
    ///
    /// # Errors
    /// `NotFound` when it is not mapped, `Conflict` for a loss that is not meant.
    pub fn unmap_volume(&self, path: &VolumePath, consent: Consent) -> Result<Losses> {
        let at = self.view().state.mapping(path).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("volume {path} is not mapped"))
                .help("`flashloom volume list` shows what is")
        })?;
        self.change_meant(consent, format!("volume {path} unmapped"), move |wanted| {
            let def = wanted.subsystems.get_mut(&at.subsystem);
            let def = def.ok_or_else(|| no_subsystem(&at.subsystem))?;
            def.namespaces.remove(&at.nsid);
            Ok(())
        })
    }
}

/// The subsystem that a volume is to be mapped in.
fn found_or_added<'d>(wanted: &'d mut Desired, new: &NewMapping) -> Result<&'d mut SubsystemDef> {
    let may_add = new.allow_any_host || !new.hosts.is_empty();
    match wanted.subsystems.entry(new.subsystem.clone()) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) if may_add => Ok(entry.insert(SubsystemDef {
            allow_any_host: new.allow_any_host,
            hosts: new.hosts.iter().cloned().collect(),
            ..SubsystemDef::default()
        })),
        Entry::Vacant(entry) => Err(no_subsystem(entry.key())
            .help("say who may connect to have it added: --allow-host NQN or --allow-any-host")),
    }
}

fn check_volume_size(size: Size) -> Result<()> {
    if size.bytes() == 0 {
        return Err(Error::new(Kind::Invalid, "a volume of 0 bytes holds nothing")
            .help("choose a size, such as 64GiB: it takes space only as it is written"));
    }
    desired::check_whole_blocks(size.bytes(), desired::BLOCK_SIZE)?;
    Ok(())
}

/// The refusal of what cannot be done to a volume while hosts have it.
fn is_mapped(path: &VolumePath, at: &Mapping) -> Error {
    let what = format!("volume {path} is namespace {} of {}", at.nsid, at.subsystem);
    Error::new(Kind::Conflict, what).help(format!("`flashloom volume unmap {path}` first"))
}

impl State {
    /// What volumes are mapped as.
    pub(super) fn mappings(&self) -> impl Iterator<Item = (&VolumePath, Mapping)> {
        let all = self.current.subsystems.iter();
        all.flat_map(|(nqn, def): (&Nqn, &SubsystemDef)| {
            def.namespaces.iter().filter_map(move |(nsid, def)| match &def.backend {
                Backend::Volume(volume) => {
                    Some((volume, Mapping { subsystem: nqn.clone(), nsid: *nsid }))
                }
                _ => None,
            })
        })
    }

    /// Refuses what cannot be done to a pool while hosts have a volume of it.
    ///
    /// # Errors
    /// `Conflict`.
    pub(super) fn check_unmapped(&self, pool: &Name) -> Result<()> {
        match self.mappings().find(|(volume, _)| volume.pool == *pool) {
            Some((volume, at)) => Err(is_mapped(volume, &at)),
            None => Ok(()),
        }
    }

    fn mapping(&self, path: &VolumePath) -> Option<Mapping> {
        self.mappings().find(|(volume, _)| *volume == path).map(|(_, at)| at)
    }
}

fn document(path: &VolumePath, volume: &engine::Volume, mapping: Option<Mapping>) -> Volume {
    Volume {
        name: path.clone(),
        id: Uuid::from_bytes(volume.id()),
        size: Size::new(volume.len()),
        used: volume.used().map(Size::new),
        block_size: volume.block_size(),
        mapping,
        state: match volume.is_beyond_redundancy() {
            true => VolumeState::Inaccessible,
            false => VolumeState::Online,
        },
    }
}

impl View {
    /// The volumes of pools that are not open, as hosts saw them last.
    fn inaccessible_volumes(&self) -> Result<Vec<Volume>> {
        let serving = self.serving()?;
        let inaccessible = |(path, mapping): (&VolumePath, Mapping)| {
            let def = self.state.current.subsystem(&mapping.subsystem)?;
            let def = def.namespaces.get(&mapping.nsid)?;
            let seen = self.state.seen.get(&mapping.subsystem, mapping.nsid, &def.backend)?;
            Some(Volume {
                name: path.clone(),
                id: seen.uuid,
                size: Size::new(seen.bytes),
                used: None,
                block_size: def.block_size,
                mapping: Some(mapping),
                state: VolumeState::Inaccessible,
            })
        };
        let mappings = self.state.mappings();
        let closed = mappings.filter(|(path, _)| serving.pools.pool(&path.pool).is_err());
        Ok(closed.filter_map(inaccessible).collect())
    }
}
