//! Quotas: what a volume, or a group of volumes, and all their snapshots may hold together (decision 0028).
//!
//! Nobody knows when a block is written whether it replaces another, so what a volume holds is known as of its last
//! count, and what was written since is taken for new. Each shard keeps that for its own blocks, and only it changes its
//! number: whoever writes adds up those of all. Of a group, each shard keeps the sum of what it has of the group's volumes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::cross_core::{Lock, Watch};

use self::recounts::Recounts;
use crate::address::View;
use crate::limits::QUOTA_MARGIN;
use crate::used::Used;
use crate::volume::state::{BLOCK_BYTES, State};

mod recounts;

/// Not counted yet.
const UNKNOWN: u64 = u64::MAX;

/// The quotas of a pool's volumes, and of its groups.
pub struct Quotas {
    shards: u16,
    /// Grows whenever one comes or goes, or a volume comes under one.
    changes: AtomicU64,
    all: Lock<All>,
    recounts: Watch<Recounts>,
}

#[derive(Default)]
struct All {
    /// Volumes of which is known what they hold.
    volumes: BTreeMap<View, Counted>,
    /// Of groups.
    groups: BTreeMap<View, Arc<Quota>>,
}

/// A volume of which is known what it holds, and the quotas that it is under: its own, and that of its group.
#[derive(Clone, Debug)]
pub struct Counted {
    pub holding: Arc<Holding>,
    pub own: Option<Arc<Quota>>,
    pub group: Option<Arc<Quota>>,
}

/// What a volume and its snapshots hold. All in blocks.
#[derive(Debug)]
pub struct Holding {
    pub state: Arc<State>,
    held: Arc<Held>,
    shares: Box<[Share]>,
    /// What was so when the last recount of it began.
    counted_at: Lock<Option<Stamp>>,
}

/// What each shard holds at most: what it counted last, and what was written since; [`UNKNOWN`] before it has counted. Only
/// that shard changes its number.
#[derive(Debug)]
struct Held(Box<[AtomicU64]>);

