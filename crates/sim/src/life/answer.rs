//! What the pool answers, and what it may not.

use super::{COMMAND, Life, PATIENCE};
use crate::model::Violation;
use crate::store::Refusal;
use reactor::{Nanos, now, timeout};
use std::time::Duration;

/// What became of an operation.
pub(super) enum Answer<T> {
    Done(T),
    /// For want of space, or because what was asked makes no sense.
    Refused(Refusal),
    /// Its host did not wait.
    GivenUp,
    /// Nothing is known of it.
    Lost,
}

impl Life {
    /// Waits for an operation that is not stuck, and sorts what a pool may refuse from what it may
    /// not.
    pub(super) async fn settled<T>(
        &self,
        what: &str,
        operation: impl Future<Output = Result<T, Refusal>>,
    ) -> Answer<T> {
        self.settled_within(what, operation, None).await
    }

    /// As [`settled`](Self::settled), given up after so long.
    pub(super) async fn settled_within<T>(
        &self,
        what: &str,
        operation: impl Future<Output = Result<T, Refusal>>,
        patience: Option<Duration>,
    ) -> Answer<T> {
        let answer = timeout(patience.unwrap_or(PATIENCE), operation).await;
        if !self.run.world.is_on() {
            // Whatever it says, nobody heard it.
            std::future::pending::<()>().await;
        }
        self.watch_log();
        match answer {
            Ok(Ok(value)) => Answer::Done(value),
            Ok(Err(Refusal::Full)) => {
                self.note(format_args!("{what}: full"));
                self.count(|c| c.refused_full += 1);
                Answer::Refused(Refusal::Full)
            }
            Ok(Err(Refusal::Quota)) => {
                self.note(format_args!("{what}: its quota"));
                self.count(|c| c.refused_quota += 1);
                Answer::Refused(Refusal::Quota)
            }
            Ok(Err(Refusal::Lost(why))) if self.run.model.borrow().has_rotted() => {
                self.note(format_args!("{what}: {why}"));
                Answer::Refused(Refusal::Lost(why))
            }
            Ok(Err(Refusal::Failed(why) | Refusal::Lost(why))) if self.run.world.is_broken() => {
                self.note(format_args!("{what}: {why}"));
                self.count(|c| c.failed += 1);
                Answer::Lost
            }
            Ok(Err(refusal @ (Refusal::OutOfRange | Refusal::NotFound | Refusal::Busy(_)))) => {
                Answer::Refused(refusal)
            }
            Ok(Err(Refusal::Other(why) | Refusal::Failed(why) | Refusal::Lost(why))) => {
                self.violate(Violation(format!("{what} failed: {why}")));
                Answer::Lost
            }
            Err(_) if patience.is_some() => {
                self.note(format_args!("{what}: given up"));
                self.count(|c| c.given_up += 1);
                Answer::GivenUp
            }
            Err(_) => {
                let how = self.store.describe().await;
                self.note(format_args!("{how}"));
                self.violate(Violation(format!("{what} is stuck")));
                Answer::Lost
            }
        }
    }

    /// Drives that hang, or answer late, cost hosts no command, as long as there are others to turn to.
    pub(super) fn check_in_time(&self, what: &str, begun: Nanos) {
        let took = Duration::from_nanos(now() - begun);
        if took >= COMMAND && self.run.plan.rough.is_some() && !self.run.world.is_broken() {
            self.violate(Violation(format!("{what}: answered after {took:?}")));
        }
    }

    /// Whether it was done; refusals are violations.
    pub(super) fn expect<T>(&self, what: &str, answer: Answer<T>) -> Option<T> {
        match answer {
            Answer::Done(value) => return Some(value),
            Answer::Refused(refusal) => {
                self.violate(Violation(format!("{what} failed: {refusal:?}")));
            }
            Answer::GivenUp | Answer::Lost => {}
        }
        None
    }

    /// Refuses what is not about space.
    pub(super) fn only_full(&self, what: &str, refusal: &Refusal) {
        if !matches!(refusal, Refusal::Full | Refusal::Quota) {
            self.violate(Violation(format!("{what} failed: {refusal:?}")));
        }
    }
}
