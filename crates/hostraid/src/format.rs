//! Our bytes on members: see `docs/format-hostraid.md`.

use raid::Shape;
use stdx::num::{low8, u64_of, usize32};
use stdx::{crc32c, crc32c_append};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{Layout, Level, Slots};
use crate::limits::{JOURNAL_AT, MEMBERS_MAX, NAME_MAX, PAGE};

/// The version of everything written. No other is read.
pub const VERSION: u16 = 1;

const SET_MAGIC: [u8; 8] = *b"FLHRSET\0";
const RECORD_MAGIC: [u8; 8] = *b"FLHRJNL\0";
const CRC_AT: usize = 8;
/// Bytes of a page.
pub const PAGE_BYTES: usize = usize32(PAGE);

/// Why a page is not what was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    #[error("nothing of this kind was ever written there")]
    Blank,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("format version {0} is not this program's")]
    Version(u16),
    #[error("field out of range: {0}")]
    Field(&'static str),
}

/// CRC-32C of a page, its own four bytes taken as zero.
fn checksum(page: &[u8]) -> u32 {
    let crc = crc32c_append(crc32c(&page[..CRC_AT]), &[0; 4]);
    crc32c_append(crc, &page[CRC_AT + 4..])
}

fn seal(page: &mut [u8]) {
    let crc = checksum(page);
    page[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

fn check(page: &[u8], magic: [u8; 8]) -> Result<(), Bad> {
    if page.len() != PAGE_BYTES || page[..CRC_AT] != magic {
        return Err(Bad::Blank);
    }
    let stored = u32::from_le_bytes([page[8], page[9], page[10], page[11]]);
    if stored != checksum(page) {
        return Err(Bad::Checksum);
    }
    let version = u16::from_le_bytes([page[12], page[13]]);
    if version == VERSION { Ok(()) } else { Err(Bad::Version(version)) }
}

/// Where a member of a set stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It has everything.
    InSync,
    /// It is not part of the set now; what it holds is old.
    Missing,
    /// Stripes below `frontier` are in sync; of the others, when `partial`, those of clean regions.
    Rebuilding { frontier: u64, partial: bool },
}

/// One member, as all superblocks list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    pub member: [u8; 16],
    pub health: Health,
    /// The newest event count it is known to have taken.
    pub seen: u64,
    /// The lowest event count that it cannot have unless it was used without the others, when it is missing.
    pub left: u64,
}

/// What a member says of its set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub set: [u8; 16],
    /// Which member this is.
    pub slot: usize,
    pub name: String,
    pub layout: Layout,
    /// Raised whenever a member's standing changes.
    pub events: u64,
    /// Every member that is not missing has taken this event count at least.
    pub floor: u64,
    /// Raised with every superblock written.
    pub generation: u64,
    /// Records of the journal below this number are history.
    pub tail: u64,
    pub seats: Vec<Seat>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    level: u8,
    slot: u8,
    set: [u8; 16],
    events: U64,
    generation: U64,
    tail: U64,
    stripes: U64,
    region_stripes: U64,
    data_at: U64,
    records: U32,
    chunk: U32,
    block: U32,
    members: U32,
    name: [u8; NAME_MAX],
    floor: U64,
    reserved: [u8; 120],
}
const _: () = assert!(size_of::<Head>() == 256);
const _: () = assert!(std::mem::offset_of!(Head, floor) == 128);
const _: () = assert!(std::mem::offset_of!(Head, set) == 16);
const _: () = assert!(std::mem::offset_of!(Head, events) == 32);
const _: () = assert!(std::mem::offset_of!(Head, records) == 80);
const _: () = assert!(std::mem::offset_of!(Head, name) == 96);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSeat {
    member: [u8; 16],
    seen: U64,
    left: U64,
    frontier: U64,
    health: u8,
    partial: u8,
    reserved: [u8; 6],
}
const _: () = assert!(size_of::<RawSeat>() == 48);
const _: () = assert!(std::mem::offset_of!(RawSeat, health) == 40);
const _: () = assert!(size_of::<Head>() + MEMBERS_MAX * size_of::<RawSeat>() <= PAGE_BYTES);

