//! Whose turn it is with each pool, and who waits behind.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::SyncSender;

use api::value::Name;

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
    /// It is the turn of whoever asks, or will be. A job has a number that is not 0.
    pub fn take(&mut self, pool: Name, job: u64, turn: SyncSender<()>) {
        let waiting = Waiting { job, turn };
        match self.0.get_mut(&pool) {
            Some(behind) => behind.push_back(waiting),
            None => {
                let _ = waiting.turn.send(());
                self.0.insert(pool, VecDeque::new());
            }
        }
    }

    /// A turn is over.
    pub fn pass(&mut self, pool: &Name) {
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
