//! Asymmetric Namespace Access: what controllers of each listener say, take and refuse.

use std::thread;

use fabric::TransportAddress;
use nvme::ana::{RETURN_GROUPS_ONLY, State, parse_page};
use nvme::feature::{GetFeatures, Select, SetFeatures, fid};
use nvme::identify::{Cns, Identify, IdentifyController, IdentifyNamespace, bits};
use nvme::log::{GetLogPage, LogOffset, lid};
use nvme::property::{Cc, CommandSetSelected};
use nvme::status::Status;
use zerocopy::FromBytes;

use super::aer;
use crate::admin::Outcome;
use crate::controller::Controller;
use crate::listener::{ListenerId, ListenerInfo};
use crate::namespace::{Backend, NamespaceSpec};
use crate::registry::ManageError;
use crate::rig::{HOST, Rig, SUBSYSTEM, backend, data_of, execute, failure, nqn, set_cc};

const EVERY_STATE: [State; 5] = [
    State::Optimized,
    State::NonOptimized,
    State::Inaccessible,
    State::PersistentLoss,
    State::Change,
];

fn log(controller: &Controller, lsp: u8) -> Vec<u8> {
    data_of(controller, GetLogPage { lsp, ..GetLogPage::new(lid::ANA, 0, 4160) }.to_sqe(1), 4160)
}

/// Change count, state and namespaces of the group of those that are there, and the namespaces of the other one.
fn groups(controller: &Controller) -> (u64, State, Vec<u32>, Vec<u32>) {
    let (changes, groups) = parse_page(&log(controller, 0)).unwrap();
    let [group, absent] = groups.try_into().unwrap();
    assert_eq!((group.id, group.change_count), (1, changes));
    assert_eq!((absent.id, absent.change_count), (2, changes));
    assert_eq!(absent.state, State::Inaccessible);
    (changes, group.state, group.nsids, absent.nsids)
}

/// The same where all are there.
fn group(controller: &Controller) -> (u64, State, Vec<u32>) {
    let (changes, state, nsids, absent) = groups(controller);
    assert!(absent.is_empty());
    (changes, state, nsids)
}

fn identified(controller: &Controller) -> IdentifyNamespace {
    let page = data_of(controller, Identify::new(Cns::Namespace, 1).to_sqe(1), 4096);
    IdentifyNamespace::read_from_bytes(&page).unwrap()
}

/// Has the controller tell of ANA changes by a request.
fn listen(controller: &Controller) {
    let sqe = SetFeatures {
        fid: fid::ASYNC_EVENT,
        save: false,
        nsid: 0,
        cdw11: bits::OAES_ANA_CHANGE,
        cdw12: 0,
        uuid_index: 0,
    };
    assert_eq!(execute(controller, &sqe.to_sqe(1)).0, Outcome::DONE);
    assert_eq!(execute(controller, &aer(90)).0, Outcome::AsyncEvent);
}

#[test]
fn the_controller_tells_what_it_can_say_of_access() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let page = data_of(controller, Identify::new(Cns::Controller, 0).to_sqe(1), 4096);
    let id = IdentifyController::read_from_bytes(&page).unwrap();
    assert_eq!(id.cmic & bits::CMIC_ANA, bits::CMIC_ANA);
    assert_eq!(id.oaes.get() & bits::OAES_ANA_CHANGE, bits::OAES_ANA_CHANGE);
    assert_eq!((id.anagrpmax.get(), id.nanagrpid.get()), (2, 2));
    assert!(id.anatt > 0 && id.anacap & 0x1f == 0x1f);
    let namespace = identified(controller);
    assert_eq!((namespace.anagrpid.get(), namespace.nmic & 1), (1, 1));
}

#[test]
fn the_log_page_follows_state_and_namespaces() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    assert_eq!(group(controller), (0, State::Optimized, vec![1]));
    drop(rig.target.set_listener_ana(rig.path.listener, State::NonOptimized).unwrap());
    assert_eq!(group(controller), (1, State::NonOptimized, vec![1]));
    let spec = NamespaceSpec { nsid: Some(7), ..NamespaceSpec::new(backend(1 << 20), 512) };
    rig.target.add_namespace(&nqn(SUBSYSTEM), &spec).unwrap();
    assert_eq!(group(controller), (2, State::NonOptimized, vec![1, 7]));
    assert_eq!(group(controller).0, 2);
    // Groups only, in the form of the page that has no identifiers of namespaces.
    let (_, groups) = parse_page(&log(controller, RETURN_GROUPS_ONLY)).unwrap();
    assert!(groups[0].nsids.is_empty());
    let reserved = GetLogPage { lsp: 2, ..GetLogPage::new(lid::ANA, 0, 64) }.to_sqe(1);
    assert_eq!(failure(controller, reserved, 64), Status::INVALID_FIELD);
    // A Controller Level Reset starts the count anew, and leaves the state.
    set_cc(controller, Cc::default());
    set_cc(controller, Cc::enable(CommandSetSelected::Nvm));
    assert_eq!(group(controller), (0, State::NonOptimized, vec![1, 7]));
}

