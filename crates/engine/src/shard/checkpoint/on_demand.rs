//! Checkpoints that are taken because segments are wanted, and the tasks that wait without any for metadata.

use std::rc::Rc;
use std::time::Duration;

use super::Checkpoints;
use crate::address::SegmentId;
use crate::error::{Error, Kind, Result};
use crate::limits::{NO_SPACE_PAUSE, RECLAIM_RESERVE};
use crate::shard::events::Event;

/// How long a task that found no space for metadata waits before it looks again, should nothing
/// that happens in its shard wake it: other shards give space back too.
const SEGMENTS_WAIT: Duration = Duration::from_millis(50);

/// Checkpoints that give emptied segments back: one writes elsewhere what is left there, the next gives them back, and one
/// more does where the first had begun before all was moved.
const CHECKPOINTS_TO_EMPTY: usize = 3;

impl Checkpoints {
    /// Takes a checkpoint whenever the writer runs out of segments to go on with.
    pub async fn checkpoint_on_demand(self: Rc<Self>) {
        loop {
            self.base.writer.until_short_of_segments(|| self.base.has_ended()).await;
            if self.base.has_ended() {
                return;
            }
            let done = self.checkpoint_and_evacuate().await;
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

    /// Each checkpoint, and each merge, leaves some blocks in segments of metadata that are full. Where nothing more is
    /// free they are moved together at once: whoever takes checkpoints one after another would take all that metadata
    /// may have before reclaim comes to that.
    async fn checkpoint_and_evacuate(&self) -> Result<()> {
        self.take().await?;
        let is_last = self.base.common.allocator.lock().available() == 0;
        if is_last { self.evacuate_metadata(1).await } else { Ok(()) }
    }

    /// Segments of metadata with little in them, if there are so many, and others than were emptied last.
    fn sparse_metadata(&self, enough: usize) -> Option<Vec<SegmentId>> {
        let sparse = self.base.table().sparse_metadata();
        (sparse.len() >= enough && sparse != *self.evacuated.borrow()).then_some(sparse)
    }

    /// Whether there are so many segments of metadata with little in them.
    #[must_use]
    pub fn is_worth_evacuating(&self, enough: usize) -> bool {
        self.sparse_metadata(enough).is_some()
    }

    /// Moves what is in segments of metadata with little in them together, if there are so many, and gives them back.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn evacuate_metadata(&self, enough: usize) -> Result<()> {
        let Some(sparse) = self.sparse_metadata(enough) else { return Ok(()) };
        for id in &sparse {
            self.evacuate(*id).await?;
        }
        self.evacuated.replace(sparse.clone());
        for _ in 0..CHECKPOINTS_TO_EMPTY {
            self.take().await?;
            // What the one before had there is in use until one is done that has it elsewhere, and given back by the next.
            // Where nothing more is free, nobody else may take that one.
            let dead = self.dead();
            if !sparse.iter().any(|id| dead.contains(id)) {
                break;
            }
        }
        Ok(())
    }

    /// What a background task makes of its outcome. Without space for metadata it waits and tries
    /// again, and writers are refused meanwhile; what the system could not do just now is tried again
    /// too; any other error ends the shard. False when the task ends.
    pub async fn goes_on(&self, done: Result<()>) -> bool {
        let Err(error) = done else { return true };
        if self.may_try_again(&error).await {
            return true;
        }
        if !self.base.has_ended() {
            self.base.fail(&error);
        }
        false
    }

    /// Waits for what such an error is for, if it may pass.
    pub async fn may_try_again(&self, error: &Error) -> bool {
        match error.kind {
            Kind::Full => self.wait_for_segments().await,
            Kind::Busy => {
                reactor::sleep(NO_SPACE_PAUSE).await;
                !self.base.is_over()
            }
            _ => false,
        }
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
