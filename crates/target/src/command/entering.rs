//! Who is on which blocks of a namespace on one core, who holds them, and who waits to enter: in the line of one hold that
//! keeps them off. When that ends they are looked at, the first of them first, and enter or go on to the line of another.
//!
//! Whoever may enter does so where it is found out, not when its task runs next: so those who waited for a hold have
//! entered before the next one comes, and nobody depends on whether the others run.

use std::collections::HashMap;
use std::task::Waker;

use nvme::nvm::LbaRange;
use stdx::Slab;

use super::fence::Hold;
use super::lines::{Line, Lines, Place, READY};
use crate::limits::{COUNTED_AT_ONCE, MAX_RANGES_IN_FLIGHT};

/// What entered.
#[derive(Debug)]
pub struct Entered {
    pub range: LbaRange,
    /// The number of its queue.
    pub queue: u64,
    /// By which others are kept off since its queue was lost.
    pub kept: Option<u64>,
    /// Of the same queue: who entered after it, and before it.
    after: Option<u32>,
    before: Option<u32>,
}

/// A hold that is known here, and those whom it keeps off.
#[derive(Debug)]
struct Noted {
    hold: Hold,
    line: Line,
}

/// A command that waits.
#[derive(Debug)]
struct Waiter {
    ranges: Box<[LbaRange]>,
    /// The number of the queue for which it enters; `None` for one that waits for holds of lost queues only, and enters
    /// nothing.
    queue: Option<u64>,
    waker: Waker,
    /// The lower the earlier.
    came: u64,
    /// How often a hold that it had waited for was gone, and another one was there.
    passed: u32,
    /// It has entered, or has nothing to wait for any more.
    goes: Option<Vec<u32>>,
}

/// Of somebody whom nothing seemed to keep off.
pub enum Looked {
    /// It goes on: to be woken.
    Goes(Place, Waker),
    /// Another hold keeps it off.
    HeldOff(Place),
    /// What a lost queue has under way keeps it off, which may be long.
    Kept(Place),
}

/// See above. The first of [`READY`] was woken, or lacks room: whoever it is goes on with those behind.
#[derive(Debug)]
pub struct Entering {
    holds: Vec<Noted>,
    under_way: Slab<Entered>,
    /// Who of each queue entered last.
    last: HashMap<u64, u32>,
    /// Indices that were ever in use are below this.
    indices: u32,
    waiters: Lines<Waiter>,
    came: u64,
    /// The first of those who are ready lacks room: nobody else gets it before.
    is_short: bool,
}

impl Entering {
    pub fn new(holds: Vec<Hold>) -> Self {
        let mut all = Self {
            holds: Vec::new(),
            under_way: Slab::new(MAX_RANGES_IN_FLIGHT),
            last: HashMap::new(),
            indices: 0,
            waiters: Lines::default(),
            came: 0,
            is_short: false,
        };
        holds.into_iter().for_each(|hold| all.note(hold));
        all
    }

    /// Whether nobody holds a part of `range`.
    #[inline]
    pub fn is_free(&self, range: LbaRange) -> bool {
        self.holds.is_empty() || !self.holds.iter().any(|noted| noted.hold.range.overlaps(range))
    }

    /// Whether a command may enter `range` without waiting.
    #[inline]
    pub fn may_enter(&self, range: LbaRange) -> bool {
        self.is_free(range) && !self.under_way.is_full() && !self.is_short
    }

    /// Whether a part of one of these ranges is kept for a lost queue.
    #[inline]
    pub fn is_kept(&self, ranges: &[LbaRange]) -> bool {
        let is_in = |hold: &Hold| ranges.iter().any(|range| hold.range.overlaps(*range));
        self.holds.iter().any(|noted| noted.hold.is_lost && is_in(&noted.hold))
    }

    /// Enters unless it has to wait.
    #[inline]
    pub fn enter(&mut self, queue: u64, range: LbaRange) -> Option<u32> {
        if !self.may_enter(range) {
            return None;
        }
        self.insert_one(queue, range)
    }