/// A pool's drives were seconds late when its machine started: the namespaces on it were not listed, and hosts
/// removed the block devices, with mounted file systems on them, for good. An absent namespace is listed as it
/// was, refuses in words that hosts wait on, and tells them when it is there.
#[test]
fn a_namespace_that_is_not_there_yet_is_listed_and_waited_for() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let uuid = [9; 16];
    let spec = NamespaceSpec {
        nsid: Some(7),
        uuid: Some(uuid),
        ..NamespaceSpec::new(Backend::Absent { bytes: 1 << 20 }, 512)
    };
    rig.target.add_namespace(&nqn(SUBSYSTEM), &spec).unwrap();
    listen(controller);
    let before = groups(controller);
    assert_eq!((before.1, before.2, before.3), (State::Optimized, vec![1], vec![7]));
    let list = data_of(controller, Identify::new(Cns::ActiveNamespaces, 0).to_sqe(1), 4096);
    assert_eq!(list[..12], [1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    let identify = || {
        let page = data_of(controller, Identify::new(Cns::Namespace, 7).to_sqe(1), 4096);
        IdentifyNamespace::read_from_bytes(&page).unwrap()
    };
    let waiting = identify();
    assert_eq!((waiting.nsze.get(), waiting.ncap.get(), waiting.nuse.get()), (2048, 2048, 0));
    assert_eq!(waiting.anagrpid.get(), 2);
    assert_eq!(identified(controller).anagrpid.get(), 1);
    let get = |nsid| {
        let fid = fid::ERROR_RECOVERY;
        GetFeatures { fid, select: Select::Current, nsid, cdw11: 0, uuid_index: 0 }.to_sqe(1)
    };
    assert_eq!(execute(controller, &get(1)).0, Outcome::DONE);
    let refused = Outcome::Failed(Status::ANA_INACCESSIBLE.with_more());
    assert_eq!(execute(controller, &get(7)).0, refused);

    let name = nqn(SUBSYSTEM);
    let small = rig.target.provide_namespace(&name, 7, backend(1 << 19), 1 << 20);
    assert!(matches!(small, Err(ManageError::Invalid { .. })));
    rig.target.provide_namespace(&name, 7, backend(1 << 20), 1 << 20).unwrap();
    assert_eq!(controller.next_event().unwrap().dw0.get(), 0x000c_0302);
    let after = groups(controller);
    assert_eq!((after.1, after.2, after.3), (State::Optimized, vec![1, 7], vec![]));
    assert!(after.0 > before.0, "the page changed");
    let there = identify();
    assert_eq!((there.nguid, there.nsze), (waiting.nguid, waiting.nsze));
    assert_eq!(there.anagrpid.get(), 1);
    assert_eq!(execute(controller, &get(7)).0, Outcome::DONE);
    let again = rig.target.provide_namespace(&name, 7, backend(1 << 20), 1 << 20);
    assert_eq!(again, Err(ManageError::NamespaceExists(name, 7)));
}

#[test]
fn each_listener_has_a_state_of_its_own() {
    let rig = Rig::new();
    let local = "10.1.2.4:4420".parse().unwrap();
    let info = ListenerInfo {
        ana: State::Inaccessible,
        ..ListenerInfo::new(TransportAddress::Tcp(local))
    };
    let other = rig.target.add_listener(info).unwrap();
    let first = rig.enabled();
    let mut attempt = rig.attempt(SUBSYSTEM, HOST);
    attempt.path = Rig::path(other, local);
    let second = rig.connect(&attempt).unwrap();
    set_cc(second.controller(), Cc::enable(CommandSetSelected::Nvm));
    let states = || [&first, &second].map(|connected| group(connected.controller()).1);
    assert_eq!(states(), [State::Optimized, State::Inaccessible]);
    drop(rig.target.set_listener_ana(rig.path.listener, State::Change).unwrap());
    drop(rig.target.set_listener_ana(other, State::Optimized).unwrap());
    assert_eq!(states(), [State::Change, State::Optimized]);
    // Controllers outlive their listener, and keep its last state.
    rig.target.remove_listener(other).unwrap();
    assert_eq!(states(), [State::Change, State::Optimized]);
    let gone = rig.target.set_listener_ana(ListenerId(99), State::Change);
    assert_eq!(gone.err(), Some(ManageError::NoListener));
}

#[test]
fn io_and_features_of_namespaces_are_refused_with_the_states_status() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let get = |fid, select| GetFeatures { fid, select, nsid: 1, cdw11: 0, uuid_index: 0 }.to_sqe(1);
    for state in EVERY_STATE {
        drop(rig.target.set_listener_ana(rig.path.listener, state).unwrap());
        let refused = state.refusal();
        assert_eq!(controller.permit_io().err(), refused, "{state:?}");
        assert!(controller.serves_io());
        for feature in
            [fid::ERROR_RECOVERY, fid::RESERVATION_NOTIFICATION_MASK, fid::RESERVATION_PERSISTENCE]
        {
            let outcome = execute(controller, &get(feature, Select::Current)).0;
            let expected = refused.map(|status| Outcome::Failed(status.with_more()));
            assert_eq!(outcome, expected.unwrap_or(Outcome::DONE), "{state:?}");
            let set = SetFeatures {
                fid: feature,
                save: false,
                nsid: 1,
                cdw11: 0,
                cdw12: 0,
                uuid_index: 0,
            };
            let outcome = execute(controller, &set.to_sqe(1)).0;
            assert_eq!(matches!(outcome, Outcome::Failed(_)), refused.is_some(), "{state:?}");
        }
        // What is the controller's own works in every state.
        let own = execute(controller, &get(fid::KEEP_ALIVE_TIMER, Select::Current)).0;
        assert!(matches!(own, Outcome::Complete { .. }));
        let what = execute(controller, &get(fid::ERROR_RECOVERY, Select::SupportedCapabilities)).0;
        assert!(matches!(what, Outcome::Complete { .. }));
        let namespace = identified(controller);
        let blind = matches!(state, State::Inaccessible | State::PersistentLoss);
        assert_eq!(namespace.nsze.get(), 2048);
        assert_eq!(namespace.nuse.get() == 0, blind, "{state:?}");
    }
}

