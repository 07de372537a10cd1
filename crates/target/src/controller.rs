//! Controllers: one association of one host (Base 2.1 section 3.1), from its Connect on the admin
//! queue until its last queue ended.
//!
//! Everything here decides and returns at once. Sockets are the caller's: it learns through
//! remote queues and wakers when to act.

mod access;
mod errors;
mod features;
mod health;
mod keep_alive;
mod property;
mod queues;
mod reservations;
mod windows;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use fabric::TransportAddress;
use nvme::ana;
use nvme::cqe::Cqe;
use nvme::nqn::Nqn;
use nvme::property::{Cc, Csts};

use access::Access;
pub(crate) use access::GROUPS as ANA_GROUPS;
pub use errors::Failure;
pub use queues::QueueLease;

use crate::counters::Totals;
use crate::event::{Event, Events};
use crate::host::Host;
use crate::limits::CHANGED_NAMESPACES_MAX;
use crate::listener::ListenerId;
use crate::namespace::View;
use crate::persistent_event::{Happened, Source};
use crate::registry::Target;
use crate::reservation::{HostId, NotificationLog};
use errors::ErrorLog;
pub(crate) use features::Features;
pub(crate) use keep_alive::granted;
pub(crate) use property::{CQE_LOG2, SQE_LOG2};
use queues::Queues;

/// What a controller is for (CNTRLTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Serves an NVM subsystem's namespaces.
    Io,
    /// Serves the discovery log.
    Discovery,
}

/// Where a controller's admin queue connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    pub listener: ListenerId,
    /// The address the host connected to: what discovery tells it to use.
    pub local: TransportAddress,
    /// The host's end.
    pub peer: TransportAddress,
}

/// A controller. Shared by the reactors that serve its queues and by management.
#[derive(Debug)]
pub struct Controller {
    target: Weak<Target>,
    /// The target's, read for every command that a queue takes.
    epoch: Arc<AtomicU64>,
    kind: Kind,
    subsystem: Nqn,
    cntlid: u16,
    host: Host,
    path: Path,
    /// Last time the host was heard of, in the reactor's nanoseconds: any command on any queue.
    heard: AtomicU64,
    /// By which direct write windows know it.
    association: Arc<crate::windows::Association>,
    /// What becomes of I/O commands; kept beside `state` for the I/O path.
    permits: AtomicU8,
    state: Mutex<State>,
}

/// Namespaces changed since the host last read the Changed Attached Namespace List.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub nsids: BTreeSet<u32>,
    /// More than the list holds: it reads as FFFFFFFFh.
    pub overflow: bool,
}

/// What changes during a controller's life.
#[derive(Debug)]
pub(crate) struct State {
    pub cc: Cc,
    pub csts: Csts,
    /// Since when the controller is not enabled, or shut down; nanoseconds.
    pub disabled_since: Option<u64>,
    pub queues: Queues,
    pub features: Features,
    pub events: Events,
    pub waker: Option<Waker>,
    pub changed: Changed,
    pub errors: ErrorLog,
    /// The Persistent Event log as it was when the host established its context.
    pub event_context: Option<Vec<u8>>,
    pub reservations: NotificationLog,
    pub access: Access,
}

/// What Connect found, to make a controller of.
pub(crate) struct Association {
    pub kind: Kind,
    pub subsystem: Nqn,
    pub cntlid: u16,
    pub host: Host,
    pub path: Path,
    /// ANA state of its listener.
    pub ana: ana::State,
    /// Keep Alive Timeout in milliseconds; 0 is none.
    pub kato: u32,
    pub now: u64,
}

impl Controller {
    pub(crate) fn new(target: &Target, association: Association) -> Arc<Self> {
        let Association { kind, subsystem, cntlid, host, path, ana, kato, now } = association;
        Arc::new(Self {
            target: target.weak(),
            epoch: target.shared_epoch(),
            kind,
            subsystem,
            cntlid,
            host,
            path,
            heard: AtomicU64::new(now),
            association: Arc::default(),
            permits: AtomicU8::new(access::NO_IO),
            state: Mutex::new(State {
                cc: Cc::default(),
                csts: Csts::default(),
                disabled_since: Some(now),
                queues: Queues::default(),
                features: Features::new(kato, now),
                events: Events::default(),
                waker: None,
                changed: Changed::default(),
                errors: ErrorLog::default(),
                event_context: None,
                reservations: NotificationLog::default(),
                access: Access::new(ana),
            }),
        })
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.kind == Kind::Discovery
    }

