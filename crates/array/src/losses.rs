//! What a change takes away: data that is destroyed, and what hosts lose that are connected. Who asks for such a change has
//! to say that it is meant.

use std::collections::BTreeSet;

use api::v1::{Controller, Kind, Losses};
use api::value::{AnaState, Backend, Nqn, Size};

use crate::change::{Step, steps};
use crate::desired::{Desired, NamespaceDef};
use crate::serving::Place;
use crate::{Error, Result};

/// Hosts that are named; more are counted.
const NAMED: usize = 3;

/// What goes from `old` to `new`: `bytes` knows the sizes of what is served, `controllers` who is connected.
pub fn losses(
    old: &Desired,
    new: &Desired,
    bytes: impl Fn(&Place) -> u64,
    controllers: &[Controller],
) -> Losses {
    let looking = Look { new, bytes, controllers };
    let all = steps(old, new);
    let gone: BTreeSet<&Nqn> = all
        .iter()
        .filter_map(|step| match step {
            Step::RemoveSubsystem { nqn, .. } => Some(nqn),
            _ => None,
        })
        .collect();
    let mut losses = Vec::new();
    for step in &all {
        losses.extend(looking.at(step, &gone));
    }
    losses.extend(looking.ways(old));
    Losses { losses }
}

/// Refuses what takes something away, unless that is meant.
///
/// # Errors
/// `Conflict`, with what would be lost.
pub fn check_meant(losses: &Losses, is_meant: bool) -> Result<()> {
    if is_meant || losses.losses.is_empty() {
        return Ok(());
    }
    Err(Error::new(Kind::Conflict, losses.losses.join("; ")).help("say `force` if that is meant"))
}

struct Look<'l, F> {
    new: &'l Desired,
    bytes: F,
    controllers: &'l [Controller],
}

impl<F: Fn(&Place) -> u64> Look<'_, F> {
    /// What a step takes away; subsystems that go as a whole are told of as that.
    fn at(&self, step: &Step, gone: &BTreeSet<&Nqn>) -> Option<String> {
        match step {
            Step::RemoveNamespace { nqn, nsid, def } => {
                let place = (nqn.clone(), *nsid);
                match (&def.backend, gone.contains(nqn)) {
                    (Backend::Memory { .. }, _) => {
                        let size = Size::new((self.bytes)(&place));
                        Some(format!(
                            "the {size} in memory of namespace {nsid} of {nqn} would be lost"
                        ))
                    }
                    (_, true) => None,
                    _ => self.taken(&format!("namespace {nsid} of {nqn}"), self.hosts_of(nqn)),
                }
            }
            Step::Resize { nqn, nsid, to, .. } => self.cut(nqn, *nsid, to),
            Step::RemoveSubsystem { nqn, .. } => {
                self.taken(&format!("subsystem {nqn}"), self.hosts_of(nqn))
            }
            Step::DenyHost { nqn, host } if !gone.contains(nqn) => {
                let is_open = self.new.subsystem(nqn).is_some_and(|def| def.allow_any_host);
                let is_here = self.hosts_of(nqn).contains(host.as_str()) && !is_open;
                is_here.then(|| format!("host {host} is connected to {nqn}, and would lose it"))
            }
            Step::AllowAny { nqn, allow: false } => {
                let def = self.new.subsystem(nqn)?;
                let mut others = self.hosts_of(nqn);
                others.retain(|host| !def.hosts.iter().any(|listed| listed.as_str() == *host));
                self.taken(&format!("subsystem {nqn}"), others)
            }
            _ => None,
        }
    }

    /// What is cut off a namespace.
    fn cut(&self, nqn: &Nqn, nsid: u32, to: &NamespaceDef) -> Option<String> {
        let (after, kept_in) = match &to.backend {
            Backend::Memory { size } => (*size, "memory".to_owned()),
            Backend::Drive { size: Some(size), path } => (*size, path.display().to_string()),
            Backend::Drive { size: None, .. }
            | Backend::Passthrough { .. }
            | Backend::Volume(_)
            | Backend::Snapshot(_) => return None,
        };
        let before = Size::new((self.bytes)(&(nqn.clone(), nsid)));
        (after < before).then(|| {
            format!("what {kept_in} has beyond {after} of the {before} of namespace {nsid} of {nqn} would be lost")
        })
    }

    /// Ways to the subsystems that hosts are left without.
    fn ways(&self, old: &Desired) -> Option<String> {
        let leads = |def: &crate::desired::ListenerDef| {
            !def.discovery_only && matches!(def.ana, AnaState::Optimized | AnaState::NonOptimized)
        };
        let had = old.listeners.values().any(leads);
        if !had || self.new.listeners.values().any(leads) {
            return None;
        }
        let hosts = self.controllers.iter().filter(|one| one.ana.is_some());
        let hosts: BTreeSet<&str> = hosts.map(|one| one.host.as_str()).collect();
        self.taken("the last listener that hosts reach namespaces by", hosts)
    }

    /// The hosts that are connected to a subsystem.
    fn hosts_of(&self, nqn: &Nqn) -> BTreeSet<&str> {
        let of = self.controllers.iter().filter(|one| one.subsystem == nqn.as_str());
        of.map(|one| one.host.as_str()).collect()
    }

    fn taken(&self, what: &str, hosts: BTreeSet<&str>) -> Option<String> {
        let named: Vec<_> = hosts.iter().take(NAMED).copied().collect();
        let more = match hosts.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let verb = if hosts.len() == 1 { "is" } else { "are" };
        (!hosts.is_empty()).then(|| {
            format!("{what} would be taken from {}{more}, which {verb} connected", named.join(", "))
        })
    }
}

#[cfg(test)]
mod tests;
