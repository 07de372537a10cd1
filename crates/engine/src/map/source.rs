//! Reading a level in order, for a merge: a few pages ahead, past the cache.

use super::flat::{END, Flat, Item, Place, low64};
use super::limits::{READ_AHEAD, SOURCE_TABLES};
use super::page::{Kind, Page, Parsed};
use super::stack::{Layer, STACK_BLOCKS, Spare};
use super::table::{Level, Table};
use super::{Pages, corrupt};
use crate::address::{BLOCK, BLOCK_GRAINS, Entry, Version};
use crate::error::Result;
use crate::format::Bad;
use std::rc::Rc;
use stdx::num::{u64_of, usize64};

/// One sorted input of a merge. Its tables were part of the map when it was made; a merge has no
/// other beside it, so they stay.
pub(super) struct Source {
    tables: Vec<Rc<Table>>,
    /// Where the first table begins that did not fit the list.
    pub limit: Flat,
    next_table: usize,
    index: Box<[u8; BLOCK]>,
    leaves: Vec<Entry>,
    next_leaf: usize,
    ahead: Vec<u8>,
    /// The page of `ahead` being read, and pages in it.
    page: usize,
    pages: usize,
    parsed: Option<Parsed>,
    next_item: usize,
    /// The one taken last.
    item: usize,
    /// What is before it was taken; the table's own trim at its opening.
    low: Flat,
    current: Option<Item>,
    version: Version,
    checksum: usize,
    /// The page being read is of items without older ones.
    is_plain: bool,
    /// All layers of the current item, if it has more than one.
    layers: Vec<Layer>,
    spare: Spare,
    /// The stack that is being gathered from more than one leaf.
    gathering: Option<Item>,
    /// Whether each leaf goes on with the stack of the one before, once one does.
    goes_on: Vec<bool>,
    /// The index page in memory is that of the table it would open next.
    has_index: bool,
    reads: usize,
}

impl Source {
    /// The level from its first table that ends after `from`.
    pub fn new(level: &Level, from: Flat) -> Self {
        let first = level.position(from);
        let last = (first + SOURCE_TABLES).min(level.tables().len());
        Self {
            tables: level.tables()[first..last].to_vec(),
            limit: level.get(last).map_or(END, |t| t.low),
            next_table: 0,
            index: Box::new([0; BLOCK]),
            leaves: Vec::new(),
            next_leaf: 0,
            ahead: Vec::new(),
            page: 0,
            pages: 0,
            parsed: None,
            next_item: 0,
            item: 0,
            low: 0,
            current: None,
            version: Version::FIRST,
            checksum: 0,
            is_plain: false,
            layers: Vec::new(),
            spare: Spare::default(),
            gathering: None,
            goes_on: Vec::new(),
            has_index: false,
            reads: 0,
        }
    }

    /// As [`new`](Self::new), without what the first table says of what is before `from`.
    pub fn cut(level: &Level, from: Flat) -> Self {
        let mut source = Self::new(level, from);
        if let Some(first) = source.tables.first_mut()
            && first.low < from
        {
            *first = Rc::new(first.cut(from));
        }
        source
    }

    /// Pages read so far.
    pub const fn reads(&self) -> usize {
        self.reads
    }

    /// The item it stands at, of the newest version there.
    pub const fn current(&self) -> Option<&Item> {
        self.current.as_ref()
    }

    /// Since when the current item is, in its newest version.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Whether it has older versions as well.
    pub const fn is_stack(&self) -> bool {
        !self.layers.is_empty()
    }

    /// Whether the tables have versions.
    pub fn has_versions(&self) -> bool {
        self.tables.iter().any(|table| table.has_versions)
    }

