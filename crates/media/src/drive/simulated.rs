//! A drive that exists in memory only, and fails in every way drives do, from a seed.
//!
//! Its contents outlive the reactor it is used on, so that a test can cut the power, drop everything
//! and start again over what is left. Memory grows with what is written, not with the capacity.

mod flights;
mod image;

pub use image::SECTOR;

use crate::Power;
use crate::error::{Error, Kind, Operation, Refused};
use crate::limits::TRANSFER_DEADLINE;
use flights::{Change, Flight, Left};
use image::{Image, Pages};
use reactor::buffer::Buffer;
use reactor::{Elapsed, Nanos, now, sleep_until, timeout};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stdx::Prng;
use stdx::num::{align_down, low32, u64_of, usize64};

/// How often an operation of a drive that hangs looks whether it still does.
const HANG_LOOK: Nanos = 100_000_000;

/// What becomes of changes that nobody waits for any more, as whoever did is gone or gave them up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// They end at once, one way or the other.
    #[default]
    Waiter,
    /// They are the kernel's, and outlive the process: [`Simulated::is_alone`] tells. Beside those that are late
    /// nothing else is changed.
    Kernel,
    /// They are another machine's, to which the connection is lost with them. Whoever reaches it anew waits first until
    /// they have ended.
    Fenced,
    /// Likewise, and nobody waits: a planted bug.
    Unfenced,
}

impl InFlight {
    const fn is_remote(self) -> bool {
        matches!(self, Self::Fenced | Self::Unfenced)
    }
}

/// What a simulated drive is like.
#[derive(Clone, Debug)]
pub struct SimulatedOptions {
    /// Capacity in bytes: a multiple of 4096.
    pub capacity: u64,
    pub seed: u64,
    /// Writes are volatile until a flush.
    pub volatile_cache: bool,
    /// How long a read, and a write, takes.
    pub transfer: Range<Duration>,
    /// How long a flush takes.
    pub flush: Range<Duration>,
    /// Shared with whatever else loses power when it does.
    pub power: Arc<Power>,
    pub in_flight: InFlight,
}

impl Default for SimulatedOptions {
    fn default() -> Self {
        Self {
            capacity: 1 << 30,
            seed: 0,
            volatile_cache: true,
            transfer: Duration::from_micros(5)..Duration::from_micros(120),
            flush: Duration::from_micros(20)..Duration::from_millis(1),
            power: Arc::default(),
            in_flight: InFlight::default(),
        }
    }
}

/// Which faults happen by themselves, how often in a million operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimulatedFaults {
    /// A read fails; the next one may not.
    pub read_error_ppm: u32,
    /// A write fails, and leaves any of its sectors written.
    pub write_error_ppm: u32,
    /// A flush fails, and the drive latches.
    pub flush_error_ppm: u32,
    /// A write leaves a sector that cannot be read until it is written again.
    pub latent_ppm: u32,
    /// A write flips a bit somewhere on the drive.
    pub rot_ppm: u32,
    /// A write is acknowledged and forgotten.
    pub lost_ppm: u32,
    /// A write is acknowledged, and went elsewhere.
    pub misdirected_ppm: u32,
    /// An operation takes a hundred times as long.
    pub slow_ppm: u32,
}

/// What a simulated drive answers to some operations, as a system's error would have it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Which operations; all of them if none is named.
    pub operation: Option<Operation>,
    /// Those that touch these bytes.
    pub range: Range<u64>,
    pub kind: Kind,
    /// How many times; for ever if that is not said.
    pub times: Option<u64>,
}

impl Refusal {
    /// Every operation, for so many times.
    #[must_use]
    pub const fn all(kind: Kind, times: u64) -> Self {
        Self { operation: None, range: 0..u64::MAX, kind, times: Some(times) }
    }
}

