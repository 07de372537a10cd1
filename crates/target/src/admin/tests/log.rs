//! Get Log Page, page by page.

use nvme::log::persistent::{Action, EventHeader, EventKind, LogHeader};
use nvme::log::{
    EffectsLog, ErrorEntry, FeatureEffectsLog, FirmwareSlots, GetLogPage, LogOffset,
    ReservationNotification, Smart, SupportedPages, lid,
};
use nvme::opcode::{admin, io};
use nvme::sqe::{Sgl, Sqe};
use nvme::status::Status;
use zerocopy::FromBytes;

use crate::admin::Outcome;
use crate::controller::{Controller, Failure};
use crate::reservation::{HostId, Notice, NoticeKind};
use crate::rig::{HOST_ID, Rig, SECOND, START, data_of, execute, failure};
use crate::subsystem::Health;

fn read(controller: &Controller, lid: u8, bytes: u32) -> Vec<u8> {
    data_of(controller, GetLogPage::new(lid, u32::MAX, bytes.into()).to_sqe(1), bytes)
}

#[test]
fn every_page_said_to_be_supported_can_be_read_and_no_other() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let pages = SupportedPages::read_from_bytes(&read(controller, 0, 1024)).unwrap();
    let mut supported = 0;
    for lid in 0..=u8::MAX {
        let command = GetLogPage::new(lid, u32::MAX, 512).to_sqe(1);
        if lid == lid::PERSISTENT_EVENT {
            supported += 1;
            assert!(pages.supports(lid));
            assert_eq!(failure(controller, command, 512), Status::COMMAND_SEQUENCE_ERROR);
        } else if pages.supports(lid) {
            supported += 1;
            assert_eq!(data_of(controller, command, 512).len(), 512);
        } else {
            assert_eq!(failure(controller, command, 512), Status::INVALID_LOG_PAGE, "{lid:#x}");
        }
    }
    assert_eq!(supported, crate::admin::log::IO.len());
}

#[test]
fn offsets_and_lengths_are_checked() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let at = |offset, bytes| {
        GetLogPage { offset, ..GetLogPage::new(lid::SMART, u32::MAX, bytes) }.to_sqe(1)
    };
    let whole = read(controller, lid::SMART, 512);
    assert_eq!(data_of(controller, at(LogOffset::Bytes(4), 12), 12), whole[4..16]);
    // What lies behind the page's end reads as zero.
    assert_eq!(data_of(controller, at(LogOffset::Bytes(508), 64), 64)[4..], [0; 60]);
    assert_eq!(data_of(controller, at(LogOffset::Bytes(512), 64), 64), [0; 64]);
    assert_eq!(failure(controller, at(LogOffset::Bytes(516), 4), 4), Status::INVALID_FIELD);
    assert_eq!(failure(controller, at(LogOffset::Index(0), 4), 4), Status::INVALID_FIELD);
    assert_eq!(
        failure(controller, at(LogOffset::Bytes(0), 4 << 20), 4 << 20),
        Status::INVALID_FIELD
    );
    let mut odd = at(LogOffset::Bytes(0), 4);
    odd.cdw12 = 2.into();
    assert_eq!(failure(controller, odd, 4), Status::INVALID_FIELD);
    let short = at(LogOffset::Bytes(0), 512);
    assert_eq!(failure(controller, short, 508), Status::DATA_SGL_LENGTH_INVALID);
}

fn errors(controller: &Controller) -> Vec<ErrorEntry> {
    let page = read(controller, lid::ERROR_INFORMATION, 4096);
    let entries = page.chunks_exact(64).map(|e| ErrorEntry::read_from_bytes(e).unwrap());
    entries.take_while(|entry| entry.error_count.get() != 0).collect()
}

#[test]
fn errors_are_logged_newest_first_with_the_field_at_fault() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    assert!(errors(controller).is_empty());
    let mut unknown = Sqe::new(admin::IDENTIFY, 77, 0);
    unknown.cdw10 = 0x7f.into();
    let Outcome::Failed(status) = execute(controller, &unknown).0 else { panic!() };
    assert!(status.more(), "the completion says that there is an entry");
    let entry = errors(controller)[0];
    assert_eq!((entry.error_count.get(), entry.sqid.get(), entry.cid.get()), (1, 0, 77));
    assert_eq!((entry.location.get(), entry.opcode, entry.trtype), (40, admin::IDENTIFY, 3));
    assert_eq!(Status::from_field(entry.status.get()).kind(), Status::INVALID_FIELD);
    let sqe = Sqe::new(io::READ, 5, 1);
    let status = Status::UNRECOVERED_READ_ERROR;
    controller.log_error(&Failure { qid: 2, sqe: &sqe, status, location: None, lba: 99 });
    let entry = errors(controller)[0];
    assert_eq!((entry.error_count.get(), entry.sqid.get(), entry.lba.get()), (2, 2, 99));
    assert_eq!((entry.nsid.get(), entry.location.get()), (1, ErrorEntry::NONE));
    for _ in 0..100 {
        execute(controller, &unknown);
    }
    let entries = errors(controller);
    assert_eq!((entries.len(), entries[0].error_count.get()), (64, 102));
    let smart = Smart::read_from_bytes(&read(controller, lid::SMART, 512)).unwrap();
    assert_eq!(u128::from_le_bytes(smart.error_log_entries), 102);
}

