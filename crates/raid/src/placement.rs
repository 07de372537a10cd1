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

/// What keeps free units from being used: others are where no segment can have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uneven {
    /// The drives, by their bits, that have more free units than segments to come can use.
    pub drives: u64,
    /// Segments that have to be moved to where these have free units, at least.
    pub segments: u64,
}

/// Why the free units do not take so many segments more, if they do not: with that many, a drive has one part of each
/// at most, and what is free on it beyond that is of use to nobody before other segments have moved there. Where that
/// many and those there are make up what all units take, some have no part on one of these drives: each that moves
/// brings this nearer to its end.
#[must_use]
pub fn uneven(free: &[u32], width: usize, segments: u64) -> Option<Uneven> {
    debug_assert!(free.len() <= 64 && (1..=WIDTH_MAX).contains(&width));
    let usable: u64 = free.iter().map(|&f| u64::from(f).min(segments)).sum();
    let lacking = (segments * stdx::num::u64_of(width)).saturating_sub(usable);
    let drives = free.iter().enumerate().filter(|(_, free)| u64::from(**free) > segments);
    let drives = drives.fold(0, |bits, (drive, _)| bits | 1 << drive);
    let each = u64::from(u64::count_ones(drives)).max(1);
    (lacking > 0).then(|| Uneven { drives, segments: lacking.div_ceil(each) })
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

    /// Parts of segments, each on a drive of its own, and what is free.
    #[derive(Debug, Default)]
    struct Placed {
        units: Vec<u32>,
        free: Vec<u32>,
        segments: Vec<Vec<usize>>,
    }

    impl Placed {
        fn add(&mut self, units: u32) {
            self.units.push(units);
            self.free.push(units);
        }

        fn place(&mut self, width: usize, seed: u64) -> bool {
            let Some(drives) = choose(&self.free, width, seed) else { return false };
            drives.iter().for_each(|d| self.free[*d] -= 1);
            self.segments.push(drives);
            true
        }

        fn give_back(&mut self, at: usize) {
            self.segments.swap_remove(at).into_iter().for_each(|d| self.free[d] += 1);
        }

        /// Segments that there are, and that can be placed.
        fn placeable(&self, width: usize) -> u64 {
            stdx::num::u64_of(self.segments.len()) + segments(&self.free, width)
        }

        fn left(&self, width: usize) -> u64 {
            segments(&self.units, width) - stdx::num::u64_of(self.segments.len())
        }
    }

    proptest! {
        /// Whatever was placed and given back, in whichever order, all there is can be placed, until drives come; then
        /// again, once as many segments were moved as was said, or fewer.
        #[test]
        fn all_units_are_of_use_once_segments_were_moved_to_where_drives_came(
            units in proptest::collection::vec(1u32..60, 1..9),
            more in proptest::collection::vec((1u32..60, 0usize..60), 1..4),
            width in 1usize..=8,
            seed: u64,
        ) {
            prop_assume!(units.len() >= width);
            let (mut placed, mut prng) = (Placed::default(), stdx::Prng::new(seed));
            units.iter().for_each(|units| placed.add(*units));
            for (units, changes) in [(0, 200)].into_iter().chain(more) {
                let before = placed.placeable(width);
                if units > 0 {
                    placed.add(units);
                }
                prop_assert!(placed.placeable(width) >= before);
                for _ in 0..changes {
                    let before = placed.placeable(width);
                    if prng.below(3) == 0 && !placed.segments.is_empty() {
                        let of = stdx::num::u64_of(placed.segments.len());
                        placed.give_back(stdx::num::usize64(prng.below(of)));
                    } else {
                        let _ = placed.place(width, prng.below(u64::MAX));
                    }
                    prop_assert!(placed.placeable(width) >= before);
                }
                let (mut moves, mut said) = (0, None);
                // One segment more than there are is on its way while it is moved.
                while let Some(Uneven { drives, segments: most }) =
                    uneven(&placed.free, width, placed.left(width))
                {
                    said.get_or_insert(most * u64::from(u64::count_ones(drives)));
                    let parts = |of: &Vec<usize>| of.iter().filter(|d| drives & 1 << **d != 0).count();
                    let there = (0..placed.segments.len()).min_by_key(|at| parts(&placed.segments[*at]));
                    let victim = there.unwrap();
                    prop_assert!(parts(&placed.segments[victim]) < drives.count_ones() as usize);
                    if !placed.place(width, prng.below(u64::MAX)) {
                        // Full: nothing can be moved, and nothing is free in vain.
                        break;
                    }
                    placed.give_back(victim);
                    moves += 1;
                }
                prop_assert!(moves <= said.unwrap_or(0));
                let is_full = segments(&placed.free, width) == 0;
                prop_assert!(is_full || placed.placeable(width) == segments(&placed.units, width));
            }
        }

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
