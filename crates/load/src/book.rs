//! What a worker knows of its commands: which are in flight, what came of them, and how long they took.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reactor::Nanos;
use stdx::num::{u16_of, usize32, usize64};
use stdx::prng::Prng;

use crate::contents::Contents;
use crate::job::{Direction, Verify};
use crate::journal::{self, Acks};
use crate::limits::{CHECK_ERRORS_LISTED, VERIFY_ERRORS_LISTED};
use crate::report::VerifyError;
use crate::series::{Series, Tally};
use crate::share::Share;
use crate::verify::{Stamp, Wrong};

/// Failed commands described one by one; further ones are counted.
const FAILURES_LISTED: usize = 8;

/// Counters a worker publishes once a turn for the progress display. Written by one thread, so plain stores do.
#[derive(Debug, Default)]
pub struct Live {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub bytes: AtomicU64,
    pub errors: AtomicU64,
    /// Commands submitted.
    pub submitted: AtomicU64,
    /// Commands completed, in either phase, whatever their status.
    pub completed: AtomicU64,
    /// Blocks to read back, known once that begins.
    pub to_verify: AtomicU64,
    /// There is no connection, and one is waited for.
    pub away: AtomicBool,
}

/// Wrong blocks that a report lists.
fn listed(share: &Share) -> usize {
    if share.verify == Verify::Check { CHECK_ERRORS_LISTED } else { VERIFY_ERRORS_LISTED }
}

impl Outcome {
    /// Counts a wrong block at byte `offset`, and lists it among the first `listed`.
    fn wrong(&mut self, offset: u64, what: String, listed: usize) {
        self.wrong += 1;
        if self.wrong_listed.len() < listed {
            self.wrong_listed.push(VerifyError { offset, what });
        }
    }
}

/// What a worker measured.
#[derive(Debug, Default)]
pub struct Outcome {
    pub reads: Tally,
    pub writes: Tally,
    /// When the first command was submitted and the last completed.
    pub started: Nanos,
    pub ended: Nanos,
    pub failed: u64,
    pub failures: Vec<String>,
    pub verified_bytes: u64,
    pub wrong: u64,
    pub wrong_listed: Vec<VerifyError>,
    pub reconnects: u64,
    /// Writes that went by a direct write window.
    pub direct_writes: u64,
    /// The network card's queues that the reactor's I/O queues come by.
    pub card_queues: Vec<u32>,
    /// What the queues of each map did.
    pub counters: [initiator::Counters; 3],
    /// Bytes with an acknowledged write that were to be read back.
    pub written_bytes: u64,
    /// What it did over time.
    pub series: Option<Series>,
}

/// What a worker knows before it begins.
#[derive(Debug, Default)]
pub struct Before {
    /// By block: the last acknowledged write; empty when there is no journal.
    pub acked: Vec<u32>,
    /// No write of a higher sequence was sent.
    pub upto: u32,
    /// Where to note what is acknowledged.
    pub acks: Option<Acks>,
}

/// A command of the job, which goes in one or several NVMe commands.
#[derive(Clone, Copy, Debug, Default)]
struct Whole {
    /// NVMe commands that are not done.
    left: u32,
    failed: bool,
}

/// One NVMe command.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub started: Nanos,
    /// Its first block, and how many.
    pub block: u64,
    pub blocks: u32,
    /// The command of the job that it is a part of.
    pub whole: u16,
    /// Sequence of a write.
    pub sequence: u32,
    pub write: bool,
}

impl Part {
    fn all(&self) -> std::ops::Range<u64> {
        self.block..self.block + u64::from(self.blocks)
    }
}

/// What data is checked by.
pub struct Check {
    pub stamp: Stamp,
    pub contents: Contents,
}

impl Check {
    /// A command is done, or lost, and nothing was written by it for certain.
    fn undone(&mut self, slot: Part) {
        for block in slot.all() {
            if slot.write {
                self.contents.doubt(block, slot.sequence);
            } else {
                self.contents.release(block);
            }
        }
    }
}

/// What writes that are not checked send; nothing when there are none.
fn payload(share: &Share) -> Rc<[u8]> {
    if share.checks() || matches!(share.direction, Direction::Read) {
        return Rc::default();
    }
    let mut bytes = vec![0; usize32(share.largest())];
    Prng::new(share.seed).fill(&mut bytes);
    bytes.into()
}

/// What a worker has counted and checked.
pub struct Book {
    pub share: Share,
    pub live: Arc<Live>,
    pub outcome: Outcome,
    wholes: Box<[Whole]>,
    /// Those that are not in use.
    free: Vec<u16>,
    pub check: Option<Check>,
    pub acks: Option<Acks>,
    /// Set by a completion, found at the end of its turn.
    journal_failed: Option<journal::Error>,
    submitted: u64,
    /// Commands answered.
    completed: u64,
    pub verifying: bool,
    /// What writes that are not checked send.
    pub payload: Rc<[u8]>,
}

impl Book {
    /// Of a worker that has done nothing.
    pub fn new(share: Share, live: Arc<Live>, before: Before) -> Self {
        let Before { mut acked, upto, acks } = before;
        let check = share.checks().then(|| {
            acked.resize(usize64(share.count), 0);
            let contents = Contents::new(acked, upto);
            Check { stamp: Stamp::new(share.run, share.logical), contents }
        });
        Self {
            wholes: vec![Whole::default(); usize::from(share.depth)].into_boxed_slice(),
            free: (0..share.depth).collect(),
            payload: payload(&share),
            live,
            outcome: Outcome::default(),
            check,
            acks,
            journal_failed: None,
            share,
            submitted: 0,
            completed: 0,
            verifying: false,
        }
    }

