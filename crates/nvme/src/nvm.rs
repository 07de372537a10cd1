//! Commands of the NVM Command Set 1.1, read from a submission queue entry into typed commands.
//!
//! Reserved bits of CDW12 and of the flags are checked; values that belong to protection
//! information (CDW2, CDW3, CDW14, CDW15, PRINFO, STC) are ignored, as the specification wants of
//! a namespace formatted without it.

mod copy;
mod range;

use stdx::Lba;
use stdx::num::{low8, low16};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::count::{ZeroBased8, ZeroBased16};
use crate::opcode::io;
use crate::refusal::{Reason, Refusal};
use crate::reservation;
use crate::sqe::{Fused, Sqe};

pub use copy::{
    Copy, CopyDescriptor, CopyFormat, CopyRange0, CopyRange1, CopyRange2, CopyRange3, CopySource,
};
pub use range::LbaRange;

/// An I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Flush,
    Read(Read),
    Write(Write),
    Compare(Compare),
    WriteZeroes(WriteZeroes),
    WriteUncorrectable(LbaRange),
    Verify(Verify),
    DatasetManagement(DatasetManagement),
    Copy(Copy),
    ReservationRegister(reservation::Register),
    ReservationAcquire(reservation::Acquire),
    ReservationRelease(reservation::Release),
    ReservationReport(reservation::Report),
}

/// Read (NVM Command Set 3.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub range: LbaRange,
    /// Force Unit Access: the data has to come from, or be on, non-volatile media.
    pub fua: bool,
    /// Limited Retry.
    pub limited_retry: bool,
}

/// Write (NVM Command Set 3.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    pub range: LbaRange,
    /// Force Unit Access: durable before it completes.
    pub fua: bool,
    /// Limited Retry.
    pub limited_retry: bool,
    /// Second command of a Compare and Write.
    pub fused: bool,
}

/// Compare (NVM Command Set 3.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compare {
    pub range: LbaRange,
    pub fua: bool,
    pub limited_retry: bool,
    /// First command of a Compare and Write.
    pub fused: bool,
}

/// Verify (NVM Command Set 3.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify {
    pub range: LbaRange,
    pub fua: bool,
    pub limited_retry: bool,
}

/// Write Zeroes (NVM Command Set 3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteZeroes {
    pub range: LbaRange,
    pub fua: bool,
    pub limited_retry: bool,
    /// Deallocate (DEAC): the blocks should be deallocated, as long as they then read as zeroes.
    pub deallocate: bool,
}

/// Dataset Management (NVM Command Set 3.3.3): the ranges are in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetManagement {
    /// Number of Ranges (NR).
    pub ranges: ZeroBased8,
    /// Attribute Integral Dataset for Read.
    pub integral_read: bool,
    /// Attribute Integral Dataset for Write.
    pub integral_write: bool,
    /// Attribute Deallocate.
    pub deallocate: bool,
}

impl DatasetManagement {
    /// Bytes of range definitions that belong to the command.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        usize::from(self.ranges.count()) * size_of::<DsmRange>()
    }

    /// The ranges in the command's data; refused when the data is shorter than NR says.
    pub fn ranges<'a>(&self, data: &'a [u8]) -> Result<&'a [DsmRange], Refusal> {
        let bytes = data.get(..self.data_bytes());
        bytes.and_then(|bytes| <[DsmRange]>::ref_from_bytes(bytes).ok()).ok_or(Refusal::at(
            Reason::Length,
            10,
            0,
        ))
    }
}

/// One range of Dataset Management: 16 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct DsmRange {
    /// Context Attributes: hints.
    pub cattr: U32,
    /// Length in logical blocks; not 0's based, and 0 is no block.
    pub blocks: U32,
    /// Starting LBA.
    pub slba: U64,
}
layout!(DsmRange, 16, cattr @ 0, blocks @ 4, slba @ 8);

impl DsmRange {
    /// The range as a typed one; `None` when it is empty.
    #[must_use]
    pub fn range(&self) -> Option<LbaRange> {
        LbaRange::new(Lba::new(self.slba.get()), self.blocks.get())
    }
}

/// CDW12 bits that several commands share.
mod cdw12 {
    pub(super) const LR: u32 = 1 << 31;
    pub(super) const FUA: u32 = 1 << 30;
    /// PRINFO 29:26 and STC 24.
    pub(super) const PROTECTION: u32 = 0x3d00_0000;
    pub(super) const DEAC: u32 = 1 << 25;
    /// Directive Type 23:20: no directive is ever enabled here, so any is refused.
    pub(super) const DTYPE: u32 = 0x00f0_0000;
    /// Command Extension Type 19:16: Key Per I/O is not supported, so any is refused.
    pub(super) const CETYPE: u32 = 0x000f_0000;
    pub(super) const NLB: u32 = 0xffff;
    /// What Read, Write, Compare and Verify know.
    pub(super) const TRANSFER: u32 = LR | FUA | PROTECTION | NLB;
}

