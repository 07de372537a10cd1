//! The map: from a block's key to where its contents lie.
//!
//! A log-structured merge. Inserts go into a memtable; a flush writes it as a sorted run of 4 KiB
//! pages; runs are merged into levels, each several times larger than the one above, in steps of one
//! table. Memory is bounded by [`MapLimits`] whatever the capacity: the memtables, a page cache, and
//! filters that let a lookup pass by levels that do not know its block. Holes are ranges.
//!
//! What it says of a block is one of four things ([`Contents`]): where its contents are, that it was given back (a
//! hole), that its contents are lost, or nothing: it was never written here (absent).
//!
//! One task at a time works on levels (`maintain`, or a flush that must wait for it); lookups and
//! inserts go on beside it, since every change of state is synchronous and a lookup's step sees one
//! state. Locations whose contents were replaced are reported to [`Pages::superseded`], each once:
//! at once when the memtable knew them, else when a merge meets them.
//!
//! Nothing is durable before its manifest is: [`Map::manifest`] names every page, and what was
//! inserted since the last flush is the caller's to insert again after [`Map::open`].
//!
//! A block may have several versions (decision 0026). Each stays where it is in the order of levels: newer ones are
//! never below older ones, but for what was learnt again after a crash, which hides what is not older below it. What no snapshot sees any more is superseded wherever two versions meet.

mod absent;
mod bits;
mod cache;
mod changes;
mod check;
mod count;
mod extents;
mod filter;
mod flat;
mod flush;
mod limits;
mod lookup;
mod maintain;
mod manifest;
mod memtable;
mod merge;
mod named;
mod page;
mod policy;
mod references;
mod source;
mod stack;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod writer;
mod written;

pub(crate) use check::{Checked, News, PageKind, empty_page};
pub use count::{Span, Tally};
pub use extents::{Contents, Extent, Extents};
pub use limits::MapLimits;
pub use lookup::Period;
pub(crate) use manifest::{assemble, records};

use crate::address::{BLOCK, Encoding, Entry, Key, Location, Stored, Version, View};
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::format::Bad;
use flat::{Flat, flat};
use reactor::sync::Semaphore;
use state::State;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use writer::Writer;

/// Where the map keeps its pages, and whom it tells of replaced contents.
#[allow(async_fn_in_trait, reason = "a map and its pages stay on one reactor")]
pub trait Pages {
    /// Reads blocks in adjacent slots into `out`, whose length is theirs, each verified against its
    /// checksum. Pages just appended must be readable.
    async fn read(&self, first: Location, crcs: &[u32], out: &mut [u8]) -> Result<()>;

    /// Places a page; tells where, and its CRC-32C. It need be durable only when a manifest taken
    /// later is.
    async fn append(&self, page: &[u8; BLOCK]) -> Result<Entry>;

    /// Contents one behind another that nothing refers to any more, all encoded in the same way: user blocks replaced,
    /// and the map's own pages. Called in the middle of changes: it must not call the map.
    fn superseded(&self, first: Location, encoding: Encoding, blocks: u32);

    /// Whether some snapshot of the view sees what was written in one version and replaced in the other, a newer one: it is
    /// not older than the first, and older than the second. Without a snapshot nothing is needed but the newest.
    fn is_needed(&self, view: View, written: Version, replaced: Version) -> bool;

    /// All versions that snapshots of the view see, in ascending order, added to `out`.
    fn seen(&self, view: View, out: &mut Vec<Version>);

    /// How often what snapshots see has changed: counted up with each change, and for a new one before anything is written
    /// in a later version. Asked for each block that a merge comes by.
    fn seen_changes(&self) -> u64;

    /// Whether the view is a clone's: where it has nothing its parent is asked, so that its holes stay, whatever lies below.
    fn keeps_holes(&self, view: View) -> bool;
}

/// One shard's map. See the module's text.
pub struct Map<P: Pages> {
    pages: P,
    state: RefCell<State>,
    /// One flush at a time, one merge at a time.
    flushing: Semaphore,
    merging: Semaphore,
    flush_writer: RefCell<Option<Box<Writer>>>,
    merge_writer: RefCell<Option<Box<Writer>>>,
    /// Pages appended for tables that are not yet part of the map: by a flush, by a merge.
    appended: [Rc<RefCell<Vec<Location>>>; 2],
    spare: RefCell<Vec<Box<[u8; BLOCK]>>>,
    reads: Cell<u64>,
}

