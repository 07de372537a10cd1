//! Identify (Base 2.1 section 5.1.13, NVM Command Set 1.1 section 4.1.5).

use std::sync::Arc;

use nvme::identify::{
    Cns, CommandSet, CommandSets, ControllerList, Identify, NSID_ALL, NamespaceDescriptor,
    NamespaceList,
};
use nvme::limits::IDENTIFY_BYTES;
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::u32_of;
use zerocopy::IntoBytes;

use super::{Fault, Outcome, prepare, window};
use crate::controller::{Controller, Kind};
use crate::describe;
use crate::namespace::Namespace;

impl Controller {
    pub(super) fn identify(&self, sqe: &Sqe, out: &mut Vec<u8>) -> Result<Outcome, Fault> {
        let command = Identify::parse(sqe)?;
        // No UUID list is offered, so that no UUID can be selected (section 8.1.28).
        if command.uuid_index != 0 {
            return Err(Fault::field(14, 0));
        }
        prepare(sqe, u32_of(IDENTIFY_BYTES), out)?;
        match self.kind() {
            Kind::Io => self.identify_io(command, out)?,
            // Section 3.1.3.3: of Identify a discovery controller has CNS 01h.
            Kind::Discovery if command.cns == Cns::Controller => {
                let Some(target) = self.target() else { return Err(Status::INTERNAL_ERROR.into()) };
                put(out, describe::discovery_controller(&target, self).as_bytes());
            }
            Kind::Discovery => return Err(Fault::field(10, 0)),
        }
        Ok(Outcome::Data)
    }

    fn identify_io(&self, command: Identify, out: &mut [u8]) -> Result<(), Fault> {
        match command.cns {
            Cns::Controller => {
                let Some(target) = self.target() else { return Err(Status::INTERNAL_ERROR.into()) };
                let registry = target.lock();
                let subsystem = registry
                    .subsystems
                    .get(self.subsystem_nqn())
                    .ok_or(Fault::from(Status::INTERNAL_ERROR))?;
                put(out, describe::io_controller(&target, subsystem, self).as_bytes());
            }
            // Every namespace there is is attached: "allocated" and "active" are the same here.
            Cns::Namespace if command.nsid == NSID_ALL => {
                put(out, describe::common_namespace().as_bytes());
            }
            Cns::Namespace | Cns::AllocatedNamespace => {
                if let Some(namespace) = self.inactive_is_zero(command.nsid)? {
                    put(out, describe::namespace(&namespace, self.ana()).as_bytes());
                }
            }
            Cns::ActiveNamespaces | Cns::AllocatedNamespaces => self.list(command.nsid, out)?,
            Cns::CommandSetActiveNamespaces | Cns::CommandSetAllocatedNamespaces => {
                check_command_set(command)?;
                self.list(command.nsid, out)?;
            }
            Cns::NamespaceDescriptors => {
                let namespace = self.active(command.nsid)?;
                put(out, &NamespaceDescriptor::page(&describe::descriptors(&namespace)));
            }
            Cns::CommandSetNamespace | Cns::CommandSetAllocatedNamespace => {
                check_command_set(command)?;
                // Section 5.1.13.2.18: of allocated namespaces none is common to all.
                if command.nsid == NSID_ALL && command.cns == Cns::CommandSetNamespace {
                    put(out, describe::nvm_common_namespace().as_bytes());
                } else if let Some(namespace) = self.inactive_is_zero(command.nsid)? {
                    put(out, describe::nvm_namespace(&namespace).as_bytes());
                }
            }
            Cns::CommandSetController => {
                check_command_set(command)?;
                put(out, describe::nvm_controller().as_bytes());
            }
            Cns::IndependentNamespace | Cns::IndependentAllocatedNamespace => {
                if let Some(namespace) = self.inactive_is_zero(command.nsid)? {
                    put(out, describe::independent_namespace(&namespace).as_bytes());
                }
            }
            Cns::NamespaceControllers => {
                self.active(command.nsid)?;
                self.list_controllers(command.cntid, out);
            }
            Cns::Controllers => self.list_controllers(command.cntid, out),
            // CNTID FFFFh is the controller that is asked (section 5.1.13.2.19); asking about
            // another one is allowed, and the answer is the same for all.
            Cns::CommandSets => put(out, CommandSets::nvm_only().as_bytes()),
            // No NVM sets, domains, endurance groups, granularities, UUIDs, virtualization,
            // migration: Invalid Field, as for every CNS that is not supported.
            _ => return Err(Fault::field(10, 0)),
        }
        Ok(())
    }

    /// The namespace with this identifier, which must be active.
    pub(super) fn active(&self, nsid: u32) -> Result<Arc<Namespace>, Fault> {
        let namespace = self.view().get(nsid).cloned();
        namespace.ok_or(Fault::at(Status::INVALID_NAMESPACE_OR_FORMAT, 1, 0))
    }

    /// The namespace with this identifier, or `None` for one that is valid and not active, whose
    /// data structure is zero (section 5.1.13.2).
    fn inactive_is_zero(&self, nsid: u32) -> Result<Option<Arc<Namespace>>, Fault> {
        let view = self.view();
        match view.get(nsid) {
            Some(namespace) => Ok(Some(Arc::clone(namespace))),
            None if view.is_valid(nsid) => Ok(None),
            None => Err(Fault::at(Status::INVALID_NAMESPACE_OR_FORMAT, 1, 0)),
        }
    }

    /// Active namespace identifiers above `after`, ascending.
    fn list(&self, after: u32, out: &mut [u8]) -> Result<(), Fault> {
        // Section 5.1.13.2.2: FFFFFFFEh and FFFFFFFFh name no place in the list.
        if after >= NSID_ALL - 1 {
            return Err(Fault::at(Status::INVALID_NAMESPACE_OR_FORMAT, 1, 0));
        }
        let view = self.view();
        let nsids = view.iter().map(|namespace| namespace.nsid).filter(|&nsid| nsid > after);
        put(out, NamespaceList::new(nsids).as_bytes());
        Ok(())
    }

    /// Controllers of the subsystem from `from` on, ascending. Every namespace is attached to
    /// every controller.
    fn list_controllers(&self, from: u16, out: &mut [u8]) {
        let Some(target) = self.target() else { return };
        let registry = target.lock();
        let Some(subsystem) = registry.subsystems.get(self.subsystem_nqn()) else { return };
        let ids = subsystem.controllers.iter().map(|c| c.cntlid()).filter(|&id| id >= from);
        put(out, ControllerList::new(ids).as_bytes());
    }
}

/// Only the NVM Command Set is offered (CSI 00h).
fn check_command_set(command: Identify) -> Result<(), Fault> {
    if CommandSet::from_raw(command.csi) == Some(CommandSet::Nvm) {
        Ok(())
    } else {
        Err(Fault::field(11, 24))
    }
}

fn put(out: &mut [u8], page: &[u8]) {
    window(page, 0, out);
}
