//! Memory that data is received into and sent from.

use std::ops::{Deref, DerefMut};

use reactor::buffer;

use crate::queue::{Data, Memory};

/// Bytes for data: received into and sent from where they are, without a further copy. Aligned to 4 KiB, from
/// the reactor's pool, to which they return when dropped.
///
/// A command takes the bytes while it is in flight and gives them back when it ends. When its future is dropped
/// before that, they stay with the queue until the controller is done with them: the buffer is empty then, and
/// of no more use.
#[derive(Debug)]
pub struct Buffer(Option<buffer::Buffer>);

impl Buffer {
    /// A buffer of `bytes`, of which there are [`reactor::BUFFER_MAX`] at most. What is in it is left over from
    /// earlier uses. Waits, first come first served, while the reactor's pool is exhausted.
    ///
    /// # Panics
    /// Outside a reactor, and when `bytes` exceeds the largest buffer.
    pub async fn new(bytes: usize) -> Self {
        Self(Some(buffer::alloc(bytes).await))
    }

    /// Sends the first `length` bytes.
    pub(crate) fn send(&mut self, length: u32) -> Data {
        self.0.take().map_or(Data::None, |b| Data::Send { memory: Memory::Buffer(b), length })
    }

    /// Receives `length` bytes.
    pub(crate) fn receive(&mut self, length: u32) -> Data {
        self.0.take().map_or(Data::None, |b| Data::Receive { memory: Memory::Buffer(b), length })
    }

    /// Takes the bytes back.
    pub(crate) fn give(&mut self, data: Data) {
        if let Some(Memory::Buffer(buffer)) = data.into_memory() {
            self.0 = Some(buffer);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}
