//! Finding blocks: one synchronous step at a time, repeated after each page it had to wait for.
//!
//! A step looks from the newest level to the oldest and so sees one state of the map; what it learns
//! on the way (nothing before such a position) bounds the piece it answers for.

use super::cache::Worth;
use super::extents::{Contents, Extent, Extents};
use super::flat::{END, Flat, Place, low64, unflat};
use super::memtable::{Known, Memtable};
use super::page::{Kind, Page};
use super::state::State;
use super::table::{Level, Table};
use super::{Map, Pages, corrupt};
use crate::address::{BLOCK, Entry, Key, Location, Stored, Version, View};
use crate::error::Result;
use stdx::num::low32;

/// Blocks a filter is asked about in one step.
const PROBES: Flat = 32;

/// Steps of a scan before others on the core have their turn.
pub(super) const SCAN_TURN: usize = 64;

/// A page that was read for this lookup, whether or not the cache still has it.
pub(super) struct Held {
    entry: Entry,
    page: Box<[u8; BLOCK]>,
}

/// How a step ended.
pub(super) enum Step {
    /// Everything before this position is answered, since this version.
    Until(Flat, Version),
    Need(Entry, Worth),
}

/// What one level says of a position.
enum Said {
    /// It answered up to this position, by what is so since this version.
    Answered(Flat, Version),
    /// Nothing, up to this position.
    Nothing(Flat),
    Need(Entry, Worth),
}

/// Answers for `at` and as much as belongs to it before `limit`, by the newest that is not newer than `as_of`. Newer
/// levels have newer versions, so the first that has one of those is the one to ask.
///
/// # Errors
/// `Corrupt` when a page's fields make no sense.
pub(super) fn step(
    state: &mut State,
    held: &[Held],
    at: Flat,
    limit: Flat,
    as_of: Version,
    out: &mut Extents,
) -> Result<Step> {
    step_by(Filters::Asked, state, held, at, limit, as_of, out)
}

/// As [`step`], of the newest of a clone's own view: what that has nothing of is remembered, and passed by from then on.
fn step_of_clone(
    state: &mut State,
    held: &[Held],
    at: Flat,
    limit: Flat,
    out: &mut Extents,
) -> Result<Step> {
    let absent = state.absent.until(at, limit);
    if absent > at {
        out.push_absent(unflat(at).block, low32(low64(absent - at)));
        return Ok(Step::Until(absent, Version::FIRST));
    }
    let step = step(state, held, at, limit, Version::LAST, out)?;
    if let Step::Until(next, _) = step
        && out.ends_absent()
    {
        state.absent.note(at, next);
    }
    Ok(step)
}

/// From which version on something is so, and the last one in which it is: none for the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub since: Version,
    pub until: Option<Version>,
}

impl Period {
    /// Whether nothing came since.
    #[must_use]
    pub const fn is_newest(self) -> bool {
        self.until.is_none()
    }
}

/// Whether filters are asked before leaves are looked at. Over long ranges they cost more than they
/// save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filters {
    Asked,
    PassedBy,
}

pub(super) fn step_by(
    filters: Filters,
    state: &mut State,
    held: &[Held],
    at: Flat,
    limit: Flat,
    as_of: Version,
    out: &mut Extents,
) -> Result<Step> {
    let mut limit = limit;
    for memtable in [&state.active, &state.frozen] {
        match ask_memtable(memtable, at, limit, as_of, out) {
            Said::Nothing(until) => limit = limit.min(until),
            Said::Answered(until, since) => return Ok(Step::Until(until, since)),
            Said::Need(..) => {}
        }
    }
    let State { runs, levels, cache, .. } = state;
    for level in runs.iter().rev().chain(levels.iter()) {
        let mut pages = Cached { cache, held };
        match ask_level(filters, level, &mut pages, at, limit, as_of, out)? {
            Said::Nothing(until) => limit = limit.min(until),
            Said::Answered(until, since) => return Ok(Step::Until(until, since)),
            Said::Need(entry, worth) => return Ok(Step::Need(entry, worth)),
        }
    }
    out.push_absent(unflat(at).block, low32(low64(limit - at)));
    Ok(Step::Until(limit, Version::FIRST))
}

fn ask_memtable(
    memtable: &Memtable,
    at: Flat,
    limit: Flat,
    as_of: Version,
    out: &mut Extents,
) -> Said {
    match memtable.get(at, as_of) {
        Known::Data(stored, since) => {
            let Stored { location, encoding, crc } = stored;
            out.push_stored(unflat(at).block, location, encoding, std::iter::once(crc));
            Said::Answered(at + 1, since)
        }
        Known::Lost(since) => {
            out.push_lost(unflat(at).block, 1);
            Said::Answered(at + 1, since)
        }
        Known::Hole(end, since) => {
            let end = end.min(limit);
            out.push_hole(unflat(at).block, low32(low64(end - at)));
            Said::Answered(end, since)
        }
        Known::Nothing(next) => Said::Nothing(next),
    }
}

