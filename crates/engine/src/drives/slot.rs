//! The place that a drive has in its pool: what drive is there now, and whether it can be used.

use super::Cause;
use super::health::Health;
use crate::error::{Error, Kind, Result};
use crate::limits::RETURNS_MAX;
use media::Drive;
use reactor::{Nanos, now};
use std::array;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Whether a drive can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveState {
    Online,
    /// Not there when the pool was opened.
    Missing,
    /// It failed a write, or went away. Nothing more is written to it, and what it holds may be old.
    Failed,
    /// It was away, and is made whole: all that is new is written to it, nothing is read from it, and
    /// nobody counts on it.
    Rejoining,
}

impl DriveState {
    /// Whether what is new is written to it.
    #[must_use]
    pub const fn is_written(self) -> bool {
        matches!(self, Self::Online | Self::Rejoining)
    }
}

const ONLINE: u32 = 0;
const MISSING: u32 = 1;
const FAILED: u32 = 2;
const REJOINING: u32 = 3;

/// What of a slot's word is the state itself, which of its drives is there, and what one change adds to
/// the rest: whoever sees the one sees the others.
const STATE: u32 = 0xff;
const TURN: u32 = 0x100;
const TURNS: u32 = 0xff00;
const CHANGE: u32 = 0x1_0000;

const _: () = assert!(RETURNS_MAX < (TURNS / TURN) as usize);

#[derive(Debug)]
pub(super) struct Slot {
    /// Those that had this place since the pool was opened, one after another: none is let go of while
    /// somebody may still use it.
    drives: [OnceLock<Arc<Drive>>; RETURNS_MAX + 1],
    /// Why each of them was taken out of use: whatever came first.
    causes: [OnceLock<Box<Cause>>; RETURNS_MAX + 1],
    word: AtomicU32,
    /// When that was changed last; 0 where it never was.
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
        let state = match &drive {
            None => MISSING,
            Some(_) if failed => FAILED,
            Some(_) => ONLINE,
        };
        let mut drives: [OnceLock<Arc<Drive>>; RETURNS_MAX + 1] =
            array::from_fn(|_| OnceLock::new());
        drives[0] = drive.map_or_else(OnceLock::new, OnceLock::from);
        let causes = array::from_fn(|_| OnceLock::new());
        let (word, changed) = (AtomicU32::new(state), AtomicU64::new(0));
        let (health, extent) = (Health::default(), OnceLock::from(extent));
        Self { drives, causes, word, changed, health, extent, vacant: AtomicBool::new(false) }
    }

    /// A place that there may be later.
    pub fn to_come() -> Self {
        Self { extent: OnceLock::new(), ..Self::new(None, false, Extent::default()) }
    }

    /// From now on there is such a place, with nothing in it.
    pub fn begin(&self, extent: Extent) {
        self.vacant.store(true, Ordering::Release);
        let _ = self.extent.set(extent);
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

    fn look(&self) -> (DriveState, usize) {
        let word = self.word.load(Ordering::Acquire);
        let state = match word & STATE {
            ONLINE => DriveState::Online,
            MISSING => DriveState::Missing,
            REJOINING => DriveState::Rejoining,
            _ => DriveState::Failed,
        };
        (state, turn_of(word))
    }

    pub fn state(&self) -> DriveState {
        self.look().0
    }

    /// How often another drive, or the same one again, took this place.
    pub fn returns(&self) -> usize {
        self.look().1
    }

    pub fn changes(&self) -> u32 {
        self.word.load(Ordering::Acquire) / CHANGE
    }

    /// When the state was changed last since the pool was opened.
    pub fn changed(&self) -> Option<Nanos> {
        Some(self.changed.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Why the drive that is, or was, there last is out of use, if it was taken out since the pool was opened.
    pub fn cause(&self) -> Option<&Cause> {
        let (state, turn) = self.look();
        if state.is_written() { None } else { self.causes[turn].get().map(|cause| &**cause) }
    }

    /// The drive that is there, if its state is one of these.
    pub fn drive_if(&self, wanted: impl FnOnce(DriveState) -> bool) -> Option<&Arc<Drive>> {
        let (state, turn) = self.look();
        if wanted(state) { self.drives[turn].get() } else { None }
    }

    /// Every drive that had this place.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Drive>> {
        self.drives.iter().filter_map(OnceLock::get)
    }

    fn change(&self, change: impl Fn(u32) -> Option<u32>) -> bool {
        let counted = |word: u32| change(word).map(|changed| changed + CHANGE);
        let is_changed =
            self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, counted).is_ok();
        if is_changed {
            self.changed.store(now().max(1), Ordering::Relaxed);
        }
        is_changed
    }

    /// Takes a drive out of use, whichever is there.
    pub fn fail(&self, why: Cause) {
        let (state, turn) = self.look();
        if state.is_written() {
            self.fail_in(turn, why);
        }
    }

    /// Takes this drive out of use. What comes late of one that was there before says nothing of its successor.
    pub fn fail_one(&self, drive: &Arc<Drive>, why: Cause) {
        let (state, turn) = self.look();
        let is_there = self.drives[turn].get().is_some_and(|there| Arc::ptr_eq(there, drive));
        if is_there && state.is_written() {
            self.fail_in(turn, why);
        }
    }

    /// Takes the drive of this turn out of use, unless it is already. Whoever sees that sees why.
    fn fail_in(&self, turn: usize, why: Cause) {
        // Another may have been first.
        let _ = self.causes[turn].set(Box::new(why));
        let _ = self.change(|word| if turn_of(word) == turn { failed(word) } else { None });
    }

    /// Puts a drive here that is to be made whole.
    ///
    /// # Errors
    /// `Exists` where one is in use, `Full` when drives came and went too often.
    pub fn take_back(&self, drive: Arc<Drive>) -> Result<()> {
        let (state, turn) = self.look();
        if state.is_written() {
            return Err(Error::new(Kind::Exists, "the drive is in use already"));
        }
        let next = self.drives.get(turn + 1).ok_or_else(|| {
            let context =
                format!("the drive came and went {RETURNS_MAX} times since the pool was opened");
            Error::new(Kind::Full, context)
        })?;
        let taken = || Error::new(Kind::Exists, "the drive is being taken back already");
        next.set(drive).map_err(|_| taken())?;
        self.health.forget();
        let back = |word| (turn_of(word) == turn).then_some(((word & !STATE) + TURN) | REJOINING);
        if self.change(back) { Ok(()) } else { Err(taken()) }
    }

    /// The drive that is being made whole is whole; false when it failed meanwhile.
    pub fn make_online(&self) -> bool {
        self.change(|word| (word & STATE == REJOINING).then_some((word & !STATE) | ONLINE))
    }
}

const fn turn_of(word: u32) -> usize {
    ((word & TURNS) / TURN) as usize
}

fn failed(word: u32) -> Option<u32> {
    matches!(word & STATE, ONLINE | REJOINING).then_some((word & !STATE) | FAILED)
}