    /// Measuring begins at `now`: what was counted before was to warm up.
    pub fn begin(&mut self, now: Nanos) {
        let outcome = &mut self.outcome;
        (outcome.reads, outcome.writes) = (Tally::default(), Tally::default());
        (outcome.started, outcome.ended) = (now, now);
        outcome.series = self.share.series.map(|interval| Series::new(now, interval));
    }

    /// Ends intervals of the time series that are over.
    #[inline]
    pub fn tick(&mut self, now: Nanos) {
        let Outcome { series: Some(series), reads, writes, .. } = &mut self.outcome else { return };
        if series.is_due(now) {
            series.turn(now, [reads, writes]);
        }
    }

    /// Commands of the job that are outstanding.
    #[inline]
    pub fn outstanding(&self) -> u16 {
        self.share.depth - u16_of(self.free.len())
    }

    /// A command of the job begins, to go in `parts` NVMe commands; fewer than the depth are outstanding.
    #[inline]
    pub fn open(&mut self, parts: u32) -> u16 {
        let Some(whole) = self.free.pop() else { panic!("more commands than the depth") };
        self.wholes[usize::from(whole)] = Whole { left: parts, failed: false };
        whole
    }

    /// Takes blocks for a command, and gives the sequence of a write of them; `None` when one is in flight.
    #[inline]
    pub fn claim(&mut self, block: u64, blocks: u32) -> Option<u32> {
        match &mut self.check {
            Some(check) => check.contents.claim(block, blocks),
            None => Some(0),
        }
    }

    /// Takes what came of a command; `bytes` begin with its data.
    #[inline]
    pub fn complete(
        &mut self,
        slot: Part,
        result: Result<(), String>,
        bytes: &mut [u8],
        now: Nanos,
    ) {
        self.completed += 1;
        let whole = &mut self.wholes[usize::from(slot.whole)];
        whole.left -= 1;
        whole.failed |= result.is_err();
        let (ended, failed) = (whole.left == 0, whole.failed);
        if ended {
            self.free.push(slot.whole);
        }
        if let Err(status) = result {
            self.fail(slot, &status);
            return;
        }
        if !self.verifying {
            let tally = if slot.write { &mut self.outcome.writes } else { &mut self.outcome.reads };
            tally.bytes += u64::from(slot.blocks) * u64::from(self.share.bytes());
            if ended && !failed {
                tally.ios += 1;
                tally.latency.record(now.saturating_sub(slot.started));
            }
        }
        self.check(bytes, slot);
    }

    /// Checks what was read, and notes what was written, where data is checked.
    fn check(&mut self, bytes: &mut [u8], slot: Part) {
        let Some(check) = &mut self.check else { return };
        let each = usize32(self.share.bytes());
        let (outcome, listed) = (&mut self.outcome, listed(&self.share));
        for (index, block) in slot.all().enumerate() {
            if slot.write {
                check.contents.settle(block, slot.sequence);
                if let Some(acks) = &mut self.acks
                    && let Err(error) = acks.push(block, slot.sequence)
                {
                    self.journal_failed.get_or_insert(error);
                }
                continue;
            }
            let held = check.contents.held(block);
            check.contents.release(block);
            if held.acked > 0 {
                let list = |offset, what: Wrong| outcome.wrong(offset, what.to_string(), listed);
                let data = &mut bytes[index * each..(index + 1) * each];
                outcome.verified_bytes +=
                    check.stamp.check(data, self.share.offset(block), held, list);
            }
        }
    }

    /// A command is sent.
    #[inline]
    pub fn submit(&mut self) {
        self.submitted += 1;
        self.live.submitted.store(self.submitted, Ordering::Relaxed);
    }

    /// Whether there is something for [`Book::note`].
    #[inline]
    pub fn has_notes(&self) -> bool {
        self.journal_failed.is_some() || self.acks.as_ref().is_some_and(Acks::has_notes)
    }

    /// Puts what was acknowledged in this turn into the journal.
    pub fn note(&mut self) -> Result<(), journal::Error> {
        if let Some(error) = self.journal_failed.take() {
            return Err(error);
        }
        self.acks.as_mut().map_or(Ok(()), Acks::flush)
    }

    #[cold]
    fn fail(&mut self, slot: Part, status: &str) {
        let operation = if slot.write { "Write" } else { "Read" };
        if self.share.verify == Verify::Check {
            let what = format!("{operation} failed: {status}");
            self.outcome.wrong(self.share.offset(slot.block), what, listed(&self.share));
        } else {
            self.outcome.failed += 1;
            if self.outcome.failures.len() < FAILURES_LISTED {
                let blocks = self.share.blocks * slot.blocks;
                let lba = self.share.first_lba + slot.block * u64::from(self.share.blocks);
                let what = format!("{operation} of {blocks} blocks at LBA {lba}: {status}");
                self.outcome.failures.push(what);
            }
        }
        if let Some(check) = &mut self.check {
            check.undone(slot);
        }
    }

    /// Shows the counters to the watching thread.
    pub fn publish(&self) {
        let outcome = &self.outcome;
        let live = &self.live;
        live.reads.store(outcome.reads.ios, Ordering::Relaxed);
        live.writes.store(outcome.writes.ios, Ordering::Relaxed);
        let moved = if self.verifying {
            outcome.verified_bytes
        } else {
            outcome.reads.bytes + outcome.writes.bytes
        };
        live.bytes.store(moved, Ordering::Relaxed);
        live.errors.store(outcome.failed + outcome.wrong, Ordering::Relaxed);
        live.completed.store(self.completed, Ordering::Relaxed);
    }
}
