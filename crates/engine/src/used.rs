//! How much of each volume is used, and what its snapshots hold: what every shard counted last.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::cross_core::Lock;

use crate::address::{Version, View};
use crate::canary::{self, Canary};
use crate::map::{Period, Tally};
use crate::volume::state::{Ancestor, Occupied, State};

/// The versions that snapshots of each view see, in order.
pub type Seen = BTreeMap<View, Vec<Version>>;

/// Blocks with contents, of one shard.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Those of volumes.
    newest: BTreeMap<View, u64>,
    /// Of those that have snapshots, what these see; `None` where only what hosts see could be counted.
    older: Option<BTreeMap<View, OfSnapshots>>,
    /// Of volumes with a reservation, blocks that only hosts see without having the space for themselves: what is
    /// written there needs some.
    shared: BTreeMap<View, u64>,
}

/// What the snapshots of a volume see. A stretch of blocks costs two look-ups of versions, however many see it.
#[derive(Clone, Debug, Default)]
struct OfSnapshots {
    /// What each of them sees the last of, in order.
    seen: Vec<Version>,
    /// Of each, how many blocks more it sees than the one before; wraps. Once all are counted, how many it sees.
    sees: Vec<u64>,
    /// Of each, how many blocks nobody else sees.
    unique: Vec<u64>,
    /// Blocks that only hosts see.
    unique_of_hosts: u64,
    /// Blocks that hosts do not see.
    held: u64,
}

impl OfSnapshots {
    fn new(seen: Vec<Version>) -> Self {
        let zeroes = vec![0; seen.len()];
        Self { sees: zeroes.clone(), unique: zeroes, seen, ..Self::default() }
    }

    fn add(&mut self, period: Period, blocks: u64) {
        let first = self.seen.partition_point(|seen| *seen < period.since);
        let end = match period.until {
            Some(until) => self.seen.partition_point(|seen| *seen <= until),
            None => self.seen.len(),
        };
        let viewers = end.saturating_sub(first);
        if let Some(step) = self.sees.get_mut(first).filter(|_| viewers > 0) {
            *step = step.wrapping_add(blocks);
        }
        if let Some(step) = self.sees.get_mut(end).filter(|_| viewers > 0) {
            *step = step.wrapping_sub(blocks);
        }
        match (period.is_newest(), viewers) {
            (true, 0) => self.unique_of_hosts += blocks,
            (false, 1) => self.unique[first] += blocks,
            _ => {}
        }
        if !period.is_newest() && viewers > 0 {
            self.held += blocks;
        }
    }

    fn sum_up(&mut self) {
        let mut sum: u64 = 0;
        for sees in &mut self.sees {
            sum = sum.wrapping_add(*sees);
            *sees = sum;
        }
    }

    fn of_snapshot(&self, sees: Version) -> Option<Occupied> {
        let nth = self.seen.binary_search(&sees).ok()?;
        let (referenced, unique) = (self.sees[nth], self.unique[nth]);
        Some(Occupied { referenced, unique, held: 0, inherited: Some(0) })
    }
}

impl Counts {
    /// Of no blocks so far, where snapshots see these versions, if what they see is to be counted.
    pub fn new(seen: Option<Seen>) -> Self {
        let each = |(view, seen)| (view, OfSnapshots::new(seen));
        let older = seen.map(|seen| seen.into_iter().map(each).collect());
        Self { newest: BTreeMap::new(), older, shared: BTreeMap::new() }
    }

    /// Of these volumes is to be known what they have [alone](Self::alone), whether they have snapshots or not.
    #[must_use]
    pub fn with_alone(mut self, views: impl IntoIterator<Item = View>) -> Self {
        let Some(older) = &mut self.older else { return self };
        for view in views {
            older.entry(view).or_default();
            self.shared.insert(view, 0);
        }
        self
    }

    /// Blocks that only hosts see of a volume, and whose space is nobody else's; `None` where that was not asked for.
    pub fn alone(&self, view: View) -> Option<u64> {
        let shared = self.shared.get(&view)?;
        Some(self.older(view)?.unique_of_hosts.saturating_sub(*shared))
    }

