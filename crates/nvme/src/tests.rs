//! Properties that hold of every parser of the crate's typed commands, and of its tables.

use proptest::prelude::*;
use zerocopy::FromBytes;

use crate::admin;
use crate::fabrics;
use crate::feature::{self, GetFeatures, SetFeatures};
use crate::identify::{self, Cns, Identify, NamespaceDescriptor};
use crate::log::{self, GetLogPage, LogOffset};
use crate::opcode;
use crate::property::offset;
use crate::reservation;
use crate::sqe::Sqe;
use crate::status::Status;

fn sqe_of(bytes: [u8; 64]) -> Sqe {
    Sqe::read_from_bytes(&bytes).unwrap()
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_by_every_parser(bytes in any::<[u8; 64]>(), opc in any::<u8>()) {
        let mut sqe = sqe_of(bytes);
        for opcode in [sqe.opcode, opc, opcode::admin::FABRICS] {
            sqe.opcode = opcode;
            let _ = fabrics::Command::parse(&sqe);
            let _ = admin::Command::parse(&sqe);
            let _ = Identify::parse(&sqe);
            let _ = GetLogPage::parse(&sqe);
            let _ = GetFeatures::parse(&sqe);
            let _ = SetFeatures::parse(&sqe);
            let _ = reservation::Register::parse(&sqe);
            let _ = reservation::Acquire::parse(&sqe);
            let _ = reservation::Release::parse(&sqe);
            let _ = reservation::Report::parse(&sqe);
            let _ = sqe.dptr.data();
        }
    }

    #[test]
    fn fabrics_commands_read_back(
        cid in any::<u16>(), qid in any::<u16>(), sqsize in any::<u16>(), cattr in any::<u8>(),
        kato in any::<u32>(), value in any::<u64>(),
    ) {
        let connect = fabrics::Connect {
            recfmt: 0, qid, sqsize, attributes: fabrics::ConnectAttributes(cattr), kato,
        };
        prop_assert_eq!(
            fabrics::Command::parse(&connect.to_sqe(cid)), Ok(fabrics::Command::Connect(connect))
        );
        let set = fabrics::PropertySet {
            offset: offset::CC, size: fabrics::PropertySize::Four, value: value & 0xffff_ffff,
        };
        prop_assert_eq!(
            fabrics::Command::parse(&set.to_sqe(cid)), Ok(fabrics::Command::PropertySet(set))
        );
        let get = fabrics::PropertyGet { offset: offset::CAP, size: fabrics::PropertySize::Eight };
        prop_assert_eq!(
            fabrics::Command::parse(&get.to_sqe(cid)), Ok(fabrics::Command::PropertyGet(get))
        );
        prop_assert_eq!(
            fabrics::Command::parse(&fabrics::disconnect_sqe(cid)), Ok(fabrics::Command::Disconnect)
        );
    }

    #[test]
    fn admin_commands_read_back(
        lid in any::<u8>(), dwords in 1..=u64::from(u32::MAX), offset in any::<u64>(),
        nsid in any::<u32>(), lsp in 0..128u8, rae in any::<bool>(), index in any::<bool>(),
        cdw11 in any::<u32>(), save in any::<bool>(),
    ) {
        let get = GetLogPage {
            lid, lsp, retain_event: rae, bytes: dwords * 4,
            offset: if index { LogOffset::Index(offset) } else { LogOffset::Bytes(offset & !3) },
            lsi: 9, uuid_index: 3, csi: 0, nsid,
        };
        prop_assert_eq!(GetLogPage::parse(&get.to_sqe(1)), Ok(get));
        let set = SetFeatures { fid: lid, save, nsid, cdw11, cdw12: !cdw11, uuid_index: 0 };
        prop_assert_eq!(SetFeatures::parse(&set.to_sqe(1)), Ok(set));
        for select in feature::Select::ALL {
            let get = GetFeatures { fid: lid, select: *select, nsid, cdw11, uuid_index: 1 };
            prop_assert_eq!(GetFeatures::parse(&get.to_sqe(1)), Ok(get));
        }
        for cns in Cns::ALL {
            let identify = Identify { cntid: 5, cns_specific: 6, csi: 0, ..Identify::new(*cns, nsid) };
            prop_assert_eq!(Identify::parse(&identify.to_sqe(1)), Ok(identify));
        }
    }

    #[test]
    fn a_window_is_the_part_of_the_page_asked_for(
        length in 0..300usize, offset in 0..100u64, dwords in 1..100u64,
    ) {
        let page: Vec<u8> = (0..=255).cycle().take(length).collect();
        let offset = offset * 4;
        let get = GetLogPage { offset: LogOffset::Bytes(offset), ..GetLogPage::new(2, 0, dwords * 4) };
        let from = usize::try_from(offset).unwrap();
        match get.window(&page) {
            Ok(window) => {
                let to = (from + usize::try_from(dwords * 4).unwrap()).min(length);
                prop_assert_eq!(window, &page[from..to]);
            }
            Err(refusal) => {
                prop_assert!(from > length);
                prop_assert!(refusal.status().is(Status::INVALID_FIELD));
            }
        }
    }

    #[test]
    fn any_page_of_descriptors_is_read(page in prop::collection::vec(any::<u8>(), 0..4096)) {
        let _ = NamespaceDescriptor::parse_page(&page);
        let _ = crate::ana::parse_page(&page);
    }

    #[test]
    fn any_status_field_reads_back_but_for_its_phase(field in any::<u16>()) {
        let status = Status::from_field(field);
        prop_assert_eq!(status.to_field(), field & !1);
        prop_assert!(!status.to_string().is_empty());
        prop_assert_eq!(Status::new(status.code_type(), status.code()), status.kind());
    }
}

