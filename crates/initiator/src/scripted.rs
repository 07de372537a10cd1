//! A controller for tests: the real protocol machine of the other end, a little memory, and a script that says
//! where it misbehaves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use fabric::race;
use nvme::admin::Abort;
use nvme::ana::{self, Group, State};
use nvme::cqe::Cqe;
use nvme::discovery::{AddressFamily, Entry, Header, SubsystemType};
use nvme::event::Event as EventOf;
use nvme::fabrics::{Command, ConnectData};
use nvme::identify::{Cns, Identify, IdentifyController, IdentifyNamespace, NamespaceList, bits};
use nvme::log::{GetLogPage, LogOffset, lid};
use nvme::nqn::Nqn;
use nvme::opcode::{admin, io};
use nvme::property::{Cap, Cc, Csts, ShutdownNotification, ShutdownStatus, offset};
use nvme::sqe::{DataPointer, Sqe};
use nvme::status::Status;
use nvme::tcp::controller::{Config, Event, Machine, Step, term_req};
use nvme::tcp::{Fatal, ddgst};
use reactor::net::{ListenOptions, TcpListener, TcpStream};
use reactor::sync::Signal;
use stdx::num::{u16_of, u32_of, usize32, usize64};
use stdx::prng::Prng;
use zerocopy::{FromBytes, IntoBytes};

mod hostile;

pub const BLOCK: usize = 512;
pub const BLOCKS: usize = 8192;

/// What the controller is, and what it does wrong.
#[derive(Clone)]
pub struct Script {
    /// IOCCSZ as bytes of data.
    pub in_capsule: u32,
    pub maxh2cdata: u32,
    pub cpda: u8,
    pub digests: bool,
    /// Reads complete by the SUCCESS flag.
    pub success_flag: bool,
    /// Data of one C2HData PDU, bytes.
    pub c2h_max: usize,
    pub records: usize,
    pub fault: Fault,
    /// Of what a hostile controller sends.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Never answers an ICReq.
    Silent,
    /// Refuses Connect.
    Refuse(Status, u32),
    /// Never sets CSTS.RDY.
    NeverReady,
    /// Sets CSTS.CFS.
    CfsSet,
    /// Damages the data digest of reads.
    Digest,
    /// Sends half of what a read asks for, and calls it a success.
    HalfRead,
    /// Completes a command that is not outstanding.
    StrangeCid,
    /// Sends C2HTermReq when a read arrives.
    Terminate,
    /// Closes when a read arrives.
    Close,
    /// Fails each read.
    FailReads(Status),
    /// The discovery log's generation counter moves with every read of it.
    RestlessLog,
    /// Answers reads and writes by PDUs that are nearly right, or not at all.
    Hostile,
    /// Answers no read until an Abort has ended one.
    Stall,
    /// Answers nothing on the connections there are; those to come are served.
    Mute,
    /// The ANA log page says that the namespace can be accessed, whatever its commands are told.
    FalseAccess,
    /// The ANA log page has not got the namespace's group.
    NoGroup,
    /// Answers no write or copy until it is reset; the controller holds a write until [`Scripted::haunt`].
    HoldWrites,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            in_capsule: 16384,
            maxh2cdata: 65536,
            cpda: 0,
            digests: true,
            success_flag: true,
            c2h_max: 1 << 20,
            records: 3,
            fault: Fault::None,
            seed: 0,
        }
    }
}

/// State all connections share.
struct Shared {
    script: Script,
    fault: Cell<Fault>,
    memory: Rc<RefCell<Vec<u8>>>,
    /// What the ANA log page says.
    access: Cell<State>,
    /// What Identify Namespace says; 0 when it is not there.
    blocks: Cell<u64>,
    nguid: Cell<u8>,
    /// Asynchronous Event Requests that wait.
    requests: RefCell<Vec<u16>>,
    /// Events to tell.
    events: RefCell<VecDeque<EventOf>>,
    /// Connections of an earlier age hang up.
    age: Cell<u64>,
    poked: Signal,
    chance: RefCell<Prng>,
    held: RefCell<Vec<(Sqe, Vec<u8>)>>,
    /// Commands of the I/O queue to answer as aborted.
    aborted: RefCell<Vec<u16>>,
    /// Admin queues connected, and Aborts and resets seen.
    pub copies: Cell<u32>,
    /// Commands refused for the state of access.
    pub refused: Cell<u32>,
    pub reads: Cell<u32>,
    pub associations: Cell<u32>,
    pub aborts: Cell<u32>,
    pub resets: Cell<u32>,
    cc: Cell<u32>,
    generation: Cell<u64>,
    pub r2ts: Cell<u32>,
}

