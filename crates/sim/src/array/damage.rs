//! What time and operators do to an array's media between its lives: rot, and the loss of its log.

use super::{Media, memory};
use crate::contents::{self, BLOCK};
use crate::shape::{LogLoss, LogShape, Rot};
use media::{Pmem, Simulated};
use std::sync::Arc;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

impl Media {
    /// Flips bits of what hosts wrote, wherever it lies on the drives, of so many blocks in a million;
    /// in the commit log as well if so asked.
    pub fn rot(&self, rot: Rot) {
        self.rotten.set(true);
        let space = self.space_at();
        for drive in &self.drives {
            drive.rot_where(rot.ppm, |at, block| at >= space && contents::is_written(block));
        }
        if rot.log {
            self.rot_log(rot.ppm, space - self.plan.shape.zones_at());
        }
    }

    /// As that, of blocks in the log: those lie at any line of it.
    fn rot_log(&self, ppm: u32, zones: u64) {
        let mut prng = Prng::new(self.plan.seed ^ u64::from(ppm));
        let mut block = [0; BLOCK];
        let lines = |bytes: u64| (0..bytes.saturating_sub(u64_of(BLOCK))).step_by(64);
        for pmem in &*self.pmem.borrow() {
            let log = Pmem::Simulated(Arc::clone(pmem));
            for at in lines(log.capacity()) {
                let is_written = log.with(at, BLOCK, contents::is_written).unwrap_or(false);
                if is_written && prng.chance_ppm(ppm) {
                    pmem.rot(at + prng.below(u64_of(BLOCK)));
                }
            }
        }
        for drive in self.zones() {
            for at in lines(zones) {
                let at = self.plan.shape.zones_at() + at;
                drive.peek(at, &mut block);
                if contents::is_written(&block) && prng.chance_ppm(ppm) {
                    drive.flip(at + prng.below(u64_of(BLOCK)), stdx::num::low32(prng.below(8)));
                }
            }
        }
    }

    /// Takes devices of the log away, and puts blank ones there; tells whether all of it is lost then.
    pub fn lose_log(&self, loss: LogLoss) -> bool {
        // What another device has may not be all yet, before the pool was open with a blank one.
        let is_spared = loss.device.is_some() && self.log_loss.get().is_some();
        if !self.made.get() || is_spared {
            return false;
        }
        self.log_loss.set(Some(loss));
        let is_hit = |n: usize| loss.device.is_none_or(|device| device == n);
        for (_, pmem) in self.pmem.borrow_mut().iter_mut().enumerate().filter(|(n, _)| is_hit(*n)) {
            *pmem = memory(&self.plan, &self.power);
        }
        for (_, drive) in self.zones().enumerate().filter(|(n, _)| is_hit(*n)) {
            let zone = vec![0; usize64(self.plan.shape.log_bytes)];
            drive.poke(self.plan.shape.zones_at(), &zone);
        }
        if loss.device.is_none() {
            self.rot_units();
        }
        loss.device.is_none()
    }

    /// Flips bits of units of stripes, headers and parity included, and of what tells whose the units are.
    fn rot_units(&self) {
        let faults = &self.plan.shape.faults;
        let space = self.space_at();
        if let Some(rot) = &faults.unit_rot {
            for drive in rot.drives.iter().map(|&n| &self.drives[n]) {
                drive.rot_where(rot.ppm, |at, _| at >= space);
            }
        }
    }

    /// Where the space for units begins on a drive.
    fn space_at(&self) -> u64 {
        let on_drives = self.plan.shape.log == LogShape::Drives;
        self.plan.shape.zones_at() + if on_drives { self.plan.shape.log_bytes } else { 0 }
    }

    /// The drives that may have the log: it moves from one to another when one is lost.
    pub(super) fn zones(&self) -> impl Iterator<Item = &Arc<Simulated>> {
        let on_drives = self.plan.shape.log == LogShape::Drives;
        self.drives.iter().filter(move |_| on_drives)
    }

    /// Whether nothing was written to the log since it was lost.
    pub(super) fn is_log_blank(&self) -> bool {
        let bytes = usize64(self.plan.shape.log_bytes);
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let memories = self.pmem.borrow().iter().all(|pmem| {
            let device = Pmem::Simulated(Arc::clone(pmem));
            device.with(0, bytes, is_zero).unwrap_or(false)
        });
        memories
            && self.zones().all(|drive| {
                let mut found = vec![1; bytes];
                drive.peek(self.plan.shape.zones_at(), &mut found);
                is_zero(&found)
            })
    }
}
