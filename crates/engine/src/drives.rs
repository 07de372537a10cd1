//! The drives of a pool: which can be used, and what each has done. Nothing here knows of segments or labels.

mod cause;
mod company;
mod counters;
mod health;
mod occupants;
mod read;
mod slot;
mod space_wait;
mod verdicts;
mod write;

pub use cause::Cause;
pub use company::Company;
pub use counters::DriveCounters;
pub use occupants::DriveState;
pub(crate) use read::Trust;
pub use space_wait::SpaceWait;

use crate::address::BLOCK;
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use crate::limits::DRIVES_MAX;
use counters::Counters;
use health::{Budget, Pace};
use media::Drive;
use media::memory::SharedRegion;
use reactor::Nanos;
use slot::{Extent, Slot};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use stdx::num::{align_up, u64_of};

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
    /// Nothing of the pool lies there: that it is not there is no loss.
    pub vacant: bool,
}

impl DriveSlot {
    fn extent(&self) -> Extent {
        let (headers_at, au_count) = (self.begins, self.au_count);
        Extent { headers_at, units_at: DriveSet::units_from(headers_at, au_count), au_count }
    }
}

/// What all shards of a pool know of its drives; written to when one fails.
#[derive(Debug)]
struct Shared {
    /// As many as there can be.
    slots: Vec<Slot>,
    /// Those of them that there are.
    count: AtomicUsize,
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
    reads: Pace,
    writes: Pace,
    hedges: Budget,
    /// Nothing is ever written to these drives.
    read_only: bool,
}

impl DriveSet {
    /// Where the allocation units begin on a drive whose space begins at `begins`: after the table of their headers, at
    /// a multiple of 64 KiB.
    #[must_use]
    pub fn units_from(begins: u64, au_count: u32) -> u64 {
        align_up(begins + u64::from(au_count) * u64_of(BLOCK), 64 << 10).unwrap_or(u64::MAX)
    }

