//! A range of the ring on its way to be a record: reserved, filled, committed.

use super::device::Store;
use super::record::{HEADER, Kind, list_bytes};
use super::ring::{Mark, Ring};
use super::{Claim, Shared, Turn};
use crate::address::{BLOCK, Version};
use crate::canary::{self, Canary};
use crate::error::{Kind as ErrorKind, Result};
use stdx::num::u64_of;
use stdx::{crc32c, crc32c_append};

/// A range of the ring for one record. Whoever has it fills it, in order, with whatever waits between, and commits it;
/// dropped before that it was never there. Nobody else appends meanwhile.
#[must_use]
pub struct Reserved<'a> {
    shared: &'a Shared,
    range: Range,
    claim: Claim,
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
    pub(super) fn new(shared: &'a Shared, kind: Kind, claim: Claim, turn: Turn<'a>) -> Self {
        assert_eq!(shared.gate.available(), 0, "who reserves has the gate");
        let range = shared.ring.borrow_mut().reserve(kind, &shared.store);
        Self { shared, range, claim, _turn: turn }
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
            self.shared.ring.borrow_mut().fill_contents(&mut self.range, piece, &self.shared.store);
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
        shared.check_takes(self.range.kind(), self.claim)?;
        let committed = shared.ring.borrow_mut().commit(&self.range, body, &shared.store);
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
        self.shared.ring.borrow_mut().release();
        // Commits to drives stop where a range is reserved.
        self.shared.commits.look();
    }
}

/// Where the next record is to be, and what is stored of it.
struct Range {
    kind: Kind,
    version: Version,
    /// The head, which nobody moves meanwhile.
    head: Mark,
    /// Bytes that are skipped before the record, at the ring's end.
    skipped: u64,
    /// Bytes of its contents that are stored, and the checksum of those of a block that is not whole yet.
    filled: usize,
    crc: u32,
    /// As of which the devices have them.
    changes: u64,
}

impl Range {
    const fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of its contents that are not stored yet.
    pub const fn left(&self) -> usize {
        match self.kind {
            Kind::Write { blocks, .. } => blocks * BLOCK - self.filled,
            _ => 0,
        }
    }
}

impl Ring {
    /// Reserves a range for a record, for which there is room.
    fn reserve(&mut self, kind: Kind, store: &Store) -> Range {
        assert!(!self.reserved, "one range is reserved at a time");
        self.reserved = true;
        let end = self.to_end(self.head.position);
        let skipped = if kind.bytes() > end { end } else { 0 };
        self.list.clear();
        if let Kind::Write { key, blocks } = kind {
            self.blocks.prefetch(key, u64_of(blocks));
        }
        let (version, changes) = (self.versions.of(kind), store.changes());
        Range { kind, version, head: self.head, skipped, filled: 0, crc: 0, changes }
    }

    /// What was reserved is filled no more.
    fn release(&mut self) {
        assert!(self.reserved, "what is released was reserved");
        self.reserved = false;
    }

    /// Whether a range behind the head is filled.
    pub const fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// Where the contents of what was reserved begin.
    const fn contents(&self, range: &Range) -> u64 {
        let record = self.at(range.head.position + range.skipped);
        match range.kind {
            Kind::Write { blocks, .. } => record + u64_of(HEADER) + list_bytes(blocks),
            _ => record + u64_of(HEADER),
        }
    }

    /// Stores the next bytes of the contents, noting each block's checksum while the block is in the core's cache.
    fn fill_contents(&mut self, range: &mut Range, piece: &[u8], store: &Store) -> Result<()> {
        assert!(self.reserved && piece.len() <= range.left(), "what is filled was reserved");
        let mut at = self.contents(range) + u64_of(range.filled);
        let end = at + u64_of(piece.len());
        assert!(end <= self.control.ring_bytes, "contents stay in the ring");
        let mut rest = piece;
        while !rest.is_empty() {
            let begun = range.filled % BLOCK;
            let (part, more) = rest.split_at(rest.len().min(BLOCK - begun));
            // Stored first: the stores drain while the checksum is computed.
            store.put(at, part)?;
            range.crc = if begun == 0 { crc32c(part) } else { crc32c_append(range.crc, part) };
            range.filled += part.len();
            if range.filled.is_multiple_of(BLOCK) {
                self.list.push(range.crc);
            }
            at += u64_of(part.len());
            rest = more;
        }
        Ok(())
    }

    /// Makes a record of what was reserved and filled; `body` is what follows the header of references. On memory it
    /// is durable when this returns, and can be looked up unless a device failed that the labels call current.
    fn commit(&mut self, range: &Range, body: &[u8], store: &Store) -> Result<Mark> {
        let kind = range.kind;
        assert!(self.reserved && range.left() == 0, "what is committed was reserved, and filled");
        assert_eq!(range.head, self.head, "nobody moves the head while a range is reserved");
        if let Kind::Write { blocks, .. } = kind {
            assert_eq!(self.list.len(), blocks, "each block has its checksum");
        }
        if range.changes != store.changes() && range.filled > 0 {
            self.fill_again(range, store)?;
        }
        if range.skipped > 0 {
            let end = self.to_end(range.head.position);
            assert_eq!(range.skipped, end, "what is skipped ends with the ring");
            self.pad(range.skipped, store)?;
        }
        let mark = self.store_header(kind, range.version, body, store)?;
        assert_eq!(self.head, Self::after(mark, kind), "what was reserved was committed");
        self.refer(kind, body);
        if store.is_memory() {
            if !canary::has(Canary::SkipsFence) {
                store.fence();
            }
            if self.settled == range.head && !store.is_troubled() {
                self.publish(mark, kind, range.version);
                self.settled = self.head;
                return Ok(mark);
            }
        }
        if kind.is_stretch() {
            self.stretches_pending += 1;
        }
        // Nobody may see what only devices have that may be left out, while the labels call others current.
        if store.is_memory() && !store.is_troubled() {
            self.settle(self.head.position, store)?;
        }
        Ok(mark)
    }

    /// Has devices that came meanwhile have what was filled.
    fn fill_again(&self, range: &Range, store: &Store) -> Result<()> {
        let at = self.contents(range);
        let bytes = store.with(at, range.filled, <[u8]>::to_vec)?;
        store.put(at, &bytes)
    }
}
