//! What a view has in one version that it had not in an older one: found by since when it is so, without a look at
//! contents.

use super::extents::{Contents, Extents};
use super::flat::{Flat, flat, low64};
use super::lookup::{Filters, SCAN_TURN, Step, step_by};
use super::memtable::Known;
use super::state::State;
use super::{Map, Pages};
use crate::address::{Version, View};
use crate::error::Result;
use std::ops::Range;

/// Up to where nothing from `at` on has a version, whatever layer speaks of it: what is there has been so since the
/// first. `at` itself where something may have one.
fn unversioned_until(state: &State, at: Flat, end: Flat) -> Flat {
    let mut until = end;
    for memtable in [&state.active, &state.frozen] {
        if memtable.has_versions() {
            match memtable.get(at, Version::LAST) {
                Known::Nothing(next) => until = until.min(next),
                Known::Data(..) | Known::Lost(_) | Known::Hole(..) => return at,
            }
        }
    }
    for level in state.sorted() {
        if let Some(table) = level.get(level.position(at)) {
            let next = if table.has_versions { table.low.max(at) } else { table.high };
            until = until.min(next);
        }
    }
    until
}

impl<P: Pages> Map<P> {
    /// Calls `found` with the blocks of a range that a view has otherwise as of `seen` than it had as of `before`, in
    /// order, and whether they have contents, or lost ones: if not, they had some before. Against nothing (`None`) these
    /// are all that have. Of a clone, blocks given back that it had nothing of are told, too, and against nothing only what
    /// it has of its own. There must be a snapshot of either version, which has all in the map that it sees. Ends once
    /// `found` says false, or after so many steps, each of which reads at most a page; gives the block that comes next.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup).
    pub async fn changes(
        &self,
        view: View,
        before: Option<Version>,
        seen: Version,
        blocks: Range<u64>,
        steps: usize,
        mut found: impl FnMut(Range<u64>, bool) -> bool,
    ) -> Result<u64> {
        let base = flat(view, 0);
        let (mut at, end) = (base + Flat::from(blocks.start), base + Flat::from(blocks.end));
        // Up to here it is a hole that there was not before: what was there is asked.
        let mut hole_end = at;
        let (mut held, mut out) = (Vec::new(), Extents::default());
        let mut may_skip = before.is_some();
        // What a clone had nothing of was its parent's.
        let is_clone = self.pages.keeps_holes(view);
        let inherits = |out: &Extents| {
            is_clone && out.iter().any(|extent| extent.contents == Contents::Absent)
        };
        for n in 1..=steps {
            if std::mem::take(&mut may_skip) {
                at = unversioned_until(&self.state.borrow(), at, end);
            }
            if at >= end {
                break;
            }
            let (until, as_of) = match before {
                Some(before) if at < hole_end => (hole_end, before),
                _ => (end, seen),
            };
            out.clear();
            let (filters, state) = (Filters::PassedBy, &self.state);
            let step =
                step_by(filters, &mut state.borrow_mut(), &held, at, until, as_of, &mut out)?;
            match step {
                Step::Until(next, since) => {
                    self.give_back(&mut held);
                    let has_contents = out.iter().any(|extent| !extent.contents.is_empty());
                    let is_new = before.is_none_or(|before| since > before);
                    let is_before = at < hole_end;
                    if is_new && !has_contents && before.is_some() {
                        hole_end = next;
                        continue;
                    }
                    may_skip = before.is_some() && !is_before && since == Version::FIRST;
                    let blocks = low64(at - base)..low64(next - base);
                    at = next;
                    let had = has_contents || (is_before && inherits(&out));
                    let is_told = had && (is_new || is_before);
                    if is_told && !found(blocks, !is_before) {
                        break;
                    }
                }
                Step::Need(entry, worth) => self.fetch(entry, worth, &mut held).await?,
            }
            if n.is_multiple_of(SCAN_TURN) {
                super::pause().await;
            }
        }
        self.give_back(&mut held);
        Ok(low64(at - base))
    }
}
