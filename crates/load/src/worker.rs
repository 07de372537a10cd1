//! One queue's share of a job: keeps its depth of commands outstanding, times and checks what completes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use initiator::{Completion, Data, Queue};
use nvme::opcode::io;
use nvme::sqe::Sqe;
use reactor::Nanos;
use stdx::histogram::Histogram;
use stdx::num::{low32, usize32};
use stdx::prng::Prng;

use crate::job::Direction;
use crate::limits::VERIFY_ERRORS_LISTED;
use crate::order::Order;
use crate::report::VerifyError;
use crate::share::Share;
use crate::verify::{Ledger, Stamp, Wrong};

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
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    started: Nanos,
    block: u64,
    sequence: u32,
    write: bool,
}

struct Check {
    stamp: Stamp,
    ledger: Ledger,
}

/// The state of one worker, its queue apart: completions are handled while the queue is borrowed.
struct Book {
    share: Share,
    live: Arc<Live>,
    outcome: Outcome,
    in_flight: Box<[InFlight]>,
    check: Option<Check>,
    submitted: u64,
    completed: u64,
    verifying: bool,
}

/// A worker and its queue.
pub struct Worker {
    queue: Queue,
    book: Book,
    order: Order,
    prng: Prng,
    left: u64,
    /// When the next command is due under a rate.
    due: Nanos,
}

impl Worker {
    pub fn new(mut queue: Queue, share: Share, live: Arc<Live>) -> Self {
        let check = share.verify.then(|| Check {
            stamp: Stamp::new(share.run, share.logical),
            ledger: Ledger::new(share.count),
        });
        if !share.verify && !matches!(share.direction, Direction::Read) {
            Prng::new(share.seed).fill(queue.area_mut());
        }
        let idle = InFlight { started: 0, block: 0, sequence: 0, write: false };
        Self {
            order: Order::new(share.random, share.count, share.seed),
            prng: Prng::new(share.seed ^ 0x0d1e_c710),
            left: share.commands,
            due: 0,
            book: Book {
                in_flight: vec![idle; usize::from(queue.depth())].into_boxed_slice(),
                live,
                outcome: Outcome::default(),
                check,
                share,
                submitted: 0,
                completed: 0,
                verifying: false,
            },
            queue,
        }
    }

