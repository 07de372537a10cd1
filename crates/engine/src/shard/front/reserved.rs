//! Changes of volumes with a reservation: what is new is drawn from what is kept for them once there is no other space, and
//! what they give back is kept for them again (decision 0034).

use std::rc::Rc;

use super::Front;
use crate::address::{Key, View};
use crate::canary::{self, Canary};
use crate::error::Result;
use crate::limits::SEARCHES_WHEN_RESERVED;
use crate::quotas::Drawn;
use crate::shard::capacity::{Drawing, Lowering, Promise, Turn};
use crate::volume::state::BLOCK_BYTES;

/// What a volume gives back, and who looked at it.
pub(super) struct GivenBack {
    lowering: Lowering,
    _turn: Turn,
}

impl GivenBack {
    pub fn done(self) {
        self.lowering.done();
    }
}

impl Front {
    /// Lets in a writer of so many blocks from `key` on by what is kept for its volume; `None` where it has no reservation,
    /// or is beyond it: then it is a writer as others are.
    ///
    /// # Errors
    /// Those of looking blocks up.
    pub(super) async fn admit_reserved(&self, key: Key, blocks: u64) -> Result<Option<Promise>> {
        let (mut searches, mut is_counted) = (0, false);
        loop {
            let Some(reserve) = self.quotas.reserve(key.view) else { return Ok(None) };
            let turn = self.reserved.hold(key.view, key.block..key.block + blocks).await;
            let new = blocks - self.alone(key, blocks).await?.unwrap_or(0);
            match reserve.draw(new) {
                Drawn::Beyond => return Ok(None),
                Drawn::Paused => {
                    drop(turn);
                    reserve.goes_on().await;
                    self.base.writer.check()?;
                    continue;
                }
                Drawn::Uncounted => {
                    drop(turn);
                    let quotas = &self.base.common.quotas;
                    // Until it can be counted it is a writer as others are.
                    if is_counted || !quotas.recount(key.view).await {
                        return Ok(None);
                    }
                    self.base.writer.check()?;
                    is_counted = true;
                    continue;
                }
                Drawn::Yes => {}
            }
            let capacity = Rc::clone(&self.capacity);
            let drawing = Drawing::new(capacity, reserve, new, turn);
            if let Some(promise) = self.capacity.promise_drawn(blocks, drawing) {
                if self.capacity.is_strained() {
                    self.search.ask();
                }
                return Ok(Some(promise));
            }
            // There is space for it, but nobody found yet what others replaced.
            if searches == SEARCHES_WHEN_RESERVED {
                return Ok(None);
            }
            searches += 1;
            let queued = self.capacity.queue(blocks);
            self.search.find().await;
            drop(queued);
            self.base.writer.check()?;
            self.check_refused()?;
        }
    }

    /// Blocks of a volume are to be given back: what only it has of them is nobody else's from then on, if it has a
    /// reservation.
    ///
    /// # Errors
    /// Those of looking blocks up.
    pub(super) async fn begin_lowering(&self, key: Key, blocks: u64) -> Result<Option<GivenBack>> {
        let Some(reserve) = self.quotas.reserve(key.view) else { return Ok(None) };
        if canary::has(Canary::TrimForgetsReserved) {
            return Ok(None);
        }
        let turn = self.reserved.hold(key.view, key.block..key.block + blocks).await;
        let Some(alone) = self.alone(key, blocks).await? else {
            reserve.forget(&self.base.common.space);
            return Ok(None);
        };
        let lowering = self.capacity.lowering(alone, reserve);
        Ok(Some(GivenBack { lowering, _turn: turn }))
    }

    /// The planted bug of [`Canary::OthersTakeReserved`].
    pub(super) async fn take_of_others(&self, key: Key, blocks: u64) -> Option<Promise> {
        for view in self.quotas.reserved().into_iter().filter(|view| *view != key.view) {
            let reserve = self.quotas.reserve(view)?;
            let turn = self.reserved.hold(key.view, key.block..key.block + blocks).await;
            // All of it.
            let kept = reserve.status().kept / BLOCK_BYTES;
            if kept >= blocks && reserve.draw(kept) == Drawn::Yes {
                let drawing = Drawing::new(Rc::clone(&self.capacity), reserve, kept, turn);
                return self.capacity.promise_drawn(blocks, drawing);
            }
        }
        None
    }

    /// Whether space is kept for a volume.
    pub(super) fn is_reserved(&self, view: View) -> bool {
        self.quotas.reserve(view).is_some()
    }
}
