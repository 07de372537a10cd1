//! Those that had a place one after another, as cores share it: a word says how the last of them is doing, and which of them
//! it is, so that whoever sees the one sees the other.

use crate::concurrent::{AtomicU32, OnceLock, Ordering};
use std::array;
use std::sync::Arc;

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

/// Turns that can be told apart.
pub const OCCUPANTS_MAX: usize = (TURNS / TURN) as usize;

#[derive(Debug)]
pub struct Occupants<T, const N: usize> {
    /// None is let go of while somebody may still use it.
    all: [OnceLock<Arc<T>>; N],
    word: AtomicU32,
}

/// Why something cannot take a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// What is there is in use.
    InUse,
    /// Something else is taking it.
    Taken,
    /// Too many had it.
    Full,
}

impl<T, const N: usize> Occupants<T, N> {
    /// Of one that is there, or missing, or there and known to have failed.
    pub fn new(first: Option<Arc<T>>, failed: bool) -> Self {
        let state = match &first {
            None => MISSING,
            Some(_) if failed => FAILED,
            Some(_) => ONLINE,
        };
        let all: [OnceLock<Arc<T>>; N] = array::from_fn(|_| OnceLock::new());
        if let Some(first) = first {
            let _ = all[0].set(first);
        }
        Self { all, word: AtomicU32::new(state) }
    }

    /// How the last one is doing, and how many were there before it.
    pub fn look(&self) -> (DriveState, usize) {
        let word = self.word.load(Ordering::Acquire);
        let state = match word & STATE {
            ONLINE => DriveState::Online,
            MISSING => DriveState::Missing,
            REJOINING => DriveState::Rejoining,
            _ => DriveState::Failed,
        };
        (state, turn_of(word))
    }

    /// How often one failed, or came.
    pub fn changes(&self) -> u32 {
        self.word.load(Ordering::Acquire) / CHANGE
    }

    /// The one that is there, if its state is one of these.
    pub fn last_if(&self, wanted: impl FnOnce(DriveState) -> bool) -> Option<&Arc<T>> {
        let (state, turn) = self.look();
        if wanted(state) { self.all[turn].get() } else { None }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.all.iter().filter_map(OnceLock::get)
    }

    fn change(&self, change: impl Fn(u32) -> Option<u32>) -> bool {
        let counted = |word: u32| change(word).map(|changed| changed + CHANGE);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, counted).is_ok()
    }

    /// Takes the one that is there out of use; false for one that has failed already. `tells`, which gets its turn, is called
    /// before anybody sees that.
    pub fn fail(&self, tells: impl FnOnce(usize)) -> bool {
        let (state, turn) = self.look();
        state.is_written() && self.fail_in(turn, tells)
    }

    /// Takes this one out of use. What comes late of one that was there before says nothing of its successor.
    pub fn fail_one(&self, which: &Arc<T>, tells: impl FnOnce(usize)) -> bool {
        let (state, turn) = self.look();
        let is_there = self.all[turn].get().is_some_and(|there| Arc::ptr_eq(there, which));
        is_there && state.is_written() && self.fail_in(turn, tells)
    }

    fn fail_in(&self, turn: usize, tells: impl FnOnce(usize)) -> bool {
        tells(turn);
        self.change(|word| if turn_of(word) == turn { failed(word) } else { None })
    }

    /// Puts one here that is to be made whole; `begins` is called before anybody sees it.
    pub fn take_back(&self, next: Arc<T>, begins: impl FnOnce()) -> Result<(), Refused> {
        let (state, turn) = self.look();
        if state.is_written() {
            return Err(Refused::InUse);
        }
        let place = self.all.get(turn + 1).ok_or(Refused::Full)?;
        place.set(next).map_err(|_| Refused::Taken)?;
        begins();
        let back = |word| (turn_of(word) == turn).then_some(((word & !STATE) + TURN) | REJOINING);
        if self.change(back) { Ok(()) } else { Err(Refused::Taken) }
    }

    /// The one that is being made whole is whole; false when it failed meanwhile.
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
