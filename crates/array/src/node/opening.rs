//! Pools come to be open beside each other and beside everything else: each is opened by a thread of its own, which
//! holds nothing of the node. What comes of it is a change like any other.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use api::v1::Severity;
use api::value::Name;

use super::Node;
use crate::Result;
use crate::limits::OPENING_LOOK;
use crate::pools::{Attempt, Opener, Outcome, Searched, sights};
use crate::serving::media::Media;

impl Node {
    /// Begins to open the pools that are due, and takes up drives and addresses that were absent and are there.
    /// Does not wait for the pools: [`wait_for_openings`](Self::wait_for_openings) does.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn open_late_pools(self: &Arc<Self>) -> Result<()> {
        self.open_due_pools()?;
        self.take_back_drives()?;
        self.take_up_drives()?;
        self.take_up_listeners()
    }

    pub(super) fn open_due_pools(self: &Arc<Self>) -> Result<()> {
        let (closed, folders) = {
            let inner = self.inner();
            let pools = inner.serving()?.pools();
            (pools.closed(), pools.folders())
        };
        // Under no lock: a place that hangs holds up nothing but this.
        let seen = sights(closed, &folders);
        let (attempts, opener) = {
            let mut inner = self.inner();
            let pools = inner.serving_mut()?.pools_mut();
            let (attempts, opener) = (pools.due(seen), pools.opener());
            inner.openings += attempts.len();
            (attempts, opener)
        };
        for (turn, attempt) in attempts.into_iter().enumerate() {
            let (node, opener) = (Arc::clone(self), opener.beginning_with(turn));
            let name = attempt.name.clone();
            let open = thread::Builder::new().name("open-pool".to_owned());
            if let Err(error) = open.spawn(move || node.open_pool(&opener, &attempt)) {
                let failed = crate::Error::failed("cannot start a thread", error);
                self.take_opened(&name, Outcome::Failed(failed));
                self.end_opening();
            }
        }
        Ok(())
    }

    pub(super) fn open_pool(&self, opener: &Opener, attempt: &Attempt) {
        let outcome = opener.attempt(attempt);
        self.take_opened(&attempt.name, outcome);
        self.end_opening();
    }

    pub(super) fn end_opening(&self) {
        self.inner().openings -= 1;
        self.settled.notify_all();
    }

    /// Takes what came of an attempt.
    pub(super) fn take_opened(&self, name: &Name, outcome: Outcome) {
        let _changing = self.changing();
        let mut inner = self.inner();
        let current = inner.state.current.clone();
        let Ok(serving) = inner.serving_mut() else {
            drop(inner);
            if let Outcome::Opened(pool, _) = outcome {
                pool.close();
            }
            return;
        };
        let mut said = Vec::new();
        let mut is_news = matches!(outcome, Outcome::Exported);
        match serving.pools_mut().finish(name, outcome) {
            Ok(words) => said.extend(words),
            Err(pool) => {
                drop(inner);
                pool.close();
                return;
            }
        }
        if let Ok(pool) = serving.pools().pool(name) {
            if pool.has_lost_log() {
                said.push((Severity::Error, log_lost(name)));
            }
            if pool.has_new_log() {
                said.push((Severity::Warning, log_anew(name)));
            }
            let failed = serving.attach(name, &current);
            said.extend(failed.iter().map(|error| (Severity::Error, not_served(name, error))));
            is_news = true;
        }
        if is_news && let Err(error) = self.keep(&mut inner) {
            said.push((Severity::Error, format!("what is served is not kept: {error}")));
        }
        drop(inner);
        said.into_iter().for_each(|(severity, words)| self.events.record(severity, words));
    }

    /// Waits until no pool is being opened, or for so long: whether none is.
    pub fn wait_for_openings(&self, limit: Duration) -> bool {
        let waited =
            self.settled.wait_timeout_while(self.inner(), limit, |inner| inner.openings > 0);
        let (inner, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        inner.openings == 0
    }

    /// Waits until no pool is being opened but those that are known to wait for a drive, or for so long.
    pub(super) fn wait_for_prompt_openings(&self, limit: Duration) {
        let begun = reactor::now_exact();
        let is_done = |inner: &super::Inner| {
            let waiting = inner.serving().map_or(0, |serving| serving.pools().waiting());
            inner.openings <= waiting
        };
        let mut inner = self.inner();
        while !is_done(&inner) && Duration::from_nanos(reactor::now_exact() - begun) < limit {
            // What tells that a drive is waited for holds nothing of the node: it is looked at.
            let waited = self.settled.wait_timeout(inner, OPENING_LOOK);
            (inner, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Looks for the drives that open pools lack, and takes back those that are here again.
    fn take_back_drives(self: &Arc<Self>) -> Result<()> {
        let searches = self.inner().serving_mut()?.pools_mut().searches();
        for search in searches {
            // A pool that was closed meanwhile.
            let Ok(searched) = search.run() else { continue };
            let Searched { name, away, moved, said, reopening } = searched;
            let mut inner = self.inner();
            let is_elsewhere = inner.serving_mut()?.pools_mut().searched(name, away, moved);
            let kept = if is_elsewhere { self.keep(&mut inner) } else { Ok(()) };
            drop(inner);
            said.into_iter().for_each(|(severity, words)| self.events.record(severity, words));
            if let Err(error) = kept {
                self.events.record(Severity::Error, error.context);
            }
            if let Some(again) = reopening {
                self.open_again(again)?;
            }
        }
        Ok(())
    }

    /// Takes up the drives of namespaces that were absent.
    fn take_up_drives(&self) -> Result<()> {
        let late = {
            let inner = self.inner();
            inner.serving()?.late_drives(&inner.state.current)
        };
        for (place, def) in late {
            let Ok(media) = Media::open_late(&def) else { continue };
            let _changing = self.changing();
            let mut inner = self.inner();
            let provided = inner.serving_mut()?.provide(&place, &def, media);
            let provided = provided.and_then(|()| self.keep(&mut inner));
            drop(inner);
            let what = format!("namespace {} of {}", place.1, place.0);
            match provided {
                Ok(()) => self.events.record(Severity::Info, format!("{what}: its drive is there")),
                Err(error) => {
                    self.events.record(Severity::Error, format!("{what} is not served: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Listens on addresses that were absent.
    fn take_up_listeners(&self) -> Result<()> {
        let (late, bind) = {
            let inner = self.inner();
            let serving = inner.serving()?;
            (serving.late_listeners(&inner.state.current), serving.binder())
        };
        for (address, def) in late {
            let Ok(listening) = bind(address) else { continue };
            let _changing = self.changing();
            let listened = self.inner().serving_mut()?.listen(address, &def, listening);
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

/// What is to be said of a pool that was opened without its log.
pub(super) fn log_lost(name: &Name) -> String {
    format!(
        "pool {name} was opened without its commit log, which was lost: writes that were \
         acknowledged and not on the drives yet may be lost, so check what uses its \
         volumes; a new log was made"
    )
}

/// What is to be said of a pool that was closed in order and opened without its log.
pub(super) fn log_anew(name: &Name) -> String {
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
