//! From the memtable to a run.

use super::flat::{END, Flat, Item, Place};
use super::memtable::Cursor;
use super::merge::Outlet;
use super::page::ITEMS_MAX;
use super::stack::{Seen, settle};
use super::state::State;
use super::table::{Group, Level, Table};
use super::writer::{Pushed, Writer};
use super::{Map, Pages};
use crate::address::{Encoding, Location, Version};
use crate::error::Result;
use reactor::sync::Semaphore;
use std::cell::RefCell;

/// A turn of the one flush or merge at a time. Pages appended for a table that did not become part
/// of the map, because of an error or because the task was dropped, are given up with it.
pub(super) struct Turn<'a, P: Pages> {
    pages: &'a P,
    turns: &'a Semaphore,
    appended: &'a RefCell<Vec<Location>>,
}

impl<'a, P: Pages> Turn<'a, P> {
    pub async fn take(
        pages: &'a P,
        turns: &'a Semaphore,
        appended: &'a RefCell<Vec<Location>>,
    ) -> Self {
        turns.acquire(1).await;
        Self { pages, turns, appended }
    }

    /// What was appended is part of the map now.
    pub fn keep(&self) {
        self.appended.borrow_mut().clear();
    }
}

impl<P: Pages> Drop for Turn<'_, P> {
    fn drop(&mut self) {
        for location in self.appended.borrow_mut().drain(..) {
            self.pages.superseded(location, Encoding::PLAIN, 1);
        }
        self.turns.release(1);
    }
}

impl<P: Pages> Map<P> {
    /// Writes what was inserted before the call to pages, so that a manifest taken afterwards has
    /// it. Inserts go on meanwhile; those are not part of it.
    ///
    /// # Errors
    /// Those of appending pages. Nothing is lost then: the next flush tries again.
    pub async fn flush(&self) -> Result<()> {
        let turn = Turn::take(&self.pages, &self.flushing, &self.appended[0]).await;
        if !self.state.borrow().frozen.is_empty() {
            self.flush_frozen(&turn).await?;
        }
        {
            let mut state = self.state.borrow_mut();
            if state.active.is_empty() {
                return Ok(());
            }
            let state = &mut *state;
            assert!(state.frozen.is_empty(), "one memtable is flushed at a time");
            state.active.assert_counts();
            std::mem::swap(&mut state.active, &mut state.frozen);
        }
        self.flush_frozen(&turn).await
    }

    async fn flush_frozen(&self, turn: &Turn<'_, P>) -> Result<()> {
        let writer = self.flush_writer.borrow_mut().take();
        let mut writer = writer.unwrap_or_else(|| {
            let leaves = self.state.borrow().limits.table_leaves;
            Box::new(Writer::new(leaves, std::rc::Rc::clone(&self.appended[0])))
        });
        let mut dropped = Vec::new();
        let tables = self.write_run(&mut writer, &mut dropped).await;
        *self.flush_writer.borrow_mut() = Some(writer);
        let tables = tables?;
        while self.state.borrow().runs_full() {
            self.merge_once().await?;
        }
        let is_apart = |pair: &[Table]| pair[0].high <= pair[1].low;
        assert!(tables.windows(2).all(is_apart), "tables of a run do not overlap");
        let mut state = self.state.borrow_mut();
        assert!(!state.frozen.is_empty(), "a run is of the memtable that was frozen for it");
        let tables = tables.into_iter().map(|t| state.admit(t, Group::Run(0))).collect();
        state.runs.push(Level::from_tables(tables));
        state.version += 1;
        state.flushed += 1;
        state.frozen.clear();
        turn.keep();
        for (_, place) in dropped {
            if let Place::At(location, encoding) = place {
                self.pages.superseded(location, encoding, 1);
            }
        }
        Ok(())
    }

    /// Writes the frozen memtable, and gathers what of it no snapshot sees any more, by block.
    async fn write_run(
        &self,
        writer: &mut Writer,
        dropped: &mut Vec<(Flat, Place)>,
    ) -> Result<Vec<Table>> {
        let (versions, pages) = (self.state.borrow().frozen.has_versions(), self.written());
        let mut checksums = Vec::with_capacity(ITEMS_MAX);
        let mut tables = Vec::new();
        let (mut at, mut place) = (0, Cursor::default());
        while at < END {
            let (id, width) = {
                let mut state = self.state.borrow_mut();
                (state.table_id(), State::width_for(Group::Run(0)))
            };
            writer.begin(width);
            let filled = if versions {
                self.fill_versions(writer, at, dropped).await?
            } else {
                self.fill_run(writer, at, &mut place, &mut checksums).await?
            };
            let (table, rest) = writer.finish(&pages, id).await?;
            tables.extend(table);
            at = filled.min(rest);
            // The next table comes upon it again.
            dropped.retain(|(block, _)| *block < at);
        }
        Ok(tables)
    }

    /// Fills a table from `at` on; tells where the next one begins.
    async fn fill_run(
        &self,
        writer: &mut Writer,
        mut at: Flat,
        place: &mut Cursor,
        checksums: &mut Vec<u32>,
    ) -> Result<Flat> {
        let pages = self.written();
        loop {
            let next = self.state.borrow().frozen.next(at, place, checksums, ITEMS_MAX);
            let Some((item, _)) = next else { return Ok(END) };
            match writer.push(&pages, &item, Version::FIRST, checksums).await? {
                Pushed::Whole(_) => at = item.end(),
                Pushed::Full(from) => return Ok(from),
            }
        }
    }

    /// As [`fill_run`](Self::fill_run), where blocks may have several versions.
    async fn fill_versions(
        &self,
        writer: &mut Writer,
        mut at: Flat,
        dropped: &mut Vec<(Flat, Place)>,
    ) -> Result<Flat> {
        let (mut outlet, mut place) = (Outlet::default(), Cursor::default());
        let mut checksums = Vec::with_capacity(ITEMS_MAX);
        let (mut seen, mut layers, pages) = (Seen::default(), Vec::new(), self.written());
        loop {
            let (item, version) = {
                let state = self.state.borrow();
                let next = state.frozen.next(at, &mut place, &mut checksums, ITEMS_MAX);
                let Some((item, version)) = next else { break };
                if place.is_stacked {
                    state.frozen.layers(item.start, &mut layers, &mut outlet.spare);
                }
                (item, version)
            };
            let Item { start, blocks, .. } = item;
            let full = if place.is_stacked {
                let dropped = |place| dropped.push((start, place));
                settle(&pages, &mut seen, start, &mut layers, dropped);
                outlet.push(&pages, writer, (start, blocks), &mut layers).await?
            } else {
                outlet.push_one(&pages, writer, &item, version, &checksums).await?
            };
            if let Some(from) = full {
                return Ok(from);
            }
            at = item.end();
        }
        Ok(outlet.finish(&pages, writer).await?.unwrap_or(END))
    }
}
