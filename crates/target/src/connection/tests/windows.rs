//! Direct write windows over the wire: each status, and each of what ends one.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use nvme::ana::State;
use nvme::fabrics::{PropertyGet, PropertySet, PropertySize};
use nvme::log::{EffectsLog, ErrorEntry, GetLogPage, lid};
use nvme::opcode::{admin as admin_opcode, io as io_opcode};
use nvme::property::{Csts, offset};
use nvme::refusal::Location;
use nvme::sqe::{Fused, Sgl, Sqe};
use nvme::status::Status;
use nvme::window::{Fabric, WindowEnd, WindowReceive};
use window::Grant;
use zerocopy::FromBytes;

use super::{add_volume, until_empty, with_target};
use crate::limits::WINDOW_GRANTS_AT_ONCE;
use crate::registry::{Draining, Target};
use crate::rig::{HOST, SUBSYSTEM, nqn};
use crate::testing::peer::{Guest, PLAIN, Peer, Seen, admin, write};
use crate::windows::Refused;
use crate::windows::stub::Stub;

const OTHER: Guest =
    Guest { subsystem: SUBSYSTEM, host: "nqn.2026-11.io.flashloom:other", id: [8; 16], kato: 0 };

fn receive_sqe(nsid: u32) -> Sqe {
    let (fabric, ring_bytes) = (Fabric::Shm, Some(1 << 20));
    let asked = WindowReceive { nsid, fabric, ring_bytes, flushes: false };
    Sqe { dptr: Sgl::transport(512), ..asked.to_sqe(7) }
}

/// What a command on the admin queue that returns data is answered with.
async fn answer(peer: &mut Peer, sqe: &Sqe) -> Result<Vec<u8>, Status> {
    peer.command(sqe, &[]).await;
    match peer.next().await {
        Seen::Data { bytes, .. } => Ok(bytes),
        Seen::Response(cqe) => Err(cqe.status()),
        other => panic!("{other:?}"),
    }
}

async fn receive(peer: &mut Peer) -> Result<Grant, Status> {
    answer(peer, &receive_sqe(2)).await.map(|bytes| Grant::decode(&bytes).expect("a grant"))
}

async fn end(peer: &mut Peer, nsid: u32, number: u32) -> Status {
    peer.command(&WindowEnd { nsid, number }.to_sqe(8), &[]).await;
    peer.response().await.status()
}

/// The parameter that the newest entry of the error log says was at fault.
async fn at_fault(peer: &mut Peer) -> u16 {
    let sqe = GetLogPage::new(lid::ERROR_INFORMATION, u32::MAX, 64).to_sqe(9);
    let page = answer(peer, &Sqe { dptr: Sgl::transport(64), ..sqe }).await.unwrap();
    ErrorEntry::read_from_bytes(&page).unwrap().location.get()
}

/// Serves a volume as namespace 2 of a target that grants windows.
fn with_windows<F>(test: impl FnOnce(SocketAddr, Arc<Target>, Arc<Stub>) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    with_target(|address, target| async move {
        let pool = add_volume(&target).await;
        let stub = Arc::<Stub>::default();
        target.set_windows(Arc::clone(&stub) as Arc<dyn crate::windows::Windows>);
        test(address, target, stub).await;
        pool.close().await.unwrap();
    });
}

/// Whether it is done by now.
async fn is_done(draining: &Draining) -> bool {
    let mut done = pin!(draining.done());
    poll_fn(|cx| Poll::Ready(done.as_mut().poll(cx).is_ready())).await
}

#[test]
fn a_window_is_granted_and_given_back() {
    with_windows(|address, _, stub| async move {
        let (mut mine, _) = admin(address).await;
        let grant = receive(&mut mine).await.unwrap();
        assert_eq!((grant.number, grant.token, stub.standing()), (1, [9; 16], Some(1)));
        let (fabric, ring_bytes) = (Fabric::Shm, None);
        let whatever = WindowReceive { nsid: 2, fabric, ring_bytes, flushes: false }.to_sqe(7);
        let again =
            answer(&mut mine, &Sqe { dptr: Sgl::transport(512), ..whatever }).await.unwrap();
        assert_eq!(Grant::decode(&again).unwrap().number, 2, "in its place");
        assert_eq!(stub.asked(), [Some(1 << 20), None]);
        assert_eq!(end(&mut mine, 2, 1).await, Status::SUCCESS, "there is no such window any more");
        assert_eq!(stub.standing(), Some(2));
        stub.hold(true);
        mine.command(&WindowEnd { nsid: 2, number: 2 }.to_sqe(8), &[]).await;
        mine.command(&Sqe::new(admin_opcode::KEEP_ALIVE, 3, 0), &[]).await;
        assert_eq!(mine.response().await.cid.get(), 3, "the other waits for the end");
        stub.hold(false);
        let ended = mine.response().await;
        assert_eq!((ended.cid.get(), ended.status()), (8, Status::SUCCESS));
        assert_eq!(stub.standing(), None);
        let sqe = GetLogPage::new(lid::EFFECTS, 0, 4096).to_sqe(9);
        let page = answer(&mut mine, &Sqe { dptr: Sgl::transport(4096), ..sqe }).await.unwrap();
        let effects = EffectsLog::read_from_bytes(&page).unwrap();
        for opcode in [admin_opcode::WINDOW_RECEIVE, admin_opcode::WINDOW_END] {
            assert_eq!(effects.acs[usize::from(opcode)].get() & 1, 1, "{opcode:#x}");
        }
    });
}

