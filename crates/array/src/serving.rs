//! What is being served: the target, the media under it, the sockets before it, and the reactors
//! that run it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::v1::Controller;
use api::value::{Address, Nqn};
use target::subsystem::Health;
use target::{Draining, Identity, News, Target};
use uuid::Uuid;

use crate::Result;
use crate::config::Settings;
use crate::desired::{Desired, NamespaceDef};
use crate::event_logs::EventLogs;
use crate::limits::DRAIN;
use crate::lock::Lock;
use crate::pools::{Pools, pool_here};
use crate::reservations::Reservations;
use crate::seen::{Seen, SeenAs};
use crate::windows::Door;

mod absent;
mod apply;
#[cfg(feature = "canary")]
pub mod canary;
mod counters;
mod cuts;
mod drives;
pub(crate) mod listen;
mod lobby;
pub(crate) mod media;
pub(crate) mod reactors;
mod seldom;
pub(crate) mod signal;
mod snapshot;
mod words;

use apply::Lingering;
pub use counters::Collector;
pub(crate) use cuts::{Cut, drained};
pub(crate) use drives::{LateDrive, OpenedDrive, does_not_answer, not_open_yet};
use listen::Listening;
use media::Media;
use reactors::Reactors;
pub use snapshot::Snapshot;
use snapshot::namespace_uuid;
use words::{ana_state, refused, wire};

/// A namespace's place: subsystem and NSID.
pub(crate) type Place = (Nqn, u32);

/// The target and everything it stands on.
#[derive(Debug)]
pub struct Serving {
    node: Uuid,
    target: Arc<Target>,
    reactors: Arc<Reactors>,
    media: BTreeMap<Place, Media>,
    /// Media of namespaces that were removed, and are in use still.
    lingering: Vec<Lingering>,
    /// What hosts had that a change takes from them.
    ending: Vec<Draining>,
    cuts: Vec<Cut>,
    cuts_made: u64,
    /// Places whose backend is not there and of which nobody knows what they were: asked for, and not listed.
    absent: BTreeSet<Place>,
    /// Addresses that are not there: asked for, and not listened on.
    unbound: BTreeSet<Address>,
    seen: Seen,
    reservations: Reservations,
    /// Namespaces that were removed, of which the reservations are kept until that is written down.
    removed: BTreeSet<Uuid>,
    /// Changes under way that have taken out what comes back: nothing is forgotten meanwhile.
    under_way: usize,
    event_logs: EventLogs,
    listeners: BTreeMap<Address, Listening>,
    /// Where direct write windows are handed out, if they are.
    door: Option<Door>,
    pools: Pools,
}

