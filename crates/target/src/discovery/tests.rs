//! The discovery log: what which host sees, and how it hears of changes.

use std::sync::Arc;

use fabric::TransportAddress;
use nvme::discovery::{Entry, Header};
use nvme::identify::{Cns, Identify, IdentifyController, bits as id_bits};
use nvme::log::{GetLogPage, LogOffset, SupportedPages, lid};
use nvme::nqn::DISCOVERY;
use nvme::opcode::admin;
use nvme::sqe::Sqe;
use nvme::status::Status;
use zerocopy::FromBytes;

use crate::admin::Outcome;
use crate::controller::Controller;
use crate::fabrics::Connected;
use crate::listener::{ListenerInfo, Referral};
use crate::rig::{HOST, Rig, SUBSYSTEM, data_of, execute, failure, nqn};
use crate::subsystem::SubsystemSpec;

const OTHER_HOST: &str = "nqn.2026-11.io.flashloom:host-b";

fn tcp(address: &str) -> TransportAddress {
    TransportAddress::Tcp(address.parse().unwrap())
}

fn discover(rig: &Rig, host: &str) -> Connected {
    rig.enabled_as(DISCOVERY, host)
}

fn command(offset: u64, bytes: u64, lsp: u8) -> Sqe {
    let offset = LogOffset::Bytes(offset);
    GetLogPage { offset, lsp, ..GetLogPage::new(lid::DISCOVERY, 0, bytes) }.to_sqe(3)
}

fn log(controller: &Controller, lsp: u8) -> (Header, Vec<Entry>) {
    let bytes = data_of(controller, command(0, 64 << 10, lsp), 64 << 10);
    let (header, rest) = Header::read_from_prefix(&bytes).unwrap();
    let count = usize::try_from(header.numrec.get()).unwrap();
    let entries: Vec<Entry> =
        rest.chunks_exact(1024).take(count).map(|e| Entry::read_from_bytes(e).unwrap()).collect();
    assert!(rest[count * 1024..].iter().all(|&byte| byte == 0));
    (header, entries)
}

fn rows(controller: &Controller) -> Vec<(u8, String, String, String)> {
    let (_, entries) = log(controller, 0);
    entries.iter().map(|e| (e.subtype, e.subnqn(), e.traddr(), e.trsvcid())).collect()
}

fn row(subtype: u8, name: &str, address: &str, port: &str) -> (u8, String, String, String) {
    (subtype, name.into(), address.into(), port.into())
}

#[test]
fn the_log_lists_the_service_the_subsystems_and_the_referrals() {
    let rig = Rig::new();
    let name = nqn("nqn.2026-11.io.flashloom:elsewhere");
    let referral = Referral { nqn: name, address: tcp("[fd00::7]:8009") };
    rig.target.add_referral(referral.clone()).unwrap();
    let admin = discover(&rig, HOST);
    assert_eq!(
        rows(admin.controller()),
        [
            row(3, DISCOVERY, "10.1.2.3", "4420"),
            row(2, SUBSYSTEM, "10.1.2.3", "4420"),
            row(1, "nqn.2026-11.io.flashloom:elsewhere", "fd00::7", "8009"),
        ]
    );
    let (header, entries) = log(admin.controller(), 0);
    assert_eq!(header.recfmt.get(), 0);
    let entry = &entries[1];
    assert_eq!((entry.trtype, entry.adrfam, entry.cntlid.get()), (3, 1, 0xffff));
    assert!(entry.asqsz.get() >= 32);
    assert_eq!(entries[2].adrfam, 2);
    rig.target.remove_referral(&referral).unwrap();
    assert_eq!(rows(admin.controller()).len(), 2);
}

