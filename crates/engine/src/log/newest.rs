//! Which blocks have contents, as far as the log says: it is newer than the map.

use super::index::{Stretch, StretchOf};
use super::limits::SLOTS_A_TURN;
use super::{Found, Log};
use crate::address::Key;
use crate::map::Span;
use reactor::yield_now;
use std::ops::Range;

/// What the log says of a range of keys.
#[derive(Debug)]
pub struct Newest {
    /// In order, without overlaps.
    pub spans: Vec<Span>,
    /// Where the range ends.
    pub until: Key,
}

/// A listing of the log's blocks, which ends with this.
struct Listing<'a> {
    log: &'a Log,
    number: u64,
}

impl<'a> Listing<'a> {
    fn begin(log: &'a Log) -> Self {
        let number = log.shared.ring.borrow_mut().blocks.begin_listing();
        Self { log, number }
    }

    /// Adds those of the next blocks that are newest, and in a range; false behind the last.
    fn next(&self, range: &Range<Key>, keys: &mut Vec<Key>) -> bool {
        let (mut ring, mut some) = (self.log.shared.ring.borrow_mut(), Vec::new());
        let is_more = ring.blocks.list(self.number, SLOTS_A_TURN, &mut some);
        let is_newest = |key: &Key| matches!(ring.lookup(*key, 1).0, Found::Data(_));
        keys.extend(some.into_iter().filter(|key| range.contains(key) && is_newest(key)));
        is_more
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.log.shared.ring.borrow_mut().blocks.end_listing(self.number);
    }
}

impl Log {
    /// What the log says of the keys of a range, as far as that are about `most` blocks at most. What is appended
    /// meanwhile may be missing, and whoever asks the map for all else has to do that afterwards: what is trimmed
    /// meanwhile is there. Whatever the log has from the beginning of this to its end is told.
    pub async fn newest(&self, range: Range<Key>, most: usize) -> Newest {
        let (mut keys, mut until) = (Vec::new(), range.end);
        let listing = Listing::begin(self);
        while listing.next(&(range.start..until), &mut keys) {
            until = keep_first(&mut keys, most).unwrap_or(until);
            if self.shared.ring.borrow().blocks.len() > 0 {
                yield_now().await;
            }
        }
        keys.sort_unstable();
        // One that was moved may have been met twice.
        keys.dedup();
        drop(listing);
        let ring = self.shared.ring.borrow();
        let stretches = ring.stretches.from(range.start);
        Newest { spans: spans(&keys, stretches, range.start..until), until }
    }
}

/// Leaves the first `most` keys. Gives the first of those that go.
fn keep_first(keys: &mut Vec<Key>, most: usize) -> Option<Key> {
    if keys.len() <= most {
        return None;
    }
    let (_, first, _) = keys.select_nth_unstable(most);
    let first = *first;
    keys.truncate(most);
    Some(first)
}

/// What some blocks are.
#[derive(Clone, Copy)]
struct Is {
    has_contents: bool,
    is_alone: bool,
}

impl Is {
    const DATA: Self = Self { has_contents: true, is_alone: true };

    fn of(stretch: StretchOf) -> Self {
        Self { has_contents: stretch != StretchOf::Holes, is_alone: false }
    }
}

/// The blocks at `keys`, which have contents, over stretches, within a range.
fn spans<'a>(
    keys: &[Key],
    stretches: impl Iterator<Item = &'a Stretch>,
    range: Range<Key>,
) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut keys = keys.iter().copied().peekable();
    for stretch in stretches {
        let (view, is) = (stretch.view, Is::of(stretch.of));
        let mut first = Key::new(view, stretch.first).max(range.start);
        let end =
            if view == range.end.view { stretch.end.min(range.end.block) } else { stretch.end };
        if first >= range.end {
            break;
        }
        while let Some(key) = keys.next_if(|key| (key.view, key.block) < (view, end)) {
            // Those before the stretch are none of its business.
            let within = key >= first;
            if within && key > first {
                push(&mut spans, first, key.block - first.block, is);
            }
            push(&mut spans, key, 1, Is::DATA);
            if within {
                first.block = key.block + 1;
            }
        }
        if first.block < end {
            push(&mut spans, first, end - first.block, is);
        }
    }
    keys.for_each(|key| push(&mut spans, key, 1, Is::DATA));
    spans
}

/// Adds blocks; those that go on after the last ones become a part of them.
fn push(spans: &mut Vec<Span>, first: Key, blocks: u64, is: Is) {
    let Is { has_contents, is_alone } = is;
    match spans.last_mut() {
        Some(last)
            if (last.has_contents, last.is_alone) == (has_contents, is_alone)
                && last.first.view == first.view
                && last.first.block + last.blocks == first.block =>
        {
            last.blocks += blocks;
        }
        _ => spans.push(Span { first, blocks, has_contents, is_alone }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::View;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key((view, block): (u32, u64)) -> Key {
        Key::new(View::new(view), block)
    }

    proptest! {
        #[test]
        fn spans_say_what_keys_over_stretches_say(
            keys in proptest::collection::btree_set((1u32..4, 0u64..60), 0..60),
            stretches in proptest::collection::vec((1u32..4, 0u64..50, 1u64..20, any::<bool>()), 0..12),
            from in (1u32..4, 0u64..60),
            until in (1u32..5, 0u64..60),
        ) {
            let mut list = super::super::index::Stretches::new();
            let mut model = BTreeMap::new();
            for (view, first, count, holes) in stretches {
                let (end, view_) = (first + count, View::new(view));
                let of = if holes { StretchOf::Holes } else { StretchOf::Lost };
                list.insert(Stretch { view: view_, first, end, position: 0, of });
                model.extend((first..end).map(|block| ((view, block), !holes)));
            }
            model.extend(keys.iter().map(|at| (*at, true)));
            let range = key(from)..key(until);
            let within = |at: &Key| range.contains(at);
            let keys: Vec<Key> = keys.into_iter().map(key).filter(within).collect();
            let spans = spans(&keys, list.from(range.start), range.clone());
            let mut said = BTreeMap::new();
            for span in &spans {
                for n in 0..span.blocks {
                    let at = (span.first.view.get(), span.first.block + n);
                    prop_assert!(said.insert(at, span.has_contents).is_none(), "twice");
                }
            }
            let is_asked = |(at, _): &((u32, u64), bool)| range.contains(&key(*at));
            let expected: BTreeMap<_, _> = model.into_iter().filter(is_asked).collect();
            prop_assert_eq!(said, expected);
            let order = spans.windows(2).all(|pair| pair[0].first < pair[1].first);
            prop_assert!(order);
        }
    }
}
