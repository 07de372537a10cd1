//! The label: what a drive says of itself and of its pool. One block, in two slots on every drive.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::catalog::CatalogArea;
use super::{Bad, VERSION, check, name_from_bytes, name_to_bytes, seal};
use crate::address::BLOCK;
use crate::limits::{AU_MAX, AU_MIN, DRIVES_MAX, LOG_MEMBERS_MAX, NAME_MAX, SHARDS_MAX};

const MAGIC: [u8; 8] = *b"FLASHLBL";

/// Whether a pool is meant to be opened where it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// Belongs to the node that last opened it.
    Active,
    /// Closed to be moved: opened by an import only.
    Exported,
}

/// What keeps a pool's commit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Persistent memory, mapped.
    Pmem,
    /// Memory that the operator says survives.
    Bbu,
    /// Zones on some of the pool's own drives.
    Drives,
    /// Namespaces of other targets, beside memory here where there is any.
    Remote,
}

impl LogKind {
    /// Whether it is written by group commit, and not straight to memory.
    #[must_use]
    pub const fn is_gathered(self) -> bool {
        matches!(self, Self::Drives | Self::Remote)
    }
}

/// How the redundancy is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Data units of a stripe.
    pub data: u8,
    /// Units that a stripe can lose: parity, or further copies when `data` is 1.
    pub parity: u8,
    /// Blocks of a unit.
    pub unit_blocks: u32,
    /// Bytes of an allocation unit.
    pub au_bytes: u64,
}

/// A device that holds the log, or held it: one for all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMember {
    /// What its control slots carry. A device that is made whole again gets another one: what was
    /// there before is never taken for current.
    pub id: [u8; 16],
    /// The drive whose zone it is; none for a device of memory.
    pub drive: Option<u16>,
    /// It has everything that was acknowledged. One that is not current is never read.
    pub current: bool,
}

/// What the labels say of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriveMark {
    /// It has everything.
    #[default]
    Online,
    /// It failed, or was away; what it holds is old.
    Failed,
    /// It is being made whole: what is written since then is on it, what was there before is old.
    Rejoining,
    /// Nothing of the pool lies on it: that it is not there is no loss. It may be on its way to have something.
    Vacant,
}

/// Why a drive that is out is not taken back before an operator says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaysOut {
    /// An operator took it out.
    Operator,
    /// It had more faults within an hour than are borne.
    Faults,
    /// It came and went too often.
    Returns,
}

impl fmt::Display for StaysOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operator => "an operator took it out",
            Self::Faults => "it had more faults within an hour than are borne",
            Self::Returns => "it came and went too often",
        })
    }
}

/// One drive of a pool, as all labels list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveRecord {
    pub id: [u8; 16],
    pub mark: DriveMark,
    /// It is not taken back before an operator says so: why. Of one that failed, or whose place is vacant.
    pub stays_out: Option<StaysOut>,
    /// What it has is moved to the others, or was while something of it was there.
    pub is_leaving: bool,
    /// The epoch of the labels since which it has this mark.
    pub since: u64,
    /// Bytes of its log zone, which begins where the catalog's area ends; 0 for none.
    pub log_bytes: u64,
    /// Allocation units, from the end of the log zone on.
    pub au_count: u32,
}

impl DriveRecord {
    /// Whether nothing of what it holds counts.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.mark != DriveMark::Online
    }

    /// Whether the pool lacks it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_out() && self.mark != DriveMark::Vacant
    }

    /// Marks it, as labels of this epoch are the first to say.
    pub fn set_mark(&mut self, mark: DriveMark, epoch: u64) {
        if self.mark != mark {
            (self.mark, self.since) = (mark, epoch);
        }
        if matches!(mark, DriveMark::Online | DriveMark::Rejoining) {
            // It is back: a label that says both is none.
            self.stays_out = None;
        }
    }
}

