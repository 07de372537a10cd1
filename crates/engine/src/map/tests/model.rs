//! Random histories against a plain ordered map of all versions, with every location accounted for.

mod changes;
mod held;

use super::encodings::some;
use super::*;
use crate::map::check::News;
use crate::map::flat::END;
use crate::map::flat::{Item, Place};
use crate::map::memtable::Cursor;
use crate::map::page::Kind as PageKind;
use crate::map::source::{Source, named};
use crate::map::stack::{Layer, Spare};
use crate::map::state::State;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::pin::Pin;
use stdx::num::{u32_of, usize64};

const BLOCKS: u64 = 12_000;

/// Grains of a segment.
const SEGMENT: u64 = 4096 * 8;

fn user_grain(n: u64) -> Location {
    Location::of_grain(SegmentId::new(USER + low32(n / SEGMENT)), low32(n % SEGMENT))
}

#[derive(Clone, Debug)]
enum Op {
    Insert {
        view: u32,
        first: u64,
        count: u32,
    },
    Scatter {
        view: u32,
        seed: u64,
        count: u32,
    },
    Hole {
        view: u32,
        first: u64,
        count: u64,
    },
    Lose {
        view: u32,
        first: u64,
        count: u32,
    },
    Move {
        view: u32,
        block: u64,
        loses: bool,
    },
    /// Of the newest, and as of every snapshot.
    Lookup {
        view: u32,
        first: u64,
        count: u32,
    },
    /// Takes a snapshot.
    Take(u32),
    /// Deletes one of those there are.
    Delete(u32, u64),
    /// Few blocks, many versions: some are written, or made holes, a snapshot is taken, and all over again.
    Churn {
        view: u32,
        seed: u64,
        rounds: u32,
    },
    /// Counts, with stretches newer than all there is, in pieces of so many pages.
    Count {
        newer: Vec<(u64, u64, bool)>,
        pages: usize,
    },
    Begin(Work),
    Poll(u32),
    Fail(u32),
    Checkpoint,
    /// What was inserted since the checkpoint, and some before it, is inserted again.
    Crash(usize),
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Flush,
    Maintain,
    Prune,
    Evacuate(u32),
}

fn plain_ops() -> BoxedStrategy<Op> {
    let view = || 1u32..4;
    let work = prop_oneof![
        3 => Just(Work::Flush),
        6 => Just(Work::Maintain),
        1 => Just(Work::Prune),
        1 => (0u32..40).prop_map(Work::Evacuate),
    ];
    let op = prop_oneof![
        6 => (view(), 0..BLOCKS, 1u32..100)
            .prop_map(|(view, first, count)| Op::Insert { view, first, count }),
        6 => (view(), any::<u64>(), 1u32..200)
            .prop_map(|(view, seed, count)| Op::Scatter { view, seed, count }),
        2 => (view(), 0..BLOCKS, prop_oneof![1u64..20, 1u64..BLOCKS])
            .prop_map(|(view, first, count)| Op::Hole { view, first, count }),
        2 => (view(), 0..BLOCKS, 1u32..100)
            .prop_map(|(view, first, count)| Op::Lose { view, first, count }),
        4 => (view(), 0..BLOCKS, any::<bool>())
            .prop_map(|(view, block, loses)| Op::Move { view, block, loses }),
        6 => (view(), 0..BLOCKS, 1u32..300)
            .prop_map(|(view, first, count)| Op::Lookup { view, first, count }),
        2 => (prop::collection::vec((0..4 * BLOCKS, 1..BLOCKS, any::<bool>()), 0..6), 1usize..60)
            .prop_map(|(newer, pages)| Op::Count { newer, pages }),
        8 => work.prop_map(Op::Begin),
        8 => (1u32..60).prop_map(Op::Poll),
        1 => (0u32..30).prop_map(Op::Fail),
        2 => Just(Op::Checkpoint),
        1 => prop_oneof![3 => Just(0), 1 => 0usize..400].prop_map(Op::Crash),
    ];
    op.boxed()
}

fn of_snapshots() -> impl Strategy<Value = Op> {
    prop_oneof![
        // View 3 has no snapshots but where it churns.
        (1u32..3).prop_map(Op::Take),
        (1u32..4, any::<u64>()).prop_map(|(view, n)| Op::Delete(view, n)),
        (1u32..4, any::<u64>(), 1u32..30).prop_map(|(view, seed, rounds)| Op::Churn {
            view,
            seed,
            rounds
        }),
    ]
}

