//! What is remembered of a pool's scrubs.

use std::time::Duration;

use api::v1::{RateLimit, Scrub, ScrubState};
use api::value::Name;
use engine::{PoolStatus, ScrubPosition};
use serde::{Deserialize, Serialize};

use super::{Pools, no_pool};
use crate::jobs::Work;
use crate::{Result, events};

/// A pool's scrub: the one that is under way or to go on, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRecord {
    #[serde(flatten)]
    pub scrub: Scrub,
    /// For each shard, the number of the segment that it goes on with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    next: Vec<u32>,
    /// Since when this node knows the pool, in milliseconds since 1970.
    #[serde(default)]
    since_ms: u64,
}

impl ScrubRecord {
    /// Of a pool that comes to the node now.
    pub fn new() -> Self {
        Self { since_ms: events::now_ms(), ..Self::default() }
    }

    /// One that begins, or goes on.
    pub fn begin(&mut self) {
        if !matches!(self.scrub.state, ScrubState::Running | ScrubState::Paused) {
            let (began_ms, limit) = (Some(events::now_ms()), self.scrub.limit);
            (self.scrub, self.next) = (Scrub { began_ms, limit, ..Scrub::default() }, Vec::new());
        }
        (self.scrub.state, self.scrub.ended_ms) = (ScrubState::Running, None);
    }

    /// A clock that went back leaves the last scrub, or the pool's coming, in the future: they are of now at the latest.
    /// Whether that was so.
    pub fn mend(&mut self, now_ms: u64) -> bool {
        let before = (self.scrub.ended_ms, self.since_ms);
        self.scrub.ended_ms = self.scrub.ended_ms.map(|at| at.min(now_ms));
        self.since_ms = self.since_ms.min(now_ms);
        before != (self.scrub.ended_ms, self.since_ms)
    }

    /// It is over, or to wait.
    pub fn end(&mut self, state: ScrubState) {
        self.scrub.state = state;
        if state != ScrubState::Paused {
            (self.scrub.ended_ms, self.next) = (Some(events::now_ms()), Vec::new());
        }
    }

    /// Takes how far it is.
    pub fn note(&mut self, how: &engine::Scrub) {
        self.next.clone_from(&how.position.next);
        note(&mut self.scrub, how);
    }

    /// Where it goes on.
    pub fn position(&self) -> ScrubPosition {
        let of = &self.scrub;
        ScrubPosition {
            next: self.next.clone(),
            done: of.done,
            damaged: of.damaged_blocks,
            repaired: of.repaired_blocks,
            lost: of.lost_blocks,
            unchecked: of.unchecked_stripes,
        }
    }

    /// When the next one begins by itself; one that is paused waits to be asked for.
    pub fn due_ms(&self, every: Option<Duration>) -> Option<u64> {
        let last = self.scrub.ended_ms.unwrap_or(self.since_ms);
        match self.scrub.state {
            ScrubState::Running | ScrubState::Paused => None,
            ScrubState::Never | ScrubState::Stopped | ScrubState::Done => {
                let every = u64::try_from(every?.as_millis()).unwrap_or(u64::MAX);
                Some(last.saturating_add(every))
            }
        }
    }

    /// What is to begin now by itself: one that was cut short, or one that is due, but not while drives are made whole
    /// or emptied.
    pub fn due(&self, name: &Name, status: &PoolStatus, every: Option<Duration>) -> Option<Work> {
        let is_cut_short = self.scrub.state == ScrubState::Running && status.scrub.is_none();
        let is_due = self.due_ms(every).is_some_and(|due| due <= events::now_ms());
        let is_busy = status.rebuild.as_ref().is_some_and(|rebuild| rebuild.is_under_way)
            || status.drives.iter().any(|drive| drive.state == engine::DriveState::Rejoining);
        (is_cut_short || is_due && !is_busy)
            .then(|| Work::Scrub(name.clone(), RateLimit::default()))
    }
}

/// Takes how far a scrub is.
pub fn note(of: &mut Scrub, how: &engine::Scrub) {
    let ScrubPosition { done, damaged, repaired, lost, unchecked, .. } = how.position;
    (of.bytes, of.done, of.limit) = (how.bytes, done, how.limit);
    (of.damaged_blocks, of.repaired_blocks) = (damaged, repaired);
    (of.lost_blocks, of.unchecked_stripes) = (lost, unchecked);
}

impl Pools {
    /// What is remembered of a pool's scrubs.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn scrub(&self, name: &Name) -> Result<ScrubRecord> {
        let known = self.known.get(name).ok_or_else(|| no_pool(name))?;
        Ok(known.def.scrub.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_is_due_so_long_after_the_last_one_unless_it_waits_to_be_asked_for() {
        let every = Some(Duration::from_secs(60));
        let mut record = ScrubRecord::new();
        let since = record.since_ms;
        assert_eq!(record.due_ms(every), Some(since + 60_000), "never scrubbed");
        assert_eq!(record.due_ms(None), None, "never by itself");
        record.begin();
        assert_eq!(record.due_ms(every), None, "it is under way");
        record.next = vec![7];
        record.scrub.done = 5;
        record.end(ScrubState::Paused);
        assert_eq!(record.due_ms(every), None, "it waits to be asked for");
        let began = record.scrub.began_ms;
        record.begin();
        let position = record.position();
        assert_eq!((position.next, position.done), (vec![7], 5), "it goes on where it was");
        assert_eq!(record.scrub.began_ms, began);
        record.end(ScrubState::Done);
        let ended = record.scrub.ended_ms.unwrap();
        assert_eq!(record.due_ms(every), Some(ended + 60_000));
        record.scrub.limit = 9;
        record.begin();
        assert_eq!(record.position(), ScrubPosition::default(), "the next one begins anew");
        assert_eq!(record.scrub.limit, 9, "as fast as the last one");
    }

    #[test]
    fn a_clock_that_ran_ahead_keeps_no_scrub_from_being_due() {
        let every = Some(Duration::from_secs(60));
        let mut record = ScrubRecord::new();
        let now = record.since_ms;
        record.begin();
        record.end(ScrubState::Done);
        let ahead = now + 400_000_000_000;
        (record.scrub.ended_ms, record.since_ms) = (Some(ahead), ahead);
        assert!(record.mend(now));
        assert_eq!((record.due_ms(every), record.since_ms), (Some(now + 60_000), now));
        assert!(!record.mend(now + 1), "only once");
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let mut record = ScrubRecord::new();
        record.begin();
        record.next = vec![3, 4];
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<ScrubRecord>(&text).unwrap(), record);
    }
}
