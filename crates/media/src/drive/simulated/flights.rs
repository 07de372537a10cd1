//! Changes in flight, those among them that nobody waits for any more: whoever did is gone, or gave them up. They are
//! with the kernel, or with another machine, and end at moments of their own. What comes of each is drawn when it is
//! left, so that what a drive will hold once all have ended is known.

use super::image::{Image, Pages};
use super::{InFlight, SECTOR, Simulated, State};
use crate::error::{Error, Kind, Operation};
use crate::limits::TRANSFER_DEADLINE;
use reactor::{Elapsed, Nanos, SIMULATED_START_NANOS, is_simulated, now, sleep, timeout};
use std::time::Duration;
use stdx::Prng;
use stdx::num::{align_down, u64_of, usize64};

/// How often an operation looks whether those of the connection before have ended.
const FENCE_LOOK: Duration = Duration::from_micros(100);

/// When another machine executes a command at the latest that was left, as doublings of a microsecond: half a second.
const LEFT_DOUBLINGS: u64 = 20;

/// When a kernel is done at the latest with what its drive held up, once that goes on, likewise: four seconds. It asks a drive
/// that was reset anew for all that it had been asked for, in whatever order.
const HELD_UP_DOUBLINGS: u64 = 23;

/// The most parts that zeroes come to be torn into: drives free and zero more at once than they write.
const ZERO_PARTS: u64 = 64;

/// A change between its beginning and its end.
#[derive(Clone)]
pub(super) enum Change {
    /// A write; zeroes without data.
    Write { offset: u64, len: u64, data: Option<Box<[u8]>> },
    /// What was written before this mark of the image becomes durable.
    Flush(u64),
}

pub(super) struct Flight {
    pub change: Change,
    /// When it ends, as far as is known.
    pub end: Nanos,
}

/// One that nobody waits for.
pub(super) struct Left {
    /// What is written in the end: all of it, some of its sectors, or nothing.
    changes: Vec<Change>,
    end: Nanos,
    /// It is past its deadline.
    late: bool,
    /// A process asked for it that is gone.
    of_before: bool,
}

fn here() -> Option<Nanos> {
    is_simulated().then(now)
}