/// Of `snapshots` in ten, something to do with them.
fn ops(snapshots: u32) -> impl Strategy<Value = Vec<Op>> {
    let op = match snapshots {
        0 => plain_ops(),
        n => prop_oneof![10 - n => plain_ops(), n => of_snapshots()].boxed(),
    };
    prop::collection::vec(op, 1..250)
}

/// A history in which merges are never left alone for more than some of their pages.
fn in_merges() -> impl Strategy<Value = Vec<Op>> {
    let view = || 1u32..3;
    let written = prop_oneof![
        3 => (view(), any::<u64>(), 20u32..200)
            .prop_map(|(view, seed, count)| Op::Scatter { view, seed, count }),
        2 => (view(), 0..BLOCKS, 50u32..100)
            .prop_map(|(view, first, count)| Op::Insert { view, first, count }),
        1 => (view(), 0..BLOCKS, 1u64..3000)
            .prop_map(|(view, first, count)| Op::Hole { view, first, count }),
        1 => (view(), any::<u64>(), 1u32..8)
            .prop_map(|(view, seed, rounds)| Op::Churn { view, seed, rounds }),
    ];
    let seen = || {
        prop_oneof![
            view().prop_map(Op::Take),
            (view(), any::<u64>()).prop_map(|(view, n)| Op::Delete(view, n)),
        ]
    };
    let poll = || (1u32..8).prop_map(Op::Poll);
    let round = (
        prop::collection::vec(written, 1..4),
        prop_oneof![1 => Just(Work::Flush), 4 => Just(Work::Maintain), 1 => Just(Work::Prune)],
        prop::collection::vec((poll(), seen()), 1..8),
    );
    let round = round.prop_map(|(written, work, polls)| {
        let polls = polls.into_iter().flat_map(|(poll, seen)| [poll, seen]);
        written.into_iter().chain([Op::Begin(work)]).chain(polls).collect::<Vec<_>>()
    });
    prop::collection::vec(round, 1..25).prop_map(|rounds| rounds.concat())
}

/// What a block has since a version.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Has {
    Data(Stored),
    Lost,
    Hole,
}

impl Has {
    fn stored(&self) -> Option<Stored> {
        if let Self::Data(stored) = self { Some(*stored) } else { None }
    }

    /// Nothing for a hole.
    fn seen(self) -> Option<Option<Stored>> {
        match self {
            Self::Data(stored) => Some(Some(stored)),
            Self::Lost => Some(None),
            Self::Hole => None,
        }
    }
}

/// All versions of blocks.
type Model = BTreeMap<(u32, u64), BTreeMap<u32, Has>>;

/// A change of the map.
#[derive(Clone, Debug)]
enum Change {
    Data { key: Key, version: Version, first: Location, encoding: Encoding, crcs: Vec<u32> },
    Hole { key: Key, version: Version, blocks: u64 },
    Lost { key: Key, version: Version, blocks: u32 },
    Move { key: Key, old: Location, new: Stored },
    Lose { key: Key, old: Location },
}

/// What a checkpoint keeps, and a crash goes back to.
#[derive(Clone, Default)]
struct Saved {
    manifest: Vec<u8>,
    contents: Model,
    inserted: BTreeSet<Location>,
    superseded: BTreeMap<Location, u32>,
    appended: u64,
    /// Changes made until then.
    changes: usize,
}

type Job = Pin<Box<dyn Future<Output = Result<bool>>>>;

struct Bench {
    pages: Rc<Memory>,
    map: Rc<Map<Rc<Memory>>>,
    contents: Model,
    inserted: BTreeSet<Location>,
    /// Inserted again after the map had been told of what replaced it: it may be reported again,
    /// and what had replaced it too early.
    again: BTreeSet<Location>,
    changes: Vec<Change>,
    /// The version of each view.
    versions: [u32; 4],
    next: u64,
    saved: Saved,
    /// Pages from here on were appended after the last crash; between are those it lost.
    lost: Vec<std::ops::Range<u64>>,
    jobs: Vec<Job>,
}

