//! A shard's ring of a direct write window (`docs/anof.md`): where a host stores records by itself, which are taken into
//! the log. Nothing that is there is trusted, nor borrowed: it is copied out, then looked at.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use media::Pmem;
use reactor::sync::{Notify, Signal};
use reactor::yield_now;
use stdx::crc32c;
use stdx::num::{u64_of, usize32, usize64};
use window::page::{CREDIT_AT, IDENTITY, LOST_AT, PAGE, PHASE_AT, TAKEN_AT};
use window::record::{HEADER, bytes_of};
use window::{Bad, DATA_BYTES_MAX, Identity, Look, Phase, Reader};

use super::capacity::Promise;
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Kind, Result};
use crate::volume::state::{BLOCK_BYTES, State};

/// One of the copies of a ring, each beside another device of the log.
#[derive(Clone, Debug)]
pub struct RingCopy {
    /// What the host reads.
    pub state: Arc<Pmem>,
    /// What it writes.
    pub ring: Arc<Pmem>,
}

/// A record of which the log has what it says, but not durable yet.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub sequence: u64,
    pub blocks: u64,
    pub record: Look,
}

/// Lines of a ring that are looked at before other tasks run.
const LINES_A_TURN: usize = 4096;

/// Bytes of credit that a planted bug gives early.
const EARLY: u64 = 1 << 16;

/// No window lives long enough to count so far.
const POSITIONS_END: u64 = 1 << 62;

/// Records that may lie in a ring at most: parts of blocks take some 100 us each, and whoever wants the volume waits until all of
/// them are taken.
const RECORDS_MAX: u64 = 8192;

/// Bytes of a ring of so many that its host may store, of a volume with logical blocks of so many, before some are taken.
fn room_of(ring_bytes: u64, block_size: u32) -> u64 {
    ring_bytes.min(RECORDS_MAX * bytes_of(usize32(block_size)))
}

/// Bytes of a ring for each block that records of logical blocks of so many bytes may change: two logical blocks may be of two
/// blocks.
fn bytes_a_block(block_size: u32) -> u64 {
    u64::from(block_size).min(BLOCK_BYTES)
}

/// Blocks that may be stored in a ring of so many bytes, of a volume with logical blocks of so many, before some are taken: for so
/// many space is set aside.
#[must_use]
pub fn blocks_of(ring_bytes: u64, block_size: u32) -> u64 {
    room_of(ring_bytes, block_size).div_ceil(bytes_a_block(block_size))
}

/// A ring, on its shard's reactor.
pub struct Ring {
    pub volume: Arc<State>,
    pub identity: Identity,
    copies: Vec<RingCopy>,
    reader: Cell<Reader>,
    credit: Cell<u64>,
    phase: Cell<Phase>,
    /// Space for what the host may store.
    pub promise: RefCell<Option<Promise>>,
    /// A record's data.
    pub data: RefCell<Box<[u8]>>,
    /// What the next record says is in the log already.
    pub stored: Cell<Option<Stored>>,
    /// Its task is in the midst of a record.
    pub is_taking: Cell<bool>,
    /// Why it ended by itself, if it did.
    bad: Cell<Option<Bad>>,
    /// Records that were there are damaged.
    has_lost: Cell<bool>,
    /// Up to where its host was told that records are in the log.
    published: Cell<u64>,
    asked: Cell<u64>,
    answered: Cell<u64>,
    refused: Cell<u64>,
    /// Its task takes nothing more.
    stopped: Cell<bool>,
    done: Signal,
    wake: Notify,
}

impl Ring {
    /// A new one, whose memory is blank. Nobody has it yet.
    ///
    /// # Errors
    /// Those of storing.
    pub fn create(
        volume: Arc<State>,
        identity: Identity,
        copies: Vec<RingCopy>,
        promise: Promise,
    ) -> Result<Self> {
        for copy in &copies {
            copy.state.write(0, &identity.encode())?;
        }
        let ring = Self::new(volume, identity, copies, 0, Some(promise));
        ring.publish(true)?;
        ring.set_phase(Phase::Stands)?;
        Ok(ring)
    }

