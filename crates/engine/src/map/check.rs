//! Checking a map page by page, and walking through all that it says. Changes nothing.

use super::extents::Contents;
use super::filter::Filter;
use super::flat::{END, Flat, Item, Place, unflat};
use super::lookup::{Filters, Period};
use super::page::{Builder, Page, Run};
use super::source::named;
use super::stack::STACK_BLOCKS;
use super::state::State;
use super::table::Table;
use super::{Map, Pages, flat};
use crate::address::{BLOCK, Encoding, Entry, Key, Location, SegmentId, Stored, Version, View};
use crate::error::Result;
use crate::format::Bad;
use std::rc::Rc;
use stdx::num::usize32;

pub(crate) use super::page::Kind as PageKind;

/// What checking the tables comes upon.
#[derive(Debug)]
pub(crate) enum News {
    /// A page that a table refers to.
    Used(Entry),
    /// A page that cannot be read, or makes no sense: what the table says from one block to the
    /// other is lost.
    Lost { kind: PageKind, at: Entry, from: Key, to: Key, why: String },
    /// Something that the table says of itself, or one of its pages, is wrong.
    Wrong { table: u64, at: Entry, what: String },
    /// A filter denies blocks that its table knows: lookups pass them by.
    Denied { table: u64, at: Entry, first: Key, blocks: u64 },
}

/// Figures of what was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub tables: u64,
    pub pages: u64,
    pub items: u64,
}

/// A page that says nothing, to stand in for one that is lost.
pub(crate) fn empty_page(kind: PageKind) -> [u8; BLOCK] {
    let mut builder = Builder::default();
    // A page has one item at least: where no block ever is.
    let start = flat(View::new(u32::MAX), (1 << crate::address::BLOCK_BITS) - 1);
    let place = match kind {
        PageKind::Index | PageKind::Filters => {
            Place::At(Location::new(SegmentId::new(u32::MAX), 0), Encoding::PLAIN)
        }
        PageKind::Leaf | PageKind::Holes | PageKind::Filter => Place::Hole,
    };
    let crcs = &[0; 1][..usize::from(place.has_contents())];
    builder.push(&Item { start, blocks: 1, place }, Version::FIRST, crcs);
    let mut page = [0; BLOCK];
    builder.encode(kind, &mut page);
    page
}

/// One table being checked.
struct Checking<'a> {
    table: &'a Table,
    news: &'a mut dyn FnMut(News),
    checked: &'a mut Checked,
    pages: u64,
}

impl Checking<'_> {
    fn wrong(&mut self, at: Entry, what: String) {
        (self.news)(News::Wrong { table: self.table.id, at, what });
    }

    fn used(&mut self, at: Entry) {
        self.pages += 1;
        self.checked.pages += 1;
        if !self.table.segments.contains(&at.location.segment()) {
            self.wrong(at, "it lies in a segment that the table does not list".into());
        }
        (self.news)(News::Used(at));
    }

    fn lost(&mut self, kind: PageKind, at: Entry, keys: (Flat, Flat), why: String) {
        let (from, to) = (unflat(keys.0), unflat(keys.1.clamp(keys.0 + 1, END) - 1));
        (self.news)(News::Lost { kind, at, from, to, why });
    }
}

impl<P: Pages> Map<P> {
    /// Checks every page of every table.
    pub(crate) async fn check(&self, news: &mut dyn FnMut(News)) -> Checked {
        let tables: Vec<Rc<Table>> = {
            let state = self.state.borrow();
            state.sorted().flat_map(|level| level.tables()).cloned().collect()
        };
        let mut checked = Checked::default();
        for table in tables {
            checked.tables += 1;
            let mut checking = Checking { table: &table, news, checked: &mut checked, pages: 0 };
            self.check_table(&mut checking).await;
        }
        checked
    }

