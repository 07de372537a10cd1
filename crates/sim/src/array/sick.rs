//! Drives that misbehave while a pool is open: as many at once as its redundancy bears.

use super::Media;
use crate::contents::BLOCK;
use crate::rough::{Rough, Sickness, moment};
use crate::shape::LogShape;
use media::drive::SimulatedFaults;
use media::{Kind, Refusal, Simulated};
use reactor::{Nanos, now, sleep, spawn};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{align_down, u64_of, usize64};

/// What a drive that rots does, of a million operations. Nothing that hits what a label says.
pub(super) const ROTS: SimulatedFaults = SimulatedFaults {
    read_error_ppm: 20_000,
    write_error_ppm: 100,
    flush_error_ppm: 0,
    latent_ppm: 20_000,
    rot_ppm: 0,
    lost_ppm: 2_000,
    misdirected_ppm: 0,
    slow_ppm: 20_000,
};

impl Media {
    /// Before a pool is opened: some of what was wrong is cured, and something else goes wrong.
    pub(super) fn ail(&self, life: usize, rough: Rough) {
        let mut prng = Prng::new(self.plan.seed ^ 0x5eed_0a11_0000_0001 ^ u64_of(life) << 48);
        let sick = self.truth.borrow().sick.clone();
        let cured = |n: &usize| prng.below(2) == 0 && *n < self.drives.len();
        for n in sick.iter().copied().filter(cured).collect::<Vec<_>>() {
            self.drives[n].revive();
            self.drives[n].set_hanging(false);
            self.drives[n].refuse_nothing();
            self.drives[n].set_capacity(self.capacity_of(n));
            let mut truth = self.truth.borrow_mut();
            truth.sick.remove(&n);
            truth.mute.remove(&n);
        }
        self.give_space();
        if !self.made.get() {
            return;
        }
        if rough.passing {
            let sick = self.truth.borrow().sick.clone();
            for (n, drive) in self.drives.iter().enumerate() {
                if !sick.contains(&n) {
                    // What was to pass has passed: of several lives together it would take longer than anybody is to bear.
                    drive.refuse_nothing();
                }
                let (drive, after) = (Arc::clone(drive), moment(&mut prng, 14));
                let times = 1 << prng.below(6);
                drop(spawn(async move {
                    sleep(after).await;
                    drive.refuse(Refusal::all(Kind::Passing, times));
                }));
            }
        }
        if rough.full && prng.below(3) == 0 {
            self.fill_up(&mut prng);
        }
    }

    /// There is no space behind some drives, or all, for a while.
    fn fill_up(&self, prng: &mut Prng) {
        let one = (prng.below(3) == 0).then(|| usize64(prng.below(u64_of(self.drives.len()))));
        let chosen = |n: usize| one.is_none_or(|one| one == n);
        let drives: Vec<Arc<Simulated>> = self
            .drives
            .iter()
            .enumerate()
            .filter(|(n, _)| chosen(*n))
            .map(|(_, d)| Arc::clone(d))
            .collect();
        let at_once = prng.below(2) == 0;
        let (after, span) = (moment(prng, 14), moment(prng, 22));
        self.note(&format!(
            "no space behind {one:?} after {after:?} (or at once: {at_once}) for {span:?}"
        ));
        self.scarce.set(true);
        let lacked = Rc::clone(&self.lacked_space);
        let lack = move |span| lack_space(&lacked, span);
        if at_once {
            drives.iter().for_each(|drive| drive.set_full(true));
            lack(after + span);
        }
        drop(spawn(async move {
            sleep(after).await;
            drives.iter().for_each(|drive| drive.set_full(true));
            lack(span);
            sleep(span).await;
            drives.iter().for_each(|drive| drive.set_full(false));
        }));
    }

    /// There is space again.
    pub(super) fn give_space(&self) {
        self.drives.iter().for_each(|drive| drive.set_full(false));
        self.scarce.set(false);
        self.lacked_space.set(None);
    }

    /// Once the pool is open: drives fall sick, no more than it bears beside those it is without.
    pub(super) fn fall_sick(&self, life: usize) {
        let mut prng = Prng::new(self.plan.seed ^ 0x5eed_051c_0000_0001 ^ u64_of(life) << 48);
        let out = self.truth.borrow().out.clone();
        let mut some = self.some_drives(&self.truth.borrow().lost(), &mut prng);
        some.retain(|n| !out.contains(n) && prng.below(4) > 0);
        let partly = self.plan.rough.is_some_and(|rough| rough.partly);
        let mut parts = Prng::new(self.plan.seed ^ 0x5eed_0f47_0000_0002 ^ u64_of(life) << 48);
        for &n in &some {
            let (mut sickness, after) = (Sickness::any(&mut prng), moment(&mut prng, 17));
            if partly && parts.below(2) == 0 {
                sickness = Sickness::in_part(&mut parts, !self.zone().is_empty());
            }
            self.note(&format!("drive {n} after {after:?}: {sickness:?}"));
            self.believe(n, sickness);
            let patient = self.patient(n);
            drop(spawn(async move {
                sleep(after).await;
                patient.suffer(sickness).await;
            }));
        }
        let mut truth = self.truth.borrow_mut();
        truth.sick.extend(&some);
        truth.out.extend(&some);
    }