#[test]
fn a_controller_that_is_not_ready_refuses_io_whatever_the_state() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    set_cc(controller, Cc::default());
    drop(rig.target.set_listener_ana(rig.path.listener, State::NonOptimized).unwrap());
    assert_eq!(controller.permit_io(), Err(Status::COMMAND_SEQUENCE_ERROR));
}

#[test]
fn hosts_are_told_of_a_change_once_until_they_read_the_page() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let set = |state| drop(rig.target.set_listener_ana(rig.path.listener, state).unwrap());
    // Not asked for, not told; who has not read the page when it asks is told then.
    assert_eq!(execute(controller, &aer(89)).0, Outcome::AsyncEvent);
    set(State::NonOptimized);
    assert!(controller.next_event().is_none());
    listen(controller);
    assert_eq!(controller.next_event().unwrap().dw0.get(), 0x000c_0302);
    assert_eq!(execute(controller, &aer(91)).0, Outcome::AsyncEvent);
    group(controller);
    set(State::NonOptimized);
    assert!(controller.next_event().is_none(), "the same state is no change");
    set(State::Inaccessible);
    // Notice, ANA change (03h), log page 0Ch.
    assert_eq!(controller.next_event().unwrap().dw0.get(), 0x000c_0302);
    set(State::Optimized);
    assert!(controller.next_event().is_none());
    let kept = GetLogPage { retain_event: true, ..GetLogPage::new(lid::ANA, 0, 64) }.to_sqe(1);
    data_of(controller, kept, 64);
    set(State::Change);
    assert!(controller.next_event().is_none());
    assert_eq!(group(controller).1, State::Change);
    set(State::Optimized);
    assert!(controller.next_event().is_some());
}

/// Hosts read the page while it changes: a change that came after it was made, and before the host had it, was
/// acknowledged with it, and the host never told.
#[test]
fn a_change_beside_a_read_of_the_log_page_is_in_it_or_told_of() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    listen(controller);
    let states = [State::Optimized, State::NonOptimized];
    for round in 1..3000 {
        let state = states[round % 2];
        let mut seen = thread::scope(|scope| {
            let change = scope.spawn(|| {
                drop(rig.target.set_listener_ana(rig.path.listener, state).unwrap());
            });
            let mut seen = group(controller).1;
            while !change.is_finished() {
                seen = group(controller).1;
            }
            seen
        });
        if controller.next_event().is_some() {
            assert_eq!(execute(controller, &aer(90)).0, Outcome::AsyncEvent);
            seen = group(controller).1;
        }
        assert_eq!(seen, state, "round {round}");
    }
}

/// A read that is refused acknowledges nothing.
#[test]
fn a_read_behind_the_end_of_the_log_page_acknowledges_nothing() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    listen(controller);
    drop(rig.target.set_listener_ana(rig.path.listener, State::NonOptimized).unwrap());
    let offset = LogOffset::Bytes(1 << 20);
    let behind = GetLogPage { offset, ..GetLogPage::new(lid::ANA, 0, 64) }.to_sqe(1);
    assert_eq!(failure(controller, behind, 64), Status::INVALID_FIELD);
    assert_eq!(controller.next_event().unwrap().dw0.get(), 0x000c_0302);
}