    /// One that was there when the pool was closed by a crash: from now on its host stores nothing more that counts. Where
    /// it had ended, its host knows how far it was taken, and may have sent as commands what is there beyond.
    ///
    /// # Errors
    /// Those of reading and storing.
    pub fn reopen(
        volume: Arc<State>,
        identity: Identity,
        copies: Vec<RingCopy>,
        promise: Promise,
    ) -> Result<Self> {
        let taken = words_of(&copies, TAKEN_AT)?.into_iter().max().unwrap_or(0);
        let ring = Self::new(volume, identity, copies, taken, Some(promise));
        // What it may have been given: nobody knows.
        ring.credit.set(ring.position() + identity.ring_bytes);
        let said = words_of(&ring.copies, PHASE_AT)?;
        // A damaged word says nothing while another copy's does.
        let makes_sense = |word: &u64| Phase::of(*word).word() == *word;
        let says_nothing = !said.iter().any(makes_sense);
        let ended = says_nothing || said.contains(&Phase::Ended.word());
        let has_lost = words_of(&ring.copies, LOST_AT)?.into_iter().any(|word| word != 0);
        ring.has_lost.set(has_lost);
        if says_nothing {
            ring.note_lost();
        }
        // Before anything is looked at.
        ring.set_phase(if ended { Phase::Ended } else { Phase::Ending })?;
        Ok(ring)
    }

    fn new(
        volume: Arc<State>,
        identity: Identity,
        copies: Vec<RingCopy>,
        taken: u64,
        promise: Option<Promise>,
    ) -> Self {
        Self {
            volume,
            copies,
            reader: Cell::new(Reader::new(identity.epoch, identity.ring_bytes, taken)),
            identity,
            credit: Cell::new(taken),
            phase: Cell::new(Phase::Stands),
            promise: RefCell::new(promise),
            data: RefCell::new(vec![0; DATA_BYTES_MAX].into()),
            stored: Cell::new(None),
            is_taking: Cell::new(false),
            bad: Cell::new(None),
            has_lost: Cell::new(false),
            published: Cell::new(taken),
            asked: Cell::new(0),
            answered: Cell::new(0),
            refused: Cell::new(0),
            stopped: Cell::new(false),
            done: Signal::default(),
            wake: Notify::new(),
        }
    }

