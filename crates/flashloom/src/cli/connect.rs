//! How to connect to a namespace, for every command that uses one.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use initiator::{Address, Optimizations, Options, PathPolicy, Remote};

use super::hosts::{AskArgs, duration};

/// How to connect to a namespace; the names are those of nvme-cli.
#[derive(Args, Clone, Debug)]
pub struct ConnectArgs {
    #[command(flatten)]
    pub ask: AskArgs,

    /// The namespace.
    #[arg(long, value_name = "NSID", default_value = "1")]
    pub nsid: u32,

    /// One more address of the subsystem: another path to the namespace. Can be given several times.
    #[arg(long, value_name = "[rdma://]ADDR[:PORT]")]
    pub path: Vec<Address>,

    /// Take every address that the discovery service at --traddr and --trsvcid has for the subsystem as a path, of the
    /// same transport.
    #[arg(long)]
    pub all_paths: bool,

    /// How commands are spread over paths of the same access.
    #[arg(long, value_name = "POLICY", default_value = "numa")]
    pub path_policy: Policy,

    /// I/O queues, each on a connection of its own.
    #[arg(long, short = 'i', alias = "queues", value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    pub nr_io_queues: u16,

    /// I/O queues beside them for what is no read.
    #[arg(long, short = 'W', value_name = "COUNT", default_value = "0")]
    pub nr_write_queues: u16,

    /// I/O queues beside them for polled commands.
    #[arg(long, short = 'P', value_name = "COUNT", default_value = "0")]
    pub nr_poll_queues: u16,

    /// Commands outstanding on each queue.
    #[arg(long, short = 'Q', value_name = "COUNT", default_value = "128", value_parser = clap::value_parser!(u16).range(2..))]
    pub queue_size: u16,

    /// Keep Alive Timeout. [default: 5s]
    #[arg(long, short = 'k', value_name = "TIME", value_parser = duration)]
    pub keep_alive_tmo: Option<Duration>,

    /// Time between attempts to connect again. [default: 10s]
    #[arg(long, short = 'c', value_name = "TIME", value_parser = duration)]
    pub reconnect_delay: Option<Duration>,

    /// How long it is tried to connect again; off is for ever. [default: 600s]
    #[arg(long, short = 'l', value_name = "TIME|off")]
    pub ctrl_loss_tmo: Option<Patience>,

    /// After this long without the target commands fail; off has them wait. [default: off]
    #[arg(long, short = 'F', value_name = "TIME|off")]
    pub fast_io_fail_tmo: Option<Patience>,

    /// Command Quiesce Time (CQT) of a target that reports none: how long after it noticed the loss of a connection it may
    /// still carry out commands. [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub cqt: Option<Duration>,

    /// Type of service of what is sent, or its traffic class.
    #[arg(long, short = 'T', value_name = "TOS")]
    pub tos: Option<u8>,

    /// Priority of the connections, by which network cards choose the outbound queue.
    #[arg(long, value_name = "PRIORITY")]
    pub so_priority: Option<i32>,

    /// Ask for header digests.
    #[arg(long, short = 'g')]
    pub hdr_digest: bool,

    /// Ask for data digests.
    #[arg(long, short = 'G')]
    pub data_digest: bool,

    /// What makes the host's side fast: default, all, none or names with commas between them; a name that
    /// begins with - is taken off, such as in --optimizations=-hints. [default: default]
    #[arg(long, alias = "cures", value_name = "LIST", allow_hyphen_values = true)]
    pub optimizations: Option<Optimizations>,
}

impl ConnectArgs {
    /// All paths that are named, the first one first.
    pub fn remotes(&self) -> Vec<Remote> {
        self.remote().with_paths(&self.path)
    }

    /// Whom to connect to, and how.
    pub fn remote(&self) -> Remote {
        let to = &self.ask.to;
        let usual = Options::default();
        Remote {
            options: Options {
                header_digest: self.hdr_digest,
                data_digest: self.data_digest,
                tos: self.tos,
                priority: self.so_priority,
                keep_alive: self.keep_alive_tmo.unwrap_or(usual.keep_alive),
                io_queues: self.nr_io_queues,
                write_queues: self.nr_write_queues,
                poll_queues: self.nr_poll_queues,
                optimizations: self.optimizations.unwrap_or(usual.optimizations),
                queue_size: self.queue_size,
                reconnect_delay: self.reconnect_delay.unwrap_or(usual.reconnect_delay),
                ctrl_loss: self.ctrl_loss_tmo.map_or(usual.ctrl_loss, |patience| patience.0),
                cqt: self.cqt.unwrap_or(usual.cqt),
                fast_io_fail: self.fast_io_fail_tmo.map_or(usual.fast_io_fail, |time| time.0),
                ..usual
            },
            ..to.remote(&self.ask.subnqn)
        }
    }
}

/// How commands are spread over paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// All take the first one.
    Numa,
    /// Each takes the next one in turn.
    RoundRobin,
    /// Each takes the one with the fewest commands in flight.
    QueueDepth,
}

impl From<Policy> for PathPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Numa => Self::Numa,
            Policy::RoundRobin => Self::RoundRobin,
            Policy::QueueDepth => Self::QueueDepth,
        }
    }
}

/// A time, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(pub Option<Duration>);

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            time => duration(time).map(Some).map(Self).map_err(|right| format!("{right}, or off")),
        }
    }
}
