//! Taking drives back that were away: what is new is written to them from then on, the rest is made anew from the
//! others, and once all of it is there, durable, they count again. `docs/decisions/0016-rejoin.md` has the reasons.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use media::Drive;

use super::Pool;
use crate::area;
use crate::canary::{self, Canary, Step};
use crate::drives::{Cause, DriveState};
use crate::error::{Error, Kind, Result};
use crate::format::label::Label;
use crate::limits::{ANEW_PAUSE, REBUILD_PAUSE};
use crate::shard::Shard;
use crate::shard::rejoin::Progress;

/// How a drive is doing that was taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejoin {
    /// Its allocation units that are made anew, as far as that is known, and those that were.
    pub units: u64,
    pub done: u64,
    /// Blocks found meanwhile that nothing gives.
    pub lost: u64,
    /// Why it was given up, if it was.
    pub failure: Option<String>,
}

/// A drive that was taken back last in its place.
#[derive(Default)]
pub(super) struct Returned {
    progress: Arc<Progress>,
    /// It is being made whole.
    is_under_way: bool,
    failure: Option<String>,
}

impl Returned {
    fn status(&self) -> Rejoin {
        let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
        let Progress { units, done, lost, .. } = &*self.progress;
        Rejoin {
            units: count(units),
            done: count(done),
            lost: count(lost),
            failure: self.failure.clone(),
        }
    }

    pub(super) fn end(&self) {
        self.progress.ends.store(true, Ordering::Relaxed);
    }
}

impl Pool {
    /// Takes a drive back that was away, in the place that its label says, and begins to make it whole.
    /// [`status`](Self::status) tells how that goes.
    ///
    /// # Errors
    /// `Missing` for a drive that has no label of the pool, or is not the one that it was made with; `Exists` when it
    /// is in use already; `Invalid` when it went on by itself, is too small, or stays out until an operator wants it; `Busy` when it
    /// may be taken back later; `Full` when it came and went too often; `Gone` when the pool is closed; `Failed` when it
    /// fails at once.
    pub async fn rejoin(&self, drive: Arc<Drive>) -> Result<u16> {
        let label = match area::read_label(&drive).await? {
            Ok(label) => label,
            Err(bad) => {
                let context = "the drive carries no label: it is not taken back by itself";
                return Err(Error::caused(Kind::Missing, context, bad));
            }
        };
        let _turn = self.0.taking_back.hold(1).await;
        let index = self.place_of(&label)?;
        self.check_at_rest(index)?;
        self.0.common.superblock.readmit(index, drive).await?;
        self.stays(index);
        self.begin_to_make_whole(index);
        Ok(index)
    }

    pub(super) fn check_at_rest(&self, index: u16) -> Result<()> {
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        if self.0.returned.borrow().get(&index).is_some_and(|returned| returned.is_under_way) {
            let context = match self.0.common.superblock.drives.state(index) {
                DriveState::Rejoining => {
                    format!("drive {index} is being made whole: wait for that, or fail it first")
                }
                _ => format!("drive {index} failed just now, while it was made whole"),
            };
            return Err(Error::new(Kind::Busy, context));
        }
        Ok(())
    }

    /// What a drive misses that was put in a place is made anew, from now on and beside everything else.
    pub(super) fn begin_to_make_whole(&self, index: u16) {
        assert_eq!(self.0.taking_back.available(), 0, "who puts a drive in a place has the turn");
        let throttle = Arc::clone(&self.0.throttle);
        let progress = Arc::new(Progress { throttle, ..Progress::default() });
        let progress_too = Arc::clone(&progress);
        let returned = Returned { progress: progress_too, is_under_way: true, failure: None };
        let before = self.0.returned.borrow_mut().insert(index, returned);
        let is_alone = before.is_none_or(|before| !before.is_under_way);
        assert!(is_alone, "one drive of a place is made whole at a time");
        let pool = self.clone();
        reactor::spawn(async move {
            let made = pool.make_whole(index, progress).await;
            let superblock = &pool.0.common.superblock;
            if let Err(error) = &made
                && superblock.drives.state(index) == DriveState::Rejoining
            {
                // Whatever it was: the drive is not whole, and nothing more is to go there.
                superblock.drives.fail(index, Cause::of("it could not be made whole", error));
            }
            if let Some(returned) = pool.0.returned.borrow_mut().get_mut(&index) {
                returned.is_under_way = false;
                returned.failure = made.err().map(|error| error.to_string());
            }
            superblock.members.wake();
        });
    }