struct Cached<'a> {
    cache: &'a mut super::cache::Cache,
    held: &'a [Held],
}

impl Cached<'_> {
    fn get(&mut self, entry: Entry, worth: Worth) -> Option<&[u8; BLOCK]> {
        match self.held.iter().find(|h| h.entry == entry) {
            Some(held) => Some(&held.page),
            None => self.cache.get(entry, worth),
        }
    }
}

fn ask_level(
    filters: Filters,
    level: &Level,
    pages: &mut Cached<'_>,
    at: Flat,
    limit: Flat,
    as_of: Version,
    out: &mut Extents,
) -> Result<Said> {
    let Some(table) = level.get(level.position(at)) else { return Ok(Said::Nothing(limit)) };
    if !table.covers(at) {
        return Ok(Said::Nothing(table.low));
    }
    let limit = limit.min(table.high);
    if let (Filters::Asked, Some(filter)) = (filters, &table.filter) {
        let possible = filter.first_possible(at, limit.min(at + PROBES));
        if possible > at {
            return Ok(Said::Nothing(possible));
        }
    }
    let (leaf, limit) = match leaf_of(table, pages, at, as_of)? {
        Leaf::At(leaf, next) => (leaf, limit.min(next)),
        Leaf::Before(first) => return Ok(Said::Nothing(first)),
        Leaf::Need(entry) => return Ok(Said::Need(entry, Worth::Index)),
    };
    let Some(bytes) = pages.get(leaf, Worth::Leaf) else {
        return Ok(Said::Need(leaf, Worth::Leaf));
    };
    ask_leaf(bytes, at, limit, as_of, out).map_err(|bad| corrupt(leaf.location, bad))
}

fn ask_leaf(
    bytes: &[u8; BLOCK],
    at: Flat,
    limit: Flat,
    as_of: Version,
    out: &mut Extents,
) -> std::result::Result<Said, crate::format::Bad> {
    let page = Page::parse(bytes, Kind::Leaf)?;
    let Some(mut i) = page.floor(at) else { return Ok(Said::Nothing(limit.min(page.start(0)))) };
    let mut run = page.run(i)?;
    let mut since = Version::FIRST;
    if page.has_versions() && run.end() > at {
        // All over the same blocks end where this one does.
        let Some(seen) = page.version_of(i, as_of) else {
            return Ok(Said::Nothing(limit.min(run.end())));
        };
        since = page.version(seen)?;
        if seen != i {
            let end = run.end();
            (i, run) = (seen, page.run(seen)?);
            if run.end() != end {
                return Err(crate::format::Bad::Field("blocks of a stack"));
            }
        }
    }
    if run.end() <= at {
        let next = if i + 1 < page.len() { page.start(i + 1) } else { limit };
        return Ok(Said::Nothing(limit.min(next.max(at + 1))));
    }
    let (part, checksum) = page.part(&run, at)?;
    let end = part.end().min(limit);
    let count = low32(low64(end - at));
    match part.place {
        Place::At(location, encoding) => {
            let crcs = (0..stdx::num::usize32(count)).map(|n| page.checksum(checksum + n));
            out.push_stored(unflat(at).block, location, encoding, crcs);
        }
        Place::Hole => out.push_hole(unflat(at).block, count),
        Place::Lost => out.push_lost(unflat(at).block, count),
    }
    Ok(Said::Answered(end, since))
}

enum Leaf {
    /// The leaf that speaks of a position, and where the next one begins.
    At(Entry, Flat),
    /// The first leaf begins only here.
    Before(Flat),
    Need(Entry),
}