/// It has no address by which RDMA leads here.
#[test]
fn who_came_by_tcp_is_granted_no_window_by_rdma() {
    with_windows(|address, _, stub| async move {
        let (mut mine, _) = admin(address).await;
        let (fabric, ring_bytes) = (Fabric::Rdma, None);
        let asked = WindowReceive { nsid: 2, fabric, ring_bytes, flushes: false }.to_sqe(7);
        let asked = Sqe { dptr: Sgl::transport(512), ..asked };
        let status = answer(&mut mine, &asked).await.unwrap_err();
        assert!(status.is(Status::INVALID_FIELD));
        assert_eq!(at_fault(&mut mine).await, 44, "dword 11");
        assert_eq!((stub.asked(), stub.standing()), (vec![], None));
    });
}

#[test]
fn a_target_without_windows_has_no_such_commands() {
    with_target(|address, target| async move {
        let pool = add_volume(&target).await;
        let (mut mine, _) = admin(address).await;
        let status = receive(&mut mine).await.unwrap_err();
        assert!(status.is(Status::INVALID_OPCODE) && status.dnr());
        assert!(end(&mut mine, 2, 1).await.is(Status::INVALID_OPCODE));
        let discovery = Guest { subsystem: nvme::nqn::DISCOVERY, ..Guest::default() };
        target.set_windows(Arc::<Stub>::default());
        let (mut other, _) = discovery.admin(address).await;
        assert!(receive(&mut other).await.unwrap_err().is(Status::INVALID_OPCODE));
        pool.close().await.unwrap();
    });
}

#[test]
fn what_cannot_be_asked_is_refused_and_the_field_named() {
    with_windows(|address, _, stub| async move {
        let (mut mine, _) = admin(address).await;
        let good = receive_sqe(2);
        let at = |dword| Location::dword(dword, 0).to_field();
        let none = ErrorEntry::NONE;
        let units = |units: u32| Sqe { cdw12: units.into(), ..good };
        for (sqe, status, location) in [
            (Sqe { cdw10: 128.into(), ..good }, Status::INVALID_FIELD, at(10)),
            (Sqe { cdw11: 0.into(), ..good }, Status::INVALID_FIELD, at(11)),
            (Sqe { cdw11: 2.into(), ..good }, Status::INVALID_FIELD, at(11)),
            (units(63), Status::INVALID_FIELD, at(12)),
            (units((64 << 20) / 4096 + 1), Status::INVALID_FIELD, at(12)),
            (Sqe { dptr: Sgl::transport(508), ..good }, Status::DATA_SGL_LENGTH_INVALID, at(8)),
            (receive_sqe(0), Status::INVALID_NAMESPACE_OR_FORMAT, at(1)),
            (receive_sqe(u32::MAX), Status::INVALID_NAMESPACE_OR_FORMAT, at(1)),
            (receive_sqe(3), Status::INVALID_FIELD, at(1)),
            // In memory, which has no log.
            (receive_sqe(1), Status::NO_WINDOW, none),
        ] {
            let refused = answer(&mut mine, &sqe).await.unwrap_err();
            assert!(refused.is(status) && refused.dnr(), "{sqe:?}: {refused:?}");
            assert_eq!(at_fault(&mut mine).await, location, "{sqe:?}");
        }
        assert!(end(&mut mine, 0, 1).await.is(Status::INVALID_NAMESPACE_OR_FORMAT));
        assert!(end(&mut mine, 3, 1).await.is(Status::INVALID_FIELD));
        assert!(stub.asked().is_empty());
        for (refuse, status, is_final) in [
            (Refused::Never, Status::NO_WINDOW, true),
            (Refused::Busy, Status::WINDOW_BUSY, false),
            (Refused::RingBytes, Status::INVALID_FIELD, true),
            (Refused::Failed, Status::INTERNAL_ERROR, false),
        ] {
            stub.refuse(Some(refuse));
            let refused = receive(&mut mine).await.unwrap_err();
            assert!(refused.is(status) && refused.dnr() == is_final, "{refused:?}");
            assert!(refused.more(), "{refused:?}");
        }
    });
}

