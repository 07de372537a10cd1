//! Connect and each way it is refused; properties; the controller's life.

use std::sync::Arc;

use fabric::TransportAddress;
use nvme::fabrics::{ConnectInvalid, PropertyGet, PropertySet, PropertySize, disconnect_sqe};
use nvme::property::{Cap, Cc, CommandSetSelected, ShutdownNotification, ShutdownStatus, offset};
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::{Connected, Refusal, Why};
use crate::admin::Outcome;
use crate::controller::Controller;
use crate::host::UNNAMED;
use crate::listener::ListenerInfo;
use crate::queue::remote::RemoteQueue;
use crate::rig::{HOST, Rig, SECOND, START, SUBSYSTEM, execute, get_property, nqn, set_cc};
use crate::subsystem::SubsystemSpec;

fn enable() -> Cc {
    Cc::enable(CommandSetSelected::Nvm)
}

fn invalid(offset: u16, in_data: bool) -> Refusal {
    let dw0 = ConnectInvalid { offset, in_data }.to_dw0();
    Refusal { status: Status::CONNECT_INVALID_PARAMETERS.with_dnr(), dw0 }
}

/// The same, but for another attempt.
fn not_now(offset: u16, in_data: bool) -> Refusal {
    Refusal { status: Status::CONNECT_INVALID_PARAMETERS, ..invalid(offset, in_data) }
}

fn refused(status: Status) -> Refusal {
    Refusal { status: status.with_dnr(), dw0: 0 }
}

/// Stands for a queue's connection: shows whether it is told to end.
fn watch(connected: &Connected) -> RemoteQueue {
    let remote = RemoteQueue::default();
    connected.lease.attach(remote.clone());
    remote
}

#[test]
fn a_host_connects_its_admin_queue_and_its_io_queues() {
    let rig = Rig::new();
    let admin = rig.enabled();
    assert_eq!((admin.entries, admin.flow_control_disabled, admin.lease.qid()), (32, false, 0));
    assert_eq!(admin.dw0, u32::from(admin.controller().cntlid()));
    let mut attempt = rig.io_attempt(1, admin.controller());
    attempt.command.attributes.0 = 1 << 2;
    let io = rig.connect(&attempt).unwrap();
    assert!(Arc::ptr_eq(io.controller(), admin.controller()));
    assert_eq!((io.entries, io.flow_control_disabled, io.lease.qid()), (128, true, 1));
    assert_eq!(admin.controller().io_queues(), 1);
    drop(io);
    assert_eq!(admin.controller().io_queues(), 0);
}

#[test]
fn each_wrong_field_of_an_admin_connect_is_named() {
    let rig = Rig::new();
    let try_with = |bend: &dyn Fn(&mut crate::rig::Attempt)| {
        let mut attempt = rig.attempt(SUBSYSTEM, HOST);
        bend(&mut attempt);
        rig.connect(&attempt).unwrap_err()
    };
    assert_eq!(try_with(&|a| a.command.recfmt = 1), refused(Status::CONNECT_INCOMPATIBLE_FORMAT));
    assert_eq!(try_with(&|a| a.command.sqsize = 0), invalid(44, false));
    assert_eq!(try_with(&|a| a.command.sqsize = 128), invalid(44, false));
    assert_eq!(
        try_with(&|a| a.command.kato = u32::MAX),
        refused(Status::KEEP_ALIVE_TIMEOUT_INVALID)
    );
    assert_eq!(try_with(&|a| a.data.subnqn[4] = b'!'), invalid(256, true));
    assert_eq!(try_with(&|a| a.data.subnqn.fill(b'n')), invalid(256, true));
    assert_eq!(try_with(&|a| a.data.hostnqn[4] = b'!'), invalid(512, true));
    // Only the dynamic controller model: FFFFh and nothing else.
    for cntlid in [0, 1, 0xfffe] {
        assert_eq!(try_with(&|a| a.data.cntlid = cntlid.into()), invalid(16, true));
    }
    assert!(rig.target.controllers().is_empty());
}