impl RawSeat {
    fn new(seat: &Seat) -> Self {
        let (health, frontier, partial) = match seat.health {
            Health::InSync => (1, 0, false),
            Health::Missing => (2, 0, false),
            Health::Rebuilding { frontier, partial } => (3, frontier, partial),
        };
        Self {
            member: seat.member,
            seen: seat.seen.into(),
            left: seat.left.into(),
            frontier: frontier.into(),
            health,
            partial: partial.into(),
            reserved: [0; 6],
        }
    }

    fn seat(&self) -> Result<Seat, Bad> {
        let frontier = self.frontier.get();
        let health = match self.health {
            1 => Health::InSync,
            2 => Health::Missing,
            3 => Health::Rebuilding { frontier, partial: self.partial != 0 },
            _ => return Err(Bad::Field("health")),
        };
        Ok(Seat { member: self.member, health, seen: self.seen.get(), left: self.left.get() })
    }
}

impl Superblock {
    /// The superblock as a page.
    #[must_use]
    pub fn to_page(&self) -> Vec<u8> {
        let layout = &self.layout;
        let mut name = [0; NAME_MAX];
        let length = self.name.len().min(NAME_MAX);
        name[..length].copy_from_slice(&self.name.as_bytes()[..length]);
        let head = Head {
            magic: SET_MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            level: layout.level.number(),
            slot: low8(u64_of(self.slot)),
            set: self.set,
            events: self.events.into(),
            generation: self.generation.into(),
            tail: self.tail.into(),
            stripes: layout.stripes.into(),
            region_stripes: layout.region_stripes.into(),
            data_at: layout.data_at.into(),
            records: stdx::num::low32(layout.records).into(),
            chunk: layout.chunk.into(),
            block: layout.block.into(),
            members: stdx::num::u32_of(self.seats.len()).into(),
            name,
            floor: self.floor.into(),
            reserved: [0; 120],
        };
        let mut page = vec![0; PAGE_BYTES];
        let (front, rest) = page.split_at_mut(size_of::<Head>());
        front.copy_from_slice(head.as_bytes());
        for (seat, to) in self.seats.iter().zip(rest.chunks_exact_mut(size_of::<RawSeat>())) {
            to.copy_from_slice(RawSeat::new(seat).as_bytes());
        }
        seal(&mut page);
        page
    }

    /// The superblock in a page.
    ///
    /// # Errors
    /// `Blank` where none was written, and what is wrong with the one there.
    pub fn from_page(page: &[u8]) -> Result<Self, Bad> {
        check(page, SET_MAGIC)?;
        let (head, rest) = Head::ref_from_prefix(page).map_err(|_| Bad::Blank)?;
        let members = usize32(head.members.get());
        let level = Level::from_number(head.level).ok_or(Bad::Field("level"))?;
        let shape: Shape = level.shape(members).ok_or(Bad::Field("members"))?;
        if usize::from(head.slot) >= members {
            return Err(Bad::Field("slot"));
        }
        let seats = rest.chunks_exact(size_of::<RawSeat>()).take(members).map(|raw| {
            RawSeat::ref_from_bytes(raw).map_err(|_| Bad::Field("seats")).and_then(RawSeat::seat)
        });
        let seats = seats.collect::<Result<Vec<_>, _>>()?;
        let layout = Layout {
            level,
            shape,
            block: head.block.get(),
            chunk: head.chunk.get(),
            stripes: head.stripes.get(),
            region_stripes: head.region_stripes.get(),
            records: head.records.get().into(),
            data_at: head.data_at.get(),
        };
        check_layout(&layout, members)?;
        let end = head.name.iter().position(|b| *b == 0).unwrap_or(NAME_MAX);
        let name = std::str::from_utf8(&head.name[..end]).map_err(|_| Bad::Field("name"))?;
        Ok(Self {
            set: head.set,
            slot: head.slot.into(),
            name: name.to_owned(),
            layout,
            events: head.events.get(),
            floor: head.floor.get(),
            generation: head.generation.get(),
            tail: head.tail.get(),
            seats,
        })
    }
}