    /// What is true of a drive from now on.
    fn believe(&self, n: usize, sickness: Sickness) {
        let mut truth = self.truth.borrow_mut();
        if matches!(sickness, Sickness::Rots) {
            truth.rotten.insert(n);
        }
        if sickness.is_mute() && !self.zone().is_empty() {
            truth.mute.insert(n);
        }
        if matches!(sickness, Sickness::LacksSpace(_)) {
            self.scarce.set(true);
        }
    }

    fn patient(&self, n: usize) -> Patient {
        let (drive, zone, capacity) =
            (Arc::clone(&self.drives[n]), self.zone(), self.capacity_of(n));
        Patient { drive, zone, capacity, lacked_space: Rc::clone(&self.lacked_space) }
    }

    /// Bytes of a drive.
    fn capacity_of(&self, n: usize) -> u64 {
        self.plan.shape.all_drives().nth(n).unwrap_or(0)
    }

    /// Where a drive has its zone of the log.
    fn zone(&self) -> Range<u64> {
        let on_drives = self.plan.shape.log == LogShape::Drives;
        let len = if on_drives { self.plan.shape.log_bytes } else { 0 };
        let at = self.plan.shape.zones_at();
        at..at + len
    }

    /// Drives that never misbehaved.
    pub(super) fn sound(&self) -> BTreeSet<usize> {
        let truth = self.truth.borrow();
        (0..self.drives.len()).filter(|n| !truth.out.contains(n)).collect()
    }
}

/// From now on there is no space behind some drive for so long, at least.
fn lack_space(lacked: &Cell<Option<Nanos>>, span: Duration) {
    let until = Nanos::try_from(Duration::from_nanos(now()).saturating_add(span).as_nanos());
    lacked.set(lacked.get().max(Some(until.unwrap_or(Nanos::MAX))));
}

/// A drive that falls sick.
struct Patient {
    drive: Arc<Simulated>,
    /// Where it has its zone of the log.
    zone: Range<u64>,
    capacity: u64,
    lacked_space: Rc<Cell<Option<Nanos>>>,
}

impl Patient {
    async fn suffer(self, sickness: Sickness) {
        let drive = &self.drive;
        match sickness {
            Sickness::Away(back) => {
                drive.fail();
                until(back).await;
                drive.revive();
            }
            Sickness::Hangs(back) => {
                drive.set_hanging(true);
                until(back).await;
                drive.set_hanging(false);
            }
            Sickness::Refuses { operation, kind, times } => {
                drive.refuse(Refusal { operation, range: 0..u64::MAX, kind, times });
            }
            Sickness::RefusesLog { operation, times } => {
                let (range, kind) = (self.zone, Kind::Medium);
                drive.refuse(Refusal { operation, range, kind, times });
            }
            Sickness::CutShort { percent, back } => {
                drive.set_capacity(align_down(self.capacity / 100 * percent, u64_of(BLOCK)));
                until(back).await;
                drive.set_capacity(self.capacity);
            }
            Sickness::LacksSpace(back) => {
                drive.set_full(true);
                lack_space(&self.lacked_space, back.unwrap_or(Duration::MAX));
                until(back).await;
                drive.set_full(false);
            }
            Sickness::Rots => drive.set_faults(ROTS),
        }
    }
}

/// Waits until it is cured, if it is while the process lives.
async fn until(back: Option<Duration>) {
    match back {
        Some(back) => sleep(back).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use media::Drive;
    use std::rc::Rc;

    /// Lives that were cut short left what was to pass to the next ones: a label could not be read for longer than anything is
    /// tried again, and the pool lacked that drive.
    #[test]
    fn what_passes_passes_in_its_life() {
        let rough = Rough { passing: true, ..Rough::default() };
        let media = Rc::new(Media::new(&Plan { rough: Some(rough), ..Plan::operator(1) }, None));
        media.made.set(true);
        for life in 1..20 {
            let media = Rc::clone(&media);
            reactor::simulate(u64_of(life), async move {
                media.ail(life, rough);
                sleep(Duration::from_secs(1)).await;
            });
        }
        reactor::simulate(1, async move {
            for drive in &media.drives {
                let drive = Drive::Simulated(Arc::clone(drive));
                assert!(drive.read(0, 4096).await.is_ok());
            }
        });
    }

    /// Whoever is cured has all that was there.
    #[test]
    fn what_was_cut_off_is_there_again_once_a_drive_is_cured() {
        let rough = Rough { sick: true, partly: true, ..Rough::default() };
        let media = Rc::new(Media::new(&Plan { rough: Some(rough), ..Plan::operator(1) }, None));
        media.made.set(true);
        reactor::simulate(1, async move {
            let cut = Sickness::CutShort { percent: 0, back: None };
            for n in 0..media.drives.len() {
                drop(spawn(media.patient(n).suffer(cut)));
                media.truth.borrow_mut().sick.insert(n);
            }
            reactor::yield_now().await;
            let drives = || media.drives.iter().map(|d| Drive::Simulated(Arc::clone(d)));
            assert!(drives().all(|drive| drive.capacity() == 0));
            for life in 1..40 {
                media.ail(life, rough);
            }
            let capacities = media.plan.shape.all_drives();
            assert!(drives().zip(capacities).all(|(drive, bytes)| drive.capacity() == bytes));
        });
    }
}
