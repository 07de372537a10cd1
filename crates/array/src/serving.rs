//! What is being served: the target, the media under it, the sockets before it, and the reactors
//! that run it. Steps are taken here, all of a change or none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{Controller, Kind, Reactor};
use api::value::{Address, AnaState, Backend, Name, Nqn, VolumePath};
use nvme::ana::State;
use target::listener::{ListenerInfo, Referral};
use target::namespace::NamespaceSpec;
use target::subsystem::{Health, SubsystemSpec};
use target::{Identity, ManageError, Target};
use uuid::Uuid;

use crate::change::Step;
use crate::config::Settings;
use crate::desired::{Desired, ListenerDef, MODEL, NamespaceDef, SubsystemDef};
use crate::event_logs::EventLogs;
use crate::limits::DRAIN;
use crate::pools::Pools;
use crate::reservations::Reservations;
use crate::{Error, Result, identity};

mod counters;
pub(crate) mod crew;
mod listen;
pub(crate) mod media;
mod signal;

pub use counters::Collector;
use crew::Crew;
use listen::Listening;
use media::Media;

/// A namespace's place: subsystem and NSID.
type Place = (Nqn, u32);

/// The target and everything it stands on.
#[derive(Debug)]
pub struct Serving {
    node: Uuid,
    target: Arc<Target>,
    crew: Arc<Crew>,
    media: BTreeMap<Place, Media>,
    /// Places of volumes whose pool could not be opened: asked for, and not served.
    absent: BTreeSet<Place>,
    reservations: Reservations,
    event_logs: EventLogs,
    listeners: BTreeMap<Address, Listening>,
    pools: Pools,
}

