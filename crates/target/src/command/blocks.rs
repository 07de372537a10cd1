//! Logical blocks to bytes, and the checks on the way.

use nvme::nvm::LbaRange;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::turns::Party;
use stdx::num::usize64;

use super::Attached;
use super::gather::check_length;
use crate::limits::{HOLE_BYTES, PIECE_BYTES, TRANSFER_BYTES_MAX};

/// Logical blocks known to be within the namespace, and where their bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    pub range: LbaRange,
    /// Byte offset in the backend.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// A piece of work is this much shorter while other hosts are active: they wait for one each time. What is left of a
/// piece is still a multiple of every block size.
const PARTS_SHARED: u64 = 8;
const _: () = assert!((PIECE_BYTES / PARTS_SHARED).is_multiple_of(4096));
const _: () = assert!((HOLE_BYTES / PARTS_SHARED).is_multiple_of(4096));

fn bytes_now(bytes: u64) -> u64 {
    if Party::is_bounded() { bytes / PARTS_SHARED } else { bytes }
}

impl Attached {
    /// Where `range` is.
    ///
    /// # Errors
    /// LBA Out of Range.
    #[inline]
    pub(super) fn blocks(&self, range: LbaRange) -> Result<Blocks, Status> {
        let namespace = self.namespace();
        range.check(namespace.blocks()).map_err(|refusal| refusal.status())?;
        Ok(Blocks {
            range,
            offset: range.start().get() * u64::from(namespace.block_size),
            length: range.bytes(namespace.block_size),
        })
    }

    /// The blocks of a command that moves data: within MDTS (Invalid Field), its data as long as
    /// its blocks (Data SGL Length Invalid).
    ///
    /// # Errors
    /// The status that refuses the command.
    #[inline]
    pub(super) fn transfer(&self, range: LbaRange, sqe: &Sqe) -> Result<Blocks, Status> {
        let blocks = self.blocks(range)?;
        if blocks.length > u64::from(TRANSFER_BYTES_MAX) {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        check_length(sqe, blocks.length)?;
        Ok(blocks)
    }
}

impl Blocks {
    /// Bytes, for slices.
    #[inline]
    pub fn bytes(self) -> usize {
        usize64(self.length)
    }

    /// The bytes cut where their offset is a multiple of `bytes`, or of the [part](PARTS_SHARED) of it that one piece has
    /// now, in order: offset and length.
    pub fn cuts(self, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let (mut at, end) = (self.offset, self.offset + self.length);
        std::iter::from_fn(move || {
            let start = at;
            at = end.min((start / bytes_now(bytes) + 1) * bytes_now(bytes));
            (start < end).then(|| (start, at - start))
        })
    }

    /// The bytes in pieces of at most `bytes`, whoever else is active: what a drive takes as one command.
    pub fn of_size(self, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = self.offset + self.length;
        let starts = (self.offset..end).step_by(usize64(bytes.max(1)));
        starts.map(move |at| (at, bytes.min(end - at)))
    }

    /// The bytes in pieces of at most `bytes`, or the [part](PARTS_SHARED) of it that one has now, in order: offset
    /// and length.
    pub fn pieces(self, bytes: u64) -> impl Iterator<Item = (u64, usize)> {
        let (mut at, end) = (self.offset, self.offset + self.length);
        std::iter::from_fn(move || {
            let start = at;
            at = end.min(start + bytes_now(bytes));
            (start < end).then(|| (start, usize64(at - start)))
        })
    }
}
