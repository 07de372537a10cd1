//! Conversions between integer widths that cannot fail on the machines served (64-bit only), and
//! explicit truncations, so that no bare `as` is needed elsewhere.

const _: () = assert!(usize::BITS == 64, "only 64-bit machines are served");

/// `u32` as an index or length.
#[must_use]
pub const fn usize32(value: u32) -> usize {
    value as usize
}

/// `u64` as an index or length: exact, because `usize` has 64 bits here.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "usize has 64 bits, asserted above")]
pub const fn usize64(value: u64) -> usize {
    value as usize
}

/// A length or index as `u64`.
#[must_use]
pub const fn u64_of(value: usize) -> u64 {
    value as u64
}

/// The low 32 bits.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "truncation is what the name says")]
pub const fn low32(value: u64) -> u32 {
    value as u32
}

/// The low 16 bits.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "truncation is what the name says")]
pub const fn low16(value: u64) -> u16 {
    value as u16
}

/// The low 8 bits.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "truncation is what the name says")]
pub const fn low8(value: u64) -> u8 {
    value as u8
}

/// A length known by construction to fit 32 bits.
///
/// # Panics
/// When it does not: the caller's bound is broken.
#[must_use]
pub const fn u32_of(value: usize) -> u32 {
    assert!(value <= u32::MAX as usize, "length exceeds 32 bits");
    low32(value as u64)
}

/// A length known by construction to fit 16 bits.
///
/// # Panics
/// When it does not: the caller's bound is broken.
#[must_use]
pub const fn u16_of(value: usize) -> u16 {
    assert!(value <= u16::MAX as usize, "length exceeds 16 bits");
    low16(value as u64)
}

/// `value` rounded down to a multiple of `to`, a power of two.
#[must_use]
pub const fn align_down(value: u64, to: u64) -> u64 {
    debug_assert!(to.is_power_of_two());
    value & !(to - 1)
}

/// `value` rounded up to a multiple of `to`, a power of two, or `None` past the end of `u64`.
#[must_use]
pub const fn align_up(value: u64, to: u64) -> Option<u64> {
    debug_assert!(to.is_power_of_two());
    match value.checked_add(to - 1) {
        Some(v) => Some(v & !(to - 1)),
        None => None,
    }
}

/// So many of something, in words: `1 drive`, `2 drives`.
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths() {
        assert_eq!(usize32(u32::MAX), 0xffff_ffff);
        assert_eq!(usize64(u64::MAX), usize::MAX);
        assert_eq!(low32(0x1_2345_6789), 0x2345_6789);
        assert_eq!(low16(0x1_2345), 0x2345);
        assert_eq!(low8(0x123), 0x23);
        assert_eq!(u32_of(9), 9);
        assert_eq!(u16_of(65535), 65535);
    }

    #[test]
    fn alignment() {
        assert_eq!(align_down(4097, 4096), 4096);
        assert_eq!(align_up(4097, 4096), Some(8192));
        assert_eq!(align_up(4096, 4096), Some(4096));
        assert_eq!(align_up(u64::MAX, 4096), None);
    }

    #[test]
    #[should_panic(expected = "16 bits")]
    fn a_broken_bound_is_noticed() {
        let _ = u16_of(65536);
    }
}