impl Simulated {
    /// Whether no process that is gone has changes in flight: see [`Drive::is_alone`](crate::Drive::is_alone).
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let mut state = self.state();
        self.land_left(&mut state);
        !state.left.iter().any(|left| left.of_before)
    }

    /// Whether changes are in flight that nobody waits for.
    #[must_use]
    pub fn has_left_changes(&self) -> bool {
        let mut state = self.state();
        self.land_left(&mut state);
        !state.left.is_empty()
    }

    /// Whether a kernel has changes of this process that nobody waits for: see
    /// [`Drive::has_late_changes`](crate::Drive::has_late_changes).
    #[must_use]
    pub fn has_late_changes(&self) -> bool {
        let mut state = self.state();
        self.land_left(&mut state);
        let is_own = |left: &Left| !left.of_before;
        self.options.in_flight == InFlight::Kernel && state.left.iter().any(is_own)
    }

    /// Whether changes are in flight, somebody waiting for them or not: see [`Drive::has_changes`](crate::Drive::has_changes).
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.has_late_changes() || !self.state().flights.is_empty()
    }

    pub(super) fn refuses_beside_late(&self) -> Option<Kind> {
        let mut state = self.state();
        self.land_left(&mut state);
        let is_late = self.options.in_flight == InFlight::Kernel;
        (is_late && state.left.iter().any(|left| left.late)).then_some(Kind::Timeout)
    }

    /// Whether nothing ends.
    #[must_use]
    pub fn hangs(&self) -> bool {
        self.state().hangs
    }

    /// The process that used the drive ended at this time of its own: what it left in flight ends when it would have,
    /// each after so much longer, in the time of the next one. That one counts changes of its own only, and has none.
    pub fn end_process(&self, at: Nanos, mut longer: impl FnMut() -> Duration) {
        if self.options.in_flight == InFlight::Waiter {
            return;
        }
        let mut state = self.state();
        let rest = |end: Nanos| end.saturating_sub(at);
        state.stalled_until = SIMULATED_START_NANOS + rest(state.stalled_until);
        for left in &mut state.left {
            let longer = Nanos::try_from(longer().as_nanos()).unwrap_or(Nanos::MAX / 4);
            left.end = SIMULATED_START_NANOS + rest(left.end) + longer;
            (left.late, left.of_before) = (false, true);
        }
        match state.stalled_until > SIMULATED_START_NANOS {
            true => self.hold_up(&mut state),
            false => state.left.sort_by_key(|left| left.end),
        }
    }

    /// What would have ended by now, or before the drive answers again, ends some time after that: a kernel keeps no order
    /// among what it has, nor beside what it is asked for later.
    pub(super) fn hold_up(&self, state: &mut State) {
        let until = state.stalled_until.max(here().unwrap_or(0));
        if self.options.in_flight == InFlight::Kernel {
            for left in state.left.iter_mut().filter(|left| left.end <= until) {
                left.end = held_up(&mut state.ends, until);
            }
        }
        state.left.sort_by_key(|left| left.end);
    }

    /// Has what was left come to its end, as far as that is due.
    pub(super) fn land_left(&self, state: &mut State) {
        if state.left.is_empty() || !self.options.power.is_on() || state.hangs {
            return;
        }
        let Some(now) = here().filter(|now| state.stalled_until <= *now) else { return };
        let due = state.left.partition_point(|left| left.end <= now);
        self.land(state, due);
    }

    /// All of it, as the drive goes.
    pub(super) fn land_all(&self, state: &mut State) {
        let all = state.left.len();
        self.land(state, all);
    }

    fn land(&self, state: &mut State, due: usize) {
        let certain = !self.options.volatile_cache;
        let landed: Vec<Left> = state.left.drain(..due).collect();
        for change in landed.into_iter().flat_map(|left| left.changes) {
            state.counters.left += 1;
            state.do_change(change, certain);
        }
    }

    /// The drive goes: who waits for changes hears that it is gone, and what they did by then is there should it come back.
    pub(super) fn break_off(&self, state: &mut State) {
        let certain = !self.options.volatile_cache;
        let under_way: Vec<Change> = state.flights.values().map(|f| f.change.clone()).collect();
        // From a source of its own: what seeds meant before stays.
        let State { prng, ends, .. } = state;
        std::mem::swap(prng, ends);
        for change in under_way {
            let done = state.outcome(change);
            done.into_iter().for_each(|change| state.do_change(change, certain));
        }
        let State { prng, ends, .. } = state;
        std::mem::swap(prng, ends);
    }

    /// Nobody waits for a change any more: what comes of it comes when it ends.
    pub(super) fn leave(&self, state: &mut State, flight: Flight, late: bool) {
        self.leave_one(state, flight, late);
        if self.options.in_flight.is_remote() {
            state.connection += 1;
            self.leave_all(state);
        }
    }

    /// A connection is lost: nobody waits any more for what was asked by it.
    pub(super) fn leave_all(&self, state: &mut State) {
        for (_, flight) in std::mem::take(&mut state.flights) {
            self.leave_one(state, flight, false);
        }
    }

    fn leave_one(&self, state: &mut State, flight: Flight, late: bool) {
        let (now, mut end) = (here().unwrap_or(0), flight.end);
        let until = state.stalled_until.max(now);
        if self.options.in_flight.is_remote() {
            let most = 1 << state.prng.below(LEFT_DOUBLINGS);
            end = end.max(now) + 1_000 * state.prng.below(most);
        } else if end < until {
            end = held_up(&mut state.ends, until);
        }
        let changes = state.outcome(flight.change);
        let at = state.left.partition_point(|left| left.end <= end);
        state.left.insert(at, Left { changes, end, late, of_before: false });
    }

    /// Waits for what has to end before a change, if that is not too long.
    pub(super) async fn may_change(&self) -> Result<(), Kind> {
        match self.refuses_beside_late() {
            // Without power nothing is answered.
            Some(kind) if self.options.power.is_on() => Err(kind),
            _ => self.fence_in_time().await,
        }
    }

    /// Who reaches a drive of another machine anew waits until the commands of the connections before have ended, as by
    /// Preempt and Abort (NVMe Base 2.1, section 8.1.22).
    pub(super) async fn fence_in_time(&self) -> Result<(), Kind> {
        if self.options.in_flight != InFlight::Fenced {
            return Ok(());
        }
        let fence = async {
            while self.has_left_changes() && self.options.power.is_on() && !self.state().failed {
                sleep(FENCE_LOOK).await;
            }
        };
        timeout(TRANSFER_DEADLINE, fence).await.map_err(|Elapsed| Kind::Timeout)
    }

    pub(super) fn take_off(&self, change: Change) -> Flying<'_> {
        let mut state = self.state();
        let id = state.next_flight;
        state.next_flight += 1;
        if self.options.power.is_on() {
            state.flights.insert(id, Flight { change, end: now() });
        }
        Flying { drive: self, id }
    }
}

/// When something ends that was held up until then.
fn held_up(ends: &mut Prng, until: Nanos) -> Nanos {
    let most = 1 << ends.below(HELD_UP_DOUBLINGS);
    until + 1 + 1_000 * ends.below(most)
}

