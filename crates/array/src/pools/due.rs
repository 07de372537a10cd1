//! Which pools are to be opened now, and what comes of that.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::v1::Severity;
use api::value::{LogPlace, Name};

use super::made_of::Progress;
use super::{Attempt, Condition, Known, OpenPool, Outcome, PoolDef, Pools, look, waits_for};
use crate::limits::{LATE_TRIES, LOOK_AGAIN};

pub(super) const LOOK_AGAIN_NANOS: reactor::Nanos = LOOK_AGAIN.as_secs() * 1_000_000_000;

/// What there is of the places that a pool may be found at: a file's existence, or when a folder changed last.
pub(super) type Sight = Vec<Option<SystemTime>>;

/// What there is now of a pool's own places, and of those where drives are searched.
pub(super) fn sight(def: &PoolDef, folders: &[PathBuf]) -> Sight {
    let log = def.log.iter().chain(&def.log_to).filter_map(LogPlace::path);
    let own = def.places().map(PathBuf::as_path).chain(log);
    let own = own.map(|path| path.exists().then_some(SystemTime::UNIX_EPOCH));
    let searched = folders.iter().map(PathBuf::as_path);
    own.chain(searched.map(|folder| fs::metadata(folder).and_then(|of| of.modified()).ok()))
        .collect()
}

/// What there is now of the places of each of these pools.
pub fn sights(pools: Vec<(Name, PoolDef)>, folders: &[PathBuf]) -> Vec<(Name, Sight)> {
    let searched = searched(folders);
    let one = |(name, def): (Name, PoolDef)| {
        let sight = sight(&def, &searched);
        (name, sight)
    };
    pools.into_iter().map(one).collect()
}

/// All folders that drives are searched in.
pub(super) fn searched(folders: &[PathBuf]) -> Vec<PathBuf> {
    let by_id = PathBuf::from(look::BY_ID);
    folders.iter().cloned().chain([by_id]).collect()
}

impl Pools {
    /// Knows these pools from now on. They are [due](Self::due) at once, with all that they are made of, and
    /// after `wait` without what is missing then.
    pub fn know(&mut self, defs: &BTreeMap<Name, PoolDef>, wait: Duration) {
        let wait = reactor::Nanos::try_from(wait.as_nanos()).unwrap_or(reactor::Nanos::MAX);
        let deadline = Some(reactor::now().saturating_add(wait));
        for (name, def) in defs {
            let known = Known {
                def: def.clone(),
                condition: Condition::Closed("it has not been opened yet".to_owned()),
                sight: Vec::new(),
                tries: 1,
                deadline,
                again: 0,
                is_routine: false,
                told: false,
                again_open: false,
                ending: None,
                given_up: std::collections::BTreeSet::new(),
                outlooks: BTreeMap::new(),
            };
            self.known.insert(name.clone(), known);
        }
    }

    /// The pools that are not open, with what there was of their places: to be looked at by whoever asks: a place may hang.
    pub fn closed(&self) -> Vec<(Name, PoolDef)> {
        let closed = |known: &Known| matches!(known.condition, Condition::Closed(_));
        let all = self.known.iter().filter(|(_, known)| closed(known));
        all.map(|(name, known)| (name.clone(), known.def.clone())).collect()
    }

