//! Arrays of fixed-width bit fields inside a page, little-endian, least significant bit first.

use crate::address::BLOCK;
use stdx::num::low8;

/// Bits needed for values up to `max`.
pub(super) fn width(max: u64) -> u8 {
    low8(u64::from(u64::BITS - max.leading_zeros()))
}

/// The 8 bytes at `at`, or 0 where the page does not hold them all.
pub(super) fn word(page: &[u8; BLOCK], at: usize) -> u64 {
    match page.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

/// Field `i` of the array that begins at byte `at`, its fields `bits` (at most 57) wide.
pub(super) fn get(page: &[u8; BLOCK], at: u16, i: usize, bits: u8) -> u64 {
    let position = i * usize::from(bits);
    let word = word(page, usize::from(at) + position / 8);
    (word >> (position % 8)) & ((1 << bits) - 1)
}

/// Sets a field that is still zero. The value must fit its width.
pub(super) fn put(page: &mut [u8; BLOCK], at: u16, i: usize, bits: u8, value: u64) {
    debug_assert!(width(value) <= bits);
    let position = i * usize::from(bits);
    let at = usize::from(at) + position / 8;
    let merged = word(page, at) | value << (position % 8);
    page[at..at + 8].copy_from_slice(&merged.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_come_back(bits in 0u8..=57, values in prop::collection::vec(any::<u64>(), 1..300)) {
            let mut page = [0; BLOCK];
            let values: Vec<u64> = values.iter().map(|v| v & ((1 << bits) - 1)).collect();
            for (i, &v) in values.iter().enumerate() {
                put(&mut page, 5, i, bits, v);
            }
            for (i, &v) in values.iter().enumerate() {
                prop_assert_eq!(get(&page, 5, i, bits), v);
            }
        }
    }

    #[test]
    fn widths() {
        assert_eq!((width(0), width(1), width(255), width(256)), (0, 1, 8, 9));
    }
}