/// A running controller.
pub struct Scripted {
    pub addr: SocketAddr,
    shared: Rc<Shared>,
}

impl Scripted {
    /// Listens on a free port of this host and serves until the reactor ends.
    pub fn start(script: Script) -> Self {
        Self::over(Rc::new(RefCell::new(vec![0; BLOCK * BLOCKS])), script)
    }

    /// Another controller of the same namespace.
    pub fn beside(&self) -> Self {
        Self::over(Rc::clone(&self.shared.memory), self.shared.script.clone())
    }

    fn over(memory: Rc<RefCell<Vec<u8>>>, script: Script) -> Self {
        let listener =
            TcpListener::bind("127.0.0.1:0".parse().unwrap(), ListenOptions::default()).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Rc::new(Shared {
            fault: Cell::new(script.fault),
            memory,
            access: Cell::new(State::Optimized),
            blocks: Cell::new(u64::try_from(BLOCKS).unwrap()),
            nguid: Cell::new(1),
            requests: RefCell::default(),
            events: RefCell::default(),
            age: Cell::new(0),
            poked: Signal::new(),
            chance: RefCell::new(Prng::new(script.seed)),
            held: RefCell::default(),
            aborted: RefCell::default(),
            copies: Cell::new(0),
            refused: Cell::new(0),
            reads: Cell::new(0),
            associations: Cell::new(0),
            aborts: Cell::new(0),
            resets: Cell::new(0),
            script,
            cc: Cell::new(0),
            generation: Cell::new(7),
            r2ts: Cell::new(0),
        });
        let serving = Rc::clone(&shared);
        reactor::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                reactor::spawn(Link::new(stream, Rc::clone(&serving)).serve());
            }
        });
        Self { addr, shared }
    }

    /// R2Ts sent.
    pub fn r2ts(&self) -> u32 {
        self.shared.r2ts.get()
    }

    /// Associations made, Aborts taken, and resets by CC.EN.
    pub fn seen(&self) -> (u32, u32, u32) {
        let Shared { associations, aborts, resets, .. } = &*self.shared;
        (associations.get(), aborts.get(), resets.get())
    }

    pub fn set_fault(&self, fault: Fault) {
        self.shared.fault.set(fault);
    }

    /// Closes every connection.
    pub fn cut(&self) {
        self.shared.age.set(self.shared.age.get() + 1);
        self.shared.requests.borrow_mut().clear();
        self.shared.poked.raise();
    }

    /// Copies taken.
    pub fn copies(&self) -> u32 {
        self.shared.copies.get()
    }

    /// Reads taken.
    pub fn reads(&self) -> u32 {
        self.shared.reads.get()
    }

    /// Counts reads and refused commands from 0 again.
    pub fn forget_counts(&self) {
        self.shared.reads.set(0);
        self.shared.refused.set(0);
    }

    /// Commands refused for the state of access.
    pub fn refused(&self) -> u32 {
        self.shared.refused.get()
    }

    /// Writes that the controller holds.
    pub fn held(&self) -> usize {
        self.shared.held.borrow().len()
    }

    /// Executes the writes that are held, whoever sent them and however long ago.
    pub fn haunt(&self) {
        for (sqe, data) in self.shared.held.take() {
            self.shared.memory.borrow_mut()[Link::span(&sqe)].copy_from_slice(&data);
        }
    }

    /// The first byte of a block.
    pub fn byte_of(&self, block: usize) -> u8 {
        self.shared.memory.borrow()[block * BLOCK]
    }

    /// Makes it a namespace of another size, of none, or another namespace, and sends an event.
    pub fn change(&self, blocks: u64, nguid: u8) {
        self.shared.blocks.set(blocks);
        self.shared.nguid.set(nguid);
        self.tell(EventOf::NamespaceAttribute);
    }

    /// Gives the namespace another state of access, and sends an event.
    pub fn set_access(&self, access: State) {
        self.set_access_silently(access);
        self.tell(EventOf::AnaChange);
    }

    /// The same without the event.
    pub fn set_access_silently(&self, access: State) {
        self.shared.access.set(access);
    }

    fn tell(&self, event: EventOf) {
        self.shared.events.borrow_mut().push_back(event);
        self.shared.poked.raise();
    }
}

