//! Version 1 of the management API, served under `/v1`.

mod metrics;
mod node;
mod problem;
mod subsystem;

pub use metrics::{
    Counters, HostMetrics, Latency, Metrics, NamespaceMetrics, Operation, ReactorMetrics,
};
pub use node::{Event, Listener, NewListener, PollPolicy, Reactor, Referral, Severity, Status};
pub use problem::{Kind, Problem};
pub use subsystem::{
    Controller, Host, Namespace, NamespaceChange, NewHost, NewNamespace, NewSubsystem, Subsystem,
    SubsystemChange,
};
