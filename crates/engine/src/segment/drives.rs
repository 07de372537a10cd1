//! The drives of a pool: which can be used, and what each has done.

use super::counters::{Counters, DriveCounters, count};
use super::health::{Company, Health, Pace};
use super::patience::Patience;
use crate::address::BLOCK;
use crate::error::{Error, Kind, Result};
use crate::limits::{ERRORS_BORNE, NO_SPACE_PAUSE, WRITE_PATIENCE, WRITE_PATIENCE_STEPS};
use media::memory::SharedRegion;
use media::{Drive, Refused};
use reactor::buffer::{Buffer, Pool};
use reactor::{join_all, now, timeout};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
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

const ONLINE: u32 = 0;
const MISSING: u32 = 1;
const FAILED: u32 = 2;
/// What of a slot's state is the state itself, and what one change adds to the rest.
const STATE: u32 = 0xff;
const CHANGE: u32 = 0x100;

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

/// Whether an error says nothing of the drive.
const fn is_passing(kind: media::Kind) -> bool {
    matches!(kind, media::Kind::Full | media::Kind::Passing)
}

#[derive(Debug)]
struct Slot {
    drive: Option<Arc<Drive>>,
    /// Its state, and above that how often it changed: whoever sees the one sees the other.
    state: AtomicU32,
    health: Health,
    headers_at: u64,
    units_at: u64,
    au_count: u32,
}

/// What all shards of a pool know of its drives; written to when one fails.
#[derive(Debug)]
struct Shared {
    slots: Vec<Slot>,
    au_bytes: u64,
    /// Drives that may be out of use at once.
    bears: usize,
    /// One verdict at a time that depends on what the redundancy bears.
    verdict: Mutex<()>,
    /// All that are there are memory: reading them needs no waiting.
    in_memory: bool,
}

/// The drives of a pool by index, as one shard uses and counts them.
#[derive(Debug)]
pub struct DriveSet {
    shared: Arc<Shared>,
    counters: Vec<Counters>,
    pace: Pace,
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

    /// `bears` is how many drives may be out of use at once, what is on the others still being all there is.
    #[must_use]
    pub fn new(drives: Vec<DriveSlot>, au_bytes: u64, bears: usize) -> Self {
        let slots = drives.into_iter().map(|slot| Slot {
            state: AtomicU32::new(match &slot.drive {
                None => MISSING,
                Some(_) if slot.failed => FAILED,
                Some(_) => ONLINE,
            }),
            health: Health::default(),
            drive: slot.drive,
            headers_at: slot.begins,
            units_at: units_at(slot.begins, slot.au_count),
            au_count: slot.au_count,
        });
        let slots: Vec<Slot> = slots.collect();
        let is_memory =
            |slot: &Slot| matches!(slot.drive.as_deref(), None | Some(Drive::Memory(_)));
        let in_memory = slots.iter().all(is_memory);
        let verdict = Mutex::new(());
        Self::over(Arc::new(Shared { slots, au_bytes, bears, verdict, in_memory }))
    }

    fn over(shared: Arc<Shared>) -> Self {
        let counters = shared.slots.iter().map(|_| Counters::default()).collect();
        Self { shared, counters, pace: Pace::default(), read_only: false }
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
        match self.slot(drive).state.load(Ordering::Acquire) & STATE {
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
        let failed =
            |state| (state & STATE == ONLINE).then_some(((state & !STATE) + CHANGE) | FAILED);
        let state = &self.slot(drive).state;
        // It may have failed already.
        let _ = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, failed);
    }

    /// Takes a drive out of use if the others have all that it has; tells whether it is out of use.
    pub fn fail_if_spared(&self, drive: u16) -> bool {
        let _one = self.shared.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let out = self.indices().filter(|&d| d != drive && !self.is_online(d)).count();
        if self.is_online(drive) && out < self.shared.bears {
            self.fail(drive);
        }
        !self.is_online(drive)
    }

