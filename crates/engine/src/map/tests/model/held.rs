//! What snapshots see, counted, by what the model knows of each block.

use super::*;
use crate::used::{Counts, Seen};
use crate::volume::state::Occupied;

impl Bench {
    /// Counts what each snapshot sees, and what is seen by it alone.
    pub(super) fn count_older(&self) {
        let versions = |view: u32| {
            let seen = self.snapshots(view);
            seen.into_iter().map(|n| Version::new(n).unwrap()).collect::<Vec<_>>()
        };
        let seen: Seen = (1..4).map(|view| (View::new(view), versions(view))).collect();
        let seen: Seen = seen.into_iter().filter(|(_, seen)| !seen.is_empty()).collect();
        let mut counts = Counts::new(Some(seen.clone()));
        let (mut at, end) = (Key::new(View::new(1), 0), Key::new(View::new(4), 0));
        while at < end {
            let next = self.map.count(at..end, &[], 50, || false, &mut counts);
            let Ok(next) = now(next) else { return };
            assert!(at < next, "each piece gets on");
            at = next;
        }
        let mut expected: BTreeMap<(View, Option<Version>), Occupied> = BTreeMap::new();
        for ((view, _), versions) in &self.contents {
            let view = View::new(*view);
            let viewers = seen.get(&view).into_iter().flatten().copied().map(Some);
            let mut seen_by: BTreeMap<u32, Vec<Option<Version>>> = BTreeMap::new();
            for viewer in viewers.chain([None]) {
                let as_of = viewer.unwrap_or(Version::LAST).get();
                if let Some((since, has)) = versions.range(..=as_of).next_back()
                    && has.seen().is_some()
                {
                    expected.entry((view, viewer)).or_default().referenced += 1;
                    seen_by.entry(*since).or_default().push(viewer);
                }
            }
            for by in seen_by.values() {
                if let [viewer] = by[..] {
                    expected.entry((view, viewer)).or_default().unique += 1;
                }
                if !by.contains(&None) {
                    expected.entry((view, None)).or_default().held += 1;
                }
            }
        }
        counts.sum_up();
        for view in (1..4).map(View::new) {
            let expected = |viewer| Occupied {
                inherited: Some(0),
                ..expected.get(&(view, viewer)).copied().unwrap_or_default()
            };
            assert_eq!(counts.of_volume(view), expected(None), "{view:?}");
            for sees in seen.get(&view).into_iter().flatten() {
                let found = counts.of_snapshot(view, *sees);
                assert_eq!(found, Some(expected(Some(*sees))), "{view:?} as of {sees:?}");
            }
        }
    }
}
