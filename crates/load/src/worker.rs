//! One queue's share of a job: which command comes next, at the pace that was asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use reactor::Nanos;
use stdx::num::usize32;
use stdx::prng::Prng;

use crate::book::Book;
pub use crate::book::{Before, Live, Outcome, Part};
use crate::endpoint::Move;
use crate::job::{Direction, Verify};
use crate::journal;
use crate::order::Order;
use crate::pace::{Go, Pace};
use crate::share::Share;
use crate::sizes::Draw;

/// Why a worker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// There is no connection, and there will be none.
    #[error(transparent)]
    Host(#[from] initiator::Error),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] journal::Error),
}

/// What there is to do.
#[derive(Debug)]
pub enum Next {
    /// A command.
    Part(Part),
    /// Nothing for now: whatever completes, or time, brings it.
    Later,
    /// Nothing any more.
    Over,
}

/// A worker: decides what comes next and counts what came of it. Its [`crate::crew::Crew`] runs the commands.
pub struct Worker {
    pub book: Book,
    order: Order,
    prng: Prng,
    /// Sizes of reads and of writes.
    sizes: [Draw; 2],
    /// Blocks still to be moved.
    left: u64,
    /// Direction and blocks of a command whose place was not found yet. Drawn anew, large commands would be rare.
    drawn: Option<(bool, u32)>,
    /// What is left of a command that goes in several.
    rest: Option<Part>,
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
    pub fn new(share: Share, live: Arc<Live>, before: Before) -> Self {
        Self {
            order: Order::new(share.random, share.count / u64::from(share.align), share.seed),
            prng: Prng::new(share.seed ^ 0x0d1e_c710),
            sizes: [&share.sizes.read, &share.sizes.write].map(|mix| Draw::new(mix, share.bytes())),
            left: share.amount,
            drawn: None,
            rest: None,
            cursor: None,
            begun: false,
            ramp: None,
            deadline: None,
            pace: share.pace.clone(),
            due: None,
            book: Book::new(share, live, before),
        }
    }

    /// The load begins.
    pub fn begin(&mut self, now: Nanos) {
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

    /// Reading back begins: every block with an acknowledged write, in ascending order.
    pub fn begin_verifying(&mut self) {
        let Some(check) = &self.book.check else { return };
        self.book.verifying = true;
        let written = check.contents.count_written();
        self.book.live.to_verify.store(written, Ordering::Relaxed);
        self.book.outcome.written_bytes = written * u64::from(self.book.share.bytes());
        self.cursor = Some(0);
        self.deadline = None;
    }

    /// No other command is begun.
    pub fn stop(&mut self) {
        self.left = 0;
        self.cursor = None;
    }

    /// What there is to do.
    ///
    /// # Errors
    /// [`journal::Error`].
    #[inline]
    pub fn next(&mut self, now: Nanos) -> Result<Next, journal::Error> {
        if self.rest.is_none() {
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                self.stop();
            }
            match self.next_command(now) {
                Next::Part(command) => {
                    let whole = self.book.open(command.blocks.div_ceil(self.book.share.part));
                    self.rest = Some(Part { whole, ..command });
                }
                none => return Ok(none),
            }
        }
        let Some(rest) = self.rest.take() else { return Ok(Next::Later) };
        let blocks = rest.blocks.min(self.book.share.part);
        let part = Part { blocks, ..rest };
        if rest.blocks > blocks {
            let (block, blocks) = (rest.block + u64::from(blocks), rest.blocks - blocks);
            self.rest = Some(Part { block, blocks, ..rest });
        }
        if let (true, Some(acks)) = (part.write, &mut self.book.acks) {
            acks.reserve(part.sequence)?;
        }
        self.book.submit();
        Ok(Next::Part(part))
    }