/// What is asked of merges as long as this is held: see [`Map::compacting`] and [`Map::pruning`].
pub struct Demand<'a, P: Pages> {
    map: &'a Map<P>,
    /// How many ask for the same.
    count: fn(&mut State) -> &mut u32,
}

impl<'a, P: Pages> Demand<'a, P> {
    fn new(map: &'a Map<P>, count: fn(&mut State) -> &mut u32) -> Self {
        *count(&mut map.state.borrow_mut()) += 1;
        Self { map, count }
    }
}

impl<P: Pages> Drop for Demand<'_, P> {
    fn drop(&mut self) {
        *(self.count)(&mut self.map.state.borrow_mut()) -= 1;
    }
}

/// What the map is made of, for people and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapStatus {
    /// Entries of the memtables.
    pub memtable: u64,
    pub runs: u64,
    pub tables: u64,
    pub leaves: u64,
    /// Leaves of each level, the newest first.
    pub levels: [u64; limits::LEVELS],
    /// Bytes of filters in memory.
    pub filters: u64,
    /// Bytes of memory held: memtables, cache, filters, table descriptors, what clones are known to have nothing of.
    pub memory: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    /// Pages that lookups had to read.
    pub reads: u64,
    /// Filters are still to be loaded after opening, which [`Map::maintain`] does.
    pub filters_missing: bool,
}

impl<P: Pages> Map<P> {
    /// An empty map.
    #[must_use]
    pub fn new(pages: P, limits: MapLimits) -> Self {
        Self::with_state(pages, State::new(limits))
    }

    fn with_state(pages: P, state: State) -> Self {
        Self {
            pages,
            state: RefCell::new(state),
            flushing: Semaphore::new(1),
            merging: Semaphore::new(1),
            flush_writer: RefCell::new(None),
            merge_writer: RefCell::new(None),
            appended: [Rc::default(), Rc::default()],
            spare: RefCell::new(Vec::new()),
            reads: Cell::new(0),
        }
    }

    #[must_use]
    pub const fn pages(&self) -> &P {
        &self.pages
    }

    /// Waits until `entries` more fit the memtable: a block each for contents and lost ones, 2 for a range of
    /// holes. Room is not kept for the caller: no `.await` may come between this and the inserts.
    ///
    /// # Errors
    /// Those of the flush that makes room; `Invalid` when a memtable never holds so many.
    pub async fn reserve(&self, entries: usize) -> Result<()> {
        if entries > self.state.borrow().limits.memtable_entries() {
            return Err(Error::new(Kind::Invalid, format!("{entries} map entries at once")));
        }
        while self.room() < entries {
            self.flush().await?;
        }
        Ok(())
    }

