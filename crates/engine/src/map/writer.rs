//! Building one table: items in, pages appended, a [`Table`] out.

use super::Pages;
use super::filter::{self, Filter, LONG_HOLE, LONG_HOLES, Scratch, Width};
use super::flat::{END, Flat, Item, Place};
use super::limits::{TABLE_KEYS, TABLE_SEGMENTS};
use super::page::{self, Kind};
use super::stack::Stack;
use super::table::Table;
use crate::address::{BLOCK, Encoding, Entry, Location, SegmentId, Version};
use crate::canary::{self, Canary};
use crate::error::{Error, Result};
use std::cell::RefCell;
use std::rc::Rc;
use stdx::num::{u32_of, u64_of, usize64};

/// Buckets that hashes are gathered in, by their high bits, so that building one filter page looks
/// at a few of them only.
const BUCKETS: usize = 16;

/// What became of a pushed item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// All of it was taken; when a leaf ended meanwhile, the one begun then begins here.
    Whole(Option<Flat>),
    /// The table is full: it speaks of everything before this position.
    Full(Flat),
}

/// The table being built; its buffers are kept for the next one.
pub(super) struct Writer {
    leaf: page::Builder,
    index: page::Builder,
    buffer: Box<[u8; BLOCK]>,
    hashes: [Vec<u64>; BUCKETS],
    keys: usize,
    share: Vec<u64>,
    scratch: Scratch,
    long_holes: Vec<(Flat, Flat)>,
    segments: Vec<SegmentId>,
    width: Option<Width>,
    leaves_max: usize,
    leaves: usize,
    blocks: u64,
    low: Flat,
    high: Flat,
    has_versions: bool,
    has_stacks: bool,
    has_references: bool,
    appended: Rc<RefCell<Vec<Location>>>,
    /// Pages listed there before this table began.
    mark: usize,
}

impl Writer {
    /// `appended` lists the pages written for the table that is not yet part of the map.
    pub fn new(leaves_max: usize, appended: Rc<RefCell<Vec<Location>>>) -> Self {
        Self {
            leaf: page::Builder::default(),
            index: page::Builder::default(),
            buffer: Box::new([0; BLOCK]),
            hashes: [const { Vec::new() }; BUCKETS],
            keys: 0,
            share: Vec::new(),
            scratch: Scratch::default(),
            long_holes: Vec::new(),
            segments: Vec::new(),
            width: None,
            leaves_max,
            leaves: 0,
            blocks: 0,
            low: END,
            high: 0,
            has_versions: false,
            has_stacks: false,
            has_references: false,
            appended,
            mark: 0,
        }
    }

    /// Begins a table, with filters of a width or without.
    pub fn begin(&mut self, width: Option<Width>) {
        self.leaf.clear();
        self.index.clear();
        self.hashes.iter_mut().for_each(Vec::clear);
        self.keys = 0;
        self.long_holes.clear();
        self.segments.clear();
        self.width = width;
        (self.leaves, self.blocks, self.low, self.high) = (0, 0, END, 0);
        (self.has_versions, self.has_stacks, self.has_references) = (false, false, false);
        self.mark = self.appended.borrow().len();
    }

    /// Leaves written so far.
    pub const fn leaves(&self) -> usize {
        self.leaves
    }

    pub const fn is_empty(&self) -> bool {
        self.leaves == 0 && self.leaf.is_empty()
    }

    /// [`push`](Self::push), when the leaf takes all of the item; `None` when it is to be called.
    pub fn push_now(&mut self, item: &Item, version: Version, checksums: &[u32]) -> Option<Pushed> {
        self.leaf.push_whole(item, version, checksums).then_some(Pushed::Whole(None))
    }

    /// Adds an item after all others. When the table is full it is to be ended, and what lies from
    /// the returned position on, the rest of this item included, goes into the next one.
    pub async fn push<P: Pages>(
        &mut self,
        pages: &P,
        item: &Item,
        version: Version,
        checksums: &[u32],
    ) -> Result<Pushed> {
        let (mut item, mut checksums) = (*item, checksums);
        let mut began = None;
        loop {
            let taken = self.leaf.push(&item, version, checksums);
            if taken == item.blocks {
                return Ok(Pushed::Whole(began));
            }
            if taken > 0 {
                item = item.from(item.start + Flat::from(taken));
                checksums = &checksums[usize64(taken)..];
            }
            if let Some(from) = self.end_leaf(pages).await? {
                return Ok(Pushed::Full(from));
            }
            if self.is_full() {
                return Ok(Pushed::Full(item.start));
            }
            began = Some(item.start);
        }
    }

