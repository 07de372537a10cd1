//! Saying what happens often once, and then seldom.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reactor::Nanos;

/// Time between two words about the same thing.
const EVERY: Duration = Duration::from_secs(60);

/// Something that is logged at most once a minute.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    last: Option<Nanos>,
    since: u64,
}

impl Seldom {
    /// Gives how often it happened since it was said last, this time included, when it is to be said at `now`.
    pub fn due(&self, now: Nanos) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.since += 1;
        let every = u64::try_from(EVERY.as_nanos()).unwrap_or(u64::MAX);
        if said.last.is_some_and(|last| now.saturating_sub(last) < every) {
            return None;
        }
        said.last = Some(now);
        Some(std::mem::take(&mut said.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cannot accept a connection` was logged ten times a second, for as long as descriptors were short.
    #[test]
    fn what_happens_often_is_said_once_a_minute() {
        let seldom = Seldom::default();
        let second = 1_000_000_000;
        let said: Vec<_> = (0..1800).filter_map(|n| seldom.due(n * second / 10)).collect();
        assert_eq!(said, [1, 600, 600]);
    }
}
