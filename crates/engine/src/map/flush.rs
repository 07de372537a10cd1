//! From the memtable to a run.

use super::flat::END;
use super::memtable::Cursor;
use super::page::ITEMS_MAX;
use super::state::State;
use super::table::{Group, Level, Table};
use super::writer::{Pushed, Writer};
use super::{Map, Pages};
use crate::address::{Encoding, Location};
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
        let tables = self.write_run(&mut writer).await;
        *self.flush_writer.borrow_mut() = Some(writer);
        let tables = tables?;
        while self.state.borrow().runs_full() {
            self.merge_once().await?;
        }
        let mut state = self.state.borrow_mut();
        let tables = tables.into_iter().map(|t| state.admit(t, Group::Run(0))).collect();
        state.runs.push(Level::from_tables(tables));
        state.version += 1;
        state.flushed += 1;
        state.frozen.clear();
        turn.keep();
        Ok(())
    }

    async fn write_run(&self, writer: &mut Writer) -> Result<Vec<Table>> {
        let mut checksums = Vec::with_capacity(ITEMS_MAX);
        let mut tables = Vec::new();
        let (mut at, mut place) = (0, Cursor::default());
        while at < END {
            let (id, width) = {
                let mut state = self.state.borrow_mut();
                (state.table_id(), State::width_for(Group::Run(0)))
            };
            writer.begin(width);
            loop {
                let next = {
                    let frozen = &self.state.borrow().frozen;
                    frozen.next(at, &mut place, &mut checksums, ITEMS_MAX)
                };
                let Some(item) = next else {
                    at = END;
                    break;
                };
                match writer.push(&self.pages, &item, &checksums).await? {
                    Pushed::Whole(_) => at = item.end(),
                    Pushed::Full(from) => {
                        at = from;
                        break;
                    }
                }
            }
            let (table, rest) = writer.finish(&self.pages, id).await?;
            tables.extend(table);
            at = at.min(rest);
        }
        Ok(tables)
    }
}
