//! The pools of a node: which there are, and those that are open.
//!
//! A pool is managed on one reactor: what is asked of it goes there as a call. Its shards live on all
//! reactors by turns, and its volumes ([`Volume`]) are used from any.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::v1::{self, Kind, PoolSpace};
use api::value::{LogPlace, Name, VolumePath};
use engine::format::label::PoolState;
use engine::{OpenOptions, Volume};
use reactor::Call;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits::LATE_TRIES;
use crate::serving::crew::Crew;
use crate::space::Watch;
use crate::{Error, Result};

mod blank;
mod made_of;
mod open;
mod view;

pub use made_of::MadeOf;
pub use open::OpenPool;
pub use view::problem;

/// A pool that this node knows: what it takes to open it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDef {
    /// What identifies it for ever.
    pub id: Uuid,
    /// Its drives, absolute.
    pub drives: Vec<PathBuf>,
    /// Where its commit log lies.
    pub log: Vec<LogPlace>,
}

impl PoolDef {
    /// Which of the places it is made of there are.
    fn present(&self) -> Vec<bool> {
        let log = self.log.iter().filter_map(LogPlace::path);
        self.drives.iter().map(PathBuf::as_path).chain(log).map(Path::exists).collect()
    }
}

/// A pool, open or not.
#[derive(Debug)]
struct Known {
    def: PoolDef,
    open: std::result::Result<OpenPool, String>,
    /// Which of its places there were when it was looked at last. Of no meaning while it is open.
    present: Vec<bool>,
    /// How often it is still tried.
    tries: u32,
}

impl Known {
    const fn open(def: PoolDef, pool: OpenPool) -> Self {
        Self { def, open: Ok(pool), present: Vec::new(), tries: 0 }
    }
}

/// All pools of a node.
#[derive(Debug)]
pub struct Pools {
    crew: Arc<Crew>,
    discard: bool,
    known: BTreeMap<Name, Known>,
    /// What was told of the space of those that are open.
    watches: BTreeMap<Name, Watch>,
}

impl Pools {
    /// No pools yet, to be opened on the reactors of `crew`.
    /// Those tell their drives of free space if `discard`.
    pub fn new(crew: Arc<Crew>, discard: bool) -> Self {
        Self { crew, discard, known: BTreeMap::new(), watches: BTreeMap::new() }
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
        self.watches.retain(|name, _| known.get(name).is_some_and(|known| known.open.is_ok()));
        self.open_pools().map(|pool| (pool.name().clone(), pool.look(false))).collect()
    }

    /// What there is to remember.
    pub fn defs(&self) -> BTreeMap<Name, PoolDef> {
        self.known.iter().map(|(name, known)| (name.clone(), known.def.clone())).collect()
    }

    /// Opens what the node knew; a pool that cannot be opened is kept as that, and told of.
    pub fn open_all(&mut self, defs: &BTreeMap<Name, PoolDef>) -> Vec<String> {
        let mut failed = Vec::new();
        for (name, def) in defs {
            let present = def.present();
            let open = self.open_known(name, def).map_err(|error| {
                failed.push(format!("pool {name} cannot be opened: {error}"));
                error.context
            });
            self.known.insert(name.clone(), Known { def: def.clone(), open, present, tries: 0 });
        }
        failed
    }

    /// Opens the pools that could not be opened and of which something is there now that was not: when a machine
    /// starts, drives may come late. Gives those that are open now, and those that are given up, with the error.
    pub fn open_late(&mut self) -> Vec<(Name, Option<Error>)> {
        let mut due = Vec::new();
        for (name, known) in self.known.iter_mut().filter(|(_, known)| known.open.is_err()) {
            let present = known.def.present();
            if present.iter().zip(&known.present).any(|(now, before)| *now && !before) {
                known.tries = LATE_TRIES;
            }
            known.present = present;
            if known.tries > 0 {
                known.tries -= 1;
                due.push((name.clone(), known.def.clone(), known.tries));
            }
        }
        let mut outcomes = Vec::new();
        for (name, def, tries) in due {
            let opened = self.open_known(&name, &def);
            let Some(known) = self.known.get_mut(&name) else { continue };
            match opened {
                Ok(pool) => {
                    (known.open, known.tries) = (Ok(pool), 0);
                    outcomes.push((name, None));
                }
                Err(error) => {
                    known.open = Err(error.context.clone());
                    if tries == 0 {
                        outcomes.push((name, Some(error)));
                    }
                }
            }
        }
        outcomes
    }

    fn open_known(&self, name: &Name, def: &PoolDef) -> Result<OpenPool> {
        let pool = self.open(MadeOf::known(def)?, OpenOptions::default())?;
        if pool.name() != name {
            let context = format!("its drives are those of pool {} now", pool.name());
            pool.close();
            return Err(Error::new(Kind::Conflict, context));
        }
        Ok(pool)
    }

    /// Whether more than one reactor uses what pools are made of.
    fn is_shared(&self) -> bool {
        self.crew.len() > 1
    }

    /// The reactors of a pool: all of them, those that manage the fewest pools first.
    fn reactors(&self) -> Vec<reactor::Handle> {
        let managed = |id: u32| {
            let open = self.known.values().filter_map(|known| known.open.as_ref().ok());
            open.filter(|pool| pool.home().id() == id).count()
        };
        let mut handles: Vec<_> =
            (0..self.crew.len()).map(|index| self.crew.acceptor(index).clone()).collect();
        handles.sort_by_key(|handle| managed(handle.id()));
        handles
    }

    fn open(&self, made_of: MadeOf, options: OpenOptions) -> Result<OpenPool> {
        self.begin_discards(OpenPool::open(self.reactors(), made_of, options)?)
    }

