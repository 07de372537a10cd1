//! Who may connect to a subsystem.

use std::sync::MutexGuard;

use nvme::nqn::Nqn;

use super::{Draining, ManageError, Registry, Target, raise};
use crate::event::Event;

impl Target {
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

    /// Takes a host off a subsystem's list. Unless any host is allowed, its controllers end; they change nothing any more when
    /// what is returned is [done](Draining::wait).
    ///
    /// # Errors
    /// There is no such subsystem, or the host is not on its list.
    pub fn deny_host(&self, nqn: &Nqn, host: &Nqn) -> Result<Draining, ManageError> {
        let mut registry = self.lock();
        let admission = &mut registry.subsystem(nqn)?.admission;
        if !admission.remove(host) {
            return Err(ManageError::NoHost(nqn.clone(), host.clone()));
        }
        Ok(self.admission_narrowed(registry, nqn))
    }

    /// Allows any host, or only the listed ones; the controllers of others end, as when they are
    /// [denied](Self::deny_host).
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn set_allow_any(&self, nqn: &Nqn, any: bool) -> Result<Draining, ManageError> {
        let mut registry = self.lock();
        let admission = &mut registry.subsystem(nqn)?.admission;
        let before = admission.clone();
        admission.set_any(any);
        if any {
            let told = registry.discovery_changed(|host| !before.admits(host));
            drop(registry);
            raise(&told, Event::DiscoveryChange);
            Ok(Draining::default())
        } else {
            Ok(self.admission_narrowed(registry, nqn))
        }
    }

    /// Ends the controllers of hosts no longer admitted.
    fn admission_narrowed(&self, mut registry: MutexGuard<'_, Registry>, nqn: &Nqn) -> Draining {
        let Ok(subsystem) = registry.subsystem(nqn) else { return Draining::default() };
        let admission = subsystem.admission.clone();
        let ended: Vec<_> = subsystem
            .controllers
            .iter()
            .filter(|controller| !admission.admits(&controller.host().nqn))
            .cloned()
            .collect();
        let namespaces: Vec<_> = match ended.is_empty() {
            true => Vec::new(),
            false => subsystem.namespaces.values().cloned().collect(),
        };
        let told = registry.discovery_changed(|host| !admission.admits(host));
        drop(registry);
        for controller in &ended {
            controller.close_queues();
        }
        raise(&told, Event::DiscoveryChange);
        Draining::ended(&ended, &namespaces)
    }
}
