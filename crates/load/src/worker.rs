//! One queue's share of a job: keeps its depth of commands outstanding, at the pace that was asked for.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use initiator::{Data, Memory};
use nvme::opcode::io;
use nvme::sqe::Sqe;
use reactor::Nanos;
use stdx::num::{low32, usize32};
use stdx::prng::Prng;

pub use crate::book::{Before, Live, Outcome, Tally};
use crate::book::{Book, InFlight};
use crate::job::{Direction, Verify};
use crate::journal;
use crate::lane::Lane;
use crate::limits::IDLE_NS;
use crate::order::Order;
use crate::pace::{Go, Pace};
use crate::share::Share;
use crate::sizes::Draw;

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

/// A worker and its queue.
pub struct Worker {
    lane: Lane,
    book: Book,
    order: Order,
    prng: Prng,
    /// Sizes of reads and of writes.
    sizes: [Draw; 2],
    /// Blocks still to be moved.
    left: u64,
    /// Commands that were in flight when a connection broke, as first block, blocks and whether they write;
    /// done again.
    again: Vec<(u64, u32, bool)>,
    /// The first block not read back yet.
    cursor: Option<u64>,
    begun: bool,
    /// When measuring begins, while it has not.
    ramp: Option<Nanos>,
    deadline: Option<Nanos>,
    pace: Option<Pace>,
    /// When the pace allows the next command; `None` when nothing is to be waited for but completions.
    due: Option<Nanos>,
}

impl Worker {
    pub fn new(lane: Lane, share: Share, live: Arc<Live>, before: Before) -> Self {
        Self {
            order: Order::new(share.random, share.count / u64::from(share.align), share.seed),
            prng: Prng::new(share.seed ^ 0x0d1e_c710),
            sizes: [&share.sizes.read, &share.sizes.write].map(|mix| Draw::new(mix, share.bytes())),
            left: share.amount,
            again: Vec::new(),
            cursor: None,
            begun: false,
            ramp: None,
            deadline: None,
            pace: share.pace.clone(),
            due: None,
            book: Book::new(share, live, before, lane.depth()),
            lane,
        }
    }

    /// Commands that the target answered so far.
    pub fn answered(&self) -> u64 {
        self.book.answered
    }

    /// The connection broke: what was in flight is to be done again.
    pub fn lose(&mut self) {
        let lost = self.book.lose();
        self.again.extend(lost);
    }

    /// Goes on with another queue.
    pub fn attach(&mut self, lane: Lane) {
        self.lane = lane;
        self.book.outcome.reconnects += 1;
    }