/// A pool as its drives describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub pool: [u8; 16],
    pub name: String,
    pub state: PoolState,
    /// Grows with every label written: a drive with a lower one missed something.
    pub epoch: u64,
    /// Which of `drives` this label is on.
    pub drive: u16,
    pub layout: Layout,
    /// Where the catalog lies on each drive.
    pub catalog: CatalogArea,
    pub shards: u16,
    pub log: LogKind,
    /// Bytes of the log, and what its devices carry to be known by.
    pub log_bytes: u64,
    pub log_id: [u8; 16],
    /// The devices of the log, [`LOG_MEMBERS_MAX`] at most.
    pub log_members: Vec<LogMember>,
    /// How many of them it was made with, or is to have since it was moved.
    pub log_copies: u8,
    /// Nothing is acknowledged while fewer have it. Of a log that is written by group commit.
    pub log_waits: bool,
    /// Grows whenever something that was current is so no more: a device of the log, a drive.
    pub term: u64,
    /// It was closed in order, with nothing left in its log.
    pub closed: bool,
    /// Seconds since 1970.
    pub created: u64,
    pub drives: Vec<DriveRecord>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    state: u8,
    log: u8,
    pool: [u8; 16],
    epoch: U64,
    drive: U16,
    drives: U16,
    shards: U16,
    data: u8,
    parity: u8,
    unit_blocks: U32,
    closed: u8,
    log_members: u8,
    log_copies: u8,
    catalog_mib: u8,
    au_bytes: U64,
    log_bytes: U64,
    log_id: [u8; 16],
    created: U64,
    term: U64,
    members: [RawMember; LOG_MEMBERS_MAX],
    name: [u8; NAME_MAX],
}
const _: () = assert!(size_of::<Head>() == 424);
const _: () = assert!(std::mem::offset_of!(Head, epoch) == 32);
const _: () = assert!(std::mem::offset_of!(Head, catalog_mib) == 55);
const _: () = assert!(std::mem::offset_of!(Head, members) == 104);
const _: () = assert!(std::mem::offset_of!(Head, name) == 360);

/// In the byte of the log's kind: nothing is acknowledged while the log has fewer copies than it is to have. Programs that know
/// nothing of that refuse the pool.
const LOG_WAITS: u8 = 0x80;

/// What stands for no drive.
const NO_DRIVE: u16 = u16::MAX;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawMember {
    id: [u8; 16],
    drive: U16,
    state: u8,
    reserved: [u8; 13],
}
const _: () = assert!(size_of::<RawMember>() == 32);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDrive {
    id: [u8; 16],
    log_bytes: U64,
    since: U64,
    au_count: U32,
    mark: u8,
    flags: u8,
    kept_out: u8,
    reserved: u8,
}
const _: () = assert!(size_of::<RawDrive>() == 40);
const _: () = assert!(std::mem::offset_of!(RawDrive, flags) == 37);
const _: () = assert!(std::mem::offset_of!(RawDrive, kept_out) == 38);
const _: () = assert!(size_of::<Head>() + DRIVES_MAX * size_of::<RawDrive>() <= BLOCK);

impl RawMember {
    const NONE: Self =
        Self { id: [0; 16], drive: U16::from_bytes([0; 2]), state: 0, reserved: [0; 13] };

    fn new(member: &LogMember) -> Self {
        Self {
            id: member.id,
            drive: member.drive.unwrap_or(NO_DRIVE).into(),
            state: if member.current { 1 } else { 2 },
            reserved: [0; 13],
        }
    }

    fn read(&self, drives: usize) -> Result<LogMember, Bad> {
        let drive = Some(self.drive.get()).filter(|drive| *drive != NO_DRIVE);
        if drive.is_some_and(|drive| usize::from(drive) >= drives) {
            return Err(Bad::Field("log member"));
        }
        let current = match self.state {
            1 => true,
            2 => false,
            _ => return Err(Bad::Field("log member")),
        };
        Ok(LogMember { id: self.id, drive, current })
    }
}

/// What a mark says that this program gives to no drive. Those with names are kept free for replacing and adding
/// drives: who opens such a pool with a program that knows nothing of that is told what it is.
const fn later_mark(mark: u8) -> &'static str {
    match mark {
        4 => "mark of a drive: slow",
        5 => "mark of a drive: missing",
        6 => "mark of a drive: evacuating",
        7 => "mark of a drive: spare",
        _ => "mark of a drive",
    }
}

/// What is beside a drive's mark.
const RETIRED: u8 = 1;
const LEAVING: u8 = 2;

/// Why the pool itself keeps a drive out. Programs that know nothing of that read past it, and take the drive back.
const FAULTS: u8 = 1;
const RETURNS: u8 = 2;

impl RawDrive {
    fn new(drive: &DriveRecord) -> Self {
        Self {
            id: drive.id,
            log_bytes: drive.log_bytes.into(),
            since: drive.since.into(),
            au_count: drive.au_count.into(),
            mark: match drive.mark {
                DriveMark::Online => 0,
                DriveMark::Failed => 1,
                DriveMark::Rejoining => 2,
                DriveMark::Vacant => 3,
            },
            flags: if drive.stays_out == Some(StaysOut::Operator) { RETIRED } else { 0 }
                | if drive.is_leaving { LEAVING } else { 0 },
            kept_out: match drive.stays_out {
                Some(StaysOut::Faults) => FAULTS,
                Some(StaysOut::Returns) => RETURNS,
                Some(StaysOut::Operator) | None => 0,
            },
            reserved: 0,
        }
    }

