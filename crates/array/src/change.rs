//! The steps from what is served to what is to be served.

use std::collections::BTreeSet;

use api::value::{Address, AnaState, Name, Nqn};

use crate::desired::{Desired, ListenerDef, NamespaceDef, SubsystemDef};

/// One step. Each has an inverse, so that steps taken can be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Serve a subsystem, without namespaces and hosts yet.
    AddSubsystem { nqn: Nqn, def: SubsystemDef },
    /// Stop serving a subsystem; its namespaces and hosts are gone by now.
    RemoveSubsystem { nqn: Nqn, def: SubsystemDef },
    /// Let any host in, or not.
    AllowAny { nqn: Nqn, allow: bool },
    /// Let a host in.
    AllowHost { nqn: Nqn, host: Nqn },
    /// Take a host off the list.
    DenyHost { nqn: Nqn, host: Nqn },
    /// Serve a namespace.
    AddNamespace { nqn: Nqn, nsid: u32, def: NamespaceDef },
    /// Stop serving a namespace.
    RemoveNamespace { nqn: Nqn, nsid: u32, def: NamespaceDef },
    /// Change a namespace's size.
    Resize { nqn: Nqn, nsid: u32, from: NamespaceDef, to: NamespaceDef },
    /// Listen on an address.
    AddListener { address: Address, def: ListenerDef },
    /// Stop listening; connections accepted on it stay.
    RemoveListener { address: Address, def: ListenerDef },
    /// Change the ANA state for hosts that are connected through a listener.
    SetAna { address: Address, from: AnaState, to: AnaState },
    /// Tell hosts of another discovery service.
    AddReferral { address: Address },
    /// Tell hosts no longer of another discovery service.
    RemoveReferral { address: Address },
}

impl Step {
    /// The step that takes this one back.
    pub fn inverse(self) -> Self {
        match self {
            Self::AddSubsystem { nqn, def } => Self::RemoveSubsystem { nqn, def },
            Self::RemoveSubsystem { nqn, def } => Self::AddSubsystem { nqn, def },
            Self::AllowAny { nqn, allow } => Self::AllowAny { nqn, allow: !allow },
            Self::AllowHost { nqn, host } => Self::DenyHost { nqn, host },
            Self::DenyHost { nqn, host } => Self::AllowHost { nqn, host },
            Self::AddNamespace { nqn, nsid, def } => Self::RemoveNamespace { nqn, nsid, def },
            Self::RemoveNamespace { nqn, nsid, def } => Self::AddNamespace { nqn, nsid, def },
            Self::Resize { nqn, nsid, from, to } => Self::Resize { nqn, nsid, from: to, to: from },
            Self::AddListener { address, def } => Self::RemoveListener { address, def },
            Self::RemoveListener { address, def } => Self::AddListener { address, def },
            Self::SetAna { address, from, to } => Self::SetAna { address, from: to, to: from },
            Self::AddReferral { address } => Self::RemoveReferral { address },
            Self::RemoveReferral { address } => Self::AddReferral { address },
        }
    }
}

/// The steps from `old` to `new`: what goes first, then what comes, listeners last in both, so
/// that a host never reaches a subsystem that is half there.
pub fn steps(old: &Desired, new: &Desired) -> Vec<Step> {
    let mut steps = Vec::new();
    for (address, def) in &old.listeners {
        if !new.listeners.get(address).is_some_and(|new| same_socket(def, new)) {
            steps.push(Step::RemoveListener { address: *address, def: def.clone() });
        }
    }
    for (nqn, def) in &old.subsystems {
        let kept = new.subsystems.get(nqn).filter(|kept| same_identity(def, kept));
        leave(nqn, def, kept, &mut steps);
    }
    for (nqn, def) in &new.subsystems {
        let was = old.subsystems.get(nqn).filter(|was| same_identity(was, def));
        enter(nqn, was, def, &mut steps);
    }
    for &address in old.referrals.difference(&new.referrals) {
        steps.push(Step::RemoveReferral { address });
    }
    for &address in new.referrals.difference(&old.referrals) {
        steps.push(Step::AddReferral { address });
    }
    for (address, def) in &new.listeners {
        match old.listeners.get(address).filter(|old| same_socket(old, def)) {
            None => steps.push(Step::AddListener { address: *address, def: def.clone() }),
            Some(old) if old.ana != def.ana => {
                steps.push(Step::SetAna { address: *address, from: old.ana, to: def.ana });
            }
            Some(_) => {}
        }
    }
    steps
}

