//! Trying again what failed for a reason that passes.

use crate::error::{Error, Kind};
use crate::limits::{PASSING_PATIENCE, PASSING_PAUSE, PASSING_PAUSE_MAX};
use reactor::{Nanos, now, sleep};
use std::time::Duration;

/// The attempts of one operation.
#[derive(Default)]
pub(crate) struct Again {
    /// Since the first one failed.
    since: Option<Nanos>,
    pause: Duration,
}

impl Again {
    /// Whether to try again after this error; waits a little first.
    pub async fn pause(&mut self, error: &Error) -> bool {
        if error.kind != Kind::Passing {
            return false;
        }
        let since = *self.since.get_or_insert_with(now);
        if u128::from(now() - since) >= PASSING_PATIENCE.as_nanos() {
            return false;
        }
        self.pause = (self.pause * 2).clamp(PASSING_PAUSE, PASSING_PAUSE_MAX);
        sleep(self.pause).await;
        true
    }

    /// Runs `operation` until it ends otherwise, or there is no patience left.
    pub async fn until_it_passed(
        operation: impl AsyncFn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut again = Self::default();
        loop {
            match operation().await {
                Err(error) if again.pause(&error).await => {}
                done => return done,
            }
        }
    }
}
