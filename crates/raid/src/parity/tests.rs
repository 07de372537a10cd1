use super::*;
use proptest::prelude::*;
use stdx::Prng;

/// P and Q from their definition, a byte at a time.
fn by_definition(data: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let len = data[0].len();
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    for (i, unit) in data.iter().enumerate() {
        for (at, &byte) in unit.iter().enumerate() {
            p[at] ^= byte;
            q[at] ^= gf::multiply(gf::power(i), byte);
        }
    }
    (p, q)
}

fn random_units(seed: u64, data: usize, len: usize) -> Vec<Vec<u8>> {
    let mut prng = Prng::new(seed);
    let mut units = vec![vec![0; len]; data];
    units.iter_mut().for_each(|unit| prng.fill(unit));
    units
}

fn slices(units: &[Vec<u8>]) -> Vec<&[u8]> {
    units.iter().map(Vec::as_slice).collect()
}

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

/// A stripe with its parity.
fn stripe(seed: u64, data: usize, parity: usize, len: usize) -> Vec<Vec<u8>> {
    let mut units = random_units(seed, data, len);
    let (p, q) = by_definition(&units);
    units.extend([p, q].into_iter().take(parity));
    units
}

fn recover(level: Level, whole: &[Vec<u8>], data: usize, lost: &[usize]) {
    let mut units = whole.to_vec();
    for &unit in lost {
        units[unit].fill(0xee);
    }
    let mut slices: Vec<&mut [u8]> = units.iter_mut().map(Vec::as_mut_slice).collect();
    reconstruct_at(level, &mut slices, data, lost);
    assert!(units == whole, "{level:?}: {data} data units, lost {lost:?}");
}

proptest! {
    #[test]
    fn every_level_computes_the_definition(seed: u64, data in 1usize..=22, len in 0usize..700) {
        let units = random_units(seed, data, len);
        let (p, q) = by_definition(&units);
        for level in levels() {
            let (mut p1, mut p2, mut q2) = (vec![1; len], vec![1; len], vec![1; len]);
            encode_at(level, &slices(&units), &mut [&mut p1]);
            encode_at(level, &slices(&units), &mut [&mut p2, &mut q2]);
            prop_assert!(p1 == p && p2 == p && q2 == q, "{:?}", level);
        }
    }

    #[test]
    fn any_lost_units_come_back(
        seed: u64, data in 1usize..=22, parity in 1usize..=2, len in 1usize..5000,
        a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(),
    ) {
        let whole = stripe(seed, data, parity, len);
        let mut lost = vec![a.index(whole.len()), b.index(whole.len())];
        lost.truncate(parity);
        if lost.len() == 2 && lost[0] == lost[1] {
            lost.pop();
        }
        for level in levels() {
            recover(level, &whole, data, &lost);
        }
    }
}

#[test]
fn every_pair_comes_back_at_the_widest() {
    let whole = stripe(1, 22, 2, 300);
    for level in levels() {
        for a in 0..24 {
            for b in (0..24).filter(|&b| b != a) {
                recover(level, &whole, 22, &[a, b]);
            }
        }
    }
}

#[test]
fn one_data_unit_makes_mirrors() {
    let whole = stripe(5, 1, 2, 4096);
    assert!(whole[0] == whole[1] && whole[1] == whole[2]);
    recover(Level::best(), &whole, 1, &[0, 1]);
    recover(Level::best(), &whole, 1, &[0, 2]);
}

/// A vector computed by hand, so that a change of polynomial or order is noticed whatever the code.
#[test]
fn parity_on_media_stays_what_it_is() {
    let (mut p, mut q) = ([0; 2], [0; 2]);
    encode(&[&[0x01, 0x80], &[0x80, 0xff], &[0x42, 0x00]], &mut [&mut p, &mut q]);
    assert_eq!(p, [0x01 ^ 0x80 ^ 0x42, 0x7f]);
    assert_eq!(q, [0x01 ^ 0x1d ^ 0x15, 0x80 ^ (0xfe ^ 0x1d)]);
}

#[test]
#[should_panic(expected = "more units are lost")]
fn too_many_losses_are_refused() {
    let mut units = stripe(1, 3, 1, 64);
    let mut slices: Vec<&mut [u8]> = units.iter_mut().map(Vec::as_mut_slice).collect();
    reconstruct(&mut slices, 3, &[0, 1]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn ragged_units_are_refused() {
    encode(&[&[1, 2], &[3]], &mut [&mut [0, 0]]);
}

#[test]
fn parity_follows_a_change_as_if_it_were_made_anew() {
    for data in [1, 2, 5, 22] {
        let mut whole = stripe(7, data, 2, 512);
        for unit in 0..data {
            let new = vec![stdx::num::low8(unit as u64) ^ 0x5a; 512];
            let mut change = whole[unit].clone();
            add(&mut change, &new);
            for parity in 0..2 {
                update(unit, &change, parity, &mut whole[data + parity]);
            }
            whole[unit] = new;
        }
        let units: Vec<&[u8]> = whole[..data].iter().map(Vec::as_slice).collect();
        let (mut p, mut q) = (vec![0; 512], vec![0; 512]);
        encode(&units, &mut [&mut p, &mut q]);
        assert!(p == whole[data] && q == whole[data + 1], "{data} data units");
    }
}
