//! Scrubs of a pool: begun, watched, ended, and gone on with from where an earlier one was left.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Pool;
use crate::error::{Error, Kind, Result};
use crate::limits::REBUILD_PAUSE;
use crate::shard::Shard;
use crate::shard::scrub::Progress;

/// How far a scrub is: enough for another one to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubPosition {
    /// For each shard, the number of the segment that comes next.
    pub next: Vec<u32>,
    /// Bytes on drives that were checked.
    pub done: u64,
    /// Blocks that were not as they should be, and those of them that were put right.
    pub damaged: u64,
    pub repaired: u64,
    /// Blocks of data that nothing gives.
    pub lost: u64,
    /// Stripes that could not be checked: too many of their drives are out, or nothing gives their header.
    pub unchecked: u64,
}

/// How a scrub is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// It goes on.
    pub is_under_way: bool,
    /// It came to its end: everything was checked.
    pub is_complete: bool,
    /// Bytes on drives that are checked in all.
    pub bytes: u64,
    /// Bytes in a second at most; 0 for as many as there is time for.
    pub limit: u64,
    pub position: ScrubPosition,
}

pub(super) struct Scrubbing {
    progress: Arc<Progress>,
    is_under_way: bool,
    is_complete: bool,
}

impl Pool {
    /// Begins to check everything that lives on the drives, and to put right what is damaged, from where an earlier
    /// scrub was left. [`status`](Self::status) tells how it goes on. `limit` is how many bytes are read in a second at
    /// most, 0 for as many as hosts leave time for.
    ///
    /// # Errors
    /// `Exists` when one is under way, `Gone` when the pool is closed.
    pub async fn scrub(&self, from: &ScrubPosition, limit: u64) -> Result<()> {
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        if self.0.scrubbing.borrow().as_ref().is_some_and(|of| of.is_under_way) {
            return Err(Error::new(Kind::Exists, "the pool is being scrubbed already"));
        }
        let shards = usize::from(self.0.common.shards);
        let next = (0..shards).map(|n| from.next.get(n).copied().unwrap_or(0));
        let progress = Arc::new(Progress {
            all: AtomicU64::new(from.done),
            done: AtomicU64::new(from.done),
            damaged: AtomicU64::new(from.damaged),
            repaired: AtomicU64::new(from.repaired),
            lost: AtomicU64::new(from.lost),
            unchecked: AtomicU64::new(from.unchecked),
            limit: AtomicU64::new(limit),
            next: next.map(AtomicU32::new).collect(),
            ends: false.into(),
        });
        let job = Arc::clone(&progress);
        let scrubbing = Scrubbing { progress, is_under_way: true, is_complete: false };
        *self.0.scrubbing.borrow_mut() = Some(scrubbing);
        let pool = self.clone();
        reactor::spawn(async move {
            // Labels that are gone are written anew.
            let _ = pool.look_at_drives().await;
            if let Ok(found) = pool.0.common.superblock.scrub_catalog().await {
                job.found(found);
            }
            let scrub = move |shard: Rc<Shard>| {
                let job = Arc::clone(&job);
                async move { shard.scrub.scrub(&job).await }
            };
            let done = pool.each_behind(scrub).await;
            if let Some(of) = &mut *pool.0.scrubbing.borrow_mut() {
                (of.is_under_way, of.is_complete) = (false, done.is_ok());
            }
        });
        Ok(())
    }

    /// How many bytes are read in a second at most from now on; 0 for as many as there is time for.
    ///
    /// # Errors
    /// `NotFound` when no scrub is under way.
    pub fn limit_scrub(&self, limit: u64) -> Result<()> {
        let scrubbing = self.0.scrubbing.borrow();
        let Some(of) = scrubbing.as_ref().filter(|of| of.is_under_way) else {
            return Err(Error::new(Kind::NotFound, "the pool is not being scrubbed"));
        };
        of.progress.limit.store(limit, Ordering::Relaxed);
        Ok(())
    }

    /// Has the scrub end where it is, and waits for that.
    pub async fn end_scrub(&self) {
        loop {
            let under_way = match &*self.0.scrubbing.borrow() {
                Some(of) if of.is_under_way => Some(Arc::clone(&of.progress)),
                _ => None,
            };
            let Some(progress) = under_way else { return };
            progress.ends.store(true, Ordering::Relaxed);
            reactor::sleep(REBUILD_PAUSE / 10).await;
        }
    }

    pub(super) fn scrub_status(&self) -> Option<Scrub> {
        let scrubbing = self.0.scrubbing.borrow();
        let of = scrubbing.as_ref()?;
        let Progress { all, done, damaged, repaired, lost, unchecked, limit, next, .. } =
            &*of.progress;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Some(Scrub {
            is_under_way: of.is_under_way,
            is_complete: of.is_complete,
            bytes: get(all),
            limit: get(limit),
            position: ScrubPosition {
                next: next.iter().map(|next| next.load(Ordering::Relaxed)).collect(),
                done: get(done),
                damaged: get(damaged),
                repaired: get(repaired),
                lost: get(lost),
                unchecked: get(unchecked),
            },
        })
    }
}
