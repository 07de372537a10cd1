//! A turn with a pool: what takes long with its volumes is done one after the other, in the order in which it was asked
//! for. Other pools, and whoever only looks, do not wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use api::v1::Kind;
use api::value::Name;

use super::Node;
use super::owner::Owner;
use crate::jobs::Task;
use crate::{Error, Result};

/// A turn with a pool, passed on when it is dropped.
pub(super) struct Turn {
    owner: Arc<Owner>,
    pool: Name,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let pool = self.pool.clone();
        let _ = self.owner.ask_unseen(move |owned| {
            owned.turns.pass(&pool);
            Ok(())
        });
    }
}

impl Node {
    /// Waits for one's turn with each of these pools: in order, so that nobody waits for whoever waits for him.
    ///
    /// # Errors
    /// `Stopping`.
    pub(super) fn turns(&self, pools: BTreeSet<Name>) -> Result<Vec<Turn>> {
        pools.iter().map(|pool| self.turn(pool, &Task::default())).collect()
    }

    /// Waits for one's turn with a pool.
    ///
    /// # Errors
    /// `Conflict` when the job was cancelled meanwhile.
    pub(super) fn turn(&self, pool: &Name, task: &Task) -> Result<Turn> {
        let (turn, given) = sync_channel(1);
        let (name, going) = (pool.clone(), task.clone());
        self.owner.ask_unseen(move |owned| {
            // Whoever cancels it from here on finds it waiting.
            going.goes_on()?;
            owned.turns.take(name, going.job(), turn);
            Ok(())
        })?;
        // Nobody gives turns any more where the node stops.
        let untaken = || Error::new(Kind::Stopping, "the daemon stopped before its turn came");
        given.recv().map_err(|_| task.goes_on().err().unwrap_or_else(untaken))?;
        let turn = Turn { owner: Arc::clone(&self.owner), pool: pool.clone() };
        task.step(0, 1, "has its turn")?;
        Ok(turn)
    }
}
