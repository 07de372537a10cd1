//! Data on its way to a host, and who keeps it until it is sent.

use std::rc::Rc;
use std::sync::Arc;

use media::memory::Region;
use reactor::buffer::Buffer;

/// A memory region as the I/O path holds it: cloning counts on this core only.
pub type SharedRegion = Rc<Arc<Region>>;

/// Bytes to send, in the order given.
pub enum Payload {
    /// From where it lies in a memory namespace; nothing is copied before the socket.
    Region { region: SharedRegion, offset: u64, length: usize },
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
            Self::Buffer { buffer, length } => &buffer[..*length],
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Bytes held of a pool that other commands wait for.
    #[must_use]
    pub fn held(&self) -> usize {
        match self {
            Self::Buffer { length, .. } => *length,
            Self::Region { .. } | Self::Bytes(_) => 0,
        }
    }
}
