//! Pools are deleted: ended as they are, and their drives made blank.

use std::path::PathBuf;
use std::sync::Arc;

use api::v1::{Consent, Kind, Losses, Severity};
use api::value::{Name, Size};

use super::Node;
use super::reopening::Ended;
use crate::jobs::{Task, Work};
use crate::limits::DELETE_PATIENCE;
use crate::losses::check_meant;
use crate::pools::OpenPool;
use crate::{Error, Result, events};

impl Node {
    /// What the deletion of a pool would lose.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while a volume of it is mapped, `Stopping`.
    pub fn losses_of_pool(&self, name: &Name) -> Result<Losses> {
        let view = self.view();
        view.state.check_unmapped(name)?;
        let loss = match view.serving()?.pools.pool(name) {
            Ok(pool) => {
                let (volumes, used) = (pool.volumes(), Size::new(pool.status()?.used));
                let snapshots: usize = volumes.iter().map(|(_, _, beside)| beside.snapshots).sum();
                let snapshots = match snapshots {
                    0 => String::new(),
                    1 => ", a snapshot".to_owned(),
                    more => format!(", {more} snapshots"),
                };
                let volumes = match volumes.len() {
                    0 => "it has no volumes".to_owned(),
                    1 => format!("with its volume{snapshots} and the {used} it holds"),
                    more => format!("with its {more} volumes{snapshots} and the {used} they hold"),
                };
                format!("pool {name} would be lost, {volumes}")
            }
            // It is known, and not open.
            Err(error) if error.kind == Kind::Conflict => {
                format!("{error}; it and all that its drives hold would be lost")
            }
            Err(error) => return Err(error),
        };
        Ok(Losses { losses: vec![loss] })
    }

    /// Ends a pool, makes its drives blank and removes the files of its log, and forgets it.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while a volume of it is mapped or for a loss that is not meant, `Failed` when it cannot be
    /// written down.
    pub fn delete_pool(&self, name: &Name, consent: Consent) -> Result<()> {
        self.remove_pool(name, consent, &Task::default())
    }

    pub(super) fn remove_pool(&self, name: &Name, consent: Consent, task: &Task) -> Result<()> {
        let _turn = self.turn(name, task)?;
        check_meant(&self.losses_of_pool(name)?, consent.force)?;
        task.commit(0, 3, "ends it")?;
        let id = self.view().serving()?.pools.id_of(name)?;
        let had = self.open_pool_named(name).map(|open| open.volume_ids()).unwrap_or_default();
        let of = name.clone();
        let open = self.owner.ask(move |owned| {
            owned.state.check_unmapped(&of)?;
            let open = owned.serving_mut()?.pools_mut().begin_delete(&of)?;
            // First: what cannot be written down is not done.
            if let Err(error) = owned.keep() {
                owned.serving_mut()?.pools_mut().refuse_delete(&of);
                return Err(error);
            }
            owned.serving_mut()?.pools_mut().take_from_service(&of);
            Ok(open)
        })?;
        if let Some(pool) = open {
            self.end_deleted(&pool)?;
        }
        // It is deleted from here on, whatever comes.
        self.release_spares(name);
        let view = self.view();
        let pools = &view.serving()?.pools;
        let def = pools.defs().remove(name);
        let left = def.map_or(Ok(Vec::new()), |def| pools.opener().clear(&def, task))?;
        task.step(2, 3, "forgets it")?;
        let of = name.clone();
        let kept = self.owner.ask(move |owned| {
            owned.serving_mut()?.pools_mut().forget(&of);
            Ok(owned.keep())
        })?;
        self.events.record(Severity::Info, format!("pool {name} deleted"));
        self.drop_schedules_in(name, id, had);
        for words in left {
            let words =
                format!("of pool {name}, which was deleted, something may be left: {words}");
            self.events.record(Severity::Warning, words);
        }
        if let Err(error) = kept {
            // The next start goes on, and finds nothing left.
            self.events.record(Severity::Warning, format!("that is not written down: {error}"));
        }
        Ok(())
    }

    /// Ends a pool that is deleted. Where a drive does not answer what it was asked to write, that may come at any time:
    /// nothing is wiped before it has, and the deletion goes on by itself then.
    fn end_deleted(&self, pool: &Arc<OpenPool>) -> Result<()> {
        match self.end_pool(pool, Some(DELETE_PATIENCE)) {
            Ended::Yes => return Ok(()),
            Ended::Stops => {
                return Err(Error::new(Kind::Stopping, "the node stops")
                    .help("it is deleted when the node starts again"));
            }
            Ended::Late => {}
        }
        let (name, ending, late) = (pool.name().clone(), Arc::clone(pool), pool.late_paths());
        self.owner.ask(move |owned| {
            owned.serving_mut()?.pools_mut().delete_later(&name, ending);
            Ok(())
        })?;
        let what = format!("pool {} is not deleted yet: {} not answer", pool.name(), named(&late));
        Err(Error::new(Kind::Failed, what).help(
            "nothing of it is wiped: it goes on by itself once what the drive was asked to write is over, which the \
             kernel sees to when it gives the drive up, or when the daemon starts again",
        ))
    }

    /// Goes on with the deletions that an earlier life began.
    pub(super) fn delete_the_rest(self: &Arc<Self>) -> Result<()> {
        let begun = self.owner.ask_unseen(|owned| {
            let begun = owned.serving_mut()?.pools_mut().half_deleted().into_iter();
            let with_key = begun.map(|name| (owned.jobs.key_of_deletion(&name), name));
            Ok(with_key.collect::<Vec<_>>())
        })?;
        for (key, name) in begun {
            let work = Work::DeletePool(name.clone(), Consent::FORCE);
            if let Err(error) = events::on_behalf_of(None, || self.submit(work, key, true)) {
                let words = format!("pool {name} is not deleted yet: {error}");
                self.events.record(Severity::Warning, words);
            }
        }
        Ok(())
    }
}

/// Those that are waited for, in words, before "not answer".
fn named(late: &[PathBuf]) -> String {
    match late {
        [] => "a drive of it does".to_owned(),
        [one] => format!("{} does", one.display()),
        more => {
            let more: Vec<_> = more.iter().map(|path| path.display().to_string()).collect();
            format!("{} do", more.join(", "))
        }
    }
}
