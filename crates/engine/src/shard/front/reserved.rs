//! Changes of volumes with a reservation: what is new is drawn from what is kept for them once there is no other space, and
//! what they give back is kept for them again (decision 0034).

use std::rc::Rc;
use std::sync::Arc;

use super::Front;
use crate::address::{Key, View};
use crate::canary::{self, Canary};
use crate::error::Result;
use crate::limits::{LOOKS_WHEN_RESERVED, SEARCHES_WHEN_OVERDRAWN, SEARCHES_WHEN_RESERVED};
use crate::quotas::{Drawn, Reserve};
use crate::shard::capacity::{Drawing, Lowering, Promise, Turn};
use crate::volume::state::{BLOCK_BYTES, State};

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
        let (mut searches, mut looks, mut counts) = (0, 0, 0);
        let mut queued = None;
        loop {
            let Some(reserve) = self.quotas.reserve(key.view) else { return Ok(None) };
            let turn = self.reserved.hold(key.view, key.block..key.block + blocks).await;
            let epoch = reserve.epoch();
            let Some(alone) = self.alone(key, blocks).await? else {
                // Never drawn on a guess: what is kept would be too little for good.
                if looks == LOOKS_WHEN_RESERVED {
                    return Ok(None);
                }
                looks += 1;
                drop(turn);
                reactor::yield_now().await;
                continue;
            };
            drop(queued.take());
            let most = match self.draw(&reserve, blocks - alone, epoch) {
                Drawn::Beyond => return Ok(None),
                Drawn::Outdated => continue,
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
                    if counts == LOOKS_WHEN_RESERVED || !quotas.recount(key.view).await {
                        return Ok(None);
                    }
                    self.base.writer.check()?;
                    counts += 1;
                    continue;
                }
                Drawn::Overdrawn => {
                    drop(turn);
                    // What shards do not use of their share is there.
                    self.capacity.give_back(0);
                    self.base.common.ask_others(self.base.writer.shard()).await;
                    SEARCHES_WHEN_OVERDRAWN
                }
                Drawn::Yes => {
                    let capacity = Rc::clone(&self.capacity);
                    let drawing = Drawing::new(capacity, reserve, blocks - alone, turn);
                    if let Some(promise) = self.capacity.promise_drawn(blocks, drawing) {
                        self.look_if_strained();
                        return Ok(Some(promise));
                    }
                    SEARCHES_WHEN_RESERVED
                }
            };
            // There is space for it, but nobody found yet what others replaced.
            if searches >= most {
                return Ok(None);
            }
            searches += 1;
            // To the next try: who comes meanwhile is not before it.
            queued = Some(self.capacity.queue(blocks));
            self.search.find().await;
            self.base.writer.check()?;
            self.check_refused()?;
        }
    }

    /// Draws from what is kept for a volume, as far as the pool has that: it may have lost drives.
    fn draw(&self, reserve: &Reserve, blocks: u64, epoch: u64) -> Drawn {
        let common = &self.base.common;
        // Where it has lost none, what is overdrawn is what nobody found yet that others replaced.
        let room = match common.space.overdrawn() {
            0 => u64::MAX,
            _ if !common.space.has_shrunk() => u64::MAX,
            lacking => {
                let kept = common.quotas.reservations(&common.space).kept / BLOCK_BYTES;
                kept.saturating_sub(lacking)
            }
        };
        reserve.draw(blocks, epoch, room)
    }

    fn look_if_strained(&self) {
        if self.capacity.is_strained() {
            self.search.ask();
        }
    }

    /// Blocks of a volume are to be given back: what only it has of them is nobody else's from then on, if it has a
    /// reservation.
    ///
    /// # Errors
    /// Those of looking blocks up.
    pub(super) async fn begin_lowering(&self, key: Key, blocks: u64) -> Result<Option<GivenBack>> {
        let Some(bounded) = self.quotas.of(key.view) else { return Ok(None) };
        let Some(reserve) = bounded.reserve() else { return Ok(None) };
        if canary::has(Canary::TrimForgetsReserved) {
            return Ok(None);
        }
        let turn = self.reserved.hold(key.view, key.block..key.block + blocks).await;
        let (mut lowering, is_kept) = self.capacity.lowering(blocks, Arc::clone(&reserve));
        if !is_kept {
            lowering.found(self.alone_of(key, blocks, &reserve, &bounded.holding.state).await?);
        }
        Ok(Some(GivenBack { lowering, _turn: turn }))
    }

    /// How many blocks of a range the volume has for itself in this shard; `None` where that cannot be found out.
    async fn alone_of(
        &self,
        key: Key,
        blocks: u64,
        reserve: &Reserve,
        state: &State,
    ) -> Result<Option<u64>> {
        for _ in 0..LOOKS_WHEN_RESERVED {
            let epoch = reserve.epoch();
            let found = self.replaced(key, blocks, Some(state)).await?;
            if found.is_unknown {
                reactor::yield_now().await;
            } else if reserve.epoch() == epoch {
                return Ok(Some(found.alone));
            }
        }
        Ok(None)
    }

    /// The planted bug of [`Canary::OthersTakeReserved`].
    pub(super) async fn take_of_others(&self, key: Key, blocks: u64) -> Option<Promise> {
        for view in self.quotas.reserved().into_iter().filter(|view| *view != key.view) {
            let reserve = self.quotas.reserve(view)?;
            let turn = self.reserved.hold(key.view, key.block..key.block + blocks).await;
            // All of it.
            let kept = reserve.status().kept / BLOCK_BYTES;
            if kept >= blocks && reserve.draw(kept, reserve.epoch(), kept) == Drawn::Yes {
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
