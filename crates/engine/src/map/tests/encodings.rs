//! Whatever blocks are encoded by, a page keeps it, and costs nothing for what is plain.

use super::*;
use crate::address::{Method, Stored};
use crate::map::flat::{Flat, Item, Place};
use crate::map::page::{Builder, Kind as PageKind, Page};
use proptest::prelude::*;
use stdx::num::{low8, u32_of, usize64};

/// One of the encodings there are, most of them plain.
pub(super) fn some(n: u64) -> Encoding {
    let key = [0, 0, 1, 1 << 20][usize64(n / 7 % 4)];
    let encoding = match n % 5 {
        0 => Encoding::new(1 + low8(n / 5 % 7), Method::Lz4, key),
        1 => Encoding::new(1 + low8(n / 3 % 7), Method::Zstd, 0),
        2 => Encoding::new(8, Method::Plain, key),
        _ => Some(Encoding::PLAIN),
    };
    encoding.unwrap()
}

/// All blocks of a page, by key: what each has, or `None` for a hole.
fn blocks_of(bytes: &[u8; BLOCK]) -> BTreeMap<Flat, Option<Stored>> {
    let page = Page::parse(bytes, PageKind::Leaf).unwrap();
    let mut found = BTreeMap::new();
    for i in 0..page.len() {
        let run = page.run(i).unwrap();
        // From any block on it says the same.
        for at in 0..run.blocks {
            let at = run.start + Flat::from(at);
            let (item, checksum) = page.part(&run, at).unwrap();
            assert_eq!(item.start, at);
            let stored = match item.place {
                Place::At(location, encoding) => {
                    Some(Stored { location, encoding, crc: page.checksum(checksum) })
                }
                Place::Hole | Place::Lost => None,
            };
            found.insert(at, stored);
        }
    }
    found
}

proptest! {
    #[test]
    fn a_page_has_what_was_put_into_it(
        items in prop::collection::vec((0u64..3, 1u64..6, any::<u32>(), 0u32..4), 1..200),
        all_plain in any::<bool>(),
        far in any::<bool>(),
    ) {
        let (mut builder, mut wanted) = (Builder::default(), BTreeMap::new());
        // Where the last one ended: what goes on there is one with it.
        let (mut key, mut place) = (1 << 41, Location::of_grain(SegmentId::new(9), 77 * 8));
        for (gap, blocks, seed, jump) in items {
            key += Flat::from(gap);
            let encoding = if all_plain { Encoding::PLAIN } else { some(u64::from(seed)) };
            if jump == 0 {
                let segment = if far && seed % 3 == 0 { 1 << 31 } else { seed % 50 };
                let slot = seed >> 12;
                place = Location::new(SegmentId::new(segment), slot);
            }
            let hole = jump == 3;
            let item = Item {
                start: key,
                blocks,
                place: if hole { Place::Hole } else { Place::At(place, encoding) },
            };
            let crcs: Vec<u32> = (0..u32_of(usize64(blocks))).map(|n| seed ^ n).collect();
            let taken = builder.push(&item, Version::FIRST, if hole { &[] } else { &crcs });
            for n in 0..taken {
                let location = place.forward(low32(n) * encoding.grains());
                let crc = crcs[usize64(n)];
                let stored = (!hole).then_some(Stored { location, encoding, crc });
                wanted.insert(key + Flat::from(n), stored);
            }
            if !hole {
                place = place.forward(low32(taken) * encoding.grains());
            }
            key += Flat::from(blocks);
            if taken < blocks {
                break;
            }
        }
        let mut page = [0; BLOCK];
        builder.encode(PageKind::Leaf, &mut page);
        prop_assert_eq!(blocks_of(&page), wanted);
    }
}

