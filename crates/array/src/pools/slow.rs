//! Drives of open pools that are slower than the others: since when, which are to be emptied for it and how, and what is
//! remembered of those that were as fast as the others once.

use std::collections::BTreeMap;
use std::time::Duration;

use api::value::PoolDrive;
use engine::DriveStatus;
use engine::drives::DriveState;
use reactor::Nanos;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{PoolDef, SpareDef};
use crate::limits::{FAST_OPERATIONS, SLOW_TOLD};

/// What is remembered of a drive that was as fast as the others once, at work: it is not made slow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasFast {
    /// Which drive: another one in its place has a history of its own.
    pub id: Uuid,
    /// A spare came to the pool for it: it is emptied without another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_spare: bool,
}

/// Those of a pool's drives, by their places.
pub type WereFast = BTreeMap<u16, WasFast>;

/// What is known of the slow drives of one pool.
#[derive(Clone, Debug, Default)]
pub struct SlowDrives {
    /// Since when each is.
    since: BTreeMap<u16, Nanos>,
    /// When each was last to be emptied.
    tried: BTreeMap<u16, Nanos>,
    /// Which drives are there, and what each had done when it was seen first.
    begun: BTreeMap<u16, (Uuid, u64)>,
}

/// How a drive is.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub id: Uuid,
    pub is_online: bool,
    pub is_slow: bool,
    /// Nothing of the pool lies in its place.
    pub is_vacant: bool,
    /// Reads and writes since its pool was opened.
    pub operations: u64,
}

impl Seen {
    pub const fn of(drive: &DriveStatus) -> Self {
        Self {
            id: Uuid::from_bytes(drive.id),
            is_online: matches!(drive.state, DriveState::Online),
            is_slow: drive.slow,
            is_vacant: drive.vacant,
            operations: drive.counters.reads + drive.counters.writes,
        }
    }
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
        if self.begun.get(&index).is_some_and(|(id, _)| !seen.is_online || *id != seen.id) {
            self.begun.remove(&index);
            self.since.remove(&index);
            self.tried.remove(&index);
        }
        if !seen.is_online {
            return None;
        }
        let begun = self.begun.entry(index).or_insert((seen.id, seen.operations));
        // Its pool was opened anew.
        begun.1 = begun.1.min(seen.operations);
        if seen.is_slow {
            let is_known = self.since.contains_key(&index);
            self.since.entry(index).or_insert(now);
            return (!is_known).then_some(Change::Slow);
        }
        self.tried.remove(&index);
        self.since.remove(&index).map(|_| Change::Fast)
    }

    /// What is to be remembered by now, if that is not what is: a drive that did enough since it came, and is not slow, is
    /// as fast as the others.
    pub fn were_fast(&self, before: &WereFast, drives: &[Seen]) -> Option<WereFast> {
        let mut now = WereFast::new();
        for (index, seen) in (0..).zip(drives) {
            let known = before.get(&index).filter(|known| known.id == seen.id && !seen.is_vacant);
            let did = self.begun.get(&index).map_or(0, |begun| seen.operations - begun.1);
            let is_fast = seen.is_online && !seen.is_slow && did >= FAST_OPERATIONS;
            let new = || is_fast.then_some(WasFast { id: seen.id, has_spare: false });
            if let Some(of) = known.cloned().or_else(new) {
                now.insert(index, of);
            }
        }
        (now != *before).then_some(now)
    }

    /// Those that stayed slow for so long, or are still after as long since they were [tried](Self::try_to_empty) last.
    pub fn due(&self, after: Duration, now: Nanos) -> Vec<u16> {
        let since = |index: &u16, since: &Nanos| {
            self.tried.get(index).map_or(*since, |tried| *tried.max(since))
        };
        let is_due =
            |(index, of): &(&u16, &Nanos)| since(index, of).saturating_add(nanos(after)) <= now;
        self.since.iter().filter(is_due).map(|(index, _)| *index).collect()
    }

    /// It is tried to empty a drive now: should it stay, it is due again after as long.
    pub fn try_to_empty(&mut self, index: u16, now: Nanos) {
        self.tried.insert(index, now);
    }

    /// Those that have been slow for long enough to be told of.
    pub fn told(&self, now: Nanos) -> impl Iterator<Item = u16> {
        let is_told = move |since: &Nanos| since.saturating_add(nanos(SLOW_TOLD)) <= now;
        self.since.iter().filter(move |(_, since)| is_told(since)).map(|(index, _)| *index)
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos::try_from(span.as_nanos()).unwrap_or(Nanos::MAX)
}