#[test]
fn each_wrong_field_of_an_io_connect_is_named() {
    let rig = Rig::new();
    let admin = rig.enabled();
    let controller = admin.controller();
    let try_with = |bend: &dyn Fn(&mut crate::rig::Attempt)| {
        let mut attempt = rig.io_attempt(1, controller);
        bend(&mut attempt);
        rig.connect(&attempt).unwrap_err()
    };
    assert_eq!(try_with(&|a| a.command.sqsize = 1024), invalid(44, false));
    assert_eq!(try_with(&|a| a.command.sqsize = 0), invalid(44, false));
    assert_eq!(try_with(&|a| a.command.qid = 129), invalid(42, false));
    assert_eq!(try_with(&|a| a.data.cntlid = 77.into()), not_now(16, true));
    assert_eq!(try_with(&|a| a.data.cntlid = 0xffff.into()), not_now(16, true));
    assert_eq!(try_with(&|a| a.data.hostid = [8; 16]), invalid(0, true));
    let other = nqn("nqn.2026-11.io.flashloom:another-host").to_field();
    assert_eq!(try_with(&|a| a.data.hostnqn = other), invalid(512, true));
    assert_eq!(try_with(&|a| a.data.subnqn = other), not_now(256, true));
    let _first = rig.connect(&rig.io_attempt(1, controller)).unwrap();
    let in_use = Refusal { status: Status::COMMAND_SEQUENCE_ERROR, dw0: 0 };
    assert_eq!(try_with(&|_| ()), in_use);
}

/// Section 6.3 has the controller ignore the field then; it was compared, and the queue refused.
#[test]
fn an_io_queue_without_a_host_identifier_joins_its_controller() {
    let rig = Rig::new();
    let admin = rig.enabled();
    let mut attempt = rig.io_attempt(1, admin.controller());
    attempt.data.hostid = [0; 16];
    let io = rig.connect(&attempt).unwrap();
    assert!(Arc::ptr_eq(io.controller(), admin.controller()));
}

/// SPDK's perf tool sends no Host NQN unless it is told to, and could not connect at all.
#[test]
fn a_host_without_a_name_is_admitted_where_any_host_is() {
    let rig = Rig::new();
    let mut attempt = rig.attempt(SUBSYSTEM, HOST);
    attempt.data.hostnqn.fill(0);
    let admin = rig.connect(&attempt).unwrap();
    assert_eq!(admin.controller().host_nqn().as_str(), UNNAMED);
    set_cc(admin.controller(), enable());
    let mut io = rig.io_attempt(1, admin.controller());
    io.data.hostnqn.fill(0);
    drop(rig.connect(&io).unwrap());
    drop(admin);
    rig.target.set_strict_host_names(true);
    assert_eq!(rig.connect(&attempt).unwrap_err(), invalid(512, true));
    rig.target.set_strict_host_names(false);
    // By name: also a list that has the name of those without one admits none of them.
    drop(rig.target.set_allow_any(&nqn(SUBSYSTEM), false).unwrap());
    rig.target.allow_host(&nqn(SUBSYSTEM), &nqn(HOST)).unwrap();
    rig.target.allow_host(&nqn(SUBSYSTEM), &nqn(UNNAMED)).unwrap();
    assert_eq!(rig.connect(&attempt).unwrap_err(), invalid(512, true));
    assert!(rig.connect(&rig.attempt(SUBSYSTEM, HOST)).is_ok());
}

/// Hosts that reconnected while their subsystem was away for a moment were told Do Not Retry, and gave up a controller
/// with a mounted file system for good.
#[test]
fn a_host_may_ask_again_for_what_may_come_back() {
    let rig = Rig::new();
    let admin = rig.enabled();
    let io = rig.io_attempt(1, admin.controller());
    drop(rig.target.remove_subsystem(&nqn(SUBSYSTEM)).unwrap());
    assert_eq!(rig.connect(&rig.attempt(SUBSYSTEM, HOST)).unwrap_err(), not_now(256, true));
    assert_eq!(rig.connect(&io).unwrap_err(), not_now(256, true));
    rig.target.add_subsystem(SubsystemSpec::new(nqn(SUBSYSTEM))).unwrap();
    // The association ended meanwhile: a host begins anew with its admin queue.
    assert_eq!(rig.connect(&io).unwrap_err(), not_now(16, true));
    assert!(rig.connect(&rig.attempt(SUBSYSTEM, HOST)).is_ok());
}