    fn read(&self) -> Result<DriveRecord, Bad> {
        let mark = match self.mark {
            0 => DriveMark::Online,
            1 => DriveMark::Failed,
            2 => DriveMark::Rejoining,
            3 => DriveMark::Vacant,
            other => return Err(Bad::Field(later_mark(other))),
        };
        let may_be = matches!(mark, DriveMark::Failed | DriveMark::Vacant);
        let stays_out = match (self.flags & RETIRED != 0, self.kept_out) {
            (true, _) => Some(StaysOut::Operator),
            // Of one that is back, or was never out, it says nothing.
            (false, _) if !may_be => None,
            (false, 0) => None,
            (false, FAULTS) => Some(StaysOut::Faults),
            (false, RETURNS) => Some(StaysOut::Returns),
            (false, _) => return Err(Bad::Field("why a drive is kept out")),
        };
        // Nobody relies on a drive that stays out.
        if self.flags & !(RETIRED | LEAVING) != 0 || stays_out.is_some() && !may_be {
            return Err(Bad::Field("flags of a drive"));
        }
        Ok(DriveRecord {
            id: self.id,
            mark,
            stays_out,
            is_leaving: self.flags & LEAVING != 0,
            since: self.since.get(),
            log_bytes: self.log_bytes.get(),
            au_count: self.au_count.get(),
        })
    }
}

impl Label {
    /// The devices of the log that have everything.
    pub fn current_members(&self) -> impl Iterator<Item = &LogMember> {
        self.log_members.iter().filter(|member| member.current)
    }

    /// Bytes that a drive has, at least: one that is shorter was cut off, or is another.
    #[must_use]
    pub fn drive_bytes(&self, drive: u16) -> u64 {
        self.drives.get(usize::from(drive)).map_or(0, |record| {
            self.catalog.end()
                + record.log_bytes
                + u64::from(record.au_count) * self.layout.au_bytes
        })
    }

