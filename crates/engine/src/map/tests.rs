//! The map against models of it.

mod count;
mod encodings;
mod hostile;
mod model;
mod references;
mod versions;

use super::*;
use crate::address::SegmentId;
use std::cell::RefMut;
use std::collections::{BTreeMap, BTreeSet};
use stdx::num::{low32, u64_of};

/// Pages in memory, each superseded location counted.
#[derive(Default)]
pub(super) struct Memory {
    pub pages: RefCell<BTreeMap<Location, Box<[u8; BLOCK]>>>,
    next: Cell<u64>,
    /// Reads and appends until one fails.
    /// Gives pages whatever their checksum.
    pub trusting: Cell<bool>,
    pub fail_in: Cell<Option<u32>>,
    pub superseded: RefCell<BTreeMap<Location, u32>>,
    /// Of each view, the last versions that its snapshots see.
    snapshots: RefCell<BTreeMap<View, BTreeSet<u32>>>,
    seen_changes: Cell<u64>,
    /// Views that have parents.
    pub clones: RefCell<BTreeSet<View>>,
    pub reads: Cell<usize>,
}

/// Segments of user data begin here, those of pages at 0.
pub(super) const USER: u32 = 1 << 20;

impl Memory {
    /// To change what is seen.
    pub fn snapshots_mut(&self) -> RefMut<'_, BTreeMap<View, BTreeSet<u32>>> {
        self.seen_changes.set(self.seen_changes.get() + 1);
        self.snapshots.borrow_mut()
    }

    fn may_fail(&self) -> Result<()> {
        let left = self.fail_in.get();
        self.fail_in.set(left.and_then(|n| n.checked_sub(1)));
        if left == Some(0) { Err(Error::new(Kind::Failed, "injected")) } else { Ok(()) }
    }
}

impl Pages for Rc<Memory> {
    async fn read(&self, first: Location, crcs: &[u32], out: &mut [u8]) -> Result<()> {
        self.may_fail()?;
        self.reads.set(self.reads.get() + crcs.len());
        let pages = self.pages.borrow();
        for (n, (crc, out)) in crcs.iter().zip(out.chunks_exact_mut(BLOCK)).enumerate() {
            let Some(page) = pages.get(&first.offset(stdx::num::u32_of(n))) else {
                return Err(Error::new(Kind::Corrupt, "no such page"));
            };
            assert!(self.trusting.get() || *crc == stdx::crc32c(&page[..]));
            out.copy_from_slice(&page[..]);
        }
        Ok(())
    }

    async fn append(&self, page: &[u8; BLOCK]) -> Result<Entry> {
        self.may_fail()?;
        let n = self.next.replace(self.next.get() + 1);
        let location = Location::new(SegmentId::new(low32(n / 40)), low32(n % 40));
        self.pages.borrow_mut().insert(location, Box::new(*page));
        Ok(Entry { location, crc: stdx::crc32c(page) })
    }

    fn superseded(&self, first: Location, encoding: Encoding, blocks: u32) {
        for n in 0..blocks {
            let at = first.forward(n * encoding.grains());
            *self.superseded.borrow_mut().entry(at).or_default() += 1;
        }
    }

    fn is_needed(&self, view: View, written: Version, replaced: Version) -> bool {
        let snapshots = self.snapshots.borrow();
        let sees = |versions: &BTreeSet<u32>| {
            versions.range(written.get()..replaced.get()).next().is_some()
        };
        snapshots.get(&view).is_some_and(sees)
    }

    fn seen(&self, view: View, out: &mut Vec<Version>) {
        let snapshots = self.snapshots.borrow();
        out.extend(snapshots.get(&view).into_iter().flatten().map(|n| Version::new(*n).unwrap()));
    }

    fn seen_changes(&self) -> u64 {
        self.seen_changes.get()
    }

    fn keeps_holes(&self, view: View) -> bool {
        self.clones.borrow().contains(&view)
    }
}

pub(super) fn user(n: u64) -> Location {
    Location::new(SegmentId::new(USER + low32(n / 4096)), low32(n % 4096))
}

/// Runs a future whose pages never make it wait.
pub(super) fn now<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..200_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
    panic!("work that does not end");
}

pub(super) fn small() -> MapLimits {
    MapLimits {
        memtable: 192 << 10,
        cache: 256 << 10,
        filters: 1 << 20,
        runs: 3,
        table_leaves: 8,
        ratio: 4,
        ratio_last: 8,
    }
}

