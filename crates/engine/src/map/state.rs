//! All that the map is, changed by synchronous functions only.

use super::absent::Absent;
use super::cache::Cache;
use super::filter::Width;
use super::flat::{END, Flat};
use super::limits::{LEVELS, MapLimits, RUNS_FACTOR};
use super::memtable::{CHUNK_ENTRIES, Memtable};
use super::table::{Group, Level, Table};
use std::rc::Rc;

pub(super) struct State {
    pub limits: MapLimits,
    /// Takes inserts: what is there is absent no more.
    pub active: Memtable,
    /// Being flushed; it stays until its run is part of the map.
    pub frozen: Memtable,
    /// Flushed runs, oldest first. They overlap.
    pub runs: Vec<Level>,
    /// Each older than the one before.
    pub levels: [Level; LEVELS],
    pub cache: Cache,
    /// What is in none of those, as far as it was looked for and is remembered.
    pub absent: Absent,
    pub next_table: u64,
    /// Tables from this number on say whether they have references.
    pub told_from: u64,
    /// Changes whenever tables do.
    pub version: u64,
    /// Memtables that became runs, ever.
    pub flushed: u64,
    /// Where the next merge out of each level begins.
    pub cursors: [Flat; LEVELS],
    /// Oldest runs that are being merged together: a round begun with them ends with them.
    pub sweeping: usize,
    /// How many want everything merged into the last level, due or not.
    pub compacting: u32,
    /// How many want what no snapshot sees given up, and the tables that may have it: those older than this one.
    pub pruning: u32,
    pub prune_before: u64,
    pub filter_bytes: usize,
    /// Some tables have filters that were not loaded yet.
    pub filters_missing: bool,
    /// Some table's filter is not in memory for want of room.
    pub filters_dropped: bool,
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
            absent: Absent::new(),
            next_table: 1,
            told_from: 1,
            version: 0,
            flushed: 0,
            cursors: [0; LEVELS],
            sweeping: 0,
            compacting: 0,
            pruning: 0,
            prune_before: 0,
            filter_bytes: 0,
            filters_missing: false,
            filters_dropped: false,
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

    /// The filters of a table built for a group.
    pub fn width_for(group: Group) -> Option<Width> {
        match group {
            Group::Run(_) => Some(Width::Wide),
            Group::Level(level) if level < LEVELS - 2 => Some(Width::Wide),
            Group::Level(level) => (level == LEVELS - 2).then_some(Width::Narrow),
        }
    }

    /// Entries the memtable takes now.
    pub fn memtable_room(&self) -> usize {
        let free = self.limits.memtable_chunks().saturating_sub(self.active.chunks());
        free * CHUNK_ENTRIES
    }

    /// Whether `entries` more stay within what the memtable holds with full chunks. Whatever fitted
    /// [`memtable_room`](Self::memtable_room) does.
    pub fn takes(&self, entries: usize) -> bool {
        self.active.taken() + entries <= self.limits.memtable_chunks() * 2 * CHUNK_ENTRIES
    }

    /// Whether there are so many runs that a flush must help merging before it adds one.
    pub fn runs_full(&self) -> bool {
        self.runs.len() >= self.limits.runs * RUNS_FACTOR
    }

    /// Where a table written into a group must end, if it begins at `from`: the next merge out of a
    /// level goes on where the last one ended, which therefore stays the edge of a table.
    pub fn cursor_after(&self, group: Group, from: Flat) -> Flat {
        match group {
            Group::Level(level) if self.cursors[level] > from => self.cursors[level],
            _ => END,
        }
    }

    /// Levels whose tables have filters.
    pub fn filtered_levels(&self) -> impl Iterator<Item = Group> + use<> {
        (0..LEVELS - 1).map(Group::Level)
    }

    pub fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        (0..self.runs.len()).map(Group::Run).chain((0..LEVELS).map(Group::Level))
    }

    pub fn group(&self, group: Group) -> &Level {
        match group {
            Group::Run(n) => &self.runs[n],
            Group::Level(n) => &self.levels[n],
        }
    }

    pub fn group_mut(&mut self, group: Group) -> &mut Level {
        match group {
            Group::Run(n) => &mut self.runs[n],
            Group::Level(n) => &mut self.levels[n],
        }
    }

    /// Drops runs that were merged away.
    pub fn drop_empty_runs(&mut self) {
        let swept = self.runs[..self.sweeping].iter().filter(|r| r.is_empty()).count();
        self.runs.retain(|run| !run.is_empty());
        self.sweeping -= swept;
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        let memtables = self.active.bytes() + self.frozen.bytes();
        let tables: usize = self.sorted().map(Level::bytes).sum();
        memtables + self.cache.bytes() + self.absent.bytes() + self.filter_bytes + tables
    }

    /// Counts the filter of a table that becomes part of the map, or drops it for want of room.
    pub fn admit(&mut self, mut table: Table, into: Group) -> Rc<Table> {
        let last = into == Group::Level(LEVELS - 1);
        if let Some(filter) = &table.filter {
            let bytes = self.filter_bytes + filter.bytes();
            if last || bytes > self.limits.filters {
                table.filter = None;
                self.filters_dropped |= !last;
            } else {
                self.filter_bytes = bytes;
            }
        }
        Rc::new(table)
    }

    /// Counts down the filter of a table that is no longer part of the map.
    pub fn dismiss(&mut self, table: &Table) {
        if let Some(filter) = &table.filter {
            assert!(filter.bytes() <= self.filter_bytes, "a filter in memory was counted");
            self.filter_bytes -= filter.bytes();
            // Room for one that was dropped for want of it.
            self.filters_missing |= std::mem::take(&mut self.filters_dropped);
        }
    }
}