#[test]
fn who_asks_for_windows_without_end_is_told_when_to_ask_again() {
    with_windows(|address, _, stub| async move {
        let (mut mine, _) = admin(address).await;
        let mut set = Sqe::new(admin_opcode::SET_FEATURES, 5, 0);
        set.cdw10 = u32::from(nvme::feature::fid::HOST_BEHAVIOR).into();
        set.dptr = Sgl::in_capsule(0, 512);
        let mut behavior = [0; 512];
        for delay in [0, 1] {
            behavior[0] = delay;
            mine.command(&set, &behavior).await;
            assert_eq!(mine.response().await.status(), Status::SUCCESS);
            for _ in stub.asked().len()..WINDOW_GRANTS_AT_ONCE {
                receive(&mut mine).await.unwrap();
            }
            let refused = receive(&mut mine).await.unwrap_err();
            assert!(refused.is(Status::WINDOW_BUSY) && !refused.dnr(), "{refused:?}");
            assert_eq!(refused.retry_delay(), delay.into(), "CRDT1: {refused:?}");
        }
        assert_eq!(stub.asked().len(), WINDOW_GRANTS_AT_ONCE);
    });
}

#[test]
fn who_may_not_write_has_no_window() {
    with_windows(|address, target, stub| async move {
        let (mut mine, _) = admin(address).await;
        let (mut other, cntlid) = OTHER.admin(address).await;
        let mut queue = OTHER.io(address, cntlid, 1, PLAIN, 32).await;
        reserve(&mut queue).await;
        let refused = receive(&mut mine).await.unwrap_err();
        assert!(refused.is(Status::RESERVATION_CONFLICT) && refused.dnr(), "{refused:?}");
        drop(target.set_write_protected(&nqn(SUBSYSTEM), 2, true).unwrap());
        let refused = receive(&mut mine).await.unwrap_err();
        assert!(refused.is(Status::RESERVATION_CONFLICT), "that comes first: {refused:?}");
        let refused = receive(&mut other).await.unwrap_err();
        assert!(refused.is(Status::NAMESPACE_IS_WRITE_PROTECTED) && refused.dnr());
        let listener = target.controllers()[0].path().listener;
        drop(target.set_listener_ana(listener, State::Inaccessible).unwrap());
        assert!(receive(&mut other).await.unwrap_err().is(Status::ANA_INACCESSIBLE));
        assert!(stub.asked().is_empty());
    });
}

#[test]
fn another_host_has_it_when_the_first_ones_controller_has_ended() {
    with_windows(|address, target, stub| async move {
        let (mut mine, _) = admin(address).await;
        let (mut other, _) = OTHER.admin(address).await;
        receive(&mut mine).await.unwrap();
        let busy = receive(&mut other).await.unwrap_err();
        assert!(busy.is(Status::WINDOW_BUSY) && !busy.dnr());
        assert!(end(&mut other, 2, 1).await.is(Status::WINDOW_BUSY));
        assert_eq!(stub.standing(), Some(1));
        drop(mine);
        while target.controllers().len() > 1 {
            reactor::yield_now().await;
        }
        assert_eq!((stub.ended(), stub.standing()), (vec![1], None));
        assert_eq!(receive(&mut other).await.unwrap().number, 2);
        drop(other);
        until_empty(&target).await;
    });
}

/// A host that lost its window's connection resets the controller, and takes CSTS.RDY = 0 for proof that nothing it wrote
/// arrives any more.
#[test]
fn a_reset_is_complete_when_the_controllers_window_has_ended() {
    with_windows(|address, target, stub| async move {
        let (mut mine, _) = admin(address).await;
        receive(&mut mine).await.unwrap();
        stub.hold(true);
        let reset = PropertySet { offset: offset::CC, size: PropertySize::Four, value: 0 };
        mine.command(&reset.to_sqe(1), &[]).await;
        assert_eq!(mine.response().await.status(), Status::SUCCESS);
        for is_ready in [true, false] {
            let get = PropertyGet { offset: offset::CSTS, size: PropertySize::Four };
            mine.command(&get.to_sqe(2), &[]).await;
            let csts = Csts(mine.response().await.dw0.get());
            assert_eq!(csts.ready(), is_ready);
            stub.hold(false);
        }
        assert_eq!((stub.ended(), stub.standing()), (vec![1], None));
        drop(mine);
        until_empty(&target).await;
    });
}

