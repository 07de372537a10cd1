//! The target: every subsystem, host list, namespace, controller, listener and referral behind one
//! lock, with an epoch that tells queues when to look again. I/O never takes the lock.
//!
//! Lock order: the registry first, a controller's state second. Wakers are called, and queues told to end, under
//! neither.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nvme::ana;
use nvme::fabrics::CNTLID_MAX;
use nvme::nqn::Nqn;

use crate::controller::Controller;
use crate::event::Event;
use crate::limits::{
    CONTROLLERS_MAX, LISTENERS_MAX, NAMESPACES_MAX, REFERRALS_MAX, SUBSYSTEMS_MAX,
};
use crate::listener::{ListenerId, ListenerInfo, Referral};
use crate::namespace::{Namespace, NamespaceSpec};
use crate::persistent_event::Happened;
use crate::reservation::{HostId, Notice};
use crate::subsystem::{Controllers, Health, HealthChange, Subsystem, SubsystemSpec};

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
    next_listener: u16,
}

/// The target. Shared by every reactor and by management.
#[derive(Debug)]
pub struct Target {
    pub(crate) identity: Identity,
    epoch: Arc<AtomicU64>,
    /// When it was made, in the reactor's nanoseconds.
    started: u64,
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
            registry: Mutex::new(Registry {
                subsystems: BTreeMap::new(),
                listeners: BTreeMap::new(),
                referrals: Vec::new(),
                discovery_name: Nqn::discovery(),
                discovery: Controllers::new(1, CNTLID_MAX),
                generation: 1,
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

    pub(crate) fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
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

    // ---- Subsystems -----------------------------------------------------------------------

    /// Adds a subsystem without namespaces.
    ///
    /// # Errors
    /// The name is taken, a field has a value it cannot have, or [`SUBSYSTEMS_MAX`] is reached.
    pub fn add_subsystem(&self, spec: SubsystemSpec) -> Result<(), ManageError> {
        check_subsystem(&spec)?;
        let nqn = spec.nqn.clone();
        let mut registry = self.lock();
        if registry.subsystems.contains_key(&nqn) {
            return Err(ManageError::SubsystemExists(nqn));
        }
        if registry.subsystems.len() >= SUBSYSTEMS_MAX {
            return Err(ManageError::Full { what: "the list of subsystems", max: SUBSYSTEMS_MAX });
        }
        let mut subsystem = Subsystem::new(spec);
        let firmware = &self.identity.firmware;
        subsystem.events.record(self.event_source(), Happened::PowerOn { firmware });
        let admission = subsystem.admission.clone();
        registry.subsystems.insert(nqn, subsystem);
        let told = registry.discovery_changed(|host| admission.admits(host));
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }

    /// Removes a subsystem; its controllers end, and with them their hosts' connections.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn remove_subsystem(&self, nqn: &Nqn) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let subsystem =
            registry.subsystems.remove(nqn).ok_or_else(|| ManageError::NoSubsystem(nqn.clone()))?;
        let told = registry.discovery_changed(|host| subsystem.admission.admits(host));
        drop(registry);
        self.move_epoch();
        for controller in subsystem.controllers.iter() {
            controller.close_queues();
        }
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }

    /// Replaces what SMART / Health reports of a subsystem, and tells hosts what got worse: also of
    /// drives and volumes that failed since the last time, so it is worth calling now and then.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn set_health(&self, nqn: &Nqn, health: Health) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let subsystem = registry.subsystem(nqn)?;
        subsystem.reported = health;
        let change = subsystem.health_change();
        drop(registry);
        change.into_iter().for_each(HealthChange::tell);
        Ok(())
    }

    // ---- Namespaces -----------------------------------------------------------------------

    /// Adds a namespace, active at once on every controller of the subsystem. Returns its
    /// identifier.
    ///
    /// # Errors
    /// No such subsystem, the identifier is taken or out of range, the block size is not one the
    /// backend can serve, or there is no room.
    pub fn add_namespace(&self, nqn: &Nqn, spec: &NamespaceSpec) -> Result<u32, ManageError> {
        check_namespace(spec)?;
        let mut registry = self.lock();
        let subsystem = registry.subsystem(nqn)?;
        let max = subsystem.spec.max_namespaces;
        let nsid = match spec.nsid {
            Some(nsid) if !(1..=max).contains(&nsid) => {
                return Err(invalid("namespace identifier", nsid, format!("1 to {max}")));
            }
            Some(nsid) if subsystem.namespaces.contains_key(&nsid) => {
                return Err(ManageError::NamespaceExists(nqn.clone(), nsid));
            }
            Some(nsid) => nsid,
            None => subsystem.free_nsid().ok_or(ManageError::Full {
                what: "the subsystem's list of namespaces",
                max: stdx::num::usize32(max),
            })?,
        };
        let namespace = Namespace::new(nqn, nsid, spec);
        let namespace = namespace.ok_or(ManageError::Reservations(nqn.clone(), nsid))?;
        let namespace = Arc::new(namespace);
        let created = Happened::ChangeNamespace { namespace: &namespace, deleted: false };
        subsystem.events.record(self.event_source(), created);
        subsystem.namespaces.insert(nsid, namespace);
        self.namespaces_changed(registry, nqn, nsid);
        Ok(nsid)
    }