    /// How many allocation units a drive of `capacity` bytes has space for, when it begins at
    /// `begins`.
    #[must_use]
    pub fn au_count(capacity: u64, begins: u64, au_bytes: u64) -> u32 {
        let space = capacity.saturating_sub(begins);
        let mut count = u32::try_from(space / (au_bytes + u64_of(BLOCK))).unwrap_or(u32::MAX);
        while count > 0 && Self::units_from(begins, count) + u64::from(count) * au_bytes > capacity
        {
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
        let count = AtomicUsize::new(drives.len());
        let slots = drives.into_iter().map(|of| {
            let extent = of.extent();
            let slot = Slot::new(of.drive, of.failed, extent);
            slot.set_vacant(of.vacant);
            slot
        });
        let mut slots: Vec<Slot> = slots.collect();
        slots.resize_with(slots.len().max(DRIVES_MAX), Slot::to_come);
        let verdict = Mutex::new(());
        Self::over(Arc::new(Shared { slots, count, au_bytes, bears, verdict, in_memory }))
    }

    fn over(shared: Arc<Shared>) -> Self {
        let counters = shared.slots.iter().map(|_| Counters::default()).collect();
        let (reads, writes, hedges) = (Pace::default(), Pace::default(), Budget::default());
        Self { shared, counters, reads, writes, hedges, read_only: false }
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
        self.shared.count.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The indices of all drives.
    pub fn indices(&self) -> impl Iterator<Item = u16> + use<> {
        0..stdx::num::u16_of(self.len())
    }

    /// One place more, with nothing in it. One at a time.
    ///
    /// # Errors
    /// `Full` when there are as many as there can be.
    pub fn add_place(&self, of: &DriveSlot) -> Result<u16> {
        let index = self.len();
        let slot = self.shared.slots.get(index).ok_or_else(|| {
            Error::new(Kind::Full, format!("a pool has {DRIVES_MAX} drives at most"))
        })?;
        slot.begin(of.extent());
        self.shared.count.store(index + 1, Ordering::Release);
        Ok(stdx::num::u16_of(index))
    }

    /// Nothing of the pool lies in a place any more. A drive that is there is out of use.
    pub fn set_vacant(&self, drive: u16) {
        self.slot(drive).set_vacant(true);
        self.fail(drive, Cause::because("nothing of the pool is left there"));
    }

    /// From now on something of the pool may lie in a place.
    pub fn occupy(&self, drive: u16) {
        self.slot(drive).set_vacant(false);
    }

    /// Whether nothing of the pool lies in a place.
    #[must_use]
    pub fn is_vacant(&self, drive: u16) -> bool {
        self.slot(drive).is_vacant()
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

    /// Those that do not count, by their bits: what has a part there bears one loss less.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let drives = (0..self.len()).map(stdx::num::u16_of);
        drives.filter(|drive| !self.is_online(*drive)).fold(0, |all, drive| all | 1 << drive)
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

    /// Why a drive is out of use, if it was taken out since the pool was opened.
    #[must_use]
    pub fn cause(&self, drive: u16) -> Option<&Cause> {
        self.slot(drive).cause()
    }

    /// When what can be done with a drive was changed last, on the reactors' clock; `None` where it is as the pool was
    /// opened.
    #[must_use]
    pub fn changed(&self, drive: u16) -> Option<Nanos> {
        self.slot(drive).changed()
    }

    /// How often a drive was taken back since the pool was opened.
    #[must_use]
    pub fn returns(&self, drive: u16) -> usize {
        self.slot(drive).returns()
    }

    /// How often a drive went out of use, or was away, since the pool was opened: what was on it before lacks it, or did until
    /// that was made anew.
    #[must_use]
    pub fn outs(&self, drive: u16) -> usize {
        self.slot(drive).outs()
    }

    /// Grows when a drive fails, or is whole again. What was written without a failed drive must not count as
    /// durable before the labels of the others say that it failed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.shared.slots.iter().map(|slot| u64::from(slot.changes())).sum()
    }

    /// Whether a drive is memory: reading it needs no waiting.
    pub(crate) fn is_memory(&self, drive: u16) -> bool {
        matches!(self.drive(drive).map(|drive| &**drive), Some(Drive::Memory(_)))
    }

    /// Whether [`read_at_once`](Self::read_at_once) can be of use.
    #[must_use]
    pub fn are_in_memory(&self) -> bool {
        self.shared.in_memory
    }

    /// The memory of each drive that is memory of one core; empty when none is.
    pub(crate) fn regions(&self) -> Vec<Option<SharedRegion>> {
        let drive = |slot: &'_ Slot| slot.drive_if(|_| true).cloned();
        let regions = self.shared.slots.iter().map(|slot| match drive(slot).as_deref() {
            Some(Drive::Memory(region)) if !region.is_shared() => Some(Rc::new(Arc::clone(region))),
            _ => None,
        });
        let regions: Vec<_> = regions.collect();
        if regions.iter().any(Option::is_some) { regions } else { Vec::new() }
    }

    /// # Errors
    /// `Exists` where a drive is in use, or being made whole.
    pub fn check_vacant(&self, drive: u16) -> Result<()> {
        match self.state(drive).is_written() {
            true => Err(Error::new(Kind::Exists, format!("drive {drive} is in use already"))),
            false => Ok(()),
        }
    }

    /// Has the drive that was away take its place again. All that is new is written to it from now on; until it is
    /// [whole](Self::make_online), nothing else is done with it.
    ///
    /// # Errors
    /// `Busy` while something may still come that it was asked before; as [`put`](Self::put).
    pub fn take_back(&self, drive: u16, media: Arc<Drive>) -> Result<()> {
        if self.slot(drive).all().any(|before| before.has_changes()) {
            return Err(Error::new(Kind::Busy, "what the drive was asked before may still come"));
        }
        self.put(drive, media)
    }

    /// Likewise another drive, in the place of one that is out of use: what that was asked does not come here.
    ///
    /// # Errors
    /// `Invalid` when it is too small, `Exists` and `Full` as the slot says.
    pub fn put(&self, drive: u16, media: Arc<Drive>) -> Result<()> {
        self.check_size(drive, &media)?;
        self.slot(drive).take_back(media)
    }

    /// # Errors
    /// `Invalid` for a drive that is too small for a place.
    pub fn check_size(&self, drive: u16, media: &Drive) -> Result<()> {
        let (has, needs) = (media.capacity(), self.bytes(drive));
        if has >= needs {
            return Ok(());
        }
        let context = format!("the drive has {has} bytes, and drive {drive} needs {needs}");
        Err(Error::new(Kind::Invalid, context))
    }

    /// The drive that is being made whole is whole; false when it failed meanwhile, and nothing came to a vacant place.
    #[must_use]
    pub fn make_online(&self, drive: u16) -> bool {
        // In this order: in between nobody counts on it twice, and on none too few.
        let is_online = self.slot(drive).make_online();
        if is_online && !canary::has(Canary::BelievesVacated) {
            self.occupy(drive);
        }
        is_online
    }

    /// Bytes of a drive that the set has something in, from its beginning.
    #[must_use]
    pub fn bytes(&self, drive: u16) -> u64 {
        let slot = self.slot(drive).extent();
        slot.units_at + u64::from(slot.au_count) * self.shared.au_bytes
    }

    /// Where the allocation units begin on a drive, in bytes from its beginning.
    #[must_use]
    pub fn units_at(&self, drive: u16) -> u64 {
        self.slot(drive).extent().units_at
    }

    /// Allocation units of a drive.
    #[must_use]
    pub fn units(&self, drive: u16) -> u32 {
        self.slot(drive).extent().au_count
    }

    /// Blocks of an allocation unit.
    #[must_use]
    pub fn au_blocks(&self) -> u32 {
        stdx::num::low32(self.shared.au_bytes / u64_of(BLOCK))
    }

    /// Where block `block` of an allocation unit is, in bytes from the drive's beginning.
    ///
    /// # Panics
    /// When the drive has no such unit or the unit no such block.
    #[must_use]
    pub fn offset(&self, drive: u16, au: u32, block: u32) -> u64 {
        let (slot, within) = (self.slot(drive).extent(), u64::from(block) * u64_of(BLOCK));
        assert!(au < slot.au_count && within < self.shared.au_bytes, "unit {au} of drive {drive}");
        slot.units_at + u64::from(au) * self.shared.au_bytes + within
    }

    /// Where the header of an allocation unit is.
    ///
    /// # Panics
    /// When the drive has no such unit.
    #[must_use]
    pub fn header_offset(&self, drive: u16, au: u32) -> u64 {
        let slot = self.slot(drive).extent();
        assert!(au < slot.au_count, "unit {au} of drive {drive}");
        slot.headers_at + u64::from(au) * u64_of(BLOCK)
    }

    fn unusable(&self, drive: u16) -> Error {
        Error::new(Kind::Missing, format!("drive {drive} is {:?}", self.state(drive)))
    }

    #[must_use]
    pub fn counters(&self, drive: u16) -> DriveCounters {
        self.counts(drive).get()
    }
}
