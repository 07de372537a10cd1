//! Stories of blocks that have several versions.

use super::*;
use crate::address::SharedBlockId;
use crate::map::check::News;
use crate::map::stack::Seen;
use stdx::num::u32_of;

const VIEW: View = View::new(3);

fn version(n: u32) -> Version {
    Version::new(n).unwrap()
}

fn map() -> Map<Rc<Memory>> {
    Map::new(Rc::new(Memory::default()), MapLimits { memtable: 2 << 20, ..small() })
}

fn take(map: &Map<Rc<Memory>>, versions: impl IntoIterator<Item = u32>) {
    map.pages().snapshots_mut().entry(VIEW).or_default().extend(versions);
}

fn delete(map: &Map<Rc<Memory>>, gone: impl Fn(u32) -> bool) {
    map.pages().snapshots_mut().entry(VIEW).or_default().retain(|version| !gone(*version));
}

/// A block at the place that its number and version tell.
fn put(map: &Map<Rc<Memory>>, block: u64, since: u32, place: u64) {
    now(map.reserve(1)).unwrap();
    map.insert(Key::new(VIEW, block), version(since), user(place), Encoding::PLAIN, &[since]);
}

fn contents<R>(
    map: &Map<Rc<Memory>>,
    block: u64,
    as_of: Version,
    look: impl FnOnce(Contents<'_>) -> R,
) -> R {
    let mut out = Extents::default();
    now(map.lookup_as_of(VIEW, as_of, block, 1, &mut out)).unwrap();
    look(out.iter().next().unwrap().contents)
}

/// Where a block is, as of a version.
fn place(map: &Map<Rc<Memory>>, block: u64, as_of: Version) -> Option<Location> {
    contents(map, block, as_of, |found| match found {
        Contents::Stored { location, .. } => Some(location),
        _ => None,
    })
}

fn reported(map: &Map<Rc<Memory>>) -> BTreeMap<Location, u32> {
    let users = |at: &Location| at.segment().get() >= USER;
    let superseded = map.pages().superseded.borrow();
    superseded.iter().filter(|(at, _)| users(at)).map(|(at, n)| (*at, *n)).collect()
}

/// The map makes sense, page by page.
fn check(map: &Map<Rc<Memory>>) {
    let mut bad = Vec::new();
    now(map.check(&mut |news| {
        if !matches!(news, News::Used(_)) {
            bad.push(format!("{news:?}"));
        }
    }));
    assert!(bad.is_empty(), "{bad:?}");
}

/// All to one level.
fn settle(map: &Map<Rc<Memory>>) {
    now(map.flush()).unwrap();
    now(map.compact()).unwrap();
    check(map);
}

/// Block 10 has 2500 versions, more than five leaves hold, between blocks that have one.
fn tall() -> Map<Rc<Memory>> {
    let map = map();
    for block in (0..1000).filter(|block| *block != 10) {
        put(&map, block, 0, 100_000 + 7 * block);
    }
    take(&map, 0..2500);
    for since in 0..2500 {
        put(&map, 10, since, 3 * u64::from(since));
        if since % 900 == 0 {
            now(map.flush()).unwrap();
        }
    }
    settle(&map);
    map
}

#[test]
fn a_stack_over_several_leaves_is_found_by_one_of_them() {
    let map = tall();
    let manifest = map.manifest();
    let places = |block| place(&map, block, Version::LAST);
    for since in 0..2500 {
        // As a map that has nothing in memory.
        let cold = Map::open(&manifest, Rc::clone(map.pages()), small()).unwrap();
        let before = map.pages().reads.get();
        assert_eq!(place(&cold, 10, version(since)), Some(user(3 * u64::from(since))));
        assert!(map.pages().reads.get() - before <= 2, "an index page and a leaf");
    }
    assert_eq!(places(10), Some(user(3 * 2499)));
    for block in [0, 9, 11, 12, 13, 500, 999] {
        assert_eq!(places(block), Some(user(100_000 + 7 * block)));
        assert_eq!(place(&map, block, version(7)), Some(user(100_000 + 7 * block)));
    }
    assert_eq!(places(1000), None);
    let mut found = BTreeMap::new();
    let whole = now(map.places(|at, blocks, _| {
        (0..blocks).for_each(|n| *found.entry(at.offset(n)).or_insert(0_u32) += 1);
    }));
    assert!(whole.unwrap());
    assert_eq!(found.len(), 2500 + 999, "all versions are there");
    assert!(found.values().all(|times| *times == 1));
    let (mut newest, mut older) = (0, Vec::new());
    now(map.scan(Key::new(VIEW, 0), None, |key, at, count, period| {
        match period.until {
            None => newest += count,
            Some(until) => older.push((key.block, at, count, period.since, until)),
        }
        true
    }))
    .unwrap();
    assert_eq!(newest, 1000);
    let was =
        |since: u32| (10, Some(user(3 * u64::from(since))), 1, version(since), version(since));
    assert_eq!(older, (0..2499).rev().map(was).collect::<Vec<_>>());
    assert!(reported(&map).is_empty());
}

#[test]
fn what_deleted_snapshots_saw_is_given_up_and_nothing_else() {
    let map = tall();
    delete(&map, |n| n % 2 == 1 || n > 2000);
    let pruning = map.pruning();
    while now(map.maintain()).unwrap() {}
    assert!(!now(map.maintain()).unwrap(), "what was written anew is not, again and again");
    drop(pruning);
    check(&map);
    for since in 0..2500_u32 {
        let is_seen = since.is_multiple_of(2) && since <= 2000 || since == 2499;
        let is_reported = reported(&map).get(&user(3 * u64::from(since))).copied();
        assert_eq!(is_reported, (!is_seen).then_some(1), "version {since}");
        if since <= 2000 && is_seen {
            assert_eq!(place(&map, 10, version(since)), Some(user(3 * u64::from(since))));
        }
    }
    delete(&map, |_| true);
    now(map.prune()).unwrap();
    check(&map);
    let reported = reported(&map);
    assert_eq!(reported.len(), 2499);
    assert!(reported.values().all(|times| *times == 1));
    assert_eq!(place(&map, 10, Version::LAST), Some(user(3 * 2499)));
    let leaves = map.status().leaves;
    assert!(leaves <= 3, "{leaves} leaves for 1000 blocks");
}

/// A hole is dropped from the last level, since nothing lies below; here something does.
#[test]
fn a_hole_over_what_a_snapshot_sees_stays_in_the_last_level() {
    let map = map();
    (0..100).for_each(|block| put(&map, block, 0, block));
    settle(&map);
    take(&map, [0, 1, 2]);
    map.insert_hole(VIEW, version(1), 10, 50);
    settle(&map);
    map.insert_hole(VIEW, version(3), 0, 1000);
    settle(&map);
    let hole = |block, as_of| contents(&map, block, as_of, |found| found.is_empty());
    for block in 0..100 {
        let was_hole = (10..60).contains(&block);
        assert_eq!(place(&map, block, version(0)), Some(user(block)));
        assert_eq!(hole(block, version(1)), was_hole);
        assert_eq!(hole(block, version(2)), was_hole);
        assert!(hole(block, Version::LAST), "block {block}");
    }
    assert!(reported(&map).is_empty());
    let mut blocks = 0;
    let range = Key::new(VIEW, 0)..Key::new(View::SHARED, 0);
    now(map.count(range, &[], 1000, || false, |_, n| blocks += n)).unwrap();
    assert_eq!(blocks, 0, "a count is of the newest");
    delete(&map, |_| true);
    now(map.prune()).unwrap();
    assert_eq!(reported(&map).len(), 100);
    assert_eq!(map.status().leaves, 0, "no hole is left");
}

#[test]
fn a_snapshot_deleted_while_a_merge_is_under_way_is_given_up_afterwards() {
    let map = map();
    for since in 0..40 {
        (0..200).for_each(|block| put(&map, block, since, u64::from(since) * 200 + block));
        take(&map, [since]);
        if since % 10 == 9 {
            now(map.flush()).unwrap();
        }
    }
    {
        let mut merge = std::pin::pin!(map.compact());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for polls in 0.. {
            if polls == 12 {
                delete(&map, |n| n % 3 != 0);
            }
            if merge.as_mut().poll(&mut cx).is_ready() {
                assert!(polls > 12, "deleted while it was under way");
                break;
            }
        }
    }
    now(map.prune()).unwrap();
    check(&map);
    for since in 0..40_u32 {
        for block in 0..200 {
            let at = user(u64::from(since) * 200 + block);
            let is_seen = since % 3 == 0;
            if is_seen {
                assert_eq!(place(&map, block, version(since)), Some(at));
            }
            assert_eq!(reported(&map).get(&at).copied(), (!is_seen).then_some(1));
        }
        if since > 3 {
            break;
        }
    }
    assert_eq!(reported(&map).len(), 200 * (40 - 14));
    assert!(reported(&map).values().all(|times| *times == 1));
}

/// What is seen is remembered for the time of a merge: one that went on with what it had seen first would keep what nobody
/// sees, or drop what somebody does.
#[test]
fn what_snapshots_see_is_asked_for_again_once_it_changed() {
    let map = map();
    let (pages, mut seen) = (map.pages(), Seen::default());
    let mut first = |view| (0..9).find(|n| seen.sees_before(pages, view, version(*n)));
    assert_eq!(first(VIEW), None);
    take(&map, [5]);
    assert_eq!(first(VIEW), Some(6));
    take(&map, [2]);
    assert_eq!((first(VIEW), first(View::new(4)), first(VIEW)), (Some(3), None, Some(3)));
    delete(&map, |n| n == 2);
    assert_eq!(first(VIEW), Some(6));
}

#[test]
fn a_merge_gives_up_what_a_snapshot_saw_that_was_deleted_in_its_midst() {
    let map = map();
    take(&map, [0]);
    for since in 0..2_u32 {
        (0..2000).for_each(|n| put(&map, n * 3, since, u64::from(since) * 10_000 + n));
        now(map.flush()).unwrap();
    }
    {
        let mut merge = std::pin::pin!(map.compact());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut polls = 0;
        while merge.as_mut().poll(&mut cx).is_pending() {
            polls += 1;
            if polls == 4 {
                delete(&map, |_| true);
            }
        }
        assert!(polls > 8, "deleted while it was under way");
    }
    let given_up = reported(&map);
    assert!((500..2000).contains(&given_up.len()), "{} of 2000", given_up.len());
    (0..2000).for_each(|n| assert_eq!(place(&map, n * 3, Version::LAST), Some(user(10_000 + n))));
    check(&map);
}

/// Flushes and merges asked for memory a block at a time where anything had a version, for good: nothing has the first one
/// again once the snapshots are gone.
#[test]
fn versions_cost_flushes_and_merges_no_memory_a_block() {
    let blocks = 3000;
    let took = |since: u32, seen: Option<u32>, flushes: bool| {
        let map = map();
        take(&map, seen);
        for round in 0..2_u32 {
            let since = since * (round + 1);
            (0..blocks).for_each(|n| put(&map, n * 3, since, u64::from(round) * 20_000 + 3 * n));
            if round == 0 && flushes {
                now(map.flush()).unwrap();
            }
        }
        // What the test's own pages take is the same for each.
        let took = allocation_counter::measure(|| {
            now(map.flush()).unwrap();
            now(map.compact()).unwrap();
        });
        check(&map);
        (took.count_total, reported(&map).len(), map.status().leaves)
    };
    let (plain, reports, leaves) = took(0, None, true);
    let (versions, same_reports, same_leaves) = took(1, None, true);
    assert_eq!((same_reports, u64_of(reports)), (reports, blocks));
    assert!(same_leaves <= leaves + 2, "{same_leaves} leaves, {leaves} without");
    assert!(versions < plain + blocks / 10, "{versions} times, {plain} without versions");
    // Of each block both versions are kept, in twice the pages.
    for flushes in [false, true] {
        let (stacks, none, _) = took(1, Some(1), flushes);
        assert_eq!(none, 0);
        assert!(stacks < plain + blocks / 4, "{stacks} times, {plain} without versions");
    }
}

/// Stripes are learnt again in their order: what comes first is older than what the levels have.
#[test]
fn what_is_learnt_again_is_in_the_order_of_versions() {
    let map = map();
    take(&map, [1, 4]);
    let learn = |map: &Map<Rc<Memory>>, flushes: bool| {
        for (since, place) in [(1, 1), (3, 2), (5, 3)] {
            put(map, 8, since, place);
            if since == 3 {
                map.insert_hole(VIEW, version(since), 20, 5);
            } else {
                put(map, 21, since, 10 + place);
            }
            if flushes {
                now(map.flush()).unwrap();
            }
        }
    };
    let seen = |map: &Map<Rc<Memory>>| {
        let at = |block, n| place(map, block, n);
        let all = [version(1), version(4), Version::LAST];
        all.map(|n| (at(8, n), at(21, n)))
    };
    let expected =
        [(Some(user(1)), Some(user(11))), (Some(user(2)), None), (Some(user(3)), Some(user(13)))];
    learn(&map, false);
    assert_eq!(seen(&map), expected);
    settle(&map);
    assert_eq!(seen(&map), expected);
    for flushes in [false, true] {
        let again = Map::open(&map.manifest(), Rc::clone(map.pages()), small()).unwrap();
        learn(&again, flushes);
        assert_eq!(seen(&again), expected);
        settle(&again);
        assert_eq!(seen(&again), expected);
    }
    assert!(reported(&map).is_empty());
}

/// A hole over a hole stays one since the older version. What was between them, and was in a level as well, came to light
/// again below.
#[test]
fn what_was_between_two_holes_does_not_come_back_when_they_are_learnt_again() {
    for flushes in 0..8 {
        let map = map();
        take(&map, (0..57).chain(60..70));
        let hole = |map: &Map<Rc<Memory>>, since| map.insert_hole(VIEW, version(since), 0, 1000);
        hole(&map, 47);
        now(map.flush()).unwrap();
        put(&map, 5, 57, 1);
        now(map.flush()).unwrap();
        let again = Map::open(&map.manifest(), Rc::clone(map.pages()), small()).unwrap();
        for (n, since) in [47, 57, 60].into_iter().enumerate() {
            match since {
                57 => put(&again, 5, 57, 1),
                _ => hole(&again, since),
            }
            if flushes & 1 << n != 0 {
                now(again.flush()).unwrap();
            }
        }
        let seen = || [48, 56, 60, 65].map(|n| place(&again, 5, version(n)));
        assert_eq!(seen(), [None; 4]);
        settle(&again);
        assert_eq!(seen(), [None; 4], "flushes {flushes:b}");
        assert_eq!(place(&again, 5, Version::LAST), None);
    }
}

/// What moves is the newest, and its version stays.
#[test]
fn a_move_keeps_the_version() {
    let map = map();
    put(&map, 8, 0, 1);
    take(&map, [0, 3]);
    put(&map, 8, 2, 2);
    settle(&map);
    let moved = |from: u64, to| {
        now(map.replace_if(Key::new(VIEW, 8), user(from), Stored::plain(user(to), 9))).unwrap()
    };
    assert!(!moved(1, 7), "an older one stays where it is");
    assert!(moved(2, 3));
    put(&map, 8, 4, 4);
    settle(&map);
    let seen = [0, 1, 2, 3, 4].map(|n| place(&map, 8, version(n)));
    assert_eq!(seen, [1, 1, 3, 3, 4].map(|n| Some(user(n))));
    assert_eq!(reported(&map), BTreeMap::from([(user(2), 1)]));
}

/// Stacks are over few blocks, the fewer the taller they are, and neighbours become one as far as they are the same.
#[test]
fn neighbours_with_the_same_versions_are_one_stack() {
    let map = map();
    let blocks = 3200;
    (0..blocks).for_each(|block| put(&map, block, 0, block));
    settle(&map);
    take(&map, [0]);
    (0..blocks).for_each(|block| put(&map, block, 1, 10_000 + block));
    settle(&map);
    // 200 items of 32 blocks, with two checksums for each block.
    let leaves = map.status().leaves;
    assert!(leaves <= 8, "{leaves} leaves");
    assert_eq!(place(&map, 1777, version(0)), Some(user(1777)));
    assert_eq!(place(&map, 1777, version(1)), Some(user(11_777)));
}

/// What pools have in which nobody took a snapshot must not change: made with the program before there were versions.
#[test]
fn pages_without_versions_are_what_they_were() {
    let map = map();
    let mut random = stdx::Prng::new(77);
    for round in 0..4_u32 {
        for n in 0..4000_u64 {
            let view = View::new(1 + low32(random.below(3)));
            let encoding =
                super::encodings::some(random.below(if round < 2 { 200 } else { 4 }) | 3);
            let block = random.below(30_000);
            now(map.reserve(4)).unwrap();
            match n % 50 {
                0 => map.insert_hole(view, Version::FIRST, block, 1 + random.below(300)),
                1 => map.insert_lost(Key::new(view, block), Version::FIRST, 3),
                _ => {
                    let at = Location::new(SegmentId::new(USER + round), low32(n) * 4);
                    let crcs: Vec<u32> = (0..1 + low32(n % 3)).map(|k| low32(n) + k).collect();
                    map.insert(Key::new(view, block), Version::FIRST, at, encoding, &crcs);
                }
            }
        }
        now(map.flush()).unwrap();
    }
    now(map.compact()).unwrap();
    let mut all = map.manifest();
    // From which table on they say whether they have references: programs of then pass it by.
    all[28..32].fill(0);
    crate::format::seal(&mut all, *b"FLmapset");
    for page in map.pages().pages.borrow().values() {
        all.extend_from_slice(&page[..]);
    }
    assert_eq!((u32_of(all.len()), stdx::crc32c(&all)), GOLDEN);
}

/// Bytes of all pages, one after another, behind the manifest, and their checksum.
const GOLDEN: (u32, u32) = (709_252, 3_473_343_797);

/// As many as snapshots of a volume can see, each somewhere else: one index page names all leaves of that stack.
#[test]
fn a_block_has_a_version_for_each_snapshot_that_a_volume_can_have() {
    let most = u32_of(crate::limits::VERSIONS_SEEN_MAX);
    for trims in [false, true] {
        let map = map();
        let seen = |n: u32| n * 127;
        take(&map, (0..most).map(seen));
        for n in 0..=most {
            if trims && n % 2 == 1 {
                now(map.reserve(2)).unwrap();
                map.insert_hole(VIEW, version(seen(n)), 10, 1);
            } else {
                put(&map, 10, seen(n), u64::from(n.wrapping_mul(0x9e37_79b9) >> 4));
            }
        }
        now(map.flush()).unwrap();
        now(map.compact()).unwrap();
        for n in [0, 1, 2, most / 2, most - 1, most] {
            let wanted = user(u64::from(n.wrapping_mul(0x9e37_79b9) >> 4));
            let wanted = (!trims || n % 2 == 0).then_some(wanted);
            assert_eq!(place(&map, 10, version(seen(n))), wanted, "version {n}");
        }
    }
}

/// A block that got a name while an old version of it is where it lies was told of twice, and counted twice.
#[test]
fn an_old_version_of_what_has_a_name_refers_to_it() {
    let map = map();
    take(&map, [0]);
    (0..40).for_each(|block| put(&map, block, 0, 100 + block));
    (0..30).for_each(|block| put(&map, block, 1, 1000 + 7 * block));
    // Of some in the midst of others, and one that was moved.
    let name = |block: u64| SharedBlockId::of(user(100 + block));
    for (block, at) in (5..12).map(|n| (n, user(100 + n))).chain([(20, user(9000))]) {
        let key = name(block).key();
        now(map.reserve(1)).unwrap();
        map.insert(key, Version::FIRST, at, Encoding::PLAIN, &[0]);
    }
    settle(&map);
    let before: Vec<_> = (0..40).map(|block| place(&map, block, Version::FIRST)).collect();
    now(map.refer_by_name()).unwrap();
    check(&map);
    for block in 0..40 {
        let is_named = (5..12).contains(&block) || block == 20;
        let wanted = if is_named { name(block).reference() } else { user(100 + block) };
        assert_eq!(place(&map, block, Version::FIRST), Some(wanted), "block {block}");
        assert_eq!(before[stdx::num::usize64(block)], Some(user(100 + block)));
        let newest = if block < 30 { user(1000 + 7 * block) } else { user(100 + block) };
        assert_eq!(place(&map, block, Version::LAST), Some(newest), "block {block}");
        let told = reported(&map).get(&user(100 + block)).copied();
        assert_eq!(told, is_named.then_some(1), "block {block}");
    }
    // Once and for all.
    let pages = map.pages().next.get();
    now(map.refer_by_name()).unwrap();
    assert_eq!(map.pages().next.get(), pages);
}