#[test]
fn a_host_that_is_silent_for_too_long_or_resets_its_controller_has_none() {
    with_windows(|address, target, stub| async move {
        let (mut mine, _) = Guest { kato: 10_000, ..Guest::default() }.admin(address).await;
        receive(&mut mine).await.unwrap();
        let reset = PropertySet { offset: offset::CC, size: PropertySize::Four, value: 0 };
        mine.command(&reset.to_sqe(1), &[]).await;
        assert_eq!(mine.response().await.status(), Status::SUCCESS);
        assert_eq!((stub.ended(), stub.standing()), (vec![1], None));
        let (mut mine, _) = Guest { kato: 10_000, ..OTHER }.admin(address).await;
        receive(&mut mine).await.unwrap();
        let controllers = target.controllers();
        assert!(controllers.iter().any(|one| one.expired(reactor::now() + 1_000_000_000_000)));
        for controller in controllers {
            controller.close_queues();
        }
        assert_eq!((stub.ended(), stub.standing()), (vec![1, 2], None), "at once");
        until_empty(&target).await;
    });
}

/// Registers as key 7, and reserves.
async fn reserve(queue: &mut Peer) {
    for (opcode, cdw10, first, second) in
        [(io_opcode::RESERVATION_REGISTER, 0, 0, 7), (io_opcode::RESERVATION_ACQUIRE, 1 << 8, 7, 0)]
    {
        let (sqe, keys) = reservation(opcode, cdw10, first, second);
        queue.command(&sqe, &keys).await;
        assert_eq!(queue.response().await.status(), Status::SUCCESS);
    }
}

fn reservation(opcode: u8, cdw10: u32, first: u64, second: u64) -> (Sqe, Vec<u8>) {
    let keys = [first.to_le_bytes(), second.to_le_bytes()].concat();
    let dptr = Sgl::in_capsule(0, 16);
    (Sqe { cdw10: cdw10.into(), dptr, ..Sqe::new(opcode, 5, 2) }, keys)
}

#[test]
fn a_reservation_is_made_when_the_window_has_ended_and_none_is_granted_meanwhile() {
    with_windows(|address, _, stub| async move {
        let (mut mine, _) = admin(address).await;
        let (_other, cntlid) = OTHER.admin(address).await;
        let mut queue = OTHER.io(address, cntlid, 1, PLAIN, 32).await;
        receive(&mut mine).await.unwrap();
        // What is refused ends nothing.
        let (sqe, keys) = reservation(io_opcode::RESERVATION_ACQUIRE, 1 << 8, 7, 0);
        queue.command(&sqe, &keys).await;
        assert!(queue.response().await.status().is(Status::RESERVATION_CONFLICT));
        assert_eq!(stub.standing(), Some(1));
        stub.hold(true);
        let (sqe, keys) = reservation(io_opcode::RESERVATION_REGISTER, 0, 0, 7);
        queue.command(&sqe, &keys).await;
        queue.command(&Sqe::new(io_opcode::FLUSH, 6, 2), &[]).await;
        assert_eq!(queue.response().await.cid.get(), 6, "the other waits for the end");
        assert!(receive(&mut mine).await.unwrap_err().is(Status::WINDOW_BUSY));
        stub.hold(false);
        let made = queue.response().await;
        assert_eq!((made.cid.get(), made.status(), stub.standing()), (5, Status::SUCCESS, None));
        receive(&mut mine).await.unwrap();
        // It cannot be ended: nothing is changed, and the host may try again.
        stub.cannot_end(true);
        let (sqe, keys) = reservation(io_opcode::RESERVATION_ACQUIRE, 1 << 8, 7, 0);
        queue.command(&sqe, &keys).await;
        let failed = queue.response().await.status();
        assert!(failed.is(Status::INTERNAL_ERROR) && !failed.dnr(), "{failed:?}");
        stub.cannot_end(false);
        queue.command(&sqe, &keys).await;
        assert_eq!(queue.response().await.status(), Status::SUCCESS);
        assert!(receive(&mut mine).await.unwrap_err().is(Status::RESERVATION_CONFLICT));
        assert_eq!(stub.standing(), None);
    });
}