/// Bytes at most of what it is known to have nothing of.
const ABSENT: usize = crate::limits::ABSENT_KEPT * 84;

/// A view that has a parent: its holes hide something.
const CLONE: u32 = 2;

fn limits() -> MapLimits {
    MapLimits {
        memtable: 5 * 3584,
        cache: 64 << 10,
        filters: 120 << 10,
        runs: 2,
        table_leaves: 8,
        ratio: 3,
        ratio_last: 6,
    }
}

fn page_location(n: u64) -> Location {
    Location::new(SegmentId::new(low32(n / 40)), low32(n % 40))
}

impl Bench {
    fn new() -> Self {
        let pages = Rc::new(Memory::default());
        pages.clones.borrow_mut().insert(View::new(CLONE));
        let map = Rc::new(Map::new(Rc::clone(&pages), limits()));
        let saved = Saved { manifest: map.manifest(), ..Saved::default() };
        Self {
            pages,
            map,
            contents: BTreeMap::new(),
            inserted: BTreeSet::new(),
            again: BTreeSet::new(),
            changes: Vec::new(),
            versions: [0; 4],
            next: 0,
            saved,
            lost: Vec::new(),
            jobs: Vec::new(),
        }
    }

    fn reserve(&mut self, entries: usize) {
        while self.map.room() < entries {
            self.finish_jobs();
            now(self.map.flush()).unwrap();
        }
    }

    fn finish_jobs(&mut self) {
        self.pages.fail_in.set(None);
        for _ in 0..200_000 {
            if self.jobs.is_empty() {
                return;
            }
            self.poll(1);
        }
        panic!("work that does not end");
    }

    fn poll(&mut self, times: u32) {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..times {
            self.jobs.retain_mut(|job| job.as_mut().poll(&mut cx).is_pending());
        }
    }

    fn version(&self, view: u32) -> Version {
        Version::new(self.versions[usize64(u64::from(view))]).unwrap()
    }

    /// Has the map and the model learn a change.
    fn change(&mut self, change: Change) {
        self.tell(&change, true);
        match &change {
            Change::Data { key, version, first, encoding, crcs } => {
                for (n, crc) in (0..).zip(crcs) {
                    let location = first.forward(n * encoding.grains());
                    let stored = Stored { location, encoding: *encoding, crc: *crc };
                    self.note(key.forward(u64::from(n)), *version, Has::Data(stored));
                    self.inserted.insert(location);
                }
            }
            Change::Hole { key, version, blocks } => {
                let view = key.view.get();
                let gone = self.contents.range((view, key.block)..(view, key.block + blocks));
                let gone: Vec<_> = match view {
                    CLONE => (key.block..key.block + blocks).collect(),
                    _ => gone.map(|(at, _)| at.1).collect(),
                };
                gone.into_iter()
                    .for_each(|block| self.note(Key::new(key.view, block), *version, Has::Hole));
            }
            Change::Lost { key, version, blocks } => {
                for n in 0..u64::from(*blocks) {
                    self.note(key.forward(n), *version, Has::Lost);
                }
            }
            Change::Move { key, new, .. } => {
                *self.newest(*key).unwrap() = Has::Data(*new);
                self.inserted.insert(new.location);
            }
            Change::Lose { key, .. } => *self.newest(*key).unwrap() = Has::Lost,
        }
        self.changes.push(change);
    }

    fn note(&mut self, key: Key, version: Version, has: Has) {
        self.contents.entry((key.view.get(), key.block)).or_default().insert(version.get(), has);
    }

    fn newest(&mut self, key: Key) -> Option<&mut Has> {
        self.contents.get_mut(&(key.view.get(), key.block))?.values_mut().next_back()
    }

    fn tell(&mut self, change: &Change, is_new: bool) {
        match change {
            Change::Data { key, version, first, encoding, crcs } => {
                self.reserve(crcs.len());
                self.map.insert(*key, *version, *first, *encoding, crcs);
            }
            Change::Hole { key, version, blocks } => {
                self.reserve(2);
                self.map.insert_hole(key.view, *version, key.block, *blocks);
            }
            Change::Lost { key, version, blocks } => {
                self.reserve(stdx::num::usize32(*blocks));
                self.map.insert_lost(*key, *version, stdx::num::usize32(*blocks));
            }
            Change::Move { key, old, new } => {
                self.reserve(2);
                self.pages.fail_in.set(None);
                let moved = now(self.map.replace_if(*key, *old, *new)).unwrap();
                assert!(moved || !is_new);
            }
            Change::Lose { key, old } => {
                self.reserve(2);
                self.pages.fail_in.set(None);
                let lost = now(self.map.lose_if(*key, *old)).unwrap();
                assert!(lost || !is_new);
            }
        }
    }

