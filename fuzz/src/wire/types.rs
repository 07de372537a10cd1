//! Submission queue entries and the data that comes with commands.

use nvme::discovery::{Entry, Header};
use nvme::fabrics::{self, ConnectData};
use nvme::identify::{Identify, NamespaceDescriptor};
use nvme::log::GetLogPage;
use nvme::nqn::Nqn;
use nvme::nvm::{self, Copy, DatasetManagement};
use nvme::rdma::{AcceptData, Keyed, Most, RejectData, Request};
use nvme::refusal::Reason;
use nvme::reservation::{self as resv, AcquireData, RegisterData, ReleaseData};
use nvme::sqe::{Sgl, Sqe};
use nvme::{admin, ana, feature, window};
use zerocopy::{FromBytes, IntoBytes};

/// An entry, and the data behind it.
fn entry(input: &[u8]) -> Option<(Sqe, &[u8])> {
    Sqe::read_from_prefix(input).ok()
}

/// An entry through every parser of commands: what is understood is understood again from the entry
/// that a host would send for it.
pub fn sqe(input: &[u8]) {
    let Some((sqe, _)) = entry(input) else { return };
    let (cid, nsid) = (sqe.cid.get(), sqe.nsid.get());
    let _ = sqe.dptr.data();
    let again = match nvm::Command::parse(&sqe) {
        Ok(nvm::Command::Read(command)) => Some(command.to_sqe(cid, nsid)),
        Ok(nvm::Command::Write(command)) => Some(command.to_sqe(cid, nsid)),
        Ok(nvm::Command::Compare(command)) => Some(command.to_sqe(cid, nsid)),
        Ok(nvm::Command::Verify(command)) => Some(command.to_sqe(cid, nsid)),
        Ok(nvm::Command::WriteZeroes(command)) => Some(command.to_sqe(cid, nsid)),
        Ok(nvm::Command::DatasetManagement(command)) => Some(command.to_sqe(cid, nsid)),
        Ok(nvm::Command::Copy(command)) => Some(command.to_sqe(cid, nsid)),
        Ok(_) => None,
        Err(refusal) => {
            assert!(refusal.location.byte < 64 && refusal.location.bit < 8, "{refusal:?}");
            None
        }
    };
    if let Some(again) = again {
        assert_eq!(nvm::Command::parse(&again), nvm::Command::parse(&sqe));
    }
    admin_queue(&sqe, cid);
}

fn admin_queue(sqe: &Sqe, cid: u16) {
    if let Err(refusal) = admin::Command::parse(sqe) {
        assert!(refusal.location.byte < 64 && refusal.location.bit < 8, "{refusal:?}");
    }
    let again = match fabrics::Command::parse(sqe) {
        Ok(fabrics::Command::Connect(command)) => Some(command.to_sqe(cid)),
        Ok(fabrics::Command::PropertyGet(command)) => Some(command.to_sqe(cid)),
        Ok(fabrics::Command::PropertySet(command)) => Some(command.to_sqe(cid)),
        _ => None,
    };
    if let Some(again) = again {
        assert_eq!(fabrics::Command::parse(&again), fabrics::Command::parse(sqe));
    }
    if let Ok(command) = Identify::parse(sqe) {
        assert_eq!(Identify::parse(&command.to_sqe(cid)), Ok(command));
    }
    if let Ok(command) = GetLogPage::parse(sqe) {
        assert_eq!(GetLogPage::parse(&command.to_sqe(cid)), Ok(command));
        let page = [0; 4096];
        if let Ok(window) = command.window(&page) {
            assert!(window.len() <= page.len());
        }
    }
    if let Ok(command) = window::WindowReceive::parse(sqe) {
        assert_eq!(window::WindowReceive::parse(&command.to_sqe(cid)), Ok(command));
    }
    if let Ok(command) = feature::GetFeatures::parse(sqe) {
        assert_eq!(feature::GetFeatures::parse(&command.to_sqe(cid)), Ok(command));
    }
    if let Ok(command) = feature::SetFeatures::parse(sqe) {
        assert_eq!(feature::SetFeatures::parse(&command.to_sqe(cid)), Ok(command));
    }
}

/// A Connect entry and its data.
pub fn connect(input: &[u8]) {
    let Some((sqe, data)) = entry(input) else { return };
    let _ = fabrics::Command::parse(&sqe);
    let Ok((data, _)) = ConnectData::read_from_prefix(data) else { return };
    for field in [&data.subnqn, &data.hostnqn] {
        if let Ok(nqn) = Nqn::from_field(field) {
            assert_eq!(Nqn::from_field(&nqn.to_field()), Ok(nqn.clone()));
            assert_eq!(Nqn::new(nqn.as_str()), Ok(nqn));
        }
    }
}

