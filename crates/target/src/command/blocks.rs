//! Logical blocks to bytes, and the checks on the way.

use nvme::nvm::LbaRange;
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::usize64;

use super::Attached;
use super::gather::check_length;
use crate::limits::TRANSFER_BYTES_MAX;

/// Logical blocks known to be within the namespace, and where their bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    pub range: LbaRange,
    /// Byte offset in the backend.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
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

    /// The bytes cut where their offset is a multiple of `bytes` (itself one of every block size), in order: offset
    /// and length.
    pub fn cuts(self, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = self.offset + self.length;
        let first = self.offset / bytes * bytes;
        (first..end).step_by(usize64(bytes)).map(move |start| {
            let start_within = start.max(self.offset);
            (start_within, end.min(start + bytes) - start_within)
        })
    }

    /// The bytes in pieces of at most `bytes` (a multiple of every block size), in order: offset
    /// and length.
    pub fn pieces(self, bytes: u64) -> impl Iterator<Item = (u64, usize)> {
        let end = self.offset + self.length;
        (0..self.length.div_ceil(bytes)).map(move |piece| {
            let offset = self.offset + piece * bytes;
            (offset, usize64(bytes.min(end - offset)))
        })
    }
}
