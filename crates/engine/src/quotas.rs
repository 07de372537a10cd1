//! Quotas: what a volume and all its snapshots may hold together (decision 0028).
//!
//! Nobody knows when a block is written whether it replaces another, so what a volume holds is known as of its last
//! count, and what was written since is taken for new. Each shard keeps that for its own blocks, and only it changes its
//! number: whoever writes adds up those of all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reactor::cross_core::{Lock, Watch};

use crate::address::View;
use crate::limits::QUOTA_MARGIN;
use crate::volume::state::{BLOCK_BYTES, State};

/// Not counted yet.
const UNKNOWN: u64 = u64::MAX;

/// The quotas of a pool's volumes.
#[derive(Default)]
pub struct Quotas {
    /// Grows whenever one comes or goes.
    changes: AtomicU64,
    all: Lock<BTreeMap<View, Arc<Quota>>>,
    recounts: Watch<Recounts>,
}

/// The quota of a volume. All in blocks.
#[derive(Debug)]
pub struct Quota {
    pub state: Arc<State>,
    limit: AtomicU64,
    shares: Box<[Share]>,
    /// What there was when the last recount began, after which it was full.
    full: Lock<Option<Stamp>>,
}

/// The quota of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    pub bytes: u64,
    /// What the volume and its snapshots held when that was counted last; `None` before the first time since the pool was
    /// opened.
    pub used: Option<u64>,
}

/// What one shard has of a volume. Only that shard changes it.
#[derive(Debug)]
pub struct Share {
    /// What it holds at most: what it counted last, and what was written since; [`UNKNOWN`] before it has counted.
    held: AtomicU64,
    /// As of the last count; [`UNKNOWN`] before.
    counted: AtomicU64,
    /// Grows with what may change what a count finds.
    changes: AtomicU64,
}

/// When nothing of this has changed, a recount finds what the last one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    shares: u64,
    snapshots: u64,
}

/// How writers have all shards count a volume.
#[derive(Default)]
struct Recounts {
    asked: u64,
    wanted: Vec<Recount>,
    /// By shard, whether it answers.
    listeners: Vec<bool>,
}

struct Recount {
    number: u64,
    view: View,
    /// A shard has begun with it: who asks from then on needs another one.
    is_begun: bool,
    /// Shards that have not counted yet, which have begun.
    waits_for: Vec<bool>,
    begun: Vec<bool>,
    failed: Arc<AtomicBool>,
}

impl Quota {
    fn new(state: Arc<State>, blocks: u64, shards: u16) -> Self {
        let share = || Share {
            held: AtomicU64::new(UNKNOWN),
            counted: AtomicU64::new(UNKNOWN),
            changes: AtomicU64::new(0),
        };
        let shares = (0..shards).map(|_| share()).collect();
        Self { state, limit: AtomicU64::new(blocks), shares, full: Lock::new(None) }
    }