/// Private data of NVMe/RDMA: a connection's request, and both answers to one.
pub fn rdma_private_data(input: &[u8]) {
    let most = Most { admin: 32, io: 1024 };
    match Request::parse(input, most) {
        Ok(request) => {
            let most_here = if request.qid == 0 { most.admin } else { most.io };
            assert!((1..=most_here).contains(&request.commands) && request.responses > 0);
            assert_eq!(Request::parse(request.data(1).as_bytes(), most), Ok(request));
        }
        Err(status) => {
            let refusal = RejectData::new(status);
            assert_eq!(RejectData::parse(refusal.as_bytes()), Some(status.raw()));
        }
    }
    if let Some(commands) = AcceptData::parse(input) {
        let again = AcceptData::new(commands);
        assert_eq!(AcceptData::parse(again.as_bytes()), Some(commands));
    }
    assert_ne!(RejectData::parse(input), Some(0));
}

/// A capsule of NVMe/RDMA: an entry whose descriptor names memory by a key, and what commands above see of it.
pub fn rdma_capsule(input: &[u8]) {
    let Some((mut entry, _)) = entry(input) else { return };
    if let Some(keyed) = Keyed::parse(&entry.dptr) {
        assert!(keyed.length <= Keyed::LENGTH_MAX);
        assert_eq!(keyed.sgl(), entry.dptr);
        entry.dptr = Sgl::transport(keyed.length);
    }
    sqe(entry.as_bytes());
}

/// A reservation command and its data.
pub fn reservation(input: &[u8]) {
    let Some((sqe, data)) = entry(input) else { return };
    let _ = resv::Register::parse(&sqe);
    let _ = resv::Acquire::parse(&sqe);
    let _ = resv::Release::parse(&sqe);
    if let Ok(report) = resv::Report::parse(&sqe) {
        assert!(report.bytes >= 4 && report.bytes.is_multiple_of(4));
    }
    assert_eq!(RegisterData::read(data).is_ok(), data.len() >= 16);
    assert_eq!(AcquireData::read(data).is_ok(), data.len() >= 16);
    assert_eq!(ReleaseData::read(data).is_ok(), data.len() >= 8);
}

/// A Dataset Management entry and its ranges.
pub fn dsm(input: &[u8]) {
    let Some((sqe, data)) = entry(input) else { return };
    let Ok(command) = DatasetManagement::parse(&sqe) else { return };
    let Ok(ranges) = command.ranges(data) else {
        assert!(data.len() < command.data_bytes());
        return;
    };
    assert_eq!(ranges.len(), usize::from(command.ranges.count()));
    for range in ranges.iter().filter_map(nvm::DsmRange::range) {
        let end = range.end();
        assert_eq!(range.check(1 << 20).is_ok(), end.is_some_and(|end| end.get() <= 1 << 20));
        let _ = range.bytes(4096);
    }
}

/// A Copy entry and its source range entries.
pub fn copy(input: &[u8]) {
    let Some((sqe, data)) = entry(input) else { return };
    let Ok(command) = Copy::parse(&sqe) else { return };
    let sources = match command.sources(data) {
        Ok(sources) => sources,
        Err(refusal) => {
            let short = data.len() < command.data_bytes();
            assert_eq!(refusal.reason == Reason::Length, short);
            return;
        }
    };
    assert_eq!(sources.len(), usize::from(command.ranges.count()));
    for source in sources {
        assert!(source.range.blocks() > 0);
        let _ = source.range.check(u64::MAX);
        let _ = source.range.bytes(4096);
    }
}

/// A discovery log page as a host reads it.
pub fn discovery(input: &[u8]) {
    let Ok((header, mut rest)) = Header::read_from_prefix(input) else { return };
    let mut left = header.numrec.get();
    while let (true, Ok((entry, behind))) = (left > 0, Entry::read_from_prefix(rest)) {
        for text in [entry.traddr(), entry.trsvcid(), entry.subnqn()] {
            assert!(!text.contains('\0'));
        }
        let _ = Nqn::from_field(&entry.subnqn);
        left -= 1;
        rest = behind;
    }
}

/// Pages that a host reads whose structures have lengths of their own.
pub fn identify(input: &[u8]) {
    let descriptors = NamespaceDescriptor::parse_page(input);
    assert!(descriptors.len() * 5 <= input.len());
    if let Some((_, groups)) = ana::parse_page(input) {
        let members: usize = groups.iter().map(|group| group.nsids.len()).sum();
        assert!(16 + groups.len() * 32 + members * 4 <= input.len());
    }
}
