//! Set Features and Get Features, feature by feature.

use nvme::feature::{GetFeatures, HostBehavior, Select, SetFeatures, Timestamp, capability, fid};
use nvme::status::Status;
use zerocopy::{FromBytes, IntoBytes};

use crate::admin::Outcome;
use crate::controller::Controller;
use crate::rig::{HOST_ID, Rig, SECOND, START, data_of, execute, execute_with, failure, set_cc};
use crate::subsystem::Health;

fn set(fid: u8, nsid: u32, cdw11: u32) -> SetFeatures {
    SetFeatures { fid, save: false, nsid, cdw11, cdw12: 0, uuid_index: 0 }
}

fn get(fid: u8, nsid: u32, cdw11: u32) -> GetFeatures {
    GetFeatures { fid, select: Select::Current, nsid, cdw11, uuid_index: 0 }
}

fn dword(controller: &Controller, command: GetFeatures) -> u32 {
    match execute(controller, &command.to_sqe(1)).0 {
        Outcome::Complete { dw0, dw1: 0 } => dw0,
        other => panic!("{command:?}: {other:?}"),
    }
}

fn done(controller: &Controller, command: SetFeatures) {
    assert_eq!(execute(controller, &command.to_sqe(1)).0, Outcome::DONE, "{command:?}");
}

fn set_refused(controller: &Controller, command: SetFeatures) -> Status {
    failure(controller, command.to_sqe(1), 0)
}

fn get_refused(controller: &Controller, command: GetFeatures) -> Status {
    failure(controller, command.to_sqe(1), 4096)
}

#[test]
fn values_are_kept_and_a_reset_restores_the_defaults() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    for (fid, nsid, value) in [
        (fid::ARBITRATION, 0, 0x0102_0304),
        (fid::POWER_MANAGEMENT, 0, 0x20),
        (fid::TEMPERATURE_THRESHOLD, 0, 350),
        (fid::ERROR_RECOVERY, 1, 7),
        (fid::WRITE_ATOMICITY, 0, 1),
        (fid::ASYNC_EVENT, u32::MAX, 0x11f),
        (fid::RESERVATION_NOTIFICATION_MASK, 1, 0b1110),
    ] {
        let default = dword(controller, get(fid, nsid, 0));
        done(controller, set(fid, nsid, value));
        assert_eq!(dword(controller, get(fid, nsid, 0)), value, "{fid:#x}");
        for select in [Select::Default, Select::Saved] {
            let command = GetFeatures { select, ..get(fid, nsid, 0) };
            assert_eq!(dword(controller, command), default, "{fid:#x}");
        }
        assert_ne!(default, value);
    }
    set_cc(controller, nvme::property::Cc(0));
    set_cc(controller, nvme::property::Cc::enable(nvme::property::CommandSetSelected::Nvm));
    assert_eq!(dword(controller, get(fid::ASYNC_EVENT, 0, 0)), 0);
    assert_eq!(dword(controller, get(fid::RESERVATION_NOTIFICATION_MASK, 1, 0)), 0);
    assert_eq!(dword(controller, get(fid::KEEP_ALIVE_TIMER, 0, 0)), 5000, "of the association");
}

#[test]
fn reserved_bits_and_values_are_refused() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    for (fid, nsid, value) in [
        (fid::ARBITRATION, 0, 1 << 3),
        (fid::POWER_MANAGEMENT, 0, 1),
        (fid::POWER_MANAGEMENT, 0, 1 << 8),
        (fid::TEMPERATURE_THRESHOLD, 0, 1 << 16),
        (fid::TEMPERATURE_THRESHOLD, 0, 2 << 20),
        (fid::TEMPERATURE_THRESHOLD, 0, 1 << 22),
        (fid::ERROR_RECOVERY, 1, 1 << 16),
        (fid::NUMBER_OF_QUEUES, 0, 0xffff),
        (fid::NUMBER_OF_QUEUES, 0, 0xffff_0000),
        (fid::WRITE_ATOMICITY, 0, 2),
        (fid::ASYNC_EVENT, 0, 1 << 9),
        (fid::ASYNC_EVENT, 0, 1 << 31),
        (fid::RESERVATION_NOTIFICATION_MASK, 1, 1),
        (fid::RESERVATION_PERSISTENCE, 1, 2),
    ] {
        let status = set_refused(controller, set(fid, nsid, value));
        assert_eq!(status, Status::INVALID_FIELD, "{fid:#x} {value:#x}");
    }
}

