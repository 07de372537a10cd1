//! Redundancy comes back without a new drive: what drives had that are gone, or are to go, is moved into free space on
//! the others. Where that is done their places are vacant, and the pool bears as much as ever.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Pool;
use crate::address::BLOCK;
use crate::canary::{self, Canary};
use crate::drives::DriveState;
use crate::error::{Error, Kind, Result};
use crate::limits::{REBUILD_PAUSE, REBUILD_SEARCH};
use crate::shard::Shard;
use crate::shard::rebuild::Progress;
use crate::volume::state::BLOCK_BYTES;
use stdx::num::u64_of;

/// How drives are being emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// Their indices.
    pub drives: Vec<u16>,
    /// It goes on.
    pub is_under_way: bool,
    /// Bytes that were live in segments with a part on them, and those moved.
    pub bytes: u64,
    pub done: u64,
    /// Bytes in a second at most; 0 for as many as there is time for.
    pub limit: u64,
    /// There is no room for more, as yet.
    pub waits: bool,
    /// Why it was given up, if it was.
    pub failure: Option<String>,
}

pub(super) struct Rebuilding {
    progress: Arc<Progress>,
    /// By their bits.
    drives: u64,
    is_under_way: bool,
    failure: Option<String>,
}

const fn bit(drive: u16) -> u64 {
    1 << drive
}

impl Pool {
    /// Begins to move what drives had that the pool lacks into free space on the others. [`status`](Self::status)
    /// tells how it goes on. `limit` is how many bytes are moved in a second at most, 0 for as many as there is time for.
    ///
    /// # Errors
    /// `NotFound` when the pool lacks none, `Invalid` when too few are left for a stripe, `Full` when they have too
    /// little space, `Exists` when it is under way, `Gone` when the pool is closed, `Failed` when the labels cannot say
    /// so.
    pub async fn rebuild(&self, limit: u64) -> Result<()> {
        let _turn = self.0.taking_back.hold(1).await;
        let superblock = &self.0.common.superblock;
        let is_lost = |index: &u16| {
            let state = superblock.drives.state(*index);
            !state.is_written() && !superblock.drives.is_vacant(*index)
        };
        let drives: u64 = superblock.drives.indices().filter(is_lost).map(bit).sum();
        if drives == 0 {
            return Err(Error::new(Kind::NotFound, "the pool lacks no drive"));
        }
        self.begin_to_empty(drives, limit).await
    }

    /// Begins to move what a drive has that works to the others. Once nothing is left there it is out of use, and its
    /// place vacant. As [`rebuild`](Self::rebuild) otherwise.
    ///
    /// # Errors
    /// As [`rebuild`](Self::rebuild); `Invalid` when the drive is not in use, `Busy` when the log cannot move away.
    pub async fn evacuate(&self, index: u16, limit: u64) -> Result<()> {
        self.check_index(index)?;
        let _turn = self.0.taking_back.hold(1).await;
        let superblock = &self.0.common.superblock;
        if superblock.drives.state(index) != DriveState::Online {
            let context = format!("drive {index} is not in use: what it had is rebuilt");
            return Err(Error::new(Kind::Invalid, context));
        }
        self.begin_to_empty(bit(index), limit).await
    }

    /// How many bytes are moved in a second at most from now on; 0 for as many as there is time for.
    ///
    /// # Errors
    /// `NotFound` when nothing is moved.
    pub fn limit_rebuild(&self, limit: u64) -> Result<()> {
        let rebuilding = self.0.rebuilding.borrow();
        let Some(of) = rebuilding.as_ref().filter(|of| of.is_under_way) else {
            return Err(Error::new(Kind::NotFound, "no drive is being emptied"));
        };
        of.progress.limit.store(limit, Ordering::Relaxed);
        Ok(())
    }