    /// NQN of the subsystem, for a discovery controller the well-known one.
    #[must_use]
    pub fn subsystem_nqn(&self) -> &Nqn {
        &self.subsystem
    }

    /// NQN of the host.
    #[must_use]
    pub fn host_nqn(&self) -> &Nqn {
        &self.host.nqn
    }

    /// See [`Target::epoch`].
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Controller identifier.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The host as reservations know it.
    #[must_use]
    pub fn host_id(&self) -> HostId {
        HostId(self.host.id)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The namespaces this controller's queues may address now; see [`Target::epoch`].
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        let Some(target) = self.target.upgrade() else { return Arc::default() };
        let registry = target.lock();
        registry.subsystems.get(&self.subsystem).map_or_else(Arc::default, |s| Arc::clone(&s.view))
    }

    /// The target this controller belongs to; `None` once that is gone.
    pub(crate) fn target(&self) -> Option<Arc<Target>> {
        self.target.upgrade()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the controller's queues have done, those that ended among them.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.lock().queues.totals()
    }

    /// I/O queues connected at the moment.
    #[must_use]
    pub fn io_queues(&self) -> usize {
        self.lock().queues.io_count()
    }

    /// Copy descriptor formats the host enabled (feature 16h): bit n is format n.
    #[must_use]
    pub fn copy_formats_enabled(&self) -> u16 {
        self.lock().features.host_behavior.cdfe.get()
    }

    /// Whether the host waits before another attempt for as long as a completion says (Host Behavior Support, Advanced
    /// Command Retry Enable).
    pub(crate) fn delays_retries(&self) -> bool {
        self.lock().features.host_behavior.acre == 1
    }

    /// Controller Status (CSTS).
    #[must_use]
    pub fn status(&self) -> Csts {
        self.lock().csts
    }

    // ---- Events ---------------------------------------------------------------------------

    /// The waker to call when [`Self::next_event`] may have something: the admin queue's task.
    pub fn set_event_waker(&self, waker: Waker) {
        let mut state = self.lock();
        state.waker = Some(waker.clone());
        let due = state.events.due();
        drop(state);
        if due {
            waker.wake();
        }
    }

    /// Drops a parked Asynchronous Event Request that the host no longer waits for.
    pub(crate) fn forget_event_request(&self, cid: u16) {
        self.lock().events.forget(cid);
    }

    /// The next completion of a parked Asynchronous Event Request, SQHD not filled in.
    #[must_use]
    pub fn next_event(&self) -> Option<Cqe> {
        self.lock().events.next()
    }

    /// The next Asynchronous Event Request that a reset ended: its queue lets it go, and sends nothing.
    #[must_use]
    pub fn next_dropped_request(&self) -> Option<u16> {
        self.lock().events.next_dropped()
    }

    /// Notes an event, and wakes the admin queue when a request waits for it.
    pub fn raise(&self, event: Event) {
        let mut state = self.lock();
        let configuration = state.features.async_event_configuration;
        let waker = state.events.raise(event, configuration).then(|| state.waker.clone()).flatten();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the admin queue when [`Self::next_event`] has something; under no lock.
    pub(crate) fn wake_if_due(state: MutexGuard<'_, State>) {
        let waker = state.events.due().then(|| state.waker.clone()).flatten();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A namespace appeared, went away, or changed its attributes.
    pub(crate) fn namespace_changed(&self, nsid: u32) {
        let gone = self.view().get(nsid).is_none();
        let mut state = self.lock();
        if gone {
            state.features.forget_namespace(nsid);
        }
        if state.changed.nsids.len() >= CHANGED_NAMESPACES_MAX
            && !state.changed.nsids.contains(&nsid)
        {
            state.changed.overflow = true;
        } else {
            state.changed.nsids.insert(nsid);
        }
        drop(state);
        self.raise(Event::NamespaceAttribute);
    }

    /// Records an event of this controller in the subsystem's Persistent Event log.
    pub(crate) fn record(&self, happened: Happened<'_>) {
        let Some(target) = self.target() else { return };
        let timestamp = self.lock().features.timestamp(self.now());
        let source = Source { cntlid: self.cntlid, timestamp };
        if let Some(subsystem) = target.lock().subsystems.get_mut(&self.subsystem) {
            subsystem.events.record(source, happened);
        }
    }

    /// The host's clock as the controller sees it: the last time it was heard of.
    pub(crate) fn now(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }
}