#[test]
fn scope_save_and_unknown_features_are_checked() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let save = SetFeatures { save: true, ..set(fid::ARBITRATION, 0, 0) };
    assert_eq!(set_refused(controller, save), Status::FEATURE_NOT_SAVEABLE);
    let one = set(fid::ARBITRATION, 1, 0);
    assert_eq!(set_refused(controller, one), Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
    for nsid in [0, 2, 4000] {
        let status = Status::INVALID_NAMESPACE_OR_FORMAT;
        assert_eq!(set_refused(controller, set(fid::ERROR_RECOVERY, nsid, 0)), status);
        assert_eq!(get_refused(controller, get(fid::ERROR_RECOVERY, nsid, 0)), status);
    }
    done(controller, set(fid::ERROR_RECOVERY, u32::MAX, 9));
    assert_eq!(dword(controller, get(fid::ERROR_RECOVERY, 1, 0)), 9);
    let fids = [0, fid::LBA_RANGE_TYPE, fid::INTERRUPT_COALESCING, fid::SANITIZE_CONFIG, 0xc0];
    for fid in fids {
        assert_eq!(set_refused(controller, set(fid, 0, 0)), Status::INVALID_FIELD);
        assert_eq!(get_refused(controller, get(fid, 0, 0)), Status::INVALID_FIELD);
    }
    // On for good.
    assert_eq!(dword(controller, get(fid::VOLATILE_WRITE_CACHE, 0, 0)), 1);
    done(controller, set(fid::VOLATILE_WRITE_CACHE, 0, 1));
    let off = set_refused(controller, set(fid::VOLATILE_WRITE_CACHE, 0, 0));
    assert_eq!(off, Status::FEATURE_NOT_CHANGEABLE);
    let uuid = GetFeatures { uuid_index: 1, ..get(fid::ARBITRATION, 0, 0) };
    assert_eq!(get_refused(controller, uuid), Status::INVALID_FIELD);
}

#[test]
fn capabilities_say_what_can_be_changed() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let of = |fid, nsid| {
        let select = Select::SupportedCapabilities;
        dword(controller, GetFeatures { select, ..get(fid, nsid, 0) })
    };
    assert_eq!(of(fid::ASYNC_EVENT, 0), capability::CHANGEABLE);
    assert_eq!(of(fid::ERROR_RECOVERY, 1), capability::CHANGEABLE | capability::NAMESPACE_SPECIFIC);
    assert_eq!(of(fid::HOST_IDENTIFIER, 0), 0);
    assert_eq!(of(fid::COMMAND_SET_PROFILE, 0), 0);
    let other = set(fid::COMMAND_SET_PROFILE, 0, 1);
    assert_eq!(set_refused(controller, other), Status::FEATURE_NOT_CHANGEABLE);
}

#[test]
fn queues_are_granted_as_asked_until_the_first_is_connected() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let ask = |value| execute(controller, &set(fid::NUMBER_OF_QUEUES, 0, value).to_sqe(1)).0;
    assert_eq!(ask(0x01ff_01ff), Outcome::Complete { dw0: 0x007f_007f, dw1: 0 });
    assert_eq!(ask(0x0003_0001), Outcome::Complete { dw0: 0x0001_0001, dw1: 0 });
    assert_eq!(dword(controller, get(fid::NUMBER_OF_QUEUES, 0, 0)), 0x0001_0001);
    assert!(rig.connect(&rig.io_attempt(3, controller)).is_err());
    assert!(rig.connect(&rig.io_attempt(2, controller)).is_ok());
    let late = set(fid::NUMBER_OF_QUEUES, 0, 0);
    assert_eq!(set_refused(controller, late), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn the_keep_alive_timer_can_be_changed_within_bounds() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    done(controller, set(fid::KEEP_ALIVE_TIMER, 0, 10_001));
    assert_eq!(dword(controller, get(fid::KEEP_ALIVE_TIMER, 0, 0)), 11_000);
    assert_eq!(controller.keep_alive_deadline(), Some(START + 11 * SECOND));
    let long = set(fid::KEEP_ALIVE_TIMER, 0, u32::MAX);
    assert_eq!(set_refused(controller, long), Status::KEEP_ALIVE_TIMEOUT_INVALID);
    done(controller, set(fid::KEEP_ALIVE_TIMER, 0, 0));
    assert_eq!(controller.keep_alive_deadline(), Some(START + 120 * SECOND));
}