/// Nothing on the target's side told of a refused Connect: whoever sought the reason had the host's bare status.
#[test]
fn a_refused_connect_is_told_with_its_reason_and_counted() {
    let rig = Rig::new();
    drop(rig.target.set_allow_any(&nqn(SUBSYSTEM), false).unwrap());
    let count = |name: &str| {
        rig.target.refusal_counts().find(|(reason, _)| *reason == name).map(|(_, count)| count)
    };
    assert_eq!(count("host_not_allowed"), Some(0));
    for _ in 0..3 {
        assert!(rig.connect(&rig.attempt(SUBSYSTEM, HOST)).is_err());
    }
    assert!(rig.connect(&rig.attempt("nqn.2026-11.io.flashloom:none", HOST)).is_err());
    assert_eq!((count("host_not_allowed"), count("no_subsystem")), (Some(3), Some(1)));
    let told: Vec<_> = rig.target.refused().refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            format!(
                "host {HOST:?} at 10.9.9.9:50000 was refused by {SUBSYSTEM:?}: it is not on the \
                 subsystem's list of hosts"
            ),
            format!(
                "host {HOST:?} at 10.9.9.9:50000 was refused by \"nqn.2026-11.io.flashloom:none\": \
                 there is no such subsystem here"
            ),
        ]
    );
}

#[test]
fn each_reason_of_a_refusal_has_a_place_and_a_name_of_its_own() {
    let all = [
        Why::NotConnect,
        Why::Malformed(Status::INVALID_FIELD),
        Why::RecordFormat,
        Why::QueueSize,
        Why::KeepAlive,
        Why::SubsystemName,
        Why::HostName,
        Why::Unnamed,
        Why::NoSubsystem,
        Why::DiscoveryOnly,
        Why::HostNotAllowed,
        Why::StaticController,
        Why::Busy,
        Why::NoController,
        Why::OtherHost,
        Why::OtherHostId,
        Why::QueueId,
        Why::Disabled,
        Why::ShuttingDown,
        Why::QueueInUse,
        Why::EntrySize,
        Why::NoEntries,
    ];
    let places: Vec<_> = all.iter().map(|why| why.index()).collect();
    assert_eq!(places, (0..Why::COUNT).collect::<Vec<_>>());
    let names: std::collections::BTreeSet<_> = Why::NAMES.iter().collect();
    assert_eq!(names.len(), Why::COUNT);
}

#[test]
fn io_queues_need_an_enabled_controller_with_the_right_entry_sizes() {
    let rig = Rig::new();
    let admin = rig.connect(&rig.attempt(SUBSYSTEM, HOST)).unwrap();
    let controller = admin.controller();
    let attempt = rig.io_attempt(1, controller);
    // Section 6.3: Connect Invalid Parameters. It may be asked again when the controller is enabled.
    assert_eq!(rig.connect(&attempt).unwrap_err(), not_now(16, true));
    set_cc(controller, Cc(1));
    assert_eq!(rig.connect(&attempt).unwrap_err(), invalid(44, false));
    set_cc(controller, Cc(0));
    set_cc(controller, enable());
    assert!(rig.connect(&attempt).is_ok());
    set_cc(controller, enable().with_shn(ShutdownNotification::Normal));
    let refusal = rig.connect(&attempt).unwrap_err();
    assert_eq!(refusal, Refusal { status: Status::COMMAND_SEQUENCE_ERROR, dw0: 0 });
}

