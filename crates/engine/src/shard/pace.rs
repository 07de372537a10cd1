//! So many bytes in a second, for work that nobody waits for.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reactor::{Nanos, now};

use crate::limits::REBUILD_PAUSE;

/// When the next bytes may be worked on.
pub struct Pace<'a> {
    /// Bytes in a second at most, by all shards together; 0 for as many as there is time for.
    limit: &'a AtomicU64,
    shards: u64,
    due: Cell<Nanos>,
}

impl<'a> Pace<'a> {
    pub fn new(limit: &'a AtomicU64, shards: u16) -> Self {
        Self { limit, shards: u64::from(shards), due: Cell::new(now()) }
    }

    /// Waits until so many bytes more may be worked on, as long as anybody wants that.
    pub async fn keep(&self, bytes: u64, is_wanted: impl Fn() -> bool) {
        let limit = self.limit.load(Ordering::Relaxed) / self.shards;
        if limit == 0 {
            return;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(limit);
        let due = self.due.get().max(now());
        self.due.set(due.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX)));
        loop {
            let left = Duration::from_nanos(due.saturating_sub(now()));
            if left.is_zero() || !is_wanted() {
                return;
            }
            reactor::sleep(left.min(REBUILD_PAUSE)).await;
        }
    }
}
