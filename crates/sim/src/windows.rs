//! Direct write windows as their hosts have them: processes of the array's machine, which may outlive it.
//!
//! What is stored, and in which order, is `initiator`'s matter; here it is taken step by step, and between two of them
//! anything may happen. A window belongs to one process. Its tasks share it as threads do: whoever finds another one
//! writing sends a command.

pub mod malice;

use crate::model::{Begun, Serial, Target};
use engine::GrantedWindow;
use initiator::canary::{self, Canary};
use initiator::{Ring, RingCopies, RingCopy, Standing, Step, Writing, Written};
use malice::Malice;
use media::{Pmem, pmem::on_core_of};
use reactor::Bell;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use window::page::{PHASE_AT, TAKEN_AT};
use window::record::HEADER;
use window::{Grant, Phase};

/// The windows of all hosts, over all lives.
#[derive(Default)]
pub struct Windows {
    held: RefCell<BTreeMap<Serial, Rc<Held>>>,
    processes: Cell<u64>,
    /// Of hosts that did what none may, and what.
    strayed: RefCell<Vec<(Serial, Malice)>>,
    /// Those of hosts that will not obey.
    doubtful: RefCell<Vec<Rc<Held>>>,
    canary: Cell<Option<Canary>>,
}

impl Windows {
    /// Plants a bug in what all hosts do.
    pub fn plant(&self, canary: Canary) {
        self.canary.set(Some(canary));
    }

    pub fn of(&self, volume: Serial) -> Option<Rc<Held>> {
        self.held.borrow().get(&volume).cloned()
    }

    /// A process that is new has this one; who had another of the volume has it no more.
    pub fn put(&self, v: &Target, id: [u8; 16], granted: &GrantedWindow, malice: Option<Malice>) {
        let process = self.processes.get() + 1;
        self.processes.set(process);
        let canary = self.canary.get();
        let held = Rc::new(Held { canary, ..Held::new(process, id, granted, malice) });
        if malice.is_some() {
            self.doubtful.borrow_mut().push(Rc::clone(&held));
        }
        let _ = self.held.borrow_mut().insert(v.serial, held);
    }

    /// Whoever has this one has it no more.
    pub fn drop_of(&self, volume: Serial, number: u32) {
        self.held.borrow_mut().retain(|of, held| *of != volume || held.number != number);
    }

    /// Those whose processes live on, as `lives` says; the others have none any more.
    pub fn keep(&self, lives: impl FnMut(&Serial, &mut Rc<Held>) -> bool) -> Vec<Rc<Held>> {
        let mut held = self.held.borrow_mut();
        held.retain(lives);
        held.values().cloned().collect()
    }

    pub fn all(&self) -> Vec<Rc<Held>> {
        self.held.borrow().values().cloned().collect()
    }

    /// The volume of a window that somebody has.
    pub fn serial_of(&self, held: &Held) -> Option<Serial> {
        let all = self.held.borrow();
        all.iter().find(|(_, other)| other.number == held.number).map(|(serial, _)| *serial)
    }

    /// A host does what none may.
    pub fn stray(&self, volume: Serial, malice: Malice) {
        self.strayed.borrow_mut().push((volume, malice));
    }

    /// What hosts did that none may, and in windows of which volumes.
    pub fn strayed(&self) -> Vec<(Serial, Malice)> {
        self.strayed.borrow().clone()
    }

    /// Windows in which something is complete for hosts that will not obey, and not known to be taken.
    pub fn doubtful(&self) -> Vec<Rc<Held>> {
        self.doubtful.borrow().clone()
    }

    /// A life is over, and with it whoever had windows but for those that [live](Self::keep).
    pub fn end_life(&self) {
        self.doubtful.borrow_mut().clear();
    }
}

/// A write under way.
pub struct Pending {
    pub writing: Writing,
    pub ring: usize,
    pub data: Vec<u8>,
    pub what: String,
    pub v: Target,
    pub begun: Begun,
}

/// A copy of a ring, as whoever does as he likes has it.
pub struct Memory {
    pub state: Arc<Pmem>,
    pub ring: Arc<Pmem>,
}

/// A window, as the process that has it.
pub struct Held {
    process: u64,
    /// The identity of its volume.
    pub id: [u8; 16],
    pub number: u32,
    pub grant: Grant,
    rings: RefCell<Vec<Ring>>,
    pub memory: Vec<Vec<Memory>>,
    pub standing: Standing,
    /// Somebody is writing.
    busy: Cell<bool>,
    pub pending: RefCell<Option<Pending>>,
    pub malice: Option<Malice>,
    /// Of a process that will not obey: what it was told is complete, each with its ring and position. It has nobody but
    /// itself to blame when that is lost before it is taken.
    pub unsure: RefCell<VecDeque<(usize, u64, Begun)>>,
    canary: Option<Canary>,
}

