//! Those who wait, in lines of which there may be many: joining one, leaving it from anywhere, going on to another, and
//! putting a whole line behind another take the same time however many wait.

use stdx::Slab;
use stdx::num::usize32;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(u32);

/// The line that there is from the beginning.
pub const READY: Line = Line(0);

/// Somebody who waits in one of the lines, or in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

/// Entries of a slab in rings: each ring has a line's head, and those who wait there behind it.
#[derive(Debug)]
pub struct Lines<T> {
    entries: Slab<Entry<T>>,
    waiting: usize,
    /// Entries that there were at once since their memory was given back.
    most: usize,
}

/// Entries whose memory is kept while nobody waits.
const SPARE: usize = 1024;

#[derive(Debug)]
struct Entry<T> {
    /// Nobody: the head of a line.
    value: Option<T>,
    before: u32,
    behind: u32,
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        // Bounded by the commands that there are, and what they hold.
        let entries = Slab::new(usize32(u32::MAX) - 1);
        let mut lines = Self { entries, waiting: 0, most: 0 };
        assert!(lines.begin() == READY, "the first entry");
        lines
    }
}

impl<T> Lines<T> {
    /// How many wait, in whatever line.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Begins a line.
    pub fn begin(&mut self) -> Line {
        Line(self.insert(None))
    }

    /// Ends a line in which nobody waits.
    pub fn end(&mut self, line: Line) {
        assert!(self.first(line).is_none(), "who waits in a line would wait for ever");
        let head = self.entries.remove(line.0);
        assert!(head.is_some_and(|head| head.value.is_none()), "a line ends once");
        self.give_back();
    }

    /// Joins a line at its end.
    pub fn join(&mut self, line: Line, value: T) -> Place {
        let index = self.insert(Some(value));
        self.waiting += 1;
        self.link(index, line);
        Place(index)
    }

    /// Goes to the end of a line, from wherever in whatever line.
    pub fn go_to(&mut self, place: Place, line: Line) {
        self.unlink(place.0);
        self.link(place.0, line);
    }

    /// Waits in no line any more.
    pub fn stand_aside(&mut self, place: Place) {
        self.unlink(place.0);
    }

    /// Takes out whoever is at a place, which is somebody else's from then on.
    pub fn leave(&mut self, place: Place) -> T {
        self.unlink(place.0);
        self.waiting -= 1;
        let entry = self.entries.remove(place.0);
        self.give_back();
        entry.and_then(|entry| entry.value).expect("who leaves has joined")
    }

    /// Once many have waited: a host can have them wait for one namespace after the other.
    fn give_back(&mut self) {
        if self.entries.len() == 1 && self.most > SPARE {
            *self = Self::default();
        }
    }

    /// Whoever is at a place.
    pub fn at(&mut self, place: Place) -> &mut T {
        self.entry(place.0).value.as_mut().expect("who is asked for has joined")
    }

    /// The first of a line.
    pub fn first(&self, line: Line) -> Option<Place> {
        let behind = self.entries.get(line.0)?.behind;
        (behind != line.0).then_some(Place(behind))
    }

    /// Puts all who wait in a line behind those of another, in their order.
    pub fn append(&mut self, from: Line, to: Line) {
        let (first, last) = (self.entry(from.0).behind, self.entry(from.0).before);
        if first == from.0 {
            return;
        }
        let end = std::mem::replace(&mut self.entry(to.0).before, last);
        self.entry(end).behind = first;
        self.entry(first).before = end;
        self.entry(last).behind = to.0;
        (self.entry(from.0).before, self.entry(from.0).behind) = (from.0, from.0);
    }

    fn insert(&mut self, value: Option<T>) -> u32 {
        let Ok(index) = self.entries.insert(Entry { value, before: 0, behind: 0 }) else {
            unreachable!("more who wait than memory has room for")
        };
        self.most = self.most.max(self.entries.len());
        (self.entry(index).before, self.entry(index).behind) = (index, index);
        index
    }

    fn entry(&mut self, index: u32) -> &mut Entry<T> {
        self.entries.get_mut(index).expect("what is linked is there")
    }

    /// Leaves a ring, and is one by itself.
    fn unlink(&mut self, index: u32) {
        let (before, behind) = (self.entry(index).before, self.entry(index).behind);
        self.entry(before).behind = behind;
        self.entry(behind).before = before;
        (self.entry(index).before, self.entry(index).behind) = (index, index);
    }

    fn link(&mut self, index: u32, line: Line) {
        let last = std::mem::replace(&mut self.entry(line.0).before, index);
        self.entry(last).behind = index;
        (self.entry(index).before, self.entry(index).behind) = (last, line.0);
    }
}
