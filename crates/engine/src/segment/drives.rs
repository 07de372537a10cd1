//! The drives of a pool: which can be used, and what each has done.

use super::patience::Patience;
use crate::address::BLOCK;
use crate::error::{Error, Kind, Result};
use crate::limits::NO_SPACE_PAUSE;
use media::memory::SharedRegion;
use media::{Drive, Refused};
use reactor::buffer::{Buffer, Pool};
use reactor::join_all;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use stdx::num::{align_up, u64_of};

/// Whether a drive can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveState {
    Online,
    /// Not there when the pool was opened.
    Missing,
    /// It failed a write, or went away. Nothing more is written to it, and what it holds may be old.
    Failed,
}

/// Which drives to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    Online,
    /// Failed ones too: what they hold may be old, so only for what can be verified, and when
    /// nothing else is left.
    Anyone,
}

const ONLINE: u8 = 0;
const MISSING: u8 = 1;
const FAILED: u8 = 2;

/// A drive on its way into a set.
#[derive(Debug)]
pub struct DriveSlot {
    /// `None` for a drive that is missing.
    pub drive: Option<Arc<Drive>>,
    /// It is there, but the pool's labels say it failed.
    pub failed: bool,
    /// Where the space for allocation units begins, in bytes from the drive's beginning; a multiple
    /// of 4096.
    pub begins: u64,
    pub au_count: u32,
}

/// What a shard did with a drive since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveCounters {
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    /// Blocks read whose checksum was wrong.
    pub corrupt: u64,
    /// Blocks of this drive that were reconstructed from others.
    pub reconstructed: u64,
    /// Blocks written anew after that.
    pub repaired: u64,
}

impl DriveCounters {
    /// Adds what another shard did.
    pub fn add(&mut self, other: &Self) {
        let Self { reads, writes, bytes_read, bytes_written, read_errors, .. } = other;
        self.reads += reads;
        self.writes += writes;
        self.bytes_read += bytes_read;
        self.bytes_written += bytes_written;
        self.read_errors += read_errors;
        self.write_errors += other.write_errors;
        self.corrupt += other.corrupt;
        self.reconstructed += other.reconstructed;
        self.repaired += other.repaired;
    }
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    corrupt: AtomicU64,
    reconstructed: AtomicU64,
    repaired: AtomicU64,
}

/// Whether an error says nothing of the drive.
const fn is_passing(kind: media::Kind) -> bool {
    matches!(kind, media::Kind::Full | media::Kind::Passing)
}

/// Only one reactor counts in a set of counters.
fn count(counter: &AtomicU64, by: usize) {
    counter.store(counter.load(Ordering::Relaxed) + u64_of(by), Ordering::Relaxed);
}

#[derive(Debug)]
struct Slot {
    drive: Option<Arc<Drive>>,
    state: AtomicU8,
    headers_at: u64,
    units_at: u64,
    au_count: u32,
}

/// What all shards of a pool know of its drives; written to when one fails.
#[derive(Debug)]
struct Shared {
    slots: Vec<Slot>,
    au_bytes: u64,
    changes: AtomicU64,
    /// All that are there are memory: reading them needs no waiting.
    in_memory: bool,
}

/// The drives of a pool by index, as one shard uses and counts them.
#[derive(Debug)]
pub struct DriveSet {
    shared: Arc<Shared>,
    counters: Vec<Counters>,
    /// Nothing is ever written to these drives.
    read_only: bool,
}

/// Where the allocation units begin on a drive whose space begins at `begins`: after the table of
/// their headers, at a multiple of 64 KiB.
fn units_at(begins: u64, au_count: u32) -> u64 {
    align_up(begins + u64::from(au_count) * u64_of(BLOCK), 64 << 10).unwrap_or(u64::MAX)
}

impl DriveSet {
    /// How many allocation units a drive of `capacity` bytes has space for, when it begins at
    /// `begins`.
    #[must_use]
    pub fn au_count(capacity: u64, begins: u64, au_bytes: u64) -> u32 {
        let space = capacity.saturating_sub(begins);
        let mut count = u32::try_from(space / (au_bytes + u64_of(BLOCK))).unwrap_or(u32::MAX);
        while count > 0 && units_at(begins, count) + u64::from(count) * au_bytes > capacity {
            count -= 1;
        }
        count
    }

