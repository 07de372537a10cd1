//! Whose turn it is with a pool: what takes long with its volumes is done one after the other, in the order in which
//! it was asked for. Other pools, and whoever only looks, do not wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use api::v1::Kind;
use api::value::Name;

use super::Node;
use super::owner::Owner;
use crate::jobs::Task;
use crate::{Error, Result};

/// Those who wait for a pool behind the one whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns(BTreeMap<Name, VecDeque<Waiting>>);

#[derive(Debug)]
struct Waiting {
    /// Of no job: 0.
    job: u64,
    turn: SyncSender<()>,
}

impl Turns {
    /// It is the turn of whoever asks, or will be.
    fn take(&mut self, pool: Name, waiting: Waiting) {
        match self.0.get_mut(&pool) {
            Some(behind) => behind.push_back(waiting),
            None => {
                let _ = waiting.turn.send(());
                self.0.insert(pool, VecDeque::new());
            }
        }
    }

    /// A turn is over.
    fn pass(&mut self, pool: &Name) {
        while let Some(next) = self.0.get_mut(pool).and_then(VecDeque::pop_front) {
            // Whoever does not wait any more is passed over.
            if next.turn.send(()).is_ok() {
                return;
            }
        }
        self.0.remove(pool);
    }

    /// Whether nobody has a turn with a pool.
    pub fn is_free(&self, pool: &Name) -> bool {
        !self.0.contains_key(pool)
    }

    /// How many wait for a pool.
    #[cfg(test)]
    pub fn behind(&self, pool: &Name) -> usize {
        self.0.get(pool).map_or(0, VecDeque::len)
    }

    /// A job waits no longer.
    pub fn give_up(&mut self, job: u64) {
        for behind in self.0.values_mut() {
            behind.retain(|waiting| waiting.job != job);
        }
    }
}

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
            owned.turns.take(name, Waiting { job: going.job(), turn });
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
