//! The life of a pool's drives as operators see it: the state of each, decided here and nowhere else; since when it is so
//! and why; how often it came back lately. What is remembered of it outlives the node, and nothing is made up: what the
//! node did not see, and the labels do not say, is not known.

use std::collections::BTreeMap;
use std::time::Duration;

use api::v1::DriveState;
use engine::DriveStatus;
use engine::drives::{Cause, DriveState as InUse};
use reactor::Nanos;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::events;
use crate::limits::{RETURNS_BORNE, RETURNS_WINDOW};

/// The state of a drive that has a place in a pool.
#[must_use]
pub const fn state_of(drive: &DriveStatus) -> DriveState {
    match (drive.state, drive.leaving) {
        (InUse::Rejoining, _) => DriveState::Rejoining,
        (InUse::Online, true) => DriveState::Evacuating,
        (InUse::Online, false) if drive.slow => DriveState::Slow,
        (InUse::Online, false) => DriveState::Online,
        (InUse::Missing | InUse::Failed, _) if drive.vacant => DriveState::Vacant,
        (InUse::Missing | InUse::Failed, true) => DriveState::Rebuilding,
        // An opening leaves one that stays out alone, and does not say whether it is there.
        (InUse::Missing, false) if drive.stays_out.is_none() => DriveState::Missing,
        (InUse::Missing, false) => DriveState::Failed,
        (InUse::Failed, false) => DriveState::Failed,
    }
}

/// The same for whoever asks only whether it works: [`Drive::health`](api::v1::Drive::health).
#[must_use]
pub const fn health_of_drive(drive: &DriveStatus) -> DriveState {
    match (state_of(drive), drive.state) {
        (DriveState::Slow | DriveState::Evacuating, _) => DriveState::Online,
        (DriveState::Rebuilding | DriveState::Failed, InUse::Missing) => DriveState::Missing,
        (DriveState::Rebuilding, _) => DriveState::Failed,
        (state, _) => state,
    }
}

/// The clocks: that of the reactors, which never goes back, and that of the world, in milliseconds, which may.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub now: Nanos,
    pub now_ms: u64,
}

impl Clock {
    pub fn read() -> Self {
        Self { now: reactor::now(), now_ms: events::now_ms() }
    }

    /// When that was, of the world's time.
    fn ms_of(self, at: Nanos) -> u64 {
        self.now_ms.saturating_sub(self.now.saturating_sub(at) / 1_000_000)
    }
}

/// A drive as its pool has it now.
#[derive(Clone, Debug)]
pub struct Seen {
    id: Uuid,
    state: DriveState,
    /// When it began, or ceased, to be used, if that was since the pool was opened.
    changed_ms: Option<u64>,
    cause: Option<String>,
}

impl Seen {
    pub fn of(drive: &DriveStatus, clock: Clock) -> Self {
        let state = state_of(drive);
        let at_opening = (state == DriveState::Missing)
            .then(|| "it was not there when the pool was opened".to_owned());
        let kept_out = drive.stays_out.map(|why| why.to_string());
        let slow = (state == DriveState::Slow)
            .then(|| "most of what it is asked takes much longer than the others need".to_owned());
        let cause = match state.is_lost() {
            true => drive.cause.as_ref().map(Cause::to_string).or(kept_out).or(at_opening),
            false => slow,
        };
        let changed_ms = drive.changed.map(|at| clock.ms_of(at));
        Self { id: Uuid::from_bytes(drive.id), state, changed_ms, cause }
    }
}

/// What is remembered of the drive in a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Which drive: another one in its place has its own life.
    pub id: Uuid,
    pub state: DriveState,
    /// Since when it has that state, in milliseconds since 1970; `None` where nobody saw it begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Why it is not online, or was not before it came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// When it was taken back by itself, as far as that may still count; since an operator asked for it last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returns_ms: Vec<u64>,
}

/// States between which nothing but how a drive works, or what is done with what it had, is another.
const fn group(state: DriveState) -> u8 {
    match state {
        DriveState::Online | DriveState::Slow | DriveState::Evacuating => 0,
        DriveState::Missing | DriveState::Failed | DriveState::Rebuilding => 1,
        DriveState::Rejoining => 2,
        DriveState::Vacant | DriveState::Spare | DriveState::Blank => 3,
    }
}

fn window_ms() -> u64 {
    u64::try_from(RETURNS_WINDOW.as_millis()).unwrap_or(u64::MAX)
}