    fn insert_one(&mut self, queue: u64, range: LbaRange) -> Option<u32> {
        let before = self.last.get(&queue).copied();
        let entered = Entered { range, queue, kept: None, after: None, before };
        let index = self.under_way.insert(entered).ok()?;
        if let Some(before) = before.and_then(|at| self.under_way.get_mut(at)) {
            before.after = Some(index);
        }
        self.last.insert(queue, index);
        self.indices = self.indices.max(index + 1);
        Some(index)
    }

    /// Takes one that has left out of those of its queue.
    fn unlink(&mut self, left: &Entered) {
        if let Some(before) = left.before.and_then(|at| self.under_way.get_mut(at)) {
            before.after = left.after;
        }
        match (left.after, left.before) {
            (Some(after), before) => {
                if let Some(after) = self.under_way.get_mut(after) {
                    after.before = before;
                }
            }
            (None, Some(before)) => {
                self.last.insert(left.queue, before);
            }
            (None, None) => {
                self.last.remove(&left.queue);
            }
        }
    }

    /// The same for all of these ranges together.
    pub fn enter_all(&mut self, queue: u64, ranges: &[LbaRange]) -> Option<Vec<u32>> {
        let is_free = !self.is_short && ranges.iter().all(|range| self.is_free(*range));
        (is_free && self.has_room(ranges)).then(|| self.insert(queue, ranges))
    }

    fn has_room(&self, ranges: &[LbaRange]) -> bool {
        self.under_way.len() + ranges.len() <= MAX_RANGES_IN_FLIGHT
    }

    fn insert(&mut self, queue: u64, ranges: &[LbaRange]) -> Vec<u32> {
        ranges.iter().filter_map(|range| self.insert_one(queue, *range)).collect()
    }

    /// Counts those on a range among some of what is under way, from an index on. Gives the index to go on from, too, which
    /// nothing is at or behind when all have been looked at.
    pub fn count_on(&self, range: LbaRange, from: u32) -> (usize, u32) {
        let to = match self.under_way.is_empty() {
            true => self.indices,
            false => self.indices.min(from + COUNTED_AT_ONCE),
        };
        let is_on = |index: &u32| {
            self.under_way.get(*index).is_some_and(|entered| entered.range.overlaps(range))
        };
        ((from..to).filter(is_on).count(), to)
    }

    /// Whether everything under way has an index below this.
    pub const fn are_below(&self, index: u32) -> bool {
        self.indices <= index
    }

    /// Takes out what has ended; `None` when nothing is there.
    pub fn leave(&mut self, index: u32) -> Option<Entered> {
        let left = self.under_way.remove(index);
        if let Some(left) = &left {
            self.unlink(left);
        }
        if self.under_way.is_empty() && self.indices > COUNTED_AT_ONCE {
            // What there was at its most is not looked through for ever. Whoever counts has counted all there was.
            (self.under_way, self.indices) = (Slab::new(MAX_RANGES_IN_FLIGHT), 0);
        }
        left
    }

    /// What a queue has under way, those that entered last first.
    pub fn of_queue(&self, queue: u64) -> impl Iterator<Item = (u32, &Entered)> {
        let at = |index: Option<u32>| index.and_then(|at| Some((at, self.under_way.get(at)?)));
        let last = at(self.last.get(&queue).copied());
        std::iter::successors(last, move |(_, entered)| at(entered.before))
    }

    #[cfg(test)]
    pub const fn under_way(&self) -> &Slab<Entered> {
        &self.under_way
    }

    pub const fn under_way_mut(&mut self) -> &mut Slab<Entered> {
        &mut self.under_way
    }

    /// From now on nobody enters there.
    pub fn note(&mut self, hold: Hold) {
        let line = self.waiters.begin();
        self.holds.push(Noted { hold, line });
    }

    /// Ends holds: whom they kept off is ready to be looked at. Tells whether nobody else was: the first of those was woken, or
    /// lacks room.
    pub fn lift(&mut self, ids: &[u64]) -> bool {
        let was_nobody = self.waiters.first(READY).is_none();
        for noted in self.holds.extract_if(.., |noted| ids.contains(&noted.hold.id)) {
            self.waiters.append(noted.line, READY);
            self.waiters.end(noted.line);
        }
        was_nobody
    }

