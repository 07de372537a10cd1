//! Bounds of the node, each with its reason.

/// Events kept in memory for `GET /v1/events`: a day of a quiet node; the log has the rest.
pub const EVENTS: usize = 1024;
/// Reactors of one node: one per core of the largest two-socket machines.
pub const REACTORS: usize = 256;
/// Reactors started when no CPUs are named: enough for two 100 GbE ports.
pub const REACTORS_UNASKED: usize = 8;
/// Longest configuration file read, in bytes: 256 subsystems with 64 namespaces fit in 4 MiB.
pub const CONFIG_BYTES: u64 = 4 << 20;
/// Faults reported of one configuration file: more than a screen helps nobody.
pub const CONFIG_FAULTS: usize = 20;