impl Serving {
    /// Starts the reactors and a target that serves nothing yet. `seen` is what namespaces were before.
    ///
    /// # Errors
    /// `Failed` when a reactor cannot be had.
    pub fn start(settings: &Settings, node: Uuid, state_dir: &Path, seen: Seen) -> Result<Self> {
        let reactors = Arc::new(Reactors::start(settings)?);
        #[cfg(feature = "canary")]
        canary::watch(reactors.acceptor(0));
        let target = Target::new(Identity::default());
        target.set_strict_host_names(settings.strict_host_names);
        target.set_host_controllers(settings.bounds.host_controllers);
        ::media::drive::set_deadline(settings.deadline);
        let mut pools = Pools::new(Arc::clone(&reactors), settings, node);
        let door = Door::open(settings, state_dir, &reactors, pool_here);
        if let Some(door) = &door {
            target.set_windows(door.windows());
            pools.set_windows(door.windows());
        }
        Ok(Self {
            node,
            target,
            pools,
            reactors,
            media: BTreeMap::new(),
            lingering: Vec::new(),
            ending: Vec::new(),
            cuts: Vec::new(),
            cuts_made: 0,
            absent: BTreeSet::new(),
            unbound: BTreeSet::new(),
            seen,
            reservations: Reservations::open(state_dir)?,
            removed: BTreeSet::new(),
            under_way: 0,
            event_logs: EventLogs::open(state_dir)?,
            listeners: BTreeMap::new(),
            door,
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

    /// The reactors.
    pub fn reactors(&self) -> Arc<Reactors> {
        Arc::clone(&self.reactors)
    }

    /// What grants direct write windows, if they are granted.
    #[cfg(test)]
    pub fn windows(&self) -> Option<Arc<crate::windows::Windows>> {
        self.door.as_ref().map(Door::windows)
    }

    /// What is served to hosts.
    pub fn target(&self) -> Arc<Target> {
        Arc::clone(&self.target)
    }

    /// What hosts see of the namespaces that `current` wants, to be remembered.
    pub fn seen(&self, current: &Desired) -> Seen {
        self.seen.of(current)
    }

    /// Forgets what namespaces were that are not among the `current` ones any more, their reservations, and the events of
    /// subsystems: that is written down, and none of them comes back by the same change.
    pub fn forget_removed(&mut self, current: &Desired) {
        if self.under_way > 0 {
            return;
        }
        let removed = std::mem::take(&mut self.removed);
        if !removed.is_empty() {
            let all = current.subsystems.iter();
            let all = all.flat_map(|(nqn, def)| def.namespaces.iter().map(move |of| (nqn, of)));
            let wanted: BTreeSet<_> =
                all.map(|(nqn, (&nsid, def))| self.uuid(nqn, nsid, def)).collect();
            removed.difference(&wanted).for_each(|&namespace| self.reservations.forget(namespace));
        }
        self.event_logs.forget_left(|nqn| current.subsystem(nqn).is_some());
        self.seen = self.seen.of(current);
    }

    /// Whether a namespace is served from what is there.
    pub fn is_there(&self, place: &Place) -> bool {
        self.media.get(place).is_some_and(|media| !media.is_absent())
    }

    /// What was taken out by now comes back, or is put back.
    pub fn take_out(&mut self) {
        self.under_way += 1;
    }

    /// It has come back, or is about to be put back.
    pub fn brought_back(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    fn remember(&mut self, nqn: &Nqn, nsid: u32, def: &NamespaceDef, bytes: u64) {
        let uuid = self.uuid(nqn, nsid, def);
        let media = self.media.get(&(nqn.clone(), nsid));
        let wwid = match media.filter(|media| !media.is_absent()) {
            Some(media) => media.wwid(),
            None => self.seen.wwid(nqn, nsid, &def.backend),
        };
        let wwid = wwid.map(str::to_owned);
        let backend = def.backend.clone();
        self.seen.set(nqn, nsid, SeenAs { backend, uuid, bytes, wwid });
    }

    /// Remembers another size of a namespace than hosts see yet.
    pub fn remember_size(&mut self, (nqn, nsid): &Place, bytes: u64) {
        self.seen.resize(nqn, *nsid, bytes);
    }

    /// The identity that a namespace is served with: a volume's own, whatever it is mapped as; while what keeps it is absent,
    /// what it was.
    pub fn uuid(&self, nqn: &Nqn, nsid: u32, def: &NamespaceDef) -> Uuid {
        let is_absent = self.media.get(&(nqn.clone(), nsid)).is_some_and(Media::is_absent);
        if is_absent && let Some(seen) = self.seen.get(nqn, nsid, &def.backend) {
            return seen.uuid;
        }
        namespace_uuid(self.node, (nqn, nsid), def, &self.pools, &self.seen)
    }

    /// Shows hosts another size of a volume's namespace, which its pool has resized, or is about to make smaller
    /// when what is returned is done.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn show_size(&mut self, place: &Place, bytes: u64) -> Result<Draining> {
        let Some(media) = self.media.get_mut(place) else { return Ok(Draining::default()) };
        let (nqn, nsid) = place;
        let resized = self.target.resize_namespace(&wire(nqn)?, *nsid, bytes);
        let draining = resized.map_err(refused)?;
        media.resize(bytes)?;
        self.seen.resize(nqn, *nsid, bytes);
        Ok(draining)
    }

    /// What holds the drives of namespaces, and what pools are made of, each with what it is of.
    pub fn locks(&self) -> Vec<(String, Arc<Lock>)> {
        let of_namespace = |((nqn, nsid), media): (&Place, &Media)| {
            Some((format!("namespace {nsid} of {nqn}"), Arc::clone(media.lock()?)))
        };
        let of_pools = self.pools.open_pools().flat_map(|pool| {
            pool.locks().into_iter().map(|lock| (format!("pool {}", pool.name()), lock))
        });
        self.media.iter().filter_map(of_namespace).chain(of_pools).collect()
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

    /// A subsystem's namespaces as its hosts see them: NSID, blocks, UUID.
    #[cfg(test)]
    pub fn listed(&self, nqn: &Nqn) -> Vec<(u32, u64, [u8; 16])> {
        let name = wire(nqn).ok();
        let subsystems = self.target.snapshot().subsystems.into_iter();
        let namespaces = subsystems.filter(|s| Some(&s.nqn) == name.as_ref());
        let namespaces = namespaces.flat_map(|s| s.namespaces);
        namespaces.map(|n| (n.nsid, n.blocks, n.identity.uuid)).collect()
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

    /// Ends everything in order: no new connections, then every controller, then the reactors.
    pub fn stop(mut self) {
        self.keep_events();
        self.listeners.clear();
        for controller in self.target.controllers() {
            controller.close_queues();
        }
        if !self.reactors.wait_until_idle(DRAIN) {
            let seconds = Duration::as_secs(&DRAIN);
            tracing::warn!("connections were still open after {seconds} s, and are cut off");
        }
        self.door = None;
        self.pools.close();
        self.reactors.stop();
    }
}

/// Live controllers.
pub fn controllers(target: &Target) -> Vec<Controller> {
    let snapshot = target.snapshot();
    let well_known = "nqn.2014-08.org.nvmexpress.discovery";
    let discovery = (well_known.to_owned(), snapshot.discovery);
    let subsystems = snapshot.subsystems.into_iter();
    let subsystems = subsystems.map(|subsystem| (subsystem.nqn.to_string(), subsystem.controllers));
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

#[cfg(test)]
mod tests;