#[test]
fn smart_counts_what_queues_did_and_shows_reported_health() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let io = rig.connect(&rig.io_attempt(1, controller)).unwrap();
    io.lease.counters().read_commands.add(3);
    io.lease.counters().bytes_read.add(512_001);
    io.lease.counters().busy_ns.add(120 * SECOND);
    let smart = || Smart::read_from_bytes(&read(controller, lid::SMART, 512)).unwrap();
    let before = smart();
    assert_eq!(u128::from_le_bytes(before.host_read_commands), 3);
    assert_eq!(u128::from_le_bytes(before.data_units_read), 2);
    assert_eq!(u128::from_le_bytes(before.controller_busy_time), 2);
    drop(io);
    assert_eq!(smart().host_read_commands, before.host_read_commands, "kept when the queue ends");
    assert_eq!((before.critical_warning, before.available_spare), (0, 100));
    let health = Health { temperature: 310, read_only: true, media_errors: 4, ..Health::default() };
    rig.target.set_health(controller.subsystem_nqn(), health).unwrap();
    let after = smart();
    assert_eq!((after.critical_warning, after.temperature.get()), (Smart::WARNING_READ_ONLY, 310));
    assert_eq!(u128::from_le_bytes(after.media_errors), 4);
    let of_one = GetLogPage::new(lid::SMART, 1, 512).to_sqe(1);
    assert_eq!(failure(controller, of_one, 512), Status::INVALID_FIELD);
    controller.touch(START + 7200 * SECOND);
    assert!(u128::from_le_bytes(smart().power_on_hours) < 1 << 40);
}

#[test]
fn commands_and_features_listed_as_supported_are_and_others_are_not() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let effects = EffectsLog::read_from_bytes(&read(controller, lid::EFFECTS, 4096)).unwrap();
    for opcode in 0..=u8::MAX {
        let outcome = execute(controller, &Sqe::new(opcode, 1, 0)).0;
        let unknown = matches!(outcome, Outcome::Failed(s) if s.is(Status::INVALID_OPCODE));
        let listed = effects.acs[usize::from(opcode)].get() & 1 != 0;
        assert_eq!(listed, !unknown, "{opcode:#x}");
    }
    // What Linux expects of I/O commands, CSUPP and LBCC: of any other bit it warns.
    assert_eq!(effects.iocs[usize::from(io::WRITE)].get(), 0b11, "changes content");
    assert!(effects.iocs.iter().all(|effects| effects.get() & !0b11 == 0));
    let of_set = |csi| {
        let bytes = 4096;
        GetLogPage { csi, ..GetLogPage::new(lid::EFFECTS, u32::MAX, bytes) }.to_sqe(1)
    };
    let zoned = EffectsLog::read_from_bytes(&data_of(controller, of_set(2), 4096)).unwrap();
    assert_eq!(zoned.acs.map(u32::from), effects.acs.map(u32::from));
    assert!(zoned.iocs.iter().all(|command| command.get() == 0), "no command of a set not served");
    assert_eq!(failure(controller, of_set(0x7f), 4096), Status::INVALID_FIELD);
    let page = read(controller, lid::FEATURE_EFFECTS, 1024);
    let features = FeatureEffectsLog::read_from_bytes(&page).unwrap();
    let count = features.fids.iter().filter(|fid| fid.get() & 1 != 0).count();
    assert_eq!(count, crate::admin::features::IO.len());
}

#[test]
fn the_one_firmware_slot_is_active() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let page = read(connected.controller(), lid::FIRMWARE_SLOT, 512);
    let slots = FirmwareSlots::read_from_bytes(&page).unwrap();
    assert_eq!(slots.afi, 1);
    assert_eq!(nvme::identify::ascii(&slots.frs[0]), env!("CARGO_PKG_VERSION"));
    assert_eq!(slots.frs[1], [0; 8]);
}

