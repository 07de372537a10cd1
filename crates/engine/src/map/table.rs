//! Tables: the unit in which runs are kept, merged and given up. Up to some 400 leaves, an index page
//! that names them, and for the upper levels filter pages.

use super::filter::Filter;
use super::flat::Flat;
use crate::address::{Entry, SegmentId};
use std::rc::Rc;

/// A table that exists: its pages never change.
#[derive(Clone)]
pub(super) struct Table {
    /// Unique within the map.
    pub id: u64,
    /// What lies before has been merged away: the table no longer speaks of it.
    pub low: Flat,
    /// Where its last item ends.
    pub high: Flat,
    /// Blocks with contents, and lost ones, when it was built.
    pub blocks: u64,
    pub leaves: u32,
    /// Leaves after `low`, if they are spread evenly over the keys.
    pub left: u32,
    /// All its pages.
    pub pages: u32,
    pub index: Entry,
    /// The page that names its filter pages, and how many those are.
    pub filters: Option<(Entry, u32)>,
    /// The page of its long stretches without contents, when filters do not speak of them.
    pub holes: Option<Entry>,
    pub segments: Vec<SegmentId>,
    /// Whether some item has another version than the first, and some blocks have several.
    pub has_versions: bool,
    pub has_stacks: bool,
    /// Some item may be a reference to a shared block.
    pub may_refer: bool,
    /// In memory, when it was loaded and there is room.
    pub filter: Option<Rc<Filter>>,
}

impl Table {
    /// The table, no longer speaking of what lies before `low`.
    pub fn cut(&self, low: Flat) -> Self {
        let (all, rest) = (self.high - self.low, self.high - low);
        // Keys have 72 bits and leaves 9: no overflow.
        let left = Flat::from(self.left) * rest / all.max(1);
        Self { low, left: u32::try_from(left).unwrap_or(self.left), ..self.clone() }
    }

    pub const fn covers(&self, at: Flat) -> bool {
        self.low <= at && at < self.high
    }
}

/// A place in the order of age: a flushed run (0 is the oldest), or a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Run(usize),
    Level(usize),
}

/// Tables that do not overlap, in order.
#[derive(Clone, Default)]
pub(super) struct Level {
    /// `low` of each table, for searching without following pointers.
    lows: Vec<Flat>,
    tables: Vec<Rc<Table>>,
}

impl Level {
    pub const EMPTY: Self = Self { lows: Vec::new(), tables: Vec::new() };

    /// From tables in order.
    pub fn from_tables(tables: Vec<Rc<Table>>) -> Self {
        debug_assert!(tables.windows(2).all(|w| w[0].high <= w[1].low));
        Self { lows: tables.iter().map(|t| t.low).collect(), tables }
    }

    pub fn tables(&self) -> &[Rc<Table>] {
        &self.tables
    }

    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The first table that ends after `at`: it covers `at`, or begins later.
    pub fn position(&self, at: Flat) -> usize {
        let after = self.lows.partition_point(|&low| low <= at);
        match after.checked_sub(1) {
            Some(before) if self.tables[before].high > at => before,
            _ => after,
        }
    }

    pub fn get(&self, position: usize) -> Option<&Rc<Table>> {
        self.tables.get(position)
    }

    /// Bytes of its descriptors.
    pub fn bytes(&self) -> usize {
        let segments: usize = self.tables.iter().map(|t| t.segments.capacity() * 4).sum();
        self.tables.len() * (size_of::<Flat>() + size_of::<Rc<Table>>() + 16 + size_of::<Table>())
            + segments
    }

    /// Leaves that still speak of something.
    pub fn leaves(&self) -> u64 {
        self.tables.iter().map(|t| u64::from(t.left)).sum()
    }

    /// The tables that [`consume`](Self::consume) would return.
    pub fn used_up(&self, from: Flat, to: Flat) -> impl Iterator<Item = Rc<Table>> {
        let first = self.position(from);
        self.tables[first..].iter().take_while(move |t| t.high <= to).cloned()
    }

    /// Gives up what the level says of positions in `from..to`: tables that lie in it go and are
    /// returned, one that reaches beyond `to` is cut. None reaches into it from before `from`.
    pub fn consume(&mut self, from: Flat, to: Flat) -> Vec<Rc<Table>> {
        let first = self.position(from);
        let mut last = first;
        while self.tables.get(last).is_some_and(|t| t.high <= to) {
            last += 1;
        }
        if let Some(table) = self.tables.get_mut(last)
            && table.low < to
        {
            *table = Rc::new(table.cut(to));
            self.lows[last] = to;
        }
        self.lows.drain(first..last);
        self.tables.drain(first..last).collect()
    }

    /// Puts a table where nothing else is.
    pub fn insert(&mut self, table: Rc<Table>) {
        let position = self.lows.partition_point(|&low| low <= table.low);
        self.lows.insert(position, table.low);
        self.tables.insert(position, table);
    }

    /// Puts another table of the same keys in the place of one.
    pub fn replace(&mut self, table: &Rc<Table>) -> bool {
        let position = self.tables.iter().position(|t| t.id == table.id);
        if let Some(position) = position {
            self.tables[position] = Rc::clone(table);
        }
        position.is_some()
    }
}
