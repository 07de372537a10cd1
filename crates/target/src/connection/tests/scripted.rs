//! A host that does at random what hosts do, and what they do not.

use stdx::prng::Prng;

use crate::testing::script::{Choices, run};

const STEPS: usize = 400;

#[test]
fn whatever_a_host_does_is_bounded_and_answered_once() {
    for seed in 0..40 {
        println!("seed {seed}");
        run(Choices::Chance(Prng::new(seed), STEPS));
    }
}
