//! What the management API asks of pools and volumes.

use std::collections::btree_map::Entry;

use api::v1::{
    Drive, Kind, Mapping, NewMapping, NewPool, NewVolume, Pool, PoolImport, Severity, Volume,
    VolumeChange,
};
use api::value::{Backend, Name, Nqn, Size, VolumePath};
use uuid::Uuid;

use super::manage::{check_unused, exists, no_subsystem};
use super::{Inner, Node};
use crate::desired::{self, Desired, NamespaceDef, SubsystemDef};
use crate::pools::OpenPool;
use crate::{Error, Result};

fn not_served(pool: &Name, error: &Error) -> String {
    format!("a volume of pool {pool} cannot be served: {error}")
}

impl Node {
    /// All pools, by name.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn pools(&self) -> Result<Vec<Pool>> {
        self.inner().serving()?.pools().documents()
    }

    /// One pool.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn pool(&self, name: &Name) -> Result<Pool> {
        self.inner().serving()?.pools().document(name)
    }

    /// The drives of all pools that are open.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn drives(&self) -> Result<Vec<Drive>> {
        let pools = self.pools()?.into_iter().filter_map(|pool| pool.status);
        Ok(pools.flat_map(|status| status.drives).collect())
    }

    /// Makes a pool, which is opened again whenever the node starts.
    ///
    /// # Errors
    /// `Conflict` for what is in use, `Invalid` for what cannot be a pool, `Failed`.
    pub fn create_pool(&self, new: &NewPool) -> Result<Pool> {
        let mut inner = self.inner();
        inner.serving_mut()?.pools_mut().create(new)?;
        if let Err(error) = self.keep_pools(&mut inner) {
            // What is not kept must not be served: a restart would not find it.
            inner.serving_mut()?.pools_mut().forget(&new.name);
            return Err(error);
        }
        let made = inner.serving()?.pools().document(&new.name);
        drop(inner);
        self.events.record(Severity::Info, format!("pool {} made", new.name));
        made
    }

    /// Opens a pool that this node does not know, or could not open, from its drives. Volumes of it that
    /// are mapped already are served from then on.
    ///
    /// # Errors
    /// `Conflict` for what is in use or was not exported, `Failed` for what is missing or damaged.
    pub fn import_pool(&self, from: &PoolImport) -> Result<Pool> {
        let mut inner = self.inner();
        let name = inner.serving_mut()?.pools_mut().import(from)?;
        if let Err(error) = self.keep_pools(&mut inner) {
            inner.serving_mut()?.pools_mut().forget(&name);
            return Err(error);
        }
        let current = inner.state.current.clone();
        let attached = inner.serving_mut()?.attach(&name, &current);
        let pool = inner.serving()?.pools().document(&name);
        let log_lost = inner.serving()?.pools().pool(&name).is_ok_and(OpenPool::has_lost_log);
        drop(inner);
        self.events.record(Severity::Info, format!("pool {name} imported"));
        if log_lost {
            let words = format!(
                "pool {name} was opened without its commit log, which was lost: writes that were \
                 acknowledged and not on the drives yet may be lost, so check what uses its \
                 volumes; a new log was made"
            );
            self.events.record(Severity::Error, words);
        }
        if let Err(error) = attached {
            self.events.record(Severity::Error, not_served(&name, &error));
        }
        pool
    }

    /// Opens the pools that could not be opened because something was missing which is there now, and serves
    /// their volumes that are mapped.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn open_late_pools(&self) -> Result<()> {
        let mut inner = self.inner();
        let current = inner.state.current.clone();
        let mut said = Vec::new();
        for (name, error) in inner.serving_mut()?.pools_mut().open_late() {
            if let Some(error) = error {
                said.push((
                    Severity::Error,
                    format!("pool {name} still cannot be opened: {error}"),
                ));
                continue;
            }
            said.push((Severity::Info, format!("pool {name} opened: what it lacked is there")));
            if let Err(error) = inner.serving_mut()?.attach(&name, &current) {
                said.push((Severity::Error, not_served(&name, &error)));
            }
        }
        drop(inner);
        said.into_iter().for_each(|(severity, words)| self.events.record(severity, words));
        Ok(())
    }

    /// Closes a pool, to be opened elsewhere, and forgets it.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while a volume of it is mapped, `Failed`.
    pub fn export_pool(&self, name: &Name) -> Result<()> {
        let mut inner = self.inner();
        let mapped = inner.mappings().find(|(volume, _)| volume.pool == *name);
        if let Some((volume, at)) = mapped {
            let what = format!("volume {volume} is namespace {} of {}", at.nsid, at.subsystem);
            return Err(Error::new(Kind::Conflict, what)
                .help(format!("`flashloom volume unmap {volume}` first")));
        }
        let exported = inner.serving_mut()?.pools_mut().export(name);
        self.keep_pools(&mut inner)?;
        exported?;
        drop(inner);
        self.events.record(Severity::Info, format!("pool {name} exported"));
        Ok(())
    }

    /// Writes down which pools there are.
    fn keep_pools(&self, inner: &mut Inner) -> Result<()> {
        let mut state = inner.state.clone();
        state.pools = inner.serving()?.pools().defs();
        self.dir.save(&state)?;
        inner.state = state;
        Ok(())
    }

    /// All volumes of the pools that are open, by pool and name.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        let inner = self.inner();
        let mut volumes = Vec::new();
        for pool in inner.serving()?.pools().open_pools() {
            for volume in pool.volumes().keys() {
                let path = VolumePath { pool: pool.name().clone(), volume: volume.clone() };
                volumes.push(inner.volume(&path)?);
            }
        }
        Ok(volumes)
    }

    /// One volume.
    ///
    /// # Errors
    /// `NotFound`, `Failed` when its pool is not open.
    pub fn volume(&self, path: &VolumePath) -> Result<Volume> {
        self.inner().volume(path)
    }

    /// Makes a volume, which takes no space until it is written to.
    ///
    /// # Errors
    /// `NotFound` without the pool, `Conflict` for a name that is taken, `Invalid`, `Failed`.
    pub fn create_volume(&self, pool: &Name, new: &NewVolume) -> Result<Volume> {
        let block_size = new.block_size.unwrap_or(desired::BLOCK_SIZE);
        desired::check_block_size(block_size)?;
        check_volume_size(new.size)?;
        let mut inner = self.inner();
        let open = inner.serving_mut()?.pools_mut().pool_mut(pool)?;
        open.create_volume(&new.name, new.size.bytes(), block_size)?;
        let path = VolumePath { pool: pool.clone(), volume: new.name.clone() };
        let made = inner.volume(&path);
        drop(inner);
        self.events.record(Severity::Info, format!("volume {path} made"));
        made
    }

    /// Changes a volume's size or name; hosts that use it are told of the size.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a name that is taken, `Invalid`, `Failed`.
    pub fn change_volume(&self, path: &VolumePath, change: &VolumeChange) -> Result<Volume> {
        let mut path = path.clone();
        if let Some(size) = change.size {
            check_volume_size(size)?;
            let mut inner = self.inner();
            let mapped = inner.mapping(&path).map(|at| (at.subsystem, at.nsid));
            inner.serving_mut()?.resize_volume(&path, size.bytes(), mapped.as_ref())?;
            drop(inner);
            self.events.record(Severity::Info, format!("volume {path} resized to {size}"));
        }
        if let Some(name) = &change.name {
            self.rename_volume(&path, name)?;
            self.events.record(Severity::Info, format!("volume {path} is now called {name}"));
            path.volume = name.clone();
        }
        self.volume(&path)
    }

    fn rename_volume(&self, path: &VolumePath, to: &Name) -> Result<()> {
        let mut inner = self.inner();
        let mapped = inner.mapping(path);
        let pool = inner.serving_mut()?.pools_mut().pool_mut(&path.pool)?;
        pool.rename_volume(&path.volume, to)?;
        let Some(at) = mapped else { return Ok(()) };
        let mut wanted = inner.state.current.clone();
        let def = wanted.subsystems.get_mut(&at.subsystem);
        if let Some(def) = def.and_then(|def| def.namespaces.get_mut(&at.nsid)) {
            let renamed = VolumePath { pool: path.pool.clone(), volume: to.clone() };
            def.backend = Backend::Volume(renamed);
        }
        let kept = self.go_to(&mut inner, wanted, None);
        if kept.is_err() {
            let pool = inner.serving_mut()?.pools_mut().pool_mut(&path.pool)?;
            pool.rename_volume(to, &path.volume)?;
        }
        kept
    }

    /// Deletes a volume and what it holds.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is mapped, `Failed`.
    pub fn delete_volume(&self, path: &VolumePath) -> Result<()> {
        let mut inner = self.inner();
        if let Some(at) = inner.mapping(path) {
            let what = format!("volume {path} is namespace {} of {}", at.nsid, at.subsystem);
            return Err(Error::new(Kind::Conflict, what)
                .help(format!("`flashloom volume unmap {path}` first")));
        }
        inner.serving_mut()?.pools_mut().pool_mut(&path.pool)?.delete_volume(&path.volume)?;
        drop(inner);
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
        let (block_size, uuid) = {
            let inner = self.inner();
            let volume = inner.serving()?.pools().volume(path)?;
            (volume.block_size(), Uuid::from_bytes(volume.id()))
        };
        let nqn = new.subsystem.clone();
        self.change(
            |nsid| format!("volume {path} mapped as namespace {nsid} of {nqn}"),
            |wanted| {
                let backend = Backend::Volume(path.clone());
                check_unused(wanted, &backend)?;
                let def = found_or_added(wanted, &new)?;
                let nsid = match new.nsid {
                    Some(nsid) if def.namespaces.contains_key(&nsid) => {
                        return Err(exists(format!("namespace {nsid} of {nqn}"))
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

    /// Takes a volume from the hosts. It keeps what it holds.
    ///
    /// # Errors
    /// `NotFound` when it is not mapped.
    pub fn unmap_volume(&self, path: &VolumePath) -> Result<()> {
        let at = self.inner().mapping(path).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("volume {path} is not mapped"))
                .help("`flashloom volume list` shows what is")
        })?;
        self.change(
            |()| format!("volume {path} unmapped"),
            |wanted| {
                let def = wanted.subsystems.get_mut(&at.subsystem);
                let def = def.ok_or_else(|| no_subsystem(&at.subsystem))?;
                def.namespaces.remove(&at.nsid);
                Ok(())
            },
        )
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
    desired::check_whole_blocks(size.bytes(), desired::BLOCK_SIZE)?;
    Ok(())
}

impl Inner {
    /// What volumes are mapped as.
    pub(super) fn mappings(&self) -> impl Iterator<Item = (&VolumePath, Mapping)> {
        let all = self.state.current.subsystems.iter();
        all.flat_map(|(nqn, def): (&Nqn, &SubsystemDef)| {
            def.namespaces.iter().filter_map(move |(nsid, def)| match &def.backend {
                Backend::Volume(volume) => {
                    Some((volume, Mapping { subsystem: nqn.clone(), nsid: *nsid }))
                }
                _ => None,
            })
        })
    }

    fn mapping(&self, path: &VolumePath) -> Option<Mapping> {
        self.mappings().find(|(volume, _)| *volume == path).map(|(_, at)| at)
    }

    fn volume(&self, path: &VolumePath) -> Result<Volume> {
        let volume = self.serving()?.pools().volume(path)?;
        Ok(Volume {
            name: path.clone(),
            id: Uuid::from_bytes(volume.id()),
            size: Size::new(volume.len()),
            block_size: volume.block_size(),
            mapping: self.mapping(path),
        })
    }
}
