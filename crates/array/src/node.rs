//! The node: one value that knows what is asked for, what is served, and how to get from the one
//! to the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ::hardware::Machine;
use api::v1::{Event, Kind, PollPolicy, Severity};
use api::value::Address;
use stdx::num::counted;
use target::{News, Target};

use crate::change::Step;
use crate::config::{self, Faults, Settings};
use crate::desired::{self, Desired, ListenerDef};
use crate::events::Events;
use crate::hosts::Hosts;
use crate::jobs::Jobs;
use crate::limits::{DRAIN, START_PATIENCE};
use crate::physical::Physical;
use crate::serving::Serving;
use crate::serving::reactors::Reactors;
use crate::state::{State, StateDir};
use crate::{Error, Result, change, cpus, history};

mod changes;
mod configuration;
mod delete;
mod detach;
mod drive_looks;
mod drive_openings;
mod drives;
mod group_clones;
mod groups;
mod hardware;
mod health;
mod jobs;
mod manage;
mod mappings;
mod move_log;
mod names;
mod opening;
mod owner;
mod pauses;
mod pools;
mod rebuild;
mod rejoin;
mod remove;
mod reopening;
mod rollback;
mod schedule_now;
mod schedule_runs;
mod schedules;
mod scrub;
mod slow;
mod snapshots;
mod space;
mod spares;
mod strays;
mod turn;
mod turns;
mod view;
mod volumes;

use drive_looks::DriveLooks;
use drive_openings::DriveOpenings;
use owner::{Owned, Owner, View};
use turns::Turns;

/// Where a node's configuration comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The state directory alone: what was served last is served again.
    State,
    /// The same, on these listeners in place of those that were asked for at the last start. Listeners
    /// added through the management API are kept.
    Listeners(BTreeMap<Address, ListenerDef>),
    /// A configuration file, joined with the changes made through the management API since.
    File(PathBuf),
    /// The command line. The same command line again keeps changes made since; another one
    /// begins anew. Identities are kept in any case.
    CommandLine(Desired),
}

/// How to start a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where identity and state are kept.
    pub state_dir: PathBuf,
    /// What is to be served.
    pub source: Source,
    /// Forget changes made through the management API.
    pub fresh: bool,
    /// CPUs, before those of the configuration file.
    pub cpus: Option<Vec<usize>>,
    /// Poll policy, before that of the configuration file.
    pub poll: Option<PollPolicy>,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    state_dir: PathBuf,
    pub(crate) config: Option<PathBuf>,
    /// What the configuration file asked for at start.
    settings: Settings,
    pub(crate) started: SystemTime,
    pub(crate) events: Events,
    /// What runs it, to be asked whatever a change is waiting for.
    reactors: Arc<Reactors>,
    /// What refused Connects are asked of, likewise.
    target: Arc<Target>,
    /// Who was connected at the last look.
    hosts: Mutex<Hosts>,
    /// What the machine says of the drives of pools.
    physical: Physical,
    /// Why drives that are waited for and are there were not taken up, as it was told.
    unfit: Mutex<BTreeMap<crate::serving::Place, String>>,
    drive_looks: DriveLooks,
    drive_openings: DriveOpenings,
    /// Who reads the configuration file again.
    reloads: Mutex<()>,
    /// Why it was not taken when it was read last, if so.
    refused_reload: Mutex<Option<String>>,
    /// Schedules that are being run, and what was told of them.
    runs: schedule_runs::Runs,
    /// Who has everything else.
    owner: Arc<Owner>,
}