/// A record that is stored between the two would be written over by who compared before it.
#[test]
fn compare_and_write_has_no_window_between_the_two() {
    with_windows(|address, _, stub| async move {
        let (mut mine, _) = admin(address).await;
        let (_other, cntlid) = OTHER.admin(address).await;
        let mut queue = OTHER.io(address, cntlid, 1, PLAIN, 32).await;
        receive(&mut mine).await.unwrap();
        let mut compare =
            Sqe { nsid: 2.into(), dptr: Sgl::in_capsule(0, 4096), ..write(1, 3, 1, true) };
        let mut second = Sqe { cid: 2.into(), ..compare };
        compare.opcode = io_opcode::COMPARE;
        compare.set_fused(Fused::First);
        second.set_fused(Fused::Second);
        stub.hold(true);
        let there = crate::connection::tests::numbered(3);
        queue.command(&compare, &there).await;
        queue.command(&second, &[5; 4096]).await;
        queue.command(&Sqe::new(io_opcode::FLUSH, 6, 2), &[]).await;
        assert_eq!(queue.response().await.cid.get(), 6, "the pair waits for the end");
        assert!(receive(&mut mine).await.unwrap_err().is(Status::WINDOW_BUSY));
        stub.hold(false);
        for _ in 0..2 {
            assert_eq!(queue.response().await.status(), Status::SUCCESS);
        }
        assert_eq!(stub.standing(), None);
        receive(&mut mine).await.unwrap();
        stub.cannot_end(true);
        queue.command(&compare, &there).await;
        queue.command(&second, &[6; 4096]).await;
        assert!(queue.response().await.status().is(Status::INTERNAL_ERROR));
        assert!(queue.response().await.status().is(Status::ABORTED_FAILED_FUSED));
        stub.cannot_end(false);
    });
}

type Change = fn(&Target) -> Draining;

/// What an operator changes, and whether the host may have another window then.
const CHANGES: [(&str, Change, bool); 6] = [
    (
        "write protection",
        |target| target.set_write_protected(&nqn(SUBSYSTEM), 2, false).unwrap(),
        true,
    ),
    (
        "ANA state",
        |target| {
            let listener = target.controllers()[0].path().listener;
            target.set_listener_ana(listener, State::NonOptimized).unwrap()
        },
        true,
    ),
    ("size", |target| target.resize_namespace(&nqn(SUBSYSTEM), 2, 1 << 20).unwrap(), true),
    ("withdrawal", |target| target.withdraw_namespace(&nqn(SUBSYSTEM), 2).unwrap(), false),
    ("removal", |target| target.remove_namespace(&nqn(SUBSYSTEM), 2).unwrap(), false),
    ("removal of all", |target| target.remove_subsystem(&nqn(SUBSYSTEM)).unwrap(), false),
];

#[test]
fn what_an_operator_changes_is_done_when_the_window_has_ended() {
    for (what, change, may_again) in CHANGES {
        with_windows(move |address, target, stub| async move {
            let (mut mine, _) = admin(address).await;
            receive(&mut mine).await.unwrap();
            stub.hold(true);
            let draining = change(&target);
            for _ in 0..100 {
                assert!(!is_done(&draining).await, "{what}");
                reactor::yield_now().await;
            }
            stub.hold(false);
            draining.done().await;
            assert_eq!((stub.ended(), stub.standing()), (vec![1], None), "{what}");
            if may_again {
                assert!(receive(&mut mine).await.is_ok(), "{what}");
            }
        });
    }
}

#[test]
fn a_host_that_is_let_in_no_more_has_no_window() {
    with_windows(|address, target, stub| async move {
        let subsystem = nqn(SUBSYSTEM);
        target.allow_host(&subsystem, &nqn(HOST)).unwrap();
        target.allow_host(&subsystem, &nqn(OTHER.host)).unwrap();
        assert!(is_done(&target.set_allow_any(&subsystem, false).unwrap()).await);
        let (mut mine, _) = admin(address).await;
        receive(&mut mine).await.unwrap();
        assert!(is_done(&target.deny_host(&subsystem, &nqn(OTHER.host)).unwrap()).await);
        assert_eq!(stub.standing(), Some(1), "another's");
        stub.hold(true);
        let draining = target.deny_host(&subsystem, &nqn(HOST)).unwrap();
        assert!(!is_done(&draining).await);
        stub.hold(false);
        draining.done().await;
        assert_eq!(stub.standing(), None);
        until_empty(&target).await;
    });
}
