//! What to merge next.

use super::flat::Flat;
use super::limits::LEVELS;
use super::state::State;
use super::table::{Group, Level};

/// One merge step: as much of `upper`, newest first, as makes one table in `into`, together with
/// what `into` has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub upper: Vec<Group>,
    pub into: Group,
    pub from: Flat,
}

impl Plan {
    /// Whether holes have nothing below them to hide.
    pub fn reaches_last(&self) -> bool {
        self.into == Group::Level(LEVELS - 1)
    }
}

/// Leaves a level may have before it is merged down, from what the last one has: none (0) when it
/// would be smaller than what one round of runs brings.
fn targets(state: &State) -> [u64; LEVELS] {
    let mut targets = [u64::MAX; LEVELS];
    let round = round(state);
    let mut target = state.levels[LEVELS - 1].leaves() / state.limits.ratio_last.max(2);
    for slot in targets[..LEVELS - 1].iter_mut().rev() {
        *slot = if target >= round { target } else { 0 };
        target /= state.limits.ratio.max(2);
    }
    targets
}

/// Leaves of the runs that start a merge: an entry of 24 bytes in chunks two thirds full becomes
/// one of 9.
fn round(state: &State) -> u64 {
    (stdx::num::u64_of(state.limits.memtable * state.limits.runs) / 4 / 4096).max(1)
}

/// The level that takes what is merged out of the runs (`None`) or of a level.
fn below(state: &State, targets: &[u64; LEVELS], level: Option<usize>) -> usize {
    let first = level.map_or(0, |l| l + 1);
    (first..LEVELS - 1)
        .find(|&l| targets[l] > 0 || !state.levels[l].is_empty())
        .unwrap_or(LEVELS - 1)
}

/// How overdue a merge is, in thousandths; due from 1000 on.
fn urgency(has: u64, target: u64) -> u64 {
    if has == 0 { 0 } else { has.saturating_mul(1000) / target.max(1) }
}

/// What is most overdue, if anything is.
pub(super) fn pick(state: &State) -> Option<Plan> {
    let targets = targets(state);
    let count = stdx::num::u64_of(state.runs.len());
    let runs = stdx::num::u64_of(state.limits.runs.max(1));
    let mut best = (urgency(count, runs), None);
    if state.sweeping > 0 {
        best.0 = best.0.max(1000);
    }
    for (level, target) in targets.iter().enumerate().take(LEVELS - 1) {
        let urgency = urgency(state.levels[level].leaves(), *target);
        if urgency > best.0 {
            best = (urgency, Some(level));
        }
    }
    if best.0 < 1000 && state.compacting > 0 {
        best.1 = match count {
            0 => Some(state.levels[..LEVELS - 1].iter().position(|level| !level.is_empty())?),
            _ => None,
        };
    } else if best.0 < 1000 {
        return None;
    }
    let into = Group::Level(below(state, &targets, best.1));
    Some(match best.1 {
        Some(level) => {
            let from = from_cursor(&state.levels[level], state.cursors[level]);
            Plan { upper: vec![Group::Level(level)], into, from }
        }
        None => plan_sweep(state, into),
    })
}

/// Where the round through a level goes on.
fn from_cursor(level: &Level, cursor: Flat) -> Flat {
    let table = level.get(level.position(cursor)).or_else(|| level.get(0));
    table.map_or(0, |t| t.low)
}

/// All runs there were when the sweep began, from the lowest key that is left of them.
fn plan_sweep(state: &State, into: Group) -> Plan {
    let count = if state.sweeping > 0 { state.sweeping } else { state.runs.len() };
    let lows = state.runs[..count].iter().filter_map(|run| run.get(0)).map(|t| t.low);
    Plan { upper: (0..count).rev().map(Group::Run).collect(), into, from: lows.min().unwrap_or(0) }
}
