//! What all shards of a pool share, whichever reactors they are on. All of it is touched rarely.

use crate::allocator::Allocator;
use crate::limits::{DEGRADE_BELOW, METADATA_RESERVE};
use crate::quotas::Quotas;
use crate::snapshots::Snapshots;
use crate::space::Space;
use crate::superblock::Superblock;
use crate::used::Used;
use reactor::cross_core::{Lock, Watch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct Common {
    pub superblock: Superblock,
    /// Taken once for each segment, and to see how many are left.
    pub allocator: Lock<Allocator>,
    /// How many segments the pool has space for in all.
    segments: AtomicU64,
    pub space: Space,
    /// What volumes use.
    pub used: Used,
    /// What they may use.
    pub quotas: Quotas,
    /// Which versions of volumes their snapshots see.
    pub snapshots: Snapshots,
    /// Blocks of data a segment has room for.
    pub segment_blocks: u64,
    pub shards: u16,
    /// Failures of drives, as they are counted, that free space and capacity allow for.
    followed: AtomicU64,
    /// Drives that are being emptied, by their bits.
    leaving: AtomicU64,
    /// Drives that are slower than the others, by their bits, as they were looked at last.
    slow: AtomicU64,
    /// Drives with space that nobody can have before segments were moved there, by their bits.
    uneven: AtomicU64,
    /// Less can be placed than the drives have room for.
    is_capped: AtomicBool,
    low_space: Watch<LowSpace>,
}

/// How shards call upon each other when space is short.
#[derive(Default)]
struct LowSpace {
    /// Grows when all should look for space to give back, or to be had.
    notified: u64,
    /// The call that asked to find out all that can be given back.
    asked: u64,
    /// By shard.
    listeners: Vec<Listener>,
}

#[derive(Clone, Default)]
struct Listener {
    /// It has tasks that answer.
    taken: bool,
    acknowledged: u64,
}

/// What a shard is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which call it is; the next one is a later one.
    pub number: u64,
    /// The call to be answered once everything that can be given back was.
    pub asked: u64,
}

impl Common {
    /// Of a pool whose segments have room for so many blocks each.
    #[must_use]
    pub fn new(
        superblock: Superblock,
        mut allocator: Allocator,
        segment_blocks: u64,
        shards: u16,
    ) -> Self {
        for index in superblock.drives.indices() {
            let (place, drives) = (usize::from(index), &superblock.drives);
            allocator.set_online(place, drives.is_online(index));
            allocator.set_closed(place, drives.is_vacant(index));
        }
        let segments = allocator.capacity();
        allocator.degrade_below(METADATA_RESERVE * u64::from(shards) + DEGRADE_BELOW);
        let space = Space::new(Space::capacity_of(segments, segment_blocks, shards), shards);
        space.set_capacity(Space::capacity_of(allocator.capacity_online(), segment_blocks, shards));
        let listeners = vec![Listener::default(); usize::from(shards)];
        let low_space = Watch::new(LowSpace { listeners, ..LowSpace::default() });
        let followed = AtomicU64::new(superblock.drives.changes());
        let (allocator, used) = (Lock::new(allocator), Used::new(shards));
        let snapshots = superblock.catalog(Snapshots::of);
        Self {
            superblock,
            allocator,
            segments: AtomicU64::new(segments),
            space,
            used,
            quotas: Quotas::new(shards),
            snapshots,
            segment_blocks,
            shards,
            followed,
            leaving: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            uneven: AtomicU64::new(0),
            is_capped: AtomicBool::new(false),
            low_space,
        }
    }

    /// Drives that are being emptied, by their bits: nothing new comes there while there is space on others.
    pub fn leaving(&self) -> u64 {
        self.leaving.load(Ordering::Acquire)
    }

    /// Has these drives be emptied, by their bits, and no others.
    pub fn set_leaving(&self, drives: u64) {
        self.leaving.store(drives, Ordering::Release);
        self.tell_allocator();
    }

    /// Has new segments lie on drives that are not slow, as far as that costs no space.
    pub fn follow_slow(&self) {
        let drives = &self.superblock.drives;
        let is_slow = |index: &u16| drives.is_online(*index) && drives.is_slow(*index);
        let slow = drives.indices().filter(is_slow).map(|index| 1 << index).sum();
        if self.slow.swap(slow, Ordering::AcqRel) == slow {
            return;
        }
        let mut allocator = self.allocator.lock();
        for index in drives.indices() {
            allocator.set_slow(usize::from(index), slow & (1 << index) != 0);
        }
    }

    /// How many segments the pool has space for in all.
    pub fn segments(&self) -> u64 {
        self.segments.load(Ordering::Acquire)
    }

    /// Allows for the drives that failed since this was last called: nothing new is to lie there,
    /// and the pool holds less, where there are enough others.
    pub fn follow_drives(&self) {
        let changes = self.superblock.drives.changes();
        if self.followed.swap(changes, Ordering::AcqRel) != changes {
            self.tell_allocator();
        }
    }

    /// Whether new segments have no part on drives that are out.
    pub fn has_room_online(&self) -> bool {
        self.follow_drives();
        self.allocator.lock().has_room_online()
    }