#[test]
fn a_host_sees_only_what_admits_it() {
    let rig = Rig::new();
    let mut spec = SubsystemSpec::new(nqn("nqn.2026-11.io.flashloom:private"));
    spec.allow_any_host = false;
    rig.target.add_subsystem(spec).unwrap();
    let private = nqn("nqn.2026-11.io.flashloom:private");
    rig.target.allow_host(&private, &nqn(OTHER_HOST)).unwrap();
    let (stranger, friend) = (discover(&rig, HOST), discover(&rig, OTHER_HOST));
    assert_eq!(rows(stranger.controller()).len(), 2);
    assert_eq!(rows(friend.controller()).len(), 3);
    drop(rig.target.deny_host(&private, &nqn(OTHER_HOST)).unwrap());
    assert_eq!(rows(friend.controller()).len(), 2);
}

#[test]
fn the_address_is_the_one_the_host_came_to_or_the_one_configured() {
    let rig = Rig::new();
    let any = rig.target.add_listener(ListenerInfo::new(tcp("0.0.0.0:5000"))).unwrap();
    let mut attempt = rig.attempt(DISCOVERY, HOST);
    attempt.path = Rig::path(any, "192.0.2.9:5000".parse().unwrap());
    let admin = rig.connect(&attempt).unwrap();
    crate::rig::set_cc(admin.controller(), nvme::property::Cc(1));
    let found = rows(admin.controller());
    assert!(found.contains(&row(2, SUBSYSTEM, "192.0.2.9", "5000")));
    assert!(found.contains(&row(2, SUBSYSTEM, "10.1.2.3", "4420")));
    let mut told = ListenerInfo::new(tcp("0.0.0.0:5001"));
    told.advertise = Some(("203.0.113.5".parse().unwrap(), 4420));
    rig.target.add_listener(told).unwrap();
    assert!(rows(admin.controller()).contains(&row(2, SUBSYSTEM, "203.0.113.5", "4420")));
    // Port Local Entries Only.
    let (_, local) = log(admin.controller(), 1 << 1);
    assert!(local.iter().all(|entry| entry.trsvcid() == "5000"));
    assert_eq!(local.len(), 2);
}

#[test]
fn the_log_can_be_read_in_pieces_and_not_from_behind_its_end() {
    let rig = Rig::new();
    let admin = discover(&rig, HOST);
    let controller = admin.controller();
    let whole = data_of(controller, command(0, 3072, 0), 3072);
    for (offset, bytes) in [(0, 16), (8, 1024), (1024, 1024), (1020, 8), (2048, 1024), (3068, 4)] {
        let piece = data_of(controller, command(offset, bytes, 0), u32::try_from(bytes).unwrap());
        let at = usize::try_from(offset).unwrap();
        assert_eq!(piece, whole[at..at + piece.len()], "{offset} {bytes}");
    }
    assert_eq!(data_of(controller, command(3072, 16, 0), 16), [0; 16]);
    assert_eq!(failure(controller, command(3076, 16, 0), 16), Status::INVALID_FIELD);
    assert_eq!(failure(controller, command(u64::MAX - 3, 16, 0), 16), Status::INVALID_FIELD);
    // Extended entries are not offered.
    assert_eq!(failure(controller, command(0, 16, 1), 16), Status::INVALID_FIELD);
    let pages = data_of(controller, GetLogPage::new(0, 0, 1024).to_sqe(1), 1024);
    let pages = SupportedPages::read_from_bytes(&pages).unwrap();
    assert_eq!(pages.lids[0x70].get(), 1 | 0b110 << 16);
}

