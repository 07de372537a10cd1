//! Merging sorted inputs, newest first, into one table, and finding what is superseded on the way. Where there are
//! versions: `merge/versions.rs`.

mod named;
mod versions;

pub(super) use named::{Named, plain};
pub(super) use versions::Outlet;

use super::Pages;
use super::flat::{END, Flat, Item, Place, low64, unflat};
use super::limits::STEP_REPORTS;
use super::source::Source;
use super::stack::Seen;
use super::writer::{Pushed, Writer};
use crate::address::{Encoding, Location, Version};
use crate::error::Result;
use std::rc::Rc;
use stdx::num::{low32, usize64};

/// Locations found to be superseded, reported when the step takes effect.
#[derive(Default)]
pub(super) struct Reports {
    found: Vec<(Location, Encoding, u32)>,
    /// Those found for what the table's last leaf speaks of begin here.
    mark: usize,
}

impl Reports {
    fn add(&mut self, first: Location, encoding: Encoding, blocks: u32) {
        if self.found.len() > self.mark
            && let Some((last, same, count)) = self.found.last_mut()
            && *same == encoding
            && last.is_followed(u64::from(*count) * u64::from(encoding.grains()), first)
        {
            *count += blocks;
            return;
        }
        self.found.push((first, encoding, blocks));
    }

    /// `old` gave way to `new`, which lies over all of it. A block that is at the same place in both
    /// was inserted twice, and stays.
    fn replaced(&mut self, old: &Item, new: &Item) {
        let Place::At(place, encoding) = old.place else { return };
        if new.place.offset(low32(low64(old.start - new.start))) != old.place {
            self.add(place, encoding, low32(old.blocks));
        }
    }
}

/// A stretch of blocks in one place that gave way.
struct Dropped {
    start: Flat,
    blocks: u64,
    place: Place,
}

/// One step in progress.
pub(super) struct Step<'a, P: Pages> {
    pages: &'a P,
    /// Newest first; the last is what the target level has.
    sources: Vec<Source>,
    /// Nothing from here on is looked at.
    limit: Flat,
    drop_holes: bool,
    checksums: Vec<u32>,
    reports: Reports,
    /// What was found to be superseded where there are versions: nothing in `reports` then.
    dropped: Vec<Dropped>,
    seen: Seen,
    /// What old versions are to refer to by name.
    named: Rc<Named>,
    /// What lies before is merged.
    pub at: Flat,
    /// Where the first piece began.
    pub began: Option<Flat>,
}

impl<'a, P: Pages> Step<'a, P> {
    /// Looks at nothing from `limit` on.
    pub fn new(pages: &'a P, sources: Vec<Source>, drop_holes: bool, limit: Flat) -> Self {
        let limit = sources.iter().map(|s| s.limit).min().unwrap_or(END).min(limit);
        Self {
            pages,
            sources,
            limit,
            drop_holes,
            checksums: Vec::new(),
            reports: Reports::default(),
            dropped: Vec::new(),
            seen: Seen::default(),
            named: Rc::default(),
            at: 0,
            began: None,
        }
    }

    /// Has old versions refer to these.
    pub fn naming(self, named: Rc<Named>) -> Self {
        Self { named, ..self }
    }

    /// The table's last leaf, which begins at `from`, is left to the next step.
    pub fn leave(&mut self, from: Flat) {
        self.reports.found.truncate(self.reports.mark);
        self.dropped.retain_mut(|dropped| {
            let before = low64(from.saturating_sub(dropped.start));
            dropped.blocks = dropped.blocks.min(before);
            before > 0
        });
        self.at = from;
    }

    /// What the step found to be superseded, once it took effect.
    pub fn into_reports(self) -> Vec<(Location, Encoding, u32)> {
        let Reports { mut found, .. } = self.reports;
        found.extend(self.dropped.iter().filter_map(|dropped| match dropped.place {
            Place::At(at, encoding) => Some((at, encoding, low32(dropped.blocks))),
            Place::Hole | Place::Lost => None,
        }));
        found
    }

    /// Merges until the table is full, the upper inputs are used up, or the next piece of the lower
    /// one has nothing above it. `at` is then where the next step begins.
    pub async fn fill(&mut self, writer: &mut Writer, least: usize) -> Result<()> {
        if self.sources.iter().any(Source::has_versions) {
            return self.fill_versions(writer, least).await;
        }
        loop {
            let start = match self.start_now() {
                Some(start) => start,
                None => self.next_start(writer, least).await?.unwrap_or(END),
            };
            if start >= self.limit || self.reports.found.len() >= STEP_REPORTS {
                if self.began.is_none() {
                    // The upper inputs have nothing before the limit: that much is done.
                    (self.began, self.at) = (Some(self.limit), self.limit);
                }
                return Ok(());
            }
            self.began.get_or_insert(start);
            let Some((winner, piece)) = self.piece(start) else { return Ok(()) };
            let mut piece = piece;
            let mut full = false;
            let mut leaf = None;
            if piece.place != Place::Hole || !self.drops_hole(start) {
                self.sources[winner].checksums(crc_count(&piece), &mut self.checksums);
                let pushed = match writer.push_now(&piece, Version::FIRST, &self.checksums) {
                    Some(pushed) => pushed,
                    None => {
                        let (pages, version) = (self.pages, Version::FIRST);
                        writer.push(pages, &piece, version, &self.checksums).await?
                    }
                };
                match pushed {
                    Pushed::Whole(began) => leaf = began,
                    Pushed::Full(at) if at < start => {
                        self.leave(at);
                        return Ok(());
                    }
                    Pushed::Full(at) if at == start => return Ok(()),
                    Pushed::Full(at) => {
                        piece.blocks = low64(at - start);
                        full = true;
                    }
                }
            }
            self.settle(winner, &piece, leaf).await?;
            self.at = piece.end();
            if full {
                return Ok(());
            }
        }
    }

