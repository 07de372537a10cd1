//! Hosts: who they are, and which of them a subsystem admits.

use std::collections::BTreeSet;
use std::sync::Arc;

use nvme::nqn::Nqn;

use crate::limits::HOSTS_MAX;

/// The name of hosts that have none.
pub const UNNAMED: &str = "nqn.2026-11.io.flashloom:unnamed-host";

/// A host as it named itself in Connect (Base 2.1 section 6.3): its NQN and its 128-bit Host
/// Identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub nqn: Nqn,
    /// Host Identifier (HOSTID), bytes as on the wire.
    pub id: [u8; 16],
}

/// Which hosts a subsystem admits. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    any: bool,
    listed: Arc<BTreeSet<Nqn>>,
}

impl Admission {
    /// Admits every host, or (`false`) nobody until hosts are listed.
    #[must_use]
    pub fn new(any: bool) -> Self {
        Self { any, listed: Arc::default() }
    }

    /// Whether `host` may connect and sees the subsystem in discovery. No list admits hosts without a name.
    #[must_use]
    pub fn admits(&self, host: &Nqn) -> bool {
        self.any || (host.as_str() != UNNAMED && self.listed.contains(host))
    }

    /// Whether every host is admitted, whatever the list says.
    #[must_use]
    pub fn any(&self) -> bool {
        self.any
    }

    /// The listed hosts, in order of their names.
    pub fn listed(&self) -> impl Iterator<Item = &Nqn> {
        self.listed.iter()
    }

    pub(crate) fn set_any(&mut self, any: bool) {
        self.any = any;
    }

    /// Lists a host; `false` when the list is full ([`HOSTS_MAX`]).
    pub(crate) fn add(&mut self, host: Nqn) -> bool {
        if self.listed.len() >= HOSTS_MAX && !self.listed.contains(&host) {
            return false;
        }
        Arc::make_mut(&mut self.listed).insert(host);
        true
    }

    /// Takes a host off the list; `false` when it was not on it.
    pub(crate) fn remove(&mut self, host: &Nqn) -> bool {
        self.listed.contains(host) && Arc::make_mut(&mut self.listed).remove(host)
    }
}