/// The pools of the volumes and snapshots that `steps` are of.
pub fn pools(steps: &[Step]) -> BTreeSet<Name> {
    let of = |step: &Step| match step {
        Step::AddNamespace { def, .. }
        | Step::RemoveNamespace { def, .. }
        | Step::Resize { to: def, .. } => def.backend.pool().cloned(),
        _ => None,
    };
    steps.iter().filter_map(of).collect()
}

/// Namespaces among `steps` that go, and come back in another way from the same medium: where they are.
pub fn replaced(steps: &[Step]) -> BTreeSet<(Nqn, u32)> {
    let comes_back = |was: &NamespaceDef| {
        steps.iter().any(|step| {
            matches!(step, Step::AddNamespace { def, .. } if was.backend.is_same_medium(&def.backend))
        })
    };
    let gone = steps.iter().filter_map(|step| match step {
        Step::RemoveNamespace { nqn, nsid, def } if comes_back(def) => Some((nqn.clone(), *nsid)),
        _ => None,
    });
    gone.collect()
}

/// Whether `a` can become `b` by a change of ANA state.
fn same_socket(a: &ListenerDef, b: &ListenerDef) -> bool {
    a.advertise == b.advertise && a.discovery_only == b.discovery_only
}

/// Serial and model cannot change under a host: such a subsystem goes and comes back.
fn same_identity(a: &SubsystemDef, b: &SubsystemDef) -> bool {
    a.serial == b.serial && a.model == b.model
}

/// What `nqn` loses, or all of it when nothing of it is `kept`.
fn leave(nqn: &Nqn, def: &SubsystemDef, kept: Option<&SubsystemDef>, steps: &mut Vec<Step>) {
    let nqn = || nqn.clone();
    for (&nsid, namespace) in &def.namespaces {
        let stays = kept.and_then(|kept| kept.namespaces.get(&nsid));
        if stays.is_none_or(|stays| !same_media(namespace, stays)) {
            steps.push(Step::RemoveNamespace { nqn: nqn(), nsid, def: namespace.clone() });
        }
    }
    for host in &def.hosts {
        if kept.is_none_or(|kept| !kept.hosts.contains(host)) {
            steps.push(Step::DenyHost { nqn: nqn(), host: host.clone() });
        }
    }
    if kept.is_none() {
        let def = SubsystemDef {
            hosts: Default::default(),
            namespaces: Default::default(),
            ..def.clone()
        };
        steps.push(Step::RemoveSubsystem { nqn: nqn(), def });
    }
}

/// What `nqn` gains over what it `was`, or all of it when it was not there.
fn enter(nqn: &Nqn, was: Option<&SubsystemDef>, def: &SubsystemDef, steps: &mut Vec<Step>) {
    let name = || nqn.clone();
    match was {
        None => {
            let def = SubsystemDef {
                hosts: Default::default(),
                namespaces: Default::default(),
                ..def.clone()
            };
            steps.push(Step::AddSubsystem { nqn: name(), def });
        }
        Some(was) if was.allow_any_host != def.allow_any_host => {
            steps.push(Step::AllowAny { nqn: name(), allow: def.allow_any_host });
        }
        Some(_) => {}
    }
    for host in &def.hosts {
        if was.is_none_or(|was| !was.hosts.contains(host)) {
            steps.push(Step::AllowHost { nqn: name(), host: host.clone() });
        }
    }
    for (&nsid, namespace) in &def.namespaces {
        match was.and_then(|was| was.namespaces.get(&nsid)) {
            Some(was) if was == namespace => {}
            Some(was) if same_media(was, namespace) => steps.push(Step::Resize {
                nqn: name(),
                nsid,
                from: was.clone(),
                to: namespace.clone(),
            }),
            _ => steps.push(Step::AddNamespace { nqn: name(), nsid, def: namespace.clone() }),
        }
    }
}

/// Whether `a` can become `b` by a change of size.
fn same_media(a: &NamespaceDef, b: &NamespaceDef) -> bool {
    use api::value::Backend::{Drive, Memory, Snapshot, Volume};
    let media = match (&a.backend, &b.backend) {
        // A volume keeps its identity when its name changes.
        (Volume(x), Volume(y)) => x == y || (x.pool == y.pool && a.uuid.is_some()),
        // So does a snapshot, when its volume's does.
        (Snapshot(x), Snapshot(y)) => {
            x == y || (x.volume.pool == y.volume.pool && a.uuid.is_some())
        }
        (Memory { .. }, Memory { .. }) => true,
        (Drive { path: a, .. }, Drive { path: b, .. }) => a == b,
        _ => false,
    };
    media && a.block_size == b.block_size && a.uuid == b.uuid
}

#[cfg(test)]
mod tests;
