//! A controller for tests: the real protocol machine of the other end, a little memory, and a script that says
//! where it misbehaves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use nvme::ana::State;
use nvme::event::Event as EventOf;
use nvme::identify::IdentifyNamespace;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::net::{ListenOptions, TcpListener};
use reactor::network::{self, Cut};
use reactor::sync::Signal;
use stdx::prng::Prng;
use window::Grant;

mod admin;
mod hostile;
mod link;

use link::Link;

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
    /// Identify Controller says that it has direct write windows.
    pub windows: bool,
    /// What Identify Controller says of a volatile write cache (VWC), and the namespace's independent features (NSFEAT),
    /// where the controller has them.
    pub cache: (u8, Option<u8>),
    /// Command Quiesce Time, milliseconds.
    pub cqt: u16,
    /// Command Retry Delay Times, of which statuses name one to a host that asked for that.
    pub crdt: [u16; 3],
    /// Whether it has Host Behavior Support, by which that is asked for.
    pub behaves: bool,
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
    /// The same for all, and no Abort is answered.
    StallAborts,
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
            windows: true,
            cache: (0, None),
            cqt: 1,
            crdt: [0; 3],
            behaves: true,
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
    poked: Signal,
    chance: RefCell<Prng>,
    held: RefCell<Vec<(Sqe, Vec<u8>)>>,
    /// What is granted to who asks for a direct write window.
    window: RefCell<Option<Grant>>,
    /// So many who ask for one are told that another has it.
    window_busy: Cell<u32>,
    /// Windows granted, and those given back.
    windows: Cell<u32>,
    ended: RefCell<Vec<u32>>,
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
    /// The host asked for retry delays (ACRE).
    pub acre: Cell<bool>,
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
            poked: Signal::new(),
            chance: RefCell::new(Prng::new(script.seed)),
            held: RefCell::default(),
            window: RefCell::default(),
            window_busy: Cell::new(0),
            windows: Cell::new(0),
            ended: RefCell::default(),
            aborted: RefCell::default(),
            copies: Cell::new(0),
            refused: Cell::new(0),
            reads: Cell::new(0),
            associations: Cell::new(0),
            aborts: Cell::new(0),
            resets: Cell::new(0),
            acre: Cell::new(false),
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

    /// Whether the host asked for retry delays (ACRE).
    pub fn delays_retries(&self) -> bool {
        self.shared.acre.get()
    }

    pub fn set_fault(&self, fault: Fault) {
        self.shared.fault.set(fault);
    }

    /// Tells so many who ask for a direct write window that another has it.
    pub fn refuse_windows(&self, times: u32) {
        self.shared.window_busy.set(times);
    }

    /// Grants this to who asks for a direct write window.
    pub fn grant(&self, grant: Grant) {
        *self.shared.window.borrow_mut() = Some(grant);
    }

    /// How many windows were granted, and which were given back.
    pub fn windows(&self) -> (u32, Vec<u32>) {
        (self.shared.windows.get(), self.shared.ended.borrow().clone())
    }

    /// Cuts every connection: each end hears of it soon.
    pub fn cut(&self) {
        for connected in network::connections().iter().filter(|it| it.to == self.addr) {
            network::cut(connected.id, Cut::Reset);
        }
        self.shared.requests.borrow_mut().clear();
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
