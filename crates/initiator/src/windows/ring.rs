//! A ring as its host has it: where the next record goes, and what is done to have it be there.

use std::time::Duration;

use reactor::now_exact;
use stdx::num::{low32, u64_of};
use window::record::HEADER;
use window::writer::Place;
use window::{Grant, Writer};

use super::copies::{Copies, NotEnded};
use super::standing::Standing;
use super::written::{NotDone, Written};
use crate::canary::{self, Canary};
use crate::limits::{WINDOW_END, WINDOW_END_MOST, WINDOW_LOOK, WINDOW_SPIN};

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
    copies: Copies,
    /// As read last: it only grows.
    credit: u64,
    /// Of the ring, in bytes.
    quarter: u64,
    /// Quarters that are not taken and the bell was rung for.
    rung: u64,
    ended: bool,
}

impl Ring {
    /// A ring that nothing was stored in.
    #[must_use]
    pub fn new(grant: &Grant, copies: Copies) -> Self {
        let writer = Writer::new(grant.epoch, grant.ring_bytes);
        let quarter = grant.ring_bytes / 4;
        Self { writer, copies, credit: 0, quarter, rung: 0, ended: false }
    }

    /// Whether nothing will be written to it any more.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The steps of `docs/anof.md`, "A write".
    #[inline]
    pub fn write(&mut self, offset: u64, data: &[u8], standing: &Standing) -> Written {
        let mut writing = match self.begin(offset, data, standing) {
            Ok(writing) => writing,
            Err(why) => return Written::NotDone(why),
        };
        loop {
            if let Some(written) = self.step(&mut writing, data, standing) {
                return self.settled(written, standing);
            }
            if writing.step == Step::AwaitEnd {
                let written = self.await_end(&writing, standing);
                return self.settled(written, standing);
            }
        }
    }

    /// What came of a write. What may arrive when it is not known any more whether it will, commands have to wait for.
    #[inline]
    fn settled(&self, written: Written, standing: &Standing) -> Written {
        if written == Written::Unknown && self.copies.may_arrive_late() {
            standing.doubt();
        }
        written
    }

    /// A write of this data, of which nothing is stored yet, where there is credit for it. It is for the caller to take
    /// its steps, each in turn, before another one begins.
    ///
    /// # Errors
    /// Why it is to go as a command.
    #[inline]
    pub fn begin(
        &mut self,
        offset: u64,
        data: &[u8],
        standing: &Standing,
    ) -> Result<Writing, NotDone> {
        let Some(place) = self.place(data.len(), standing) else {
            // Nothing more comes of a page that cannot be read.
            self.ended = !self.copies.stand();
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
                let pad = || self.writer.pad().encode();
                let Some(crc) = self.copies.store(&writing.place, pad, data) else {
                    // Nothing points to it, and nothing will come after it.
                    self.ended = true;
                    return Some(Written::NotDone(NotDone::Memory));
                };
                writing.header = self.header(writing, data.len(), crc);
                Step::Fence
            }
            Step::Fence => {
                // It is seen before the header is.
                if !self.copies.fence(&|waited| Self::may_wait(waited, standing)) {
                    // As above: no header was handed to the card.
                    self.ended = true;
                    return Some(Written::NotDone(NotDone::Memory));
                }
                self.writer.advance(&writing.place);
                Step::Header(0)
            }
            // All of them, whatever comes of one.
            Step::Header(copy) if copy < self.copies.count() => {
                let at = writing.place.at;
                writing.is_whole &= self.copies.store_header(copy, at, &writing.header);
                Step::Header(copy + 1)
            }
            Step::Header(_) => {
                if !canary::has(Canary::ReportsBeforeFence) {
                    self.copies.full_fence(&|waited| Self::may_wait(waited, standing));
                }
                Step::Look
            }
            Step::Look => return self.look(writing, standing),
            Step::AwaitEnd => {
                self.copies.refresh(&|waited| Self::may_wait(waited, standing));
                return self.verdict(writing.place.end);
            }
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
        let stands = self.copies.stand();
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
    fn place(&mut self, length: usize, standing: &Standing) -> Option<Place> {
        if let Some(place) = self.writer.place(length, self.credit) {
            return Some(place);
        }
        self.credit = self.copies.credit(&|waited| Self::may_wait(waited, standing));
        self.writer.place(length, self.credit)
    }

    /// Rings at each quarter of the ring that is not taken.
    #[inline]
    fn ring_bell(&mut self) {
        let untaken = self.writer.untaken(self.copies.taken());
        let quarters = untaken / self.quarter;
        if quarters > self.rung {
            self.copies.ring_bell();
        }
        self.rung = quarters;
    }

    /// The window ends: waits until it is known whether the record was taken.
    #[cold]
    fn await_end(&mut self, writing: &Writing, standing: &Standing) -> Written {
        let begun = now_exact();
        loop {
            self.copies.refresh(&|waited| Self::may_wait(waited, standing));
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
        match self.copies.last_taken() {
            Err(NotEnded) => None,
            Ok(None) => Some(Written::Unknown),
            Ok(Some(taken)) if taken >= end => Some(Written::Done),
            Ok(Some(_)) => Some(Written::NotDone(NotDone::Ended)),
        }
    }
}
