//! What came to be drawn after all else, for whatever workload.

use super::{Ending, Plan};
use crate::rough::Rough;
use crate::shape::{Faults, LogShape};
use raid::Scheme;
use std::time::Duration;
use stdx::Prng;
use stdx::num::usize64;

/// The least time that free space is kept for before drives are told of it, where there are several reactors.
const DISCARDS_AFTER: Duration = Duration::from_millis(1);

impl Plan {
    /// Of pools with several shards some have several reactors, and so have a few of those with one. From a source of
    /// its own, which has nothing to do with the workload: what seeds meant before stays otherwise.
    #[must_use]
    pub fn spread(mut self) -> Self {
        if self.reactors > 1 {
            return self;
        }
        let mut prng = Prng::new(self.seed ^ 0x5eed_0c02_e500_0001);
        let most = if self.shape.shards > 1 { 3 } else { 8 };
        let several = if self.shape.shards > 1 { 2 } else { 1 };
        if prng.below(most) < several {
            self.reactors = 2 + usize64(prng.below(2));
            self.first_reactor = usize64(prng.below(3)) % self.reactors;
            // Reactors take their turns on threads, a hundred times as long as on one: long lives, with shards that are
            // asked for free space at every moment, would take minutes.
            if let Some(discards) = &mut self.discards {
                discards.after = discards.after.max(DISCARDS_AFTER);
            }
        }
        self
    }

    /// Where the log is in two memories that mirror each other, one of them has bytes that cannot be reached in some
    /// runs with an operator, who gives it back or another. Likewise.
    #[must_use]
    pub fn poison(mut self) -> Self {
        let mut prng = Prng::new(self.seed ^ 0x5eed_0907_5000_0001);
        let poisons = self.shape.log == LogShape::Pmem(2) && prng.below(4) > 0;
        if let Some(rough) = &mut self.rough {
            rough.poison = poisons;
        }
        self
    }

    /// Where drives come and go, an operator replaces some.
    #[must_use]
    pub fn replace(mut self) -> Self {
        if let Some(rough) = &mut self.rough {
            rough.replaces = rough.returns;
        }
        self
    }

    /// Of runs with an operator, and of large pools without faults, some get drives while they are open, and others are
    /// emptied. From a source of its own.
    #[must_use]
    pub fn widen(mut self, is_large: bool) -> Self {
        let mut prng = Prng::new(self.seed ^ 0x5eed_0add_d21e_0001);
        if prng.below(3) == 0 {
            return self;
        }
        if is_large {
            self.shape.faults = Faults::default();
            self.moves_log = false;
            self.rough.get_or_insert_default();
        }
        let Some(rough) = &mut self.rough else { return self };
        rough.widens = true;
        self.shape.add_later(&mut prng);
        self
    }

    /// Of runs with an operator, in some drives get slow and fast again. From a source of its own.
    #[must_use]
    pub fn slow(mut self) -> Self {
        let mut prng = Prng::new(self.seed ^ 0x5eed_0510_3d21_0001);
        if let Some(rough) = &mut self.rough {
            rough.slows = prng.below(2) == 0;
        }
        self
    }

    /// Some pools are scrubbed. Likewise.
    #[must_use]
    pub fn scrub(mut self) -> Self {
        let mut prng = Prng::new(self.seed ^ 0x5eed_05c2_0b00_0001);
        self.scrubs = prng.below(2) == 0;
        self
    }

    /// Daemons start with what they find. Where an operator opens pools, some of them have halves that could go on without
    /// each other. From a source of its own.
    #[must_use]
    pub fn start(mut self) -> Self {
        let mut prng = Prng::new(self.seed ^ 0x5eed_0da0_6057_0003);
        if self.rough.is_some_and(|rough| !rough.returns) {
            match prng.below(5) {
                0 | 1 => self.shape.have_halves(Scheme::Mirror { copies: 2 }, 2),
                2 => self.shape.have_halves(Scheme::Raid6, 4),
                _ => {}
            }
        }
        self.starts = true;
        self
    }

    /// In two of three runs what a process has in flight is with the kernel, or on its way to another machine, and outlives
    /// it. In half of these processes are killed, and nothing else, while they write. From a source of its own.
    #[must_use]
    pub fn outlive(mut self) -> Self {
        let mut prng = Prng::new(self.seed ^ 0x5eed_0f11_6470_0001);
        self.outlives = prng.below(3) > 0;
        let is_other = self.network || !self.shape.faults.log_losses.is_empty();
        if !self.outlives || is_other || prng.below(2) == 0 {
            return self;
        }
        self.mix.write += 60;
        self.longest = self.longest.max(16);
        for ending in &mut self.lives {
            let span = super::span(&mut prng, Duration::from_millis(1), 6);
            match *ending {
                Ending::Closed | Ending::Exported => {}
                Ending::Killed(before)
                | Ending::PowerCut(before)
                | Ending::PowerCutInStore(_, before)
                | Ending::PowerCutAtFence(_, before) => *ending = Ending::Killed(before.max(span)),
            }
        }
        self
    }

    /// A log on drives bears what the pool does: as many of those may be bad as where it is on memory. From a source
    /// of its own.
    #[must_use]
    pub fn bear(mut self) -> Self {
        let mut prng = Prng::new(self.seed ^ 0x5eed_0bea_5000_0001);
        self.shape.add_bad_drives(&mut prng);
        self
    }

    /// Where several things go wrong at once, drives that misbehave do so in part, too.
    #[must_use]
    pub const fn fail_partly(mut self) -> Self {
        if let Some(rough) = &mut self.rough {
            rough.partly = rough.sick;
        }
        self
    }

    /// Whether nothing is ever wrong with drives and their contents, but for what openings know of.
    pub fn is_sound(&self) -> bool {
        let faults = &self.shape.faults;
        let is_whole = faults.drives.is_empty()
            && faults.rot.is_none()
            && faults.disaster.is_none()
            && faults.log_losses.is_empty();
        is_whole && self.rough.is_none_or(Rough::leaves_drives_alone)
    }

    /// As it is on one reactor.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { reactors: 1, first_reactor: 0, ..self }
    }
}