impl Command {
    /// Reads an entry of an I/O queue: a typed command, or why not.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let fused = sqe.check_flags()?;
        match (sqe.opcode, fused) {
            (io::READ, Fused::Normal) => Read::parse(sqe).map(Self::Read),
            (io::WRITE, Fused::Normal | Fused::Second) => Write::parse(sqe).map(Self::Write),
            (io::COMPARE, Fused::Normal | Fused::First) => Compare::parse(sqe).map(Self::Compare),
            (opcode, Fused::First | Fused::Second) if io::known(opcode).is_some() => {
                Err(Refusal::at(Reason::Fused, 0, 8))
            }
            _ => Self::parse_rest(sqe),
        }
    }

    fn parse_rest(sqe: &Sqe) -> Result<Self, Refusal> {
        match sqe.opcode {
            io::FLUSH => flush(sqe),
            io::WRITE_ZEROES => WriteZeroes::parse(sqe).map(Self::WriteZeroes),
            io::WRITE_UNCORRECTABLE => write_uncorrectable(sqe),
            io::VERIFY => Verify::parse(sqe).map(Self::Verify),
            io::DATASET_MANAGEMENT => DatasetManagement::parse(sqe).map(Self::DatasetManagement),
            io::COPY => Copy::parse(sqe).map(Self::Copy),
            io::RESERVATION_REGISTER => {
                reservation::Register::parse(sqe).map(Self::ReservationRegister)
            }
            io::RESERVATION_ACQUIRE => {
                reservation::Acquire::parse(sqe).map(Self::ReservationAcquire)
            }
            io::RESERVATION_RELEASE => {
                reservation::Release::parse(sqe).map(Self::ReservationRelease)
            }
            io::RESERVATION_REPORT => reservation::Report::parse(sqe).map(Self::ReservationReport),
            _ => Err(Refusal::at(Reason::Opcode, 0, 0)),
        }
    }

    /// The logical blocks the command addresses by its entry; those of Dataset Management and the
    /// sources of Copy are in the data.
    #[must_use]
    pub const fn range(&self) -> Option<LbaRange> {
        match self {
            Self::Read(read) => Some(read.range),
            Self::Write(write) => Some(write.range),
            Self::Compare(compare) => Some(compare.range),
            Self::WriteZeroes(zeroes) => Some(zeroes.range),
            Self::WriteUncorrectable(range) => Some(*range),
            Self::Verify(verify) => Some(verify.range),
            _ => None,
        }
    }
}

impl Read {
    /// Reads the fields of a Read; opcode and flags are [`Command::parse`]'s.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw12 = reserved_clear(sqe, cdw12::TRANSFER)?;
        Ok(Self { range: range(sqe), fua: fua(cdw12), limited_retry: limited_retry(cdw12) })
    }

    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16, nsid: u32) -> Sqe {
        entry(io::READ, cid, nsid, self.range, flags(self.fua, self.limited_retry))
    }
}

impl Write {
    /// Reads the fields of a Write; opcode and flags are [`Command::parse`]'s.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw12 = reserved_clear(sqe, cdw12::TRANSFER | cdw12::DTYPE)?;
        if cdw12 & cdw12::DTYPE != 0 {
            return Err(Refusal::at(Reason::Value, 12, 20));
        }
        Ok(Self {
            range: range(sqe),
            fua: fua(cdw12),
            limited_retry: limited_retry(cdw12),
            fused: sqe.fused() == Some(Fused::Second),
        })
    }

    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16, nsid: u32) -> Sqe {
        let bits = flags(self.fua, self.limited_retry);
        let mut sqe = entry(io::WRITE, cid, nsid, self.range, bits);
        if self.fused {
            sqe.set_fused(Fused::Second);
        }
        sqe
    }
}

impl Compare {
    /// Reads the fields of a Compare; opcode and flags are [`Command::parse`]'s.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw12 = reserved_clear(sqe, cdw12::TRANSFER)?;
        Ok(Self {
            range: range(sqe),
            fua: fua(cdw12),
            limited_retry: limited_retry(cdw12),
            fused: sqe.fused() == Some(Fused::First),
        })
    }

    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16, nsid: u32) -> Sqe {
        let bits = flags(self.fua, self.limited_retry);
        let mut sqe = entry(io::COMPARE, cid, nsid, self.range, bits);
        if self.fused {
            sqe.set_fused(Fused::First);
        }
        sqe
    }
}

impl Verify {
    /// Reads the fields of a Verify.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw12 = reserved_clear(sqe, cdw12::TRANSFER)?;
        Ok(Self { range: range(sqe), fua: fua(cdw12), limited_retry: limited_retry(cdw12) })
    }

    /// The entry a host sends.
    #[must_use]
    pub fn to_sqe(self, cid: u16, nsid: u32) -> Sqe {
        entry(io::VERIFY, cid, nsid, self.range, flags(self.fua, self.limited_retry))
    }
}

