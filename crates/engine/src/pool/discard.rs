//! Telling the drives of space that nothing is in any more.
//!
//! Space comes back late: a segment is free once a look through its headers has proved that the map has
//! nothing in it, and after the checkpoint that says so. While there is space enough nobody hurries that,
//! so where hosts gave much back it is looked for here. What is free then stays with its drive (a file
//! under it keeps its length on its file system) until the drive is told, one allocation unit after
//! another, at a bounded rate and only while there is plenty of space: units that are soon written
//! again would have to be given back by the drive, and taken once more. A unit that is being told of is
//! nobody's until that has ended.

use std::rc::Rc;
use std::time::Duration;

use media::Kind as MediaKind;
use reactor::{spawn_behind, timeout};
use stdx::num::{u64_of, usize32};

use super::Pool;
use crate::error::Result;
use crate::limits::DISCARD_WORTH;
use crate::segment::Member;
use crate::shard::{Shard, count};

/// How free space is given back to the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discards {
    /// How long after hosts gave space back it is looked for, about.
    pub after: Duration,
    /// The most that is discarded in a second.
    pub bytes_per_second: u64,
}

impl Discards {
    /// As long as one unit of so many bytes takes at most.
    fn pause(self, au_bytes: u64) -> Duration {
        let nanos = u128::from(au_bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Pool {
    /// Has a drive be told from now on, if drives are.
    pub(super) fn tell_of_free_space(&self, index: u16) {
        let common = &self.0.common;
        let drive = common.superblock.drives.drive(index);
        let told = self.0.discards.get() && drive.is_some_and(|drive| drive.has_space_to_free());
        common.allocator.lock().tell(usize::from(index), told);
    }

    /// From now on, and until the pool is closed, drives are told of the space that becomes free.
    ///
    /// # Errors
    /// `Gone` when a reactor has stopped.
    pub async fn discard(&self, how: Discards) -> Result<()> {
        self.0.discards.set(true);
        let common = &self.0.common;
        common.superblock.drives.indices().for_each(|index| self.tell_of_free_space(index));
        let pause = how.pause(common.superblock.label().layout.au_bytes);
        let start = move |shard: Rc<Shard>| async move {
            shard.run(spawn_behind(Rc::clone(&shard).find_freed(how.after)));
            // What is free is the pool's.
            if shard.writer.shard == 0 {
                shard.run(spawn_behind(Rc::clone(&shard).discard(pause)));
            }
            Ok(())
        };
        self.each(start).await.map(drop)
    }
}

impl Shard {
    /// Whether hosts gave back so much that it is worth a look through the map: all of that is
    /// merged for it.
    fn has_freed_much(&self) -> bool {
        let worth = (self.held() / DISCARD_WORTH).max(self.common.segment_blocks);
        self.freed.get() >= worth
    }

    /// Looks for space that hosts gave back, until the shard ends.
    async fn find_freed(self: Rc<Self>, after: Duration) {
        while !self.ended.get() {
            let _ = timeout(after, self.advanced.until(|| self.ended.get())).await;
            if self.ended.get() || !self.has_freed_much() {
                continue;
            }
            self.freed.set(0);
            self.find_space().await;
            self.gives.set(true);
            self.wake.raise();
        }
    }

    /// Whether there is so much free space that reclaim is far from having to win any.
    fn has_plenty(&self) -> bool {
        self.common.allocator.lock().available() > 2 * self.reclaim_below()
    }

    /// Tells the drives of free units, until the shard ends.
    async fn discard(self: Rc<Self>, pause: Duration) {
        while !self.ended.get() {
            let due = || self.common.allocator.lock().has_dirty() && self.has_plenty();
            self.advanced.until(|| self.ended.get() || due()).await;
            let taken = match self.ended.get() {
                true => None,
                false => self.common.allocator.lock().take_dirty(),
            };
            let Some(member) = taken else { continue };
            self.discard_unit(member).await;
            self.common.allocator.lock().discarded(member);
            if !self.has_plenty() {
                // Somebody may want just this one.
                self.writer.look_for_hunger();
                self.wake.raise();
                self.common.ring();
            }
            let _ = timeout(pause, self.advanced.until(|| self.ended.get())).await;
        }
    }

    /// Tells a drive of a unit that is held. That it cannot be told is no failure: nothing is lost.
    async fn discard_unit(&self, member: Member) {
        let drives = self.writer.segments.drives();
        let Some(drive) = drives.drive(member.drive).cloned() else { return };
        let bytes = u64::from(drives.au_blocks()) * u64_of(crate::address::BLOCK);
        let at = drives.offset(member.drive, member.au, 0);
        match drive.deallocate(at, bytes).await {
            Ok(()) => count(&self.counters.discarded, bytes),
            Err(error) if error.kind == MediaKind::Unsupported => {
                self.common.allocator.lock().tell(usize32(u32::from(member.drive)), false);
            }
            // It may still come, and take away what is written there by then.
            Err(error) if error.kind == MediaKind::Timeout => drives.fail_one(member.drive, &drive),
            Err(_) => {}
        }
    }
}
