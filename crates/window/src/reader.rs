//! The target's end of a ring: what is there next. Nothing that is there is trusted.

use stdx::num::{u64_of, usize32};

use crate::ALIGN;
use crate::record::{HEADER, Header, Kind, bytes_of};

/// Why a window is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// A whole header that says what none can.
    #[error("a record of a direct write window makes no sense")]
    Malformed,
    /// A whole header that is at another place than it says.
    #[error("a record of a direct write window lies where none can be")]
    Misplaced,
    /// It goes beyond the ring's end.
    #[error("a record of a direct write window goes beyond its ring")]
    BeyondRing,
    /// It was stored beyond what the host was given credit for.
    #[error("a record of a direct write window was stored without credit")]
    BeyondCredit,
    /// It goes beyond the volume's end, or is not of whole logical blocks.
    #[error("a record of a direct write window is not of whole blocks of its volume")]
    BeyondVolume,
    /// It is of blocks that another shard has.
    #[error("a record of a direct write window is of blocks that are not its shard's")]
    Elsewhere,
    /// What is next cannot be read: its host cut the file short, or the memory failed.
    #[error("a direct write window cannot be read: its memory failed, or its host cut it short")]
    Unreadable,
    /// Its data has another checksum.
    #[error("the data of a record of a direct write window has another checksum")]
    Checksum,
}

/// What is at a ring's next position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing yet.
    Nothing,
    /// Padding: what comes next is at the ring's beginning.
    Pad,
    /// A record, whose data is `length` bytes at `at` in the ring, to be written from byte `offset` of the volume on.
    Write { at: u64, offset: u64, length: usize, data_crc: u32 },
    /// What no host that obeys stores.
    Bad(Bad),
}

/// What a target knows of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    epoch: u64,
    ring_bytes: u64,
    position: u64,
}

impl Reader {
    /// Of a ring of which all up to this position was taken.
    #[must_use]
    pub const fn new(epoch: u64, ring_bytes: u64, taken: u64) -> Self {
        Self { epoch, ring_bytes, position: taken }
    }

    /// All up to here was taken.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Where the next header is, in bytes from the ring's beginning.
    #[must_use]
    #[inline]
    pub const fn at(&self) -> u64 {
        self.position % self.ring_bytes
    }

    /// What is at the next position, by the bytes of its header, of what may have been stored up to `credit`.
    #[must_use]
    #[inline]
    pub fn look(&self, header: &[u8; HEADER], credit: u64) -> Look {
        let Some(found) = Header::decode(header) else { return Look::Nothing };
        if found.epoch != self.epoch || self.is_of_last_lap(found.position) {
            return Look::Nothing;
        }
        if found.position != self.position {
            return Look::Bad(Bad::Misplaced);
        }
        let Some(kind) = found.kind else { return Look::Bad(Bad::Malformed) };
        let left = self.ring_bytes - self.at();
        match kind {
            Kind::Pad if self.position + left > credit => Look::Bad(Bad::BeyondCredit),
            Kind::Pad => Look::Pad,
            Kind::Write { offset, length, data_crc } => {
                let length = usize32(length);
                if bytes_of(length) > left {
                    return Look::Bad(Bad::BeyondRing);
                }
                if self.position + bytes_of(length) > credit {
                    return Look::Bad(Bad::BeyondCredit);
                }
                Look::Write { at: self.at() + u64_of(HEADER), offset, length, data_crc }
            }
        }
    }

    /// Whether a record at this position is one that was taken, laps ago.
    const fn is_of_last_lap(&self, position: u64) -> bool {
        position < self.position
    }

    /// What was looked at last was taken.
    ///
    /// # Panics
    /// When it was none.
    pub const fn advance(&mut self, look: &Look) {
        self.position += match look {
            Look::Pad => self.ring_bytes - self.at(),
            Look::Write { length, .. } => bytes_of(*length),
            Look::Nothing | Look::Bad(_) => panic!("only records are taken"),
        };
    }

    /// Whether a header somewhere in the ring is one of a record behind the next position: then that was stored, too, and
    /// is damaged, for a host stores one after the other.
    #[must_use]
    pub fn shows_damage(&self, header: &[u8; HEADER], at: u64) -> bool {
        debug_assert!(at.is_multiple_of(ALIGN));
        Header::decode(header).is_some_and(|found| {
            found.epoch == self.epoch
                && found.position > self.position
                && found.position - self.position < self.ring_bytes
                && found.position % self.ring_bytes == at
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, Writer};
    use proptest::prelude::*;
    use stdx::num::{low32, usize64};

    const RING: u64 = crate::RING_BYTES_MIN;

    proptest! {
        /// Whatever lengths: what is stored is found, in order, and nothing else.
        #[test]
        fn what_was_stored_is_taken(lengths in prop::collection::vec(1..=65_536_usize, 1..200)) {
            let mut ring = vec![0_u8; usize64(RING)];
            let (mut writer, mut reader) = (Writer::new(5, RING), Reader::new(5, RING, 0));
            let header = |ring: &[u8], at: u64| -> [u8; HEADER] {
                ring[usize64(at)..][..HEADER].try_into().unwrap()
            };
            for (n, length) in (0..).zip(lengths) {
                let credit = reader.position() + RING;
                prop_assert_eq!(reader.look(&header(&ring, reader.at()), credit), Look::Nothing);
                let place = writer.place(length, credit).unwrap();
                if let Some(pad) = place.pad {
                    ring[usize64(pad)..][..HEADER].copy_from_slice(&writer.pad().encode());
                }
                let record = writer.record(&place, n * 512, low32(u64_of(length)), 9);
                ring[usize64(place.at)..][..HEADER].copy_from_slice(&record.encode());
                writer.advance(&place);
                let mut look = reader.look(&header(&ring, reader.at()), credit);
                if place.pad.is_some() {
                    prop_assert_eq!(look, Look::Pad);
                    reader.advance(&look);
                    look = reader.look(&header(&ring, reader.at()), credit);
                }
                let at = place.at + u64_of(HEADER);
                prop_assert_eq!(look, Look::Write { at, offset: n * 512, length, data_crc: 9 });
                reader.advance(&look);
                prop_assert_eq!(reader.position(), place.end);
            }
        }

        /// No bytes of any host bring a target beyond its ring.
        #[test]
        fn any_header_is_looked_at(
            epoch in 4..6_u64, position in 0..3 * RING, taken in 0..2 * RING / 64, length in 0..70_000_u32, pad: bool,
            credit in 0..3 * RING,
        ) {
            let kind = if pad { Kind::Pad } else { Kind::Write { offset: 0, length, data_crc: 0 } };
            let mut reader = Reader::new(5, RING, taken * 64);
            let look = reader.look(&Record { epoch, position, kind }.encode(), credit);
            if let Look::Write { at, length, .. } = look {
                prop_assert!(at + u64_of(length) <= RING);
            }
            if matches!(look, Look::Write { .. } | Look::Pad) {
                reader.advance(&look);
                prop_assert!(reader.position() <= credit && reader.position().is_multiple_of(ALIGN));
            }
        }
    }

    #[test]
    fn a_record_behind_a_hole_shows_damage() {
        let kind = Kind::Write { offset: 0, length: 512, data_crc: 0 };
        let reader = Reader::new(5, RING, 640);
        let at = |position| Record { epoch: 5, position, kind }.encode();
        assert!(reader.shows_damage(&at(1216), 1216));
        assert!(!reader.shows_damage(&at(64), 64), "taken before");
        assert!(!reader.shows_damage(&at(1216), 1280), "elsewhere");
        assert!(reader.shows_damage(&at(RING), 0));
    }
}
