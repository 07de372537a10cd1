//! Management: what it refuses, and what hosts notice of it.

use std::sync::Arc;

use media::Drive;
use media::drive::{Simulated, SimulatedOptions};
use nvme::log::{ChangedNamespaces, GetLogPage, Smart, lid};
use nvme::opcode::admin;
use nvme::sqe::Sqe;
use zerocopy::FromBytes;

use super::ManageError;
use crate::admin::Outcome;
use crate::controller::Controller;
use crate::namespace::{Backend, NamespaceSpec};
use crate::rig::{HOST, Rig, SUBSYSTEM, backend, data_of, execute, nqn};
use crate::subsystem::{Health, SubsystemSpec};

fn spec(nsid: Option<u32>) -> NamespaceSpec {
    NamespaceSpec { nsid, ..NamespaceSpec::new(backend(1 << 20), 4096) }
}

fn listen(controller: &Controller, configuration: u32) {
    listen_only(controller, configuration);
    park(controller, 5);
}

fn listen_only(controller: &Controller, configuration: u32) {
    let set = Sqe { cdw10: 0x0b.into(), cdw11: configuration.into(), ..Sqe::new(0x09, 1, 0) };
    assert_eq!(execute(controller, &set).0, Outcome::DONE);
}

fn park(controller: &Controller, cid: u16) {
    let aer = Sqe::new(admin::ASYNC_EVENT_REQUEST, cid, 0);
    assert_eq!(execute(controller, &aer).0, Outcome::AsyncEvent);
}

fn event(controller: &Controller) -> Option<u32> {
    controller.next_event().map(|cqe| cqe.dw0.get())
}

fn changed(controller: &Controller, retain: bool) -> Vec<u32> {
    let command = GetLogPage {
        retain_event: retain,
        ..GetLogPage::new(lid::CHANGED_NAMESPACES, u32::MAX, 4096)
    };
    let page = data_of(controller, command.to_sqe(2), 4096);
    let list = ChangedNamespaces::read_from_bytes(&page).unwrap();
    list.nsids.iter().map(|nsid| nsid.get()).take_while(|&nsid| nsid != 0).collect()
}

const NAMESPACES: u32 = 1 << 8;
const NAMESPACE_EVENT: Option<u32> = Some(0x0004_0002);

#[test]
fn hosts_notice_namespaces_that_come_change_and_go() {
    let rig = Rig::new();
    let subsystem = nqn(SUBSYSTEM);
    let connected = rig.enabled();
    let controller = connected.controller();
    listen(controller, NAMESPACES);
    let epoch = rig.target.epoch();
    assert_eq!(rig.target.add_namespace(&subsystem, &spec(None)), Ok(2));
    assert!(rig.target.epoch() > epoch);
    assert_eq!(controller.epoch(), rig.target.epoch());
    assert_eq!(controller.view().get(2).map(|ns| ns.blocks()), Some(256));
    assert_eq!(event(controller), NAMESPACE_EVENT);
    park(controller, 6);
    drop(rig.target.resize_namespace(&subsystem, 2, 8192).unwrap());
    assert_eq!(event(controller), None, "masked until the log is read");
    assert_eq!(changed(controller, true), [2]);
    assert_eq!(changed(controller, false), [2]);
    assert_eq!(changed(controller, false), Vec::<u32>::new());
    assert_eq!(controller.view().get(2).map(|ns| ns.blocks()), Some(2));
    drop(rig.target.remove_namespace(&subsystem, 2).unwrap());
    assert_eq!(event(controller), NAMESPACE_EVENT);
    assert!(controller.view().get(2).is_none());
    drop(rig.target.set_write_protected(&subsystem, 1, true).unwrap());
    assert!(controller.view().get(1).unwrap().write_protected());
    assert_eq!(changed(controller, false), [1, 2]);
}

#[test]
fn identifiers_are_the_same_after_a_restart_unless_given() {
    let identity = || {
        let rig = Rig::new();
        rig.target.snapshot().subsystems[0].namespaces[0].identity
    };
    assert_eq!(identity(), identity());
    let first = identity();
    assert_ne!(first.uuid, first.nguid);
    let serial = || Rig::new().target.snapshot().subsystems[0].serial.clone();
    assert_eq!(serial(), serial());
    assert!(serial().len() <= 20);
    let rig = Rig::new();
    let given = NamespaceSpec { uuid: Some([9; 16]), eui64: Some([3; 8]), ..spec(Some(7)) };
    rig.target.add_namespace(&nqn(SUBSYSTEM), &given).unwrap();
    let identity = rig.target.snapshot().subsystems[0].namespaces[1].identity;
    assert_eq!((identity.uuid, identity.eui64), ([9; 16], Some([3; 8])));
}

