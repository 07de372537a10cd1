//! Clones in a shard: what a clone has nothing of is read from its ancestors, each as of the version that the one before it
//! was made of (decision 0026). Like what a snapshot sees, that is asked of the map alone.

use std::ops::Range;
use std::sync::Arc;

use stdx::num::{low32, u32_of};

use super::Front;
use super::changes::{Change, Looked};
use super::plan::{Piece, Place, Plan};
use crate::address::{BLOCK, Key};
use crate::error::Result;
use crate::limits::{CONTENTS_BLOCKS, CONTENTS_TURNS};
use crate::map::{Contents, Extent, Extents};
use crate::volume::state::{Ancestor, State};

impl Front {
    /// Finds out where the ancestors have what a plan has nothing of, as far as nothing has to be waited for.
    pub(super) fn inherit_known(&self, plan: &mut Plan, ancestors: &[Ancestor]) {
        let mut next = self.skip_to_owners(plan, ancestors);
        while let Some(n) = next {
            let Ancestor { view, sees } = ancestors[n];
            let has_all = self.carry.has(view, sees);
            let mut before = plan.pieces.len();
            while let Some(Piece { at, count, .. }) = plan.inherited(n, &mut before) {
                if !has_all {
                    plan.push(at, count, Place::Inherited { from: n });
                    continue;
                }
                let (first, extents) = (plan.first.block + u64::from(at), &mut plan.extents);
                let known = self.base.map.lookup_known_as_of(view, sees, first, count, extents);
                self.learn_inherited(plan, ancestors, at, n);
                if known < count {
                    plan.push(at + known, count - known, Place::Inherited { from: n });
                }
            }
            next = plan.asked_next(n + 1);
        }
        plan.pieces.sort_unstable_by_key(|piece| piece.at);
    }

    /// As [`inherit_known`](Self::inherit_known), reading pages of the map, but for what waits for the log to be carried.
    pub(super) async fn inherit(&self, plan: &mut Plan) -> Result<()> {
        let Some(ancestors) = plan.ancestors.clone() else { return Ok(()) };
        let mut next = self.skip_to_owners(plan, &ancestors);
        while let Some(n) = next {
            let Ancestor { view, sees } = ancestors[n];
            let mut before = plan.pieces.len();
            while let Some(Piece { at, count, .. }) = plan.inherited(n, &mut before) {
                if !self.carry.has(view, sees) {
                    plan.push(at, count, Place::Inherited { from: n });
                    continue;
                }
                let (first, extents) = (plan.first.block + u64::from(at), &mut plan.extents);
                self.base.map.lookup_as_of(view, sees, first, count, extents).await?;
                self.learn_inherited(plan, &ancestors, at, n);
            }
            next = plan.asked_next(n + 1);
        }
        Ok(())
    }

    /// Passes by the ancestors that are known to have nothing of what a plan is to ask them. Tells which one is to be asked
    /// first.
    fn skip_to_owners(&self, plan: &mut Plan, ancestors: &[Ancestor]) -> Option<usize> {
        let first = ancestors.first()?;
        let mut before = plan.pieces.len();
        while let Some(Piece { at, count, .. }) = plan.inherited(0, &mut before) {
            let (mut at, end) = (at, at + count);
            while at < end {
                let blocks = plan.first.block + u64::from(at)..plan.first.block + u64::from(end);
                let (owner, run) = self.owners.of(first, blocks);
                plan.push(
                    at,
                    run,
                    match owner {
                        Some(owner) if owner >= ancestors.len() => Place::Hole,
                        owner => Place::Inherited { from: owner.unwrap_or(0) },
                    },
                );
                at += run;
            }
        }
        plan.asked_next(0)
    }

