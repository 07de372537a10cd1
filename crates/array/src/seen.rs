//! What namespaces were when hosts saw them last. While what keeps their bytes is not there, they are listed as that:
//! a host takes another identity or another size for another device.

use std::collections::BTreeMap;

use api::value::{Backend, Nqn};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::desired::Desired;

/// What a namespace was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenAs {
    pub backend: Backend,
    /// Its identity.
    pub uuid: Uuid,
    /// Its size.
    pub bytes: u64,
    /// What its drive was identified by, if by anything: names of drives go from one to the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
}

/// By subsystem and NSID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seen(BTreeMap<Nqn, BTreeMap<u32, SeenAs>>);

impl Seen {
    /// What this namespace was, if it was on the same backend.
    pub fn get(&self, nqn: &Nqn, nsid: u32, backend: &Backend) -> Option<&SeenAs> {
        let seen = self.0.get(nqn)?.get(&nsid)?;
        seen.backend.is_same_medium(backend).then_some(seen)
    }

    /// Hosts see it as this now. What is in memory is gone when the node stops.
    pub fn set(&mut self, nqn: &Nqn, nsid: u32, seen: SeenAs) {
        if !matches!(seen.backend, Backend::Memory { .. }) {
            self.0.entry(nqn.clone()).or_default().insert(nsid, seen);
        }
    }

    /// What identified its drive, if it was on the same backend.
    pub fn wwid(&self, nqn: &Nqn, nsid: u32, backend: &Backend) -> Option<&str> {
        self.get(nqn, nsid, backend)?.wwid.as_deref()
    }

    /// It has another size now.
    pub fn resize(&mut self, nqn: &Nqn, nsid: u32, bytes: u64) {
        if let Some(seen) = self.0.get_mut(nqn).and_then(|all| all.get_mut(&nsid)) {
            seen.bytes = bytes;
        }
    }

    /// What of it is still asked for.
    #[must_use]
    pub fn of(&self, current: &Desired) -> Self {
        let mut kept = self.clone();
        kept.0.retain(|nqn, all| {
            all.retain(|nsid, seen| {
                let def = current.subsystem(nqn).and_then(|def| def.namespaces.get(nsid));
                def.is_some_and(|def| def.backend.is_same_medium(&seen.backend))
            });
            !all.is_empty()
        });
        kept
    }
}