    /// Adds a stack after all others, whole or not at all. What does not fit the leaf begins the next; what no leaf holds
    /// has leaves of its own, so that a lookup reads one of them.
    pub async fn push_stack<P: Pages>(&mut self, pages: &P, stack: &Stack) -> Result<Pushed> {
        if self.leaf.push_stack(stack) {
            return Ok(Pushed::Whole(None));
        }
        if let Some(from) = self.end_leaf(pages).await? {
            return Ok(Pushed::Full(from));
        }
        if self.is_full() {
            return Ok(Pushed::Full(stack.start));
        }
        if self.leaf.push_stack(stack) || self.spread(pages, stack).await? {
            return Ok(Pushed::Whole(Some(stack.start)));
        }
        Ok(Pushed::Full(stack.start))
    }

    /// Writes leaves that have nothing but this stack; `false` when the table cannot name them all.
    async fn spread<P: Pages>(&mut self, pages: &P, stack: &Stack) -> Result<bool> {
        let (index, leaves, segments) = (self.index.mark(), self.leaves, self.segments.len());
        let first = self.appended.borrow().len();
        let mut before = Version::FIRST;
        let mut named = true;
        let mut layers = stack.layers.iter().peekable();
        while named && layers.peek().is_some() {
            let mut last = before;
            while let Some(layer) = layers.next_if(|layer| self.leaf.push_layer(stack, layer)) {
                last = layer.version;
            }
            if self.leaf.is_empty() {
                return Err(Error::new(
                    crate::error::Kind::Invalid,
                    "a block too large for a page",
                ));
            }
            named = self.name_leaf(pages, before, leaves == 0).await?;
            self.leaf.clear();
            before = last;
        }
        if named {
            (self.has_versions, self.has_stacks) = (true, true);
            stack.layers.iter().for_each(|layer| self.note_place(layer.place));
            let place = stack.layers[0].place;
            self.account_for(&Item { start: stack.start, blocks: stack.blocks, place });
            return Ok(true);
        }
        if leaves == 0 {
            let what = format!("{} versions, more than a table names", stack.layers.len());
            return Err(Error::new(crate::error::Kind::Invalid, what));
        }
        for location in self.appended.borrow_mut().drain(first..) {
            pages.superseded(location, Encoding::PLAIN, 1);
        }
        self.index.go_back(index);
        self.leaves = leaves;
        self.segments.truncate(segments);
        Ok(false)
    }

    fn is_full(&self) -> bool {
        let filtered = self.width.is_some()
            && (self.keys >= TABLE_KEYS || self.long_holes.len() >= LONG_HOLES / 2);
        self.leaves >= self.leaves_max || filtered
    }

    /// Writes the leaf. When the table cannot name it, it is given up, and the position returned is
    /// where the next table begins.
    async fn end_leaf<P: Pages>(&mut self, pages: &P) -> Result<Option<Flat>> {
        let Some(first) = self.leaf.items().first() else { return Ok(None) };
        let start = first.start;
        if !self.name_leaf(pages, Version::FIRST, false).await? {
            self.leaf.clear();
            return Ok(Some(start));
        }
        self.account();
        self.leaf.clear();
        Ok(None)
    }

    /// Writes the leaf and has the table name it, with the version `before` it if it goes on with a stack; `false` when
    /// it cannot. In any number of segments if `anywhere`.
    async fn name_leaf<P: Pages>(
        &mut self,
        pages: &P,
        before: Version,
        anywhere: bool,
    ) -> Result<bool> {
        let Some(first) = self.leaf.items().first() else { return Ok(true) };
        let start = first.start;
        self.leaf.encode(Kind::Leaf, &mut self.buffer);
        let entry = self.append(pages).await?;
        let segment = entry.location.segment();
        let known = self.segments.contains(&segment);
        let many = !known && self.segments.len() >= TABLE_SEGMENTS && !anywhere;
        let named = Item { start, blocks: 1, place: Place::At(entry.location, Encoding::PLAIN) };
        if many || self.holes_overflow() || self.index.push(&named, before, &[entry.crc]) == 0 {
            self.appended.borrow_mut().pop();
            pages.superseded(entry.location, Encoding::PLAIN, 1);
            return Ok(false);
        }
        if !known {
            self.segments.push(segment);
        }
        self.leaves += 1;
        Ok(true)
    }

    /// Whether this leaf's long stretches without contents are too many for the table.
    fn holes_overflow(&self) -> bool {
        let long = |i: &&Item| !i.place.has_contents() && i.blocks >= LONG_HOLE;
        self.width.is_some()
            && self.leaves > 0
            && self.long_holes.len() + self.leaf.items().iter().filter(long).count() > LONG_HOLES
    }