    /// Drives that the pool lacks.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.drives.iter().filter(|record| record.is_lost()).count()
    }

    /// So many drives it takes to open the pool: any of those that something of it lies on, but as many as may be lost.
    #[must_use]
    pub fn needed(&self) -> usize {
        let used = self.drives.iter().filter(|record| record.mark != DriveMark::Vacant).count();
        used.saturating_sub(usize::from(self.layout.parity))
    }

    /// Whether the drive that carries `other` is the one that this pool has in its place: it was not replaced.
    #[must_use]
    pub fn has_drive_of(&self, other: &Self) -> bool {
        let id = |label: &Self| label.drives.get(usize::from(other.drive)).map(|record| record.id);
        self.pool == other.pool && id(self) == id(other)
    }

    /// Whether a drive with a label of this epoch, which nobody knows to be out, is an old copy. One that missed
    /// nothing is one epoch behind at most: no label is begun before all drives in use have the one before, and an
    /// opening writes two.
    #[must_use]
    pub const fn shows_old(&self, epoch: u64) -> bool {
        epoch + 1 < self.epoch
    }

    /// Whether the pool may have gone on with the drive that carries `other`, after these labels' drives had gone on
    /// without it. A label that fewer drives have than a pool opens with is an opening that was cut short: nothing came
    /// of it. `epoch_of` tells what the labels of drives say that are there.
    #[must_use]
    pub fn is_forked_by(&self, other: &Self, epoch_of: impl Fn(u16) -> Option<u64>) -> bool {
        // One of a place that these labels do not know was added by somebody who went on.
        let Some(record) = self.drives.get(usize::from(other.drive)) else { return true };
        if record.mark != DriveMark::Failed || other.epoch < record.since {
            return false;
        }
        // Nobody goes on without a drive before the labels say that it is out, or that another has its place.
        let mut both = self.drives.iter().zip(&other.drives);
        if !both.any(|(here, there)| !here.is_out() && (there.is_out() || there.id != here.id)) {
            return false;
        }
        let takes_part = |index: u16, here: &DriveRecord, there: &DriveRecord| {
            let was_in = !there.is_out() || there.since >= record.since;
            here.is_out() && was_in && epoch_of(index).is_none_or(|epoch| epoch >= record.since)
        };
        let lists = (0..).zip(self.drives.iter().zip(&other.drives));
        let others = lists.filter(|&(index, _)| index != other.drive);
        let others = others.filter(|&(index, (here, there))| takes_part(index, here, there));
        1 + others.count() >= self.needed().min(other.needed())
    }

    /// The label as a block.
    #[must_use]
    pub fn to_block(&self) -> Box<[u8; BLOCK]> {
        let mut block = Box::new([0; BLOCK]);
        let mut members = [RawMember::NONE; LOG_MEMBERS_MAX];
        for (raw, member) in members.iter_mut().zip(&self.log_members) {
            *raw = RawMember::new(member);
        }
        let head = Head {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            state: match self.state {
                PoolState::Active => 1,
                PoolState::Exported => 2,
            },
            log: match self.log {
                LogKind::Pmem => 1,
                LogKind::Bbu => 2,
                LogKind::Drives => 3,
                LogKind::Remote => 4,
            } | if self.log_waits { LOG_WAITS } else { 0 },
            pool: self.pool,
            epoch: self.epoch.into(),
            drive: self.drive.into(),
            drives: stdx::num::u16_of(self.drives.len()).into(),
            shards: self.shards.into(),
            data: self.layout.data,
            parity: self.layout.parity,
            unit_blocks: self.layout.unit_blocks.into(),
            closed: self.closed.into(),
            log_members: stdx::num::low8(stdx::num::u64_of(self.log_members.len())),
            log_copies: self.log_copies,
            catalog_mib: self.catalog.mib(),
            au_bytes: self.layout.au_bytes.into(),
            log_bytes: self.log_bytes.into(),
            log_id: self.log_id,
            created: self.created.into(),
            term: self.term.into(),
            members,
            name: name_to_bytes(&self.name),
        };
        let (front, rest) = block.split_at_mut(size_of::<Head>());
        front.copy_from_slice(head.as_bytes());
        for (drive, to) in self.drives.iter().zip(rest.chunks_exact_mut(size_of::<RawDrive>())) {
            to.copy_from_slice(RawDrive::new(drive).as_bytes());
        }
        seal(&mut block[..], MAGIC);
        block
    }

    /// The label in a block.
    ///
    /// # Errors
    /// `Blank` where no label was written, and what is wrong with the one there.
    pub fn from_block(block: &[u8]) -> Result<Self, Bad> {
        check(block, MAGIC)?;
        let (head, rest) = Head::ref_from_prefix(block).map_err(|_| Bad::Blank)?;
        // Pools made while this format was in the making have nothing there.
        let catalog = match head.catalog_mib {
            0 => return Err(Bad::Unsettled),
            mib => CatalogArea::from_mib(mib).ok_or(Bad::Field("catalog"))?,
        };
        let drives = usize::from(head.drives.get());
        let layout = Layout {
            data: head.data,
            parity: head.parity,
            unit_blocks: head.unit_blocks.get(),
            au_bytes: head.au_bytes.get(),
        };
        layout.check(drives)?;
        if drives > DRIVES_MAX || head.drive.get() >= head.drives.get() {
            return Err(Bad::Field("drives"));
        }
        if !(1..=SHARDS_MAX).contains(&usize::from(head.shards.get())) {
            return Err(Bad::Field("shards"));
        }
        let records = rest.chunks_exact(size_of::<RawDrive>()).take(drives);
        let drives = records.map(|raw| {
            let raw = RawDrive::read_from_bytes(raw).map_err(|_| Bad::Field("drives"))?;
            raw.read()
        });
        let members = usize::from(head.log_members);
        if members > LOG_MEMBERS_MAX || head.closed > 1 {
            return Err(Bad::Field("log members"));
        }
        let count = usize::from(head.drives.get());
        let members = head.members[..members].iter().map(|raw| raw.read(count));
        Ok(Self {
            pool: head.pool,
            name: name_from_bytes(&head.name)?,
            state: match head.state {
                1 => PoolState::Active,
                2 => PoolState::Exported,
                _ => return Err(Bad::Field("state")),
            },
            epoch: head.epoch.get(),
            drive: head.drive.get(),
            layout,
            catalog,
            shards: head.shards.get(),
            log: match head.log & !LOG_WAITS {
                1 => LogKind::Pmem,
                2 => LogKind::Bbu,
                3 => LogKind::Drives,
                4 => LogKind::Remote,
                _ => return Err(Bad::Field("log")),
            },
            log_bytes: head.log_bytes.get(),
            log_id: head.log_id,
            log_members: members.collect::<Result<_, _>>()?,
            log_copies: head.log_copies,
            log_waits: head.log & LOG_WAITS != 0,
            term: head.term.get(),
            closed: head.closed == 1,
            created: head.created.get(),
            drives: drives.collect::<Result<_, _>>()?,
        })
    }
}