    fn begin(&mut self, now: Nanos) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let share = &self.book.share;
        let ramped = now.saturating_add(share.ramp);
        self.ramp = (share.ramp > 0).then_some(ramped);
        self.deadline = share.runtime.map(|runtime| ramped.saturating_add(runtime));
        self.book.begin(now);
        if let Some(pace) = &mut self.pace {
            pace.start(now);
        }
    }

    /// The load proper. `stopped` ends it early.
    ///
    /// # Errors
    /// [`Fault`]; after [`Worker::lose`] and [`Worker::attach`] it can be run on.
    pub async fn run(&mut self, stopped: impl Fn() -> bool) -> Result<(), Fault> {
        let mut now = reactor::now_exact();
        self.begin(now);
        loop {
            if self.deadline.is_some_and(|deadline| now >= deadline) || stopped() {
                self.left = 0;
                self.again.clear();
            }
            self.top_up(now)?;
            self.book.live.submitted.store(self.book.submitted, Ordering::Relaxed);
            if self.lane.outstanding() == 0 {
                if !self.more() {
                    return Ok(());
                }
                let until = self.due.unwrap_or(now).min(now.saturating_add(IDLE_NS));
                reactor::sleep_until(self.deadline.map_or(until, |end| until.min(end))).await;
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

    /// Waits for something to collect, or for the next command to be due.
    async fn wait(&mut self) -> Result<(), initiator::Error> {
        let room = self.book.outstanding() < self.book.share.depth && self.more();
        let Some(due) = self.due.filter(|_| room) else {
            return self.lane.wait().await;
        };
        let due = reactor::sleep_until(due);
        initiator::race(self.lane.wait(), async {
            due.await;
            Ok(())
        })
        .await
    }

    fn collect(&mut self, now: Nanos) -> Result<(), Fault> {
        let book = &mut self.book;
        if self.ramp.is_some_and(|ramp| now >= ramp) {
            self.ramp = None;
            book.begin(now);
        }
        if !book.verifying {
            book.tick(now);
        }
        let completed = book.completed;
        let polled = self.lane.poll(|completion| book.complete(completion, now));
        let timed = !book.verifying || book.share.verify == Verify::Check;
        if timed && book.completed > completed {
            book.outcome.ended = now;
        }
        book.publish();
        // What completed before the connection broke is acknowledged all the same.
        book.note()?;
        Ok(polled?)
    }

    /// Submits until the depth is reached, or nothing more is due or to be done.
    fn top_up(&mut self, now: Nanos) -> Result<(), Fault> {
        self.due = None;
        while self.more() && self.book.outstanding() < self.book.share.depth {
            if let Some(pace) = &mut self.pace {
                match pace.next(now, self.book.outstanding()) {
                    Go::Now => {}
                    Go::At(due) => {
                        self.due = Some(due);
                        return Ok(());
                    }
                    Go::WhenIdle => return Ok(()),
                }
            }
            let Some(command) = self.next_command(now) else { return Ok(()) };
            if let Some(pace) = &mut self.pace {
                pace.sent(now, command.blocks * self.book.share.bytes());
            }
            self.submit(command)?;
        }
        Ok(())
    }

    /// Submits a command of the job in as many NVMe commands as it takes.
    fn submit(&mut self, command: InFlight) -> Result<(), Fault> {
        let most = self.book.share.part;
        let whole = self.book.open(command.blocks.div_ceil(most));
        let mut part = InFlight { whole, ..command };
        let end = command.block + u64::from(command.blocks);
        while part.block < end {
            let left = u32::try_from(end - part.block).unwrap_or(most);
            part.blocks = left.min(most);
            self.submit_part(part)?;
            part.block += u64::from(part.blocks);
        }
        Ok(())
    }

    /// The next command; `None` when every block tried is in flight.
    fn next_command(&mut self, started: Nanos) -> Option<InFlight> {
        let command = |block, blocks, sequence, write| {
            Some(InFlight { started, block, blocks, whole: 0, sequence, write, busy: true })
        };
        if let Some(&(block, blocks, write)) = self.again.last() {
            // Those that were in flight together do not overlap, but others may have taken their blocks.
            let sequence = self.book.claim(block, blocks)?;
            self.again.pop();
            return command(block, blocks, sequence, write);
        }
        let write = match self.book.share.direction {
            Direction::Read => false,
            Direction::Write => true,
            Direction::Mixed { read_percent } => self.prng.below(100) >= u64::from(read_percent),
        };
        let blocks = self.sizes[usize::from(write)].next(&mut self.prng);
        let align = self.book.share.align;
        for _ in 0..=self.book.share.depth {
            let block = self.order.next(blocks / align) * u64::from(align);
            if let Some(sequence) = self.book.claim(block, blocks) {
                if self.ramp.is_none() {
                    self.left = self.left.saturating_sub(blocks.into());
                }
                return command(block, blocks, sequence, write);
            }
        }
        None
    }

    fn submit_part(&mut self, command: InFlight) -> Result<(), Fault> {
        let InFlight { block, blocks, sequence, write, .. } = command;
        let share = &self.book.share;
        let Some(cid) = self.lane.vacant() else { panic!("no room for what the depth allows") };
        let length = share.bytes() * blocks;
        let lba = share.first_lba + block * u64::from(share.blocks);
        let data = if let Some(check) = &self.book.check {
            let spare = self.book.spare.pop();
            let fresh = || Memory::Owned(vec![0; usize32(share.largest())].into());
            let mut memory = spare.unwrap_or_else(fresh);
            if write {
                if let Some(acks) = &mut self.book.acks {
                    acks.reserve(sequence)?;
                }
                let bytes = &mut memory.bytes_mut()[..usize32(length)];
                check.stamp.fill(bytes, lba * u64::from(share.logical), sequence);
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
        sqe.cdw12 = (share.blocks * blocks - 1).into();
        self.book.in_flight[usize::from(cid)] = command;
        self.book.submitted += 1;
        self.lane.submit(sqe, data);
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
            let started = reactor::now_exact();
            while self.book.outstanding() < self.book.share.depth {
                let Some(block) = self.next_written() else { break };
                if let Some(sequence) = self.book.claim(block, 1) {
                    let (blocks, whole, write) = (1, 0, false);
                    let busy = true;
                    self.submit(InFlight { started, block, blocks, whole, sequence, write, busy })?;
                }
            }
            self.book.live.submitted.store(self.book.submitted, Ordering::Relaxed);
            if self.lane.outstanding() == 0 {
                return Ok(());
            }
            self.lane.wait().await?;
            self.collect(reactor::now_exact())?;
        }
    }

    /// The next block to read back.
    fn next_written(&mut self) -> Option<u64> {
        if let Some((block, ..)) = self.again.pop() {
            return Some(block);
        }
        let check = self.book.check.as_ref()?;
        let block = check.ledger.written(self.cursor?);
        self.cursor = block.map(|block| block + 1);
        block
    }

    /// What was measured.
    pub fn finish(mut self) -> Outcome {
        let Outcome { series: Some(series), reads, writes, .. } = &mut self.book.outcome else {
            return self.book.outcome;
        };
        series.turn(Nanos::MAX / 2, [reads, writes]);
        self.book.outcome
    }
}
