//! Counters since the daemon started: what `/metrics` shows, as a document.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kinds of I/O command that are counted apart.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Dataset Management and Write Zeroes.
    Deallocate,
    /// Flush.
    Flush,
    /// Every other I/O command.
    Other,
}

impl Operation {
    /// The name, as metrics label it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Deallocate => "deallocate",
            Self::Flush => "flush",
            Self::Other => "other",
        }
    }
}

/// A latency histogram: cumulative counts at or below each bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// Ascending.
    pub buckets: Vec<Bucket>,
    /// Sum over all commands in nanoseconds.
    pub sum_ns: u64,
    /// Number of commands.
    pub count: u64,
}

/// What one kind of command has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Kind of command.
    pub operation: Operation,
    /// Commands completed, failed ones included.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Commands that failed.
    pub errors: u64,
    /// From receiving the command to queueing its completion.
    pub latency: Latency,
}

/// Counters of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceMetrics {
    /// NQN of its subsystem.
    pub subsystem: String,
    /// Its NSID.
    pub nsid: u32,
    /// Commands received and not completed yet, over all queues.
    pub outstanding: u64,
    /// One entry per kind of command.
    pub counters: Vec<Counters>,
}

/// Counters of one host on one subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostMetrics {
    /// NQN of the subsystem.
    pub subsystem: String,
    /// NQN of the host.
    pub host: String,
    /// Commands received and not completed yet, over all queues.
    pub outstanding: u64,
    /// One entry per kind of command.
    pub counters: Vec<Counters>,
}

/// How much of what hosts share on a reactor there is, and in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetMetrics {
    /// What it is, with its unit.
    pub name: String,
    /// In use.
    pub used: u64,
    /// How much there is.
    pub limit: u64,
    /// How often somebody was refused it, or had to wait for it.
    pub missed: u64,
}

/// Counters of one reactor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReactorMetrics {
    /// Index from 0.
    pub id: usize,
    /// Whether it answered when it was asked; of one that did not, counters of commands are missing.
    pub answers: bool,
    /// Share of the time since start spent on work, 0 to 1.
    pub busy: f64,
    /// Time spent on work since start, seconds.
    pub busy_seconds: f64,
    /// Turns of its loop.
    pub turns: u64,
    /// Times that it went to sleep in the ring.
    pub sleeps: u64,
    /// Live tasks.
    pub tasks: u64,
    /// Connections that it serves.
    pub connections: u64,
    /// Commands received and not completed yet, over all its queues.
    pub outstanding: u64,
    /// One entry per kind of command.
    pub counters: Vec<Counters>,
    /// What its hosts share.
    #[serde(default)]
    pub budgets: Vec<BudgetMetrics>,
}

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// By namespace; a subsystem's are the sum.
    pub namespaces: Vec<NamespaceMetrics>,
    /// By host and subsystem.
    pub hosts: Vec<HostMetrics>,
    /// By reactor.
    pub reactors: Vec<ReactorMetrics>,
    /// Refused Connects, by reason; every reason is there.
    #[serde(default)]
    pub refused_connects: Vec<RefusedConnects>,
}

/// How many commands took no longer than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Nanoseconds.
    pub at_most_ns: u64,
    /// Commands.
    pub count: u64,
}

/// Connects that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedConnects {
    /// Why, in one word.
    pub reason: String,
    /// How many.
    pub count: u64,
}

impl Counters {
    /// Adds what was counted elsewhere for the same kind of command.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency.add(&other.latency);
    }
}

impl Latency {
    /// Adds a histogram with the same bounds.
    pub fn add(&mut self, other: &Self) {
        debug_assert!(self.buckets.len() == other.buckets.len(), "bounds are the same everywhere");
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            mine.count += theirs.count;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.count += other.count;
    }
}
