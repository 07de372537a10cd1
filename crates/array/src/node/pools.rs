//! What the management API asks of pools and volumes.

use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;

use api::v1::{
    Drive, FoundPool, Kind, Mapping, NewMapping, NewPool, NewVolume, Pool, PoolImport, Severity,
    Volume, VolumeChange, VolumeDeletion, VolumeState,
};
use api::value::{Backend, DrivePath, LogPlace, Name, Nqn, Size, VolumePath};
use uuid::Uuid;

use super::manage::{check_unused, exists, no_subsystem};
use super::opening::{log_anew, log_lost, not_served};
use super::{Inner, Node};
use crate::desired::{self, Desired, NamespaceDef, SubsystemDef};
use crate::limits::NAMESPACE_DRAIN;
use crate::pools::{New, OpenPool, Opener, documents, is_drive_of, needs};
use crate::serving::drained;
use crate::{Error, Result};

impl Node {
    /// All pools, by name.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn pools(&self) -> Result<Vec<Pool>> {
        // Each is asked under no lock.
        let shown = self.inner().serving()?.pools().shown();
        documents(shown)
    }

    /// One pool.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn pool(&self, name: &Name) -> Result<Pool> {
        let shown = self.inner().serving()?.pools().show(name)?;
        let shown = documents(vec![shown])?;
        shown.into_iter().next().ok_or_else(|| Error::new(Kind::NotFound, "there is no such pool"))
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
        // What they hold is looked at when they are held.
        self.check_no_pools(new.drives.iter().map(|drive| drive.path.clone()).collect(), true)?;
        let opener = {
            let mut inner = self.inner();
            // What cannot be written down is not begun.
            self.keep(&mut inner)?;
            let pools = inner.serving_mut()?.pools_mut();
            pools.reserve(&new.name)?;
            pools.opener()
        };
        let made = opener.create(new);
        self.add_pool(&new.name, made)?;
        self.events.record(Severity::Info, format!("pool {} made", new.name));
        self.pool(&new.name)
    }

    /// Refuses to give anybody else what is of a pool, `forced` only what is of one that this node knows and has not
    /// open.
    pub(super) fn check_no_pools(&self, paths: Vec<PathBuf>, forced: bool) -> Result<()> {
        let opener = self.inner().serving()?.pools().opener();
        // Labels are read with nothing held.
        for (path, label) in opener.labelled(paths)? {
            if self.inner().serving()?.pools().waits_for(Uuid::from_bytes(label.pool)) {
                return Err(is_drive_of(&path, &label.name));
            }
            if !forced {
                return Err(is_drive_of(&path, &label.name).help(
                    "`flashloom pool import` opens that pool; --force takes the drive, and the pool is lost once \
                     hosts write to it",
                ));
            }
        }
        Ok(())
    }

    /// Knows a pool that was made or imported; one that was not is forgotten. What is not kept must not be served:
    /// a restart would not find it.
    fn add_pool(&self, name: &Name, made: Result<New>) -> Result<Arc<OpenPool>> {
        let _changing = self.changing();
        let mut inner = self.inner();
        let Ok(serving) = inner.serving_mut() else {
            drop(inner);
            made?.give_up();
            return Err(Error::new(Kind::Stopping, "the daemon is stopping"));
        };
        let new = match made {
            Ok(new) => new,
            Err(error) => {
                serving.pools_mut().give_up(name);
                return Err(error);
            }
        };
        let pool = Arc::clone(&new.pool);
        let before = serving.pools_mut().add(name, new.def.clone(), Arc::clone(&pool));
        if let Err(error) = self.keep(&mut inner) {
            let pools = inner.serving_mut()?.pools_mut();
            pools.take(name)?;
            if let Some(before) = before {
                pools.put_back(name, before);
                pools.give_up(name);
            }
            drop(inner);
            new.give_up();
            return Err(error);
        }
        new.keep();
        Ok(pool)
    }

    /// Opens a pool that this node does not know, or could not open, from its drives. Volumes of it that
    /// are mapped already are served from then on.
    ///
    /// # Errors
    /// `Conflict` for what is in use or was not exported, `Failed` for what is missing or damaged.
    pub fn import_pool(&self, from: &PoolImport) -> Result<Pool> {
        let opener = self.inner().serving()?.pools().opener();
        let knows = |id| {
            let inner = self.inner();
            inner.serving().is_ok_and(|serving| serving.pools().knows(id))
        };
        let (from, arrived) = self.completed(&opener, from)?;
        let looked = opener.look(&from, knows)?;
        let (name, id) = (looked.1.name.parse::<Name>()?, Uuid::from_bytes(looked.1.pool));
        let known = {
            let mut inner = self.inner();
            // What cannot be written down is not begun.
            self.keep(&mut inner)?;
            let pools = inner.serving_mut()?.pools_mut();
            pools.reserve_import(&name, id)?;
            pools.def_of(id)
        };
        let import = |from: &PoolImport, looked| opener.import(from, looked, known.as_ref());
        let imported = match arrived {
            None => import(&from, looked),
            // Its log was on its way: no loss is accepted while it may be whole at the other place.
            Some(arrived) => {
                let sure = PoolImport { accept_loss: false, ..from.clone() };
                let there = PoolImport { log: arrived, ..sure.clone() };
                let found = import(&sure, looked).or_else(|error| {
                    import(&there, opener.look(&there, knows)?).map_err(|_| error)
                });
                match from.accept_loss {
                    true => found.or_else(|_| import(&from, opener.look(&from, knows)?)),
                    false => found,
                }
            }
        };
        let pool = self.add_pool(&name, imported)?;
        self.events.record(Severity::Info, format!("pool {name} imported"));
        if pool.has_lost_log() {
            self.events.record(Severity::Error, log_lost(&name));
        } else if from.accept_loss {
            let words = format!(
                "pool {name} was imported without what its log lost, if anything: writes that were acknowledged may be \
                 lost, so check what uses its volumes"
            );
            self.events.record(Severity::Warning, words);
        }
        if pool.has_new_log() {
            self.events.record(Severity::Warning, log_anew(&name));
        }
        let _changing = self.changing();
        let mut inner = self.inner();
        let current = inner.state.current.clone();
        let failed = inner.serving_mut()?.attach(&name, &current);
        let kept = self.keep(&mut inner);
        drop(inner);
        // The pool is: only what hosts are shown of it is not written down.
        for error in failed.into_iter().chain(kept.err()) {
            self.events.record(Severity::Error, not_served(&name, &error));
        }
        self.pool(&name)
    }

    /// The pools that an import would find. Everything is only read.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn find_pools(&self, from: &PoolImport) -> Result<Vec<FoundPool>> {
        let opener = self.inner().serving()?.pools().opener();
        let mut found = opener.find(from, self.closed_drives()?)?;
        let inner = self.inner();
        let pools = inner.serving()?.pools();
        for pool in &mut found {
            pool.known = pools.knows(pool.id);
            let has_log = !from.log.is_empty() || pools.def_of(pool.id).is_some();
            pool.needs = needs(pool, from, has_log);
        }
        found.retain(|pool| !pools.is_open(pool.id));
        if let Some(name) = &from.name {
            found.retain(|pool| pool.name == name.as_str());
        }
        Ok(found)
    }

    /// Where the drives were of pools that are not open.
    fn closed_drives(&self) -> Result<Vec<PathBuf>> {
        let closed = self.inner().serving()?.pools().closed();
        Ok(closed.into_iter().flat_map(|(_, def)| def.drives).collect())
    }

    /// An import with the drives that are found, and the log where it is known to be, as far as it does not say.
    /// Where the log was on its way to, the other place.
    fn completed(
        &self,
        opener: &Opener,
        from: &PoolImport,
    ) -> Result<(PoolImport, Option<Vec<LogPlace>>)> {
        let mut from = from.clone();
        if from.drives.is_empty() {
            let mut found = self.find_pools(&from)?;
            let Some(pool) = found.pop().filter(|_| found.is_empty()) else {
                let (what, help) = match found.is_empty() {
                    true => ("no drives of such a pool are found", "name its drives with --drive"),
                    false => ("drives of several pools are found", "say which, by name"),
                };
                return Err(Error::new(Kind::Invalid, what).help(help));
            };
            let paths = pool.drives.into_iter().filter_map(|drive| drive.path);
            from.drives = paths.map(|path| DrivePath { path: path.into(), size: None }).collect();
        }
        if from.log.is_empty() {
            let id = opener.find(&from, Vec::new())?.first().map(|pool| pool.id);
            let inner = self.inner();
            if let Some(def) = id.and_then(|id| inner.serving().ok()?.pools().def_of(id)) {
                from.log = def.log;
                return Ok((from, Some(def.log_to).filter(|to| !to.is_empty())));
            }
        }
        Ok((from, None))
    }

    /// Closes a pool, to be opened elsewhere, and forgets it.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while a volume of it is mapped, `Failed`.
    pub fn export_pool(&self, name: &Name) -> Result<()> {
        let _changing = self.changing();
        let mut inner = self.inner();
        let mapped = inner.mappings().find(|(volume, _)| volume.pool == *name);
        if let Some((volume, at)) = mapped {
            let what = format!("volume {volume} is namespace {} of {}", at.nsid, at.subsystem);
            return Err(Error::new(Kind::Conflict, what)
                .help(format!("`flashloom volume unmap {volume}` first")));
        }
        let open = inner.serving_mut()?.pools_mut().begin_export(name)?;
        // First: what cannot be written down is not done.
        if let Err(error) = self.keep(&mut inner) {
            inner.serving_mut()?.pools_mut().refuse_export(name);
            return Err(error);
        }
        drop(inner);
        let exported = open.map_or(Ok(()), |pool| pool.export());
        let mut inner = self.inner();
        let pools = inner.serving_mut()?.pools_mut();
        if let Err(error) = exported {
            pools.fail_export(name, &error, self.settings.wait_for_drives);
            return Err(error.help("it is closed, and opened again by itself unless its drives say that it was exported"));
        }
        pools.end_export(name);
        let kept = self.keep(&mut inner);
        drop(inner);
        self.events.record(Severity::Info, format!("pool {name} exported"));
        if let Err(error) = kept {
            // The next start finds out.
            self.events.record(Severity::Warning, format!("that is not written down: {error}"));
        }
        Ok(())
    }

    /// All volumes of the pools that are open, and those that are mapped of others, by pool and name.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        let inner = self.inner();
        let mut volumes = Vec::new();
        for pool in inner.serving()?.pools().open_pools() {
            for volume in pool.volumes().into_keys() {
                let path = VolumePath { pool: pool.name().clone(), volume };
                volumes.push(inner.volume(&path)?);
            }
        }
        volumes.extend(inner.inaccessible_volumes()?);
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
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
        let changing = self.changing();
        let open = self.open_pool_named(pool)?;
        open.create_volume(&new.name, new.size.bytes(), block_size)?;
        drop(changing);
        let path = VolumePath { pool: pool.clone(), volume: new.name.clone() };
        self.events.record(Severity::Info, format!("volume {path} made"));
        self.volume(&path)
    }

    /// Changes a volume's size or name; hosts that use it are told of the size.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a name that is taken, `Invalid`, `Failed`.
    pub fn change_volume(&self, path: &VolumePath, change: &VolumeChange) -> Result<Volume> {
        let mut path = path.clone();
        if let Some(size) = change.size {
            check_volume_size(size)?;
            self.resize_volume(&path, size.bytes(), change.shrink)?;
            self.events.record(Severity::Info, format!("volume {path} resized to {size}"));
        }
        if let Some(name) = &change.name {
            self.rename_volume(&path, name)?;
            self.events.record(Severity::Info, format!("volume {path} is now called {name}"));
            path.volume = name.clone();
        }
        self.volume(&path)
    }

    /// An open pool, to be asked under no lock.
    fn open_pool_named(&self, pool: &Name) -> Result<Arc<OpenPool>> {
        self.inner().serving()?.pools().pool(pool)
    }

    /// Changes the size of a volume, and of the namespace that it is mapped as, if it is. Growing, the
    /// volume goes first; shrinking, the namespace does.
    fn resize_volume(&self, path: &VolumePath, bytes: u64, shrink: bool) -> Result<()> {
        let _changing = self.changing();
        let pool = self.open_pool_named(&path.pool)?;
        let before = pool.volume(&path.volume)?.len();
        if bytes < before && !shrink {
            let (before, after) = (Size::new(before), Size::new(bytes));
            let what =
                format!("volume {path} has {before}: what lies beyond {after} would be lost");
            return Err(Error::new(Kind::Conflict, what).help("say `shrink` if that is meant"));
        }
        let mapped = self.inner().mapping(path).map(|at| (at.subsystem, at.nsid));
        let Some(place) = mapped else { return pool.resize_volume(&path.volume, bytes) };
        // Waits under no lock.
        let show = |bytes| {
            let draining = self.inner().serving_mut()?.show_size(&place, bytes)?;
            drained(&draining, NAMESPACE_DRAIN)
        };
        // Before anything is done, so that what cannot be written down is not done. Of a larger size: whatever happens,
        // hosts are never shown less than they have seen.
        let mut inner = self.inner();
        inner.serving_mut()?.remember_size(&place, bytes);
        if let Err(error) = self.keep(&mut inner) {
            inner.serving_mut()?.remember_size(&place, before);
            return Err(error);
        }
        drop(inner);
        let shown = if bytes < before { show(bytes) } else { Ok(()) };
        let resized = shown.and_then(|()| pool.resize_volume(&path.volume, bytes));
        show(if resized.is_ok() { bytes } else { before })?;
        self.keep(&mut self.inner())?;
        resized
    }

    fn rename_volume(&self, path: &VolumePath, to: &Name) -> Result<()> {
        let _changing = self.changing();
        let pool = self.open_pool_named(&path.pool)?;
        pool.rename_volume(&path.volume, to)?;
        let mut inner = self.inner();
        let Some(at) = inner.mapping(path) else { return Ok(()) };
        let mut wanted = inner.state.current.clone();
        let def = wanted.subsystems.get_mut(&at.subsystem);
        if let Some(def) = def.and_then(|def| def.namespaces.get_mut(&at.nsid)) {
            let renamed = VolumePath { pool: path.pool.clone(), volume: to.clone() };
            def.backend = Backend::Volume(renamed);
        }
        let kept = self.go_to(&mut inner, wanted, None);
        drop(inner);
        if kept.is_err() {
            pool.rename_volume(to, &path.volume)?;
        }
        kept
    }

    /// Deletes a volume and what it holds.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is mapped, `Failed`.
    pub fn delete_volume(&self, path: &VolumePath, how: VolumeDeletion) -> Result<()> {
        let _changing = self.changing();
        if let Some(at) = self.inner().mapping(path) {
            let what = format!("volume {path} is namespace {} of {}", at.nsid, at.subsystem);
            return Err(Error::new(Kind::Conflict, what)
                .help(format!("`flashloom volume unmap {path}` first")));
        }
        let pool = self.open_pool_named(&path.pool)?;
        let size = Size::new(pool.volume(&path.volume)?.len());
        if !how.force {
            let what = format!("volume {path} of {size} and all it holds would be lost");
            return Err(Error::new(Kind::Conflict, what).help("say `force` if that is meant"));
        }
        pool.delete_volume(&path.volume)?;
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
            used: volume.used().map(Size::new),
            block_size: volume.block_size(),
            mapping: self.mapping(path),
            state: match volume.is_beyond_redundancy() {
                true => VolumeState::Inaccessible,
                false => VolumeState::Online,
            },
        })
    }

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
        let closed = self.mappings().filter(|(path, _)| serving.pools().pool(&path.pool).is_err());
        Ok(closed.filter_map(inaccessible).collect())
    }
}
