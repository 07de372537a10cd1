//! Queues of a host over real sockets, which does what the input says: see the driver, which the property test of the
//! crate shares.

use target::testing::script::{Choices, run};

/// Steps of one input take a turn or more each.
const BYTES_MAX: usize = 512;

/// Has a host do what the input says.
pub fn connection(input: &[u8]) {
    let input = &input[..input.len().min(BYTES_MAX)];
    run(Choices::Bytes(Vec::from(input).into_iter()));
}
