//! Who works on which stripes.

use std::cell::RefCell;
use std::ops::Range;

use reactor::sync::Signal;

struct Entry {
    turn: u64,
    stripes: Range<u64>,
    /// It holds its stripes; else it waits.
    held: bool,
    /// It changes them.
    writes: bool,
}

/// Stripes in use, each by one at a time; who asks first has them first.
#[derive(Default)]
pub struct StripeLocks {
    entries: RefCell<Vec<Entry>>,
    turns: std::cell::Cell<u64>,
    freed: Signal,
}

impl StripeLocks {
    /// Waits until nobody else has any of `stripes`.
    pub async fn lock(&self, stripes: Range<u64>, writes: bool) -> Held<'_> {
        let turn = self.turns.get();
        self.turns.set(turn + 1);
        let entry = Entry { turn, stripes: stripes.clone(), held: false, writes };
        self.entries.borrow_mut().push(entry);
        let held = Held { locks: self, turn };
        self.freed.until(|| self.take(turn, &stripes)).await;
        held
    }

    fn take(&self, turn: u64, stripes: &Range<u64>) -> bool {
        let mut entries = self.entries.borrow_mut();
        let overlaps = |e: &Entry| e.stripes.start < stripes.end && stripes.start < e.stripes.end;
        if entries.iter().any(|e| e.turn < turn && overlaps(e)) {
            return false;
        }
        if let Some(own) = entries.iter_mut().find(|e| e.turn == turn) {
            own.held = true;
        }
        true
    }

    /// Stripes that are being written.
    pub fn written(&self) -> Vec<Range<u64>> {
        let entries = self.entries.borrow();
        entries.iter().filter(|e| e.held && e.writes).map(|e| e.stripes.clone()).collect()
    }
}

/// Stripes held until dropped.
pub struct Held<'a> {
    locks: &'a StripeLocks,
    turn: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.locks.entries.borrow_mut().retain(|e| e.turn != self.turn);
        self.locks.freed.raise();
    }
}
