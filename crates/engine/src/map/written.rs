//! Pages that are written are kept in memory as those that are read are: what nobody has read yet is known, too, while drives
//! are away (decision 0037).

use super::cache::Worth;
use super::page::Kind;
use super::state::State;
use super::{Map, Pages};
use crate::address::{BLOCK, Encoding, Entry, Location, Version, View};
use crate::error::Result;
use std::cell::RefCell;

/// The pages of a map, of which those that lookups ask for come to its cache as they are appended.
pub(super) struct Written<'a, P: Pages> {
    pages: &'a P,
    state: &'a RefCell<State>,
}

impl<P: Pages> Map<P> {
    pub(super) const fn written(&self) -> Written<'_, P> {
        Written { pages: &self.pages, state: &self.state }
    }
}

impl<P: Pages> Pages for Written<'_, P> {
    async fn read(&self, first: Location, crcs: &[u32], out: &mut [u8]) -> Result<()> {
        self.pages.read(first, crcs, out).await
    }

    async fn append(&self, page: &[u8; BLOCK]) -> Result<Entry> {
        let entry = self.pages.append(page).await?;
        let worth = match Kind::of(page) {
            Some(Kind::Leaf) => Some(Worth::Leaf),
            Some(Kind::Index) => Some(Worth::Index),
            Some(Kind::Filters | Kind::Holes | Kind::Filter) | None => None,
        };
        if let Some(worth) = worth {
            self.state.borrow_mut().cache.put_written(entry, worth, page);
        }
        Ok(entry)
    }

    fn superseded(&self, first: Location, encoding: Encoding, blocks: u32) {
        self.pages.superseded(first, encoding, blocks);
    }

    fn is_needed(&self, view: View, written: Version, replaced: Version) -> bool {
        self.pages.is_needed(view, written, replaced)
    }

    fn seen(&self, view: View, out: &mut Vec<Version>) {
        self.pages.seen(view, out);
    }

    fn seen_changes(&self) -> u64 {
        self.pages.seen_changes()
    }

    fn keeps_holes(&self, view: View) -> bool {
        self.pages.keeps_holes(view)
    }
}
