//! Counts of what is going on.

use std::cell::Cell;

/// One more of what a count counts, until this is dropped.
#[derive(Debug)]
pub struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    /// Adds one to `count`.
    #[must_use]
    pub fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
