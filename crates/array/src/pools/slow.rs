//! Drives of open pools that are slower than the others: since when, and which are to be emptied for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reactor::Nanos;

use crate::limits::FAST_OPERATIONS;

/// What is known of the slow drives of one pool.
#[derive(Clone, Debug, Default)]
pub struct SlowDrives {
    /// Since when each is, or since it was last to be emptied.
    since: BTreeMap<u16, Nanos>,
    /// Those that were as fast as the others once, at work: they are not made slow.
    were_fast: BTreeSet<u16>,
}

/// How a drive is.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub is_online: bool,
    pub is_slow: bool,
    /// Reads and writes since its pool was opened.
    pub operations: u64,
}

/// What became of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Slow,
    Fast,
}

impl SlowDrives {
    /// Takes notice of how a drive is.
    pub fn see(&mut self, index: u16, seen: Seen, now: Nanos) -> Option<Change> {
        if seen.is_online && seen.is_slow {
            let is_known = self.since.contains_key(&index);
            self.since.entry(index).or_insert(now);
            return (!is_known).then_some(Change::Slow);
        }
        if !seen.is_online {
            // Another may take its place.
            self.were_fast.remove(&index);
        } else if seen.operations >= FAST_OPERATIONS {
            self.were_fast.insert(index);
        }
        let was_slow = self.since.remove(&index).is_some();
        (was_slow && seen.is_online).then_some(Change::Fast)
    }

    /// A drive that got slower than the others, and stayed so for so long. Should it not be emptied now, it is due again
    /// after as long. None of those that are to stay as they are.
    pub fn due(&mut self, after: Duration, now: Nanos, stay: &BTreeSet<u16>) -> Option<u16> {
        let after = Nanos::try_from(after.as_nanos()).unwrap_or(Nanos::MAX);
        let is_due = |(index, since): &(&u16, &mut Nanos)| {
            let may_be = self.were_fast.contains(index) && !stay.contains(index);
            may_be && since.saturating_add(after) <= now
        };
        let (index, since) = self.since.iter_mut().find(is_due)?;
        *since = now;
        Some(*index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Seen = Seen { is_online: true, is_slow: false, operations: FAST_OPERATIONS };
    const SLOW: Seen = Seen { is_slow: true, ..FAST };
    const GONE: Seen = Seen { is_online: false, ..FAST };
    const AFTER: Duration = Duration::from_nanos(100);
    const NONE: BTreeSet<u16> = BTreeSet::new();

    #[test]
    fn a_drive_that_stays_slow_is_emptied_once_in_a_while() {
        let mut slow = SlowDrives::default();
        assert_eq!(slow.see(1, FAST, 0), None);
        assert_eq!(slow.see(1, SLOW, 10), Some(Change::Slow));
        assert_eq!(slow.see(1, SLOW, 60), None);
        assert_eq!(slow.due(AFTER, 109, &NONE), None);
        assert_eq!(slow.due(AFTER, 110, &BTreeSet::from([1])), None);
        assert_eq!(slow.due(AFTER, 110, &NONE), Some(1));
        assert_eq!(slow.due(AFTER, 209, &NONE), None);
        assert_eq!(slow.due(AFTER, 210, &NONE), Some(1));
    }

    #[test]
    fn one_that_is_fast_again_begins_anew() {
        let mut slow = SlowDrives::default();
        slow.see(1, FAST, 0);
        slow.see(1, SLOW, 10);
        assert_eq!(slow.see(1, FAST, 50), Some(Change::Fast));
        assert_eq!(slow.see(1, FAST, 60), None);
        assert_eq!(slow.see(1, SLOW, 100), Some(Change::Slow));
        assert_eq!(slow.due(AFTER, 199, &NONE), None);
        assert_eq!(slow.due(AFTER, 200, &NONE), Some(1));
    }

    #[test]
    fn one_that_was_never_fast_is_told_of_and_left_there() {
        let mut slow = SlowDrives::default();
        let idle = Seen { operations: 100, ..FAST };
        assert_eq!(slow.see(1, idle, 0), None);
        assert_eq!(slow.see(1, SLOW, 10), Some(Change::Slow));
        assert_eq!(slow.due(AFTER, 1000, &NONE), None);
    }

    #[test]
    fn another_drive_in_its_place_has_its_own_history() {
        let mut slow = SlowDrives::default();
        slow.see(1, FAST, 0);
        slow.see(1, SLOW, 10);
        assert_eq!(slow.see(1, GONE, 20), None);
        assert_eq!(slow.due(AFTER, 1000, &NONE), None);
        assert_eq!(slow.see(1, SLOW, 1000), Some(Change::Slow));
        assert_eq!(slow.due(AFTER, 2000, &NONE), None);
    }
}
