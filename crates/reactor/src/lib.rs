//! One core: ring, timers, tasks, buffers, mailboxes, poll policy.
//!
//! A reactor is one thread with one io_uring and an executor of its own. Futures stay on their
//! reactor (they need not be `Send`); wakers may be used from any thread, and [`duplex`] moves what tasks of two
//! reactors send each other. System calls, time and
//! randomness enter the program here and nowhere else.
//!
//! A loop turn: read the clock, take mail, reap completions, fire timers, give every hot socket one
//! receive, run the normal queue until it is empty, run the turn-end queue, submit what the turn
//! produced. When a turn finds nothing to do, the poll policy decides between another turn and
//! sleeping in the ring.
//!
//! [`simulate`] runs the same executor, timers, buffers and mailbox on one thread in virtual time,
//! from a seed and without a ring: for tests of everything above that keeps its files behind `media`. Its TCP
//! connections are those of [`network`].
//! [`simulate_on`] runs several of them, each on a thread of its own, of which one at a time goes on.

#[cfg_attr(loom, path = "bell/model.rs")]
mod bell;
mod blocking;
pub mod budget;
pub mod buffer;
mod commands;
mod concurrent;
mod core;
pub mod cross_core;
mod driver;
pub mod duplex;
mod error;
pub mod event;
mod executor;
pub mod file;
mod foreign;
mod grace_period;
mod handle;
mod hot;
mod join;
mod limits;
mod line;
mod mail;
pub mod metrics;
pub mod net;
pub mod network;
pub mod passthrough;
mod peers;
mod policy;
mod ring;
pub mod shared;
mod simulate;
mod spin;
pub mod spsc;
pub mod sync;
mod sys;
mod task;
mod time;
mod timer;
pub mod turns;
pub mod ublk;
mod waker;

pub use crate::core::{id, run};
pub use bell::Bell;
pub use blocking::run as blocking;
#[cfg(all(not(loom), feature = "counted"))]
pub use concurrent::{Counts, counts};
pub use error::{Error, Gone};
pub use foreign::ForeignBuffer;
pub use grace_period::{GracePeriod, ReadGuard};
pub use handle::{Call, Handle, Reactor, wait_for};
pub use join::join_all;
pub use limits::{
    ADAPTIVE_SPIN, BUFFER_ALIGN, BUFFER_MAX, CONNECTIONS_MAX, EAGER_SPIN, FILE_BYTES_KEPT,
    POOL_BYTES, REACTORS_MAX, SCRATCH_BYTES, SIMULATED_START_NANOS, TASKS_MAX, UBLK_QUEUES_MAX,
};
pub use metrics::Metrics;
// No transport: how processes of one machine give each other descriptors, as of `shared` memory.
pub use net::packets::{PacketListener, Packets};
pub use policy::{PollPolicy, Spinner};
pub use simulate::{Order, TURN_NANOS, is_simulated, random, simulate, simulate_in, simulate_on};
pub use spin::{Spun, is_last, spin};
pub use sys::{
    Usage, cpu, create_for_owner_only, group, pin as pin_thread, raise_descriptor_limit,
    thread_usage, user,
};
pub use task::{Task, spawn, spawn_behind, spawn_late, try_spawn, yield_now};
pub use time::{Nanos, now, now_exact};
pub use timer::{Elapsed, Sleep, sleep, sleep_until, timeout, timeout_attended};

/// How one reactor runs.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The CPU its thread is pinned to; `None` leaves that to the scheduler.
    pub cpu: Option<usize>,
    pub poll: PollPolicy,
    /// The thread's name, of which the kernel shows 15 bytes.
    pub name: String,
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests;
