//! What the management API asks of pools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::v1::{Drive, FoundPool, Kind, NewPool, Pool, PoolImport, PoolPlan, Severity};
use api::value::{DrivePath, LogPlace, Name};
use uuid::Uuid;

use super::Node;
use super::opening::{log_lost, log_rebuilt, not_served};
use super::owner::Owned;
use crate::jobs::Task;
use crate::limits::DELETE_PATIENCE;
use crate::pools::{New, OpenPool, Opener, documents, is_drive_of, needs};
use crate::{Error, Result};

impl Node {
    /// All pools, by name.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn pools(&self) -> Result<Vec<Pool>> {
        let shown = self.view().serving()?.pools.shown();
        let mut pools = documents(shown)?;
        self.physical.fill(&mut pools);
        Ok(pools)
    }

    /// One pool.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn pool(&self, name: &Name) -> Result<Pool> {
        let shown = self.view().serving()?.pools.show(name)?;
        let mut shown = documents(vec![shown])?;
        self.physical.fill(&mut shown);
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

    /// What would be made of such drives. Nothing is changed.
    ///
    /// # Errors
    /// As [`create_pool`](Self::create_pool), as far as it is known before.
    pub fn plan_pool(&self, new: &NewPool) -> Result<PoolPlan> {
        self.check_no_pools(new.drives.iter().map(|drive| drive.path.clone()).collect(), true)?;
        let view = self.view();
        let pools = &view.serving()?.pools;
        pools.check_free(&new.name)?;
        new.drives.iter().try_for_each(|drive| pools.check_not_held(&drive.path))?;
        pools.opener().plan(new)
    }

    /// Makes a pool, which is opened again whenever the node starts.
    ///
    /// # Errors
    /// `Conflict` for what is in use, `Invalid` for what cannot be a pool, `Failed`.
    pub fn create_pool(&self, new: &NewPool) -> Result<Pool> {
        self.make_pool(new, &Task::default())?;
        self.pool(&new.name)
    }

    pub(super) fn make_pool(&self, new: &NewPool, task: &Task) -> Result<()> {
        task.step(0, 4, "looks at whose the drives are")?;
        // What they hold is looked at when they are held.
        self.check_no_pools(new.drives.iter().map(|drive| drive.path.clone()).collect(), true)?;
        let name = new.name.clone();
        let opener = self.owner.ask(move |owned| {
            // What cannot be written down is not begun.
            owned.keep()?;
            let pools = owned.serving_mut()?.pools_mut();
            pools.reserve(&name)?;
            Ok(pools.opener())
        })?;
        let made = opener.create(new, task);
        self.add_pool(&new.name, made)?;
        self.events.record(Severity::Info, format!("pool {} made", new.name));
        Ok(())
    }

    /// Refuses to give anybody else what is of a pool, `forced` only what is of one that this node knows and has not
    /// open.
    pub(super) fn check_no_pools(&self, paths: Vec<PathBuf>, forced: bool) -> Result<()> {
        let help = "`flashloom pool import` opens that pool; --force takes the drive, and the pool is lost once hosts \
                    write to it";
        self.check_no_labels(paths, (!forced).then_some(help))
    }

    /// Likewise; what is of another pool is refused with this `help`, if there is any.
    pub(super) fn check_no_labels(&self, paths: Vec<PathBuf>, help: Option<&str>) -> Result<()> {
        let opener = self.view().serving()?.pools.opener();
        let look = move |path: &Path| opener.labelled(vec![path.to_owned()]);
        for (path, label) in self.drive_looks.look_at(&paths, look)?.into_iter().flatten() {
            if self.view().serving()?.pools.waits_for(Uuid::from_bytes(label.pool)) {
                return Err(is_drive_of(&path, &label.name));
            }
            if let Some(help) = help {
                return Err(is_drive_of(&path, &label.name).help(help));
            }
        }
        Ok(())
    }

    /// Knows a pool that was made or imported; one that was not is forgotten. What is not kept must not be served:
    /// a restart would not find it.
    fn add_pool(&self, name: &Name, made: Result<New>) -> Result<Arc<OpenPool>> {
        let made = match made {
            Ok(new) => new,
            Err(error) => {
                let name = name.clone();
                self.owner.ask(move |owned| {
                    owned.serving_mut()?.pools_mut().give_up(&name);
                    Ok(())
                })?;
                return Err(error);
            }
        };
        let (name, pool, def) = (name.clone(), Arc::clone(&made.pool), made.def.clone());
        let added = self.owner.ask(move |owned| {
            let before = owned.serving_mut()?.pools_mut().add(&name, def, Arc::clone(&pool));
            if let Err(error) = owned.keep() {
                let pools = owned.serving_mut()?.pools_mut();
                pools.take(&name)?;
                if let Some(before) = before {
                    pools.put_back(&name, before);
                    pools.give_up(&name);
                }
                return Err(error);
            }
            Ok(pool)
        });
        match added {
            Ok(pool) => {
                made.keep();
                Ok(pool)
            }
            Err(error) => {
                made.give_up();
                Err(error)
            }
        }
    }

    /// Opens a pool that this node does not know, or could not open, from its drives. Volumes of it that
    /// are mapped already are served from then on.
    ///
    /// # Errors
    /// `Conflict` for what is in use or was not exported, `Failed` for what is missing or damaged.
    pub fn import_pool(&self, from: &PoolImport) -> Result<Pool> {
        let name = self.take_pool(from, &Task::default())?;
        self.pool(&name)
    }

    pub(super) fn take_pool(&self, from: &PoolImport, task: &Task) -> Result<Name> {
        task.step(0, 3, "looks for the drives")?;
        let opener = self.view().serving()?.pools.opener();
        let knows = |id| self.view().serving().is_ok_and(|serving| serving.pools.knows(id));
        let (from, arrived) = self.completed(&opener, from)?;
        let looked = opener.look(&from, knows)?;
        let (name, id) = (looked.1.name.parse::<Name>()?, Uuid::from_bytes(looked.1.pool));
        task.step(1, 3, "opens it: as long as its log is long")?;
        let reserved = name.clone();
        let known = self.owner.ask(move |owned| {
            // What cannot be written down is not begun.
            owned.keep()?;
            let pools = owned.serving_mut()?.pools_mut();
            pools.reserve_import(&reserved, id)?;
            Ok(pools.def_of(id))
        })?;
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
        let imported = imported.and_then(|new| match task.commit(2, 3, "serves its volumes") {
            Ok(()) => Ok(new),
            Err(error) => {
                new.give_up();
                Err(error)
            }
        });
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
            self.events.record(Severity::Warning, log_rebuilt(&name));
        }
        let attached = name.clone();
        let failed = self.owner.ask(move |owned| {
            owned.serving()?;
            Ok(owned.attach(&attached))
        })?;
        let kept = self.owner.ask(Owned::keep);
        // The pool is: only what hosts are shown of it is not written down.
        for error in failed.into_iter().chain(kept.err()) {
            self.events.record(Severity::Error, not_served(&name, &error));
        }
        Ok(name)
    }

    /// The pools that an import would find. Everything is only read.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn find_pools(&self, from: &PoolImport) -> Result<Vec<FoundPool>> {
        let opener = self.view().serving()?.pools.opener();
        let mut found = opener.find(from, self.closed_drives()?)?;
        let view = self.view();
        let pools = &view.serving()?.pools;
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
        let closed = self.view().serving()?.pools.closed();
        Ok(closed.iter().flat_map(|(_, def)| def.places()).cloned().collect())
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
                if let Some(name) = from.name.as_ref().filter(|_| found.is_empty())
                    && self.open_pool_named(name).is_ok()
                {
                    return Err(Error::new(Kind::Conflict, format!("pool {name} is open here")));
                }
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
            let view = self.view();
            if let Some(def) = id.and_then(|id| view.serving().ok()?.pools.def_of(id)) {
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
        self.give_pool(name, &Task::default())
    }

    pub(super) fn give_pool(&self, name: &Name, task: &Task) -> Result<()> {
        let _turn = self.turn(name, task)?;
        let may_forget = match self.open_pool_named(name) {
            Ok(pool) => {
                check_nothing_comes(&pool)?;
                false
            }
            Err(error) => {
                self.check_is_given(name, error)?;
                true
            }
        };
        task.commit(0, 1, "closes it: what its log holds goes to its drives")?;
        let of = name.clone();
        let open = self.owner.ask(move |owned| {
            owned.state.check_unmapped(&of)?;
            if !may_forget {
                owned.serving()?.pools().pool(&of)?;
            }
            let open = owned.serving_mut()?.pools_mut().begin_export(&of)?;
            // First: what cannot be written down is not done.
            if let Err(error) = owned.keep() {
                owned.serving_mut()?.pools_mut().refuse_export(&of);
                return Err(error);
            }
            Ok(open)
        })?;
        let exported = open.map_or(Ok(()), |pool| {
            let exported = pool.export();
            pool.ends_at_close().iter().for_each(|end| self.tell_window_end(name, end));
            self.tell_what_comes(&pool);
            exported
        });
        let (of, wait) = (name.clone(), self.settings.wait_for_drives);
        self.owner.ask(move |owned| {
            let pools = owned.serving_mut()?.pools_mut();
            if let Err(error) = exported {
                pools.fail_export(&of, &error, wait);
                return Err(error.help("it is closed, and opened again by itself unless its drives say that it was exported"));
            }
            Ok(())
        })?;
        self.release_spares(name);
        let of = name.clone();
        let kept = self.owner.ask(move |owned| {
            owned.serving_mut()?.pools_mut().forget(&of);
            Ok(owned.keep())
        })?;
        self.events.record(Severity::Info, format!("pool {name} exported"));
        if let Err(error) = kept {
            // The next start finds out.
            self.events.record(Severity::Warning, format!("that is not written down: {error}"));
        }
        Ok(())
    }

    /// Refuses to forget a pool that is not open for the reason `closed`, and that nobody else has by what its drives say:
    /// what only its log has would be nobody's.
    fn check_is_given(&self, name: &Name, closed: Error) -> Result<()> {
        let view = self.view();
        view.state.check_unmapped(name)?;
        let pools = &view.serving()?.pools;
        let Some(def) = pools.defs().remove(name) else { return Err(closed) };
        let mut drives = def.drives.iter().filter(|path| !path.as_os_str().is_empty());
        if drives.all(|path| DrivePath::memory(path).is_some()) || pools.opener().is_given(&def)? {
            return Ok(());
        }
        let what = format!("{closed}; and its drives do not say that it was exported");
        Err(Error::new(Kind::Conflict, what).help(format!(
            "what was acknowledged and is in its log alone would be nobody's: have it open first (`flashloom pool show \
             {name}` tells what it lacks), then export it; where it is lost for good, `flashloom pool delete {name}` ends \
             it, and drives that are not there keep what they hold"
        )))
    }

    /// A drive did not answer what it was asked to write when its pool was closed: another machine must not have it yet.
    fn tell_what_comes(&self, pool: &OpenPool) {
        for path in pool.await_changes(DELETE_PATIENCE) {
            let words = format!(
                "pool {} was closed to be exported, and {} may still be written to by this node: open the pool nowhere \
                 else before that is over, which the kernel sees to when it gives the drive up",
                pool.name(),
                path.display()
            );
            self.events.record(Severity::Error, words);
        }
    }
}

/// Refuses to export a pool while a drive of it may still be changed by what nobody waits for: another machine would have
/// the pool by then, and nothing there tells it.
fn check_nothing_comes(pool: &OpenPool) -> Result<()> {
    let late = pool.await_changes(DELETE_PATIENCE);
    let Some(path) = late.first() else { return Ok(()) };
    let what = format!(
        "pool {} is not exported: {} does not answer what it was asked to write",
        pool.name(),
        path.display()
    );
    Err(Error::new(Kind::Conflict, what).help(
        "that would come after another machine has the pool: export it again once the kernel gave the drive up, or after \
         the drive was pulled",
    ))
}