impl Shared {
    fn namespace(&self) -> IdentifyNamespace {
        let mut namespace = IdentifyNamespace::default();
        namespace.nsze = self.blocks.get().into();
        namespace.ncap = namespace.nsze;
        namespace.nguid = [self.nguid.get(); 16];
        namespace.lbaf[0].lbads = 9;
        namespace.anagrpid = 3.into();
        namespace
    }

    fn has_news(&self, admin: bool) -> bool {
        if admin {
            !self.events.borrow().is_empty() && !self.requests.borrow().is_empty()
        } else {
            !self.aborted.borrow().is_empty()
        }
    }
}

/// One connection.
struct Link {
    stream: TcpStream,
    machine: Machine,
    shared: Rc<Shared>,
    admin: bool,
    /// Writes that wait for their data: entry and what has come.
    transfers: Vec<Option<(Sqe, Vec<u8>)>>,
    out: Vec<u8>,
    hang_up: bool,
    /// Sends nothing any more.
    muted: bool,
}

/// What a command came to.
enum Outcome {
    Done(Cqe),
    Data(Vec<u8>),
    Nothing,
}

impl Link {
    fn new(stream: TcpStream, shared: Rc<Shared>) -> Self {
        let script = &shared.script;
        let config = Config {
            max_in_capsule: script.in_capsule.max(8192),
            maxh2cdata: script.maxh2cdata,
            cpda: script.cpda,
            allow_hdgst: script.digests,
            allow_ddgst: script.digests,
            transfers: 64,
        };
        let transfers = vec![None; 64];
        let machine = Machine::new(config);
        Self {
            stream,
            machine,
            shared,
            admin: true,
            transfers,
            out: Vec::new(),
            hang_up: false,
            muted: false,
        }
    }

    async fn serve(mut self) {
        let mut input: Vec<u8> = Vec::new();
        let mut buffer = vec![0; 65536];
        let age = self.shared.age.get();
        while !self.hang_up {
            let shared = Rc::clone(&self.shared);
            let due = || shared.age.get() != age || shared.has_news(self.admin);
            let poked = async {
                shared.poked.until(due).await;
                None
            };
            let received = async { Some(self.stream.recv(&mut buffer).await) };
            match race(received, poked).await {
                Some(Ok(bytes @ 1..)) => input.extend_from_slice(&buffer[..bytes]),
                None if shared.age.get() != age => return,
                None => self.tell_news(),
                _ => return,
            }
            if let Err(fatal) = self.digest(&mut input) {
                self.out.extend_from_slice(&term_req(&fatal, &input));
                self.hang_up = true;
            }
            let out = std::mem::take(&mut self.out);
            self.muted |= self.shared.fault.get() == Fault::Mute;
            if self.muted {
                continue;
            }
            if self.stream.send_all(&out).await.is_err() {
                return;
            }
        }
    }

    fn tell_news(&mut self) {
        if !self.admin {
            for cid in self.shared.aborted.take() {
                self.respond(&Cqe::new(cid, Status::ABORT_REQUESTED));
            }
            return;
        }
        let Some(cid) = self.shared.requests.borrow_mut().pop() else { return };
        let Some(event) = self.shared.events.borrow_mut().pop_front() else { return };
        let mut cqe = Cqe::new(cid, Status::SUCCESS);
        cqe.dw0 = event.to_dw0().into();
        self.respond(&cqe);
    }

    /// Handles all of `input` that can be.
    fn digest(&mut self, input: &mut Vec<u8>) -> Result<(), Fatal> {
        let mut at = 0;
        loop {
            let (consumed, commands) = match self.machine.next(&input[at..])? {
                Step::NeedMore { consumed, .. } => {
                    input.drain(..at + consumed);
                    return Ok(());
                }
                Step::Event { consumed, event } => (consumed, owned(event)),
            };
            at += consumed;
            self.handle(commands);
        }
    }

