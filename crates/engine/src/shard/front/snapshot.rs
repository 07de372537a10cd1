//! Snapshots in a shard: taken by holding records of the log back for a moment, and read from the map alone, once all
//! that they see is there (decision 0026).

use std::sync::Arc;

use stdx::num::u32_of;

use super::Front;
use crate::address::{BLOCK, Key, Version};
use crate::canary::{self, Step};
use crate::error::Result;
use crate::shard::carry::Taken;
use crate::volume::state::Ancestor;

impl Front {
    /// Lets nothing be reserved in the log until versions [were taken](Self::take_versions).
    pub fn pause_records(&self) {
        if !canary::skips(Step::SnapshotPauses) {
            self.base.log.pause();
        }
    }

    /// What is reserved from now on is of the next versions.
    pub fn take_versions(&self, taken: &[Taken]) {
        for Taken { view, next, .. } in taken {
            self.base.log.set_version(*view, *next);
        }
        self.base.log.resume();
    }

    /// Waits until all that was reserved before versions were taken is in the log, or was given up: from then on their
    /// snapshots do not change any more.
    pub async fn settle_versions(&self, taken: &[Taken]) {
        if !canary::skips(Step::SnapshotWaits) {
            self.base.log.between_records().await;
        }
        self.carry.note(taken);
    }

    /// Reads whole blocks from `first` on, as a snapshot sees them, of a view with these ancestors.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch); `Busy` while nothing leaves the log, for want of space or of drives.
    pub async fn read_as_of(
        &self,
        first: Key,
        sees: Version,
        ancestors: Option<&Arc<[Ancestor]>>,
        out: &mut [u8],
    ) -> Result<()> {
        self.carry.carry(first.view, sees).await?;
        let mut plan = self.spare_plan(first);
        plan.ancestors = ancestors.cloned();
        plan.reading = Some(self.base.grace.enter());
        let (blocks, extents) = (u32_of(out.len() / BLOCK), &mut plan.extents);
        self.base.map.lookup_as_of(first.view, sees, first.block, blocks, extents).await?;
        plan.learn(0, ancestors.map(|_| 0));
        self.copy_pieces(&mut plan, out);
        Box::pin(self.fetch(plan, out)).await
    }
}
