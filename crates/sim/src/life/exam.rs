//! Scrubs, examined at the end of a life.

use super::Life;
use super::answer::Answer;
use crate::model::Violation;
use std::time::Duration;

/// How long that may take: with limits, and drives that are slow.
const PATIENCE: Duration = Duration::from_hours(1);

impl Life {
    /// Has a scrub mend damage that was planted, and live on what it mended; what it says is there, is there.
    pub(super) async fn examine(&self) {
        let run = &self.run;
        if self.is_over() || run.world.is_broken() || run.world.is_scarce() {
            return;
        }
        let (what, examine) = ("examine a scrub", self.store.examine());
        let answer = self.settled_within(what, examine, Some(PATIENCE)).await;
        if matches!(answer, Answer::GivenUp) {
            return self.violate(Violation("a scrub is stuck".into()));
        }
        let Some(Some(exam)) = self.expect(what, answer) else { return };
        let lost = run.counts.borrow().lost;
        self.verify().await;
        if exam.says_all_there && run.counts.borrow().lost > lost {
            self.violate(Violation("what a scrub said is there is lost".into()));
        }
        self.store.end_exam(&exam);
    }
}
