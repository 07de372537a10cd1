//! Drives of open pools that were away, and are here again: found where they were or by their labels, and given back
//! to their pools.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::v1::Severity;
use api::value::{Name, PoolDrive};
use engine::PoolStatus;
use engine::drives::DriveState;
use engine::format::label::Label;
use reactor::Nanos;
use uuid::Uuid;

use super::due::{Sight, searched, sight};
use super::look::{peek, places};
use super::made_of::open_drive_again;
use super::slow::{Change, Seen, SlowDrives};
use super::{OpenPool, PausedRebuild, PoolDef, Reopening, SpareDef, again};
use crate::config::Settings;
use crate::jobs::Work;
use crate::limits::{LOOK_AGAIN, RETURN_PAUSE, RETURN_PAUSE_MAX};
use crate::{Error, Result};

/// What is known of the drives that one pool lacks.
#[derive(Clone, Debug, Default)]
pub struct Away {
    pub(super) drives: BTreeMap<usize, Lacked>,
    /// How often each failed since the pool was opened.
    failures: BTreeMap<usize, u32>,
    /// What there was of its places when it was looked last.
    sight: Sight,
    /// When what is lost is rebuilt next, and how often that was begun.
    pub(super) rebuilds: Option<Nanos>,
    pub(super) rebuilt: u32,
    pub(super) slow: SlowDrives,
}

/// A drive that a pool lacks, or lacked when it was looked last.
#[derive(Clone, Debug, Default)]
pub(super) struct Lacked {
    /// It failed lately, and is left alone until then.
    rests: Nanos,
    /// When it is looked for again although nothing new is seen.
    next: Nanos,
    /// It is known to be away.
    is_known: bool,
    /// It is being made whole.
    pub(super) is_coming: bool,
    /// Since when it is lost.
    pub(super) since: Nanos,
    /// An operator took it out: it is not looked for.
    pub(super) is_retired: bool,
    /// What was said of it last.
    said: Option<String>,
}

impl Lacked {
    fn say(&mut self, words: String) -> Option<String> {
        if self.said.as_ref() == Some(&words) {
            return None;
        }
        self.said = Some(words.clone());
        Some(words)
    }
}

pub(super) fn from_now(pause: Duration) -> Nanos {
    reactor::now().saturating_add(Nanos::try_from(pause.as_nanos()).unwrap_or(Nanos::MAX))
}

/// A pool whose drives are looked for.
#[derive(Debug)]
pub struct Search {
    pub name: Name,
    pub pool: Arc<OpenPool>,
    pub def: PoolDef,
    pub folders: Vec<PathBuf>,
    pub(super) away: Away,
    /// Those that can be used now, the smallest first.
    pub(super) spares: Vec<SpareDef>,
    /// One is just being put in a place.
    pub(super) is_claimed: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Searched {
    pub name: Name,
    pub away: Away,
    /// Where drives are now.
    pub moved: Vec<(usize, PathBuf)>,
    pub said: Vec<(Severity, String)>,
    /// It is beyond its redundancy, and enough of its drives answer for it to be opened again.
    pub reopening: Option<Reopening>,
    /// What is to be begun now by itself.
    pub due: Due,
}

/// What is to be begun now by itself.
#[derive(Debug, Default)]
pub struct Due {
    /// What drives had is to be moved onto the others.
    pub rebuild: Option<Work>,
    pub scrub: Option<Work>,
    /// Spares, each to take the place of a drive.
    pub spares: Vec<(PoolDrive, Uuid)>,
    /// Those that have one by now.
    pub used_spares: Vec<Uuid>,
    /// Nothing is left of the rebuild that was paused.
    pub forgets_pause: bool,
}

impl Search {
    /// Of a pool that is open, with what is known of the drives that it lacks.
    pub const fn new(
        name: Name,
        pool: Arc<OpenPool>,
        def: PoolDef,
        folders: Vec<PathBuf>,
        away: Away,
    ) -> Self {
        Self { name, pool, def, folders, away, spares: Vec::new(), is_claimed: false }
    }

