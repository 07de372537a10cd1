//! The pools of a node: which there are, and those that are open.
//!
//! A pool is managed on one reactor: what is asked of it goes there as a call. Its shards live on all
//! reactors by turns, and its volumes ([`Volume`]) are used from any.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::v1::{Kind, PoolSpace};
use api::value::{Backend, LogPlace, Name, PoolDrive, SnapshotPath, VolumePath};
use engine::Volume;
use reactor::Call;
use uuid::Uuid;

use crate::config::Settings;
use crate::serving::reactors::Reactors;
use crate::space::Watch;
use crate::windows::{self, Windows};
use crate::{Error, Result};

mod again;
mod blank;
mod clones;
mod def;
mod delete;
mod detach;
mod due;
mod export;
mod follow_lives;
mod groups;
mod health;
mod held;
mod lives;
mod look;
mod made_of;
mod open;
mod opener;
mod outlook;
mod plan;
mod reasons;
mod rebuild;
mod returning;
mod rollback;
#[cfg(test)]
mod sample;
mod scrub;
mod slow;
mod spares;
mod use_spares;
mod view;
mod volumes;

pub use again::Reopening;
pub use def::{PoolDef, RejoinPace};
use due::Sight;
pub use due::sights;
pub use held::{Group, Limits, NewNames, Snapshot};
use lives::LifeChange;
pub use look::needs;
use made_of::Progress;
pub use made_of::{MadeOf, Member};
pub(crate) use open::pool_here;
pub use open::{NotMoved, OpenPool};
pub use opener::{Attempt, New, Opener, Outcome};
use outlook::Outlook;
pub use reasons::Reason;
pub use rebuild::{Moves, PausedRebuild, is_lost};
pub use returning::{Away, Due, Notes, Search, Searched};
pub use scrub::ScrubRecord;
pub use slow::{SlowOutlook, WasFast, WereFast};
pub use spares::SpareDef;
use spares::Standby;
pub use view::{condition, documents, health_of, problem, rebuild_document};
pub use volumes::Beside;

/// How a pool is.
#[derive(Clone, Debug)]
enum Condition {
    Open(Arc<OpenPool>),
    /// It is being opened, by a task that holds nothing of the node.
    Opening {
        /// Why it was not open before.
        before: Option<String>,
        /// What the task waits for.
        progress: Progress,
    },
    Closed(String),
}

impl Condition {
    /// It is being opened now; why it was not open before.
    fn opening(before: String, progress: &Progress) -> Self {
        Self::Opening { before: Some(before), progress: Arc::clone(progress) }
    }
}

/// What a task that opens a pool waits for, if it is known to wait.
fn waits_for(progress: &Progress) -> Option<String> {
    let words = progress.lock().unwrap_or_else(PoisonError::into_inner);
    (!words.is_empty()).then(|| words.clone())
}

/// A pool, open or not.
#[derive(Clone, Debug)]
pub struct Known {
    def: PoolDef,
    condition: Condition,
    /// What there was of its places when it was looked at last. Of no meaning while it is open.
    sight: Sight,
    /// How often it is still tried.
    tries: u32,
    /// When what it lacks has been waited for long enough.
    deadline: Option<reactor::Nanos>,
    /// When it is tried again although nothing new is seen: what held a drive may have let it go.
    again: reactor::Nanos,
    /// It was tried for that alone.
    is_routine: bool,
    /// It was said that it is waited for.
    told: bool,
    /// It was open, and is to be opened again.
    again_open: bool,
    /// What it was until its export failed: something of it may still come to its drives.
    ending: Option<Arc<OpenPool>>,
    /// Places whose drives an operator took out since the node started, to be replaced by spares at once.
    given_up: BTreeSet<u16>,
    /// What is going to be done about drives that it lacks.
    outlooks: BTreeMap<u16, Outlook>,
}

impl Known {
    const fn open(def: PoolDef, pool: Arc<OpenPool>) -> Self {
        let condition = Condition::Open(pool);
        Self {
            def,
            condition,
            sight: Vec::new(),
            tries: 0,
            deadline: None,
            again: 0,
            is_routine: false,
            told: false,
            again_open: false,
            ending: None,
            given_up: BTreeSet::new(),
            outlooks: BTreeMap::new(),
        }
    }

