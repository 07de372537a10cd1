//! Emptying drives: what segments have on a drive that is gone, or is to go, is moved into segments on the others. As
//! reclaim does it, with another choice of victims: only what is live is moved, and what is most exposed goes first.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stdx::num::u64_of;

use super::base::Base;
use super::checkpoint::Checkpoints;
use super::events::Event;
use super::keeper::MapKeeper;
use super::pace::Pace;
use super::reclaim::{Emptied, Reclaim};
use crate::address::{BLOCK, SegmentId};
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use crate::limits::{REBUILD_PATIENCE, REBUILD_PAUSE};
use crate::segment::Stream;

/// Segments emptied before their space is given back, with one checkpoint.
const SEGMENTS_AT_ONCE: usize = 4;

/// How far drives are being emptied. All shards count in it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that were live on segments with a part on them when it began, and those moved since.
    pub all: AtomicU64,
    pub done: AtomicU64,
    /// Bytes that are moved in a second at most; 0 for as many as there is time for.
    pub limit: AtomicU64,
    /// There is no room for more, as yet.
    pub waits: AtomicBool,
    /// Nobody wants it any more.
    pub ends: AtomicBool,
}

/// Empties drives.
pub struct Rebuild {
    base: Rc<Base>,
    checkpoints: Rc<Checkpoints>,
    keeper: Rc<MapKeeper>,
    reclaim: Rc<Reclaim>,
}

impl Rebuild {
    #[must_use]
    pub const fn new(
        base: Rc<Base>,
        checkpoints: Rc<Checkpoints>,
        keeper: Rc<MapKeeper>,
        reclaim: Rc<Reclaim>,
    ) -> Self {
        Self { base, checkpoints, keeper, reclaim }
    }

    /// Moves everything that the shard has on the drives that [are to be emptied](crate::common::Common::leaving), and
    /// gives their space back.
    ///
    /// # Errors
    /// `Full` when there is no room on the other drives, `Failed` when something cannot be read now, `Gone` when nobody
    /// wants it any more.
    pub async fn empty_drives(&self, progress: &Progress) -> Result<()> {
        let live = self.base.table().live_on(self.base.common.leaving());
        progress.all.fetch_add(live * u64_of(BLOCK), Ordering::Relaxed);
        let pace = Pace::new(&progress.limit, self.base.common.shards);
        let (mut unread, mut advanced) = (BTreeSet::new(), reactor::now());
        loop {
            if self.base.has_ended() || progress.ends.load(Ordering::Relaxed) {
                return Err(Error::new(Kind::Gone, "nobody wants the drives to be empty any more"));
            }
            let leaving = self.base.common.leaving();
            let left = self.base.table().segments_on(leaving);
            let is_moved = || self.base.table().live_on(leaving) == 0;
            if left == 0 || canary::has(Canary::CountsMovedEarly) && is_moved() {
                return Ok(());
            }
            let has_room = !self.base.lacks_room_to_empty_drives();
            if has_room {
                match self.move_off(leaving, progress, &pace, &mut unread).await {
                    // It may pass: that nothing came of it is counted below.
                    Err(error) if error.may_pass() => {}
                    moved => moved?,
                }
            } else {
                self.reclaim.win_room();
            }
            let now = reactor::now();
            let fewer = has_room && self.base.table().segments_on(leaving) < left;
            progress.waits.store(!fewer, Ordering::Relaxed);
            if fewer {
                advanced = now;
                continue;
            }
            if u128::from(now - advanced) >= REBUILD_PATIENCE.as_nanos() {
                return Err(match unread.is_empty() {
                    true => Error::new(Kind::Full, "the other drives have no room for it"),
                    false => {
                        let context = "some of it cannot be read now: the drives that are there do not give it, and \
                                       one that is away may";
                        Error::new(Kind::Failed, context)
                    }
                });
            }
            let is_worth_a_look = || {
                let ends = self.base.has_ended() || progress.ends.load(Ordering::Relaxed);
                ends || !has_room && !self.base.lacks_room_to_empty_drives()
            };
            let look = self.base.events.until(Event::Advanced, is_worth_a_look);
            let _ = reactor::timeout(REBUILD_PAUSE, look).await;
            unread.clear();
        }
    }

    async fn move_off(
        &self,
        leaving: u64,
        progress: &Progress,
        pace: &Pace<'_>,
        unread: &mut BTreeSet<SegmentId>,
    ) -> Result<()> {
        self.base.writer.leave(|info| info.parts_on(leaving) > 0).await?;
        // What is reserved in place of what lay there does not.
        self.checkpoints.take().await?;
        self.move_some(leaving, progress, pace, unread).await
    }

    /// Moves some segments' contents, those first that bear the fewest losses more, and all metadata, and gives the space
    /// back.
    async fn move_some(
        &self,
        leaving: u64,
        progress: &Progress,
        pace: &Pace<'_>,
        unread: &mut BTreeSet<SegmentId>,
    ) -> Result<()> {
        let lost = self.base.writer.segments().drives().lost();
        let of = |metadata: bool| {
            let is_wanted = move |stream| (stream == Stream::Metadata) == metadata;
            self.base.table().sealed_on(leaving, lost, is_wanted)
        };
        let metadata = of(true);
        for (id, _) in &metadata {
            self.checkpoints.evacuate(*id).await?;
        }
        let victims = of(false);
        let mut emptied = Vec::new();
        for (id, live) in victims {
            if emptied.len() == SEGMENTS_AT_ONCE || self.base.has_ended() {
                break;
            }
            if unread.contains(&id) || self.reclaim.is_being_emptied(id) {
                continue;
            }
            if self.base.writer.room_for_moves() < u64::from(live) {
                break;
            }
            let is_wanted = || !progress.ends.load(Ordering::Relaxed);
            pace.keep(u64::from(live) * u64_of(BLOCK), is_wanted).await;
            // Reclaim may have begun with it meanwhile.
            if self.reclaim.is_being_emptied(id) {
                continue;
            }
            match self.reclaim.empty(id).await? {
                Emptied::Whole => {
                    let bytes = u64::from(live) * u64_of(BLOCK);
                    progress.done.fetch_add(bytes, Ordering::Relaxed);
                    self.reclaim.note_emptied();
                    emptied.push(id);
                }
                Emptied::Unreadable => _ = unread.insert(id),
                Emptied::NoRoom => break,
            }
        }
        self.keeper.settle_reclaim().await?;
        for id in emptied {
            self.reclaim.verify_dead(id).await?;
        }
        self.keeper.flush().await?;
        if !metadata.is_empty() {
            // What the checkpoint before this one had there is given back with this one.
            self.checkpoints.take().await?;
        }
        Ok(())
    }
}
