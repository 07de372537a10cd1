//! Where a ring lies: in memory that this process has mapped, or at the other end of an RDMA connection. What has to be
//! done to it is the same.

use std::time::Duration;

use fabric::ring::RemoteRing;
use media::Pmem;
use reactor::Bell;
use stdx::crc32c_append;
use stdx::num::u64_of;
use window::page::{CREDIT_AT, PHASE_AT, TAKEN_AT};
use window::record::HEADER;
use window::writer::Place;
use window::{Grant, Phase};

use crate::limits::WINDOW_NEAR;

/// Bytes of data that are taken, summed and stored at once: what the nearest cache has room for.
const PIECE: usize = 4096;

/// A file of a ring, and its state page.
#[derive(Debug)]
pub struct Copy {
    pub state: Pmem,
    pub memory: Pmem,
}

/// A ring in memory of this machine.
#[derive(Debug)]
pub struct Mapped {
    /// Mirrors of each other: what is stored is in all of them, and none of them tells that the window does not stand.
    copies: Box<[Copy]>,
    bell: Bell,
    /// Data is stored through the cache, where that is as safe as the memory: it stays there until it is taken.
    near: bool,
}

/// All copies of a ring.
#[derive(Debug)]
pub enum Copies {
    Mapped(Mapped),
    Remote(Box<RemoteRing>),
}

/// What a copy says of its window, as far as it can be read.
#[derive(Clone, Copy, Debug)]
struct Said {
    phase: u64,
    taken: u64,
    credit: u64,
}

impl Copies {
    /// Those that this process has mapped.
    #[must_use]
    pub fn mapped(grant: &Grant, copies: Box<[Copy]>, bell: Bell) -> Self {
        Self::Mapped(Mapped { copies, bell, near: grant.ring_bytes <= WINDOW_NEAR })
    }

    #[inline]
    pub fn count(&self) -> usize {
        match self {
            Self::Mapped(mapped) => mapped.copies.len(),
            Self::Remote(remote) => remote.copies(),
        }
    }

    /// What each copy says; none of one that cannot be read.
    fn said(&self) -> impl Iterator<Item = Option<Said>> {
        (0..self.count()).map(|copy| match self {
            Self::Mapped(mapped) => {
                let state = &mapped.copies[copy].state;
                let word = |at| state.load(at).ok();
                // In this order: what is taken last is read behind the phase that says so.
                let phase = word(PHASE_AT)?;
                Some(Said { phase, taken: word(TAKEN_AT)?, credit: word(CREDIT_AT)? })
            }
            Self::Remote(remote) => remote.words(copy).map(|words| Said {
                phase: words.phase,
                taken: words.taken,
                credit: words.credit,
            }),
        })
    }

    /// Whether the window stands, as all copies say.
    #[inline]
    pub fn stand(&self) -> bool {
        match self {
            Self::Mapped(mapped) => {
                let phase = |copy: &Copy| copy.state.load(PHASE_AT).ok().map(Phase::of);
                mapped.copies.iter().all(|copy| phase(copy) == Some(Phase::Stands))
            }
            Self::Remote(_) => {
                self.said().all(|said| said.is_some_and(|said| said.phase == Phase::Stands.word()))
            }
        }
    }

    /// Up to where the host may store, as it is now.
    pub fn credit(&mut self, may_wait: &dyn Fn(Duration) -> bool) -> u64 {
        self.refresh(may_wait);
        self.said().map(|said| said.map_or(0, |said| said.credit)).min().unwrap_or(0)
    }

    /// Up to where records are in the target's log, as far as is known.
    #[inline]
    pub fn taken(&self) -> u64 {
        match self {
            Self::Mapped(mapped) => {
                let first = mapped.copies.first();
                first.and_then(|copy| copy.state.load(TAKEN_AT).ok()).unwrap_or(0)
            }
            Self::Remote(remote) => remote.words(0).map_or(0, |words| words.taken),
        }
    }

