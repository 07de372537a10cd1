//! Waiting for readers to leave what is to be used again.

use std::cell::Cell;

use reactor::sync::{Semaphore, Signal};

/// Counts readers in two rounds. Space found through the map stays as it is until every reader that
/// may have found it there is done.
pub struct Grace {
    round: Cell<usize>,
    readers: [Cell<usize>; 2],
    left: Signal,
    /// One round ends at a time.
    turn: Semaphore,
}

/// A reader at work.
pub struct Reading<'a> {
    grace: &'a Grace,
    round: usize,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let readers = &self.grace.readers[self.round];
        readers.set(readers.get() - 1);
        if readers.get() == 0 && self.round != self.grace.round.get() {
            self.grace.left.raise();
        }
    }
}

impl Default for Grace {
    fn default() -> Self {
        Self {
            round: Cell::new(0),
            readers: Default::default(),
            left: Signal::new(),
            turn: Semaphore::new(1),
        }
    }
}

impl Grace {
    /// To be held while something found through the map is read.
    #[must_use]
    pub fn read(&self) -> Reading<'_> {
        let round = self.round.get();
        self.readers[round].set(self.readers[round].get() + 1);
        Reading { grace: self, round }
    }

    /// Waits until everybody who reads now is done.
    pub async fn pass(&self) {
        let _turn = self.turn.hold(1).await;
        let round = self.round.get();
        self.round.set(1 - round);
        self.left.until(|| self.readers[round].get() == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn passes_when_earlier_readers_left_and_does_not_wait_for_later_ones() {
        reactor::simulate(1, async {
            let grace = Rc::new(Grace::default());
            let early = grace.read();
            let passed = Rc::new(Cell::new(false));
            let (other, flag) = (Rc::clone(&grace), Rc::clone(&passed));
            let waits = reactor::spawn(async move {
                other.pass().await;
                flag.set(true);
            });
            reactor::sleep(std::time::Duration::from_micros(1)).await;
            let late = grace.read();
            assert!(!passed.get());
            drop(early);
            waits.await;
            drop(late);
            grace.pass().await;
        });
    }
}