    /// The pool, if it is open.
    pub fn pool(&self) -> Option<&Arc<OpenPool>> {
        match &self.condition {
            Condition::Open(pool) => Some(pool),
            Condition::Opening { .. } | Condition::Closed(_) => None,
        }
    }
}

/// All pools of a node. What readers look at is a copy of it.
#[derive(Clone, Debug)]
pub struct Pools {
    reactors: Arc<Reactors>,
    /// This node.
    node: Uuid,
    /// What grants direct write windows of their volumes, if anything does.
    windows: Option<Arc<Windows>>,
    discard: bool,
    /// How long after a pool's last scrub the next one begins by itself; `None` for never.
    scrub_every: Option<Duration>,
    /// Where drives are searched for, beside where they were.
    folders: Vec<PathBuf>,
    known: BTreeMap<Name, Known>,
    /// Names of those that are being made or imported.
    coming: BTreeSet<Name>,
    /// What was told of the space of those that are open.
    watches: BTreeMap<Name, Watch>,
    /// What is known of the drives that open pools lack.
    away: BTreeMap<Name, Away>,
    /// Drives of open pools that are slow, and what becomes of each.
    slow: BTreeMap<Name, BTreeMap<u16, SlowOutlook>>,
    /// How spares are, by their identities.
    standbys: BTreeMap<Uuid, Standby>,
    /// How often pools were opened again whose drives had failed.
    reopened: BTreeMap<Name, again::Pause>,
}

impl Pools {
    /// No pools yet, to be opened on `reactors`.
    pub fn new(reactors: Arc<Reactors>, settings: &Settings, node: Uuid) -> Self {
        Self {
            reactors,
            node,
            windows: None,
            discard: !settings.keeps_free_space,
            scrub_every: settings.scrub_every,
            folders: settings.drive_folders.clone(),
            known: BTreeMap::new(),
            coming: BTreeSet::new(),
            watches: BTreeMap::new(),
            away: BTreeMap::new(),
            slow: BTreeMap::new(),
            standbys: BTreeMap::new(),
            reopened: BTreeMap::new(),
        }
    }

    /// Has direct write windows of their volumes be granted by this.
    pub fn set_windows(&mut self, windows: Arc<Windows>) {
        self.windows = Some(windows);
    }

    /// What was told of a pool's space.
    pub fn space(&self, name: &Name) -> PoolSpace {
        self.watches.get(name).map_or(PoolSpace::Enough, Watch::told)
    }

    /// What is known of a pool's space, to be changed.
    pub fn watch_mut(&mut self, name: &Name) -> &mut Watch {
        self.watches.entry(name.clone()).or_default()
    }

    /// What is known of a pool's space; `None` before it was first looked at.
    pub fn watch(&self, name: &Name) -> Option<&Watch> {
        self.watches.get(name)
    }

    /// Asks the open pools how they are doing, and forgets what was known of others.
    pub fn looks(&mut self) -> Vec<(Name, Call<Option<engine::PoolStatus>>)> {
        let known = &self.known;
        let is_open = |name: &Name| known.get(name).is_some_and(|known| known.pool().is_some());
        self.watches.retain(|name, _| is_open(name));
        self.slow.retain(|name, _| is_open(name));
        self.open_pools().map(|pool| (pool.name().clone(), pool.look(false))).collect()
    }

    /// As [`OpenPool::window_ends`](OpenPool::window_ends), of all open pools.
    pub fn window_ends(&self) -> Vec<(Name, Call<Vec<engine::WindowEnd>>)> {
        self.open_pools().map(|pool| (pool.name().clone(), pool.window_ends())).collect()
    }

    /// What there is to remember.
    pub fn defs(&self) -> BTreeMap<Name, PoolDef> {
        self.known.iter().map(|(name, known)| (name.clone(), known.def.clone())).collect()
    }

    /// What opens, makes and imports pools.
    pub fn opener(&self) -> Opener {
        Opener {
            reactors: self.reactors(),
            shared: self.reactors.len() > 1,
            node: self.node,
            discard: self.discard,
            folders: self.folders.clone(),
        }
    }