    /// All versions of the first `blocks` blocks of the current item, the newest first, as those of input `source`.
    pub fn gather(&self, source: usize, blocks: u64, out: &mut Vec<Layer>, spare: &mut Spare) {
        let Some(item) = &self.current else { return };
        if !self.is_stack() {
            let mut crcs = spare.take();
            if item.place.has_contents() {
                self.checksums(usize64(blocks), &mut crcs);
            }
            out.push(Layer { source, version: self.version, place: item.place, crcs });
        }
        out.extend(self.layers.iter().map(|layer| {
            let mut crcs = spare.take();
            crcs.extend_from_slice(layer.crcs.get(..usize64(blocks)).unwrap_or_default());
            Layer { source, crcs, ..*layer }
        }));
    }

    /// Calls `see` with each version of the current item, the newest first.
    pub fn each_version(&self, mut see: impl FnMut(Version, Place)) {
        if let Some(item) = self.current.filter(|_| !self.is_stack()) {
            see(self.version, item.place);
        }
        self.layers.iter().for_each(|layer| see(layer.version, layer.place));
    }

    /// The table it would open next, when it stands at none.
    pub fn unopened(&self) -> Option<&Rc<Table>> {
        if self.current.is_some() { None } else { self.tables.get(self.next_table) }
    }

    /// Passes by the table it would open next.
    pub const fn skip_table(&mut self) {
        self.next_table += 1;
        self.has_index = false;
    }

    /// Checksums of the first `blocks` blocks of the current item, which has contents.
    pub fn checksums(&self, blocks: usize, out: &mut Vec<u32>) {
        out.clear();
        if let (Some(bytes), Some(parsed)) = (self.bytes(), self.parsed) {
            let page = Page::parsed(bytes, parsed);
            out.extend((0..blocks).map(|n| page.checksum(self.checksum + n)));
        }
    }

    fn bytes(&self) -> Option<&[u8; BLOCK]> {
        self.ahead[self.page * BLOCK..].first_chunk()
    }

    fn place(&self) -> Entry {
        self.leaves[self.next_leaf - self.pages + self.page]
    }

    /// Opens the next table and stands at its first item.
    pub async fn open<P: Pages>(&mut self, pages: &P) -> Result<()> {
        let Some(table) = self.tables.get(self.next_table).cloned() else { return Ok(()) };
        let index = table.index;
        self.read_index(pages).await?;
        self.skip_table();
        self.low = table.low;
        self.leaves.clear();
        let before = leaves_before(&self.index, table.low, &mut self.leaves, &mut self.goes_on);
        self.next_leaf = before.map_err(|bad| corrupt(index.location, bad))?;
        (self.page, self.pages, self.next_item, self.parsed) = (0, 0, 0, None);
        self.gathering = None;
        self.advance(pages).await
    }

    /// Reads the index page of the table it would open next, if it was not read yet.
    pub async fn read_index<P: Pages>(&mut self, pages: &P) -> Result<()> {
        let Some(table) = self.tables.get(self.next_table) else { return Ok(()) };
        if !self.has_index {
            let index = table.index;
            pages.read(index.location, &[index.crc], &mut self.index[..]).await?;
            (self.has_index, self.reads) = (true, self.reads + 1);
        }
        Ok(())
    }

    /// Whether the table it would open next still speaks of all that it was built with; `None` before its index page
    /// was read.
    pub fn is_whole(&self) -> Result<Option<bool>> {
        let Some(table) = self.tables.get(self.next_table).filter(|_| self.has_index) else {
            return Ok(None);
        };
        let page = Page::parse(&self.index, Kind::Index);
        let page = page.map_err(|bad| corrupt(table.index.location, bad))?;
        Ok(Some(page.start(0) == table.low))
    }

    /// Gives up everything before `to` of the current item, and goes on to the next one when that
    /// is all of it. It stands at nothing after a table's last item.
    pub async fn take_until<P: Pages>(&mut self, pages: &P, to: Flat) -> Result<()> {
        if self.take_now(to)? { Ok(()) } else { self.advance(pages).await }
    }

