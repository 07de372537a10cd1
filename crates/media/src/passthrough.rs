//! A namespace of an NVMe drive, which gets commands as they are and whose answers are what they are: by its generic
//! character device.
//!
//! Offsets and lengths are in bytes, and multiples of the namespace's blocks. A command that is longer than the drive
//! or the kernel takes goes in parts, in order.

mod described;

pub use described::Described;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nvme::nvm::DsmRange;
use nvme::opcode::io;
use nvme::status::Status;
use reactor::buffer::{self, Buffer};
use reactor::passthrough::{Command, Completion, Device, Pace};
use stdx::num::{low16, low32, u64_of, usize32, usize64};
use zerocopy::IntoBytes;

use crate::drive::again::Again;
use crate::drive::deadline;
use crate::error::{Error, Kind, Operation};
use crate::limits::{TRANSFER_MAX, ZERO_CHUNK};

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The drive says so. Without the flags that speak of its own logs and times.
    #[error("the drive answers {0}")]
    Drive(Status),
    /// It is not the drive's word.
    #[error(transparent)]
    Media(#[from] Error),
}

/// What a command does of its own accord.
pub type Answer<T> = Result<T, Failure>;

/// Force Unit Access, of Command Dword 12.
const FUA: u32 = 1 << 30;
/// Deallocate, of Write Zeroes.
const DEAC: u32 = 1 << 25;
/// Attribute Deallocate, of Dataset Management.
const AD: u32 = 1 << 2;
/// Logical blocks that one command names at most.
const BLOCKS_MAX: u64 = 1 << 16;

/// A namespace of an NVMe drive.
#[derive(Debug)]
pub struct Passthrough {
    device: Device,
    described: Described,
    /// The most bytes that one command moves.
    transfer: usize,
    /// The kernel has the drive no more.
    gone: AtomicBool,
}

/// Where a command is.
#[derive(Clone, Copy)]
struct Span {
    operation: Operation,
    offset: u64,
    len: u64,
}

impl Span {
    const fn error(self, kind: Kind) -> Error {
        Error::new(kind, self.operation, self.offset, self.len)
    }
}

impl Passthrough {
    /// Opens the namespace whose generic character device is at `path`. One command moves `transfer` bytes at most as
    /// far as the kernel is concerned, a power of two. Asks the drive what it is. Blocks: for set-up.
    ///
    /// # Errors
    /// As the system calls; `Unsupported`, with words, for a format that is not served.
    pub fn open(path: &Path, transfer: u32) -> Result<Self, Error> {
        let device = Device::open(path, deadline())
            .map_err(|source| Error::from_io(source, Operation::Open, 0, 0))?;
        let described = Described::ask(&device)?;
        let transfer = described.transfer_max().min(transfer);
        let transfer = usize32(transfer).min(TRANSFER_MAX);
        Ok(Self { device, described, transfer, gone: AtomicBool::new(false) })
    }

    /// What the drive says of the namespace and of itself.
    #[must_use]
    pub const fn described(&self) -> &Described {
        &self.described
    }