    async fn check_table(&self, checking: &mut Checking<'_>) {
        let table = checking.table;
        checking.used(table.index);
        let leaves = match self.read_named(table.index, PageKind::Index).await {
            Ok(leaves) => leaves,
            Err(why) => {
                return checking.lost(PageKind::Index, table.index, (table.low, table.high), why);
            }
        };
        if leaves.len() != usize32(table.leaves) {
            let what = format!("it names {} leaves, the table {}", leaves.len(), table.leaves);
            checking.wrong(table.index, what);
        }
        let filter = self.check_filter(checking).await;
        let (mut last, mut versions, mut stacks) = (None, false, false);
        let mut refers = false;
        for (n, (first, before, leaf)) in leaves.iter().enumerate() {
            // Several leaves may begin with the blocks of one stack.
            let next = leaves.get(n + 1).filter(|(_, before, _)| *before == Version::FIRST);
            let next = next.map_or(table.high, |(first, ..)| *first);
            checking.used(*leaf);
            let page = match self.read_page(*leaf).await {
                Ok(page) => page,
                Err(why) => {
                    checking.lost(PageKind::Leaf, *leaf, (*first, next), why);
                    last = None;
                    continue;
                }
            };
            match check_leaf(checking, *leaf, &page, (*first, *before), last, filter.as_ref()) {
                Ok((end, has_stacks)) => {
                    if let Ok(leaf) = Page::parse(&page, PageKind::Leaf) {
                        versions |= leaf.has_versions();
                        refers |= has_references(&leaf);
                    }
                    stacks |= has_stacks;
                    last = Some(end);
                }
                Err(bad) => {
                    checking.lost(PageKind::Leaf, *leaf, (*first, next), bad.to_string());
                    last = None;
                }
            }
            if last.is_some_and(|last| last.end > next) {
                checking.wrong(*leaf, "its blocks go beyond where the next leaf begins".into());
            }
        }
        if versions && !table.has_versions || stacks && !table.has_stacks {
            checking.wrong(table.index, "it has versions that the table does not tell of".into());
        }
        if refers && !table.may_refer {
            checking.wrong(table.index, "it has references that the table denies".into());
        }
        if checking.pages != u64::from(table.pages) {
            let what = format!("it has {} pages and says {}", checking.pages, table.pages);
            checking.wrong(table.index, what);
        }
    }

    async fn read_page(&self, at: Entry) -> std::result::Result<Box<[u8; BLOCK]>, String> {
        let mut page = Box::new([0; BLOCK]);
        let read = self.pages.read(at.location, &[at.crc], &mut page[..]).await;
        read.map(|()| page).map_err(|error| error.to_string())
    }

    /// What an index or filter directory names, with the key of each, and the version before it if it
    /// goes on with a stack.
    async fn read_named(
        &self,
        at: Entry,
        kind: PageKind,
    ) -> std::result::Result<Vec<(Flat, Version, Entry)>, String> {
        let page = self.read_page(at).await?;
        let list = || -> std::result::Result<Vec<(Flat, Version, Entry)>, Bad> {
            let mut entries = Vec::new();
            named(&page, kind, &mut entries)?;
            let page = Page::parse(&page, kind)?;
            let mut keys = Vec::with_capacity(entries.len());
            for i in 0..page.len() {
                let item = page.run(i)?;
                let before = page.version(i)?;
                keys.extend((0..item.blocks).map(|n| (item.start + Flat::from(n), before)));
            }
            let goes_on = |a: &(Flat, Version), b: &(Flat, Version)| {
                a.0 == b.0 && b.1 > Version::FIRST && (a.1 == Version::FIRST || b.1 < a.1)
            };
            if !keys.is_sorted_by(|a, b| a.0 < b.0 && b.1 == Version::FIRST || goes_on(a, b)) {
                return Err(Bad::Field("order of keys"));
            }
            let named = keys.into_iter().zip(entries);
            Ok(named.map(|((key, before), entry)| (key, before, entry)).collect())
        };
        list().map_err(|bad| bad.to_string())
    }

    /// Checks the filter pages of a table, and gives its filter if it has one that can be used.
    async fn check_filter(&self, checking: &mut Checking<'_>) -> Option<Filter> {
        let (directory, count) = checking.table.filters?;
        let range = (checking.table.low, checking.table.high);
        checking.used(directory);
        let mut holes = Vec::new();
        if let Some(at) = checking.table.holes {
            checking.used(at);
            match self.read_page(at).await.and_then(|page| long_holes(&page)) {
                Ok(found) => holes = found,
                Err(why) => {
                    checking.lost(PageKind::Holes, at, range, why);
                    return None;
                }
            }
        }
        let named = match self.read_named(directory, PageKind::Filters).await {
            Ok(named) => named,
            Err(why) => {
                checking.lost(PageKind::Filters, directory, range, why);
                return None;
            }
        };
        if named.len() != usize32(count) {
            let what = format!("it names {} filter pages, the table {count}", named.len());
            checking.wrong(directory, what);
        }
        let mut pages = Vec::with_capacity(named.len());
        for (.., at) in named {
            checking.used(at);
            match self.read_page(at).await {
                Ok(page) => pages.push(*page),
                Err(why) => checking.lost(PageKind::Filter, at, range, why),
            }
        }
        if pages.len() != usize32(count) {
            return None;
        }
        let made = Filter::new(pages, holes);
        made.map_err(|bad| checking.lost(PageKind::Filter, directory, range, bad.to_string())).ok()
    }

