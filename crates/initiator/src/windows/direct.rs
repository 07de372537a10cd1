//! Writing by a window: a record is stored, fenced, and then it is seen whether the window stands.

use std::sync::Arc;

use stdx::num::usize32;
use window::{DATA_BYTES_MAX, Grant};

use super::ring::Ring;
use super::standing::Standing;
use super::written::{NotDone, Written};

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