    /// Whether nobody else can still change what the drive keeps: neither who has it open, nor the kernel, with commands of
    /// a process that was killed.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.device.is_alone()
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.described.bytes()
    }

    /// Bytes of a logical block: 512 or 4096.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.described.block_size()
    }

    /// The most bytes that go to the drive as one command.
    #[must_use]
    pub const fn transfer(&self) -> usize {
        self.transfer
    }

    /// Whether the kernel has the drive no more: nothing that is begun from now on succeeds.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Has nothing be begun any more: the drive is gone, or is another now.
    pub fn give_up(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Reads `len` bytes at `offset` into a buffer of this reactor's pool.
    ///
    /// # Errors
    /// What the drive says, and what keeps commands from it.
    pub async fn read(&self, offset: u64, len: usize) -> Answer<Buffer> {
        let buffer = buffer::alloc(len).await;
        self.transfer_all(io::READ, Operation::Read, offset, buffer, 0).await
    }

    /// Writes what `data` shows at `offset`; with `fua` each of the drive's commands is durable when it ends.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn write(&self, offset: u64, data: Buffer, fua: bool) -> Answer<()> {
        let flags = if fua { FUA } else { 0 };
        self.transfer_all(io::WRITE, Operation::Write, offset, data, flags).await.map(drop)
    }

    /// Has the drive compare what `data` shows with what it has at `offset`.
    ///
    /// # Errors
    /// As [`read`](Self::read): Compare Failure is the drive's word.
    pub async fn compare(&self, offset: u64, data: Buffer) -> Answer<()> {
        self.transfer_all(io::COMPARE, Operation::Compare, offset, data, 0).await.map(drop)
    }

    /// The index of the first byte that differs from `data` at `offset`, if any does, by reading. The caller may hold
    /// `data` in a pool buffer.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn mismatch(&self, offset: u64, data: &[u8]) -> Answer<Option<usize>> {
        let mut done = 0;
        for part in data.chunks(crate::limits::COMPARE_CHUNK) {
            let at = offset + u64_of(done);
            let buffer = buffer::scratch(part.len()).await;
            let stored = self.transfer_all(io::READ, Operation::Read, at, buffer, 0).await?;
            if let Some(differs) = stored.iter().zip(part).position(|(a, b)| a != b) {
                return Ok(Some(done + differs));
            }
            done += part.len();
        }
        Ok(None)
    }

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn flush(&self) -> Answer<()> {
        let span = Span { operation: Operation::Flush, offset: 0, len: 0 };
        let command = Command { opcode: io::FLUSH, ..Command::default() };
        self.run(&command, None, span, Pace::Transfer).await.map(drop)
    }

    /// Makes a range read as zeroes; with `deallocate` the drive may give its space back. A drive without Write Zeroes
    /// is sent zeroes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        deallocate: bool,
        fua: bool,
    ) -> Answer<()> {
        if !self.described.has_write_zeroes() {
            return self.write_zero_bytes(offset, len, fua).await;
        }
        let flags = if deallocate { DEAC } else { 0 } | if fua { FUA } else { 0 };
        let most = self.described.zeroes_max();
        self.over(io::WRITE_ZEROES, Operation::WriteZeroes, offset, len, most, flags).await
    }

    async fn write_zero_bytes(&self, offset: u64, len: u64, fua: bool) -> Answer<()> {
        let mut done = 0;
        while done < len {
            let n = (len - done).min(u64_of(ZERO_CHUNK));
            let mut zeroes = buffer::alloc(usize64(n)).await;
            zeroes.fill(0);
            self.write(offset + done, zeroes, fua).await?;
            done += n;
        }
        Ok(())
    }

    /// Has the drive check a range, of which nothing is moved. A drive without Verify is read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn verify(&self, offset: u64, len: u64) -> Answer<()> {
        if !self.described.has_verify() {
            return self.read(offset, usize64(len)).await.map(drop);
        }
        let most = self.described.verify_max();
        self.over(io::VERIFY, Operation::Verify, offset, len, most, 0).await
    }

    /// Has a range give an error when it is read, until it is written.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn write_uncorrectable(&self, offset: u64, len: u64) -> Answer<()> {
        let most = self.described.uncorrectable_max();
        self.over(io::WRITE_UNCORRECTABLE, Operation::Write, offset, len, most, 0).await
    }

    /// Tells the drive that a range is needed no more.
    ///
    /// # Errors
    /// As [`read`](Self::read); `Unsupported` for a drive without Dataset Management.
    pub async fn deallocate(&self, offset: u64, len: u64) -> Answer<()> {
        let span = Span { operation: Operation::Deallocate, offset, len };
        if !self.described.has_dataset_management() {
            return Err(span.error(Kind::Unsupported).into());
        }
        let block = u64::from(self.block_size());
        let most = self.described.deallocate_max();
        let mut done = 0;
        while done < len {
            let n = (len - done).min(most);
            let mut list = buffer::alloc(size_of::<DsmRange>()).await;
            let range = DsmRange {
                cattr: 0.into(),
                blocks: low32(n / block).into(),
                slba: ((offset + done) / block).into(),
            };
            list.copy_from_slice(range.as_bytes());
            let command = Command {
                opcode: io::DATASET_MANAGEMENT,
                // One range, 0's based.
                cdw10: [0, AD, 0, 0, 0, 0],
                ..Command::default()
            };
            self.run(&command, Some(list), span, Pace::Space).await?;
            done += n;
        }
        Ok(())
    }

    /// A command that moves the bytes of `buffer`, in parts.
    async fn transfer_all(
        &self,
        opcode: u8,
        operation: Operation,
        offset: u64,
        mut buffer: Buffer,
        flags: u32,
    ) -> Answer<Buffer> {
        let (start, whole) = (buffer.start(), buffer.len());
        let mut done = 0;
        while done < whole {
            let n = (whole - done).min(self.transfer);
            let span = Span { operation, offset: offset + u64_of(done), len: u64_of(n) };
            buffer.show(start + done, n);
            let command = ranged(self.block_size(), opcode, span, flags);
            let (_, back) = self.run(&command, Some(buffer), span, Pace::Transfer).await?;
            buffer = back.ok_or_else(|| span.error(Kind::Medium))?;
            done += n;
        }
        buffer.show(start, whole);
        Ok(buffer)
    }

    /// A command without data on a range, of at most `most` bytes at once.
    async fn over(
        &self,
        opcode: u8,
        operation: Operation,
        offset: u64,
        len: u64,
        most: u64,
        flags: u32,
    ) -> Answer<()> {
        let mut done = 0;
        while done < len {
            let n = (len - done).min(most);
            let span = Span { operation, offset: offset + done, len: n };
            let command = ranged(self.block_size(), opcode, span, flags);
            self.run(&command, None, span, Pace::Space).await?;
            done += n;
        }
        Ok(())
    }

    /// Has the drive execute a command, again where the kernel could not take it just now.
    async fn run(
        &self,
        command: &Command,
        buffer: Option<Buffer>,
        span: Span,
        pace: Pace,
    ) -> Answer<(Completion, Option<Buffer>)> {
        let changes = !matches!(
            span.operation,
            Operation::Read | Operation::Compare | Operation::Verify | Operation::Flush
        );
        let (mut again, mut buffer) = (Again::default(), buffer);
        let has_data = buffer.is_some();
        loop {
            if self.is_gone() {
                return Err(span.error(Kind::Gone).into());
            }
            if changes && self.device.late_changes() > 0 {
                return Err(span.error(Kind::Timeout).into());
            }
            let (done, back) = self.device.run(command, buffer.take(), pace, changes).await;
            let error = match done.map(|completion| (completion, outcome(completion))) {
                Ok((completion, Outcome::Success)) => return Ok((completion, back)),
                Ok((_, Outcome::Drive(status))) => return Err(Failure::Drive(status)),
                Ok((_, Outcome::Kernel)) => span.error(Kind::Passing),
                Err(source) => self.failed(source, span),
            };
            if (has_data && back.is_none()) || !again.pause(&error).await {
                return Err(error.into());
            }
            buffer = back;
        }
    }

    /// What the kernel's error means.
    fn failed(&self, source: std::io::Error, span: Span) -> Error {
        let kind = match source.raw_os_error() {
            // It gave the command up: late, or with its drive.
            Some(libc::EINTR) => Some(Kind::Timeout),
            // What it says of a drive of several controllers none of which is there just now.
            Some(libc::EINVAL) => Some(Kind::Passing),
            // It is root's, where the drive says that the command is none for everybody.
            Some(libc::EACCES | libc::EPERM) => Some(Kind::Unsupported),
            _ => None,
        };
        let mut error = Error::from_io(source, span.operation, span.offset, span.len);
        error.kind = kind.unwrap_or(error.kind);
        if error.kind == Kind::Gone {
            self.give_up();
        }
        error
    }
}

