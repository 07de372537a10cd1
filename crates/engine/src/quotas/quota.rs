//! What volumes hold, and the bounds of that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::cross_core::Lock;

use crate::canary::{self, Canary};
use crate::limits::QUOTA_MARGIN;
use crate::volume::state::{BLOCK_BYTES, State};

/// Not counted yet.
const UNKNOWN: u64 = u64::MAX;

/// What a volume and its snapshots hold. All in blocks.
#[derive(Debug)]
pub struct Holding {
    pub state: Arc<State>,
    pub(super) held: Arc<Held>,
    shares: Box<[Share]>,
    /// What was so when the last recount of it began.
    pub(super) counted_at: Lock<Option<Stamp>>,
}

/// What each shard holds at most: what it counted last, and what was written since; [`UNKNOWN`] before it has counted. Only
/// that shard changes its number.
#[derive(Debug)]
pub(super) struct Held(Box<[AtomicU64]>);

/// What one shard has of a volume. Only that shard changes it.
#[derive(Debug)]
struct Share {
    /// As of the last count; [`UNKNOWN`] before.
    counted: AtomicU64,
    /// Grows with what may change what a count finds.
    changes: AtomicU64,
}

/// How much some volumes may hold together with their snapshots. All in blocks.
#[derive(Debug)]
pub struct Quota {
    whose: Whose,
    limit: AtomicU64,
    held: Arc<Held>,
    members: Lock<Members>,
    /// What there was when the last recount began, after which it was full.
    full: Lock<Option<Stamp>>,
}

#[derive(Debug)]
pub(super) enum Whose {
    Volume(Arc<State>),
    /// Of that name.
    Group(Lock<String>),
}

/// The volumes under a quota.
#[derive(Debug, Default)]
struct Members {
    all: Vec<Arc<Holding>>,
    /// Grows as they come and go.
    changes: u64,
}

/// A quota, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    pub bytes: u64,
    /// What the volume, or the volumes of the group, and their snapshots held when that was counted last; `None` before the
    /// first time since the pool was opened.
    pub used: Option<u64>,
}

/// The quota of a group, for whoever asks again and again how much of it is held.
#[derive(Clone, Debug)]
pub struct GroupQuota(pub(super) Arc<Quota>);

/// When nothing of this has changed, a recount finds what the last one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    shares: u64,
    snapshots: u64,
    members: u64,
}

fn known(blocks: &AtomicU64) -> Option<u64> {
    let blocks = blocks.load(Ordering::Relaxed);
    (blocks != UNKNOWN).then_some(blocks)
}

impl Held {
    pub(super) fn new(shards: u16) -> Arc<Self> {
        Arc::new(Self((0..shards).map(|_| AtomicU64::new(UNKNOWN)).collect()))
    }

    fn sum(&self) -> Option<u64> {
        self.0.iter().map(known).sum()
    }

    fn set(&self, shard: u16, blocks: Option<u64>) {
        self.0[usize::from(shard)].store(blocks.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }
}

impl Share {
    fn note_change(&self) {
        self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Holding {
    pub(super) fn new(state: Arc<State>, shards: u16) -> Self {
        let share = || Share { counted: AtomicU64::new(UNKNOWN), changes: AtomicU64::new(0) };
        let shares = (0..shards).map(|_| share()).collect();
        Self { state, held: Held::new(shards), shares, counted_at: Lock::new(None) }
    }

    /// What the volume and its snapshots hold at most; `None` before all shards have counted.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        self.held.sum()
    }

    /// What they held when that was counted last.
    #[must_use]
    pub fn counted(&self) -> Option<u64> {
        self.shares.iter().map(|share| known(&share.counted)).sum()
    }

    /// What a shard counted last.
    #[must_use]
    pub fn counted_by(&self, shard: u16) -> Option<u64> {
        known(&self.shares[usize::from(shard)].counted)
    }

    /// A shard counted so many.
    pub fn set_counted(&self, shard: u16, blocks: u64) {
        self.shares[usize::from(shard)].counted.store(blocks, Ordering::Relaxed);
    }

    /// A shard holds so many at most.
    pub fn set_held(&self, shard: u16, blocks: u64) {
        self.held.set(shard, Some(blocks));
    }

    /// Something was written, or given back. Only its shard says so.
    pub fn note_change(&self, shard: u16) {
        self.shares[usize::from(shard)].note_change();
    }

    /// What is so now, of what a recount depends on.
    pub(super) fn stamp(&self, snapshots: u64) -> Stamp {
        Stamp { shares: self.changes(), snapshots, members: 0 }
    }

    fn changes(&self) -> u64 {
        self.shares.iter().map(|share| share.changes.load(Ordering::Acquire)).sum()
    }
}

impl Quota {
    pub(super) fn new(whose: Whose, blocks: u64, held: Arc<Held>) -> Self {
        let (members, full) = (Lock::default(), Lock::new(None));
        Self { whose, limit: AtomicU64::new(blocks), held, members, full }
    }