    /// Blocks that may be stored in it before some are taken: for so many space is set aside, where there is some.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        blocks_of(self.identity.ring_bytes, self.volume.block_size)
    }

    /// Records up to here are in the log.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.reader.get().position()
    }

    /// Whether its host was told of all that is in the log.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.published.get() == self.position()
    }

    /// What a record was to change in part is lost. A kill before operators are told does not keep it from them.
    pub fn note_lost(&self) {
        self.has_lost.set(true);
        let _ = self.store(LOST_AT, 1);
    }

    /// Up to where its host may have stored something.
    #[must_use]
    pub const fn credit(&self) -> u64 {
        self.credit.get()
    }

    /// Bytes that its host may store before some are taken.
    fn room(&self) -> u64 {
        room_of(self.identity.ring_bytes, self.volume.block_size)
    }

    /// Whether its host has less credit than it may have.
    #[must_use]
    pub fn lacks_credit(&self) -> bool {
        self.credit.get() < self.position() + self.room()
    }

    /// Whether nobody has begun to end it.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.phase.get() == Phase::Stands
    }

    /// Whether nothing more is taken.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.phase.get() == Phase::Ended
    }

    /// Why it ended by itself, if it did.
    #[must_use]
    pub const fn bad(&self) -> Option<Bad> {
        self.bad.get()
    }

    /// Whether records that were there are damaged.
    #[must_use]
    pub const fn has_lost(&self) -> bool {
        self.has_lost.get()
    }

    fn header_at(&self, at: u64) -> Option<[u8; HEADER]> {
        let mut header = [0; HEADER];
        self.copies.iter().find_map(|copy| copy.ring.read(at, &mut header).ok()).map(|()| header)
    }

    /// What is next. A header that one copy lacks may be whole in another.
    #[must_use]
    pub fn look(&self) -> Look {
        let (reader, credit) = (self.reader.get(), self.credit.get());
        let mut is_readable = false;
        for copy in &self.copies {
            let mut header = [0; HEADER];
            if copy.ring.read(reader.at(), &mut header).is_ok() {
                is_readable = true;
                // Data that was stored before this header is seen by whoever sees it, also where loads overtake each other.
                fence(Ordering::Acquire);
                let look = reader.look(&header, credit);
                if look != Look::Nothing {
                    return look;
                }
            }
        }
        // What may be there was complete.
        if is_readable { Look::Nothing } else { Look::Bad(Bad::Unreadable) }
    }

    /// Has a record's data in [`data`](Self::data), and every opening find the record; false when no copy has it as it was
    /// stored.
    #[must_use]
    pub fn fetch(&self, record: &Look) -> bool {
        let Look::Write { at, length, data_crc: crc, .. } = *record else { return false };
        let mut data = self.data.borrow_mut();
        let data = &mut data[..length];
        // Copied first: the host may change it at any moment.
        let has = |copy: &RingCopy, data: &mut [u8]| {
            copy.ring.read(at, data).is_ok() && crc32c(data) == crc
        };
        let found = self.copies.iter().any(|copy| has(copy, data));
        found && (self.copies.len() == 1 || self.mend(record, at, data)) && self.keep(at)
    }

    /// Has the record of this data be in each copy that takes it, before it is in the log: were it in the log and not
    /// found, what is before it would be taken again, over it.
    fn mend(&self, record: &Look, at: u64, data: &[u8]) -> bool {
        let from = at - u64_of(HEADER);
        let header = |copy: &RingCopy| {
            let mut header = [0; HEADER];
            copy.ring.read(from, &mut header).is_ok().then_some(header)
        };
        let reader = self.reader.get();
        let is_it = |header: &[u8; HEADER]| reader.look(header, u64::MAX) == *record;
        let whole = self.copies.iter().filter_map(header).find(is_it);
        let Some(whole) = whole else { return false };
        let mut there = vec![0; data.len()];
        let mut is_in_one = false;
        for copy in &self.copies {
            let is_there = header(copy) == Some(whole)
                && copy.ring.read(at, &mut there).is_ok()
                && there == data;
            let stored = is_there || {
                let stored = copy.ring.write(at, data);
                if !canary::skips(Step::WindowMends) {
                    copy.ring.fence();
                }
                stored.and_then(|()| copy.ring.write(from, &whole)).is_ok()
            };
            is_in_one |= stored;
        }
        is_in_one
    }

    /// Has a record that is seen be durable, whose data is there: its host's header may not be yet.
    fn keep(&self, at: u64) -> bool {
        let flush = |copy: &RingCopy| copy.ring.flush(at - u64_of(HEADER), HEADER).is_ok();
        // All of them: one that fails has the others go on.
        self.copies.iter().filter(|copy| flush(copy)).count() > 0
    }

    /// What was looked at is in the log.
    pub fn advance(&self, look: &Look) {
        let mut reader = self.reader.get();
        reader.advance(look);
        self.reader.set(reader);
    }

    /// Says up to where records are in the log, which has them durable, and how far the host may go on: as far as there is
    /// room in the ring, and space was set aside, if it `may` at all.
    ///
    /// # Errors
    /// Those of storing.
    pub fn publish(&self, may: bool) -> Result<()> {
        let taken = self.position();
        self.store(TAKEN_AT, taken)?;
        let before = self.published.replace(taken);
        assert!(before <= taken, "what a host was told is in the log stays there");
        let blocks = self.promise.borrow().as_ref().map_or(0, Promise::left);
        let room = self
            .identity
            .ring_bytes
            .min(blocks.saturating_mul(bytes_a_block(self.volume.block_size)));
        // What was given is not taken back, and nothing more is given at the end.
        let may = may && self.phase.get() == Phase::Stands;
        let early = if canary::has(Canary::CreditsEarly) { EARLY } else { 0 };
        let credit =
            if may { self.credit.get().max(taken + room + early) } else { self.credit.get() };
        self.credit.set(credit);
        self.store(CREDIT_AT, credit)
    }

    /// Stores a word in all copies, durable when this returns.
    fn store(&self, at: u64, word: u64) -> Result<()> {
        let (mut stored, mut failure) = (false, None);
        for copy in &self.copies {
            match copy.state.store(at, word) {
                Ok(()) => {
                    copy.state.full_fence();
                    stored = true;
                }
                Err(error) => failure = Some(error),
            }
        }
        // The host reads it in all copies: one is enough for it to see that the window does not stand.
        match failure {
            Some(error) if !stored => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// From now on the window is so, and whatever is looked at after this was stored before, if the host saw otherwise.
    ///
    /// # Errors
    /// Those of storing.
    pub fn set_phase(&self, phase: Phase) -> Result<()> {
        self.store(PHASE_AT, phase.word())?;
        self.phase.set(phase);
        Ok(())
    }

    /// Ends it for what its host did.
    pub fn end_as_bad(&self, bad: Bad) {
        // Behind a whole header lies what was whole: its host may have been told that it is complete.
        let has_lost = matches!(bad, Bad::Unreadable | Bad::Checksum);
        if has_lost {
            self.note_lost();
        }
        self.bad.set(self.bad.get().or(Some(bad)));
        self.end();
    }

    /// It takes nothing more, and its host is told how far it was.
    fn end(&self) {
        // That the host cannot be told is told by the device.
        let _ = self.publish(false);
        let _ = self.set_phase(Phase::Ended);
        self.promise.take();
    }

    /// Whether a whole header lies further on: then what is between is damaged, unless it is there by now. (A host may
    /// store late; it sees that the window does not stand.)
    async fn shows_damage(&self) -> bool {
        let (reader, ring) = (self.reader.get(), self.identity.ring_bytes);
        let lines = (0..ring).step_by(usize64(window::ALIGN));
        for (n, at) in lines.enumerate() {
            let header = self.header_at(at);
            if header.is_some_and(|header| reader.shows_damage(&header, at)) {
                return self.look() == Look::Nothing && self.position() == reader.position();
            }
            if n % LINES_A_TURN == LINES_A_TURN - 1 {
                yield_now().await;
            }
        }
        false
    }

    /// All that was there is taken: it takes nothing more, and its host is told how far it was.
    pub fn finish(&self) {
        if !self.has_ended() {
            assert!(!self.is_taking.get() && self.stored.get().is_none(), "nothing is half taken");
            self.end();
        }
    }

    /// Takes note of it when records are damaged.
    pub async fn look_for_damage(&self) {
        if !self.has_ended() && self.shows_damage().await {
            self.note_lost();
        }
    }

    /// Waits until all that is there by now is in the log.
    ///
    /// # Errors
    /// `Busy` when what is there cannot be taken now; `Gone` when its task takes nothing more, and it did not come to its end.
    pub async fn taken(&self) -> Result<()> {
        let number = self.asked.get() + 1;
        self.asked.set(number);
        self.wake.notify();
        let is_done = || {
            let told = self.answered.get().max(self.refused.get()) >= number;
            told || self.has_ended() || self.stopped.get()
        };
        self.done.until(is_done).await;
        if self.answered.get() >= number || self.has_ended() {
            return Ok(());
        }
        // Hosts ask again: neither says anything of what the volume keeps.
        if self.stopped.get() {
            return Err(Error::new(
                Kind::Gone,
                "the volume's direct write window is taken from no more",
            ));
        }
        let what = "what a host stored in its direct write window cannot be taken now: drives are missing, or the log failed";
        Err(Error::new(Kind::Busy, what))
    }

    /// What was asked so far, to be [answered](Self::answer).
    #[must_use]
    pub const fn asked(&self) -> u64 {
        self.asked.get()
    }

    /// All that was there when this was asked for is in the log.
    pub fn answer(&self, asked: u64) {
        let before = self.answered.replace(asked);
        assert!(before <= asked && asked <= self.asked.get(), "what is answered was asked");
        self.done.raise();
    }

    /// What was asked for so far cannot be done now.
    pub fn refuse(&self, asked: u64) {
        let before = self.refused.replace(asked);
        assert!(before <= asked && asked <= self.asked.get(), "what is refused was asked");
        self.done.raise();
    }

    /// Its task takes nothing more.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.done.raise();
    }

    /// Has its task look.
    pub fn ring_bell(&self) {
        self.wake.notify();
    }

    /// Waits until it is asked for something.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}

/// A word in each of the copies that can be read.
fn words_of(copies: &[RingCopy], at: u64) -> Result<Vec<u64>> {
    let words = copies.iter().map(|copy| copy.state.load(at));
    let (read, failed): (Vec<_>, Vec<_>) = words.partition(|word| word.is_ok());
    match (read.is_empty(), failed.into_iter().next()) {
        (true, Some(Err(error))) => Err(error.into()),
        _ => Ok(read.into_iter().flatten().collect()),
    }
}

/// Bytes of a state page.
pub const STATE_BYTES: u64 = u64_of(PAGE);

/// What a state page says it is of; none where its words make no sense.
///
/// # Errors
/// Those of reading it.
pub fn identity_of(state: &Pmem) -> Result<Option<Identity>> {
    let mut bytes = [0; IDENTITY];
    state.read(0, &mut bytes)?;
    let taken = state.load(TAKEN_AT)?;
    let makes_sense = taken.is_multiple_of(window::ALIGN) && taken < POSITIONS_END;
    Ok(Identity::decode(&bytes).filter(|_| makes_sense))
}
