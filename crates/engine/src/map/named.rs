//! Old versions of blocks that were copied by reference since: they are made references, so that each block counts once.
//!
//! What a name is given is the newest of its key as a rule, and becomes a reference when the map learns that it is shared. An
//! old version stays as it is then (decision 0026): the map has the place under its name as well, and would report both.

use super::flat::low64;
use super::merge::{Named, plain};
use super::source::Source;
use super::table::{Group, Level, Table};
use super::{Contents, Extents, Map, Pages, pause};
use crate::address::{Key, SharedBlockId, View};
use crate::error::Result;
use std::rc::Rc;
use stdx::num::{low32, u32_of};

/// Names looked up at once.
const NAMES_AT_ONCE: u32 = 256;

impl<P: Pages> Map<P> {
    /// Has old versions refer to what has a name by now, in tables in which blocks have several versions: what is in
    /// different levels stays until they are merged ([`compact`](Self::compact)). No name may be forgotten meanwhile.
    ///
    /// # Errors
    /// As [`maintain`](Self::maintain).
    pub async fn refer_by_name(&self) -> Result<()> {
        if !self.has_names().await? {
            return Ok(());
        }
        let (mut done, end) = (None, self.state.borrow().next_table);
        while let Some(id) = self.refer_in_next(done, end).await? {
            done = Some(id);
            pause().await;
        }
        Ok(())
    }

    async fn has_names(&self) -> Result<bool> {
        let mut any = false;
        let found = |_, _, _, _| {
            any = true;
            false
        };
        self.scan(Key::new(View::SHARED, 0), None, found).await?;
        Ok(any)
    }

    /// Does that in the first table after `done`, in the order of their numbers, and before `end`; gives its number.
    async fn refer_in_next(&self, done: Option<u64>, end: u64) -> Result<Option<u64>> {
        let turn = self.merge_turn().await;
        let found = {
            let state = self.state.borrow();
            let is_next =
                |table: &Table| table.has_stacks && Some(table.id) > done && table.id < end;
            let tables = state.groups().flat_map(|group| {
                let of_group = state.group(group).tables().iter();
                of_group.filter(|table| is_next(table)).map(move |table| (group, table))
            });
            tables.min_by_key(|(_, table)| table.id).map(|(group, table)| (group, Rc::clone(table)))
        };
        let Some((group, table)): Option<(Group, Rc<Table>)> = found else { return Ok(None) };
        let names = self.names_in(&table).await?;
        if !names.is_empty() {
            self.write_anew(&turn, group, &table, Rc::new(Named::new(names))).await?;
        }
        Ok(Some(table.id))
    }

    /// The names that there are of what lies where stacks of a table say, in order.
    async fn names_in(&self, table: &Rc<Table>) -> Result<Vec<SharedBlockId>> {
        let mut source = Source::new(&Level::from_tables(vec![Rc::clone(table)]), table.low);
        let mut lying = Vec::new();
        source.open(&self.pages).await?;
        while let Some(item) = source.current().copied() {
            if source.is_stack() {
                let mut is_newest = true;
                source.each_version(|_, place| {
                    if std::mem::take(&mut is_newest) {
                        return;
                    }
                    let first = plain(place).map(SharedBlockId::of);
                    let blocks = (0..low32(low64(item.end() - item.start)))
                        .map(|n| first.map(|first| first.offset(n)));
                    lying.extend(blocks.flatten());
                });
            }
            source.take_until(&self.pages, item.end()).await?;
        }
        lying.sort_unstable();
        lying.dedup();
        let (mut names, mut extents) = (Vec::new(), Extents::default());
        let mut rest = &lying[..];
        while let Some(first) = rest.first() {
            let adjacent = |n: &u32| rest.get(stdx::num::usize32(*n)) == Some(&first.offset(*n));
            let count = (1..NAMES_AT_ONCE).take_while(adjacent).count() + 1;
            let key = first.key();
            self.lookup(key.view, key.block, u32_of(count), &mut extents).await?;
            for extent in extents.iter() {
                if let Contents::Stored { .. } = extent.contents {
                    let at = low32(extent.first - key.block);
                    names.extend((at..at + extent.count).map(|n| first.offset(n)));
                }
            }
            rest = &rest[count..];
        }
        Ok(names)
    }
}
