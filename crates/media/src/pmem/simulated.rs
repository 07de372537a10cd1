//! Persistent memory of the simulator: it survives the simulated machine, and a crash keeps of the
//! lines not yet fenced a random subset.

use super::LINE;
use crate::Power;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current};
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// What a mapping loses where something of it cannot be reached.
const PAGE: u64 = 4096;

/// Whose stores a fence has be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Core {
    Thread(ThreadId),
    /// That of another process.
    Other(u64),
}

thread_local!(static ELSEWHERE: Cell<Option<u64>> = const { Cell::new(None) });

fn here() -> Core {
    ELSEWHERE.get().map_or_else(|| Core::Thread(current().id()), Core::Other)
}

/// Does something as on a core of another process, which this thread plays: what is stored there is not made durable by
/// fences of this thread.
pub fn on_core_of<R>(process: u64, work: impl FnOnce() -> R) -> R {
    let before = ELSEWHERE.replace(Some(process));
    let done = work();
    ELSEWHERE.set(before);
    done
}

/// When the power goes: of a device, and what is beside it.
#[derive(Debug, Default)]
pub(super) struct Countdown {
    /// Lines that can still be stored before; `None` while nobody pulls it.
    cut_after: Option<u64>,
    /// Fences until the one that does not come any more; `None` likewise.
    cut_at_fence: Option<u64>,
}

/// The countdown of a device and all that is beside it.
pub(super) type Shared = Arc<Mutex<Countdown>>;

struct State {
    bytes: Vec<u8>,
    /// Lines stored to since the last fence: what was in them then, and which core stored there last. A fence is of
    /// its core.
    unfenced: BTreeMap<usize, ([u8; LINE], Core)>,
    /// Bytes that cannot be reached.
    bad: Vec<Range<u64>>,
    /// Pages of which somebody met such bytes: as a mapping's, they have nothing any more, and nothing more is stored.
    lost: BTreeSet<u64>,
}

/// Shared by the simulated machine's lives.
pub struct SimulatedPmem {
    state: Mutex<State>,
    len: u64,
    pub(super) power: Arc<Power>,
    pub(super) countdown: Shared,
    /// It was made beside another one.
    is_region: bool,
    /// Regions that were made beside it, by suffix. They outlive the simulated machine, too.
    beside: Mutex<BTreeMap<String, Arc<Self>>>,
    /// They are not there for whoever looks for them.
    hides: AtomicBool,
}

impl std::fmt::Debug for SimulatedPmem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedPmem").field("len", &self.len).finish_non_exhaustive()
    }
}

