//! Checkpoints that are taken because segments are wanted, and the tasks that wait without any for metadata.

use std::rc::Rc;
use std::time::Duration;

use super::Checkpoints;
use crate::error::{Kind, Result};
use crate::limits::RECLAIM_RESERVE;
use crate::shard::events::Event;

/// How long a task that found no space for metadata waits before it looks again, should nothing
/// that happens in its shard wake it: other shards give space back too.
const SEGMENTS_WAIT: Duration = Duration::from_millis(50);

impl Checkpoints {
    /// Takes a checkpoint whenever the writer runs out of segments to go on with.
    pub async fn checkpoint_on_demand(self: Rc<Self>) {
        loop {
            self.base.writer.until_short_of_segments(|| self.base.has_ended()).await;
            if self.base.has_ended() {
                return;
            }
            let done = self.take().await;
            if done.is_err() {
                self.base.writer.need_segments();
            }
            if !self.goes_on(done).await {
                return;
            }
            // Without space, only what is won back helps.
            if self.base.table().reserved() <= RECLAIM_RESERVE {
                self.base.events.raise(Event::SpaceChanged);
                self.base.common.notify();
            }
        }
    }

    /// What a background task makes of its outcome. Without space for metadata it waits and tries
    /// again, and writers are refused meanwhile; any other error ends the shard. False when the task
    /// ends.
    pub async fn goes_on(&self, done: Result<()>) -> bool {
        let Err(error) = done else { return true };
        if error.kind == Kind::Full && self.wait_for_segments().await {
            return true;
        }
        if !self.base.has_ended() {
            self.base.fail(&error);
        }
        false
    }

    /// Waits for space for metadata. False when there is nobody to make it.
    pub async fn wait_for_segments(&self) -> bool {
        if !self.base.has_started() || self.base.is_over() {
            return false;
        }
        let waiting = self.base.need_segments();
        self.base.refuse_without_space();
        // Perhaps a checkpoint gives something back.
        self.base.writer.need_segments();
        let before = self.generation.get();
        let changed = || self.base.is_over() || self.generation.get() != before;
        let _ =
            reactor::timeout(SEGMENTS_WAIT, self.base.events.until(Event::Advanced, changed)).await;
        drop(waiting);
        self.base.refuse_without_space();
        !self.base.is_over()
    }
}