    fn older(&self, view: View) -> Option<&OfSnapshots> {
        self.older.as_ref()?.get(&view)
    }

    /// Blocks that anybody sees, counted once for each volume, however many others share them.
    pub fn total(&self) -> u64 {
        let held = self.older.iter().flat_map(BTreeMap::values).map(|older| older.held);
        self.newest.values().copied().chain(held).sum()
    }

    /// All are counted: only then what snapshots see is known.
    pub fn sum_up(&mut self) {
        self.older.iter_mut().flat_map(BTreeMap::values_mut).for_each(OfSnapshots::sum_up);
    }

    /// What a volume has.
    pub fn of_volume(&self, view: View) -> Occupied {
        let referenced = self.newest.get(&view).copied().unwrap_or(0);
        match self.older(view) {
            Some(OfSnapshots { unique_of_hosts, held, .. }) => {
                Occupied { referenced, unique: *unique_of_hosts, held: *held, inherited: Some(0) }
            }
            None => Occupied { referenced, unique: referenced, held: 0, inherited: Some(0) },
        }
    }

    /// What a snapshot sees; `None` if it was not known when this was counted.
    pub fn of_snapshot(&self, view: View, sees: Version) -> Option<Occupied> {
        self.older(view)?.of_snapshot(sees)
    }

    /// What counts against a volume's quota: what hosts have written of it, and what its snapshots hold. Not what it
    /// began with as a clone; but what it was before it was rolled back, which its snapshots hold.
    pub fn held_by(&self, volume: &State) -> u64 {
        let views = std::iter::once(&volume.view).chain(&volume.lineage.former);
        let held = |view: &View| {
            let Occupied { referenced, held, .. } = self.of_volume(*view);
            if canary::has(Canary::QuotaForgetsSnapshots) { referenced } else { referenced + held }
        };
        views.map(held).sum()
    }

    fn of(&self, state: &State) -> Option<Occupied> {
        let Some(sees) = state.sees else {
            let own = self.of_volume(state.view);
            // Of an ancestor that came since the count nothing is known yet.
            let of_ancestor = |of: &Ancestor| self.of_snapshot(of.view, of.sees);
            let ancestors = state.ancestors().map(|all| &**all).unwrap_or_default();
            let sees = |of: &Ancestor| of_ancestor(of).map_or(0, |of| of.referenced);
            let known = |of: &Ancestor| Some(of_ancestor(of)?.referenced);
            let inherited = ancestors.iter().map(known).sum();
            // What it had before it was rolled back is held by its snapshots, but for what it has of it.
            let is_former = |of: &&Ancestor| state.lineage.former.contains(&of.view);
            let seen: u64 = ancestors.iter().filter(is_former).map(sees).sum();
            let former = state.lineage.former.iter().map(|view| self.of_volume(*view).held);
            let held = own.held + former.sum::<u64>().saturating_sub(seen);
            return Some(Occupied { held, inherited, ..own });
        };
        self.of_snapshot(state.view, sees)
    }
}

impl Tally for &mut Counts {
    fn wants_older(&self, view: View) -> bool {
        self.older(view).is_some()
    }

    fn add(&mut self, view: View, period: Period, blocks: u64) {
        if period.is_newest() {
            *self.newest.entry(view).or_insert(0) += blocks;
        }
        if let Some(older) = self.older.as_mut().and_then(|older| older.get_mut(&view)) {
            older.add(period, blocks);
        }
    }

    fn wants_shared(&self, view: View) -> bool {
        self.shared.contains_key(&view)
    }

    fn add_shared(&mut self, view: View, period: Period, blocks: u64) {
        let older = self.older.as_ref().and_then(|older| older.get(&view));
        let by_hosts = |of: &OfSnapshots| {
            period.is_newest()
                && of.seen.partition_point(|seen| *seen < period.since) == of.seen.len()
        };
        if let Some(shared) = self.shared.get_mut(&view).filter(|_| older.is_some_and(by_hosts)) {
            *shared += blocks;
        }
    }
}

