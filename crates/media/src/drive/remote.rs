//! A drive of another machine, as this crate knows it.

use crate::error::{Error, Kind, Refused};
use reactor::buffer::Buffer;
use std::fmt::Debug;
use std::pin::Pin;

/// What an operation of a [`Remote`] comes to, on the reactor that asked.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A drive that is reached over a network. What reaches it, the initiator, is on a floor above this one, so that it
/// comes in by a trait; all other drives are variants of [`Drive`](super::Drive). It is used from any reactor, and an
/// answer is awaited where it was asked for.
///
/// It is used before it is known whether anybody answers there, and comes back after it was away: an error is about
/// one operation, and none latches. Offsets and lengths are multiples of its logical block, or are refused as
/// [`Kind::Unsupported`]: nothing is read here to be written in part. It is asked for ranges within its capacity only,
/// but while that is not known.
///
/// A read, a write or zeroes may name the [`connection`](Remote::connection) that it is to go by: by another one nothing is sent.
///
/// The kind of an error that tells of the connection is none that passes by itself ([`Kind::Passing`],
/// [`Kind::Full`]): such an operation is not tried again here. One that was given up must never change the drive
/// after another began that the drive answers: what keeps it from that is the implementation's.
pub trait Remote: Debug + Send + Sync {
    /// Capacity in bytes; 0 while nobody has answered yet.
    fn capacity(&self) -> u64;

    /// The smallest unit it reads and writes, in bytes: a power of two from 512 on.
    fn logical_block(&self) -> u32;

    /// Whether acknowledged writes can be lost with power until a flush; true while that is not known.
    fn has_volatile_cache(&self) -> bool;

    /// The first failure that makes it refuse writes for good, if there was one.
    fn failure(&self) -> Option<Kind>;

    /// Whether a change that was given up may still come.
    fn has_late_changes(&self) -> bool;

    /// The number of the connection that it is used by, of which no two are the same; `None` while there is none. What is
    /// reached by another one may have lost what it had, or be another's.
    fn connection(&self) -> Option<u64>;

    /// Why it cannot be used, in words that name it, if it cannot.
    fn away(&self) -> Option<String> {
        None
    }

    /// Reads `len` bytes at `offset` into the start of `buffer`.
    fn read(
        &self,
        by: Option<u64>,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Answer<'_, Result<Buffer, Refused>>;

    /// Writes what `data` shows at `offset`; with `fua` it is durable when this returns.
    fn write(
        &self,
        by: Option<u64>,
        offset: u64,
        data: Buffer,
        fua: bool,
    ) -> Answer<'_, Result<(), Refused>>;

    /// Makes every completed write durable.
    fn flush(&self) -> Answer<'_, Result<(), Error>>;

    /// Frees the space of a range. What it reads as then is not said.
    fn deallocate(&self, offset: u64, len: u64) -> Answer<'_, Result<(), Error>>;

    /// Makes a range read as zeroes; with `deallocate` its space may be freed too.
    fn write_zeroes(
        &self,
        by: Option<u64>,
        offset: u64,
        len: u64,
        deallocate: bool,
    ) -> Answer<'_, Result<(), Error>>;
}

#[cfg(test)]
mod tests;
