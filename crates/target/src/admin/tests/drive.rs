//! What is a drive's to answer, of a namespace that is one.

use std::io;
use std::time::Duration;

use media::passthrough::Sent;
use nvme::event::Event;
use nvme::identify::{Cns, Identify, NSID_ALL};
use nvme::identify::{IdentifyController, IdentifyNamespace, LbaFormat, bits};
use nvme::log::{GetLogPage, LogOffset, Smart, lid};
use nvme::opcode::admin;
use nvme::sqe::{Sgl, Sqe};
use nvme::status::Status;
use zerocopy::FromBytes;

use crate::admin::{AskedDrive, Outcome};
use crate::command::tests::by_drive::{BLOCKS, End, Got, Says, Scripted};
use crate::command::tests::double::on_reactor;
use crate::controller::Controller;
use crate::fabrics::Connected;
use crate::namespace::{Backend, NamespaceSpec};
use crate::rig::{Rig, SUBSYSTEM, data_of, execute, failure, nqn};
use crate::subsystem::Health;

/// Error numbers of the kernel's.
const EINTR: i32 = 4;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const ETIMEDOUT: i32 = 110;

/// What a drive says of how it is.
fn health(sent: &mut Sent<'_>) -> Option<End> {
    sent.data.iter_mut().zip(0..=u8::MAX).for_each(|(byte, n)| *byte = n);
    sent.data[256..].fill(9);
    Some(Ok(Status::SUCCESS))
}

fn page() -> Vec<u8> {
    (0..=u8::MAX).chain([9; 256]).collect()
}