    fn begin_discards(&self, pool: OpenPool) -> Result<OpenPool> {
        if self.discard {
            pool.discard()?;
        }
        Ok(pool)
    }

    /// Refuses a name that is taken, and one pool too many.
    fn check_new(&self, name: &Name) -> Result<()> {
        if self.known.contains_key(name) {
            return Err(Error::new(Kind::Conflict, format!("pool {name} is there already")));
        }
        let most = api::limits::POOLS_MAX;
        if self.known.len() >= most {
            return Err(Error::new(Kind::Limit, format!("a node has at most {most} pools")));
        }
        Ok(())
    }

    /// Makes a pool.
    ///
    /// # Errors
    /// `Conflict` for a name or a drive that is in use, `Invalid` for what cannot be a pool, `Failed`
    /// for what cannot be opened or written.
    pub fn create(&mut self, new: &v1::NewPool) -> Result<()> {
        self.check_new(&new.name)?;
        let mut made_of = MadeOf::asked(&new.drives, &new.log, new.log_size, self.is_shared())?;
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
            blank::check(self.crew.acceptor(0), &made_of)?;
        }
        made_of.grow(&new.drives)?;
        let (drives, log) = (made_of.paths(), made_of.places.clone());
        let made = std::mem::take(&mut made_of.made);
        let pool = OpenPool::create(self.reactors(), made_of, asked)?;
        let pool = self.begin_discards(pool)?;
        made.keep();
        let def = PoolDef { id, drives, log };
        self.known.insert(new.name.clone(), Known::open(def, pool));
        Ok(())
    }

    /// Opens a pool from its drives, and knows it from then on. Gives its name.
    ///
    /// # Errors
    /// `Conflict` when a pool of its name is open, `Invalid` when it was not exported, `Failed` when
    /// what it is made of is missing or damaged.
    pub fn import(&mut self, from: &v1::PoolImport) -> Result<Name> {
        let home = self.crew.acceptor(0);
        let mut made_of = MadeOf::imported(from, self.is_shared(), home)?;
        let (drives, log) = (made_of.paths(), made_of.places.clone());
        let known = |id: Uuid| self.known.values().any(|known| known.def.id == id);
        let label = made_of.check_import(home, |id| from.force || known(id))?;
        let (name, id) = (label.name.parse::<Name>()?, Uuid::from_bytes(label.pool));
        let same =
            self.known.get(&name).is_none_or(|known| known.def.id == id && known.open.is_err());
        if !same {
            return Err(Error::new(Kind::Conflict, format!("a pool {name} is there already"))
                .help("export the one that is open first"));
        }
        if label.state == PoolState::Exported {
            blank::check_new_log(home, &made_of)?;
        }
        // From here on a label may say that the log is there, whether or not the pool opens.
        std::mem::take(&mut made_of.made).keep();
        let v1::PoolImport { degraded, accept_loss, .. } = *from;
        let pool = self.open(made_of, OpenOptions { degraded, accept_loss, import: true })?;
        let def = PoolDef { id, drives, log };
        self.known.insert(name.clone(), Known::open(def, pool));
        Ok(name)
    }

    /// Closes a pool to be moved, and forgets it. One that could not be opened is forgotten only.
    ///
    /// # Errors
    /// `NotFound`, `Failed` when it could not be closed in order.
    pub fn export(&mut self, name: &Name) -> Result<()> {
        let known = self.known.remove(name).ok_or_else(|| no_pool(name))?;
        match known.open {
            Ok(pool) => pool.export(),
            Err(_) => Ok(()),
        }
    }

    /// Closes a pool and forgets it, as if it had never been: a change that was not taken.
    pub fn forget(&mut self, name: &Name) {
        if let Some(Known { open: Ok(pool), .. }) = self.known.remove(name) {
            pool.close();
        }
    }

    /// Closes all pools in order.
    pub fn close(&mut self) {
        for known in std::mem::take(&mut self.known).into_values() {
            if let Ok(pool) = known.open {
                pool.close();
            }
        }
    }

    /// An open pool.
    ///
    /// # Errors
    /// `NotFound`, `Failed` when it could not be opened.
    pub fn pool(&self, name: &Name) -> Result<&OpenPool> {
        let known = self.known.get(name).ok_or_else(|| no_pool(name))?;
        known.open.as_ref().map_err(|problem| not_open(name, problem))
    }

    /// As [`pool`](Self::pool), to be changed.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn pool_mut(&mut self, name: &Name) -> Result<&mut OpenPool> {
        let known = self.known.get_mut(name).ok_or_else(|| no_pool(name))?;
        known.open.as_mut().map_err(|problem| not_open(name, problem))
    }

    /// Whether the pool is known but not open.
    pub fn is_unavailable(&self, name: &Name) -> bool {
        self.known.get(name).is_none_or(|known| known.open.is_err())
    }

    /// A volume.
    ///
    /// # Errors
    /// `NotFound`, and as [`pool`](Self::pool).
    pub fn volume(&self, volume: &VolumePath) -> Result<&Volume> {
        self.pool(&volume.pool)?.volume(&volume.volume)
    }
}

fn no_pool(name: &Name) -> Error {
    Error::new(Kind::NotFound, format!("there is no pool {name}"))
        .help("`flashloom pool list` shows those there are")
}

fn not_open(name: &Name, problem: &str) -> Error {
    Error::new(Kind::Failed, format!("pool {name} is not open: {problem}")).help(
        "put right what is wrong, then `flashloom pool import` with its drives opens it (with \
         --degraded if drives are lost)",
    )
}

/// An error of the engine as the node's.
fn told(context: &str, error: &engine::Error) -> Error {
    let kind = match error.kind {
        engine::Kind::Invalid | engine::Kind::OutOfRange => Kind::Invalid,
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
