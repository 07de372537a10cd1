//! Counting blocks with contents, and lost ones, view by view: a merge of all that the map knows that writes nothing.
//!
//! It goes past the cache, a few pages of each run and level at a time, and reads no leaf of a table that alone
//! speaks of where it lies: how many blocks it was built with is known. A count goes in pieces, each of a bounded
//! number of pages: nothing is kept between them but how far it came.
//!
//! What each block is said to be was true at one instant of the piece. Memtables are asked as they are. Runs and
//! levels are those there were when the piece began: merges only put the same into other pages, and those read here
//! stay for as long as the caller's grace. A flush is what makes a memtable's contents a run that this piece does not
//! have: it ends there.

mod versions;

use super::flat::{END, Flat, Item, end_of_view, flat, low64, unflat};
use super::lookup::Period;
use super::memtable::{Cursor, Memtable};
use super::page::ITEMS_MAX;
use super::source::Source;
use super::state::State;
use super::{Map, Pages};
use crate::address::{Key, Version, View};
use crate::error::Result;
use std::ops::Range;
use versions::{Layers, has_contents, is_alone};

/// Steps before others on the core have their turn.
const COUNT_TURN: usize = 1024;

/// Who counts.
pub trait Tally {
    /// Whether what a view's blocks were before is counted as well.
    fn wants_older(&self, view: View) -> bool;

    /// So many blocks of a view more have contents, or have lost them, or had them: for what time. Of views whose older
    /// ones are not wanted that is any with the newest in it.
    fn add(&mut self, view: View, period: Period, blocks: u64);

    /// Whether it wants to know of which blocks of a view the space is not the view's alone, those of its older ones are
    /// wanted: then all leaves are read.
    fn wants_shared(&self, _: View) -> bool {
        false
    }

    /// So many of those that were told for the time have no space of their own: they refer to what others may refer to, or
    /// are lost.
    fn add_shared(&mut self, _: View, _: Period, _: u64) {}
}

impl<F: FnMut(View, u64)> Tally for F {
    fn wants_older(&self, _: View) -> bool {
        false
    }

    fn add(&mut self, view: View, _: Period, blocks: u64) {
        self(view, blocks);
    }
}

/// Blocks of which something newer than the map says whether they have contents, or should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: Key,
    /// At least 1, all of one view.
    pub blocks: u64,
    pub has_contents: bool,
    /// Those contents are nobody else's.
    pub is_alone: bool,
}

impl Span {
    fn stretch(&self) -> Stretch {
        let start = flat(self.first.view, self.first.block);
        let end = start + Flat::from(self.blocks);
        Stretch { start, end, has_contents: self.has_contents, is_alone: self.is_alone }
    }
}

/// What a layer says of positions next to each other.
#[derive(Clone, Copy)]
struct Stretch {
    start: Flat,
    end: Flat,
    has_contents: bool,
    is_alone: bool,
}

impl From<&Item> for Stretch {
    fn from(item: &Item) -> Self {
        let (has_contents, is_alone) = (has_contents(item.place), is_alone(item.place));
        Self { start: item.start, end: item.end(), has_contents, is_alone }
    }
}

/// A memtable, as it is until the next await.
#[derive(Default)]
struct Looked {
    next: Option<Stretch>,
    since: Version,
    cursor: Cursor,
    checksums: Vec<u32>,
}

impl Looked {
    /// Stands at the first item that ends after `at`.
    fn look(&mut self, memtable: &Memtable, at: Flat) {
        let item = memtable.next(at, &mut self.cursor, &mut self.checksums, ITEMS_MAX);
        self.since = item.map_or(Version::FIRST, |(_, since)| since);
        self.next = item.map(|(item, _)| Stretch::from(&item));
    }
}

/// What has to be done before the count goes on.
enum Next {
    Done,
    /// The index page of the next table of a source, all of that table, and the next leaves of one that is open.
    Index(usize),
    Open(usize),
    Leaves(usize),
    Pause,
}

/// Layers: what is newer than the map, its two memtables, and then its runs and levels, the newest first.
const NEWER: usize = 0;
const MEMTABLES: usize = 1;
const SOURCES: usize = 3;

