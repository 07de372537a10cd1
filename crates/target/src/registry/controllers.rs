//! The controllers of all subsystems, for those who look for some of them.

use std::sync::Arc;

use super::Target;
use crate::controller::Controller;
use crate::reservation::{HostId, Notice};
use crate::windows::Shared;

impl Target {
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

    /// The direct write windows of the namespaces that a controller has.
    pub(crate) fn windows_of(&self, controller: &Controller) -> Vec<Arc<Shared>> {
        let registry = self.lock();
        let Some(subsystem) = registry.subsystems.get(controller.subsystem_nqn()) else {
            return Vec::new();
        };
        subsystem.namespaces.values().map(|namespace| Arc::clone(&namespace.window)).collect()
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
