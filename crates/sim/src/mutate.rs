//! Leaves out each step that the engine relies on, one by one, and looks whether anybody misses it.

use crate::crew;
use crate::mode::Mode;
use crate::run::carry_out;
use crate::world::Subject;
use engine::canary::{Canary, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How a step was missed: in which seed of which workload, after how many, and what went wrong.
struct Missed {
    job: crew::Job,
    after: u64,
    what: String,
}

/// Leaves out each step, or those whose name contains `only`, for up to `seeds` seeds of each of these workloads.
/// Prints what
/// came of it, and gives how many steps nobody missed.
pub fn run(only: Option<&str>, modes: &[Mode], seeds: u64, threads: usize) -> usize {
    let wanted = |step: &Step| only.is_none_or(|only| format!("{step:?}").contains(only));
    let mut unmissed = 0;
    println!("{:<22} {:>6}  workload and seed", "left out", "seeds");
    for step in Step::ALL.into_iter().filter(wanted) {
        match miss(step, modes, seeds, threads) {
            Some(Missed { job: (mode, seed), after, what }) => {
                let what: String = what.chars().take(90).collect();
                println!("{:<22} {after:>6}  {mode:?} {seed}: {what}", format!("{step:?}"));
            }
            None => {
                unmissed += 1;
                println!("{:<22} {:>6}  NOT MISSED", format!("{step:?}"), seeds);
            }
        }
    }
    println!("{unmissed} not missed");
    unmissed
}

fn miss(step: Step, modes: &[Mode], seeds: u64, threads: usize) -> Option<Missed> {
    let (found, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let modes = modes.to_vec();
    let jobs =
        (0..seeds).flat_map(move |seed| modes.clone().into_iter().map(move |mode| (mode, seed)));
    let (enough, count) = (Arc::clone(&found), Arc::clone(&begun));
    let jobs = jobs.take_while(move |_| !enough.load(Ordering::Relaxed)).inspect(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let mut missed = None;
    crew::run(Subject::Array(Some(Canary::Skips(step))), jobs, threads, |outcome| {
        let (mode, seed) = outcome.job;
        let Some((_, what)) = &outcome.failure else { return };
        // What fails with it as well says nothing.
        if missed.is_some()
            || carry_out(Subject::Array(None), mode.plan(seed), false).failure.is_some()
        {
            return;
        }
        found.store(true, Ordering::Relaxed);
        let after = begun.load(Ordering::Relaxed);
        missed = Some(Missed { job: outcome.job, after, what: what.replace('\n', " ") });
    });
    missed
}
