//! Plain loops over small arrays, which compilers turn into vector instructions.

use crate::parity::gf;
use std::ops::Range;

const TILE: usize = 64;
type Tile = [u8; TILE];

/// Doubles each byte.
fn double(tile: &mut Tile) {
    for byte in tile {
        // All ones when the top bit is set.
        let carry = (byte.cast_signed() >> 7).cast_unsigned();
        *byte = (*byte << 1) ^ (carry & gf::POLYNOMIAL);
    }
}

fn add_to(sum: &mut Tile, tile: &Tile) {
    for (s, d) in sum.iter_mut().zip(tile) {
        *s ^= d;
    }
}

/// The bytes from `at` on, up to `to`, with zeroes behind when they are not a whole tile.
fn load(unit: &[u8], at: usize, to: usize) -> Tile {
    if let Some(tile) = unit[at..to].first_chunk() {
        return *tile;
    }
    let mut tile = [0; TILE];
    tile[..to - at].copy_from_slice(&unit[at..to]);
    tile
}

/// As much of a tile as there is room for up to `to`.
fn store(unit: &mut [u8], at: usize, to: usize, tile: &Tile) {
    match unit[at..to].first_chunk_mut() {
        Some(whole) => *whole = *tile,
        None => unit[at..to].copy_from_slice(&tile[..to - at]),
    }
}

/// P and Q of these bytes; with `goes_on` what they hold already is of units that follow.
pub(super) fn syndrome(
    data: &[&[u8]],
    p: &mut [u8],
    q: &mut [u8],
    range: Range<usize>,
    goes_on: bool,
) {
    let to = range.end;
    for at in range.step_by(TILE) {
        let (mut p_sum, mut q_sum) = ([0; TILE], [0; TILE]);
        if goes_on {
            (p_sum, q_sum) = (load(p, at, to), load(q, at, to));
        }
        for unit in data.iter().rev() {
            let tile = load(unit, at, to);
            double(&mut q_sum);
            add_to(&mut p_sum, &tile);
            add_to(&mut q_sum, &tile);
        }
        store(p, at, to, &p_sum);
        store(q, at, to, &q_sum);
    }
}

/// P of these bytes; with `goes_on` what it holds already is of other units.
pub(super) fn xor(data: &[&[u8]], p: &mut [u8], range: Range<usize>, goes_on: bool) {
    let to = range.end;
    for at in range.step_by(TILE) {
        let mut sum = if goes_on { load(p, at, to) } else { [0; TILE] };
        for unit in data {
            add_to(&mut sum, &load(unit, at, to));
        }
        store(p, at, to, &sum);
    }
}

/// Adds `factor` times `from` to `to`.
pub(super) fn add(to: &mut [u8], from: &[u8], factor: u8) {
    let len = to.len();
    for at in (0..len).step_by(TILE) {
        let (mut sum, mut term) = (load(to, at, len), load(from, at, len));
        let mut bits = factor;
        while bits != 0 {
            if bits & 1 == 1 {
                add_to(&mut sum, &term);
            }
            bits >>= 1;
            if bits != 0 {
                double(&mut term);
            }
        }
        store(to, at, len, &sum);
    }
}
