//! Spreading: when drives come to a pool that is nearly full, what is free there is of no use to new segments, which have a
//! part on each of several drives, before the others have space as well. Segments that have none there are written anew
//! over all drives, as many as it takes for the pool to have room for all it says that it will, and no more. Which ones
//! follows from where they lie: nothing is kept of it, and after a restart it goes on.

use super::{Reclaim, Reclaiming};
use crate::address::SegmentId;
use crate::error::Result;

impl Reclaim {
    /// The segment to be emptied next, with its live blocks: one that gives space, if that is wanted; or else one that has
    /// no part where there is space that nobody can have.
    pub(super) fn choose_victim(
        &self,
        wins: bool,
        skip: impl Fn(SegmentId) -> bool,
    ) -> Option<(SegmentId, u32)> {
        let table = self.base.table();
        let sparse = if wins { table.victim(&skip) } else { None };
        let beside = || match self.base.common.uneven() {
            0 => None,
            drives => table.victim_beside(drives, false, &skip),
        };
        sparse.or_else(beside)
    }

    /// Has what is written from now on lie there, too: what is moved would go to segments from before.
    pub(super) async fn begin_anew_where_drives_came(&self) -> Result<()> {
        let drives = self.base.common.uneven();
        if drives == 0 || self.needs_space() || !self.base.table().goes_on_beside(drives) {
            return Ok(());
        }
        let all = stdx::num::usize32(drives.count_ones());
        self.base.writer.leave(|info| info.parts_on(drives) < all).await?;
        // Others are reserved with this one, and those given back.
        self.checkpoints.take().await
    }

    /// Has a segment of metadata written anew that has no part there, once none of data is left. Tells whether there was
    /// one that was not tried before.
    pub(super) async fn spread_metadata(&self, reclaiming: &mut Reclaiming) -> Result<bool> {
        let drives = self.base.common.uneven();
        if drives == 0 || reclaiming.lacks_room {
            return Ok(false);
        }
        let skip = |id| reclaiming.spread.contains(&id);
        let victim = self.base.table().victim_beside(drives, true, skip);
        let Some((id, _)) = victim else { return Ok(false) };
        reclaiming.spread.insert(id);
        self.checkpoints.evacuate(id).await?;
        // What the checkpoint before this one had there is given back with the next.
        self.checkpoints.take().await?;
        self.checkpoints.take().await?;
        Ok(true)
    }
}
