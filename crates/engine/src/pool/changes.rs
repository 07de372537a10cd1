//! What changed of a volume between two of its snapshots: for whoever keeps a copy of the older one elsewhere.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use reactor::join_all;
use stdx::num::u64_of;

use super::Pool;
use super::volumes::invalid;
use crate::error::Result;
use crate::limits::{CHANGES_EXTENTS, CHANGES_MOST, CHANGES_ROUNDS};
use crate::shard::{Change, Compared, Looked, Shard};
use crate::volume::state::{Ancestor, BLOCK_BYTES, State};
use crate::volume::{CHUNK_BLOCKS, shard_of};

/// What changed between two snapshots, as far as it was looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In order; none goes on where the one before ends, but for whether it has data.
    pub extents: Vec<ChangedExtent>,
    /// The offset in bytes to go on from; `None` when the end was reached.
    pub next: Option<u64>,
}

/// A part of a volume that changed: whole blocks of 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedExtent {
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub bytes: u64,
    /// It was written. If not, it was given back, and reads as zeroes.
    pub has_data: bool,
}

/// How far a shard was asked, and what it said that is not told yet.
#[derive(Default)]
struct Asked {
    until: u64,
    found: VecDeque<Change>,
}

/// What shards say, put in order.
struct Gathered {
    shards: Vec<Asked>,
    /// Which of them a block belongs to follows from it.
    placement: u32,
    /// Blocks of the volume.
    end: u64,
    /// What was gathered; one more than is to be told shows that the last one has ended.
    changes: Vec<Change>,
    most: usize,
}

impl Asked {
    /// The first part that it said something of, of those that are its own: it is shard number `own` of so many. A hole of
    /// a clone is known to all of them, over whose blocks ever it lies.
    fn next(&mut self, (own, shards): (usize, usize), placement: u32) -> Option<Change> {
        loop {
            let Change { first, count, has_data } = *self.found.front()?;
            let to_border = CHUNK_BLOCKS - first % CHUNK_BLOCKS;
            let owner = shard_of(placement, first, shards);
            if shards == 1 || owner == own {
                let count = if shards == 1 { count } else { count.min(to_border) };
                return Some(Change { first, count, has_data });
            }
            let between = u64_of((own + shards - owner) % shards) - 1;
            self.pass(to_border + between * CHUNK_BLOCKS);
        }
    }

    /// So many blocks of the first part are done with.
    fn pass(&mut self, blocks: u64) {
        match self.found.front_mut() {
            Some(front) if front.count > blocks => {
                (front.first, front.count) = (front.first + blocks, front.count - blocks);
            }
            _ => drop(self.found.pop_front()),
        }
    }
}

impl Gathered {
    /// Shards to be asked for more.
    fn wanting(&self) -> Vec<usize> {
        let wants = |asked: &Asked| asked.found.is_empty() && asked.until < self.end;
        (0..self.shards.len()).filter(|n| wants(&self.shards[*n])).collect()
    }

    fn is_done(&self) -> bool {
        let is_all = |asked: &Asked| asked.found.is_empty() && asked.until >= self.end;
        self.changes.len() > self.most || self.shards.iter().all(is_all)
    }

    /// Up to where all shards were asked.
    fn until(&self) -> u64 {
        self.shards.iter().map(|asked| asked.until).min().unwrap_or(self.end)
    }

    /// Takes what is known to come first. A block has one shard, so that no two say something of the same.
    fn take(&mut self) {
        let (until, shards, placement) = (self.until(), self.shards.len(), self.placement);
        while self.changes.len() <= self.most {
            let all = self.shards.iter_mut().enumerate();
            let nexts = all.filter_map(|(n, asked)| Some((asked.next((n, shards), placement)?, n)));
            let Some((next, n)) = nexts.min_by_key(|(next, _)| next.first) else { return };
            if next.first >= until {
                return;
            }
            self.shards[n].pass(next.count);
            if !self.changes.last_mut().is_some_and(|last| last.join(&next)) {
                self.changes.push(next);
            }
        }
    }

    fn into_changes(mut self) -> Changes {
        let beyond = self.changes.get(self.most).map(|change| change.first);
        self.changes.truncate(self.most);
        // The last may go on behind where another shard was asked up to.
        let told = self.changes.last().map_or(0, Change::end);
        let next = beyond.unwrap_or_else(|| self.until().max(told));
        let extent = |change: &Change| ChangedExtent {
            offset: change.first * BLOCK_BYTES,
            bytes: change.count * BLOCK_BYTES,
            has_data: change.has_data,
        };
        Changes {
            extents: self.changes.iter().map(extent).collect(),
            next: (next < self.end).then_some(next * BLOCK_BYTES),
        }
    }
}

