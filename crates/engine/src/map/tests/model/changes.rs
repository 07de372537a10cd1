//! What changed between versions, by what the model knows of each block.

use super::*;
use std::ops::Range;

/// Steps of a call: what is found in several is the same.
const STEPS: usize = 60;

impl Bench {
    /// One of a view's snapshots, with the one before, the first, and nothing: all pairs are too many to look at.
    pub(super) fn compare(&self, view: u32, first: u64, count: u32) {
        let snapshots = self.snapshots(view);
        let Some(last) = snapshots.len().checked_sub(1) else { return };
        // The last, where all is looked at.
        let nth = last - usize64(first) % snapshots.len();
        let seen = snapshots[nth];
        let older = [nth.checked_sub(1), Some(0).filter(|_| nth > 1)];
        for before in older.into_iter().flatten().map(|n| Some(snapshots[n])).chain([None]) {
            self.compare_two(view, before, seen, first..first + u64::from(count));
        }
    }

    fn compare_two(&self, view: u32, before: Option<u32>, seen: u32, blocks: Range<u64>) {
        let (mut at, mut told) = (blocks.start, BTreeMap::new());
        let as_of = before.map(|n| Version::new(n).unwrap());
        let version = Version::new(seen).unwrap();
        while at < blocks.end {
            let found = |some: Range<u64>, has_contents| {
                assert!(at <= some.start && some.start < some.end && some.end <= blocks.end);
                some.for_each(|block| assert_eq!(told.insert(block, has_contents), None));
                true
            };
            let range = at..blocks.end;
            let next = self.map.changes(View::new(view), as_of, version, range, STEPS, found);
            let Ok(next) = now(next) else { return };
            assert!(at < next && next <= blocks.end, "each call gets on");
            at = next;
        }
        let has = |versions: &BTreeMap<u32, Has>, as_of: u32| {
            let (since, has) = versions.range(..=as_of).next_back()?;
            has.seen().map(|_| *since)
        };
        let expected = blocks.filter_map(|block| {
            let versions = self.contents.get(&(view, block))?;
            match (has(versions, seen), before) {
                (Some(since), before) => before.is_none_or(|n| since > n).then_some((block, true)),
                // A clone's holes are told also where it had nothing: its parent had, perhaps.
                (None, Some(before)) if view == CLONE => {
                    let as_of = |n| versions.range(..=n).next_back().map(|(_, has)| *has);
                    let is_given_back = as_of(seen).is_some() && as_of(before) != Some(Has::Hole);
                    is_given_back.then_some((block, false))
                }
                (None, before) => has(versions, before?).map(|_| (block, false)),
            }
        });
        let expected: BTreeMap<u64, bool> = expected.collect();
        assert_eq!(told, expected, "view {view} from {before:?} to {seen}");
    }
}
