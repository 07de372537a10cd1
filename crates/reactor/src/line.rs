//! Waiting in line: joining, leaving from anywhere and serving the first take the same time however
//! long the line is.

use stdx::Slab;
use stdx::num::usize32;

const END: u32 = u32::MAX;

struct Entry<T> {
    value: T,
    ticket: u64,
    before: u32,
    behind: u32,
}

/// A place in a line. It names nobody else after whoever had it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    index: u32,
    ticket: u64,
}

/// First come, first served; the entries of a slab, linked both ways.
pub(crate) struct Line<T> {
    entries: Slab<Entry<T>>,
    first: u32,
    last: u32,
    tickets: u64,
}

impl<T> Line<T> {
    pub const fn new() -> Self {
        // Bounded by the tasks there are, and what each of them waits for at once.
        Self { entries: Slab::new(usize32(END) - 1), first: END, last: END, tickets: 0 }
    }

    pub const fn is_empty(&self) -> bool {
        self.first == END
    }

    /// Joins at the end.
    pub fn join(&mut self, value: T) -> Place {
        let ticket = self.tickets;
        self.tickets += 1;
        let entry = Entry { value, ticket, before: self.last, behind: END };
        let Ok(index) = self.entries.insert(entry) else {
            unreachable!("more waiters than memory has room for")
        };
        match self.entries.get_mut(self.last) {
            Some(last) => last.behind = index,
            None => self.first = index,
        }
        self.last = index;
        Place { index, ticket }
    }

    pub fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let entry = self.entries.get_mut(place.index)?;
        (entry.ticket == place.ticket).then_some(&mut entry.value)
    }

    pub fn first(&self) -> Option<&T> {
        self.entries.get(self.first).map(|entry| &entry.value)
    }

    /// All of them, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut at = self.first;
        std::iter::from_fn(move || {
            let entry = self.entries.get(at)?;
            at = entry.behind;
            Some(&entry.value)
        })
    }

    pub fn is_first(&self, place: Place) -> bool {
        self.first == place.index
            && self.entries.get(place.index).is_some_and(|entry| entry.ticket == place.ticket)
    }

    /// Takes out whoever is at `place`, unless they have left.
    pub fn leave(&mut self, place: Place) -> Option<T> {
        self.get_mut(place)?;
        self.take(place.index)
    }

    /// Takes out the first.
    pub fn leave_first(&mut self) -> Option<T> {
        self.take(self.first)
    }

    fn take(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.remove(index)?;
        match self.entries.get_mut(entry.before) {
            Some(before) => before.behind = entry.behind,
            None => self.first = entry.behind,
        }
        match self.entries.get_mut(entry.behind) {
            Some(behind) => behind.before = entry.before,
            None => self.last = entry.before,
        }
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list: join, leave from anywhere, leave first.
        #[test]
        fn a_line_is_a_list(steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 0..200)) {
            let mut line = Line::new();
            let mut list: Vec<(Place, u32)> = Vec::new();
            let mut gone: Vec<Place> = Vec::new();
            for (n, (step, which)) in (0..).zip(steps) {
                match step {
                    0 | 1 => list.push((line.join(n), n)),
                    2 if !list.is_empty() => {
                        let (place, value) = list.remove(which.index(list.len()));
                        prop_assert_eq!(line.leave(place), Some(value));
                        gone.push(place);
                    }
                    _ => {
                        let first = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(line.leave_first(), first.map(|(_, value)| value));
                        gone.extend(first.map(|(place, _)| place));
                    }
                }
                prop_assert_eq!(line.first(), list.first().map(|(_, value)| value));
                prop_assert_eq!(line.is_empty(), list.is_empty());
                for (at, (place, value)) in list.iter().enumerate() {
                    prop_assert_eq!(line.get_mut(*place), Some(&mut value.clone()));
                    prop_assert_eq!(line.is_first(*place), at == 0);
                }
                for place in &gone {
                    prop_assert_eq!(line.leave(*place), None);
                    prop_assert!(!line.is_first(*place));
                }
            }
        }
    }
}