    /// What to open now: pools of which something is there that was not before (when a machine starts, drives may
    /// come late, and what probes them may hold them for a moment), and those that have been waited for.
    pub fn due(&mut self, seen: Vec<(Name, Sight)>) -> Vec<Attempt> {
        let now = reactor::now();
        let mut due = Vec::new();
        for (name, sight) in seen {
            let Some(known) = self.known.get_mut(&name) else { continue };
            let Condition::Closed(problem) = &known.condition else { continue };
            if known.def.deleting {
                continue;
            }
            if known.ending.as_ref().is_some_and(|pool| !pool.let_go()) {
                continue;
            }
            known.ending = None;
            let before = known.sight.iter().chain(std::iter::repeat(&None));
            let is_new = sight.iter().zip(before).any(|(now, then)| now.is_some() && now != then);
            if is_new && !known.sight.is_empty() {
                known.tries = LATE_TRIES;
            }
            known.sight = sight;
            if known.deadline.is_some_and(|deadline| deadline <= now) {
                known.deadline = None;
                known.tries = known.tries.max(1);
            }
            known.is_routine = known.tries == 0 && known.again <= now;
            if known.is_routine {
                known.tries = 1;
            }
            if known.tries > 0 {
                known.tries -= 1;
                known.again = now.saturating_add(LOOK_AGAIN_NANOS);
                let progress = Progress::default();
                known.condition = Condition::opening(problem.clone(), &progress);
                let degraded = known.deadline.is_none();
                due.push(Attempt { name, def: known.def.clone(), degraded, progress });
            }
        }
        due
    }

    /// Takes what came of an attempt, and gives what is to be said of it. A pool that was forgotten meanwhile is
    /// given back, to be closed.
    pub fn finish(
        &mut self,
        name: &Name,
        outcome: Outcome,
    ) -> std::result::Result<Option<(Severity, String)>, Arc<OpenPool>> {
        let Some(known) = self.known.get_mut(name) else {
            return match outcome {
                Outcome::Opened(pool, _) => Err(pool),
                Outcome::Lacking(_) | Outcome::Exported | Outcome::Failed(_) => Ok(None),
            };
        };
        let was_told = known.told;
        Ok(match outcome {
            Outcome::Opened(pool, words) => {
                // Where they are now.
                let moved = known.def.drives.iter_mut().zip(pool.paths());
                for (at, now) in moved {
                    if let Some(now) = now {
                        *at = now;
                    }
                }
                if words.is_none() {
                    known.def.drives_from.clear();
                }
                (known.def.term, known.def.log_id) = (pool.term(), Some(pool.log_id()));
                known.def.log_next = None;
                known.def.exporting = false;
                (known.def.log, known.def.log_to) = (pool.places(), Vec::new());
                (known.tries, known.deadline, known.told) = (0, None, false);
                let again_open = std::mem::take(&mut known.again_open);
                known.condition = Condition::Open(pool);
                match words {
                    Some(words) => Some((
                        Severity::Error,
                        format!(
                            "pool {name} was opened without what it lacks, and nothing is lost: {words}"
                        ),
                    )),
                    None if again_open => Some((
                        Severity::Info,
                        format!("pool {name} is opened again: its drives answer"),
                    )),
                    None if was_told => Some((
                        Severity::Info,
                        format!("pool {name} opened: what it lacked is there"),
                    )),
                    None => None,
                }
            }
            Outcome::Lacking(words) => {
                known.told = true;
                known.condition = Condition::Closed(words.clone());
                (!was_told).then(|| {
                    (Severity::Warning, format!("pool {name} waits for what it lacks: {words}"))
                })
            }
            Outcome::Exported => {
                self.known.remove(name);
                let words =
                    format!("pool {name} exported: the node had ended in the midst of that");
                Some((Severity::Info, words))
            }
            Outcome::Failed(error) => {
                let (again, last) = (known.told, known.tries == 0 && known.deadline.is_none());
                let last = last && !known.is_routine;
                known.told |= last;
                known.condition = Condition::Closed(error.context.clone());
                let still = if again { "still " } else { "" };
                let words = format!("pool {name} {still}cannot be opened: {error}");
                (last || !again).then(|| {
                    known.told = true;
                    (Severity::Error, words)
                })
            }
        })
    }

    /// How many pools are being opened and wait for drives that do not answer.
    pub fn waiting(&self) -> usize {
        let waits = |known: &&Known| match &known.condition {
            Condition::Opening { progress, .. } => waits_for(progress).is_some(),
            Condition::Open(_) | Condition::Closed(_) => false,
        };
        self.known.values().filter(waits).count()
    }
}
