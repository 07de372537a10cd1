//! AVX2 and GFNI with AVX-512: each function does the whole tiles of a range of its units and returns
//! how many bytes that were. With `goes_on` sums begin with what is there, of units that follow.
#![allow(unsafe_code, reason = "vector loads and stores, and calls that need CPU features")]

use super::Level;
use crate::parity::gf;
use std::arch::x86_64::{
    __m256i, __m512i, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16, _mm256_storeu_si256,
    _mm256_xor_si256, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};
use std::ops::Range;

/// Bytes of each unit done in one go: four AVX2 registers for each sum, or two of AVX-512.
const TILE: usize = 128;

#[inline]
fn tile(unit: &[u8], at: usize) -> &[u8; TILE] {
    match unit[at..].first_chunk() {
        Some(tile) => tile,
        None => unreachable!("tiles are counted from the length of every unit"),
    }
}

#[inline]
fn tile_mut(unit: &mut [u8], at: usize) -> &mut [u8; TILE] {
    match unit[at..].first_chunk_mut() {
        Some(tile) => tile,
        None => unreachable!("tiles are counted from the length of every unit"),
    }
}

/// Where each whole tile of a range begins.
fn tiles(range: Range<usize>) -> impl Iterator<Item = usize> {
    (0..range.len() / TILE).map(move |n| range.start + n * TILE)
}

const fn whole(len: usize) -> usize {
    len / TILE * TILE
}

// ---- AVX2 ----------------------------------------------------------------------------------------

type Four = [__m256i; 4];

#[target_feature(enable = "avx2")]
#[inline]
fn load4(tile: &[u8; TILE]) -> Four {
    let at = tile.as_ptr();
    // SAFETY: four times 32 bytes are the 128 of the tile; the load asks for no alignment.
    unsafe {
        [
            _mm256_loadu_si256(at.cast()),
            _mm256_loadu_si256(at.add(32).cast()),
            _mm256_loadu_si256(at.add(64).cast()),
            _mm256_loadu_si256(at.add(96).cast()),
        ]
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store4(tile: &mut [u8; TILE], value: Four) {
    let at = tile.as_mut_ptr();
    // SAFETY: four times 32 bytes are the 128 of the tile; the store asks for no alignment.
    unsafe {
        _mm256_storeu_si256(at.cast(), value[0]);
        _mm256_storeu_si256(at.add(32).cast(), value[1]);
        _mm256_storeu_si256(at.add(64).cast(), value[2]);
        _mm256_storeu_si256(at.add(96).cast(), value[3]);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor4(a: &mut Four, b: &Four) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = _mm256_xor_si256(*a, *b);
    }
}

/// Doubles each byte: shifted by adding it to itself, and the polynomial where a bit fell out.
#[target_feature(enable = "avx2")]
#[inline]
fn double4(value: &mut Four) {
    let polynomial = _mm256_set1_epi8(gf::POLYNOMIAL.cast_signed());
    for v in value {
        let carry = _mm256_cmpgt_epi8(_mm256_setzero_si256(), *v);
        *v = _mm256_xor_si256(_mm256_add_epi8(*v, *v), _mm256_and_si256(carry, polynomial));
    }
}

#[target_feature(enable = "avx2")]
fn syndrome_with_avx2(
    data: &[&[u8]],
    p: &mut [u8],
    q: &mut [u8],
    range: Range<usize>,
    goes_on: bool,
) {
    for at in tiles(range) {
        let (mut p_sum, mut q_sum) = ([_mm256_setzero_si256(); 4], [_mm256_setzero_si256(); 4]);
        if goes_on {
            (p_sum, q_sum) = (load4(tile(p, at)), load4(tile(q, at)));
        }
        for unit in data.iter().rev() {
            let d = load4(tile(unit, at));
            double4(&mut q_sum);
            xor4(&mut p_sum, &d);
            xor4(&mut q_sum, &d);
        }
        store4(tile_mut(p, at), p_sum);
        store4(tile_mut(q, at), q_sum);
    }
}

#[target_feature(enable = "avx2")]
fn xor_with_avx2(data: &[&[u8]], p: &mut [u8], range: Range<usize>, goes_on: bool) {
    for at in tiles(range) {
        let mut sum = if goes_on { load4(tile(p, at)) } else { [_mm256_setzero_si256(); 4] };
        for unit in data {
            xor4(&mut sum, &load4(tile(unit, at)));
        }
        store4(tile_mut(p, at), sum);
    }
}

/// Products of a factor with the sixteen numbers that have only low bits, and with those that have
/// only high bits.
fn products(factor: u8) -> ([u8; 16], [u8; 16]) {
    let low = std::array::from_fn(|n| gf::multiply(factor, stdx::num::low8(n as u64)));
    let high = std::array::from_fn(|n| gf::multiply(factor, stdx::num::low8((n as u64) << 4)));
    (low, high)
}

#[target_feature(enable = "avx2")]
fn add_with_avx2(to: &mut [u8], from: &[u8], factor: u8) {
    let (low, high) = products(factor);
    // SAFETY: both tables have the 16 bytes that are loaded.
    let (low, high) =
        unsafe { (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())) };
    let (low, high) = (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high));
    let nibble = _mm256_set1_epi8(0x0f);
    for at in tiles(0..to.len()) {
        let mut product = load4(tile(from, at));
        for v in &mut product {
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(*v, nibble));
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(*v), nibble);
            *v = _mm256_xor_si256(of_low, _mm256_shuffle_epi8(high, upper));
        }
        xor4(&mut product, &load4(tile(to, at)));
        store4(tile_mut(to, at), product);
    }
}

