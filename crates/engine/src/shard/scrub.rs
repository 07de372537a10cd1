//! Scrub: everything that lives is read from the drives, checked against its checksums and parity, and put right from
//! the redundancy, so that damage is found while there is still some.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use stdx::num::u64_of;

use super::base::Base;
use super::checkpoint::Checkpoints;
use super::pace::Pace;
use crate::address::BLOCK;
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Kind, Result};
use crate::segment::{Scrubbed, SegmentInfo, Stream};
use crate::segment_table::{Segment, State};

/// How far a scrub is. All shards count in it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes on drives that were to be checked when it began, and those that were, gone ones included.
    pub all: AtomicU64,
    pub done: AtomicU64,
    /// Blocks that were not as they should be, those put right, and those of data that nothing gives.
    pub damaged: AtomicU64,
    pub repaired: AtomicU64,
    pub lost: AtomicU64,
    /// Stripes that could not be checked: too many of their drives are out, or nothing gives their header.
    pub unchecked: AtomicU64,
    /// Bytes in a second at most; 0 for as many as there is time for.
    pub limit: AtomicU64,
    /// For each shard, the number of the segment that it goes on with.
    pub next: Vec<AtomicU32>,
    /// Nobody wants it any more.
    pub ends: AtomicBool,
}

impl Progress {
    pub fn found(&self, found: Scrubbed) {
        assert!(found.repaired <= found.damaged, "what is put right was damaged");
        add(&self.damaged, found.damaged);
        add(&self.repaired, found.repaired);
        add(&self.lost, found.lost);
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A segment to check.
struct Part {
    info: Rc<SegmentInfo>,
    /// Stripes that are on the drives.
    stripes: u32,
    /// All of them: one whose header nothing gives is damaged, and was not left out.
    is_all: bool,
}

impl Part {
    /// `None` where nothing lives, or is written as yet.
    fn of(segment: &Segment) -> Option<Self> {
        // Stripes of metadata may be written in any order.
        let in_order = segment.info.stream != Stream::Metadata;
        let is_settled =
            in_order || segment.state == State::Sealed && segment.applied == segment.stripes;
        let (info, stripes) = (Rc::clone(&segment.info), segment.applied);
        let is_all = !segment.may_have_fewer;
        (is_settled && segment.live > 0 && stripes > 0).then_some(Self { info, stripes, is_all })
    }

    fn bytes(&self) -> u64 {
        let geometry = self.info.geometry;
        let stripe = u64::from(geometry.unit_blocks()) * u64_of(geometry.width());
        u64::from(self.stripes) * stripe * u64_of(BLOCK)
    }
}

/// What a segment's check found.
#[derive(Default)]
struct Seen {
    found: Scrubbed,
    /// Stripes of which nothing can be said, and those that are not there, if they ever were.
    unchecked: u64,
    absent: u64,
}

impl Seen {
    /// All that lies there is as it should be, and can be had.
    const fn is_whole(&self) -> bool {
        let Scrubbed { damaged, repaired, lost } = self.found;
        damaged == repaired && lost == 0 && self.unchecked == 0 && self.absent == 0
    }
}

/// Checks what lives.
pub struct Scrub {
    base: Rc<Base>,
    checkpoints: Rc<Checkpoints>,
}

impl Scrub {
    #[must_use]
    pub const fn new(base: Rc<Base>, checkpoints: Rc<Checkpoints>) -> Self {
        Self { base, checkpoints }
    }

    /// Has all drives in use carry the shard's root, where one of them does not, or none was written in this life.
    async fn scrub_roots(&self, progress: &Progress) -> Result<()> {
        let (shard, superblock) = (self.base.writer.shard(), &self.base.common.superblock);
        let Some(root) = self.checkpoints.written_root() else {
            return self.checkpoints.take().await;
        };
        let damaged = superblock.lacking_root(shard, root).await;
        if damaged == 0 {
            return Ok(());
        }
        // The newest one is overwritten by the second from there on: that may have been read half-way.
        let is_sure = self.checkpoints.written_root() == Some(root);
        let mut left = damaged;
        // The second one goes where the newest was: a sector there that cannot be read hides both.
        let mut renewed = Ok(());
        for _ in 0..2 {
            renewed = self.checkpoints.take().await;
            if renewed.is_err() {
                break;
            }
            left = superblock.lacking_root(shard, root).await;
            if left == 0 {
                break;
            }
        }
        if is_sure {
            let repaired = damaged.saturating_sub(left);
            progress.found(Scrubbed { damaged, repaired, lost: 0 });
        }
        renewed
    }

    /// Checks the shard's segments by number, from where `progress` says.
    ///
    /// # Errors
    /// `Gone` when nobody wants it any more, or the shard ends.
    pub async fn scrub(&self, progress: &Progress) -> Result<()> {
        let Some(next) = progress.next.get(usize::from(self.base.writer.shard())) else {
            return Err(Error::new(Kind::Invalid, "the scrub knows of fewer shards"));
        };
        // Where there is no room for a root, or too few drives, the rest is checked all the same.
        let _ = self.scrub_roots(progress).await;
        if self.checkpoints.renew_unsealed().await {
            let _ = self.checkpoints.take().await;
        }
        let from = next.load(Ordering::Relaxed);
        let parts: Vec<Part> = {
            let table = self.base.table();
            let to_come = table.iter().filter(|segment| segment.info.id.get() >= from);
            to_come.filter_map(Part::of).collect()
        };
        add(&progress.all, parts.iter().map(Part::bytes).sum());
        let pace = Pace::new(&progress.limit, self.base.common.shards);
        for part in parts {
            pace.keep(part.bytes(), || !progress.ends.load(Ordering::Relaxed)).await;
            // Nothing else may be written there while it is checked and put right.
            if let Some(_held) = self.checkpoints.hold_segment(&part.info).await {
                self.scrub_part(&part, progress).await?;
            } else {
                add(&progress.done, part.bytes());
            }
            next.store(part.info.id.get().saturating_add(1), Ordering::Relaxed);
        }
        Ok(())
    }

    async fn scrub_part(&self, part: &Part, progress: &Progress) -> Result<()> {
        let is_written = |segment: &Segment| part.stripes <= segment.stripes;
        let is_there = self.base.table().get(part.info.id).is_none_or(is_written);
        assert!(is_there, "what is checked was written");
        let segments = self.base.writer.segments();
        let found = segments.scrub_headers(&part.info).await;
        let mut seen = Seen { found, ..Seen::default() };
        let done = self.scrub_stripes(part, progress, &mut seen).await;
        // What was put right is told of once it lasts.
        if seen.found.repaired > 0 && !canary::skips(Step::ScrubFlush) {
            let drives = part.info.members.iter().map(|member| member.drive);
            segments.drives().flush(drives).await;
        }
        add(&progress.unchecked, seen.unchecked);
        progress.found(seen.found);
        if part.info.stream == Stream::Metadata && !seen.is_whole() {
            self.checkpoints.renew(part.info.id).await;
        }
        done
    }

    async fn scrub_stripes(&self, part: &Part, progress: &Progress, seen: &mut Seen) -> Result<()> {
        let stripe_bytes = part.bytes() / u64::from(part.stripes);
        for stripe in 0..part.stripes {
            if self.base.is_over() || progress.ends.load(Ordering::Relaxed) {
                // The segment is begun anew.
                progress.done.fetch_sub(u64::from(stripe) * stripe_bytes, Ordering::Relaxed);
                return Err(Error::new(Kind::Gone, "nobody wants the scrub to go on"));
            }
            if canary::has(Canary::ScrubSkips) && stripe % 2 == 1 {
                add(&progress.done, stripe_bytes);
                continue;
            }
            match self.base.writer.segments().scrub(&part.info, stripe).await {
                Ok(Some(more)) => seen.found += more,
                Ok(None) if !part.is_all => seen.absent += 1,
                Ok(None) | Err(_) => seen.unchecked += 1,
            }
            add(&progress.done, stripe_bytes);
            reactor::yield_now().await;
        }
        Ok(())
    }
}
