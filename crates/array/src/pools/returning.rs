//! Drives of open pools that were away, and are here again: found where they were or by their labels, and given back
//! to their pools.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{Kind, Severity};
use api::value::{Name, PoolDrive, VolumePath};
use engine::drives::DriveState;
use engine::format::label::Label;
use engine::{DriveStatus, PoolStatus, Unknown};
use reactor::Nanos;
use uuid::Uuid;

use super::due::{Sight, searched, sight};
use super::lives::{Clock, Life, LifeChange};
use super::look::{Peeked, peek_at, places};
use super::made_of::open_drive_again;
use super::outlook::Outlook;
use super::reasons::{Failures, Reason};
use super::slow::{Change, Seen, SlowDrives, SlowOutlook, WereFast};
use super::{Moves, OpenPool, PausedRebuild, PoolDef, Reopening, SpareDef, again};
use crate::config::Settings;
use crate::jobs::Work;
use crate::limits::{LOOK_AGAIN, RETURN_PAUSE, RETURN_PAUSE_MAX};
use crate::{Error, Result};

/// What is known of the drives that one pool lacks.
#[derive(Clone, Debug, Default)]
pub struct Away {
    pub(super) drives: BTreeMap<usize, Lacked>,
    /// How often each failed lately.
    pub(super) failures: BTreeMap<usize, Failures>,
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
    pub(super) rests: Nanos,
    /// When it is looked for again although nothing new is seen.
    next: Nanos,
    /// It is known to be away.
    is_known: bool,
    /// It is being made whole.
    pub(super) is_coming: bool,
    /// It was there, and could not be taken back.
    pub(super) is_refused: bool,
    /// Since when it is lost.
    pub(super) since: Nanos,
    /// It stays out until an operator wants it: it is not looked for.
    pub(super) stays_out: bool,
    /// What was said of it last.
    pub(super) said: Option<String>,
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
    /// What is remembered of its drives, and has become of them since.
    pub(super) lives: BTreeMap<u16, Life>,
    /// Those that can be used now, the smallest first.
    pub(super) spares: Vec<SpareDef>,
    /// Those that failed when they were to be used, and are left alone for a while.
    pub(super) resting: BTreeSet<Uuid>,
    /// Places whose drives an operator took out.
    pub(super) given_up: BTreeSet<u16>,
    /// One is just being put in a place.
    pub(super) is_claimed: bool,
    /// One of its drives, and no other: what takes several is no matter of the drives.
    pub(super) lacks_one: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Searched {
    pub name: Name,
    pub away: Away,
    /// Where drives are now.
    pub moved: Vec<(usize, PathBuf)>,
    /// What became of its drives.
    pub lives: Vec<LifeChange>,
    /// What is going to be done about those that it lacks.
    pub outlooks: BTreeMap<u16, Outlook>,
    /// Those that are slow, and what becomes of each.
    pub slow: BTreeMap<u16, SlowOutlook>,
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
    pub moves: Moves,
    pub scrub: Option<Work>,
    /// Volumes that are being detached, whether a job follows that or not.
    pub detaching: Vec<VolumePath>,
    /// Spares, each to take the place of a drive.
    pub spares: Vec<(PoolDrive, Uuid, Reason)>,
    /// What is only to be written down.
    pub notes: Notes,
    /// Nothing is left of the rebuild that was paused.
    pub forgets_pause: bool,
    /// Drives that are made whole, whether a job follows that or not.
    pub rejoins: Vec<PoolDrive>,
}

/// What is to be remembered of a pool otherwise than it is.
#[derive(Debug, Default)]
pub struct Notes {
    /// Spares that have a place by now.
    pub used_spares: Vec<Uuid>,
    /// Places that spares were to have, and did not come to.
    pub unplaced: Vec<u16>,
    /// Drives that were as fast as the others once.
    pub were_fast: Option<WereFast>,
    /// It is remembered of its scrubs what is of times to come.
    pub mends_scrub: bool,
}

impl Search {
    /// Of a pool that is open, with what is known of the drives that it lacks.
    pub fn new(
        name: Name,
        pool: Arc<OpenPool>,
        def: PoolDef,
        folders: Vec<PathBuf>,
        away: Away,
    ) -> Self {
        let lives = def.lives.clone();
        Self {
            name,
            pool,
            def,
            folders,
            away,
            lives,
            spares: Vec::new(),
            resting: BTreeSet::new(),
            given_up: BTreeSet::new(),
            is_claimed: false,
            lacks_one: false,
        }
    }

