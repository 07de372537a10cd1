//! Records of a ring: a header of one cache line, then the data. Little endian.

use stdx::crc32c;
use stdx::num::{u64_of, usize64};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ALIGN, DATA_BYTES_MAX};

const MAGIC: u32 = u32::from_le_bytes(*b"FLDW");

const WRITE: u8 = 1;
const PAD: u8 = 2;

/// Bytes of a header.
pub const HEADER: usize = 64;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Layout {
    magic: U32,
    /// CRC-32C of the 56 bytes after it.
    crc: U32,
    epoch: U64,
    position: U64,
    offset: U64,
    length: U32,
    data_crc: U32,
    kind: u8,
    reserved: [u8; 23],
}
const _: () = assert!(size_of::<Layout>() == HEADER);
const _: () = assert!(std::mem::offset_of!(Layout, position) == 16);
const _: () = assert!(std::mem::offset_of!(Layout, length) == 32);
const _: () = assert!(std::mem::offset_of!(Layout, kind) == 40);

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `length` bytes of data, which go to the volume from byte `offset` on.
    Write { offset: u64, length: u32, data_crc: u32 },
    /// Nothing, up to the ring's end.
    Pad,
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The window's number: records of another are none.
    pub epoch: u64,
    /// Where it begins, in bytes since the window's beginning.
    pub position: u64,
    pub kind: Kind,
}

/// A whole header, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub epoch: u64,
    pub position: u64,
    /// None when no host that obeys stores such a one.
    pub kind: Option<Kind>,
}

/// Bytes of the ring that a record of so many bytes of data takes.
#[must_use]
pub const fn bytes_of(length: usize) -> u64 {
    (u64_of(HEADER) + u64_of(length)).next_multiple_of(ALIGN)
}

impl Record {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let (kind, offset, length, data_crc) = match self.kind {
            Kind::Write { offset, length, data_crc } => (WRITE, offset, length, data_crc),
            Kind::Pad => (PAD, 0, 0, 0),
        };
        let mut layout = Layout {
            magic: MAGIC.into(),
            crc: 0.into(),
            epoch: self.epoch.into(),
            position: self.position.into(),
            offset: offset.into(),
            length: length.into(),
            data_crc: data_crc.into(),
            kind,
            reserved: [0; 23],
        };
        layout.crc = crc32c(&layout.as_bytes()[8..]).into();
        zerocopy::transmute!(layout)
    }
}

impl Header {
    /// The header that these bytes are; `None` when they are none: nothing was stored there, or not all of it. The length of what
    /// is written is 1 to [`DATA_BYTES_MAX`], and it ends below 2^63.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let layout = Layout::ref_from_bytes(bytes).ok()?;
        if layout.magic.get() != MAGIC || layout.crc.get() != crc32c(&bytes[8..]) {
            return None;
        }
        let (epoch, position) = (layout.epoch.get(), layout.position.get());
        Some(Self { epoch, position, kind: layout.kind() })
    }
}

impl Layout {
    fn kind(&self) -> Option<Kind> {
        let (offset, length, data_crc) =
            (self.offset.get(), self.length.get(), self.data_crc.get());
        let kind = match self.kind {
            WRITE => {
                let fits = length > 0 && usize64(u64::from(length)) <= DATA_BYTES_MAX;
                let ends = offset.checked_add(u64::from(length)).is_some_and(|end| end < 1 << 63);
                (fits && ends).then_some(Kind::Write { offset, length, data_crc })
            }
            PAD => (offset == 0 && length == 0 && data_crc == 0).then_some(Kind::Pad),
            _ => None,
        };
        kind.filter(|_| self.reserved == [0; 23])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            epoch: u64, position: u64, offset in 0..1_u64 << 62, length in 1..=65_536_u32, data_crc: u32, pad: bool,
        ) {
            let kind = if pad { Kind::Pad } else { Kind::Write { offset, length, data_crc } };
            let found = Header { epoch, position, kind: Some(kind) };
            let record = Record { epoch, position, kind };
            prop_assert_eq!(Header::decode(&record.encode()), Some(found));
        }

        #[test]
        fn a_header_stored_in_part_is_none(epoch: u64, position: u64, keep in 1..HEADER) {
            let kind = Kind::Write { offset: 4096, length: 4096, data_crc: 7 };
            let mut bytes = Record { epoch, position, kind }.encode();
            prop_assume!(bytes[keep..].iter().any(|byte| *byte != 0));
            bytes[keep..].fill(0);
            prop_assert_eq!(Header::decode(&bytes), None);
        }
    }

    /// With a checksum that fits, whatever it says.
    fn whole(change: impl FnOnce(&mut Layout)) -> [u8; HEADER] {
        let kind = Kind::Write { offset: 4096, length: 4096, data_crc: 7 };
        let mut layout: Layout =
            zerocopy::transmute!(Record { epoch: 1, position: 64, kind }.encode());
        change(&mut layout);
        layout.crc = crc32c(&layout.as_bytes()[8..]).into();
        zerocopy::transmute!(layout)
    }

    #[test]
    fn what_no_host_stores_is_seen_and_no_record() {
        let changes: [fn(&mut Layout); 11] = [
            |layout| layout.length = 0.into(),
            |layout| layout.length = 65_537.into(),
            |layout| layout.offset = (u64::MAX - 10).into(),
            |layout| layout.kind = 0,
            |layout| layout.kind = 3,
            |layout| layout.kind = PAD,
            |layout| (layout.kind, layout.length, layout.data_crc) = (PAD, 0.into(), 0.into()),
            |layout| (layout.kind, layout.offset, layout.data_crc) = (PAD, 0.into(), 0.into()),
            |layout| (layout.kind, layout.offset, layout.length) = (PAD, 0.into(), 0.into()),
            |layout| layout.reserved[0] = 1,
            |layout| layout.reserved[22] = 1,
        ];
        for change in changes {
            let found = Header { epoch: 1, position: 64, kind: None };
            assert_eq!(Header::decode(&whole(change)), Some(found));
        }
        assert!(Header::decode(&whole(|_| {})).unwrap().kind.is_some());
        assert_eq!((bytes_of(512), bytes_of(4096), bytes_of(1)), (576, 4160, 128));
    }

    /// The headers that the specification shows, in its order.
    fn shown() -> Vec<[u8; HEADER]> {
        let text = include_str!("../../../docs/anof.md");
        let blocks = text.split("```hex\n").skip(1).filter_map(|rest| rest.split("```").next());
        let byte = |byte: &str| u8::from_str_radix(byte, 16).unwrap();
        let header = |block: &str| block.split_whitespace().map(byte).collect::<Vec<_>>();
        blocks.map(|block| header(block).try_into().unwrap()).collect()
    }

    /// Who implements the other end from the specification has these to go by.
    #[test]
    fn the_example_of_the_specification_is_what_is_stored() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let data: Vec<u8> = (0..=255).chain(0..=255).collect();
        let crc = crc32c(&data);
        assert_eq!(crc, 0xae10_ee5a);
        let mut writer = Writer::new(0x0123_4567_89ab_cdef, crate::RING_BYTES_MIN);
        let mut stored = Vec::new();
        for nth in 0..456 {
            let place = writer.place(data.len(), u64::MAX).unwrap();
            if let Some(at) = place.pad {
                assert_eq!((nth, at, place.position), (455, 262_080, 262_144));
                stored.push(writer.pad().encode());
            } else if nth == 2 {
                assert_eq!(place.position, 1152);
                stored.push(writer.record(&place, 8192, 512, crc).encode());
            }
            writer.advance(&place);
        }
        assert_eq!(shown(), stored);
    }
}
