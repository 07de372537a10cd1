//! Pools are opened again whose drives failed beyond their redundancy and answer again. Everything else is served
//! meanwhile; hosts see their volumes as at a start: there, and inaccessible until the pool is open.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use api::v1::Severity;

use super::Node;
use super::opening::not_served;
use crate::jobs::Task;
use crate::limits::REST_LOOK;
use crate::pools::{OpenPool, Outcome, Reopening};
use crate::{Error, Result};

/// What came of ending a pool.
pub(super) enum Ended {
    /// Nothing of it is left.
    Yes,
    /// A drive may still be written to.
    Late,
    /// The node stops.
    Stops,
}

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
        let opened = open.spawn(move || match node.end_pool(&ending, None) {
            Ended::Yes => node.open_pool(&opener, &attempt),
            Ended::Stops | Ended::Late => node.end_opening(),
        });
        if let Err(error) = opened {
            // It is tried again with the next looks.
            self.end_pool(&pool, None);
            let failed = Error::failed("cannot start a thread", error);
            self.take_opened(&name, Outcome::Failed(failed));
            self.end_opening();
        }
        Ok(())
    }

    /// Ends a pool, and waits until nothing can come any more of what its drives were asked to do, or for so long.
    pub(super) fn end_pool(&self, pool: &OpenPool, patience: Option<Duration>) -> Ended {
        pool.abandon();
        let begun = reactor::now_exact();
        while !pool.let_go() {
            if self.view().serving().is_err() {
                return Ended::Stops;
            }
            let waited = Duration::from_nanos(reactor::now_exact() - begun);
            if patience.is_some_and(|patience| waited >= patience) {
                return Ended::Late;
            }
            thread::park_timeout(REST_LOOK);
        }
        Ended::Yes
    }
}
