//! GF(2^8) by the byte. Slow, obvious, and evaluated a few times for each reconstruction.

/// x^8 = x^4 + x^3 + x^2 + 1.
pub(super) const POLYNOMIAL: u8 = 0x1d;

/// Times x.
pub(super) const fn double(a: u8) -> u8 {
    (a << 1) ^ (if a & 0x80 == 0 { 0 } else { POLYNOMIAL })
}

pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut sum, mut term, mut bits) = (0, a, b);
    while bits != 0 {
        if bits & 1 == 1 {
            sum ^= term;
        }
        term = double(term);
        bits >>= 1;
    }
    sum
}

/// 2 to the `n`.
pub(super) const fn power(n: usize) -> u8 {
    let mut value = 1;
    let mut left = n % 255;
    while left > 0 {
        value = double(value);
        left -= 1;
    }
    value
}

/// The number that gives 1 when multiplied with `a`: its 254th power.
///
/// # Panics
/// For 0, which has none.
pub(super) const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    let (mut value, mut square, mut exponent) = (1, a, 254);
    while exponent > 0 {
        if exponent & 1 == 1 {
            value = multiply(value, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    value
}

pub(super) const fn divide(a: u8, b: u8) -> u8 {
    multiply(a, inverse(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_but_zero_has_an_inverse() {
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a)), 1, "{a}");
        }
    }

    #[test]
    fn two_generates_the_field() {
        let all: std::collections::HashSet<u8> = (0..255).map(power).collect();
        assert_eq!(all.len(), 255);
        assert_eq!((power(8), power(255)), (POLYNOMIAL, 1));
    }
}