    fn handle(&mut self, event: Owned) {
        match event {
            Owned::Initialize => {
                if self.shared.fault.get() != Fault::Silent {
                    self.out.extend_from_slice(&self.machine.ic_resp());
                }
            }
            Owned::Capsule(sqe, data) => self.capsule(&sqe, data),
            Owned::Data(ttag, offset, bytes) => {
                if let Some((_, buffer)) = &mut self.transfers[usize::from(ttag)] {
                    let at = usize32(offset);
                    buffer[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
            Owned::DataEnd(ttag) => {
                if let Some((sqe, data)) = self.transfers[usize::from(ttag)].take() {
                    self.write(&sqe, &data);
                }
            }
            Owned::PartEnd | Owned::Terminated => {}
        }
    }

    fn capsule(&mut self, sqe: &Sqe, data: Vec<u8>) {
        let outcome = match sqe.opcode {
            admin::FABRICS => self.fabrics(sqe, &data),
            _ if self.admin => self.admin_command(sqe),
            _ if self.shared.access.get().refusal().is_some() => {
                self.shared.refused.set(self.shared.refused.get() + 1);
                done(sqe, self.shared.access.get().refusal().unwrap())
            }
            io::READ | io::WRITE if self.shared.fault.get() == Fault::Hostile => {
                let noise = hostile::answer(&mut self.shared.chance.borrow_mut(), sqe);
                self.out.extend_from_slice(&noise);
                Outcome::Nothing
            }
            io::READ => self.read(sqe),
            io::WRITE => match sqe.dptr.data() {
                Some(DataPointer::Transport { length }) => {
                    let free = self.transfers.iter().position(Option::is_none).unwrap();
                    let head = self.machine.begin_transfer(u16_of(free), sqe.cid.get(), 0, length);
                    self.out.extend_from_slice(&head);
                    self.transfers[free] = Some((*sqe, vec![0; usize32(length)]));
                    self.shared.r2ts.set(self.shared.r2ts.get() + 1);
                    Outcome::Nothing
                }
                _ => {
                    self.write(sqe, &data);
                    Outcome::Nothing
                }
            },
            io::COPY => {
                self.shared.copies.set(self.shared.copies.get() + 1);
                if self.shared.fault.get() == Fault::HoldWrites {
                    Outcome::Nothing
                } else {
                    done(sqe, Status::SUCCESS)
                }
            }
            io::FLUSH => done(sqe, Status::SUCCESS),
            _ => done(sqe, Status::INVALID_OPCODE),
        };
        match outcome {
            Outcome::Done(cqe) => self.respond(&cqe),
            Outcome::Data(data) => self.send_data(sqe, &data),
            Outcome::Nothing => {}
        }
    }

    fn respond(&mut self, cqe: &Cqe) {
        self.out.extend_from_slice(&self.machine.capsule_resp(cqe));
    }

    /// Sends a command's data in PDUs of the script's size, and completes it.
    fn send_data(&mut self, sqe: &Sqe, data: &[u8]) {
        let (script, fault) = (self.shared.script.clone(), self.shared.fault.get());
        let read = !self.admin;
        let success = script.success_flag && read;
        let cid = sqe.cid.get();
        let end = if fault == Fault::HalfRead && read { data.len() / 2 } else { data.len() };
        let mut at = 0;
        while at < end {
            let piece = &data[at..end.min(at + script.c2h_max)];
            let last = at + piece.len() == end;
            let length = u32_of(piece.len());
            let head = self.machine.c2h_data(cid, u32_of(at), length, last, last && success);
            self.out.extend_from_slice(&head);
            self.out.extend_from_slice(piece);
            if self.machine.data_digest() {
                let mut digest = ddgst(piece);
                if fault == Fault::Digest && read {
                    digest[0] ^= 1;
                }
                self.out.extend_from_slice(&digest);
            }
            at += piece.len();
        }
        if !success {
            self.respond(&Cqe::new(cid, Status::SUCCESS));
        }
    }

    fn fabrics(&mut self, sqe: &Sqe, data: &[u8]) -> Outcome {
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

    fn admin_command(&mut self, sqe: &Sqe) -> Outcome {
        match sqe.opcode {
            admin::IDENTIFY => {
                let ask = Identify::parse(sqe).unwrap();
                match (ask.cns, ask.nsid) {
                    (Cns::Controller, _) => Outcome::Data(self.identity().as_bytes().to_vec()),
                    (Cns::Namespace, 1) => {
                        Outcome::Data(self.shared.namespace().as_bytes().to_vec())
                    }
                    (Cns::Namespace, 2) => Outcome::Data(vec![0; 4096]),
                    (Cns::ActiveNamespaces, 0) => {
                        Outcome::Data(NamespaceList::new([1]).as_bytes().to_vec())
                    }
                    _ => done(sqe, Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr()),
                }
            }
            admin::SET_FEATURES => {
                let mut cqe = Cqe::new(sqe.cid.get(), Status::SUCCESS);
                // Four queues, whatever was asked for.
                cqe.dw0 = 0x0003_0003.into();
                Outcome::Done(cqe)
            }
            admin::KEEP_ALIVE => done(sqe, Status::SUCCESS),
            admin::ASYNC_EVENT_REQUEST => {
                self.shared.requests.borrow_mut().push(sqe.cid.get());
                self.shared.poked.raise();
                Outcome::Nothing
            }
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
            _ => done(sqe, Status::INVALID_OPCODE),
        }
    }

    fn identity(&self) -> IdentifyController {
        IdentifyController {
            mdts: 8,
            oaes: (bits::OAES_NAMESPACE_ATTRIBUTE | bits::OAES_ANA_CHANGE).into(),
            cmic: bits::CMIC_ANA,
            anagrpmax: 4.into(),
            nanagrpid: 2.into(),
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
            let mut entry = Entry::tcp(SubsystemType::Nvm, AddressFamily::Ipv4, &nqn);
            entry.set_address("192.0.2.1", "4420");
            page.extend_from_slice(entry.as_bytes());
        }
        let LogOffset::Bytes(from) = ask.offset else { panic!("an index") };
        page[usize64(from)..][..usize64(ask.bytes)].to_vec()
    }

    fn span(sqe: &Sqe) -> std::ops::Range<usize> {
        let first = usize32(sqe.cdw10.get()) * BLOCK;
        first..first + (usize32(sqe.cdw12.get() & 0xffff) + 1) * BLOCK
    }

    fn read(&mut self, sqe: &Sqe) -> Outcome {
        self.shared.reads.set(self.shared.reads.get() + 1);
        match self.shared.fault.get() {
            Fault::FailReads(status) => return done(sqe, status),
            Fault::StrangeCid => {
                return Outcome::Done(Cqe::new(sqe.cid.get() + 1, Status::SUCCESS));
            }
            Fault::Close => {
                self.hang_up = true;
                return Outcome::Nothing;
            }
            Fault::Stall => return Outcome::Nothing,
            Fault::Terminate => {
                let fes = nvme::pdu::Fes::InvalidPduHeaderField;
                let fatal = Fatal { fes, fei: 8, header: 0, answer: true };
                self.out.extend_from_slice(&term_req(&fatal, &[]));
                self.hang_up = true;
                return Outcome::Nothing;
            }
            _ => {}
        }
        match self.shared.memory.borrow().get(Self::span(sqe)) {
            Some(bytes) => Outcome::Data(bytes.to_vec()),
            None => done(sqe, Status::LBA_OUT_OF_RANGE.with_dnr()),
        }
    }

    fn write(&mut self, sqe: &Sqe, data: &[u8]) {
        if self.shared.fault.get() == Fault::HoldWrites {
            self.shared.held.borrow_mut().push((*sqe, data.to_vec()));
            return;
        }
        let status = match self.shared.memory.borrow_mut().get_mut(Self::span(sqe)) {
            Some(bytes) => {
                bytes.copy_from_slice(data);
                Status::SUCCESS
            }
            None => Status::LBA_OUT_OF_RANGE.with_dnr(),
        };
        self.respond(&Cqe::new(sqe.cid.get(), status));
    }
}

fn done(sqe: &Sqe, status: Status) -> Outcome {
    Outcome::Done(Cqe::new(sqe.cid.get(), status))
}

/// An event that borrows nothing.
enum Owned {
    Initialize,
    Capsule(Sqe, Vec<u8>),
    Data(u16, u32, Vec<u8>),
    DataEnd(u16),
    PartEnd,
    Terminated,
}

fn owned(event: Event<'_>) -> Owned {
    match event {
        Event::Initialize(_) => Owned::Initialize,
        Event::Capsule { sqe, data, digest_ok } => {
            assert!(digest_ok, "the host's digest is wrong");
            Owned::Capsule(*sqe, data.to_vec())
        }
        Event::Data { ttag, offset, bytes } => Owned::Data(ttag, offset, bytes.to_vec()),
        Event::DataEnd { ttag, complete: true, digest_ok } => {
            assert!(digest_ok, "the host's digest is wrong");
            Owned::DataEnd(ttag)
        }
        Event::DataEnd { .. } => Owned::PartEnd,
        Event::Terminated(_) => Owned::Terminated,
    }
}
