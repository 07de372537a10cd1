//! A namespace of an NVMe drive, which gets commands as they are and whose answers are what they are: by its generic
//! character device.
//!
//! Offsets and lengths are in bytes, and multiples of the namespace's blocks. A command that is longer than the drive
//! or the kernel takes goes in parts, in order.

mod admin;
mod described;
mod link;

pub use described::Described;
pub use link::{Script, Sent};

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nvme::nvm::{CopyDescriptor, CopyRange0, DsmRange, LbaRange};
use nvme::opcode::io;
use nvme::status::Status;
use reactor::buffer::{self, Buffer};
use reactor::passthrough::{Command, Completion, Pace};
use stdx::num::{low16, low32, u64_of, usize32, usize64};
use zerocopy::IntoBytes;

use admin::Health;

use crate::drive::again::Again;
use crate::error::{Error, Kind, Operation};
use crate::limits::{DSM_RANGES_MAX, TRANSFER_MAX, ZERO_CHUNK};
use link::Link;

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

impl Failure {
    /// Whether it was not even tried: the drive has no such command, or the kernel leaves it to root.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Drive(status) => status.kind() == Status::INVALID_OPCODE,
            Self::Media(error) => error.kind == Kind::Unsupported,
        }
    }
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
    link: Link,
    described: Described,
    /// The most bytes that one command moves.
    transfer: usize,
    /// The kernel has the drive no more.
    gone: AtomicBool,
    /// Blocks that were allocated when the drive was asked last (NUSE), and when that was, in nanoseconds.
    used: AtomicU64,
    used_asked: AtomicU64,
    /// Why it cannot be asked how it is, if it cannot, and whether that was told of.
    silence: Option<Error>,
    silence_told: AtomicBool,
    /// Copies by itself: says so, and has not refused it.
    copies: AtomicBool,
    health: Health,
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
        Self::of(Link::open(path)?, transfer)
    }

    /// What answers in place of a drive, as a script says: for tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn scripted(script: Script, transfer: u32) -> Result<Self, Error> {
        Self::of(Link::Script(script), transfer)
    }

    fn of(link: Link, transfer: u32) -> Result<Self, Error> {
        let described = Described::ask(&link)?;
        let silence = admin::silence(&link, &described);
        let transfer = described.transfer_max().min(transfer);
        let transfer = usize32(transfer).min(TRANSFER_MAX);
        Ok(Self {
            transfer,
            gone: AtomicBool::new(false),
            used: AtomicU64::new(described.namespace.nuse.get()),
            used_asked: AtomicU64::new(0),
            silence,
            silence_told: AtomicBool::new(false),
            copies: AtomicBool::new(described.copy_max() > 0),
            health: Health::default(),
            link,
            described,
        })
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
        self.link.is_alone()
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

    /// The most bytes that are made zeroes by one command.
    #[must_use]
    pub fn zeroes_piece(&self) -> u64 {
        match self.described.has_write_zeroes() {
            true => self.described.zeroes_max(),
            false => u64_of(ZERO_CHUNK.min(self.transfer)),
        }
    }

    /// The most bytes that one Write Uncorrectable names.
    #[must_use]
    pub fn uncorrectable_piece(&self) -> u64 {
        self.described.uncorrectable_max()
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

    /// Ranges as the drive takes them: what each Dataset Management names, of which there are as few as it takes. Nothing
    /// for a drive without that command.
    pub fn deallocations(&self, ranges: &[LbaRange]) -> impl Iterator<Item = Vec<DsmRange>> {
        let (count_max, range_max, blocks_max) = self.described.deallocate_limits();
        let count_max = count_max.min(DSM_RANGES_MAX);
        let ranges = if self.described.has_dataset_management() { ranges } else { &[] };
        let pieces = ranges.iter().flat_map(move |range| cut(*range, range_max.min(blocks_max)));
        let mut pieces = pieces.peekable();
        std::iter::from_fn(move || {
            let (mut list, mut listed) = (Vec::new(), 0);
            while list.len() < count_max {
                let fits =
                    |(_, blocks): &(u64, u32)| listed + u64::from(*blocks) <= u64::from(blocks_max);
                let Some((slba, blocks)) = pieces.next_if(fits) else { break };
                list.push(DsmRange { cattr: 0.into(), blocks: blocks.into(), slba: slba.into() });
                listed += u64::from(blocks);
            }
            (!list.is_empty()).then_some(list)
        })
    }

    /// Tells the drive that the ranges of [one of its commands](Self::deallocations) are needed no more.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn deallocate(&self, ranges: &[DsmRange]) -> Answer<()> {
        let Some(first) = ranges.first() else { return Ok(()) };
        let block = u64::from(self.block_size());
        let span = Span {
            operation: Operation::Deallocate,
            offset: first.slba.get() * block,
            len: u64::from(first.blocks.get()) * block,
        };
        let mut list = buffer::alloc(size_of_val(ranges)).await;
        list.copy_from_slice(ranges.as_bytes());
        // 0's based.
        let count = low32(u64_of(ranges.len() - 1));
        let command = Command {
            opcode: io::DATASET_MANAGEMENT,
            cdw10: [count, AD, 0, 0, 0, 0],
            ..Command::default()
        };
        self.run(&command, Some(list), span, Pace::Space).await.map(drop)
    }

    /// Whether the drive copies by itself, as far as is known.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.copies.load(Ordering::Relaxed)
    }

    /// Has the drive copy `len` bytes from `source` to `destination`, which do not overlap. `false`, from then on, where
    /// it says that it does and does not, or the kernel leaves that to root: what was copied by then may be copied again.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn copy(&self, source: u64, destination: u64, len: u64) -> Answer<bool> {
        let block = u64::from(self.block_size());
        let most = u64::from(self.described.copy_max()) * block;
        let mut done = 0;
        while done < len && most > 0 {
            let n = (len - done).min(most);
            let span = Span { operation: Operation::Write, offset: destination + done, len: n };
            let mut list = buffer::alloc(size_of::<CopyRange0>()).await;
            let head = CopyDescriptor {
                slba: ((source + done) / block).into(),
                nlb: low16(n / block - 1).into(),
                ..CopyDescriptor::default()
            };
            list.copy_from_slice(CopyRange0 { head, ..CopyRange0::default() }.as_bytes());
            let to = span.offset / block;
            // Format 0h, one source range, 0's based.
            let cdw10 = [low32(to), low32(to >> 32), 0, 0, 0, 0];
            let command = Command { opcode: io::COPY, cdw10, ..Command::default() };
            match self.run(&command, Some(list), span, Pace::Space).await {
                Ok(_) => done += n,
                Err(failure) if failure.is_refusal() => {
                    self.copies.store(false, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(done == len)
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
            if changes && self.link.late_changes() > 0 {
                return Err(span.error(Kind::Timeout).into());
            }
            let (done, back) = self.link.run(command, buffer.take(), pace, changes).await;
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

/// A range in pieces of `most` blocks at most: their first blocks, and how many.
fn cut(range: LbaRange, most: u32) -> impl Iterator<Item = (u64, u32)> {
    let (start, blocks) = (range.start().get(), range.blocks());
    let step = most.max(1);
    (0..blocks)
        .step_by(usize32(step))
        .map(move |at| (start + u64::from(at), (blocks - at).min(step)))
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