/// A subsystem of two namespaces, of which the second is a drive.
fn with(drive: &Scripted) -> (Rig, Connected) {
    let rig = Rig::new();
    let spec = NamespaceSpec::new(drive.backend(), 4096);
    assert_eq!(rig.target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
    let connected = rig.enabled();
    (rig, connected)
}

fn smart_at(nsid: u32, offset: u64, bytes: u64) -> GetLogPage {
    let offset = LogOffset::Bytes(offset);
    GetLogPage { offset, retain_event: true, ..GetLogPage::new(lid::SMART, nsid, bytes) }
}

fn asked(controller: &Controller, command: GetLogPage) -> AskedDrive {
    let bytes = u32::try_from(command.bytes).unwrap();
    match execute(controller, &Sqe { dptr: Sgl::transport(bytes), ..command.to_sqe(1) }).0 {
        Outcome::AskDrive(asked) => asked,
        other => panic!("{other:?}"),
    }
}

async fn ask(controller: &Controller, command: GetLogPage) -> Result<Vec<u8>, Status> {
    let asked = asked(controller, command);
    controller.ask_drive(asked).await.map_err(|fault| fault.status)
}

/// A drive is asked again by now.
async fn later() {
    reactor::sleep(Duration::from_secs(1)).await;
}

fn lpa(controller: &Controller) -> u8 {
    let identify = Identify::new(Cns::Controller, 0).to_sqe(1);
    IdentifyController::read_from_bytes(&data_of(controller, identify, 4096)).unwrap().lpa
}

/// It was refused: LPA said that there is none of a namespace.
#[test]
fn the_health_of_a_drives_namespace_is_the_drives() {
    on_reactor(async {
        let drive = Scripted::new(Says::new(), health);
        let (_rig, connected) = with(&drive);
        let controller = connected.controller();
        assert_ne!(lpa(controller) & bits::LPA_SMART_PER_NAMESPACE, 0);
        assert_eq!(ask(controller, smart_at(2, 0, 512)).await.unwrap(), page());
        // Whatever part of it a host asks for, the drive is asked for the page, and keeps its events.
        let Got { is_admin, nsid, command, data } = drive.got().remove(0);
        let retain = 1 << 15;
        assert_eq!((is_admin, command.opcode), (true, admin::GET_LOG_PAGE));
        assert_eq!((nsid, data.len()), (NSID_ALL, 512));
        assert_eq!(command.cdw10, [127 << 16 | retain | u32::from(lid::SMART), 0, 0, 0, 0, 0]);
        assert_eq!(ask(controller, smart_at(2, 4, 12)).await.unwrap(), page()[4..16]);
        assert_eq!(ask(controller, smart_at(2, 512, 64)).await.unwrap(), [0; 64]);
        let long = ask(controller, smart_at(2, 500, 1 << 20)).await.unwrap();
        assert_eq!((long.len(), &long[..12]), (1 << 20, &page()[500..]));
        assert!(long[12..].iter().all(|&byte| byte == 0));
        assert!(drive.got().iter().all(|got| got.command == command && got.data.len() == 512));
    });
}

/// A host that asked in a loop had the drive do little else.
#[test]
fn a_drive_is_asked_once_a_second_how_it_is() {
    reactor::simulate(1, async {
        let drive = Scripted::new(Says::new(), health);
        let (_rig, connected) = with(&drive);
        let controller = connected.controller();
        for answered in [Ok(page()), Err(Status::INTERNAL_ERROR)] {
            for _ in 0..100 {
                assert_eq!(ask(controller, smart_at(2, 0, 512)).await, answered);
            }
            assert_eq!(drive.got().len(), 1);
            // Also what it refuses, or does not tell in time.
            drive.answer_with(|_| Some(Ok(Status::INTERNAL_ERROR)));
            later().await;
        }
    });
}

/// A drive that tells namespaces apart is asked for its own.
#[test]
fn a_drive_is_asked_by_the_number_that_it_has_itself() {
    on_reactor(async {
        let mut says = Says::new();
        says.controller.lpa = bits::LPA_SMART_PER_NAMESPACE;
        let drive = Scripted::new(says, health);
        let (_rig, connected) = with(&drive);
        ask(connected.controller(), smart_at(2, 0, 512)).await.unwrap();
        assert_eq!(drive.got()[0].nsid, 1);
    });
}

#[test]
fn what_is_wrong_with_a_command_comes_to_no_drive() {
    let drive = Scripted::new(Says::new(), health);
    let (rig, connected) = with(&drive);
    let controller = connected.controller();
    let status = |command: GetLogPage, room| failure(controller, command.to_sqe(1), room);
    let invalid = Status::INVALID_FIELD;
    assert_eq!(status(smart_at(2, 516, 4), 4), invalid, "behind the end");
    assert_eq!(status(smart_at(2, u64::MAX - 3, 4), 4), invalid);
    // 16 GiB, by NUMDU.
    assert_eq!(status(smart_at(2, 0, 1 << 34), u32::MAX), invalid);
    assert_eq!(status(smart_at(2, 0, 512), 508), Status::DATA_SGL_LENGTH_INVALID);
    let by_index = GetLogPage { offset: LogOffset::Index(0), ..smart_at(2, 0, 4) };
    assert_eq!(status(by_index, 4), invalid);
    assert_eq!(status(GetLogPage { uuid_index: 1, ..smart_at(2, 0, 4) }, 4), invalid);
    let mut odd = smart_at(2, 0, 4).to_sqe(1);
    odd.cdw12 = 2.into();
    assert_eq!(failure(controller, odd, 4), invalid);
    for nsid in [3, 1024, 1025, NSID_ALL - 1] {
        assert_eq!(status(smart_at(nsid, 0, 512), 512), invalid, "{nsid}");
    }
    // Vendors' own, and what is told of the drive as a whole.
    for lid in [lid::SELF_TEST, lid::TELEMETRY_HOST, lid::SANITIZE_STATUS, 0xc0, 0xff] {
        assert_eq!(status(GetLogPage::new(lid, 2, 512), 512), Status::INVALID_LOG_PAGE);
    }
    for opcode in [0x14, 0x80, 0x81, 0x84, 0x86, 0xc0, admin::FIRMWARE_COMMIT] {
        assert_eq!(failure(controller, Sqe::new(opcode, 1, 2), 0), Status::INVALID_OPCODE);
    }
    // The error log is ours, whichever namespace a host names, and so is what names all of them, or another.
    data_of(controller, GetLogPage::new(lid::ERROR_INFORMATION, 2, 64).to_sqe(1), 64);
    let hot = Health { temperature: 333, ..Health::default() };
    rig.target.set_health(&nqn(SUBSYSTEM), hot).unwrap();
    for nsid in [0, NSID_ALL, 1] {
        let ours = data_of(controller, smart_at(nsid, 0, 512).to_sqe(1), 512);
        assert_eq!(Smart::read_from_bytes(&ours).unwrap().temperature.get(), 333, "{nsid}");
    }
    assert!(drive.got().is_empty());
}

#[test]
fn what_a_drive_says_in_place_of_its_health_is_told() {
    reactor::simulate(1, async {
        let drive = Scripted::new(Says::new(), health);
        let (_rig, connected) = with(&drive);
        let controller = connected.controller();
        let vendors = Status::new(7, 0xc1).with_dnr();
        drive.answer_with(move |_| Some(Ok(vendors)));
        assert_eq!(ask(controller, smart_at(2, 0, 512)).await, Err(vendors));
        let errors = [
            (ETIMEDOUT, Status::NAMESPACE_NOT_READY),
            (EINTR, Status::NAMESPACE_NOT_READY),
            (EIO, Status::INTERNAL_ERROR),
            (ENODEV, Status::ANA_INACCESSIBLE),
        ];
        for (error, status) in errors {
            later().await;
            drive.answer_with(move |_| Some(Err(io::Error::from_raw_os_error(error))));
            assert_eq!(ask(controller, smart_at(2, 0, 512)).await, Err(status), "{error}");
        }
        // It went away meanwhile, and is not asked again.
        drive.got();
        drive.answer_with(health);
        assert_eq!(
            failure(controller, smart_at(2, 0, 512).to_sqe(1), 512),
            Status::ANA_INACCESSIBLE
        );
        assert!(drive.got().is_empty() && drive.drive.is_gone());
    });
}

/// The namespace was withdrawn: the subsystem's health would be taken for that of a drive that is not there.
#[test]
fn a_drive_that_is_not_there_has_no_health() {
    on_reactor(async {
        let (drive, other) =
            (Scripted::new(Says::new(), health), Scripted::new(Says::new(), health));
        let (rig, connected) = with(&drive);
        let spec = NamespaceSpec::new(other.backend(), 4096);
        assert_eq!(rig.target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(3));
        let controller = connected.controller();
        let late = asked(controller, smart_at(2, 0, 512));
        drop(rig.target.withdraw_namespace(&nqn(SUBSYSTEM), 2).unwrap());
        let inaccessible = Status::ANA_INACCESSIBLE;
        assert_eq!(controller.ask_drive(late).await.unwrap_err().status, inaccessible);
        assert_eq!(failure(controller, smart_at(2, 0, 512).to_sqe(1), 512), inaccessible);
        assert_eq!(ask(controller, smart_at(3, 0, 512)).await.unwrap(), page());
        let removed = asked(controller, smart_at(3, 0, 512));
        drop(rig.target.remove_namespace(&nqn(SUBSYSTEM), 3).unwrap());
        let unknown = controller.ask_drive(removed).await.unwrap_err().status;
        assert_eq!(unknown.kind(), Status::INVALID_NAMESPACE_OR_FORMAT);
    });
}

/// The kernel leaves log pages to root: where we are not, hosts are told that there are none.
#[test]
fn a_drive_that_we_may_not_ask_is_not_said_to_tell_how_it_is() {
    for refusal in
        [|| Err(io::Error::from_raw_os_error(EACCES)), || Ok(Status::INVALID_LOG_PAGE.with_dnr())]
            as [fn() -> End; 2]
    {
        let drive = Scripted::new(Says::new(), move |_| Some(refusal()));
        assert!(drive.drive.silence().is_some());
        let (_rig, connected) = with(&drive);
        let controller = connected.controller();
        assert_eq!(lpa(controller) & bits::LPA_SMART_PER_NAMESPACE, 0);
        let status = failure(controller, smart_at(2, 0, 512).to_sqe(1), 512);
        assert_eq!(status, Status::INVALID_FIELD);
        assert!(drive.got().is_empty());
    }
}

/// It would be none for as long as it is open.
#[test]
fn a_drive_that_was_busy_when_it_was_opened_is_asked_later() {
    on_reactor(async {
        for error in [EINTR, EIO] {
            let says = Says::new();
            let drive =
                Scripted::new(says, move |_| Some(Err(io::Error::from_raw_os_error(error))));
            drive.answer_with(health);
            let (_rig, connected) = with(&drive);
            assert_eq!(ask(connected.controller(), smart_at(2, 0, 512)).await.unwrap(), page());
        }
    });
}

/// Events are ours: reading a drive's page clears them as reading the subsystem's does, unless it fails.
#[test]
fn a_drives_health_acknowledges_our_events_once_it_was_told() {
    reactor::simulate(1, async {
        let drive = Scripted::new(Says::new(), health);
        let (_rig, connected) = with(&drive);
        let controller = connected.controller();
        controller.lock().features.async_event_configuration = u32::MAX;
        let told = || {
            let aer = Sqe::new(admin::ASYNC_EVENT_REQUEST, 7, 0);
            if !controller.lock().events.is_parked(7) {
                assert_eq!(execute(controller, &aer).0, Outcome::AsyncEvent);
            }
            controller.next_event().is_some()
        };
        let clearing = GetLogPage { retain_event: false, ..smart_at(2, 0, 512) };
        let raise = || controller.raise(Event::Temperature);
        raise();
        assert!(told());
        ask(controller, smart_at(2, 0, 512)).await.unwrap();
        raise();
        assert!(!told(), "it is retained, and so masked");
        drive.answer_with(|_| Some(Ok(Status::INTERNAL_ERROR)));
        later().await;
        ask(controller, clearing).await.unwrap_err();
        assert!(told(), "it is told again");
        drive.answer_with(health);
        later().await;
        ask(controller, clearing).await.unwrap();
        assert!(!told());
        raise();
        assert!(told());
    });
}

fn identified(controller: &Controller) -> IdentifyNamespace {
    let identify = Identify::new(Cns::Namespace, 2).to_sqe(1);
    IdentifyNamespace::read_from_bytes(&data_of(controller, identify, 4096)).unwrap()
}

/// It was as when the drive was opened.
#[test]
fn what_of_a_drive_is_allocated_is_asked_now_and_then() {
    on_reactor(async {
        let drive = Scripted::new(Says::new(), health);
        let (_rig, connected) = with(&drive);
        let controller = connected.controller();
        let sqe = Identify::new(Cns::Namespace, 2).to_sqe(1);
        let allocate = |blocks: u64| drive.says.lock().unwrap().namespace.nuse = blocks.into();
        allocate(77);
        assert_eq!(identified(controller).nuse.get(), 0);
        controller.drive_to_refresh(&sqe).unwrap().refresh_used().await;
        assert_eq!(identified(controller).nuse.get(), 77);
        // It was asked just now.
        allocate(78);
        assert!(controller.drive_to_refresh(&sqe).is_none());
        drive.drive.refresh_used().await;
        assert_eq!((identified(controller).nuse.get(), drive.got().len()), (77, 1));
        for other in [Identify::new(Cns::Controller, 2), Identify::new(Cns::Namespace, 1)] {
            assert!(controller.drive_to_refresh(&other.to_sqe(1)).is_none());
        }
    });
}

#[test]
fn more_than_there_is_cannot_be_allocated() {
    on_reactor(async {
        let drive = Scripted::new(Says::new(), health);
        drive.says.lock().unwrap().namespace.nuse = u64::MAX.into();
        drive.drive.refresh_used().await;
        assert_eq!(drive.backend().used(), BLOCKS * 4096);
    });
}

/// Blocks of another size would be others than a host means.
#[test]
fn a_drive_that_was_formatted_otherwise_is_given_up() {
    on_reactor(async {
        let drive = Scripted::new(Says::new(), health);
        let (_rig, connected) = with(&drive);
        drive.says.lock().unwrap().namespace.lbaf[0] =
            LbaFormat { lbads: 9, ..LbaFormat::default() };
        drive.drive.refresh_used().await;
        assert!(drive.drive.is_gone() && drive.backend().is_inaccessible());
        let status = failure(connected.controller(), smart_at(2, 0, 512).to_sqe(1), 512);
        assert_eq!(status, Status::ANA_INACCESSIBLE);
        assert!(matches!(drive.backend(), Backend::Passthrough(_)));
    });
}