    fn insert(&mut self, view: u32, first: u64, count: u32) {
        // A new place now and then, so that runs of places differ from runs of keys.
        self.next += if count.is_multiple_of(3) { 8 } else { 0 };
        if self.next % SEGMENT + u64::from(count) * 8 > SEGMENT {
            self.next = self.next.next_multiple_of(SEGMENT);
        }
        // A third is plain, a third all of one kind, a third mixed.
        let mut at = 0;
        while at < count {
            let (encoding, some) = match count % 3 {
                0 => (Encoding::PLAIN, count),
                1 => (some(first), count),
                _ => (some(first + u64::from(at)), 1 + at % 3),
            };
            let (place, some) = (user_grain(self.next), some.min(count - at));
            let crcs: Vec<u32> = (0..some).map(|n| low32(self.next) * 31 + n).collect();
            let key = Key::new(View::new(view), first + u64::from(at));
            let version = self.version(view);
            self.next += u64::from(some * encoding.grains());
            self.change(Change::Data { key, version, first: place, encoding, crcs });
            at += some;
        }
    }

    fn hole(&mut self, view: u32, first: u64, blocks: u64) {
        let key = Key::new(View::new(view), first);
        self.change(Change::Hole { key, version: self.version(view), blocks });
    }

    fn lose(&mut self, view: u32, first: u64, blocks: u32) {
        let key = Key::new(View::new(view), first);
        self.change(Change::Lost { key, version: self.version(view), blocks });
    }

    /// Moves a block or loses it, and fails to with one that is not where it is said to be.
    fn relocate(&mut self, view: u32, block: u64, loses: bool) {
        self.reserve(2);
        let key = Key::new(View::new(view), block);
        let encoding = some(block);
        let new = Stored { location: user_grain(self.next), encoding, crc: 77 };
        self.next += u64::from(encoding.grains());
        self.pages.fail_in.set(None);
        let wrong = user_grain(self.next + 50_000);
        assert!(!now(self.map.replace_if(key, wrong, new)).unwrap());
        assert!(!now(self.map.lose_if(key, wrong)).unwrap());
        let Some(Stored { location: old, .. }) = self.newest(key).and_then(|has| has.stored())
        else {
            return;
        };
        self.change(if loses { Change::Lose { key, old } } else { Change::Move { key, old, new } });
    }

    fn take(&mut self, view: u32) {
        let version = &mut self.versions[usize64(u64::from(view))];
        let mut snapshots = self.pages.snapshots_mut();
        snapshots.entry(View::new(view)).or_default().insert(*version);
        *version += 1;
    }

    fn delete(&self, view: u32, which: u64) {
        let mut snapshots = self.pages.snapshots_mut();
        let Some(versions) = snapshots.get_mut(&View::new(view)) else { return };
        let which = (u128::from(which) * u64_of(versions.len()) as u128) >> 64;
        let version = versions.iter().nth(usize64(crate::map::flat::low64(which))).copied();
        version.map(|version| versions.remove(&version));
    }

    fn churn(&mut self, view: u32, seed: u64, rounds: u32) {
        let mut random = stdx::Prng::new(seed);
        for _ in 0..rounds {
            for _ in 0..random.below(6) {
                let first = random.below(40);
                match random.below(8) {
                    0 => self.hole(view, first, 1 + random.below(60)),
                    1 => self.lose(view, first, 1 + low32(random.below(8))),
                    2 => self.insert(view, first, 1 + low32(random.below(60))),
                    3 => self.relocate(view, first, false),
                    _ => self.insert(view, first, 1 + low32(random.below(3))),
                }
            }
            match random.below(4) {
                0 => {
                    let snapshots = self.pages.snapshots.borrow().get(&View::new(view)).cloned();
                    let snapshots: Vec<_> = snapshots.into_iter().flatten().collect();
                    if let Some(some) = snapshots.get(usize64(random.below(9))) {
                        let mut all = self.pages.snapshots_mut();
                        all.entry(View::new(view)).or_default().remove(some);
                    }
                }
                _ => self.take(view),
            }
        }
    }

