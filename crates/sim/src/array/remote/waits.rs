//! An operator who has writes wait while the log lacks one of the two: then nothing is acknowledged that one side alone has.

use super::Far;
use crate::array::Media;
use crate::rough::moment;
use engine::format::label::{Label, LogKind};
use engine::{Kind, Pool};
use media::Drive;
use reactor::{sleep, spawn};
use std::rc::Rc;
use std::sync::Arc;
use stdx::Prng;
use stdx::num::u64_of;

impl Far {
    /// The epoch of the labels, if writes are to wait by all of them and one side alone has everything. What is begun and
    /// acknowledged while they stay so is on that side only.
    pub(super) fn holds_back(&self) -> Option<u64> {
        if !self.waits.get() || self.moving.get() {
            return None;
        }
        let drives = self.drives.borrow();
        let told =
            drives.iter().filter(|drive| Drive::Simulated(Arc::clone(drive)).failure().is_none());
        let labels: Option<Vec<Label>> = told.map(|drive| super::newest_label(drive)).collect();
        let labels = labels?;
        let first = labels.first()?;
        let lacks = first.current_members().count() < usize::from(first.log_copies);
        let is_held = first.log == LogKind::Remote && first.log_waits && lacks;
        let alike = labels.iter().all(|label| label.epoch == first.epoch);
        (is_held && alike).then_some(first.epoch)
    }

    /// Whether the pool was given both, so that it may wait for either.
    fn has_two(&self) -> bool {
        !self.plan.alone && self.given.get() == 2
    }

    /// It decides anew now and then.
    async fn decide(self: Rc<Self>, mut prng: Prng, pool: Pool) {
        loop {
            sleep(moment(&mut prng, self.plan.pause)).await;
            if self.stays.get() || !self.power.is_on() || pool.status().await.is_err() {
                return;
            }
            let waits = prng.below(4) > 0 && self.has_two();
            self.waits.set(false);
            match pool.have_log_wait(waits).await {
                Ok(()) if self.power.is_on() => self.waits.set(waits),
                // It is on memory alone just now.
                Err(error) if error.kind == Kind::Invalid => {}
                Ok(()) | Err(_) => return,
            }
            self.note(format!("writes are to wait for both: {waits}"));
        }
    }
}

impl Media {
    /// From now on writes wait for both, by turns, where that is so in this run.
    pub(in crate::array) async fn wait_for_both(&self, life: usize, pool: &Pool) {
        let Some(far) = self.far.as_ref().filter(|_| self.plan.log_waits) else { return };
        far.waits.set(far.label().is_some_and(|label| label.log_waits));
        if !far.has_two() {
            // What was not given does not come back.
            far.waits.set(false);
            drop(pool.have_log_wait(false).await);
            return;
        }
        let prng = Prng::new(self.plan.seed ^ 0x5eed_0fa4_0000_0006 ^ u64_of(life) << 48);
        drop(spawn(Rc::clone(far).decide(prng, pool.clone())));
    }
}