    /// The open pools, each to be looked for the drives that it lacks.
    pub fn searches(&mut self) -> Vec<Search> {
        let mut away = std::mem::take(&mut self.away);
        let mut ready: BTreeMap<_, _> = self
            .known
            .keys()
            .map(|name| {
                let resting = self.resting_spares(name);
                (name.clone(), (self.ready_spares(name), resting, self.claims_spare(name)))
            })
            .collect();
        let open = self.known.iter().filter_map(|(name, known)| Some((name, known, known.pool()?)));
        let search = |(name, known, pool): (&Name, &Known, &Arc<OpenPool>)| {
            let away = away.remove(name).unwrap_or_default();
            let (pool, def) = (Arc::clone(pool), known.def.clone());
            let (spares, resting, is_claimed) = ready.remove(name).unwrap_or_default();
            Search {
                spares,
                resting,
                given_up: known.given_up.clone(),
                is_claimed,
                ..Search::new(name.clone(), pool, def, self.folders.clone(), away)
            }
        };
        open.map(search).collect()
    }

    /// What looks for one drive that an open pool lacks.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn search(&self, name: &Name) -> Result<Search> {
        let pool = self.pool(name)?;
        let known = self.known.get(name).ok_or_else(|| no_pool(name))?;
        let (def, folders) = (known.def.clone(), self.folders.clone());
        Ok(Search::new(name.clone(), pool, def, folders, Away::default()))
    }

    /// Where a pool's drive was last; `None` for one that is nowhere.
    ///
    /// # Errors
    /// `NotFound` without such a pool.
    pub fn place_of(&self, of: &PoolDrive) -> Result<Option<PathBuf>> {
        let known = self.known.get(&of.pool).ok_or_else(|| no_pool(&of.pool))?;
        let place = known.def.drives.get(usize::from(of.index));
        Ok(place.filter(|path| !path.as_os_str().is_empty()).cloned())
    }

    /// A drive is at another path from now on, at none if it did not come. Gives the one where it was, which is empty
    /// for one that is new.
    ///
    /// # Errors
    /// `NotFound` without such a pool.
    pub fn place_drive(&mut self, of: &PoolDrive, path: PathBuf) -> Result<PathBuf> {
        let known = self.known.get_mut(&of.pool).ok_or_else(|| no_pool(&of.pool))?;
        let (place, drives) = (usize::from(of.index), &mut known.def.drives);
        known.given_up.remove(&of.index);
        drives.resize(drives.len().max(place + 1), PathBuf::new());
        let before = std::mem::replace(&mut drives[place], path);
        while drives.last().is_some_and(|path| path.as_os_str().is_empty()) {
            drives.pop();
        }
        Ok(before)
    }

    /// An operator took a drive out, or wants it back.
    pub fn give_up_drive(&mut self, of: &PoolDrive, is_out: bool) {
        let Some(known) = self.known.get_mut(&of.pool) else { return };
        match is_out {
            true => known.given_up.insert(of.index),
            false => known.given_up.remove(&of.index),
        };
    }

    /// An operator wants a drive back, and it is by now or not: what it did before does not count any more.
    pub fn welcome_drive(&mut self, of: &PoolDrive, is_back: bool) {
        let known = self.known.get_mut(&of.pool);
        if let Some(life) = known.and_then(|known| known.def.lives.get_mut(&of.index)) {
            life.welcome(is_back);
        }
    }

    /// Whether the drive in a place worked when it was looked at last.
    pub fn is_known_to_work(&self, of: &PoolDrive) -> bool {
        let life = self.known.get(&of.pool).and_then(|known| known.def.lives.get(&of.index));
        life.is_some_and(|life| life.state.works())
    }

    /// What identifies a pool for ever.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn id_of(&self, name: &Name) -> Result<Uuid> {
        Ok(self.known.get(name).ok_or_else(|| no_pool(name))?.def.id)
    }

    /// Whether a pool is being exported or deleted: nothing that is done with it comes to its end.
    pub fn is_given_up(&self, name: &Name) -> bool {
        self.known.get(name).is_some_and(|known| known.def.exporting || known.def.deleting)
    }

    /// What there is to remember of a pool, to be changed.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn def_mut(&mut self, name: &Name) -> Result<&mut PoolDef> {
        Ok(&mut self.known.get_mut(name).ok_or_else(|| no_pool(name))?.def)
    }

    /// Takes what came of a search; whether that is to be written down.
    pub fn searched(
        &mut self,
        name: Name,
        away: Away,
        moved: Vec<(usize, PathBuf)>,
        lives: Vec<LifeChange>,
        outlooks: BTreeMap<u16, Outlook>,
        slow: BTreeMap<u16, SlowOutlook>,
    ) -> bool {
        let Some(known) = self.known.get_mut(&name) else { return false };
        known.outlooks = outlooks;
        let mut is_elsewhere = false;
        for change in lives {
            is_elsewhere |= change.take(&mut known.def.lives);
        }
        for (index, path) in moved {
            if let Some(place) = known.def.drives.get_mut(index) {
                is_elsewhere |= *place != path;
                *place = path;
            }
        }
        match slow.is_empty() {
            true => _ = self.slow.remove(&name),
            false => _ = self.slow.insert(name.clone(), slow),
        }
        self.away.insert(name, away);
        is_elsewhere
    }

    /// Drives of open pools that are slow, and what becomes of each.
    pub fn slow_drives(&self) -> impl Iterator<Item = (PoolDrive, &SlowOutlook)> {
        self.slow.iter().flat_map(|(name, drives)| {
            drives.iter().map(|(index, of)| (PoolDrive { pool: name.clone(), index: *index }, of))
        })
    }

    /// Where drives are searched for, beside where they were and where the system names them.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.folders.clone()
    }

    /// The reactors of a pool: all of them, those that manage the fewest pools first.
    fn reactors(&self) -> Vec<reactor::Handle> {
        let managed = |id: u32| {
            let open = self.known.values().filter_map(Known::pool);
            open.filter(|pool| pool.home().id() == id).count()
        };
        let mut handles: Vec<_> =
            (0..self.reactors.len()).map(|index| self.reactors.acceptor(index).clone()).collect();
        handles.sort_by_key(|handle| managed(handle.id()));
        handles
    }

    /// Refuses a name that is taken, and one pool too many, and holds the name until [`add`](Self::add) or
    /// [`give_up`](Self::give_up).
    ///
    /// # Errors
    /// `Conflict`, `Limit`.
    pub fn reserve(&mut self, name: &Name) -> Result<()> {
        self.check_free(name)?;
        self.coming.insert(name.clone());
        Ok(())
    }

    /// Refuses a name that is taken, and one pool too many.
    ///
    /// # Errors
    /// `Conflict`, `Limit`.
    pub fn check_free(&self, name: &Name) -> Result<()> {
        if self.known.contains_key(name) || self.coming.contains(name) {
            return Err(Error::new(Kind::Conflict, format!("pool {name} is there already")));
        }
        let most = api::limits::POOLS_MAX;
        if self.known.len() + self.coming.len() >= most {
            return Err(Error::new(Kind::Limit, format!("a node has at most {most} pools")));
        }
        Ok(())
    }

    /// As [`reserve`](Self::reserve) for an import, which may be of a pool that is known and could not be opened.
    ///
    /// # Errors
    /// `Conflict`, `Limit`.
    pub fn reserve_import(&mut self, name: &Name, id: Uuid) -> Result<()> {
        match self.known.get_mut(name) {
            None => self.reserve(name),
            Some(known) if known.def.id == id => match &known.condition {
                Condition::Closed(_) if known.def.deleting => Err(deleted_just_now(name)),
                Condition::Closed(problem) => {
                    known.condition = Condition::opening(problem.clone(), &Progress::default());
                    Ok(())
                }
                Condition::Opening { .. } => Err(opened_just_now(name)),
                Condition::Open(_) => Err(is_there(name)),
            },
            Some(_) => Err(is_there(name)),
        }
    }

    /// Takes the term of an open pool's labels; whether it is another one.
    pub fn note_term(&mut self, name: &Name, term: u64) -> bool {
        let Some(known) = self.known.get_mut(name) else { return false };
        let is_newer = term > known.def.term;
        known.def.term = known.def.term.max(term);
        is_newer
    }

    /// Notes where the log of an open pool is about to go. Gives the pool, and where its log is.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is not open, or its log moves already.
    pub fn begin_move(&mut self, name: &Name, to: &[LogPlace]) -> Result<Arc<OpenPool>> {
        let pool = self.pool(name)?;
        let known = self.known.get_mut(name).ok_or_else(|| no_pool(name))?;
        if !known.def.log_to.is_empty() {
            let what = format!("the log of pool {name} is being moved just now");
            return Err(Error::new(Kind::Conflict, what).help("try again in a moment"));
        }
        known.def.log_to = to.to_vec();
        Ok(pool)
    }

    /// Notes where the log of a pool is by now; where it may be at either place, both stay known.
    pub fn end_move(&mut self, name: &Name, now: Option<Vec<LogPlace>>) {
        if let (Some(known), Some(now)) = (self.known.get_mut(name), now) {
            (known.def.log, known.def.log_to) = (now, Vec::new());
        }
    }

    /// Whether this node has a pool with this identity, open or not.
    pub fn knows(&self, id: Uuid) -> bool {
        self.known.values().any(|known| known.def.id == id)
    }

    /// Whether the pool with this identity is open, or about to be.
    pub fn is_open(&self, id: Uuid) -> bool {
        let closed = |known: &Known| matches!(known.condition, Condition::Closed(_));
        self.known.values().any(|known| known.def.id == id && !closed(known))
    }

    /// What this node knows of the pool with this identity.
    pub fn def_of(&self, id: Uuid) -> Option<PoolDef> {
        self.known.values().find(|known| known.def.id == id).map(|known| known.def.clone())
    }

    /// Whether this node has a pool with this identity that is not open.
    pub fn waits_for(&self, id: Uuid) -> bool {
        self.known.values().any(|known| known.def.id == id && known.pool().is_none())
    }

    /// Refuses what is known as the place of a pool's drive: the pool may be waiting for it.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn check_no_drive(&self, path: &Path) -> Result<()> {
        for (name, known) in &self.known {
            let waits = known.pool().is_none();
            if waits && known.def.places().any(|drive| drive == path) {
                return Err(is_drive_of(path, name));
            }
        }
        Ok(())
    }

    /// Refuses what says to be `of` a pool that this node knows: names of drives go from one to the other.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn check_none_of_ours(&self, path: &Path, of: Option<Uuid>) -> Result<()> {
        let ours = self.known.iter().find(|(_, known)| Some(known.def.id) == of);
        ours.map_or(Ok(()), |(name, _)| {
            Err(is_drive_of(path, name).help(
                "names of drives change from start to start: remove the namespace and add it by the drive's name under \
                 /dev/disk/by-id; of a pool that is not needed, delete or export it first",
            ))
        })
    }

    /// Refuses what an open pool has.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn check_not_held(&self, path: &Path) -> Result<()> {
        match self.open_pools().find(|pool| pool.own_lock(path).is_some()) {
            Some(pool) => Err(is_drive_of(path, pool.name())),
            None => Ok(()),
        }
    }

    /// Knows a pool that is open from now on. Gives what was known of it before.
    pub fn add(&mut self, name: &Name, def: PoolDef, pool: Arc<OpenPool>) -> Option<Known> {
        self.coming.remove(name);
        self.known.insert(name.clone(), Known::open(def, pool))
    }

    /// A pool that was to come does not.
    pub fn give_up(&mut self, name: &Name) {
        self.coming.remove(name);
        if let Some(known) = self.known.get_mut(name)
            && let Condition::Opening { before, .. } = &mut known.condition
        {
            known.condition = Condition::Closed(before.take().unwrap_or_default());
        }
    }

    /// Forgets a pool; gives what was known of it, to be closed if it is open.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is being opened.
    pub fn take(&mut self, name: &Name) -> Result<Known> {
        let known = self.known.get(name).ok_or_else(|| no_pool(name))?;
        if let Condition::Opening { .. } = known.condition {
            return Err(opened_just_now(name));
        }
        self.known.remove(name).ok_or_else(|| no_pool(name))
    }

    /// Knows again what was taken.
    pub fn put_back(&mut self, name: &Name, known: Known) {
        self.known.insert(name.clone(), known);
    }

    /// Closes all pools in order.
    pub fn close(&mut self) {
        let known = std::mem::take(&mut self.known).into_values();
        let open: Vec<_> = known.filter_map(|known| known.pool().cloned()).collect();
        // Side by side: what one waits for is nothing to the others.
        std::thread::scope(|scope| {
            for pool in &open {
                scope.spawn(|| {
                    pool.close();
                    for end in pool.ends_at_close() {
                        let told = windows::told(pool.name(), &end);
                        told.iter().for_each(|(_, words)| tracing::error!("{words}"));
                    }
                });
            }
        });
    }

    /// An open pool.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while it is not open.
    pub fn pool(&self, name: &Name) -> Result<Arc<OpenPool>> {
        let known = self.known.get(name).ok_or_else(|| no_pool(name))?;
        match &known.condition {
            Condition::Open(pool) => Ok(Arc::clone(pool)),
            Condition::Opening { progress, .. } => {
                let waits = waits_for(progress).map(|words| format!(": {words}"));
                let what = format!("it is being opened{}", waits.unwrap_or_default());
                Err(Error::new(Kind::Conflict, format!("pool {name} is not open: {what}")).help(format!(
                    "ask again once it is open: `flashloom pool show {name}` tells how far that is"
                )))
            }
            Condition::Closed(problem) => Err(not_open(name, problem)),
        }
    }

    /// Whether the pool is known but not open.
    pub fn is_unavailable(&self, name: &Name) -> bool {
        self.known.get(name).is_none_or(|known| known.pool().is_none())
    }

    /// A volume.
    ///
    /// # Errors
    /// `NotFound`, and as [`pool`](Self::pool).
    pub fn volume(&self, volume: &VolumePath) -> Result<Volume> {
        self.pool(&volume.pool)?.volume(&volume.volume)
    }

    /// A snapshot.
    ///
    /// # Errors
    /// As of [`volume`](Self::volume).
    pub fn snapshot(&self, snapshot: &SnapshotPath) -> Result<Snapshot> {
        self.pool(&snapshot.volume.pool)?.snapshot(&snapshot.volume.volume, &snapshot.snapshot)
    }

    /// The volume or the snapshot that a backend is; `None` for one that is of no pool.
    pub fn kept_in(&self, backend: &Backend) -> Option<Result<Volume>> {
        match backend {
            Backend::Volume(path) => Some(self.volume(path)),
            Backend::Snapshot(path) => Some(self.snapshot(path).map(|snapshot| snapshot.volume)),
            Backend::Memory { .. } | Backend::Drive { .. } | Backend::Passthrough { .. } => None,
        }
    }
}