    fn snapshots(&self, view: u32) -> Vec<u32> {
        let snapshots = self.pages.snapshots.borrow();
        snapshots.get(&View::new(view)).into_iter().flatten().copied().collect()
    }

    fn lookup(&self, view: u32, first: u64, count: u32) {
        let snapshots = self.snapshots(view).into_iter().map(|n| Version::new(n).unwrap());
        for as_of in snapshots.chain([Version::LAST]) {
            self.lookup_as_of(view, as_of, first, count);
        }
        if view == CLONE {
            self.lookup_own(first, count);
        }
        self.compare(view, first, count);
    }

    /// What it has nothing of is remembered, and believed the next time.
    fn lookup_own(&self, first: u64, count: u32) {
        let (view, mut out) = (View::new(CLONE), Extents::default());
        for _ in 0..2 {
            let known = self.map.lookup_own_known(view, first, count, &mut out);
            self.check_found(CLONE, Version::LAST, first, known, &out);
        }
        if now(self.map.lookup_own(view, first, count, &mut out)).is_ok() {
            self.check_found(CLONE, Version::LAST, first, count, &out);
        }
    }

    fn lookup_as_of(&self, view: u32, as_of: Version, first: u64, count: u32) {
        let mut out = Extents::default();
        if now(self.map.lookup_as_of(View::new(view), as_of, first, count, &mut out)).is_err() {
            return;
        }
        self.check_found(view, as_of, first, count, &out);
    }

    fn check_found(&self, view: u32, as_of: Version, first: u64, count: u32, out: &Extents) {
        let mut next = first;
        for extent in out.iter() {
            assert_eq!(extent.first, next, "no gap");
            for n in 0..extent.count {
                let block = next + u64::from(n);
                let versions = self.contents.get(&(view, block));
                let expected = versions
                    .and_then(|versions| versions.range(..=as_of.get()).next_back())
                    .map(|(_, has)| *has);
                if view == CLONE {
                    let is_hole = matches!(expected, Some(Has::Hole));
                    assert_eq!(
                        extent.contents == Contents::Hole,
                        is_hole,
                        "{block} as of {as_of:?}"
                    );
                }
                let expected = expected.and_then(Has::seen);
                let found = match extent.contents {
                    Contents::Hole | Contents::Absent => None,
                    Contents::Lost => Some(None),
                    Contents::Stored { location, encoding, crcs } => Some(Some(Stored {
                        location: location.forward(n * encoding.grains()),
                        encoding,
                        crc: crcs[stdx::num::usize32(n)],
                    })),
                };
                assert_eq!(found, expected, "block {block} of view {view} as of {as_of:?}");
            }
            next += u64::from(extent.count);
        }
        assert_eq!(next, first + u64::from(count));
    }

    /// Counts while what was begun goes on.
    fn count(&mut self, newer: &[(u64, u64, bool)], pages: usize) {
        let mut spans = Vec::new();
        // Those that come first win, and lie beyond each other in the order of their keys.
        let mut next = (0, 0);
        let mut newer = newer.to_vec();
        newer.sort_unstable();
        for (first, blocks, has_contents) in newer {
            let (view, first) = (low32(first / BLOCKS), first % BLOCKS);
            if (view, first) >= next {
                next = (view, first + blocks);
                let first = Key::new(View::new(view), first);
                spans.push(Span { first, blocks, has_contents, is_alone: has_contents });
            }
        }
        let newest = |versions: &BTreeMap<u32, Has>| versions.values().next_back().copied();
        let filled = self.contents.iter().filter(|(_, has)| newest(has) != Some(Has::Hole));
        let mut expected: BTreeSet<_> = filled.map(|(at, _)| *at).collect();
        for span in &spans {
            for n in 0..span.blocks {
                let at = (span.first.view.get(), span.first.block + n);
                match span.has_contents {
                    true => expected.insert(at),
                    false => expected.remove(&at),
                };
            }
        }
        let mut model = BTreeMap::new();
        expected.iter().for_each(|(view, _)| *model.entry(View::new(*view)).or_insert(0) += 1);
        if let Some(counted) = self.counted(&spans, pages) {
            assert_eq!(counted, model);
        }
    }

