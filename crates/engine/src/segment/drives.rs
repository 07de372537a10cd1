//! The drives of a pool: which can be used, and what each has done.

use super::counters::{Counters, DriveCounters, count};
use super::health::{Company, Pace};
use super::patience::Patience;
use super::slot::{DriveState, Slot};
use crate::address::BLOCK;
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Kind, Result};
use crate::limits::{ERRORS_BORNE, NO_SPACE_PAUSE, WRITE_PATIENCE, WRITE_PATIENCE_STEPS};
use media::memory::SharedRegion;
use media::{Drive, Refused};
use reactor::buffer::{Buffer, Pool};
use reactor::{join_all, now, timeout};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stdx::num::{align_up, u64_of};

/// Which drives to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    Online,
    /// Those that are being made whole too: for what can be verified.
    Written,
    /// Failed ones too: what they hold may be old, so only for what can be verified, and when
    /// nothing else is left.
    Anyone,
}

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
        let is_memory =
            |slot: &DriveSlot| matches!(slot.drive.as_deref(), None | Some(Drive::Memory(_)));
        let in_memory = drives.iter().all(is_memory);
        let slots = drives.into_iter().map(|DriveSlot { drive, failed, begins, au_count }| {
            Slot::new(drive, failed, begins, units_at(begins, au_count), au_count)
        });
        let slots: Vec<Slot> = slots.collect();
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
        self.slot(drive).state()
    }

    #[must_use]
    pub fn is_online(&self, drive: u16) -> bool {
        self.state(drive) == DriveState::Online
    }

    /// The drive itself, if it can be used.
    #[must_use]
    pub fn drive(&self, drive: u16) -> Option<&Arc<Drive>> {
        self.slot(drive).drive_if(|state| state == DriveState::Online)
    }

    /// The drive itself, if it is to have what is new.
    #[must_use]
    pub fn written(&self, drive: u16) -> Option<&Arc<Drive>> {
        self.slot(drive).drive_if(DriveState::is_written)
    }

    /// Takes a drive out of use, whichever is in this place.
    pub fn fail(&self, drive: u16) {
        self.slot(drive).fail();
    }

    /// Takes a drive out of use, if it is still this one.
    pub fn fail_one(&self, drive: u16, media: &Arc<Drive>) {
        self.slot(drive).fail_one(media);
    }

    /// Takes a drive out of use if the others have all that it has, which is always so for one that is being made
    /// whole; tells whether it is out of use.
    pub fn fail_if_spared(&self, drive: u16, media: &Arc<Drive>) -> bool {
        let _one = self.shared.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let out = self.indices().filter(|&d| d != drive && !self.is_online(d)).count();
        if !self.is_online(drive) || out < self.shared.bears {
            self.fail_one(drive, media);
        }
        !self.slot(drive).drive_if(DriveState::is_written).is_some_and(|d| Arc::ptr_eq(d, media))
    }

    /// # Errors
    /// `Exists` where a drive is in use, or being made whole.
    pub fn check_vacant(&self, drive: u16) -> Result<()> {
        match self.state(drive).is_written() {
            true => Err(Error::new(Kind::Exists, format!("drive {drive} is in use already"))),
            false => Ok(()),
        }
    }

    /// Has a drive take the place of one that is out of use. All that is new is written to it from now on; until it
    /// is [whole](Self::make_online), nothing else is done with it.
    ///
    /// # Errors
    /// `Invalid` when it is too small, `Busy` while something may still come that one before it was asked, `Exists`
    /// and `Full` as the slot says.
    pub fn take_back(&self, drive: u16, media: Arc<Drive>) -> Result<()> {
        let slot = self.slot(drive);
        if media.capacity() < self.bytes(drive) {
            return Err(Error::new(Kind::Invalid, "the drive is smaller than it was"));
        }
        if slot.all().any(|before| before.has_late_changes()) {
            return Err(Error::new(Kind::Busy, "what the drive was asked before may still come"));
        }
        slot.take_back(media)
    }

    /// The drive that is being made whole is whole; false when it failed meanwhile.
    #[must_use]
    pub fn make_online(&self, drive: u16) -> bool {
        self.slot(drive).make_online()
    }

    /// How often a drive was taken back since the pool was opened.
    #[must_use]
    pub fn returns(&self, drive: u16) -> usize {
        self.slot(drive).returns()
    }

    /// Grows when a drive fails, or is whole again. What was written without a failed drive must not count as
    /// durable before the labels of the others say that it failed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.shared.slots.iter().map(|slot| u64::from(slot.changes())).sum()
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
        if self.slot(drive).health.note_errors(errors) > ERRORS_BORNE
            && let Some(media) = self.drive(drive)
        {
            self.fail_if_spared(drive, media);
        }
    }

    /// It did not answer within a deadline.
    fn note_hang(&self, drive: u16) {
        count(&self.counts(drive).timeouts, 1);
        self.slot(drive).health.hangs();
    }

    /// A read took so long that the others were asked: the next ones go around the drive.
    pub(super) fn note_slow(&self, drive: u16) {
        count(&self.counts(drive).slow, 1);
        self.slot(drive).health.avoid();
    }

    /// Whether a drive is memory: reading it needs no waiting.
    pub(super) fn is_memory(&self, drive: u16) -> bool {
        matches!(self.drive(drive).map(|drive| &**drive), Some(Drive::Memory(_)))
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

    fn usable(&self, drive: u16) -> Result<&Arc<Drive>> {
        self.drive(drive).ok_or_else(|| self.unusable(drive))
    }

    fn unusable(&self, drive: u16) -> Error {
        Error::new(Kind::Missing, format!("drive {drive} is {:?}", self.state(drive)))
    }

    /// # Errors
    /// `Missing` when the drive cannot be used.
    pub(super) fn check_usable(&self, drive: u16) -> Result<()> {
        self.usable(drive).map(|_| ())
    }

    /// A drive that may be read, its state being what is asked for.
    fn readable(&self, drive: u16, trust: Trust) -> Result<&Arc<Drive>> {
        let slot = self.slot(drive);
        let found = slot.drive_if(|state| match trust {
            Trust::Online => state == DriveState::Online,
            Trust::Written => state.is_written(),
            Trust::Anyone => state == DriveState::Online || !slot.health.is_hung(),
        });
        found.ok_or_else(|| self.unusable(drive))
    }

    fn read_failed(&self, drive: u16, media: &Arc<Drive>, error: media::Error) -> Error {
        match error.kind {
            media::Kind::Passing => {
                return Error::caused(Kind::Busy, format!("drive {drive}"), error);
            }
            media::Kind::Gone => self.fail_one(drive, media),
            media::Kind::Timeout => {
                self.note_hang(drive);
                self.fail_if_spared(drive, media);
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
        let media = self.readable(drive, trust)?;
        let buffer = media.buffer(offset, len, &pool).await;
        self.fill_from(drive, media, offset, len, buffer).await
    }

    /// Memory of `pool` for a read, which then waits for the drive alone.
    pub(super) async fn buffer(&self, drive: u16, at: u64, len: usize, pool: &Pool) -> Buffer {
        match self.slot(drive).drive_if(|_| true) {
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
        let media = self.readable(drive, Trust::Anyone)?;
        self.fill_from(drive, media, offset, len, buffer).await
    }

    async fn fill_from(
        &self,
        drive: u16,
        media: &Arc<Drive>,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Result<Buffer> {
        count(&self.counts(drive).reads, 1);
        count(&self.counts(drive).bytes_read, len);
        let begun = now();
        let data = media.fill(offset, len, buffer).await;
        let span = now() - begun;
        if data.is_ok() && self.pace.note(span) {
            self.slot(drive).health.answers();
        }
        data.map_err(|error| self.read_failed(drive, media, error))
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
        let media = self.usable(drive)?;
        if let Drive::Memory(region) = &**media {
            count(&self.counts(drive).reads, 1);
            count(&self.counts(drive).bytes_read, out.len());
            let read = region.copy_out(offset, out);
            return read.map_err(|error| self.read_failed(drive, media, error));
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
        let drive = |slot: &'_ Slot| slot.drive_if(|_| true).cloned();
        let regions = self.shared.slots.iter().map(|slot| match drive(slot).as_deref() {
            Some(Drive::Memory(region)) if !region.is_shared() => Some(Rc::new(Arc::clone(region))),
            _ => None,
        });
        let regions: Vec<_> = regions.collect();
        if regions.iter().any(Option::is_some) { regions } else { Vec::new() }
    }

    /// Counts what was read where it lies; false for a drive that cannot be used, or is another one than when the
    /// pool was opened.
    pub(super) fn read_in_place(&self, drive: u16, len: usize) -> bool {
        let usable = self.drive(drive).is_some() && self.returns(drive) == 0;
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
    /// none of its own, nor is what passes. One that is being made whole is waited for in no case.
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
            let tried = now();
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
                    patience.refused(tried);
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
        let Some(media) = self.written(drive) else { return Err((self.unusable(drive), None)) };
        let len = data.len();
        match media.write_or_return(offset, data, false).await {
            Ok(()) => {
                count(&self.counts(drive).writes, 1);
                count(&self.counts(drive).bytes_written, len);
                Ok(())
            }
            Err(refused)
                if is_passing(refused.error.kind)
                    && self.is_online(drive)
                    && !canary::has(Canary::CondemnsPassing) =>
            {
                let Refused { error, data } = refused;
                let kind = if error.kind == media::Kind::Full { Kind::Full } else { Kind::Busy };
                Err((Error::caused(kind, format!("drive {drive}"), error), data))
            }
            Err(refused) => {
                count(&self.counts(drive).write_errors, 1);
                if refused.error.kind == media::Kind::Timeout {
                    self.note_hang(drive);
                }
                self.fail_one(drive, media);
                let what = format!("drive {drive}");
                Err((Error::caused(Kind::Failed, what, refused.error), None))
            }
        }
    }

    /// Makes all completed writes of these drives durable. One that fails is out of use after; so
    /// look at [`Segments::lost`](super::Segments::lost) before relying on it.
    pub async fn flush(&self, drives: impl IntoIterator<Item = u16>) {
        // Those that are being made whole, too: what is on its way when they are is relied on once it is flushed.
        let only_online = canary::skips(Step::RejoinFlushesToo);
        let usable = |&drive: &u16| {
            self.written(drive).is_some_and(|d| d.has_volatile_cache())
                && (!only_online || self.is_online(drive))
        };
        let drives: Vec<u16> = drives.into_iter().filter(usable).collect();
        let company = Company::new(drives.len().saturating_sub(self.shared.bears).max(1));
        join_all(drives.iter().map(|&drive| self.flush_one(drive, &company))).await;
    }

    async fn flush_one(&self, drive: u16, company: &Company) {
        let Some(media) = self.written(drive) else { return };
        let flush = async {
            loop {
                match media.flush().await {
                    Err(error) if error.kind == media::Kind::Passing && self.is_online(drive) => {
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
        self.fail_one(drive, media);
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
        let media = self.written(drive);
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
            if steps == 1 {
                self.probe_others(drive);
            }
            let silent = steps.max(self.slot(drive).health.silent_steps());
            let spared = || media.is_none_or(|media| self.fail_if_spared(drive, media));
            if silent >= WRITE_PATIENCE_STEPS && company.has_ended() && spared() {
                self.note_hang(drive);
                return None;
            }
        }
    }

    /// One drive does not answer. What takes one may take several, and those that are asked for nothing now would be
    /// waited for once this one is out of use, just as long: they are asked at once whether they answer.
    fn probe_others(&self, but: u16) {
        for drive in self.indices().filter(|&drive| drive != but) {
            let Some(media) = self.written(drive).cloned() else { continue };
            if self.slot(drive).health.begin_probe() {
                let probe = probe(Arc::clone(&self.shared), usize::from(drive), media);
                drop(reactor::spawn(probe));
            }
        }
    }

    /// The indices of all drives.
    pub fn indices(&self) -> impl Iterator<Item = u16> + use<> {
        0..stdx::num::u16_of(self.shared.slots.len())
    }

    /// Bytes of a drive that the set has something in, from its beginning.
    #[must_use]
    pub fn bytes(&self, drive: u16) -> u64 {
        let slot = self.slot(drive);
        slot.units_at + u64::from(slot.au_count) * self.shared.au_bytes
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

/// Reads a block of a drive, and notes for how long it does not come.
async fn probe(shared: Arc<Shared>, drive: usize, media: Arc<Drive>) {
    let health = &shared.slots[drive].health;
    let buffer = media.buffer(0, BLOCK, &reactor::buffer::pool()).await;
    let mut read = pin!(media.fill(0, BLOCK, buffer));
    // In steps, as where its writes are waited for.
    while timeout(WRITE_PATIENCE / WRITE_PATIENCE_STEPS, read.as_mut()).await.is_err() {
        health.stays_silent();
    }
    health.end_probe();
}
