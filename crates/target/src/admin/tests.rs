//! Admin commands, one by one, and each way they are refused.

mod ana;
mod drive;
mod features;
mod identify;
mod log;
mod property;

use nvme::opcode::admin;
use nvme::sqe::{Fused, Sqe};
use nvme::status::Status;

use super::Outcome;
use crate::rig::{HOST, Rig, SUBSYSTEM, execute, failure};

fn abort(sqid: u16, cid: u16) -> Sqe {
    let cdw10 = u32::from(cid) << 16 | u32::from(sqid);
    Sqe { cdw10: cdw10.into(), ..Sqe::new(admin::ABORT, 1, 0) }
}

fn aer(cid: u16) -> Sqe {
    Sqe::new(admin::ASYNC_EVENT_REQUEST, cid, 0)
}

#[test]
fn commands_wait_for_the_controller_to_be_enabled() {
    let rig = Rig::new();
    let connected = rig.connect(&rig.attempt(SUBSYSTEM, HOST)).unwrap();
    for opcode in [admin::IDENTIFY, admin::KEEP_ALIVE, admin::ASYNC_EVENT_REQUEST] {
        let sqe = Sqe::new(opcode, 1, 0);
        assert_eq!(failure(connected.controller(), sqe, 4096), Status::COMMAND_SEQUENCE_ERROR);
    }
}

#[test]
fn commands_the_controller_does_not_have_are_invalid_opcodes() {
    let rig = Rig::new();
    let connected = rig.enabled();
    for opcode in [
        admin::CREATE_IO_SQ,
        admin::DELETE_IO_CQ,
        admin::NAMESPACE_MANAGEMENT,
        admin::FORMAT_NVM,
        admin::SECURITY_SEND,
        admin::SANITIZE,
        0x3f,
        0xc0,
        0xff,
    ] {
        let sqe = Sqe::new(opcode, 1, 0);
        assert_eq!(failure(connected.controller(), sqe, 0), Status::INVALID_OPCODE, "{opcode:#x}");
    }
}

#[test]
fn no_admin_command_is_fused() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let mut sqe = Sqe::new(admin::KEEP_ALIVE, 1, 0);
    for fused in [Fused::First, Fused::Second] {
        sqe.set_fused(fused);
        assert_eq!(failure(connected.controller(), sqe, 0), Status::INVALID_FIELD);
    }
    sqe.flags |= 3;
    assert_eq!(failure(connected.controller(), sqe, 0), Status::INVALID_FIELD);
}

#[test]
fn asynchronous_event_requests_are_parked_up_to_the_limit() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    for cid in 0..4 {
        assert_eq!(execute(controller, &aer(cid)).0, Outcome::AsyncEvent);
    }
    assert_eq!(failure(controller, aer(4), 0), Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED);
    assert_eq!(failure(controller, aer(3), 0), Status::COMMAND_ID_CONFLICT);
}

#[test]
fn an_abort_finds_parked_requests_and_passes_on_the_rest() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    assert_eq!(execute(controller, &aer(7)).0, Outcome::AsyncEvent);
    assert_eq!(execute(controller, &abort(0, 7)).0, Outcome::DONE);
    let cqe = controller.next_event().unwrap();
    assert_eq!((cqe.cid.get(), cqe.status()), (7, Status::ABORT_REQUESTED));
    assert_eq!(execute(controller, &abort(0, 7)).0, Outcome::Abort { sqid: 0, cid: 7 });
    // A queue that is not there has no command to abort.
    assert_eq!(execute(controller, &abort(3, 7)).0, Outcome::Complete { dw0: 1, dw1: 0 });
    let io = rig.connect(&rig.io_attempt(3, controller)).unwrap();
    assert_eq!(execute(controller, &abort(3, 9)).0, Outcome::Abort { sqid: 3, cid: 9 });
    drop(io);
}

#[test]
fn a_reset_ends_parked_requests_without_a_completion() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    assert_eq!(execute(controller, &aer(7)).0, Outcome::AsyncEvent);
    crate::rig::set_cc(controller, nvme::property::Cc(0));
    assert_eq!(controller.next_event(), None);
    assert_eq!(controller.next_dropped_request(), Some(7));
    assert_eq!(controller.next_dropped_request(), None);
}

#[test]
fn the_waker_is_called_when_a_request_can_complete() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    controller.set_event_waker(Waker::from(Arc::clone(&count)));
    controller.raise(crate::event::Event::ReservationLog);
    assert_eq!(count.0.load(Ordering::Relaxed), 0, "no request waits");
    assert_eq!(execute(controller, &aer(1)).0, Outcome::AsyncEvent);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(controller.next_event().is_some());
}
