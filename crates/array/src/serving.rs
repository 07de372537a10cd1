//! What is being served: the target, the media under it, the sockets before it, and the reactors
//! that run it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{Controller, Reactor};
use api::value::{Address, Backend, Name, Nqn, VolumePath};
use target::subsystem::Health;
use target::{Draining, Identity, News, Target};
use uuid::Uuid;

use crate::change::Step;
use crate::config::Settings;
use crate::desired::{Desired, NamespaceDef};
use crate::event_logs::EventLogs;
use crate::limits::DRAIN;
use crate::pools::Pools;
use crate::reservations::Reservations;
use crate::{Result, identity};

mod apply;
mod counters;
pub(crate) mod crew;
mod listen;
pub(crate) mod media;
mod signal;
mod words;

pub use counters::Collector;
use crew::Crew;
use listen::Listening;
use media::Media;
use words::{ana_state, refused, wire};

/// A namespace's place: subsystem and NSID.
type Place = (Nqn, u32);

/// The target and everything it stands on.
#[derive(Debug)]
pub struct Serving {
    node: Uuid,
    target: Arc<Target>,
    crew: Arc<Crew>,
    media: BTreeMap<Place, Media>,
    /// Media of namespaces that were removed, and are in use still.
    lingering: Vec<(Media, Draining)>,
    /// Places of volumes whose pool could not be opened: asked for, and not served.
    absent: BTreeSet<Place>,
    reservations: Reservations,
    event_logs: EventLogs,
    listeners: BTreeMap<Address, Listening>,
    pools: Pools,
}

impl Serving {
    /// Starts the reactors and a target that serves nothing yet.
    ///
    /// # Errors
    /// `Failed` when a reactor cannot be had.
    pub fn start(settings: &Settings, node: Uuid, state_dir: &Path) -> Result<Self> {
        let crew = Arc::new(Crew::start(settings)?);
        let target = Target::new(Identity::default());
        Ok(Self {
            node,
            target,
            pools: Pools::new(Arc::clone(&crew), !settings.keeps_free_space),
            crew,
            media: BTreeMap::new(),
            lingering: Vec::new(),
            absent: BTreeSet::new(),
            reservations: Reservations::open(state_dir)?,
            event_logs: EventLogs::open(state_dir)?,
            listeners: BTreeMap::new(),
        })
    }

    /// The pools.
    pub const fn pools(&self) -> &Pools {
        &self.pools
    }

    /// The pools, to be changed.
    pub const fn pools_mut(&mut self) -> &mut Pools {
        &mut self.pools
    }

