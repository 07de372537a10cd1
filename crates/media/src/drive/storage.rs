//! Files and block devices: direct I/O, aligned whatever is asked.

use crate::error::{Error, Kind, Operation, Refused};
use crate::limits::{SPACE_DEADLINE, TRANSFER_DEADLINE, TRANSFER_MAX, ZERO_CHUNK};
use reactor::buffer::{self, Buffer, Pool};
use reactor::file::{Deadline, File, Kind as FileKind, OpenOptions};
use reactor::yield_now;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use stdx::num::{align_down, align_up, u64_of, usize32, usize64};

/// How long drives may take, unless told otherwise.
pub const DEADLINE: Deadline = Deadline { transfer: TRANSFER_DEADLINE, space: SPACE_DEADLINE };

/// How long drives of this process may take, in nanoseconds: the operator's word on all of them, wherever they are opened.
static WITHIN: [AtomicU64; 2] =
    [AtomicU64::new(nanos(DEADLINE.transfer)), AtomicU64::new(nanos(DEADLINE.space))];

#[allow(clippy::cast_possible_truncation, reason = "500 years fit")]
const fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// Has drives that are opened from now on take so long at most.
pub fn set_deadline(deadline: Deadline) {
    for (place, within) in WITHIN.iter().zip([deadline.transfer, deadline.space]) {
        place.store(nanos(within), Ordering::Relaxed);
    }
}

/// How long drives that are opened now may take.
#[must_use]
pub fn deadline() -> Deadline {
    let [transfer, space] =
        [0, 1].map(|place: usize| Duration::from_nanos(WITHIN[place].load(Ordering::Relaxed)));
    Deadline { transfer, space }
}

/// How a file or device is opened as a drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenDrive {
    /// Opens for reading only.
    pub read_only: bool,
    /// Creates a file of this many bytes when there is none.
    pub create: Option<u64>,
    /// Goes through the page cache although direct I/O would do.
    pub buffered: bool,
    /// The logical block writes will come in, in bytes; 0 for the drive's own.
    pub block_size: u32,
    /// Refused while another has it open like this: what belongs to a pool has one owner.
    pub exclusive: bool,
}

/// A file or block device as a drive.
#[derive(Debug)]
pub struct Storage {
    file: File,
    capacity: AtomicU64,
    /// What offsets and lengths of direct I/O are multiples of.
    align: u64,
    /// Writes may cover parts of `align` units, and must take turns then.
    partial: bool,
    gate: Gate,
    failure: OnceLock<Kind>,
}

impl Storage {
    pub(super) fn open(path: &Path, options: OpenDrive) -> Result<Self, Error> {
        let wrap = |e| Error::from_io(e, Operation::Open, 0, 0);
        let create = options.create.is_some() && !path.exists();
        let file = File::open(
            path,
            OpenOptions {
                write: !options.read_only,
                create,
                direct: !options.buffered,
                exclusive: options.exclusive,
                deadline: Some(deadline()),
            },
        )
        .map_err(wrap)?;
        if let (true, Some(bytes)) = (create, options.create) {
            file.set_size(bytes).map_err(|error| {
                // It would be taken for a drive the next time.
                let _ = std::fs::remove_file(path);
                wrap(error)
            })?;
        }
        let mut capacity = file.size().map_err(wrap)?;
        if let (0, FileKind::Regular, Some(bytes), false) =
            (capacity, file.kind(), options.create, options.read_only)
        {
            // Whoever made it ended before it had its size.
            file.set_size(bytes).map_err(wrap)?;
            capacity = bytes;
        }
        let align = u64::from(file.align());
        let block = if options.block_size == 0 { 512 } else { options.block_size };
        // A file's last, partial unit could not be reached with direct I/O.
        let capacity = align_down(capacity, align.max(512));
        if capacity == 0 {
            // A device that died has no bytes left.
            let is_file = matches!(file.kind(), FileKind::Regular);
            let kind = if is_file { Kind::Unsupported } else { Kind::Gone };
            return Err(Error::new(kind, Operation::Open, 0, 0));
        }
        Ok(Self {
            file,
            capacity: AtomicU64::new(capacity),
            align,
            partial: align > u64::from(block),
            gate: Gate::default(),
            failure: OnceLock::new(),
        })
    }

    pub(super) fn is_alone(&self) -> bool {
        self.file.is_alone()
    }

    pub(super) fn unmark(&self) {
        self.file.unmark();
    }

    pub(super) fn is_block_device(&self) -> bool {
        self.file.kind() != FileKind::Regular
    }