/// What volumes of a pool use, and their snapshots, for all its shards.
#[derive(Default)]
pub struct Used {
    inside: Lock<Inside>,
    /// Snapshots and clones that came, and that went.
    changes: AtomicU64,
    /// Blocks that clones see of what no volume has any more; [`UNCOUNTED`] before all was counted.
    by_clones: AtomicU64,
}

#[derive(Default)]
struct Inside {
    /// The last count of each shard; none before the first since the pool was opened.
    counts: Vec<Option<Counts>>,
    /// Volumes, and their snapshots.
    all: BTreeMap<Id, Arc<State>>,
}

/// A volume's view, or that with what a snapshot of it sees.
type Id = (View, Option<Version>);

/// Of how many it is asked, or how many are told, before others of the core have their turn: there may be 100,000.
const TURN: usize = 256;

impl Inside {
    /// What all shards counted together, once each of them has.
    fn sum(&self, state: &State) -> Option<Occupied> {
        let of = |counts: &Option<Counts>| counts.as_ref()?.of(state);
        self.counts.iter().map(of).sum()
    }

    /// Tells one what is known of it, and gives that.
    fn tell(&self, state: &State) -> Option<Occupied> {
        let occupied = self.sum(state)?;
        match self.counts.iter().flatten().all(|counts| counts.older.is_some()) {
            true => state.set_occupied(occupied),
            // What snapshots hold stays what it was.
            false => state.set_used(occupied.referenced),
        }
        Some(occupied)
    }

    /// Blocks that anybody sees, once all shards have counted them with what snapshots see.
    fn total(&self) -> Option<u64> {
        let of = |counts: &Option<Counts>| {
            counts.as_ref().filter(|counts| counts.older.is_some()).map(Counts::total)
        };
        self.counts.iter().map(of).sum()
    }
}

impl Used {
    /// Of a pool with so many shards.
    pub fn new(shards: u16) -> Self {
        let counts = vec![None; usize::from(shards)];
        let inside = Lock::new(Inside { counts, ..Inside::default() });
        Self { inside, changes: AtomicU64::new(0), by_clones: AtomicU64::new(UNCOUNTED) }
    }

    /// A clone came, or went: who else sees what a snapshot does is another matter now.
    pub fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// How many snapshots and clones came and went so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Calls `each` with those behind one, a turn of them; gives the last.
    fn turn(&self, after: Option<Id>, mut each: impl FnMut(&Inside, Id, &State)) -> Option<Id> {
        let inside = self.inside.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        for (id, state) in inside.all.range((from, Bound::Unbounded)).take(TURN) {
            each(&inside, *id, state);
            last = Some(*id);
        }
        last
    }

    async fn each(&self, mut each: impl FnMut(&Inside, Id, &State)) {
        let mut after = None;
        while let Some(last) = self.turn(after, &mut each) {
            after = Some(last);
            reactor::yield_now().await;
        }
    }

    /// The versions that the snapshots there are see. One that comes meanwhile may be missed.
    pub async fn seen(&self) -> Seen {
        let mut seen = Seen::new();
        let each = |_: &Inside, (view, sees): Id, _: &State| {
            if let Some(sees) = sees {
                seen.entry(view).or_default().push(sees);
            }
        };
        self.each(each).await;
        seen
    }

    /// A volume, or a snapshot, that is there from now on is told what it uses.
    pub fn add(&self, state: Arc<State>) {
        let mut inside = self.inside.lock();
        let _ = inside.tell(&state);
        let is_snapshot = state.sees.is_some();
        inside.all.insert((state.view, state.sees), state);
        self.changes.fetch_add(u64::from(is_snapshot), Ordering::AcqRel);
    }

    /// A volume, or a snapshot, went.
    pub fn remove(&self, state: &State) {
        self.inside.lock().all.remove(&(state.view, state.sees));
        self.changes.fetch_add(u64::from(state.sees.is_some()), Ordering::AcqRel);
    }

