//! Worlds in which hosts have direct write windows.

use super::{Ending, Plan};
use crate::shape::LogShape;
use std::time::Duration;
use stdx::Prng;
use stdx::num::usize64;

/// What hosts do with direct write windows.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Of a hundred writes, those that go by a window where there is one.
    pub percent: u64,
    /// Bytes of each ring.
    pub ring_bytes: u64,
    /// A writer stands still between two stores, one time in so many, for up to so many doublings of a nanosecond.
    pub pauses: u64,
    pub pause: u64,
    /// Of ten thousand steps of a writer, those before which its process dies.
    pub deaths: u64,
    /// Of a hundred windows, those of a host that obeys for a while only.
    pub malice_percent: u64,
    /// Of a hundred processes, those that outlive a target that is killed.
    pub survivors_percent: u64,
    /// Of a hundred writers that wait for a window's end, those that the target's own end comes upon soon.
    pub strikes: u64,
    /// Of ten thousand operations, those in which a window is given back, or another host has one in its place.
    pub ends: u64,
    /// Rings are not there at some openings, which are refused then.
    pub hides: bool,
}

impl Plan {
    /// One of the others, with the log on memory, and hosts that have windows of its volumes.
    pub fn windows(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0x5eed_0a0f_0000_0001);
        let p = &mut prng;
        let mut plan = match p.below(8) {
            0..4 => Self::new(seed),
            4 => Self::operator(seed),
            5 => Self::rough(seed),
            6 => Self::crosses(seed),
            _ => Self::returns(seed),
        };
        plan.snapshot_percent = [0, 0, 1, 5][usize64(p.below(4))];
        let devices = 1 + usize64(p.below(2));
        if plan.shape.log == LogShape::Drives {
            plan.shape.log = LogShape::Pmem(devices);
            plan.moves_log = plan.rough.is_none() && p.below(3) == 0;
        }
        plan.longest = plan.longest.min([1, 4, 16, 64][usize64(p.below(4))]);
        plan.mix.write += 40;
        // Where hardly anybody reads, rings fill.
        if p.below(3) == 0 {
            plan.mix.read = 1;
        }
        plan.windows = Some(Windows {
            percent: [30, 70, 95, 100][usize64(p.below(4))],
            ring_bytes: window::RING_BYTES_MIN << (p.below(8) / 6),
            pauses: 1 << p.below(6),
            pause: 6 + p.below(12),
            deaths: [0, 0, 2, 20][usize64(p.below(4))],
            malice_percent: [0, 0, 0, 50][usize64(p.below(4))],
            survivors_percent: [0, 50, 100][usize64(p.below(3))],
            strikes: [0, 5, 30][usize64(p.below(3))],
            ends: [0, 10, 100][usize64(p.below(3))],
            hides: p.below(4) == 0,
        });
        plan.operations = plan.operations.max(40);
        for ending in &mut plan.lives {
            if !matches!(ending, Ending::Closed | Ending::Exported) && p.below(3) == 0 {
                *ending = Ending::Killed(super::span(p, Duration::from_micros(100), 9));
            }
        }
        plan
    }
}
