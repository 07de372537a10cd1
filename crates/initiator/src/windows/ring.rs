//! A ring as its host has it: where the next record goes, and the files it is stored in.

use std::time::Duration;

use media::Pmem;
use reactor::{Bell, now_exact};
use stdx::crc32c_append;
use stdx::num::{low32, u64_of};
use window::page::{CREDIT_AT, PHASE_AT, TAKEN_AT};
use window::record::HEADER;
use window::writer::Place;
use window::{Grant, Phase, Writer};

use super::standing::Standing;
use super::written::{NotDone, Written};
use crate::canary::{self, Canary};
use crate::limits::{WINDOW_END, WINDOW_END_MOST, WINDOW_LOOK, WINDOW_NEAR, WINDOW_SPIN};

/// Bytes of data that are taken, summed and stored at once: what the nearest cache has room for.
const PIECE: usize = 4096;

/// A file of a ring, and its state page.
#[derive(Debug)]
pub struct Copy {
    pub state: Pmem,
    pub memory: Pmem,
}

impl Copy {
    #[inline]
    fn phase(&self) -> Option<Phase> {
        self.state.load(PHASE_AT).ok().map(Phase::of)
    }

    /// Up to where records are in the target's log, once that is for good. A word that is none of a phase's says
    /// nothing.
    fn last_taken(&self) -> Option<u64> {
        let ended = self.state.load(PHASE_AT).ok()? == Phase::Ended.word();
        ended.then(|| self.state.load(TAKEN_AT).ok()).flatten()
    }
}

/// A write under way.
#[derive(Debug)]
pub struct Writing {
    place: Place,
    /// Of the volume.
    offset: u64,
    header: [u8; HEADER],
    step: Step,
    /// All copies took the header.
    is_whole: bool,
}

/// What the simulator looks at between two steps.
#[cfg(feature = "testing")]
impl Writing {
    /// What comes next.
    #[must_use]
    pub const fn next(&self) -> Step {
        self.step
    }

    /// Where its record goes.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Its record's header, once its data is stored.
    #[must_use]
    pub const fn header(&self) -> &[u8; HEADER] {
        &self.header
    }
}

/// What a writer does next: it may be killed before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Stores padding and data in all copies.
    Data,
    /// Has them be seen before the header is.
    Fence,
    /// Stores the header in this copy; fences fully when there is none.
    Header(usize),
    /// Looks whether the window stands.
    Look,
    /// It does not: looks whether it has come to its end.
    AwaitEnd,
}

/// A ring of a window, and how far its host has written it.
#[derive(Debug)]
pub struct Ring {
    writer: Writer,
    /// Mirrors of each other: what is stored is in all of them, and none of them tells that the window does not stand.
    copies: Box<[Copy]>,
    bell: Bell,
    /// As read last: it only grows.
    credit: u64,
    /// Of the ring, in bytes.
    quarter: u64,
    /// Quarters that are not taken and the bell was rung for.
    rung: u64,
    ended: bool,
    /// Data is stored through the cache, where that is as safe as the memory: it stays there until it is taken.
    near: bool,
}

impl Ring {
    /// A ring that nothing was stored in.
    #[must_use]
    pub fn new(grant: &Grant, copies: Box<[Copy]>, bell: Bell) -> Self {
        let writer = Writer::new(grant.epoch, grant.ring_bytes);
        let quarter = grant.ring_bytes / 4;
        let near = grant.ring_bytes <= WINDOW_NEAR;
        Self { writer, copies, bell, credit: 0, quarter, rung: 0, ended: false, near }
    }

    /// Whether nothing will be written to it any more.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The steps of `docs/anof.md`, "A write".
    #[inline]
    pub fn write(&mut self, offset: u64, data: &[u8], standing: &Standing) -> Written {
        let mut writing = match self.begin(offset, data) {
            Ok(writing) => writing,
            Err(why) => return Written::NotDone(why),
        };
        loop {
            if let Some(written) = self.step(&mut writing, data, standing) {
                return written;
            }
            if writing.step == Step::AwaitEnd {
                return self.await_end(&writing, standing);
            }
        }
    }

    /// A write of this data, of which nothing is stored yet, where there is credit for it. It is for the caller to take
    /// its steps, each in turn, before another one begins.
    ///
    /// # Errors
    /// Why it is to go as a command.
    #[inline]
    pub fn begin(&mut self, offset: u64, data: &[u8]) -> Result<Writing, NotDone> {
        let Some(place) = self.place(data.len()) else {
            // Nothing more comes of a page that cannot be read.
            self.ended = self.copies.iter().any(|copy| copy.phase() != Some(Phase::Stands));
            return Err(if self.ended { NotDone::Ended } else { NotDone::Credit });
        };
        Ok(Writing { place, offset, header: [0; HEADER], step: Step::Data, is_whole: true })
    }

    /// Takes the next step of a write; tells what came of it once that is known. Whether it may be waited for longer
    /// at the [end](Step::AwaitEnd) is for the caller to [see](Self::may_wait).
    #[inline]
    pub fn step(
        &mut self,
        writing: &mut Writing,
        data: &[u8],
        standing: &Standing,
    ) -> Option<Written> {
        writing.step = match writing.step {
            Step::Data => {
                let Some(crc) = self.store(&writing.place, data) else {
                    // Nothing points to it, and nothing will come after it.
                    self.ended = true;
                    return Some(Written::NotDone(NotDone::Memory));
                };
                writing.header = self.header(writing, data.len(), crc);
                Step::Fence
            }
            Step::Fence => {
                // It is seen before the header is.
                self.fence(Pmem::fence);
                self.writer.advance(&writing.place);
                Step::Header(0)
            }
            // All of them, whatever comes of one.
            Step::Header(copy) if copy < self.copies.len() => {
                let memory = &self.copies[copy].memory;
                writing.is_whole &= memory.write(writing.place.at, &writing.header).is_ok();
                Step::Header(copy + 1)
            }
            Step::Header(_) => {
                if !canary::has(Canary::ReportsBeforeFence) {
                    self.fence(Pmem::full_fence);
                }
                Step::Look
            }
            Step::Look => return self.look(writing, standing),
            Step::AwaitEnd => return self.verdict(writing.place.end),
        };
        None
    }