    /// Tells all of what a shard counted, which was [summed up](Counts::sum_up).
    pub async fn publish(&self, shard: u16, counts: Counts) {
        self.inside.lock().counts[usize::from(shard)] = Some(counts);
        let mut of_volumes = 0;
        let tell = |inside: &Inside, (_, sees): Id, state: &State| {
            if let Some(told) = inside.tell(state).filter(|_| sees.is_none()) {
                of_volumes += told.referenced + told.held;
            }
        };
        self.each(tell).await;
        let total = self.inside.lock().total();
        if let Some(total) = total {
            self.by_clones.store(total.saturating_sub(of_volumes), Ordering::Release);
        }
    }

    /// Blocks of volumes that were deleted, or rolled back, which clones of them see, and no volume or snapshot there is:
    /// what comes back when those are deleted. With what volumes use and what is held by their snapshots it is all that
    /// anybody sees. `None` before it was counted.
    pub fn held_by_clones(&self) -> Option<u64> {
        let blocks = self.by_clones.load(Ordering::Acquire);
        (blocks != UNCOUNTED).then_some(blocks)
    }
}

const UNCOUNTED: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::catalog::Object;

    fn volume(view: u32, bytes: u64) -> Arc<State> {
        let (view, name) = (View::new(view), format!("v{view}"));
        Arc::new(State::new(&Object::volume(view, &name, [1; 16], bytes, 4096)))
    }

    fn counts<const N: usize>(of: [(u32, u64); N]) -> Counts {
        let newest = of.into_iter().map(|(view, blocks)| (View::new(view), blocks)).collect();
        Counts { newest, ..Counts::new(Some(Seen::new())) }
    }

    #[test]
    fn what_a_volume_uses_is_known_once_every_shard_has_counted_and_is_never_another_ones() {
        reactor::simulate(1, async {
            let used = Used::new(2);
            let (one, two) = (volume(1, 1 << 20), volume(2, 1 << 20));
            used.add(Arc::clone(&one));
            used.publish(0, counts([(1, 3), (2, 9)])).await;
            assert_eq!(one.used(), None);
            used.publish(1, counts([(2, 1)])).await;
            assert_eq!(one.used(), Some(3 * 4096));
            used.add(Arc::clone(&two));
            assert_eq!(two.used(), Some(10 * 4096));
            used.remove(&one);
            used.publish(0, counts([(1, 5)])).await;
            assert_eq!((one.used(), two.used()), (Some(3 * 4096), Some(4096)));
            // Never more than its size.
            used.publish(0, counts([(2, 1000)])).await;
            assert_eq!(two.used(), Some(1 << 20));
            two.set_bytes(8192);
            assert_eq!(two.used(), Some(8192));
        });
    }

    #[test]
    fn what_each_sees_and_what_it_alone_sees_add_up() {
        let version = |n| Version::new(n).unwrap();
        let view = View::new(1);
        let seen = [2, 5, 9].map(version).to_vec();
        let mut counts = Counts::new(Some(BTreeMap::from([(view, seen)])));
        let all = [
            // Seen by all, by hosts, by nobody any more, by the last two and hosts.
            ((0, None), 1),
            ((10, None), 10),
            ((6, Some(8)), 100),
            ((3, None), 1000),
            // Seen by the first, the second, the first two, the last.
            ((1, Some(4)), 10_000),
            ((3, Some(5)), 100_000),
            ((0, Some(8)), 1_000_000),
            ((9, Some(9)), 10_000_000),
        ];
        for ((since, until), blocks) in all {
            let period = Period { since: version(since), until: until.map(version) };
            (&mut counts).add(view, period, blocks);
        }
        counts.sum_up();
        let occupied = |sees| counts.of_snapshot(view, version(sees));
        let told =
            |referenced, unique, held| Occupied { referenced, unique, held, inherited: Some(0) };
        assert_eq!(occupied(2), Some(told(1_010_001, 10_000, 0)));
        assert_eq!(occupied(5), Some(told(1_101_001, 100_000, 0)));
        assert_eq!(occupied(9), Some(told(10_001_001, 10_000_000, 0)));
        assert_eq!(occupied(3), None);
        assert_eq!(counts.of_volume(view), told(1011, 10, 11_110_000));
    }
}
