//! Memory that processes share, as an x86 has it: what a process stores is seen by others later, and by itself is not
//! waited for. Stores of the target are seen in their order. Those of hosts are non-temporal: seen in any order, but
//! for fences. On `bbu` what is seen is kept through a power cut; on `pmem` what was fenced, and of the rest any part.

use stdx::num::low8;
use window::page::{CREDIT_AT, PHASE_AT, TAKEN_AT};
use window::record::{HEADER, Kind};
use window::{Phase, Record};

use crate::model::Op;

pub const LINE: usize = 64;
/// Two records, and a line: the third does not fit behind them, and padding has to go there.
pub const LINES: usize = 5;
pub const RING: u64 = 320;
/// Of a record: a header, and one line of data.
pub const RECORD: u64 = 128;

/// A line of a ring, by who stored it: all of it is seen at once, for half of a header is none, and half of data is
/// told by its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Line {
    Blank,
    Header { epoch: u64, position: u64, op: Op },
    Pad { epoch: u64, position: u64 },
    Data { epoch: u64, position: u64, op: Op },
}

impl Line {
    /// The line with this header. Data of an operation is its number, over and over, and its checksum is the number,
    /// too.
    pub fn of(record: &Record) -> Self {
        let Record { epoch, position, kind } = *record;
        match kind {
            Kind::Pad => Self::Pad { epoch, position },
            Kind::Write { data_crc, .. } => Self::Header { epoch, position, op: op_of(data_crc) },
        }
    }

    pub fn bytes(self) -> [u8; HEADER] {
        match self {
            Self::Blank => [0; HEADER],
            Self::Data { op, .. } => [op; HEADER],
            Self::Pad { epoch, position } => Record { epoch, position, kind: Kind::Pad }.encode(),
            Self::Header { epoch, position, op } => {
                Record { epoch, position, kind: kind_of(op) }.encode()
            }
        }
    }

    /// The position that has to be taken before other bytes may be stored there.
    pub fn wanted_until(self) -> Option<u64> {
        match self {
            Self::Blank => None,
            Self::Pad { position, .. } => Some(position.next_multiple_of(RING)),
            Self::Header { position, .. } | Self::Data { position, .. } => Some(position + RECORD),
        }
    }
}

/// Bytes of the volume that an operation writes: of one block or the other.
pub fn offset_of(op: Op) -> u64 {
    u64::from(op % 2) * 64
}

/// The operation that a checksum is the number of.
pub fn op_of(data_crc: u32) -> Op {
    low8(u64::from(data_crc))
}

fn kind_of(op: Op) -> Kind {
    Kind::Write { offset: offset_of(op), length: 64, data_crc: u32::from(op) }
}

/// A word of a state page.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    Phase,
    Taken,
    Credit,
}

// The model keeps them as words that a power cut keeps or loses each for itself, which is more than can be: one line.
const _: () = assert!(PHASE_AT / 64 == TAKEN_AT / 64 && PHASE_AT / 64 == CREDIT_AT / 64);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Page {
    pub phase: u64,
    pub taken: u64,
    pub credit: u64,
}

impl Page {
    pub fn phase(&self) -> Phase {
        Phase::of(self.phase)
    }

    fn word(&mut self, word: Word) -> &mut u64 {
        match word {
            Word::Phase => &mut self.phase,
            Word::Taken => &mut self.taken,
            Word::Credit => &mut self.credit,
        }
    }
}

/// What is in the files of a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Contents {
    pub ring: [Line; LINES],
    pub page: Page,
}

/// The files of a window.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Files {
    pub seen: Contents,
    /// What a power cut leaves for sure.
    pub kept: Contents,
}

impl Files {
    pub fn new() -> Self {
        let page = Page { phase: Phase::Stands.word(), taken: 0, credit: RING };
        let contents = Contents { ring: [Line::Blank; LINES], page };
        Self { seen: contents, kept: contents }
    }

    pub fn set_line(&mut self, line: usize, to: Line, is_kept: bool) {
        self.seen.ring[line] = to;
        if is_kept {
            self.kept.ring[line] = to;
        }
    }

    pub fn set_word(&mut self, word: Word, to: u64, is_kept: bool) {
        *self.seen.page.word(word) = to;
        if is_kept {
            *self.kept.page.word(word) = to;
        }
    }

    /// All that a power cut can leave.
    pub fn after_power_cut(&self) -> Vec<Self> {
        let mut left = vec![self.kept];
        for line in (0..LINES).filter(|line| self.seen.ring[*line] != self.kept.ring[*line]) {
            for mut more in left.clone() {
                more.ring[line] = self.seen.ring[line];
                left.push(more);
            }
        }
        for word in [Word::Phase, Word::Taken, Word::Credit] {
            let mut seen = self.seen.page;
            let seen = *seen.word(word);
            for mut more in left.clone() {
                if *more.page.word(word) != seen {
                    *more.page.word(word) = seen;
                    left.push(more);
                }
            }
        }
        left.into_iter().map(|contents| Self { seen: contents, kept: contents }).collect()
    }
}

/// What a host stored that is not seen yet, in the order of its program.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Pending {
    Store {
        files: usize,
        line: usize,
        to: Line,
    },
    /// `SFENCE`.
    Fence,
}

/// Whether the store at a place of a buffer may be seen next.
pub fn may_be_seen(buffer: &[Pending], at: usize) -> bool {
    let Pending::Store { files, line, .. } = buffer[at] else { return false };
    let fence = buffer.iter().position(|pending| matches!(pending, Pending::Fence));
    let is_behind_fence = fence.is_some_and(|fence| fence != 0 && fence < at);
    let is_of_same_line = |pending: &Pending| match pending {
        Pending::Store { files: others, line: other, .. } => (*others, *other) == (files, line),
        Pending::Fence => false,
    };
    // A second fence holds back what is behind it, too.
    let fences = buffer[..at].iter().filter(|pending| matches!(pending, Pending::Fence)).count();
    !is_behind_fence && fences <= 1 && !buffer[..at].iter().any(is_of_same_line)
}