fn handle(pmem: &Pmem) -> Pmem {
    match pmem {
        Pmem::Simulated(simulated) => Pmem::Simulated(Arc::clone(simulated)),
        _ => panic!("the memory of a simulated machine is simulated"),
    }
}

impl Held {
    fn new(process: u64, id: [u8; 16], granted: &GrantedWindow, malice: Option<Malice>) -> Self {
        let grant = Grant {
            number: granted.number,
            epoch: granted.epoch,
            ring_bytes: granted.ring_bytes,
            rings: granted.rings.len(),
            volume_bytes: granted.volume_bytes,
            block_bytes: granted.block_bytes,
            chunk_bytes: granted.chunk_bytes,
            placement: granted.placement,
            token: [0; 16],
            path: String::new(),
        };
        let ring = |ring: &engine::GrantedRing| {
            let copies = ring.copies.iter();
            let copies =
                copies.map(|c| RingCopy { state: handle(&c.state), memory: handle(&c.ring) });
            let bell = Bell::new().expect("a bell");
            Ring::new(&grant, RingCopies::mapped(&grant, copies.collect(), bell))
        };
        let memory = |ring: &engine::GrantedRing| {
            let copies = ring.copies.iter();
            let copies =
                copies.map(|c| Memory { state: Arc::clone(&c.state), ring: Arc::clone(&c.ring) });
            copies.collect()
        };
        Self {
            process,
            id,
            number: granted.number,
            rings: RefCell::new(granted.rings.iter().map(ring).collect()),
            memory: granted.rings.iter().map(memory).collect(),
            grant,
            standing: Standing::default(),
            busy: Cell::new(false),
            pending: RefCell::new(None),
            malice,
            unsure: RefCell::default(),
            canary: None,
        }
    }

    /// Whether writes may begin by it.
    pub fn is_usable(&self) -> bool {
        self.standing.is_usable() && !self.rings.borrow().iter().any(Ring::has_ended)
    }

    /// Begins a write, unless it is to go as a command: it is given back then.
    pub fn begin(
        &self,
        data: Vec<u8>,
        (offset, what, v): (u64, &str, &Target),
        begun: Begun,
    ) -> Result<(), (Vec<u8>, Begun)> {
        let ring = self.grant.ring_of(offset, data.len());
        let fits = data.len() <= window::DATA_BYTES_MAX && self.is_usable() && !self.busy.get();
        let Some(ring) = ring.filter(|_| fits) else { return Err((data, begun)) };
        let writing =
            self.act(|| self.rings.borrow_mut()[ring].begin(offset, &data, &self.standing));
        let Ok(writing) = writing else { return Err((data, begun)) };
        self.busy.set(true);
        let (what, v) = (what.to_owned(), v.clone());
        self.pending.replace(Some(Pending { writing, ring, data, what, v, begun }));
        Ok(())
    }

    /// Takes the next step of the write under way.
    pub fn step(&self) -> Option<Written> {
        let mut pending = self.pending.borrow_mut();
        let Pending { writing, ring, data, .. } = pending.as_mut().expect("a write is under way");
        self.act(|| self.rings.borrow_mut()[*ring].step(writing, data, &self.standing))
    }

    /// The header that the record of a write will have.
    pub fn header(&self, pending: &Pending) -> [u8; HEADER] {
        self.rings.borrow()[pending.ring].header_of(&pending.writing, &pending.data)
    }

    /// What comes next of the write under way.
    pub fn next(&self) -> Option<Step> {
        self.pending.borrow().as_ref().map(|pending| pending.writing.next())
    }

    /// The write under way is over for this window.
    pub fn take(&self) -> Option<Pending> {
        self.busy.set(false);
        self.pending.take()
    }

    /// Does something as this process.
    pub fn act<R>(&self, work: impl FnOnce() -> R) -> R {
        canary::plant(self.canary);
        on_core_of(self.process, work)
    }

    fn words(&self, ring: usize, at: u64) -> impl Iterator<Item = u64> {
        self.memory[ring].iter().filter_map(move |copy| copy.state.load(at).ok())
    }

    /// Up to where records of a ring are in the log.
    pub fn taken(&self, ring: usize) -> u64 {
        self.words(ring, TAKEN_AT).max().unwrap_or(0)
    }

    /// Whether all rings have come to their end.
    pub fn has_ended(&self) -> bool {
        let ended = |ring| self.words(ring, PHASE_AT).all(|word| word == Phase::Ended.word());
        (0..self.memory.len()).all(ended)
    }

    pub fn stands(&self) -> bool {
        let stands = |ring| self.words(ring, PHASE_AT).all(|word| word == Phase::Stands.word());
        (0..self.memory.len()).all(stands)
    }
}