/// Why a node did not start, or did not take a new configuration.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration file has faults.
    #[error(transparent)]
    Config(#[from] Faults),
    /// Something else.
    #[error(transparent)]
    Node(#[from] Error),
}

impl Node {
    /// Starts reactors, target and listeners: all of what is asked for, or nothing; but for what was served before
    /// and is not there, which is waited for.
    ///
    /// # Errors
    /// The configuration's faults, or what could not be opened, bound or started.
    pub fn start(options: Options) -> std::result::Result<Arc<Self>, StartError> {
        Self::start_on(options, Machine::new())
    }

    /// Likewise on such a machine.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on(
        options: Options,
        machine: Machine,
    ) -> std::result::Result<Arc<Self>, StartError> {
        let dir = StateDir::open(&options.state_dir)?;
        let mut said = Vec::from_iter(dir.left().map(ended_without_order));
        let mut state = dir.load()?;
        let before = state.current.clone();
        // What was served before may come late; what is asked for the first time is not there by mistake.
        let patient = match &options.source {
            Source::State | Source::File(_) => true,
            Source::Listeners(listeners) => *listeners == state.base.listeners,
            Source::CommandLine(desired) => *desired == state.base,
        };
        let (anew, fresh) = (anew(&options, &state.base), options.fresh);
        let (mut settings, base, config) = asked_for(options.source, &mut state, fresh, &mut said)?;
        let known = (state.base.clone(), state.current.clone());
        let wanted = if options.fresh {
            base.clone()
        } else {
            desired::merge(&state.base, &base, &state.current)
        };
        wanted.check().map_err(Error::from)?;
        if before != wanted && before != Desired::default() {
            said.extend(keep(dir.path(), &before, anew, fresh)?);
        }
        let asked = settings.clone();
        settings.cpus = options.cpus.unwrap_or(settings.cpus);
        settings.poll = options.poll.unwrap_or(settings.poll);
        cpus::check_online(&settings.cpus).map_err(Error::from)?;
        let mut serving = Serving::start(&settings, state.node, dir.path(), state.seen.clone())?;
        serving.pools_mut().know(&state.pools, settings.wait_for_drives);
        state.base = base;
        state.current = wanted;
        let is_known = known == (state.base.clone(), state.current.clone());
        let (jobs, interrupted) = Jobs::load(&dir, &state);
        let events = Events::open(dir.path());
        let state_dir = dir.path().to_owned();
        let (reactors, target) = (serving.reactors(), serving.target());
        let owner = Owner::start(Owned {
            dir: Arc::new(dir),
            state: Arc::new(state),
            serving: Some(serving),
            openings: 0,
            turns: Turns::default(),
            jobs,
            strays: owner::Strays::default(),
            renames: Vec::new(),
            taken_out: BTreeSet::new(),
        })?;
        let node = Arc::new(Self {
            state_dir,
            config,
            settings: asked,
            started: SystemTime::now(),
            events,
            reactors,
            target,
            hosts: Mutex::default(),
            physical: Physical::new(machine),
            unfit: Mutex::default(),
            drive_looks: DriveLooks::default(),
            reloads: Mutex::default(),
            refused_reload: Mutex::default(),
            drive_openings: DriveOpenings::default(),
            runs: schedule_runs::Runs::default(),
            owner: Arc::new(owner),
        });
        said.extend(interrupted.into_iter().map(|words| (Severity::Warning, words)));
        said.into_iter().for_each(|(severity, words)| node.events.record(severity, words));
        if let Err(error) = node.begin(patient, is_known) {
            node.stop();
            return Err(error.into());
        }
        Ok(node)
    }

    /// Serves what is asked for: what is there at once, pools as they open. Hosts are let in when they see
    /// everything that they saw before.
    fn begin(self: &Arc<Self>, patient: bool, is_known: bool) -> Result<()> {
        let steps = change::steps(&Desired::default(), &self.view().state.current);
        let (listen, serve): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| matches!(step, Step::AddListener { .. }));
        let opened = self.open_drives(&serve, patient)?;
        let begin = move |owned: &mut Owned| owned.serving_mut()?.begin(serve, opened, patient);
        let mut late = self.owner.ask(begin)?;
        self.events.record(Severity::Info, self.greeting());
        self.open_due_pools()?;
        // Those that lack nothing are open in a moment, mostly: hosts need not find them absent.
        self.wait_for_prompt_openings(START_PATIENCE);
        let (mut unbound, kept) = self.owner.ask(move |owned| {
            let unbound = owned.serving_mut()?.begin(listen, BTreeMap::new(), patient)?;
            Ok((unbound, owned.keep()))
        })?;
        late.append(&mut unbound);
        match kept {
            // What was served before is, wherever that is to be written down again.
            Err(error) if is_known => late.push(format!("what is served is not kept: {error}")),
            kept => kept?,
        }
        late.into_iter().for_each(|words| self.events.record(Severity::Error, words));
        for nqn in self.current().open_to_any_host() {
            let words = "any host that reaches this machine may read and write it";
            self.events.record(Severity::Warning, format!("{nqn} is open: {words}"));
        }
        if self.is_changed() {
            let words = "changes made while it ran last are kept; --fresh drops them";
            self.events.record(Severity::Info, words);
        }
        Ok(())
    }

    /// Whether more or less is served than the configuration asks for.
    fn is_changed(&self) -> bool {
        let state = &self.view().state;
        state.base != state.current && state.base != Desired::default()
    }

    fn greeting(&self) -> String {
        let current = self.current();
        let namespaces: usize = current.subsystems.values().map(|def| def.namespaces.len()).sum();
        format!(
            "started: {}, {}, {}",
            counted(current.listeners.len(), "listener"),
            counted(current.subsystems.len(), "subsystem"),
            counted(namespaces, "namespace")
        )
    }

    /// The node as it was after the last change: looking at it waits for nobody.
    pub(crate) fn view(&self) -> Arc<View> {
        self.owner.view()
    }

    /// The state directory, absolute.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Where `listener` is bound: its own address, with the port that port 0 became.
    pub fn bound(&self, listener: Address) -> Option<Address> {
        self.view().serving().ok()?.bound(listener)
    }

    /// Where metrics are to be served over TCP.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.settings.metrics
    }

    /// The group whose members may use the management socket beside its owner.
    pub fn socket_group(&self) -> Option<u32> {
        self.settings.socket_group
    }

    /// Records an event.
    pub fn tell(&self, severity: Severity, words: impl Into<String>) {
        self.events.record(severity, words);
    }

    /// Asks every reactor for a sign of life.
    pub fn pulse(&self) -> Vec<reactor::Call<()>> {
        self.reactors.pulse()
    }

    /// Keeps what happened in subsystems, for hosts that ask after a restart.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn keep_events(&self) -> Result<()> {
        self.owner.ask_unseen(|owned| {
            owned.serving_mut()?.keep_events();
            Ok(())
        })
    }

    /// Records the Connects that were refused since the last time.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn tell_refused(&self) -> Result<()> {
        let News { refused, more } = self.target.refused();
        for refused in refused {
            self.events.record(Severity::Warning, refused.to_string());
        }
        if more > 0 {
            let words =
                format!("{more} further Connects were refused for the same or other reasons");
            self.events.record(Severity::Warning, words);
        }
        Ok(())
    }

    /// What is served now.
    pub fn current(&self) -> Desired {
        self.view().state.current.clone()
    }

    /// The kept events with an id of `from` or more.
    pub fn events(&self, from: u64) -> Vec<Event> {
        self.events.since(from)
    }

    /// Likewise those that matter as much as `least` or more: once there is one, `limit` has passed, or the node has
    /// stopped.
    pub fn wait_for_events(&self, from: u64, least: Severity, limit: Duration) -> Vec<Event> {
        self.events.wait_since(from, least, limit)
    }

    /// Ends every controller in order and stops the reactors. Later calls fail with `Stopping`.
    pub fn stop(&self) {
        let closed = self.owner.ask(|owned| owned.jobs.close(&owned.dir));
        if let Err(error) = closed {
            self.events.record(Severity::Error, format!("jobs are not written down: {error}"));
        }
        // What is being opened is closed in order, and what changes drives comes to its end.
        let is_idle = |view: &View| view.openings == 0 && view.jobs_under_way() == 0;
        if !self.owner.wait_until(DRAIN, is_idle) {
            tracing::warn!("a pool is still being opened, or a job under way: it is cut off");
        }
        if let Ok(Some(serving)) = self.owner.ask(|owned| Ok(owned.serving.take())) {
            serving.stop();
            self.events.record(Severity::Info, "stopped");
            let noted = self.owner.ask(|owned| owned.dir.end());
            if let Err(error) = noted {
                self.events.record(Severity::Warning, error.context);
            }
        }
        self.events.end();
    }
}

