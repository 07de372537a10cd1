//! Drives that get slow, as many as may be, and fast again; and a node that looks at its drives every few seconds, as the
//! daemon does: copies of the log move off drives that take it late, and a drive that stays slow is emptied.

use super::{Media, Seen, returning::Stage};
use crate::rough::moment;
use engine::{DriveState, Pool, PoolStatus};
use media::Simulated;
use reactor::{sleep, spawn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use stdx::Prng;
use stdx::num::{low32, u16_of, u64_of, usize64};

/// How many times as long a slow drive takes.
const TIMES: std::ops::RangeInclusive<u64> = 5..=100;

/// Pauses between two changes, and two looks, as doublings of some microseconds: up to four seconds.
const PAUSE: u64 = 19;

/// Looks in a row at which a drive is slow, until it is emptied where others have room for what it has.
const SLOW_LOOKS: u32 = 3;

fn times(prng: &mut Prng) -> u32 {
    low32(TIMES.start() + prng.below(TIMES.end() - TIMES.start() + 1))
}

/// Who changes how fast drives are.
struct Pace {
    pool: Pool,
    drives: Vec<Arc<Simulated>>,
    stage: Rc<Cell<Stage>>,
    prng: Prng,
    said: Rc<RefCell<Vec<String>>>,
}

/// Who looks at them.
struct Node {
    pool: Pool,
    prng: Prng,
    /// Drives that stay slow are emptied.
    empties: bool,
    stage: Rc<Cell<Stage>>,
    /// Looks in a row at which each was slow.
    slow: BTreeMap<usize, u32>,
    said: Rc<RefCell<Vec<String>>>,
    seen: Rc<Cell<Seen>>,
}

impl Media {
    fn slow_prng(&self, life: usize, salt: u64) -> Option<Prng> {
        let slows = self.plan.rough.is_some_and(|rough| rough.slows);
        slows.then(|| Prng::new(self.plan.seed ^ salt ^ u64_of(life) << 48))
    }

    /// Before a pool is opened: some drives are slow already.
    pub(super) fn slow_down(&self, life: usize) {
        let Some(mut prng) = self.slow_prng(life, 0x5eed_0510_3d21_0002) else { return };
        for (n, drive) in self.drives.iter().enumerate() {
            let times = if prng.below(4) == 0 { times(&mut prng) } else { 1 };
            drive.set_slower(times);
            if times > 1 {
                self.note(&format!("drive {n} takes {times} times as long"));
            }
        }
    }

    /// Once it is open: others get slow, and a node looks at them.
    pub(super) fn look_after(&self, life: usize, pool: &Pool) {
        let Some(prng) = self.slow_prng(life, 0x5eed_0510_3d21_0003) else { return };
        let (pool, said) = (pool.clone(), Rc::clone(&self.said));
        let node = Node {
            pool: pool.clone(),
            prng: Prng::new(prng.clone().next_u64()),
            empties: self.plan.rough.is_some_and(|rough| rough.widens),
            stage: Rc::clone(&self.stage),
            slow: BTreeMap::new(),
            said: Rc::clone(&self.said),
            seen: Rc::clone(&self.seen),
        };
        let (drives, stage) = (self.drives.clone(), Rc::clone(&self.stage));
        drop(spawn(Pace { pool, drives, stage, prng, said }.change()));
        drop(spawn(node.look()));
    }
}

impl Pace {
    /// Likewise.
    async fn change(mut self) {
        loop {
            sleep(moment(&mut self.prng, PAUSE)).await;
            let Ok(status) = self.pool.status().await else { return };
            if self.stage.get() != Stage::ComeAndGo {
                // Whoever waits for all to be whole has them do what they can.
                return self.drives.iter().for_each(|drive| drive.set_slower(1));
            }
            let n = self.one(&status);
            let times = if self.prng.below(2) == 0 { 1 } else { times(&mut self.prng) };
            self.drives[n].set_slower(times);
            self.said.borrow_mut().push(format!("drive {n} takes {times} times as long"));
        }
    }

    /// Often one of those that have the log.
    fn one(&mut self, status: &PoolStatus) -> usize {
        let log = &status.log.drives;
        if !log.is_empty() && self.prng.below(2) == 0 {
            return usize::from(log[usize64(self.prng.below(u64_of(log.len())))]);
        }
        usize64(self.prng.below(u64_of(self.drives.len())))
    }
}

impl Node {
    /// Until the pool is closed, or all drives are to be whole.
    async fn look(mut self) {
        let mut copies = 0;
        loop {
            sleep(moment(&mut self.prng, PAUSE)).await;
            // What the labels cannot say is no news: whoever writes next says so.
            let _ = self.pool.look_at_drives().await;
            let Ok(status) = self.pool.status().await else { return };
            if self.stage.get() != Stage::ComeAndGo {
                return;
            }
            let made = self.pool.log_copies_made();
            self.count(|seen| seen.log_copies += made - copies);
            copies = made;
            for n in self.told_slow(&status) {
                self.count(|seen| seen.slow += 1);
                let looks = self.slow.get(&n).copied().unwrap_or(0);
                if self.empties && looks == SLOW_LOOKS {
                    let begun = self.pool.evacuate(u16_of(n), 0).await;
                    let begun = begun.map_err(|error| error.to_string());
                    let what = format!("drive {n} stays slow, and is emptied: {begun:?}");
                    self.said.borrow_mut().push(what);
                }
            }
        }
    }

    fn count(&self, count: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen.get();
        count(&mut seen);
        self.seen.set(seen);
    }

    /// Those that the pool says are slow.
    fn told_slow(&mut self, status: &PoolStatus) -> Vec<usize> {
        let mut told = Vec::new();
        for (n, drive) in status.drives.iter().enumerate() {
            let is_slow = drive.slow && drive.state == DriveState::Online;
            let looks = self.slow.entry(n).or_default();
            *looks = if is_slow { *looks + 1 } else { 0 };
            if is_slow {
                told.push(n);
            }
        }
        told
    }
}
