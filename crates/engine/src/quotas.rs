//! Quotas: what a volume, or a group of volumes, and all their snapshots may hold together (decision 0028).
//!
//! Nobody knows when a block is written whether it replaces another, so what a volume holds is known as of its last
//! count, and what was written since is taken for new. Each shard keeps that for its own blocks, and only it changes its
//! number: whoever writes adds up those of all. Of a group, each shard keeps the sum of what it has of the group's volumes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reactor::cross_core::{AsyncMutex, Lock, Watch};

pub use self::quota::{GroupQuota, Holding, Quota, QuotaStatus, Stamp};
use self::quota::{Held, Whose};
use self::recounts::Recounts;
pub use self::reserve::{Drawn, Lacking, ReservationStatus, Reservations, Reserve, ReserveMark};
use crate::address::View;
use crate::limits::RECOUNT_PAUSE_MAX;
use crate::space::Space;
use crate::used::Used;
use crate::volume::state::{BLOCK_BYTES, State};

mod quota;
mod recounts;
mod reserve;

/// The quotas of a pool's volumes, and of its groups.
pub struct Quotas {
    shards: u16,
    /// Grows whenever one comes or goes, or a volume comes under one.
    changes: AtomicU64,
    all: Lock<All>,
    recounts: Watch<Recounts>,
    /// Whoever has what is kept counted.
    recounting: AsyncMutex,
    recounted: Lock<Recounted>,
}

/// Counts of all that is kept.
#[derive(Clone, Copy, Default)]
struct Recounted {
    begun: u64,
    /// The last that came to its end, and when.
    ended: u64,
    at: u64,
    /// How long nobody begins another.
    pause: Duration,
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
    /// What is kept for its hosts.
    pub reserve: Option<Arc<Reserve>>,
}

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
            Counted { holding, own: None, group: None, reserve: None }
        };
        let of = self.volumes.entry(state.view).or_insert_with(new);
        if !Arc::ptr_eq(&of.holding.state, state) {
            of.leave();
            *of = new();
        }
        of
    }

    /// It need not be counted if it is under no quota, and has no reservation.
    fn release(&mut self, view: View) {
        let is_needless =
            |of: &Counted| of.own.is_none() && of.group.is_none() && of.reserve.is_none();
        if self.volumes.get(&view).is_some_and(is_needless) {
            self.volumes.remove(&view);
        }
    }
}

impl Quotas {
    /// Of a pool with so many shards.
    #[must_use]
    pub fn new(shards: u16) -> Self {
        let (all, recounts) = (Lock::default(), Watch::new(Recounts::new(shards)));
        let (recounting, recounted) = (AsyncMutex::default(), Lock::default());
        Self { shards, changes: AtomicU64::new(0), all, recounts, recounting, recounted }
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

    /// This is kept for a volume from now on, or nothing.
    pub fn set_reserve(&self, state: &Arc<State>, reserve: Option<Arc<Reserve>>) {
        self.change(|all| {
            all.of(state, self.shards).reserve = reserve;
            all.release(state.view);
        });
    }

    /// What is kept for a volume.
    #[must_use]
    pub fn reserve(&self, view: View) -> Option<Arc<Reserve>> {
        self.all.lock().volumes.get(&view)?.reserve.clone()
    }

    /// A reservation in bytes.
    #[must_use]
    pub fn reservation(&self, view: View) -> Option<ReservationStatus> {
        Some(self.reserve(view)?.status())
    }

    /// What is kept for all volumes together.
    #[must_use]
    pub fn reservations(&self, space: &Space) -> Reservations {
        let (mut sum, mut is_counted) = (Reservations::default(), true);
        for reserve in self.all().into_iter().filter_map(|of| of.reserve) {
            let of = reserve.status();
            (sum.bytes, sum.kept) = (sum.bytes + of.bytes, sum.kept + of.kept);
            is_counted &= reserve.is_counted();
        }
        // Before that what volumes have counts twice.
        let missing = if is_counted { space.overdrawn() * BLOCK_BYTES } else { 0 };
        Reservations { missing: missing.min(sum.kept), is_counted, ..sum }
    }

    /// Has those volumes counted for which something may be kept too much, but for one, or waits for whoever does that
    /// already. One at a time, with a pause after each.
    pub async fn recount_reserved(&self, but: Option<View>, used: &Used) {
        let keeps = |of: Counted| of.reserve.is_some_and(|reserve| reserve.keeps());
        if !self.all().into_iter().any(keeps) {
            return;
        }
        let begun = self.recounted.lock().begun;
        let _turn = self.recounting.hold().await;
        let Recounted { ended, at, pause, .. } = *self.recounted.lock();
        if ended > begun {
            return;
        }
        let since = Duration::from_nanos(reactor::now_exact().saturating_sub(at));
        if since < pause {
            reactor::sleep(pause - since).await;
        }
        let this = {
            let mut recounted = self.recounted.lock();
            recounted.begun += 1;
            recounted.begun
        };
        let from = reactor::now_exact();
        self.recount_kept(but, used).await;
        let at = reactor::now_exact();
        let pause = Duration::from_nanos(at.saturating_sub(from)).min(RECOUNT_PAUSE_MAX);
        let mut recounted = self.recounted.lock();
        assert!(recounted.ended < this, "counts of what is kept are made one after another");
        (recounted.ended, recounted.at, recounted.pause) = (this, at, pause);
    }

    async fn recount_kept(&self, but: Option<View>, used: &Used) {
        let keeps = |of: &Counted| of.reserve.as_ref().is_some_and(|reserve| reserve.keeps());
        let is_other = |of: &Counted| Some(of.holding.state.view) != but;
        let others = self.all().into_iter().filter(|of| keeps(of) && is_other(of));
        let recount = async |Counted { holding, .. }: Counted| {
            // What hosts store by themselves nobody notes.
            if holding.state.has_window() {
                *holding.counted_at.lock() = None;
            }
            let _ = self.recount_changed(vec![holding], used).await;
        };
        reactor::join_all(others.map(recount)).await;
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
