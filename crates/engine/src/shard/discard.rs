//! Telling the drives of space that nothing is in any more.
//!
//! Space comes back late: a segment is free once a look through its headers has proved that the map has
//! nothing in it, and after the checkpoint that says so. While there is space enough nobody hurries that,
//! so where hosts gave much back it is looked for here. What is free then stays with its drive (a file
//! under it keeps its length on its file system) until the drive is told, one allocation unit after
//! another, at a bounded rate and only while there is plenty of space: units that are soon written
//! again would have to be given back by the drive, and taken once more. A unit that is being told of is
//! nobody's until that has ended.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use media::Kind as MediaKind;
use reactor::{spawn_behind, timeout};
use stdx::num::{u64_of, usize32};

use super::base::{Base, count};
use super::capacity::Capacity;
use super::events::Event;
use super::reclaim::Reclaim;
use super::search::SpaceSearch;
use crate::drives::Cause;
use crate::limits::DISCARD_WORTH;
use crate::segment::Member;

/// Tells drives of free space.
pub struct Discard {
    base: Rc<Base>,
    capacity: Rc<Capacity>,
    search: Rc<SpaceSearch>,
    reclaim: Rc<Reclaim>,
    /// Bytes the drives were told of, since the shard was opened.
    discarded: Cell<u64>,
    /// What snapshots and clones had by then that were deleted was looked for.
    sought: Cell<u64>,
}

impl Discard {
    #[must_use]
    pub const fn new(
        base: Rc<Base>,
        capacity: Rc<Capacity>,
        search: Rc<SpaceSearch>,
        reclaim: Rc<Reclaim>,
    ) -> Self {
        let (discarded, sought) = (Cell::new(0), Cell::new(0));
        Self { base, capacity, search, reclaim, discarded, sought }
    }

    /// Begins, until the shard ends: space that hosts gave back is looked for about so long `after` that, and
    /// drives are told of it unit by unit, with a `pause` behind each.
    pub fn begin(self: &Rc<Self>, after: Duration, pause: Duration) {
        self.base.run(spawn_behind(Rc::clone(self).find_freed(after)));
        // What is free is the pool's.
        if self.base.writer.shard() == 0 {
            self.base.run(spawn_behind(Rc::clone(self).tell(pause)));
        }
    }

    /// Bytes the drives were told of, since the shard was opened.
    #[must_use]
    pub const fn discarded(&self) -> u64 {
        self.discarded.get()
    }

    /// Whether hosts gave back so much, or snapshots and clones that were deleted had, that it is worth a look through
    /// the map: all of that is merged for it.
    fn has_freed_much(&self) -> bool {
        let worth = (self.base.held() / DISCARD_WORTH).max(self.base.common.segment_blocks);
        let by_snapshots = self.base.common.snapshots.freed() - self.sought.get();
        self.capacity.freed() + by_snapshots / u64::from(self.base.common.shards) >= worth
    }

    /// Looks for space that hosts gave back, until the shard ends.
    async fn find_freed(self: Rc<Self>, after: Duration) {
        while !self.base.has_ended() {
            let _ =
                timeout(after, self.base.events.until(Event::Advanced, || self.base.has_ended()))
                    .await;
            if self.base.has_ended() || !self.has_freed_much() {
                continue;
            }
            self.capacity.forget_freed();
            self.sought.set(self.base.common.snapshots.freed());
            self.search.find().await;
            self.reclaim.give_back();
        }
    }

    /// Whether there is so much free space that reclaim is far from having to win any.
    fn has_plenty(&self) -> bool {
        self.base.common.allocator.lock().available() > 2 * self.reclaim.begins_below()
    }

    /// Tells a drive of a unit that is held. That it cannot be told is no failure: nothing is lost.
    async fn discard_unit(&self, member: Member) {
        let drives = self.base.writer.segments().drives();
        let Some(drive) = drives.drive(member.drive).cloned() else { return };
        let bytes = u64::from(drives.au_blocks()) * u64_of(crate::address::BLOCK);
        let at = drives.offset(member.drive, member.au, 0);
        match drive.deallocate(at, bytes).await {
            Ok(()) => count(&self.discarded, bytes),
            Err(error) if error.kind == MediaKind::Unsupported => {
                self.base.common.allocator.lock().tell(usize32(u32::from(member.drive)), false);
            }
            // It may still come, and take away what is written there by then.
            Err(error) if error.kind == MediaKind::Timeout => {
                drives.fail_one(
                    member.drive,
                    &drive,
                    Cause::of("telling it of free space", &error),
                );
            }
            Err(_) => {}
        }
    }

    /// Tells the drives of free units, until the shard ends.
    async fn tell(self: Rc<Self>, pause: Duration) {
        while !self.base.has_ended() {
            let due = || self.base.common.allocator.lock().has_dirty() && self.has_plenty();
            self.base.events.until(Event::Advanced, || self.base.has_ended() || due()).await;
            let taken = match self.base.has_ended() {
                true => None,
                false => self.base.common.allocator.lock().take_dirty(),
            };
            let Some(member) = taken else { continue };
            self.discard_unit(member).await;
            self.base.common.allocator.lock().discarded(member);
            if !self.has_plenty() {
                // Somebody may want just this one.
                self.base.writer.look_for_shortage();
                self.base.events.raise(Event::SpaceChanged);
                self.base.common.notify();
            }
            let _ =
                timeout(pause, self.base.events.until(Event::Advanced, || self.base.has_ended()))
                    .await;
        }
    }
}