    /// Sees how the pool's drives are doing, and looks for those that it lacks. Waits for its reactor, and for drives:
    /// not for the owner of the node.
    ///
    /// # Errors
    /// `Stopping`; the pool was closed.
    pub fn run(mut self, settings: &Settings) -> Result<Searched> {
        let status = self.pool.status()?;
        let mut said = self.follow(&status);
        said.extend(self.follow_slow(&status));
        if let Some(why) = &status.beyond {
            // Nothing can be taken back: no labels could say so.
            let reopening = again::is_time(&self.pool, &self.def, &self.folders)?
                .then(|| Reopening { pool: Arc::clone(&self.pool), why: why.clone() });
            let Self { name, away, .. } = self;
            let (moved, due) = (Vec::new(), Due::default());
            return Ok(Searched { name, away, moved, said, reopening, due });
        }
        let mut moved = Vec::new();
        let due = self.due();
        if !due.is_empty() {
            for (index, found) in self.find(&due)? {
                let lacked = self.away.drives.entry(index).or_default();
                let Some((path, label)) = found else { continue };
                let at = path.display();
                let what = format!("drive {index} of pool {}", self.name);
                let taken = take_back(&self.pool, &path, &label);
                let came_itself = taken.is_err() && is_back(&self.pool, index);
                match taken {
                    Ok(()) => {
                        lacked.is_coming = true;
                        let words = format!("{what} is back at {at}, and is made whole");
                        lacked.said = None;
                        said.push((Severity::Info, words));
                        moved.push((index, path));
                    }
                    // It came back by itself when the pool was opened.
                    Err(_) if came_itself => {}
                    Err(error) => {
                        let words = format!("{what} at {at} is not taken back: {}", error.context);
                        let words = lacked.say(words).map(|words| (Severity::Warning, words));
                        said.extend(words);
                    }
                }
            }
        }
        let spares = self.use_spares(&status, settings.rebuild_after);
        // In place of it: what a spare can have needs no room on the others.
        let rebuild = match spares.is_empty() && !self.is_claimed {
            true => self.rebuilds(&status, settings.rebuild_after),
            false => None,
        };
        let scrub = self.def.scrub.due(&self.name, &status, settings.scrub_every);
        let is_moot = |paused: &PausedRebuild| paused.is_moot(&status.drives);
        let forgets_pause = self.def.paused.as_ref().is_some_and(is_moot);
        let used_spares = self.used_spares(&status);
        let due = Due { rebuild, scrub, spares, used_spares, forgets_pause };
        let Self { name, away, .. } = self;
        Ok(Searched { name, away, moved, said, reopening: None, due })
    }

    /// Takes notice of drives that are slower than the others, or are not any more; what is to be said of it.
    fn follow_slow(&mut self, status: &PoolStatus) -> Vec<(Severity, String)> {
        let mut said = Vec::new();
        for (index, drive) in (0..).zip(&status.drives) {
            let what = format!("drive {index} of pool {}", self.name);
            let seen = Seen {
                is_online: drive.state == DriveState::Online,
                is_slow: drive.slow,
                operations: drive.counters.reads + drive.counters.writes,
            };
            said.extend(self.away.slow.see(index, seen, reactor::now()).map(
                |change| match change {
                    Change::Slow => {
                        let words = "is slower than the others: reads go around it where they can";
                        (Severity::Warning, format!("{what} {words}"))
                    }
                    Change::Fast => {
                        (Severity::Info, format!("{what} is as fast as the others again"))
                    }
                },
            ));
        }
        said
    }

    /// Takes one drive back now, however lately it failed; where it is.
    ///
    /// # Errors
    /// `NotFound` when it is nowhere, and as the engine says why it cannot be taken back.
    pub fn bring(mut self, index: u16) -> Result<PathBuf> {
        let wanted = BTreeSet::from([usize::from(index)]);
        let found = self.find(&wanted)?.into_values().flatten().next();
        let Some((path, label)) = found else {
            let what = format!("drive {index} of pool {} is not found", self.name);
            return Err(Error::new(api::v1::Kind::NotFound, what).help(
                "put it back where it was, or in a folder of `drive-folders`; `flashloom drive replace` puts another \
                 one in its place",
            ));
        };
        take_back(&self.pool, &path, &label)?;
        Ok(path)
    }