pub(super) fn syndrome_avx2(
    data: &[&[u8]],
    p: &mut [u8],
    q: &mut [u8],
    range: Range<usize>,
    goes_on: bool,
) -> usize {
    let len = range.len();
    assert!(Level::Avx2.is_available());
    // SAFETY: the machine has AVX2, asserted above.
    unsafe { syndrome_with_avx2(data, p, q, range, goes_on) };
    whole(len)
}

pub(super) fn xor_avx2(data: &[&[u8]], p: &mut [u8], range: Range<usize>, goes_on: bool) -> usize {
    let len = range.len();
    assert!(Level::Avx2.is_available());
    // SAFETY: the machine has AVX2, asserted above.
    unsafe { xor_with_avx2(data, p, range, goes_on) };
    whole(len)
}

pub(super) fn add_avx2(to: &mut [u8], from: &[u8], factor: u8) -> usize {
    assert!(Level::Avx2.is_available());
    // SAFETY: the machine has AVX2, asserted above.
    unsafe { add_with_avx2(to, from, factor) };
    whole(to.len())
}

// ---- GFNI with AVX-512 ---------------------------------------------------------------------------

type Two = [__m512i; 2];

#[target_feature(enable = "avx512f")]
#[inline]
fn load2(tile: &[u8; TILE]) -> Two {
    let at = tile.as_ptr();
    // SAFETY: twice 64 bytes are the 128 of the tile; the load asks for no alignment.
    unsafe { [_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(64).cast())] }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store2(tile: &mut [u8; TILE], value: Two) {
    let at = tile.as_mut_ptr();
    // SAFETY: twice 64 bytes are the 128 of the tile; the store asks for no alignment.
    unsafe {
        _mm512_storeu_si512(at.cast(), value[0]);
        _mm512_storeu_si512(at.add(64).cast(), value[1]);
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor2(a: &mut Two, b: &Two) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = _mm512_xor_si512(*a, *b);
    }
}

/// Multiplication by `factor` as the bit matrix of `gf2p8affineqb`: bit j of row i (which is byte
/// 7 - i) tells whether bit j of a number adds to bit i of its product.
const fn matrix(factor: u8) -> u64 {
    let mut rows = 0;
    let mut i = 0;
    while i < 8 {
        let mut j = 0;
        while j < 8 {
            if gf::multiply(factor, 1 << j) >> i & 1 == 1 {
                rows |= 1 << ((7 - i) * 8 + j);
            }
            j += 1;
        }
        i += 1;
    }
    rows
}

