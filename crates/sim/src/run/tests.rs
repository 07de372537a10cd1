use super::*;
use crate::reference::Lie;

const TRUTH: Subject = Subject::Reference(Lie::None);

#[test]
fn a_seed_replays_bit_for_bit() {
    for seed in 0..10 {
        let first = run(TRUTH, seed, false);
        assert_eq!(first, run(TRUTH, seed, false), "seed {seed}");
    }
    assert_ne!(run(TRUTH, 1, false).trace, run(TRUTH, 2, false).trace);
}

#[test]
fn the_truth_is_never_called_a_lie() {
    for seed in 0..100 {
        let report = run(TRUTH, seed, false);
        assert_eq!(report.failure, None, "seed {seed}");
    }
}

#[test]
fn every_lie_is_found_out() {
    for lie in [
        Lie::AcknowledgesEarly,
        Lie::ReplaysInWrongOrder,
        Lie::Misplaces,
        Lie::ForgetsZeroes,
        Lie::ForgetsDeletion,
        Lie::ReadsStale,
    ] {
        let found =
            (0..100).find(|&seed| run(Subject::Reference(lie), seed, false).failure.is_some());
        assert!(found.is_some(), "{lie:?}");
    }
}
