//! Writes that wait until there is space again behind their drives.

use reactor::Nanos;
use reactor::sync::Signal;
use std::cell::Cell;

/// A shard's writes that wait for space.
pub struct SpaceWait {
    waiting: Cell<usize>,
    /// When the latest of those that found no space was tried.
    refused: Cell<Option<Nanos>>,
    ended: Cell<bool>,
    /// Raised when one found no space, when it need not wait any more, and when all is over.
    changed: Signal,
}

/// A write waiting.
pub(crate) struct Waiting<'a>(&'a SpaceWait);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        assert!(self.0.waiting.get() > 0, "a write that waits is counted");
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.0.changed.raise();
    }
}

impl Default for SpaceWait {
    fn default() -> Self {
        Self {
            waiting: Cell::new(0),
            refused: Cell::new(None),
            ended: Cell::new(false),
            changed: Signal::new(),
        }
    }
}

impl SpaceWait {
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.set(self.waiting.get() + 1);
        Waiting(self)
    }

    /// One that was tried then found no space.
    pub(crate) fn refused(&self, tried: Nanos) {
        self.refused.set(self.refused.get().max(Some(tried)));
        self.changed.raise();
    }

    /// Whether writes wait.
    pub const fn is_tried(&self) -> bool {
        self.waiting.get() > 0
    }

    /// When the latest of those that found no space was tried.
    pub const fn last_refused(&self) -> Option<Nanos> {
        self.refused.get()
    }

    /// Waits until `done`, which is looked at whenever something here changed.
    pub async fn until(&self, done: impl FnMut() -> bool) {
        self.changed.until(done).await;
    }

    /// Has whoever waits look again.
    pub fn wake(&self) {
        self.changed.raise();
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