#[test]
fn no_two_namespaces_have_the_same_identifiers() {
    let rig = Rig::new();
    let other = nqn("nqn.2026-11.io.flashloom:other");
    rig.target.add_subsystem(SubsystemSpec::new(other.clone())).unwrap();
    let first = NamespaceSpec {
        uuid: Some([9; 16]),
        nguid: Some([4; 16]),
        eui64: Some([3; 8]),
        ..spec(Some(7))
    };
    rig.target.add_namespace(&nqn(SUBSYSTEM), &first).unwrap();
    let taken = Err(ManageError::IdentityTaken(nqn(SUBSYSTEM), 7));
    for again in [
        NamespaceSpec { uuid: first.uuid, ..spec(Some(8)) },
        NamespaceSpec { eui64: first.eui64, ..spec(Some(8)) },
        NamespaceSpec { nguid: first.nguid, ..spec(Some(8)) },
    ] {
        assert_eq!(rig.target.add_namespace(&nqn(SUBSYSTEM), &again), taken);
        assert_eq!(rig.target.add_namespace(&other, &again), taken);
    }
    let none = NamespaceSpec { uuid: Some([0; 16]), ..spec(Some(8)) };
    assert!(matches!(rig.target.add_namespace(&other, &none), Err(ManageError::Invalid { .. })));
    // They are free once it is gone.
    drop(rig.target.remove_namespace(&nqn(SUBSYSTEM), 7).unwrap());
    rig.target.add_namespace(&other, &first).unwrap();
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let rig = Rig::new();
    let target = &rig.target;
    let (subsystem, absent) = (nqn(SUBSYSTEM), nqn("nqn.2026-11.io.flashloom:absent"));
    let before = target.snapshot().generation;
    let again = SubsystemSpec::new(subsystem.clone());
    assert_eq!(target.add_subsystem(again), Err(ManageError::SubsystemExists(subsystem.clone())));
    let well_known = nvme::nqn::Nqn::discovery();
    assert_eq!(
        target.add_subsystem(SubsystemSpec::new(well_known.clone())),
        Err(ManageError::DiscoveryName(well_known))
    );
    let bend: [fn(&mut SubsystemSpec); 6] = [
        |spec| spec.serial = "x".repeat(21),
        |spec| spec.model = "naïve".into(),
        |spec| spec.max_namespaces = 0,
        |spec| spec.cntlid_min = 0,
        |spec| spec.cntlid_max = 0xfff0,
        |spec| (spec.cntlid_min, spec.cntlid_max) = (9, 8),
    ];
    for bend in bend {
        let mut spec = SubsystemSpec::new(absent.clone());
        bend(&mut spec);
        assert!(matches!(target.add_subsystem(spec), Err(ManageError::Invalid { .. })));
    }
    let refused = target.remove_subsystem(&absent).err();
    assert_eq!(refused, Some(ManageError::NoSubsystem(absent.clone())));
    assert_eq!(
        target.add_namespace(&subsystem, &spec(Some(1))),
        Err(ManageError::NamespaceExists(subsystem.clone(), 1))
    );
    let odd = NamespaceSpec { block_size: 1024, ..spec(None) };
    assert!(matches!(target.add_namespace(&subsystem, &odd), Err(ManageError::Invalid { .. })));
    for nsid in [0, 1025, u32::MAX] {
        let result = target.add_namespace(&subsystem, &spec(Some(nsid)));
        assert!(matches!(result, Err(ManageError::Invalid { .. })));
    }
    for bytes in [0, 100, 513, 2 << 20] {
        let result = target.resize_namespace(&subsystem, 1, bytes);
        assert!(matches!(result, Err(ManageError::Invalid { .. })), "{bytes}");
    }
    let none = ManageError::NoNamespace(subsystem.clone(), 9);
    assert_eq!(target.remove_namespace(&subsystem, 9).err(), Some(none));
    let stranger = ManageError::NoHost(subsystem.clone(), nqn(HOST));
    assert_eq!(target.deny_host(&subsystem, &nqn(HOST)).err(), Some(stranger));
    assert_eq!(target.snapshot().generation, before);
}

#[test]
fn a_removed_subsystem_ends_its_controllers() {
    let rig = Rig::new();
    let connected = rig.enabled();
    drop(rig.target.remove_subsystem(&nqn(SUBSYSTEM)).unwrap());
    assert!(connected.lease.closing());
    assert_eq!(connected.controller().view().iter().count(), 0);
    // A subsystem of the same name does not inherit the old one's controllers.
    rig.target.add_subsystem(SubsystemSpec::new(nqn(SUBSYSTEM))).unwrap();
    let fresh = rig.enabled();
    drop(connected);
    assert_eq!(rig.target.controllers().len(), 1);
    drop(fresh);
    assert!(rig.target.controllers().is_empty());
}

