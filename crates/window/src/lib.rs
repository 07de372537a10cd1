//! Direct write windows (`docs/anof.md`): a ring in persistent memory to which one host appends writes of one volume by
//! itself, without asking the target. Bytes and decisions of both ends, no I/O.
//!
//! The host stores a [`Record`] with its data, fences, and looks whether the window [stands](Phase::Stands): then the write is
//! durable, and complete. The target takes what is there before it does anything else with the volume.

pub mod dial;
pub mod grant;
pub mod page;
pub mod reader;
pub mod record;
pub mod writer;

pub use dial::COPIES_MAX;
pub use grant::{Grant, Token};
pub use page::{Identity, Phase};
pub use reader::{Bad, Look, Reader};
pub use record::{Kind, Record};
pub use writer::{Place, Writer};

/// What records are aligned to, in bytes: a line of the processor's cache.
pub const ALIGN: u64 = 64;

/// The shortest ring, in bytes, and the longest; a multiple of [`RING_STEP`].
pub const RING_BYTES_MIN: u64 = 256 << 10;
/// See [`RING_BYTES_MIN`].
pub const RING_BYTES_MAX: u64 = 64 << 20;
/// See [`RING_BYTES_MIN`].
pub const RING_STEP: u64 = 4096;

/// The most data of one record, in bytes.
pub const DATA_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(RING_BYTES_MIN >= 2 * (record::HEADER as u64 + DATA_BYTES_MAX as u64));