#[test]
fn the_timestamp_runs_on_from_what_the_host_set() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let command = get(fid::TIMESTAMP, 0, 0).to_sqe(1);
    let read = || Timestamp::read_from_bytes(&data_of(controller, command, 8)).unwrap();
    controller.touch(START + 2 * SECOND);
    assert_eq!((read().get(), read().attributes), (2000, Timestamp::ORIGIN_RESET));
    let stamp = Timestamp::new(1_790_000_000_000, 0);
    let sqe = set(fid::TIMESTAMP, 0, 0).to_sqe(1);
    assert_eq!(execute_with(controller, &sqe, stamp.as_bytes()).0, Outcome::DONE);
    controller.touch(START + 5 * SECOND);
    assert_eq!((read().get(), read().attributes), (1_790_000_003_000, Timestamp::ORIGIN_SET));
    let Outcome::Failed(status) = execute_with(controller, &sqe, &[0; 7]).0 else { panic!() };
    assert!(status.is(Status::DATA_SGL_LENGTH_INVALID));
}

#[test]
fn the_host_identifier_is_the_one_of_connect() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let command = get(fid::HOST_IDENTIFIER, 0, 1).to_sqe(1);
    assert_eq!(data_of(controller, command, 16), HOST_ID);
    let short = get(fid::HOST_IDENTIFIER, 0, 0);
    assert_eq!(get_refused(controller, short), Status::INVALID_FIELD);
    let change = set(fid::HOST_IDENTIFIER, 0, 1);
    assert_eq!(set_refused(controller, change), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn host_behaviour_enables_copy_formats_that_exist() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let sqe = set(fid::HOST_BEHAVIOR, 0, 0).to_sqe(1);
    let mut behavior = HostBehavior { acre: 1, cdfe: 0b1100.into(), ..HostBehavior::default() };
    assert_eq!(execute_with(controller, &sqe, behavior.as_bytes()).0, Outcome::DONE);
    assert_eq!(controller.copy_formats_enabled(), 0b1100);
    let read = data_of(controller, get(fid::HOST_BEHAVIOR, 0, 0).to_sqe(1), 512);
    assert_eq!(read, behavior.as_bytes());
    let refused = |behavior: &HostBehavior| {
        let Outcome::Failed(status) = execute_with(controller, &sqe, behavior.as_bytes()).0 else {
            panic!()
        };
        assert!(status.is(Status::INVALID_FIELD));
    };
    behavior.cdfe = (1 << 4).into();
    refused(&behavior);
    behavior.cdfe = 0.into();
    behavior.acre = 2;
    refused(&behavior);
    let Outcome::Failed(status) = execute_with(controller, &sqe, &[0; 511]).0 else { panic!() };
    assert!(status.is(Status::DATA_SGL_LENGTH_INVALID));
}

#[test]
fn a_threshold_already_exceeded_is_told_at_once() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let health = Health { temperature: 330, ..Health::default() };
    rig.target.set_health(controller.subsystem_nqn(), health).unwrap();
    done(controller, set(fid::ASYNC_EVENT, 0, 0xff));
    let aer = nvme::sqe::Sqe::new(nvme::opcode::admin::ASYNC_EVENT_REQUEST, 3, 0);
    assert_eq!(execute(controller, &aer).0, Outcome::AsyncEvent);
    done(controller, set(fid::TEMPERATURE_THRESHOLD, 0, 340));
    assert_eq!(controller.next_event(), None);
    done(controller, set(fid::TEMPERATURE_THRESHOLD, 0, 320));
    assert_eq!(controller.next_event().map(|cqe| cqe.dw0.get()), Some(0x0002_0101));
}

#[test]
fn persistence_of_reservations_cannot_be_promised_where_nothing_keeps_them() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    assert_eq!(dword(controller, get(fid::RESERVATION_PERSISTENCE, 1, 0)), 0);
    let outcome = execute(controller, &set(fid::RESERVATION_PERSISTENCE, 1, 0).to_sqe(1)).0;
    assert_eq!(outcome, Outcome::KeepReservations { nsid: 1 });
    let promise = set(fid::RESERVATION_PERSISTENCE, 1, 1);
    assert_eq!(set_refused(controller, promise), Status::INVALID_FIELD);
}
