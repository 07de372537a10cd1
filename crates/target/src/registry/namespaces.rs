//! Namespaces that come, change and go.

use std::sync::{Arc, MutexGuard};

use nvme::nqn::Nqn;

use super::{Draining, ManageError, Registry, Target, invalid, raise};
use crate::controller::Controller;
use crate::event::Event;
use crate::namespace::{Backend, Namespace, NamespaceIdentity, NamespaceSpec};
use crate::persistent_event::Happened;

impl Target {
    /// Adds a namespace, active at once on every controller of the subsystem. Returns its
    /// identifier.
    ///
    /// # Errors
    /// No such subsystem, an identifier is taken or out of range, the block size is not one the
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
        registry.check_identity(&namespace.identity)?;
        let subsystem = registry.subsystem(nqn)?;
        let namespace = Arc::new(namespace);
        let created = Happened::ChangeNamespace { namespace: &namespace, deleted: false };
        subsystem.events.record(self.event_source(), created);
        subsystem.namespaces.insert(nsid, namespace);
        self.namespaces_changed(registry, nqn, nsid);
        Ok(nsid)
    }

    /// Gives an [absent](crate::namespace::Backend::Absent) namespace what keeps its bytes, `bytes` of it. Hosts are
    /// told, and send what they held back.
    ///
    /// # Errors
    /// There is no such namespace, it is not absent, or the backend does not hold that much.
    pub fn provide_namespace(
        &self,
        nqn: &Nqn,
        nsid: u32,
        backend: Backend,
        bytes: u64,
    ) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let absent = registry.namespace(nqn, nsid)?;
        if !absent.backend.is_absent() {
            return Err(ManageError::NamespaceExists(nqn.clone(), nsid));
        }
        check_size(bytes, backend.capacity(), absent.block_size)?;
        let provided = Arc::new(absent.on(backend, bytes));
        self.replace(registry, nqn, provided)
    }

    /// Takes from a namespace what keeps its bytes, which is expected to come again: it is
    /// [absent](crate::namespace::Backend::Absent) until it is [provided](Self::provide_namespace). Hosts are told, and
    /// hold back what they send; commands that the backend has go on there, and end as it lets them, until what is returned
    /// is [done](Draining::wait).
    ///
    /// # Errors
    /// There is no such subsystem or namespace.
    pub fn withdraw_namespace(&self, nqn: &Nqn, nsid: u32) -> Result<Draining, ManageError> {
        let mut registry = self.lock();
        let there = Arc::clone(registry.namespace(nqn, nsid)?);
        let bytes = there.bytes();
        let withdrawn = Arc::new(there.on(Backend::Absent { bytes }, bytes));
        self.replace(registry, nqn, withdrawn)?;
        Ok(Draining::still(&there))
    }

    /// Puts the same namespace on another backend, and tells the hosts.
    fn replace(
        &self,
        mut registry: MutexGuard<'_, Registry>,
        nqn: &Nqn,
        namespace: Arc<Namespace>,
    ) -> Result<(), ManageError> {
        let nsid = namespace.nsid;
        let subsystem = registry.subsystem(nqn)?;
        subsystem.namespaces.insert(nsid, namespace);
        let told: Vec<_> = subsystem.controllers.iter().cloned().collect();
        self.namespaces_changed(registry, nqn, nsid);
        raise(&told, Event::AnaChange);
        Ok(())
    }

    /// Removes a namespace: its commands that wait for their data are aborted, further ones refused. Those that
    /// its backend has run on until what is returned is [done](Draining::wait); the backend belongs to the
    /// namespace until then.
    ///
    /// # Errors
    /// There is no such subsystem or namespace.
    pub fn remove_namespace(&self, nqn: &Nqn, nsid: u32) -> Result<Draining, ManageError> {
        let mut registry = self.lock();
        let subsystem = registry.subsystem(nqn)?;
        let Some(namespace) = subsystem.namespaces.remove(&nsid) else {
            return Err(ManageError::NoNamespace(nqn.clone(), nsid));
        };
        let deleted = Happened::ChangeNamespace { namespace: &namespace, deleted: true };
        subsystem.events.record(self.event_source(), deleted);
        let controllers = self.namespaces_changed(registry, nqn, nsid);
        Ok(Draining::gone(&[namespace], &controllers))
    }

    /// Gives a namespace another size, in bytes. The backend must have been resized before when
    /// it grows, and may be when what is returned is [done](Draining::wait) where it shrinks: what a late command
    /// would do behind the new end is refused from now on, what the backend has of them is waited for.
    ///
    /// # Errors
    /// There is no such namespace, or the backend does not hold that much.
    pub fn resize_namespace(
        &self,
        nqn: &Nqn,
        nsid: u32,
        bytes: u64,
    ) -> Result<Draining, ManageError> {
        let mut registry = self.lock();
        let namespace = registry.namespace(nqn, nsid)?;
        let capacity = namespace.backend.capacity();
        check_size(bytes, capacity, namespace.block_size)?;
        let block = u64::from(namespace.block_size);
        let namespace = Arc::clone(namespace);
        let shrinks = bytes < namespace.bytes();
        namespace.set_blocks(bytes / block);
        self.namespaces_changed(registry, nqn, nsid);
        Ok(if shrinks { Draining::still(&namespace) } else { Draining::default() })
    }

    /// Protects a namespace from writes, or stops protecting it (NSATTR bit 0). Its direct write window has ended when what is
    /// returned is [done](Draining::wait).
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn set_write_protected(
        &self,
        nqn: &Nqn,
        nsid: u32,
        protected: bool,
    ) -> Result<Draining, ManageError> {
        let mut registry = self.lock();
        let namespace = Arc::clone(registry.namespace(nqn, nsid)?);
        namespace.set_write_protected(protected);
        self.namespaces_changed(registry, nqn, nsid);
        Ok(Draining::window(&namespace))
    }

    /// What every change of a namespace ends with: views, epoch, and the notice to hosts. Returns the subsystem's
    /// controllers.
    pub(crate) fn namespaces_changed(
        &self,
        mut registry: MutexGuard<'_, Registry>,
        nqn: &Nqn,
        nsid: u32,
    ) -> Vec<Arc<Controller>> {
        let Ok(subsystem) = registry.subsystem(nqn) else { return Vec::new() };
        subsystem.rebuild_view();
        let controllers: Vec<_> = subsystem.controllers.iter().cloned().collect();
        drop(registry);
        self.move_epoch();
        for controller in &controllers {
            controller.namespace_changed(nsid);
        }
        controllers
    }
}

