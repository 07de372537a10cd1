//! Pools come to be open beside each other and beside everything else: each is opened by a thread of its own, which
//! holds nothing of the node. What comes of it is a change like any other.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use api::v1::Severity;
use api::value::{Backend, Name, PoolDrive};
use uuid::Uuid;

use super::Node;
use super::drive_openings::{Limit, Opened};
use super::owner::{Owned, View};
use crate::change::Step;
use crate::desired::NamespaceDef;
use crate::generic::{block_device, is_absence};
use crate::limits::OPENING_LOOK;
use crate::pools::{Attempt, Notes, OpenPool, Opener, Outcome, Searched, sights};
use crate::serving::{LateDrive, Place, not_open_yet};
use crate::{Error, Result, events};

impl Node {
    /// Begins to open the pools that are due, goes on with deletions that were cut short, and takes up drives and
    /// addresses that were absent and are there. Tells of files in use that are not there any more. Does not wait for
    /// the pools: [`wait_for_openings`](Self::wait_for_openings) does.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn open_late_pools(self: &Arc<Self>) -> Result<()> {
        self.delete_the_rest()?;
        self.open_due_pools()?;
        self.look_at_spares()?;
        self.take_back_drives()?;
        self.look_for_strays()?;
        self.attend_drives()?;
        self.take_up_drives()?;
        self.take_up_volumes()?;
        self.withdraw_listeners()?;
        self.take_up_listeners()
    }

    pub(super) fn open_due_pools(self: &Arc<Self>) -> Result<()> {
        let view = self.view();
        let pools = &view.serving()?.pools;
        let (closed, folders) = (pools.closed(), pools.folders());
        drop(view);
        // A place that hangs holds up nothing but this.
        let seen = sights(closed, &folders);
        let (attempts, opener) = self.owner.ask(move |owned| {
            let pools = owned.serving_mut()?.pools_mut();
            let (attempts, opener) = (pools.due(seen), pools.opener());
            owned.openings += attempts.len();
            Ok((attempts, opener))
        })?;
        for (turn, attempt) in attempts.into_iter().enumerate() {
            let (node, opener) = (Arc::clone(self), opener.beginning_with(turn));
            let name = attempt.name.clone();
            let open = thread::Builder::new().name("open-pool".to_owned());
            if let Err(error) = open.spawn(move || node.open_pool(&opener, &attempt)) {
                let failed = Error::failed("cannot start a thread", error);
                self.take_opened(&name, Outcome::Failed(failed));
                self.end_opening();
            }
        }
        Ok(())
    }

    pub(super) fn open_pool(&self, opener: &Opener, attempt: &Attempt) {
        let foretell = |log, next| self.foretell_log(&attempt.name, log, next);
        let outcome = opener.attempt(attempt, &foretell);
        if matches!(outcome, Outcome::Exported) {
            // The node had ended before they were given back.
            self.release_spares(&attempt.name);
        }
        self.take_opened(&attempt.name, outcome);
        self.end_opening();
    }

    /// Keeps what the log of a pool is called that is about to be opened, and what its next will be; whether it is kept.
    fn foretell_log(&self, name: &Name, log: Uuid, next: Uuid) -> bool {
        let name = name.clone();
        let kept = self.owner.ask(move |owned| {
            let def = owned.serving_mut()?.pools_mut().def_mut(&name)?;
            if def.knows_log(log) {
                def.log_id = Some(log);
            }
            def.log_next = Some(next);
            owned.keep()
        });
        kept.is_ok()
    }

    pub(super) fn end_opening(&self) {
        let ended = self.owner.ask(|owned| {
            owned.openings -= 1;
            Ok(())
        });
        debug_assert!(ended.is_ok(), "the owner outlives openings");
    }

    /// Takes what came of an attempt. Readers see it when hosts do, however long it takes to be written down.
    pub(super) fn take_opened(&self, name: &Name, outcome: Outcome) {
        let name = name.clone();
        match self.owner.ask(move |owned| Ok(owned.take_opened(&name, outcome))) {
            Ok(Taken::Said { said, is_news }) => {
                said.into_iter().for_each(|(severity, words)| self.events.record(severity, words));
                if is_news && let Err(error) = self.owner.ask(Owned::keep) {
                    let words = format!("what is served is not kept: {error}");
                    self.events.record(Severity::Error, words);
                }
            }
            // It is nobody's any more.
            Ok(Taken::Back(pool)) => pool.close(),
            Err(error) => self.events.record(Severity::Error, error.context),
        }
    }

    /// Waits until no pool is being opened, or for so long: whether none is.
    pub fn wait_for_openings(&self, limit: Duration) -> bool {
        self.owner.wait_until(limit, |view| view.openings == 0)
    }

    /// Waits until no pool is being opened but those that are known to wait for a drive, or for so long.
    pub(super) fn wait_for_prompt_openings(&self, limit: Duration) {
        let begun = reactor::now_exact();
        let is_done = |view: &View| {
            let waiting = view.serving().map_or(0, |serving| serving.pools.waiting());
            view.openings <= waiting
        };
        // That a drive is waited for is no command: it is looked at.
        while !self.owner.wait_until(OPENING_LOOK, is_done)
            && Duration::from_nanos(reactor::now_exact() - begun) < limit
        {}
    }

    /// Looks for the drives that open pools lack, and takes back those that are here again.
    fn take_back_drives(self: &Arc<Self>) -> Result<()> {
        let searches =
            self.owner.ask_unseen(|owned| Ok(owned.serving_mut()?.pools_mut().searches()))?;
        for search in searches {
            // A pool that was closed meanwhile.
            let Ok(searched) = search.run(&self.settings) else { continue };
            let Searched { name, away, moved, lives, outlooks, slow, said, reopening, due } =
                searched;
            let of = name.clone();
            let kept = self.owner.ask(move |owned| {
                let pools = owned.serving_mut()?.pools_mut();
                let is_new = pools.searched(name, away, moved, lives, outlooks, slow);
                Ok(if is_new { owned.keep() } else { Ok(()) })
            })?;
            said.into_iter().for_each(|(severity, words)| self.events.record(severity, words));
            if let Err(error) = kept {
                self.events.record(Severity::Error, error.context);
            }
            if let Some(again) = reopening {
                self.open_again(again)?;
            }
            // Neither this pool's redundancy nor the others' waits for what is only written down: it is tried again.
            if let Err(error) = self.write_down(&of, due.notes) {
                tracing::warn!("that is not written down of pool {of}: {error}");
            }
            due.spares.iter().for_each(|(place, spare, why)| self.begin_spare(place, *spare, *why));
            if due.forgets_pause {
                self.forget_pause(&of);
            }
            self.follow_moves(&of, due.moves)?;
            due.rejoins.iter().for_each(|place| self.begin_to_follow_rejoin(place));
            due.detaching.into_iter().for_each(|path| self.follow_detaching(path));
            if let Some(work) = due.scrub {
                self.begin_scrub(&of, work);
            }
        }
        Ok(())
    }

    fn write_down(&self, of: &Name, notes: Notes) -> Result<()> {
        for spare in notes.used_spares {
            self.spare_used(of, spare, None)?;
        }
        for index in notes.unplaced {
            self.forget_place(&PoolDrive { pool: of.clone(), index })?;
        }
        if let Some(were_fast) = notes.were_fast {
            self.note_fast(of, were_fast)?;
        }
        if notes.mends_scrub {
            self.remember(of, |def| _ = def.scrub.mend(events::now_ms()))?;
        }
        Ok(())
    }

    /// Looks after drives that get commands as they are. Has namespaces be absent whose drives went away or have
    /// another size: they are taken up again as what they are. Tells once which cannot be asked how they are.
    fn attend_drives(&self) -> Result<()> {
        for (place, media) in self.owner.ask_unseen(|owned| Ok(owned.serving()?.passthroughs()))? {
            let what = format!("namespace {} of {}", place.1, place.0);
            if let Some(why) = media.tell_silence() {
                self.events.record(Severity::Info, format!("{what}: {why}"));
            }
            let Some(why) = media.change() else { continue };
            let withdrawn = self.owner.ask(move |owned| {
                let is_withdrawn = owned.serving_mut()?.withdraw_drive(&place, &media)?;
                owned.keep().map(|()| is_withdrawn)
            });
            match withdrawn {
                Ok(false) => {}
                Ok(true) => {
                    let words = format!("{what}: {why}; hosts wait until it is served again");
                    self.events.record(Severity::Error, words);
                }
                Err(error) => {
                    self.events.record(Severity::Error, format!("{what}: {why}: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Takes up the volumes of open pools that were absent.
    fn take_up_volumes(&self) -> Result<()> {
        let has_late = self.owner.ask_unseen(|owned| {
            let state = Arc::clone(&owned.state);
            Ok(!owned.serving_mut()?.late_volumes(&state.current).is_empty())
        })?;
        if !has_late {
            return Ok(());
        }
        match self.owner.ask(|owned| Ok(owned.attach_late()))? {
            Ok(served) => {
                for (nqn, nsid) in served {
                    let words = format!("namespace {nsid} of {nqn} is served again");
                    self.events.record(Severity::Info, words);
                }
            }
            Err(error) => self.events.record(Severity::Error, error.context),
        }
        Ok(())
    }

    /// Takes up the drives of namespaces that were absent.
    pub(super) fn take_up_drives(&self) -> Result<()> {
        let late = self
            .owner
            .ask_unseen(|owned| Ok(owned.serving()?.late_drives(&owned.state.current)))?;
        let view = self.view();
        let pools = &view.serving()?.pools;
        let with = (self.physical.machine(), &pools.opener());
        let mut opened = self.drive_openings.open(&late, with, Limit::BRIEF);
        for LateDrive { place, def, .. } in late {
            let Some(opened) = opened.remove(&place) else {
                self.tell_unserved(place, &not_open_yet(&def));
                continue;
            };
            let opened = opened.and_then(|opened| {
                let doubt = opened.doubt.clone();
                Ok((opened.not_of(pools, &def)?, doubt))
            });
            let (media, doubt) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    self.tell_unfit(place, &def, &error);
                    continue;
                }
            };
            self.unfit.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
            let what = format!("namespace {} of {}", place.1, place.0);
            let provided = self.owner.ask(move |owned| {
                let wanted = owned.state.current.subsystem(&place.0);
                // It may be asked for in another way by now, or be about to, or not at all.
                if wanted.and_then(|wanted| wanted.namespaces.get(&place.1)) != Some(&def)
                    || owned.taken_out.contains(&place)
                {
                    return Ok(false);
                }
                owned.serving_mut()?.provide(&place, &def, media)?;
                owned.keep().map(|()| true)
            });
            match provided {
                Ok(false) => {}
                Ok(true) => {
                    self.events.record(Severity::Info, format!("{what}: its drive is there"));
                    self.tell_doubt(&what, doubt);
                }
                Err(error) => {
                    self.events.record(Severity::Error, format!("{what} is not served: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Opens the drives that `steps` ask for, but those that a pool is known to wait for. What takes longer than it may is
    /// taken up later, if the node starts without it, which it does where it is `patient`.
    pub(super) fn open_drives(&self, steps: &[Step], patient: bool) -> Result<Opened> {
        let view = self.view();
        let (pools, seen) = (&view.serving()?.pools, &view.state.seen);
        let is_free = |drive: &LateDrive| {
            let path = block_device(&drive.def.backend);
            path.is_none_or(|path| pools.check_no_drive(&path).is_ok())
        };
        let drives = steps.iter().filter_map(|step| LateDrive::of(step, seen)).filter(is_free);
        let limit = if patient { Limit::of_start() } else { Limit::LONG };
        let with = (self.physical.machine(), &pools.opener());
        let mut opened = self.drive_openings.open(&drives.collect::<Vec<_>>(), with, limit);
        for ((nqn, nsid), opened) in &mut opened {
            if let Ok(opened) = opened {
                self.tell_doubt(&format!("namespace {nsid} of {nqn}"), opened.doubt.take());
            }
        }
        Ok(opened)
    }

    /// Tells what speaks against a drive that is served.
    fn tell_doubt(&self, what: &str, doubt: Option<String>) {
        if let Some(doubt) = doubt {
            self.events.record(Severity::Warning, format!("{what}: {doubt}"));
        }
    }

    /// Tells once why a drive that is there is not taken up: another, or with another format.
    fn tell_unfit(&self, place: Place, def: &NamespaceDef, error: &Error) {
        let is_there = match &def.backend {
            Backend::Passthrough { .. } => !is_absence(error),
            Backend::Drive { path, .. } => path.exists(),
            Backend::Memory { .. } | Backend::Volume(_) | Backend::Snapshot(_) => false,
        };
        if is_there {
            self.tell_unserved(place, error);
        }
    }

    /// Tells once why a namespace is not served.
    fn tell_unserved(&self, place: Place, error: &Error) {
        let (nqn, nsid) = &place;
        let words = format!("namespace {nsid} of {nqn} is not served: {}", error.advised());
        let mut told = self.unfit.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(place, words.clone()).as_ref() != Some(&words) {
            drop(told);
            self.events.record(Severity::Error, words);
        }
    }

    /// Listens no more on addresses whose RDMA devices were removed.
    fn withdraw_listeners(&self) -> Result<()> {
        if !self.owner.ask_unseen(|owned| Ok(owned.serving()?.has_deserted_listeners()))? {
            return Ok(());
        }
        for address in self.owner.ask(|owned| owned.serving_mut()?.withdraw_listeners())? {
            let words = format!(
                "{address} is not listened on: its RDMA device was removed. It is as soon as the device is there again"
            );
            self.events.record(Severity::Error, words);
        }
        Ok(())
    }

    /// Listens on addresses that were absent.
    fn take_up_listeners(&self) -> Result<()> {
        let (late, bind) = self.owner.ask_unseen(|owned| {
            let serving = owned.serving()?;
            Ok((serving.late_listeners(&owned.state.current), serving.binder()))
        })?;
        for (address, def) in late {
            let Ok(listening) = bind(address) else { continue };
            let listened =
                self.owner.ask(move |owned| owned.serving_mut()?.listen(address, &def, listening));
            match listened {
                Ok(()) => self.events.record(Severity::Info, format!("listening on {address}")),
                Err(error) => {
                    self.events
                        .record(Severity::Error, format!("{address} is not listened on: {error}"));
                }
            }
        }
        Ok(())
    }
}

/// What came of an opening.
enum Taken {
    /// There is something to be said, and to be written down where it `is_news`.
    Said { said: Vec<(Severity, String)>, is_news: bool },
    /// The pool is not wanted any more.
    Back(Arc<OpenPool>),
}

impl Owned {
    fn take_opened(&mut self, name: &Name, outcome: Outcome) -> Taken {
        let Ok(serving) = self.serving_mut() else {
            return match outcome {
                Outcome::Opened(pool, _) => Taken::Back(pool),
                Outcome::Lacking(_) | Outcome::Exported | Outcome::Failed(_) => {
                    Taken::Said { said: Vec::new(), is_news: false }
                }
            };
        };
        let mut said = Vec::new();
        let mut is_news = matches!(outcome, Outcome::Exported);
        match serving.pools_mut().finish(name, outcome) {
            Ok(words) => said.extend(words),
            Err(pool) => return Taken::Back(pool),
        }
        if let Ok(pool) = serving.pools().pool(name) {
            if pool.has_lost_log() {
                said.push((Severity::Error, log_lost(name)));
            }
            if pool.has_new_log() {
                said.push((Severity::Warning, log_rebuilt(name)));
            }
            let failed = self.attach(name);
            said.extend(failed.iter().map(|error| (Severity::Error, not_served(name, error))));
            is_news = true;
        }
        Taken::Said { said, is_news }
    }
}

/// What is to be said of a pool that was opened without its log.
pub(super) fn log_lost(name: &Name) -> String {
    format!(
        "pool {name} was opened without its commit log, which was lost: writes that were \
         acknowledged and not on the drives yet may be lost, so check what uses its \
         volumes; a new log was made"
    )
}

/// What is to be said of a pool that was closed in order and opened without its log.
pub(super) fn log_rebuilt(name: &Name) -> String {
    format!(
        "pool {name} was opened without a device of its commit log, and a new log was made: nothing is lost, for the \
         pool had been closed in order and nothing was in it"
    )
}

/// What is to be said of a volume that its pool does not give.
pub(super) fn not_served(pool: &Name, error: &crate::Error) -> String {
    format!("a volume of pool {pool} cannot be served: {error}")
}

#[cfg(test)]
mod tests;
