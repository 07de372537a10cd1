//! Merging where there are versions: what all inputs have of the same blocks becomes one stack, of which what no snapshot
//! sees is left out.

use super::{Dropped, STEP_REPORTS, Step, crc_count};
use crate::address::Version;
use crate::error::Result;
use crate::map::Pages;
use crate::map::flat::{END, Flat, Item, Place, end_of_view, low64, unflat};
use crate::map::stack::{Layer, Spare, Stack, drop_last_hole, settle, width};
use crate::map::writer::{Pushed, Writer};
use stdx::num::low32;

/// Puts stacks into a table. Those next to each other become one while they are the same.
#[derive(Default)]
pub(in crate::map) struct Outlet {
    /// No layers where none waits.
    waiting: Stack,
    pub spare: Spare,
}

impl Outlet {
    /// Adds blocks with all their layers after all others, and leaves `layers` empty. When the table is full: where the next
    /// begins.
    pub async fn push<P: Pages>(
        &mut self,
        pages: &P,
        writer: &mut Writer,
        (start, blocks): (Flat, u64),
        layers: &mut Vec<Layer>,
    ) -> Result<Option<Flat>> {
        if let [layer] = &layers[..] {
            let item = Item { start, blocks, place: layer.place };
            let full = self.push_one(pages, writer, &item, layer.version, &layer.crcs).await?;
            self.spare.empty(layers);
            return Ok(full);
        }
        if !self.waiting.join(start, blocks, layers) {
            if let Some(from) = self.finish(pages, writer).await? {
                return Ok(Some(from));
            }
            std::mem::swap(&mut self.waiting.layers, layers);
            (self.waiting.start, self.waiting.blocks) = (start, blocks);
        }
        self.spare.empty(layers);
        Ok(None)
    }

    /// As [`push`](Self::push), of blocks that have one layer.
    pub async fn push_one<P: Pages>(
        &mut self,
        pages: &P,
        writer: &mut Writer,
        item: &Item,
        version: Version,
        checksums: &[u32],
    ) -> Result<Option<Flat>> {
        if self.push_now(writer, item, version, checksums) {
            return Ok(None);
        }
        if let Some(from) = self.finish(pages, writer).await? {
            return Ok(Some(from));
        }
        let pushed = writer.push(pages, item, version, checksums).await?;
        Ok(if let Pushed::Full(from) = pushed { Some(from) } else { None })
    }

    /// [`push_one`](Self::push_one), when nothing waits and the leaf takes all of the item; `false` when it is to be called.
    pub fn push_now(
        &self,
        writer: &mut Writer,
        item: &Item,
        version: Version,
        checksums: &[u32],
    ) -> bool {
        self.waiting.layers.is_empty() && writer.push_now(item, version, checksums).is_some()
    }

    /// Adds what waits for more of its kind.
    pub async fn finish<P: Pages>(
        &mut self,
        pages: &P,
        writer: &mut Writer,
    ) -> Result<Option<Flat>> {
        if self.waiting.layers.is_empty() {
            return Ok(None);
        }
        let pushed = writer.push_stack(pages, &self.waiting).await?;
        self.spare.empty(&mut self.waiting.layers);
        Ok(if let Pushed::Full(from) = pushed { Some(from) } else { None })
    }
}