fn leaf_of(table: &Table, pages: &mut Cached<'_>, at: Flat, as_of: Version) -> Result<Leaf> {
    let Some(bytes) = pages.get(table.index, Worth::Index) else {
        return Ok(Leaf::Need(table.index));
    };
    let bad = |bad| corrupt(table.index.location, bad);
    let page = Page::parse(bytes, Kind::Index).map_err(bad)?;
    let Some(i) = page.floor(at) else { return Ok(Leaf::Before(page.start(0).max(at + 1))) };
    let run = page.run(i).map_err(bad)?;
    let within = at.min(run.end() - 1);
    let (mut leaf, mut checksum) = page.part(&run, within).map_err(bad)?;
    let next = if within + 1 < run.end() {
        at + 1
    } else if i + 1 < page.len() {
        page.start(i + 1).max(at + 1)
    } else {
        table.high
    };
    if page.has_versions() {
        let seen = leaf_of_stack(&page, i, as_of).map_err(bad)?;
        if seen < i {
            // Where it is one of several in a row, it is the last of them.
            let run = page.run(seen).map_err(bad)?;
            (leaf, checksum) = page.part(&run, run.end() - 1).map_err(bad)?;
        }
    }
    let Place::At(location, _) = leaf.place else {
        return Err(bad(crate::format::Bad::Field("place in an index")));
    };
    let crc = page.checksum(checksum);
    Ok(Leaf::At(Entry { location, crc }, next))
}

/// Of the leaves that a stack is spread over, of which `last` is the last, the one that has the newest version that is
/// not newer than `as_of`, if there is one.
fn leaf_of_stack(
    page: &Page<'_>,
    last: usize,
    as_of: Version,
) -> std::result::Result<usize, crate::format::Bad> {
    let mut leaf = last;
    loop {
        // That of the item before the leaf's first, if both are of one stack.
        let before = page.version(leaf)?;
        if before == Version::FIRST || before > as_of {
            return Ok(leaf);
        }
        leaf = leaf.checked_sub(1).ok_or(crate::format::Bad::Field("stack without a beginning"))?;
    }
}

impl<P: Pages> Map<P> {
    /// What lies at `count` blocks of a view from `first` on: `out` is cleared and filled with
    /// pieces in order, without gaps. Each block's answer was true at one instant of the call.
    ///
    /// # Errors
    /// Those of reading pages; `Corrupt` when a page makes no sense.
    pub async fn lookup(
        &self,
        view: View,
        first: u64,
        count: u32,
        out: &mut Extents,
    ) -> Result<()> {
        self.lookup_as_of(view, Version::LAST, first, count, out).await
    }

    /// As [`lookup`](Self::lookup), for a snapshot: of each block the newest that is not newer than `version`. There
    /// must be a snapshot of just that version, or what it would see may be gone.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup).
    pub async fn lookup_as_of(
        &self,
        view: View,
        version: Version,
        first: u64,
        count: u32,
        out: &mut Extents,
    ) -> Result<()> {
        let step = |state: &mut State, held: &[Held], at, end, out: &mut Extents| {
            step(state, held, at, end, version, out)
        };
        self.lookup_by(step, view, first, count, out).await
    }

    /// As [`lookup`](Self::lookup), for a clone, which has little of its own as a rule: what it has nothing of is
    /// remembered.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup).
    pub async fn lookup_own(
        &self,
        view: View,
        first: u64,
        count: u32,
        out: &mut Extents,
    ) -> Result<()> {
        self.lookup_by(step_of_clone, view, first, count, out).await
    }

    async fn lookup_by(
        &self,
        step: impl Fn(&mut State, &[Held], Flat, Flat, &mut Extents) -> Result<Step>,
        view: View,
        first: u64,
        count: u32,
        out: &mut Extents,
    ) -> Result<()> {
        out.clear();
        let mut at = super::flat::flat(view, first);
        let end = at + Flat::from(count);
        let mut held = Vec::new();
        while at < end {
            let step = step(&mut self.state.borrow_mut(), &held, at, end, out);
            match step {
                Ok(Step::Until(next, _)) => at = next,
                Ok(Step::Need(entry, worth)) => self.fetch(entry, worth, &mut held).await?,
                Err(e) => {
                    self.give_back(&mut held);
                    return Err(e);
                }
            }
        }
        self.give_back(&mut held);
        Ok(())
    }

    /// As [`lookup`](Self::lookup), as far as no page has to be read for it: how many of the first blocks
    /// `out` has the answer for.
    #[must_use]
    pub fn lookup_known(&self, view: View, first: u64, count: u32, out: &mut Extents) -> u32 {
        self.lookup_known_as_of(view, Version::LAST, first, count, out)
    }

    /// As [`lookup_known`](Self::lookup_known), for a snapshot, as [`lookup_as_of`](Self::lookup_as_of) is.
    #[must_use]
    pub fn lookup_known_as_of(
        &self,
        view: View,
        version: Version,
        first: u64,
        count: u32,
        out: &mut Extents,
    ) -> u32 {
        let step = |state: &mut State, held: &[Held], at, end, out: &mut Extents| {
            step(state, held, at, end, version, out)
        };
        self.known_by(step, view, first, count, out)
    }

