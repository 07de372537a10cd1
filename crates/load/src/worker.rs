//! One queue's share of a job: keeps its depth of commands outstanding, times and checks what completes.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use initiator::{Completion, Data, Memory, Queue};
use nvme::opcode::io;
use nvme::sqe::Sqe;
use reactor::Nanos;
use stdx::histogram::Histogram;
use stdx::num::{low32, usize32, usize64};
use stdx::prng::Prng;

use crate::job::{Direction, Verify};
use crate::journal::{self, Acks};
use crate::ledger::{Held, Ledger};
use crate::limits::{CHECK_ERRORS_LISTED, VERIFY_ERRORS_LISTED};
use crate::order::Order;
use crate::report::VerifyError;
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
}

/// What one direction came to.
#[derive(Debug, Default)]
pub struct Tally {
    pub ios: u64,
    pub bytes: u64,
    pub latency: Histogram,
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
    /// Bytes with an acknowledged write that were to be read back.
    pub written_bytes: u64,
}

/// Why a worker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The connection broke; with another one it can.
    #[error(transparent)]
    Host(#[from] initiator::Error),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] journal::Error),
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

#[derive(Clone, Copy, Debug)]
struct InFlight {
    started: Nanos,
    block: u64,
    /// What the block may hold before the command.
    held: Held,
    /// Sequence of a write.
    sequence: u32,
    write: bool,
    busy: bool,
}

const IDLE: InFlight = InFlight {
    started: 0,
    block: 0,
    held: Held { acked: 0, upto: 0 },
    sequence: 0,
    write: false,
    busy: false,
};

struct Check {
    stamp: Stamp,
    ledger: Ledger,
}

/// What writes that are not checked send; nothing when there are none.
fn payload(share: &Share) -> Rc<[u8]> {
    if share.checks() || matches!(share.direction, Direction::Read) {
        return Rc::default();
    }
    let mut bytes = vec![0; usize32(share.bytes())];
    Prng::new(share.seed).fill(&mut bytes);
    bytes.into()
}

/// The state of one worker, its queue apart: completions are handled while the queue is borrowed.
struct Book {
    share: Share,
    live: Arc<Live>,
    outcome: Outcome,
    in_flight: Box<[InFlight]>,
    check: Option<Check>,
    acks: Option<Acks>,
    /// Set by a completion, found at the end of its turn.
    journal_failed: Option<journal::Error>,
    submitted: u64,
    /// Commands answered, and those that never will be.
    completed: u64,
    answered: u64,
    verifying: bool,
    /// What writes that are not checked send.
    payload: Rc<[u8]>,
    /// Memory of commands whose data is checked, while none has it.
    spare: Vec<Memory>,
}

/// A worker and its queue.
pub struct Worker {
    queue: Queue,
    book: Book,
    order: Order,
    prng: Prng,
    left: u64,
    /// Commands that were in flight when a connection broke, as block and whether it is a write; done again.
    again: Vec<(u64, bool)>,
    /// The first block not read back yet.
    cursor: Option<u64>,
    begun: bool,
    /// When the next command is due under a rate.
    due: Nanos,
}

impl Worker {
    pub fn new(queue: Queue, share: Share, live: Arc<Live>, before: Before) -> Self {
        let Before { mut acked, upto, acks } = before;
        let check = share.checks().then(|| {
            acked.resize(usize64(share.count), 0);
            let ledger = Ledger::new(acked, upto);
            Check { stamp: Stamp::new(share.run, share.logical), ledger }
        });
        Self {
            order: Order::new(share.random, share.count, share.seed),
            prng: Prng::new(share.seed ^ 0x0d1e_c710),
            left: share.commands,
            again: Vec::new(),
            cursor: None,
            begun: false,
            due: 0,
            book: Book {
                in_flight: vec![IDLE; usize::from(queue.depth())].into_boxed_slice(),
                payload: payload(&share),
                spare: Vec::new(),
                live,
                outcome: Outcome::default(),
                check,
                acks,
                journal_failed: None,
                share,
                submitted: 0,
                completed: 0,
                answered: 0,
                verifying: false,
            },
            queue,
        }
    }

    /// Commands that the target answered so far.
    pub fn answered(&self) -> u64 {
        self.book.answered
    }

    /// The connection broke: what was in flight may have come through or not, and is to be done again.
    pub fn lose(&mut self) {
        for slot in &mut self.book.in_flight {
            if !std::mem::replace(&mut slot.busy, false) {
                continue;
            }
            self.again.push((slot.block, slot.write));
            if let Some(check) = &mut self.book.check {
                if slot.write {
                    check.ledger.doubt(slot.block, slot.sequence);
                } else {
                    check.ledger.release(slot.block);
                }
            }
        }
        self.book.completed = self.book.submitted;
        self.book.publish();
    }

    /// Goes on with another queue.
    pub fn attach(&mut self, queue: Queue) {
        self.queue = queue;
        self.due = reactor::now_exact();
        self.book.outcome.reconnects += 1;
    }

    /// The load proper. `stopped` ends it early.
    ///
    /// # Errors
    /// [`Fault`]; after [`Worker::lose`] and [`Worker::attach`] it can be run on.
    pub async fn run(&mut self, stopped: impl Fn() -> bool) -> Result<(), Fault> {
        let mut now = reactor::now_exact();
        if !std::mem::replace(&mut self.begun, true) {
            self.book.outcome.started = now;
            self.book.outcome.ended = now;
            self.due = now;
        }
        let started = self.book.outcome.started;
        let deadline = self.book.share.runtime.map(|runtime| started.saturating_add(runtime));
        loop {
            if deadline.is_some_and(|deadline| now >= deadline) || stopped() {
                self.left = 0;
                self.again.clear();
            }
            self.top_up(now)?;
            self.book.live.submitted.store(self.book.submitted, Ordering::Relaxed);
            if self.queue.outstanding() == 0 {
                if !self.more() {
                    return Ok(());
                }
                reactor::sleep_until(self.due).await;
                now = reactor::now_exact();
                continue;
            }
            self.wait().await?;
            now = reactor::now_exact();
            self.collect(now)?;
        }
    }

    /// Whether there is something to submit.
    fn more(&self) -> bool {
        self.left > 0 || !self.again.is_empty()
    }

    /// Waits for something to collect, or under a rate for the next command to be due.
    async fn wait(&mut self) -> Result<(), initiator::Error> {
        let room = self.queue.outstanding() < self.book.share.depth && self.more();
        if self.book.share.interval.is_none() || !room {
            return self.queue.wait().await;
        }
        let due = reactor::sleep_until(self.due);
        initiator::race(self.queue.wait(), async {
            due.await;
            Ok(())
        })
        .await
    }

    fn collect(&mut self, now: Nanos) -> Result<(), Fault> {
        let book = &mut self.book;
        let polled = self.queue.poll(|completion| book.complete(completion, now));
        if book.completed > 0 {
            book.outcome.ended = now;
        }
        book.publish();
        // What completed before the connection broke is acknowledged all the same.
        book.note()?;
        Ok(polled?)
    }

    /// Submits until the depth is reached, or nothing more is due or to be done.
    fn top_up(&mut self, now: Nanos) -> Result<(), Fault> {
        while self.more() && self.queue.outstanding() < self.book.share.depth {
            if let Some(interval) = self.book.share.interval {
                if now < self.due {
                    return Ok(());
                }
                self.due += interval;
            }
            let Some((write, block, held)) = self.next_command() else { return Ok(()) };
            self.submit(write, block, held, now)?;
        }
        Ok(())
    }

    /// The next command: whether it writes, its block and what that may hold; `None` when every block tried is
    /// in flight.
    fn next_command(&mut self) -> Option<(bool, u64, Held)> {
        if let Some((block, write)) = self.again.pop() {
            let held = self.book.claim(block)?;
            return Some((write, block, held));
        }
        let write = match self.book.share.direction {
            Direction::Read => false,
            Direction::Write => true,
            Direction::Mixed { read_percent } => self.prng.below(100) >= u64::from(read_percent),
        };
        for _ in 0..=self.book.share.depth {
            let block = self.order.next_block();
            if let Some(held) = self.book.claim(block) {
                self.left -= 1;
                return Some((write, block, held));
            }
        }
        None
    }

    fn submit(&mut self, write: bool, block: u64, held: Held, now: Nanos) -> Result<(), Fault> {
        let share = &self.book.share;
        let Some(cid) = self.queue.vacant() else { return Ok(()) };
        let length = share.bytes();
        let lba = share.first_lba + block * u64::from(share.blocks);
        let mut sequence = 0;
        let data = if let Some(check) = &self.book.check {
            let spare = self.book.spare.pop();
            let mut memory =
                spare.unwrap_or_else(|| Memory::Owned(vec![0; usize32(length)].into()));
            if write {
                sequence = held.next();
                if let Some(acks) = &mut self.book.acks {
                    acks.reserve(sequence)?;
                }
                check.stamp.fill(memory.bytes_mut(), lba * u64::from(share.logical), sequence);
                Data::Send { memory, length }
            } else {
                Data::Receive { memory, length }
            }
        } else if write {
            Data::Send { memory: Memory::Shared(Rc::clone(&self.book.payload)), length }
        } else {
            Data::Discard { length }
        };
        let mut sqe = Sqe::new(if write { io::WRITE } else { io::READ }, cid, share.nsid);
        sqe.cdw10 = low32(lba).into();
        sqe.cdw11 = low32(lba >> 32).into();
        sqe.cdw12 = (share.blocks - 1).into();
        let slot = InFlight { started: now, block, held, sequence, write, busy: true };
        self.book.in_flight[usize::from(cid)] = slot;
        self.book.submitted += 1;
        self.queue.submit(sqe, data);
        Ok(())
    }

    /// Reads back and checks every block with an acknowledged write, in ascending order.
    ///
    /// # Errors
    /// [`Fault`]; after [`Worker::lose`] and [`Worker::attach`] it can be run on.
    pub async fn verify(&mut self, stopped: impl Fn() -> bool) -> Result<(), Fault> {
        let Some(check) = &self.book.check else { return Ok(()) };
        if !self.book.verifying {
            self.book.verifying = true;
            let written = check.ledger.count_written();
            self.book.live.to_verify.store(written, Ordering::Relaxed);
            self.book.outcome.written_bytes = written * u64::from(self.book.share.bytes());
            self.cursor = Some(0);
        }
        loop {
            if stopped() {
                self.cursor = None;
                self.again.clear();
            }
            let now = reactor::now_exact();
            while self.queue.outstanding() < self.book.share.depth {
                let Some(block) = self.next_written() else { break };
                if let Some(held) = self.book.claim(block) {
                    self.submit(false, block, held, now)?;
                }
            }
            self.book.live.submitted.store(self.book.submitted, Ordering::Relaxed);
            if self.queue.outstanding() == 0 {
                return Ok(());
            }
            self.queue.wait().await?;
            self.collect(reactor::now_exact())?;
        }
    }

    /// The next block to read back.
    fn next_written(&mut self) -> Option<u64> {
        if let Some((block, _)) = self.again.pop() {
            return Some(block);
        }
        let check = self.book.check.as_ref()?;
        let block = check.ledger.written(self.cursor?);
        self.cursor = block.map(|block| block + 1);
        block
    }

    /// What was measured.
    pub fn finish(self) -> Outcome {
        self.book.outcome
    }
}

impl Book {
    /// Takes `block` for a command; `None` when it is in flight.
    fn claim(&mut self, block: u64) -> Option<Held> {
        match &mut self.check {
            Some(check) => check.ledger.claim(block),
            None => Some(Held::known(0)),
        }
    }

    #[inline]
    fn complete(&mut self, completion: Completion, now: Nanos) {
        let slot = &mut self.in_flight[usize::from(completion.cid)];
        slot.busy = false;
        let slot = *slot;
        self.completed += 1;
        self.answered += 1;
        let status = completion.cqe.status();
        if !status.is_success() {
            self.fail(slot, &status.to_string());
            return;
        }
        if !self.verifying {
            let tally = if slot.write { &mut self.outcome.writes } else { &mut self.outcome.reads };
            tally.ios += 1;
            tally.latency.record(now.saturating_sub(slot.started));
        }
        if self.check.is_some()
            && let Some(memory) = completion.data.into_memory()
        {
            self.check(memory, slot);
        }
    }

    fn check(&mut self, mut memory: Memory, slot: InFlight) {
        let Some(check) = &mut self.check else { return };
        if slot.write {
            check.ledger.settle(slot.block, slot.sequence);
            if let Some(acks) = &mut self.acks
                && let Err(error) = acks.push(slot.block, slot.sequence)
            {
                self.journal_failed.get_or_insert(error);
            }
            self.spare.push(memory);
            return;
        }
        check.ledger.release(slot.block);
        if slot.held.acked == 0 {
            self.spare.push(memory);
            return;
        }
        let offset = self.share.offset(slot.block);
        let (outcome, listed) = (&mut self.outcome, listed(&self.share));
        let list = |offset, what: Wrong| outcome.wrong(offset, what.to_string(), listed);
        let right = check.stamp.check(memory.bytes_mut(), offset, slot.held, list);
        outcome.verified_bytes += right;
        self.spare.push(memory);
    }

    /// Puts what was acknowledged in this turn into the journal.
    fn note(&mut self) -> Result<(), journal::Error> {
        if let Some(error) = self.journal_failed.take() {
            return Err(error);
        }
        self.acks.as_mut().map_or(Ok(()), Acks::flush)
    }

    #[cold]
    fn fail(&mut self, slot: InFlight, status: &str) {
        let operation = if slot.write { "Write" } else { "Read" };
        if self.share.verify == Verify::Check {
            let what = format!("{operation} failed: {status}");
            self.outcome.wrong(self.share.offset(slot.block), what, listed(&self.share));
        } else {
            self.outcome.failed += 1;
            if self.outcome.failures.len() < FAILURES_LISTED {
                let blocks = self.share.blocks;
                let lba = self.share.first_lba + slot.block * u64::from(blocks);
                let what = format!("{operation} of {blocks} blocks at LBA {lba}: {status}");
                self.outcome.failures.push(what);
            }
        }
        if let Some(check) = &mut self.check {
            if slot.write {
                check.ledger.doubt(slot.block, slot.sequence);
            } else {
                check.ledger.release(slot.block);
            }
        }
    }

    fn publish(&mut self) {
        let bytes = u64::from(self.share.bytes());
        let outcome = &mut self.outcome;
        outcome.reads.bytes = outcome.reads.ios * bytes;
        outcome.writes.bytes = outcome.writes.ios * bytes;
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
