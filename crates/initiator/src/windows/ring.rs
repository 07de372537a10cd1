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

/// What is waited for at the end.
enum Verdict {
    Taken(u64),
    NotYet,
    /// No state page can be read any more.
    Silent,
}

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
    pub fn new(grant: &Grant, copies: Box<[Copy]>, bell: Bell) -> Self {
        let writer = Writer::new(grant.epoch, grant.ring_bytes);
        let quarter = grant.ring_bytes / 4;
        let near = grant.ring_bytes <= WINDOW_NEAR;
        Self { writer, copies, bell, credit: 0, quarter, rung: 0, ended: false, near }
    }

    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The steps of `docs/anof.md`, "A write".
    #[inline]
    pub fn write(&mut self, offset: u64, data: &[u8], standing: &Standing) -> Written {
        let Some(place) = self.place(data.len()) else {
            // Nothing more comes of a page that cannot be read.
            self.ended = self.copies.iter().any(|copy| copy.phase() != Some(Phase::Stands));
            let why = if self.ended { NotDone::Ended } else { NotDone::Credit };
            return Written::NotDone(why);
        };
        let Some(crc) = self.store(&place, data) else {
            // Nothing points to it, and nothing will come after it.
            self.ended = true;
            return Written::NotDone(NotDone::Memory);
        };
        let header = self.writer.record(&place, offset, low32(u64_of(data.len())), crc).encode();
        self.writer.advance(&place);
        let stored = self.copies.iter().map(|copy| copy.memory.write(place.at, &header).is_ok());
        // All of them, whatever comes of one.
        let is_whole = stored.fold(true, |all, one| all & one);
        self.fence(Pmem::full_fence);
        let stands = self.copies.iter().all(|copy| copy.phase() == Some(Phase::Stands));
        if !is_whole {
            self.ended = true;
            return Written::Unknown;
        }
        if stands && standing.is_associated() {
            if standing.is_usable() {
                self.ring_bell();
                return Written::Done;
            }
            // A command was lost meanwhile, which it may be overtaken by: as a command it waits for what becomes of that.
            self.ended = true;
            return Written::Unknown;
        }
        self.ended = true;
        self.await_end(place.end, standing)
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
        self.fence(Pmem::fence);
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

    /// The window ends: waits until it is known whether the record that ends at this position was taken.
    #[cold]
    fn await_end(&self, end: u64, standing: &Standing) -> Written {
        let begun = now_exact();
        loop {
            match self.verdict() {
                Verdict::Taken(taken) if taken >= end => return Written::Done,
                Verdict::Taken(_) => return Written::NotDone(NotDone::Ended),
                Verdict::Silent => return Written::Unknown,
                Verdict::NotYet => {}
            }
            let waited = Duration::from_nanos(now_exact() - begun);
            let in_vain = waited > WINDOW_END && !standing.is_associated();
            if in_vain || waited > WINDOW_END_MOST {
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

    fn verdict(&self) -> Verdict {
        // One that cannot be read says nothing; the target has the others say all of it.
        let mut readable = self.copies.iter().filter(|copy| copy.phase().is_some()).peekable();
        if readable.peek().is_none() {
            return Verdict::Silent;
        }
        // An opening that found one copy alone goes on there: each has to have come to its end.
        let ends = readable.map(Copy::last_taken).collect::<Option<Vec<_>>>();
        let furthest = ends.and_then(|taken| taken.into_iter().max());
        furthest.map_or(Verdict::NotYet, Verdict::Taken)
    }
}
