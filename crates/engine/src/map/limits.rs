//! Every bound of the map, with its reason.

use super::memtable;

/// Levels below the flushed runs. With ratios of 6 and 16, seven hold more than 100 000 rounds of
/// runs, which is more than 2^40 blocks.
pub(super) const LEVELS: usize = 7;

/// Segments the leaves of one table may lie in: evacuating a segment visits the tables that name it.
pub(super) const TABLE_SEGMENTS: usize = 16;

/// Most leaves of a table that its index page may have to name; how many fit depends on their keys.
pub(super) const TABLE_LEAVES: usize = 448;

/// Blocks a table with filters may know: bounds the fingerprints gathered while it is built.
pub(super) const TABLE_KEYS: usize = 160 << 10;

/// Fewer leaves are not worth a table of their own when neighbours can join.
pub(super) const TABLE_LEAVES_LEAST: usize = 64;

/// Runs of superseded blocks gathered by one merge step before it must end and report them.
pub(super) const STEP_REPORTS: usize = 64 << 10;

/// Pages read at once for a merge, where they lie side by side.
pub(super) const READ_AHEAD: usize = 16;

/// The least memory for pages: enough for one lookup's pages many times over.
pub(super) const CACHE_LEAST: usize = 256 << 10;

/// The least memory for one memtable.
pub(super) const MEMTABLE_LEAST: usize = 64 << 10;

/// How much memory one shard's map may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLimits {
    /// Bytes of one memtable; there are two while one is flushed. Its chunks are two thirds full
    /// as a rule; keys in an order made to split them could make it take twice as much.
    pub memtable: usize,
    /// Bytes of the page cache.
    pub cache: usize,
    /// Bytes of filters. Tables for which none is left are read to find out.
    pub filters: usize,
    /// Flushed runs that start a merge.
    pub runs: usize,
    /// Leaves of a table: the unit of merging. Smaller ones only in tests.
    pub table_leaves: usize,
    /// How many times a level is larger than the one above it.
    pub ratio: u64,
    /// How many times the last level is larger than the one above it. What lies above the last one
    /// needs filters in memory, so it must be a small part; what is merged into the last level is
    /// written half as often as this.
    pub ratio_last: u64,
}

/// Flushed runs at which a flush first helps merging: twice what starts a merge, so that lookups
/// never have more to look at.
pub(super) const RUNS_FACTOR: usize = 2;

/// Bytes of buffers besides: page builders, fingerprints being gathered, read-ahead.
pub(super) const BUFFERS: usize = 4 << 20;

impl MapLimits {
    /// Divides `bytes` for a map that may fill up with random single blocks.
    #[must_use]
    pub fn for_memory(bytes: usize) -> Self {
        let rest = bytes.saturating_sub(BUFFERS.min(bytes / 4));
        let memtable = (rest / 14).max(MEMTABLE_LEAST);
        let filters = rest / 16 * 10;
        let cache = rest.saturating_sub(2 * memtable + filters).max(CACHE_LEAST);
        Self {
            memtable,
            cache,
            filters,
            runs: 10,
            table_leaves: TABLE_LEAVES,
            ratio: 6,
            ratio_last: 16,
        }
    }

    /// As [`for_memory`](Self::for_memory), for a map that is looked at and learns what a crash left
    /// unflushed, but is never flushed: whatever two memtables of the largest map held finds room.
    #[must_use]
    pub(crate) fn for_dump(bytes: usize) -> Self {
        Self { memtable: 64 << 20, ..Self::for_memory(bytes) }
    }

    /// As little as a map does with, so that a few blocks make levels: for the simulator.
    pub(crate) fn next_to_nothing() -> Self {
        Self { table_leaves: 4, runs: 3, ratio: 2, ratio_last: 3, ..Self::for_memory(0) }
    }

    /// Chunks of a memtable.
    pub(super) const fn memtable_chunks(&self) -> usize {
        self.memtable / memtable::CHUNK_BYTES
    }

    /// Entries a memtable takes whatever their order.
    pub(super) const fn memtable_entries(&self) -> usize {
        self.memtable_chunks() * memtable::CHUNK_ENTRIES
    }
}

impl Default for MapLimits {
    /// 64 MiB: what a full volume of 1 TiB needs for one read a lookup.
    fn default() -> Self {
        Self::for_memory(64 << 20)
    }
}

/// Pages kept to read into: those of a few tens of lookups that wait at once.
pub(super) const SPARE_PAGES: usize = 64;

/// Tables a merge looks ahead in each of its inputs: a step ends before it would need more.
pub(super) const SOURCE_TABLES: usize = 64;