struct Count<'a> {
    at: Flat,
    end: Flat,
    newer: &'a [Span],
    memtables: [Looked; 2],
    sources: Vec<Source>,
    /// Where what each layer says next begins, behind `at` or there.
    starts: Vec<Flat>,
    /// Blocks found of one view, and not told yet.
    found: (View, u64),
    /// What the blocks at `at` were, where that is wanted.
    layers: Layers,
}

impl<'a> Count<'a> {
    fn new(state: &State, range: Range<Flat>, newer: &'a [Span]) -> Self {
        let sources: Vec<_> = state.sorted().map(|level| Source::cut(level, range.start)).collect();
        let limit = sources.iter().map(|source| source.limit).min().unwrap_or(END);
        Self {
            at: range.start,
            end: range.end.min(limit),
            newer,
            memtables: <[Looked; 2]>::default(),
            starts: vec![END; SOURCES + sources.len()],
            sources,
            found: (unflat(range.start).view, 0),
            layers: Layers::default(),
        }
    }

    fn reads(&self) -> usize {
        self.sources.iter().map(Source::reads).sum()
    }

    /// Counts as far as that needs no page.
    fn go_on(&mut self, state: &State, found: &mut impl Tally) -> Result<Next> {
        // Whatever happened to them meanwhile.
        for (looked, memtable) in self.memtables.iter_mut().zip([&state.active, &state.frozen]) {
            looked.look(memtable, self.at);
        }
        for _ in 0..COUNT_TURN {
            if let Some(source) = self.stand(state)? {
                return Ok(Next::Leaves(source));
            }
            let (layer, others) = self.first();
            let start = self.starts[layer];
            if start >= self.end {
                self.at = self.end;
                return Ok(Next::Done);
            }
            self.at = start;
            let wants_older = found.wants_older(unflat(start).view);
            let unopened = self.source(layer).and_then(|n| Some((n, self.sources[n].unopened()?)));
            let next = match unopened {
                Some((n, table)) => {
                    let alone = table.low == start
                        && table.high <= others.min(self.end)
                        && table.high <= end_of_view(start)
                        && !(wants_older && table.has_versions)
                        && !found.wants_shared(unflat(start).view);
                    let (high, blocks) = (table.high, table.blocks);
                    match if alone { self.sources[n].is_whole()? } else { Some(false) } {
                        None => Some(Next::Index(n)),
                        Some(false) => Some(Next::Open(n)),
                        Some(true) => {
                            self.add(start, blocks, found);
                            self.at = high;
                            None
                        }
                    }
                }
                None if wants_older => self.take_versions(state, found),
                None => self.take(layer, others, found)?,
            };
            if let Some(next) = next {
                return Ok(next);
            }
        }
        Ok(Next::Pause)
    }

    const fn source(&self, layer: usize) -> Option<usize> {
        layer.checked_sub(SOURCES)
    }

    /// Has every layer stand at what it says of `at`, or next. Gives the source that has to read for that.
    fn stand(&mut self, state: &State) -> Result<Option<usize>> {
        let at = self.at;
        while self.newer.first().is_some_and(|span| span.stretch().end <= at) {
            self.newer = &self.newer[1..];
        }
        self.starts[NEWER] = self.newer.first().map_or(END, |span| span.stretch().start.max(at));
        let memtables = [&state.active, &state.frozen];
        for (n, (looked, memtable)) in self.memtables.iter_mut().zip(memtables).enumerate() {
            if looked.next.is_some_and(|next| next.end <= at) {
                looked.look(memtable, at);
            }
            self.starts[MEMTABLES + n] = looked.next.map_or(END, |next| next.start.max(at));
        }
        for (n, source) in self.sources.iter_mut().enumerate() {
            while let Some(item) = source.current().filter(|item| item.start < at) {
                let is_over = item.end() <= at;
                if !source.take_now(at)? && is_over {
                    return Ok(Some(n));
                }
            }
            while source.unopened().is_some_and(|table| table.high <= at) {
                source.skip_table();
            }
            let start = match source.current() {
                Some(item) => item.start,
                None => source.unopened().map_or(END, |table| table.low.max(at)),
            };
            self.starts[SOURCES + n] = start;
        }
        Ok(None)
    }

