//! What each fuzz target does with its input, free of libfuzzer, so that the checked-in corpora are
//! replayed by a plain `cargo test` as well: `tests/corpus.rs` of the crates under test include these
//! modules.
//!
//! A target fails by panicking: in the code under test, or in an oracle here.

pub mod log;
pub mod nbd;
pub mod pool;
pub mod ring;
pub mod state;
pub mod target;
pub mod vhost;
pub mod wire;