    #[must_use]
    pub fn new(drives: Vec<DriveSlot>, au_bytes: u64) -> Self {
        let slots = drives.into_iter().map(|slot| Slot {
            state: AtomicU8::new(match &slot.drive {
                None => MISSING,
                Some(_) if slot.failed => FAILED,
                Some(_) => ONLINE,
            }),
            drive: slot.drive,
            headers_at: slot.begins,
            units_at: units_at(slot.begins, slot.au_count),
            au_count: slot.au_count,
        });
        let slots: Vec<Slot> = slots.collect();
        let is_memory =
            |slot: &Slot| matches!(slot.drive.as_deref(), None | Some(Drive::Memory(_)));
        let in_memory = slots.iter().all(is_memory);
        Self::over(Arc::new(Shared { slots, au_bytes, changes: AtomicU64::new(0), in_memory }))
    }

    fn over(shared: Arc<Shared>) -> Self {
        let counters = shared.slots.iter().map(|_| Counters::default()).collect();
        Self { shared, counters, read_only: false }
    }

    /// The same drives for another shard, which counts what it does with them by itself. One that
    /// fails for either has failed for both.
    #[must_use]
    pub fn for_another(&self) -> Self {
        Self { read_only: self.read_only, ..Self::over(Arc::clone(&self.shared)) }
    }