    /// As [`lookup_known`](Self::lookup_known), for a clone, as [`lookup_own`](Self::lookup_own) is.
    #[must_use]
    pub fn lookup_own_known(&self, view: View, first: u64, count: u32, out: &mut Extents) -> u32 {
        self.known_by(step_of_clone, view, first, count, out)
    }

    #[inline]
    fn known_by(
        &self,
        step: impl Fn(&mut State, &[Held], Flat, Flat, &mut Extents) -> Result<Step>,
        view: View,
        first: u64,
        count: u32,
        out: &mut Extents,
    ) -> u32 {
        out.clear();
        let begin = super::flat::flat(view, first);
        let (mut at, end) = (begin, begin + Flat::from(count));
        let mut state = self.state.borrow_mut();
        while at < end {
            match step(&mut state, &[], at, end, out) {
                Ok(Step::Until(next, _)) => at = next,
                // Whoever waits for the page is told what is wrong with it.
                Ok(Step::Need(..)) | Err(_) => break,
            }
        }
        low32(low64(at - begin))
    }

    /// Calls `found` with every place that the map will ever report as superseded, of all versions, each once, if
    /// all that was flushed is merged into one level and stays so; tells whether it did. Others may insert meanwhile: what the
    /// memtable has comes last, at one instant (`true`), and what it replaces is in the level all the same.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup).
    pub async fn places(&self, mut found: impl FnMut(Location, u32, bool)) -> Result<bool> {
        let (mut held, mut out) = (Vec::new(), Extents::default());
        let version = self.state.borrow().version;
        // Of each piece the newest comes first, and ends where it does.
        let (mut at, mut end, mut as_of) = (0, 0, Version::LAST);
        loop {
            let said = {
                let mut state = self.state.borrow_mut();
                let is_one = state.sorted().count() <= 1 && state.runs.is_empty();
                if !is_one || !state.frozen.is_empty() || state.version != version {
                    return Ok(false);
                }
                if at >= END {
                    state.active.each_place(|location, blocks| found(location, blocks, true));
                    return Ok(true);
                }
                let State { levels, cache, .. } = &mut *state;
                let level = levels.iter().find(|level| !level.is_empty());
                out.clear();
                match level {
                    None => Said::Nothing(END),
                    Some(level) => {
                        let mut pages = Cached { cache, held: &held };
                        ask_level(Filters::PassedBy, level, &mut pages, at, END, as_of, &mut out)?
                    }
                }
            };
            match said {
                Said::Answered(next, since) => {
                    end = if as_of == Version::LAST { next.max(at + 1) } else { end };
                    match since.before() {
                        Some(older) => as_of = older,
                        None => (at, as_of) = (end, Version::LAST),
                    }
                }
                Said::Nothing(next) if as_of == Version::LAST => at = next.max(at + 1),
                Said::Nothing(_) => (at, as_of) = (end, Version::LAST),
                Said::Need(entry, worth) => {
                    self.fetch(entry, worth, &mut held).await?;
                    continue;
                }
            }
            self.give_back(&mut held);
            for extent in out.iter() {
                if let Contents::Stored { location, .. } = extent.contents {
                    found(location, extent.count, false);
                }
            }
        }
    }

    /// Calls `found` with everything from `from` on, and before `until`, that has contents or has lost them, of all
    /// versions: its first key, where it lies (`None` when it is lost), how many blocks, and when it was so. As lookups
    /// would find it, each at one instant of the call; others run in between. Of each piece the newest comes first. Ends
    /// when `found` says false.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup).
    pub async fn scan(
        &self,
        from: Key,
        until: Option<Key>,
        found: impl FnMut(Key, Option<Location>, u32, Period) -> bool,
    ) -> Result<()> {
        self.scan_but(|_, at, _| at, from, until, found).await
    }

    /// As [`scan`](Self::scan), but that from each position `pass` tells up to where it is to be passed by.
    pub(super) async fn scan_but(
        &self,
        pass: impl Fn(&State, Flat, Flat) -> Flat,
        from: Key,
        until: Option<Key>,
        mut found: impl FnMut(Key, Option<Location>, u32, Period) -> bool,
    ) -> Result<()> {
        self.each_version((Filters::PassedBy, pass), from, until, |view, extent, period| {
            let location = match extent.contents {
                Contents::Stored { location, .. } => Some(location),
                Contents::Lost => None,
                Contents::Hole | Contents::Absent => return true,
            };
            found(Key::new(view, extent.first), location, extent.count, period)
        })
        .await
    }