    /// How many bytes of units are made anew in a second at most from now on, 0 for as many as there is time for; or none:
    /// what is new goes to the drives all the same.
    pub fn throttle_rejoins(&self, limit: u64, is_paused: bool) {
        self.0.throttle.limit.store(limit, Ordering::Relaxed);
        self.0.throttle.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Takes those drives out of use that take no writes, by one that changes nothing: the log may have noticed alone
    /// that they do not.
    ///
    /// # Errors
    /// `Failed` when too few do.
    pub async fn try_drives(&self) -> Result<()> {
        self.0.common.superblock.try_writes().await
    }

    /// Which place a drive had that carries this label, if it may have it again.
    fn place_of(&self, label: &Label) -> Result<u16> {
        let superblock = &self.0.common.superblock;
        let (index, current) = (label.drive, superblock.label());
        if label.pool != current.pool {
            let context = format!("the drive is of pool {}, not of {}", label.name, current.name);
            return Err(Error::new(Kind::Missing, context));
        }
        let same = |label: &Label| label.drives.get(usize::from(index)).map(|record| record.id);
        let Some(record) = current.drives.get(usize::from(index)) else {
            return Err(Error::new(
                Kind::Missing,
                format!("pool {} has no drive {index}", current.name),
            ));
        };
        if same(label) != Some(record.id) {
            let context =
                format!("another drive has replaced it as drive {index} of pool {}", current.name);
            return Err(Error::new(Kind::Missing, context));
        }
        if superblock.drives.state(index).is_written() {
            let context = format!("drive {index} of pool {} is in use", current.name);
            return Err(Error::new(Kind::Exists, context));
        }
        if let Some(why) = record.stays_out {
            let context = format!("drive {index} of pool {} stays out: {why}", current.name);
            return Err(Error::new(Kind::Invalid, context));
        }
        if current.is_forked_by(label, |_| None) {
            let context = format!(
                "drive {index} of pool {} went on by itself after the others had gone on without it",
                current.name
            );
            return Err(Error::new(Kind::Invalid, context));
        }
        Ok(index)
    }

    /// Makes a drive whole that was taken back; one at a time. One that came to a place where nothing lies has nothing to be
    /// made anew, and does not wait behind one that has, which may take hours.
    async fn make_whole(&self, index: u16, progress: Arc<Progress>) -> Result<()> {
        let superblock = &self.0.common.superblock;
        let label = superblock.label();
        let bears = usize::from(label.layout.parity);
        // Nor would it count while the pool lacks as many as it bears.
        let is_beside = superblock.drives.is_vacant(index) && (bears == 0 || label.lost() < bears);
        let turns = if is_beside { &self.0.widening } else { &self.0.rejoining };
        // The one before it may be paused: a drive that fails meanwhile does not wait to be replaced, or taken back again.
        let mut turn = pin!(turns.hold(1));
        let _turn = loop {
            let held = reactor::timeout(REBUILD_PAUSE, turn.as_mut()).await;
            if progress.ends.load(Ordering::Relaxed) {
                return Err(Error::new(Kind::Gone, "the pool was closed"));
            }
            if superblock.drives.state(index) != DriveState::Rejoining {
                let context = "the drive failed before it was made whole";
                return Err(Error::new(Kind::Failed, context));
            }
            if let Ok(turn) = held {
                break turn;
            }
        };
        let job = Arc::clone(&progress);
        let make = move |shard: Rc<Shard>| {
            let job = Arc::clone(&job);
            async move { shard.remake.resync(index, &job).await }
        };
        if !canary::has(Canary::CountsReturned) {
            self.each_behind(make).await?;
        }
        // As the roots, which are on it since the shards' checkpoints.
        if !canary::skips(Step::RejoinCatalog) {
            until_room(&progress, async || {
                superblock.change_catalog(|catalog| Ok((catalog.edit(Vec::new()), ()))).await
            })
            .await?;
        }
        if !canary::skips(Step::RejoinFlush) {
            superblock.drives.flush([index]).await;
        }
        until_room(&progress, async || superblock.make_online(index).await).await?;
        self.tell_of_free_space(index);
        self.0.common.follow_drives();
        Ok(())
    }

    /// Drives that were away when an opening found them.
    pub(super) async fn take_back_all(&self, drives: Vec<Arc<Drive>>) {
        for drive in drives {
            // One that cannot be is out as before, and may be given again.
            let _ = self.rejoin(drive).await;
        }
    }

    pub(super) fn rejoin_status(&self, index: u16) -> Option<Rejoin> {
        self.0.returned.borrow().get(&index).map(Returned::status)
    }
}

/// Does what may find no room just now, or a system that is short of something, again until it is done.
async fn until_room(progress: &Progress, act: impl AsyncFn() -> Result<()>) -> Result<()> {
    loop {
        match act().await {
            Err(error) if error.may_pass() && !progress.ends.load(Ordering::Relaxed) => {
                reactor::sleep(ANEW_PAUSE).await;
            }
            done => return done,
        }
    }
}