    /// Whether a hole at a position is of no use where it is put: nothing lies below that it hides.
    fn drops_hole(&self, at: Flat) -> bool {
        self.drop_holes && !self.pages.keeps_holes(unflat(at).view)
    }

    /// Where the next piece begins, when every input stands at an item.
    fn start_now(&self) -> Option<Flat> {
        self.sources.iter().try_fold(END, |start, s| Some(start.min(s.current()?.start)))
    }

    /// Where the next piece begins; opens tables as they are reached. `None` ends the step.
    async fn next_start(&mut self, writer: &Writer, least: usize) -> Result<Option<Flat>> {
        let (pages, begun) = (self.pages, self.began.is_some());
        let Some((lower, upper)) = self.sources.split_last_mut() else { return Ok(None) };
        let mut start = END;
        for source in upper {
            while source.current().is_none() && source.unopened().is_some() {
                source.open(pages).await?;
            }
            start = start.min(source.current().map_or(END, |i| i.start));
        }
        loop {
            if let Some(item) = lower.current() {
                return Ok(Some(start.min(item.start)));
            }
            let Some(table) = lower.unopened() else { break };
            if table.low > start || start == END {
                break;
            }
            if start < table.high || (!writer.is_empty() && writer.leaves() < least) {
                lower.open(pages).await?;
            } else if !begun {
                lower.skip_table();
            } else {
                return Ok(None);
            }
        }
        Ok((start < END).then_some(start))
    }

    /// The newest item at `start`, up to where a newer one begins. What has no contents, and may be
    /// long, is taken in parts: none hides more than one item of each older input.
    fn piece(&self, start: Flat) -> Option<(usize, Item)> {
        let mut end = self.limit;
        let mut found: Option<(usize, Item)> = None;
        for (n, source) in self.sources.iter().enumerate() {
            let Some(item) = source.current() else {
                let next = source.unopened().filter(|t| t.low > start);
                end = end.min(next.map_or(END, |t| t.low));
                continue;
            };
            match &found {
                None if item.start == start => {
                    end = end.min(item.end());
                    found = Some((n, *item));
                    if item.place.has_contents() {
                        break;
                    }
                }
                None => end = end.min(item.start),
                Some(_) => end = end.min(item.end()),
            }
        }
        found.map(|(n, item)| (n, Item { blocks: low64(end - start), ..item }))
    }

    /// Takes the piece from all inputs; what older ones have there is superseded. A leaf that began
    /// within it divides the reports.
    async fn settle(&mut self, winner: usize, piece: &Item, leaf: Option<Flat>) -> Result<()> {
        let cut = leaf.filter(|&at| at > piece.start && at < piece.end());
        if leaf.is_some() && cut.is_none() {
            self.reports.mark = self.reports.found.len();
        }
        for end in cut.into_iter().chain([piece.end()]) {
            for n in winner + 1..self.sources.len() {
                if self.sources[n].current().is_none_or(|i| i.start < end) {
                    self.settle_older(n, piece, end).await?;
                }
            }
            if Some(end) == cut {
                self.reports.mark = self.reports.found.len();
            }
        }
        let source = &mut self.sources[winner];
        if source.take_now(piece.end())? {
            return Ok(());
        }
        source.take_until(self.pages, piece.end()).await
    }

    async fn settle_older(&mut self, n: usize, piece: &Item, end: Flat) -> Result<()> {
        loop {
            let source = &mut self.sources[n];
            if source.current().is_none() {
                // What it has next may begin within the piece too.
                let within = source.unopened().is_some_and(|t| t.low < end);
                if !within {
                    return Ok(());
                }
                source.open(self.pages).await?;
                continue;
            }
            let Some(item) = source.current().filter(|i| i.start < end) else { return Ok(()) };
            let over = Item { blocks: low64(item.end().min(end) - item.start), ..*item };
            self.reports.replaced(&over, piece);
            source.take_until(self.pages, over.end()).await?;
        }
    }
}

const fn crc_count(piece: &Item) -> usize {
    if piece.place.has_contents() { usize64(piece.blocks) } else { 0 }
}
