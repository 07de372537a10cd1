//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub mod ablation;
mod attach;
pub mod bench;
mod configuration;
pub mod connect;
mod drives;
mod groups;
mod hosts;
mod jobs;
mod manage;
mod pools;
mod raid;
mod schedules;
mod scrub;
mod serve;
mod snapshots;
mod spares;
mod top;

pub use attach::AttachArgs;
pub use configuration::{ConfigVerb, SureArgs};
pub use connect::ConnectArgs;
pub use drives::{DriveVerb, OfDrive, RebuildVerb, RejoinVerb};
pub use groups::{CloneName, GroupVerb};
pub use hosts::{AskArgs, DiscoverArgs, IdNsArgs, duration};
pub use jobs::{JobArgs, JobVerb};
pub use manage::{
    ControllerVerb, EventsArgs, HostVerb, ListenerVerb, NamespaceVerb, ReferralVerb, SubsystemVerb,
};
pub use pools::{DumpArgs, LogVerb, MadeOf, MapArgs, PoolVerb, Reserve, VolumeVerb};
pub use raid::{MemberSpec, RaidVerb, SetArgs, UseArgs};
pub use schedules::{RuleArgs, ScheduleVerb};
pub use scrub::ScrubVerb;
pub use serve::{Cpus, DemoArgs, Discovery, Poll, ServeArgs};
pub use snapshots::{SnapshotVerb, Whose};
pub use spares::SpareVerb;
pub use top::TopArgs;

/// NQN of the subsystem of an ad hoc target.
pub const DEFAULT_NQN: &str = "nqn.2026-11.io.flashloom:default";

const EXAMPLES: &str = "\
Examples:
  flashloom serve memory:1GiB
  flashloom serve --config /etc/flashloom/flashloom.toml
  flashloom demo --once
  flashloom discover --traddr 127.0.0.1
  flashloom namespace add --subnqn nqn.2026-11.io.flashloom:default memory:1GiB
  flashloom pool create fast --drive /dev/nvme1n1 --drive /dev/nvme2n1 --drive /dev/nvme3n1 --drive /dev/nvme4n1
  flashloom volume create fast/db --size 2TiB
  flashloom volume map fast/db --subnqn nqn.2026-11.io.flashloom:db --allow-any-host

Exit codes:
  0  done
  1  what was asked for failed
  2  the command line is wrong
  3  the configuration file has faults; nothing was started or changed
  4  no daemon answers on the management socket
  5  the target could not be reached, or refused
  6  commands failed, or data read back was not what was written
  7  the daemon ended itself: a reactor could not go on

Environment:
  FLASHLOOM_LOG        what to log, such as info, debug or target=trace
  FLASHLOOM_STATE_DIR  the state directory";

/// Flashloom: drives and memory served over NVMe/TCP, and the host side to use them.
#[derive(Debug, Parser)]
#[command(name = "flashloom", version, after_long_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Where identity, state and the management socket live.
    /// [default: /var/lib/flashloom for root, else ~/.local/state/flashloom]
    #[arg(long, global = true, value_name = "DIR", env = "FLASHLOOM_STATE_DIR")]
    pub state_dir: Option<PathBuf>,

    /// How to print results.
    #[arg(long, short, global = true, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
}