    /// Removes a namespace. Commands in flight on it finish; further ones are refused.
    ///
    /// # Errors
    /// There is no such subsystem or namespace.
    pub fn remove_namespace(&self, nqn: &Nqn, nsid: u32) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let subsystem = registry.subsystem(nqn)?;
        let Some(namespace) = subsystem.namespaces.remove(&nsid) else {
            return Err(ManageError::NoNamespace(nqn.clone(), nsid));
        };
        let deleted = Happened::ChangeNamespace { namespace: &namespace, deleted: true };
        subsystem.events.record(self.event_source(), deleted);
        self.namespaces_changed(registry, nqn, nsid);
        Ok(())
    }

    /// Gives a namespace another size, in bytes. The backend must have been resized before when
    /// it grows, and may be after when it shrinks.
    ///
    /// # Errors
    /// There is no such namespace, or the backend does not hold that much.
    pub fn resize_namespace(&self, nqn: &Nqn, nsid: u32, bytes: u64) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let subsystem = registry.subsystem(nqn)?;
        let namespace = subsystem
            .namespaces
            .get(&nsid)
            .ok_or_else(|| ManageError::NoNamespace(nqn.clone(), nsid))?;
        let capacity = namespace.backend.capacity();
        let block = u64::from(namespace.block_size);
        if bytes > capacity || bytes < block || !bytes.is_multiple_of(block) {
            let wanted = format!("a multiple of {block} up to the backend's {capacity}");
            return Err(invalid("size", bytes, wanted));
        }
        namespace.set_blocks(bytes / block);
        self.namespaces_changed(registry, nqn, nsid);
        Ok(())
    }

    /// Protects a namespace from writes, or stops protecting it (NSATTR bit 0).
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn set_write_protected(
        &self,
        nqn: &Nqn,
        nsid: u32,
        protected: bool,
    ) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let subsystem = registry.subsystem(nqn)?;
        let namespace = subsystem
            .namespaces
            .get(&nsid)
            .ok_or_else(|| ManageError::NoNamespace(nqn.clone(), nsid))?;
        namespace.set_write_protected(protected);
        self.namespaces_changed(registry, nqn, nsid);
        Ok(())
    }

    /// What every change of a namespace ends with: views, epoch, and the notice to hosts.
    pub(crate) fn namespaces_changed(
        &self,
        mut registry: MutexGuard<'_, Registry>,
        nqn: &Nqn,
        nsid: u32,
    ) {
        let Ok(subsystem) = registry.subsystem(nqn) else { return };
        subsystem.rebuild_view();
        let controllers: Vec<_> = subsystem.controllers.iter().cloned().collect();
        drop(registry);
        self.move_epoch();
        for controller in controllers {
            controller.namespace_changed(nsid);
        }
    }

    // ---- Hosts ----------------------------------------------------------------------------

    /// Puts a host on a subsystem's list.
    ///
    /// # Errors
    /// There is no such subsystem, or its list is full.
    pub fn allow_host(&self, nqn: &Nqn, host: &Nqn) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let admission = &mut registry.subsystem(nqn)?.admission;
        let before = admission.admits(host);
        if !admission.add(host.clone()) {
            let max = crate::limits::HOSTS_MAX;
            return Err(ManageError::Full { what: "the subsystem's list of hosts", max });
        }
        let told = registry.discovery_changed(|other| !before && other == host);
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }

    /// Takes a host off a subsystem's list. Unless any host is allowed, its controllers end.
    ///
    /// # Errors
    /// There is no such subsystem, or the host is not on its list.
    pub fn deny_host(&self, nqn: &Nqn, host: &Nqn) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let admission = &mut registry.subsystem(nqn)?.admission;
        if !admission.remove(host) {
            return Err(ManageError::NoHost(nqn.clone(), host.clone()));
        }
        self.admission_narrowed(registry, nqn);
        Ok(())
    }

    /// Allows any host, or only the listed ones; the controllers of others end.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn set_allow_any(&self, nqn: &Nqn, any: bool) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let admission = &mut registry.subsystem(nqn)?.admission;
        let before = admission.clone();
        admission.set_any(any);
        if any {
            let told = registry.discovery_changed(|host| !before.admits(host));
            drop(registry);
            raise(&told, Event::DiscoveryChange);
        } else {
            self.admission_narrowed(registry, nqn);
        }
        Ok(())
    }

    /// Ends the controllers of hosts no longer admitted.
    fn admission_narrowed(&self, mut registry: MutexGuard<'_, Registry>, nqn: &Nqn) {
        let Ok(subsystem) = registry.subsystem(nqn) else { return };
        let admission = subsystem.admission.clone();
        let ended: Vec<_> = subsystem
            .controllers
            .iter()
            .filter(|controller| !admission.admits(&controller.host().nqn))
            .cloned()
            .collect();
        let told = registry.discovery_changed(|host| !admission.admits(host));
        drop(registry);
        for controller in ended {
            controller.close_queues();
        }
        raise(&told, Event::DiscoveryChange);
    }

    // ---- Listeners and referrals ----------------------------------------------------------

    /// Notes a listener, for discovery. Returns its number, to be given with each Connect.
    ///
    /// # Errors
    /// [`LISTENERS_MAX`] is reached.
    pub fn add_listener(&self, info: ListenerInfo) -> Result<ListenerId, ManageError> {
        let mut registry = self.lock();
        if registry.listeners.len() >= LISTENERS_MAX {
            return Err(ManageError::Full { what: "the list of listeners", max: LISTENERS_MAX });
        }
        // Ends: there are fewer listeners than numbers.
        let id = loop {
            let id = ListenerId(registry.next_listener);
            registry.next_listener = registry.next_listener.checked_add(1).unwrap_or(1);
            if !registry.listeners.contains_key(&id) {
                break id;
            }
        };
        registry.listeners.insert(id, info);
        let told = registry.discovery_changed(|_| true);
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(id)
    }

    /// Forgets a listener. Connections that came through it live on.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn remove_listener(&self, id: ListenerId) -> Result<(), ManageError> {
        let mut registry = self.lock();
        registry.listeners.remove(&id).ok_or(ManageError::NoListener)?;
        let told = registry.discovery_changed(|_| true);
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }

    /// Gives the namespaces of every subsystem an ANA state for the hosts that are connected through a
    /// listener, and tells them.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn set_listener_ana(&self, id: ListenerId, state: ana::State) -> Result<(), ManageError> {
        let mut registry = self.lock();
        registry.listeners.get_mut(&id).ok_or(ManageError::NoListener)?.ana = state;
        let controllers = registry.subsystems.values().flat_map(|s| s.controllers.iter());
        // Under the lock, so that of two changes the later one stays.
        let told: Vec<_> = controllers
            .filter(|controller| controller.path().listener == id && controller.set_ana(state))
            .cloned()
            .collect();
        drop(registry);
        raise(&told, Event::AnaChange);
        Ok(())
    }

    /// Adds a referral to another discovery service; one that is there already stays.
    ///
    /// # Errors
    /// [`REFERRALS_MAX`] is reached.
    pub fn add_referral(&self, referral: Referral) -> Result<(), ManageError> {
        let mut registry = self.lock();
        if registry.referrals.contains(&referral) {
            return Ok(());
        }
        if registry.referrals.len() >= REFERRALS_MAX {
            return Err(ManageError::Full { what: "the list of referrals", max: REFERRALS_MAX });
        }
        registry.referrals.push(referral);
        let told = registry.discovery_changed(|_| true);
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }

    /// Removes a referral.
    ///
    /// # Errors
    /// There is no such referral.
    pub fn remove_referral(&self, referral: &Referral) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let at = registry
            .referrals
            .iter()
            .position(|other| other == referral)
            .ok_or(ManageError::NoReferral)?;
        registry.referrals.remove(at);
        let told = registry.discovery_changed(|_| true);
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }

    // ---- Controllers ----------------------------------------------------------------------

    /// Takes a controller whose last queue ended out of the registry.
    pub(crate) fn forget_controller(&self, controller: &Controller) {
        let mut registry = self.lock();
        if controller.is_discovery() {
            registry.discovery.remove(controller.cntlid());
            return;
        }
        // The subsystem may be gone, or be another one of the same name by now.
        let Some(subsystem) = registry.subsystems.get_mut(controller.subsystem_nqn()) else {
            return;
        };
        let is_same = subsystem
            .controllers
            .get(controller.cntlid())
            .is_some_and(|known| core::ptr::eq(Arc::as_ptr(known), controller));
        if is_same {
            subsystem.controllers.remove(controller.cntlid());
            subsystem.retired = subsystem.retired.plus(controller.totals());
        }
    }

    /// Every controller that has a namespace attached, with its host: all of the subsystem's.
    #[must_use]
    pub fn attached_controllers(&self, of: &Controller, nsid: u32) -> Vec<(HostId, u16)> {
        let registry = self.lock();
        let Some(subsystem) = registry.subsystems.get(of.subsystem_nqn()) else {
            return Vec::new();
        };
        if !subsystem.namespaces.contains_key(&nsid) {
            return Vec::new();
        }
        subsystem.controllers.iter().map(|c| (c.host_id(), c.cntlid())).collect()
    }

    /// Puts notices about a namespace into the Reservation Notification log of every controller of
    /// the hosts concerned, and tells those hosts (section 8.1.22.1).
    pub fn reservation_notices(&self, of: &Controller, nsid: u32, notices: &[Notice]) {
        if notices.is_empty() {
            return;
        }
        let controllers: Vec<_> = {
            let registry = self.lock();
            let subsystem = registry.subsystems.get(of.subsystem_nqn());
            subsystem.map(|s| s.controllers.iter().cloned().collect()).unwrap_or_default()
        };
        for notice in notices {
            for controller in controllers.iter().filter(|c| c.host_id() == notice.host) {
                controller.notice(nsid, notice.kind);
            }
        }
    }

    /// Every controller, the discovery service's among them: for the keep alive check and for
    /// shutdown. The I/O path has its own references.
    #[must_use]
    pub fn controllers(&self) -> Vec<Arc<Controller>> {
        let registry = self.lock();
        let of_subsystems = registry.subsystems.values().flat_map(|s| s.controllers.iter());
        of_subsystems.chain(registry.discovery.iter()).cloned().collect()
    }
}

