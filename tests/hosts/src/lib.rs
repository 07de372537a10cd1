//! Real Linux hosts against the target.
//!
//! A Debian kernel boots in QEMU, connects to a target that runs outside, on this machine's
//! loopback, and runs the scripts in `scenarios/` one after the other. One boot serves every
//! scenario of a kernel. See `README.md` for how to run and extend this.
#![allow(
    clippy::disallowed_methods,
    reason = "other machines and other programs are waited for here: real time, no reactor"
)]

mod array;
mod attached;
mod cache;
mod calls;
mod capture;
mod engine;
mod fio_tools;
mod foreign;
mod full;
mod groups;
mod guest;
mod kernel;
mod machine;
mod monitor;
mod nbd;
mod nvme;
mod rdma;
mod rootfs;
mod runner;
mod shell;
mod target;
mod ublk;
mod vhost;

pub use array::run as run_array;
pub use engine::run as run_fio_engine;
pub use fio_tools::run as run_fio_tools;
pub use foreign::run as run_foreign;
pub use full::run as run_full;
pub use groups::run as run_groups;
pub use kernel::Kernel;
pub use nbd::{run as run_nbd, run_killed as run_nbd_killed};
pub use nvme::run as run_nvme;
pub use rdma::run as run_rdma;
pub use runner::run;
pub use ublk::run as run_ublk;
pub use vhost::run as run_vhost;

/// What went wrong, in words for the person reading a failed test.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;
