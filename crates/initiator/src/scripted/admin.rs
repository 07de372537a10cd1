//! Fabrics and admin commands.

use nvme::admin::Abort;
use nvme::ana::{self, Group, State};
use nvme::cqe::Cqe;
use nvme::discovery::{AddressFamily, Entry, Header, SubsystemType, TransportType};
use nvme::fabrics::{Command, ConnectData};
use nvme::feature::{HostBehavior, fid};
use nvme::identify::{
    Cns, Identify, IdentifyController, IndependentNamespace, NamespaceList, bits,
};
use nvme::log::{GetLogPage, LogOffset, lid};
use nvme::nqn::Nqn;
use nvme::opcode::admin;
use nvme::property::{Cap, Cc, Csts, ShutdownNotification, ShutdownStatus, offset};
use nvme::sqe::Sqe;
use nvme::status::Status;
use nvme::window::MARK;
use stdx::num::usize64;
use zerocopy::{FromBytes, IntoBytes};

use super::Fault;
use super::link::{Link, Outcome, done};

impl Link {
    pub(super) fn fabrics(&mut self, sqe: &Sqe, data: &[u8]) -> Outcome {
        let mut cqe = Cqe::new(sqe.cid.get(), Status::SUCCESS);
        match Command::parse(sqe).unwrap() {
            Command::Connect(connect) => {
                let fields = ConnectData::ref_from_bytes(data).unwrap();
                assert_ne!(fields.hostid, [0; 16]);
                self.admin = connect.qid == 0;
                if self.admin {
                    self.shared.associations.set(self.shared.associations.get() + 1);
                }
                assert_eq!(fields.cntlid.get(), if self.admin { 0xffff } else { 5 });
                cqe.dw0 = 5.into();
                // Flow control is off, as it was asked for.
                cqe.sqhd = u16::MAX.into();
                if let Fault::Refuse(status, dw0) = self.shared.fault.get() {
                    cqe = Cqe::new(sqe.cid.get(), status);
                    cqe.dw0 = dw0.into();
                }
            }
            Command::PropertyGet(get) => {
                let value = self.property(get.offset);
                cqe.dw0 = stdx::num::low32(value).into();
                cqe.dw1 = stdx::num::low32(value >> 32).into();
            }
            Command::PropertySet(set) => {
                assert_eq!(set.offset, offset::CC);
                let cc = Cc(stdx::num::low32(set.value));
                if Cc(self.shared.cc.get()).enabled() && !cc.enabled() {
                    self.shared.resets.set(self.shared.resets.get() + 1);
                    self.shared.fault.set(Fault::None);
                }
                self.shared.cc.set(cc.0);
            }
            _ => return done(sqe, Status::INVALID_FIELD),
        }
        Outcome::Done(cqe)
    }

    fn property(&self, at: u32) -> u64 {
        let cc = Cc(self.shared.cc.get());
        let fault = self.shared.fault.get();
        match at {
            offset::CAP => Cap::new(127, 1, Cap::CSS_NVM | Cap::CQR).0,
            offset::CC => cc.0.into(),
            offset::CSTS => {
                let ready = cc.enabled() && fault != Fault::NeverReady;
                let shut = cc.shn() == Some(ShutdownNotification::Normal);
                let shst = if shut { ShutdownStatus::Complete } else { ShutdownStatus::Normal };
                Csts::new(ready, fault == Fault::CfsSet, shst).0.into()
            }
            _ => panic!("property {at:#x}"),
        }
    }