    /// Shows each block that has contents, or has lost them (`None`), of all versions, as lookups would find it. In order,
    /// the newest of each piece first.
    ///
    /// # Errors
    /// Those of reading pages.
    pub(crate) async fn walk(
        &self,
        mut see: impl FnMut(Key, Option<Stored>, Period),
    ) -> Result<()> {
        let from = Key::new(View::METADATA, 0);
        let all = |_: &State, at, _| at;
        self.each_version((Filters::Asked, all), from, None, |view, extent, period| {
            let stored = |n: u32| match extent.contents {
                Contents::Stored { location, encoding, crcs } => {
                    let location = location.forward(n * encoding.grains());
                    Some(Some(Stored { location, encoding, crc: crcs[usize32(n)] }))
                }
                Contents::Lost => Some(None),
                Contents::Hole | Contents::Absent => None,
            };
            for n in 0..extent.count {
                let Some(stored) = stored(n) else { break };
                see(Key::new(view, extent.first + u64::from(n)), stored, period);
            }
            true
        })
        .await
    }
}

fn long_holes(page: &[u8; BLOCK]) -> std::result::Result<Vec<(Flat, Flat)>, String> {
    let list = || -> std::result::Result<Vec<(Flat, Flat)>, Bad> {
        let page = Page::parse(page, PageKind::Holes)?;
        let mut holes = Vec::with_capacity(page.len());
        for i in 0..page.len() {
            let item = page.run(i)?;
            holes.push((item.start, item.end()));
        }
        Ok(holes)
    };
    list().map_err(|bad| bad.to_string())
}

fn has_references(page: &Page<'_>) -> bool {
    let mut places = (0..page.len()).filter_map(|i| page.run(i).ok()).map(|run| run.place);
    places.any(|place| matches!(place, Place::At(at, _) if at.name().is_some()))
}

/// The last item of a leaf.
#[derive(Clone, Copy)]
struct Last {
    start: Flat,
    end: Flat,
    version: Version,
}

impl Last {
    /// Whether an item may follow: the blocks behind, or what the same blocks had before.
    fn check(self, item: &Run, version: Version) -> std::result::Result<bool, Bad> {
        if item.start >= self.end {
            return Ok(false);
        }
        if item.start != self.start {
            return Err(Bad::Field("order of keys"));
        }
        if item.end() != self.end || item.blocks > STACK_BLOCKS {
            return Err(Bad::Field("blocks of a stack"));
        }
        if version >= self.version {
            return Err(Bad::Field("order of versions"));
        }
        Ok(true)
    }
}

/// Checks the items of a leaf that begins at `keys.0`, after the version `keys.1` of a stack if there is one, and after
/// another leaf's last item. Gives its own, and whether it has stacks.
fn check_leaf(
    checking: &mut Checking<'_>,
    at: Entry,
    bytes: &[u8; BLOCK],
    keys: (Flat, Version),
    last: Option<Last>,
    filter: Option<&Filter>,
) -> std::result::Result<(Last, bool), Bad> {
    let page = Page::parse(bytes, PageKind::Leaf)?;
    let (mut last, mut stacks) = (last, false);
    if page.start(0) != keys.0 {
        checking.wrong(at, "it does not begin where the index page says".into());
    }
    let (mut denied, mut first_denied) = (0, None);
    for i in 0..page.len() {
        let item = page.run(i)?;
        let version = page.version(i)?;
        // Each part of it makes sense.
        let (mut part, mut parts) = (item.start, 0);
        while part < item.end() {
            (part, parts) = (page.part(&item, part)?.0.end(), parts + 1);
        }
        checking.checked.items += 1;
        let is_older = last.map_or(Ok(false), |last| last.check(&item, version))?;
        if is_older && parts > 1 {
            return Err(Bad::Field("blocks of a stack"));
        }
        if i == 0 && last.is_some() {
            let before = last.filter(|_| is_older).map_or(Version::FIRST, |last| last.version);
            if before != keys.1 {
                checking
                    .wrong(at, "it goes on with other versions than the index page says".into());
            }
        }
        stacks |= is_older;
        let end = item.end();
        last = Some(Last { start: item.start, end, version });
        let Some(filter) = filter else { continue };
        let from = item.start.max(checking.table.low);
        let short = item.place.has_contents() || item.blocks < super::filter::LONG_HOLE;
        let asked = if short { end } else { end.min(from + 1) };
        let mut block = from;
        while block < asked {
            if filter.first_possible(block, block + 1) != block {
                first_denied.get_or_insert(block);
                denied += 1;
            }
            block += 1;
        }
    }
    if let Some(first) = first_denied {
        let first = unflat(first);
        let table = checking.table.id;
        (checking.news)(News::Denied { table, at, first, blocks: denied });
    }
    last.map(|last| (last, stacks)).ok_or(Bad::Field("number of items"))
}