#[test]
fn health_that_gets_worse_is_told_once() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    listen(controller, 0xff);
    for cid in 6..9 {
        park(controller, cid);
    }
    let worse = Health { reliability_degraded: true, available_spare: 5, ..Health::default() };
    rig.target.set_health(&nqn(SUBSYSTEM), worse).unwrap();
    assert_eq!(event(controller), Some(0x0002_0201));
    assert_eq!(event(controller), Some(0x0002_0001));
    rig.target.set_health(&nqn(SUBSYSTEM), worse).unwrap();
    assert_eq!(event(controller), None);
}

fn read_smart(controller: &Controller) -> Smart {
    let page = data_of(controller, GetLogPage::new(lid::SMART, 0, 512).to_sqe(2), 512);
    Smart::read_from_bytes(&page).unwrap()
}

/// Hosts that connected after a warning had begun, or asked for it afterwards, were never told.
#[test]
fn who_asks_for_a_warning_is_told_when_it_applies_already() {
    let rig = Rig::new();
    let early = rig.enabled();
    let low = Health { available_spare: 5, read_only: true, ..Health::default() };
    rig.target.set_health(&nqn(SUBSYSTEM), low).unwrap();
    let late = rig.enabled();
    for connected in [&early, &late] {
        let controller = connected.controller();
        park(controller, 1);
        assert_eq!(event(controller), None, "not asked for");
        listen(controller, Smart::WARNING_TEMPERATURE.into());
        assert_eq!(event(controller), None, "that one does not apply");
        listen_only(controller, 0xff);
        assert_eq!(event(controller), Some(0x0002_0201));
        assert_eq!(event(controller), Some(0x0002_0001));
        park(controller, 2);
        listen_only(controller, 0);
        listen_only(controller, 0xff);
        assert_eq!(event(controller), None, "told, and the log page not read");
        let warning = Smart::WARNING_SPARE | Smart::WARNING_READ_ONLY;
        assert_eq!(read_smart(controller).critical_warning, warning);
        listen_only(controller, 0xff);
        rig.target.set_health(&nqn(SUBSYSTEM), low).unwrap();
        assert_eq!(event(controller), None, "nothing changed since the page was read");
        listen_only(controller, 0);
        listen_only(controller, Smart::WARNING_SPARE.into());
        assert_eq!(event(controller), Some(0x0002_0201), "asked for anew");
        read_smart(controller);
    }
    rig.target.set_health(&nqn(SUBSYSTEM), Health::default()).unwrap();
    for connected in [&early, &late] {
        park(connected.controller(), 3);
        listen_only(connected.controller(), 0);
        listen_only(connected.controller(), 0xff);
        assert_eq!(event(connected.controller()), None, "all is well again");
    }
}

/// A warning is told although its bit was set first for the other condition of the same event.
#[test]
fn reliability_and_read_only_are_asked_for_each() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    listen(controller, Smart::WARNING_READ_ONLY.into());
    let degraded = Health { reliability_degraded: true, ..Health::default() };
    rig.target.set_health(&nqn(SUBSYSTEM), degraded).unwrap();
    assert_eq!(event(controller), None, "only read-only media were asked for");
    let worse = Health { read_only: true, ..degraded };
    rig.target.set_health(&nqn(SUBSYSTEM), worse).unwrap();
    assert_eq!(event(controller), Some(0x0002_0001));
}

/// A drive that failed was seen by those who read SMART / Health, and told to nobody.
#[test]
fn hosts_are_told_of_a_drive_that_failed() {
    let rig = Rig::new();
    let drive =
        Simulated::new(SimulatedOptions { capacity: 1 << 20, ..SimulatedOptions::default() });
    let backend = Backend::Drive(Arc::new(Drive::Simulated(Arc::clone(&drive))));
    rig.target.add_namespace(&nqn(SUBSYSTEM), &NamespaceSpec::new(backend, 4096)).unwrap();
    let connected = rig.enabled();
    let controller = connected.controller();
    listen(controller, Smart::WARNING_RELIABILITY.into());
    let look = || rig.target.set_health(&nqn(SUBSYSTEM), Health::default()).unwrap();
    look();
    assert_eq!(event(controller), None);
    drive.fail();
    look();
    assert_eq!(event(controller), Some(0x0002_0001));
    assert_eq!(read_smart(controller).critical_warning, Smart::WARNING_RELIABILITY);
    park(controller, 6);
    look();
    assert_eq!(event(controller), None, "told once");
}

#[test]
fn the_snapshot_tells_what_is_there() {
    let rig = Rig::new();
    let _connected = rig.enabled();
    let snapshot = rig.target.snapshot();
    let subsystem = &snapshot.subsystems[0];
    assert_eq!(subsystem.nqn, nqn(SUBSYSTEM));
    assert_eq!((subsystem.namespaces[0].nsid, subsystem.namespaces[0].blocks), (1, 2048));
    let controller = &subsystem.controllers[0];
    assert_eq!((controller.host_nqn.clone(), controller.kato), (nqn(HOST), 5000));
    assert_eq!(snapshot.listeners.len(), 1);
}