    fn header(&self, writing: &Writing, length: usize, crc: u32) -> [u8; HEADER] {
        let length = low32(u64_of(length));
        self.writer.record(&writing.place, writing.offset, length, crc).encode()
    }

    /// The header that a write of this data will have.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn header_of(&self, writing: &Writing, data: &[u8]) -> [u8; HEADER] {
        self.header(writing, data.len(), stdx::crc32c(data))
    }

    /// Whether the window stands behind a record that is there.
    #[inline]
    fn look(&mut self, writing: &mut Writing, standing: &Standing) -> Option<Written> {
        let stands = self.copies.iter().all(|copy| copy.phase() == Some(Phase::Stands));
        if !writing.is_whole {
            self.ended = true;
            return Some(Written::Unknown);
        }
        let looks = !canary::has(Canary::ReportsWithoutLook);
        if !looks || stands && standing.is_associated() {
            if standing.is_usable() {
                self.ring_bell();
                return Some(Written::Done);
            }
            // A command was lost meanwhile, which it may be overtaken by: as a command it waits for what becomes of that.
            self.ended = true;
            return Some(Written::Unknown);
        }
        self.ended = true;
        writing.step = Step::AwaitEnd;
        None
    }

    /// Where the next record goes.
    #[inline]
    fn place(&mut self, length: usize) -> Option<Place> {
        if let Some(place) = self.writer.place(length, self.credit) {
            return Some(place);
        }
        let credits = self.copies.iter().map(|copy| copy.state.load(CREDIT_AT));
        let least = credits.map(|credit| credit.unwrap_or(0)).min();
        self.credit = least.unwrap_or(0);
        self.writer.place(length, self.credit)
    }

    /// Stores padding and data, to be seen before the header is, and gives the checksum of what was stored; none when that cannot be.
    ///
    /// A caller that breaks its word may change the data meanwhile, which is not to cost what others write behind it: so each piece is
    /// taken once, and is what is stored in each copy, and summed.
    #[inline]
    fn store(&self, place: &Place, data: &[u8]) -> Option<u32> {
        let pad = place.pad.map(|at| (at, self.writer.pad().encode()));
        for Copy { memory, .. } in &self.copies {
            if let Some((at, header)) = pad {
                memory.write(at, &header).ok()?;
            }
        }
        let (mut crc, mut at) = (0, place.at + u64_of(HEADER));
        let mut piece = [0; PIECE];
        for bytes in data.chunks(PIECE) {
            let piece = &mut piece[..bytes.len()];
            piece.copy_from_slice(bytes);
            // Nor is it read again where it came from.
            let piece = &*std::hint::black_box(piece);
            crc = crc32c_append(crc, piece);
            for Copy { memory, .. } in &self.copies {
                match self.near {
                    true => memory.write_near(at, piece).ok()?,
                    false => memory.write(at, piece).ok()?,
                }
            }
            at += u64_of(piece.len());
        }
        Some(crc)
    }

    /// Fences what this core has stored, which is the same for all memory.
    #[inline]
    fn fence(&self, how: fn(&Pmem)) {
        self.copies.first().into_iter().for_each(|copy| how(&copy.memory));
    }

    /// Rings at each quarter of the ring that is not taken.
    #[inline]
    fn ring_bell(&mut self) {
        let taken = self.copies.first().and_then(|copy| copy.state.load(TAKEN_AT).ok());
        let untaken = self.writer.untaken(taken.unwrap_or(0));
        let quarters = untaken / self.quarter;
        if quarters > self.rung {
            self.bell.ring();
        }
        self.rung = quarters;
    }

    /// The window ends: waits until it is known whether the record was taken.
    #[cold]
    fn await_end(&self, writing: &Writing, standing: &Standing) -> Written {
        let begun = now_exact();
        loop {
            if let Some(written) = self.verdict(writing.place.end) {
                return written;
            }
            let waited = Duration::from_nanos(now_exact() - begun);
            if !Self::may_wait(waited, standing) {
                return Written::Unknown;
            }
            if waited < WINDOW_SPIN {
                std::hint::spin_loop();
            } else {
                // It may return early.
                std::thread::park_timeout(WINDOW_LOOK);
            }
        }
    }

    /// Whether a write that waited so long for the window's end may go on with that; else its outcome is
    /// [not known](Written::Unknown).
    pub fn may_wait(waited: Duration, standing: &Standing) -> bool {
        let in_vain = waited > WINDOW_END && !standing.is_associated();
        !in_vain && waited <= WINDOW_END_MOST
    }

    /// Whether the record that ends at this position was taken, once that is known.
    fn verdict(&self, end: u64) -> Option<Written> {
        // One that cannot be read says nothing; the target has the others say all of it.
        let mut readable = self.copies.iter().filter(|copy| copy.phase().is_some()).peekable();
        if readable.peek().is_none() {
            return Some(Written::Unknown);
        }
        // An opening that found one copy alone goes on there: each has to have come to its end.
        let ends = readable.map(Copy::last_taken).collect::<Option<Vec<_>>>();
        let taken = ends.and_then(|taken| taken.into_iter().max())?;
        Some(if taken >= end { Written::Done } else { Written::NotDone(NotDone::Ended) })
    }
}
