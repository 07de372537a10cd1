//! The place that a drive has in its pool: what drive is there now, and whether it can be used.

use super::Cause;
use super::health::Health;
use super::occupants::{DriveState, OCCUPANTS_MAX, Occupants, Refused};
use crate::error::{Error, Kind, Result};
use crate::limits::RETURNS_MAX;
use media::Drive;
use reactor::{Nanos, now};
use std::array;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Those that had a place since the pool was opened.
const DRIVES: usize = RETURNS_MAX + 1;

const _: () = assert!(DRIVES <= OCCUPANTS_MAX);

#[derive(Debug)]
pub(super) struct Slot {
    drives: Occupants<Drive, DRIVES>,
    /// Why each of them was taken out of use: whatever came first.
    causes: [OnceLock<Box<Cause>>; DRIVES],
    /// When the state was changed last; 0 where it never was.
    changed: AtomicU64,
    pub health: Health,
    /// None before there is such a place.
    extent: OnceLock<Extent>,
    /// Nothing of the pool lies there.
    vacant: AtomicBool,
}

/// Where a pool's part of a drive lies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub headers_at: u64,
    pub units_at: u64,
    pub au_count: u32,
}

impl Slot {
    /// Of a drive that is there, or missing, or there and known to have failed.
    pub fn new(drive: Option<Arc<Drive>>, failed: bool, extent: Extent) -> Self {
        let (health, extent) = (Health::default(), OnceLock::from(extent));
        let (drives, causes) = (Occupants::new(drive, failed), array::from_fn(|_| OnceLock::new()));
        let (changed, vacant) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { drives, causes, changed, health, extent, vacant }
    }

    /// A place that there may be later.
    pub fn to_come() -> Self {
        Self { extent: OnceLock::new(), ..Self::new(None, false, Extent::default()) }
    }

    /// From now on there is such a place, with nothing in it.
    pub fn begin(&self, extent: Extent) {
        self.vacant.store(true, Ordering::Release);
        let is_first = self.extent.set(extent).is_ok();
        assert!(is_first, "a place begins once");
    }

    pub fn extent(&self) -> Extent {
        self.extent.get().copied().unwrap_or_default()
    }

    pub fn is_vacant(&self) -> bool {
        self.vacant.load(Ordering::Acquire)
    }

    pub fn set_vacant(&self, vacant: bool) {
        self.vacant.store(vacant, Ordering::Release);
    }

    pub fn state(&self) -> DriveState {
        self.drives.look().0
    }

    /// How often another drive, or the same one again, took this place.
    pub fn returns(&self) -> usize {
        self.drives.look().1
    }

    /// How often one of them went out of use, or was not there to begin with.
    pub fn outs(&self) -> usize {
        let (state, turns) = self.drives.look();
        turns + usize::from(!state.is_written())
    }

    pub fn changes(&self) -> u32 {
        self.drives.changes()
    }

    /// When the state was changed last since the pool was opened.
    pub fn changed(&self) -> Option<Nanos> {
        Some(self.changed.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    fn note(&self, is_changed: bool) -> bool {
        if is_changed {
            self.changed.store(now().max(1), Ordering::Relaxed);
        }
        is_changed
    }

    /// Why the drive that is, or was, there last is out of use, if it was taken out since the pool was opened.
    pub fn cause(&self) -> Option<&Cause> {
        let (state, turn) = self.drives.look();
        if state.is_written() { None } else { self.causes[turn].get().map(|cause| &**cause) }
    }

    /// The drive that is there, if its state is one of these.
    pub fn drive_if(&self, wanted: impl FnOnce(DriveState) -> bool) -> Option<&Arc<Drive>> {
        self.drives.last_if(wanted)
    }

    /// Every drive that had this place.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Drive>> {
        self.drives.all()
    }

    /// Takes a drive out of use, whichever is there.
    pub fn fail(&self, why: Cause) {
        self.note(self.drives.fail(|turn| self.tell(turn, why)));
    }

    /// Whoever sees that a drive is out of use sees why.
    fn tell(&self, turn: usize, why: Cause) {
        // Another may have been first.
        let _ = self.causes[turn].set(Box::new(why));
    }

    /// Takes this drive out of use. What comes late of one that was there before says nothing of its successor.
    pub fn fail_one(&self, drive: &Arc<Drive>, why: Cause) {
        self.note(self.drives.fail_one(drive, |turn| self.tell(turn, why)));
    }

    /// Puts a drive here that is to be made whole.
    ///
    /// # Errors
    /// `Exists` where one is in use, `Full` when drives came and went too often.
    pub fn take_back(&self, drive: Arc<Drive>) -> Result<()> {
        let taken = self.drives.take_back(drive, || self.health.forget());
        self.note(taken.is_ok());
        taken.map_err(|refused| match refused {
            Refused::InUse => Error::new(Kind::Exists, "the drive is in use already"),
            Refused::Taken => Error::new(Kind::Exists, "the drive is being taken back already"),
            Refused::Full => {
                let context = format!(
                    "the drive came and went {RETURNS_MAX} times since the pool was opened"
                );
                Error::new(Kind::Full, context)
            }
        })
    }

    /// The drive that is being made whole is whole; false when it failed meanwhile.
    pub fn make_online(&self) -> bool {
        self.note(self.drives.make_online())
    }
}