impl Registry {
    pub fn subsystem(&mut self, nqn: &Nqn) -> Result<&mut Subsystem, ManageError> {
        self.subsystems.get_mut(nqn).ok_or_else(|| ManageError::NoSubsystem(nqn.clone()))
    }

    /// Moves the generation counter, and returns the discovery controllers of the hosts whose log
    /// changed: others are not told, as the change is none of their business.
    fn discovery_changed(&mut self, sees: impl Fn(&Nqn) -> bool) -> Vec<Arc<Controller>> {
        self.generation = self.generation.wrapping_add(1);
        self.discovery.iter().filter(|c| sees(&c.host().nqn)).cloned().collect()
    }
}

fn raise(controllers: &[Arc<Controller>], event: Event) {
    for controller in controllers {
        controller.raise(event);
    }
}

fn check_subsystem(spec: &SubsystemSpec) -> Result<(), ManageError> {
    if spec.nqn.is_discovery() {
        return Err(ManageError::DiscoveryName(spec.nqn.clone()));
    }
    let printable = |text: &str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if spec.serial.len() > 20 || !printable(&spec.serial) {
        return Err(invalid(
            "serial number",
            &spec.serial,
            "at most 20 printable ASCII characters",
        ));
    }
    if spec.model.len() > 40 || !printable(&spec.model) {
        return Err(invalid("model number", &spec.model, "at most 40 printable ASCII characters"));
    }
    if !(1..=NAMESPACES_MAX).contains(&spec.max_namespaces) {
        let wanted = format!("1 to {NAMESPACES_MAX}");
        return Err(invalid("number of namespaces", spec.max_namespaces, wanted));
    }
    let (min, max) = (spec.cntlid_min, spec.cntlid_max);
    if min == 0 || min > max || max > CNTLID_MAX {
        let wanted = format!("within 1 to {CNTLID_MAX}, the smaller first");
        return Err(invalid("controller identifier range", format!("{min} to {max}"), wanted));
    }
    Ok(())
}

fn check_namespace(spec: &NamespaceSpec) -> Result<(), ManageError> {
    if !matches!(spec.block_size, 512 | 4096) {
        return Err(invalid("block size", spec.block_size, "512 or 4096"));
    }
    if spec.backend.capacity() < u64::from(spec.block_size) {
        return Err(invalid("capacity", spec.backend.capacity(), "at least one logical block"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

const _: () = assert!(CONTROLLERS_MAX < CNTLID_MAX as usize);
const _: () = assert!(LISTENERS_MAX < u16::MAX as usize);
