//! Bounds of the management socket, each with its reason.

use std::time::Duration;

/// Longest request body: a subsystem with the longest host list allowed (1024 NQNs of 223 bytes)
/// fits.
pub const REQUEST_BYTES: usize = 256 << 10;
/// Longest configuration imported.
pub const CONFIGURATION_BYTES: usize = stdx::num::usize64(array::limits::CONFIG_BYTES);
/// Longest response that the client takes: the largest listing, 256 subsystems with their
/// namespaces, is well below.
pub const RESPONSE_BYTES: usize = 64 << 20;

/// Connections open at once: commands, scrapers and consoles are some tens. More wait to be accepted.
pub const CONNECTIONS: usize = 256;
/// How long one may be silent: longer than any request takes to be answered.
pub const SILENCE: Duration = Duration::from_secs(600);

/// Connections of readers of metrics open at once: scrapers are a few, and each scrape is one. More wait.
pub const READERS: usize = 32;
/// How long one of them may be silent: scrapers come again within a minute, or anew.
pub const READER_SILENCE: Duration = Duration::from_secs(120);

/// How long a request may wait for a job to end: less than a connection may be silent.
pub const JOB_WAIT: Duration = Duration::from_secs(300);
/// How long one may wait for an event: likewise.
pub const EVENT_WAIT: Duration = JOB_WAIT;
const _: () = assert!(JOB_WAIT.as_secs() < SILENCE.as_secs());

/// How long a scrape of `/metrics` waits for what only a node that is not in the midst of a change can tell: scrapers
/// give up after ten seconds.
pub const SCRAPE: Duration = Duration::from_secs(5);

const _: () = assert!(array::limits::ANSWER.as_secs() < SCRAPE.as_secs());
const _: () = assert!(REQUEST_BYTES > api::limits::HOSTS_MAX * (api::limits::NQN_BYTES + 3));
