//! Bad bytes are errors, never panics.

use super::*;
use crate::map::filter;
use crate::map::flat::{Item, Place};
use crate::map::page::{Builder, Kind as PageKind, Page};
use crate::map::source::named;
use crate::map::stack::{Layer, Stack};
use proptest::prelude::*;

const KINDS: [PageKind; 4] = [PageKind::Leaf, PageKind::Index, PageKind::Filters, PageKind::Holes];

/// Looks at all of a page in every way there is.
fn explore(bytes: &[u8; BLOCK], at: u128) {
    for kind in KINDS {
        let mut entries = Vec::new();
        let _ = named(bytes, kind, &mut entries);
        let Ok(page) = Page::parse(bytes, kind) else { continue };
        let _ = page.floor(at);
        for i in 0..page.len() {
            let _ = page.start(i);
            let _ = page.version(i);
            let _ = page.version_of(i, Version::new(3).unwrap()).map(|i| page.run(i));
            let Ok(run) = page.run(i) else { continue };
            let mut at = run.start;
            while let Ok((item, checksum)) = page.part(&run, at) {
                let count = if item.place.has_contents() { item.count() } else { 0 };
                (0..count).for_each(|n| _ = page.checksum(checksum + n));
                at = item.end();
                if at >= run.end() {
                    break;
                }
            }
        }
    }
    let _ = filter::check(bytes);
    if let Ok(filter) = filter::Filter::new(vec![*bytes], vec![]) {
        let _ = filter.first_possible(at, at + 50);
    }
}

/// Pages of leaves have all there are.
fn good_page(kind: PageKind) -> [u8; BLOCK] {
    let encoding = |n| match kind {
        PageKind::Leaf => super::encodings::some(n),
        _ => Encoding::PLAIN,
    };
    let mut builder = Builder::default();
    for n in 0..120u64 {
        let place = match n % 5 {
            0 => Place::Hole,
            1 => Place::Lost,
            _ => Place::At(user(n * 37 % 5000), encoding(n)),
        };
        let item = Item { start: u128::from(n * 50) + (9 << 40), blocks: 1 + n % 9, place };
        builder.push(&item, Version::FIRST, &[7; 16][..stdx::num::usize64(item.blocks)]);
        if kind == PageKind::Leaf && n % 20 == 7 {
            let layer = |since| {
                let version = Version::new(since).unwrap();
                let place = Place::At(user(u64::from(since) * 90), encoding(n));
                Layer { source: 0, version, place, crcs: vec![since; 3] }
            };
            let layers = vec![layer(9), layer(5), layer(0)];
            builder.push_stack(&Stack { start: item.start + 20, blocks: 3, layers });
        }
    }
    let mut page = [0; BLOCK];
    builder.encode(kind, &mut page);
    page
}

