//! Steps of work on tables, one at a time.
//!
//! A step writes one table and then, in one synchronous change, puts it in the place of what it was
//! made from: tables used up go, those used in part no longer speak of what lies before. So a step is
//! short, its effect whole or none, and lookups see the map before it or after it.

use super::filter::Filter;
use super::flat::{END, Flat};
use super::flush::Turn;
use super::limits::TABLE_LEAVES_LEAST;
use super::merge::{Named, Step};
use super::page::{Kind, Page};
use super::policy::{self, Plan};
use super::source::{Source, named};
use super::state::State;
use super::table::{Group, Level, Table};
use super::writer::Writer;
use super::{Map, Pages, corrupt};
use crate::address::{BLOCK, BLOCK_GRAINS, Encoding, Entry, Location, SegmentId};
use crate::error::Result;
use std::rc::Rc;
use stdx::num::usize32;

/// A table and the group it is to move from, as it is, because nothing it would be merged with is
/// in its way.
fn movable(state: &State, plan: &Plan, least: usize) -> Option<(Group, Rc<Table>)> {
    let first = |group: Group| {
        let level = state.group(group);
        level.get(level.position(plan.from))
    };
    let group = *plan.upper.iter().find(|&&g| first(g).is_some_and(|t| t.low == plan.from))?;
    let table = first(group)?;
    let others = plan.upper.iter().copied().filter(|&g| g != group).chain([plan.into]);
    let clear = others.filter_map(first).all(|other| other.low >= table.high);
    let worth = usize32(table.leaves) >= least && !(plan.reaches_last() && table.blocks == 0);
    (clear && worth).then(|| (group, Rc::clone(table)))
}