impl<P: Pages> Step<'_, P> {
    /// As [`fill`](Self::fill).
    pub(super) async fn fill_versions(&mut self, writer: &mut Writer, least: usize) -> Result<()> {
        let (mut outlet, mut layers) = (Outlet::default(), Vec::new());
        loop {
            let start = match self.start_now() {
                Some(start) => start,
                None => self.next_start(writer, least).await?.unwrap_or(END),
            };
            if start >= self.limit || self.dropped.len() >= STEP_REPORTS {
                if let Some(from) = outlet.finish(self.pages, writer).await? {
                    self.leave(from);
                } else if self.began.is_none() {
                    (self.began, self.at) = (Some(self.limit), self.limit);
                }
                return Ok(());
            }
            self.began.get_or_insert(start);
            let full = match self.one_layer(start) {
                Some((n, piece)) => self.put_one(&mut outlet, writer, n, &piece).await?,
                None => self.put_stack(&mut outlet, writer, start, &mut layers).await?,
            };
            if let Some(from) = full {
                self.leave(from);
                return Ok(());
            }
        }
    }

    /// The newest item at `start`, and its input, if nothing else is to be kept of its blocks: up to where a newer one begins,
    /// or an older one that may be needed.
    fn one_layer(&mut self, start: Flat) -> Option<(usize, Item)> {
        let mut end = self.limit;
        let mut found: Option<(usize, Item)> = None;
        for (n, source) in self.sources.iter().enumerate() {
            let Some(item) = source.current() else {
                let next = source.unopened().filter(|table| table.low > start);
                end = end.min(next.map_or(END, |table| table.low));
                continue;
            };
            if item.start > start {
                end = end.min(item.start);
                continue;
            }
            if found.is_some() || source.is_stack() {
                return None;
            }
            end = end.min(item.end());
            found = Some((n, *item));
            let view = unflat(start).view;
            // What has no contents may be long: it hides no more than one item of each older input.
            if item.place.has_contents()
                && !self.seen.sees_before(self.pages, view, source.version())
            {
                // One stack of each at a time: what it hides is told of in one go, and that may be much.
                for older in self.sources[n + 1..].iter().filter(|older| older.is_stack()) {
                    let ends = older.current().filter(|item| item.start < end).map(Item::end);
                    end = end.min(ends.unwrap_or(END));
                }
                break;
            }
        }
        found.map(|(n, item)| (n, Item { blocks: low64(end - start), ..item }))
    }

    /// Puts a piece of input `n` out; what older ones have of its blocks is dropped. When the table is full: where the next
    /// begins.
    async fn put_one(
        &mut self,
        outlet: &mut Outlet,
        writer: &mut Writer,
        n: usize,
        piece: &Item,
    ) -> Result<Option<Flat>> {
        let (pages, end) = (self.pages, piece.end());
        let source = &mut self.sources[n];
        let version = source.version();
        source.checksums(crc_count(piece), &mut self.checksums);
        if !source.take_now(end)? {
            source.take_until(pages, end).await?;
        }
        for older in n + 1..self.sources.len() {
            if self.sources[older].current().is_none_or(|item| item.start < end) {
                self.drop_older(older, piece).await?;
            }
        }
        self.at = end;
        let is_dropped = piece.place == Place::Hole && self.drops_hole(piece.start);
        if is_dropped || outlet.push_now(writer, piece, version, &self.checksums) {
            return Ok(None);
        }
        outlet.push_one(pages, writer, piece, version, &self.checksums).await
    }

    /// Drops all versions that an older input has of a piece's blocks, but for what is in the same place: that was inserted
    /// twice.
    async fn drop_older(&mut self, n: usize, piece: &Item) -> Result<()> {
        loop {
            let source = &mut self.sources[n];
            let Some(item) = source.current().copied() else {
                // What it has next may begin within the piece too.
                if source.unopened().is_none_or(|table| table.low >= piece.end()) {
                    return Ok(());
                }
                source.open(self.pages).await?;
                continue;
            };
            if item.start >= piece.end() {
                return Ok(());
            }
            let (start, end) = (item.start, item.end().min(piece.end()));
            let kept = piece.place.offset(low32(low64(start - piece.start))).location();
            source.each_version(|_, place| {
                if place.has_contents() && place.location() != kept {
                    self.dropped.push(Dropped { start, blocks: low64(end - start), place });
                }
            });
            source.take_until(self.pages, end).await?;
        }
    }

    /// Puts out what all inputs have of the blocks at `start`. When the table is full: where the next begins.
    async fn put_stack(
        &mut self,
        outlet: &mut Outlet,
        writer: &mut Writer,
        start: Flat,
        layers: &mut Vec<Layer>,
    ) -> Result<Option<Flat>> {
        let pages = self.pages;
        let end = self.gather(start, layers, &mut outlet.spare);
        let found = self.dropped.len();
        settle(pages, &mut self.seen, start, layers, |place| {
            self.dropped.push(Dropped { start, blocks: low64(end - start), place });
        });
        let end = end.min(start + Flat::from(most(layers)));
        let end = start + Flat::from(self.refer_by_name(start, low64(end - start), layers));
        for dropped in &mut self.dropped[found..] {
            dropped.blocks = low64(end - start);
        }
        if self.drops_hole(start) {
            drop_last_hole(layers);
        }
        for source in &mut self.sources {
            if source.current().is_some_and(|item| item.start == start) && !source.take_now(end)? {
                source.take_until(pages, end).await?;
            }
        }
        self.at = end;
        if layers.is_empty() {
            return Ok(None);
        }
        let blocks = low64(end - start);
        for layer in &mut *layers {
            if layer.place.has_contents() {
                layer.crcs.truncate(stdx::num::usize64(blocks));
            }
        }
        outlet.push(pages, writer, (start, blocks), layers).await
    }

    /// Gathers what all inputs have of the blocks at `start`, and tells how far all of it goes.
    fn gather(&self, start: Flat, layers: &mut Vec<Layer>, spare: &mut Spare) -> Flat {
        let mut end = self.limit.min(end_of_view(start));
        for source in &self.sources {
            match source.current() {
                Some(item) if item.start == start => end = end.min(item.end()),
                Some(item) => end = end.min(item.start),
                None => {
                    let next = source.unopened().filter(|table| table.low > start);
                    end = end.min(next.map_or(END, |table| table.low));
                }
            }
        }
        spare.empty(layers);
        for (n, source) in self.sources.iter().enumerate() {
            if source.current().is_some_and(|item| item.start == start) {
                source.gather(n, low64(end - start), layers, spare);
            }
        }
        end
    }
}

/// How many blocks layers go on for at most.
fn most(layers: &[Layer]) -> u64 {
    if layers.len() > 1 { width(layers.len()) } else { u64::MAX }
}