    /// Takes the leaf's items into what the table knows of itself.
    fn account(&mut self) {
        self.has_versions |= self.leaf.has_versions();
        self.has_stacks |= self.leaf.has_stacks();
        let mut last = END;
        for n in 0..self.leaf.items().len() {
            let item = self.leaf.items()[n];
            self.note_place(item.place);
            // Of a stack the newest counts.
            if item.start != last {
                self.account_for(&item);
            }
            last = item.start;
        }
    }

    fn note_place(&mut self, place: Place) {
        let is_reference = matches!(place, Place::At(at, _) if at.name().is_some());
        self.has_references |= is_reference && !canary::has(Canary::PassesByReferences);
    }

    fn account_for(&mut self, item: &Item) {
        self.low = self.low.min(item.start);
        self.high = item.end();
        if item.place != Place::Hole {
            self.blocks += item.blocks;
        }
        if self.width.is_none() {
            return;
        }
        if !item.place.has_contents() && item.blocks >= LONG_HOLE {
            self.long_holes.push((item.start, item.end()));
        } else {
            for n in 0..item.blocks {
                let hash = filter::hash(item.start + Flat::from(n));
                self.hashes[filter::page_of(hash, BUCKETS)].push(hash);
                self.keys += 1;
            }
        }
    }

    async fn append<P: Pages>(&self, pages: &P) -> Result<Entry> {
        let entry = pages.append(&self.buffer).await?;
        self.appended.borrow_mut().push(entry.location);
        super::pause().await;
        Ok(entry)
    }

    /// Ends the table. `None` when nothing was pushed, or when the last leaf, which begins at the
    /// position in the error case, did not fit.
    pub async fn finish<P: Pages>(&mut self, pages: &P, id: u64) -> Result<(Option<Table>, Flat)> {
        let rest = self.end_leaf(pages).await?.unwrap_or(END);
        if self.leaves == 0 {
            return Ok((None, rest));
        }
        let (filters, filter) = self.write_filters(pages).await?;
        let holes = self.write_holes(pages).await?;
        self.index.encode(Kind::Index, &mut self.buffer);
        let index = self.append(pages).await?;
        let appended = self.appended.borrow();
        let own = &appended[self.mark..];
        assert!(own.len() > self.leaves, "the pages of a table are its leaves, and its index");
        assert!(self.low < self.high, "a table says something");
        let mut segments: Vec<SegmentId> = own.iter().map(|l| l.segment()).collect();
        segments.sort_unstable();
        segments.dedup();
        let table = Table {
            id,
            low: self.low,
            high: self.high,
            blocks: self.blocks,
            leaves: u32_of(self.leaves),
            left: u32_of(self.leaves),
            pages: u32_of(own.len()),
            index,
            filters,
            holes,
            segments,
            has_versions: self.has_versions,
            has_stacks: self.has_stacks,
            may_refer: self.has_references,
            filter,
        };
        Ok((Some(table), rest))
    }

    async fn write_filters<P: Pages>(
        &mut self,
        pages: &P,
    ) -> Result<(Option<(Entry, u32)>, Option<Rc<Filter>>)> {
        let Some(width) = self.width else { return Ok((None, None)) };
        let count = width.pages_for(self.keys);
        let mut directory = page::Builder::default();
        let mut built = Vec::with_capacity(count);
        for number in 0..count {
            self.share.clear();
            let of_page = |h: &&u64| filter::page_of(**h, count) == number;
            let buckets =
                number * BUCKETS / count..=((number + 1) * BUCKETS / count).min(BUCKETS - 1);
            for bucket in buckets {
                self.share.extend(self.hashes[bucket].iter().filter(of_page));
            }
            if !self.scratch.build(&mut self.share, width, &mut self.buffer) {
                return Ok((None, None));
            }
            let entry = self.append(pages).await?;
            let start = Flat::from(u64_of(number));
            let named =
                Item { start, blocks: 1, place: Place::At(entry.location, Encoding::PLAIN) };
            if directory.push(&named, Version::FIRST, &[entry.crc]) == 0 {
                return Ok((None, None));
            }
            built.push(*self.buffer);
        }
        directory.encode(Kind::Filters, &mut self.buffer);
        let entry = self.append(pages).await?;
        let filter = Filter::new(built, self.long_holes.clone()).ok().map(Rc::new);
        Ok((Some((entry, u32_of(count))), filter))
    }

    async fn write_holes<P: Pages>(&mut self, pages: &P) -> Result<Option<Entry>> {
        if self.long_holes.is_empty() {
            return Ok(None);
        }
        let mut builder = page::Builder::default();
        for &(start, end) in &self.long_holes {
            let blocks = super::flat::distance(start, end);
            builder.push(&Item { start, blocks, place: Place::Hole }, Version::FIRST, &[]);
        }
        builder.encode(Kind::Holes, &mut self.buffer);
        Ok(Some(self.append(pages).await?))
    }
}