    /// Grows when a drive fails. What was written without a failed drive must not count as durable
    /// before the labels of the others say that it failed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        let changes = |slot: &Slot| slot.state.load(Ordering::Acquire) / CHANGE;
        self.shared.slots.iter().map(|slot| u64::from(changes(slot))).sum()
    }

    #[must_use]
    pub fn counters(&self, drive: u16) -> DriveCounters {
        self.counts(drive).get()
    }

    pub(super) fn count_corrupt(&self, drive: u16, blocks: usize) {
        count(&self.counts(drive).corrupt, blocks);
        self.note_errors(drive, u64_of(blocks));
    }

    /// Of a medium that falls apart, nothing more is wanted while others have what it has.
    fn note_errors(&self, drive: u16, errors: u64) {
        if self.slot(drive).health.note_errors(errors) > ERRORS_BORNE {
            self.fail_if_spared(drive);
        }
    }

    /// A read took so long that the others were asked: the next ones go around the drive.
    pub(super) fn note_slow(&self, drive: u16) {
        count(&self.counts(drive).slow, 1);
        self.slot(drive).health.avoid();
    }

    /// Whether a drive is memory: reading it needs no waiting.
    pub(super) fn is_memory(&self, drive: u16) -> bool {
        matches!(self.slot(drive).drive.as_deref(), Some(Drive::Memory(_)))
    }

    /// Whether a drive was too slow lately.
    pub(super) fn is_slow(&self, drive: u16) -> bool {
        self.slot(drive).health.is_slow()
    }

    /// Whether reads are to go around a drive. Now and then one is to try it.
    pub(super) fn is_avoided(&self, drive: u16) -> bool {
        self.slot(drive).health.is_avoided()
    }

    /// How long a read is waited for before the others are asked.
    pub(super) fn hedge(&self) -> Duration {
        self.pace.hedge()
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

    /// # Errors
    /// `Missing` when the drive cannot be used.
    pub(super) fn check_usable(&self, drive: u16) -> Result<()> {
        self.usable(drive).map(|_| ())
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
        match error.kind {
            media::Kind::Passing => {
                return Error::caused(Kind::Busy, format!("drive {drive}"), error);
            }
            media::Kind::Gone => self.fail(drive),
            media::Kind::Timeout => {
                count(&self.counts(drive).timeouts, 1);
                self.fail_if_spared(drive);
            }
            _ => {}
        }
        count(&self.counts(drive).read_errors, 1);
        self.note_errors(drive, 1);
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
        let buffer = media.buffer(offset, len, &pool).await;
        self.fill(drive, offset, len, buffer).await
    }

    /// Memory of `pool` for a read, which then waits for the drive alone.
    pub(super) async fn buffer(&self, drive: u16, at: u64, len: usize, pool: &Pool) -> Buffer {
        match &self.slot(drive).drive {
            Some(media) => media.buffer(at, len, pool).await,
            None => pool.alloc(len).await,
        }
    }

    /// Reads into the buffer made for it, of a drive that is there whatever its state.
    pub(super) async fn fill(
        &self,
        drive: u16,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Result<Buffer> {
        let slot = self.slot(drive);
        let Some(media) = &slot.drive else {
            return Err(Error::new(Kind::Missing, format!("drive {drive} is missing")));
        };
        count(&self.counts(drive).reads, 1);
        count(&self.counts(drive).bytes_read, len);
        let begun = now();
        let data = media.fill(offset, len, buffer).await;
        let span = now() - begun;
        if data.is_ok() && self.pace.note(span) {
            slot.health.answers();
        }
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
        if let Some(Drive::Memory(region)) = slot.drive.as_deref() {
            count(&self.counts(drive).reads, 1);
            count(&self.counts(drive).bytes_read, out.len());
            return region.copy_out(offset, out).map_err(|error| self.read_failed(drive, error));
        }
        out.copy_from_slice(&self.read(drive, offset, out.len(), pool.clone()).await?);
        Ok(())
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
    /// system is short of something: what the drive has is whole, and space may come back. A drive that keeps
    /// its company waiting is taken out of use.
    ///
    /// # Errors
    /// As [`write`](Self::write); `Full` and `Busy` once nobody has the patience any more.
    pub(super) async fn write_when_space(
        &self,
        drive: u16,
        offset: u64,
        mut data: Buffer,
        patience: &Patience,
        company: &Company,
    ) -> Result<()> {
        let mut waiting = None;
        loop {
            let write = async {
                loop {
                    match self.write_or_return(drive, offset, data).await {
                        Err((error, Some(back)))
                            if error.kind == Kind::Busy && !patience.has_ended() =>
                        {
                            data = back;
                            reactor::sleep(NO_SPACE_PAUSE).await;
                        }
                        done => return done,
                    }
                }
            };
            let Some(written) = self.in_company(drive, company, write).await else {
                return Err(Error::new(Kind::Failed, format!("drive {drive} does not answer")));
            };
            match written {
                Err((error, Some(back))) if error.kind == Kind::Full && !patience.has_ended() => {
                    waiting.get_or_insert_with(|| patience.wait());
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
                if refused.error.kind == media::Kind::Timeout {
                    count(&self.counts(drive).timeouts, 1);
                }
                self.fail(drive);
                let what = format!("drive {drive}");
                Err((Error::caused(Kind::Failed, what, refused.error), None))
            }
        }
    }

    /// Makes all completed writes of these drives durable. One that fails is out of use after; so
    /// look at [`Segments::lost`](super::Segments::lost) before relying on it.
    pub async fn flush(&self, drives: impl IntoIterator<Item = u16>) {
        let usable = |&drive: &u16| self.drive(drive).is_some_and(|d| d.has_volatile_cache());
        let drives: Vec<u16> = drives.into_iter().filter(usable).collect();
        let company = Company::new(drives.len().saturating_sub(self.shared.bears).max(1));
        join_all(drives.iter().map(|&drive| self.flush_one(drive, &company))).await;
    }

    async fn flush_one(&self, drive: u16, company: &Company) {
        let Some(media) = self.drive(drive) else { return };
        let flush = async {
            loop {
                match media.flush().await {
                    Err(error) if error.kind == media::Kind::Passing => {
                        reactor::sleep(NO_SPACE_PAUSE).await;
                    }
                    done => return done,
                }
            }
        };
        if let Some(Ok(())) = self.in_company(drive, company, flush).await {
            return;
        }
        count(&self.counts(drive).write_errors, 1);
        self.fail(drive);
    }

    /// Waits for what a drive was asked together with others, for no longer than they make it wait: one that
    /// does not answer although enough of them have is taken out of use, where it can be spared. `None` then.
    pub async fn in_company<T, E>(
        &self,
        drive: u16,
        company: &Company,
        change: impl Future<Output = std::result::Result<T, E>>,
    ) -> Option<std::result::Result<T, E>> {
        let mut change = pin!(change);
        let step = WRITE_PATIENCE / WRITE_PATIENCE_STEPS;
        let mut steps = 0;
        loop {
            // In steps: those in which this process was stopped itself count as one.
            if let Ok(done) = timeout(step, change.as_mut()).await {
                if done.is_ok() {
                    company.one_ended();
                }
                return Some(done);
            }
            steps += 1;
            if steps >= WRITE_PATIENCE_STEPS && company.has_ended() && self.fail_if_spared(drive) {
                count(&self.counts(drive).timeouts, 1);
                return None;
            }
        }
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
