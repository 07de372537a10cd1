//! The configuration file: TOML in, [`Settings`] and [`Desired`] out, or every fault with its
//! place, what is wrong, and what would be right.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::v1::PollPolicy;
use media::drive::Deadline;
use target::limits::{HOST_CONTROLLERS, QUEUE_ENTRIES_MAX};

use crate::desired::Desired;
use crate::limits::{
    CONFIG_BYTES, CONNECTIONS, REBUILD_AFTER, SCRUB_EVERY, WAIT_FOR_DRIVES, WINDOW_BYTES,
};
use crate::space::Thresholds;

mod document;
mod fault;
mod group;
mod read;
mod write;

pub use fault::{Fault, Faults};
pub use read::closest;
pub use write::text;

/// What of a configuration takes effect at start only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// CPUs to run reactors on, one each, pinned; empty leaves number and place to the node.
    pub cpus: Vec<usize>,
    /// How the reactors wait for work.
    pub poll: PollPolicy,
    /// How long an adaptive reactor spins after its last work; the reactor's default if `None`.
    pub spin: Option<Duration>,
    /// From when on pools are low on space.
    pub space: Thresholds,
    /// How long pools that lack drives are waited for before they are opened without them.
    pub wait_for_drives: Duration,
    /// How long a drive is gone before what it had is rebuilt on the others; `None` for never by itself.
    pub rebuild_after: Option<Duration>,
    /// How long after a pool's last scrub the next one begins by itself; `None` for never.
    pub scrub_every: Option<Duration>,
    /// Folders in which drives are searched for, beside where they were and where the system names them.
    pub drive_folders: Vec<PathBuf>,
    /// Drives of pools are not told of the space that becomes free.
    pub keeps_free_space: bool,
    /// Hosts without a name are admitted nowhere.
    pub strict_host_names: bool,
    /// The group whose members may use the management socket; its owner alone if `None`.
    pub socket_group: Option<u32>,
    /// What hosts may have.
    pub bounds: Bounds,
    /// How long drives may take.
    pub deadline: Deadline,
    /// Where metrics are served over TCP, to whoever reaches it.
    pub metrics: Option<SocketAddr>,
    /// Whether hosts of this machine are granted direct write windows.
    pub windows: bool,
    /// Bytes of rings that each pool gives for them at most.
    pub window_bytes: u64,
}

/// What hosts may have of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections open at once.
    pub connections: usize,
    /// Controllers of one host in one subsystem.
    pub host_controllers: usize,
    /// Entries of all queues of one reactor.
    pub queue_entries: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            host_controllers: HOST_CONTROLLERS,
            queue_entries: QUEUE_ENTRIES_MAX,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cpus: Vec::new(),
            poll: PollPolicy::default(),
            spin: None,
            space: Thresholds::default(),
            wait_for_drives: WAIT_FOR_DRIVES,
            rebuild_after: Some(REBUILD_AFTER),
            scrub_every: Some(SCRUB_EVERY),
            drive_folders: Vec::new(),
            keeps_free_space: false,
            strict_host_names: false,
            socket_group: None,
            bounds: Bounds::default(),
            deadline: media::drive::DEADLINE,
            metrics: None,
            windows: true,
            window_bytes: WINDOW_BYTES,
        }
    }
}

/// A configuration file, read and checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// What takes effect at start only.
    pub settings: Settings,
    /// What is served.
    pub desired: Desired,
    /// Faults that may pass, and that a start goes without: there are none of them after [`load`].
    pub passing: Vec<Fault>,
    /// It says which listeners there are, be it none. One that was cut short says nothing of them.
    pub has_listeners: bool,
    /// Likewise of subsystems.
    pub has_subsystems: bool,
}

/// Reads and checks the configuration file at `path`.
///
/// # Errors
/// Every fault found, in the order of the file. Nothing has been applied.
pub fn load(path: &Path) -> Result<Config, Faults> {
    strictly(path, load_to_start(path)?)
}

/// Likewise, but for faults that may pass.
///
/// # Errors
/// As [`load`].
pub fn load_to_start(path: &Path) -> Result<Config, Faults> {
    let unreadable =
        |wrong: String| Faults::unreadable(path, wrong, "name a readable TOML file with --config");
    let look = || std::fs::metadata(path).map_err(|error| unreadable(error.to_string()));
    let before = look()?;
    let length = before.len();
    if length > CONFIG_BYTES {
        return Err(unreadable(format!("{length} bytes are more than {CONFIG_BYTES}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let after = look()?;
    if (after.len(), after.modified().ok()) != (length, before.modified().ok()) {
        return Err(unreadable("it was being written to: try again".to_owned()));
    }
    read::read(path, &text)
}

fn strictly(path: &Path, config: Config) -> Result<Config, Faults> {
    match config.passing.is_empty() {
        true => Ok(config),
        false => Err(Faults { file: path.to_owned(), faults: config.passing }),
    }
}

/// Checks `text` as the content of the configuration file at `path`.
///
/// # Errors
/// As [`load`].
pub fn parse(path: &Path, text: &str) -> Result<Config, Faults> {
    strictly(path, read::read(path, text)?)
}

#[cfg(test)]
mod tests;
