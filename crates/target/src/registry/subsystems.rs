//! Subsystems that come and go, and their health.

use nvme::fabrics::CNTLID_MAX;
use nvme::nqn::Nqn;

use super::{Draining, ManageError, Target, invalid, raise};
use crate::event::Event;
use crate::limits::{NAMESPACES_MAX, SUBSYSTEMS_MAX};
use crate::persistent_event::Happened;
use crate::subsystem::{Health, HealthChange, Subsystem, SubsystemSpec};

impl Target {
    /// Adds a subsystem without namespaces.
    ///
    /// # Errors
    /// The name is taken, a field has a value it cannot have, or [`SUBSYSTEMS_MAX`] is reached.
    pub fn add_subsystem(&self, spec: SubsystemSpec) -> Result<(), ManageError> {
        check_subsystem(&spec)?;
        let nqn = spec.nqn.clone();
        let mut registry = self.lock();
        if registry.subsystems.contains_key(&nqn) {
            return Err(ManageError::SubsystemExists(nqn));
        }
        if registry.subsystems.len() >= SUBSYSTEMS_MAX {
            return Err(ManageError::Full { what: "the list of subsystems", max: SUBSYSTEMS_MAX });
        }
        let mut subsystem = Subsystem::new(spec);
        let firmware = &self.identity.firmware;
        subsystem.events.record(self.event_source(), Happened::PowerOn { firmware });
        let admission = subsystem.admission.clone();
        registry.subsystems.insert(nqn, subsystem);
        let told = registry.discovery_changed(|host| admission.admits(host));
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }

    /// Removes a subsystem; its controllers end, and with them their hosts' connections. Of its namespaces the
    /// same holds as when they are [removed](Target::remove_namespace).
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn remove_subsystem(&self, nqn: &Nqn) -> Result<Draining, ManageError> {
        let mut registry = self.lock();
        let subsystem =
            registry.subsystems.remove(nqn).ok_or_else(|| ManageError::NoSubsystem(nqn.clone()))?;
        let told = registry.discovery_changed(|host| subsystem.admission.admits(host));
        drop(registry);
        self.move_epoch();
        for controller in subsystem.controllers.iter() {
            controller.close_queues();
        }
        raise(&told, Event::DiscoveryChange);
        let namespaces: Vec<_> = subsystem.namespaces.values().cloned().collect();
        let controllers: Vec<_> = subsystem.controllers.iter().cloned().collect();
        Ok(Draining::gone(&namespaces, &controllers))
    }

    /// Replaces what SMART / Health reports of a subsystem, and tells hosts what got worse: also of
    /// drives and volumes that failed since the last time, so it is worth calling now and then.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn set_health(&self, nqn: &Nqn, health: Health) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let subsystem = registry.subsystem(nqn)?;
        subsystem.reported = health;
        let change = subsystem.health_change();
        drop(registry);
        change.into_iter().for_each(HealthChange::tell);
        Ok(())
    }
}

fn check_subsystem(spec: &SubsystemSpec) -> Result<(), ManageError> {
    if spec.nqn.is_discovery() {
        return Err(ManageError::DiscoveryName(spec.nqn.clone()));
    }
    let printable = |text: &str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if spec.serial.len() > 20 || !printable(&spec.serial) {
        return Err(invalid(
            "serial number",
            &spec.serial,
            "at most 20 printable ASCII characters",
        ));
    }
    if spec.model.len() > 40 || !printable(&spec.model) {
        return Err(invalid("model number", &spec.model, "at most 40 printable ASCII characters"));
    }
    if !(1..=NAMESPACES_MAX).contains(&spec.max_namespaces) {
        let wanted = format!("1 to {NAMESPACES_MAX}");
        return Err(invalid("number of namespaces", spec.max_namespaces, wanted));
    }
    let (min, max) = (spec.cntlid_min, spec.cntlid_max);
    if min == 0 || min > max || max > CNTLID_MAX {
        let wanted = format!("within 1 to {CNTLID_MAX}, the smaller first");
        return Err(invalid("controller identifier range", format!("{min} to {max}"), wanted));
    }
    Ok(())
}