impl WriteZeroes {
    /// Reads the fields of a Write Zeroes. NSZ (bit 23) is among the bits refused: ONCS does not
    /// offer it.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw12 = reserved_clear(sqe, cdw12::TRANSFER | cdw12::DEAC)?;
        Ok(Self {
            range: range(sqe),
            fua: fua(cdw12),
            limited_retry: limited_retry(cdw12),
            deallocate: cdw12 & cdw12::DEAC != 0,
        })
    }

    /// The entry a host sends.
    #[must_use]
    pub fn to_sqe(self, cid: u16, nsid: u32) -> Sqe {
        let deac = if self.deallocate { cdw12::DEAC } else { 0 };
        let bits = flags(self.fua, self.limited_retry) | deac;
        entry(io::WRITE_ZEROES, cid, nsid, self.range, bits)
    }
}

impl DatasetManagement {
    /// Reads the fields of a Dataset Management command.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let (cdw10, cdw11) = (sqe.cdw10.get(), sqe.cdw11.get());
        if cdw10 & !0xff != 0 {
            return Err(Refusal::at(Reason::Reserved, 10, 8));
        }
        if cdw11 & !0x07 != 0 {
            return Err(Refusal::at(Reason::Reserved, 11, 3));
        }
        Ok(Self {
            ranges: ZeroBased8::from_raw(low8(cdw10.into())),
            integral_read: cdw11 & 1 != 0,
            integral_write: cdw11 & 2 != 0,
            deallocate: cdw11 & 4 != 0,
        })
    }

    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16, nsid: u32) -> Sqe {
        let mut sqe = Sqe::new(io::DATASET_MANAGEMENT, cid, nsid);
        sqe.cdw10 = u32::from(self.ranges.raw()).into();
        sqe.cdw11 = (u32::from(self.integral_read)
            | u32::from(self.integral_write) << 1
            | u32::from(self.deallocate) << 2)
            .into();
        sqe
    }
}

/// Flush (section 7.2): every command specific field is reserved.
fn flush(sqe: &Sqe) -> Result<Command, Refusal> {
    let rest = [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15];
    for (dword, value) in (10..).zip(rest) {
        if value.get() != 0 {
            return Err(Refusal::at(Reason::Reserved, dword, 0));
        }
    }
    Ok(Command::Flush)
}

/// Write Uncorrectable (NVM Command Set 3.3.7).
fn write_uncorrectable(sqe: &Sqe) -> Result<Command, Refusal> {
    reserved_clear(sqe, cdw12::NLB)?;
    Ok(Command::WriteUncorrectable(range(sqe)))
}

fn range(sqe: &Sqe) -> LbaRange {
    let blocks = ZeroBased16::from_raw(low16(sqe.cdw12.get().into()));
    LbaRange::from_wire(Lba::new(slba(sqe)), blocks)
}

fn slba(sqe: &Sqe) -> u64 {
    u64::from(sqe.cdw11.get()) << 32 | u64::from(sqe.cdw10.get())
}

const fn fua(cdw12: u32) -> bool {
    cdw12 & cdw12::FUA != 0
}

const fn limited_retry(cdw12: u32) -> bool {
    cdw12 & cdw12::LR != 0
}

/// CDW12, when nothing outside `known` is set in it.
fn reserved_clear(sqe: &Sqe, known: u32) -> Result<u32, Refusal> {
    let cdw12 = sqe.cdw12.get();
    let unknown = cdw12 & !known;
    if unknown == 0 {
        return Ok(cdw12);
    }
    let reason = if unknown & cdw12::CETYPE != 0 { Reason::Value } else { Reason::Reserved };
    Err(Refusal::at(reason, 12, low8(unknown.trailing_zeros().into())))
}

const fn flags(fua: bool, limited_retry: bool) -> u32 {
    (fua as u32) << 30 | (limited_retry as u32) << 31
}

/// An entry over `range`, of which the wire can say at most 65,536 blocks.
///
/// # Panics
/// When the range is longer: the caller splits transfers.
fn entry(opcode: u8, cid: u16, nsid: u32, range: LbaRange, bits: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, cid, nsid);
    let [a, b, c, d, e, f, g, h] = range.start().get().to_le_bytes();
    sqe.cdw10 = u32::from_le_bytes([a, b, c, d]).into();
    sqe.cdw11 = u32::from_le_bytes([e, f, g, h]).into();
    let blocks = range.to_wire().expect("a range of one command has at most 65,536 blocks");
    sqe.cdw12 = (u32::from(blocks.raw()) | bits).into();
    sqe
}

#[cfg(test)]
mod tests;
