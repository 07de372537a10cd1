//! The target: every subsystem, host list, namespace, controller, listener and referral behind one
//! lock, with an epoch that tells queues when to look again. I/O never takes the lock.
//!
//! Lock order: the registry first, a controller's state second. Wakers are called, and queues told to end, under
//! neither.

mod controllers;
mod draining;
mod hosts;
mod listeners;
mod namespaces;
mod subsystems;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use nvme::fabrics::CNTLID_MAX;
use nvme::nqn::Nqn;

pub use draining::Draining;

use crate::controller::Controller;
use crate::discovery::Listed;
use crate::event::Event;
use crate::fabrics::Why;
use crate::limits::{CONTROLLERS_MAX, HOST_CONTROLLERS, LISTENERS_MAX};
use crate::listener::{ListenerId, ListenerInfo, Referral};
use crate::namespace::Namespace;
use crate::refusals::{News, Refusals};
use crate::subsystem::{Controllers, Subsystem};
use crate::windows::Windows;

/// What a target says of itself, whatever the subsystem.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Firmware revision, at most 8 ASCII characters.
    pub firmware: String,
    /// Model number of the discovery subsystem, at most 40 ASCII characters.
    pub model: String,
}

impl Default for Identity {
    fn default() -> Self {
        Self { firmware: env!("CARGO_PKG_VERSION").to_owned(), model: String::from("Flashloom") }
    }
}

/// Why a management request was refused. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManageError {
    #[error("subsystem {0} exists already")]
    SubsystemExists(Nqn),
    #[error("there is no subsystem {0}")]
    NoSubsystem(Nqn),
    #[error("{0} is the discovery service's name")]
    DiscoveryName(Nqn),
    #[error("namespace {1} of {0} exists already")]
    NamespaceExists(Nqn, u32),
    #[error("namespace {1} of {0} has the same UUID, NGUID or EUI64 already")]
    IdentityTaken(Nqn, u32),
    #[error("{0} has no namespace {1}")]
    NoNamespace(Nqn, u32),
    #[error("the reservations kept of namespace {1} of {0} contradict each other")]
    Reservations(Nqn, u32),
    #[error("host {1} is not on the list of {0}")]
    NoHost(Nqn, Nqn),
    #[error("there is no such listener")]
    NoListener,
    #[error("there is no such referral")]
    NoReferral,
    #[error("{what} is full: at most {max}")]
    Full { what: &'static str, max: usize },
    #[error("{what} is {given}: {wanted}")]
    Invalid { what: &'static str, given: String, wanted: String },
}

fn invalid(what: &'static str, given: impl ToString, wanted: impl ToString) -> ManageError {
    ManageError::Invalid { what, given: given.to_string(), wanted: wanted.to_string() }
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct Registry {
    pub subsystems: BTreeMap<Nqn, Subsystem>,
    pub listeners: BTreeMap<ListenerId, ListenerInfo>,
    pub referrals: Vec<Referral>,
    /// The discovery subsystem's own entry in its log.
    pub discovery_name: Nqn,
    /// Controllers of the discovery subsystem.
    pub discovery: Controllers,
    /// Generation counter of the discovery log (GENCTR).
    pub generation: u64,
    /// What discovery logs of this generation are made of, once somebody has asked.
    listed: Option<Arc<Listed>>,
    next_listener: u16,
}

/// The target. Shared by every reactor and by management.
#[derive(Debug)]
pub struct Target {
    pub(crate) identity: Identity,
    epoch: Arc<AtomicU64>,
    /// When it was made, in the reactor's nanoseconds.
    started: u64,
    pub(crate) refusals: Refusals,
    strict_host_names: AtomicBool,
    host_controllers: AtomicUsize,
    windows: OnceLock<Arc<dyn Windows>>,
    registry: Mutex<Registry>,
    itself: Weak<Target>,
}

impl Target {
    #[must_use]
    pub fn new(identity: Identity) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            identity,
            epoch: Arc::new(AtomicU64::new(1)),
            started: reactor::now(),
            refusals: Refusals::default(),
            strict_host_names: AtomicBool::new(false),
            host_controllers: AtomicUsize::new(HOST_CONTROLLERS),
            windows: OnceLock::new(),
            registry: Mutex::new(Registry {
                subsystems: BTreeMap::new(),
                listeners: BTreeMap::new(),
                referrals: Vec::new(),
                discovery_name: Nqn::discovery(),
                discovery: Controllers::new(1, CNTLID_MAX),
                generation: 1,
                listed: None,
                next_listener: 1,
            }),
            itself: Weak::clone(itself),
        })
    }

    /// Moves whenever a namespace was added, removed or resized, or its protection changed: a
    /// queue that finds it moved fetches its controller's [`crate::namespace::View`] again.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Whether hosts without a name are refused as section 6.3 wants it, also where any host is admitted.
    pub fn set_strict_host_names(&self, strict: bool) {
        self.strict_host_names.store(strict, Ordering::Relaxed);
    }

    /// Has one host have this many controllers in a subsystem at most.
    pub fn set_host_controllers(&self, most: usize) {
        self.host_controllers.store(most, Ordering::Relaxed);
    }

    /// Has hosts be granted direct write windows, of the volumes that namespaces are on. What was set first stays.
    pub fn set_windows(&self, windows: Arc<dyn Windows>) {
        let _ = self.windows.set(windows);
    }

    /// Has a ring be given to the host that asks for it by RDMA; refused where there are no windows.
    pub fn hand_out(&self, asked: Box<fabric::ring::Asked>) {
        if let Some(windows) = self.windows() {
            windows.hand_out(asked);
        }
    }

    /// What grants direct write windows; `None` where there are none.
    pub(crate) fn windows(&self) -> Option<&Arc<dyn Windows>> {
        self.windows.get()
    }

    pub(crate) fn host_controllers(&self) -> usize {
        self.host_controllers.load(Ordering::Relaxed)
    }

    pub(crate) fn strict_host_names(&self) -> bool {
        self.strict_host_names.load(Ordering::Relaxed)
    }

    /// Refused Connects that were not told yet; to be asked for now and then.
    pub fn refused(&self) -> News {
        self.refusals.news(reactor::now_exact())
    }

    /// Refused Connects since the target was made, each reason with its name.
    pub fn refusal_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Why::NAMES.into_iter().zip(self.refusals.counts())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What discovery logs are made of. Made once a generation: strangers may ask for their log as often as they like,
    /// and everybody's Connect waits for this lock.
    pub(crate) fn listed(&self) -> Arc<Listed> {
        let mut registry = self.lock();
        let made = registry.listed.take().unwrap_or_else(|| Arc::new(registry.list()));
        Arc::clone(registry.listed.insert(made))
    }

    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn shared_epoch(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.epoch)
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.itself)
    }

    /// Release: a queue that sees the new epoch and then takes the lock sees the new view.
    pub(crate) fn move_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }
}

