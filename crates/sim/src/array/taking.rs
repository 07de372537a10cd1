//! What a process leaves in flight when it ends, and the drives that the next one takes: as the node does, which waits until
//! nobody who had a drive before can change it any more (`array::lock`), and goes without it for now where that takes long.

use super::Media;
use crate::plan::Ending;
use crate::rough::moment;
use engine::canary::Canary;
use media::Simulated;
use media::drive::{InFlight, WRITES_LOOK, WRITES_PATIENCE};
use reactor::{Nanos, now, sleep, spawn};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{low32, u64_of};

/// How much longer changes take, at most, than they would have, as doublings of some microseconds: four seconds, a minute
/// where drives misbehave, and half a second on another machine.
const LONGER: u64 = 20;
const MUCH_LONGER: u64 = 24;
const LONGER_THERE: u64 = 17;

/// What becomes of changes in flight to drives here, or to another machine.
pub(super) const fn in_flight(outlives: bool, remote: bool) -> InFlight {
    match (outlives, remote) {
        (false, _) => InFlight::Waiter,
        (true, false) => InFlight::Kernel,
        (true, true) => InFlight::Fenced,
    }
}

/// What came of waiting for a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// It is taken, however long that takes; not where it does not answer at all.
    Endless,
    /// As of the node.
    Bounded,
}

impl Media {
    /// Drives that are slow have much in flight when a process is killed: they get so in some of those lives. Where an
    /// operator is, that is done otherwise.
    pub(super) fn slow_before_kill(&self, life: usize) {
        if !self.plan.outlives || self.plan.rough.is_some() {
            return;
        }
        let mut drives = self.drives.clone();
        drives.extend(self.far.as_ref().map(|far| far.drive()));
        drives.iter().for_each(|drive| drive.set_slower(1));
        let mut prng = Prng::new(self.plan.seed ^ 0x5eed_0f11_6470_0003 ^ u64_of(life) << 48);
        let Some(Ending::Killed(span)) = self.plan.lives.get(life).copied() else { return };
        if prng.below(3) == 0 || !self.made.get() && prng.below(2) == 0 {
            return;
        }
        let after = span * low32(prng.below(100)) / 100;
        let times = 1 << (2 + prng.below(8));
        drop(spawn(async move {
            sleep(after).await;
            drives.iter().for_each(|drive| drive.set_slower(times));
        }));
    }

    /// A process ended at this time of its own: what it left in flight ends when the next one may be there.
    pub fn end_process(&self, at: Nanos, life: usize) {
        let mut prng = Prng::new(self.plan.seed ^ 0x5eed_0f11_6470_0002 ^ u64_of(life) << 48);
        let hurries = prng.below(3) == 0;
        for drive in &self.drives {
            let is_slow = !hurries && prng.below(4) > 0;
            let much = self.plan.rough.is_some() && prng.below(6) == 0;
            let doublings = if much { MUCH_LONGER } else { LONGER };
            drive.end_process(at, || match is_slow {
                true => moment(&mut prng, doublings),
                false => Duration::ZERO,
            });
        }
        if let Some(far) = &self.far {
            far.drive().end_process(at, || moment(&mut prng, LONGER_THERE));
        }
    }

    /// Takes all drives, however long that takes. Gives those that do not answer at all, which are not waited for.
    pub(super) async fn take_all(&self) -> BTreeSet<usize> {
        let all = 0..self.drives.len();
        self.take(all.collect(), Patience::Endless).await
    }

    /// Takes those of these drives that let themselves be taken in time. Gives those that did not.
    pub(super) async fn take_in_time(&self, these: BTreeSet<usize>) -> BTreeSet<usize> {
        self.take(these, Patience::Bounded).await
    }

    async fn take(&self, these: BTreeSet<usize>, patience: Patience) -> BTreeSet<usize> {
        let mut left = these;
        if self.canary == Some(Canary::TakesEarly) {
            return BTreeSet::new();
        }
        for n in left.clone() {
            let begun = now();
            let drive = &self.drives[n];
            loop {
                // Nor has a pool that was closed just now, or not opened.
                if drive.is_alone() && !drive.has_late_changes() {
                    left.remove(&n);
                    break;
                }
                let gone = Duration::from_nanos(now() - begun);
                if gone >= WRITES_PATIENCE && (patience == Patience::Bounded || drive.hangs()) {
                    self.note(&format!("drive {n} is not taken: what is in flight has not ended"));
                    break;
                }
                sleep(WRITES_LOOK).await;
            }
        }
        left
    }

    /// A drive once nothing is in flight to it any more: what is there then.
    pub(super) fn at_rest(&self, n: usize) -> Arc<Simulated> {
        match self.drives[n].has_left_changes() {
            true => self.copy(n),
            false => Arc::clone(&self.drives[n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::operator::newest_label;
    use crate::contents::BLOCK;
    use crate::mode::Mode;
    use crate::plan::Plan;
    use engine::format::area;
    use media::Drive;
    use std::rc::Rc;

    fn sound_plans() -> impl Iterator<Item = Plan> {
        (0..).map(|seed| Mode::Plain.plan(seed)).filter(|plan| plan.outlives && plan.is_sound())
    }

    /// A process ended that had zeroes on their way to where each of these drives has its labels.
    fn leave_zeroes(media: &Media, drives: Vec<Arc<Simulated>>) {
        let ended = reactor::simulate(1, async move {
            for drive in drives {
                let drive = Drive::Simulated(drive);
                drop(spawn(async move {
                    let mut zeroes = reactor::buffer::pool().alloc(2 * BLOCK).await;
                    zeroes.fill(0);
                    drive.write(area::LABEL, zeroes, false).await
                }));
            }
            reactor::yield_now().await;
            now()
        });
        media.end_process(ended, 0);
    }

    /// A drive with writes of a process that is gone was opened, as if it had been taken.
    #[test]
    fn what_is_not_taken_is_not_opened() {
        let plan = sound_plans().next().expect("there are some");
        let media = Rc::new(Media::new(&plan, None));
        media.drives[0].set_hanging(true);
        leave_zeroes(&media, vec![Arc::clone(&media.drives[0])]);
        reactor::simulate(2, async move {
            let untaken = media.take_all().await;
            assert_eq!(untaken, BTreeSet::from([0]));
            media.untaken.replace(untaken);
            assert_eq!(media.labelled().await.len(), media.drives.len() - 1);
        });
    }

    /// A pool was made over drives with writes of the process that had begun to make it: they came over its labels.
    #[test]
    fn a_pool_is_made_once_nothing_is_in_flight_to_its_drives() {
        let blank = |canary| {
            let blank = sound_plans().take(12).map(|plan| {
                let media = Rc::new(Media::new(&plan, canary));
                leave_zeroes(&media, media.drives.clone());
                reactor::simulate(plan.seed, async move {
                    assert!(media.open(0).await.is_ok());
                    sleep(Duration::from_secs(9)).await;
                    media.drives.iter().filter(|drive| newest_label(drive).is_none()).count()
                })
            });
            blank.sum::<usize>()
        };
        assert_eq!(blank(None), 0);
        assert!(blank(Some(Canary::TakesEarly)) > 0);
    }
}
