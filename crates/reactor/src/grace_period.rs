//! Waiting for those to leave who use what is to change.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use crate::sync::{Semaphore, Signal};

/// Counts users in two rounds. What is found stays as it is until every user that may have found it there
/// has left: who changes it takes it out of sight first, and then waits for them.
pub struct GracePeriod {
    round: Cell<usize>,
    users: [Rc<Users>; 2],
    /// One round ends at a time.
    turn: Semaphore,
}

/// The users of one round.
struct Users {
    count: Cell<usize>,
    left: Signal,
}

impl Users {
    fn new() -> Rc<Self> {
        Rc::new(Self { count: Cell::new(0), left: Signal::new() })
    }

    async fn leave(&self) {
        self.left.until(|| self.count.get() == 0).await;
    }
}

/// A user at work, until it is dropped.
#[must_use]
pub struct ReadGuard(Rc<Users>);

impl Drop for ReadGuard {
    fn drop(&mut self) {
        let Users { count, left } = &*self.0;
        count.set(count.get() - 1);
        if count.get() == 0 {
            left.raise();
        }
    }
}

impl fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadGuard").finish_non_exhaustive()
    }
}

impl Default for GracePeriod {
    fn default() -> Self {
        Self { round: Cell::new(0), users: [Users::new(), Users::new()], turn: Semaphore::new(1) }
    }
}

impl fmt::Debug for GracePeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users = self.users.each_ref().map(|users| users.count.get());
        f.debug_struct("GracePeriod").field("users", &users).finish_non_exhaustive()
    }
}

impl GracePeriod {
    /// To be held while what was found is used.
    pub fn enter(&self) -> ReadGuard {
        let users = &self.users[self.round.get()];
        users.count.set(users.count.get() + 1);
        ReadGuard(Rc::clone(users))
    }

    /// Waits until everybody who is inside now is done.
    pub async fn pass(&self) {
        let _turn = self.turn.hold(1).await;
        let round = self.round.get();
        // Left over where one who waited here was dropped.
        self.users[1 - round].leave().await;
        self.round.set(1 - round);
        self.users[round].leave().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn passes_when_earlier_users_left_and_does_not_wait_for_later_ones() {
        crate::simulate(1, async {
            let grace = Rc::new(GracePeriod::default());
            let early = grace.enter();
            let passed = Rc::new(Cell::new(false));
            let (other, flag) = (Rc::clone(&grace), Rc::clone(&passed));
            let waits = crate::spawn(async move {
                other.pass().await;
                flag.set(true);
            });
            crate::sleep(Duration::from_micros(1)).await;
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
        crate::simulate(2, async {
            let grace = GracePeriod::default();
            let early = grace.enter();
            let brief = Duration::from_micros(1);
            assert!(crate::timeout(brief, grace.pass()).await.is_err());
            assert!(crate::timeout(brief, grace.pass()).await.is_err());
            drop(early);
            grace.pass().await;
        });
    }
}