/// What is at `path` is a known pool's, open or not.
pub fn is_drive_of(path: &Path, pool: impl std::fmt::Display) -> Error {
    let what = format!("{} is a drive of pool {pool}", path.display());
    Error::new(Kind::Conflict, what).help("export the pool first, or choose another drive")
}

fn is_there(name: &Name) -> Error {
    Error::new(Kind::Conflict, format!("a pool {name} is there already"))
        .help("export the one that is open first")
}

fn opened_just_now(name: &Name) -> Error {
    Error::new(Kind::Conflict, format!("pool {name} is being opened just now"))
        .help("try again in a moment")
}

fn deleted_just_now(name: &Name) -> Error {
    Error::new(Kind::Conflict, format!("pool {name} is being deleted"))
        .help("`flashloom pool delete` goes on where that was cut short")
}

/// There is no such drive.
pub fn no_drive(of: &PoolDrive) -> Error {
    Error::new(Kind::NotFound, format!("pool {} has no drive {}", of.pool, of.index))
        .help("`flashloom drive list` shows those there are")
}

fn no_pool(name: &Name) -> Error {
    Error::new(Kind::NotFound, format!("there is no pool {name}"))
        .help("`flashloom pool list` shows those there are")
}

/// The pool is not open, and nobody is opening it.
pub fn not_open(name: &Name, problem: &str) -> Error {
    Error::new(Kind::Conflict, format!("pool {name} is not open: {problem}")).help(format!(
        "put right what is wrong (`flashloom pool show {name}`), then `flashloom pool import` with its drives opens it \
         (with --degraded if drives are lost)"
    ))
}

/// An error of the engine as the node's.
fn told(context: &str, error: &engine::Error) -> Error {
    let kind = match error.kind {
        engine::Kind::Invalid | engine::Kind::OutOfRange | engine::Kind::Unsupported => {
            Kind::Invalid
        }
        engine::Kind::Full => Kind::Limit,
        engine::Kind::Exists | engine::Kind::Busy => Kind::Conflict,
        engine::Kind::NotFound => Kind::NotFound,
        engine::Kind::Corrupt
        | engine::Kind::Loss
        | engine::Kind::Failed
        | engine::Kind::Missing
        | engine::Kind::Gone => Kind::Failed,
    };
    let text = if context.is_empty() { error.to_string() } else { format!("{context}: {error}") };
    Error::new(kind, text)
}
