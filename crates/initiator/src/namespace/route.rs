//! Which path a command takes: the best state of access first, then the policy. Decided on what is known now,
//! without waiting.

use nvme::ana::State;

/// How commands are spread over paths of the same, best state of access; the names are those of the Linux host's
/// I/O policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathPolicy {
    /// All take the first one. A namespace belongs to one reactor, so that no path is nearer than another one:
    /// the order in which they are given decides.
    #[default]
    Numa,
    /// Each takes the next one in turn.
    RoundRobin,
    /// Each takes the one with the fewest commands without an answer.
    QueueDepth,
}

/// What a path is to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// State of access; `None` when there is no association.
    pub access: Option<State>,
    /// Commands without an answer.
    pub outstanding: u32,
}

/// Whether commands can go where access is so.
pub const fn is_usable(access: State) -> bool {
    access.refusal().is_none()
}

impl Candidate {
    /// Lower is better; `None` cannot be used.
    const fn rank(self) -> Option<u8> {
        match self.access {
            Some(State::Optimized) => Some(0),
            Some(State::NonOptimized) => Some(1),
            Some(State::Inaccessible | State::PersistentLoss | State::Change) | None => None,
        }
    }
}

/// The path for the next command, when there is one. `last` is the one that the last command took.
pub fn choose(policy: PathPolicy, last: usize, candidates: &[Candidate]) -> Option<usize> {
    let best = candidates.iter().filter_map(|candidate| candidate.rank()).min()?;
    let count = candidates.len();
    // From the one behind the last one on, in a circle.
    let from = match policy {
        PathPolicy::Numa => 0,
        PathPolicy::RoundRobin | PathPolicy::QueueDepth => last.wrapping_add(1),
    };
    let mut usable = (0..count)
        .map(|step| from.wrapping_add(step) % count)
        .filter(|&at| candidates[at].rank() == Some(best));
    match policy {
        PathPolicy::Numa | PathPolicy::RoundRobin => usable.next(),
        PathPolicy::QueueDepth => usable.min_by_key(|&at| candidates[at].outstanding),
    }
}

#[cfg(test)]
mod tests {
    use stdx::num::{low32, usize64};
    use stdx::prng::Prng;

    use super::*;

    const POLICIES: [PathPolicy; 3] =
        [PathPolicy::Numa, PathPolicy::RoundRobin, PathPolicy::QueueDepth];

    fn candidate(access: Option<State>, outstanding: u32) -> Candidate {
        Candidate { access, outstanding }
    }

    fn any(chance: &mut Prng) -> Vec<Candidate> {
        let states = [
            None,
            Some(State::Optimized),
            Some(State::NonOptimized),
            Some(State::Inaccessible),
            Some(State::PersistentLoss),
            Some(State::Change),
        ];
        (0..chance.below(6))
            .map(|_| {
                let access = states[usize64(chance.below(6))];
                candidate(access, low32(chance.below(4)))
            })
            .collect()
    }

    /// Whatever the paths are: one is taken if one can be, never one that cannot, never a worse one than there is.
    #[test]
    fn the_best_state_that_there_is_comes_first() {
        let mut chance = Prng::new(1);
        for _ in 0..20_000 {
            let paths = any(&mut chance);
            let last = usize64(chance.below(8));
            let has = |state| paths.iter().any(|path| path.access == Some(state));
            for policy in POLICIES {
                let chosen = choose(policy, last, &paths).map(|at| paths[at]);
                let state = chosen.and_then(|path| path.access);
                let expected =
                    [State::Optimized, State::NonOptimized].into_iter().find(|&s| has(s));
                assert_eq!(state, expected, "{policy:?} {paths:?}");
                if let (PathPolicy::QueueDepth, Some(chosen)) = (policy, chosen) {
                    let least = paths.iter().filter(|path| path.access == state);
                    assert_eq!(least.map(|path| path.outstanding).min(), Some(chosen.outstanding));
                }
            }
        }
    }

    /// In turn, each path of the best state comes once in as many commands as there are of them.
    #[test]
    fn turns_are_fair() {
        let mut chance = Prng::new(2);
        for _ in 0..2_000 {
            let paths = any(&mut chance);
            let mut last = usize64(chance.below(8));
            let Some(first) = choose(PathPolicy::RoundRobin, last, &paths) else { continue };
            let equals = paths.iter().filter(|path| path.access == paths[first].access).count();
            let mut taken = vec![0; paths.len()];
            for _ in 0..3 * equals {
                last = choose(PathPolicy::RoundRobin, last, &paths).unwrap();
                taken[last] += 1;
            }
            assert!(taken.iter().all(|&count| count == 0 || count == 3), "{paths:?} {taken:?}");
        }
    }

    #[test]
    fn numa_stays_and_equal_depths_take_turns() {
        let paths = [candidate(Some(State::Optimized), 3), candidate(Some(State::Optimized), 3)];
        assert_eq!([0, 1].map(|last| choose(PathPolicy::Numa, last, &paths)), [Some(0); 2]);
        let turns = [0, 1].map(|last| choose(PathPolicy::QueueDepth, last, &paths));
        assert_eq!(turns, [Some(1), Some(0)]);
    }
}