impl Global {
    /// The state directory to use.
    pub fn state_dir(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(array::state::default_dir)
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For spreadsheets: results of bench and demo.
    Csv,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve drives or memory over NVMe/TCP until stopped.
    Serve(ServeArgs),
    /// Show it working: a verified load on six files, under which its daemon is killed and drives are taken away.
    Demo(DemoArgs),
    /// Measure a namespace from user space; the result reads like fio's.
    Bench(Box<bench::BenchArgs>),
    /// Use a namespace of a target as a network block device.
    Attach(AttachArgs),
    /// RAID at the host (experimental): sets of namespaces of several targets.
    Raid {
        #[command(subcommand)]
        verb: RaidVerb,
    },
    /// Print the discovery log of a target.
    Discover(DiscoverArgs),
    /// Print a controller's Identify data.
    #[command(name = "id-ctrl")]
    IdCtrl(AskArgs),
    /// Print a namespace's Identify data.
    #[command(name = "id-ns")]
    IdNs(IdNsArgs),
    /// Print what the running daemon does.
    #[command(after_long_help = "\
Examples:
  flashloom status
  flashloom status -o json")]
    Status,
    /// Print what needs to be looked at, and what to do; the exit code is for monitors.
    #[command(after_long_help = "\
Examples:
  flashloom health
  flashloom health -o json

Exit codes, as monitors have them:
  0  ok
  1  degraded: hosts are served, and something needs to be looked at
  2  failed: hosts wait, or are refused
  3  not known: no daemon answers")]
    Health,
    /// Show what hosts do, live.
    Top(TopArgs),
    /// Subsystems of the running daemon.
    Subsystem {
        #[command(subcommand)]
        verb: SubsystemVerb,
    },
    /// Namespaces of the running daemon.
    #[command(alias = "ns")]
    Namespace {
        #[command(subcommand)]
        verb: NamespaceVerb,
    },
    /// Pools of the running daemon: drives put together.
    Pool {
        #[command(subcommand)]
        verb: PoolVerb,
    },
    /// Drives of the running daemon's pools.
    Drive {
        #[command(subcommand)]
        verb: DriveVerb,
    },
    /// Volumes of the running daemon's pools.
    #[command(alias = "vol")]
    Volume {
        #[command(subcommand)]
        verb: VolumeVerb,
    },
    /// Snapshots of the running daemon's volumes.
    #[command(alias = "snap")]
    Snapshot {
        #[command(subcommand)]
        verb: SnapshotVerb,
    },
    /// Consistency groups: volumes of the running daemon, of which snapshots are taken at one instant.
    Group {
        #[command(subcommand)]
        verb: GroupVerb,
    },
    /// Schedules: snapshots of the running daemon's volumes, taken by themselves.
    Schedule {
        #[command(subcommand)]
        verb: ScheduleVerb,
    },
    /// Jobs of the running daemon: work that takes long.
    Job {
        #[command(subcommand)]
        verb: JobVerb,
    },
    /// What the running daemon serves as a whole, now and before.
    Config {
        #[command(subcommand)]
        verb: ConfigVerb,
    },
    /// Addresses that the running daemon listens on.
    Listener {
        #[command(subcommand)]
        verb: ListenerVerb,
    },
    /// Other discovery services that the running daemon tells hosts of.
    Referral {
        #[command(subcommand)]
        verb: ReferralVerb,
    },
    /// Hosts that may connect to the running daemon.
    Host {
        #[command(subcommand)]
        verb: HostVerb,
    },
    /// Hosts' associations with the running daemon.
    Controller {
        #[command(subcommand)]
        verb: ControllerVerb,
    },
    /// Print what happened in the running daemon.
    Events(EventsArgs),
    /// Check a configuration file; nothing is started.
    #[command(
        name = "check-config",
        after_long_help = "\
Examples:
  flashloom check-config /etc/flashloom/flashloom.toml"
    )]
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Print a shell's completion script.
    #[command(after_long_help = "\
Examples:
  flashloom completions bash")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all pages into a directory.
    #[command(after_long_help = "\
Examples:
  flashloom man
  flashloom man --out /usr/share/man/man1")]
    Man {
        /// Write one page per command into this directory.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Print the OpenAPI description of the management API.
    #[command(hide = true)]
    Openapi,
}

/// Reads a value of the `api` crate, with both sentences when it is refused.
pub(crate) fn value<T: std::str::FromStr<Err = api::value::Refused>>(
    text: &str,
) -> Result<T, String> {
    text.parse()
        .map_err(|refused: api::value::Refused| format!("{}; {}", refused.wrong, refused.right))
}

#[cfg(test)]
mod tests;