    /// Up to where records are in the target's log for good, as all copies that can be read say; an error while one says
    /// that the window has not come to its end, none when no copy can be read.
    pub fn last_taken(&self) -> Result<Option<u64>, NotEnded> {
        let mut last = None;
        // One that cannot be read says nothing; the target has the others say all of it. A phase's word that is none says
        // nothing either. An opening that found one copy alone goes on there: each has to have come to its end.
        for said in self.said().flatten() {
            if said.phase != Phase::Ended.word() {
                return Err(NotEnded);
            }
            last = last.max(Some(said.taken));
        }
        Ok(last)
    }

    /// Has what is at the other end of a connection be known here.
    pub fn refresh(&mut self, may_wait: &dyn Fn(Duration) -> bool) {
        if let Self::Remote(remote) = self {
            remote.look(may_wait);
        }
    }

    /// Stores padding and data, to be seen before the header is, and gives the checksum of what was stored; none when that cannot be.
    ///
    /// A caller that breaks its word may change the data meanwhile, which is not to cost what others write behind it: so each piece is
    /// taken once, and is what is stored in each copy, and summed.
    #[inline]
    pub fn store(
        &mut self,
        place: &Place,
        pad: impl FnOnce() -> [u8; HEADER],
        data: &[u8],
    ) -> Option<u32> {
        let pad = place.pad.map(|at| (at, pad()));
        if let (Self::Mapped(mapped), Some((at, header))) = (&*self, pad) {
            for Copy { memory, .. } in &mapped.copies {
                memory.write(at, &header).ok()?;
            }
        }
        let (mut crc, mut at) = (0, 0);
        let mut piece = [0; PIECE];
        for bytes in data.chunks(PIECE) {
            let piece = &mut piece[..bytes.len()];
            piece.copy_from_slice(bytes);
            // Nor is it read again where it came from.
            let piece = &*std::hint::black_box(piece);
            crc = crc32c_append(crc, piece);
            match self {
                Self::Mapped(mapped) => mapped.store(place.at + u64_of(HEADER + at), piece)?,
                Self::Remote(remote) => remote.stage(at, piece),
            }
            at += piece.len();
        }
        if let Self::Remote(remote) = self {
            remote.write_data(place.at, data.len(), pad).then_some(())?;
        }
        Some(crc)
    }

    /// Has what was stored be seen, and durable, before what is stored next; whether that went well. A card carries out what
    /// it is told in that order: there is something to do where that is not enough for it to be durable.
    #[inline]
    pub fn fence(&mut self, may_wait: &dyn Fn(Duration) -> bool) -> bool {
        match self {
            Self::Mapped(mapped) => {
                mapped.copies.first().into_iter().for_each(|copy| copy.memory.fence());
                true
            }
            Self::Remote(remote) => remote.fence(may_wait),
        }
    }

    /// Stores a header in a copy; whether that took it.
    #[inline]
    pub fn store_header(&mut self, copy: usize, at: u64, header: &[u8; HEADER]) -> bool {
        match self {
            Self::Mapped(mapped) => mapped.copies[copy].memory.write(at, header).is_ok(),
            Self::Remote(remote) => remote.write_header(copy, at, header),
        }
    }

    /// Has what was stored be durable, and seen by all, before anything is read after it.
    #[inline]
    pub fn full_fence(&mut self, may_wait: &dyn Fn(Duration) -> bool) {
        match self {
            // What this core has stored, which is the same for all memory.
            Self::Mapped(mapped) => {
                mapped.copies.first().into_iter().for_each(|copy| copy.memory.full_fence());
            }
            // The read that tells brings what is read after it.
            Self::Remote(remote) => {
                remote.look(may_wait);
            }
        }
    }

    #[inline]
    pub fn ring_bell(&mut self) {
        match self {
            Self::Mapped(mapped) => mapped.bell.ring(),
            Self::Remote(remote) => remote.ring_bell(),
        }
    }

    /// Whether what was stored last may arrive yet: it is on its way through a network, and nobody will be told.
    #[must_use]
    pub fn may_arrive_late(&self) -> bool {
        matches!(self, Self::Remote(remote) if remote.words(0).is_none())
    }
}

/// The window has not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnded;

impl Mapped {
    #[inline]
    fn store(&self, at: u64, piece: &[u8]) -> Option<()> {
        for Copy { memory, .. } in &self.copies {
            match self.near {
                true => memory.write_near(at, piece).ok()?,
                false => memory.write(at, piece).ok()?,
            }
        }
        Some(())
    }
}