    /// What was not moved so far stays where it is. So it does where the labels say that it was being moved when the
    /// pool was ended last.
    ///
    /// # Errors
    /// `NotFound` when nothing is moved, nor was, `Failed` when the labels cannot say so.
    pub async fn cancel_rebuild(&self) -> Result<()> {
        let superblock = &self.0.common.superblock;
        let is_left = || superblock.label().drives.iter().any(|record| record.is_leaving);
        let mut ending: Option<Arc<Progress>> = None;
        loop {
            // One that begins is under way, or is not, and the labels say so.
            let turn = self.0.taking_back.hold(1).await;
            if self.0.closed.get() {
                return Err(Error::new(Kind::Gone, "the pool was closed"));
            }
            match (self.rebuild_under_way(), &ending) {
                // That one has come to its end, and another one began since.
                (Some(now), Some(ending)) if !Arc::ptr_eq(&now, ending) => return Ok(()),
                (Some(now), _) => {
                    now.ends.store(true, Ordering::Relaxed);
                    ending = Some(now);
                }
                (None, None) if !is_left() => {
                    return Err(Error::new(Kind::NotFound, "no drive is being emptied"));
                }
                (None, _) => return superblock.set_leaving(0).await,
            }
            // It may wait for space that a drive gives: whoever has work for another drive does not wait for that.
            drop(turn);
            reactor::sleep(REBUILD_PAUSE / 10).await;
        }
    }

    fn rebuild_under_way(&self) -> Option<Arc<Progress>> {
        let rebuilding = self.0.rebuilding.borrow();
        let under_way = rebuilding.as_ref().filter(|of| of.is_under_way);
        under_way.map(|of| Arc::clone(&of.progress))
    }

    /// Has it come to its end, for whoever opens the pool to go on with.
    pub(super) async fn end_rebuild(&self) {
        while let Some(progress) = self.rebuild_under_way() {
            progress.ends.store(true, Ordering::Relaxed);
            reactor::sleep(REBUILD_PAUSE / 10).await;
        }
    }

    pub(super) fn rebuild_status(&self) -> Option<Rebuild> {
        let rebuilding = self.0.rebuilding.borrow();
        let of = rebuilding.as_ref()?;
        let Progress { all, done, limit, waits, .. } = &*of.progress;
        Some(Rebuild {
            drives: (0..64).filter(|drive| of.drives & bit(*drive) != 0).collect(),
            is_under_way: of.is_under_way,
            bytes: all.load(Ordering::Relaxed),
            done: done.load(Ordering::Relaxed),
            limit: limit.load(Ordering::Relaxed),
            waits: waits.load(Ordering::Relaxed),
            failure: of.failure.clone(),
        })
    }

    /// A drive came to a place: what is there is not moved any more.
    pub(super) fn stays(&self, index: u16) {
        let common = &self.0.common;
        if common.leaving() & bit(index) != 0 {
            common.set_leaving(common.leaving() & !bit(index));
        }
    }

    async fn begin_to_empty(&self, drives: u64, limit: u64) -> Result<()> {
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        if self.0.rebuilding.borrow().as_ref().is_some_and(|of| of.is_under_way) {
            return Err(Error::new(Kind::Exists, "drives are being emptied already"));
        }
        self.check_room_without(drives).await?;
        let common = &self.0.common;
        common.superblock.set_leaving(drives).await?;
        common.set_leaving(drives);
        let progress = Arc::new(Progress::default());
        progress.limit.store(limit, Ordering::Relaxed);
        let rebuilding = Rebuilding {
            progress: Arc::clone(&progress),
            drives,
            is_under_way: true,
            failure: None,
        };
        assert_eq!(self.0.taking_back.available(), 0, "who begins to empty drives has the turn");
        let before = self.0.rebuilding.borrow_mut().replace(rebuilding);
        let is_alone = before.is_none_or(|before| !before.is_under_way);
        assert!(is_alone, "drives are emptied by one job at a time");
        let pool = self.clone();
        reactor::spawn(async move {
            let done = pool.empty_all(&progress).await;
            let common = &pool.0.common;
            common.set_leaving(0);
            if let Err(error) = &done
                && error.kind != Kind::Gone
            {
                // Nobody goes on with it by himself. When the pool is closed, whoever opens it does.
                let _ = common.superblock.set_leaving(0).await;
            }
            if let Some(of) = &mut *pool.0.rebuilding.borrow_mut() {
                of.is_under_way = false;
                of.failure = done.err().map(|error| error.to_string());
            }
        });
        Ok(())
    }