#[test]
fn the_generation_moves_and_hosts_concerned_are_told() {
    let rig = Rig::new();
    let (here, there) = (discover(&rig, HOST), discover(&rig, OTHER_HOST));
    for admin in [&here, &there] {
        let controller = admin.controller();
        let set = Sqe { cdw10: 0x0b.into(), cdw11: (1u32 << 31).into(), ..Sqe::new(0x09, 1, 0) };
        assert_eq!(execute(controller, &set).0, Outcome::DONE);
        let aer = Sqe::new(admin::ASYNC_EVENT_REQUEST, 5, 0);
        assert_eq!(execute(controller, &aer).0, Outcome::AsyncEvent);
    }
    let before = log(here.controller(), 0).0.genctr.get();
    let mut spec = SubsystemSpec::new(nqn("nqn.2026-11.io.flashloom:private"));
    spec.allow_any_host = false;
    rig.target.add_subsystem(spec).unwrap();
    let private = nqn("nqn.2026-11.io.flashloom:private");
    assert_eq!(here.controller().next_event(), None, "nobody is admitted yet");
    rig.target.allow_host(&private, &nqn(HOST)).unwrap();
    let cqe = here.controller().next_event().unwrap();
    assert_eq!((cqe.cid.get(), cqe.dw0.get()), (5, 0x0070_f002));
    assert_eq!(there.controller().next_event(), None, "none of its business");
    assert!(log(here.controller(), 0).0.genctr.get() > before);
}

#[test]
fn a_discovery_controller_is_one() {
    let rig = Rig::new();
    let admin = discover(&rig, HOST);
    let controller = admin.controller();
    let identify = |cns| Identify::new(cns, 0).to_sqe(1);
    let page = data_of(controller, identify(Cns::Controller), 4096);
    let id = IdentifyController::read_from_bytes(&page).unwrap();
    assert_eq!((id.cntrltype, id.dctype), (2, 1));
    assert_eq!(id.oaes.get(), id_bits::OAES_DISCOVERY_CHANGE);
    assert_eq!((id.nn.get(), id.ioccsz.get()), (0, 0));
    assert_eq!(id.cntlid.get(), controller.cntlid());
    assert_eq!(nvme::nqn::field_str(&id.subnqn), Ok(DISCOVERY));
    for cns in [Cns::Namespace, Cns::ActiveNamespaces, Cns::CommandSets] {
        assert_eq!(failure(controller, identify(cns), 4096), Status::INVALID_FIELD);
    }
    for page in [lid::SMART, lid::CHANGED_NAMESPACES, lid::RESERVATION_NOTIFICATION] {
        let command = GetLogPage::new(page, 0, 512).to_sqe(1);
        assert_eq!(failure(controller, command, 512), Status::INVALID_LOG_PAGE);
    }
    assert_eq!(failure(controller, Sqe::new(admin::ABORT, 1, 0), 0), Status::INVALID_OPCODE);
    assert_eq!(execute(controller, &Sqe::new(admin::KEEP_ALIVE, 1, 0)).0, Outcome::DONE);
}

#[test]
fn a_connection_without_a_timeout_is_closed_when_idle() {
    let rig = Rig::new();
    let mut attempt = rig.attempt(DISCOVERY, HOST);
    attempt.command.kato = 0;
    let admin = rig.connect(&attempt).unwrap();
    crate::rig::set_cc(admin.controller(), nvme::property::Cc(1));
    let deadline = admin.controller().keep_alive_deadline();
    assert_eq!(deadline, Some(crate::rig::START + 120 * crate::rig::SECOND));
}

/// Each Get Log Page made all rows of the log anew, with everybody's Connect waiting for the lock, as often as a
/// stranger liked to ask.
#[test]
fn what_logs_are_made_of_is_gathered_once_a_generation() {
    let rig = Rig::new();
    let first = rig.target.listed();
    let admin = discover(&rig, OTHER_HOST);
    for _ in 0..3 {
        log(admin.controller(), 0);
    }
    assert!(Arc::ptr_eq(&first, &rig.target.listed()));
    let private = nqn("nqn.2026-11.io.flashloom:private");
    let spec = SubsystemSpec { allow_any_host: false, ..SubsystemSpec::new(private.clone()) };
    rig.target.add_subsystem(spec).unwrap();
    assert!(!Arc::ptr_eq(&first, &rig.target.listed()));
    rig.target.allow_host(&private, &nqn(OTHER_HOST)).unwrap();
    let (header, entries) = log(admin.controller(), 0);
    assert_eq!((header.genctr.get(), entries.len()), (rig.target.listed().generation, 3));
}