/// Settings and wish of a source, and its file if it is one. Another command line leaves nothing of `state` to be kept.
fn asked_for(
    source: Source,
    state: &mut State,
    fresh: bool,
    said: &mut Vec<(Severity, String)>,
) -> std::result::Result<(Settings, Desired, Option<PathBuf>), StartError> {
    Ok(match source {
        Source::State => (Settings::default(), state.base.clone(), None),
        Source::Listeners(listeners) => {
            (Settings::default(), Desired { listeners, ..state.base.clone() }, None)
        }
        Source::File(path) => {
            let config = config::load_to_start(&path)?;
            if !fresh {
                check_serves(&path, &config, &state.base)?;
            }
            said.extend(config.passing.iter().map(|fault| {
                let words = format!("{}, line {}: {}", path.display(), fault.line, fault.refused);
                (Severity::Error, words)
            }));
            (config.settings, config.desired, Some(path))
        }
        Source::CommandLine(desired) => {
            if desired != state.base {
                state.current = Desired::default();
                state.base = Desired::default();
            }
            (Settings::default(), desired, None)
        }
    })
}

/// Refuses a file without a word of listeners, or of subsystems, where the one read last had some: that would take away what
/// hosts have, and their reservations.
///
/// # Errors
/// `Conflict`.
fn check_serves(path: &Path, config: &config::Config, base: &Desired) -> Result<()> {
    let lacks = [
        ("listener", config.has_listeners, base.listeners.len()),
        ("subsystem", config.has_subsystems, base.subsystems.len()),
    ];
    match lacks.into_iter().find(|(_, has, had)| !has && *had > 0) {
        None => Ok(()),
        Some((noun, _, had)) => {
            let what = format!("{} has no {noun}, and had {}", path.display(), counted(had, noun));
            let help = format!(
                "it may have been cut short; if none is to be served, begin it with `{noun} = []`"
            );
            Err(Error::new(Kind::Conflict, what).help(help))
        }
    }
}