impl Registry {
    /// Refuses identifiers of another namespace, which hosts would take for this one (Base 2.1, section
    /// 4.7.1), and those that mean none.
    fn check_identity(&self, new: &NamespaceIdentity) -> Result<(), ManageError> {
        for (what, id) in [("UUID", new.uuid), ("NGUID", new.nguid)] {
            if id == [0; 16] {
                return Err(invalid(what, "zero", "which means that there is none"));
            }
        }
        for (nqn, subsystem) in &self.subsystems {
            for (nsid, other) in &subsystem.namespaces {
                let old = other.identity;
                let eui64 = old.eui64.is_some() && old.eui64 == new.eui64;
                if old.uuid == new.uuid || old.nguid == new.nguid || eui64 {
                    return Err(ManageError::IdentityTaken(nqn.clone(), *nsid));
                }
            }
        }
        Ok(())
    }
}

fn check_size(bytes: u64, capacity: u64, block_size: u32) -> Result<(), ManageError> {
    let block = u64::from(block_size);
    if bytes > capacity || bytes < block || !bytes.is_multiple_of(block) {
        let wanted = format!("a multiple of {block} up to the backend's {capacity}");
        return Err(invalid("size", bytes, wanted));
    }
    Ok(())
}

fn check_namespace(spec: &NamespaceSpec) -> Result<(), ManageError> {
    if !matches!(spec.block_size, 512 | 4096) {
        return Err(invalid("block size", spec.block_size, "512 or 4096"));
    }
    if spec.backend.capacity() < u64::from(spec.block_size) {
        return Err(invalid("capacity", spec.backend.capacity(), "less than one logical block"));
    }
    Ok(())
}