impl Layout {
    fn check(&self, drives: usize) -> Result<(), Bad> {
        let units = usize::from(self.data) + usize::from(self.parity);
        if self.data == 0 || units > drives {
            return Err(Bad::Field("units"));
        }
        if !(AU_MIN..=AU_MAX).contains(&self.au_bytes) || !self.au_bytes.is_power_of_two() {
            return Err(Bad::Field("allocation unit"));
        }
        let unit = u64::from(self.unit_blocks) * stdx::num::u64_of(BLOCK);
        if unit == 0 || unit > self.au_bytes {
            return Err(Bad::Field("stripe unit"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        let marks = [DriveMark::Online, DriveMark::Failed, DriveMark::Rejoining, DriveMark::Vacant];
        let drive = |i: u8| DriveRecord {
            id: [i; 16],
            mark: marks[usize::from(i % 4)],
            stays_out: [None, Some(StaysOut::Operator), None, Some(StaysOut::Returns)]
                [usize::from(i % 4)],
            is_leaving: i < 2,
            since: u64::from(i),
            log_bytes: 0,
            au_count: 77,
        };
        let member = |i: u8, drive| LogMember { id: [i; 16], drive, current: i < 3 };
        Label {
            pool: [7; 16],
            name: "fast".into(),
            state: PoolState::Active,
            epoch: 12,
            drive: 3,
            layout: Layout { data: 2, parity: 2, unit_blocks: 16, au_bytes: 4 << 20 },
            catalog: CatalogArea::LEAST,
            shards: 2,
            log: LogKind::Bbu,
            log_bytes: 64 << 20,
            log_id: [9; 16],
            log_members: vec![member(1, None), member(2, Some(3)), member(3, None)],
            log_copies: 2,
            log_waits: true,
            term: 5,
            closed: true,
            created: 1_700_000_000,
            drives: (0..4).map(drive).collect(),
        }
    }

    #[test]
    fn a_label_comes_back_as_written() {
        assert_eq!(Label::from_block(&label().to_block()[..]).unwrap(), label());
    }

    #[test]
    fn a_label_with_any_flipped_bit_is_refused() {
        let block = label().to_block();
        for bit in 0..BLOCK * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Label::from_block(&damaged[..]).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_label_that_says_nothing_of_the_catalog_is_of_the_format_in_the_making() {
        for (mib, says) in
            [(0, Bad::Unsettled), (2, Bad::Field("catalog")), (65, Bad::Field("catalog"))]
        {
            let mut block = label().to_block();
            block[55] = mib;
            seal(&mut block[..], MAGIC);
            assert_eq!(Label::from_block(&block[..]), Err(says));
        }
    }

    #[test]
    fn a_mark_that_this_program_gives_to_no_drive_is_refused_by_name() {
        for (mark, says) in [(4, "slow"), (5, "missing"), (6, "evacuating"), (7, "spare")] {
            let mut block = label().to_block();
            block[size_of::<Head>() + 36] = mark;
            seal(&mut block[..], MAGIC);
            let bad = Label::from_block(&block[..]).unwrap_err();
            assert!(bad.to_string().ends_with(says), "{bad}");
        }
    }

    #[test]
    fn only_a_drive_that_is_out_stays_out() {
        let with = |drive: usize, byte: usize, value: u8| {
            let mut block = label().to_block();
            block[size_of::<Head>() + drive * size_of::<RawDrive>() + byte] = value;
            seal(&mut block[..], MAGIC);
            Label::from_block(&block[..])
        };
        for (drive, byte, value) in [(0, 37, 1), (2, 37, 3), (1, 37, 4)] {
            assert_eq!(with(drive, byte, value), Err(Bad::Field("flags of a drive")));
        }
        assert_eq!(with(3, 38, 3), Err(Bad::Field("why a drive is kept out")));
        let kept =
            |drive: usize, value: u8| with(drive, 38, value).unwrap().drives[drive].stays_out;
        assert_eq!((kept(3, 1), kept(3, 2)), (Some(StaysOut::Faults), Some(StaysOut::Returns)));
        assert_eq!(kept(3, 0), None);
        // Labels told of one that was back that it is kept out, too: a pool with these never opened again.
        assert_eq!((kept(0, 1), kept(2, 2)), (None, None));
    }

    #[test]
    fn a_blank_drive_is_told_from_a_damaged_one() {
        assert_eq!(Label::from_block(&[0; BLOCK]), Err(Bad::Blank));
        let mut block = label().to_block();
        block[4000] = 1;
        assert_eq!(Label::from_block(&block[..]), Err(Bad::Checksum));
    }
}