    /// Calls `see` with all that lookups of whatever version would find from `from` on, and before `until`, but for what
    /// `pass` says is to be passed by: the newest of each piece first. Ends when that says false.
    pub(super) async fn each_version(
        &self,
        (filters, pass): (Filters, impl Fn(&State, Flat, Flat) -> Flat),
        from: Key,
        until: Option<Key>,
        mut see: impl FnMut(View, &Extent<'_>, Period) -> bool,
    ) -> Result<()> {
        let (mut held, mut out) = (Vec::new(), Extents::default());
        let mut at = super::flat::flat(from.view, from.block);
        let end = until.map_or(END, |key| super::flat::flat(key.view, key.block));
        // Pieces of which something newer was seen, each within the one before: where it ends, and what is older.
        let mut pieces: Vec<(Flat, Version)> = Vec::new();
        for steps in 1_usize.. {
            while pieces.last().is_some_and(|(end, _)| *end <= at) {
                pieces.pop();
            }
            if pieces.is_empty() {
                at = pass(&self.state.borrow(), at, end);
            }
            let (end, as_of) = pieces.last().copied().unwrap_or((end, Version::LAST));
            if at >= end {
                break;
            }
            out.clear();
            let step =
                step_by(filters, &mut self.state.borrow_mut(), &held, at, end, as_of, &mut out)?;
            match step {
                Step::Until(next, since) => {
                    self.give_back(&mut held);
                    let until = (!pieces.is_empty()).then_some(as_of);
                    let (view, period) = (unflat(at).view, Period { since, until });
                    for extent in out.iter() {
                        if !see(view, &extent, period) {
                            return Ok(());
                        }
                    }
                    match since.before() {
                        Some(older) => pieces.push((next.max(at + 1), older)),
                        None => at = next.max(at + 1),
                    }
                }
                Step::Need(entry, worth) => self.fetch(entry, worth, &mut held).await?,
            }
            if steps.is_multiple_of(SCAN_TURN) {
                super::pause().await;
            }
        }
        Ok(())
    }

    /// Makes `new` the newest contents of `key` if they are still at `old`, since when those are; tells whether it did. No other
    /// change can come between the look and the replacement. `old` is reported as superseded like
    /// any other, sooner or later. Needs room for one entry ([`reserve`](Self::reserve)).
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup).
    pub async fn replace_if(&self, key: Key, old: Location, new: Stored) -> Result<bool> {
        let Stored { location, encoding, crc } = new;
        let change = |since| self.insert(key, since, location, encoding, &[crc]);
        self.change_if(key, old, change).await
    }

    /// As [`replace_if`](Self::replace_if), but that the contents of `key` are lost.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup).
    pub async fn lose_if(&self, key: Key, old: Location) -> Result<bool> {
        self.change_if(key, old, |since| self.insert_lost(key, since, 1)).await
    }

    async fn change_if(&self, key: Key, old: Location, change: impl Fn(Version)) -> Result<bool> {
        let at = super::flat::flat(key.view, key.block);
        let (mut held, mut out) = (Vec::new(), Extents::default());
        let is_current = loop {
            let newest = Version::LAST;
            let step = step(&mut self.state.borrow_mut(), &held, at, at + 1, newest, &mut out);
            match step {
                Ok(Step::Until(_, since)) => {
                    let found = out.iter().next().map(|e| e.contents);
                    let here = matches!(found, Some(Contents::Stored { location, .. })
                        if location == old);
                    if here {
                        change(since);
                    }
                    break Ok(here);
                }
                Ok(Step::Need(entry, worth)) => self.fetch(entry, worth, &mut held).await?,
                Err(e) => break Err(e),
            }
        };
        self.give_back(&mut held);
        is_current
    }

    /// Reads a page a step needs, for the cache and for this lookup. A failure counts only if the
    /// map still refers to the page: tables may have changed while it was read.
    pub(super) async fn fetch(
        &self,
        entry: Entry,
        worth: Worth,
        held: &mut Vec<Held>,
    ) -> Result<()> {
        let version = self.state.borrow().version;
        let mut page = self.spare.borrow_mut().pop().unwrap_or_else(|| Box::new([0; BLOCK]));
        let read = self.pages.read(entry.location, &[entry.crc], &mut page[..]).await;
        self.reads.set(self.reads.get() + 1);
        if let Err(e) = read {
            self.spare.borrow_mut().push(page);
            return if self.state.borrow().version == version { Err(e) } else { Ok(()) };
        }
        self.state.borrow_mut().cache.put(entry, worth, &page);
        held.push(Held { entry, page });
        Ok(())
    }

    pub(super) fn give_back(&self, held: &mut Vec<Held>) {
        let mut spare = self.spare.borrow_mut();
        spare.extend(held.drain(..).map(|h| h.page));
        spare.truncate(super::limits::SPARE_PAGES);
    }
}