/// What happened on the drive since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimulatedCounters {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Operations that failed, whoever wanted that.
    pub errors: u64,
    pub latent: u64,
    pub rotten: u64,
    pub lost: u64,
    pub misdirected: u64,
    pub power_cuts: u64,
    /// Changes that ended with nobody waiting for them.
    pub left: u64,
}

/// What a drive held at some moment.
#[derive(Clone)]
pub struct SimulatedContents(Pages);

impl std::fmt::Debug for SimulatedContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SimulatedContents").field(&self.0.len()).finish()
    }
}

struct State {
    prng: Prng,
    /// When what was held up ends.
    ends: Prng,
    capacity: u64,
    image: Image,
    faults: SimulatedFaults,
    counters: SimulatedCounters,
    flights: BTreeMap<u64, Flight>,
    next_flight: u64,
    /// Those that nobody waits for, in the order of their ends.
    left: Vec<Left>,
    /// Which one it is since it died last, or had no power.
    connection: u64,
    /// Sectors that cannot be read.
    latent: BTreeSet<u64>,
    failed: bool,
    /// There is no space for what was never written, nor set aside.
    full: bool,
    set_aside: Vec<std::ops::Range<u64>>,
    latched: bool,
    stalled_until: Nanos,
    /// Nothing ends.
    hangs: bool,
    /// Operations but flushes take so many times as long.
    slower: u32,
    refusals: Vec<Refusal>,
    /// Counts power cuts: an operation from before one never ends.
    epoch: u64,
}

/// A simulated drive; see the module.
pub struct Simulated {
    options: SimulatedOptions,
    state: Mutex<State>,
}

impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulated").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Simulated {
    #[must_use]
    pub fn new(options: SimulatedOptions) -> Arc<Self> {
        let state = State {
            prng: Prng::new(options.seed),
            ends: Prng::new(options.seed ^ 0x5eed_01a7_e000_0001),
            capacity: align_down(options.capacity, 4096),
            image: Image::new(),
            faults: SimulatedFaults::default(),
            counters: SimulatedCounters::default(),
            flights: BTreeMap::new(),
            next_flight: 0,
            left: Vec::new(),
            connection: 0,
            latent: BTreeSet::new(),
            failed: false,
            full: false,
            set_aside: Vec::new(),
            latched: false,
            stalled_until: 0,
            hangs: false,
            slower: 1,
            refusals: Vec::new(),
            epoch: 0,
        };
        Arc::new(Self { options, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_faults(&self, faults: SimulatedFaults) {
        self.state().faults = faults;
    }

    #[must_use]
    pub fn counters(&self) -> SimulatedCounters {
        self.state().counters
    }

    /// Bytes of memory its contents take.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.state().image.resident()
    }

    /// The drive dies: every operation, those under way included, ends with `Gone`.
    pub fn fail(&self) {
        let mut state = self.state();
        match self.options.in_flight {
            InFlight::Waiter => {}
            InFlight::Kernel if !state.failed => {
                self.land_all(&mut state);
                self.break_off(&mut state);
            }
            InFlight::Kernel => {}
            InFlight::Fenced | InFlight::Unfenced => self.leave_all(&mut state),
        }
        state.failed = true;
    }

    /// The drive answers again, with what it held when it died.
    pub fn revive(&self) {
        let mut state = self.state();
        state.connection += u64::from(std::mem::take(&mut state.failed));
    }

    /// As of a drive of another machine: another one whenever it died, or its power was cut.
    #[must_use]
    pub fn connection(&self) -> Option<u64> {
        let state = self.state();
        (!state.failed).then_some(state.connection)
    }

    /// From now on there is no space for what was never written, or there is again.
    pub fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// Nothing ends before `span` from now, whatever is under way or begins meanwhile.
    pub fn stall(&self, span: Duration) {
        let span = Nanos::try_from(span.as_nanos()).unwrap_or(Nanos::MAX / 2);
        let mut state = self.state();
        self.land_left(&mut state);
        state.stalled_until = now().saturating_add(span);
        self.hold_up(&mut state);
    }

    /// From now on nothing ends, without an error, or all of it does again.
    pub fn set_hanging(&self, hangs: bool) {
        let mut state = self.state();
        self.land_left(&mut state);
        if std::mem::replace(&mut state.hangs, hangs) && !hangs {
            self.hold_up(&mut state);
        }
    }

    /// Takes so many times as long as before for everything but flushes.
    pub fn set_slower(&self, times: u32) {
        self.state().slower = times;
    }

    /// Refuses operations as told, beside what it refuses already.
    pub fn refuse(&self, refusal: Refusal) {
        self.state().refusals.push(refusal);
    }

    /// Refuses nothing any more that it was told to.
    pub fn refuse_nothing(&self) {
        self.state().refusals.clear();
    }

    /// Power fails. Of what was not flushed any subset of sectors is left, of writes under way too.
    /// What is under way never ends, and what begins before [`power_on`](Self::power_on) neither.
    /// When its [`Power`] was cut before, this decides what that left.
    pub fn power_cut(&self, prng: &mut Prng) {
        let mut state = self.state();
        let flights = std::mem::take(&mut state.flights).into_values().map(|flight| flight.change);
        let left = std::mem::take(&mut state.left).into_iter().flat_map(Left::into_changes);
        for change in left.chain(flights) {
            if let Change::Write { offset, len, data } = change {
                state.image.write(offset, len, data, false);
            }
        }
        state.image.power_cut(prng);
        self.options.power.cut();
        state.epoch += 1;
        state.connection += 1;
        state.counters.power_cuts += 1;
    }

    /// Power is back. Stalls, hanging and a latched failure are over; a failed drive stays failed.
    pub fn power_on(&self) {
        let mut state = self.state();
        self.options.power.restore();
        state.latched = false;
        state.stalled_until = 0;
        state.hangs = false;
    }

    /// Makes the sectors of a range unreadable until they are written again.
    pub fn damage(&self, offset: u64, len: u64) {
        let sectors = offset / SECTOR..(offset + len).div_ceil(SECTOR);
        let mut state = self.state();
        state.counters.latent += 1;
        state.latent.extend(sectors);
    }

    /// Flips a bit where something was written; says in which byte.
    pub fn rot(&self) -> Option<u64> {
        self.state().rot()
    }

    /// Flips a bit of so many in a million of the blocks of 4096 bytes ever written that `is` says to
    /// hit, given where they lie and what they have.
    pub fn rot_where(&self, ppm: u32, is: impl Fn(u64, &[u8]) -> bool) {
        let mut state = self.state();
        let State { image, prng, counters, .. } = &mut *state;
        let mut block = [0; 4096];
        for at in image.offsets() {
            image.read(at, &mut block);
            if prng.chance_ppm(ppm) && is(at, &block) {
                let bit = low32(prng.below(8));
                image.flip(at + prng.below(4096), bit);
                counters.rotten += 1;
            }
        }
    }

    /// Flips a bit of one byte.
    pub fn flip(&self, offset: u64, bit: u32) {
        let mut state = self.state();
        state.counters.rotten += 1;
        state.image.flip(offset, bit);
    }

    /// What is there once nothing is in flight that nobody waits for, past all faults and without taking time.
    pub fn peek(&self, offset: u64, out: &mut [u8]) {
        let state = self.state();
        state.image.read(offset, out);
        state.settle_bytes(offset, out);
    }

    /// Likewise all that reads see then.
    #[must_use]
    pub fn contents(&self) -> SimulatedContents {
        SimulatedContents(self.state().settled())
    }

    /// Holds what it held once, all of it durable: an old copy of a drive in its place.
    pub fn restore(&self, contents: &SimulatedContents) {
        let mut state = self.state();
        state.left.clear();
        state.image.restore(contents.0.clone());
    }

    /// Where it first holds something else than it did, as [`contents`](Self::contents) are; `None` when all is the
    /// same.
    #[must_use]
    pub fn difference(&self, since: &SimulatedContents) -> Option<u64> {
        let state = self.state();
        match state.left.is_empty() {
            true => state.image.difference(&since.0),
            false => Image::of(state.settled()).difference(&since.0),
        }
    }

    /// From now on it has so many bytes: what is beyond is out of reach, and as it was once there are as many again.
    pub fn set_capacity(&self, len: u64) {
        self.state().capacity = len;
    }

    /// Puts something there, durable at once, past all faults and without taking time.
    pub fn poke(&self, offset: u64, data: &[u8]) {
        self.state().image.write(offset, u64_of(data.len()), Some(data.into()), true);
    }

    pub(super) fn capacity(&self) -> u64 {
        self.state().capacity
    }

    pub(super) const fn has_volatile_cache(&self) -> bool {
        self.options.volatile_cache
    }

    pub(super) fn failure(&self) -> Option<Kind> {
        let state = self.state();
        match (state.failed, state.latched) {
            (true, _) => Some(Kind::Gone),
            (_, true) => Some(Kind::Medium),
            _ => None,
        }
    }

    pub(super) fn resize(&self, len: u64) -> Result<(), Error> {
        let mut state = self.state();
        if len < state.capacity || !len.is_multiple_of(4096) {
            return Err(Error::new(Kind::Unsupported, Operation::Resize, 0, len));
        }
        state.capacity = len;
        Ok(())
    }

    pub(super) async fn read(
        &self,
        offset: u64,
        len: usize,
        mut out: Buffer,
    ) -> Result<Buffer, Refused> {
        let error = |kind| Error::new(kind, Operation::Read, offset, u64_of(len));
        self.fence_in_time().await.map_err(error)?;
        self.pass_in_time(Operation::Read, None).await.map_err(error)?;
        let mut state = self.state();
        self.land_left(&mut state);
        state.counters.reads += 1;
        state.counters.bytes_read += u64_of(len);
        let kind = state.refuses_read(offset, u64_of(len));
        if let Some(kind) = kind {
            state.counters.errors += 1;
            return Err(Refused::with(error(kind), Some(out)));
        }
        state.image.read(offset, &mut out);
        Ok(out)
    }

    pub(super) async fn write(&self, offset: u64, data: Buffer, fua: bool) -> Result<(), Refused> {
        let len = u64_of(data.len());
        let refused = {
            let mut state = self.state();
            let lacks_space = state.lacks_space(offset, len);
            let refused = state.refuses(Operation::Write, offset, len);
            refused.or(lacks_space.then_some(Kind::Full))
        };
        let error = |kind| Error::new(kind, Operation::Write, offset, len);
        if let Some(kind) = refused {
            self.pass_in_time(Operation::Write, None).await.map_err(error)?;
            self.state().counters.errors += 1;
            return Err(Refused::with(error(kind), Some(data)));
        }
        self.may_change().await.map_err(error)?;
        let flight = self.take_off(Change::Write { offset, len, data: Some(data[..].into()) });
        let passed = self.pass_in_time(Operation::Write, Some(flight.id)).await;
        passed.map_err(|kind| flight.give_up(error(kind)))?;
        Ok(flight.land(Operation::Write, fua)?)
    }

    pub(super) fn preallocate(&self, offset: u64, len: u64) -> Result<(), Error> {
        let mut state = self.state();
        if state.lacks_space(offset, len) {
            return Err(Error::new(Kind::Full, Operation::WriteZeroes, offset, len));
        }
        state.set_aside.push(offset..offset + len);
        Ok(())
    }

    pub(super) async fn zero(
        &self,
        operation: Operation,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        let error = |kind| Error::new(kind, operation, offset, len);
        let refused = self.state().refuses(operation, offset, len);
        if let Some(kind) = refused {
            self.pass_in_time(operation, None).await.map_err(error)?;
            self.state().counters.errors += 1;
            return Err(error(kind));
        }
        self.may_change().await.map_err(error)?;
        let flight = self.take_off(Change::Write { offset, len, data: None });
        let passed = self.pass_in_time(operation, Some(flight.id)).await;
        passed.map_err(|kind| flight.give_up(error(kind)))?;
        flight.land(operation, false)
    }

    pub(super) async fn flush(&self) -> Result<(), Error> {
        let error = |kind| Error::new(kind, Operation::Flush, 0, 0);
        self.may_change().await.map_err(error)?;
        let mark = self.state().image.mark();
        let flight = self.take_off(Change::Flush(mark));
        let passed = self.pass_in_time(Operation::Flush, Some(flight.id)).await;
        passed.map_err(|kind| flight.give_up(error(kind)))?;
        let mut state = self.state();
        let taken = state.flights.remove(&flight.id);
        if taken.is_none() && self.options.in_flight.is_remote() {
            return Err(error(Kind::Gone));
        }
        self.land_left(&mut state);
        state.counters.flushes += 1;
        if let Some(kind) = state.refuses(Operation::Flush, 0, 1) {
            state.latched |= kind != Kind::Passing;
            state.counters.errors += 1;
            return Err(error(kind));
        }
        let ppm = state.faults.flush_error_ppm;
        let refused = state.refuses_change().or_else(|| {
            let fails = state.prng.chance_ppm(ppm);
            state.latched |= fails;
            fails.then_some(Kind::Medium)
        });
        if let Some(kind) = refused {
            state.counters.errors += 1;
            return Err(error(kind));
        }
        state.image.flush(mark);
        Ok(())
    }

    /// Takes the time an operation takes, if that is not too long.
    async fn pass_in_time(&self, operation: Operation, flight: Option<u64>) -> Result<(), Kind> {
        let passed = timeout(TRANSFER_DEADLINE, self.pass(operation, flight)).await;
        if passed.is_err() && !self.options.power.is_on() {
            std::future::pending::<()>().await;
        }
        passed.map_err(|Elapsed| Kind::Timeout)
    }

    /// Takes the time an operation takes; never ends once the power is cut.
    async fn pass(&self, operation: Operation, flight: Option<u64>) {
        let (epoch, mut end) = {
            let mut state = self.state();
            let span = state.duration(&self.options, operation);
            let end = now().saturating_add(span);
            if let Some(flight) = flight.and_then(|id| state.flights.get_mut(&id)) {
                flight.end = end;
            }
            (state.epoch, end)
        };
        loop {
            let stalled = self.state().stalled_until;
            end = end.max(stalled);
            sleep_until(end).await;
            let (alive, stalled, hangs) = {
                let state = self.state();
                let alive = self.options.power.is_on() && state.epoch == epoch;
                (alive, state.stalled_until, state.hangs)
            };
            if !alive {
                std::future::pending::<()>().await;
            }
            if hangs {
                end = now().saturating_add(HANG_LOOK);
            } else if stalled <= end {
                return;
            }
        }
    }
}

impl State {
    /// What it was told to answer to this.
    fn refuses(&mut self, operation: Operation, offset: u64, len: u64) -> Option<Kind> {
        let end = offset + len;
        let refusal = self.refusals.iter_mut().find(|refusal| {
            refusal.operation.is_none_or(|only| only == operation)
                && (refusal.range.start < end && offset < refusal.range.end)
                && refusal.times != Some(0)
        })?;
        refusal.times = refusal.times.map(|times| times - 1);
        Some(refusal.kind)
    }

    fn duration(&mut self, options: &SimulatedOptions, operation: Operation) -> Nanos {
        let range = if operation == Operation::Flush { &options.flush } else { &options.transfer };
        let nanos = |d: Duration| Nanos::try_from(d.as_nanos()).unwrap_or(Nanos::MAX / 4);
        let spread = nanos(range.end).saturating_sub(nanos(range.start));
        let slower = if operation == Operation::Flush { 1 } else { self.slower };
        let span = (nanos(range.start) + self.prng.below(spread + 1)).saturating_mul(slower.into());
        let ppm = self.faults.slow_ppm;
        if self.prng.chance_ppm(ppm) { span.saturating_mul(100) } else { span }
    }

    fn refuses_read(&mut self, offset: u64, len: u64) -> Option<Kind> {
        if self.failed {
            return Some(Kind::Gone);
        }
        if let Some(kind) = self.refuses(Operation::Read, offset, len) {
            return Some(kind);
        }
        let sectors = offset / SECTOR..(offset + len).div_ceil(SECTOR);
        let latent = self.latent.range(sectors).next().is_some();
        let ppm = self.faults.read_error_ppm;
        (latent || self.prng.chance_ppm(ppm)).then_some(Kind::Medium)
    }

    fn lacks_space(&self, offset: u64, len: u64) -> bool {
        let is_set_aside =
            || self.set_aside.iter().any(|r| r.start <= offset && offset + len <= r.end);
        self.full && !self.failed && !is_set_aside() && !self.image.has(offset, len)
    }

    const fn refuses_change(&self) -> Option<Kind> {
        if self.failed {
            Some(Kind::Gone)
        } else if self.latched {
            Some(Kind::Latched)
        } else {
            None
        }
    }

    fn rot(&mut self) -> Option<u64> {
        let offset = self.somewhere()? + self.prng.below(4096);
        let bit = low32(self.prng.below(8));
        self.image.flip(offset, bit);
        self.counters.rotten += 1;
        Some(offset)
    }

    /// A page something was written to.
    fn somewhere(&mut self) -> Option<u64> {
        let pages = u64_of(self.image.pages());
        if pages == 0 {
            return None;
        }
        let n = self.prng.below(pages);
        self.image.nth_page(usize64(n))
    }

    /// A write arrives at the medium, or goes where writes go that do not.
    fn arrive(&mut self, change: Change, certain: bool) -> Option<Kind> {
        let Change::Write { mut offset, len, data } = change else { return None };
        self.counters.writes += 1;
        self.counters.bytes_written += len;
        if let Some(kind) = self.refuses_change() {
            return Some(kind);
        }
        let faults = self.faults;
        if self.prng.chance_ppm(faults.write_error_ppm) {
            self.scatter(Change::Write { offset, len, data }, certain);
            return Some(Kind::Medium);
        }
        if self.prng.chance_ppm(faults.rot_ppm) {
            self.rot();
        }
        if self.prng.chance_ppm(faults.lost_ppm) {
            self.counters.lost += 1;
            return None;
        }
        if self.prng.chance_ppm(faults.misdirected_ppm)
            && let Some(elsewhere) = self.somewhere()
        {
            self.counters.misdirected += 1;
            offset = elsewhere.min(self.capacity.saturating_sub(len));
        }
        let sectors = offset / SECTOR..(offset + len).div_ceil(SECTOR);
        let healed: Vec<u64> = self.latent.range(sectors.clone()).copied().collect();
        for sector in healed {
            self.latent.remove(&sector);
        }
        if len > 0 && self.prng.chance_ppm(faults.latent_ppm) {
            self.counters.latent += 1;
            let one = sectors.start + self.prng.below(sectors.end - sectors.start);
            self.latent.insert(one);
        }
        self.image.write(offset, len, data, certain);
        None
    }

    /// A write that did not end well: any of its sectors is there.
    fn scatter(&mut self, change: Change, certain: bool) {
        for part in self.torn(change) {
            if let Change::Write { offset, len, data } = part {
                self.image.write(offset, len, data, certain);
            }
        }
    }
}

#[cfg(test)]
mod tests;