    /// What it bounds, in words.
    #[must_use]
    pub fn whose(&self) -> String {
        match &self.whose {
            Whose::Volume(state) => format!("volume {} and its snapshots", *state.name.lock()),
            Whose::Group(name) => {
                format!("the volumes of group {} and their snapshots", *name.lock())
            }
        }
    }

    /// The group has another name.
    pub fn set_name(&self, to: &str) {
        if let Whose::Group(name) = &self.whose {
            to.clone_into(&mut name.lock());
        }
    }

    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// So many bytes may be held from now on.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes / BLOCK_BYTES, Ordering::Relaxed);
    }

    /// That, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.limit() * BLOCK_BYTES
    }

    /// What is held at most; `None` before all shards have counted.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        self.held.sum()
    }

    /// A shard holds so many at most, of all volumes of a group together.
    pub fn set_held(&self, shard: u16, blocks: Option<u64>) {
        self.held.set(shard, blocks);
    }

    /// The volumes under it.
    #[must_use]
    pub fn members(&self) -> Vec<Arc<Holding>> {
        self.members.lock().all.clone()
    }

    /// What they held when each of them was counted last.
    #[must_use]
    pub fn counted(&self) -> Option<u64> {
        self.members.lock().all.iter().map(|of| of.counted()).sum()
    }

    /// Whether so many blocks more are within it, whatever they replace.
    #[must_use]
    pub fn has_room(&self, blocks: u64) -> bool {
        let is_within = |held: u64| held.saturating_add(blocks) <= self.limit();
        canary::has(Canary::QuotaLetsAllIn) || self.held().is_some_and(is_within)
    }

    /// As [`has_room`](Self::has_room), with so much left that nobody need look what is replaced.
    #[inline]
    #[must_use]
    pub fn has_ample_room(&self, blocks: u64) -> bool {
        self.has_room(blocks.saturating_add(self.limit() / QUOTA_MARGIN))
    }

    /// What is so now, of what a recount depends on.
    #[must_use]
    pub fn stamp(&self, snapshots: u64) -> Stamp {
        let members = self.members.lock();
        let shares = members.all.iter().map(|of| of.changes()).sum();
        Stamp { shares, snapshots, members: members.changes }
    }

    /// A recount that began when this was so found it full.
    pub fn note_full(&self, stamp: Stamp) {
        *self.full.lock() = Some(stamp);
    }

    /// Whether a recount would find it full again.
    #[must_use]
    pub fn is_full(&self, stamp: Stamp) -> bool {
        *self.full.lock() == Some(stamp)
    }

    #[must_use]
    pub fn status(&self) -> QuotaStatus {
        let used = self.counted().map(|blocks| blocks * BLOCK_BYTES);
        QuotaStatus { bytes: self.bytes(), used }
    }

    pub(super) fn change_members(&self, change: impl FnOnce(&mut Vec<Arc<Holding>>)) {
        let mut members = self.members.lock();
        change(&mut members.all);
        members.changes += 1;
    }

    pub(super) fn has_member(&self, holding: &Arc<Holding>) -> bool {
        self.members.lock().all.iter().any(|of| Arc::ptr_eq(of, holding))
    }
}

impl GroupQuota {
    /// What is held of it now.
    #[must_use]
    pub fn status(&self) -> QuotaStatus {
        self.0.status()
    }
}

impl PartialEq for GroupQuota {
    fn eq(&self, other: &Self) -> bool {
        self.status() == other.status()
    }
}

impl Eq for GroupQuota {}
