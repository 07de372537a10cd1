//! A range of the ring on its way to be a record: reserved, filled, committed.

use super::lane::Range;
use super::record::Kind;
use super::{Shared, Turn};
use crate::error::{Kind as ErrorKind, Result};

/// A range of the ring for one record. Whoever has it fills it, in order, with whatever waits between, and commits it;
/// dropped before that it was never there. Nobody else appends meanwhile.
#[must_use]
pub struct Reserved<'a> {
    shared: &'a Shared,
    range: Range,
    _turn: Turn<'a>,
}

/// A record that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub sequence: u64,
    /// It is durable and can be looked up. What is not yet is [waited for](super::Log::make_durable), by whoever
    /// acknowledges it.
    pub is_durable: bool,
}

impl<'a> Reserved<'a> {
    /// Whoever calls holds the gate, and has seen that there is room.
    #[inline]
    pub(super) fn new(shared: &'a Shared, kind: Kind, turn: Turn<'a>) -> Self {
        let range = shared.lane.borrow_mut().reserve(kind, &shared.store);
        Self { shared, range, _turn: turn }
    }

    /// Bytes of contents that are still to be filled.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.range.left()
    }

    /// Stores the next bytes of the contents.
    ///
    /// # Errors
    /// `Failed` when no device takes them: the log has ended.
    ///
    /// # Panics
    /// When they are more than are [left](Self::left).
    #[inline]
    pub fn fill(&mut self, piece: &[u8]) -> Result<()> {
        let filled =
            self.shared.lane.borrow_mut().fill_range(&mut self.range, piece, &self.shared.store);
        filled.inspect_err(|_| self.shared.end(ErrorKind::Failed))
    }

    /// Makes a record of it. On memory it is durable then, unless a device failed.
    ///
    /// # Errors
    /// `Failed` when no device takes it, `Gone` when the log was closed meanwhile, `Full` when there is no space
    /// behind it any more. Nothing was appended.
    ///
    /// # Panics
    /// When bytes are left to be filled.
    #[inline]
    pub fn commit(self) -> Result<Stored> {
        self.commit_with(&[])
    }

    /// As [`commit`](Self::commit), of a record whose header is followed by `body`.
    #[inline]
    pub(super) fn commit_with(self, body: &[u8]) -> Result<Stored> {
        let shared = self.shared;
        shared.check_takes(self.range.kind())?;
        let committed = shared.lane.borrow_mut().commit(&self.range, body, &shared.store);
        let mark = committed.inspect_err(|_| shared.end(ErrorKind::Failed))?;
        let is_memory = shared.store.is_memory();
        if is_memory {
            shared.work.notify();
        }
        Ok(Stored { sequence: mark.sequence, is_durable: is_memory && !shared.store.is_troubled() })
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.shared.lane.borrow_mut().release();
        // Commits to drives stop where a range is reserved.
        self.shared.commits.look();
    }
}
