//! The node: its status, reactors, listeners and events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::value::{Address, Advertise, AnaState, Nqn};

/// How a reactor waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PollPolicy {
    /// Spin a little after the last work where that mostly finds more, and sleep at once where it does not.
    #[default]
    Adaptive,
    /// Spin a bounded time after the last work, however seldom there is some, then sleep.
    Eager,
    /// Never sleep: lowest latency, one core always busy.
    Busy,
    /// Sleep as soon as there is nothing to do: least CPU time.
    Interrupt,
}

impl PollPolicy {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Adaptive, Self::Eager, Self::Busy, Self::Interrupt];

    /// The name, as it is read and written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Eager => "eager",
            Self::Busy => "busy",
            Self::Interrupt => "interrupt",
        }
    }
}

/// The state of the daemon at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The node's identity: created once, kept in the state directory.
    pub node: Uuid,
    /// Version of the program.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Seconds since the daemon started.
    pub uptime_seconds: u64,
    /// State directory in use.
    pub state_dir: String,
    /// Configuration file in use, if there is one.
    pub config: Option<String>,
    /// One entry per reactor.
    pub reactors: Vec<Reactor>,
    /// Addresses listened on.
    pub listeners: Vec<Listener>,
    /// Number of subsystems, discovery not counted.
    pub subsystems: usize,
    /// Number of namespaces that are served, over all subsystems.
    pub namespaces: usize,
    /// Number of live controllers, discovery controllers included.
    pub controllers: usize,
    /// Number of open connections.
    pub connections: u64,
    /// What is asked for and is not as it should be, in words: pools that are not open or lack something, drives
    /// and addresses that are absent.
    #[serde(default)]
    pub problems: Vec<String>,
    /// How the node is, the worst of all there is.
    #[serde(default)]
    pub health: HealthReport,
    /// How its pools are, by name.
    #[serde(default)]
    pub pools: BTreeMap<String, HealthReport>,
    /// Grows with every change since the daemon started of what is configured, how pools and namespaces are, and which
    /// jobs there are. Counters, bytes in use and connections do not count.
    #[serde(default)]
    pub revision: u64,
    /// Subsystems that any host can use that reaches an address of this machine's networks: it has to name itself, and
    /// nothing more.
    pub open_to_any_host: Vec<Nqn>,
}

/// How something is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// As it should be.
    #[default]
    Ok,
    /// Hosts are served, and something needs to be looked at.
    Degraded,
    /// Hosts wait, or are refused.
    Failed,
}

impl Health {
    /// The name, as it is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

/// How something is, why, and what to do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthReport {
    /// How it is.
    pub health: Health,
    /// Why it is not `ok`, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// Something that needs to be looked at, or may be worth it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// How bad it is; `ok` for what is only worth knowing.
    pub health: Health,
    /// What it is about, such as `pool fast`.
    pub subject: String,
    /// What is the matter.
    pub why: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// How everything is: what a monitor asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeHealth {
    /// The worst of all findings.
    pub health: Health,
    /// The worst first.
    pub findings: Vec<Finding>,
}

/// One reactor: a thread with its own ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reactor {
    /// Index from 0.
    pub id: usize,
    /// CPU that it is pinned to, if it is.
    pub cpu: Option<usize>,
    /// How it waits for work.
    pub poll: PollPolicy,
    /// Connections that it serves.
    pub connections: u64,
    /// Share of the time since start spent on work, 0 to 1.
    pub busy: f64,
}

/// A listening address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listener {
    /// Where it listens.
    pub address: Address,
    /// What discovery returns instead of the address that the host connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,
    /// Whether this is the discovery service's port: no subsystem but discovery is offered here.
    #[serde(default)]
    pub discovery_only: bool,
    /// ANA state of the namespaces for hosts that are connected through it.
    #[serde(default)]
    pub ana: AnaState,
}

/// A listening address to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewListener {
    /// Where to listen.
    pub address: Address,
    /// What discovery returns instead of the address that the host connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,
    /// Offer the discovery subsystem only, as on port 8009.
    #[serde(default)]
    pub discovery_only: bool,
    /// ANA state of the namespaces for hosts that connect through it.
    #[serde(default)]
    pub ana: AnaState,
}

/// What to change of a listening address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerChange {
    /// ANA state of the namespaces for hosts that are connected through it; they are told.
    pub ana: Option<AnaState>,
}

/// Another discovery service that hosts are told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Referral {
    /// Where it is.
    pub address: Address,
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Something happened as it should.
    Info,
    /// Something needs to be looked at.
    Warning,
    /// Something failed.
    Error,
}

/// Something that happened. The daemon keeps the latest ones, over restarts too; older ones are in its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Grows by one with every event of the node.
    pub id: u64,
    /// Milliseconds since 1970-01-01 00:00:00 UTC.
    pub time_ms: u64,
    /// How much it matters.
    pub severity: Severity,
    /// What happened, for people.
    pub message: String,
    /// Who asked for it, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}