    /// The same drives, never to be written: what is found damaged is not repaired either.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Drives in the set, those that cannot be used included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.slots.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.slots.is_empty()
    }

    fn slot(&self, drive: u16) -> &Slot {
        &self.shared.slots[usize::from(drive)]
    }

    fn counts(&self, drive: u16) -> &Counters {
        &self.counters[usize::from(drive)]
    }

    #[must_use]
    pub fn state(&self, drive: u16) -> DriveState {
        match self.slot(drive).state.load(Ordering::Acquire) {
            ONLINE => DriveState::Online,
            MISSING => DriveState::Missing,
            _ => DriveState::Failed,
        }
    }

    #[must_use]
    pub fn is_online(&self, drive: u16) -> bool {
        self.state(drive) == DriveState::Online
    }

    /// The drive itself, if it can be used.
    #[must_use]
    pub fn drive(&self, drive: u16) -> Option<&Arc<Drive>> {
        self.slot(drive).drive.as_ref().filter(|_| self.is_online(drive))
    }

    /// Takes a drive out of use for good.
    pub fn fail(&self, drive: u16) {
        let state = &self.slot(drive).state;
        if state.compare_exchange(ONLINE, FAILED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.shared.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Grows when a drive fails. What was written without a failed drive must not count as durable
    /// before the labels of the others say that it failed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn counters(&self, drive: u16) -> DriveCounters {
        let counters = self.counts(drive);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DriveCounters {
            reads: get(&counters.reads),
            writes: get(&counters.writes),
            bytes_read: get(&counters.bytes_read),
            bytes_written: get(&counters.bytes_written),
            read_errors: get(&counters.read_errors),
            write_errors: get(&counters.write_errors),
            corrupt: get(&counters.corrupt),
            reconstructed: get(&counters.reconstructed),
            repaired: get(&counters.repaired),
        }
    }

    pub(super) fn count_corrupt(&self, drive: u16, blocks: usize) {
        count(&self.counts(drive).corrupt, blocks);
    }

    pub(super) fn count_reconstructed(&self, drive: u16, blocks: usize) {
        count(&self.counts(drive).reconstructed, blocks);
    }

    pub(super) fn count_repaired(&self, drive: u16, blocks: usize) {
        count(&self.counts(drive).repaired, blocks);
    }

    /// Where block `block` of an allocation unit is, in bytes from the drive's beginning.
    ///
    /// # Panics
    /// When the drive has no such unit or the unit no such block.
    #[must_use]
    pub fn offset(&self, drive: u16, au: u32, block: u32) -> u64 {
        let (slot, within) = (self.slot(drive), u64::from(block) * u64_of(BLOCK));
        assert!(au < slot.au_count && within < self.shared.au_bytes, "unit {au} of drive {drive}");
        slot.units_at + u64::from(au) * self.shared.au_bytes + within
    }

    /// Where the header of an allocation unit is.
    ///
    /// # Panics
    /// When the drive has no such unit.
    #[must_use]
    pub fn header_offset(&self, drive: u16, au: u32) -> u64 {
        let slot = self.slot(drive);
        assert!(au < slot.au_count, "unit {au} of drive {drive}");
        slot.headers_at + u64::from(au) * u64_of(BLOCK)
    }

    fn usable(&self, drive: u16) -> Result<&Slot> {
        if self.is_online(drive) {
            return Ok(self.slot(drive));
        }
        Err(Error::new(Kind::Missing, format!("drive {drive} is {:?}", self.state(drive))))
    }

    /// As [`usable`](Self::usable), or with a drive that failed and is still there.
    fn readable(&self, drive: u16, trust: Trust) -> Result<&Slot> {
        let slot = self.slot(drive);
        match trust {
            Trust::Anyone if slot.drive.is_some() => Ok(slot),
            _ => self.usable(drive),
        }
    }

    fn read_failed(&self, drive: u16, error: media::Error) -> Error {
        count(&self.counts(drive).read_errors, 1);
        if error.kind == media::Kind::Gone {
            self.fail(drive);
        }
        Error::caused(Kind::Failed, format!("drive {drive}"), error)
    }

    /// Reads `len` bytes into a buffer of `pool`.
    ///
    /// # Errors
    /// `Missing` when the drive cannot be used, `Failed` with what it says.
    pub async fn read(&self, drive: u16, offset: u64, len: usize, pool: Pool) -> Result<Buffer> {
        self.read_trusting(Trust::Online, drive, offset, len, pool).await
    }

    /// As [`read`](Self::read), of drives that failed too, if so told.
    pub(super) async fn read_trusting(
        &self,
        trust: Trust,
        drive: u16,
        offset: u64,
        len: usize,
        pool: Pool,
    ) -> Result<Buffer> {
        let slot = self.readable(drive, trust)?;
        let Some(media) = &slot.drive else { unreachable!("a usable drive is there") };
        count(&self.counts(drive).reads, 1);
        count(&self.counts(drive).bytes_read, len);
        let data = media.read_from(offset, len, pool).await;
        data.map_err(|error| self.read_failed(drive, error))
    }

    /// Reads to where the bytes are wanted, by way of a buffer of `pool` where the drive cannot do
    /// that.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_into(
        &self,
        drive: u16,
        offset: u64,
        out: &mut [u8],
        pool: &Pool,
    ) -> Result<()> {
        let slot = self.usable(drive)?;
        let Some(media) = &slot.drive else { unreachable!("a usable drive is there") };
        count(&self.counts(drive).reads, 1);
        count(&self.counts(drive).bytes_read, out.len());
        let done = media.read_into(offset, out, pool).await;
        done.map_err(|error| self.read_failed(drive, error))
    }

    /// Whether [`read_at_once`](Self::read_at_once) can be of use.
    #[must_use]
    pub fn are_in_memory(&self) -> bool {
        self.shared.in_memory
    }

    /// The memory of each drive that is memory of one core; empty when none is.
    pub(super) fn regions(&self) -> Vec<Option<SharedRegion>> {
        let regions = self.shared.slots.iter().map(|slot| match slot.drive.as_deref() {
            Some(Drive::Memory(region)) if !region.is_shared() => Some(Rc::new(Arc::clone(region))),
            _ => None,
        });
        let regions: Vec<_> = regions.collect();
        if regions.iter().any(Option::is_some) { regions } else { Vec::new() }
    }

    /// Counts what was read where it lies; false for a drive that cannot be used.
    pub(super) fn read_in_place(&self, drive: u16, len: usize) -> bool {
        let usable = self.drive(drive).is_some();
        if usable {
            count(&self.counts(drive).reads, 1);
            count(&self.counts(drive).bytes_read, len);
        }
        usable
    }

    /// Reads, if that needs no waiting; tells whether it did.
    pub(super) fn read_at_once(&self, drive: u16, offset: u64, out: &mut [u8]) -> bool {
        let done = self.drive(drive).is_some_and(|media| media.read_at_once(offset, out));
        if done {
            count(&self.counts(drive).reads, 1);
            count(&self.counts(drive).bytes_read, out.len());
        }
        done
    }

    /// Writes. The first failure takes the drive out of use, save that a lack of space behind it is
    /// none of its own, nor is what passes.
    ///
    /// # Errors
    /// `Missing` when the drive cannot be used, `Full` when there is no space behind it, `Busy` when the system
    /// could not do it just now, `Failed` with what it says.
    pub async fn write(&self, drive: u16, offset: u64, data: Buffer) -> Result<()> {
        self.write_or_return(drive, offset, data).await.map_err(|(error, _)| error)
    }

    /// As [`write`](Self::write), but tries again and again where there is no space behind the drive, or the
    /// system is short of something: what the drive has is whole, and space may come back.
    ///
    /// # Errors
    /// As [`write`](Self::write); `Full` and `Busy` once nobody has the patience any more.
    pub(super) async fn write_when_space(
        &self,
        drive: u16,
        offset: u64,
        mut data: Buffer,
        patience: &Patience,
    ) -> Result<()> {
        let mut waiting = None;
        loop {
            match self.write_or_return(drive, offset, data).await {
                Err((error, Some(back))) if !patience.has_ended() => {
                    if error.kind == Kind::Full {
                        waiting.get_or_insert_with(|| patience.wait());
                    }
                    data = back;
                    reactor::sleep(NO_SPACE_PAUSE).await;
                }
                done => return done.map_err(|(error, _)| error),
            }
        }
    }

    async fn write_or_return(
        &self,
        drive: u16,
        offset: u64,
        data: Buffer,
    ) -> std::result::Result<(), (Error, Option<Buffer>)> {
        if self.read_only {
            let error = Error::new(Kind::Invalid, format!("drive {drive} is only to be read"));
            return Err((error, None));
        }
        let slot = self.usable(drive).map_err(|error| (error, None))?;
        let Some(media) = &slot.drive else { unreachable!("a usable drive is there") };
        let len = data.len();
        match media.write_or_return(offset, data, false).await {
            Ok(()) => {
                count(&self.counts(drive).writes, 1);
                count(&self.counts(drive).bytes_written, len);
                Ok(())
            }
            Err(refused) if is_passing(refused.error.kind) => {
                let Refused { error, data } = refused;
                let kind = if error.kind == media::Kind::Full { Kind::Full } else { Kind::Busy };
                Err((Error::caused(kind, format!("drive {drive}"), error), data))
            }
            Err(refused) => {
                count(&self.counts(drive).write_errors, 1);
                self.fail(drive);
                let what = format!("drive {drive}");
                Err((Error::caused(Kind::Failed, what, refused.error), None))
            }
        }
    }

    /// Makes all completed writes of these drives durable. One that fails is out of use after; so
    /// look at [`Segments::lost`](super::Segments::lost) before relying on it.
    pub async fn flush(&self, drives: impl IntoIterator<Item = u16>) {
        let flushing = drives.into_iter().filter_map(|index| {
            let drive = self.drive(index)?;
            drive.has_volatile_cache().then_some(async move {
                let mut flushed = drive.flush().await;
                while flushed.as_ref().is_err_and(|e| e.kind == media::Kind::Passing) {
                    reactor::sleep(NO_SPACE_PAUSE).await;
                    flushed = drive.flush().await;
                }
                if flushed.is_err() {
                    count(&self.counts(index).write_errors, 1);
                    self.fail(index);
                }
            })
        });
        join_all(flushing).await;
    }

    /// The indices of all drives.
    pub fn indices(&self) -> impl Iterator<Item = u16> + use<> {
        0..stdx::num::u16_of(self.shared.slots.len())
    }

    /// Allocation units of a drive.
    #[must_use]
    pub fn units(&self, drive: u16) -> u32 {
        self.slot(drive).au_count
    }

    /// Blocks of an allocation unit.
    #[must_use]
    pub fn au_blocks(&self) -> u32 {
        stdx::num::low32(self.shared.au_bytes / u64_of(BLOCK))
    }
}
