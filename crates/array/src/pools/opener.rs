//! Opening pools, making and importing them, with nothing of the node held.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use api::v1::{self, Kind};
use api::value::{DrivePath, Name};
use engine::OpenOptions;
use engine::format::label::{Label, PoolState};
use uuid::Uuid;

use super::look::Found;
use super::made_of::{Made, Progress};
use super::{
    MadeOf, OpenPool, PoolDef, RejoinPace, ScrubRecord, WereFast, blank, look, made_of, open,
};
use crate::jobs::Task;
use crate::{Error, Result};

/// A pool that is to be opened now.
#[derive(Debug)]
pub struct Attempt {
    pub name: Name,
    pub(super) def: PoolDef,
    /// It is opened without what it lacks, if it can be.
    pub(super) degraded: bool,
    /// What it waits for.
    pub(super) progress: Progress,
}

/// What came of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// It is open; without what these words say.
    Opened(Arc<OpenPool>, Option<String>),
    /// It lacks something, which is waited for.
    Lacking(String),
    /// Its export was begun before the node ended, and done as far as its drives go.
    Exported,
    Failed(Error),
}

/// A pool that was made or imported, and that nobody knows yet.
pub struct New {
    pub def: PoolDef,
    pub pool: Arc<OpenPool>,
    /// Files that were made for it: gone with it, should nobody come to know it.
    made: Made,
    was_exported: bool,
}

impl New {
    /// It is known.
    pub fn keep(self) {
        self.made.keep();
    }

    /// Leaves it as it was found, as far as that can be.
    pub fn give_up(self) {
        if !self.was_exported {
            return self.pool.close();
        }
        if let Err(error) = self.pool.export() {
            tracing::error!("pool {} was not exported again: {error}", self.pool.name());
        }
    }
}

/// Takes the names of a pool's logs; see [`Opener::attempt`].
pub type Foretell<'a> = &'a dyn Fn(Uuid, Uuid) -> bool;

/// What opens pools: nothing of the node's own, so that the node goes on meanwhile.
#[derive(Clone, Debug)]
pub struct Opener {
    pub(super) reactors: Vec<reactor::Handle>,
    pub(super) shared: bool,
    /// This node: as whom it goes to other targets.
    pub(crate) node: Uuid,
    pub(super) discard: bool,
    pub(super) folders: Vec<PathBuf>,
}

impl Opener {
    /// The same with another reactor in front: pools that are opened side by side are managed by different ones.
    #[must_use]
    pub fn beginning_with(&self, turn: usize) -> Self {
        let mut opener = self.clone();
        let count = opener.reactors.len().max(1);
        opener.reactors.rotate_left(turn % count);
        opener
    }

    /// The reactor that looks at drives.
    pub(super) fn home(&self) -> Result<&reactor::Handle> {
        self.reactors.first().ok_or_else(|| Error::new(Kind::Stopping, "the reactors have stopped"))
    }

