//! Room for more contents: what this shard may hold of the pool's capacity.

use std::rc::Rc;

use super::Shard;
use crate::error::{Error, Kind, Result};

impl Shard {
    /// Whether so many blocks more can be held, should all of them be new.
    pub(super) async fn check_space(&self, blocks: u64) -> Result<()> {
        self.writer.check()?;
        if self.has_room(blocks) {
            return Ok(());
        }
        // What merges have not found out counts as held: let them before saying no.
        self.tidy_for_space().await?;
        if self.has_room(blocks) {
            return Ok(());
        }
        self.common.ask_others(self.writer.shard).await;
        if self.has_room(blocks) {
            return Ok(());
        }
        Err(Error::new(Kind::Full, "the pool is full"))
    }

    /// Whether the shard may hold so many blocks more, with a further portion of the pool's
    /// capacity if need be.
    fn has_room(&self, blocks: u64) -> bool {
        let wanted = self.held() + blocks;
        let allowed = self.allowed.get();
        if wanted <= allowed {
            return true;
        }
        let taken = self.common.space.take(wanted - allowed);
        self.allowed.set(allowed + taken.unwrap_or(0));
        taken.is_some()
    }

    /// Gives back what the shard does not use of its share, but for `keep` blocks.
    pub fn give_space_back(&self, keep: u64) {
        let spare = self.allowed.get().saturating_sub(self.held());
        // Not every block that becomes free: only what is more than what was kept.
        if spare > 2 * keep {
            self.allowed.set(self.allowed.get() - (spare - keep));
            self.common.space.give_back(spare - keep);
        }
    }

    /// Answers the calls of other shards, until this one ends.
    pub(super) async fn answer_calls(self: Rc<Self>) {
        let shard = self.writer.shard;
        let (mut last, mut answered) = (0, 0);
        while let Some(ring) = self.common.next_ring(shard, last).await {
            last = ring.number;
            if ring.asked > answered {
                if let Err(error) = self.tidy_for_space().await {
                    return self.end_with(&error);
                }
                self.give_space_back(0);
                answered = ring.asked;
                self.common.answer(shard, answered);
            }
            // There may be segments to be had now, or some wanted that reclaim can win here.
            if self.has_spare() {
                self.writer.look_for_hunger();
            }
            self.wake.raise();
            self.advanced.raise();
        }
    }
}