#[test]
fn an_unlisted_host_is_refused_on_both_kinds_of_queue() {
    let rig = Rig::new();
    let admin = rig.enabled();
    let told = watch(&admin);
    drop(rig.target.set_allow_any(&nqn(SUBSYSTEM), false).unwrap());
    assert!(told.is_ending(), "its controller ends");
    let refusal = refused(Status::CONNECT_INVALID_HOST);
    assert_eq!(rig.connect(&rig.attempt(SUBSYSTEM, HOST)).unwrap_err(), refusal);
    assert_eq!(rig.connect(&rig.io_attempt(1, admin.controller())).unwrap_err(), refusal);
    rig.target.allow_host(&nqn(SUBSYSTEM), &nqn(HOST)).unwrap();
    assert!(rig.connect(&rig.attempt(SUBSYSTEM, HOST)).is_ok());
}

#[test]
fn a_discovery_only_listener_serves_no_subsystem() {
    let rig = Rig::new();
    let local = "10.1.2.3:8009".parse().unwrap();
    let mut info = ListenerInfo::new(TransportAddress::Tcp("10.1.2.3:8009".parse().unwrap()));
    info.discovery_only = true;
    let listener = rig.target.add_listener(info).unwrap();
    let mut attempt = rig.attempt(SUBSYSTEM, HOST);
    attempt.path = Rig::path(listener, local);
    assert_eq!(rig.connect(&attempt).unwrap_err(), invalid(256, true));
    let mut attempt = rig.attempt(nvme::nqn::DISCOVERY, HOST);
    attempt.path = Rig::path(listener, local);
    let admin = rig.connect(&attempt).unwrap();
    assert!(admin.controller().is_discovery());
    // A discovery controller has no I/O queues.
    let io = rig.io_attempt(1, admin.controller());
    assert_eq!(rig.connect(&io).unwrap_err(), invalid(42, false));
}

#[test]
fn a_full_subsystem_is_busy_and_may_be_asked_again() {
    let rig = Rig::new();
    let mut spec = crate::subsystem::SubsystemSpec::new(nqn("nqn.2026-11.io.flashloom:small"));
    (spec.cntlid_min, spec.cntlid_max) = (5, 6);
    rig.target.add_subsystem(spec).unwrap();
    let attempt = rig.attempt("nqn.2026-11.io.flashloom:small", HOST);
    let first = rig.connect(&attempt).unwrap();
    let second = rig.connect(&attempt).unwrap();
    assert_eq!((first.controller().cntlid(), second.controller().cntlid()), (5, 6));
    let refusal = rig.connect(&attempt).unwrap_err();
    assert_eq!(refusal, Refusal { status: Status::CONNECT_CONTROLLER_BUSY, dw0: 0 });
    assert!(!refusal.status.dnr());
    drop(first);
    assert_eq!(rig.connect(&attempt).unwrap().controller().cntlid(), 5);
}