    /// Opens a pool that is known. It takes as long as its log is long. `foretell` is told the name of the log that its
    /// drives have, and the one that its next gets, and tells whether that is kept: a node that ends as soon as the drives
    /// have that one would take them for another machine's.
    pub fn attempt(&self, attempt: &Attempt, foretell: Foretell<'_>) -> Outcome {
        match self.open_known(attempt, foretell) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(error),
        }
    }

    fn open_known(&self, attempt: &Attempt, foretell: Foretell<'_>) -> Result<Outcome> {
        let opened = self.open_with(attempt, &attempt.def, foretell);
        if attempt.def.log_to.is_empty() || matches!(opened, Ok(Outcome::Opened(..))) {
            return opened;
        }
        // Its log was on its way when the node ended. What is not its log is refused, and left as it is.
        let arrived = PoolDef { log: attempt.def.log_to.clone(), ..attempt.def.clone() };
        match self.open_with(attempt, &arrived, foretell) {
            Ok(Outcome::Opened(pool, words)) => Ok(Outcome::Opened(pool, words)),
            _ => opened,
        }
    }

    fn open_with(
        &self,
        Attempt { name, degraded, progress, .. }: &Attempt,
        def: &PoolDef,
        foretell: Foretell<'_>,
    ) -> Result<Outcome> {
        let Found { made_of, lacks, is_given, log_id, gets_log } =
            look::find(self.home()?, def, (&self.folders, self.node), *degraded, progress)?;
        if is_given && def.exporting {
            return Ok(Outcome::Exported);
        }
        let words = match lacks {
            Some(lacks) if !*degraded => return Ok(Outcome::Lacking(lacks.words)),
            Some(lacks) if !lacks.is_borne => {
                let what = format!("{}: it is not opened without that by itself", lacks.words);
                return Err(Error::new(Kind::Failed, what).help(
                    "put it back; where it is lost for good, `flashloom pool import --degraded` opens the pool \
                     without it, if the redundancy bears that",
                ));
            }
            lacks => lacks.map(|lacks| lacks.words),
        };
        let degraded = words.is_some();
        let known = def.log_id.map(|known| if def.knows_log(log_id) { log_id } else { known });
        let next = Some(Uuid::new_v4()).filter(|next| gets_log && foretell(log_id, *next));
        let pool = self.open(
            made_of,
            OpenOptions {
                degraded,
                unattended: degraded,
                known_term: def.term,
                known_log: known.map(Uuid::into_bytes),
                new_log: next.map(Uuid::into_bytes),
                ..OpenOptions::default()
            },
        )?;
        if pool.name() != name {
            let context = format!("its drives are those of pool {} now", pool.name());
            pool.close();
            return Err(Error::new(Kind::Conflict, context));
        }
        pool.throttle_rejoins(def.rejoin)?;
        Ok(Outcome::Opened(Arc::new(pool), words))
    }

    fn open(&self, made_of: MadeOf, options: OpenOptions) -> Result<OpenPool> {
        self.begin_discards(OpenPool::open(self.reactors.clone(), made_of, options)?)
    }

    fn begin_discards(&self, pool: OpenPool) -> Result<OpenPool> {
        if self.discard {
            pool.discard()?;
        }
        Ok(pool)
    }

    /// Opens what is to be a drive of an open pool.
    ///
    /// # Errors
    /// `Invalid` for a relative path, `Conflict` for what is in use or, unless `forced`, holds anything, `Failed` for
    /// what cannot be opened.
    pub fn new_drive(&self, asked: &DrivePath, forced: bool) -> Result<MadeOf> {
        let asked = std::slice::from_ref(asked);
        let made_of = MadeOf::asked(asked, &[], None, (self.node, self.shared), forced)?;
        if !forced {
            blank::check(self.home()?, &made_of)?;
        }
        made_of.grow(asked)?;
        Ok(made_of)
    }

    /// Makes a pool.
    ///
    /// # Errors
    /// `Conflict` for a drive that is in use or a job that was cancelled, `Invalid` for what cannot be a pool, `Failed` for what cannot be
    /// opened or written.
    pub fn create(&self, new: &v1::NewPool, task: &Task) -> Result<New> {
        task.step(1, 4, "opens its drives")?;
        let mut made_of = MadeOf::asked(
            &new.drives,
            &new.log,
            new.log_size,
            (self.node, self.shared),
            new.force,
        )?;
        let scheme = made_of::scheme(new.raid, new.drives.len())?;
        let id = Uuid::new_v4();
        let asked = open::Asked {
            name: new.name.to_string(),
            id,
            scheme,
            log_bytes: new.log_size.map(|size| size.bytes()),
            shards: new.shards,
        };
        if !new.force {
            task.step(2, 4, "looks whether its drives are blank")?;
            blank::check(self.home()?, &made_of)?;
        }
        task.commit(3, 4, "writes its labels and its log")?;
        made_of.grow(&new.drives)?;
        let (drives, log) = (made_of.paths(), made_of.places.clone());
        let made = std::mem::take(&mut made_of.made);
        let pool = OpenPool::create(self.reactors.clone(), made_of, asked)?;
        let pool = self.begin_discards(pool)?;
        let (log_to, term, scrub) = (Vec::new(), pool.term(), ScrubRecord::new());
        let def = PoolDef {
            id,
            drives,
            drives_from: BTreeSet::new(),
            log,
            log_to,
            term,
            log_id: Some(pool.log_id()),
            log_next: None,
            exporting: false,
            deleting: false,
            scrub,
            spares: Vec::new(),
            had_spares: false,
            removing: BTreeMap::new(),
            paused: None,
            stopped: BTreeSet::new(),
            rejoin: RejoinPace::default(),
            lives: BTreeMap::new(),
            rebuild_limit: 0,
            were_fast: WereFast::new(),
        };
        Ok(New { def, pool: Arc::new(pool), made, was_exported: false })
    }

    /// Looks at what an import names, and whether it may be taken: `is_known` says so of a pool that was not
    /// exported.
    ///
    /// # Errors
    /// `Conflict`, `Failed` when no drive is of a pool.
    pub fn look(
        &self,
        from: &v1::PoolImport,
        is_known: impl Fn(Uuid) -> bool,
    ) -> Result<(MadeOf, Label)> {
        let made_of = MadeOf::imported(from, (self.node, self.shared), self.home()?)?;
        let label = made_of.check_import(self.home()?, |id| from.force || is_known(id))?;
        Ok((made_of, label))
    }

    /// What the drives that an import names, or those that are found where they are `known` to have been and elsewhere,
    /// say of their pools. Everything is only read.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn find(&self, from: &v1::PoolImport, known: Vec<PathBuf>) -> Result<Vec<v1::FoundPool>> {
        let paths = match from.drives.as_slice() {
            [] => known.into_iter().chain(look::places(&self.folders)).collect(),
            named => named.iter().map(|drive| drive.path.clone()).collect(),
        };
        look::pools(self.home()?, paths)
    }

    /// What the labels at these paths say, where there are any and they can be read.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn labelled(&self, paths: Vec<PathBuf>) -> Result<Vec<(PathBuf, Label)>> {
        look::peek(self.home()?, paths)
    }

    /// Whether the drives of a pool say that it was exported, or opened elsewhere since.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn is_given(&self, def: &PoolDef) -> Result<bool> {
        let mut labels = self.labelled(def.places().cloned().collect())?;
        labels.retain(|(_, label)| Uuid::from_bytes(label.pool) == def.id);
        let newest = labels.iter().max_by_key(|(_, label)| label.epoch);
        Ok(newest.is_some_and(|(_, label)| look::is_given(label, def)))
    }

    /// Opens what was looked at, with what this node knows of the pool.
    ///
    /// # Errors
    /// `Failed` when what it is made of is missing or damaged.
    pub fn import(
        &self,
        from: &v1::PoolImport,
        (mut made_of, label): (MadeOf, Label),
        known: Option<&PoolDef>,
    ) -> Result<New> {
        let was_exported = label.state == PoolState::Exported;
        if was_exported {
            blank::check_new_log(self.home()?, &made_of)?;
        }
        // From here on a label may say that the log is there, whether or not the pool opens.
        std::mem::take(&mut made_of.made).keep();
        let log = made_of.places.clone();
        let v1::PoolImport { degraded, accept_loss, .. } = *from;
        // What is older than what was used last is taken by those only who accept the loss.
        let known_term = known.filter(|_| !accept_loss).map_or(0, |known| known.term);
        let asked = OpenOptions { degraded, accept_loss, known_term, ..OpenOptions::default() };
        let pool = self.open(made_of, OpenOptions { import: true, ..asked })?;
        // By index, as errors and commands count them; those that are missing where they were last.
        let before = |index: usize| known.and_then(|known| known.drives.get(index).cloned());
        let paths = pool.paths().into_iter().enumerate();
        let by_index = paths.map(|(index, path)| path.or_else(|| before(index)));
        let drives = by_index.map(Option::unwrap_or_default).collect();
        let (id, term) = (Uuid::from_bytes(label.pool), pool.term());
        let scrub = known.map_or_else(ScrubRecord::new, |known| known.scrub.clone());
        let rejoin = known.map(|known| known.rejoin).unwrap_or_default();
        pool.throttle_rejoins(rejoin)?;
        let def = PoolDef {
            id,
            drives,
            drives_from: BTreeSet::new(),
            log,
            log_to: Vec::new(),
            term,
            log_id: Some(pool.log_id()),
            log_next: None,
            exporting: false,
            deleting: false,
            scrub,
            spares: known.map(|known| known.spares.clone()).unwrap_or_default(),
            had_spares: known.is_some_and(|known| known.had_spares),
            removing: known.map(|known| known.removing.clone()).unwrap_or_default(),
            paused: known.and_then(|known| known.paused.clone()),
            stopped: known.map(|known| known.stopped.clone()).unwrap_or_default(),
            rejoin,
            lives: known.map(|known| known.lives.clone()).unwrap_or_default(),
            rebuild_limit: known.map_or(0, |known| known.rebuild_limit),
            were_fast: known.map(|known| known.were_fast.clone()).unwrap_or_default(),
        };
        Ok(New { def, pool: Arc::new(pool), made: Made::default(), was_exported })
    }
}