    /// Begins to wait: to enter for a queue, or for what lost queues have there. Whoever waits leaves by
    /// [`give_up`](Self::give_up) in any case.
    pub fn wait(&mut self, queue: Option<u64>, ranges: &[LbaRange]) -> Place {
        self.came += 1;
        let waiter = Waiter {
            ranges: ranges.into(),
            queue,
            waker: Waker::noop().clone(),
            came: self.came,
            passed: 0,
            goes: None,
        };
        let line = keeps_off(&self.holds, &waiter).map_or(READY, |noted| noted.line);
        self.waiters.join(line, waiter)
    }

    /// What it has entered by, once it goes on.
    pub fn goes(&mut self, place: Place) -> Option<Vec<u32>> {
        self.waiters.at(place).goes.take()
    }

    /// Whom to wake for it.
    pub fn renew(&mut self, place: Place, waker: &Waker) {
        self.waiters.at(place).waker.clone_from(waker);
    }

    /// Waits no more. Gives what it has entered by, where it did not hear of that; and whether somebody else is the first
    /// of those who are ready now, and has to be woken.
    pub fn give_up(&mut self, place: Place) -> (Option<Vec<u32>>, bool) {
        let was_next = self.waiters.first(READY) == Some(place);
        (self.waiters.leave(place).goes, was_next)
    }

    /// Whether something of a lost queue keeps it off.
    pub fn waits_for_kept(&mut self, place: Place) -> bool {
        let waiter = self.waiters.at(place);
        keeps_off(&self.holds, waiter).is_some_and(|noted| noted.hold.is_lost)
    }

    /// When it came, and how often it was passed.
    pub fn age(&mut self, place: Place) -> (u64, u32) {
        let waiter = self.waiters.at(place);
        (waiter.came, waiter.passed)
    }

    /// It was not passed yet.
    pub fn begin_anew(&mut self, place: Place) {
        self.waiters.at(place).passed = 0;
    }

    pub fn ranges_of(&mut self, place: Place) -> &[LbaRange] {
        &self.waiters.at(place).ranges
    }

    /// How many wait, or have yet to hear that they need not.
    pub const fn waiting(&self) -> usize {
        self.waiters.waiting()
    }

    /// Whether the first of those who are ready lacks room.
    pub const fn is_short(&self) -> bool {
        self.is_short
    }

    /// The first of those who are ready, unless it lacks room.
    pub fn next(&mut self) -> Option<(Place, Waker)> {
        let first = self.waiters.first(READY).filter(|_| !self.is_short)?;
        Some((first, self.waiters.at(first).waker.clone()))
    }

    /// How many holds are known here.
    #[cfg(test)]
    pub const fn holds(&self) -> usize {
        self.holds.len()
    }

    /// Looks at the first of those who are ready. `None` when there is nobody, or no room.
    pub fn look(&mut self) -> Option<Looked> {
        self.is_short = false;
        let place = self.waiters.first(READY)?;
        let waiter = self.waiters.at(place);
        if let Some(noted) = keeps_off(&self.holds, waiter) {
            waiter.passed += 1;
            self.waiters.go_to(place, noted.line);
            return Some(match noted.hold.is_lost {
                true => Looked::Kept(place),
                false => Looked::HeldOff(place),
            });
        }
        let (queue, ranges) = (waiter.queue, std::mem::take(&mut waiter.ranges));
        let goes = match queue {
            None => Vec::new(),
            Some(queue) if self.has_room(&ranges) => self.insert(queue, &ranges),
            Some(_) => {
                self.waiters.at(place).ranges = ranges;
                self.is_short = true;
                return None;
            }
        };
        let waiter = self.waiters.at(place);
        waiter.goes = Some(goes);
        let waker = std::mem::replace(&mut waiter.waker, Waker::noop().clone());
        self.waiters.stand_aside(place);
        Some(Looked::Goes(place, waker))
    }
}

/// A hold that keeps it off: one of a lost queue if there is any, which may last.
fn keeps_off<'a>(holds: &'a [Noted], waiter: &Waiter) -> Option<&'a Noted> {
    let is_on = |hold: &Hold| waiter.ranges.iter().any(|range| hold.range.overlaps(*range));
    let lost = holds.iter().find(|noted| noted.hold.is_lost && is_on(&noted.hold));
    let enters = waiter.queue.is_some();
    lost.or_else(|| holds.iter().find(|noted| enters && is_on(&noted.hold)))
}
