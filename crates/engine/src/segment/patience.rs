//! Writes that wait until there is space again behind their drives.

use reactor::sync::Signal;
use std::cell::Cell;

/// A shard's writes that wait for space.
pub struct Patience {
    waiting: Cell<usize>,
    ended: Cell<bool>,
    /// Raised when the first begins to wait, when the last need not any more, and when all is over.
    pub changed: Signal,
}

/// A write waiting.
pub(super) struct Waiting<'a>(&'a Patience);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.0.changed.raise();
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self { waiting: Cell::new(0), ended: Cell::new(false), changed: Signal::new() }
    }
}

impl Patience {
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting.set(self.waiting.get() + 1);
        self.changed.raise();
        Waiting(self)
    }

    /// Whether writes wait.
    pub const fn is_tried(&self) -> bool {
        self.waiting.get() > 0
    }

    /// No write waits any longer.
    pub fn end(&self) {
        self.ended.set(true);
        self.changed.raise();
    }

    pub const fn has_ended(&self) -> bool {
        self.ended.get()
    }
}
