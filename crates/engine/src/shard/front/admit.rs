//! Letting writers in: at once where the shard has capacity, or once a search has found some.

use stdx::num::{u32_of, usize64};

use super::Front;
use crate::address::{Key, View};
use crate::error::{Error, Kind, Result};
use crate::log::Found;
use crate::map::{Contents, Extent, Extents};
use crate::shard::capacity::Promise;

/// Searches for space that a writer waits for at most because hosts give something back meanwhile: that may be nothing.
const SEARCHES_FOR_HOLES: u32 = 4;

impl Front {
    /// Lets in a writer of so many blocks from `key` on. Whoever replaces what is there may use the
    /// slack: it does not make the pool any fuller.
    ///
    /// # Errors
    /// `Full` when there is no space for them, and those of looking blocks up.
    pub async fn admit(&self, key: Key, blocks: u64) -> Result<Promise> {
        match self.try_admit(key, blocks)? {
            Some(promise) => Ok(promise),
            None => self.wait_for_admission(key, blocks).await,
        }
    }

    /// As [`admit`](Self::admit), if nothing has to be waited for. `None` where a page of the map is to be read, or
    /// space to be looked for.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(super) fn try_admit(&self, key: Key, blocks: u64) -> Result<Option<Promise>> {
        self.base.writer.check()?;
        match self.capacity.promise(blocks) {
            Some(promise) => Ok(Some(promise)),
            None => {
                self.check_refused()?;
                // What it has of its own: what a clone inherits stays where it is.
                let plan = self.resolve(key, None, u32_of(usize64(blocks)));
                let replaces = plan.is_own() == Some(true) && !self.is_kept(key.view);
                self.keep_plan(plan);
                Ok(if replaces { self.let_in_to_replace(blocks) } else { None })
            }
        }
    }

    /// Lets in a writer that [had to wait](Self::try_admit).
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(super) async fn wait_for_admission(&self, key: Key, blocks: u64) -> Result<Promise> {
        // On the heap: rare, and too large for all that may come to it.
        Box::pin(self.admit_after_search(key, blocks)).await
    }

    async fn admit_after_search(&self, key: Key, blocks: u64) -> Result<Promise> {
        let replaces = self.replaces(key, blocks).await?;
        if replaces && let Some(promise) = self.let_in_to_replace(blocks) {
            return Ok(promise);
        }
        let mut searches_for_holes = SEARCHES_FOR_HOLES;
        loop {
            let (others, holes) = self.capacity.let_in_and_holes();
            let queued = self.capacity.queue(blocks);
            self.search.find().await;
            drop(queued);
            self.base.writer.check()?;
            self.check_refused()?;
            if let Some(promise) = self.capacity.promise_after_search(blocks, replaces) {
                return Ok(promise);
            }
            // As long as others are let in, and leave what they replaced to be found, a turn comes.
            let is_full = !replaces && self.capacity.was_found_full(blocks);
            let (others_now, holes_now) = self.capacity.let_in_and_holes();
            if is_full || others_now == others {
                // What was given back while the search was under way is found by the next one.
                if holes_now == holes || searches_for_holes == 0 {
                    break;
                }
                searches_for_holes -= 1;
            }
        }
        self.base.common.ask_others(self.base.writer.shard()).await;
        let promise = self.capacity.promise_after_search(blocks, replaces);
        promise.ok_or_else(|| Error::new(Kind::Full, "the pool is full"))
    }

    fn check_refused(&self) -> Result<()> {
        self.base.refuses().map_or(Ok(()), |why| Err(why.error()))
    }

    /// Whether snapshots may see what is replaced in a view: then it gives no room.
    fn is_kept(&self, view: View) -> bool {
        self.base.common.snapshots.has(view)
    }

    /// Whether each of these blocks has contents that nobody else has.
    async fn replaces(&self, key: Key, blocks: u64) -> Result<bool> {
        if self.is_kept(key.view) {
            return Ok(false);
        }
        let mut extents = Extents::default();
        let mut at = 0;
        while at < blocks {
            let from = Key::new(key.view, key.block + at);
            let (found, run) = self.base.log.lookup(from, blocks - at);
            let run = run.min(blocks - at);
            match found {
                Found::Data(_) => {}
                Found::Hole | Found::Lost | Found::Refers { .. } => return Ok(false),
                Found::Nothing => {
                    let _reading = self.base.grace.enter();
                    let count = u32_of(usize64(run));
                    self.base.map.lookup(from.view, from.block, count, &mut extents).await?;
                    let own = |extent: Extent<'_>| match extent.contents {
                        Contents::Stored { location, .. } => location.name().is_none(),
                        Contents::Hole | Contents::Lost | Contents::Absent => false,
                    };
                    if !extents.iter().all(own) {
                        return Ok(false);
                    }
                }
            }
            at += run;
        }
        Ok(true)
    }

    /// Leave for so many blocks that replace others.
    fn let_in_to_replace(&self, blocks: u64) -> Option<Promise> {
        let promise = self.capacity.promise_to_replace(blocks)?;
        if self.capacity.is_strained() {
            self.search.ask();
        }
        Some(promise)
    }
}
