//! Plain loops over small arrays, which compilers turn into vector instructions.

use crate::parity::gf;

const TILE: usize = 64;

/// Doubles each byte.
fn double(tile: &mut [u8; TILE]) {
    for byte in tile {
        // All ones when the top bit is set.
        let carry = (byte.cast_signed() >> 7).cast_unsigned();
        *byte = (*byte << 1) ^ (carry & gf::POLYNOMIAL);
    }
}

fn add_to(sum: &mut [u8; TILE], unit: &[u8]) {
    for (s, d) in sum.iter_mut().zip(unit) {
        *s ^= d;
    }
}

/// P and Q from byte `from` on.
pub(super) fn syndrome(data: &[&[u8]], p: &mut [u8], q: &mut [u8], from: usize) {
    for at in (from..p.len()).step_by(TILE) {
        let to = p.len().min(at + TILE);
        let (mut p_sum, mut q_sum) = ([0; TILE], [0; TILE]);
        for unit in data.iter().rev() {
            double(&mut q_sum);
            add_to(&mut p_sum, &unit[at..to]);
            add_to(&mut q_sum, &unit[at..to]);
        }
        p[at..to].copy_from_slice(&p_sum[..to - at]);
        q[at..to].copy_from_slice(&q_sum[..to - at]);
    }
}

/// P from byte `from` on.
pub(super) fn xor(data: &[&[u8]], p: &mut [u8], from: usize) {
    for at in (from..p.len()).step_by(TILE) {
        let to = p.len().min(at + TILE);
        let mut sum = [0; TILE];
        for unit in data {
            add_to(&mut sum, &unit[at..to]);
        }
        p[at..to].copy_from_slice(&sum[..to - at]);
    }
}

/// Adds `factor` times `from` to `to`.
pub(super) fn add(to: &mut [u8], from: &[u8], factor: u8) {
    for (to, from) in to.chunks_mut(TILE).zip(from.chunks(TILE)) {
        let (mut sum, mut term) = ([0; TILE], [0; TILE]);
        term[..from.len()].copy_from_slice(from);
        let mut bits = factor;
        while bits != 0 {
            if bits & 1 == 1 {
                add_to(&mut sum, &term);
            }
            bits >>= 1;
            double(&mut term);
        }
        for (t, s) in to.iter_mut().zip(&sum) {
            *t ^= s;
        }
    }
}