    /// Entries the memtable takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        let state = self.state.borrow();
        state.memtable_room()
    }

    /// Blocks from `key` on have contents from `first` on, one behind another, encoded in this way, since a version of
    /// their view; `crcs` has the checksum of each. What they had since the same version is replaced, and what they had
    /// since an older one, unless a snapshot sees it. Takes one entry of room a block.
    ///
    /// # Panics
    /// When there is no room: see [`reserve`](Self::reserve).
    pub fn insert(
        &self,
        key: Key,
        version: Version,
        first: Location,
        encoding: Encoding,
        crcs: &[u32],
    ) {
        self.insert_each(key, version, crcs.len(), |n| {
            let location = first.forward(stdx::num::u32_of(n) * encoding.grains());
            Some(Stored { location, encoding, crc: crcs[n] })
        });
    }

    /// The contents of `count` blocks from `key` on are lost, since a version. Takes one entry of room a block.
    ///
    /// # Panics
    /// When there is no room: see [`reserve`](Self::reserve).
    pub fn insert_lost(&self, key: Key, version: Version, count: usize) {
        self.insert_each(key, version, count, |_| None);
    }

    fn insert_each(
        &self,
        key: Key,
        version: Version,
        count: usize,
        stored: impl Fn(usize) -> Option<Stored>,
    ) {
        let mut state = self.state.borrow_mut();
        assert!(state.takes(count), "room is reserved before inserting");
        let start = flat(key.view, key.block);
        for n in 0..count {
            let at = start + Flat::from(stdx::num::u64_of(n));
            state.active.insert(&self.pages, at, version, stored(n));
        }
        learnt(&mut state, start, start + Flat::from(stdx::num::u64_of(count)));
    }

    /// `count` blocks of a view from `first` on are holes, since a version. Takes 2 entries of room.
    ///
    /// # Panics
    /// When there is no room: see [`reserve`](Self::reserve).
    pub fn insert_hole(&self, view: View, version: Version, first: u64, count: u64) {
        if count == 0 {
            return;
        }
        let start = flat(view, first);
        let mut state = self.state.borrow_mut();
        assert!(state.takes(2), "room is reserved before inserting");
        state.active.insert_hole(&self.pages, start, start + Flat::from(count), version);
        learnt(&mut state, start, start + Flat::from(count));
    }

    /// Does a bounded piece of the work that is due: flushes a memtable that is nearly full, or
    /// merges. Tells whether there may be more to do.
    ///
    /// # Errors
    /// Those of reading and appending pages; nothing is lost, and it can be tried again.
    pub async fn maintain(&self) -> Result<bool> {
        let nearly_full = {
            let state = self.state.borrow();
            state.memtable_room() * 4 < state.limits.memtable_entries()
        };
        if nearly_full {
            self.flush().await?;
            return Ok(true);
        }
        if self.load_filter().await? {
            return Ok(true);
        }
        if self.merge_once().await? {
            return Ok(true);
        }
        // Nothing to be taken a turn for, as a rule.
        let pruning = self.state.borrow().pruning > 0;
        Ok(pruning && self.prune_once().await?)
    }

    /// Merges all that was flushed into one level, so that every superseded place was reported. Costs
    /// reading and writing the map once: for when space is needed more than time.
    ///
    /// # Errors
    /// As [`maintain`](Self::maintain).
    pub async fn compact(&self) -> Result<()> {
        let _compacting = self.compacting();
        while self.merge_once().await? {
            pause().await;
        }
        Ok(())
    }

    /// As long as this is held, [`maintain`](Self::maintain) merges everything into one level, due or
    /// not.
    #[must_use]
    pub fn compacting(&self) -> Demand<'_, P> {
        Demand::new(self, |state| &mut state.compacting)
    }

    /// Gives up what only snapshots saw that are no more: tables in which blocks have several versions are written anew.
    /// What is in different levels stays until they are merged ([`compact`](Self::compact)).
    ///
    /// # Errors
    /// As [`maintain`](Self::maintain).
    pub async fn prune(&self) -> Result<()> {
        let _pruning = self.pruning();
        while self.prune_once().await? {
            pause().await;
        }
        Ok(())
    }

    /// As long as this is held, [`maintain`](Self::maintain) does what [`prune`](Self::prune) does, for what was written
    /// before now.
    #[must_use]
    pub fn pruning(&self) -> Demand<'_, P> {
        {
            let mut state = self.state.borrow_mut();
            state.prune_before = state.next_table;
        }
        Demand::new(self, |state| &mut state.pruning)
    }

    #[must_use]
    pub fn status(&self) -> MapStatus {
        let state = self.state.borrow();
        let tables = || state.sorted().flat_map(|l| l.tables());
        let count = |n: usize| stdx::num::u64_of(n);
        MapStatus {
            memtable: count(state.active.used() + state.frozen.used()),
            runs: count(state.runs.len()),
            tables: count(tables().count()),
            leaves: tables().map(|t| u64::from(t.leaves)).sum(),
            levels: std::array::from_fn(|l| state.levels[l].leaves()),
            filters: count(state.filter_bytes),
            memory: count(state.bytes()),
            cache_hits: state.cache.hits,
            cache_misses: state.cache.misses,
            reads: self.reads.get(),
            filters_missing: state.filters_missing,
        }
    }
}

/// Something came to be at positions `from..to`.
fn learnt(state: &mut State, from: Flat, to: Flat) {
    if !canary::skips(Step::AbsentForgets) {
        state.absent.forget(from, to);
    }
}

fn corrupt(location: Location, bad: Bad) -> Error {
    Error::caused(Kind::Corrupt, format!("map page at {location:?}"), bad)
}

/// Lets other tasks of the reactor run.
async fn pause() {
    let mut paused = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