impl Life {
    /// The life of a drive that is seen now, by what was known before.
    #[must_use]
    pub fn see(before: Option<&Self>, seen: &Seen, now_ms: u64) -> Self {
        let Seen { id, state, changed_ms, cause } = seen.clone();
        // A place that is empty when a pool is opened is missing from then on; of others nobody knows since when.
        let missing_ms = (state == DriveState::Missing).then_some(now_ms);
        let Some(before) = before.filter(|before| before.id == id) else {
            let since_ms = changed_ms.or(missing_ms);
            return Self { id, state, since_ms, cause, returns_ms: Vec::new() };
        };
        let was_out = before.state.is_lost() || before.state == DriveState::Rejoining;
        let is_out = state.is_lost() || state == DriveState::Rejoining;
        // What took it out stays true until it is whole; of what an opening says only what nobody knows better.
        let known = before.cause.clone().filter(|_| was_out && is_out);
        let is_told = changed_ms.is_some() || state == DriveState::Slow;
        let cause = if is_told { cause.or(known) } else { known.or(cause) };
        let is_flip = |a, b| (before.state, state) == (a, b) || (before.state, state) == (b, a);
        let since_ms = if before.state == state || is_flip(DriveState::Missing, DriveState::Failed)
        {
            before.since_ms
        } else if group(before.state) == group(state) || state == DriveState::Vacant {
            Some(now_ms)
        } else {
            changed_ms.or(missing_ms)
        };
        let returns_ms = before.returns_ms.clone();
        let mut life = Self { id, state, since_ms, cause, returns_ms };
        life.mend(now_ms);
        if before.state.is_lost() && (state == DriveState::Rejoining || state.works()) {
            life.note_return(now_ms);
        }
        life
    }

    /// A clock that went back leaves returns in the future: they are of now at the latest, and forgotten in time.
    fn mend(&mut self, now_ms: u64) {
        self.returns_ms.iter_mut().for_each(|at| *at = (*at).min(now_ms));
    }

    fn note_return(&mut self, now_ms: u64) {
        self.returns_ms.retain(|at| now_ms.saturating_sub(*at) < window_ms());
        self.returns_ms.push(now_ms);
        let more = self.returns_ms.len().saturating_sub(RETURNS_BORNE);
        self.returns_ms.drain(..more);
    }

    /// It was taken back by itself just now.
    pub(super) fn comes_back(&mut self, clock: Clock) {
        self.note_return(clock.now_ms);
        (self.state, self.since_ms) = (DriveState::Rejoining, Some(clock.now_ms));
    }

    /// How often it was taken back by itself lately.
    #[must_use]
    pub fn returns(&self, now_ms: u64) -> usize {
        let is_recent = |at: &&u64| now_ms.saturating_sub(**at) < window_ms();
        self.returns_ms.iter().filter(is_recent).count()
    }

    /// Whether nothing became of it but that an operator wanted it back.
    fn was_welcomed_since(&self, before: &Self) -> bool {
        *self == Self { returns_ms: Vec::new(), ..before.clone() }
    }

    /// An operator wants it back: what it did before does not count. Whether it is back by now.
    pub fn welcome(&mut self, is_back: bool) {
        self.returns_ms.clear();
        if is_back && self.state.is_lost() {
            (self.state, self.since_ms) = (DriveState::Rejoining, Some(events::now_ms()));
        }
    }
}

/// What became of a drive, for whoever remembers it: of use only where that is as it was.
#[derive(Debug)]
pub struct LifeChange {
    pub(super) index: u16,
    pub(super) before: Option<Life>,
    pub(super) after: Life,
}

impl LifeChange {
    /// Takes it; whether it is to be written down. How fast a drive is says nothing after a restart.
    pub fn take(mut self, lives: &mut BTreeMap<u16, Life>) -> bool {
        match (lives.get(&self.index), self.before.as_ref()) {
            (now, before) if now == before => {}
            // What was seen of it meanwhile is true all the same.
            (Some(now), Some(before)) if now.was_welcomed_since(before) => {
                self.after.returns_ms.clear();
            }
            _ => return false,
        }
        let is_fleeting = |life: &Life| matches!(life.state, DriveState::Online | DriveState::Slow);
        let was_fleeting = self.before.as_ref().is_some_and(is_fleeting);
        let is_kept = !(was_fleeting && is_fleeting(&self.after));
        lives.insert(self.index, self.after);
        is_kept
    }
}

/// A span for people: `5 s`, `4 min`, `3 h`, `2 days`.
pub fn span(of: Duration) -> String {
    match of.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
