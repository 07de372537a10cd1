//! Writing by a window: a record is stored, fenced, and then it is seen whether the window stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stdx::num::usize32;
use window::{DATA_BYTES_MAX, Grant};

use super::ring::Ring;

/// What came of a write by a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is durable, and complete.
    Done,
    /// It was not done and never will be: it is to go as a command.
    NotDone(NotDone),
    /// It may be in the target's log by now, or get there before anything else of the volume is done. As that of a
    /// command whose connection was lost, its outcome is not known; it may go as a command all the same.
    Unknown,
}

/// Why a write was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// There is no window, or it has ended, or may not be used any more.
    Ended,
    /// It is longer than a record's data can be.
    TooLong,
    /// It is not of whole blocks of the volume, or not of one ring.
    NotOneRing,
    /// The target has given no credit for it.
    Credit,
    /// The window's memory cannot be reached.
    Memory,
    /// Another thread is writing.
    Busy,
}

/// What a namespace's reactor tells whoever writes by its window.
#[derive(Debug)]
pub struct Standing {
    /// The association with the controller that granted it lives, as far as is known.
    associated: AtomicBool,
    /// Writes may begin: there is nothing that they might overtake.
    usable: AtomicBool,
}

impl Default for Standing {
    fn default() -> Self {
        Self { associated: AtomicBool::new(true), usable: AtomicBool::new(true) }
    }
}

impl Standing {
    /// No other write begins.
    pub fn hold(&self) {
        self.usable.store(false, Ordering::Release);
    }

    /// The association is gone: no other write begins, and those under way do not rely on it.
    pub fn lose(&self) {
        self.hold();
        self.associated.store(false, Ordering::Release);
    }

    /// Whether writes may begin.
    #[must_use]
    #[inline]
    pub fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_associated(&self) -> bool {
        self.associated.load(Ordering::Acquire)
    }
}

/// A direct write window: one thread at a time writes by it.
///
/// A write makes no system call, takes no lock and allocates nothing, but for the bell of a ring that fills, and at the
/// window's end, which is waited for.
#[derive(Debug)]
pub struct DirectWindow {
    grant: Grant,
    rings: Box<[Ring]>,
    standing: Arc<Standing>,
    ended: bool,
}

impl DirectWindow {
    pub(super) const fn new(grant: Grant, rings: Box<[Ring]>, standing: Arc<Standing>) -> Self {
        Self { grant, rings, standing, ended: false }
    }

    /// Its number, by which it is given back.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.grant.number
    }

    /// The volume's logical block, in bytes.
    #[must_use]
    pub const fn block_bytes(&self) -> usize {
        usize32(self.grant.block_bytes)
    }

    /// What its namespace says of it.
    #[must_use]
    pub const fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// Whether nothing will be written by it any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended || !self.standing.is_usable()
    }

    /// Writes `data` to the volume from byte `offset` on. Only when the window ends under the write it is waited for:
    /// until the target has taken what is there, or is known to be gone.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Written {
        if self.has_ended() {
            return Written::NotDone(NotDone::Ended);
        }
        if data.len() > DATA_BYTES_MAX {
            return Written::NotDone(NotDone::TooLong);
        }
        let ring = self.grant.ring_of(offset, data.len());
        let Some(ring) = ring.and_then(|index| self.rings.get_mut(index)) else {
            return Written::NotDone(NotDone::NotOneRing);
        };
        let written = ring.write(offset, data, &self.standing);
        self.ended = ring.has_ended();
        written
    }
}
