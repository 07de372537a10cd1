//! Load generator and verification over the initiator: what `bench` and `demo` run.
//!
//! [`run`] drives one or several [`Job`]s against NVMe/TCP subsystems and returns a [`Report`] whose
//! JSON is a subset of fio's. It blocks the calling thread; the I/O itself runs on reactors of its own.

mod book;
mod contents;
mod cost;
mod crew;
mod endpoint;
mod engine;
mod error;
pub mod export;
mod gate;
mod job;
mod journal;
pub mod limits;
mod order;
mod pace;
mod report;
mod series;
mod session;
mod set;
mod share;
mod sizes;
mod sum;
#[cfg(test)]
mod tests;
mod verify;
mod watch;
mod worker;
mod zipf;

pub use cost::{Probe, Spent};
pub use error::Error;
pub use job::{Direction, Job, Limit, Pattern, Plan, Target, Verify};
pub use journal::Error as JournalError;
pub use order::Distribution;
pub use pace::Think;
pub use report::{
    Cost, DirectionReport, Extra, JobReport, Latency, Moment, MomentSide, Percent, Report,
    RunExtra, VerifyError, VerifyReport,
};
pub use sizes::{Mix, Sizes};

use std::ops::ControlFlow;
use std::time::Duration;

/// What a run has done so far, for progress bars. Counters are totals over all jobs of the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What the run is doing now.
    pub phase: Phase,
    /// Time since the first command of this phase was sent.
    pub elapsed: Duration,
    /// Share of this phase that is done, 0.0 to 1.0.
    pub done: f64,
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes moved, reads and writes together.
    pub bytes: u64,
    /// Reads a second over the last interval.
    pub read_iops: f64,
    /// Writes a second over the last interval.
    pub write_iops: f64,
    /// Commands failed and blocks found wrong.
    pub errors: u64,
}

impl Progress {
    /// Nothing done yet.
    pub(crate) fn connecting(elapsed: reactor::Nanos) -> Self {
        Self {
            phase: Phase::Connecting,
            elapsed: Duration::from_nanos(elapsed),
            done: 0.0,
            reads: 0,
            writes: 0,
            bytes: 0,
            read_iops: 0.0,
            write_iops: 0.0,
            errors: 0,
        }
    }
}

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Queues are being connected.
    Connecting,
    /// The load proper.
    Running,
    /// What was written is being read back and checked.
    Verifying,
}

/// Runs the plan's jobs together and returns their report.
///
/// `progress` is called about ten times a second on the calling thread; returning
/// [`ControlFlow::Break`] ends the load early, and what was measured until then is reported.
///
/// # Errors
/// [`Error`] when the plan is invalid, a host connection cannot be made or is lost, or the target stops
/// answering. Failed commands and wrong data do not end the run: they are listed in the report.
pub fn run(
    plan: &Plan,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Report, Error> {
    engine::run(plan, progress)
}