/// Keeps what was served `before` a start that serves something else, and says so where that forgets changes.
fn keep(
    state_dir: &Path,
    before: &Desired,
    anew: Option<&str>,
    fresh: bool,
) -> Result<Option<(Severity, String)>> {
    let id = history::keep(state_dir, before, anew.unwrap_or("a start"), None)?;
    // Whoever says --fresh knows.
    let severity = if fresh { Severity::Info } else { Severity::Warning };
    Ok(anew.map(|anew| {
        let words = format!(
            "{anew}: what was served before is kept as configuration {id}; `flashloom config undo {id}` serves it \
             again"
        );
        (severity, words)
    }))
}

fn ended_without_order(daemon: &str) -> (Severity, String) {
    let words = format!(
        "the daemon before this one{daemon} ended without order, by a kill, a crash or a loss of power: pools replay \
         their commit logs, and what was acknowledged is kept"
    );
    (Severity::Warning, words)
}

/// Why what was served before is not served again, if it is not.
fn anew(options: &Options, base: &Desired) -> Option<&'static str> {
    match &options.source {
        Source::CommandLine(desired) if desired != base => Some("another command line"),
        _ if options.fresh => Some("--fresh"),
        _ => None,
    }
}

fn stopped() -> Error {
    Error::new(Kind::Stopping, "the daemon is stopping")
}