    /// Whether the drives that are left are enough, and have space for what there is.
    async fn check_room_without(&self, drives: u64) -> Result<()> {
        let common = &self.0.common;
        common.follow_drives();
        let segments = common.allocator.lock().capacity_without(drives);
        if segments == 0 {
            let context = "too few drives would be left for a stripe: add one, or replace those that are lost";
            return Err(Error::new(Kind::Invalid, context));
        }
        let capacity = common.capacity_while_emptying(segments);
        // What is kept was promised, and counts as what is held.
        let kept = || common.quotas.reservations(&common.space).kept / BLOCK_BYTES;
        let mut held = self.held().await? + kept();
        if held > capacity {
            common.quotas.recount_reserved(None, &common.used).await;
            // What was overwritten counts until it is looked for.
            let search = |shard: Rc<Shard>| async move {
                let _ = reactor::timeout(REBUILD_SEARCH, shard.search.find()).await;
                Ok(())
            };
            self.each(search).await?;
            held = self.held().await? + kept();
        }
        if held <= capacity {
            return Ok(());
        }
        let block = u64_of(BLOCK);
        let context = format!(
            "the pool holds, and keeps for its volumes, {} bytes, and without those drives it has room for {}",
            held * block,
            capacity * block
        );
        Err(Error::new(Kind::Full, context))
    }

    /// Blocks that all shards hold.
    async fn held(&self) -> Result<u64> {
        let held = self.each(|shard: Rc<Shard>| async move { Ok(shard.base.held()) }).await?;
        Ok(held.into_iter().sum())
    }

    async fn empty_all(&self, progress: &Arc<Progress>) -> Result<()> {
        let common = &self.0.common;
        loop {
            // Again, where it was moved to drives meanwhile.
            self.move_log_away().await?;
            let job = Arc::clone(progress);
            let empty = move |shard: Rc<Shard>| {
                let job = Arc::clone(&job);
                async move { shard.rebuild.empty_drives(&job).await }
            };
            if !canary::has(Canary::VacatesEarly) {
                self.each_behind(empty).await?;
            }
            let leaving = common.leaving();
            let left = common.superblock.drives.indices().filter(|n| leaving & bit(*n) != 0);
            let mut is_done = true;
            for index in left {
                // A unit of it may be on its way to be given back, or to be told of.
                let is_empty = common.allocator.lock().is_empty(usize::from(index));
                let vacates = canary::has(Canary::VacatesEarly);
                if !is_empty && !vacates && !canary::has(Canary::CountsMovedEarly) {
                    is_done = false;
                    continue;
                }
                let is_emptied = common.superblock.drives.is_online(index);
                let vacated = common.superblock.vacate(index, is_emptied).await;
                common.follow_drives();
                match vacated {
                    // A drive came or went there, or the log did.
                    Err(error) if error.kind == Kind::Busy => is_done = false,
                    vacated => vacated?,
                }
            }
            if is_done {
                return Ok(());
            }
            reactor::sleep(REBUILD_PAUSE / 10).await;
        }
    }

    /// Copies of the log on drives that are emptied go to others.
    async fn move_log_away(&self) -> Result<()> {
        let superblock = &self.0.common.superblock;
        let leaving = self.0.common.leaving();
        let label = superblock.label();
        for (slot, member) in label.log_members.iter().enumerate() {
            let Some(drive) = member.drive.filter(|drive| leaving & bit(*drive) != 0) else {
                continue;
            };
            if member.current && superblock.drives.is_online(drive) {
                self.add_copy_elsewhere().await?;
                superblock.members.report_member(slot, member.id);
                // Sooner than who writes next, who would be answered no earlier than the labels say so.
                superblock.tell_failures().await?;
            }
        }
        Ok(())
    }
}
