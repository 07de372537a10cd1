//! Memory of somebody else, for the time of an operation.
#![allow(unsafe_code, reason = "the memory is known by its address")]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes that a thread outside of the reactor lends to an operation, which has them to itself until it drops
/// this. What it wrote is there for whoever learns of the end through a channel that orders memory.
#[derive(Debug)]
pub struct ForeignBuffer {
    bytes: NonNull<[u8]>,
}

impl ForeignBuffer {
    /// Borrows `bytes`.
    ///
    /// # Safety
    /// Until this is dropped the bytes must stay valid for reads and, unless this is only ever read from, for
    /// writes, and nobody else may touch them (or write to them, if this is only read from).
    #[must_use]
    pub const unsafe fn new(bytes: NonNull<[u8]>) -> Self {
        Self { bytes }
    }
}

impl Deref for ForeignBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: valid for reads, by the promise of `new`.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for ForeignBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: valid for writes and ours alone, by the promise of `new`.
        unsafe { self.bytes.as_mut() }
    }
}
