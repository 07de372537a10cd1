//! What a snapshot has otherwise than an older one of the same volume: asked of the map, which has all of both by then.

use std::ops::Range;
use std::sync::Arc;

use super::Front;
use crate::address::{Version, View};
use crate::error::Result;
use crate::limits::CHANGES_STEPS;
use crate::volume::state::Ancestor;

/// Snapshots of a volume, one of them perhaps compared with an older one.
#[derive(Clone, Debug)]
pub struct Compared {
    pub view: View,
    /// The older one: the last version that it sees, and its blocks. None where all contents of the other are new.
    pub before: Option<(Version, u64)>,
    /// The last version that the other one sees.
    pub sees: Version,
    /// What it sees where the view has nothing, if it is of a clone.
    pub ancestors: Option<Arc<[Ancestor]>>,
    /// In place of `before`, where the volume was rolled back in between: what the older one sees, one behind another, and
    /// its blocks.
    pub elsewhere: Option<(Arc<[Ancestor]>, u64)>,
}

/// Blocks that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub first: u64,
    /// At least 1.
    pub count: u64,
    /// They have contents, or lost ones. If not, they had some.
    pub has_data: bool,
}

impl Change {
    pub const fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Takes the next one into this one, if it goes on with it.
    pub const fn join(&mut self, next: &Self) -> bool {
        let goes_on = self.end() == next.first && self.has_data == next.has_data;
        if goes_on {
            self.count += next.count;
        }
        goes_on
    }
}

/// What was found, in order, and the block before which that is all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    pub found: Vec<Change>,
    pub until: u64,
}

impl Front {
    /// Looks for what changed of a range of blocks of a volume: at most so many changes, in a bounded part of the range.
    ///
    /// # Errors
    /// `Busy` while nothing leaves the log, for want of space or of drives; those of reading the map.
    pub async fn changes(
        &self,
        compared: &Compared,
        blocks: Range<u64>,
        most: usize,
    ) -> Result<Looked> {
        let Compared { view, before, sees, .. } = *compared;
        self.carry.carry(view, sees).await?;
        // What the older one was too small for it had nothing of.
        let (before, end) = match before {
            Some((version, end)) if blocks.start < end => (Some(version), end.min(blocks.end)),
            _ => (None, blocks.end),
        };
        if let Some(before) = before {
            self.carry.carry(view, before).await?;
        }
        let own = Ancestor { view, sees };
        let ancestors = compared.ancestors.as_deref().unwrap_or_default();
        if let Some((older, end)) = &compared.elsewhere {
            return self.differences((own, ancestors), (older, *end), blocks, most).await;
        }
        if !ancestors.is_empty() && before.is_none() {
            return self.contents(own, ancestors, blocks, most).await;
        }
        let mut found: Vec<Change> = Vec::new();
        let add = |blocks: Range<u64>, has_data| {
            let change = Change { first: blocks.start, count: blocks.end - blocks.start, has_data };
            if !found.last_mut().is_some_and(|last| last.join(&change)) {
                found.push(change);
            }
            found.len() < most
        };
        // The map's pages stay where they are while they are looked at.
        let _reading = self.base.grace.enter();
        let range = blocks.start..end;
        let map = &self.base.map;
        let until = map.changes(view, before, sees, range, CHANGES_STEPS, add).await?;
        Ok(Looked { found, until })
    }

    /// All that one of two snapshots of different views has, as if it had changed, and what only the older one has.
    async fn differences(
        &self,
        (own, ancestors): (Ancestor, &[Ancestor]),
        (older, end): (&[Ancestor], u64),
        blocks: Range<u64>,
        most: usize,
    ) -> Result<Looked> {
        let begin = blocks.start;
        let Looked { found, until } = self.contents(own, ancestors, blocks, most).await?;
        let Some((older, rest)) = older.split_first().filter(|_| begin < end) else {
            return Ok(Looked { found, until });
        };
        self.carry.carry(older.view, older.sees).await?;
        let had = self.contents(*older, rest, begin..end.min(until), most).await?;
        let until = if had.until < end.min(until) { had.until } else { until };
        Ok(Looked { found: together(found, had.found, until), until })
    }
}

/// What the newer one has, and where it has nothing, as holes, what the older one had: before a block, in order.
fn together(newer: Vec<Change>, older: Vec<Change>, until: u64) -> Vec<Change> {
    let mut all = newer.clone();
    for run in older {
        let mut at = run.first;
        let mut hole = |at: u64, end: u64| {
            let count = end.saturating_sub(at);
            all.extend((count > 0).then_some(Change { first: at, count, has_data: false }));
        };
        let behind = newer.partition_point(|next| next.end() <= run.first);
        for next in newer[behind..].iter().take_while(|next| next.first < run.end()) {
            hole(at, next.first);
            at = next.end();
        }
        hole(at, run.end());
    }
    all.sort_unstable_by_key(|change| change.first);
    let mut found: Vec<Change> = Vec::new();
    for Change { first, count, has_data } in all {
        let change = Change { first, count: count.min(until.saturating_sub(first)), has_data };
        if change.count > 0 && !found.last_mut().is_some_and(|last| last.join(&change)) {
            found.push(change);
        }
    }
    found
}