#[test]
fn other_commands_before_connect_are_out_of_sequence() {
    let rig = Rig::new();
    let attempt = rig.attempt(SUBSYSTEM, HOST);
    let connect = |sqe: &Sqe| {
        let params = super::ConnectParams { sqe, data: &attempt.data, path: rig.path, now: START };
        super::connect(&rig.target, &params).unwrap_err().status.kind()
    };
    let get = PropertyGet { offset: offset::CAP, size: PropertySize::Eight };
    assert_eq!(connect(&get.to_sqe(1)), Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(connect(&disconnect_sqe(1)), Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(connect(&Sqe::new(0x06, 1, 0)), Status::INVALID_OPCODE);
}

#[test]
fn properties_read_as_advertised() {
    let rig = Rig::new();
    let admin = rig.connect(&rig.attempt(SUBSYSTEM, HOST)).unwrap();
    let controller = admin.controller();
    let get = PropertyGet { offset: offset::CAP, size: PropertySize::Eight };
    let Outcome::Complete { dw0, dw1 } = execute(controller, &get.to_sqe(1)).0 else { panic!() };
    let cap = Cap(u64::from(dw1) << 32 | u64::from(dw0));
    assert_eq!((cap.mqes(), cap.dstrd(), cap.mpsmin(), cap.mpsmax()), (1023, 0, 0, 0));
    assert!(cap.has(Cap::CSS_NVM | Cap::CSS_IOCSS | Cap::CQR | Cap::CRWMS));
    assert!(!cap.has(Cap::NSSRS));
    assert_eq!(get_property(controller, offset::VS), 0x0002_0100);
    assert_eq!(get_property(controller, offset::CSTS), 0);
    assert_eq!(get_property(controller, offset::CRTO), u32::from(cap.to()));
}

#[test]
fn properties_that_are_absent_or_read_only_are_refused() {
    let rig = Rig::new();
    let admin = rig.connect(&rig.attempt(SUBSYSTEM, HOST)).unwrap();
    let controller = admin.controller();
    let status = |sqe: &Sqe| match execute(controller, sqe).0 {
        Outcome::Failed(status) => status.kind(),
        other => panic!("{other:?}"),
    };
    for offset in [offset::NSSR, offset::NSSD, 0x1000, 0x0c] {
        let get = PropertyGet { offset, size: PropertySize::Four };
        assert_eq!(status(&get.to_sqe(1)), Status::INVALID_FIELD);
    }
    for offset in [offset::VS, offset::CSTS, offset::NSSR, offset::CRTO] {
        let set = PropertySet { offset, size: PropertySize::Four, value: 1 };
        assert_eq!(status(&set.to_sqe(1)), Status::INVALID_FIELD);
    }
    let wide = PropertyGet { offset: offset::CC, size: PropertySize::Eight };
    assert_eq!(status(&wide.to_sqe(1)), Status::INVALID_FIELD);
    // Properties are the admin queue's.
    let get = PropertyGet { offset: offset::CSTS, size: PropertySize::Four };
    let Outcome::Failed(on_io) = controller.execute_fabrics(1, &get.to_sqe(1)) else { panic!() };
    assert!(on_io.is(Status::INVALID_FIELD));
}

#[test]
fn a_configuration_the_controller_does_not_have_is_fatal_until_reset() {
    for wrong in [1 << 7, 1 << 11, 1 << 4, 1 << 24, 1 << 31, 1 << 1] {
        let rig = Rig::new();
        let admin = rig.connect(&rig.attempt(SUBSYSTEM, HOST)).unwrap();
        let controller = admin.controller();
        set_cc(controller, Cc(enable().0 | wrong));
        assert!(!controller.status().ready() && controller.status().fatal(), "{wrong:#x}");
        set_cc(controller, Cc(0));
        assert!(!controller.status().fatal());
        set_cc(controller, enable());
        assert!(controller.status().ready());
    }
}

fn with_io_queue(rig: &Rig) -> (Connected, Connected, RemoteQueue, RemoteQueue) {
    let admin = rig.enabled();
    let io = rig.connect(&rig.io_attempt(1, admin.controller())).unwrap();
    let (admin_told, io_told) = (watch(&admin), watch(&io));
    (admin, io, admin_told, io_told)
}

#[test]
fn a_reset_ends_io_queues_and_keeps_the_admin_queue() {
    let rig = Rig::new();
    let (admin, io, admin_told, io_told) = with_io_queue(&rig);
    let controller = Arc::clone(admin.controller());
    assert!(controller.serves_io());
    set_cc(&controller, Cc(0));
    assert!(!controller.serves_io());
    assert_eq!((admin_told.is_ending(), io_told.is_ending()), (false, true));
    assert!(io.lease.closing() && !admin.lease.closing());
    assert!(controller.status().ready(), "commands may still be executing");
    assert!(rig.connect(&rig.io_attempt(2, &controller)).is_err());
    drop(io);
    assert!(!controller.status().ready());
    set_cc(&controller, enable());
    assert!(rig.connect(&rig.io_attempt(1, &controller)).is_ok());
}

#[test]
fn shutdown_completes_when_the_last_io_queue_has_drained() {
    for how in [ShutdownNotification::Normal, ShutdownNotification::Abrupt] {
        let rig = Rig::new();
        let (admin, io, admin_told, io_told) = with_io_queue(&rig);
        let controller = admin.controller();
        set_cc(controller, enable().with_shn(how));
        assert_eq!((admin_told.is_ending(), io_told.is_ending()), (false, true));
        assert_eq!(controller.status().shst(), Some(ShutdownStatus::Occurring));
        drop(io);
        assert_eq!(controller.status().shst(), Some(ShutdownStatus::Complete));
        // A reset starts afresh (section 3.6.2).
        set_cc(controller, Cc(0));
        set_cc(controller, enable());
        assert_eq!(controller.status().shst(), Some(ShutdownStatus::Normal));
    }
}

#[test]
fn io_queues_die_with_their_admin_queue_and_the_controller_after_them() {
    let rig = Rig::new();
    let (admin, io, _, io_told) = with_io_queue(&rig);
    drop(admin);
    assert!(io_told.is_ending());
    assert!(io.lease.closing());
    assert_eq!(rig.target.controllers().len(), 1, "still draining");
    let late = rig.io_attempt(2, io.controller());
    assert_eq!(rig.connect(&late).unwrap_err(), not_now(16, true));
    drop(io);
    assert!(rig.target.controllers().is_empty());
}

#[test]
fn disconnect_is_for_io_queues() {
    let rig = Rig::new();
    let admin = rig.enabled();
    let controller = admin.controller();
    let Outcome::Failed(status) = execute(controller, &disconnect_sqe(4)).0 else { panic!() };
    assert!(status.is(Status::DISCONNECT_INVALID_QUEUE_TYPE));
    assert_eq!(controller.execute_fabrics(1, &disconnect_sqe(4)), Outcome::Disconnect);
    let again = rig.io_attempt(1, controller).command.to_sqe(1);
    let Outcome::Failed(status) = controller.execute_fabrics(1, &again) else { panic!() };
    assert!(status.is(Status::COMMAND_SEQUENCE_ERROR));
}

/// Section 6.3: a Connect that fails adds no entry; a second one on a queue did.
#[test]
fn a_second_connect_fails_and_leaves_no_error_information() {
    let rig = Rig::new();
    let admin = rig.enabled();
    let controller = admin.controller();
    let again = rig.attempt(SUBSYSTEM, HOST).command.to_sqe(1);
    let Outcome::Failed(status) = execute(controller, &again).0 else { panic!() };
    assert!(status.is(Status::COMMAND_SEQUENCE_ERROR) && !status.more());
    assert_eq!(controller.lock().errors.count(), 0);
}

fn expires_at(controller: &Controller) -> u64 {
    controller.keep_alive_deadline().unwrap()
}

#[test]
fn a_silent_host_is_given_up_after_its_timeout_and_traffic_keeps_it() {
    let rig = Rig::new();
    let (admin, _io, admin_told, io_told) = with_io_queue(&rig);
    let controller = admin.controller();
    assert_eq!(expires_at(controller), START + 5 * SECOND);
    assert!(!controller.expired(START + 5 * SECOND - 1));
    controller.touch(START + 3 * SECOND);
    assert!(!controller.expired(START + 5 * SECOND));
    assert!(controller.expired(START + 8 * SECOND));
    assert!(controller.status().fatal());
    assert_eq!((admin_told.is_ending(), io_told.is_ending()), (true, true));
    assert!(!controller.expired(START + 9 * SECOND), "once");
}

#[test]
fn an_association_that_is_never_enabled_ends() {
    let rig = Rig::new();
    let mut attempt = rig.attempt(SUBSYSTEM, HOST);
    attempt.command.kato = 0;
    let admin = rig.connect(&attempt).unwrap();
    let controller = admin.controller();
    controller.touch(START + 100 * SECOND);
    assert_eq!(expires_at(controller), START + 120 * SECOND);
    set_cc(controller, enable());
    // Enabled, and used for nothing: it would be kept for as long as its host's TCP lives.
    controller.touch(START + 110 * SECOND);
    assert_eq!(expires_at(controller), START + 230 * SECOND);
    let queue = rig.connect(&rig.io_attempt(1, controller)).unwrap();
    assert_eq!(controller.keep_alive_deadline(), None, "no KATO, in use");
    drop(queue);
}

#[test]
fn a_queue_closed_before_it_can_be_reached_is_told_at_once() {
    let rig = Rig::new();
    let admin = rig.enabled();
    admin.controller().close_queues();
    let told = watch(&admin);
    assert!(told.is_ending());
}

#[test]
fn a_failed_controller_says_so_and_ends_its_io_queues() {
    let rig = Rig::new();
    let (admin, _io, admin_told, io_told) = with_io_queue(&rig);
    admin.controller().fail();
    assert!(admin.controller().status().fatal() && !admin.controller().serves_io());
    assert_eq!((admin_told.is_ending(), io_told.is_ending()), (false, true));
}

/// A host whose reactor has no more entries for it may try again; another one's connect.
#[test]
fn a_host_cannot_connect_all_the_queue_entries_there_are() {
    let rig = Rig::new();
    let admin = rig.enabled();
    let mut queues = Vec::new();
    let refusal = loop {
        let qid = u16::try_from(queues.len() + 1).unwrap();
        assert!(qid < crate::limits::IO_QUEUES_MAX, "all were connected");
        let mut attempt = rig.io_attempt(qid, admin.controller());
        attempt.command.sqsize = crate::limits::IO_QUEUE_ENTRIES_MAX - 1;
        match rig.connect(&attempt) {
            Ok(queue) => queues.push(queue),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal.status, Status::CONNECT_CONTROLLER_BUSY, "without Do Not Retry");
    let other = rig.enabled_as(SUBSYSTEM, "nqn.2026-11.io.flashloom:other");
    let mut attempt = rig.io_attempt(1, other.controller());
    attempt.command.sqsize = crate::limits::IO_QUEUE_ENTRIES_MAX - 1;
    assert!(rig.connect(&attempt).is_ok());
    let retry = rig.io_attempt(u16::try_from(queues.len() + 1).unwrap(), admin.controller());
    drop(queues);
    assert!(rig.connect(&retry).is_ok());
}

/// 1023 controllers of one address, or of one listed host, kept everybody else out.
#[test]
fn neither_a_host_nor_an_address_takes_all_controllers() {
    use crate::limits::{ADDRESS_CONTROLLERS_MAX, HOST_CONTROLLERS};
    let rig = Rig::new();
    let attempt = rig.attempt(SUBSYSTEM, HOST);
    let mut all: Vec<_> = (0..HOST_CONTROLLERS).map(|_| rig.connect(&attempt).unwrap()).collect();
    let refusal = rig.connect(&attempt).unwrap_err();
    assert_eq!(refusal.status, Status::CONNECT_CONTROLLER_BUSY, "without Do Not Retry");
    let named = |n: usize| rig.attempt(SUBSYSTEM, &format!("nqn.2026-11.io.flashloom:{n}"));
    for n in all.len()..ADDRESS_CONTROLLERS_MAX {
        all.push(rig.connect(&named(n)).unwrap());
    }
    assert_eq!(rig.connect(&named(0)).unwrap_err().status, Status::CONNECT_CONTROLLER_BUSY);
    let mut elsewhere = named(0);
    elsewhere.path.peer = TransportAddress::Tcp("10.9.9.8:50000".parse().unwrap());
    assert!(rig.connect(&elsewhere).is_ok());
    all.pop();
    assert!(rig.connect(&named(0)).is_ok());
}

/// One drive that hung kept a controller of each of 64 connections, and its host from every other namespace.
#[test]
fn controllers_that_a_drive_keeps_are_none_of_the_paths_of_their_host() {
    let rig = Rig::new();
    rig.target.set_host_controllers(2);
    let mut kept = Vec::new();
    for _ in 0..2 * crate::limits::HOST_CONTROLLERS_ENDED {
        let admin = rig.enabled();
        kept.push(rig.connect(&rig.io_attempt(1, admin.controller())).unwrap());
    }
    let refusal = rig.connect(&rig.attempt(SUBSYSTEM, HOST)).unwrap_err();
    assert_eq!(refusal.status, Status::CONNECT_CONTROLLER_BUSY, "bounded all the same");
    kept.pop();
    assert!(rig.connect(&rig.attempt(SUBSYSTEM, HOST)).is_ok());
}