/// Whether the program could have made such a layout.
fn check_layout(layout: &Layout, members: usize) -> Result<(), Bad> {
    let Layout { level, chunk, block, stripes, .. } = *layout;
    let bytes = stripes.checked_mul(chunk.into()).and_then(|b| b.checked_add(layout.data_at));
    let (bytes, records) = (bytes.ok_or(Bad::Field("stripes"))?, layout.records);
    let whole = bytes.checked_mul(u64_of(MEMBERS_MAX)).ok_or(Bad::Field("stripes"));
    whole?;
    let region = layout.region_stripes.saturating_mul(chunk.into());
    let made = Layout::new(level, members, (block, chunk), bytes, (Some(records), Some(region)))
        .map_err(|_| Bad::Field("layout"))?;
    // The journal ends before the data, wherever that begins.
    if made != *layout || made.data_at < JOURNAL_AT {
        return Err(Bad::Field("layout"));
    }
    Ok(())
}

/// What a record of the journal stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// New contents of a part of this member's unit, which lie before the descriptor.
    Unit {
        /// From the unit's beginning, bytes.
        at: u32,
        len: u32,
        /// CRC-32C of the contents.
        crc: u32,
    },
    /// Zeroes over the member's units of so many stripes.
    Zeroes { stripes: u64 },
}

/// A record of the journal, as one member has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub set: [u8; 16],
    pub slot: usize,
    pub number: u64,
    /// The (first) stripe.
    pub stripe: u64,
    /// Which part of the stripe's units changes, on whichever member: first byte and length.
    pub hull: (u32, u32),
    /// Members that have a part of the record.
    pub members: Slots,
    pub change: Change,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    kind: u8,
    slot: u8,
    set: [u8; 16],
    number: U64,
    stripe: U64,
    stripes: U64,
    members: U32,
    hull_at: U32,
    hull_len: U32,
    at: U32,
    len: U32,
    payload_crc: U32,
}
const _: () = assert!(size_of::<RawRecord>() == 80);
const _: () = assert!(std::mem::offset_of!(RawRecord, number) == 32);
const _: () = assert!(std::mem::offset_of!(RawRecord, members) == 56);

impl Record {
    /// Writes the descriptor into a page.
    ///
    /// # Panics
    /// When `page` is none.
    pub fn put(&self, page: &mut [u8]) {
        assert_eq!(page.len(), PAGE_BYTES, "a descriptor has a page");
        let (kind, stripes, at, len, payload_crc) = match self.change {
            Change::Unit { at, len, crc } => (1, 1, at, len, crc),
            Change::Zeroes { stripes } => (2, stripes, 0, 0, 0),
        };
        let raw = RawRecord {
            magic: RECORD_MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            kind,
            slot: low8(u64_of(self.slot)),
            set: self.set,
            number: self.number.into(),
            stripe: self.stripe.into(),
            stripes: stripes.into(),
            members: self.members.0.into(),
            hull_at: self.hull.0.into(),
            hull_len: self.hull.1.into(),
            at: at.into(),
            len: len.into(),
            payload_crc: payload_crc.into(),
        };
        page.fill(0);
        page[..size_of::<RawRecord>()].copy_from_slice(raw.as_bytes());
        seal(page);
    }

