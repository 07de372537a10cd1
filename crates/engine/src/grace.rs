//! Waiting for those to leave who use what is to change.

use std::cell::Cell;
use std::fmt;

use reactor::sync::{Semaphore, Signal};

/// Counts users in two rounds. Space found through the map stays as it is until every reader that
/// may have found it there is done; a volume that goes waits for its writers.
pub struct Grace {
    round: Cell<usize>,
    users: [Cell<usize>; 2],
    left: Signal,
    /// One round ends at a time.
    turn: Semaphore,
}

/// A user at work.
pub struct Inside<'a> {
    grace: &'a Grace,
    round: usize,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let users = &self.grace.users[self.round];
        users.set(users.get() - 1);
        if users.get() == 0 {
            self.grace.left.raise();
        }
    }
}

impl Default for Grace {
    fn default() -> Self {
        Self {
            round: Cell::new(0),
            users: Default::default(),
            left: Signal::new(),
            turn: Semaphore::new(1),
        }
    }
}

impl fmt::Debug for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grace").field("users", &self.users).finish_non_exhaustive()
    }
}

impl Grace {
    /// To be held while what was found is used.
    #[must_use]
    pub fn enter(&self) -> Inside<'_> {
        let round = self.round.get();
        self.users[round].set(self.users[round].get() + 1);
        Inside { grace: self, round }
    }

    /// Waits until everybody who is inside now is done.
    pub async fn pass(&self) {
        let _turn = self.turn.hold(1).await;
        let round = self.round.get();
        // Left over where one who waited here was dropped.
        self.left.until(|| self.users[1 - round].get() == 0).await;
        self.round.set(1 - round);
        self.left.until(|| self.users[round].get() == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::time::Duration;

    #[test]
    fn passes_when_earlier_users_left_and_does_not_wait_for_later_ones() {
        reactor::simulate(1, async {
            let grace = Rc::new(Grace::default());
            let early = grace.enter();
            let passed = Rc::new(Cell::new(false));
            let (other, flag) = (Rc::clone(&grace), Rc::clone(&passed));
            let waits = reactor::spawn(async move {
                other.pass().await;
                flag.set(true);
            });
            reactor::sleep(Duration::from_micros(1)).await;
            let late = grace.enter();
            assert!(!passed.get());
            drop(early);
            waits.await;
            drop(late);
            grace.pass().await;
        });
    }

    /// The next one to wait once took the round of those left over for its own.
    #[test]
    fn one_who_waited_and_was_dropped_leaves_nobody_unseen() {
        reactor::simulate(2, async {
            let grace = Grace::default();
            let early = grace.enter();
            let brief = Duration::from_micros(1);
            assert!(reactor::timeout(brief, grace.pass()).await.is_err());
            assert!(reactor::timeout(brief, grace.pass()).await.is_err());
            drop(early);
            grace.pass().await;
        });
    }
}