    /// The load proper. `stopped` ends it early.
    ///
    /// # Errors
    /// Those of the queue's connection.
    pub async fn run(&mut self, stopped: impl Fn() -> bool) -> Result<(), initiator::Error> {
        let mut now = reactor::now_exact();
        self.book.outcome.started = now;
        self.book.outcome.ended = now;
        self.due = now;
        let deadline = self.book.share.runtime.map(|runtime| now.saturating_add(runtime));
        loop {
            if deadline.is_some_and(|deadline| now >= deadline) || stopped() {
                self.left = 0;
            }
            self.top_up(now);
            self.book.live.submitted.store(self.book.submitted, Ordering::Relaxed);
            if self.queue.outstanding() == 0 {
                if self.left == 0 {
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

    /// Waits for something to collect, or under a rate for the next command to be due.
    async fn wait(&mut self) -> Result<(), initiator::Error> {
        let room = self.queue.outstanding() < self.book.share.depth && self.left > 0;
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

    fn collect(&mut self, now: Nanos) -> Result<(), initiator::Error> {
        let book = &mut self.book;
        self.queue.poll(|area, completion| book.complete(area, completion, now))?;
        if self.book.completed > 0 {
            self.book.outcome.ended = now;
        }
        self.book.publish();
        Ok(())
    }

    /// Submits until the depth is reached, or nothing more is due or to be done.
    fn top_up(&mut self, now: Nanos) {
        while self.left > 0 && self.queue.outstanding() < self.book.share.depth {
            if let Some(interval) = self.book.share.interval {
                if now < self.due {
                    return;
                }
                self.due += interval;
            }
            let write = match self.book.share.direction {
                Direction::Read => false,
                Direction::Write => true,
                Direction::Mixed { read_percent } => {
                    self.prng.below(100) >= u64::from(read_percent)
                }
            };
            let Some((block, sequence)) = self.next_block() else { return };
            self.submit(write, block, sequence, now);
            self.left -= 1;
        }
    }

    /// The next block to visit and the sequence it holds; `None` when every one tried is in flight.
    fn next_block(&mut self) -> Option<(u64, u32)> {
        let Some(check) = &mut self.book.check else { return Some((self.order.next_block(), 0)) };
        for _ in 0..=self.book.share.depth {
            let block = self.order.next_block();
            if let Some(sequence) = check.ledger.claim(block) {
                return Some((block, sequence));
            }
        }
        None
    }

    fn submit(&mut self, write: bool, block: u64, holds: u32, now: Nanos) {
        let share = &self.book.share;
        let Some(cid) = self.queue.vacant() else { return };
        let length = share.bytes();
        let lba = share.first_lba + block * u64::from(share.blocks);
        let mut sequence = holds;
        let data = if let Some(check) = &self.book.check {
            let at = usize::from(cid) * usize32(length);
            if write {
                sequence = Ledger::after(holds);
                let area = &mut self.queue.area_mut()[at..at + usize32(length)];
                check.stamp.fill(area, lba * u64::from(share.logical), sequence);
                Data::Send { at, length }
            } else {
                Data::Receive { at, length }
            }
        } else if write {
            Data::Send { at: 0, length }
        } else {
            Data::Discard { length }
        };
        let mut sqe = Sqe::new(if write { io::WRITE } else { io::READ }, cid, share.nsid);
        sqe.cdw10 = low32(lba).into();
        sqe.cdw11 = low32(lba >> 32).into();
        sqe.cdw12 = (share.blocks - 1).into();
        self.book.in_flight[usize::from(cid)] = InFlight { started: now, block, sequence, write };
        self.book.submitted += 1;
        self.queue.submit(sqe, data);
    }

    /// Reads back and checks every block this worker wrote, in ascending order.
    ///
    /// # Errors
    /// Those of the queue's connection.
    pub async fn verify(&mut self, stopped: impl Fn() -> bool) -> Result<(), initiator::Error> {
        self.book.verifying = true;
        if let Some(check) = &self.book.check {
            self.book.live.to_verify.store(check.ledger.count_written(), Ordering::Relaxed);
        }
        let mut next = Some(0);
        loop {
            if stopped() {
                next = None;
            }
            let now = reactor::now_exact();
            while let Some(from) = next {
                if self.queue.outstanding() >= self.book.share.depth {
                    break;
                }
                let Some(check) = &mut self.book.check else { return Ok(()) };
                next = check.ledger.written(from).map(|(block, _)| block);
                let Some(block) = next else { break };
                if let Some(sequence) = check.ledger.claim(block) {
                    self.submit(false, block, sequence, now);
                }
                next = Some(block + 1);
            }
            self.book.live.submitted.store(self.book.submitted, Ordering::Relaxed);
            if self.queue.outstanding() == 0 {
                return Ok(());
            }
            self.queue.wait().await?;
            self.collect(reactor::now_exact())?;
        }
    }

    /// What was measured.
    pub fn finish(self) -> Outcome {
        self.book.outcome
    }
}

impl Book {
    #[inline]
    fn complete(&mut self, area: &mut [u8], completion: Completion, now: Nanos) {
        let slot = self.in_flight[usize::from(completion.cid)];
        self.completed += 1;
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
        if self.check.is_some() {
            self.check(area, completion.cid, slot);
        }
    }

    fn check(&mut self, area: &mut [u8], cid: u16, slot: InFlight) {
        let Some(check) = &mut self.check else { return };
        if !slot.write && slot.sequence != 0 {
            let length = usize32(self.share.bytes());
            let at = usize::from(cid) * length;
            let lba = self.share.first_lba + slot.block * u64::from(self.share.blocks);
            let offset = lba * u64::from(self.share.logical);
            let outcome = &mut self.outcome;
            let list = |offset, what: Wrong| {
                outcome.wrong += 1;
                if outcome.wrong_listed.len() < VERIFY_ERRORS_LISTED {
                    outcome.wrong_listed.push(VerifyError { offset, what: what.to_string() });
                }
            };
            let data = &mut area[at..at + length];
            let right = check.stamp.check(data, offset, slot.sequence, list);
            self.outcome.verified_bytes += right;
        }
        check.ledger.release(slot.block, slot.sequence);
    }

    #[cold]
    fn fail(&mut self, slot: InFlight, status: &str) {
        self.outcome.failed += 1;
        let operation = if slot.write { "Write" } else { "Read" };
        let lba = self.share.first_lba + slot.block * u64::from(self.share.blocks);
        if self.outcome.failures.len() < FAILURES_LISTED {
            let blocks = self.share.blocks;
            self.outcome
                .failures
                .push(format!("{operation} of {blocks} blocks at LBA {lba}: {status}"));
        }
        if let Some(check) = &mut self.check {
            // What a failed write left is not known.
            check.ledger.release(slot.block, if slot.write { 0 } else { slot.sequence });
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
