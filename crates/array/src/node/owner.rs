//! Who owns the node's state: one thread, which takes one command after the other. Readers look at what it published
//! after the last one, and wait for nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::v1::Kind;

use super::stopped;
use super::turns::Turns;
use crate::jobs::{Jobs, Listed};
use crate::limits::COMMANDS;
use crate::serving::{Place, Serving, Snapshot};
use crate::state::{State, StateDir};
use crate::{Error, Result};

/// Paths of files in use that are not there any more, with what they are of.
pub(super) type Strays = Arc<BTreeMap<PathBuf, String>>;

/// What the owner owns.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(super) dir: Arc<StateDir>,
    pub(super) state: Arc<State>,
    /// `None` once the node has stopped.
    pub(super) serving: Option<Serving>,
    /// Pools that are being opened.
    pub(super) openings: usize,
    /// Whose turn it is with each pool.
    pub(super) turns: Turns,
    pub(super) jobs: Jobs,
    /// Files in use that are not at their paths.
    pub(super) strays: Strays,
    /// What a change asked for by another name than it has by now, to be told.
    pub(super) renames: Vec<String>,
    /// Namespaces that are asked for and not served while a change is under way that serves them in another way.
    pub(super) taken_out: BTreeSet<Place>,
}

impl Owned {
    pub(crate) fn serving(&self) -> Result<&Serving> {
        self.serving.as_ref().ok_or_else(stopped)
    }

    pub(crate) fn serving_mut(&mut self) -> Result<&mut Serving> {
        self.serving.as_mut().ok_or_else(stopped)
    }

    fn view(&self, revision: u64) -> View {
        View {
            revision,
            state: Arc::clone(&self.state),
            serving: self.serving.as_ref().map(Serving::snapshot),
            openings: self.openings,
            jobs: self.jobs.listed(),
            are_jobs_unsaved: self.jobs.is_unsaved(),
            strays: Arc::clone(&self.strays),
        }
    }
}

/// What readers see: the node after a command.
#[derive(Debug)]
pub(crate) struct View {
    /// Grows with every command that changed something of it.
    pub revision: u64,
    pub state: Arc<State>,
    serving: Option<Snapshot>,
    pub openings: usize,
    pub jobs: Listed,
    pub are_jobs_unsaved: bool,
    pub strays: Strays,
}

impl View {
    /// # Errors
    /// `Stopping`.
    pub fn serving(&self) -> Result<&Snapshot> {
        self.serving.as_ref().ok_or_else(stopped)
    }

    /// Whether readers see nothing else in it than in the one before.
    fn is_seen_as(&self, before: &Self) -> bool {
        let is_served_alike = match (&self.serving, &before.serving) {
            (Some(now), Some(before)) => now.is_seen_as(before),
            (now, before) => now.is_some() == before.is_some(),
        };
        is_served_alike
            && self.state == before.state
            && self.openings == before.openings
            && Arc::ptr_eq(&self.jobs, &before.jobs)
            && self.are_jobs_unsaved == before.are_jobs_unsaved
            && self.strays == before.strays
    }
}

/// What was published last. Held for as long as it takes to copy a pointer.
#[derive(Debug)]
struct Published {
    view: Mutex<Arc<View>>,
    changed: Condvar,
}

impl Published {
    fn lock(&self) -> MutexGuard<'_, Arc<View>> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only the owner does.
    fn publish(&self, owned: &Owned) {
        let before = Arc::clone(&self.lock());
        let view = owned.view(before.revision + 1);
        if view.is_seen_as(&before) {
            return;
        }
        *self.lock() = Arc::new(view);
        self.changed.notify_all();
        // What only the one before still had goes with nothing held.
        drop(before);
    }
}

type Command = Box<dyn FnOnce(&mut Owned, &Published) + Send>;

/// The way to the owner.
#[derive(Debug)]
pub(crate) struct Owner {
    commands: Option<SyncSender<Command>>,
    published: Arc<Published>,
    thread: Option<JoinHandle<()>>,
}

impl Owner {
    /// Gives the state to a thread of its own.
    ///
    /// # Errors
    /// `Failed` when there is no thread to be had.
    pub fn start(mut owned: Owned) -> Result<Self> {
        let view = Mutex::new(Arc::new(owned.view(0)));
        let published = Arc::new(Published { view, changed: Condvar::new() });
        let (commands, received) = sync_channel::<Command>(COMMANDS);
        let publishing = Arc::clone(&published);
        let own = move || {
            for command in received {
                // Whoever sent one that fails by a fault of this program is told; the others go on.
                let _ = catch_unwind(AssertUnwindSafe(|| command(&mut owned, &publishing)));
            }
        };
        let thread = thread::Builder::new().name("node".to_owned()).spawn(own);
        let thread = thread.map_err(|error| Error::failed("cannot start a thread", error))?;
        Ok(Self { commands: Some(commands), published, thread: Some(thread) })
    }

    /// Has the owner take a command and publish what changed by it.
    ///
    /// # Errors
    /// Those of the command.
    pub fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Owned) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.send(|reply| {
            Box::new(move |owned, published| {
                let result = command(owned);
                published.publish(owned);
                let _ = reply.send(result);
            })
        })
    }

    /// As [`ask`](Self::ask) for what readers cannot see.
    ///
    /// # Errors
    /// Those of the command.
    pub fn ask_unseen<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Owned) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.send(|reply| {
            Box::new(move |owned, _| {
                let _ = reply.send(command(owned));
            })
        })
    }

    fn send<T>(&self, command: impl FnOnce(SyncSender<Result<T>>) -> Command) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        let commands = self.commands.as_ref().ok_or_else(stopped)?;
        commands.send(command(reply)).map_err(|_| stopped())?;
        let lost = || Error::new(Kind::Failed, "the command was given up: the log says why");
        answer.recv().unwrap_or_else(|_| Err(lost()))
    }

    /// What was published last.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.published.lock())
    }

    /// Waits until what is published is as wanted, or for so long; whether it is.
    pub fn wait_until(&self, limit: Duration, is_wanted: impl Fn(&View) -> bool) -> bool {
        let Published { changed, .. } = &*self.published;
        let waited = changed
            .wait_timeout_while(self.published.lock(), limit, |view| !is_wanted(view.as_ref()));
        let (view, _) = waited.unwrap_or_else(PoisonError::into_inner);
        is_wanted(view.as_ref())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.commands.take());
        // The state directory is free when it has ended.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