/// What is compared; `None` where the older one is not older.
fn compared(newer: &State, older: Option<&State>) -> Option<Compared> {
    let (view, sees) = (newer.view, newer.sees.unwrap_or_default());
    let ancestors = newer.ancestors().cloned();
    let compared = Compared { view, before: None, sees, ancestors, elsewhere: None };
    let Some(older) = older else { return Some(compared) };
    let (before, end) = (older.sees.unwrap_or_default(), older.bytes() / BLOCK_BYTES);
    if older.view == view {
        return (before < sees).then_some(Compared { before: Some((before, end)), ..compared });
    }
    let own = Ancestor { view: older.view, sees: before };
    let all = std::iter::once(&own).chain(older.ancestors().into_iter().flat_map(|all| all.iter()));
    let elsewhere = Some((all.copied().collect(), end));
    (older.view < view).then_some(Compared { elsewhere, ..compared })
}

/// What a clone's ancestors have of it, if it is one.
pub(super) fn inherited(clone: &State) -> Option<Compared> {
    let (parent, further) = clone.ancestors()?.split_first()?;
    let Ancestor { view, sees } = *parent;
    let ancestors = (!further.is_empty()).then(|| further.into());
    Some(Compared { view, before: None, sees, ancestors, elsewhere: None })
}

impl Pool {
    /// What was written to a volume, or given back, between two of its snapshots, of which `from` is the older: whoever
    /// has its contents has those of `to` by reading these extents there. Without `from`, all that has data in `to`.
    ///
    /// What did not change is not told, wherever the pool moved it meanwhile; what was written with the same contents is.
    /// What was given back is told where `from` had data. Where `to` is larger, what is beyond `from` is told where it has
    /// data; where it is smaller, what is beyond it is not. What was lost is told where it was written since: reading it
    /// fails.
    ///
    /// Where the volume was rolled back in between, all that `to` has data of is told, whether it changed or not.
    ///
    /// It is looked for from the block on that has the byte `start`, and at most so many extents are told (at least 1, at
    /// most 65,536). A call looks through a bounded part of the volume: there may be few extents, or none, and more
    /// behind [`next`](Changes::next), where one that a call ends with may go on.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when `from` is not older than `to`; `Busy` while nothing leaves the log, for want of space or
    /// of drives; `Gone` when the pool was closed or one of the snapshots deleted meanwhile; `Corrupt` when what says where
    /// blocks are is damaged, `Failed` when too many drives failed.
    pub async fn changes(
        &self,
        volume: &str,
        from: Option<&str>,
        to: &str,
        start: u64,
        most: usize,
    ) -> Result<Changes> {
        let newer = self.snapshot(volume, to)?;
        let older = from.map(|from| self.snapshot(volume, from)).transpose()?;
        let compared = compared(&newer.state, older.as_ref().map(|older| &*older.state));
        let Some(compared) = compared else {
            let what = "changes are told from a snapshot to one that was taken later";
            let from = from.unwrap_or_default();
            return Err(invalid(format!(
                "{what}: {volume}@{from} is not older than {volume}@{to}"
            )));
        };
        let changes = self
            .gather_changes(compared, (newer.state.placement(), newer.len()), start, most)
            .await?;
        // What a snapshot saw is given up once that is deleted: nothing that was found is told then.
        for snapshot in older.iter().chain([&newer]) {
            snapshot.state.check(0, 0)?;
        }
        Ok(changes)
    }

    pub(super) async fn gather_changes(
        &self,
        compared: Compared,
        (placement, bytes): (u32, u64),
        start: u64,
        most: usize,
    ) -> Result<Changes> {
        let (first, end) = (start / BLOCK_BYTES, bytes / BLOCK_BYTES);
        let most = most.clamp(1, CHANGES_MOST);
        let begun = || Asked { until: first, found: VecDeque::new() };
        let (handles, compared) = (&self.0.handles, Arc::new(compared));
        let shards = handles.iter().map(|_| begun()).collect();
        let mut gathered = Gathered { shards, placement, end, changes: Vec::new(), most };
        let each = (most + 1).clamp(*CHANGES_EXTENTS.start(), *CHANGES_EXTENTS.end());
        for _ in 0..CHANGES_ROUNDS {
            if gathered.is_done() {
                break;
            }
            let wanting = gathered.wanting();
            let calls = wanting.iter().map(|n| {
                let blocks = gathered.shards[*n].until..end;
                let compared = Arc::clone(&compared);
                let look = move |shard: Rc<Shard>| async move {
                    shard.front.changes(&compared, blocks, each).await
                };
                handles[*n].call(look)
            });
            let answers = join_all(calls).await;
            for (n, answer) in wanting.into_iter().zip(answers) {
                let Looked { found, until } = answer?;
                gathered.shards[n] = Asked { until, found: found.into() };
            }
            gathered.take();
        }
        Ok(gathered.into_changes())
    }
}
