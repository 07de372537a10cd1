//! The commands, and how they cross to the serving thread.
#![allow(unsafe_code, reason = "memory crosses by its address")]

use std::ptr::NonNull;

use initiator::{Deallocate, Fua, Namespace};
use reactor::ForeignBuffer;

use crate::Error;
use crate::buffer::Buffer;

/// A command of a namespace. LBAs and counts are in logical blocks; data is at the start of `buffer`. Limits are
/// those of [`initiator::Geometry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<M = Buffer> {
    /// Reads `blocks` from `lba` on into `buffer`.
    Read {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// Where they go.
        buffer: M,
    },
    /// Writes `blocks` from `lba` on.
    Write {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// Where they are.
        buffer: M,
        /// Whether they are durable when the command completes.
        fua: Fua,
    },
    /// Compares `blocks` from `lba` on with `buffer`: a difference is an error of status Compare Failure.
    Compare {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// What they should be.
        buffer: M,
    },
    /// Makes every write that has completed durable.
    Flush,
    /// Writes zeroes over `blocks` from `lba` on, at most 65,536.
    WriteZeroes {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// Whether their space may be given back.
        deallocate: Deallocate,
        /// Whether they are durable when the command completes.
        fua: Fua,
    },
    /// Has the controller read `blocks` from `lba` on, at most 65,536, and tell whether they can be read.
    Verify {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
    },
    /// Tells that the blocks of these ranges (first block and count, 256 ranges at most) are not needed.
    Deallocate(Box<[(u64, u32)]>),
    /// Copies the blocks of `sources` (first block and count), one behind the other, to `destination` on.
    Copy {
        /// From where.
        sources: Box<[(u64, u32)]>,
        /// First block of where to.
        destination: u64,
    },
}

/// Memory of the thread that submitted a command.
#[derive(Debug)]
pub struct Raw(pub NonNull<[u8]>);

// SAFETY: it is an address; who dereferences it says why that may be done.
unsafe impl Send for Raw {}

impl<M> Command<M> {
    /// The same with another kind of memory, and the memory as it was, if there is any.
    pub(crate) fn lend<N>(self, to: impl FnOnce(&mut M) -> N) -> (Command<N>, Option<M>) {
        match self {
            Self::Read { lba, blocks, mut buffer } => {
                let command = Command::Read { lba, blocks, buffer: to(&mut buffer) };
                (command, Some(buffer))
            }
            Self::Write { lba, blocks, mut buffer, fua } => {
                let command = Command::Write { lba, blocks, buffer: to(&mut buffer), fua };
                (command, Some(buffer))
            }
            Self::Compare { lba, blocks, mut buffer } => {
                let command = Command::Compare { lba, blocks, buffer: to(&mut buffer) };
                (command, Some(buffer))
            }
            Self::Flush => (Command::Flush, None),
            Self::WriteZeroes { lba, blocks, deallocate, fua } => {
                (Command::WriteZeroes { lba, blocks, deallocate, fua }, None)
            }
            Self::Verify { lba, blocks } => (Command::Verify { lba, blocks }, None),
            Self::Deallocate(ranges) => (Command::Deallocate(ranges), None),
            Self::Copy { sources, destination } => (Command::Copy { sources, destination }, None),
        }
    }
}

impl Command<Raw> {
    /// Runs it on the serving thread.
    ///
    /// # Safety
    /// Until this has returned, or the reactor has ended, the memory is valid and nobody else's, for reads only
    /// unless the command is a Read.
    pub(crate) async unsafe fn run(self, on: &Namespace) -> Result<(), Error> {
        // SAFETY: the caller's promise; who drops this future ends the reactor, or waits for its end.
        let lent = |raw: Raw| initiator::Buffer::from(unsafe { ForeignBuffer::new(raw.0) });
        let result = match self {
            Self::Read { lba, blocks, buffer } => on.read(lba, blocks, &mut lent(buffer)).await,
            Self::Write { lba, blocks, buffer, fua } => {
                on.write(lba, blocks, &mut lent(buffer), fua).await
            }
            Self::Compare { lba, blocks, buffer } => {
                on.compare(lba, blocks, &mut lent(buffer)).await
            }
            Self::Flush => on.flush().await,
            Self::WriteZeroes { lba, blocks, deallocate, fua } => {
                on.write_zeroes(lba, blocks, deallocate, fua).await
            }
            Self::Verify { lba, blocks } => on.verify(lba, blocks).await,
            Self::Deallocate(ranges) => on.deallocate(&ranges).await,
            Self::Copy { sources, destination } => on.copy(&sources, destination).await,
        };
        Ok(result?)
    }
}