    /// As [`apply`](Self::apply), when the node starts: a volume whose pool could not be opened is left
    /// out, so that one pool does not keep the others from being served.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn begin(&mut self, steps: Vec<Step>) -> Result<()> {
        let lacks = |step: &Step| match step {
            Step::AddNamespace { nqn, nsid, def } => match &def.backend {
                Backend::Volume(volume) if self.pools.is_unavailable(&volume.pool) => {
                    Some((nqn.clone(), *nsid))
                }
                _ => None,
            },
            _ => None,
        };
        let absent: BTreeSet<Place> = steps.iter().filter_map(lacks).collect();
        self.absent.extend(absent.iter().cloned());
        let there = |step: &Step| match step {
            Step::AddNamespace { nqn, nsid, .. } => !absent.contains(&(nqn.clone(), *nsid)),
            _ => true,
        };
        self.apply(steps.into_iter().filter(there).collect())
    }

    /// Serves the volumes of `pool` that were absent, as `current` wants them.
    ///
    /// # Errors
    /// Why one could not be served.
    pub fn attach(&mut self, pool: &Name, current: &Desired) -> Result<()> {
        let mut steps = Vec::new();
        for (nqn, nsid) in &self.absent {
            let def = current.subsystem(nqn).and_then(|def| def.namespaces.get(nsid));
            if let Some(def) = def
                && matches!(&def.backend, Backend::Volume(volume) if volume.pool == *pool)
            {
                let (nqn, nsid, def) = (nqn.clone(), *nsid, def.clone());
                steps.push(Step::AddNamespace { nqn, nsid, def });
            }
        }
        for step in steps {
            let Step::AddNamespace { nqn, nsid, .. } = &step else { continue };
            let place = (nqn.clone(), *nsid);
            self.apply(vec![step])?;
            self.absent.remove(&place);
        }
        Ok(())
    }

    /// The identity that a namespace is served with: a volume's own, whatever it is mapped as.
    pub fn uuid(&self, nqn: &Nqn, nsid: u32, def: &NamespaceDef) -> Uuid {
        let of_volume = || match &def.backend {
            Backend::Volume(volume) => {
                self.pools.volume(volume).ok().map(|volume| Uuid::from_bytes(volume.id()))
            }
            _ => None,
        };
        let derived = || identity::namespace(self.node, nqn, nsid, &def.backend);
        def.uuid.or_else(of_volume).unwrap_or_else(derived)
    }

    /// Changes the size of a volume, and of the namespace that it is mapped as, if it is. Growing, the
    /// volume goes first; shrinking, the namespace does.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Failed`.
    pub fn resize_volume(
        &mut self,
        volume: &VolumePath,
        bytes: u64,
        mapped: Option<&Place>,
    ) -> Result<()> {
        let before = self.pools.volume(volume)?.len();
        let mapped = mapped.filter(|place| self.media.contains_key(place));
        let name = match mapped {
            Some((nqn, nsid)) => Some((wire(nqn)?, *nsid)),
            None => None,
        };
        let show = |bytes: u64| match &name {
            Some((nqn, nsid)) => {
                let resized = self.target.resize_namespace(nqn, *nsid, bytes);
                apply::drained(&resized.map_err(refused)?)
            }
            None => Ok(()),
        };
        let shown = if bytes < before { show(bytes) } else { Ok(()) };
        let resize = || self.pools.pool(&volume.pool)?.resize_volume(&volume.volume, bytes);
        let resized = shown.and_then(|()| resize());
        if let Err(error) = resized {
            show(before)?;
            return Err(error);
        }
        show(bytes)?;
        if let Some(media) = mapped.and_then(|place| self.media.get_mut(place)) {
            media.resize(bytes)?;
        }
        Ok(())
    }

    /// Has a subsystem's SMART / Health log say this, and tells its hosts what got worse.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_health(&self, nqn: &Nqn, health: Health) -> Result<()> {
        self.target.set_health(&wire(nqn)?, health).map_err(refused)
    }

    /// How a subsystem's media are, as its hosts see it.
    #[cfg(test)]
    pub fn health(&self, nqn: &Nqn) -> Option<Health> {
        let name = wire(nqn).ok()?;
        let subsystems = self.target.snapshot().subsystems;
        subsystems.into_iter().find(|s| s.nqn == name).map(|s| s.health)
    }

    /// Refused Connects that were not told yet.
    pub fn refused(&self) -> News {
        self.target.refused()
    }

    /// Keeps the persistent events of all subsystems over a restart.
    pub fn keep_events(&mut self) {
        for nqn in self.event_logs.subsystems() {
            // One that could not be served after all has none.
            if let Ok(events) = wire(&nqn).map(|name| self.target.persistent_events(&name))
                && let Ok(events) = events
            {
                self.event_logs.write(&nqn, events);
            }
        }
    }

    /// Size of a namespace in bytes; 0 when there is none.
    pub fn namespace_bytes(&self, nqn: &Nqn, nsid: u32) -> u64 {
        self.media.get(&(nqn.clone(), nsid)).map_or(0, Media::bytes)
    }

    /// Whether hosts can use a namespace.
    pub fn is_served(&self, nqn: &Nqn, nsid: u32) -> bool {
        self.media.contains_key(&(nqn.clone(), nsid))
    }

    /// How many namespaces hosts can use.
    pub fn namespaces_served(&self) -> usize {
        self.media.len()
    }

    /// The address that `listener` is bound to: its own, with the port that port 0 became.
    pub fn bound(&self, listener: Address) -> Option<Address> {
        self.listeners.get(&listener).map(|listening| listening.local().into())
    }

    /// Live controllers.
    pub fn controllers(&self) -> Vec<Controller> {
        let snapshot = self.target.snapshot();
        let well_known = "nqn.2014-08.org.nvmexpress.discovery";
        let discovery = (well_known.to_owned(), snapshot.discovery);
        let subsystems = snapshot.subsystems.into_iter();
        let subsystems =
            subsystems.map(|subsystem| (subsystem.nqn.to_string(), subsystem.controllers));
        let all = subsystems.chain([discovery]);
        all.flat_map(|(subsystem, controllers)| {
            controllers.into_iter().map(move |controller| Controller {
                subsystem: subsystem.clone(),
                cntlid: controller.cntlid,
                host: controller.host_nqn.to_string(),
                peer: Some(controller.peer.to_string()),
                io_queues: controller.io_queues,
                kato_ms: controller.kato,
                ana: (subsystem != well_known).then(|| ana_state(controller.ana)),
            })
        })
        .collect()
    }

    /// The reactors.
    pub fn reactors(&self) -> Vec<Reactor> {
        self.crew.documents()
    }

    /// Collects counters without holding up changes meanwhile.
    pub fn collector(&self) -> Collector {
        Collector::new(Arc::clone(&self.crew))
    }

    /// Asks every reactor for a sign of life.
    pub fn pulse(&self) -> Vec<reactor::Call<()>> {
        self.crew.pulse()
    }

    /// Ends everything in order: no new connections, then every controller, then the reactors.
    pub fn stop(mut self) {
        self.keep_events();
        self.listeners.clear();
        for controller in self.target.controllers() {
            controller.close_queues();
        }
        if !self.crew.wait_until_idle(DRAIN) {
            let seconds = Duration::as_secs(&DRAIN);
            tracing::warn!("connections were still open after {seconds} s, and are cut off");
        }
        self.pools.close();
        self.crew.stop();
    }
}

#[cfg(test)]
mod tests;