    pub(super) fn admin_command(&mut self, sqe: &Sqe, data: &[u8]) -> Outcome {
        match sqe.opcode {
            admin::IDENTIFY => {
                let ask = Identify::parse(sqe).unwrap();
                match (ask.cns, ask.nsid) {
                    (Cns::Controller, _) => Outcome::Data(self.identity().as_bytes().to_vec()),
                    (Cns::Namespace, 1) => {
                        Outcome::Data(self.shared.namespace().as_bytes().to_vec())
                    }
                    (Cns::IndependentNamespace, 1) => match self.shared.script.cache.1 {
                        Some(nsfeat) => {
                            let page = IndependentNamespace { nsfeat, ..Default::default() };
                            Outcome::Data(page.as_bytes().to_vec())
                        }
                        None => done(sqe, Status::INVALID_FIELD.with_dnr()),
                    },
                    (Cns::Namespace, 2) => Outcome::Data(vec![0; 4096]),
                    (Cns::ActiveNamespaces, 0) => {
                        Outcome::Data(NamespaceList::new([1]).as_bytes().to_vec())
                    }
                    _ => done(sqe, Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr()),
                }
            }
            admin::SET_FEATURES if sqe.cdw10.get() == u32::from(fid::HOST_BEHAVIOR) => {
                self.set_behavior(sqe, data)
            }
            admin::SET_FEATURES => grant_queues(sqe),
            admin::KEEP_ALIVE => done(sqe, Status::SUCCESS),
            admin::ASYNC_EVENT_REQUEST => {
                self.shared.requests.borrow_mut().push(sqe.cid.get());
                self.shared.poked.raise();
                Outcome::Nothing
            }
            admin::ABORT if self.shared.fault.get() == Fault::StallAborts => Outcome::Nothing,
            admin::ABORT => {
                self.shared.aborts.set(self.shared.aborts.get() + 1);
                if self.shared.fault.get() == Fault::Stall {
                    self.shared.aborted.borrow_mut().push(Abort::parse(sqe).cid);
                    self.shared.fault.set(Fault::None);
                    self.shared.poked.raise();
                }
                done(sqe, Status::SUCCESS)
            }
            admin::GET_LOG_PAGE if sqe.cdw10.get() & 0xff == u32::from(lid::CHANGED_NAMESPACES) => {
                Outcome::Data(NamespaceList::new([1]).as_bytes().to_vec())
            }
            admin::GET_LOG_PAGE if sqe.cdw10.get() & 0xff == u32::from(lid::ANA) => {
                Outcome::Data(self.ana_log(sqe))
            }
            admin::GET_LOG_PAGE => Outcome::Data(self.discovery_log(sqe)),
            admin::WINDOW_RECEIVE if self.shared.window_busy.get() > 0 => {
                self.shared.window_busy.set(self.shared.window_busy.get() - 1);
                done(sqe, Status::WINDOW_BUSY)
            }
            admin::WINDOW_RECEIVE => match &*self.shared.window.borrow() {
                Some(grant) => {
                    assert_eq!((sqe.cdw10.get(), sqe.cdw11.get()), (127, 1));
                    self.shared.windows.set(self.shared.windows.get() + 1);
                    Outcome::Data(grant.encode().to_vec())
                }
                None => done(sqe, Status::INVALID_OPCODE.with_dnr()),
            },
            admin::WINDOW_END => {
                self.shared.ended.borrow_mut().push(sqe.cdw10.get());
                done(sqe, Status::SUCCESS)
            }
            _ => done(sqe, Status::INVALID_OPCODE),
        }
    }

    fn set_behavior(&self, sqe: &Sqe, data: &[u8]) -> Outcome {
        if !self.shared.script.behaves {
            return done(sqe, Status::INVALID_FIELD.with_dnr());
        }
        assert_eq!(data.len(), size_of::<HostBehavior>(), "in the capsule");
        self.shared.acre.set(data[0] == 1);
        done(sqe, Status::SUCCESS)
    }

    fn identity(&self) -> IdentifyController {
        let mut vs = [0; 1024];
        if self.shared.script.windows {
            vs[..MARK.len()].copy_from_slice(&MARK);
        }
        IdentifyController {
            vs,
            mdts: 8,
            vwc: self.shared.script.cache.0,
            oaes: (bits::OAES_NAMESPACE_ATTRIBUTE | bits::OAES_ANA_CHANGE).into(),
            cmic: bits::CMIC_ANA,
            anagrpmax: 4.into(),
            nanagrpid: 2.into(),
            cqt: self.shared.script.cqt.into(),
            crdt1: self.shared.script.crdt[0].into(),
            crdt2: self.shared.script.crdt[1].into(),
            crdt3: self.shared.script.crdt[2].into(),
            ioccsz: (self.shared.script.in_capsule / 16 + 4).into(),
            ..IdentifyController::default()
        }
    }

    /// Two groups, of which the second has the namespace.
    fn ana_log(&self, sqe: &Sqe) -> Vec<u8> {
        let ask = GetLogPage::parse(sqe).unwrap();
        let group = |id, state| Group { id, change_count: 0, state, nsids: vec![id] };
        let access = match self.shared.fault.get() {
            Fault::FalseAccess => State::Optimized,
            _ => self.shared.access.get(),
        };
        let groups = [group(1, State::PersistentLoss), group(3, access)];
        let groups = if self.shared.fault.get() == Fault::NoGroup { &groups[..1] } else { &groups };
        let mut page = ana::page(0, groups, ask.lsp & ana::RETURN_GROUPS_ONLY != 0);
        page.resize(usize64(ask.bytes), 0);
        page
    }

    fn discovery_log(&self, sqe: &Sqe) -> Vec<u8> {
        let ask = GetLogPage::parse(sqe).unwrap();
        let script = &self.shared.script;
        let mut page =
            Header::new(self.shared.generation.get(), u64::try_from(script.records).unwrap())
                .as_bytes()
                .to_vec();
        if self.shared.fault.get() == Fault::RestlessLog {
            self.shared.generation.set(self.shared.generation.get() + 1);
        }
        for index in 0..script.records {
            let nqn = Nqn::new(&format!("nqn.2026-11.io.flashloom:{index}")).unwrap();
            let mut entry =
                Entry::new(TransportType::Tcp, SubsystemType::Nvm, AddressFamily::Ipv4, &nqn);
            entry.set_address("192.0.2.1", "4420");
            page.extend_from_slice(entry.as_bytes());
        }
        let LogOffset::Bytes(from) = ask.offset else { panic!("an index") };
        page[usize64(from)..][..usize64(ask.bytes)].to_vec()
    }
}

/// Four queues, whatever was asked for.
fn grant_queues(sqe: &Sqe) -> Outcome {
    let mut cqe = Cqe::new(sqe.cid.get(), Status::SUCCESS);
    cqe.dw0 = 0x0003_0003.into();
    Outcome::Done(cqe)
}
