//! How much a pool really holds.

use std::rc::Rc;

use super::Pool;
use crate::error::Result;
use crate::shard::Shard;

impl Pool {
    /// Has the map learn what the log has, and find out what nobody sees any more, so that what the
    /// pool says it holds is what it holds, but for what is written meanwhile. Costs reading and
    /// writing the map.
    ///
    /// # Errors
    /// `Failed` when the log or too many drives failed, `Full` when metadata finds no space.
    pub async fn settle_space(&self) -> Result<()> {
        let settle = |shard: Rc<Shard>| async move {
            shard.carry_log().await?;
            shard.flush_map().await?;
            shard.map.compact().await?;
            shard.checkpoint().await
        };
        self.each(settle).await.map(drop)
    }
}

impl Shard {
    /// Carries what the log has now to the drives. Writers go on meanwhile, so it may never be empty.
    async fn carry_log(&self) -> Result<()> {
        let status = self.log.status();
        let target = status.handed + status.pending;
        self.draining.set(self.draining.get() + 1);
        self.filling.raise();
        let stopped = || self.ended.get() || self.writer.check().is_err();
        self.advanced.until(|| stopped() || self.log.status().handed >= target).await;
        let last = self.handed.borrow().back().map(|(through, _)| *through);
        let carried = || {
            let handed = self.handed.borrow();
            handed.front().is_none_or(|(through, _)| last.is_none_or(|last| *through > last))
        };
        self.advanced.until(|| stopped() || carried()).await;
        self.draining.set(self.draining.get() - 1);
        self.writer.check()
    }
}
