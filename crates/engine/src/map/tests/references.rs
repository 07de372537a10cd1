//! What a sweep reads of the map, and what it does not have to.

use super::*;

const END: Key = Key::new(View::SHARED, 0);

fn reference(n: u64) -> Location {
    crate::address::SharedBlockId::of(user(n)).reference()
}

/// What is found, and the pages read for it.
fn referring(map: &Map<Rc<Memory>>, old: &[View]) -> (BTreeSet<Location>, usize) {
    let (mut found, before) = (BTreeSet::new(), map.pages().reads.get());
    let add = |at: Location, count| found.extend((0..count).map(|n| at.offset(n)));
    now(map.scan_referring(old, END, add)).unwrap();
    (found, map.pages().reads.get() - before)
}

/// All that lookups find, likewise.
fn all(map: &Map<Rc<Memory>>) -> (BTreeSet<Location>, usize) {
    let (mut found, before) = (BTreeSet::new(), map.pages().reads.get());
    let scan = map.scan(Key::new(View::METADATA, 0), Some(END), |_, at, count, _| {
        found.extend(at.into_iter().flat_map(|at| (0..count).map(move |n| at.offset(n))));
        true
    });
    now(scan).unwrap();
    (found, map.pages().reads.get() - before)
}

fn insert(map: &Map<Rc<Memory>>, (view, block): (u32, u64), since: u32, at: Location) {
    now(map.reserve(1)).unwrap();
    let (key, since) = (Key::new(View::new(view), block), Version::new(since).unwrap());
    map.insert(key, since, at, Encoding::PLAIN, &[1]);
}

/// Sixteen volumes written at random, of which the eleventh has a fiftieth of its blocks by reference, side by side.
fn map_with_few_references() -> Map<Rc<Memory>> {
    let map = Map::new(Rc::new(Memory::default()), small());
    for n in 0..80_000u64 {
        let place = (n * 7919) % 80_000;
        insert(&map, (1 + low32(n / 5000), n % 5000 * 3), 0, user(place));
    }
    (0..100).for_each(|n| insert(&map, (11, 4000 + n), 0, reference(1_000_000 + n)));
    now(map.flush()).unwrap();
    now(map.compact()).unwrap();
    map
}

#[test]
fn tables_without_references_are_not_read() {
    let map = map_with_few_references();
    let references: BTreeSet<Location> = (0..100).map(|n| reference(1_000_000 + n)).collect();
    let of_references = |found: BTreeSet<Location>| -> BTreeSet<Location> {
        found.into_iter().filter(|at| at.name().is_some()).collect()
    };
    let check = |map: &Map<Rc<Memory>>| {
        let (found, reads) = referring(map, &[]);
        let (_, most) = all(map);
        assert_eq!(of_references(found), references);
        assert!(5 * reads < most, "{reads} of {most} pages");
        most
    };
    let most = check(&map);
    // What lies over it costs no page.
    insert(&map, (2, 3), 0, user(200_000));
    insert(&map, (7, 4), 0, reference(2_000_000));
    let (found, reads) = referring(&map, &[]);
    assert!(found.contains(&reference(2_000_000)) && 5 * reads < most, "{reads}");
    map.insert_hole(View::new(7), Version::FIRST, 4, 1);
    check(&map);
    // Of a volume of which older versions are needed all counts.
    let (found, reads) = referring(&map, &[View::new(3), View::new(9)]);
    assert!(found.len() >= 10_100 && 3 * reads < most, "{} found, {reads} read", found.len());
    // The tables are what they were when the map is opened again.
    now(map.flush()).unwrap();
    let again = Map::open(&map.manifest(), Rc::clone(map.pages()), small()).unwrap();
    check(&again);
}

/// Tables of programs that did not say whether there are references may have some.
#[test]
fn tables_that_do_not_say_whether_they_have_references_are_read() {
    let map = map_with_few_references();
    let mut manifest = map.manifest();
    manifest[28..32].fill(0);
    crate::format::seal(&mut manifest, *b"FLmapset");
    let again = Map::open(&manifest, Rc::clone(map.pages()), small()).unwrap();
    let (found, reads) = referring(&again, &[]);
    let (everything, most) = all(&again);
    assert_eq!(found, everything);
    assert!(reads * 10 > most * 9, "{reads} of {most} pages");
}

/// Whatever is merged, flushed, cut, moved and replaced meanwhile: no reference is passed by, and nothing of a view with
/// old versions.
#[test]
fn nothing_that_leads_to_a_shared_block_is_passed_by() {
    for seed in 0..2 {
        let limits = MapLimits { memtable: 64 << 10, table_leaves: 4, ..small() };
        let map = Map::new(Rc::new(Memory::default()), limits);
        let (mut random, mut now_at) = (stdx::Prng::new(seed), 0);
        let old = View::new(2);
        for round in 0..40 {
            for n in 0..300 {
                now(map.reserve(2)).unwrap();
                let (view, block) = (1 + low32(random.below(5)), random.below(8000));
                let since = if view == 2 { now_at } else { 0 };
                let number = round * 300 + n;
                // Some volumes have none.
                let refers = view != 1 && view != 4 && random.below(50) == 0;
                match random.below(20) {
                    0 => {
                        let since = Version::new(since).unwrap();
                        map.insert_hole(View::new(view), since, block, 1 + random.below(40));
                    }
                    _ if refers => insert(&map, (view, block), since, reference(number)),
                    _ => insert(&map, (view, block), since, user(number)),
                }
            }
            if round % 7 == 3 {
                map.pages().snapshots_mut().entry(old).or_default().insert(now_at);
                now_at += 1;
            }
            if round % 3 == 0 {
                now(map.flush()).unwrap();
            }
            let _more = now(map.maintain()).unwrap();
            let views: Vec<View> = if now_at > 0 { vec![old] } else { Vec::new() };
            let (found, _) = referring(&map, &views);
            let mut must = BTreeSet::new();
            now(map.scan(Key::new(View::METADATA, 0), Some(END), |key, at, count, _| {
                let leads = |at: &Location| at.name().is_some() || views.contains(&key.view);
                let at = at.filter(leads).into_iter();
                must.extend(at.flat_map(|at| (0..count).map(move |n| at.offset(n))));
                true
            }))
            .unwrap();
            assert!(must.is_subset(&found), "seed {seed}, round {round}");
            assert!(round < 20 || !must.is_empty());
        }
    }
}