    /// [`take_until`](Self::take_until) within the pages in memory; `false` when the next is needed.
    pub fn take_now(&mut self, to: Flat) -> Result<bool> {
        let Some(item) = self.current else { return Ok(true) };
        if to < item.end() {
            if to > item.start {
                let skipped = low64(to - item.start);
                self.current = Some(item.from(to));
                if item.place.has_contents() {
                    self.checksum += usize64(skipped);
                }
                self.layers.iter_mut().for_each(|layer| layer.skip(skipped));
            }
            return Ok(true);
        }
        self.low = item.end();
        self.next_ahead()
    }

    /// Stands at the next item of the table that ends after `low`.
    async fn advance<P: Pages>(&mut self, pages: &P) -> Result<()> {
        while !self.next_ahead()? {
            if !self.read_ahead(pages).await? {
                self.current = None;
                self.spare.empty(&mut self.layers);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Stands at the next item of the pages in memory; `false` when they have no more.
    fn next_ahead(&mut self) -> Result<bool> {
        while self.page < self.pages {
            match self.next_in_page() {
                Ok(Some((item, checksum))) if self.is_plain => {
                    (self.current, self.checksum) = (Some(item), checksum);
                    return Ok(true);
                }
                Ok(Some((item, checksum))) => match self.stand(item, checksum) {
                    Ok(None) => {}
                    Ok(item) => {
                        self.current = item;
                        return Ok(true);
                    }
                    Err(bad) => return Err(corrupt(self.place().location, bad)),
                },
                Ok(None) => (self.page, self.next_item, self.parsed) = (self.page + 1, 0, None),
                Err(bad) => return Err(corrupt(self.place().location, bad)),
            }
        }
        Ok(false)
    }

    fn next_in_page(&mut self) -> std::result::Result<Option<(Item, usize)>, Bad> {
        let Some(bytes) = self.ahead[self.page * BLOCK..].first_chunk() else { return Ok(None) };
        let parsed = match self.parsed {
            Some(parsed) => parsed,
            None => {
                let parsed = *self.parsed.insert(Parsed::of(bytes, Kind::Leaf)?);
                // An item has something older behind it only if the page has versions; it may end a stack, though.
                let has_versions = Page::parsed(bytes, parsed).has_versions();
                self.is_plain = !has_versions && self.gathering.is_none();
                if self.is_plain {
                    self.version = Version::FIRST;
                    self.spare.empty(&mut self.layers);
                }
                parsed
            }
        };
        let page = Page::parsed(bytes, parsed);
        while self.next_item < page.len() {
            let run = page.run(self.next_item)?;
            if run.end() <= self.low {
                self.next_item += 1;
                continue;
            }
            let (item, checksum) = page.part(&run, run.start.max(self.low))?;
            self.item = self.next_item;
            // The rest of it is encoded in another way.
            self.next_item += usize::from(item.end() == run.end());
            return Ok(Some((item, checksum)));
        }
        Ok(None)
    }

    /// Stands at an item of the page, or takes it to the stack that is being gathered: `None` as long as that goes on.
    fn stand(&mut self, item: Item, checksum: usize) -> std::result::Result<Option<Item>, Bad> {
        let bytes = self.ahead[self.page * BLOCK..].first_chunk().ok_or(Bad::Field("length"))?;
        let page = Page::parsed(bytes, self.parsed.ok_or(Bad::Field("length"))?);
        let i = self.item;
        let (run, version) = (page.run(i)?, page.version(i)?);
        // Nothing is older than the first.
        let has_older = version > Version::FIRST
            && if i + 1 < page.len() {
                page.start(i + 1) == run.start
            } else {
                let leaf = self.next_leaf - self.pages + self.page;
                self.goes_on.get(leaf + 1).is_some_and(|goes_on| *goes_on)
            };
        if has_older && (item.end() != run.end() || run.blocks > STACK_BLOCKS) {
            return Err(Bad::Field("blocks of a stack"));
        }
        if self.gathering.is_none() && !has_older {
            (self.version, self.checksum) = (version, checksum);
            self.spare.empty(&mut self.layers);
            return Ok(Some(item));
        }
        let mut crcs = self.spare.take();
        if item.place.has_contents() {
            crcs.extend((0..item.count()).map(|n| page.checksum(checksum + n)));
        }
        let newest = match self.gathering {
            None => {
                self.spare.empty(&mut self.layers);
                self.version = version;
                item
            }
            Some(newest) => {
                let last = self.layers.last().map_or(Version::LAST, |layer| layer.version);
                let same = (item.start, item.blocks) == (newest.start, newest.blocks);
                if !same || version >= last {
                    return Err(Bad::Field("order of versions"));
                }
                newest
            }
        };
        self.layers.push(Layer { source: 0, version, place: item.place, crcs });
        self.gathering = has_older.then_some(newest);
        Ok((!has_older).then_some(newest))
    }

    /// Reads the next leaves that lie side by side. `false` when the table has no more.
    async fn read_ahead<P: Pages>(&mut self, pages: &P) -> Result<bool> {
        let Some(&first) = self.leaves.get(self.next_leaf) else {
            return match (self.gathering, self.leaves.last()) {
                (Some(_), Some(leaf)) => {
                    Err(corrupt(leaf.location, Bad::Field("stack without an end")))
                }
                _ => Ok(false),
            };
        };
        let mut crcs = [0; READ_AHEAD];
        let mut count = 0;
        let adjacent = |n: usize, e: &Entry| {
            first.location.is_followed(u64_of(n) * u64::from(BLOCK_GRAINS), e.location)
        };
        for entry in self.leaves[self.next_leaf..].iter().take(READ_AHEAD) {
            if !adjacent(count, entry) {
                break;
            }
            crcs[count] = entry.crc;
            count += 1;
        }
        self.ahead.resize(count * BLOCK, 0);
        pages.read(first.location, &crcs[..count], &mut self.ahead).await?;
        self.next_leaf += count;
        self.reads += count;
        (self.page, self.pages, self.next_item, self.parsed) = (0, count, 0, None);
        super::pause().await;
        Ok(true)
    }
}

/// Gathers the leaves an index page names, and which of them go on with a stack, if any; tells how many of them only
/// speak of what is before `low`.
fn leaves_before(
    bytes: &[u8; BLOCK],
    low: Flat,
    out: &mut Vec<Entry>,
    goes_on: &mut Vec<bool>,
) -> std::result::Result<usize, Bad> {
    named(bytes, Kind::Index, out)?;
    goes_on.clear();
    let page = Page::parse(bytes, Kind::Index)?;
    // An item's checksums are numbered like its leaves: one each.
    let before = |i| page.run(i).and_then(|run| page.part(&run, run.start)).map(|(_, n)| n);
    let mut floor = page.floor(low);
    if page.has_versions() {
        goes_on.resize(out.len(), false);
        for i in 0..page.len() {
            if page.version(i)? > Version::FIRST {
                *goes_on.get_mut(before(i)?).ok_or(Bad::Field("leaf"))? = true;
            }
        }
        // A stack begins in the leaf before the first that goes on with it.
        while let Some(i) = floor
            && page.version(i)? > Version::FIRST
        {
            floor = i.checked_sub(1);
        }
    }
    let Some(floor) = floor else { return Ok(0) };
    before(floor)
}

/// All that an index or filter directory page names.
pub(super) fn named(
    bytes: &[u8; BLOCK],
    kind: Kind,
    out: &mut Vec<Entry>,
) -> std::result::Result<(), Bad> {
    let page = Page::parse(bytes, kind)?;
    for i in 0..page.len() {
        let run = page.run(i)?;
        let (item, checksum) = page.part(&run, run.start)?;
        let place = item.place.location().ok_or(Bad::Field("place in an index"))?;
        for n in 0..item.count() {
            let location = place.offset(stdx::num::u32_of(n));
            out.push(Entry { location, crc: page.checksum(checksum + n) });
        }
    }
    Ok(())
}
