//! Bytes of a region in the hands of who sends them.

use std::rc::Rc;
use std::sync::Arc;

use reactor::ReadGuard;

use super::Region;

/// A memory region as the I/O path holds it: cloning counts on this core only.
pub type SharedRegion = Rc<Arc<Region>>;

/// Bytes of a region that stay as they are while this is held, so that they can be sent from where they lie.
/// Who keeps the region waits for it, so it is not to be held for as long as a host pleases.
#[derive(Debug)]
pub struct PinnedRead {
    region: SharedRegion,
    offset: u64,
    length: usize,
    _guard: ReadGuard,
}

impl PinnedRead {
    /// `length` bytes from `offset` on, which whoever gave `guard` keeps from being written.
    #[must_use]
    pub fn new(region: SharedRegion, offset: u64, length: usize, guard: ReadGuard) -> Self {
        Self { region, offset, length, _guard: guard }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.region.bytes(self.offset, self.length).unwrap_or_default()
    }
}