/// A command that names a range by SLBA and NLB.
fn ranged(block: u32, opcode: u8, span: Span, flags: u32) -> Command {
    let block = u64::from(block);
    let (slba, blocks) = (span.offset / block, span.len / block);
    debug_assert!(span.offset.is_multiple_of(block) && span.len.is_multiple_of(block));
    debug_assert!((1..=BLOCKS_MAX).contains(&blocks));
    let nlb = u32::from(low16(blocks - 1));
    let cdw10 = [low32(slba), low32(slba >> 32), flags | nlb, 0, 0, 0];
    Command { opcode, cdw10, ..Command::default() }
}

/// Whose word a completion is.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Success,
    /// The drive refuses, or failed.
    Drive(Status),
    /// The kernel made it up for a command that did not reach the drive, or was aborted with its controller.
    Kernel,
}

/// Status codes of paths, SCT 3h, are what hosts say to themselves: Linux does in place of a drive that it cannot reach.
const PATH_RELATED: u8 = 3;

fn outcome(completion: Completion) -> Outcome {
    let status = Status::from_field(completion.status << 1);
    if status.is_success() {
        return Outcome::Success;
    }
    if status.code_type() == PATH_RELATED {
        return Outcome::Kernel;
    }
    let plain = status.kind();
    Outcome::Drive(if status.dnr() { plain.with_dnr() } else { plain })
}

#[cfg(test)]
mod tests;
