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
    /// `Failed` when the log or too many drives failed.
    pub async fn settle_space(&self) -> Result<()> {
        let settle = |shard: Rc<Shard>| async move {
            shard.search.find().await;
            shard.base.writer.check()
        };
        self.each(settle).await.map(drop)
    }
}
