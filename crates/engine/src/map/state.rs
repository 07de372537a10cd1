//! All that the map is, changed by synchronous functions only.

use super::cache::Cache;
use super::filter::Width;
use super::flat::Flat;
use super::limits::{LEVELS, MapLimits};
use super::memtable::Memtable;
use super::table::{Level, Table};
use std::rc::Rc;

pub(super) struct State {
    pub limits: MapLimits,
    /// Takes inserts.
    pub active: Memtable,
    /// Being flushed; it stays until its run is part of the map.
    pub frozen: Memtable,
    /// Flushed runs, oldest first. They overlap.
    pub runs: Vec<Level>,
    /// Each older than the one before.
    pub levels: [Level; LEVELS],
    pub cache: Cache,
    pub next_table: u64,
    /// Changes whenever tables do.
    pub version: u64,
    /// Where the next merge out of each level begins.
    pub cursors: [Flat; LEVELS],
    pub filter_bytes: usize,
    /// Some tables have filters that were not loaded yet.
    pub filters_missing: bool,
}

impl State {
    pub fn new(limits: MapLimits) -> Self {
        Self {
            limits,
            active: Memtable::default(),
            frozen: Memtable::default(),
            runs: Vec::new(),
            levels: [const { Level::EMPTY }; LEVELS],
            cache: Cache::new(limits.cache),
            next_table: 1,
            version: 0,
            cursors: [0; LEVELS],
            filter_bytes: 0,
            filters_missing: false,
        }
    }

    pub fn table_id(&mut self) -> u64 {
        self.next_table += 1;
        self.next_table - 1
    }

    /// Runs and levels, newest first.
    pub fn sorted(&self) -> impl Iterator<Item = &Level> {
        self.runs.iter().rev().chain(self.levels.iter().filter(|l| !l.is_empty()))
    }

    /// The filters of a table built for a level (`None`: a flushed run).
    pub fn width_for(&self, level: Option<usize>) -> Option<Width> {
        if self.filter_bytes >= self.limits.filters || level == Some(LEVELS - 1) {
            return None;
        }
        Some(if level == Some(LEVELS - 2) { Width::Narrow } else { Width::Wide })
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        let memtables = self.active.bytes() + self.frozen.bytes();
        let tables: usize = self.sorted().map(Level::bytes).sum();
        memtables + self.cache.bytes() + self.filter_bytes + tables
    }

    /// Counts the filter of a table that becomes part of the map, or drops it for want of room.
    pub fn admit(&mut self, mut table: Table, last: bool) -> Rc<Table> {
        if let Some(filter) = &table.filter {
            let bytes = self.filter_bytes + filter.bytes();
            if last || bytes > self.limits.filters {
                table.filter = None;
            } else {
                self.filter_bytes = bytes;
            }
        }
        Rc::new(table)
    }

    /// Counts down the filter of a table that is no longer part of the map.
    pub fn dismiss(&mut self, table: &Table) {
        if let Some(filter) = &table.filter {
            self.filter_bytes -= filter.bytes();
        }
    }
}
