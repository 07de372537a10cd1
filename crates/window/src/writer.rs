//! The host's end of a ring: where the next record goes.

use stdx::num::u64_of;

use crate::DATA_BYTES_MAX;
use crate::record::{Kind, Record, bytes_of};

/// Where a record is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where a padding record is to be stored before it, in bytes from the ring's beginning.
    pub pad: Option<u64>,
    /// Where its header goes, in bytes from the ring's beginning; its data follows.
    pub at: u64,
    /// Its position, in bytes since the window's beginning.
    pub position: u64,
    /// The position behind it: once [taken](crate::page::TAKEN_AT) is there, it is in the target's log.
    pub end: u64,
}

/// What a host knows of its ring. One record is stored at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Writer {
    epoch: u64,
    ring_bytes: u64,
    head: u64,
}

impl Writer {
    /// Of a new ring.
    #[must_use]
    pub const fn new(epoch: u64, ring_bytes: u64) -> Self {
        Self { epoch, ring_bytes, head: 0 }
    }

    /// Bytes stored that were not taken, when all up to this position were.
    #[must_use]
    pub const fn untaken(&self, taken: u64) -> u64 {
        self.head.saturating_sub(taken)
    }

    /// Where a record of so many bytes of data goes, as long as all of it may be stored up to position `credit`. `None`
    /// when it may not, or there is none of such a length.
    #[must_use]
    #[inline]
    pub const fn place(&self, length: usize, credit: u64) -> Option<Place> {
        if length == 0 || length > DATA_BYTES_MAX {
            return None;
        }
        let bytes = bytes_of(length);
        let (at, left) =
            (self.head % self.ring_bytes, self.ring_bytes - self.head % self.ring_bytes);
        let (pad, position) =
            if bytes > left { (Some(at), self.head + left) } else { (None, self.head) };
        let end = position + bytes;
        if end > credit {
            return None;
        }
        Some(Place { pad, at: position % self.ring_bytes, position, end })
    }

    /// The header of the record that is padding at the ring's end.
    #[must_use]
    pub fn pad(&self) -> Record {
        Record { epoch: self.epoch, position: self.head, kind: Kind::Pad }
    }

    /// The header of a record at such a place.
    #[must_use]
    pub fn record(&self, place: &Place, offset: u64, length: u32, data_crc: u32) -> Record {
        let kind = Kind::Write { offset, length, data_crc };
        debug_assert_eq!(place.end - place.position, bytes_of(stdx::num::usize32(length)));
        debug_assert!(u64_of(DATA_BYTES_MAX) >= u64::from(length));
        Record { epoch: self.epoch, position: place.position, kind }
    }

    /// The record at such a place was stored, or is being.
    pub const fn advance(&mut self, place: &Place) {
        self.head = place.end;
    }
}