    fn tell_allocator(&self) {
        let drives = &self.superblock.drives;
        let mut allocator = self.allocator.lock();
        // What is so by now: whoever changes it tells this, too.
        let leaving = self.leaving();
        for index in drives.indices() {
            let (place, leaves) = (usize::from(index), leaving & (1 << index) != 0);
            allocator.set_online(place, drives.is_online(index));
            allocator.set_closed(place, drives.is_vacant(index));
            allocator.set_leaving(place, leaves);
        }
        self.segments.store(allocator.capacity(), Ordering::Release);
        let kept = self.keep_for_metadata();
        allocator.keep_while_emptying(kept, kept + DEGRADE_BELOW);
        self.promise_what_can_be_placed(&allocator);
        drop(allocator);
        // Who waits for space may have it now, with no host's write to show that.
        self.notify_all();
    }

    /// The pool may hold what can be placed by now, whatever its drives had room for were they used evenly.
    fn promise_what_can_be_placed(&self, allocator: &Allocator) {
        let (all, placeable) = (allocator.capacity_online(), allocator.placeable());
        let segments = all.min(placeable);
        self.is_capped.store(placeable < all, Ordering::Release);
        self.space.set_capacity(match self.leaving() {
            0 => Space::capacity_of(segments, self.segment_blocks, self.shards),
            _ => self.capacity_while_emptying(segments),
        });
        let uneven = allocator.uneven().map_or(0, |uneven| uneven.drives);
        self.uneven.store(uneven, Ordering::Release);
    }

    /// Whether the pool holds less for now than its drives have room for.
    pub fn is_capped(&self) -> bool {
        self.is_capped.load(Ordering::Acquire)
    }

    /// Looks at what can be placed: the segments that there are were found, or some went.
    pub fn follow_placement(&self) {
        let before = self.space.capacity();
        self.promise_what_can_be_placed(&self.allocator.lock());
        if self.space.capacity() != before {
            // Who waits for space may have it now.
            self.notify_all();
        }
    }

    /// Drives, by their bits, with space that nobody can have before segments were moved there: they came, or came back,
    /// when the others were filled.
    pub fn uneven(&self) -> u64 {
        self.uneven.load(Ordering::Acquire)
    }

    /// What the pool will be able to hold once segments were moved there, and how many at least; `None` where none have
    /// to be.
    pub fn to_spread(&self) -> Option<(u64, u64)> {
        let allocator = self.allocator.lock();
        let uneven = allocator.uneven()?;
        let segments = allocator.capacity_online();
        let blocks = Space::capacity_of(segments, self.segment_blocks, self.shards);
        Some((blocks, uneven.segments))
    }

    /// Segments kept free so that a checkpoint, and the merges it needs, always find room.
    pub fn keep_for_metadata(&self) -> u64 {
        (self.segments() / 128).max(METADATA_RESERVE * u64::from(self.shards))
    }

    /// Blocks that the pool may hold on so many segments of the drives that stay, while others are being emptied: as
    /// full as it may be otherwise, new segments would begin on those.
    pub fn capacity_while_emptying(&self, segments: u64) -> u64 {
        let segments = segments.saturating_sub(DEGRADE_BELOW);
        Space::capacity_of(segments, self.segment_blocks, self.shards)
    }

    /// A shard's tasks begin, and will answer.
    pub fn join(&self, shard: u16) {
        self.quotas.join(shard);
        self.low_space.change(|low_space| {
            let asked = low_space.asked;
            let taken = low_space.listeners[usize::from(shard)].taken;
            assert!(!taken, "a shard has one task that answers");
            low_space.listeners[usize::from(shard)] = Listener { taken: true, acknowledged: asked };
        });
    }

    /// A shard answers no more.
    pub fn leave(&self, shard: u16) {
        self.quotas.leave(shard);
        self.low_space.change(|low_space| low_space.listeners[usize::from(shard)].taken = false);
    }

    /// Has all other shards look at the pool's space.
    pub fn notify(&self) {
        if self.shards > 1 {
            self.notify_all();
        }
    }

    /// Has all shards look at the pool's space.
    fn notify_all(&self) {
        self.low_space.change(|low_space| low_space.notified += 1);
    }

    /// Has all other shards give back whatever they can, and waits for that.
    pub async fn ask_others(&self, shard: u16) {
        if self.shards == 1 {
            return;
        }
        let call = self.low_space.change(|low_space| {
            low_space.notified += 1;
            low_space.asked = low_space.notified;
            low_space.asked
        });
        let acknowledged = |low_space: &mut LowSpace| {
            let others =
                low_space.listeners.iter().enumerate().filter(|(n, _)| *n != usize::from(shard));
            let all = others
                .into_iter()
                .all(|(_, listener)| !listener.taken || listener.acknowledged >= call);
            all.then_some(())
        };
        self.low_space.until(acknowledged).await;
    }

    /// The next call after `last`; `None` once the shard has left.
    pub async fn next_notice(&self, shard: u16, last: u64) -> Option<Notice> {
        let next = |low_space: &mut LowSpace| {
            let LowSpace { notified, asked, .. } = *low_space;
            assert!(last <= notified && asked <= notified, "what was heard of was said");
            match low_space.listeners[usize::from(shard)].taken {
                false => Some(None),
                true => (notified > last).then_some(Some(Notice { number: notified, asked })),
            }
        };
        self.low_space.until(next).await
    }

    /// The shard gave back what it can.
    pub fn acknowledge(&self, shard: u16, asked: u64) {
        self.low_space.change(|low_space| {
            assert!(asked <= low_space.asked, "what is acknowledged was asked");
            let listener = &mut low_space.listeners[usize::from(shard)];
            listener.acknowledged = listener.acknowledged.max(asked);
        });
    }
}
