//! Data on its way to a host, and who keeps it until it is sent.

use media::memory::{PinnedRead, SharedRegion};
use reactor::buffer::{self, Buffer};

/// Bytes to send, in the order given.
pub enum Payload {
    /// From where it lies in a memory namespace; nothing is copied before the socket.
    Region { region: SharedRegion, offset: u64, length: usize },
    /// From where it lies in a drive in memory, which keeps it meanwhile: for the turn at most.
    PinnedRead(PinnedRead),
    /// A buffer of this reactor's pool, from its start; it returns to the pool when sent.
    Buffer { buffer: Buffer, length: usize },
    /// A document made for one command: identify data, log pages.
    Bytes(Vec<u8>),
}

impl Payload {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Region { length, .. } | Self::Buffer { length, .. } => *length,
            Self::PinnedRead(pinned) => pinned.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes. Each call borrows what is there now: a region's may have been written since the
    /// last.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Region { region, offset, length } => {
                region.bytes(*offset, *length).unwrap_or_default()
            }
            Self::PinnedRead(pinned) => pinned.bytes(),
            Self::Buffer { buffer, length } => &buffer[..*length],
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Bytes of memory that are held until it is sent.
    #[must_use]
    pub fn held(&self) -> usize {
        match self {
            // What is lent is copied where it cannot be sent at once.
            Self::Buffer { .. } | Self::PinnedRead(_) | Self::Bytes(_) => self.len(),
            Self::Region { .. } => 0,
        }
    }

    /// Gives back what is lent, and keeps a copy.
    pub fn give_back(&mut self) {
        let Self::PinnedRead(pinned) = self else { return };
        *self = match buffer::pool().try_alloc_to_send(pinned.len()) {
            Some(mut buffer) => {
                let length = pinned.len();
                buffer[..length].copy_from_slice(pinned.bytes());
                Self::Buffer { buffer, length }
            }
            None => Self::Bytes(pinned.bytes().to_vec()),
        };
    }
}