/// A page of one block, encoded like this, with something else in one of its bytes.
fn page_with(
    encoding: Encoding,
    kind: PageKind,
    at: usize,
    byte: u8,
) -> Option<crate::format::Bad> {
    let mut builder = Builder::default();
    let place = Place::At(Location::new(SegmentId::new(3), 100), encoding);
    builder.push(&Item { start: 7, blocks: 1, place }, Version::FIRST, &[1]);
    let mut page = [0; BLOCK];
    builder.encode(kind, &mut page);
    page[at] = byte;
    let page = Page::parse(&page, kind);
    page.and_then(|page| page.run(0).and_then(|run| page.part(&run, run.start))).err()
}

#[test]
fn what_a_later_version_may_add_to_a_page_is_refused_by_name() {
    let encrypted = Encoding::new(8, Method::Plain, 7).unwrap();
    let short = Encoding::new(5, Method::Zstd, 0).unwrap();
    let refused = |encoding, at, byte| match page_with(encoding, PageKind::Leaf, at, byte) {
        Some(Bad::Field(what)) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(page_with(encrypted, PageKind::Leaf, 4, 1), None);
    assert_eq!(page_with(short, PageKind::Leaf, 4, 1), None);
    assert_eq!(refused(encrypted, 30, 2), "encodings of a page");
    assert_eq!(refused(encrypted, 31, 1), "encodings of a page");
    assert_eq!(refused(encrypted, 32 + 3, 24), "versions of a page");
    assert_eq!(refused(encrypted, 32 + 11, 1), "versions of a page");
    assert_eq!(refused(encrypted, 32 + 12, 1), "versions of a page");
    assert_eq!(refused(encrypted, 32, 2), "width");
    // A method without a length.
    assert_eq!(refused(encrypted, 32 + 1, 2), "width");
    // The method is in the last byte there is: no bits of keys, places or counts, a checksum, a length.
    let methods = 32 + 16 + 1 + 4 + 1;
    assert_eq!(refused(short, methods, 3), "method");
    assert_eq!(refused(short, methods, 0), "encoding");
    let index = page_with(encrypted, PageKind::Index, 4, 2);
    assert_eq!(index, Some(Bad::Field("encodings of a page")));
}

/// Blocks that a page takes, each `apart` from the one before it, at places that `place` tells.
fn taken(apart: u64, place: impl Fn(u64) -> Place) -> u64 {
    let mut builder = Builder::default();
    let pushed = (0..).take_while(|n| {
        let item = Item { start: Flat::from(n * apart), blocks: 1, place: place(*n) };
        builder.push_whole(&item, Version::FIRST, &[low32(*n)])
    });
    u64_of(pushed.count())
}

/// The figures of decision 0020. Before format 3 had lengths, methods and keys, pages took as many.
#[test]
fn what_is_plain_costs_no_more_than_its_key_place_and_checksum() {
    let mut random = stdx::Prng::new(5);
    // Anywhere in 256 segments of 16,384 blocks, one in 16 of a TiB.
    let places: Vec<Location> = (0..2000)
        .map(|_| {
            Location::new(SegmentId::new(low32(random.below(256))), low32(random.below(16384)))
        })
        .collect();
    let random = |encoding| move |n: u64| (n, encoding);
    let at = |(n, encoding): (u64, Encoding)| Place::At(places[usize64(n)], encoding);
    let apart = |encoding| taken(16, |n| at(random(encoding)(n)));
    let in_order = |encoding: Encoding| {
        taken(1, move |n| {
            let first = Location::new(SegmentId::new(3), 100);
            Place::At(first.forward(low32(n) * encoding.grains()), encoding)
        })
    };
    let encoded =
        |method, key| Encoding::new(if method == Method::Plain { 8 } else { 5 }, method, key);
    let key = encoded(Method::Plain, 7).unwrap();
    let lz4 = encoded(Method::Lz4, 0).unwrap();
    let random = [apart(Encoding::PLAIN), apart(key), apart(lz4)];
    let in_order = [in_order(Encoding::PLAIN), in_order(key), in_order(lz4)];
    assert_eq!((random, in_order), ([484, 482, 455], [1013, 1009, 896]));
}
