use super::*;
use proptest::prelude::*;

prop_compose! {
    fn geometries()(
        data in 1u8..=22, parity in 0u8..=2, unit in 1u32..=256, stripes in 1u32..200
    ) -> Geometry {
        Geometry::new(Shape { data, parity }, unit, stripes).unwrap()
    }
}

proptest! {
    #[test]
    fn slots_and_places_say_the_same(g in geometries(), which in any::<prop::sample::Index>()) {
        let slot = u32_of(which.index(usize32(g.slots())));
        let place = g.place(slot);
        prop_assert!(place.stripe < g.stripes() && usize32(place.unit) < g.data());
        prop_assert!(place.block < g.unit_blocks());
        prop_assert_eq!(g.slot(place), slot);
        let after = g.member_block(place.stripe, place.block);
        prop_assert!(after < g.member_blocks());
    }

    #[test]
    fn every_unit_has_a_column_of_its_own(g in geometries(), segment: u32, stripe in 0u32..200) {
        let mut taken = vec![false; g.width()];
        for unit in 0..g.width() {
            let column = g.column(segment, stripe, unit);
            prop_assert!(!std::mem::replace(&mut taken[column], true));
            prop_assert_eq!(g.unit_of(segment, stripe, column), unit);
        }
    }

    #[test]
    fn no_two_slots_share_a_block(
        data in 1u8..=5, parity in 0u8..=2, unit in 1u32..=8, stripes in 1u32..=6, segment: u32
    ) {
        let g = Geometry::new(Shape { data, parity }, unit, stripes).unwrap();
        let mut seen = std::collections::HashSet::new();
        for slot in 0..g.slots() {
            let place = g.place(slot);
            let column = g.column(segment, place.stripe, usize32(place.unit));
            prop_assert!(seen.insert((column, g.member_block(place.stripe, place.block))));
        }
    }
}

#[test]
fn parity_visits_every_column_equally() {
    let g = Geometry::new(Shape { data: 8, parity: 2 }, 16, 20).unwrap();
    let mut count = [0; 10];
    for stripe in 0..20 {
        for unit in 8..10 {
            count[g.column(7, stripe, unit)] += 1;
        }
    }
    assert_eq!(count, [4; 10]);
}

#[test]
fn what_cannot_be_is_refused() {
    let shape = |data, parity| Shape { data, parity };
    assert_eq!(Geometry::new(shape(0, 1), 16, 1), Err(Invalid::Data(0)));
    assert_eq!(Geometry::new(shape(23, 1), 16, 1), Err(Invalid::Data(23)));
    assert_eq!(Geometry::new(shape(2, 3), 16, 1), Err(Invalid::Parity(3)));
    assert_eq!(Geometry::new(shape(2, 2), 0, 1), Err(Invalid::Unit(0)));
    assert_eq!(Geometry::new(shape(2, 2), 512, 1), Err(Invalid::Unit(512)));
    assert_eq!(Geometry::new(shape(2, 2), 16, 0), Err(Invalid::Stripes(0)));
    assert!(Geometry::new(shape(16, 2), 256, 4096).is_ok());
    assert_eq!(Geometry::new(shape(16, 2), 256, 4097), Err(Invalid::Stripes(4097)));
    assert_eq!(Geometry::for_au(shape(8, 2), 15), Err(Invalid::Stripes(0)));
}

#[test]
fn schemes_take_the_width_that_drives_allow() {
    let shape = |data, parity| Some(Shape { data, parity });
    assert_eq!(Scheme::Single.shape(1), shape(1, 0));
    assert_eq!(Scheme::Single.shape(0), None);
    assert_eq!(Scheme::Mirror { copies: 2 }.shape(2), shape(1, 1));
    assert_eq!(Scheme::Mirror { copies: 3 }.shape(2), None);
    assert_eq!(Scheme::Mirror { copies: 3 }.shape(9), shape(1, 2));
    assert_eq!(Scheme::Mirror { copies: 1 }.shape(9), None);
    assert_eq!(Scheme::Mirror { copies: 4 }.shape(9), None);
    assert_eq!(Scheme::Raid5.shape(2), None);
    assert_eq!(Scheme::Raid5.shape(3), shape(2, 1));
    assert_eq!(Scheme::Raid6.shape(4), shape(2, 2));
    assert_eq!(Scheme::Raid6.shape(6), shape(4, 2));
    assert_eq!(Scheme::Raid6.shape(24), shape(8, 2));
}

#[test]
fn narrow_stripes_get_larger_units() {
    for (data, unit) in [(1, 128), (2, 64), (3, 32), (4, 32), (5, 32), (6, 16), (8, 16), (22, 16)] {
        assert_eq!(Geometry::default_unit(data), unit, "{data}");
    }
    let g = Geometry::for_au(Shape { data: 8, parity: 2 }, 1024).unwrap();
    assert_eq!((g.stripes(), g.stripe_blocks(), g.slots()), (64, 128, 8192));
}