    /// The newest layer of those that say something first, and where another one does.
    fn first(&self) -> (usize, Flat) {
        let (mut first, mut others) = (NEWER, END);
        for (layer, &start) in self.starts.iter().enumerate().skip(1) {
            if start < self.starts[first] {
                (first, others) = (layer, self.starts[first]);
            } else {
                others = others.min(start);
            }
        }
        (first, others)
    }

    /// Counts what a layer says from `at` on: all of it before another one says something, or, where others do at once,
    /// what it says first.
    fn take(&mut self, layer: usize, others: Flat, found: &mut impl Tally) -> Result<Option<Next>> {
        let alone = others > self.at;
        let newer = self.starts[..layer].iter().copied().min().unwrap_or(END);
        // Of the next view older ones may be wanted.
        let limit = if alone { others } else { newer }.min(self.end).min(end_of_view(self.at));
        let Some(n) = self.source(layer) else {
            let stretch = match layer {
                NEWER => self.newer.first().map(Span::stretch),
                _ => self.memtables[layer - MEMTABLES].next,
            };
            if let Some(stretch) = stretch {
                self.count(stretch, limit, found);
            }
            return Ok(None);
        };
        while let Some(item) = self.sources[n].current().filter(|item| item.start < limit) {
            let (stretch, ends) = (Stretch::from(item), item.end() <= limit);
            self.count(stretch, limit, found);
            if !self.sources[n].take_now(self.at)? && ends {
                return Ok(Some(Next::Leaves(n)));
            }
            if !alone {
                break;
            }
        }
        Ok(None)
    }

    /// Counts what a stretch has from `at` on and before `limit`.
    fn count(&mut self, stretch: Stretch, limit: Flat, found: &mut impl Tally) {
        let (start, end) = (stretch.start.max(self.at), stretch.end.min(limit));
        if stretch.has_contents {
            self.add(start, low64(end - start), found);
        }
        self.at = end;
    }

    /// Counts blocks that are so since the first version, or of whose older ones nobody wants to know.
    fn add(&mut self, at: Flat, blocks: u64, found: &mut impl Tally) {
        let view = unflat(at).view;
        if view != self.found.0 {
            self.tell(found);
            self.found.0 = view;
        }
        self.found.1 += blocks;
    }

    fn tell(&mut self, found: &mut impl Tally) {
        let (view, blocks) = (self.found.0, std::mem::take(&mut self.found.1));
        if blocks > 0 {
            found.add(view, Period { since: Version::FIRST, until: None }, blocks);
        }
    }
}

impl<P: Pages> Map<P> {
    /// Counts the blocks with contents, and lost ones, of a range of keys, where `newer`, in order, lies over what the
    /// map says: tells `found` how many there are of a view, more than once perhaps. Where what they were before is
    /// wanted, `newer` is of no version that a snapshot sees. Ends once about so many pages
    /// were read, or `stop` says so; gives the key that comes next. The pages of the map must stay where they are
    /// meanwhile.
    ///
    /// # Errors
    /// Those of reading pages; `Corrupt` when a page makes no sense.
    pub async fn count(
        &self,
        range: Range<Key>,
        newer: &[Span],
        pages: usize,
        stop: impl Fn() -> bool,
        mut found: impl Tally,
    ) -> Result<Key> {
        let range =
            flat(range.start.view, range.start.block)..flat(range.end.view, range.end.block);
        let (mut count, flushed) = {
            let state = self.state.borrow();
            (Count::new(&state, range.clone(), newer), state.flushed)
        };
        loop {
            let next = {
                let state = self.state.borrow();
                if state.flushed != flushed {
                    break;
                }
                count.go_on(&state, &mut found)?
            };
            let at = count.at;
            // The first pages of all sources are not worth much without more of them.
            let enough = at > range.start && count.reads() >= pages;
            match next {
                Next::Done => break,
                _ if enough || stop() => break,
                Next::Index(n) => count.sources[n].read_index(&self.pages).await?,
                Next::Open(n) => count.sources[n].open(&self.pages).await?,
                Next::Leaves(n) => count.sources[n].take_until(&self.pages, at).await?,
                Next::Pause => super::pause().await,
            }
        }
        count.tell(&mut found);
        Ok(unflat(count.at))
    }
}
