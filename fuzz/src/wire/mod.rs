//! Parsers and protocol machines of crate `nvme`.

mod machines;
mod types;

pub use machines::{controller_machine, host_machine};
pub use types::{
    connect, copy, discovery, dsm, identify, rdma_capsule, rdma_private_data, reservation, sqe,
};

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz_targets` and its folder in `corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("connect", connect),
    ("controller_machine", controller_machine),
    ("copy", copy),
    ("discovery", discovery),
    ("dsm", dsm),
    ("host_machine", host_machine),
    ("identify", identify),
    ("rdma_capsule", rdma_capsule),
    ("rdma_private_data", rdma_private_data),
    ("reservation", reservation),
    ("sqe", sqe),
];