    /// Sees how the pool's drives are doing, and looks for those that it lacks. Waits for its reactor, and for drives:
    /// not for the owner of the node.
    ///
    /// # Errors
    /// `Stopping`; the pool was closed.
    pub fn run(mut self, settings: &Settings) -> Result<Searched> {
        let status = self.pool.status()?;
        self.pool.unlock_rest();
        let clock = Clock::read();
        let mut said = self.follow(&status);
        said.extend(self.follow_lives(&status, clock));
        said.extend(self.follow_slow(&status));
        if let Some(why) = &status.beyond {
            // Nothing can be taken back: no labels could say so.
            let reopening = again::is_time(&self.pool, &self.def, &self.folders)?
                .then(|| Reopening { pool: Arc::clone(&self.pool), why: why.clone() });
            let (lives, moved, due) = (self.life_changes(), Vec::new(), Due::default());
            let Self { name, away, .. } = self;
            let (outlooks, slow) = (BTreeMap::new(), BTreeMap::new());
            return Ok(Searched { name, away, moved, lives, outlooks, slow, said, reopening, due });
        }
        let mut moved = Vec::new();
        let due = self.due(clock);
        if !due.is_empty() {
            for (index, found) in self.find(&due, &status.drives)? {
                said.extend(self.bring_back(index, found, &mut moved));
            }
        }
        let spares = self.use_spares(&status, settings.rebuild_after);
        // In place of it: what a spare can have needs no room on the others.
        let moves = match spares.is_empty() && !self.is_claimed {
            true => self.rebuilds(&status, settings.rebuild_after),
            false => Moves::default(),
        };
        let scrub = self.def.scrub.due(&self.name, &status, settings.scrub_every);
        let is_moot = |paused: &PausedRebuild| paused.is_moot(&status.drives);
        let forgets_pause = self.def.paused.as_ref().is_some_and(is_moot);
        let mends_scrub = self.def.scrub.clone().mend(clock.now_ms);
        let used_spares = self.used_spares(&status);
        let detaching = self.pool.detached_volumes();
        let rejoins = self.rejoins(&status);
        let unplaced = self.unplaced_spares(&status);
        let seen: Vec<_> = status.drives.iter().map(Seen::of).collect();
        let were_fast = self.away.slow.were_fast(&self.def.were_fast, &seen);
        let slow = self.slow_outlooks(&status, settings.rebuild_after);
        let notes = Notes { used_spares, unplaced, were_fast, mends_scrub };
        let due = Due { moves, scrub, detaching, spares, notes, forgets_pause, rejoins };
        let outlooks = self.outlooks(&status, settings.rebuild_after);
        let lives = self.life_changes();
        let Self { name, away, .. } = self;
        let reopening = None;
        Ok(Searched { name, away, moved, lives, outlooks, slow, said, reopening, due })
    }

    fn rejoins(&self, status: &PoolStatus) -> Vec<PoolDrive> {
        let drives = (0..).zip(&status.drives);
        let coming = drives.filter(|(_, drive)| drive.state == DriveState::Rejoining);
        coming.map(|(index, _)| PoolDrive { pool: self.name.clone(), index }).collect()
    }

    /// Takes a drive back that was found; what is to be said of it.
    fn bring_back(
        &mut self,
        index: usize,
        found: Found,
        moved: &mut Vec<(usize, PathBuf)>,
    ) -> Option<(Severity, String)> {
        let lacked = self.away.drives.entry(index).or_default();
        let what = format!("drive {index} of pool {}", self.name);
        let (path, label) = match found {
            Found::Nowhere => return None,
            Found::Refused(path, why) => {
                lacked.is_refused = true;
                let words = format!("{what} at {} is not taken back: it {why}", path.display());
                return lacked.say(words).map(|words| (Severity::Warning, words));
            }
            Found::At(path, label) => (path, label),
        };
        let at = path.display();
        match take_back(&self.pool, &path, &label) {
            Ok(()) => {
                (lacked.is_coming, lacked.is_refused, lacked.said) = (true, false, None);
                let words = format!("{what} is back at {at}, and is made whole");
                self.note_return(label.drive, Clock::read());
                moved.push((index, path));
                Some((Severity::Info, words))
            }
            // It came back by itself when the pool was opened.
            Err(_) if is_back(&self.pool, index) => None,
            Err(error) => {
                // What others have of it, or do with it, passes.
                lacked.is_refused = !matches!(error.kind, Kind::Conflict | Kind::Stopping);
                let words = format!("{what} at {at} is not taken back: {}", error.context);
                lacked.say(words).map(|words| (Severity::Warning, words))
            }
        }
    }

    /// Takes notice of drives that are slower than the others, or are not any more; what is to be said of it.
    fn follow_slow(&mut self, status: &PoolStatus) -> Vec<(Severity, String)> {
        let mut said = Vec::new();
        for (index, drive) in (0..).zip(&status.drives) {
            let what = format!("drive {index} of pool {}", self.name);
            said.extend(self.away.slow.see(index, Seen::of(drive), reactor::now()).map(|change| {
                match change {
                    Change::Slow => {
                        let words = "is slower than the others: reads go around it where they can";
                        (Severity::Warning, format!("{what} {words}"))
                    }
                    Change::Fast => {
                        (Severity::Info, format!("{what} is as fast as the others again"))
                    }
                }
            }));
        }
        said
    }