/// What one shard has of a volume. Only that shard changes it.
#[derive(Debug)]
pub struct Share {
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
enum Whose {
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
pub struct GroupQuota(Arc<Quota>);

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
    fn new(shards: u16) -> Arc<Self> {
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
    fn new(state: Arc<State>, shards: u16) -> Self {
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
    fn stamp(&self, snapshots: u64) -> Stamp {
        Stamp { shares: self.changes(), snapshots, members: 0 }
    }

    fn changes(&self) -> u64 {
        self.shares.iter().map(|share| share.changes.load(Ordering::Acquire)).sum()
    }
}

impl Quota {
    fn new(whose: Whose, blocks: u64, held: Arc<Held>) -> Self {
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
        self.held().is_some_and(|held| held.saturating_add(blocks) <= self.limit())
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

    fn change_members(&self, change: impl FnOnce(&mut Vec<Arc<Holding>>)) {
        let mut members = self.members.lock();
        change(&mut members.all);
        members.changes += 1;
    }

    fn has_member(&self, holding: &Arc<Holding>) -> bool {
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

impl Counted {
    fn leave(&mut self) {
        if let Some(group) = self.group.take() {
            group.change_members(|all| all.retain(|of| !Arc::ptr_eq(of, &self.holding)));
        }
    }
}

impl All {
    /// What is known of a volume, which is counted from now on.
    fn of(&mut self, state: &Arc<State>, shards: u16) -> &mut Counted {
        let new = || {
            let holding = Arc::new(Holding::new(Arc::clone(state), shards));
            Counted { holding, own: None, group: None }
        };
        let of = self.volumes.entry(state.view).or_insert_with(new);
        if !Arc::ptr_eq(&of.holding.state, state) {
            of.leave();
            *of = new();
        }
        of
    }

    /// It need not be counted if it is under no quota.
    fn release(&mut self, view: View) {
        if self.volumes.get(&view).is_some_and(|of| of.own.is_none() && of.group.is_none()) {
            self.volumes.remove(&view);
        }
    }
}

impl Quotas {
    /// Of a pool with so many shards.
    #[must_use]
    pub fn new(shards: u16) -> Self {
        let (all, recounts) = (Lock::default(), Watch::new(Recounts::new(shards)));
        Self { shards, changes: AtomicU64::new(0), all, recounts }
    }

    fn change<T>(&self, change: impl FnOnce(&mut All) -> T) -> T {
        let done = change(&mut self.all.lock());
        self.changes.fetch_add(1, Ordering::Release);
        done
    }

    /// A volume is to be counted, whether it is under a quota or not. What it holds is as yet unknown where it was not.
    pub fn track(&self, state: &Arc<State>) -> Arc<Holding> {
        self.change(|all| Arc::clone(&all.of(state, self.shards).holding))
    }

    /// It need not be if it is under none.
    pub fn release(&self, view: View) {
        self.change(|all| all.release(view));
    }

    /// A volume has this quota from now on, in bytes, or none.
    pub fn set(&self, state: &Arc<State>, bytes: Option<u64>) {
        self.change(|all| {
            let of = all.of(state, self.shards);
            match (bytes, &of.own) {
                (Some(bytes), Some(own)) => own.set_limit(bytes),
                (Some(bytes), None) => {
                    let (whose, held) = (Whose::Volume(Arc::clone(state)), &of.holding.held);
                    let own = Quota::new(whose, bytes / BLOCK_BYTES, Arc::clone(held));
                    own.change_members(|all| all.push(Arc::clone(&of.holding)));
                    of.own = Some(Arc::new(own));
                }
                (None, _) => of.own = None,
            }
            all.release(state.view);
        });
    }

    /// A quota for a group, under which nothing is yet.
    #[must_use]
    pub fn for_group(&self, name: &str, bytes: u64) -> Arc<Quota> {
        let whose = Whose::Group(Lock::new(name.to_owned()));
        Arc::new(Quota::new(whose, bytes / BLOCK_BYTES, Held::new(self.shards)))
    }

    /// A group has this quota from now on.
    pub fn add_group(&self, view: View, quota: Arc<Quota>) {
        self.change(|all| drop(all.groups.insert(view, quota)));
    }

    /// It has none any more.
    pub fn remove_group(&self, view: View) {
        self.change(|all| {
            let quota = all.groups.remove(&view);
            let members = quota.map(|quota| quota.members()).unwrap_or_default();
            for holding in members {
                let view = holding.state.view;
                all.volumes.get_mut(&view).into_iter().for_each(Counted::leave);
                all.release(view);
            }
        });
    }

    /// That of a group.
    #[must_use]
    pub fn of_group(&self, view: View) -> Option<Arc<Quota>> {
        self.all.lock().groups.get(&view).cloned()
    }

    /// That of a group, for others.
    #[must_use]
    pub fn group_quota(&self, view: View) -> Option<GroupQuota> {
        self.of_group(view).map(GroupQuota)
    }

    /// Volumes come under the quota of a group.
    pub fn bind<'s>(&self, quota: &Arc<Quota>, states: impl IntoIterator<Item = &'s Arc<State>>) {
        self.change(|all| {
            for state in states {
                let of = all.of(state, self.shards);
                of.leave();
                quota.change_members(|members| members.push(Arc::clone(&of.holding)));
                of.group = Some(Arc::clone(quota));
            }
        });
    }

    /// They are not under it any more.
    pub fn unbind<'s>(&self, states: impl IntoIterator<Item = &'s Arc<State>>) {
        self.change(|all| {
            for state in states {
                all.volumes.get_mut(&state.view).into_iter().for_each(Counted::leave);
                all.release(state.view);
            }
        });
    }

    /// The volume is gone.
    pub fn remove(&self, view: View) {
        if self.get(view).is_some() {
            let gone = self.change(|all| all.volumes.remove(&view));
            gone.into_iter().for_each(|mut gone| gone.leave());
        }
    }

    /// Nothing of a volume is there yet: it need not be counted.
    pub fn note_empty(&self, view: View) {
        let Some(Counted { holding, .. }) = self.get(view) else { return };
        for shard in 0..self.shards {
            holding.set_held(shard, 0);
            holding.set_counted(shard, 0);
        }
        // Shards that have looked meanwhile look again.
        self.change(|_| ());
    }

    #[must_use]
    pub fn get(&self, view: View) -> Option<Counted> {
        self.all.lock().volumes.get(&view).cloned()
    }

    /// That of a volume, in bytes.
    #[must_use]
    pub fn status(&self, view: View) -> Option<QuotaStatus> {
        Some(self.get(view)?.own?.status())
    }

    /// All volumes that are under one.
    #[must_use]
    pub fn all(&self) -> Vec<Counted> {
        self.all.lock().volumes.values().cloned().collect()
    }

    /// How often one came or went: as long as this stays, those that a shard knows are those there are.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Has those volumes counted of which something has changed since that was done last, all at once. Tells whether what
    /// each holds is known.
    pub async fn recount_changed(&self, holdings: Vec<Arc<Holding>>, used: &Used) -> bool {
        let recount = async |holding: Arc<Holding>| {
            let stamp = holding.stamp(used.changes());
            if holding.held().is_some() && *holding.counted_at.lock() == Some(stamp) {
                return true;
            }
            let is_counted = self.recount(holding.state.view).await;
            if is_counted {
                *holding.counted_at.lock() = Some(stamp);
            }
            is_counted
        };
        let each = holdings.into_iter().map(recount);
        reactor::join_all(each).await.into_iter().all(|is_counted| is_counted)
    }

    /// As [`recount_changed`](Self::recount_changed) of the volumes under a quota. Those that have left meanwhile do not
    /// matter.
    pub async fn recount_members(&self, quota: &Quota, used: &Used) -> bool {
        let recount = async |holding: Arc<Holding>| {
            let is_counted = self.recount_changed(vec![Arc::clone(&holding)], used).await;
            is_counted || !quota.has_member(&holding)
        };
        let each = quota.members().into_iter().map(recount);
        let is_counted = reactor::join_all(each).await.into_iter().all(|is_counted| is_counted);
        if is_counted && quota.held().is_none() {
            // A shard does not know yet who is under it: it looks when it is asked to count, even what nobody has.
            let _ = self.recount(View::SHARED).await;
        }
        is_counted
    }
}