    /// The descriptor in a page, checked against the layout it is to be used with.
    ///
    /// # Errors
    /// `Blank` where none was written, and what is wrong with the one there.
    pub fn get(page: &[u8], layout: &Layout) -> Result<Self, Bad> {
        check(page, RECORD_MAGIC)?;
        let (raw, _) = RawRecord::ref_from_prefix(page).map_err(|_| Bad::Blank)?;
        let inside = |at: u32, len: u32| {
            at.checked_add(len).is_some_and(|end| end <= layout.chunk)
                && (at | len).is_multiple_of(layout.block)
        };
        let (stripe, stripes) = (raw.stripe.get(), raw.stripes.get());
        if stripe.checked_add(stripes).is_none_or(|end| end > layout.stripes) || stripes == 0 {
            return Err(Bad::Field("stripe"));
        }
        let (hull, own) = ((raw.hull_at.get(), raw.hull_len.get()), (raw.at.get(), raw.len.get()));
        if !inside(hull.0, hull.1) || !inside(own.0, own.1) || hull.1 == 0 {
            return Err(Bad::Field("range"));
        }
        let members = Slots(raw.members.get());
        let slot = usize::from(raw.slot);
        if slot >= layout.width() || members.0 >> layout.width() != 0 || !members.has(slot) {
            return Err(Bad::Field("members"));
        }
        let change = match raw.kind {
            1 => Change::Unit { at: own.0, len: own.1, crc: raw.payload_crc.get() },
            2 => Change::Zeroes { stripes },
            _ => return Err(Bad::Field("kind")),
        };
        Ok(Self { set: raw.set, slot, number: raw.number.get(), stripe, hull, members, change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        let layout = Layout::new(Level::Raid6, 5, (512, 8192), 64 << 20, (None, None)).unwrap();
        let health = [
            Health::InSync,
            Health::Missing,
            Health::Rebuilding { frontier: 77, partial: true },
            Health::InSync,
            Health::InSync,
        ];
        let seats = (1..).zip(health).map(|(n, health)| Seat {
            member: [n; 16],
            health,
            seen: u64::from(n) * 3,
            left: u64::from(n) * 5,
        });
        Superblock {
            set: [9; 16],
            slot: 4,
            name: "db".to_owned(),
            layout,
            events: 11,
            floor: 10,
            generation: 12,
            tail: 13,
            seats: seats.collect(),
        }
    }

    #[test]
    fn a_superblock_is_read_as_written_and_no_bit_may_flip() {
        let page = superblock().to_page();
        assert_eq!(Superblock::from_page(&page).unwrap(), superblock());
        assert_eq!(Superblock::from_page(&[0; PAGE_BYTES]), Err(Bad::Blank));
        for bit in (0..PAGE_BYTES * 8).step_by(7) {
            let mut page = page.clone();
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::from_page(&page).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn fields_that_make_no_sense_are_refused_with_a_right_checksum() {
        let with = |at: usize, bytes: &[u8]| {
            let mut page = superblock().to_page();
            page[at..at + bytes.len()].copy_from_slice(bytes);
            seal(&mut page);
            Superblock::from_page(&page)
        };
        assert_eq!(with(12, &[2, 0]), Err(Bad::Version(2)));
        assert_eq!(with(14, &[4]), Err(Bad::Field("level")));
        assert_eq!(with(15, &[5]), Err(Bad::Field("slot")));
        assert_eq!(with(56, &[255; 8]), Err(Bad::Field("stripes")));
        assert_eq!(with(84, &[3, 0, 0, 0]), Err(Bad::Field("layout")));
        assert_eq!(with(92, &[255; 4]), Err(Bad::Field("members")));
        assert_eq!(with(256 + 40, &[7]), Err(Bad::Field("health")));
    }

    #[test]
    fn a_record_is_read_as_written_and_stays_within_the_set() {
        let layout = superblock().layout;
        let record = Record {
            set: [9; 16],
            slot: 2,
            number: 99,
            stripe: layout.stripes - 1,
            hull: (512, 4096),
            members: Slots(0b10101),
            change: Change::Unit { at: 1024, len: 512, crc: 5 },
        };
        let mut page = vec![0; PAGE_BYTES];
        record.put(&mut page);
        assert_eq!(Record::get(&page, &layout), Ok(record));
        let zeroes = Record { change: Change::Zeroes { stripes: 2 }, ..record };
        zeroes.put(&mut page);
        assert_eq!(Record::get(&page, &layout), Err(Bad::Field("stripe")));
        let other = Record { slot: 1, ..record };
        other.put(&mut page);
        assert_eq!(Record::get(&page, &layout), Err(Bad::Field("members")));
        let beyond = Record { change: Change::Unit { at: 8192, len: 512, crc: 0 }, ..record };
        beyond.put(&mut page);
        assert_eq!(Record::get(&page, &layout), Err(Bad::Field("range")));
    }
}