impl Registry {
    pub fn subsystem(&mut self, nqn: &Nqn) -> Result<&mut Subsystem, ManageError> {
        self.subsystems.get_mut(nqn).ok_or_else(|| ManageError::NoSubsystem(nqn.clone()))
    }

    pub fn namespace(&mut self, nqn: &Nqn, nsid: u32) -> Result<&Arc<Namespace>, ManageError> {
        let namespace = self.subsystem(nqn)?.namespaces.get(&nsid);
        namespace.ok_or_else(|| ManageError::NoNamespace(nqn.clone(), nsid))
    }

    fn list(&self) -> Listed {
        let subsystems = self.subsystems.iter();
        Listed {
            generation: self.generation,
            service: self.discovery_name.clone(),
            listeners: self.listeners.iter().map(|(&id, info)| (id, info.clone())).collect(),
            subsystems: subsystems.map(|(nqn, s)| (nqn.clone(), s.admission.clone())).collect(),
            referrals: self.referrals.clone(),
        }
    }

    /// Moves the generation counter, and returns the discovery controllers of the hosts whose log
    /// changed: others are not told, as the change is none of their business.
    fn discovery_changed(&mut self, sees: impl Fn(&Nqn) -> bool) -> Vec<Arc<Controller>> {
        self.generation = self.generation.wrapping_add(1);
        self.listed = None;
        self.discovery.iter().filter(|c| sees(&c.host().nqn)).cloned().collect()
    }
}

fn raise(controllers: &[Arc<Controller>], event: Event) {
    for controller in controllers {
        controller.raise(event);
    }
}

#[cfg(test)]
mod tests;

const _: () = assert!(CONTROLLERS_MAX < CNTLID_MAX as usize);
const _: () = assert!(LISTENERS_MAX < u16::MAX as usize);
