//! NVM subsystems: identity, namespaces, the hosts admitted, the controllers they hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvme::fabrics::CNTLID_MAX;
use nvme::nqn::Nqn;

use crate::controller::Controller;
use crate::counters::Totals;
use crate::host::Admission;
use crate::limits::{CONTROLLERS_MAX, NAMESPACES_MAX};
use crate::namespace::{Namespace, View};
use crate::persistent_event::EventLog;

/// A subsystem to be added to the target.
#[derive(Clone, Debug)]
pub struct SubsystemSpec {
    pub nqn: Nqn,
    /// Serial number, at most 20 ASCII characters; empty derives one from the NQN, which stays
    /// the same over restarts.
    pub serial: String,
    /// Model number, at most 40 ASCII characters.
    pub model: String,
    pub allow_any_host: bool,
    /// Highest namespace identifier (NN), 1 to [`NAMESPACES_MAX`].
    pub max_namespaces: u32,
    /// Smallest and largest controller identifier given out, for arrays whose nodes share a
    /// subsystem and must not give out the same.
    pub cntlid_min: u16,
    pub cntlid_max: u16,
}

impl SubsystemSpec {
    /// A subsystem named `nqn` that admits every host, all else as usual.
    #[must_use]
    pub fn new(nqn: Nqn) -> Self {
        Self {
            nqn,
            serial: String::new(),
            model: String::from("Flashloom"),
            allow_any_host: true,
            max_namespaces: NAMESPACES_MAX,
            cntlid_min: 1,
            cntlid_max: CNTLID_MAX,
        }
    }
}

/// Health of a subsystem's media, as whoever owns the drives reports it: what SMART / Health
/// (log page 02h) shows and health events report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Reliability is degraded by media or internal errors (Critical Warning bit 2).
    pub reliability_degraded: bool,
    /// The media takes no more writes (Critical Warning bit 3).
    pub read_only: bool,
    /// Composite temperature in kelvin; 0 when nothing measures one.
    pub temperature: u16,
    /// Available spare and its threshold in percent.
    pub available_spare: u8,
    pub spare_threshold: u8,
    /// Percentage of the media's life used, 255 at most.
    pub percentage_used: u8,
    /// Unrecovered data integrity errors.
    pub media_errors: u64,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            reliability_degraded: false,
            read_only: false,
            temperature: 0,
            available_spare: 100,
            spare_threshold: 10,
            percentage_used: 0,
            media_errors: 0,
        }
    }
}

impl Health {
    /// Whether the available spare fell below its threshold (Critical Warning bit 0).
    #[must_use]
    pub fn spare_low(&self) -> bool {
        self.available_spare < self.spare_threshold
    }
}

/// A subsystem in the registry.
#[derive(Debug)]
pub(crate) struct Subsystem {
    pub spec: SubsystemSpec,
    pub admission: Admission,
    pub namespaces: BTreeMap<u32, Arc<Namespace>>,
    /// What queues see of `namespaces`; rebuilt when they change.
    pub view: Arc<View>,
    pub controllers: Controllers,
    /// What the owner of the media reported last.
    pub reported: Health,
    /// What controllers were told of last.
    told: Health,
    /// I/O done by controllers that are gone.
    pub retired: Totals,
    pub events: EventLog,
}

impl Subsystem {
    pub fn new(mut spec: SubsystemSpec) -> Self {
        if spec.serial.is_empty() {
            spec.serial = derived_serial(&spec.nqn);
        }
        Self {
            admission: Admission::new(spec.allow_any_host),
            namespaces: BTreeMap::new(),
            view: Arc::new(View::new(spec.max_namespaces, core::iter::empty())),
            controllers: Controllers::new(spec.cntlid_min, spec.cntlid_max),
            reported: Health::default(),
            told: Health::default(),
            retired: Totals::default(),
            events: EventLog::default(),
            spec,
        }
    }

    /// Makes queues see the namespaces as they are now.
    pub fn rebuild_view(&mut self) {
        self.view = Arc::new(View::new(self.spec.max_namespaces, self.namespaces.values()));
    }

    /// Health of the media now: as reported, and a drive or volume that failed says so itself.
    pub fn health(&self) -> Health {
        let failed = self.view.iter().any(|namespace| namespace.backend.has_failed());
        Health {
            reliability_degraded: self.reported.reliability_degraded || failed,
            ..self.reported
        }
    }

    /// What controllers are to be told of the health, if it is another one than they were told last.
    pub fn health_change(&mut self) -> Option<HealthChange> {
        let now = self.health();
        let before = core::mem::replace(&mut self.told, now);
        let controllers = || self.controllers.iter().cloned().collect();
        (before != now).then(|| HealthChange { before, now, controllers: controllers() })
    }

    /// The lowest namespace identifier that is free.
    pub fn free_nsid(&self) -> Option<u32> {
        (1..=self.spec.max_namespaces).find(|nsid| !self.namespaces.contains_key(nsid))
    }

    /// What all controllers, past and present, have done.
    pub fn totals(&self) -> Totals {
        self.controllers.iter().fold(self.retired, |sum, controller| sum.plus(controller.totals()))
    }
}

/// A change of a subsystem's health, to be told under no lock.
#[must_use]
pub(crate) struct HealthChange {
    before: Health,
    now: Health,
    controllers: Vec<Arc<Controller>>,
}

impl HealthChange {
    pub fn tell(self) {
        for controller in self.controllers {
            controller.health_changed(&self.before, &self.now);
        }
    }
}

/// A serial number that depends on the NQN only: 16 hexadecimal digits behind "FL".
fn derived_serial(nqn: &Nqn) -> String {
    let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, nqn.as_str().as_bytes());
    let (high, _) = id.as_u64_pair();
    format!("FL{high:016X}")
}

/// The controllers of a subsystem by their identifier, which is given out in rounds: one that was
/// just freed is the last to be given out again, because a host may still hold on to it.
#[derive(Debug)]
pub(crate) struct Controllers {
    by_id: BTreeMap<u16, Arc<Controller>>,
    next: u16,
    min: u16,
    max: u16,
}

impl Controllers {
    pub fn new(min: u16, max: u16) -> Self {
        assert!(min <= max && max <= CNTLID_MAX, "controller identifier range");
        Self { by_id: BTreeMap::new(), next: min, min, max }
    }

    /// An identifier that no controller has; `None` when all are taken or the limit is reached.
    pub fn free_id(&mut self) -> Option<u16> {
        let range = usize::from(self.max - self.min) + 1;
        if self.by_id.len() >= CONTROLLERS_MAX.min(range) {
            return None;
        }
        // Ends: fewer controllers than identifiers exist, so one of them is free.
        loop {
            let id = self.next;
            self.next = if id == self.max { self.min } else { id + 1 };
            if !self.by_id.contains_key(&id) {
                return Some(id);
            }
        }
    }

    pub fn insert(&mut self, controller: Arc<Controller>) {
        let id = controller.cntlid();
        let before = self.by_id.insert(id, controller);
        assert!(before.is_none(), "a controller identifier is given out once");
    }

    pub fn get(&self, id: u16) -> Option<&Arc<Controller>> {
        self.by_id.get(&id)
    }

    pub fn remove(&mut self, id: u16) -> Option<Arc<Controller>> {
        self.by_id.remove(&id)
    }

    /// In order of their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Controller>> {
        self.by_id.values()
    }
}