    /// What a count finds; none when a page could not be read.
    fn counted(&mut self, newer: &[Span], pages: usize) -> Option<BTreeMap<View, u64>> {
        let (mut counts, end) = (BTreeMap::new(), Key::new(View::SHARED, 0));
        let mut at = Key::new(View::METADATA, 0);
        let map = Rc::clone(&self.map);
        while at < end {
            let count = map.count(
                at..end,
                newer,
                pages,
                || false,
                |v, n| *counts.entry(v).or_insert(0) += n,
            );
            let mut count = std::pin::pin!(count);
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            at = loop {
                match count.as_mut().poll(&mut cx) {
                    Poll::Ready(reached) => break reached.ok()?,
                    Poll::Pending => self.poll(1),
                }
            };
        }
        Some(counts)
    }

    fn checkpoint(&mut self) {
        self.pages.fail_in.set(None);
        // A flush in progress may have to end first; a merge may stay as it is.
        let map = Rc::clone(&self.map);
        let mut flush = Box::pin(async move { map.flush().await });
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        while flush.as_mut().poll(&mut cx).is_pending() {
            self.poll(1);
        }
        self.saved = Saved {
            manifest: self.map.manifest(),
            contents: self.contents.clone(),
            inserted: self.inserted.clone(),
            superseded: self.pages.superseded.borrow().clone(),
            appended: self.pages.next.get(),
            changes: self.changes.len(),
        };
    }

    fn crash(&mut self, again: usize) {
        self.jobs.clear();
        let saved = self.saved.clone();
        self.lost.push(saved.appended..self.pages.next.get());
        *self.pages.superseded.borrow_mut() = saved.superseded;
        self.contents = saved.contents;
        self.inserted = saved.inserted;
        self.pages.fail_in.set(None);
        self.map = Rc::new(Map::open(&saved.manifest, Rc::clone(&self.pages), limits()).unwrap());
        self.saved.superseded = self.pages.superseded.borrow().clone();
        self.saved.manifest = self.map.manifest();
        self.saved.appended = self.pages.next.get();
        let learnt = saved.changes - again.min(saved.changes);
        let changes = self.changes.split_off(learnt);
        for (n, change) in changes.into_iter().enumerate() {
            if learnt + n >= saved.changes {
                self.change(change);
                continue;
            }
            // The model knows it.
            self.tell(&change, false);
            match &change {
                Change::Data { first, encoding, crcs, .. } => {
                    let places =
                        (0..u32_of(crcs.len())).map(|n| first.forward(n * encoding.grains()));
                    self.again.extend(places);
                }
                Change::Move { old, new, .. } => self.again.extend([*old, new.location]),
                Change::Lose { old, .. } => self.again.extend([*old]),
                Change::Hole { .. } | Change::Lost { .. } => {}
            }
            self.changes.push(change);
        }
    }

    fn begin(&mut self, work: Work) {
        let map = Rc::clone(&self.map);
        self.jobs.push(match work {
            Work::Flush => Box::pin(async move { map.flush().await.map(|()| true) }),
            Work::Maintain => Box::pin(async move { map.maintain().await }),
            Work::Prune => Box::pin(async move {
                let _pruning = map.pruning();
                map.maintain().await
            }),
            Work::Evacuate(n) => {
                // One of the segments already full.
                let full = low32(self.pages.next.get() / 40);
                let Some(segment) = full.checked_sub(n + 1).map(SegmentId::new) else { return };
                Box::pin(async move {
                    map.evacuate(segment).await?;
                    let state = map.state.borrow();
                    let mut tables = state.groups().flat_map(|g| state.group(g).tables());
                    assert!(tables.all(|t| !t.segments.contains(&segment)), "evacuated");
                    Ok(true)
                })
            }
        });
    }

    /// Where everything is that is the newest, or that a snapshot sees.
    fn needed(&self) -> BTreeSet<Location> {
        let mut needed = BTreeSet::new();
        for ((view, _), versions) in &self.contents {
            for as_of in self.snapshots(*view).into_iter().chain([u32::MAX]) {
                let seen = versions.range(..=as_of).next_back();
                needed.extend(seen.and_then(|(_, has)| has.stored()).map(|stored| stored.location));
            }
        }
        needed
    }

