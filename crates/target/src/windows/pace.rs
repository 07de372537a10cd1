//! How often windows of a namespace are granted: each has its pool's catalog written, twice where it takes the place of
//! another.

use reactor::Nanos;
use stdx::num::u64_of;

use crate::limits::{WINDOW_GRANT_EVERY, WINDOW_GRANTS_AT_ONCE};

/// Some at once, and then one for each pause. Nothing is counted: it is the time until which what was granted counts.
#[derive(Debug, Default)]
pub struct Pace {
    until: Nanos,
}

impl Pace {
    /// Whether there may be another one now, which counts then.
    pub fn take(&mut self, now: Nanos) -> bool {
        let each = WINDOW_GRANT_EVERY.as_nanos().try_into().unwrap_or(Nanos::MAX);
        let until = self.until.max(now).saturating_add(each);
        if until - now > each.saturating_mul(u64_of(WINDOW_GRANTS_AT_ONCE)) {
            return false;
        }
        self.until = until;
        true
    }
}
