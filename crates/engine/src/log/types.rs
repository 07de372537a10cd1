//! What goes into a log and comes out of it.

use std::path::PathBuf;

use stdx::num::u64_of;

use crate::address::{BLOCK, Key, Stored, Version};

/// What to append.
#[derive(Clone, Copy, Debug)]
pub enum Append<'a> {
    /// Contents of 1 to 256 whole blocks from `key` on, in pieces of any length.
    Write { key: Key, data: &'a [&'a [u8]] },
    /// `count` blocks from `key` on become holes.
    Hole { key: Key, count: u64 },
    /// 1 to 256 blocks from `key` on have the contents that lie at `entries`, which are those of the
    /// blocks from `source` on: each at a place where no other key has it, or a reference. They are
    /// [held](Log::hold) meanwhile.
    Refer { key: Key, source: Key, entries: &'a [Stored] },
}

/// One block's contents, elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Whose contents they were when they were copied.
    pub source: Key,
    pub stored: Stored,
}

/// Where one block's contents are in the log: good until the next await of whoever looked it up, or
/// until the record is trimmed by whoever it was handed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// In bytes since the log's beginning; larger is newer.
    pub position: u64,
    /// CRC-32C of the block.
    pub crc: u32,
}

/// What the log knows of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Data(Data),
    Hole,
    /// A reference: number `index` of the record at `position`. Good as [`Data`] is.
    Refers {
        position: u64,
        index: usize,
    },
    /// It was lost with a record that is damaged.
    Lost,
    /// Nothing: the map knows.
    Nothing,
}

/// What destage is given: a block that was current when it was, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Of its record. Items come in this order.
    pub sequence: u64,
    pub key: Key,
    /// In which version of its volume the block is such.
    pub version: Version,
    pub what: What,
}

impl Item {
    /// Where its contents are, if it has any.
    #[must_use]
    pub const fn data(&self) -> Option<Data> {
        if let What::Data(data) = self.what { Some(data) } else { None }
    }

    /// Whether the contents of `self` lie right behind those of `before`, in the log and in their volume.
    #[must_use]
    pub fn goes_on_after(&self, before: &Self) -> bool {
        let (Some(data), Some(last)) = (self.data(), before.data()) else { return false };
        self.sequence == before.sequence
            && data.position == last.position + u64_of(BLOCK)
            && self.key.view == before.key.view
            && self.key.block == before.key.block + 1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Data(Data),
    Hole {
        count: u64,
    },
    Refers(Reference),
    /// The block's contents are lost: there is nothing to take along but that.
    Lost,
}

/// What opening a log found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Stripes up to this sequence were durable when the log was last trimmed; later ones are to be
    /// ignored, because the log still has what is in them.
    pub durable_stripe: u64,
    /// Records up to this sequence were trimmed.
    pub trimmed: u64,
    /// Records found after it, padding included.
    pub records: u64,
    /// Bytes of the ring they take.
    pub bytes: u64,
    /// Records that one device had lost and its mirror gave back.
    pub repaired: u64,
    /// Blocks whose contents were acknowledged and are lost with what damaged records had.
    pub lost_blocks: u64,
    /// No damage was found in records after this one.
    pub lost_through: u64,
}

/// How the log is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What an operator must know of how safe its contents are.
    pub protection: &'static str,
    /// Bytes of the ring.
    pub bytes: u64,
    /// Bytes of it that are in use.
    pub used: u64,
    /// The last record destage was given.
    pub handed: u64,
    /// Records destage was not given yet.
    pub pending: u64,
    /// Appends held back.
    pub waiting: usize,
    /// Blocks, and stretches of holes and references, that can be looked up.
    pub indexed: usize,
    /// Devices that mirror each other, and how many of them failed.
    pub devices: usize,
    pub failed_devices: usize,
    /// Files of memory among those that failed.
    pub failed_files: Vec<PathBuf>,
}