impl SimulatedPmem {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// When `len` is not a whole number of lines.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self::with_power(len, Arc::default())
    }

    /// As [`new`](Self::new), sharing its power with what loses it at the same moment.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn with_power(len: u64, power: Arc<Power>) -> Self {
        Self::made_of(vec![0; usize64(len)], power)
    }

    /// Memory that has this, all of it durable.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn holding(bytes: Vec<u8>) -> Self {
        Self::made_of(bytes, Arc::default())
    }

    fn made_of(bytes: Vec<u8>, power: Arc<Power>) -> Self {
        let len = u64_of(bytes.len());
        assert!(len.is_multiple_of(u64_of(LINE)), "memory comes in lines");
        let state =
            State { bytes, unfenced: BTreeMap::new(), bad: Vec::new(), lost: BTreeSet::new() };
        Self {
            state: Mutex::new(state),
            len,
            power,
            countdown: Shared::default(),
            is_region: false,
            beside: Mutex::default(),
            hides: AtomicBool::new(false),
        }
    }

    /// A region of `len` bytes beside this one.
    pub(super) fn region(&self, len: u64) -> Arc<Self> {
        let made = Self::with_power(len, Arc::clone(&self.power));
        let region = Self { countdown: Arc::clone(&self.countdown), is_region: true, ..made };
        let region = Arc::new(region);
        self.power.know(&region);
        region
    }

    fn countdown(&self) -> MutexGuard<'_, Countdown> {
        self.countdown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn beside(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Self>>> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.len
    }

    /// False where it cannot be reached.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> bool {
        let mut state = self.state();
        if !state.reach(offset, data.len()) || !state.lost.is_empty() {
            return false;
        }
        let mut at = usize64(offset);
        let mut rest = data;
        while !rest.is_empty() {
            let line = at / LINE;
            let (part, more) = rest.split_at(rest.len().min((line + 1) * LINE - at));
            if !self.power.is_on() {
                return true;
            }
            state.store(line, at, part);
            if self.countdown().stores() {
                self.power.cut();
            }
            at += part.len();
            rest = more;
        }
        true
    }

    /// Of what this core stored here, and in all regions beside such memory if this is one.
    pub(super) fn fence(&self) {
        if !self.power.is_on() {
            return;
        }
        if self.countdown().fences() {
            self.power.cut();
        } else if self.is_region {
            self.power.regions().iter().for_each(|region| region.keep());
        } else {
            self.keep();
        }
    }

    fn keep(&self) {
        let here = here();
        self.state().unfenced.retain(|_, (_, core)| *core != here);
    }

    /// What is seen in these bytes is durable, whoever stored it.
    pub(super) fn flush(&self, offset: u64, len: usize) {
        self.fence();
        if self.power.is_on() {
            let (from, to) = (usize64(offset) / LINE, (usize64(offset) + len).div_ceil(LINE));
            self.state().unfenced.retain(|line, _| !(from..to).contains(line));
        }
    }

    /// `None` where it cannot be reached.
    pub(super) fn with<R>(
        &self,
        offset: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let mut state = self.state();
        state.reach(offset, len).then(|| look(&state.bytes[usize64(offset)..][..len]))
    }

    /// From now on these bytes cannot be reached, as a poisoned line's. Once that shows, none of their pages can be
    /// read, and nothing is stored anywhere.
    pub fn poison(&self, range: Range<u64>) {
        self.state().bad.push(range);
    }

    /// It is mapped anew, as a process does that begins: what cannot be reached shows again.
    pub fn remap(&self) {
        self.state().lost.clear();
    }

    /// All of it can be reached again, as it was; or with zeroes for what could not, as whoever copies what there is
    /// to another device has it.
    pub fn cure(&self, as_it_was: bool) {
        let mut state = self.state();
        let bad = std::mem::take(&mut state.bad);
        state.lost.clear();
        for range in bad.iter().filter(|_| !as_it_was) {
            state.bytes[usize64(range.start)..usize64(range.end)].fill(0);
        }
    }

    /// Takes the power away after `lines` more lines have been stored: later stores and fences do
    /// nothing. Whoever was told of a fence before [`is_cut`](Self::is_cut) was told the truth.
    pub fn cut_after(&self, lines: u64) {
        self.countdown().cut_after = Some(lines);
        if lines == 0 {
            self.power.cut();
        }
    }

    /// Takes the power away in place of the `n`th fence from now: of what was stored since the one before, any lines
    /// are there.
    pub fn cut_at_fence(&self, n: u64) {
        self.countdown().cut_at_fence = Some(n.max(1));
    }

    /// Whether the power is gone.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        !self.power.is_on()
    }

    /// The machine stops and starts again: each line stored since the last fence keeps what was
    /// stored or what it held before, as `prng` says.
    pub fn crash(&self, prng: &mut Prng) {
        self.beside().values().for_each(|region| region.crash(prng));
        let mut state = self.state();
        for (line, (before, _)) in std::mem::take(&mut state.unfenced) {
            if prng.next_u64() & 1 == 0 {
                state.bytes[line * LINE..][..LINE].copy_from_slice(&before);
            }
        }
        *self.countdown() = Countdown::default();
        self.power.restore();
    }

    /// All of it, as reads see it.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// Whether it still holds that.
    #[must_use]
    pub fn holds(&self, contents: &[u8]) -> bool {
        self.state().bytes == contents
    }

    /// What is beside it is not there for whoever looks for it, or is again. Whoever has it keeps it.
    pub fn hide_beside(&self, hide: bool) {
        self.hides.store(hide, Ordering::SeqCst);
    }

    pub(super) fn hides(&self) -> bool {
        self.hides.load(Ordering::SeqCst)
    }

    /// Damages the byte at `offset`: bit rot.
    ///
    /// # Panics
    /// Past the capacity.
    pub fn rot(&self, offset: u64) {
        self.state().bytes[usize64(offset)] ^= 0x10;
    }
}

impl State {
    /// False where something cannot be reached.
    fn reach(&mut self, offset: u64, len: usize) -> bool {
        let end = offset + u64_of(len);
        for bad in self.bad.iter().filter(|bad| bad.start < end && offset < bad.end) {
            let (from, to) = (bad.start.max(offset), bad.end.min(end));
            self.lost.extend(from / PAGE..to.div_ceil(PAGE));
        }
        self.lost.range(offset / PAGE..end.div_ceil(PAGE)).next().is_none()
    }

    fn store(&mut self, line: usize, at: usize, part: &[u8]) {
        let mut before = [0; LINE];
        before.copy_from_slice(&self.bytes[line * LINE..][..LINE]);
        let here = here();
        self.unfenced.entry(line).or_insert((before, here)).1 = here;
        self.bytes[at..at + part.len()].copy_from_slice(part);
    }
}

impl Countdown {
    /// True when the power goes after this store of a line.
    fn stores(&mut self) -> bool {
        self.cut_after.as_mut().is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        })
    }

    /// True when it goes in place of this fence.
    fn fences(&mut self) -> bool {
        self.cut_at_fence = self.cut_at_fence.map(|left| left.saturating_sub(1));
        self.cut_at_fence == Some(0)
    }
}
