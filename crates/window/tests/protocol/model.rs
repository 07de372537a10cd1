//! The protocol of `docs/anof.md` as states and steps: a host that has a window and another that has the next one, a
//! host that uses commands, a target, and memory.
//!
//! A host that ends anywhere is one that takes no more steps, and so in here: what is checked has to hold in every
//! state, whether it goes on from there or not. What it stored is seen sometime. The end of the association is not
//! looked at by hosts: they do more than they may.

use stdx::num::{low8, u64_of};
use window::{Reader, Writer};

use crate::checks::Violation;
use crate::explorer::{self, Edge, Step};
use crate::memory::{Files, Pending, RING, Word};

/// The number of a write, or of a command of the other host.
pub type Op = u8;

/// What hosts and targets must do. One of them may be left out, to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A host fences between data and header.
    HeaderBehindData,
    /// A host fences fully before it looks whether the window stands.
    FenceBeforeLook,
    /// What a host wrote by RDMA to `pmem` is flushed before it is reported.
    Flush,
    /// A host looks whether the window stands.
    Look,
    /// And in all copies.
    LookAtAllCopies,
    /// A host waits for the window's end before its write goes as a command.
    WaitForEnd,
    /// In all copies.
    WaitForAllCopies,
    /// It is taken when any copy says so.
    TakenOfAnyCopy,
    /// A target takes what is there before each command.
    TakeBeforeCommand,
    /// On `pmem` a header is flushed before its record goes to the log, so that an opening sees it, too.
    HeaderKept,
    /// Where a copy does not have it yet, the target stores it there.
    InAllCopies,
    /// What is taken is in the log before *taken* says so.
    AppendBeforeTaken,
    /// It is in the log before its place may be stored to again.
    AppendBeforeCredit,
    /// *Taken* says so before that, too.
    TakenBeforeCredit,
    /// And is fenced.
    TakenFenced,
    /// At an end *phase* changes before all is taken.
    PhaseBeforeTake,
    /// And is fenced.
    PhaseFenced,
    /// *Taken* is stored before *phase* becomes 3.
    TakenBeforeEnded,
    /// What is done next comes behind a fence.
    EndedFenced,
    /// An opening changes *phase* before it takes, too.
    OpeningEnds,
    /// It takes nothing from a window that has ended.
    OpeningLeavesEnded,
    /// It takes what the ring has room for, whatever *credit* says.
    OpeningTakesAll,
    /// Damage is told after another look at the position.
    LookAgain,
    /// It takes what is behind the greatest *taken* of all copies.
    OpeningBehindAllTaken,
    /// A window's files are its own.
    OwnFiles,
}

/// What is on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Bbu,
    Pmem,
}

pub struct Model {
    pub memory: Memory,
    /// Writes of the host that has the first window, and of the one that has the second, if there is to be any.
    pub writes: [Op; 2],
    /// Of the first window's ring, when there is no other window. One of them may be lost.
    pub copies: usize,
    /// Commands of the other host. Each is a mark in the log: of a read it is what the read found.
    pub commands: Op,
    pub crashes: u8,
    pub power_cuts: u8,
    /// By RDMA: flush and look of a host are posted together, and the look may be carried out first.
    pub looks_before_flush: bool,
    pub left_out: Option<Rule>,
    /// Whether to look only at what users see: what their writes and reads did.
    pub only_outcomes: bool,
}

impl Model {
    pub fn keeps(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    /// The operations of the host that has a window.
    pub fn ops_of(&self, window: usize) -> std::ops::Range<Op> {
        let first = if window == 0 { 0 } else { self.writes[0] };
        first..first + self.writes[window]
    }

    pub fn first_command(&self) -> Op {
        self.writes[0] + self.writes[1]
    }

    pub fn ops(&self) -> Op {
        self.first_command() + self.commands
    }

    /// Which files a window has.
    pub fn copies_of(&self, window: usize) -> std::ops::Range<usize> {
        let first = if self.keeps(Rule::OwnFiles) { window } else { 0 };
        first..first + self.copies
    }
}

/// Operations.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ops(u16);

impl Ops {
    pub fn has(self, op: Op) -> bool {
        self.0 & (1 << op) != 0
    }

    pub fn add(&mut self, op: Op) {
        self.0 |= 1 << op;
    }

