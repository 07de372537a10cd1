//! `serve` and `demo`.

use std::path::PathBuf;
use std::str::FromStr;

use api::v1::PollPolicy;
use api::value::{Address, Advertise, Backend, Nqn, Size};
use clap::{ArgGroup, Args, ValueEnum};

use super::{DEFAULT_NQN, value};
use crate::log::Format;

const SERVE_EXAMPLES: &str = "\
Examples:
  flashloom serve memory:1GiB
  flashloom serve drive:/dev/nvme0n1 --listen 0.0.0.0:4420
  flashloom serve drive:/srv/a.img,size=10GiB memory:512MiB --cpus 0-3 --poll busy
  flashloom serve memory:1GiB --allow-host nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11
  flashloom serve --config /etc/flashloom/flashloom.toml
  flashloom serve --listen 0.0.0.0:4420

Drives named on the command line become namespaces 1, 2, ... of one subsystem. Without any, what
the configuration file asks for is served, or what was served last, pools and their volumes
included; with --listen on these addresses in place of those named at the last start. Changes made while it runs
(`flashloom namespace add` and the like) are kept over restarts; identities are kept always.

Signals: SIGINT and SIGTERM stop in order, SIGHUP reads the configuration file again.

A configuration file:
  [node]
  cpus = \"0-3\"                 # one pinned reactor on each
  poll = \"adaptive\"            # or \"eager\", \"busy\", \"interrupt\"

  [[listener]]
  address = \"0.0.0.0:4420\"
  advertise = \"192.0.2.10\"     # what discovery returns, behind a translation

  [[listener]]
  address = \"0.0.0.0:8009\"
  discovery-only = true

  [[subsystem]]
  nqn = \"nqn.2026-11.io.flashloom:db\"
  hosts = [\"nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11\"]

  [[subsystem.namespace]]
  backend = \"drive:/dev/nvme0n1\"
  block-size = 4096";

/// Serve drives or memory over NVMe/TCP, and NVMe/RDMA, until stopped.
#[derive(Args, Debug)]
#[command(after_long_help = SERVE_EXAMPLES)]
#[command(group = ArgGroup::new("served").args(["backends", "listen"]).multiple(true))]
pub struct ServeArgs {
    /// What to serve: memory:SIZE, drive:PATH, drive:PATH,size=SIZE or passthrough:PATH; several become several
    /// namespaces.
    #[arg(value_name = "BACKEND", value_parser = value::<Backend>, conflicts_with = "config")]
    pub backends: Vec<Backend>,

    /// Serve what this file asks for.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Listen here, by RDMA with rdma:// before it; may be given several times. [default: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = value::<Address>, conflicts_with = "config")]
    pub listen: Vec<Address>,

    /// Port of the discovery service beside the one on every listener.
    #[arg(long, value_name = "PORT|off", default_value = "8009")]
    pub discovery: Discovery,

    /// NQN of the subsystem.
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN, value_parser = value::<Nqn>)]
    pub subnqn: Nqn,

    /// Let only this host connect; may be given several times. [default: any host]
    #[arg(long, value_name = "NQN", value_parser = value::<Nqn>, requires = "backends")]
    pub allow_host: Vec<Nqn>,

    /// Address that discovery returns in place of the one the host connected to.
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = value::<Advertise>, requires = "served")]
    pub advertise: Option<Advertise>,

    /// Logical block size in bytes. [default: 4096; of passthrough:PATH, the drive's own]
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    pub block_size: Option<u32>,

    /// CPUs to run on, one pinned reactor each. [default: half of the CPUs, not pinned]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<Cpus>,

    /// How reactors wait for work. [default: adaptive]
    #[arg(long, value_name = "POLICY")]
    pub poll: Option<Poll>,

    /// Forget changes made to a running daemon; identities are kept.
    #[arg(long)]
    pub fresh: bool,

    /// How to log.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub log: Format,
}

/// `--discovery`: a port, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// Serve discovery on this port of every address listened on.
    Port(u16),
    /// Serve discovery on the listeners only.
    Off,
}

impl FromStr for Discovery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("off", _) => Ok(Self::Off),
            (_, Ok(port)) if port > 0 => Ok(Self::Port(port)),
            _ => Err("write a TCP port, or off".to_owned()),
        }
    }
}

/// A list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(pub Vec<usize>);

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        array::cpus::parse(text)
            .map(Self)
            .map_err(|refused| format!("{}; {}", refused.wrong, refused.right))
    }
}

/// How reactors wait for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Poll {
    /// Spin a little after the last work where that mostly finds more, and sleep at once where it does not.
    Adaptive,
    /// Spin a bounded time after the last work, however seldom there is some, then sleep.
    Eager,
    /// Never sleep: lowest latency, the core is always busy.
    Busy,
    /// Sleep as soon as there is nothing to do.
    Interrupt,
}

impl Poll {
    /// As a reactor takes it.
    pub fn policy(self) -> reactor::PollPolicy {
        match self {
            Self::Adaptive => reactor::PollPolicy::ADAPTIVE,
            Self::Eager => reactor::PollPolicy::EAGER,
            Self::Busy => reactor::PollPolicy::Busy,
            Self::Interrupt => reactor::PollPolicy::Interrupt,
        }
    }
}

impl From<Poll> for PollPolicy {
    fn from(poll: Poll) -> Self {
        match poll {
            Poll::Adaptive => Self::Adaptive,
            Poll::Eager => Self::Eager,
            Poll::Busy => Self::Busy,
            Poll::Interrupt => Self::Interrupt,
        }
    }
}

fn block_size(text: &str) -> Result<u32, String> {
    let bytes = text.parse().map_err(|_| "choose 512 or 4096".to_owned())?;
    array::desired::check_block_size(bytes).map_err(|refused| refused.right)?;
    Ok(bytes)
}

/// Show it working: a verified load on six files (RAID 6), under which its daemon is killed and drives are taken away.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom demo
  flashloom demo --once
  flashloom demo --dir /srv/demo --size 1GiB --seconds 30

Its state is in DIR/state, unless --state-dir names another place: `flashloom --state-dir flashloom-data/state status`
asks it how it is while it serves.")]
pub struct DemoArgs {
    /// Exit after the table instead of serving on.
    #[arg(long)]
    pub once: bool,

    /// Where the drives are kept.
    #[arg(long, value_name = "DIR", default_value = "flashloom-data")]
    pub dir: PathBuf,

    /// Size of each of the six drives.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = value::<Size>)]
    pub size: Size,

    /// How long to run the load before each thing that happens to it; four times as long in all.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,

    /// Where to listen. [default: 127.0.0.1:4420, or a free port when that is taken]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = value::<Address>)]
    pub listen: Option<Address>,
}
