//! Memory that data is received into and sent from.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use reactor::{ForeignBuffer, buffer};

use crate::queue::{Data, Memory};

/// Bytes for data: received into and sent from where they are, without a further copy. From the reactor's pool
/// and aligned to 4 KiB, or lent by a caller outside of the reactor.
///
/// A command takes the bytes while it is in flight and gives them back when it ends. When its future is dropped
/// before that, they stay with the queue until the controller is done with them: the buffer is empty then, and
/// of no more use.
#[derive(Debug)]
pub struct Buffer(Option<Memory>);

impl Buffer {
    /// A buffer of `bytes`, of which there are [`reactor::BUFFER_MAX`] at most. What is in it is left over from
    /// earlier uses. Waits, first come first served, while the reactor's pool is exhausted.
    ///
    /// # Panics
    /// Outside a reactor, and when `bytes` exceeds the largest buffer.
    pub async fn new(bytes: usize) -> Self {
        Self(Some(Memory::Buffer(buffer::alloc(bytes).await)))
    }

    /// As [`Buffer::new`], from a pool of the caller's own: for one that holds a buffer of the reactor's pool while
    /// it waits for others, which might wait for ever there.
    ///
    /// # Panics
    /// When `bytes` exceeds the largest buffer.
    pub async fn from_pool(pool: &buffer::Pool, bytes: usize) -> Self {
        Self(Some(Memory::Buffer(pool.alloc(bytes).await)))
    }

    /// What it was made of, if that was a buffer of a reactor's pool, and a command has not taken it for good.
    #[must_use]
    pub fn into_pooled(self) -> Option<buffer::Buffer> {
        match self.0 {
            Some(Memory::Buffer(pooled)) => Some(pooled),
            _ => None,
        }
    }

    /// Sends the first `length` bytes.
    pub(crate) fn send(&mut self, length: u32) -> Data {
        self.0.take().map_or(Data::None, |memory| Data::Send { memory, length })
    }

    /// Receives `length` bytes.
    pub(crate) fn receive(&mut self, length: u32) -> Data {
        self.0.take().map_or(Data::None, |memory| Data::Receive { memory, length })
    }

    /// Takes the bytes back.
    pub(crate) fn give(&mut self, data: Data) {
        self.0 = data.into_memory().or(self.0.take());
    }
}

/// One that holds a buffer of the reactor's pool need not wait for a second one.
impl From<buffer::Buffer> for Buffer {
    fn from(pooled: buffer::Buffer) -> Self {
        Self(Some(Memory::Buffer(pooled)))
    }
}

impl From<ForeignBuffer> for Buffer {
    fn from(bytes: ForeignBuffer) -> Self {
        Self(Some(Memory::ForeignBuffer(bytes)))
    }
}

impl From<Box<[u8]>> for Buffer {
    fn from(bytes: Box<[u8]>) -> Self {
        Self(Some(Memory::Owned(bytes)))
    }
}

/// What several commands send. It cannot be received into, nor changed.
impl From<Rc<[u8]>> for Buffer {
    fn from(bytes: Rc<[u8]>) -> Self {
        Self(Some(Memory::Shared(bytes)))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], Memory::bytes)
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map_or(&mut [], Memory::bytes_mut)
    }
}