#[test]
fn an_admin_entry_is_typed_by_its_opcode() {
    use admin::{Abort, Command};
    let abort = Abort { sqid: 3, cid: 0x1234 };
    assert_eq!(Command::parse(&abort.to_sqe(1)), Ok(Command::Abort(abort)));
    assert_eq!(Command::parse(&admin::keep_alive_sqe(1)), Ok(Command::KeepAlive));
    let request = admin::async_event_request_sqe(1);
    assert_eq!(Command::parse(&request), Ok(Command::AsyncEventRequest));

    let refusal = |opcode: u8, flags: u8| {
        let mut sqe = admin::keep_alive_sqe(1);
        (sqe.opcode, sqe.flags) = (opcode, flags);
        Command::parse(&sqe).unwrap_err().status()
    };
    assert!(refusal(opcode::admin::CREATE_IO_SQ, 0x40).is(Status::INVALID_OPCODE));
    assert!(refusal(0xff, 0).is(Status::INVALID_OPCODE));
    assert!(refusal(opcode::admin::KEEP_ALIVE, 0).is(Status::INVALID_FIELD));
    assert!(refusal(opcode::admin::KEEP_ALIVE, 0x41).is(Status::INVALID_FIELD));
}

#[test]
fn a_disconnect_of_another_record_format_is_incompatible() {
    let mut sqe = fabrics::disconnect_sqe(1);
    sqe.cdw10 = 1.into();
    let status = fabrics::Command::parse(&sqe).unwrap_err().status();
    assert!(status.is(Status::CONNECT_INCOMPATIBLE_FORMAT));
}

#[test]
fn descriptors_read_back() {
    let descriptors = [
        NamespaceDescriptor::Uuid([7; 16]),
        NamespaceDescriptor::Nguid([8; 16]),
        NamespaceDescriptor::Eui64([9; 8]),
        NamespaceDescriptor::CommandSet(identify::CommandSet::Nvm),
    ];
    let page = NamespaceDescriptor::page(&descriptors);
    assert_eq!(page[..4], [3, 16, 0, 0]);
    assert_eq!(NamespaceDescriptor::parse_page(&page), descriptors);
}

#[test]
fn a_status_stands_where_the_specification_has_it() {
    assert_eq!(Status::INVALID_FIELD.with_dnr().to_field(), 0x8004);
    assert_eq!(Status::CONNECT_INVALID_PARAMETERS.to_field(), 0x0304);
    assert_eq!(Status::ANA_INACCESSIBLE.to_field(), 0x0604);
    assert_eq!(Status::INVALID_FIELD.with_more().with_retry_delay(2).to_field(), 0x6004);
    assert_eq!(Status::CONNECT_INVALID_HOST.fabrics_name(), Some("Connect Invalid Host"));
    assert_eq!(
        Status::LBA_OUT_OF_RANGE.with_dnr().to_string(),
        "LBA Out of Range (0x0/0x80, do not retry)"
    );
}

#[test]
fn tables_have_no_code_twice() {
    fn distinct(table: &[(u8, &str)]) {
        let mut codes: Vec<_> = table.iter().map(|(code, _)| code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), table.len());
    }
    distinct(opcode::admin::ALL);
    distinct(opcode::io::ALL);
    distinct(opcode::fabrics::ALL);
    distinct(feature::fid::ALL);
    distinct(log::lid::ALL);
    assert_eq!(opcode::admin::name(0x06), "Identify");
    assert_eq!(opcode::admin::name(0xc1), "Vendor Specific");
    assert_eq!(opcode::io::name(0x7e), "Reserved");
    assert_eq!(log::lid::name(log::lid::SMART), "SMART / Health Information");
    assert_eq!(feature::fid::name(feature::fid::KEEP_ALIVE_TIMER), "Keep Alive Timer");
}

#[test]
fn a_property_is_only_reached_with_its_size() {
    let get =
        |offset, size| fabrics::Command::parse(&fabrics::PropertyGet { offset, size }.to_sqe(1));
    use fabrics::PropertySize::{Eight, Four};
    assert!(get(offset::CAP, Eight).is_ok());
    assert!(get(offset::CSTS, Four).is_ok());
    for (offset, size) in [(offset::CAP, Four), (offset::VS, Eight), (0x1234, Four), (4, Four)] {
        assert!(get(offset, size).unwrap_err().status().is(Status::INVALID_FIELD));
    }
}