    /// Takes one drive back now, however lately it failed; where it is.
    ///
    /// # Errors
    /// `NotFound` when it is nowhere, and as the engine says why it cannot be taken back.
    pub fn bring(mut self, index: u16) -> Result<PathBuf> {
        let wanted = BTreeSet::from([usize::from(index)]);
        let what = format!("drive {index} of pool {}", self.name);
        let drives = self.pool.status()?.drives;
        let (path, label) = match self.find(&wanted, &drives)?.into_values().next() {
            Some(Found::At(path, label)) => (path, label),
            Some(Found::Refused(path, why)) => {
                let what = format!("{what} at {} is not taken back: it {why}", path.display());
                return Err(Error::new(Kind::Failed, what)
                    .help("`flashloom drive replace` puts another one in its place"));
            }
            Some(Found::Nowhere) | None => {
                return Err(Error::new(Kind::NotFound, format!("{what} is not found")).help(
                    "put it back where it was, or in a folder of `drive-folders`; `flashloom drive replace` puts \
                     another one in its place",
                ));
            }
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
                    lacked.stays_out = drive.stays_out.is_some();
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
                    let has_failed = drive.state == DriveState::Failed && drive.stays_out.is_none();
                    if came || is_new && has_failed {
                        // Not at once: it failed for a reason.
                        let failures = self.away.failures.entry(index).or_default();
                        let times = failures.note(drive.id, reactor::now());
                        let pause = RETURN_PAUSE.saturating_mul(2_u32.saturating_pow(times - 1));
                        lacked.rests = from_now(pause.min(RETURN_PAUSE_MAX));
                    }
                }
            }
        }
        said
    }

    /// Drives to look for now.
    fn due(&mut self, clock: Clock) -> BTreeSet<usize> {
        let now = clock.now;
        let is_wanted = |(index, lacked): &(&usize, &Lacked)| {
            let is_worn = u16::try_from(**index).is_ok_and(|index| self.is_worn(index, clock));
            !lacked.is_coming && !lacked.stays_out && !is_worn
        };
        let lacked = self.away.drives.iter().filter(is_wanted);
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
    fn find(
        &mut self,
        due: &BTreeSet<usize>,
        drives: &[DriveStatus],
    ) -> Result<BTreeMap<usize, Found>> {
        let mut found: BTreeMap<usize, _> =
            due.iter().map(|index| (*index, Found::Nowhere)).collect();
        let place = |index: &usize| Some((*index, self.def.drives.get(*index).cloned()?));
        let own: BTreeMap<usize, PathBuf> = due.iter().filter_map(place).collect();
        let known = own.values().chain(&self.def.drives_from).cloned();
        let paths = known.chain(places(&self.folders)).collect();
        for Peeked { path, bytes, seen } in peek_at(self.pool.home(), paths)? {
            let label = match seen {
                Ok(label) => label,
                Err(why) => {
                    let place = own.iter().find(|(_, own)| **own == path).map(|(index, _)| *index);
                    let Some(index) = place else { continue };
                    let needs = drives.get(index).map_or(0, |drive| drive.bytes);
                    if let (Some(fault), Some(place @ Found::Nowhere)) =
                        (fault(&why, bytes, needs), found.get_mut(&index))
                    {
                        *place = Found::Refused(path, fault);
                    }
                    continue;
                }
            };
            let index = usize::from(label.drive);
            // One that another has replaced is not the pool's any more: what comes of it says nothing of that one.
            let id = label.drives.get(index).map(|record| record.id);
            if Uuid::from_bytes(label.pool) == self.pool.id()
                && id.is_some()
                && id == drives.get(index).map(|drive| drive.id)
                && let Some(place) = found.get_mut(&index)
                && !matches!(place, Found::At(_, other) if label.epoch <= other.epoch)
            {
                *place = Found::At(path, label);
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

/// Where a drive is that a pool lacks.
enum Found {
    Nowhere,
    /// It is where it was, and does not say what it is: why.
    Refused(PathBuf, String),
    At(PathBuf, Label),
}

/// What is wrong with a drive at its place, of so many bytes, that does not say what it is. Nothing where another may lie
/// there, or nothing does, and where it does not answer: it may yet.
fn fault(why: &Unknown, bytes: u64, needs: u64) -> Option<String> {
    match why {
        Unknown::Refused(_) | Unknown::Fleeting(_) => Some(why.to_string()),
        Unknown::Unlabelled(_) if bytes < needs => {
            Some(format!("has {bytes} bytes, and {needs} are needed: it was cut short"))
        }
        Unknown::Unlabelled(_) | Unknown::Silent => None,
    }
}

fn is_back(pool: &OpenPool, index: usize) -> bool {
    let is_written = |drive: &engine::DriveStatus| drive.state.is_written();
    pool.status().is_ok_and(|status| status.drives.get(index).is_some_and(is_written))
}

fn take_back(pool: &OpenPool, path: &std::path::Path, label: &Label) -> Result<()> {
    let (member, lock) = open_drive_again(path, |path| pool.own_lock(path))?;
    let path = member.path.clone();
    let taken = pool.rejoin(member)?;
    if taken != label.drive {
        let what = format!("it is drive {taken} by now");
        return Err(Error::new(Kind::Conflict, what));
    }
    pool.moved(usize::from(taken), path, Some(lock));
    Ok(())
}