    /// With no snapshot left, and all in one level, there is the newest of everything and nothing else.
    fn end_of_snapshots(&mut self) {
        self.finish_jobs();
        self.pages.snapshots_mut().clear();
        now(self.map.flush()).unwrap();
        now(self.map.compact()).unwrap();
        now(self.map.prune()).unwrap();
        self.account();
        let (users, _) = referred(&self.map.state.borrow(), &self.pages);
        assert_eq!(users, self.needed());
    }

    /// Everything ever inserted or appended is referred to, or was reported once.
    fn account(&mut self) {
        self.finish_jobs();
        let superseded = self.pages.superseded.borrow();
        let once = |l: &Location, n: u32| n == 1 || self.again.contains(l);
        let twice: Vec<_> = superseded.iter().filter(|(l, n)| !once(l, **n)).collect();
        assert!(twice.is_empty(), "reported more than once: {twice:?}");
        let mut bad = Vec::new();
        now(self.map.check(&mut |news| {
            if !matches!(news, News::Used(_)) {
                bad.push(format!("{news:?}"));
            }
        }));
        assert!(bad.is_empty(), "{bad:?}");
        let state = self.map.state.borrow();
        let (users, pages) = referred(&state, &self.pages);
        let reported = |l: &Location| superseded.contains_key(l);
        for location in &self.inserted {
            assert!(
                users.contains(location) != reported(location) || self.again.contains(location),
                "{location:?} referred to: {}, reported: {}",
                users.contains(location),
                reported(location)
            );
        }
        for location in self.needed() {
            assert!(users.contains(&location), "{location:?} is live");
            // What was learnt again may be merged with what had replaced it before it is replaced again.
            assert!(!reported(&location) || self.again.contains(&location), "{location:?} is live");
        }
        for n in 0..self.pages.next.get() {
            if self.lost.iter().any(|lost| lost.contains(&n)) {
                continue;
            }
            let location = page_location(n);
            assert!(
                pages.contains(&location) != reported(&location),
                "page {location:?} referred to: {}, reported: {}",
                pages.contains(&location),
                reported(&location)
            );
        }
    }
}

/// All locations the map refers to: of users' blocks and of its own pages.
fn referred(state: &State, pages: &Rc<Memory>) -> (BTreeSet<Location>, BTreeSet<Location>) {
    let (mut users, mut own) = (BTreeSet::new(), BTreeSet::new());
    let mut checksums = Vec::new();
    for memtable in [&state.active, &state.frozen] {
        let (mut at, mut place) = (0, Cursor::default());
        while let Some((item, since)) = memtable.next(at, &mut place, &mut checksums, 1000) {
            // The place only says where to look first.
            let afresh = memtable.next(at, &mut Cursor::default(), &mut checksums, 1000);
            assert_eq!(afresh, Some((item, since)));
            let mut layers = Vec::new();
            if item.blocks == 1 {
                memtable.layers(item.start, &mut layers, &mut Spare::default());
                let newest = layers.first().map(|layer| (layer.place, layer.version));
                assert_eq!(newest, Some((item.place, since)));
            } else {
                layers.push(Layer {
                    source: 0,
                    version: since,
                    place: item.place,
                    crcs: Vec::new(),
                });
            }
            users.extend(
                layers.iter().flat_map(|layer| places(&Item { place: layer.place, ..item })),
            );
            at = item.end();
        }
    }
    for group in state.groups() {
        for table in state.group(group).tables() {
            let mut entries = vec![table.index];
            let mut page = [0; BLOCK];
            for (entry, kind) in [
                (Some(table.index), PageKind::Index),
                (table.filters.map(|f| f.0), PageKind::Filters),
            ] {
                let Some(entry) = entry else { continue };
                now(pages.read(entry.location, &[entry.crc], &mut page)).unwrap();
                entries.push(entry);
                named(&page, kind, &mut entries).unwrap();
            }
            entries.extend(table.holes);
            for entry in entries {
                own.insert(entry.location);
            }
        }
        let mut source = Source::new(state.group(group), 0);
        assert_eq!(source.limit, END, "few tables");
        while source.unopened().is_some() {
            now(source.open(pages)).unwrap();
            while let Some(item) = source.current().copied() {
                let mut layers = Vec::new();
                source.gather(0, item.blocks, &mut layers, &mut Spare::default());
                assert!(layers.windows(2).all(|two| two[0].version > two[1].version));
                let items = layers.iter().map(|layer| Item { place: layer.place, ..item });
                users.extend(items.flat_map(|item| places(&item)));
                now(source.take_until(pages, item.end())).unwrap();
            }
        }
    }
    (users, own)
}

