//! Lines against plain lists.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::command::lines::{Line, Lines, Place, READY};

/// Who waits in a line, in order.
fn all(lines: &mut Lines<u32>, line: Line) -> Vec<u32> {
    let mut found = Vec::new();
    let scratch = lines.begin();
    while let Some(first) = lines.first(line) {
        found.push(*lines.at(first));
        lines.go_to(first, scratch);
    }
    lines.append(scratch, line);
    lines.end(scratch);
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn lines_are_lists(
        steps in prop::collection::vec((0u8..6, any::<Index>(), any::<Index>()), 0..100)
    ) {
        let mut lines = Lines::default();
        let places = [READY, lines.begin(), lines.begin()];
        let mut lists: [Vec<(Place, u32)>; 3] = Default::default();
        let mut aside = Vec::new();
        for (n, (step, which, other)) in (0..).zip(steps) {
            let (from, to) = (which.index(3), other.index(3));
            let at = which.index(lists[from].len().max(1));
            match step {
                0 | 1 => lists[to].push((lines.join(places[to], n), n)),
                2 if from != to => {
                    lines.append(places[from], places[to]);
                    let moved = std::mem::take(&mut lists[from]);
                    lists[to].extend(moved);
                }
                _ if lists[from].is_empty() => {}
                3 => {
                    let (place, value) = lists[from].remove(at);
                    prop_assert_eq!(lines.leave(place), value);
                }
                4 => {
                    let moved = lists[from].remove(at);
                    lines.go_to(moved.0, places[to]);
                    lists[to].push(moved);
                }
                _ => {
                    let (place, value) = lists[from].remove(at);
                    lines.stand_aside(place);
                    aside.push((place, value));
                }
            }
            for (line, list) in places.iter().zip(&lists) {
                let list: Vec<_> = list.iter().map(|(_, value)| *value).collect();
                prop_assert_eq!(all(&mut lines, *line), list);
            }
            prop_assert_eq!(lines.waiting(), lists.iter().map(Vec::len).sum::<usize>() + aside.len());
        }
        for (place, value) in aside {
            prop_assert_eq!(lines.leave(place), value);
        }
    }
}