    /// Whether another command may be there for who asks at once.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.rest.is_some()
            || (self.due.is_none()
                && (self.left > 0 || self.cursor.is_some())
                && self.book.outstanding() < self.book.share.depth)
    }

    /// Whether a command waits for its time.
    pub fn is_paced(&self) -> bool {
        self.due.is_some()
    }

    /// When there is something to do though nothing completes.
    pub fn due(&self) -> Option<Nanos> {
        let due = self.due.filter(|_| self.left > 0);
        due.into_iter().chain(self.deadline).min()
    }

    /// The next command of the job.
    fn next_command(&mut self, now: Nanos) -> Next {
        if self.book.verifying {
            return self.next_to_verify(now);
        }
        if self.left == 0 {
            return Next::Over;
        }
        self.due = None;
        if self.book.outstanding() == self.book.share.depth {
            return Next::Later;
        }
        match self.pace.as_mut().map(|pace| pace.next(now, self.book.outstanding())) {
            None | Some(Go::Now) => {}
            Some(Go::At(due)) => {
                self.due = Some(due);
                return Next::Later;
            }
            Some(Go::WhenIdle) => return Next::Later,
        }
        let Some(command) = self.draw(now) else { return Next::Later };
        if let Some(pace) = &mut self.pace {
            pace.sent(now, command.blocks * self.book.share.bytes());
        }
        Next::Part(command)
    }

    /// The next block to read back.
    fn next_to_verify(&mut self, started: Nanos) -> Next {
        let Some(check) = &mut self.book.check else { return Next::Over };
        let Some(block) = self.cursor.and_then(|from| check.contents.written(from)) else {
            self.cursor = None;
            return Next::Over;
        };
        if self.book.outstanding() == self.book.share.depth {
            return Next::Later;
        }
        let Some(sequence) = self.book.claim(block, 1) else { return Next::Later };
        self.cursor = Some(block + 1);
        Next::Part(Part { started, block, blocks: 1, whole: 0, sequence, write: false })
    }

    /// Draws a command; `None` when every block tried is in flight.
    fn draw(&mut self, started: Nanos) -> Option<Part> {
        let (write, blocks) = self.drawn.take().unwrap_or_else(|| self.draw_kind());
        let align = self.book.share.align;
        for _ in 0..=self.book.share.depth {
            let block = self.order.next(blocks / align) * u64::from(align);
            if let Some(sequence) = self.book.claim(block, blocks) {
                if self.ramp.is_none() {
                    self.left = self.left.saturating_sub(blocks.into());
                }
                return Some(Part { started, block, blocks, whole: 0, sequence, write });
            }
        }
        self.drawn = Some((write, blocks));
        None
    }

    /// Direction and blocks of a command.
    fn draw_kind(&mut self) -> (bool, u32) {
        let write = match self.book.share.direction {
            Direction::Read => false,
            Direction::Write => true,
            Direction::Mixed { read_percent } => self.prng.below(100) >= u64::from(read_percent),
        };
        (write, self.sizes[usize::from(write)].next(&mut self.prng))
    }

    /// What a write of `part` sends, into `bytes`, where data is checked.
    #[inline]
    pub fn fill(&self, part: &Part, bytes: &mut [u8]) {
        if let (true, Some(check)) = (part.write, &self.book.check) {
            let length = usize32(self.book.share.bytes() * part.blocks);
            let offset = self.book.share.offset(part.block);
            check.stamp.fill(&mut bytes[..length], offset, part.sequence);
        }
    }

    /// The command that a part is to its endpoint.
    pub fn command(&self, part: &Part) -> Move {
        let share = &self.book.share;
        Move {
            lba: share.first_lba + part.block * u64::from(share.blocks),
            blocks: part.blocks * share.blocks,
            write: part.write,
            keep: self.book.check.is_some(),
        }
    }

    /// Takes what came of a command; `bytes` begin with its data.
    #[inline]
    pub fn complete(
        &mut self,
        part: Part,
        result: Result<(), String>,
        bytes: &mut [u8],
        now: Nanos,
    ) {
        let book = &mut self.book;
        if self.ramp.is_some_and(|ramp| now >= ramp) {
            self.ramp = None;
            book.begin(now);
        }
        if !book.verifying {
            book.tick(now);
        }
        book.complete(part, result, bytes, now);
        if !book.verifying || book.share.verify == Verify::Check {
            book.outcome.ended = now;
        }
        book.publish();
    }

    /// What was measured.
    pub fn finish(&mut self) -> Outcome {
        let mut outcome = std::mem::take(&mut self.book.outcome);
        if let Outcome { series: Some(series), reads, writes, .. } = &mut outcome {
            series.turn(Nanos::MAX / 2, [reads, writes]);
        }
        outcome
    }
}