fn places(item: &Item) -> Vec<Location> {
    let Place::At(place, encoding) = item.place else { return Vec::new() };
    (0..low32(item.blocks)).map(|n| place.forward(n * encoding.grains())).collect()
}

fn run(ops: Vec<Op>) {
    let mut bench = Bench::new();
    for op in ops {
        match op {
            Op::Insert { view, first, count } => bench.insert(view, first, count),
            Op::Scatter { view, seed, count } => {
                let mut random = stdx::Prng::new(seed);
                for _ in 0..count {
                    bench.insert(view, random.below(BLOCKS), 1);
                }
            }
            Op::Hole { view, first, count } => bench.hole(view, first, count),
            Op::Lose { view, first, count } => bench.lose(view, first, count),
            Op::Move { view, block, loses } => bench.relocate(view, block, loses),
            Op::Lookup { view, first, count } => bench.lookup(view, first, count),
            Op::Count { newer, pages } => {
                bench.count(&newer, pages);
                bench.count_older();
            }
            Op::Begin(work) => bench.begin(work),
            Op::Poll(times) => bench.poll(times),
            Op::Fail(n) => bench.pages.fail_in.set(Some(n)),
            Op::Checkpoint => bench.checkpoint(),
            Op::Crash(again) => bench.crash(again),
            Op::Take(view) => bench.take(view),
            Op::Delete(view, which) => bench.delete(view, which),
            Op::Churn { view, seed, rounds } => bench.churn(view, seed, rounds),
        }
        let bytes = usize64(bench.map.status().memory);
        let limits = limits();
        assert!(
            bytes <= 8 * limits.memtable + limits.cache + limits.filters + (64 << 10) + ABSENT,
            "{bytes}"
        );
    }
    bench.finish_jobs();
    for view in 1..4 {
        bench.lookup(view, 0, u32_of(usize64(BLOCKS + 300)));
    }
    bench.count(&[], 1000);
    bench.account();
    bench.count_older();
    while now(bench.map.maintain()).unwrap() {}
    bench.account();
    bench.count_older();
    bench.count(&[], 1000);
    bench.checkpoint();
    bench.crash(0);
    bench.count(&[], 1000);
    for view in 1..4 {
        bench.lookup(view, 0, u32_of(usize64(BLOCKS + 300)));
    }
    bench.account();
    bench.end_of_snapshots();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_history_is_what_an_ordered_map_would_say(ops in ops(0)) {
        run(ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn any_history_with_snapshots_is_what_an_ordered_map_would_say(ops in ops(2)) {
        run(ops);
    }

    #[test]
    fn snapshots_taken_and_deleted_in_the_midst_of_merges_are_what_an_ordered_map_would_say(
        ops in in_merges(),
    ) {
        run(ops);
    }
}

/// A merge into the last level dropped a hole, passed by a table that has nothing above it, since
/// nothing was written yet, and then took that table for used up with all it had begun with.
#[test]
fn a_dropped_hole_takes_no_table_behind_it() {
    let hole = || Op::Hole { view: 1, first: 0, count: 1 };
    let scatter = |view, seed, count| Op::Scatter { view, seed, count };
    run(vec![
        Op::Insert { view: 1, first: 10369, count: 1 },
        Op::Checkpoint,
        hole(),
        Op::Checkpoint,
        hole(),
        Op::Begin(Work::Maintain),
        scatter(2, 98, 169),
        Op::Poll(44),
        scatter(3, 584_090_922_717_262_380, 171),
        scatter(3, 2_901_148_570_233_402_388, 65),
        scatter(3, 5_857_229_600_015_868_023, 172),
        Op::Begin(Work::Maintain),
        Op::Poll(7),
        Op::Begin(Work::Maintain),
        Op::Poll(23),
    ]);
}