/// What becomes of a drive that is slow, should it stay so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlowOutlook {
    /// It is being emptied.
    Leaves,
    /// A spare comes to the pool, and it is emptied: the pool bears as much as ever all the while.
    Spare(SpareDef),
    /// It is emptied onto the others.
    Others,
    /// Neither: there is no spare that can have what it has, and no drive more than a stripe is over.
    NoRoom,
    /// What drives had that are lost comes first.
    Waits,
    /// An operator had it not be emptied, or paused what moves.
    Stopped,
    /// It was never as fast as the others: it may be made so.
    AlwaysSlow,
    /// Nothing is moved by itself.
    ByCommand,
}

impl SlowOutlook {
    /// In words, behind those that it is slower than the others.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Leaves => "it is being emptied",
            Self::Spare(_) => "should it stay so, a spare comes to the pool, and it is emptied",
            Self::Others => "should it stay so, it is emptied onto the others",
            Self::NoRoom => {
                "it cannot be emptied: no spare can have what it has, and no drive is there beyond those that a stripe needs"
            }
            Self::Waits => "it is not emptied while the pool lacks a drive",
            Self::Stopped => "that it be emptied was stopped, or is paused",
            Self::AlwaysSlow => {
                "it was never seen to be as fast as they are, and is not emptied by itself"
            }
            Self::ByCommand => "nothing is emptied by itself (`rebuild-after` is 0)",
        }
    }

    /// What an operator can do.
    pub fn help(&self, of: &PoolDrive) -> String {
        let pool = &of.pool;
        match self {
            Self::Leaves => format!("`flashloom pool rebuild show {pool}` tells how far that is"),
            Self::Spare(_) | Self::Others => {
                format!("`flashloom drive evacuate {of}` empties it now")
            }
            Self::NoRoom => format!(
                "`flashloom pool spare add {pool} DRIVE`, or `drive add {pool} DRIVE`, gives it room"
            ),
            Self::Waits => "`flashloom drive list` tells which".to_owned(),
            Self::Stopped => format!(
                "`flashloom drive evacuate {of}` empties it, `pool rebuild resume {pool}` goes on with what is paused"
            ),
            Self::AlwaysSlow | Self::ByCommand => format!(
                "`flashloom drive evacuate {of}` empties it, where there is room; `drive replace {of} NEW` puts another \
                 one in its place"
            ),
        }
    }
}

/// What there is for slow drives of a pool.
pub(super) struct Means<'m> {
    pub def: &'m PoolDef,
    pub drives: &'m [DriveStatus],
    /// Drives that a stripe is over.
    pub width: usize,
    /// Those that can be used now, the smallest first.
    pub spares: &'m [SpareDef],
    /// Something may be moved by itself.
    pub moves: bool,
}

impl Means<'_> {
    /// What becomes of a drive that is slow.
    pub fn outlook(&self, index: u16) -> SlowOutlook {
        let Some(drive) = self.drives.get(usize::from(index)) else { return SlowOutlook::Waits };
        let known = self.def.were_fast.get(&index);
        let Some(known) = known.filter(|known| *known.id.as_bytes() == drive.id) else {
            return if drive.leaving { SlowOutlook::Leaves } else { SlowOutlook::AlwaysSlow };
        };
        let is_paused = self.def.paused.is_some() || self.def.stopped.contains(&index);
        if drive.leaving && !is_paused {
            return SlowOutlook::Leaves;
        }
        if is_paused {
            return SlowOutlook::Stopped;
        }
        if !self.moves {
            return SlowOutlook::ByCommand;
        }
        let is_online = |drive: &&DriveStatus| drive.state == DriveState::Online;
        if !self.drives.iter().all(|drive| is_online(&drive) || drive.vacant) {
            return SlowOutlook::Waits;
        }
        // First: the pool has as many drives after as before.
        let has_room = self.drives.len() < engine::DRIVES_MAX;
        let fits = |spare: &&SpareDef| has_room && !known.has_spare && spare.size >= drive.bytes;
        if let Some(spare) = self.spares.iter().find(fits) {
            return SlowOutlook::Spare(spare.clone());
        }
        match self.drives.iter().filter(is_online).count() > self.width {
            true => SlowOutlook::Others,
            false => SlowOutlook::NoRoom,
        }
    }
}

#[cfg(test)]
mod tests;
