//! Worlds in which a namespace of another target has the log.

use super::{Ending, Plan};
use crate::shape::{Faults, LogShape};
use std::time::Duration;
use stdx::Prng;
use stdx::num::usize64;

/// How the log lies on another target's namespace, and what befalls that.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// No memory here has it, too.
    pub alone: bool,
    /// The namespace is named before the memory.
    pub first: bool,
    /// The pool is made with its log on its drives, from where it moves.
    pub on_drives: bool,
    /// Openings with some of what there is, at most.
    pub tries: u64,
    /// What befalls the namespace comes after so many doublings of some microseconds, at most.
    pub pause: u64,
    /// Of a hundred ends of a life, those that one of two current copies does not outlive.
    pub deaths: u64,
}

impl Plan {
    /// The log is on memory here and on a namespace of another target, or on that alone. It comes and goes, hangs, answers
    /// with errors, and either of them loses what it has while the other one has it.
    pub fn remote(seed: u64) -> Self {
        let mut plan = Self::new(seed);
        let mut prng = Prng::new(seed ^ 0x5eed_0fa4_0000_0001);
        let p = &mut prng;
        let alone = p.below(8) == 0;
        plan.moves_log = p.below(3) == 0;
        if plan.moves_log || p.below(3) > 0 {
            let slow_ppm = plan.shape.faults.slow_ppm;
            plan.shape.faults = Faults { slow_ppm, ..Faults::default() };
        }
        let faults = &mut plan.shape.faults;
        (faults.rot, faults.disaster, faults.death) = (None, None, None);
        plan.shape.log = LogShape::Pmem(usize::from(!alone));
        let on_drives = plan.moves_log && p.below(2) == 0;
        if on_drives {
            // It has room there then.
            plan.shape.drives.iter_mut().for_each(|bytes| *bytes += plan.shape.log_bytes);
        }
        // Little that hosts do, over lives so long that the namespace is given up, and whole again, in many of them.
        plan.hosts = plan.hosts.min(4);
        plan.mix.rest += 60;
        plan.operations = plan.operations.clamp(40, 300);
        for ending in &mut plan.lives {
            if !matches!(ending, Ending::Closed | Ending::Exported) && p.below(2) == 0 {
                let span = super::span(p, Duration::from_millis(4), 12);
                let cut = p.below(2) == 0;
                *ending = if cut { Ending::PowerCut(span) } else { Ending::Killed(span) };
            }
        }
        plan.log_waits = !alone && Prng::new(seed ^ 0x5eed_0fa4_0000_0007).below(2) == 0;
        plan.remote = Some(Remote {
            alone,
            first: p.below(2) == 0,
            on_drives,
            tries: p.below(4),
            pause: 12 + p.below(9),
            deaths: [0, 30, 60, 100][usize64(p.below(4))],
        });
        plan
    }

    /// Nanoseconds that a host that rests does so, at most.
    pub const fn longest_rest(&self) -> u64 {
        if self.remote.is_some() { 20_000_000 } else { 200_000 }
    }
}