    #[must_use]
    pub fn share(&self, shard: u16) -> &Share {
        &self.shares[usize::from(shard)]
    }

    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// What the volume and its snapshots hold at most; `None` before all shards have counted.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        self.shares.iter().map(Share::held).sum()
    }

    /// What they held when that was counted last.
    #[must_use]
    pub fn counted(&self) -> Option<u64> {
        self.shares.iter().map(|share| known(&share.counted)).sum()
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

    /// Nothing of it is there yet: it need not be counted.
    pub fn note_empty(&self) {
        for share in &self.shares {
            share.set_counted(0);
            share.set_held(0);
        }
    }

    /// What is so now, of what a recount depends on.
    #[must_use]
    pub fn stamp(&self, snapshots: u64) -> Stamp {
        let changes = self.shares.iter().map(|share| share.changes.load(Ordering::Acquire));
        Stamp { shares: changes.sum(), snapshots }
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
}

fn known(blocks: &AtomicU64) -> Option<u64> {
    let blocks = blocks.load(Ordering::Relaxed);
    (blocks != UNKNOWN).then_some(blocks)
}

impl Share {
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        known(&self.held)
    }

    pub fn set_counted(&self, blocks: u64) {
        self.counted.store(blocks, Ordering::Relaxed);
    }

    pub fn set_held(&self, blocks: u64) {
        self.held.store(blocks, Ordering::Relaxed);
    }

    /// Something was written, or given back. Only its shard says so.
    pub fn note_change(&self) {
        self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Quotas {
    /// Of a pool with so many shards.
    #[must_use]
    pub fn new(shards: u16) -> Self {
        let listeners = vec![false; usize::from(shards)];
        Self {
            recounts: Watch::new(Recounts { listeners, ..Recounts::default() }),
            ..Self::default()
        }
    }

    /// A volume has this quota from now on, in bytes, or none. What it holds is as yet unknown where it had none.
    pub fn set(&self, state: &Arc<State>, bytes: Option<u64>, shards: u16) {
        let mut all = self.all.lock();
        match bytes.map(|bytes| bytes / BLOCK_BYTES) {
            Some(blocks) => {
                match all.get(&state.view).filter(|quota| Arc::ptr_eq(&quota.state, state)) {
                    Some(quota) => quota.limit.store(blocks, Ordering::Relaxed),
                    None => {
                        let quota = Arc::new(Quota::new(Arc::clone(state), blocks, shards));
                        all.insert(state.view, quota);
                    }
                }
            }
            None => drop(all.remove(&state.view)),
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// The volume is gone.
    pub fn remove(&self, view: View) {
        if self.all.lock().remove(&view).is_some() {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    #[must_use]
    pub fn get(&self, view: View) -> Option<Arc<Quota>> {
        self.all.lock().get(&view).cloned()
    }

    /// That of a volume, in bytes.
    #[must_use]
    pub fn status(&self, view: View) -> Option<QuotaStatus> {
        let quota = self.get(view)?;
        let bytes = quota.limit() * BLOCK_BYTES;
        Some(QuotaStatus { bytes, used: quota.counted().map(|blocks| blocks * BLOCK_BYTES) })
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Quota>> {
        self.all.lock().values().cloned().collect()
    }

    /// How often one came or went: as long as this stays, those that a shard knows are those there are.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Has all shards count what they have of a volume, and waits for that. Tells whether each could.
    pub async fn recount(&self, view: View) -> bool {
        let (number, failed) = self.recounts.change(|recounts| recounts.ask(view));
        let is_done = |recounts: &mut Recounts| {
            let is_done = recounts.wanted.iter().all(|wanted| wanted.number != number);
            is_done.then_some(())
        };
        self.recounts.until(is_done).await;
        !failed.load(Ordering::Acquire)
    }

    /// A shard begins to answer.
    pub fn join(&self, shard: u16) {
        self.recounts.change(|recounts| recounts.listeners[usize::from(shard)] = true);
    }

    /// It answers no more.
    pub fn leave(&self, shard: u16) {
        self.recounts.change(|recounts| {
            recounts.listeners[usize::from(shard)] = false;
            for wanted in &mut recounts.wanted {
                if std::mem::take(&mut wanted.waits_for[usize::from(shard)]) {
                    wanted.failed.store(true, Ordering::Release);
                }
            }
            recounts.forget_done();
        });
    }

    /// The next volume that a shard is to count, and the number to be [answered](Self::answer); `None` once it has left.
    pub async fn next(&self, shard: u16) -> Option<(u64, View)> {
        let shard = usize::from(shard);
        let next = |recounts: &mut Recounts| {
            if !recounts.listeners[shard] {
                return Some(None);
            }
            let due = |wanted: &&mut Recount| wanted.waits_for[shard] && !wanted.begun[shard];
            let wanted = recounts.wanted.iter_mut().find(due)?;
            (wanted.is_begun, wanted.begun[shard]) = (true, true);
            Some(Some((wanted.number, wanted.view)))
        };
        self.recounts.until(next).await
    }

    /// A shard has counted what it was asked for, or could not.
    pub fn answer(&self, shard: u16, number: u64, is_counted: bool) {
        self.recounts.change(|recounts| {
            let mut of = recounts.wanted.iter_mut();
            if let Some(wanted) = of.find(|wanted| wanted.number == number) {
                wanted.waits_for[usize::from(shard)] = false;
                wanted.failed.fetch_or(!is_counted, Ordering::AcqRel);
            }
            recounts.forget_done();
        });
    }
}

impl Recounts {
    fn ask(&mut self, view: View) -> (u64, Arc<AtomicBool>) {
        let to_come = self.wanted.iter().find(|wanted| wanted.view == view && !wanted.is_begun);
        if let Some(wanted) = to_come {
            return (wanted.number, Arc::clone(&wanted.failed));
        }
        self.asked += 1;
        let failed = Arc::new(AtomicBool::new(!self.listeners.iter().all(|listens| *listens)));
        self.wanted.push(Recount {
            number: self.asked,
            view,
            is_begun: false,
            waits_for: self.listeners.clone(),
            begun: vec![false; self.listeners.len()],
            failed: Arc::clone(&failed),
        });
        self.forget_done();
        (self.asked, failed)
    }

    fn forget_done(&mut self) {
        self.wanted.retain(|wanted| wanted.waits_for.iter().any(|waits| *waits));
    }
}
