//! Which drives a new segment takes.

use crate::limits::WIDTH_MAX;

/// Scatters equal choices: the same everywhere, different for each seed and drive.
const fn scatter(seed: u64, drive: usize) -> u64 {
    let mut z = seed ^ stdx::num::u64_of(drive + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Chooses `width` distinct drives, given the free allocation units of each (0 for one that takes
/// none): those with most free space, so that space runs out everywhere at once and as many
/// segments fit as can. `seed` decides among equals. Drives come in a scattered order. `None` when
/// fewer than `width` have space.
#[must_use]
pub fn choose(free: &[u32], width: usize, seed: u64) -> Option<Vec<usize>> {
    debug_assert!((1..=WIDTH_MAX).contains(&width));
    let mut drives: Vec<usize> = (0..free.len()).filter(|&d| free[d] > 0).collect();
    if drives.len() < width {
        return None;
    }
    drives.sort_unstable_by_key(|&d| (std::cmp::Reverse(free[d]), scatter(seed, d), d));
    drives.truncate(width);
    drives.sort_unstable_by_key(|&d| (scatter(seed, d), d));
    Some(drives)
}

/// How many more segments of `width` members the free allocation units allow.
#[must_use]
pub fn segments(free: &[u32], width: usize) -> u64 {
    debug_assert!((1..=WIDTH_MAX).contains(&width));
    let width = stdx::num::u64_of(width);
    // With n segments a drive serves at most n members: they fit when what drives can serve is
    // enough, and choosing the emptiest drives reaches that.
    let fits = |n: u64| free.iter().map(|&f| u64::from(f).min(n)).sum::<u64>() >= n * width;
    let total: u64 = free.iter().map(|&f| u64::from(f)).sum();
    let (mut low, mut high) = (0, total / width);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_drives_are_used_equally() {
        let mut free = vec![100; 12];
        for n in 0..60 {
            for d in choose(&free, 10, n).unwrap() {
                free[d] -= 1;
            }
        }
        assert_eq!(free, [50; 12]);
    }

    #[test]
    fn the_same_seed_chooses_the_same() {
        let free = [5, 5, 5, 5, 5, 5];
        assert_eq!(choose(&free, 3, 9), choose(&free, 3, 9));
        assert!((0..20).any(|seed| choose(&free, 3, seed) != choose(&free, 3, 9)));
        assert_eq!(choose(&[1, 0, 1], 3, 0), None);
    }

    proptest! {
        #[test]
        fn choices_are_distinct_and_reach_the_capacity(
            free in proptest::collection::vec(0u32..40, 1..14), width in 1usize..=8, seed: u64
        ) {
            let mut left = free.clone();
            let mut made = 0;
            while let Some(drives) = choose(&left, width, seed ^ made) {
                let mut distinct = drives.clone();
                distinct.sort_unstable();
                distinct.dedup();
                prop_assert_eq!(distinct.len(), width);
                for d in drives {
                    left[d] -= 1;
                }
                made += 1;
            }
            prop_assert_eq!(made, segments(&free, width));
        }
    }
}
