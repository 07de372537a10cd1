//! Pools are opened again whose drives failed beyond their redundancy and answer again. Everything else is served
//! meanwhile; hosts see their volumes as at a start: there, and inaccessible until the pool is open.

use std::sync::Arc;
use std::thread;

use api::v1::Severity;

use super::Node;
use super::opening::not_served;
use crate::jobs::Task;
use crate::limits::REST_LOOK;
use crate::pools::{OpenPool, Outcome, Reopening};
use crate::{Error, Result};

impl Node {
    /// Takes a pool out of service and begins to open it again, by a thread of its own.
    ///
    /// # Errors
    /// `Stopping`.
    pub(super) fn open_again(self: &Arc<Self>, again: Reopening) -> Result<()> {
        let name = again.pool.name().clone();
        let turn = self.turn(&name, &Task::default())?;
        let (of, wait, why) = (name.clone(), self.settings.wait_for_drives, again.why.clone());
        let begun = self.owner.ask(move |owned| {
            let state = Arc::clone(&owned.state);
            let serving = owned.serving_mut()?;
            let Some(attempt) = serving.pools_mut().begin_again(&again, wait) else {
                return Ok(None);
            };
            // First: what hosts send from here on waits for the pool, and does not fail.
            let failed = serving.withdraw(&of, &state.current);
            let opener = serving.pools().opener();
            owned.openings += 1;
            Ok(Some((attempt, opener, failed, again.pool)))
        })?;
        drop(turn);
        let Some((attempt, opener, failed, ending)) = begun else { return Ok(()) };
        let words = format!(
            "pool {name} is beyond its redundancy ({why}), and its drives answer again: it is ended as it is, and \
             opened again; hosts wait for it"
        );
        self.events.record(Severity::Warning, words);
        failed
            .iter()
            .for_each(|error| self.events.record(Severity::Error, not_served(&name, error)));
        let (node, pool) = (Arc::clone(self), Arc::clone(&ending));
        let open = thread::Builder::new().name("open-pool".to_owned());
        let opened = open.spawn(move || {
            if node.end_pool(&ending) {
                node.open_pool(&opener, &attempt);
            } else {
                node.end_opening();
            }
        });
        if let Err(error) = opened {
            // It is tried again with the next looks.
            self.end_pool(&pool);
            let failed = Error::failed("cannot start a thread", error);
            self.take_opened(&name, Outcome::Failed(failed));
            self.end_opening();
        }
        Ok(())
    }

    /// Ends a pool, and waits until nothing can come any more of what its drives were asked to do; false when the node
    /// stops.
    pub(super) fn end_pool(&self, pool: &OpenPool) -> bool {
        pool.abandon();
        while !pool.let_go() {
            if self.view().serving().is_err() {
                return false;
            }
            thread::park_timeout(REST_LOOK);
        }
        true
    }
}