    /// Takes what ancestor number `n` has of blocks from number `at` of the read on.
    fn learn_inherited(&self, plan: &mut Plan, ancestors: &[Ancestor], at: u32, n: usize) {
        let next = Some(n + 1).filter(|next| *next < ancestors.len());
        for Extent { first, count, contents } in plan.extents.iter() {
            let owner = match contents {
                Contents::Absent if next.is_none() => ancestors.len(),
                Contents::Absent => continue,
                Contents::Stored { .. } | Contents::Hole | Contents::Lost => n,
            };
            self.owners.note(&ancestors[0], first..first + u64::from(count), owner);
        }
        plan.learn(at, next);
    }

    /// Reads whole blocks that neither their view has nor its ancestors before this one, once the map has all of these. Not
    /// to be called inside the grace.
    ///
    /// What comes to the view meanwhile came behind the read.
    pub(super) async fn read_inherited(
        &self,
        first: Key,
        ancestors: Arc<[Ancestor]>,
        from: usize,
        out: &mut [u8],
    ) -> Result<()> {
        self.carry_ancestors(&ancestors).await?;
        let mut plan = self.spare_plan(first);
        plan.ancestors = Some(ancestors);
        plan.push(0, u32_of(out.len() / BLOCK), Place::Inherited { from });
        plan.reading = Some(self.base.grace.enter());
        self.fetch(plan, out).await
    }

    /// Waits until the map has all that a clone of a snapshot begins with.
    ///
    /// # Errors
    /// `Busy` while nothing leaves the log, for want of space or of drives.
    pub async fn carry_inherited(&self, snapshot: &State) -> Result<()> {
        if let Some(sees) = snapshot.sees {
            self.carry.carry(snapshot.view, sees).await?;
        }
        self.carry_ancestors(snapshot.ancestors().map(|all| &**all).unwrap_or_default()).await
    }

    /// Looks for what a snapshot of a clone sees the contents of, whoever of its ancestors has them: at most about so many
    /// runs of blocks, in a bounded part of the range.
    ///
    /// # Errors
    /// `Busy` while nothing leaves the log, for want of space or of drives; those of reading the map.
    pub(super) async fn contents(
        &self,
        own: Ancestor,
        ancestors: &[Ancestor],
        blocks: Range<u64>,
        most: usize,
    ) -> Result<Looked> {
        self.carry_ancestors(ancestors).await?;
        let mut found: Vec<Change> = Vec::new();
        let mut at = blocks.start;
        for _ in 0..CONTENTS_TURNS {
            if at >= blocks.end || found.len() >= most {
                break;
            }
            let end = (at + CONTENTS_BLOCKS).min(blocks.end);
            for run in self.contents_of(own, ancestors, at..end).await? {
                let run = Change { first: run.start, count: run.end - run.start, has_data: true };
                if !found.last_mut().is_some_and(|last| last.join(&run)) {
                    found.push(run);
                }
            }
            at = end;
        }
        Ok(Looked { found, until: at })
    }

    /// Runs of blocks with contents, or lost ones, in order.
    async fn contents_of(
        &self,
        own: Ancestor,
        ancestors: &[Ancestor],
        blocks: Range<u64>,
    ) -> Result<Vec<Range<u64>>> {
        // The map's pages stay where they are while they are looked at.
        let _reading = self.base.grace.enter();
        let (mut found, mut asked, mut extents) = (Vec::new(), vec![blocks], Extents::default());
        for Ancestor { view, sees } in std::iter::once(&own).chain(ancestors) {
            for run in std::mem::take(&mut asked) {
                let count = low32(run.end - run.start);
                self.base.map.lookup_as_of(*view, *sees, run.start, count, &mut extents).await?;
                for extent in extents.iter() {
                    let run = extent.first..extent.first + u64::from(extent.count);
                    match extent.contents {
                        Contents::Stored { .. } | Contents::Lost => found.push(run),
                        Contents::Absent => asked.push(run),
                        Contents::Hole => {}
                    }
                }
            }
        }
        found.sort_unstable_by_key(|run| run.start);
        Ok(found)
    }

    pub(super) async fn carry_ancestors(&self, ancestors: &[Ancestor]) -> Result<()> {
        for Ancestor { view, sees } in ancestors {
            self.carry.carry(*view, *sees).await?;
        }
        Ok(())
    }
}