    /// Takes notice of drives that went, came, or are whole; what is to be said of it.
    fn follow(&mut self, status: &engine::PoolStatus) -> Vec<(Severity, String)> {
        let mut said = Vec::new();
        for (index, drive) in status.drives.iter().enumerate() {
            let what = format!("drive {index} of pool {}", self.name);
            let (lost, failure) = match &drive.rejoin {
                Some(rejoin) => (rejoin.lost, rejoin.failure.clone()),
                None => (0, None),
            };
            match drive.state {
                DriveState::Online => {
                    if self.away.drives.remove(&index).is_some() {
                        said.push((Severity::Info, format!("{what} is whole again")));
                        if lost > 0 {
                            let words = format!(
                                "{lost} blocks beside {what} are damaged beyond what the redundancy gives back"
                            );
                            said.push((Severity::Error, words));
                        }
                    }
                }
                DriveState::Rejoining => {
                    self.away.drives.entry(index).or_default().is_coming = true;
                }
                DriveState::Missing | DriveState::Failed => {
                    let lacked = self.away.drives.entry(index).or_default();
                    lacked.is_retired = drive.retired;
                    let came = std::mem::take(&mut lacked.is_coming);
                    let is_new = !std::mem::replace(&mut lacked.is_known, true);
                    if is_new || came {
                        lacked.since = reactor::now();
                    }
                    if came {
                        let why = failure.unwrap_or_else(|| "it failed".to_owned());
                        let words = format!("{what} could not be made whole: {why}");
                        said.push((Severity::Warning, words));
                    }
                    if came || is_new && drive.state == DriveState::Failed {
                        // Not at once: it failed for a reason.
                        let failures = self.away.failures.entry(index).or_default();
                        let pause = RETURN_PAUSE * 2_u32.saturating_pow(*failures);
                        *failures += 1;
                        lacked.rests = from_now(pause.min(RETURN_PAUSE_MAX));
                    }
                }
            }
        }
        said
    }

    /// Drives to look for now.
    fn due(&mut self) -> BTreeSet<usize> {
        let now = reactor::now();
        let is_wanted = |lacked: &Lacked| !lacked.is_coming && !lacked.is_retired;
        let lacked = self.away.drives.iter().filter(|(_, lacked)| is_wanted(lacked));
        let lacked: Vec<usize> = lacked.map(|(index, _)| *index).collect();
        if lacked.is_empty() {
            return BTreeSet::new();
        }
        let seen = sight(&self.def, &searched(&self.folders));
        let is_new = seen != self.away.sight;
        self.away.sight = seen;
        let is_due = |index: &usize| {
            let of = &self.away.drives[index];
            of.rests <= now && (is_new || of.next <= now)
        };
        lacked.into_iter().filter(is_due).collect()
    }

    /// Finds drives by their labels; of several that say to be the same one the newest, and of those that are as new
    /// the one at the path where it was.
    fn find(&mut self, due: &BTreeSet<usize>) -> Result<BTreeMap<usize, Option<(PathBuf, Label)>>> {
        let mut found: BTreeMap<usize, _> = due.iter().map(|index| (*index, None)).collect();
        let own = due.iter().filter_map(|index| self.def.drives.get(*index).cloned());
        let paths = own.chain(places(&self.folders)).collect();
        for (path, label) in peek(self.pool.home(), paths)? {
            let index = usize::from(label.drive);
            if Uuid::from_bytes(label.pool) == self.pool.id()
                && let Some(place) = found.get_mut(&index)
                && place
                    .as_ref()
                    .is_none_or(|(_, other): &(PathBuf, Label)| label.epoch > other.epoch)
            {
                *place = Some((path, label));
            }
        }
        for index in due {
            if let Some(lacked) = self.away.drives.get_mut(index) {
                lacked.next = from_now(LOOK_AGAIN);
            }
        }
        Ok(found)
    }
}

fn is_back(pool: &OpenPool, index: usize) -> bool {
    let is_written = |drive: &engine::DriveStatus| drive.state.is_written();
    pool.status().is_ok_and(|status| status.drives.get(index).is_some_and(is_written))
}

fn take_back(pool: &OpenPool, path: &std::path::Path, label: &Label) -> Result<()> {
    let (member, lock) = open_drive_again(path, |path| pool.own_lock(path))?;
    let taken = pool.rejoin(Arc::clone(&member.drive))?;
    if taken != label.drive {
        let what = format!("it is drive {taken} by now");
        return Err(Error::new(api::v1::Kind::Conflict, what));
    }
    pool.moved(usize::from(taken), member.path, Some(lock));
    Ok(())
}
