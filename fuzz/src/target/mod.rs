//! Decisions of crate `target` that a host's commands reach.

mod admin;
mod connection;
mod io;
mod reservation;

pub use admin::admin;
pub use connection::connection;
pub use io::io_commands;
pub use reservation::reservation_state;

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz_targets` and its folder in `corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("admin", admin),
    ("connection", connection),
    ("io_commands", io_commands),
    ("reservation_state", reservation_state),
];
