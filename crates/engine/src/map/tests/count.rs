//! What a count reads, and what it does not have to.

use super::*;

fn count(map: &Map<Rc<Memory>>) -> (BTreeMap<View, u64>, usize) {
    let mut counts = BTreeMap::new();
    let (from, end) = (Key::new(View::new(1), 0), Key::new(View::SHARED, 0));
    let before = map.pages().reads.get();
    let mut at = from;
    while at < end {
        let found = |view, blocks| *counts.entry(view).or_insert(0) += blocks;
        at = now(map.count(at..end, &[], 100, || false, found)).unwrap();
    }
    (counts, map.pages().reads.get() - before)
}

/// A level without anything over it, of two volumes.
fn level() -> Map<Rc<Memory>> {
    let map = Map::new(Rc::new(Memory::default()), small());
    for n in 0..40_000u64 {
        now(map.reserve(1)).unwrap();
        // Not in their order, so that each takes an item.
        let place = (n * 7919) % 40_000;
        map.insert(
            Key::new(View::new(1 + low32(n / 20_000)), n % 20_000 * 3),
            Version::FIRST,
            user(place),
            Encoding::PLAIN,
            &[1],
        );
    }
    now(map.flush()).unwrap();
    now(map.compact()).unwrap();
    map
}

#[test]
fn leaves_of_tables_that_speak_alone_are_not_read() {
    let map = level();
    let status = map.status();
    let both = BTreeMap::from([(View::new(1), 20_000), (View::new(2), 20_000)]);
    let (counts, reads) = count(&map);
    assert_eq!(counts, both);
    // All but the table that has the end of one volume and the beginning of the other.
    assert!(reads < usize::try_from(status.tables).unwrap() + 10, "{reads} of {status:?}");
    // One that something lies over is read.
    map.insert_hole(View::new(2), Version::FIRST, 30_000, 3);
    map.insert(Key::new(View::new(2), 30_001), Version::FIRST, user(50_000), Encoding::PLAIN, &[1]);
    let (counts, more) = count(&map);
    assert_eq!(counts[&View::new(2)], 20_000);
    map.insert_hole(View::new(2), Version::FIRST, 30_000, 2);
    assert_eq!(count(&map).0[&View::new(2)], 19_999);
    assert!(reads < more && more < reads + 20, "{more}, {reads} before");
}

#[test]
fn what_is_a_hole_as_a_whole_is_not_read() {
    let map = level();
    let (_, reads) = count(&map);
    map.insert_hole(View::new(1), Version::FIRST, 0, 1 << crate::address::BLOCK_BITS);
    let (counts, fewer) = count(&map);
    assert_eq!(counts, BTreeMap::from([(View::new(2), 20_000)]));
    assert!(fewer < reads, "{fewer}, {reads} before");
}

#[test]
fn a_count_that_is_to_stop_does() {
    let map = level();
    let (from, end) = (Key::new(View::new(1), 0), Key::new(View::SHARED, 0));
    let reached = now(map.count(from..end, &[], 100, || true, |_, _| ())).unwrap();
    assert_eq!(reached, from);
}

/// A merge that ends within a table of the level below leaves the rest of it there, with the number of blocks that it was
/// built with.
#[test]
fn tables_that_were_cut_count_for_what_is_left_of_them() {
    let map = level();
    let mut model: BTreeMap<(u32, u64), ()> = BTreeMap::new();
    model.extend((0..40_000u64).map(|n| ((1 + low32(n / 20_000), n % 20_000 * 3), ())));
    let mut random = stdx::Prng::new(11);
    let mut cut = 0;
    let mut step = |model: &BTreeMap<(u32, u64), ()>| {
        let mut expected = BTreeMap::new();
        model.keys().for_each(|(view, _)| *expected.entry(View::new(*view)).or_insert(0) += 1);
        assert_eq!(count(&map).0, expected);
        let state = map.state.borrow();
        let tables = state.sorted().flat_map(|level| level.tables());
        cut += tables.filter(|table| table.left < table.leaves).count();
    };
    for round in 0..30 {
        for n in 0..200 {
            now(map.reserve(2)).unwrap();
            let (view, block) = (1 + low32(random.below(2)), random.below(60_000));
            if n % 20 == 0 {
                map.insert_hole(View::new(view), Version::FIRST, block, 50);
                model.retain(|at, ()| at.0 != view || !(block..block + 50).contains(&at.1));
            } else {
                map.insert(
                    Key::new(View::new(view), block),
                    Version::FIRST,
                    user(60_000 + round * 200 + n),
                    Encoding::PLAIN,
                    &[1],
                );
                model.insert((view, block), ());
            }
        }
        now(map.flush()).unwrap();
        step(&model);
        while now(map.maintain()).unwrap() {
            step(&model);
        }
    }
    assert!(cut > 100, "{cut}");
}