#[test]
fn reservation_notices_are_handed_out_one_by_one() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    for cid in 0..3 {
        let aer = Sqe::new(admin::ASYNC_EVENT_REQUEST, cid, 0);
        assert_eq!(execute(controller, &aer).0, Outcome::AsyncEvent);
    }
    let notice = |host| Notice { host: HostId(host), kind: NoticeKind::ReservationReleased };
    rig.target.reservation_notices(controller, 1, &[notice([1; 16])]);
    assert_eq!(controller.next_event(), None, "another host's");
    rig.target.reservation_notices(controller, 1, &[notice(HOST_ID), notice(HOST_ID)]);
    let take = || {
        let page = read(controller, lid::RESERVATION_NOTIFICATION, 64);
        let page = ReservationNotification::read_from_bytes(&page).unwrap();
        (page.count.get(), page.kind, page.available, page.nsid.get())
    };
    for expected in [(1, 2, 1, 1), (2, 2, 0, 1)] {
        let event = controller.next_event().unwrap();
        assert_eq!(event.dw0.get(), 0x0080_0006);
        assert_eq!(take(), expected);
    }
    assert_eq!(controller.next_event(), None);
    assert_eq!(take(), (0, 0, 0, 0));
}

#[test]
fn the_data_goes_where_an_in_capsule_descriptor_cannot() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let mut sqe = GetLogPage::new(lid::SMART, u32::MAX, 512).to_sqe(1);
    sqe.dptr = Sgl { id: Sgl::KEYED_DATA_BLOCK, ..Sgl::transport(512) };
    let Outcome::Failed(status) = execute(connected.controller(), &sqe).0 else { panic!() };
    assert!(status.is(Status::SGL_DESCRIPTOR_TYPE_INVALID));
}

fn events(controller: &Controller, action: Action, bytes: u32) -> Vec<u8> {
    let lsp = action.raw();
    let command = GetLogPage { lsp, ..GetLogPage::new(lid::PERSISTENT_EVENT, 0, bytes.into()) };
    data_of(controller, command.to_sqe(1), bytes)
}

/// Kinds of the events of a log page, newest first; the page must be as long as it says.
fn kinds(page: &[u8]) -> Vec<EventKind> {
    let (header, mut rest) = LogHeader::read_from_prefix(page).unwrap();
    let length = usize::try_from(header.tll.get()).unwrap();
    rest = &rest[..length - size_of::<LogHeader>()];
    let mut kinds = Vec::new();
    while let Ok((event, behind)) = EventHeader::read_from_prefix(rest) {
        kinds.push(EventKind::from_raw(event.etype).unwrap());
        let bit = header.seb[usize::from(event.etype / 8)] & 1 << (event.etype % 8);
        assert_ne!(bit, 0, "an event of a kind said to be supported");
        rest = &behind[usize::from(event.el.get())..];
    }
    assert_eq!(u32::try_from(kinds.len()).unwrap(), header.tnev.get());
    kinds
}

#[test]
fn persistent_events_are_read_within_a_context_that_stands_still() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let page = events(controller, Action::EstablishAndRead, 4096);
    assert_eq!(kinds(&page), [EventKind::ChangeNamespace, EventKind::PowerOn]);
    controller.fail();
    assert_eq!(events(controller, Action::Read, 4096), page);
    let again = GetLogPage { lsp: 1, ..GetLogPage::new(lid::PERSISTENT_EVENT, 0, 512) };
    assert_eq!(failure(controller, again.to_sqe(1), 512), Status::COMMAND_SEQUENCE_ERROR);
    events(controller, Action::Release, 512);
    let header = events(controller, Action::EstablishAndReadHeader, 512);
    let header = LogHeader::read_from_bytes(&header).unwrap();
    assert_eq!((header.tnev.get(), header.generation.get()), (3, 2));
    let page = events(controller, Action::Read, 4096);
    assert_eq!(kinds(&page)[0], EventKind::HardwareError);
    // Another controller, and the subsystem after a restart, see the same events.
    let kept = rig.target.persistent_events(controller.subsystem_nqn()).unwrap();
    let restarted = Rig::new();
    restarted.target.restore_events(controller.subsystem_nqn(), &kept).unwrap();
    let connected = restarted.enabled();
    let page = events(connected.controller(), Action::EstablishAndRead, 4096);
    assert_eq!(kinds(&page).len(), 2 + 3);
    restarted.target.restore_events(controller.subsystem_nqn(), &[0xff; 100]).unwrap();
}