    pub(super) fn device_number(&self) -> Option<(u32, u32)> {
        match self.file.kind() {
            FileKind::Block { major, minor } => Some((major, minor)),
            FileKind::Regular | FileKind::Character => None,
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(super) fn capacity_now(&self) -> Option<u64> {
        self.file.size().ok()
    }

    pub(super) fn logical_block(&self) -> u32 {
        self.file.logical_block()
    }

    pub(super) fn has_volatile_cache(&self) -> bool {
        self.file.has_volatile_cache()
    }

    pub(super) fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    pub(super) fn unmaps_with_zeroes(&self) -> bool {
        self.file.unmaps_with_zeroes()
    }

    pub(super) fn failure(&self) -> Option<Kind> {
        self.failure.get().copied()
    }

    pub(super) fn has_late_changes(&self) -> bool {
        self.file.has_unawaited_changes()
    }

    pub(super) fn begin_change(&self) -> reactor::file::Change {
        self.file.begin_change()
    }

    pub(super) fn has_changes(&self) -> bool {
        self.file.has_changes()
    }

    pub(super) fn resize(&self, len: u64) -> Result<(), Error> {
        let error = |kind| Error::new(kind, Operation::Resize, 0, len);
        let wrap = |e| Error::from_io(e, Operation::Resize, 0, len);
        if len == 0 || !len.is_multiple_of(self.align.max(512)) {
            return Err(error(Kind::Unsupported));
        }
        if self.is_block_device() {
            if len > self.file.size().map_err(wrap)? {
                return Err(error(Kind::Unsupported));
            }
        } else {
            self.file.set_size(len).map_err(wrap)?;
        }
        self.capacity.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses what changes the drive once a failure latched, or while a change from before may still come.
    fn writable(&self, operation: Operation, offset: u64, len: u64) -> Result<(), Error> {
        if self.failure.get().is_some() {
            return Err(Error::new(Kind::Latched, operation, offset, len));
        }
        match self.file.late_changes() {
            0 => Ok(()),
            _ => Err(Error::new(Kind::Timeout, operation, offset, len)),
        }
    }

    /// Latches what cannot be got over: a drive that is gone, or a flush that failed.
    fn failed(&self, e: std::io::Error, operation: Operation, offset: u64, len: u64) -> Error {
        let mut error = Error::from_io(e, operation, offset, len);
        if self.is_gone(error.kind) {
            error = Error::new(Kind::Gone, operation, offset, len);
        }
        let flush_lost = operation == Operation::Flush && !self.may_flush_again(&error);
        if error.kind == Kind::Gone || flush_lost {
            // The first one stays.
            let _ = self.failure.set(error.kind);
        }
        error
    }

    /// Whether a flush that failed left everything as it was. What was in the page cache may have been dropped
    /// when memory was short.
    fn may_flush_again(&self, error: &Error) -> bool {
        error.kind == Kind::Passing && self.file.is_direct()
    }

    /// Whether what ends like this is a device that died.
    fn is_gone(&self, kind: Kind) -> bool {
        let fails = matches!(kind, Kind::Full | Kind::Medium);
        fails && self.is_block_device() && has_died(self.file.size().ok(), self.capacity())
    }

    /// A read that found nothing, or a write that left nothing.
    fn nothing_done(&self, operation: Operation, offset: u64, len: u64) -> Error {
        if !self.is_gone(Kind::Medium) {
            return Error::new(Kind::Medium, operation, offset, len);
        }
        let _ = self.failure.set(Kind::Gone);
        Error::new(Kind::Gone, operation, offset, len)
    }

    /// What of a buffer is before the bytes that are read at `offset`, and how long it must be.
    fn spread(&self, offset: u64, len: usize) -> (usize, usize) {
        let before = usize64(offset - align_down(offset, self.align));
        (before, usize64(align_up(u64_of(before + len), self.align).unwrap_or(0)))
    }

    /// Memory to read into.
    pub(super) async fn buffer(&self, offset: u64, len: usize, pool: &Pool) -> Buffer {
        pool.alloc(self.spread(offset, len).1).await
    }

    /// Reads into a buffer that was made for it.
    pub(super) async fn fill(
        &self,
        offset: u64,
        len: usize,
        mut buffer: Buffer,
    ) -> Result<Buffer, Refused> {
        let (before, whole) = self.spread(offset, len);
        buffer.show(0, whole);
        let begin = offset - u64_of(before);
        let mut buffer = self.read_whole(begin, buffer, offset, len).await?;
        buffer.show(before, len);
        Ok(buffer)
    }

    /// Fills `buffer` from `begin`; errors name the range that was asked for.
    async fn read_whole(
        &self,
        begin: u64,
        mut buffer: Buffer,
        offset: u64,
        len: usize,
    ) -> Result<Buffer, Refused> {
        let (start, whole) = (buffer.start(), buffer.len());
        let mut done = 0;
        while done < whole {
            buffer.show(start + done, whole - done);
            let (got, back) = self.file.read_at(buffer, begin + u64_of(done)).await;
            let n = match (got, back) {
                (Ok(n), Some(back)) if n > 0 => {
                    buffer = back;
                    n
                }
                // A drive that ends before its capacity lost a part.
                (Ok(_), _) => {
                    return Err(self.nothing_done(Operation::Read, offset, u64_of(len)).into());
                }
                (Err(e), back) => {
                    let error = self.failed(e, Operation::Read, offset, u64_of(len));
                    return Err(Refused::with(error, back));
                }
            };
            done += n;
        }
        buffer.show(start, whole);
        Ok(buffer)
    }

    pub(super) async fn write(&self, offset: u64, data: Buffer, fua: bool) -> Result<(), Refused> {
        let len = u64_of(data.len());
        self.writable(Operation::Write, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let fits = |n: u64| n.is_multiple_of(self.align);
        if fits(offset) && fits(len) {
            let data = if fits(u64_of(data.start())) { data } else { moved(&data).await };
            let _turn = if self.partial { Some(self.gate.share().await) } else { None };
            return self.write_whole(offset, data, fua).await;
        }
        let done = self.write_partial(offset, &data, fua).await;
        done.map_err(|refused| Refused::with(refused.error, Some(data)))
    }

    async fn write_whole(&self, offset: u64, mut data: Buffer, fua: bool) -> Result<(), Refused> {
        let (start, whole) = (data.start(), data.len());
        let mut done = 0;
        while done < whole {
            data.show(start + done, whole - done);
            let (put, back) = self.file.write_at(data, offset + u64_of(done), fua).await;
            let n = match (put, back) {
                (Ok(n), Some(back)) if n > 0 => {
                    data = back;
                    n
                }
                (Ok(_), _) => {
                    return Err(self.nothing_done(Operation::Write, offset, u64_of(whole)).into());
                }
                (Err(e), mut back) => {
                    if let Some(data) = &mut back {
                        data.show(start, whole);
                    }
                    let error = self.failed(e, Operation::Write, offset, u64_of(whole));
                    return Err(Refused::with(error, back));
                }
            };
            done += n;
        }
        Ok(())
    }

    /// Writes a range whose ends lie within units: reads those, and writes whole units, alone.
    async fn write_partial(&self, offset: u64, data: &Buffer, fua: bool) -> Result<(), Refused> {
        let begin = align_down(offset, self.align);
        let end = align_up(offset + u64_of(data.len()), self.align).unwrap_or(u64::MAX);
        let len = usize64(end - begin);
        // Buffers first, then the gate: whoever is inside waits for nobody.
        let mut whole = buffer::scratch(len).await;
        let _turn = self.gate.alone().await;
        let unit = usize64(self.align);
        whole.show(0, unit);
        whole = self.read_whole(begin, whole, offset, data.len()).await?;
        if len > unit {
            whole.show(len - unit, unit);
            whole = self.read_whole(end - self.align, whole, offset, data.len()).await?;
        }
        whole.show(0, len);
        whole[usize64(offset - begin)..][..data.len()].copy_from_slice(data);
        self.write_whole(begin, whole, fua).await
    }

    pub(super) async fn flush(&self) -> Result<(), Error> {
        self.writable(Operation::Flush, 0, 0)?;
        self.file.sync(true).await.map_err(|e| self.failed(e, Operation::Flush, 0, 0))
    }

    /// Has the file system set space aside for zeroes; a device has its own.
    pub(super) async fn preallocate(&self, offset: u64, len: u64) -> Result<(), Error> {
        if self.is_block_device() {
            return Ok(());
        }
        let operation = Operation::WriteZeroes;
        self.writable(operation, offset, len)?;
        let done = self.file.allocate(offset, len).await;
        match done.map_err(|e| self.failed(e, operation, offset, len)) {
            Err(e) if e.kind == Kind::Unsupported => self.write_zero_bytes(offset, len).await,
            other => other,
        }
    }

    pub(super) async fn deallocate(&self, offset: u64, len: u64) -> Result<(), Error> {
        let operation = Operation::Deallocate;
        self.writable(operation, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        if !self.is_block_device() {
            // The file system zeroes parts of units at its ends: not while a write reads such a unit and writes it anew, which
            // would bring back what was given up.
            let is_whole = [offset, len].iter().all(|n| n.is_multiple_of(self.align));
            let _turn = match self.partial {
                true if is_whole => Some(self.gate.share().await),
                true => Some(self.gate.alone().await),
                false => None,
            };
            let punched = self.file.punch_hole(offset, len).await;
            return punched.map_err(|e| self.failed(e, operation, offset, len));
        }
        // A device frees whole blocks; what is left at the ends stays, as the specification allows,
        // unless zeroes are promised.
        let (Some(from), to) = (align_up(offset, self.align), align_down(offset + len, self.align))
        else {
            return Ok(());
        };
        if self.unmaps_with_zeroes() {
            return self.zero_with(offset, len, Way::Unmap).await;
        }
        if from >= to {
            return Ok(());
        }
        self.file
            .discard(from, to - from)
            .await
            .map_err(|e| self.failed(e, operation, from, to - from))
    }

    pub(super) async fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        deallocate: bool,
    ) -> Result<(), Error> {
        self.writable(Operation::WriteZeroes, offset, len)?;
        let way = if deallocate { Way::Unmap } else { Way::Keep };
        self.zero_with(offset, len, way).await
    }

    /// Zeroes whole units the cheapest way there is, and the parts at both ends by writing.
    async fn zero_with(&self, offset: u64, len: u64, way: Way) -> Result<(), Error> {
        let end = offset + len;
        let to = align_down(end, self.align);
        let from = align_up(offset, self.align).unwrap_or(to);
        if from >= to {
            return self.write_zero_bytes(offset, len).await;
        }
        self.write_zero_bytes(offset, from - offset).await?;
        self.write_zero_bytes(to, end - to).await?;
        let _turn = if self.partial { Some(self.gate.share().await) } else { None };
        let done = match way {
            Way::Unmap => self.file.punch_hole(from, to - from).await,
            Way::Keep => self.file.zero_range(from, to - from).await,
        };
        drop(_turn);
        match done.map_err(|e| self.failed(e, Operation::WriteZeroes, offset, len)) {
            Err(e) if e.kind == Kind::Unsupported => self.write_zero_bytes(from, to - from).await,
            other => other,
        }
    }

    async fn write_zero_bytes(&self, offset: u64, len: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < len {
            let n = (len - done).min(u64_of(ZERO_CHUNK));
            let mut zeroes = buffer::alloc(usize64(n)).await;
            zeroes.fill(0);
            let written = self.write(offset + done, zeroes, false).await;
            written.map_err(|refused| refused.error)?;
            done += n;
        }
        Ok(())
    }
}

const _: () = assert!(ZERO_CHUNK <= TRANSFER_MAX && usize32(4096) < ZERO_CHUNK);

/// Whether a device of `capacity` bytes that has so many now is dead: Linux takes the bytes of one away, and
/// writes then find no space, reads nothing. One that has them all and finds no space is of a thin pool, and
/// space may come back.
fn has_died(size: Option<u64>, capacity: u64) -> bool {
    size.is_none_or(|size| size < capacity)
}

/// How a range is zeroed.
#[derive(Clone, Copy)]
enum Way {
    /// Its space may go.
    Unmap,
    /// Its space stays.
    Keep,
}

/// The same bytes at the aligned beginning of another buffer.
async fn moved(data: &Buffer) -> Buffer {
    let mut copy = buffer::scratch(data.len()).await;
    copy.copy_from_slice(data);
    copy
}

/// Lets whole-unit writes run side by side, and a partial one, which reads before it writes, alone.
/// Only drives whose unit is larger than the block written to them have any use for it.
#[derive(Debug, Default)]
struct Gate {
    /// The number of whole writes inside, or -1 for a partial one.
    inside: AtomicI64,
}

struct Turn<'a> {
    gate: &'a Gate,
    alone: bool,
}

impl Gate {
    async fn share(&self) -> Turn<'_> {
        let more = |n| (n >= 0).then_some(n + 1);
        while self.inside.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_err() {
            yield_now().await;
        }
        Turn { gate: self, alone: false }
    }

    async fn alone(&self) -> Turn<'_> {
        while self.inside.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            yield_now().await;
        }
        Turn { gate: self, alone: true }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.alone {
            self.gate.inside.store(0, Ordering::Release);
        } else {
            self.gate.inside.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its writes end with "no space left", which was believed: writers waited for space for ever.
    #[test]
    fn a_device_that_lost_its_bytes_is_dead_and_not_full() {
        assert!(has_died(Some(0), 1 << 30));
        assert!(has_died(Some((1 << 30) - 4096), 1 << 30));
        assert!(has_died(None, 1 << 30));
        assert!(!has_died(Some(1 << 30), 1 << 30), "a thin device without space");
        assert!(!has_died(Some((1 << 30) + 512), 1 << 30), "its last, partial unit is not used");
    }
}