#[target_feature(enable = "avx512f,gfni")]
fn syndrome_with_gfni(
    data: &[&[u8]],
    p: &mut [u8],
    q: &mut [u8],
    range: Range<usize>,
    goes_on: bool,
) {
    const DOUBLE: u64 = matrix(2);
    let double = _mm512_set1_epi64(DOUBLE.cast_signed());
    for at in tiles(range) {
        let (mut p_sum, mut q_sum) = ([_mm512_setzero_si512(); 2], [_mm512_setzero_si512(); 2]);
        if goes_on {
            (p_sum, q_sum) = (load2(tile(p, at)), load2(tile(q, at)));
        }
        for unit in data.iter().rev() {
            let d = load2(tile(unit, at));
            for v in &mut q_sum {
                *v = _mm512_gf2p8affine_epi64_epi8::<0>(*v, double);
            }
            xor2(&mut p_sum, &d);
            xor2(&mut q_sum, &d);
        }
        store2(tile_mut(p, at), p_sum);
        store2(tile_mut(q, at), q_sum);
    }
}

#[target_feature(enable = "avx512f")]
fn xor_with_avx512(data: &[&[u8]], p: &mut [u8], range: Range<usize>, goes_on: bool) {
    for at in tiles(range) {
        let mut sum = if goes_on { load2(tile(p, at)) } else { [_mm512_setzero_si512(); 2] };
        for unit in data {
            xor2(&mut sum, &load2(tile(unit, at)));
        }
        store2(tile_mut(p, at), sum);
    }
}

#[target_feature(enable = "avx512f,gfni")]
fn add_with_gfni(to: &mut [u8], from: &[u8], factor: u8) {
    let times = _mm512_set1_epi64(matrix(factor).cast_signed());
    for at in tiles(0..to.len()) {
        let mut product = load2(tile(from, at));
        for v in &mut product {
            *v = _mm512_gf2p8affine_epi64_epi8::<0>(*v, times);
        }
        xor2(&mut product, &load2(tile(to, at)));
        store2(tile_mut(to, at), product);
    }
}

pub(super) fn syndrome_gfni(
    data: &[&[u8]],
    p: &mut [u8],
    q: &mut [u8],
    range: Range<usize>,
    goes_on: bool,
) -> usize {
    let len = range.len();
    assert!(Level::Gfni512.is_available());
    // SAFETY: the machine has AVX-512F and GFNI, asserted above.
    unsafe { syndrome_with_gfni(data, p, q, range, goes_on) };
    whole(len)
}

pub(super) fn xor_gfni(data: &[&[u8]], p: &mut [u8], range: Range<usize>, goes_on: bool) -> usize {
    let len = range.len();
    assert!(Level::Gfni512.is_available());
    // SAFETY: the machine has AVX-512F, asserted above.
    unsafe { xor_with_avx512(data, p, range, goes_on) };
    whole(len)
}

pub(super) fn add_gfni(to: &mut [u8], from: &[u8], factor: u8) -> usize {
    assert!(Level::Gfni512.is_available());
    // SAFETY: the machine has AVX-512F and GFNI, asserted above.
    unsafe { add_with_gfni(to, from, factor) };
    whole(to.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `gf2p8affineqb` on one byte, as its manual describes it: machines that test this may not
    /// have it.
    fn affine(matrix: u64, x: u8) -> u8 {
        let rows = matrix.to_le_bytes();
        (0..8).fold(0, |sum, i| {
            let parity = (rows[7 - i] & x).count_ones() & 1;
            sum | stdx::num::low8(u64::from(parity) << i)
        })
    }

    #[test]
    fn the_matrix_multiplies() {
        for factor in 0..=255 {
            let matrix = matrix(factor);
            for x in 0..=255 {
                assert_eq!(affine(matrix, x), gf::multiply(factor, x), "{factor} times {x}");
            }
        }
    }
}