proptest! {
    #[test]
    fn noise_behind_a_good_head_is_survived(
        seed in any::<u64>(),
        kind in 0usize..4,
        hits in prop::collection::vec((0usize..64, any::<u8>()), 0..12),
        far in prop::collection::vec((0..BLOCK, any::<u8>()), 0..40),
    ) {
        let mut page = good_page(KINDS[kind]);
        for (at, byte) in hits.into_iter().filter(|(at, _)| *at >= 6).chain(far) {
            page[at] = byte;
        }
        explore(&page, u128::from(seed) << 8);
    }

    #[test]
    fn damaged_pages_of_versions_are_survived(
        hits in prop::collection::vec(
            (any::<prop::sample::Index>(), 0usize..200, any::<u8>()),
            1..20,
        ),
        far in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..BLOCK, any::<u8>()),
            0..20,
        ),
    ) {
        let map = map_of_versions();
        let pages = Rc::clone(map.pages());
        let places: Vec<_> = pages.pages.borrow().keys().copied().collect();
        for (which, at, byte) in hits.into_iter().filter(|(_, at, _)| *at >= 6).chain(far) {
            pages.pages.borrow_mut().get_mut(which.get(&places)).unwrap()[at] ^= byte;
        }
        pages.trusting.set(true);
        let map = Map::open(&map.manifest(), pages, small()).unwrap();
        let view = View::new(1);
        for as_of in [0, 3, 600].map(|n| Version::new(n).unwrap()).into_iter().chain([Version::LAST]) {
            for first in (0..400).step_by(20) {
                let _ = now(map.lookup_as_of(view, as_of, first, 20, &mut Extents::default()));
            }
        }
        let _ = now(map.places(|_, _, _| ()));
        let _ = now(map.scan(Key::new(view, 0), None, |_, _, _, _| true));
        let range = Key::new(view, 0)..Key::new(View::SHARED, 0);
        let _ = now(map.count(range, &[], 1000, || false, |_, _| ()));
        now(map.check(&mut |_| ()));
        let _ = now(map.walk(|_, _, _| ()));
        let _ = now(map.prune());
        let _ = now(map.compact());
    }

    #[test]
    fn a_damaged_manifest_is_refused(at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let map = some_map();
        let mut manifest = map.manifest();
        let at = at.index(manifest.len());
        manifest[at] ^= 1 << bit;
        let refused = Map::open(&manifest, Rc::clone(map.pages()), small());
        prop_assert_eq!(refused.err().map(|e| e.kind), Some(Kind::Corrupt));
    }

    #[test]
    fn a_nonsensical_manifest_never_panics(
        changes in prop::collection::vec((12usize..2000, any::<u8>()), 1..8),
    ) {
        let map = some_map();
        let mut manifest = map.manifest();
        for (at, byte) in changes {
            let at = 12 + at % (manifest.len() - 12);
            manifest[at] = byte;
        }
        crate::format::seal(&mut manifest, *b"FLmapset");
        if let Ok(map) = Map::open(&manifest, Rc::clone(map.pages()), small()) {
            let _ = map.status();
        }
    }
}

/// Stacks among other blocks, and one over several leaves.
fn map_of_versions() -> Map<Rc<Memory>> {
    let map = Map::new(Rc::new(Memory::default()), MapLimits { memtable: 1 << 20, ..small() });
    let view = View::new(1);
    map.pages().snapshots_mut().entry(view).or_default().extend(0..1210);
    for n in 0..3000_u64 {
        let (block, since) = if n < 1200 { (77, n) } else { (n * 13 % 400, 1200 + n / 500) };
        let since = Version::new(low32(since)).unwrap();
        map.insert(Key::new(view, block), since, user(n), super::encodings::some(n / 700), &[1]);
        if n % 300 == 0 {
            map.insert_hole(view, since, n % 400, 30);
        }
    }
    now(map.flush()).unwrap();
    map
}

fn some_map() -> Map<Rc<Memory>> {
    let map = Map::new(Rc::new(Memory::default()), small());
    for n in 0..2000u64 {
        map.insert(
            Key::new(View::new(1), n * 3),
            Version::FIRST,
            user(n),
            super::encodings::some(n / 700),
            &[1],
        );
    }
    map.insert_hole(View::new(2), Version::FIRST, 0, 1 << 30);
    now(map.flush()).unwrap();
    map
}

#[test]
fn a_table_with_flags_of_a_later_version_is_refused_by_name() {
    let map = some_map();
    let mut manifest = map.manifest();
    manifest[40 + 92] = 1;
    crate::format::seal(&mut manifest, *b"FLmapset");
    let refused = Map::open(&manifest, Rc::clone(map.pages()), small()).err().unwrap();
    assert!(refused.to_string().contains("flags of a table, of a later version"), "{refused}");
    // Stacks, but no versions.
    manifest[40 + 92] = 4;
    crate::format::seal(&mut manifest, *b"FLmapset");
    assert!(Map::open(&manifest, Rc::clone(map.pages()), small()).is_err());
}

#[test]
fn a_page_of_another_kind_is_a_typed_error() {
    let map = some_map();
    let pages = Rc::clone(map.pages());
    for page in pages.pages.borrow_mut().values_mut() {
        page[4] = PageKind::Holes as u8;
    }
    pages.trusting.set(true);
    let again = Map::open(&map.manifest(), pages, small()).unwrap();
    let found = now(again.lookup(View::new(1), 0, 8, &mut Extents::default()));
    assert_eq!(found.unwrap_err().kind, Kind::Corrupt);
}
