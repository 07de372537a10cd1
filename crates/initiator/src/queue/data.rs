//! The memory of commands, and what of it moves.

use std::rc::Rc;

use reactor::ForeignBuffer;
use reactor::buffer::Buffer;
use stdx::num::{u32_of, usize32};

/// Memory that a command's data lies in. The queue owns it from submission to completion, so that whatever
/// comes over the wire can reach no memory that somebody else has.
#[derive(Debug)]
pub enum Memory {
    /// A buffer of a reactor's pool.
    Buffer(Buffer),
    /// Memory of its own.
    Owned(Box<[u8]>),
    /// Memory of a caller outside of the reactor.
    ForeignBuffer(ForeignBuffer),
    /// What several commands send. Nothing is received into it.
    Shared(Rc<[u8]>),
}

impl Memory {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Owned(bytes) => bytes,
            Self::ForeignBuffer(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    /// The bytes, for data received or to be sent; those of shared memory cannot be changed, and are none here.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Owned(bytes) => bytes,
            Self::ForeignBuffer(bytes) => bytes,
            Self::Shared(_) => &mut [],
        }
    }
}

/// The data of a command; it begins where its memory does.
#[derive(Debug, Default)]
pub enum Data {
    /// The command moves none.
    #[default]
    None,
    /// To the controller.
    Send {
        /// Where it is.
        memory: Memory,
        /// Bytes.
        length: u32,
    },
    /// From the controller.
    Receive {
        /// Where it goes.
        memory: Memory,
        /// Bytes.
        length: u32,
    },
    /// From the controller, and of no interest: it is received and counted, not kept.
    Discard {
        /// Bytes.
        length: u32,
    },
}

impl Data {
    /// Sends a copy of `bytes`: for the small structures of some commands.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self::Send { memory: Memory::Owned(bytes.into()), length: u32_of(bytes.len()) }
    }

    /// Receives `length` bytes into fresh memory: for pages of admin commands.
    #[must_use]
    pub fn page(length: u32) -> Self {
        Self::Receive { memory: Memory::Owned(vec![0; usize32(length)].into()), length }
    }

    /// The memory, given back.
    #[must_use]
    pub fn into_memory(self) -> Option<Memory> {
        match self {
            Self::Send { memory, .. } | Self::Receive { memory, .. } => Some(memory),
            Self::None | Self::Discard { .. } => None,
        }
    }

    /// What has been received, or is to be sent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Send { memory, length } | Self::Receive { memory, length } => {
                &memory.bytes()[..usize32(*length)]
            }
            Self::None | Self::Discard { .. } => &[],
        }
    }

    /// Bytes that go to the controller.
    pub(crate) fn to_send(&self) -> u32 {
        match self {
            Self::Send { length, .. } => *length,
            Self::None | Self::Receive { .. } | Self::Discard { .. } => 0,
        }
    }

    pub(super) fn length(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Send { length, .. } | Self::Receive { length, .. } | Self::Discard { length } => {
                *length
            }
        }
    }

    /// Whether its memory is as long as it says, and may be received into if it is to be.
    pub(super) fn is_sound(&self) -> bool {
        match self {
            Self::Send { memory, length } => memory.bytes().len() >= usize32(*length),
            Self::Receive { memory, length } => {
                !matches!(memory, Memory::Shared(_)) && memory.bytes().len() >= usize32(*length)
            }
            Self::None | Self::Discard { .. } => true,
        }
    }
}