    pub fn remove(&mut self, op: Op) {
        self.0 &= !(1 << op);
    }
}

pub const OPS_MAX: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostStep {
    NoWindow,
    Idle,
    /// All of a record was stored, up to this position: to fence, and to look at the phase.
    Stored {
        end: u64,
    },
    /// The phase was looked at, and said whether the window stands; what was stored is to be flushed.
    Flushing {
        end: u64,
        stands: bool,
    },
    /// The window does not stand.
    WaitsForEnd {
        end: u64,
    },
    /// A command is under way.
    Command,
    Dead,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Host {
    pub step: HostStep,
    pub op: Op,
    pub writer: Writer,
    pub buffer: Vec<Pending>,
}

/// What records are taken for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Then {
    Rest,
    Serve(Op),
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetStep {
    Dead,
    Idle,
    /// To look at the header at the position.
    Look(Then),
    /// A whole header of this operation was seen: to copy its data, and to append it to the log.
    Copy(Then, Op),
    /// *Taken* was stored: to fence it, and to give credit.
    Publish(Then),
    /// All was taken: to do what a command asks for.
    Serve(Op),
    /// *Phase* became 2: to fence it.
    Ending,
    /// All was taken for the end.
    Closing,
    /// *Phase* became 3: to fence it.
    Ended,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Target {
    pub step: TargetStep,
    pub window: Option<usize>,
    pub reader: Reader,
    pub taken: u64,
    pub credit: u64,
    pub buffer: Vec<(usize, Word, u64)>,
}

/// What is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    pub op: Op,
    /// Taken from a ring.
    pub is_direct: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub files: [Files; 2],
    /// Files that the target can reach no more, where hosts still do.
    pub lost: Option<usize>,
    pub hosts: [Host; 2],
    pub next_command: Op,
    pub target: Target,
    /// Whether the catalog has a window.
    pub catalog: [bool; 2],
    pub is_over: [bool; 2],
    pub log: Vec<Entry>,
    /// Commands the target was sent and did not answer.
    pub asked: Ops,
    pub complete: Ops,
    /// Went as commands because their records were not taken.
    pub not_taken: Ops,
    /// What was complete when an operation began.
    pub before: [Ops; OPS_MAX],
    pub crashes: u8,
    pub power_cuts: u8,
}

impl State {
    pub fn begin(&mut self, op: Op) {
        self.before[usize::from(op)] = self.complete;
    }
}

/// Steps from a state.
pub struct Steps<'a> {
    pub model: &'a Model,
    pub from: &'a State,
    edges: &'a mut Vec<Edge<State, Violation>>,
}

impl Steps<'_> {
    pub fn step(
        &mut self,
        what: &'static str,
        whose: usize,
        change: impl FnOnce(&mut State) -> Result<(), Violation>,
    ) {
        let mut to = self.from.clone();
        let to = change(&mut to).map(|()| to);
        let step = Step { what, whose: low8(u64_of(whose)) };
        self.edges.push(Edge { step, to });
    }
}

impl explorer::Model for Model {
    type State = State;
    type Violation = Violation;

    fn initial(&self) -> State {
        assert!(usize::from(self.ops()) <= OPS_MAX);
        assert!(self.copies == 1 || self.copies == 2 && self.writes[1] == 0);
        let host = |window: usize| Host {
            step: if window == 0 { HostStep::Idle } else { HostStep::NoWindow },
            op: self.ops_of(window).start,
            writer: Writer::new(epoch_of(window), RING),
            buffer: Vec::new(),
        };
        let target = Target {
            step: TargetStep::Idle,
            window: Some(0),
            reader: Reader::new(epoch_of(0), RING, 0),
            taken: 0,
            credit: RING,
            buffer: Vec::new(),
        };
        State {
            files: [Files::new(), Files::new()],
            lost: None,
            hosts: [host(0), host(1)],
            next_command: self.first_command(),
            target,
            catalog: [true, false],
            is_over: [false; 2],
            log: Vec::new(),
            asked: Ops::default(),
            complete: Ops::default(),
            not_taken: Ops::default(),
            before: [Ops::default(); OPS_MAX],
            crashes: self.crashes,
            power_cuts: self.power_cuts,
        }
    }

    fn next(&self, from: &State, edges: &mut Vec<Edge<State, Violation>>) {
        let mut steps = Steps { model: self, from, edges };
        steps.host(0);
        steps.host(1);
        steps.other_host();
        steps.target();
        steps.target_ends();
        steps.power_cut();
    }
}

/// What a window's records are told by.
pub fn epoch_of(window: usize) -> u64 {
    if window == 0 { 10 } else { 11 }
}