impl State {
    /// What comes of a change that nobody hears the end of.
    fn outcome(&mut self, change: Change) -> Vec<Change> {
        match self.prng.below(3) {
            0 => Vec::new(),
            1 => self.torn(change),
            _ => vec![change],
        }
    }

    fn do_change(&mut self, change: Change, certain: bool) {
        match change {
            Change::Write { offset, len, data } => self.image.write(offset, len, data, certain),
            Change::Flush(mark) => self.image.flush(mark),
        }
    }

    /// A change that did not end well: any of its sectors is there. Of zeroes, which may be many, whole stretches.
    pub(super) fn torn(&mut self, change: Change) -> Vec<Change> {
        let Change::Write { offset, len, data } = change else { return Vec::new() };
        // From a copy: what seeds meant before zeroes were torn stays.
        let mut aside = self.prng.clone();
        let (prng, unit) = match &data {
            Some(_) => (&mut self.prng, SECTOR),
            None => (&mut aside, len.div_ceil(ZERO_PARTS).next_multiple_of(SECTOR)),
        };
        let mut parts = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let next = (align_down(at, SECTOR) + unit).min(end);
            if prng.below(2) == 0 {
                let part = usize64(at - offset)..usize64(next - offset);
                let data = data.as_ref().map(|data| data[part].into());
                parts.push(Change::Write { offset: at, len: next - at, data });
            }
            at = next;
        }
        parts
    }

    /// What reads see once nothing is in flight any more that nobody waits for.
    pub(super) fn settled(&self) -> Pages {
        let pages = self.image.contents();
        if self.left.is_empty() {
            return pages;
        }
        let mut image = Image::of(pages);
        for change in self.left.iter().flat_map(|left| &left.changes) {
            if let Change::Write { offset, len, data } = change {
                image.write(*offset, *len, data.clone(), true);
            }
        }
        image.contents()
    }

    /// Likewise of some bytes, which the image gave.
    pub(super) fn settle_bytes(&self, at: u64, out: &mut [u8]) {
        let end = at + u64_of(out.len());
        for change in self.left.iter().flat_map(|left| &left.changes) {
            let Change::Write { offset, len, data } = change else { continue };
            let (from, to) = (at.max(*offset), end.min(offset + len));
            if from >= to {
                continue;
            }
            let part = &mut out[usize64(from - at)..usize64(to - at)];
            match data {
                Some(data) => {
                    part.copy_from_slice(&data[usize64(from - offset)..usize64(to - offset)]);
                }
                None => part.fill(0),
            }
        }
    }
}

impl Left {
    pub(super) fn into_changes(self) -> Vec<Change> {
        self.changes
    }
}

/// A change between its beginning and its end. Dropped in between, it may or may not have happened, or may yet.
pub(super) struct Flying<'a> {
    drive: &'a Simulated,
    pub id: u64,
}

impl Flying<'_> {
    /// It is past its deadline.
    pub fn give_up(&self, error: Error) -> Error {
        let mut state = self.drive.state();
        if self.drive.options.in_flight != InFlight::Waiter
            && state.refuses_change().is_none()
            && let Some(flight) = state.flights.remove(&self.id)
        {
            self.drive.leave(&mut state, flight, true);
        }
        error
    }

    pub fn land(self, operation: Operation, fua: bool) -> Result<(), Error> {
        let mut state = self.drive.state();
        let flight = state.flights.remove(&self.id);
        let Some(Flight { change: Change::Write { offset, len, data }, .. }) = flight else {
            let is_lost = self.drive.options.in_flight.is_remote();
            return if is_lost { Err(Error::new(Kind::Gone, operation, 0, 0)) } else { Ok(()) };
        };
        // As they come to their ends.
        self.drive.land_left(&mut state);
        let certain = fua || !self.drive.options.volatile_cache;
        let refused = state.arrive(Change::Write { offset, len, data }, certain);
        state.counters.errors += u64::from(refused.is_some());
        drop(state);
        refused.map_or(Ok(()), |kind| Err(Error::new(kind, operation, offset, len)))
    }
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        let mut state = self.drive.state();
        let Some(flight) = state.flights.remove(&self.id) else { return };
        if state.refuses_change().is_some() {
            return;
        }
        if self.drive.options.in_flight != InFlight::Waiter {
            return self.drive.leave(&mut state, flight, false);
        }
        let Change::Write { offset, len, data } = flight.change else { return };
        // Without a cache, what is read is there to stay.
        let certain = !self.drive.options.volatile_cache;
        match state.prng.below(3) {
            0 => {}
            1 => state.scatter(Change::Write { offset, len, data }, certain),
            _ => state.image.write(offset, len, data, certain),
        }
    }
}
