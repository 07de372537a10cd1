//! Devices of the log with bytes that cannot be reached: never all that are sure to have it.

use super::{Media, memory};
use crate::rough::moment;
use crate::shape::LogShape;
use media::SimulatedPmem;
use reactor::{sleep, spawn};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

const LINE: u64 = media::pmem::LINE as u64;

/// The most stretches that cannot be reached at once.
const STRETCHES: u64 = 8;

/// Some lines, or many, of one shard's part of the log; mostly where it begins, which is where something is.
fn stretch(prng: &mut Prng, shards: u64, part: u64) -> Range<u64> {
    let within = (1 << (12 + prng.below(11))).min(part);
    let at = prng.below(shards) * part + prng.below(within / LINE) * LINE;
    at..(at + (LINE << prng.below(9))).min(shards * part)
}

fn stretches(prng: &mut Prng, shards: u64, bytes: u64) -> Vec<Range<u64>> {
    let whole = match prng.below(8) {
        // The device is gone.
        0 => Some(bytes),
        // All that says whose it is.
        1 => Some(2 * 4096),
        _ => None,
    };
    if let Some(end) = whole {
        return std::iter::once(0..end).collect();
    }
    let count = 1 + prng.below(STRETCHES);
    (0..count).map(|_| stretch(prng, shards, bytes / shards)).collect()
}

impl Media {
    fn poison_prng(&self, life: usize, salt: u64) -> Option<Prng> {
        let poisons = self.plan.rough.is_some_and(|rough| rough.poison);
        poisons.then(|| Prng::new(self.plan.seed ^ salt ^ u64_of(life) << 48))
    }

    /// Before a pool is opened: memory is mapped anew, what could not be reached is there again perhaps, or replaced,
    /// and other bytes cannot be reached.
    pub(super) fn treat_memory(&self, life: usize) {
        let Some(mut prng) = self.poison_prng(life, 0x5eed_0907_5000_0002) else { return };
        self.pmem.borrow().iter().for_each(|pmem| pmem.remap());
        let poisoned = self.truth.borrow().poisoned.clone();
        for n in poisoned {
            match prng.below(4) {
                0 => self.cure(n),
                1 => self.replace(n),
                _ => {}
            }
        }
        if self.made.get() && prng.below(3) == 0 {
            self.poison(&mut prng).into_iter().for_each(|(pmem, ranges)| poison(&pmem, ranges));
        }
    }

    /// While it is open.
    pub(super) fn poison_later(&self, life: usize) {
        let Some(mut prng) = self.poison_prng(life, 0x5eed_0907_5000_0003) else { return };
        let after = moment(&mut prng, 17);
        if prng.below(2) == 0
            && let Some((pmem, ranges)) = self.poison(&mut prng)
        {
            drop(spawn(async move {
                sleep(after).await;
                poison(&pmem, ranges);
            }));
        }
    }

    /// Which bytes of which device are not to be reached; none where only one device is sure to have everything. From
    /// now on nobody relies on that one.
    fn poison(&self, prng: &mut Prng) -> Option<(Arc<SimulatedPmem>, Vec<Range<u64>>)> {
        let LogShape::Pmem(_) = self.plan.shape.log else { return None };
        let mut truth = self.truth.borrow_mut();
        let nth = usize64(prng.below(u64_of(truth.current.len()).max(1)));
        let n = truth.current.iter().nth(nth).copied().filter(|_| truth.current.len() > 1)?;
        let shards = u64::from(self.plan.shape.shards);
        let ranges = stretches(prng, shards, self.plan.shape.log_bytes);
        self.note(&format!("device {n} of the log is not to be reached at {ranges:x?}"));
        truth.current.remove(&n);
        // It may be the log's for a while yet: who opens the pool with that alone has all of it.
        truth.unsure = true;
        truth.poisoned.insert(n);
        Some((Arc::clone(&self.pmem.borrow()[n]), ranges))
    }

    /// All of it can be reached again, as it was.
    fn cure(&self, n: usize) {
        self.note(&format!("device {n} of the log can be reached"));
        self.pmem.borrow()[n].cure(true);
        self.truth.borrow_mut().poisoned.remove(&n);
    }

    fn replace(&self, n: usize) {
        self.note(&format!("device {n} of the log is replaced"));
        self.pmem.borrow_mut()[n] = memory(&self.plan, &self.power);
        self.truth.borrow_mut().poisoned.remove(&n);
    }

    /// Where these are all an operator has, he sees to it that they can be reached before he opens the pool with them.
    pub(super) fn cure_without_others(&self, given: &BTreeSet<usize>) {
        let poisoned = self.truth.borrow().poisoned.clone();
        if given.is_subset(&poisoned) {
            given.iter().for_each(|n| self.cure(*n));
        }
    }
}

fn poison(pmem: &SimulatedPmem, ranges: Vec<Range<u64>>) {
    ranges.into_iter().for_each(|range| pmem.poison(range));
}