#[test]
fn what_is_inserted_is_found_before_and_after_flush_and_open() {
    let pages = Rc::new(Memory::default());
    let map = Map::new(Rc::clone(&pages), small());
    let view = View::new(3);
    for n in 0..3000u64 {
        now(map.reserve(1)).unwrap();
        map.insert(
            Key::new(view, n * 7),
            Version::FIRST,
            user(n),
            Encoding::PLAIN,
            &[low32(n) ^ 0x55],
        );
    }
    let mut out = Extents::default();
    let check = |map: &Map<Rc<Memory>>, out: &mut Extents| {
        for n in 0..3000u64 {
            now(map.lookup(view, n * 7, 2, out)).unwrap();
            let found: Vec<_> = out.iter().collect();
            let (location, encoding) = (user(n), Encoding::PLAIN);
            let contents = Contents::Stored { location, encoding, crcs: &[low32(n) ^ 0x55] };
            assert_eq!(found[0], Extent { first: n * 7, count: 1, contents });
            let contents = Contents::Absent;
            assert_eq!(found[1], Extent { first: n * 7 + 1, count: 1, contents });
        }
    };
    check(&map, &mut out);
    now(map.flush()).unwrap();
    check(&map, &mut out);
    let again = Map::open(&map.manifest(), Rc::clone(&pages), small()).unwrap();
    check(&again, &mut out);
    assert!(pages.superseded.borrow().is_empty());
    assert!(u64_of(pages.pages.borrow().len()) == pages.next.get());
}

/// The page that had both as one was never read again.
#[test]
fn what_ends_with_a_view_is_not_continued_in_the_next() {
    let pages = Rc::new(Memory::default());
    let map = Map::new(Rc::clone(&pages), small());
    let all = 1 << crate::address::BLOCK_BITS;
    map.insert_hole(View::new(1), Version::FIRST, 0, all);
    map.insert_hole(View::new(2), Version::FIRST, 0, all);
    let encoding = Encoding::PLAIN;
    map.insert(Key::new(View::new(3), all - 1), Version::FIRST, user(0), encoding, &[7]);
    map.insert(Key::new(View::new(4), 0), Version::FIRST, user(1), encoding, &[8]);
    now(map.flush()).unwrap();
    let map = Map::open(&map.manifest(), Rc::clone(&pages), small()).unwrap();
    let mut out = Extents::default();
    for (view, first, contents) in [
        (1, all - 1, Contents::Hole),
        (2, 0, Contents::Hole),
        (3, all - 1, Contents::Stored { location: user(0), encoding, crcs: &[7] }),
        (4, 0, Contents::Stored { location: user(1), encoding, crcs: &[8] }),
    ] {
        now(map.lookup(View::new(view), first, 1, &mut out)).unwrap();
        assert_eq!(out.iter().next(), Some(Extent { first, count: 1, contents }));
    }
}

/// Counts were corrected only by what was found while nothing was inserted, which in a pool at work is never.
#[test]
fn every_place_is_told_once_that_will_be_reported_whatever_is_inserted_meanwhile() {
    let pages = Rc::new(Memory::default());
    let map = Map::new(Rc::clone(&pages), small());
    let view = View::new(3);
    let insert = |n: u64, place: u64| {
        now(map.reserve(1)).unwrap();
        map.insert(
            Key::new(view, n * 3),
            Version::FIRST,
            user(place),
            Encoding::PLAIN,
            &[low32(place)],
        );
    };
    let all = || {
        let (mut found, mut learnt) = (BTreeMap::new(), 0);
        let whole = now(map.places(|at, blocks, learnt_since| {
            learnt += if learnt_since { blocks } else { 0 };
            for n in 0..blocks {
                *found.entry(at.offset(n)).or_insert(0_u32) += 1;
            }
        }));
        (whole.unwrap(), found, learnt)
    };
    (0..3000).for_each(|n| insert(n, n));
    now(map.flush()).unwrap();
    assert!(!all().0, "a run beside the level");
    now(map.compact()).unwrap();
    (500..900).for_each(|n| insert(n, 5000 + n));
    let (whole, before, learnt) = all();
    assert!(whole);
    assert_eq!((before.len(), learnt), (3400, 400), "what is replaced was not reported yet");
    assert!(before.values().all(|times| *times == 1));
    let reported = pages.superseded.borrow().clone();
    now(map.flush()).unwrap();
    now(map.compact()).unwrap();
    let since = pages.superseded.borrow().clone();
    let is_new = |at: &Location| since.get(at) != reported.get(at);
    let left: Vec<_> = before.keys().filter(|at| !is_new(at)).copied().collect();
    let (whole, after, learnt) = all();
    assert!(whole && learnt == 0);
    assert_eq!(after.keys().copied().collect::<Vec<_>>(), left);
}