/// What a change has ready, and what it has taken out of service and may yet have to put back.
#[derive(Default)]
struct Batch {
    fresh_media: BTreeMap<Place, Media>,
    fresh_listeners: BTreeMap<Address, Listening>,
    parked_media: BTreeMap<Place, Media>,
    parked_listeners: BTreeMap<Address, Listening>,
    /// Places left absent, and those that were and are asked for no more.
    absent: BTreeSet<Place>,
    /// Namespaces that were removed.
    removed: BTreeMap<Place, Uuid>,
    /// Subsystems that were removed.
    forgotten: BTreeSet<Nqn>,
    /// Sizes before they were changed, in bytes.
    sizes: BTreeMap<Place, u64>,
    /// Steps are being taken back.
    back: bool,
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
            Some((nqn, nsid)) => self.target.resize_namespace(nqn, *nsid, bytes).map_err(refused),
            None => Ok(()),
        };
        if bytes < before {
            show(bytes)?;
        }
        let resized = self.pools.pool(&volume.pool)?.resize_volume(&volume.volume, bytes);
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

    /// Takes all `steps`, or none of them.
    ///
    /// # Errors
    /// Why a step could not be taken; everything is as it was before.
    pub fn apply(&mut self, steps: Vec<Step>) -> Result<()> {
        let mut batch = self.prepare(&steps)?;
        let mut taken = Vec::new();
        for step in steps {
            if let Err(error) = self.take(&step, &mut batch) {
                batch.back = true;
                for step in taken.into_iter().rev() {
                    let inverse = Step::inverse(step);
                    if let Err(error) = self.take(&inverse, &mut batch) {
                        // A step that was just taken can be taken back; should it not be so, the
                        // rest still is.
                        tracing::error!("cannot take back {inverse:?}: {error}");
                    }
                }
                return Err(error);
            }
            taken.push(step);
        }
        for (place, namespace) in batch.removed {
            if !self.media.contains_key(&place) {
                self.reservations.forget(namespace);
            }
        }
        for nqn in batch.forgotten {
            if self.target.persistent_events(&wire(&nqn)?).is_err() {
                self.event_logs.forget(&nqn);
            }
        }
        self.keep_events();
        Ok(())
    }

    /// Opens and binds what `steps` will need: what fails from outside fails here, before anything
    /// is changed.
    fn prepare(&self, steps: &[Step]) -> Result<Batch> {
        let mut batch = Batch::default();
        for step in steps {
            match step {
                Step::AddNamespace { nqn, nsid, def } => {
                    let in_use = self.media.get(&(nqn.clone(), *nsid));
                    let media = Media::open(def, self.crew.len() > 1, in_use, &self.pools)?;
                    batch.fresh_media.insert((nqn.clone(), *nsid), media);
                }
                Step::AddListener { address, .. } if !self.listeners.contains_key(address) => {
                    let listening = Listening::bind(&self.crew, &self.target, *address)?;
                    batch.fresh_listeners.insert(*address, listening);
                }
                _ => {}
            }
        }
        Ok(batch)
    }

    fn take(&mut self, step: &Step, batch: &mut Batch) -> Result<()> {
        match step {
            Step::AddSubsystem { nqn, def } => self.add_subsystem(nqn, def),
            Step::RemoveSubsystem { nqn, .. } => {
                self.target.remove_subsystem(&wire(nqn)?).map_err(refused)?;
                batch.forgotten.insert(nqn.clone());
                Ok(())
            }
            Step::AllowAny { nqn, allow } => {
                self.target.set_allow_any(&wire(nqn)?, *allow).map_err(refused)
            }
            Step::AllowHost { nqn, host } => {
                self.target.allow_host(&wire(nqn)?, &wire(host)?).map_err(refused)
            }
            Step::DenyHost { nqn, host } => {
                self.target.deny_host(&wire(nqn)?, &wire(host)?).map_err(refused)
            }
            Step::AddNamespace { nqn, nsid, def } => self.add_namespace(nqn, *nsid, def, batch),
            Step::RemoveNamespace { nqn, nsid, def } => {
                self.remove_namespace(nqn, *nsid, def, batch)
            }
            Step::Resize { nqn, nsid, to, .. } => self.resize(nqn, *nsid, to, batch),
            Step::AddListener { address, def } => self.add_listener(*address, def, batch),
            Step::RemoveListener { address, .. } => self.remove_listener(*address, batch),
            Step::SetAna { address, to, .. } => self.set_ana(*address, *to),
            Step::AddReferral { address } => {
                self.target.add_referral(referral(*address)).map_err(refused)
            }
            Step::RemoveReferral { address } => {
                self.target.remove_referral(&referral(*address)).map_err(refused)
            }
        }
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

    fn add_subsystem(&mut self, nqn: &Nqn, def: &SubsystemDef) -> Result<()> {
        let spec = SubsystemSpec {
            serial: def.serial.clone().unwrap_or_else(|| identity::serial(self.node, nqn)),
            model: def.model.clone().unwrap_or_else(|| MODEL.to_owned()),
            allow_any_host: def.allow_any_host,
            ..SubsystemSpec::new(wire(nqn)?)
        };
        let name = spec.nqn.clone();
        self.target.add_subsystem(spec).map_err(refused)?;
        self.target.restore_events(&name, self.event_logs.read(nqn)).map_err(refused)
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

    fn add_namespace(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        def: &NamespaceDef,
        batch: &mut Batch,
    ) -> Result<()> {
        let place = (nqn.clone(), nsid);
        if batch.back && batch.absent.remove(&place) {
            self.absent.insert(place);
            return Ok(());
        }
        let ready = if batch.back { &mut batch.parked_media } else { &mut batch.fresh_media };
        let media = ready.remove(&place).ok_or_else(|| unprepared("namespace"))?;
        let uuid = self.uuid(nqn, nsid, def);
        let spec = NamespaceSpec {
            nsid: Some(nsid),
            uuid: Some(*uuid.as_bytes()),
            nguid: Some(identity::nguid(uuid)),
            reservations: media.is_durable().then(|| self.reservations.of(uuid)).transpose()?,
            ..NamespaceSpec::new(media.backend(), def.block_size)
        };
        let name = wire(nqn)?;
        self.target.add_namespace(&name, &spec).map_err(refused)?;
        let bytes = media.bytes();
        self.media.insert(place, media);
        self.target.resize_namespace(&name, nsid, bytes).map_err(refused)
    }

    fn remove_namespace(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        def: &NamespaceDef,
        batch: &mut Batch,
    ) -> Result<()> {
        if let Some(place) = self.absent.take(&(nqn.clone(), nsid)) {
            batch.absent.insert(place);
            return Ok(());
        }
        self.target.remove_namespace(&wire(nqn)?, nsid).map_err(refused)?;
        let place = (nqn.clone(), nsid);
        batch.removed.insert(place.clone(), self.uuid(nqn, nsid, def));
        if let Some(media) = self.media.remove(&place)
            && !batch.back
        {
            batch.parked_media.insert(place, media);
        }
        Ok(())
    }

    /// Growing, the media goes first; shrinking, the namespace does: at no time does a host see
    /// more than there is.
    fn resize(&mut self, nqn: &Nqn, nsid: u32, to: &NamespaceDef, batch: &mut Batch) -> Result<()> {
        let place = (nqn.clone(), nsid);
        if self.absent.contains(&place) {
            return Ok(());
        }
        let media = self.media.get_mut(&place).ok_or_else(|| unprepared("namespace"))?;
        let before = media.bytes();
        let bytes = match batch.sizes.get(&place) {
            Some(bytes) if batch.back => *bytes,
            _ => Media::size_asked(to).unwrap_or(before),
        };
        let name = wire(nqn)?;
        if bytes > before {
            media.resize(bytes)?;
            self.target.resize_namespace(&name, nsid, bytes).map_err(refused)?;
        } else {
            self.target.resize_namespace(&name, nsid, bytes).map_err(refused)?;
            media.resize(bytes)?;
        }
        batch.sizes.insert(place, before);
        Ok(())
    }

    fn add_listener(
        &mut self,
        address: Address,
        def: &ListenerDef,
        batch: &mut Batch,
    ) -> Result<()> {
        let fresh = batch.fresh_listeners.remove(&address);
        let ready = fresh.or_else(|| batch.parked_listeners.remove(&address));
        let listening = ready.ok_or_else(|| unprepared("listener"))?;
        let socket = listening.local();
        let advertise = def.advertise.map(|to| (to.ip, to.port.unwrap_or(socket.port())));
        let info = ListenerInfo {
            advertise,
            discovery_only: def.discovery_only,
            ana: ana(def.ana),
            ..ListenerInfo::new(socket.ip(), socket.port())
        };
        listening.serve(self.target.add_listener(info).map_err(refused)?);
        self.listeners.insert(address, listening);
        Ok(())
    }

    fn remove_listener(&mut self, address: Address, batch: &mut Batch) -> Result<()> {
        let listening = self.listeners.remove(&address).ok_or_else(|| unprepared("listener"))?;
        if let Some(id) = listening.id() {
            self.target.remove_listener(id).map_err(refused)?;
        }
        batch.parked_listeners.entry(address).or_insert(listening);
        Ok(())
    }

    fn set_ana(&self, address: Address, to: AnaState) -> Result<()> {
        let id = self.listeners.get(&address).and_then(Listening::id);
        let id = id.ok_or_else(|| unprepared("listener"))?;
        self.target.set_listener_ana(id, ana(to)).map_err(refused)
    }

    /// Size of a namespace in bytes; 0 when there is none.
    pub fn namespace_bytes(&self, nqn: &Nqn, nsid: u32) -> u64 {
        self.media.get(&(nqn.clone(), nsid)).map_or(0, Media::bytes)
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

/// An ANA state as the target has it.
const fn ana(state: AnaState) -> State {
    match state {
        AnaState::Optimized => State::Optimized,
        AnaState::NonOptimized => State::NonOptimized,
        AnaState::Inaccessible => State::Inaccessible,
        AnaState::PersistentLoss => State::PersistentLoss,
        AnaState::Change => State::Change,
    }
}

/// An ANA state as documents have it.
const fn ana_state(state: State) -> AnaState {
    match state {
        State::Optimized => AnaState::Optimized,
        State::NonOptimized => AnaState::NonOptimized,
        State::Inaccessible => AnaState::Inaccessible,
        State::PersistentLoss => AnaState::PersistentLoss,
        State::Change => AnaState::Change,
    }
}

/// A referral as the target has it: to a discovery service of the well-known name.
fn referral(address: Address) -> Referral {
    let socket = address.socket();
    Referral { nqn: nvme::nqn::Nqn::discovery(), traddr: socket.ip(), trsvcid: socket.port() }
}

/// An NQN as the target has it.
fn wire(nqn: &Nqn) -> Result<nvme::nqn::Nqn> {
    nvme::nqn::Nqn::new(nqn.as_str())
        .map_err(|error| Error::new(Kind::Invalid, format!("{nqn}: {error}")))
}

fn refused(error: ManageError) -> Error {
    let kind = match error {
        ManageError::SubsystemExists(_) | ManageError::NamespaceExists(..) => Kind::Conflict,
        ManageError::NoSubsystem(_)
        | ManageError::NoNamespace(..)
        | ManageError::NoHost(..)
        | ManageError::NoListener
        | ManageError::NoReferral => Kind::NotFound,
        ManageError::Full { .. } => Kind::Limit,
        ManageError::DiscoveryName(_) | ManageError::Invalid { .. } => Kind::Invalid,
        ManageError::Reservations(..) => Kind::Failed,
    };
    Error::new(kind, error.to_string())
}

/// A step out of order: a fault of this program.
fn unprepared(what: &str) -> Error {
    debug_assert!(false, "{what} was not prepared");
    Error::new(Kind::Failed, format!("a {what} was not prepared"))
}

#[cfg(test)]
mod tests;
