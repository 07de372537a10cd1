//! CRC-32C (Castagnoli), the checksum of the wire (NVMe/TCP digests) and of all that is on media.

use crc_fast::{CrcAlgorithm, Digest};

use crate::num::low32;

/// CRC-32C of `bytes`.
#[must_use]
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// CRC-32C of what `crc` is the checksum of, followed by `bytes`. That of nothing is 0.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = wide::append(crc, bytes) {
        return crc;
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    !low32(digest.get_state())
}

/// For processors that multiply 256 bits without carries but have no registers of 512 (AMD's Zen 3,
/// client processors of Intel): `crc-fast` multiplies 128 bits at a time there. On Zen 3 it took
/// 290 ns for 4 KiB, this takes 120.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "instructions that only some processors have")]
mod wide {
    use std::arch::x86_64::{
        __m256i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128,
        _mm_cvtsi128_si64, _mm256_clmulepi64_epi128, _mm256_extract_epi64, _mm256_loadu_si256,
        _mm256_set_epi32, _mm256_set_epi64x, _mm256_setzero_si256, _mm256_xor_si256,
    };

    use crate::num::low32;

    /// What is summed in one go.
    const BLOCK: usize = 4096;
    /// The first part of a block is folded, this much at a step; with a step goes a share of the rest.
    const STEP: usize = LANES * 32;
    const LANES: usize = 4;
    const STEPS: usize = 16;
    const FOLDED: usize = STEP * (1 + STEPS);
    /// The rest is three stripes for the CRC32 instruction, which takes three cycles and can begin
    /// every cycle.
    const STRIPE: usize = (BLOCK - FOLDED) / 3;
    const WORDS: usize = STRIPE / 8 / STEPS;
    const _: () = assert!(WORDS * 8 * STEPS == STRIPE && FOLDED + 3 * STRIPE == BLOCK);

    /// x^`n` modulo the polynomial, in the reflected order of bits: the highest stands for x^0.
    const fn power(n: usize) -> u32 {
        let (mut power, mut i) = (1u32 << 31, 0);
        while i < n {
            power = (power >> 1) ^ if power & 1 == 1 { 0x82f6_3b78 } else { 0 };
            i += 1;
        }
        power
    }

    /// What the halves of 128 bits are multiplied with to move them `bytes` ahead. A product of
    /// reflected factors is one bit short, hence the shift.
    const fn ahead(bytes: usize) -> (i64, i64) {
        let bits = bytes * 8;
        ((power(bits + 32) as i64) << 1, (power(bits - 32) as i64) << 1)
    }

    /// What a CRC is multiplied with to move it `bytes` ahead; [`shift`] does the rest.
    const fn behind(bytes: usize) -> i64 {
        power(bytes * 8 - 33) as i64
    }

    /// See [`crc32c_append`](super::crc32c_append); `None` where it cannot or need not be done this way.
    #[inline]
    pub fn append(crc: u32, bytes: &[u8]) -> Option<u32> {
        let can = is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("sse4.2")
            && !is_x86_feature_detected!("avx512vl");
        // SAFETY: the processor has what `sum` needs.
        can.then(|| !unsafe { sum(!crc, bytes) })
    }

    #[target_feature(enable = "sse4.2,pclmulqdq,avx2,vpclmulqdq")]
    fn sum(state: u32, bytes: &[u8]) -> u32 {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let state = blocks.iter().fold(state, |state, block| sum_block(state, block));
        let (words, rest) = rest.as_chunks::<8>();
        let state = words
            .iter()
            .fold(u64::from(state), |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
        rest.iter().fold(low32(state), |state, byte| _mm_crc32_u8(state, *byte))
    }

    #[target_feature(enable = "sse4.2,pclmulqdq,avx2,vpclmulqdq")]
    fn sum_block(state: u32, block: &[u8; BLOCK]) -> u32 {
        let (folded, stripes) = block.split_at(FOLDED);
        let lane = |step: usize, lane: usize| load(&folded[step * STEP + lane * 32..]);
        let word = |stripe: usize, n: usize| {
            let at = stripe * STRIPE + n * 8;
            stripes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
        };
        let mut lanes = [_mm256_setzero_si256(); LANES];
        for (n, lanes) in lanes.iter_mut().enumerate() {
            *lanes = lane(0, n);
        }
        let begin = _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, state.cast_signed());
        lanes[0] = _mm256_xor_si256(lanes[0], begin);
        let mut sums = [0; 3];
        for step in 0..STEPS {
            for (n, lanes) in lanes.iter_mut().enumerate() {
                *lanes = fold(*lanes, const { ahead(STEP) }, lane(step + 1, n));
            }
            for n in step * WORDS..(step + 1) * WORDS {
                for (stripe, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm_crc32_u64(*sum, word(stripe, n));
                }
            }
        }
        let [first, rest @ ..] = lanes;
        let last = rest.into_iter().fold(first, |all, next| fold(all, const { ahead(32) }, next));
        let last = [
            _mm256_extract_epi64::<0>(last),
            _mm256_extract_epi64::<1>(last),
            _mm256_extract_epi64::<2>(last),
            _mm256_extract_epi64::<3>(last),
        ];
        let front = last.into_iter().fold(0, |sum, word| _mm_crc32_u64(sum, word.cast_unsigned()));
        low32(
            shift(front, const { behind(3 * STRIPE) })
                ^ shift(sums[0], const { behind(2 * STRIPE) })
                ^ shift(sums[1], const { behind(STRIPE) })
                ^ sums[2],
        )
    }

    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8]) -> __m256i {
        let bytes: &[u8; 32] = bytes.first_chunk().unwrap_or(&[0; 32]);
        // SAFETY: 32 bytes are there.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    /// `all` moved ahead by what the factors are for, and added to `next`.
    #[target_feature(enable = "avx2,vpclmulqdq")]
    fn fold(all: __m256i, (low, high): (i64, i64), next: __m256i) -> __m256i {
        let factors = _mm256_set_epi64x(high, low, high, low);
        let low = _mm256_clmulepi64_epi128::<0x00>(all, factors);
        let high = _mm256_clmulepi64_epi128::<0x11>(all, factors);
        _mm256_xor_si256(_mm256_xor_si256(low, high), next)
    }

    /// A CRC as it is when zeroes follow, as many as `factor` is for.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn shift(crc: u64, factor: i64) -> u64 {
        let crc = _mm_cvtsi64_si128(crc.cast_signed());
        let product = _mm_clmulepi64_si128::<0>(crc, _mm_cvtsi64_si128(factor));
        _mm_crc32_u64(0, _mm_cvtsi128_si64(product).cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_check_value_and_nothing() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[]), 0);
    }

    /// What RFC 3720 says of 32 bytes, and 4096 of zeroes and of ones.
    #[test]
    fn what_others_found() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        for byte in [0, 0xff] {
            assert_eq!(crc32c(&[byte; 4096]), ::crc32c::crc32c(&[byte; 4096]));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_length_in_any_pieces(
            bytes in prop::collection::vec(any::<u8>(), 0..13_000),
            cut: prop::sample::Index,
            offset in 0usize..64,
        ) {
            let bytes = &bytes[offset.min(bytes.len())..];
            let expected = ::crc32c::crc32c(bytes);
            prop_assert_eq!(crc32c(bytes), expected);
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(crc32c_append(crc32c(first), second), expected);
        }
    }
}
