//! Making a drive whole that was away: what a shard has on it is made anew from the other drives, while everything
//! goes on. What is new is written to the drive meanwhile; what was written before it was taken back is made anew.

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stdx::num::u64_of;

use super::base::Base;
use super::checkpoint::Checkpoints;
use super::pace::Pace;
use crate::address::BLOCK;
use crate::canary::{self, Step};
use crate::drives::DriveState;
use crate::error::{Error, Kind, Result};
use crate::limits::{ANEW_ATTEMPTS, ANEW_PAUSE, REBUILD_PAUSE};
use crate::segment::{SegmentInfo, Stream, Unread};
use crate::segment_table::{Segment, State};

/// How far a drive is being made whole. All shards count in it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Its allocation units that are to be made anew, as far as that is known, and those that were.
    pub units: AtomicU64,
    pub done: AtomicU64,
    /// Blocks that nothing gives, among those that were to be made anew or that they are made of.
    pub lost: AtomicU64,
    /// Nobody wants it any more.
    pub ends: AtomicBool,
    /// How fast it goes, with all others of the pool.
    pub throttle: Arc<Throttle>,
}

/// How fast the drives of a pool are made whole, from now on.
#[derive(Debug, Default)]
pub struct Throttle {
    /// Bytes of units made anew in a second at most; 0 for as many as there is time for.
    pub limit: AtomicU64,
    /// None is: what is new goes to the drives all the same.
    pub is_paused: AtomicBool,
}

impl Progress {
    fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// A segment with a part on the drive.
struct Part {
    info: Rc<SegmentInfo>,
    column: usize,
    /// Stripes begun before the drive was written again, or soon after.
    stripes: u32,
    has_live: bool,
}

/// Makes drives whole.
pub struct Remake {
    base: Rc<Base>,
    checkpoints: Rc<Checkpoints>,
}

impl Remake {
    #[must_use]
    pub const fn new(base: Rc<Base>, checkpoints: Rc<Checkpoints>) -> Self {
        Self { base, checkpoints }
    }

    /// Makes anew all that the shard has on a drive that is being made whole, and takes a checkpoint, whose root is on
    /// the drive too. Durable after the drive's next flush.
    ///
    /// # Errors
    /// `Failed` when the drive fails or too many others do, `Gone` when nobody wants it any more.
    pub async fn resync(&self, drive: u16, progress: &Progress) -> Result<()> {
        // Those begun later go to the drive as they are written.
        let parts = match canary::skips(Step::RejoinBetween) {
            false => self.base.writer.between_stripes(|| self.parts_on(drive)).await,
            true => self.parts_on(drive),
        };
        Progress::add(&progress.units, u64_of(parts.len()));
        let pace = Pace::new(&progress.throttle.limit, self.base.common.shards);
        let unit = u64::from(self.base.writer.segments().drives().au_blocks()) * u64_of(BLOCK);
        for part in parts {
            self.unless_paused(drive, progress).await;
            pace.keep(unit, || self.is_wanted(drive, progress)).await;
            if let Some(_held) = self.checkpoints.hold_segment(&part.info).await {
                self.make_part(&part, drive, progress).await?;
            }
            Progress::add(&progress.done, 1);
        }
        match canary::skips(Step::RejoinRoot) {
            false => self.take_root(drive, progress).await,
            true => Ok(()),
        }
    }

    /// Where there is no room for it just now, all that was made anew is not thrown away.
    async fn take_root(&self, drive: u16, progress: &Progress) -> Result<()> {
        loop {
            match self.checkpoints.take().await {
                Err(error)
                    if self.is_wanted(drive, progress)
                        && self.checkpoints.may_try_again(&error).await => {}
                done => return done,
            }
        }
    }

    /// Whether somebody waits for the drive to be whole, and it can be.
    fn is_wanted(&self, drive: u16, progress: &Progress) -> bool {
        let drives = self.base.writer.segments().drives();
        !progress.ends.load(Ordering::Relaxed) && drives.state(drive) == DriveState::Rejoining
    }

    /// Waits for as long as nothing is to be made anew, holding nothing.
    async fn unless_paused(&self, drive: u16, progress: &Progress) {
        while progress.throttle.is_paused.load(Ordering::Relaxed)
            && self.is_wanted(drive, progress)
            && !self.base.has_ended()
        {
            reactor::sleep(REBUILD_PAUSE).await;
        }
    }

    fn parts_on(&self, drive: u16) -> Vec<Part> {
        let table = self.base.table();
        let on_it = table.iter().filter(|segment| segment.state != State::Reserved);
        let part = |segment: &Segment| {
            let info = Rc::clone(&segment.info);
            let column = info.members.iter().position(|member| member.drive == drive)?;
            Some(Part { info, column, stripes: segment.stripes, has_live: segment.live > 0 })
        };
        let mut parts: Vec<Part> = on_it.filter_map(part).collect();
        // What bears the fewest losses more first. Then what was begun last: what the drive missed lies there, however long
        // it was away. The rest is only looked at.
        let lost = self.base.writer.segments().drives().lost();
        parts.sort_by_cached_key(|part| {
            (Reverse(part.info.parts_on(lost)), Reverse(part.info.generation))
        });
        parts
    }

    /// One stripe at a time: hosts feel each, and with four at once the median of what they ask for was 1.7 times that with
    /// one (`bench upkeep latency`).
    async fn make_part(&self, part: &Part, drive: u16, progress: &Progress) -> Result<()> {
        let member = part.info.members[part.column];
        assert_eq!(member.drive, drive, "what is made anew is of the drive");
        if !canary::skips(Step::RejoinHeaders) {
            self.base.writer.segments().resync_member_header(&part.info, part.column).await?;
        }
        let (mut bare, mut lost) = (0, 0);
        for stripe in 0..part.stripes {
            match self.make_stripe(part, stripe, drive, progress).await? {
                Some(blocks) if part.has_live => {
                    // Stripes are written in order: the header of those before is lost.
                    lost += blocks + bare * stdx::num::usize32(part.info.room());
                    bare = 0;
                }
                None => bare += 1,
                Some(_) => {}
            }
            reactor::yield_now().await;
        }
        Progress::add(&progress.lost, u64_of(lost));
        if lost + bare > 0 && part.info.stream == Stream::Metadata {
            self.checkpoints.renew(part.info.id).await;
        }
        Ok(())
    }

    /// Again, as long as the drive itself is not the cause. What the others do not give by then, although they answer,
    /// stays as it is: for the sake of a sector the pool is not left without a drive.
    async fn make_stripe(
        &self,
        part: &Part,
        stripe: u32,
        drive: u16,
        progress: &Progress,
    ) -> Result<Option<usize>> {
        let segments = self.base.writer.segments();
        let mut attempt = 0;
        loop {
            if self.base.has_ended() || progress.ends.load(Ordering::Relaxed) {
                return Err(Error::new(
                    Kind::Gone,
                    "nobody waits for the drive to be whole any more",
                ));
            }
            self.base.writer.check()?;
            attempt += 1;
            let unread = if attempt < ANEW_ATTEMPTS { Unread::Waited } else { Unread::Lost };
            match segments.resync(&part.info, stripe, part.column, unread).await {
                Err(error) if segments.drives().state(drive) != DriveState::Rejoining => {
                    return Err(error);
                }
                Err(error) if attempt >= ANEW_ATTEMPTS => return Err(error),
                Err(_) => reactor::sleep(ANEW_PAUSE).await,
                made => return made,
            }
        }
    }
}