impl<P: Pages> Map<P> {
    pub(super) async fn merge_turn(&self) -> Turn<'_, P> {
        Turn::take(&self.pages, &self.merging, &self.appended[1]).await
    }

    /// Takes the most overdue merge one step further; tells whether one was due.
    pub(super) async fn merge_once(&self) -> Result<bool> {
        let turn = self.merge_turn().await;
        let plan = {
            let mut state = self.state.borrow_mut();
            let Some(plan) = policy::pick(&state) else { return Ok(false) };
            if let Some(Group::Run(newest)) = plan.upper.first() {
                state.sweeping = newest + 1;
            }
            let least = TABLE_LEAVES_LEAST.min(state.limits.table_leaves / 4);
            if let Some((group, table)) = movable(&state, &plan, least) {
                move_table(&mut state, group, &table, &plan);
                return Ok(true);
            }
            plan
        };
        let (upper, lower) = {
            let state = self.state.borrow();
            let upper = plan.upper.iter().map(|&g| Source::new(state.group(g), plan.from));
            (upper.collect(), Source::new(state.group(plan.into), plan.from))
        };
        self.step(&turn, &plan, upper, lower, Rc::default()).await?;
        Ok(true)
    }

    /// One step of a plan, whose inputs' upper and lower ones are given.
    async fn step(
        &self,
        turn: &Turn<'_, P>,
        plan: &Plan,
        upper: Vec<Source>,
        lower: Source,
        named: Rc<Named>,
    ) -> Result<Flat> {
        let leaves = self.state.borrow().limits.table_leaves;
        let writer = self.merge_writer.borrow_mut().take();
        let mut writer =
            writer.unwrap_or_else(|| Box::new(Writer::new(leaves, Rc::clone(&self.appended[1]))));
        let (id, width, limit) = {
            let mut state = self.state.borrow_mut();
            (
                state.table_id(),
                State::width_for(plan.into),
                state.cursor_after(plan.into, plan.from),
            )
        };
        writer.begin(width);
        let mut sources = upper;
        sources.push(lower);
        let pages = self.written();
        let step = Step::new(&pages, sources, plan.reaches_last(), limit);
        let mut step = step.naming(named);
        let filled = step.fill(&mut writer, TABLE_LEAVES_LEAST.min(leaves / 4)).await;
        let finished = match filled {
            Ok(()) => writer.finish(&pages, id).await,
            Err(e) => Err(e),
        };
        *self.merge_writer.borrow_mut() = Some(writer);
        let (table, rest) = finished?;
        if rest < END {
            step.leave(rest);
        }
        let Some(began) = step.began else { return Ok(END) };
        let (at, mut reports) = (step.at, step.into_reports());
        self.gather_dead(plan, began, at, &mut reports).await?;
        self.install(plan, began, at, table);
        turn.keep();
        for (location, encoding, blocks) in reports {
            self.pages.superseded(location, encoding, blocks);
        }
        Ok(at)
    }

    /// Adds the pages of tables that the step uses up to its reports.
    async fn gather_dead(
        &self,
        plan: &Plan,
        began: Flat,
        at: Flat,
        reports: &mut Vec<(Location, Encoding, u32)>,
    ) -> Result<()> {
        let mut dead = Vec::new();
        {
            let state = self.state.borrow();
            for (group, from) in inputs(plan, began) {
                dead.extend(state.group(group).used_up(from, at));
            }
        }
        let mut page = Box::new([0; BLOCK]);
        let mut entries = Vec::new();
        for table in dead {
            let lists = [
                (Some(table.index), Kind::Index),
                (table.filters.map(|(entry, _)| entry), Kind::Filters),
            ];
            for (entry, kind) in lists {
                let Some(entry) = entry else { continue };
                self.pages.read(entry.location, &[entry.crc], &mut page[..]).await?;
                entries.push(entry);
                named(&page, kind, &mut entries).map_err(|bad| corrupt(entry.location, bad))?;
            }
            entries.extend(table.holes);
        }
        entries.sort_unstable_by_key(|e: &Entry| e.location);
        for entry in entries {
            match reports.last_mut() {
                Some((first, Encoding::PLAIN, count))
                    if first.is_followed(u64::from(*count * BLOCK_GRAINS), entry.location) =>
                {
                    *count += 1;
                }
                _ => reports.push((entry.location, Encoding::PLAIN, 1)),
            }
        }
        Ok(())
    }

    /// The step's one change of state.
    fn install(&self, plan: &Plan, began: Flat, at: Flat, table: Option<Table>) {
        let mut state = self.state.borrow_mut();
        for (group, from) in inputs(plan, began) {
            for used in state.group_mut(group).consume(from, at) {
                state.dismiss(&used);
                state.cache.forget(used.index.location);
            }
        }
        if let Some(table) = table {
            let table = state.admit(table, plan.into);
            state.group_mut(plan.into).insert(table);
        }
        advance_cursor(&mut state, plan, at);
    }

    /// Loads the filter of one table that has none in memory after opening; tells whether it did
    /// something.
    pub(super) async fn load_filter(&self) -> Result<bool> {
        if !self.state.borrow().filters_missing {
            return Ok(false);
        }
        let _turn = self.merge_turn().await;
        let found = {
            let state = self.state.borrow();
            let room = state.limits.filters.saturating_sub(state.filter_bytes);
            let wanted = |t: &&Rc<Table>| {
                t.filter.is_none() && t.filters.is_some_and(|(_, n)| usize32(n) * BLOCK <= room)
            };
            let groups = (0..state.runs.len()).rev().map(Group::Run).chain(state.filtered_levels());
            let mut tables = groups
                .flat_map(|g| state.group(g).tables().iter().filter(wanted).map(move |t| (g, t)));
            tables.next().map(|(group, table)| (group, Rc::clone(table)))
        };
        let Some((group, table)) = found else {
            let mut state = self.state.borrow_mut();
            (state.filters_missing, state.filters_dropped) = (false, true);
            return Ok(true);
        };
        let filter = self.read_filter(&table).await?;
        let mut state = self.state.borrow_mut();
        let loaded = Table { filter: Some(Rc::new(filter)), ..(*table).clone() };
        let loaded = state.admit(loaded, group);
        if loaded.filter.is_none() {
            (state.filters_missing, state.filters_dropped) = (false, true);
        }
        let is_there = state.group_mut(group).replace(&loaded);
        assert!(is_there, "a table stays while its filter is read");
        Ok(true)
    }

    async fn read_filter(&self, table: &Table) -> Result<Filter> {
        let Some((directory, count)) = table.filters else {
            return Err(corrupt(table.index.location, crate::format::Bad::Field("filters")));
        };
        let bad = |bad| corrupt(directory.location, bad);
        let mut page = Box::new([0; BLOCK]);
        self.pages.read(directory.location, &[directory.crc], &mut page[..]).await?;
        let mut entries = Vec::new();
        named(&page, Kind::Filters, &mut entries).map_err(bad)?;
        if entries.len() != usize32(count) {
            return Err(bad(crate::format::Bad::Field("number of filter pages")));
        }
        let mut pages = Vec::with_capacity(entries.len());
        for entry in entries {
            self.pages.read(entry.location, &[entry.crc], &mut page[..]).await?;
            pages.push(*page);
        }
        let mut holes = Vec::new();
        if let Some(entry) = table.holes {
            let bad = |bad| corrupt(entry.location, bad);
            self.pages.read(entry.location, &[entry.crc], &mut page[..]).await?;
            let list = Page::parse(&page, Kind::Holes).map_err(bad)?;
            for i in 0..list.len() {
                let item = list.run(i).map_err(bad)?;
                holes.push((item.start, item.end()));
            }
        }
        Filter::new(pages, holes).map_err(bad)
    }

    /// Writes one table anew that may have what no snapshot sees any more; tells whether there was one.
    pub(super) async fn prune_once(&self) -> Result<bool> {
        let is_old = |state: &State, table: &Table| {
            state.pruning > 0 && table.has_stacks && table.id < state.prune_before
        };
        let turn = self.merge_turn().await;
        let found = {
            let state = self.state.borrow();
            state.groups().find_map(|group| {
                let mut tables = state.group(group).tables().iter();
                tables.find(|table| is_old(&state, table)).map(|t| (group, Rc::clone(t)))
            })
        };
        let Some((group, table)) = found else { return Ok(false) };
        self.write_anew(&turn, group, &table, Rc::default()).await?;
        Ok(true)
    }

    /// Writes all that a table still says into others in its place. Old versions refer to what is named.
    pub(super) async fn write_anew(
        &self,
        turn: &Turn<'_, P>,
        group: Group,
        table: &Table,
        named: Rc<Named>,
    ) -> Result<()> {
        let mut from = table.low;
        while from < table.high {
            let rest = table.cut(from);
            let plan = Plan { upper: vec![group], into: group, from };
            let upper = Source::new(&Level::from_tables(vec![Rc::new(rest)]), from);
            let lower = Source::new(&Level::EMPTY, from);
            from =
                self.step(turn, &plan, vec![upper], lower, Rc::clone(&named)).await?.max(from + 1);
        }
        Ok(())
    }

    /// Moves the map's own pages out of a segment, so that it can be freed: tables with pages in it
    /// are written anew. Reports the pages given up as superseded. The caller must not append into
    /// that segment meanwhile.
    ///
    /// # Errors
    /// Those of reading and appending pages; it can be tried again.
    pub async fn evacuate(&self, segment: SegmentId) -> Result<()> {
        let turn = self.merge_turn().await;
        let newest = self.state.borrow().next_table;
        let there = |t: &&Rc<Table>| t.id < newest && t.segments.contains(&segment);
        loop {
            let found = {
                let state = self.state.borrow();
                state.groups().find_map(|group| {
                    let mut tables = state.group(group).tables().iter();
                    tables.find(there).map(|t| (group, Rc::clone(t)))
                })
            };
            let Some((group, table)) = found else { return Ok(()) };
            self.write_anew(&turn, group, &table, Rc::default()).await?;
        }
    }
}

/// What a step takes from: each upper input from where it began, the level it goes into from the
/// first piece on.
fn inputs(plan: &Plan, began: Flat) -> impl Iterator<Item = (Group, Flat)> {
    let lower = (!plan.upper.contains(&plan.into)).then_some((plan.into, began));
    plan.upper.iter().map(|&g| (g, plan.from)).chain(lower)
}

fn move_table(state: &mut State, group: Group, table: &Rc<Table>, plan: &Plan) {
    for used in state.group_mut(group).consume(table.low, table.high) {
        state.dismiss(&used);
    }
    let moved = state.admit((**table).clone(), plan.into);
    state.group_mut(plan.into).insert(moved);
    advance_cursor(state, plan, table.high);
}

fn advance_cursor(state: &mut State, plan: &Plan, at: Flat) {
    match plan.upper.first() {
        Some(Group::Level(level)) => state.cursors[*level] = at,
        _ => state.drop_empty_runs(),
    }
    state.version += 1;
}
